/* eval_impl.h: what eval.c, which sizes and scores, and eval_layers.c, which computes, share. */
#ifndef PST_EVAL_IMPL_H
#define PST_EVAL_IMPL_H

#include "stages/lib/gnn/eval.h"

enum {
    PST_GNN_EVAL_BLOCK = 128, /* rows of one task and product: results must not depend on anything else */
    PST_GNN_EVAL_RANGE =
        32, /* blocks of each thread that a range of destinations has, where all is in memory */
    PST_GNN_EVAL_SHARE = 4, /* of the memory for a mean, one part in so many is for sources: that a range of
                             * destinations is large saves reading, parts of the sources only save turns */
};

/* Of rows: whole blocks, at least one. */
static inline int64_t pst_gnn_eval_blocks(uint64_t rows)
{
    return pst_max_i64(1, (int64_t)(rows / PST_GNN_EVAL_BLOCK)) * PST_GNN_EVAL_BLOCK;
}

/* What one destination of a range takes: its sum, and where in its neighbours it is. */
static inline size_t pst_gnn_eval_sum_bytes(int64_t ld)
{
    return (size_t)ld * sizeof(pst_real) + sizeof(int64_t);
}

/* All layers for all vertices: predictions, and what the sink gets. */
PST_MUST_USE pst_rc pst_gnn_eval_layers(struct pst_gnn_eval *eval, const struct pst_gnn_model *model);

#endif
