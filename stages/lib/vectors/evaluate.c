/* evaluate.c: ranks validation and test edges. */
#include "stages/lib/vectors/evaluate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"

enum { GROUP = 256 };           /* queries that are compared together */
enum { ROWS_BYTES = 64 << 20 }; /* of the ends and queries of edges that are ranked in one pass */

/* ---- known edges --------------------------------------------------------------------------------- */

struct edge {
    int64_t end[2], relation; /* source and destination */
};

static struct edge edge_at(const struct pst_array *a, int64_t i)
{
    const int64_t columns = a->shape[1];
    int64_t v[3] = {0};
    for (int64_t c = 0; c < columns; c++)
        v[c] = a->dtype == PST_I32 ? ((const int32_t *)a->map)[i * columns + c]
                                   : ((const int64_t *)a->map)[i * columns + c];
    const struct edge e = {.end = {v[0], v[columns - 1]}, .relation = columns == 3 ? v[1] : 0};
    return e;
}

/* Side 0 looks for sources, so the anchor is the destination. */
static int64_t key_of(const struct pst_evaluation *e, const struct edge *edge, int side)
{
    return edge->end[1 - side] * e->plan->relations + edge->relation;
}

static int compare(const void *left, const void *right)
{
    const struct pst_evaluation_known *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* Each known edge once, and the largest number of ends of one key. */
static size_t tidy(struct pst_evaluation *e, struct pst_evaluation_known *known, size_t n)
{
    size_t kept = 0, run = 0;
    qsort(known, n, sizeof *known, compare);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && compare(&known[kept - 1], &known[i]) == 0)
            continue;
        run = kept > 0 && known[kept - 1].key == known[i].key ? run + 1 : 1;
        e->largest = run > e->largest ? run : e->largest;
        known[kept++] = known[i];
    }
    return kept;
}

static pst_rc list_known(struct pst_evaluation *e)
{
    const struct pst_array *array[3];
    size_t n = 0;
    for (int part = 0; part < 3; part++)
        n += pst_dataset_edges(e->ds, part, &array[part], NULL) == PST_OK ? (size_t)array[part]->shape[0] : 0;
    for (int side = 0; side < 2; side++) {
        struct pst_evaluation_known *known = e->known[side] = malloc((n + 1) * sizeof *known);
        size_t at = 0;
        if (!known)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot list %zu known edges", n);
        for (int part = 0; part < 3; part++)
            for (int64_t i = 0; array[part]->map && i < array[part]->shape[0]; i++) {
                const struct edge edge = edge_at(array[part], i);
                known[at++] = (struct pst_evaluation_known){key_of(e, &edge, side), (uint32_t)edge.end[side]};
            }
        e->n_known = tidy(e, known, at); /* the same number on both sides */
    }
    return PST_OK;
}

/* ---- ranks --------------------------------------------------------------------------------------- */

/* Edges that are ranked together: both ends' rows and both queries of each are in memory. */
static int64_t edges_at_once(const struct pst_evaluation *e)
{
    const int64_t fit = ROWS_BYTES / (4 * e->plan->d * (int64_t)sizeof(pst_real));
    return fit > GROUP ? fit : GROUP;
}

static void warn_of_no_edges(const struct pst_dataset *ds, struct pst_stage *stage)
{
    const struct pst_array *edges;
    for (int part = PST_VAL; part <= PST_TEST; part++) {
        const char *name = pst_dataset_part_name(part);
        if (pst_dataset_edges(ds, part, &edges, NULL) != PST_OK)
            pst_warn(stage,
                     "the dataset %s has neither triples_%s.npy nor edges_%s.npy with edges, so the report "
                     "has no %s_mrr",
                     ds->dir, name, name, name);
    }
}

