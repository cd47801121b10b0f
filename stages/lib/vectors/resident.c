/* resident.c: what a batch needs on the GPU besides the rows themselves. */
#include "stages/lib/vectors/resident.h"

#include <string.h>

#include "stages/lib/vectors/owner.h"

/* Bytes of the ranges, which come first: vertices before each, and the first row of each. */
enum { BEFORE_BYTES = (PST_PARTS_MAX + 1) * 8, RANGES_BYTES = BEFORE_BYTES + PST_PARTS_MAX * 4 };

static pst_rc take(struct pst_vectors_resident *r, enum pst_twin_memory kind, int64_t count, size_t size,
                   void *to)
{
    void *at;
    const pst_rc rc = pst_device_take(r->device, kind, (uint64_t)count * size, "a batch", &at);
    memcpy(to, &at, sizeof at);
    return rc;
}

/* Rows that a batch can update: each has an end or a negative. */
static int64_t most_rows(const struct pst_vectors_resident *r)
{
    return pst_min_i64(4 * r->edges + 2 * r->negatives, r->vectors->blocks * r->vectors->block_rows);
}

pst_rc pst_vectors_resident_open(struct pst_vectors_resident *r, const struct pst_vectors *v,
                                 struct pst_device *device, int64_t edges, int64_t negatives)
{
    *r =
        (struct pst_vectors_resident){.vectors = v, .device = device, .edges = edges, .negatives = negatives};
    const int64_t ends = RANGES_BYTES + 3 * edges * (int64_t)sizeof(uint32_t);
    pst_rc rc = PST_OK;
    for (int i = 0; i < 2 && rc == PST_OK; i++) {
        rc = take(r, PST_TWIN_MEMORY_PINNED, ends, 1, &r->ends[i]);
        if (rc == PST_OK)
            rc = take(r, PST_TWIN_MEMORY_DEVICE, negatives, sizeof(uint32_t), &r->drawn[i]);
    }
    if (rc == PST_OK)
        rc = take(r, PST_TWIN_MEMORY_DEVICE, ends, 1, &r->there);
    if (rc == PST_OK)
        rc = take(r, PST_TWIN_MEMORY_DEVICE, most_rows(r), sizeof(uint32_t), &r->node_list);
    if (rc == PST_OK)
        rc = take(r, PST_TWIN_MEMORY_DEVICE, most_rows(r) * v->dim, sizeof(pst_real), &r->node_grads);
    return rc;
}

static void write_ranges(const struct pst_vectors *v, const struct pst_vectors_ranges *ranges, char *to)
{
    uint32_t *first = (uint32_t *)(void *)(to + BEFORE_BYTES);
    memcpy(to, ranges->before, (size_t)(ranges->n + 1) * sizeof *ranges->before);
    for (int i = 0; i < ranges->n; i++)
        first[i] = (uint32_t)(v->block_of[ranges->partition[i]] * v->block_rows);
}

pst_rc pst_vectors_resident_bring(struct pst_vectors_resident *r, const struct pst_edge_batch *b,
                                  const void *from, const struct pst_vectors_ranges *ranges,
                                  struct pst_k_embed_draws draw, struct pst_embed_batch *out)
{
    const struct pst_vectors *v = r->vectors;
    const int64_t n = b->edges;
    char *here = r->ends[r->turn];
    uint32_t *ends = (uint32_t *)(void *)(here + RANGES_BYTES);
    const uint32_t *there = (const uint32_t *)(const void *)(r->there + RANGES_BYTES);
    assert(n <= r->edges && (int64_t)b->chunks * b->negatives <= r->negatives);
    r->turn = !r->turn;
    write_ranges(v, ranges, here);
    pst_rc rc = pst_vectors_rows_of(v, pst_edge_batch_at(from, b->source_at), n, ends);
    if (rc == PST_OK)
        rc = pst_vectors_rows_of(v, pst_edge_batch_at(from, b->destination_at), n, ends + n);
    if (rc != PST_OK)
        return rc;
    memcpy(ends + 2 * n, pst_edge_batch_at(from, b->relation_at), (size_t)n * sizeof *ends);
    (void)r->device->twin->copy(r->device->q, r->there, here, RANGES_BYTES + 3 * (size_t)n * sizeof *ends);
    draw.epoch = b->epoch;
    draw.batch = b->batch_in_epoch;
    draw.chunks = b->chunks;
    draw.negatives = b->negatives;
    draw.edges = n;
    draw.end[0] = there;
    draw.end[1] = there + n;
    draw.ranges = ranges->n;
    draw.before = (const int64_t *)(const void *)r->there;
    draw.first = (const uint32_t *)(const void *)(r->there + BEFORE_BYTES);
    r->device->twin->embed_negatives(r->device->q, &draw, r->drawn);
    *out = (struct pst_embed_batch){.edges = n,
                                    .chunks = b->chunks,
                                    .n = v->blocks * v->block_rows,
                                    .negatives = b->negatives,
                                    .src = there,
                                    .dst = there + n,
                                    .rel = there + 2 * n,
                                    .neg_src = r->drawn[0],
                                    .neg_dst = r->drawn[1],
                                    .nodes = pst_vectors_rows(v, 0),
                                    .node_grads = r->node_grads,
                                    .epoch = b->epoch,
                                    .batch = b->batch_in_epoch};
    return PST_OK;
}

void pst_vectors_resident_update(const struct pst_vectors_resident *r, const struct pst_embed_batch *b,
                                 const struct pst_embed_device *w)
{
    const struct pst_vectors *v = r->vectors;
    const struct pst_k_embed_table table = {.optimizer = v->optimizer,
                                            .rate = v->rate * v->scale,
                                            .step = v->updates,
                                            .d = v->dim,
                                            .x = pst_vectors_rows(v, 0),
                                            .state = pst_vectors_state(v, 0)};
    pst_embed_device_update_nodes(b, w, &table, r->node_list, most_rows(r));
}

void pst_vectors_owner_began(struct pst_vectors_owner *s, const struct pst_row_batch *b)
{
    s->edges += b->edges;
    s->gathered++;
    s->vectors.updates++;
}

pst_rc pst_vectors_owner_ended(struct pst_vectors_owner *s, uint64_t batch, int64_t nodes)
{
    s->nodes += (uint64_t)nodes;
    return pst_vectors_owner_home(s, batch);
}
