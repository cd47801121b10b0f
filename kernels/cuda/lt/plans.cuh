/* plans.cuh: how cuBLASLt computes products, kept between calls. To ask its heuristic for an algorithm takes
 * 10 to 20 us of the host, and a batch has about ten products of the same few shapes.
 *
 * Only the number of rows of A differs from batch to batch. So the heuristic is asked for this number rounded
 * up, and what it chooses serves all products that round up to the same. The choice depends on the shape
 * alone, and not on earlier products: the same product always has the same bits.
 *
 * Owner: plans belong to a queue. Threads: the queue's. */
#ifndef PST_PLANS_CUH
#define PST_PLANS_CUH

#include "kernels/twin.h"
#include "kernels/cuda/lt/lt.cuh"

#include <cstddef>
#include <cstdint>

/* C[m, n] = op(A)[m, k] op(B)[k, n], by rows. A has k rows if ta, otherwise m. */
struct pst_cu_lt_product {
    bool ta, tb;
    int64_t m, n, k, lda, ldb, ldc;           /* lda, ldb, ldc: floats between rows */
    uint32_t aligned_a, aligned_b, aligned_c; /* bytes: powers of two */
};

/* What cublasLtMatmul takes. Its matrices are by columns, so a and b are those of B and A. */
struct pst_cu_lt_plan {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
};

struct pst_cu_lt_plans;

/* precision: of all products. workspace_bytes: no algorithm needs more. NULL: out of memory. Borrows lt
 * and handle, until pst_cu_lt_plans_free, which accepts NULL. */
struct pst_cu_lt_plans *pst_cu_lt_plans_new(const struct pst_cu_lt *lt, cublasLtHandle_t handle,
                                            enum pst_twin_precision precision, size_t workspace_bytes);
void pst_cu_lt_plans_free(struct pst_cu_lt_plans *plans);

/* The plan of a product, valid until the next call. At most PST_CU_LT_PLANS_MOST are kept: a further one
 * takes the place of the one that was not used for the longest. Returns what cuBLASLt returns; then *plan is
 * set only if this is CUBLAS_STATUS_SUCCESS. */
enum { PST_CU_LT_PLANS_MOST = 128 };
cublasStatus_t pst_cu_lt_plan_of(struct pst_cu_lt_plans *plans, const struct pst_cu_lt_product *product,
                                 const struct pst_cu_lt_plan **plan);

#endif
