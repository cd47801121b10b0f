/* gemm.c: dense products. In single precision by oneDNN's dnnl_sgemm, the one function whose C signature
 * is the same in all its versions. In the double-precision build of the tests by a plain loop. */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/products/products.h"

#ifdef __SANITIZE_THREAD__
enum { THREADS_MAX = 1 }; /* TSan does not see libgomp's barriers */
#else
enum { THREADS_MAX = 256 };
#endif

static __typeof__(dnnl_sgemm) *sgemm;

static void load_onednn(void)
{
    void *found = pst_products_load("dnnl_sgemm");
    memcpy(&sgemm, &found, sizeof found); /* ISO C converts no object pointer to a function pointer */
}

void omp_set_num_threads(int threads); /* of libgomp, which oneDNN runs on; there is no header for it */

/* The arguments of a product, named as in C = alpha op(A) op(B) + beta C. */
struct product {
    bool ta, tb;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    int threads;
};

__attribute__((unused)) static void gemm_f32(const struct product *p, float alpha, const float *a,
                                             const float *b, float beta, float *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_onednn);
    omp_set_num_threads(p->threads < THREADS_MAX ? p->threads : THREADS_MAX);
    const dnnl_status_t status = sgemm(p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', p->m, p->n, p->k, alpha, a,
                                       p->lda, b, p->ldb, beta, c, p->ldc);
    if (status != dnnl_success) { /* the arguments were checked, so this means that memory ran out */
        fprintf(stderr,
                "oneDNN cannot multiply (%lld x %lld) by (%lld x %lld): status %d; probably out of memory\n",
                (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n, (int)status);
        abort();
    }
}

__attribute__((unused)) static void gemm_f64(const struct product *p, double alpha, const double *a,
                                             const double *b, double beta, double *c)
{
    for (int64_t i = 0; i < p->m; i++) {
        double *row = c + i * p->ldc;
        for (int64_t j = 0; j < p->n; j++)
            row[j] = beta == 0 ? 0 : beta * row[j];
        for (int64_t l = 0; l < p->k; l++) {
            const double left = alpha * (p->ta ? a[l * p->lda + i] : a[i * p->lda + l]);
            for (int64_t j = 0; j < p->n; j++)
                row[j] += left * (p->tb ? b[j * p->ldb + l] : b[l * p->ldb + j]);
        }
    }
}

static void scale(pst_real *c, int64_t ldc, int64_t m, int64_t n, pst_real beta)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

void pst_k_gemm(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k, pst_real alpha,
                const pst_real *a, int64_t lda, const pst_real *b, int64_t ldb, pst_real beta, pst_real *c,
                int64_t ldc, int threads)
{
    assert(q == NULL && m >= 0 && n >= 0 && k >= 0 && threads >= 1);
    assert(lda >= (ta ? m : k) && ldb >= (tb ? k : n) && ldc >= n);
    (void)q;
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale(c, ldc, m, n, beta);
        return;
    }
    const struct product p = {ta, tb, m, n, k, lda, ldb, ldc, threads};
    _Generic((pst_real)0, float : gemm_f32, double : gemm_f64)(&p, alpha, a, b, beta, c);
}
