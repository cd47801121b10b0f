/* embed.cuh: what the kernels of embeddings share.
 * Owner: the caller owns all memory. Threads: a queue belongs to one thread at a time. */
#ifndef PST_EMBED_CUH
#define PST_EMBED_CUH

#include "kernels/cuda/rows.cuh"

/* *total += losses[0] + ... + losses[n - 1], in an order that depends only on n. losses is device memory. */
void pst_cu_embed_add_up(struct pst_queue *q, const double *losses, int64_t n, double *total);

/* Warps that go through n items. */
static inline unsigned pst_cu_embed_warps(const struct pst_queue *q, int64_t n)
{
    return pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP);
}

#endif
