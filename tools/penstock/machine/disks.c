/* disks.c: `penstock disks`: the machine's NVMe drives, and which backends can use them. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/machine/disks.h"
#include "tools/penstock/cli/options.h"

static const char help[] =
    "usage: penstock disks [--json]\n       penstock disks --bind PCI | --release PCI\nLists the machine's "
    "NVMe controllers and namespaces, and which disk backends can use each. For a backend that\ncannot, it "
    "prints the reason and a command that helps. Some details are shown only to root.\n  --json          "
    "print JSON\n  --bind PCI      take the controller at this address (0000:01:00.0) from the kernel, for "
    "backend nvme;\n                  refused if anything on it is in use\n  --release PCI   give it back to "
    "the kernel; its namespaces are block devices again\n";

static pst_rc list(bool json)
{
    struct disk *disks = malloc(DISKS_MAX * sizeof *disks);
    if (disks == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the list");
    int n = disks_find(disks);
    pst_rc rc = PST_OK;
    if (json)
        rc = disks_print_json(disks, n);
    else
        disks_print(disks, n);
    free(disks);
    return rc;
}

int cmd_disks(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"bind", required_argument, NULL, 'b'},
                                            {"release", required_argument, NULL, 'r'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool json = false;
    const char *bind = NULL, *release = NULL;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'j': json = true; break;
        case 'b': bind = optarg; break;
        case 'r': release = optarg; break;
        case 'h': (void)fputs(help, stdout); return 0;
        default:
            return command_result(
                "disks", pst_fail(PST_E_ARG, "invalid option: `penstock disks --help` lists the options"));
        }
    }
    if (optind != argc || (json ? 1 : 0) + (bind != NULL) + (release != NULL) > 1)
        return command_result(
            "disks",
            pst_fail(PST_E_ARG, "expected at most one of the options --json, --bind PCI and --release PCI"));
    if (bind != NULL)
        return command_result("disks", pst_usable_bind("", bind));
    if (release != NULL)
        return command_result("disks", pst_usable_release("", release));
    return command_result("disks", list(json));
}
