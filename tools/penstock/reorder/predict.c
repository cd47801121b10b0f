/* predict.c: what an order would save, before anything is written. */
#include "tools/penstock/reorder/predict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "common/store/reorder/permute.h"
#include "stages/lib/io/backend.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define BATCHES_MAX 256   /* that a prediction counts: their sum is within a percent or so of all */
#define VERTEX_BYTES 25   /* order, inverse, counts, hotness, tier */
#define HOTNESS_UNIT 1024 /* of an expected batch: so finely is hotness ranked */
#define MEMORY_MIN (16u << 20)

/* ---- the input ------------------------------------------------------------------------------------ */

static const char *features_path(const struct pst_dataset *ds)
{
    for (int k = 0; k < ds->vertex_types; k++)
        if (ds->vertex_type[k].feature_dim > 0)
            return ds->vertex_type[k].features.path;
    return ds->vertex_types == 0 && ds->feature_dim > 0 ? pst_feature_file(ds, 0)->path : NULL;
}

/* What direct reads of the features' file must be multiples of. */
static pst_rc find_block(struct reorder_job *j, const char *path)
{
    struct pst_io_file file;
    char note[PST_IO_NOTE_BYTES];
    j->disk = j->args->disk;
    if (path == NULL || j->disk.block > 0)
        return PST_OK;
    const pst_rc rc = pst_io_file_open(&file, path, true, false, note);
    if (rc != PST_OK)
        return rc;
    j->disk.block = file.block;
    pst_io_file_close(&file);
    return PST_OK;
}

