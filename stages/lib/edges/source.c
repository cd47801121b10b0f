/* source.c: which edges and negatives a batch has. */
#include "stages/lib/edges/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/util/rng.h"
#include "kernels/kernels.h"

/* ---- the dataset's edges ------------------------------------------------------------------------- */

/* Column 0 is the source, the last one the destination. `penstock run` has checked all ids. */
static int64_t value(const struct pst_edges_source *s, int64_t edge, int64_t column)
{
    const int64_t at = edge * s->array->shape[1] + column;
    return s->array->dtype == PST_I32 ? ((const int32_t *)s->array->map)[at]
                                      : ((const int64_t *)s->array->map)[at];
}

/* ---- opening ------------------------------------------------------------------------------------- */

/* Sorts the edges to the run's own file, unless a file is given. */
static pst_rc sort_buckets(const struct pst_edges_source *s)
{
    struct pst_parts parts;
    char path[PST_PATH_MAX];
    if (s->partitions == 1 || s->buckets[0] != '\0')
        return PST_OK;
    pst_rc rc = pst_parts_init(&parts, s->ds.vertices, (int)s->partitions, PST_PARTS_RANDOM, s->seed);
    if (rc == PST_OK)
        rc = pst_parts_training_path(s->run_dir, path);
    return rc == PST_OK ? pst_buckets_write(&s->ds, &parts, path, s->sort_memory, NULL) : rc;
}

pst_rc pst_edges_source_size(struct pst_edges_source *s, uint64_t *bytes)
{
    pst_rc rc = pst_dataset_open(&s->ds, s->dataset_dir);
    if (rc == PST_OK)
        rc = pst_dataset_edges(&s->ds, PST_TRAIN, &s->array, &s->relations);
    if (rc == PST_OK)
        pst_parts_negatives(s->negatives_from, s->ds.vertices, s->partitions, s->buffer, &s->chunks,
                            &s->negatives);
    if (rc == PST_OK && s->chunks * s->negatives > PST_EDGE_BATCH_NEGATIVES_MAX)
        rc = pst_fail(PST_E_ARG,
                      "chunks is %" PRId64 " and negatives is %" PRId64
                      ", too many for a batch: their product can be at most %d",
                      s->chunks, s->negatives, PST_EDGE_BATCH_NEGATIVES_MAX);
    if (rc != PST_OK)
        return rc;
    s->n = s->together > 0 ? 2 * s->array->shape[0] : s->array->shape[0];
    s->batch = pst_min_i64(s->batch, s->n);
    s->full = (uint64_t)((s->n + s->batch - 1) / s->batch);
    s->batches = s->full + (uint64_t)s->staleness;
    s->drawn = (uint32_t)lround(s->alpha * (double)s->negatives);
    struct pst_edge_batch largest = {
        .edges = (uint32_t)s->batch, .chunks = (uint32_t)s->chunks, .negatives = (uint32_t)s->negatives};
    pst_edge_batch_place(&largest);
    *bytes = largest.bytes_used;
    return sort_buckets(s);
}

static pst_rc open_groups(struct pst_edges_source *s, uint64_t *total)
{
    char path[PST_PATH_MAX];
    struct pst_parts_epochs *e = &s->groups.training.epochs;
    *e = (struct pst_parts_epochs){.batch = s->batch,
                                   .staleness = s->staleness,
                                   .epochs = s->epochs,
                                   .commit_swaps = s->checkpoint_swaps,
                                   .seed = s->seed};
    s->groups.training.between_exchanges = s->between_exchanges;
    pst_rc rc = pst_parts_training_path(s->run_dir, path);
    if (rc == PST_OK)
        rc = pst_edges_groups_open(&s->groups, s->buckets[0] != '\0' ? s->buckets : path, s->ds.digest,
                                   (int)s->partitions, (int)s->buffer,
                                   (enum pst_order_kind)pst_order_kind_of(s->sequence));
    if (rc == PST_OK)
        *total = pst_parts_epochs_total(e);
    return rc;
}

