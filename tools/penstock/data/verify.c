/* verify.c: penstock verify: reads a whole dataset and checks it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "common/store/build/build.h"
#include "common/store/dataset/verify.h"
#include "common/store/reorder/same.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char help[] =
    "usage: penstock verify DIR [--same-as OTHER] [--quiet]\n"
    "Reads the whole dataset in DIR and checks it: checksums, non-decreasing indptr, ids and labels in "
    "range,\n"
    "finite features, splits without duplicates. Prints every mistake. Exit code: 0 if there is none, else "
    "2.\n\n"
    "  --same-as OTHER   also read OTHER, and prove that both are the same but for the numbers of the "
    "vertices, as\n"
    "                    after `penstock reorder`: edges, with their relations, weights and times, features, "
    "labels,\n"
    "                    splits and all other arrays. Vertices are the same if their old ids are\n"
    "  --quiet           show no progress line\n";

static void say_one(const char *name, const struct pst_verified *v, struct pst_verified *sum)
{
    char amount[32];
    if (!v->present)
        return;
    sum->bytes += v->bytes;
    sum->seconds += v->seconds;
    (void)printf("%-17s %10s  %s\n", name, pst_bytes_text((double)v->bytes, amount), v->checked);
}

static void say(const char *dir, const struct pst_verify_report *report)
{
    struct pst_verified sum = {.bytes = 0};
    char amount[32], rate[32];
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        say_one(pst_array_id_name(i), &report->array[i], &sum);
    for (int k = 0; k < PST_DATASET_FEATURE_FILES_MAX; k++) {
        char name[PST_NAME_MAX];
        pst_build_stripe_name(k, name);
        say_one(name, &report->stripe[k], &sum);
    }
    for (int k = 0; k < PST_MANIFEST_VERTEX_TYPES_MAX; k++) {
        char name[PST_NAME_MAX];
        pst_build_features_name(k, name);
        say_one(name, &report->features[k], &sum);
    }
    say_one("splits", &report->splits, &sum);
    (void)printf("%s: ok, %s in %.2f s (%s/s)\n", dir, pst_bytes_text((double)sum.bytes, amount), sum.seconds,
                 pst_bytes_text(sum.seconds > 0 ? (double)sum.bytes / sum.seconds : 0, rate));
}

static pst_rc same(const char *dir, const char *other, struct pst_progress *progress)
{
    struct pst_same_report report;
    const pst_rc rc = pst_same(other, dir, &report, progress);
    if (rc == PST_OK)
        (void)printf("%s: the same as %s, but for the numbers of %" PRId64 " of %" PRId64
                     " vertices: %" PRId64 " edges; compared: %s\n",
                     dir, other, report.moved, report.vertices, report.edges, report.compared);
    return rc;
}

int cmd_verify(int argc, char **argv)
{
    static const struct option options[] = {{"same-as", required_argument, NULL, 's'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *other = NULL;
    bool quiet = false;
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'h': (void)fputs(help, stdout); return 0;
        case 's': other = optarg; break;
        case 'q': quiet = true; break;
        default:
            return command_result(
                "verify", pst_fail(PST_E_ARG, "invalid option: `penstock verify --help` lists the options"));
        }
    }
    if (argc - optind != 1)
        return command_result(
            "verify",
            pst_fail(PST_E_ARG, "expected one directory as argument, found %d arguments", argc - optind));
    struct pst_progress progress;
    struct pst_verify_report report;
    pst_progress_init(&progress, quiet);
    pst_rc rc = pst_verify(argv[optind], &report, &progress);
    if (rc == PST_OK)
        say(argv[optind], &report);
    if (rc == PST_OK && other != NULL)
        rc = same(argv[optind], other, &progress);
    return command_result("verify", rc);
}
