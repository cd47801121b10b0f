/* gemm.cu: dense products, by cuBLASLt. Its matrices are column-major, so it computes C' = op(B)' op(A)'. */
#include <stdio.h>
#include "kernels/cuda/lt/lt.cuh"
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

/* What cuBLASLt needs to know of a product. NULL: not made yet. */
struct product {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
};

void release(const struct pst_cu_lt *lt, product *p)
{
    if (p->what)
        (void)lt->MatmulDescDestroy(p->what);
    for (cublasLtMatrixLayout_t layout : {p->a, p->b, p->c})
        if (layout)
            (void)lt->MatrixLayoutDestroy(layout);
    if (p->preference)
        (void)lt->MatmulPreferenceDestroy(p->preference);
}

uint32_t alignment_of(const void *at)
{
    const uintptr_t low = (uintptr_t)at & (~(uintptr_t)at + 1);
    return (uint32_t)(low > 256 ? 256 : low);
}

/* Stops at the first call of cuBLASLt that fails. */
cublasStatus_t describe(const struct pst_queue *q, product *p, bool ta, bool tb, int64_t m, int64_t n,
                        int64_t k, int64_t lda, int64_t ldb, int64_t ldc)
{
    const cublasOperation_t op_a = tb ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t type = q->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const size_t room = PST_CU_PRODUCT_BYTES;
    const struct pst_cu_lt *lt = q->lt_calls;
    cublasStatus_t s = lt->MatmulDescCreate(&p->what, type, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&p->a, CUDA_R_32F, (uint64_t)(tb ? k : n), (uint64_t)(tb ? n : k), ldb);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&p->b, CUDA_R_32F, (uint64_t)(ta ? m : k), (uint64_t)(ta ? k : m), lda);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&p->c, CUDA_R_32F, (uint64_t)n, (uint64_t)m, ldc);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulPreferenceCreate(&p->preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulPreferenceSetAttribute(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                             sizeof room);
    return s;
}

/* Rows of a slot can begin at any address; cuBLASLt assumes aligned ones unless told. */
cublasStatus_t align(const struct pst_cu_lt *lt, product *p, const float *a, const float *b, const float *c)
{
    const uint32_t bytes[] = {alignment_of(b), alignment_of(a), alignment_of(c), alignment_of(c)};
    const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = lt->MatmulPreferenceSetAttribute(p->preference, which[i], &bytes[i], sizeof bytes[i]);
    return s;
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
    product p = {};
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    cublasStatus_t s = describe(q, &p, ta, tb, m, n, k, lda, ldb, ldc);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = align(q->lt_calls, &p, a, b, c);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = q->lt_calls->MatmulAlgoGetHeuristic(q->lt, p.what, p.a, p.b, p.c, p.c, p.preference, 1, &best,
                                                &found);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = found ? q->lt_calls->Matmul(q->lt, p.what, &alpha, b, p.a, a, p.b, &beta, c, p.c, c, p.c,
                                        &best.algo, q->lt_memory, PST_CU_PRODUCT_BYTES, q->stream)
                  : CUBLAS_STATUS_NOT_SUPPORTED;
    if (s != CUBLAS_STATUS_SUCCESS) {
        char what[64];
        (void)snprintf(what, sizeof what, "cuBLASLt cannot compute a product: status %d", (int)s);
        pst_cu_refuse(q, PST_E_IO, what, 0, 0);
    }
    release(q->lt_calls, &p);
}
