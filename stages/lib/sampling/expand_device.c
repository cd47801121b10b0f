/* expand_device.c: a minibatch as kernels on a GPU's queue. */
#include "stages/lib/sampling/expand_device.h"

#include <string.h>

#include "common/error.h"

_Static_assert(PST_EXPAND_DEVICE_NUMBERS >= 2 + 2 * PST_HOPS_MAX + 4,
               "there is room for vertices, edges and four numbers of the caller's own");
_Static_assert(PST_EXPAND_DEVICE_NUMBERS <= PST_TWIN_RECORD_COUNTS, "a record holds them");

static int64_t most_edges(const struct pst_minibatch_size *size)
{
    int64_t edges = 1;
    for (int h = 0; h < size->hops; h++)
        edges = pst_max_i64(edges, size->edges[h]);
    return edges;
}

pst_rc pst_expand_device_queue_for(struct pst_device *device, const struct pst_minibatch_size *size)
{
    return pst_device_queue(
        device, (struct pst_queue_options){.most = pst_max_i64(size->n[size->hops], most_edges(size)),
                                           .first = true});
}

static pst_rc take(struct pst_expander_device *x, int64_t n, size_t size, const char *what, void **at)
{
    return pst_device_take(x->device, PST_TWIN_MEMORY_DEVICE, (uint64_t)n * size, what, at);
}

static uint64_t staged_bytes(const struct pst_expander_device *x)
{
    return sizeof *x->batch + (uint64_t)x->size.n[0] * sizeof x->batch->seeds[0];
}

/* CUDA copies more than 64 KiB from pageable memory only after it has waited for the stream. So the seeds go
 * through pinned memory. */
static pst_rc take_lanes(struct pst_expander_device *x)
{
    void *batch = NULL;
    pst_rc rc =
        pst_device_take(x->device, PST_TWIN_MEMORY_DEVICE, staged_bytes(x), "a batch's seeds", &batch);
    x->batch = batch;
    for (int lane = 0; lane < PST_EXPAND_DEVICE_LANES && rc == PST_OK; lane++) {
        void *staged = NULL, *record = NULL;
        rc = pst_device_take(x->device, PST_TWIN_MEMORY_PINNED, staged_bytes(x), "a copy of a batch's seeds",
                             &staged);
        if (rc == PST_OK)
            rc = pst_device_take(x->device, PST_TWIN_MEMORY_PINNED, sizeof *x->record[lane],
                                 "a batch's counts", &record);
        if (rc == PST_OK) { /* the device copies unused places, too */
            memset(staged, 0, staged_bytes(x));
            memset(record, 0, sizeof *x->record[lane]);
            ((struct pst_twin_record *)record)->sequence = 1;
        }
        x->staged[lane] = staged;
        x->record[lane] = record;
    }
    return rc;
}

