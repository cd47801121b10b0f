/* order.c: penstock order: the order in which partitions of embeddings are loaded and edge buckets trained.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "stages/lib/order/orders.h"
#include "stages/lib/parts/buckets.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char usage[] =
    "usage: penstock order --partitions P --buffer C [OPTION]...\n"
    "       penstock order --check FILE\n"
    "Embeddings that are larger than memory are cut into P partitions, of which a buffer holds C. This "
    "command\n"
    "finds the order in which they are loaded, so that every pair of partitions is in the buffer together, "
    "and\n"
    "says when each edge bucket is trained. Without --kind, it compares all orders.\n\n"
    "  --kind NAME      beta (Marius), hilbert, hilbert-symmetric, cover (GE2), legend, or auto: a search, "
    "which\n"
    "                   takes some seconds\n"
    "  --partitions P   at most 256\n"
    "  --buffer C       partitions that the buffer holds: from 2 to P\n"
    "  --out FILE       write the order to FILE (JSON); needs --kind\n"
    "  --json           print JSON: with --kind the order, otherwise the comparison\n"
    "  --check FILE     verify an order: every bucket is trained once, while both its partitions are "
    "there\n\n"
    "  --dataset DIR    say which exchanges of partitions training hides, with the dataset's own edges\n"
    "  --seed N         of the partitions (default 0, as of penstock partition)\n"
    "  --dim D          floats of an embedding (default 100); Adagrad's state is as large\n"
    "  --edge-time S    seconds to train an edge (default 1e-7)\n"
    "  --write-rate R, --read-rate R  bytes per second of the drive (default 2e9 and 3e9)\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

struct order_args {
    int kind; /* -1: compare all */
    int64_t partitions, buffer;
    const char *out, *check, *dataset;
    bool json;
    /* with dataset: */
    int64_t seed, dim;
    struct pst_order_machine machine;
    int64_t *edges; /* of each bucket; NULL without a dataset */
    double partition_bytes;
};

static void print_header(const struct order_args *args)
{
    printf("%-18s %9s %8s %9s %9s %9s%s\n", "order", "swaps", "/ bound", "loads", "/ P", "no overlap",
           args->edges != NULL ? "    hidden   waits s" : "");
}

static void print_counts(const struct order_args *args, const struct pst_order *o)
{
    struct pst_order_counts n;
    pst_order_count(o, &n);
    printf("%-18s %9lld %8.3f %9lld %9.2f %9lld", pst_order_kind_name(o->kind), (long long)n.swaps,
           n.bound > 0 ? (double)n.swaps / (double)n.bound : 1, (long long)n.loads,
           (double)n.loads / o->partitions, (long long)n.not_overlapped);
    if (args->edges != NULL) {
        struct pst_order_overlap overlap;
        pst_order_overlap(o, args->edges, args->partition_bytes, &args->machine, &overlap);
        printf(" %9lld %9.3f", (long long)overlap.hidden, overlap.waited_s);
    }
    printf("\n");
}

/* What the columns of --dataset mean, and Theorem 3 of Legend. */
static void print_overlap(const struct order_args *args, const struct pst_order *o)
{
    int64_t edges = 0;
    struct pst_order_overlap overlap;
    for (int b = 0; b < o->partitions * o->partitions; b++)
        edges += args->edges[b];
    pst_order_overlap(o, args->edges, args->partition_bytes, &args->machine, &overlap);
    const double rows = args->partition_bytes / (8.0 * (double)args->dim);
    const double vertices = rows * o->partitions;
    printf("hidden: exchanges during which training takes at least the %.4g s that a partition of %.4g bytes "
           "takes to be "
           "written and read.\nwaits s: what training waits for the others in an epoch.\n"
           "%s has %lld training edges, %.3g per vertex squared.",
           overlap.exchange_s, args->partition_bytes, args->dataset, (long long)edges,
           (double)edges / vertices / vertices);
    if (o->buffer == 3)
        printf(" With equal buckets, all exchanges are hidden from %.3g (Legend, Theorem 3).",
               pst_order_density((double)args->dim, 3 * args->partition_bytes, &args->machine));
    printf("\n");
}

