/* partition.c: penstock partition: sorts a dataset's training edges by the partitions of their two ends; or
 * divides a graph, or a dataset, into parts. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/parted/parted.h"
#include "common/util/memory.h"
#include "common/util/progress.h"
#include "stages/lib/parts/buckets.h"
#include "tools/penstock/caches/graph_parts.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define CUT_VERTEX_BYTES 17 /* its part, and its numbers before and after */

static const char usage[] =
    "usage: penstock partition DATASET --partitions P --out FILE [OPTION]...\n"
    "       penstock partition --check FILE\n"
    "       penstock partition DATASET --parts K --out FILE.npy [OPTION]...\n"
    "       penstock partition DATASET --parts K --datasets DIR [--by HOW] [--lists] [OPTION]...\n"
    "Assigns the dataset's vertices to P equal partitions, and sorts the training edges into P x P buckets: "
    "the\n"
    "partition of the source, and that of the destination. Training then needs the embeddings of two "
    "partitions at\n"
    "a time. FILE is in the safetensors format.\n"
    "With --parts, METIS divides the vertices into K parts with few edges between them, of equally many "
    "vertices and\n"
    "equally many training vertices. FILE.npy gets the part of each vertex (int8).\n"
    "With --datasets, DIR gets K datasets, one for each rank of a run on several machines. Each has all "
    "edges, "
    "but\n"
    "only the feature rows of its own vertices: equally many neighbouring ids. With --by metis, few edges "
    "lie\n"
    "between parts; with the shuffle local, fewer rows then come from other ranks. The vertices get new "
    "numbers.\n"
    "DIR/whole is the dataset with these numbers, and keeps the old number of each vertex (the array "
    "old_ids). It\n"
    "can be removed. `penstock verify DIR/whole --same-as DATASET` proves that it has the same graph, and\n"
    "`penstock infer RUN --dataset DIR/whole` uses a model that was trained on the parts.\n\n"
    "  --partitions P   1 to 256\n"
    "  --parts K        1 to 64; with --datasets 2 to 16\n"
    "  --datasets DIR   write the parts as datasets to a new directory: DIR/part0, ..., and DIR/parts.json\n"
    "  --lists          with --datasets: each part has only the lists of neighbours of its own vertices, "
    "too\n"
    "  --by HOW         how vertices are assigned to parts. metis: few edges between parts, and balanced "
    "training\n"
    "                   vertices; hash: by a hash of the id; range: neighbouring ids, which stay as they "
    "are\n"
    "                   (default: range with --datasets, metis with --out)\n"
    "  --out FILE       write the buckets to FILE, which is replaced if it exists\n"
    "  --assign HOW     random (default): vertices are shuffled; id: neighbouring ids share a partition\n"
    "  --seed N         of the shuffle, of METIS, or of the hash (default 0)\n"
    "  --memory BYTES   for edges on their way to the file, with K, M, G or T (default: half of what is "
    "free). With\n"
    "                   --parts: METIS gets a sample of the edges if all of them need more\n"
    "  --quiet          show no progress line\n"
    "  --check FILE     read a file of buckets, compare its checksum and describe it\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

struct partition_args {
    int64_t partitions, parts, seed;
    int assign, by; /* by: of enum graph_parts_by; -1: the default */
    uint64_t memory_bytes;
    const char *dataset, *out, *check, *datasets;
    bool quiet, lists;
};

static pst_rc describe(const char *path)
{
    struct pst_buckets b;
    const pst_rc rc = pst_buckets_open(&b, path);
    if (rc != PST_OK)
        return rc;
    const int p = b.parts.partitions;
    int64_t largest = 0, smallest = b.edges, empty = 0;
    for (int i = 0; i < p; i++)
        for (int j = 0; j < p; j++) {
            const int64_t n = pst_buckets_end(&b, i, j) - pst_buckets_begin(&b, i, j);
            largest = n > largest ? n : largest;
            smallest = n < smallest ? n : smallest;
            empty += n == 0;
        }
    printf("%s: dataset %s, %lld vertices in %d partitions of %lld rows (%s", path, b.digest,
           (long long)b.parts.vertices, p, (long long)b.parts.rows, pst_parts_assign_name(b.parts.assign));
    if (b.parts.assign == PST_PARTS_RANDOM)
        printf(", seed %llu", (unsigned long long)b.parts.seed);
    printf(")\n%lld edges in %d buckets of %lld to %lld edges, on average %.1f; %lld buckets are empty\n",
           (long long)b.edges, p * p, (long long)smallest, (long long)largest, (double)b.edges / p / p,
           (long long)empty);
    pst_buckets_close(&b);
    return PST_OK;
}