/* The rows with the highest counts, so many as the cache holds. */
static pst_rc choose_rows(struct reorder_job *j)
{
    const struct pst_dataset *ds = &j->hoods.ds;
    uint64_t row = ds->stride_bytes;
    if (j->args->cache_bytes == 0)
        return PST_OK;
    for (int k = 0; k < ds->vertex_types; k++)
        row = ds->vertex_type[k].stride_bytes > row ? ds->vertex_type[k].stride_bytes : row;
    int64_t *hottest = malloc((size_t)ds->vertices * sizeof *hottest + 1);
    if (hottest == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot choose the cached rows");
    const pst_rc rc = pst_renumber_hottest(j->counts, NULL, PST_RENUMBER_NOTHING, ds->vertices, hottest);
    if (row > 0)
        j->cached_rows = pst_min_i64((int64_t)(j->args->cache_bytes / row), ds->vertices);
    for (int64_t i = 0; i < j->cached_rows && rc == PST_OK; i++)
        j->tier[hottest[i]] = PST_RENUMBER_ROW;
    free(hottest);
    return rc;
}

static pst_rc choose_cached(struct reorder_job *j)
{
    const struct pst_plan_tiers *rows = &j->args->plan.rows, *lists = &j->args->plan.lists;
    j->tier = calloc((size_t)j->hoods.ds.vertices + 1, 1);
    if (j->tier == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot choose the cached rows");
    if (!j->args->planned)
        return choose_rows(j);
    for (int64_t i = 0; i < lists->n; i++)
        j->tier[lists->ids[i]] = PST_RENUMBER_LIST;
    for (int64_t i = 0; i < rows->n; i++)
        j->tier[rows->ids[i]] =
            j->tier[rows->ids[i]] == PST_RENUMBER_LIST ? PST_RENUMBER_BOTH : PST_RENUMBER_ROW;
    j->cached_rows = rows->n;
    return PST_OK;
}

static pst_rc check_plan(const struct reorder_job *j)
{
    const struct reorder_args *a = j->args;
    const struct pst_dataset *ds = &j->hoods.ds;
    if (!a->planned)
        return PST_OK;
    if (strcmp(a->plan.key.dataset, ds->digest) != 0)
        return pst_fail(PST_E_ARG,
                        "%s is the plan of the dataset with digest %s, but %s has digest %s: make a plan of "
                        "this dataset",
                        a->plan_path, a->plan.key.dataset, a->dataset, ds->digest);
    return a->plan.vertices == ds->vertices
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s is damaged: it has %" PRId64 " vertices, but its dataset %s has %" PRId64
                          ": make a plan of this dataset",
                          a->plan_path, a->plan.vertices, a->dataset, ds->vertices);
}

/* A dataset without seeds can be reordered by its graph alone. */
static pst_rc settle_split(struct pst_hoods_spec *spec, const struct reorder_args *a)
{
    struct pst_dataset ds;
    const pst_rc rc = pst_dataset_open(&ds, a->dataset);
    if (rc != PST_OK)
        return rc;
    if (!a->order[PST_RENUMBER_ACCESS] && !a->order[PST_RENUMBER_HOTNESS] &&
        strcmp(spec->split, "train") == 0 &&
        (ds.split[PST_TRAIN].map == NULL || ds.split[PST_TRAIN].shape[0] == 0))
        spec->split = NULL;
    pst_dataset_close(&ds);
    return PST_OK;
}

/* Counts an epoch's batches, if an order or the choice of cached rows needs that. */
static pst_rc count(struct reorder_job *j, struct pst_progress *progress)
{
    const struct reorder_args *a = j->args;
    if (!a->order[PST_RENUMBER_ACCESS] &&
        (a->planned || (!a->order[PST_RENUMBER_HOTNESS] && a->cache_bytes == 0)))
        return PST_OK;
    j->counts = malloc((size_t)j->hoods.ds.vertices * sizeof *j->counts + 1);
    return j->counts != NULL ? pst_renumber_count(&j->hoods, j->counts, progress)
                             : pst_fail(PST_E_NOMEM, "out of memory: cannot count accesses");
}

/* The plan's hotness, as numbers that can be ranked. */
static pst_rc take_hotness(struct reorder_job *j)
{
    const int64_t n = j->hoods.ds.vertices;
    float *scores = NULL;
    j->hotness = malloc((size_t)n * sizeof *j->hotness + 1);
    const pst_rc rc =
        j->hotness != NULL
            ? pst_plan_hotness(&j->args->plan, j->args->plan_path, &scores)
            : pst_fail(PST_E_NOMEM, "out of memory: cannot rank %" PRId64 " vertices by hotness", n);
    for (int64_t v = 0; v < n && rc == PST_OK; v++) {
        const double hotness = HOTNESS_UNIT * (double)scores[v];
        j->hotness[v] = hotness < UINT32_MAX ? (uint32_t)hotness : UINT32_MAX;
    }
    free(scores);
    return rc;
}

/* Bytes of a vertex's arrays. */
static uint64_t vertex_bytes(const struct reorder_args *a)
{
    const bool reads = a->planned && a->order[PST_RENUMBER_HOTNESS];
    return VERTEX_BYTES + (reads ? sizeof(float) * ((uint64_t)a->plan.key.hops + 1) : 0);
}

pst_rc reorder_open(struct reorder_job *j, const struct reorder_args *a, struct pst_progress *progress)
{
    struct pst_hoods_spec spec = a->spec;
    *j = (struct reorder_job){.args = a};
    pst_rc rc = settle_split(&spec, a);
    if (rc == PST_OK)
        rc = pst_hoods_open(&j->hoods, a->dataset, &spec);
    if (rc != PST_OK)
        return rc;
    const int64_t n = j->hoods.ds.vertices;
    const char *path = features_path(&j->hoods.ds);
    const uint64_t arrays = (uint64_t)n * vertex_bytes(a), need = arrays + MEMORY_MIN;
    if (a->memory_bytes < need)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64 " bytes are too few for %" PRId64
                        " vertices: expected at least %" PRIu64,
                        a->memory_bytes, n, need);
    j->memory_bytes = a->memory_bytes - arrays;
    j->hoods.large = (uint64_t)j->hoods.graph.edges * (uint64_t)j->hoods.graph.index_bytes > a->memory_bytes;
    j->draws = spec.split != NULL && path != NULL;
    rc = check_plan(j);
    if (rc == PST_OK)
        rc = find_block(j, path);
    if (rc != PST_OK || spec.split == NULL)
        return rc;
    rc = count(j, progress);
    if (rc == PST_OK && a->planned && a->order[PST_RENUMBER_HOTNESS])
        rc = take_hotness(j);
    return rc == PST_OK ? choose_cached(j) : rc;
}

void reorder_close(struct reorder_job *j)
{
    free(j->counts);
    free(j->hotness);
    free(j->tier);
    pst_hoods_close(&j->hoods);
    j->counts = j->hotness = NULL;
    j->tier = NULL;
}

pst_rc reorder_find(struct reorder_job *j, enum pst_renumber_by by, int64_t *old_of,
                    struct pst_progress *progress)
{
    const struct pst_renumber_spec spec = {.by = by,
                                           .hoods = &j->hoods,
                                           .counts = j->counts,
                                           .hotness = j->hotness != NULL ? j->hotness : j->counts,
                                           .tier = j->tier,
                                           .memory_bytes = j->memory_bytes};
    return pst_renumber(&spec, old_of, progress);
}

pst_rc reorder_predict(struct reorder_job *j, const int64_t *new_of, struct pst_reads out[2],
                       struct pst_progress *progress)
{
    const struct pst_reads_layout layout[2] = {{.pack = false}, {.new_of = new_of, .pack = j->args->pack}};
    return pst_reads_count(&j->hoods, &j->disk, j->tier, layout, 2, BATCHES_MAX, out, progress);
}

/* ---- inspect -------------------------------------------------------------------------------------- */

