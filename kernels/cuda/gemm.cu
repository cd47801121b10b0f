/* gemm.cu: dense products, by cuBLASLt. */
#include <stdio.h>
#include "kernels/cuda/lt/plans.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{
struct scale_by {
    float *c;
    int64_t ld;
    float beta;
    __device__ int operator()(int64_t i, int64_t j) const
    {
        c[i * ld + j] = beta == 0 ? 0 : beta * c[i * ld + j];
        return 0;
    }
};

/* Activations begin at multiples of a line. Some of them happen to be aligned better, but others in the next
 * batch. */
uint32_t alignment_of(const void *at)
{
    const uintptr_t low = (uintptr_t)at & (~(uintptr_t)at + 1);
    return (uint32_t)(low > PST_CACHE_LINE ? PST_CACHE_LINE : low);
}
} // namespace

void pst_k_gemm(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc,
                int threads)
{
    assert(m >= 0 && n >= 0 && k >= 0 && threads >= 1);
    assert(lda >= (ta ? m : k) && ldb >= (tb ? k : n) && ldc >= n);
    (void)threads;
    if (m == 0 || n == 0 || q->rc != PST_OK)
        return;
    if (k == 0) {
        pst_cu_each(q, scale_by{c, ldc, beta}, m, n);
        return;
    }
    if (!q->lt) {
        pst_cu_refuse(q, PST_E_LIMIT,
                      "too little workspace for a matrix product (create the queue with `products`), bytes",
                      PST_CU_PRODUCT_BYTES, 0);
        return;
    }
    const struct pst_cu_lt_product product = {
        ta, tb, m, n, k, lda, ldb, ldc, alignment_of(a), alignment_of(b), alignment_of(c)};
    const struct pst_cu_lt_plan *plan = NULL;
    cublasStatus_t s = pst_cu_lt_plan_of(q->plans, &product, &plan);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = q->lt_calls->Matmul(q->lt, plan->what, &alpha, b, plan->a, a, plan->b, &beta, c, plan->c, c,
                                plan->c, &plan->algo, q->lt_memory, PST_CU_PRODUCT_BYTES, q->stream);
    if (s != CUBLAS_STATUS_SUCCESS) {
        char what[64];
        (void)snprintf(what, sizeof what, "cuBLASLt cannot compute a product: status %d", (int)s);
        pst_cu_refuse(q, PST_E_IO, what, 0, 0);
    }
}
