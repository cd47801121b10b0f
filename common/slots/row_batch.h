/* row_batch.h: a batch of edges to train embeddings on, together with the embeddings (rows) of its distinct
 * vertices and room for their gradients, in a slot. Marius (Mohoney et al., OSDI 2021), section 3.
 *
 * The header is at the slot's first byte. Offsets count from there. Vertices are positions in the batch's
 * list of distinct vertices. pst_real is float32. The arrays are:
 *
 *     vertices                int64 [nodes]                 ids in the dataset
 *     source, destination     uint32 [edges]                positions
 *     relation                uint32 [edges]                as in edge_batch.h
 *     negatives[side]         uint32 [chunks][negatives]    positions, as in edge_batch.h
 *     relation_list           uint32 [relation_rows]        rows of relations, ascending (see below)
 *     relation_rows           float32 [relation_rows][relation_dim]
 *     relation_grads          float32 [relation_rows][relation_dim]   written by the borrower, like the last
 *     rows                    float32 [nodes][dim]
 *     grads                   float32 [nodes][dim]
 *
 * The borrower releases the slot dirty. Relations are its own, or the owner of the slot lends those that the
 * batch uses. Then relation_dim is above 0, and row `relations` + r is the inverse of relation r.
 *
 * A batch without edges has no such arrays. In the one whose flush is 1 or PST_EDGE_BATCH_COMMIT, the
 * borrower carries its own parameters to the owner of the slot, who writes the checkpoint: carried_rows rows
 * of carried_dim floats, and then as many rows of carried_state floats. They begin at
 * PST_ROW_BATCH_CARRIED_AT.
 *
 * Owner: the stage that holds the slot. Threads: any number may read a slot. */
#ifndef PST_ROW_BATCH_H
#define PST_ROW_BATCH_H

#include "common/slots/edge_batch.h"

PST_BEGIN_DECLS

#define PST_ROW_BATCH_MAGIC UINT64_C(0x3173776f72627470) /* "ptbrows1" */
#define PST_ROW_BATCH_CARRIED_AT 256                     /* behind the header */
#define PST_ROW_BATCH_DIM_MAX 65536

struct pst_row_batch {
    uint64_t magic, bytes_used;
    uint64_t batch; /* counts over the run */
    uint64_t batch_in_epoch, batches_in_epoch;
    uint32_t epoch, edges, chunks, negatives; /* as in edge_batch.h, like the next */
    uint32_t flush, nodes, dim, relations;
    uint32_t carried_rows, carried_dim, carried_state;
    float rate; /* the borrower multiplies its learning rate by this, above 0 and at most 1 */
    double loss,
        seconds; /* of the epoch so far, next to the carried parameters: the sum over edges and sides; time */
    uint64_t trained; /* the epoch's edges so far; those that are turned round count, too */
    uint64_t vertices_at, source_at, destination_at, relation_at, negatives_at[2], rows_at, grads_at;
    /* of lent relations; 0, if they are the borrower's own */
    uint32_t relation_rows, relation_dim;
    uint32_t relation_optimizer; /* enum pst_k_embed_optimizer; its rate, by which the owner updates them */
    float relation_rate;
    uint64_t relation_list_at, relation_rows_at, relation_grads_at;
    uint32_t flags, reserved; /* flags: as in edge_batch.h */
};

/* Sets bytes_used and the offsets for the header's edges, chunks, negatives, nodes, dim and lent
 * relations. */
PST_API void pst_row_batch_place(struct pst_row_batch *b);

/* Copies the header of a slot of `bytes` bytes, and checks it, the arrays' places, and that every position
 * and relation is in range. PST_E_FORMAT: it is not such a batch. */
PST_API PST_MUST_USE pst_rc pst_row_batch_read(const void *slot, uint64_t bytes, struct pst_row_batch *b);

/* Whether the borrower carries its parameters home in it. */
static inline bool pst_row_batch_carries(const struct pst_row_batch *b)
{
    return b->flush == 1 || b->flush == PST_EDGE_BATCH_COMMIT;
}

/* Bytes of the carried parameters. */
PST_API uint64_t pst_row_batch_carried(const struct pst_row_batch *b);

static inline void *pst_row_batch_at(const void *slot, uint64_t at)
{
    return (char *)(uintptr_t)slot + at;
}

PST_END_DECLS
#endif
