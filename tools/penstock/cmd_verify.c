/* penstock verify: reads all of a dataset and checks it. */
#include <getopt.h>
#include <stdio.h>

#include "../../common/error.h"
#include "../../common/store/verify.h"
#include "commands.h"
#include "store_options.h"

static const char help[] =
    "usage: penstock verify DIR [--quiet]\n"
    "Reads all of the dataset DIR: checksums, indptr that never falls, ids in range, finite features,\n"
    "labels in range, splits without doubles. Tells every problem; exit code 2 if there is one.\n";

static void say(const char *dir, const struct pst_verify_report *report)
{
    uint64_t bytes = 0;
    double seconds = 0;
    char amount[32], rate[32];
    for (unsigned i = 0; i < PST_ARRAY_IDS; i++) {
        if (!report->array[i].present)
            continue;
        bytes += report->array[i].bytes;
        seconds += report->array[i].seconds;
        (void)printf("%-9s %10s  %s\n", pst_array_id_name(i),
                     pst_bytes_text((double)report->array[i].bytes, amount), report->array[i].checked);
    }
    (void)printf("%s: ok, %s in %.2f s (%s/s)\n", dir, pst_bytes_text((double)bytes, amount), seconds,
                 pst_bytes_text(seconds > 0 ? (double)bytes / seconds : 0, rate));
}

int cmd_verify(int argc, char **argv)
{
    static const struct option options[] = {
        {"quiet", no_argument, NULL, 'q'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool quiet = false;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(help, stdout);
            return 0;
        }
        if (opt != 'q')
            return command_result("verify", pst_fail(PST_E_ARG, "see penstock verify --help"));
        quiet = true;
    }
    if (argc - optind != 1)
        return command_result("verify",
                              pst_fail(PST_E_ARG, "expected one directory, found %d", argc - optind));
    struct pst_progress progress;
    struct pst_verify_report report;
    pst_progress_init(&progress, quiet);
    pst_rc rc = pst_verify(argv[optind], &report, &progress);
    if (rc == PST_OK)
        say(argv[optind], &report);
    return command_result("verify", rc);
}
