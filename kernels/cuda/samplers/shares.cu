/* shares.cu: weights of edges become shares. A thread adds up the edges of a destination, in order. */
#include "kernels/cuda/queue.cuh"

#include <float.h>

namespace
{
__global__ void __launch_bounds__(PST_CU_THREADS)
    share(const int32_t *indptr, struct pst_twin_n dsts, float *weight, const int32_t *status)
{
    const int64_t n = pst_cu_value(dsts, status);
    for (int64_t d = pst_cu_first(); d < n; d += pst_cu_step()) {
        const int64_t from = indptr[d], to = indptr[d + 1];
        double sum = 0;
        for (int64_t e = from; e < to; e++)
            sum += (double)weight[e];
        const bool good = sum > 0 && sum <= DBL_MAX;
        for (int64_t e = from; e < to; e++)
            weight[e] = (float)(good ? (double)weight[e] / sum : 1.0 / (double)(to - from));
    }
}
} // namespace

void pst_kn_edge_shares(struct pst_queue *q, const int32_t *indptr, struct pst_twin_n dsts, float *weight)
{
    assert(dsts.most >= 0);
    pst_cu_on(q, pst_cu_grid(q, dsts.most, PST_CU_THREADS))(share, indptr, dsts, weight, q->status);
}

void pst_k_edge_shares(struct pst_queue *q, const int32_t *indptr, int64_t dsts, float *weight)
{
    pst_kn_edge_shares(q, indptr, {NULL, dsts}, weight);
}
