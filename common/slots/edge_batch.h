/* edge_batch.h: a batch of edges to train embeddings on, with the vertices that corrupt them (negatives), in
 * a slot. Marius (Mohoney et al., OSDI 2021), section 3: each chunk of a batch shares its negatives.
 *
 * The header is at the slot's first byte. Offsets count from there. The arrays are:
 *
 *     source, destination   int64 [edges]                   ids of vertices
 *     relation              int32 [edges]                   0 to relations - 1; of edges that are turned
 *                                                           round: 0 to 2 relations - 1
 *     negatives[side]       int64 [chunks][negatives]       ids of vertices: side 0 replaces sources, side 1
 *                                                           destinations
 *
 * The last batches of an epoch have no edges: the updates of all others come home before the next epoch
 * begins. They have the header alone.
 *
 * Chunk c has the edges pst_edge_batch_chunk(b, c) to pst_edge_batch_chunk(b, c + 1) - 1. It can be empty.
 *
 * Owner: the stage that holds the slot. Threads: any number may read a slot. */
#ifndef PST_EDGE_BATCH_H
#define PST_EDGE_BATCH_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_EDGE_BATCH_MAGIC UINT64_C(0x3173656764657470) /* "ptedges1" */
#define PST_EDGE_BATCH_PAUSE UINT32_MAX
#define PST_EDGE_BATCH_COMMIT (UINT32_MAX - 1)
/* Flags. All: the negatives of each side are the batch's vertices, each once. Turned: only destinations are
 * replaced. The batch has edges of the dataset, and edges that are turned round, whose relation is
 * `relations`
 * + r. An epoch has both of each edge. */
#define PST_EDGE_BATCH_ALL 1
#define PST_EDGE_BATCH_TURNED 2
#define PST_EDGE_BATCH_EDGES_MAX (1 << 24)
#define PST_EDGE_BATCH_NEGATIVES_MAX (1 << 24) /* of all chunks, on each side */

struct pst_edge_batch {
    uint64_t magic, bytes_used;
    uint64_t batch; /* counts over the run */
    uint64_t batch_in_epoch, batches_in_epoch;
    uint32_t epoch, edges, chunks, negatives;
    /* 0, or the number, from 1, of this batch among those without edges at the epoch's end, or
     * PST_EDGE_BATCH_PAUSE: a batch without edges in the middle of an epoch; or PST_EDGE_BATCH_COMMIT: such a
     * one, and all batches before it are part of a checkpoint */
    uint32_t flush, flags;
    int64_t vertices, relations; /* of the dataset: ids are below them */
    uint64_t source_at, destination_at, relation_at, negatives_at[2];
};

/* Sets bytes_used and the offsets for the header's edges, chunks and negatives. */
PST_API void pst_edge_batch_place(struct pst_edge_batch *b);

/* Copies the header of a slot of `bytes` bytes, and checks it, the arrays' places and every id. PST_E_FORMAT:
 * it is not such a batch. */
PST_API PST_MUST_USE pst_rc pst_edge_batch_read(const void *slot, uint64_t bytes, struct pst_edge_batch *b);

static inline void *pst_edge_batch_at(const void *slot, uint64_t at)
{
    return (char *)(uintptr_t)slot + at;
}

/* The first edge of a chunk; of chunk `chunks`: the number of edges. */
static inline uint32_t pst_edge_batch_chunk(const struct pst_edge_batch *b, uint32_t chunk)
{
    return (uint32_t)((uint64_t)b->edges * chunk / b->chunks);
}

PST_END_DECLS
#endif
