/* eval_impl.h: constants and functions that eval.c (sizes, scores) and eval_layers.c (layers) share. */
#ifndef PST_EVAL_IMPL_H
#define PST_EVAL_IMPL_H

#include "stages/lib/gnn/eval.h"

enum {
    PST_GNN_EVAL_BLOCK =
        128,                 /* rows of one task and product: fixed, so that results depend on nothing else */
    PST_GNN_EVAL_RANGE = 32, /* blocks per thread in a range of destinations, if everything is in memory */
    PST_GNN_EVAL_SHARE =
        4, /* 1/4 of a mean's memory is for sources, the rest for destinations: larger ranges of destinations
              reduce reads, more memory for sources only reduces the number of reads */
};

/* Rounds rows down to whole blocks, at least one. */
static inline int64_t pst_gnn_eval_blocks(uint64_t rows)
{
    return pst_max_i64(1, (int64_t)(rows / PST_GNN_EVAL_BLOCK)) * PST_GNN_EVAL_BLOCK;
}

/* The memory of one destination of a range: its sum, and a cursor in its neighbours. */
static inline size_t pst_gnn_eval_sum_bytes(int64_t ld)
{
    return (size_t)ld * sizeof(pst_real) + sizeof(int64_t);
}

/* Computes all layers for all vertices: the predictions, and what the sink gets. */
PST_MUST_USE pst_rc pst_gnn_eval_layers(struct pst_gnn_eval *eval, const struct pst_gnn_model *model);

#endif