pst_rc pst_expander_device_init(struct pst_expander_device *x, struct pst_device *device,
                                const struct pst_csc *device_graph,
                                const struct pst_sampling_opened *algorithm,
                                const struct pst_minibatch_size *size)
{
    if (algorithm->algorithm->draw_on_device == NULL)
        return pst_fail(PST_E_UNSUPPORTED,
                        "the sampling algorithm %s runs only on CPUs, but the stage is placed on %s",
                        algorithm->algorithm->name, device->name);
    *x = (struct pst_expander_device){
        .device = device, .graph = *device_graph, .algorithm = algorithm, .size = *size};
    const int64_t vertices = size->n[size->hops], edges = most_edges(size);
    void *table = NULL, *found, *ids, *indptr, *numbers, *weights = NULL, *relations = NULL;
    pst_rc rc = take(x, 1, device->twin->dedup_bytes(vertices), "the dedup table of a batch", &table);
    if (rc == PST_OK)
        rc = take_lanes(x);
    if (rc == PST_OK)
        rc = take(x, vertices, sizeof *x->vertices, "a batch's vertices", &found);
    if (rc == PST_OK)
        rc = take(x, edges, sizeof *x->ids, "a hop's edges", &ids);
    if (rc == PST_OK)
        rc = take(x, vertices + 1, sizeof *x->indptr, "a hop's indptr", &indptr);
    if (rc == PST_OK)
        rc = take(x, PST_EXPAND_DEVICE_NUMBERS, sizeof *x->numbers, "a batch's numbers", &numbers);
    if (rc == PST_OK && pst_sampling_has(algorithm, PST_SAMPLING_WEIGHS))
        rc = take(x, edges, sizeof *x->weights, "a hop's weights", &weights);
    if (rc == PST_OK && pst_sampling_has(algorithm, PST_SAMPLING_TYPED))
        rc = take(x, edges, sizeof *x->relations, "a hop's relations", &relations);
    if (rc != PST_OK)
        return rc;
    x->weights = weights;
    x->relations = relations;
    if (algorithm->algorithm->place != NULL)
        rc = algorithm->algorithm->place(algorithm->state, device);
    if (rc != PST_OK)
        return rc;
    x->table = device->twin->dedup_init(table, vertices);
    x->vertices = found;
    x->ids = ids;
    x->indptr = indptr;
    x->numbers = numbers;
    return x->table ? PST_OK
                    : pst_fail(PST_E_IO, "%s: cannot initialize the table that finds repeated vertices",
                               device->name);
}

void pst_expander_device_release(struct pst_expander_device *x)
{
    if (x->device == NULL)
        return;
    void *const taken[] = {x->table,  x->batch,   x->vertices, x->ids,
                           x->indptr, x->numbers, x->weights,  x->relations};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        pst_device_give(x->device, taken[i]);
    for (int lane = 0; lane < PST_EXPAND_DEVICE_LANES; lane++) {
        pst_device_give(x->device, x->staged[lane]);
        pst_device_give(x->device, x->record[lane]);
    }
    *x = (struct pst_expander_device){0};
}

/* Room for the vertices after h hops. A slot may have less room for all vertices than for the seeds alone. */
static int64_t room(const struct pst_expander_device *x, int h)
{
    return pst_min_i64(x->size.n[h], x->size.n[x->size.hops]);
}

/* One hop. The count of vertices so far is kept apart, because dedup changes it in place. */
static void expand_hop(struct pst_expander_device *x, const struct pst_sample_key *key, int fanout,
                       const struct pst_expand_device_block *block)
{
    const struct pst_twin *twin = x->device->twin;
    struct pst_queue *q = x->device->q;
    const int h = (int)key->hop;
    const struct pst_minibatch_size *size = &x->size;
    const struct pst_twin_n dsts = {pst_expand_device_vertices(x, h), size->n[h]},
                            edges = {pst_expand_device_edges(x, h), size->edges[h]};
    const struct pst_sampling_device_hop hop = {.device = x->device,
                                                .graph = &x->graph,
                                                .key = key,
                                                .fanout = fanout,
                                                .vertices = x->vertices,
                                                .n = dsts,
                                                .indptr = x->indptr,
                                                .out = x->ids,
                                                .capacity = size->edges[h],
                                                .total = pst_expand_device_edges(x, h),
                                                .weight = x->weights,
                                                .relation = x->relations};
    if (fanout == 0) /* the number of edges is 0 already */
        (void)twin->fill(q, x->indptr, 0, ((size_t)room(x, h) + 1) * sizeof *x->indptr);
    else if (x->resident != NULL)
        pst_sampling_resident_device_draw(x->resident, key, fanout, x->vertices, dsts, x->indptr, x->ids,
                                          hop.capacity, hop.total);
    else {
        if (pst_sampling_has(x->algorithm, PST_SAMPLING_REPLAYS))
            twin->draws_at(q, &x->batch->draws[h]);
        (void)x->algorithm->algorithm->draw_on_device(x->algorithm->state, &hop);
        twin->draws_at(q, NULL);
    }
    (void)twin->dedup_n(q, x->table, x->ids, edges, x->vertices, x->numbers, room(x, h + 1),
                        block ? block->local : NULL);
    (void)twin->copy(q, pst_expand_device_vertices(x, h + 1), x->numbers, sizeof *x->numbers);
    if (!block)
        return;
    twin->copy_digest_n(q, x->indptr + 1, block->indptr + 1, dsts, sizeof *x->indptr,
                        PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_INDPTR), block->digest);
    twin->copy_digest_n(q, block->local, block->indices, edges, sizeof *block->local,
                        PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_INDICES), block->digest);
    if (x->relations)
        twin->copy_digest_n(q, x->relations, block->relations, edges, sizeof *x->relations,
                            PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_RELATIONS), block->digest);
    if (!x->weights)
        return;
    twin->edge_shares_n(q, x->indptr, dsts, x->weights);
    twin->copy_digest_n(q, x->weights, block->weights, edges, sizeof *x->weights,
                        PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_WEIGHTS), block->digest);
}

