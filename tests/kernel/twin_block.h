/* twin_block.h: random blocks of a minibatch for both twins. */
#ifndef TWIN_BLOCK_H
#define TWIN_BLOCK_H

#include "tests/kernel/twin_matrix.h"

struct block {
    struct both indptr, indices;
    int64_t dsts, sources, edges;
    struct pst_block on_host, on_device;
};

/* Some destinations have no edges, and a few have up to 200. Every other time few sources get all edges. */
static inline struct block block_new(int64_t dsts, int64_t sources)
{
    struct block b = {
        .dsts = dsts, .sources = sources, .indptr = both_new((size_t)(dsts + 1) * sizeof(int32_t))};
    int32_t *indptr = b.indptr.host;
    for (int64_t d = 0; d < dsts; d++)
        indptr[d + 1] = indptr[d] + (sources ? (int32_t)rnd(rnd(20) ? 12 : 200) : 0);
    b.edges = indptr[dsts];
    b.indices = both_new((size_t)b.edges * sizeof(int32_t));
    const int64_t hub = rnd(2) ? sources : (sources + 9) / 10;
    for (int64_t e = 0; e < b.edges; e++)
        ((int32_t *)b.indices.host)[e] = (int32_t)rnd((uint64_t)hub);
    send(&b.indptr);
    send(&b.indices);
    b.on_host = (struct pst_block){b.indptr.host, b.indices.host, dsts, b.edges, sources};
    b.on_device = (struct pst_block){b.indptr.device, b.indices.device, dsts, b.edges, sources};
    return b;
}

static inline void block_free(struct block *b)
{
    both_free(&b->indptr);
    both_free(&b->indices);
}

#endif