static pst_rc check_file(const char *path)
{
    return access(path, R_OK) == 0
               ? describe(path)
               : pst_fail(PST_E_ARG, "--check: cannot read \"%s\": %s", path, strerror(errno));
}

static pst_rc partition(const struct partition_args *args)
{
    struct pst_dataset ds;
    struct pst_parts parts;
    struct pst_progress progress;
    pst_progress_init(&progress, args->quiet);
    pst_rc rc = pst_dataset_open(&ds, args->dataset);
    if (rc != PST_OK)
        return rc;
    rc = pst_parts_init(&parts, ds.vertices, (int)args->partitions, (enum pst_parts_assign)args->assign,
                        (uint64_t)args->seed);
    if (rc == PST_OK)
        rc = pst_buckets_write(&ds, &parts, args->out, args->memory_bytes, &progress);
    pst_dataset_close(&ds);
    return rc == PST_OK ? describe(args->out) : rc;
}

static struct graph_parts graph_parts_of(const struct partition_args *args)
{
    return (struct graph_parts){.by = (enum graph_parts_by)args->by,
                                .parts = args->parts,
                                .seed = args->seed,
                                .memory_bytes = args->memory_bytes};
}

/* Finds the part of each vertex, and writes K datasets. */
static pst_rc cut_by(const struct partition_args *args, const struct pst_dataset *ds, int8_t *part)
{
    const uint64_t used = (uint64_t)ds->vertices * CUT_VERTEX_BYTES;
    struct pst_parted_spec spec = {.parts = (int)args->parts,
                                   .lists = args->lists,
                                   .by = graph_parts_names[args->by],
                                   .seed = (uint64_t)args->seed,
                                   .memory_bytes = args->memory_bytes > used ? args->memory_bytes - used : 0};
    const bool renumbers = args->by != GRAPH_PARTS_RANGE;
    const struct graph_parts parts = graph_parts_of(args);
    struct pst_progress progress;
    pst_progress_init(&progress, args->quiet);
    pst_rc rc = pst_parted_check(ds, args->datasets, &spec, renumbers); /* before the work */
    if (rc == PST_OK)
        rc = graph_parts_find(ds, &parts, args->datasets, part);
    spec.part = renumbers ? part : NULL;
    if (rc == PST_OK)
        rc = pst_parted_write(ds, args->datasets, &spec, &progress);
    if (rc == PST_OK)
        printf("%s: %d parts by %s with %s %lld edges, each with the feature rows of its vertices, %lld "
               "bytes a row\n",
               args->datasets, spec.parts, spec.by, args->lists ? "a share of" : "all", (long long)ds->edges,
               (long long)ds->stride_bytes);
    return rc;
}

static pst_rc cut(const struct partition_args *args)
{
    struct pst_dataset ds;
    pst_rc rc = pst_dataset_open(&ds, args->dataset);
    if (rc != PST_OK)
        return rc;
    int8_t *part = malloc((size_t)ds.vertices + 1);
    rc = part != NULL ? cut_by(args, &ds, part)
                      : pst_fail(PST_E_NOMEM, "out of memory: cannot cut %lld vertices into parts",
                                 (long long)ds.vertices);
    free(part);
    pst_dataset_close(&ds);
    return rc;
}

/* ---- options ---------------------------------------------------------------------------------------- */

enum option_code { PARTITIONS = 1000, PARTS, OUT, DATASETS, LISTS, BY, ASSIGN, SEED, MEMORY, QUIET, CHECK };