pst_rc pst_evaluation_open(struct pst_evaluation *e, struct pst_stage *stage, int threads)
{
    warn_of_no_edges(e->ds, stage);
    pst_rc rc = list_known(e);
    if (rc != PST_OK)
        return rc;
    const struct pst_array *edges;
    int64_t most = 1;
    for (int part = PST_VAL; part <= PST_TEST; part++)
        if (pst_dataset_edges(e->ds, part, &edges, NULL) == PST_OK)
            most = pst_max_i64(most, edges->shape[0]);
    most = pst_min_i64(most, edges_at_once(e));
    for (int side = 0; side < 2; side++) {
        e->ends[side] = malloc((size_t)(most * e->plan->d) * sizeof *e->ends[side]);
        e->queries[side] = malloc((size_t)(most * e->plan->d) * sizeof *e->queries[side]);
        e->counts[side] = malloc((size_t)most * sizeof *e->counts[side]);
        if (!e->ends[side] || !e->queries[side] || !e->counts[side])
            return pst_fail(PST_E_NOMEM, "out of memory: cannot rank %lld edges at a time", (long long)most);
    }
    for (int side = 0; side < 2 && e->among > 0; side++) {
        e->sample[side] = malloc((size_t)e->among * sizeof *e->sample[side]);
        e->sample_rows[side] = malloc((size_t)(e->among * e->plan->d) * sizeof *e->sample_rows[side]);
        if (!e->sample[side] || !e->sample_rows[side])
            return pst_fail(PST_E_NOMEM, "out of memory: cannot rank among %" PRId64 " vertices", e->among);
    }
    e->own = malloc(GROUP * sizeof *e->own);
    e->start = malloc((GROUP + 1) * sizeof *e->start);
    e->rows = malloc((GROUP * e->largest + 1) * sizeof *e->rows);
    if (!e->own || !e->start || !e->rows)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot rank %d edges at a time", GROUP);
    return pst_embed_workspace_new(&e->workspace, threads);
}

void pst_evaluation_close(struct pst_evaluation *e)
{
    pst_embed_workspace_free(e->workspace);
    for (int side = 0; side < 2; side++) {
        free(e->known[side]);
        free(e->ends[side]);
        free(e->queries[side]);
        free(e->counts[side]);
        free(e->sample[side]);
        free(e->sample_rows[side]);
    }
    free(e->own);
    free(e->start);
    free(e->rows);
    *e = (struct pst_evaluation){.ds = NULL};
}

