/* shares.c: weights of edges become shares. */
#include "kernels/samplers.h"

#include <float.h>

void pst_k_edge_shares(struct pst_queue *q, const int32_t *indptr, int64_t dsts, float *weight)
{
    assert(q == NULL && dsts >= 0);
    (void)q;
    for (int64_t d = 0; d < dsts; d++) {
        double sum = 0;
        for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
            sum += (double)weight[e];
        const bool good = sum > 0 && sum <= DBL_MAX;
        for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
            weight[e] = (float)(good ? (double)weight[e] / sum : 1.0 / (double)(indptr[d + 1] - indptr[d]));
    }
}