static void print_legend(const struct order_args *args, const struct pst_order *o)
{
    struct pst_order_counts n;
    pst_order_count(o, &n);
    printf("\n%d partitions, a buffer of %d. No order has fewer than %lld swaps. loads: swaps, and the first "
           "fill.\n"
           "no overlap: exchanges without a bucket to train meanwhile.\n",
           o->partitions, o->buffer, (long long)n.bound);
    if (args->edges != NULL)
        print_overlap(args, o);
}

/* ---- commands ------------------------------------------------------------------------------------- */

static pst_rc check_file(const struct order_args *args)
{
    const char *path = args->check;
    struct pst_order o;
    if (access(path, R_OK) != 0)
        return pst_fail(PST_E_ARG, "--check: cannot read \"%s\": %s", path, strerror(errno));
    const pst_rc rc = pst_order_read(&o, path);
    if (rc != PST_OK)
        return rc;
    print_header(args);
    print_counts(args, &o);
    print_legend(args, &o);
    printf("%s: every bucket is trained once, while both of its partitions are in the buffer\n", path);
    pst_order_release(&o);
    return PST_OK;
}

static pst_rc print_json(json_t *json)
{
    if (json == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot describe the order");
    (void)json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(json);
    return PST_OK;
}

static pst_rc one_kind(const struct order_args *args)
{
    struct pst_order o;
    pst_rc rc =
        pst_order_build(&o, (enum pst_order_kind)args->kind, (int)args->partitions, (int)args->buffer);
    if (rc != PST_OK)
        return rc;
    if (args->out != NULL)
        rc = pst_order_write(&o, args->out);
    if (rc == PST_OK && args->json) {
        rc = print_json(pst_order_to_json(&o));
    } else if (rc == PST_OK) {
        print_header(args);
        print_counts(args, &o);
        print_legend(args, &o);
    }
    pst_order_release(&o);
    return rc;
}

/* Leaves out kinds that do not exist for these numbers. Fails if none exists. */
static pst_rc compare(const struct order_args *args)
{
    json_t *all = args->json ? json_object() : NULL;
    pst_rc rc = PST_OK;
    if (!args->json)
        print_header(args);
    for (int kind = 0; kind < PST_ORDER_KINDS; kind++) {
        struct pst_order o;
        rc = pst_order_build(&o, (enum pst_order_kind)kind, (int)args->partitions, (int)args->buffer);
        if (rc == PST_E_ARG && (kind == PST_ORDER_COVER || kind == PST_ORDER_LEGEND))
            continue;
        if (rc != PST_OK)
            break;
        if (args->json) {
            json_t *order = pst_order_to_json(&o);
            (void)json_object_set(all, pst_order_kind_name(o.kind), json_object_get(order, "counts"));
            json_decref(order);
        } else {
            print_counts(args, &o);
            if (kind == PST_ORDER_AUTO)
                print_legend(args, &o);
        }
        pst_order_release(&o);
    }
    if (rc == PST_OK && args->json)
        return print_json(all);
    json_decref(all);
    return rc;
}

/* ---- options ---------------------------------------------------------------------------------------- */

enum option_code {
    KIND = 1000,
    PARTITIONS,
    BUFFER,
    OUT,
    CHECK,
    JSON,
    DATASET,
    SEED,
    DIM,
    EDGE_TIME,
    WRITE_RATE,
    READ_RATE
};

#define DIM_MAX (1 << 20)

static pst_rc option_positive(const char *name, const char *text, double *out)
{
    const pst_rc rc = option_real(name, text, out);
    return rc != PST_OK || *out > 0
               ? rc
               : pst_fail(PST_E_ARG, "%s: expected a number above 0, found \"%s\"", name, text);
}

static pst_rc take_option(struct order_args *args, int code, const char *text)
{
    switch (code) {
    case KIND:
        args->kind = pst_order_kind_of(text);
        return args->kind >= 0
                   ? PST_OK
                   : pst_fail(PST_E_ARG,
                              "--kind: expected beta, hilbert, hilbert-symmetric, cover, legend or auto; "
                              "found \"%s\"",
                              text);
    case PARTITIONS: return option_int("--partitions", text, 1, PST_ORDER_PARTITIONS_MAX, &args->partitions);
    case BUFFER: return option_int("--buffer", text, 1, PST_ORDER_PARTITIONS_MAX, &args->buffer);
    case OUT: args->out = text; return PST_OK;
    case CHECK: args->check = text; return PST_OK;
    case DATASET: args->dataset = text; return PST_OK;
    case SEED: return option_int("--seed", text, 0, INT64_MAX, &args->seed);
    case DIM: return option_int("--dim", text, 1, DIM_MAX, &args->dim);
    case EDGE_TIME: return option_positive("--edge-time", text, &args->machine.edge_s);
    case WRITE_RATE: return option_positive("--write-rate", text, &args->machine.write);
    case READ_RATE: return option_positive("--read-rate", text, &args->machine.read);
    default: args->json = true; return PST_OK;
    }
}

/* What options need of one another. */
static pst_rc settle(const struct order_args *args)
{
    const bool numbers = args->partitions > 0 || args->buffer > 0;
    if (args->check != NULL &&
        (numbers || args->kind >= 0 || args->out != NULL || args->json || args->dataset != NULL))
        return pst_fail(
            PST_E_ARG,
            "--check cannot be used with other options, because the file contains the whole order");
    if (args->check == NULL && (args->partitions == 0 || args->buffer == 0))
        return pst_fail(PST_E_ARG, "expected the options --partitions and --buffer, or --check");
    if (args->dataset != NULL && args->json)
        return pst_fail(PST_E_ARG, "--dataset cannot be used with --check or --json");
    if (args->out != NULL && args->kind < 0)
        return pst_fail(PST_E_ARG, "--out requires --kind, because it writes only one order");
    return PST_OK;
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct order_args *args)
{
    static const struct option options[] = {{"kind", required_argument, NULL, KIND},
                                            {"partitions", required_argument, NULL, PARTITIONS},
                                            {"buffer", required_argument, NULL, BUFFER},
                                            {"out", required_argument, NULL, OUT},
                                            {"check", required_argument, NULL, CHECK},
                                            {"json", no_argument, NULL, JSON},
                                            {"dataset", required_argument, NULL, DATASET},
                                            {"seed", required_argument, NULL, SEED},
                                            {"dim", required_argument, NULL, DIM},
                                            {"edge-time", required_argument, NULL, EDGE_TIME},
                                            {"write-rate", required_argument, NULL, WRITE_RATE},
                                            {"read-rate", required_argument, NULL, READ_RATE},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            printf("%s", usage);
            return 1;
        }
        const pst_rc rc = c >= KIND ? take_option(args, c, optarg) : PST_OK;
        if (rc != PST_OK)
            return command_result("order", rc) + 1;
        if (c < KIND) {
            fprintf(stderr, "`penstock order --help` lists the options\n");
            return 3;
        }
    }
    if (optind != argc) {
        fprintf(stderr, "penstock order: expected only options, found \"%s\"\n", argv[optind]);
        return 3;
    }
    const pst_rc rc = settle(args);
    return rc == PST_OK ? 0 : command_result("order", rc) + 1;
}

