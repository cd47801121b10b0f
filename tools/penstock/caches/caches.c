/* caches.c: penstock caches: which device of a machine would cache what, and who would read from whom. */
#include "tools/penstock/caches/caches.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/store.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/topology/topology.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/links/find_machine.h"

#define BATCH 1024
#define LINE_BYTES 64
#define EPOCHS_MAX 1000

static const char usage[] =
    "usage: penstock caches DATASET (--rows N | --cache BYTES) [OPTION]...\n"
    "Shows, for the devices of a machine, which part of the feature rows that batches need would come from "
    "a\n"
    "device's own cache, from a linked device's, and from the host. Each policy's caches are chosen by "
    "sampling\n"
    "epochs ahead, and counted over another epoch.\n\n"
    "  --rows N         feature rows that each device caches; as a share of the vertices: 5%\n"
    "  --cache BYTES    memory of each device for lists of neighbours and feature rows, with K, M, G or T\n"
    "  --machine FILE   the machine (pipelines/machines has some; default: the GPUs of this one)\n"
    "  --devices N      use the first N devices of the machine\n"
    "  --policy NAME    legion, gnnlab, quiver, pagraph-plus, pagraph, topocpu or topogpu. Without it: all "
    "of\n"
    "                   them; with it, also who reads from whom\n"
    "  --alpha A        part of the cache that legion gives to lists, 0 to 1 (default: the predicted best)\n"
    "  --fanout LIST    neighbours drawn in each hop, as in 25,10 (the default); -1: all\n"
    "  --batch N        seeds of a batch (default 1024)\n"
    "  --batches N      batches of an epoch on each device, in place of --batch\n"
    "  --epochs N       epochs that are sampled ahead (default 1)\n"
    "  --row-bytes N    bytes of a feature row (default: the dataset's)\n"
    "  --cls N          bytes of a PCIe transaction (default 64)\n"
    "  --cslp NAME      room (default) or paper: Algorithm 1 as printed, which knows neither room nor ties\n"
    "  --partition-entries N  if the graph has more entries of adjacency, METIS gets a sample of the edges\n"
    "  --seed N         of partitions, shuffles and samples (default 1)\n"
    "  --json           print JSON\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

/* ---- options -------------------------------------------------------------------------------------- */

enum option_code {
    ROWS = 1000,
    CACHE,
    MACHINE,
    DEVICES,
    POLICY,
    ALPHA,
    FANOUT,
    OPT_BATCH,
    BATCHES,
    EPOCHS,
    ROW_BYTES,
    CLS,
    CSLP,
    ENTRIES,
    SEED,
    JSON
};

static pst_rc take_rows(struct caches_args *args, const char *text)
{
    const size_t n = strlen(text);
    char number[32];
    int64_t rows = 0;
    args->rows_only = true;
    if (n == 0 || n >= sizeof number || text[n - 1] != '%') {
        const pst_rc rc = option_int("--rows", text, 0, INT64_MAX / 2, &rows);
        args->config.cache_bytes = (uint64_t)rows;
        return rc;
    }
    memcpy(number, text, n);
    number[n - 1] = '\0';
    const pst_rc rc = option_real("--rows", number, &args->cached_share);
    if (rc == PST_OK && !(args->cached_share > 0 && args->cached_share <= 100))
        return pst_fail(PST_E_ARG, "--rows: expected more than 0%% and at most 100%%, found \"%s\"", text);
    args->cached_share /= 100;
    return rc;
}

static pst_rc take_fanout(struct caches_args *args, const char *text)
{
    char list[128], *save = NULL;
    args->config.hops = 0;
    if (strlen(text) >= sizeof list)
        return pst_fail(PST_E_ARG, "--fanout: the list is too long");
    memcpy(list, text, strlen(text) + 1);
    for (char *one = strtok_r(list, ",", &save); one != NULL; one = strtok_r(NULL, ",", &save)) {
        if (args->config.hops == PST_HOPS_MAX)
            return pst_fail(PST_E_ARG, "--fanout: expected at most %d hops, found \"%s\"", PST_HOPS_MAX,
                            text);
        const pst_rc rc = option_int("--fanout", one, -1, PST_FANOUT_MAX, &args->fanout[args->config.hops++]);
        if (rc != PST_OK)
            return rc;
    }
    return args->config.hops > 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "--fanout: expected numbers, as in 25,10; found \"%s\"", text);
}