static pst_rc take_option(struct partition_args *args, int code, const char *text)
{
    switch (code) {
    case PARTITIONS: return option_int("--partitions", text, 1, PST_PARTS_MAX, &args->partitions);
    case PARTS: return option_int("--parts", text, 1, 64, &args->parts);
    case OUT: args->out = text; return PST_OK;
    case DATASETS: args->datasets = text; return PST_OK;
    case LISTS: args->lists = true; return PST_OK;
    case BY:
        args->by = graph_parts_by_of(text);
        return args->by >= 0
                   ? PST_OK
                   : pst_fail(PST_E_ARG, "--by: expected " GRAPH_PARTS_CHOICES "; found \"%s\"", text);
    case ASSIGN:
        args->assign = pst_parts_assign_of(text);
        return args->assign >= 0 ? PST_OK
                                 : pst_fail(PST_E_ARG, "--assign: expected random or id; found \"%s\"", text);
    case SEED: return option_int("--seed", text, 0, INT64_MAX, &args->seed);
    case MEMORY: return option_bytes("--memory", text, &args->memory_bytes);
    case QUIET: args->quiet = true; return PST_OK;
    default: args->check = text; return PST_OK;
    }
}

/* What options need of one another. */
static pst_rc settle(struct partition_args *args, int argc, char **argv)
{
    if (args->check != NULL)
        return optind == argc && args->partitions == 0 && args->out == NULL && args->datasets == NULL
                   ? PST_OK
                   : pst_fail(PST_E_ARG, "--check cannot be used with other options or arguments, because "
                                         "the file contains everything that is needed");
    if (argc - optind != 1)
        return pst_fail(PST_E_ARG, "expected one dataset as argument, found %d arguments", argc - optind);
    args->dataset = argv[optind];
    if ((args->partitions == 0) == (args->parts == 0) || (args->out == NULL) == (args->datasets == NULL) ||
        (args->datasets != NULL && args->parts == 0))
        return pst_fail(PST_E_ARG,
                        "expected the options --partitions and --out, --parts and --out, or --parts "
                        "and --datasets");
    if (args->lists && args->datasets == NULL)
        return pst_fail(PST_E_ARG, "--lists requires --datasets DIR");
    if (args->by >= 0 && args->parts == 0)
        return pst_fail(PST_E_ARG, "--by requires --parts K: partitions of embeddings have --assign");
    if (args->by < 0)
        args->by = args->datasets != NULL ? GRAPH_PARTS_RANGE : GRAPH_PARTS_METIS;
    if (args->datasets != NULL && (args->parts < 2 || args->parts > PST_DATASET_PARTS_MAX))
        return pst_fail(PST_E_ARG, "--parts: with --datasets, expected 2 to %d, found %lld",
                        PST_DATASET_PARTS_MAX, (long long)args->parts);
    return PST_OK;
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct partition_args *args)
{
    static const struct option options[] = {{"partitions", required_argument, NULL, PARTITIONS},
                                            {"parts", required_argument, NULL, PARTS},
                                            {"out", required_argument, NULL, OUT},
                                            {"datasets", required_argument, NULL, DATASETS},
                                            {"lists", no_argument, NULL, LISTS},
                                            {"by", required_argument, NULL, BY},
                                            {"assign", required_argument, NULL, ASSIGN},
                                            {"seed", required_argument, NULL, SEED},
                                            {"memory", required_argument, NULL, MEMORY},
                                            {"quiet", no_argument, NULL, QUIET},
                                            {"check", required_argument, NULL, CHECK},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            printf("%s", usage);
            return 1;
        }
        const pst_rc rc =
            c >= PARTITIONS
                ? take_option(args, c, optarg)
                : pst_fail(PST_E_ARG, "invalid option: `penstock partition --help` lists the options");
        if (rc != PST_OK)
            return command_result("partition", rc) + 1;
    }
    const pst_rc rc = settle(args, argc, argv);
    return rc == PST_OK ? 0 : command_result("partition", rc) + 1;
}

int cmd_partition(int argc, char **argv)
{
    struct partition_args args = {.assign = PST_PARTS_RANDOM, .by = -1};
    const int end = parse(argc, argv, &args);
    if (end != 0)
        return end - 1;
    if (args.memory_bytes == 0)
        args.memory_bytes = pst_memory_default();
    const struct graph_parts parts = graph_parts_of(&args);
    if (args.datasets != NULL)
        return command_result("partition", cut(&args));
    if (args.parts > 0)
        return command_result("partition", graph_parts_write(args.dataset, &parts, args.out));
    return command_result("partition", args.check != NULL ? check_file(args.check) : partition(&args));
}