/* The first known edge whose key is not below this one. */
static size_t find(const struct pst_evaluation *e, int side, int64_t key)
{
    size_t low = 0, high = e->n_known;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->known[side][middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Edges `first` to `first + m - 1` of a part. */
struct ranking {
    struct pst_evaluation *e;
    const struct pst_array *edges;
    int64_t first, m;
    int part;
};

/* Copies the rows of ends that are in this partition. */
static void gather(const struct ranking *r, int partition)
{
    const struct pst_evaluation *e = r->e;
    const int64_t d = e->plan->d;
    for (int64_t i = 0; i < r->m; i++) {
        const struct edge edge = edge_at(r->edges, r->first + i);
        for (int side = 0; side < 2; side++)
            if (pst_vectors_partition(e->vectors, edge.end[side]) == partition)
                memcpy(e->ends[side] + i * d, pst_vectors_row(e->vectors, edge.end[side]),
                       (size_t)d * sizeof(pst_real));
    }
}

/* Side 0 looks for sources. The other end and the relation make the query. */
static void ask(const struct ranking *r, int side, const pst_real *relations)
{
    const struct pst_evaluation *e = r->e;
    const struct pst_embed_plan *plan = e->plan;
    const int64_t dr = pst_embed_relation_floats(plan), d = plan->d;
    const bool inverse = side == 0 && plan->inverse;
    for (int64_t i = 0; i < r->m; i++) {
        const int64_t relation = edge_at(r->edges, r->first + i).relation + (inverse ? plan->relations : 0);
        plan->model->query(e->queries[side] + i * d, e->ends[1 - side] + i * d,
                           dr > 0 ? relations + relation * dr : NULL, d, side == 0 && !plan->inverse);
    }
    pst_embed_count_begin(plan->model->similarity, e->queries[side], e->ends[side], r->m, d, e->counts[side]);
}

/* Query i of a group: its true end and its known ends, as rows of this partition. */
static void list_ends(const struct ranking *r, int side, int64_t query, int64_t i, int partition)
{
    const struct pst_evaluation *e = r->e;
    const struct pst_vectors *v = e->vectors;
    const struct edge edge = edge_at(r->edges, r->first + query);
    const int64_t key = key_of(e, &edge, side), own = edge.end[side];
    int64_t at = e->start[i];
    for (size_t k = find(e, side, key); k < e->n_known && e->known[side][k].key == key; k++)
        if (pst_vectors_partition(v, e->known[side][k].end) == partition)
            e->rows[at++] = (uint32_t)pst_vectors_place(v, e->known[side][k].end);
    e->start[i + 1] = at;
    e->own[i] = pst_vectors_partition(v, own) == partition ? pst_vectors_place(v, own) : -1;
}

/* Compares every query with every vertex of a partition. */
static pst_rc count(const struct ranking *r, int side, int partition)
{
    const struct pst_evaluation *e = r->e;
    const struct pst_vectors *v = e->vectors;
    const int64_t d = e->plan->d;
    pst_rc rc = PST_OK;
    for (int64_t first = 0; first < r->m && rc == PST_OK; first += GROUP) {
        const int64_t n = pst_min_i64(GROUP, r->m - first);
        const struct pst_embed_candidates block = {.x = pst_vectors_rows(v, v->block_of[partition]),
                                                   .n = pst_vectors_used(v, partition),
                                                   .own = e->own,
                                                   .known_start = e->start,
                                                   .known = e->rows};
        e->start[0] = 0;
        for (int64_t i = 0; i < n; i++)
            list_ends(r, side, first + i, i, partition);
        const pst_real *q = e->queries[side] + first * d;
        struct pst_embed_count *counts = e->counts[side] + first;
        rc = e->gpu
                 ? pst_embed_device_count(e->plan->model->similarity, q, n, d, &block, e->gpu, counts)
                 : pst_embed_count_block(e->plan->model->similarity, q, n, d, &block, e->workspace, counts);
    }
    return rc;
}

static pst_rc bring(const struct pst_evaluation *e, int partition)
{
    return e->vectors->parts ? e->load(e->load_arg, partition) : PST_OK;
}

/* ---- ranks among a sample ------------------------------------------------------------------------ */

static int compare_ids(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* The first ones are ends of training edges, as often as they are there, and the others uniform. A vertex
 * that comes twice counts once. */
static void draw_sample(const struct ranking *r, int side)
{
    struct pst_evaluation *e = r->e;
    const struct pst_array *training;
    const bool edges = pst_dataset_edges(e->ds, PST_TRAIN, &training, NULL) == PST_OK;
    const int64_t by_degree = edges ? (int64_t)(e->alpha * (double)e->among + 0.5) : 0;
    const struct pst_rng_stream stream =
        pst_rng_stream_of(PST_RNG_RANK, e->seed, 0, (uint64_t)r->first, (uint32_t)(2 * r->part + side));
    int64_t *sample = e->sample[side], kept = 0;
    for (int64_t k = 0; k < e->among; k++) {
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)k, 0);
        const uint64_t bits = pst_rng_u64(&draw, 0);
        sample[k] =
            k < by_degree
                ? edge_at(training, (int64_t)pst_rng_bounded(bits, (uint64_t)training->shape[0])).end[side]
                : (int64_t)pst_rng_bounded(bits, (uint64_t)e->ds->vertices);
    }
    qsort(sample, (size_t)e->among, sizeof *sample, compare_ids);
    for (int64_t k = 0; k < e->among; k++)
        if (k == 0 || sample[k] != sample[k - 1])
            sample[kept++] = sample[k];
    e->n_sample[side] = kept;
}

static void gather_sample(const struct pst_evaluation *e, int side, int partition)
{
    const int64_t d = e->plan->d;
    for (int64_t k = 0; k < e->n_sample[side]; k++)
        if (pst_vectors_partition(e->vectors, e->sample[side][k]) == partition)
            memcpy(e->sample_rows[side] + k * d, pst_vectors_row(e->vectors, e->sample[side][k]),
                   (size_t)d * sizeof(pst_real));
}

static pst_rc count_sample(const struct ranking *r, int side)
{
    const struct pst_evaluation *e = r->e;
    const int64_t d = e->plan->d, *sample = e->sample[side];
    const struct pst_embed_candidates block = {.x = e->sample_rows[side],
                                               .n = e->n_sample[side],
                                               .own = e->own,
                                               .known_start = e->start,
                                               .known = e->rows};
    pst_rc rc = PST_OK;
    memset(e->start, 0, (GROUP + 1) * sizeof *e->start); /* nothing is left out */
    for (int64_t first = 0; first < r->m && rc == PST_OK; first += GROUP) {
        const int64_t n = pst_min_i64(GROUP, r->m - first);
        for (int64_t i = 0; i < n; i++) {
            const int64_t own = edge_at(r->edges, r->first + first + i).end[side];
            const int64_t *at = bsearch(&own, sample, (size_t)block.n, sizeof *sample, compare_ids);
            e->own[i] = at ? at - sample : -1;
        }
        rc = pst_embed_count_block(e->plan->model->similarity, e->queries[side] + first * d, n, d, &block,
                                   e->workspace, e->counts[side] + first);
    }
    return rc;
}

/* ---- all ----------------------------------------------------------------------------------------- */

/* Compares the queries with every vertex. */
static pst_rc count_all(const struct ranking *r, int partitions)
{
    const struct pst_evaluation *e = r->e;
    pst_rc rc = PST_OK;
    for (int p = 0; p < partitions && rc == PST_OK; p++) {
        if (pst_vectors_used(e->vectors, p) == 0)
            continue;
        rc = bring(e, p);
        for (int side = 0; side < 2 && rc == PST_OK; side++)
            rc = count(r, side, p);
    }
    return rc;
}

/* One pass over the partitions gathers rows. Another one ranks, or the sample of the first one does. */
static pst_rc rank(const struct ranking *r, const pst_real *relations, struct pst_embed_ranks *sum)
{
    const struct pst_evaluation *e = r->e;
    const int partitions = e->vectors->parts ? e->vectors->parts->partitions : 1;
    pst_rc rc = PST_OK;
    for (int side = 0; side < 2 && e->among > 0; side++)
        draw_sample(r, side);
    for (int p = 0; p < partitions && rc == PST_OK; p++) {
        rc = bring(e, p);
        if (rc == PST_OK)
            gather(r, p);
        for (int side = 0; side < 2 && rc == PST_OK; side++)
            gather_sample(e, side, p);
    }
    for (int side = 0; side < 2 && rc == PST_OK; side++)
        ask(r, side, relations);
    if (rc == PST_OK && e->among == 0)
        rc = count_all(r, partitions);
    for (int side = 0; side < 2 && e->among > 0 && rc == PST_OK; side++)
        rc = count_sample(r, side);
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < r->m && rc == PST_OK; i++)
            pst_embed_ranks_add(sum, pst_embed_rank(&e->counts[side][i], true, e->tie));
    return rc;
}