static pst_rc take_alpha(struct caches_args *args, const char *text)
{
    double alpha = 0;
    const pst_rc rc = option_real("--alpha", text, &alpha);
    if (rc == PST_OK && !(alpha >= 0 && alpha <= 1))
        return pst_fail(PST_E_ARG, "--alpha: expected a number from 0 to 1, found \"%s\"", text);
    args->config.alpha = (int)(alpha * 100 + 0.5);
    return rc;
}

static pst_rc take_name(struct caches_args *args, int code, const char *text)
{
    if (code == POLICY) {
        args->one = true;
        return pst_legion_policy_find(text, &args->policy)
                   ? PST_OK
                   : pst_fail(PST_E_ARG,
                              "--policy: unknown policy \"%s\"; expected " PST_LEGION_POLICY_CHOICES, text);
    }
    args->config.cslp_as_printed = strcmp(text, "paper") == 0;
    return args->config.cslp_as_printed || strcmp(text, "room") == 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "--cslp: expected room or paper, found \"%s\"", text);
}

static pst_rc take_option(struct caches_args *args, int code, const char *text)
{
    struct pst_legion_config *c = &args->config;
    int64_t value = 0;
    pst_rc rc;
    switch (code) {
    case ROWS: return take_rows(args, text);
    case CACHE: return option_bytes("--cache", text, &c->cache_bytes);
    case MACHINE: args->machine_file = text; return PST_OK;
    case DEVICES: return option_int("--devices", text, 1, PST_MACHINE_DEVICES_MAX, &args->devices);
    case ALPHA: return take_alpha(args, text);
    case FANOUT: return take_fanout(args, text);
    case OPT_BATCH: return option_int("--batch", text, 1, INT32_MAX, &c->batch);
    case BATCHES: return option_int("--batches", text, 1, INT32_MAX, &c->batches);
    case EPOCHS: return option_int("--epochs", text, 1, EPOCHS_MAX, &c->epochs);
    case CLS: return option_int("--cls", text, 16, 4096, &args->cls);
    case ENTRIES: return option_int("--partition-entries", text, 1, PST_LEGION_ENTRIES_MAX, &c->entries_max);
    case ROW_BYTES:
        rc = option_int("--row-bytes", text, 1, INT32_MAX, &value);
        c->row_bytes = (uint64_t)value;
        return rc;
    case SEED:
        rc = option_int("--seed", text, 0, INT64_MAX, &value);
        c->seed = (uint64_t)value;
        return rc;
    case JSON: args->json = true; return PST_OK;
    default: return take_name(args, code, text);
    }
}

/* What options need of one another. */
static pst_rc settle(struct caches_args *args, bool rows, bool cache)
{
    struct pst_legion_config *c = &args->config;
    if (rows == cache)
        return pst_fail(PST_E_ARG, "expected either --rows or --cache");
    if (c->batch > 0 && c->batches > 0)
        return pst_fail(PST_E_ARG, "expected either --batch or --batches");
    if (c->batch == 0 && c->batches == 0)
        c->batch = BATCH;
    if ((args->cls & (args->cls - 1)) != 0)
        return pst_fail(PST_E_ARG, "--cls: expected a power of two, found %lld", (long long)args->cls);
    if (rows && (c->row_bytes > 0 || c->alpha != PST_LEGION_SEARCH))
        return pst_fail(PST_E_ARG, "--row-bytes and --alpha need --cache: with --rows, no list is cached");
    if (rows && args->one && args->policy >= PST_LEGION_TOPOCPU)
        return pst_fail(PST_E_ARG, "--policy %s needs --cache, which lists share with rows",
                        pst_legion_policy_name(args->policy));
    c->line_bytes = (uint32_t)args->cls;
    return PST_OK;
}

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct caches_args *args)
{
    static const struct option options[] = {{"rows", required_argument, NULL, ROWS},
                                            {"cache", required_argument, NULL, CACHE},
                                            {"machine", required_argument, NULL, MACHINE},
                                            {"devices", required_argument, NULL, DEVICES},
                                            {"policy", required_argument, NULL, POLICY},
                                            {"alpha", required_argument, NULL, ALPHA},
                                            {"fanout", required_argument, NULL, FANOUT},
                                            {"batch", required_argument, NULL, OPT_BATCH},
                                            {"batches", required_argument, NULL, BATCHES},
                                            {"epochs", required_argument, NULL, EPOCHS},
                                            {"row-bytes", required_argument, NULL, ROW_BYTES},
                                            {"cls", required_argument, NULL, CLS},
                                            {"cslp", required_argument, NULL, CSLP},
                                            {"partition-entries", required_argument, NULL, ENTRIES},
                                            {"seed", required_argument, NULL, SEED},
                                            {"json", no_argument, NULL, JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool rows = false, cache = false;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            printf("%s", usage);
            return 1;
        }
        if (c < ROWS) {
            fprintf(stderr, "`penstock caches --help` lists the options\n");
            return 3;
        }
        const pst_rc rc = take_option(args, c, optarg);
        if (rc != PST_OK)
            return command_result("caches", rc) + 1;
        rows = rows || c == ROWS;
        cache = cache || c == CACHE;
    }
    if (optind != argc - 1) {
        fprintf(stderr, "penstock caches: expected one dataset, found %d arguments\n", argc - optind);
        return 3;
    }
    args->dataset = argv[optind];
    const pst_rc rc = settle(args, rows, cache);
    return rc == PST_OK ? 0 : command_result("caches", rc) + 1;
}