void pst_expand_device_stage(struct pst_expander_device *x, int lane, const struct pst_sample_key *key,
                             const int64_t *seeds, int64_t n)
{
    struct pst_expand_device_batch *batch = x->staged[lane];
    assert(n <= x->size.n[0]);
    assert(x->record[lane]->sequence == 1); /* the batch before has been copied */
    for (int h = 0; h < x->size.hops; h++)
        batch->draws[h] = pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, (uint32_t)h);
    batch->n = n;
    memcpy(batch->seeds, seeds, (size_t)n * sizeof *seeds);
    x->record[lane]->sequence = 0;
}

void pst_expand_device(struct pst_expander_device *x, int lane, struct pst_sample_key key,
                       const int64_t *fanout, const struct pst_expand_device_block *blocks)
{
    const struct pst_twin *twin = x->device->twin;
    struct pst_queue *q = x->device->q;
    (void)twin->copy(q, x->batch, x->staged[lane], staged_bytes(x));
    (void)twin->fill(q, x->numbers, 0, PST_EXPAND_DEVICE_NUMBERS * sizeof *x->numbers);
    twin->dedup_reset(q, x->table);
    (void)twin->dedup_n(q, x->table, x->batch->seeds, (struct pst_twin_n){&x->batch->n, x->size.n[0]},
                        x->vertices, x->numbers, room(x, 0), NULL);
    (void)twin->copy(q, pst_expand_device_vertices(x, 0), x->numbers, sizeof *x->numbers);
    for (key.hop = 0; (int)key.hop < x->size.hops; key.hop++)
        expand_hop(x, &key, (int)fanout[key.hop], blocks ? &blocks[key.hop] : NULL);
}

void pst_expand_device_record(struct pst_expander_device *x, int lane, int nown)
{
    const int64_t *at[PST_TWIN_RECORD_COUNTS];
    const int all = 1 + 2 * x->size.hops + nown;
    for (int i = 0; i < all; i++)
        at[i] = x->numbers + 1 + i;
    (void)x->device->twin->record(x->device->q, x->record[lane], 1, at, all); /* the wait reports a failure */
}

pst_rc pst_expand_device_done(struct pst_expander_device *x, int lane, struct pst_minibatch_size *found,
                              int64_t *own, int nown, bool *data_fault)
{
    *found = (struct pst_minibatch_size){.hops = x->size.hops};
    const pst_rc rc = pst_device_recorded_in(x->device, x->record[lane], 1, data_fault);
    if (rc != PST_OK)
        return rc;
    const int64_t *counts = x->record[lane]->counts;
    memcpy(found->n, counts, (size_t)(found->hops + 1) * sizeof *counts);
    memcpy(found->edges, counts + found->hops + 1, (size_t)found->hops * sizeof *counts);
    if (nown > 0)
        memcpy(own, counts + 2 * found->hops + 1, (size_t)nown * sizeof *counts);
    return PST_OK;
}
