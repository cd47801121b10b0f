/* products.h: products of matrices, by oneDNN. It is loaded with the first product: to load and to relocate
 * it takes half of the time in which a command starts, and most processes make no product.
 *
 * Owner: none. Threads: any; each thread keeps memory for rounded factors until it ends. */
#ifndef PST_PRODUCTS_H
#define PST_PRODUCTS_H

#include "kernels/twin.h"

/* A function of libpenstock-onednn.so, or of oneDNN. Ends the process with a message if it is not there. */
void *pst_products_load(const char *symbol);

/* Can this CPU make products in bfloat16? */
bool pst_products_can_bf16(void);
/* pst_k_gemm with factors that are rounded to the nearest bfloat16, ties to even, and sums in float32. alpha
 * must be 1, beta 0 or 1, and at most one factor transposed. It uses one thread. Ends the process with a
 * message if memory runs out. */
void pst_products_bf16(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                       int64_t ldc, int threads);

/* factor_set, factor_free, gemm_factor, gemm_sums and sum_rounded of struct pst_twin. The factor is rounded
 * when it is set, and gemm_sums rounds B once for all of its products, and leaves out its zeros if
 * pst_products_want_zeros_bf16. Matrices in bfloat16 are multiplied as they are. If memory runs out, these
 * functions end the process with a message. */
void pst_products_factor_set(struct pst_twin_factor **factor, const float *const *from, int count,
                             int64_t rows, int64_t cols);
void pst_products_factor_free(struct pst_twin_factor *factor);
void pst_products_by_factor(bool tb, int64_t m, const struct pst_twin_view *a,
                            const struct pst_twin_factor *b, float beta, float *c, int64_t ldc);
void pst_products_sums(int count, int64_t m, int64_t n, int64_t k, const struct pst_twin_view *a,
                       const float *b, int64_t ldb, float beta, float *const *c, int64_t ldc);
void pst_products_sum_rounded(const struct pst_block *block, int64_t first, int64_t n, const float *weight,
                              const float *self_weight, const struct pst_twin_view *in, uint16_t *out,
                              int64_t ld_out, int64_t dim);

/* The same as pst_products_sums, without the products by zeros of B. So an infinity or a NaN of A that meets
 * a zero is not noticed. False: B does not have enough zeros for this to be faster, and C is as it was.
 * Whether it has depends on the factors alone. Needs a CPU that can do it. */
PST_API bool pst_products_zeros_bf16(int count, int64_t m, int64_t n, int64_t k,
                                     const struct pst_twin_view *a, const float *b, int64_t ldb, float beta,
                                     float *const *c, int64_t ldc);
PST_API bool pst_products_can_zeros_bf16(void);
/* It can, and this is faster than its plain products. */
bool pst_products_want_zeros_bf16(void);

/* The share of the entries of a (rows,cols) matrix that are not zero, in percent, in a sample of its rows.
 * Needs AVX2. */
int64_t pst_products_share(const float *at, int64_t ld, int64_t rows, int64_t cols);

/* gemm_zeros of struct pst_twin, and whether this CPU has it. */
bool pst_products_zeros(bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float beta, float *c, int64_t ldc);
bool pst_products_can_zeros(void);
/* The same. wide: with vectors of 512 bits (AVX-512), else of 256 (AVX2). Both give the same bits, but wide
 * vectors are used for fewer products. */
PST_API bool pst_products_zeros_by(bool wide, bool ta, int64_t m, int64_t n, int64_t k, const float *a,
                                   int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc);

#endif