/* ---- input ---------------------------------------------------------------------------------------- */

static pst_rc find_devices(struct caches_args *args)
{
    char why[PST_LINKS_WHY_BYTES] = "";
    struct pst_machine *m = &args->machine;
    pst_rc rc =
        args->machine_file != NULL ? pst_probe_load(args->machine_file, m) : pst_probe_topology(m, why);
    if (rc != PST_OK)
        return rc;
    if (m->ndevices == 0)
        return pst_fail(PST_E_ARG, "%s has no devices%s%s; name another machine with --machine FILE", m->name,
                        why[0] != '\0' ? ": " : "", why);
    if (args->devices > m->ndevices)
        return pst_fail(PST_E_ARG, "--devices: %s has only %d devices, found %lld", m->name, m->ndevices,
                        (long long)args->devices);
    args->config.devices = args->devices > 0 ? (int)args->devices : m->ndevices;
    for (int d = 0; d < args->config.devices; d++)
        args->config.links[d] = m->device[d].links;
    return PST_OK;
}

static pst_rc size_rows(struct caches_args *args, const struct pst_dataset *ds)
{
    struct pst_legion_config *c = &args->config;
    if (args->cached_share > 0)
        c->cache_bytes = (uint64_t)(args->cached_share * (double)ds->vertices + 0.5);
    if (args->rows_only) { /* a row is the unit, and no list has room */
        c->row_bytes = 1;
        c->alpha = 0;
    } else if (c->row_bytes == 0) {
        c->row_bytes = ds->stride_bytes;
    }
    return c->row_bytes > 0 ? PST_OK
                            : pst_fail(PST_E_ARG,
                                       "the dataset %s has no features: say how large a row would be, with "
                                       "--row-bytes",
                                       args->dataset);
}

/* ---- policies ------------------------------------------------------------------------------------- */

static void sum_up(const struct caches_args *args, const struct pst_legion_counts *counts,
                   struct caches_result *r)
{
    const struct pst_legion_placement *p = &r->legion->placement;
    const uint64_t row_lines =
        (args->config.row_bytes + args->config.line_bytes - 1) / args->config.line_bytes;
    r->least = 1;
    for (int d = 0; d < p->devices; d++) {
        const struct pst_legion_traffic *t = &r->traffic[d];
        uint64_t peer = 0;
        pst_legion_traffic_of(p, counts, d, &r->traffic[d]);
        for (int from = 0; from < p->devices; from++)
            peer += from != d ? t->rows[from] : 0;
        const uint64_t all = t->rows[d] + peer + t->rows_host;
        r->hit[d] = all > 0 ? 1 - (double)t->rows_host / (double)all : 0;
        r->mean += r->hit[d] / p->devices;
        r->least = r->hit[d] < r->least ? r->hit[d] : r->least;
        r->most = r->hit[d] > r->most ? r->hit[d] : r->most;
        r->local += t->rows[d];
        r->peer += peer;
        r->host += t->rows_host;
        r->largest = t->rows_host > r->largest ? t->rows_host : r->largest;
        r->transactions += t->rows_host * row_lines + t->lines_host;
    }
}