static void say_head(const struct reorder_job *j, const struct pst_reads *now)
{
    const struct pst_hoods_spec *s = &j->hoods.spec;
    char bytes[32];
    (void)printf("%s: %" PRIu64 " batches of %" PRId64 " seeds (%s, %s", j->args->dataset, now->batches,
                 j->hoods.seeds.batch, s->split, s->algorithm);
    for (int k = 0; k < s->hops; k++)
        (void)printf("%s%" PRId64, k == 0 ? ", fanout " : ",", s->fanout[k]);
    (void)printf("); %" PRId64 " rows cached; blocks of %u bytes, gaps of at most %" PRIu64 "\n",
                 j->cached_rows, j->disk.block, j->disk.gap_bytes);
    (void)printf("an epoch needs %" PRId64 " rows, and misses %" PRId64 " of them: %s without padding\n",
                 now->vertices, now->missed, pst_bytes_text((double)now->wanted, bytes));
    (void)printf("%-8s %14s %9s %14s\n", "order", "bytes an epoch", "of now", "reads");
}

static void say_line(const char *name, const struct pst_reads *r, const struct pst_reads *now)
{
    char bytes[32];
    (void)printf("%-8s %14s %7.1f %% %14" PRIu64 "\n", name, pst_bytes_text((double)r->bytes, bytes),
                 now->bytes > 0 ? 100.0 * (double)r->bytes / (double)now->bytes : 100.0, r->reads);
}

static void add_json(json_t *orders, const char *name, const struct pst_reads *r)
{
    (void)json_object_set_new(
        orders, name, json_pack("{sI sI}", "bytes", (json_int_t)r->bytes, "reads", (json_int_t)r->reads));
}

static pst_rc show(struct reorder_job *j, struct pst_progress *progress)
{
    const int64_t n = j->hoods.ds.vertices;
    int64_t *old_of = malloc((size_t)n * sizeof *old_of + 1),
            *new_of = malloc((size_t)n * sizeof *new_of + 1);
    json_t *orders = json_object();
    bool first = true;
    pst_rc rc = old_of != NULL && new_of != NULL && orders != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot order %" PRId64 " vertices", n);
    struct pst_reads r[2] = {{.batches = 0}};
    for (int by = 0; by < PST_RENUMBER_ORDERS && rc == PST_OK; by++) {
        if (!j->args->order[by])
            continue;
        rc = reorder_find(j, (enum pst_renumber_by)by, old_of, progress);
        if (rc == PST_OK)
            rc = pst_permute_invert(&j->hoods.ds, old_of, new_of);
        if (rc == PST_OK)
            rc = reorder_predict(j, new_of, r, progress);
        if (rc != PST_OK)
            break;
        if (first && !j->args->json) {
            say_head(j, &r[0]);
            say_line("now", &r[0], &r[0]);
        }
        first = false;
        add_json(orders, pst_renumber_name((enum pst_renumber_by)by), &r[1]);
        if (!j->args->json)
            say_line(pst_renumber_name((enum pst_renumber_by)by), &r[1], &r[0]);
        (void)fflush(stdout);
    }
    if (rc == PST_OK && j->args->json) {
        add_json(orders, "now", &r[0]);
        json_t *root = json_pack("{ss sI sI sI sI sI sI sO}", "dataset", j->args->dataset, "batches",
                                 (json_int_t)r[0].batches, "rows", (json_int_t)r[0].vertices, "missed",
                                 (json_int_t)r[0].missed, "cached", (json_int_t)j->cached_rows, "block",
                                 (json_int_t)j->disk.block, "gap_bytes", (json_int_t)j->disk.gap_bytes,
                                 "orders", orders);
        (void)json_dumpf(root, stdout, JSON_INDENT(1) | JSON_SORT_KEYS);
        (void)putchar('\n');
        json_decref(root);
    }
    json_decref(orders);
    free(old_of);
    free(new_of);
    return rc;
}

int cmd_inspect_reorder(int argc, char **argv)
{
    struct reorder_args args;
    struct pst_progress progress;
    struct reorder_job job = {.args = NULL};
    pst_rc rc = reorder_args_parse(&args, argc, argv, true);
    if (rc == PST_OK) {
        pst_progress_init(&progress, args.quiet);
        rc = reorder_open(&job, &args, &progress);
        if (rc == PST_OK && !job.draws)
            rc = pst_fail(
                PST_E_ARG, "%s has no %s, so nothing can be predicted of what an epoch reads", args.dataset,
                job.counts == NULL ? "training vertices (`penstock split` makes splits)" : "features");
        if (rc == PST_OK)
            rc = show(&job, &progress);
        reorder_close(&job);
    }
    reorder_args_release(&args);
    return command_result("inspect", rc);
}
