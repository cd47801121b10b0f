/* rm.c: penstock rm: removes a dataset with all of its files. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "common/store/build/remove.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char help[] =
    "usage: penstock rm [--dry-run] DIR\n"
    "Removes the dataset in DIR: the files that its dataset.json names, and the stripes that --stripe-dirs "
    "put\n"
    "in other directories. It removes nothing if DIR is not a dataset or holds other files. Files stay if "
    "they\n"
    "are only linked from DIR, by import --link or by you. If rm is killed, the same command finishes the "
    "work.\n"
    "A copy made by `cp -a` shares the stripes of its original: remove such a copy with `rm -r`.\n\n"
    "  --dry-run              only say what would be removed\n";

struct sum {
    bool dry;
    int64_t files;
    uint64_t bytes;
};

static void tell(void *ctx, const char *path, uint64_t bytes)
{
    struct sum *s = ctx;
    s->files++;
    s->bytes += bytes;
    if (s->dry)
        (void)printf("would remove %s\n", path);
}

static pst_rc remove_dataset(const char *dir, struct sum *s)
{
    char bytes[32];
    pst_rc rc = pst_remove_dataset(dir, s->dry, tell, s);
    if (rc == PST_OK)
        (void)printf("%s: %s %" PRId64 " files, %s\n", dir, s->dry ? "would remove" : "removed", s->files,
                     pst_bytes_text((double)s->bytes, bytes));
    return rc;
}

int cmd_rm(int argc, char **argv)
{
    static const struct option options[] = {
        {"dry-run", no_argument, NULL, 'n'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct sum s = {.dry = false};
    int opt;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt != 'n') {
            (void)fputs(help, opt == 'h' ? stdout : stderr);
            return opt == 'h' ? 0 : 2;
        }
        s.dry = true;
    }
    return command_result(
        "rm",
        optind + 1 == argc
            ? remove_dataset(argv[optind], &s)
            : pst_fail(PST_E_ARG,
                       "expected one directory as argument, found %d arguments; --help lists the options",
                       argc - optind));
}