/* Each edge twice: for its destination, and, turned round, for its source. */
static pst_rc open_queries(struct pst_edges_source *s)
{
    const int64_t edges = s->array->shape[0], columns = s->array->shape[1];
    struct pst_edges_queries_item *item = malloc((size_t)s->n * sizeof *item);
    if (!item)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %" PRId64 " edges by query", s->n);
    for (int64_t i = 0; i < edges; i++) {
        const int64_t relation = columns == 3 ? value(s, i, 1) : 0;
        item[i] = (struct pst_edges_queries_item){value(s, i, 0) * 2 * s->relations + relation, i};
        item[edges + i] = (struct pst_edges_queries_item){
            (value(s, i, columns - 1) * 2 + 1) * s->relations + relation, edges + i};
    }
    return pst_edges_queries_open(&s->queries, item, s->n, s->together);
}

pst_rc pst_edges_source_open(struct pst_edges_source *s, uint64_t *total)
{
    if (s->partitions > 1)
        return open_groups(s, total);
    s->epoch = -1;
    s->order = malloc((size_t)s->n * sizeof *s->order);
    *total = s->batches * (uint64_t)s->epochs;
    if (!s->order)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the order of %" PRId64 " edges", s->n);
    return s->together > 0 ? open_queries(s) : PST_OK;
}

void pst_edges_source_close(struct pst_edges_source *s)
{
    free(s->order);
    pst_edges_queries_close(&s->queries);
    pst_edges_groups_close(&s->groups);
    pst_dataset_close(&s->ds);
}

/* ---- a batch ------------------------------------------------------------------------------------- */

static void order_epoch(struct pst_edges_source *s, int64_t epoch)
{
    if (s->epoch == epoch)
        return;
    if (s->together > 0)
        pst_edges_queries_order(&s->queries, s->seed, epoch, s->shuffle, s->order);
    else if (s->shuffle)
        pst_k_shuffle(NULL, s->seed, (uint64_t)epoch, s->order, s->n);
    else
        for (int64_t i = 0; i < s->n; i++)
            s->order[i] = i;
    s->epoch = epoch;
}

static void fill_edges(const struct pst_edges_source *s, const struct pst_edge_batch *b, char *slot)
{
    int64_t *source = pst_edge_batch_at(slot, b->source_at), columns = s->array->shape[1];
    int64_t *destination = pst_edge_batch_at(slot, b->destination_at);
    int32_t *relation = pst_edge_batch_at(slot, b->relation_at);
    for (uint32_t i = 0; i < b->edges && s->partitions > 1; i++) {
        source[i] = pst_edges_groups_value(&s->groups, i, 0);
        destination[i] = pst_edges_groups_value(&s->groups, i, (int)columns - 1);
        relation[i] = columns == 3 ? (int32_t)pst_edges_groups_value(&s->groups, i, 1) : 0;
    }
    if (s->partitions > 1)
        return;
    const int64_t *order = s->order + (int64_t)b->batch_in_epoch * s->batch;
    for (uint32_t i = 0; i < b->edges; i++) {
        const bool turned = order[i] >= s->array->shape[0];
        const int64_t edge = turned ? order[i] - s->array->shape[0] : order[i];
        source[i] = value(s, edge, turned ? columns - 1 : 0);
        destination[i] = value(s, edge, turned ? 0 : columns - 1);
        relation[i] = (int32_t)((columns == 3 ? value(s, edge, 1) : 0) + (turned ? s->relations : 0));
    }
}

/* Vertices in memory while the batch that was found last is trained, and one of them, from 0. */
static int64_t resident(const struct pst_edges_source *s)
{
    return s->partitions == 1 ? s->ds.vertices : pst_edges_groups_vertices(&s->groups);
}

static int64_t resident_vertex(const struct pst_edges_source *s, int64_t i)
{
    return s->partitions == 1 ? i : pst_edges_groups_vertex(&s->groups, i);
}