/* Counts the dataset's edges by bucket. The caller frees args->edges. */
static pst_rc count_edges(struct order_args *args)
{
    struct pst_dataset ds;
    struct pst_parts parts;
    struct pst_progress progress;
    pst_progress_init(&progress, false);
    pst_rc rc = pst_dataset_open(&ds, args->dataset);
    if (rc != PST_OK)
        return rc;
    rc = pst_parts_init(&parts, ds.vertices, (int)args->partitions, PST_PARTS_RANDOM, (uint64_t)args->seed);
    if (rc == PST_OK && (args->edges = calloc((size_t)(args->partitions * args->partitions) + 1,
                                              sizeof *args->edges)) == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot count the edges of buckets");
    if (rc == PST_OK)
        rc = pst_buckets_count(&ds, &parts, args->edges, &progress);
    if (rc == PST_OK)
        args->partition_bytes = (double)parts.rows * 2 * (double)args->dim * sizeof(float);
    pst_dataset_close(&ds);
    return rc;
}

int cmd_order(int argc, char **argv)
{
    struct order_args args = {.kind = -1, .dim = 100, .machine = {.edge_s = 1e-7, .write = 2e9, .read = 3e9}};
    const int end = parse(argc, argv, &args);
    if (end != 0)
        return end - 1;
    pst_rc rc = args.dataset != NULL ? count_edges(&args) : PST_OK;
    if (rc == PST_OK)
        rc = args.check != NULL ? check_file(&args) : args.kind >= 0 ? one_kind(&args) : compare(&args);
    free(args.edges);
    return command_result("order", rc);
}