pst_rc pst_evaluation_run(struct pst_evaluation *e, int part, const pst_real *relations,
                          struct pst_embed_ranks *sum)
{
    struct ranking r = {.e = e, .part = part};
    *sum = (struct pst_embed_ranks){.n = 0};
    if (pst_dataset_edges(e->ds, part, &r.edges, NULL) != PST_OK)
        return PST_OK;
    pst_rc rc = PST_OK;
    for (; r.first < r.edges->shape[0] && rc == PST_OK; r.first += r.m) {
        r.m = pst_min_i64(edges_at_once(e), r.edges->shape[0] - r.first);
        rc = rank(&r, relations, sum);
    }
    return rc;
}

void pst_evaluation_print(const struct pst_embed_ranks *sum, int part, char *out, size_t size)
{
    const char *name = pst_dataset_part_name(part);
    const double n = (double)sum->n;
    out[0] = '\0';
    if (sum->n > 0)
        (void)snprintf(out, size,
                       "\"%s_mrr\":%.17g,\"%s_hits_1\":%.17g,\"%s_hits_3\":%.17g,\"%s_hits_10\":%.17g,"
                       "\"%s_mean_rank\":%.17g,",
                       name, sum->reciprocal / n, name, (double)sum->hits[0] / n, name,
                       (double)sum->hits[1] / n, name, (double)sum->hits[2] / n, name, sum->rank / n);
}