static void fill_all(const struct pst_edges_source *s, const struct pst_edge_batch *b, char *slot)
{
    for (int side = 0; side < 2; side++)
        for (uint32_t k = 0; k < b->negatives; k++)
            ((int64_t *)pst_edge_batch_at(slot, b->negatives_at[side]))[k] = resident_vertex(s, k);
}

/* The first `drawn` negatives of each chunk replace a vertex by the same end of a random edge of the batch.
 * The others can be any vertex. */
static void fill_negatives(const struct pst_edges_source *s, uint64_t seed, const struct pst_edge_batch *b,
                           char *slot)
{
    const uint64_t end_at[2] = {b->source_at, b->destination_at};
    for (uint32_t c = 0; c < b->chunks; c++)
        for (uint32_t side = 0; side < 2; side++) {
            const struct pst_rng_stream stream =
                pst_rng_stream_of(PST_RNG_NEGATIVE, seed, b->epoch, b->batch_in_epoch, 2 * c + side);
            const int64_t *end = pst_edge_batch_at(slot, end_at[side]);
            int64_t *out = pst_edge_batch_at(slot, b->negatives_at[side]);
            for (uint32_t k = 0; k < b->negatives; k++) {
                const struct pst_rng_block draw = pst_rng_draw(&stream, k, 0);
                const uint64_t bits = pst_rng_u64(&draw, 0);
                out[(uint64_t)c * b->negatives + k] =
                    k < s->drawn ? end[pst_rng_bounded(bits, b->edges)]
                                 : resident_vertex(s, (int64_t)pst_rng_bounded(bits, (uint64_t)resident(s)));
            }
        }
}

/* Which batch of the run it is. */
static struct pst_parts_batch find(struct pst_edges_source *s, uint64_t batch)
{
    if (s->partitions > 1) {
        pst_edges_groups_find(&s->groups, batch, s->shuffle);
        return s->groups.batch;
    }
    const uint64_t at = batch % s->batches;
    const int64_t left = at < s->full ? s->n - (int64_t)at * s->batch : 0;
    return (struct pst_parts_batch){.epoch = (int64_t)(batch / s->batches),
                                    .at = at,
                                    .batches = s->batches,
                                    .edges = (uint32_t)pst_min_i64(s->batch, left),
                                    .flush = at < s->full ? 0 : (uint32_t)(at - s->full + 1)};
}

struct pst_edge_batch pst_edges_source_fill(struct pst_edges_source *s, uint64_t batch, char *slot)
{
    const struct pst_parts_batch at = find(s, batch);
    const bool pause = at.edges == 0 && at.flush == 0;
    struct pst_edge_batch b = {.magic = PST_EDGE_BATCH_MAGIC,
                               .batch = batch,
                               .batch_in_epoch = at.at,
                               .batches_in_epoch = at.batches,
                               .epoch = (uint32_t)at.epoch,
                               .edges = at.edges,
                               .chunks = (uint32_t)s->chunks,
                               .negatives = at.edges > 0 && s->negatives_from == PST_PARTS_ALL
                                                ? (uint32_t)resident(s)
                                                : (uint32_t)s->negatives,
                               .flush = at.commit ? PST_EDGE_BATCH_COMMIT
                                        : pause   ? PST_EDGE_BATCH_PAUSE
                                                  : at.flush,
                               .flags = (s->negatives_from == PST_PARTS_ALL ? PST_EDGE_BATCH_ALL : 0) |
                                        (s->together > 0 ? PST_EDGE_BATCH_TURNED : 0),
                               .vertices = s->ds.vertices,
                               .relations = s->relations};
    pst_edge_batch_place(&b);
    *(struct pst_edge_batch *)(void *)slot = b;
    if (b.edges == 0)
        return b;
    if (s->partitions == 1)
        order_epoch(s, at.epoch);
    fill_edges(s, &b, slot);
    if (s->no_negatives)
        return b;
    if (s->negatives_from == PST_PARTS_ALL)
        fill_all(s, &b, slot);
    else
        fill_negatives(s, s->seed, &b, slot);
    return b;
}