static pst_rc count_alphas(const struct pst_legion_counts *counts, struct caches_result *r)
{
    const struct pst_legion *l = r->legion;
    if (l->cost == NULL)
        return PST_OK;
    r->counted_t = calloc((size_t)l->placement.groups, sizeof *r->counted_t);
    r->counted_f = calloc((size_t)l->placement.groups, sizeof *r->counted_f);
    if (r->counted_t == NULL || r->counted_f == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count transactions");
    for (int g = 0; g < l->placement.groups; g++)
        pst_legion_cost_count(&l->cost[g], counts, r->counted_t[g], r->counted_f[g]);
    return PST_OK;
}

static pst_rc show(const struct caches_args *args, struct pst_legion *l, bool first)
{
    struct pst_legion_counts counts;
    struct caches_result *r = calloc(1, sizeof *r);
    if (r == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count reads");
    r->policy = l->config.policy;
    r->legion = l;
    pst_rc rc = pst_legion_count(l, args->config.epochs, &counts);
    if (rc == PST_OK) {
        sum_up(args, &counts, r);
        rc = count_alphas(&counts, r);
        if (rc == PST_OK)
            rc = caches_print(args, r, first);
        pst_legion_counts_release(&counts);
    }
    free(r->counted_t);
    free(r->counted_f);
    free(r);
    return rc;
}

static pst_rc show_all(struct caches_args *args)
{
    pst_rc rc = PST_OK;
    bool first = true;
    caches_print_head(args);
    for (int k = 0; k < PST_LEGION_POLICIES && rc == PST_OK; k++) {
        struct pst_legion l;
        const enum pst_legion_policy policy = (enum pst_legion_policy)k;
        if (args->one ? policy != args->policy : args->rows_only && policy >= PST_LEGION_TOPOCPU)
            continue;
        args->config.policy = policy;
        rc = pst_legion_init(&l, &args->config);
        if (rc == PST_E_ARG && !args->one) { /* the others may do */
            caches_print_unfit(args, policy, pst_error_text());
            rc = PST_OK;
        } else if (rc == PST_OK) {
            rc = show(args, &l, first);
            first = false;
            pst_legion_release(&l);
        }
    }
    caches_print_end(args);
    return rc;
}

/* ---- the command ---------------------------------------------------------------------------------- */

static pst_rc run(struct caches_args *args, struct pst_dataset *ds)
{
    struct pst_sampling_opened uniform = {.algorithm = NULL};
    struct pst_seeds seeds;
    const struct pst_csc graph = pst_topology_mapped(ds);
    pst_rc rc = size_rows(args, ds);
    if (rc == PST_OK)
        rc = pst_seeds_init(&seeds, ds, "train", INT32_MAX, 0, false);
    if (rc != PST_OK)
        return rc;
    args->config.graph = &graph;
    args->config.algorithm = &uniform;
    args->config.fanout = args->fanout;
    args->config.train = seeds.ids;
    args->config.ntrain = seeds.n;
    const struct pst_sampling_setup setup = {.dataset = ds,
                                             .graph = &graph,
                                             .hops = args->config.hops,
                                             .fanout = args->fanout,
                                             .batch = pst_min_i64(seeds.n, INT32_MAX),
                                             .batches = 1};
    rc = pst_sampling_algorithm_find(&uniform, "uniform");
    if (rc == PST_OK)
        rc = pst_sampling_algorithm_open(&uniform, "", &setup);
    if (rc == PST_OK)
        rc = show_all(args);
    pst_sampling_algorithm_close(&uniform);
    pst_seeds_release(&seeds);
    return rc;
}

int cmd_caches(int argc, char **argv)
{
    struct caches_args *args = calloc(1, sizeof *args);
    struct pst_dataset ds;
    if (args == NULL)
        return command_result("caches", pst_fail(PST_E_NOMEM, "out of memory: cannot read the options"));
    args->cls = LINE_BYTES;
    args->fanout[0] = 25;
    args->fanout[1] = 10;
    args->config = (struct pst_legion_config){
        .hops = 2, .epochs = 1, .seed = 1, .alpha = PST_LEGION_SEARCH, .entries_max = PST_LEGION_ENTRIES_MAX};
    const int end = parse(argc, argv, args);
    if (end != 0) {
        free(args);
        return end - 1;
    }
    pst_rc rc = find_devices(args);
    if (rc == PST_OK)
        rc = pst_dataset_open(&ds, args->dataset);
    if (rc == PST_OK) {
        rc = run(args, &ds);
        pst_dataset_close(&ds);
    }
    free(args);
    return command_result("caches", rc);
}
