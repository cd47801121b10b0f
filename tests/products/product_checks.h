/* product_checks.h: random matrices, and a check of products against a naive loop. Included once by each test
 * program. */
#ifndef PRODUCT_CHECKS_H
#define PRODUCT_CHECKS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/util/rng.h"
#include "kernels/twin.h"
#include "tests/kernel/random_batch.h"

static const int64_t SIZES[] = {0, 1, 2, 7, 16, 31, 64, 97, 130};
enum { NSIZES = sizeof SIZES / sizeof *SIZES };

static inline int64_t some_size(void)
{
    return SIZES[random_below(NSIZES)];
}

static inline float *random_array(int64_t n)
{
    float *a = malloc((size_t)(n + 1) * sizeof *a);
    for (int64_t i = 0; i <= n; i++)
        a[i] = (float)random_unit();
    return a;
}

static inline void assert_close(double found, double expected, double scale)
{
    if (!(fabs(found - expected) <= 2e-6 * (scale + fabs(expected)))) {
        print_message("found %.9g, expected %.9g\n", found, expected);
        assert_true(false);
    }
}

/* Moves some of n rows to `other`, in another order, as in struct pst_twin_view, and the others together.
 * What they leave behind is no number. */
static inline void move_rows(void *rows, size_t row_bytes, int32_t n, int32_t *elsewhere, void *other)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        char *row = (char *)rows + (size_t)i * row_bytes;
        const bool moves = random_below(3) > 0;
        elsewhere[i] = moves ? n - 1 - i : -1 - kept;
        memmove((char *)(moves ? other : rows) + (size_t)(moves ? n - 1 - i : kept++) * row_bytes, row,
                row_bytes);
    }
    memset((char *)rows + (size_t)kept * row_bytes, 0xff, (size_t)(n - kept) * row_bytes);
}

/* The nearest bfloat16, ties to even. */
static inline double bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The bits of a bfloat16. */
static inline uint16_t top_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline double exact(float value)
{
    return (double)value;
}

static inline void check_gemm_of(const struct pst_twin *twin, double (*rounded)(float), bool ta, bool tb,
                                 int64_t m, int64_t n, int64_t k, float alpha, float beta, int threads)
{
    const int64_t lda = (ta ? m : k) + (int64_t)random_below(5),
                  ldb = (tb ? k : n) + (int64_t)random_below(5);
    const int64_t ldc = n + (int64_t)random_below(5);
    float *a = random_array((ta ? k : m) * lda), *b = random_array((tb ? n : k) * ldb),
          *c = random_array(m * ldc);
    float *once = malloc((size_t)(m * ldc + 1) * sizeof *once),
          *twice = malloc((size_t)(m * ldc + 1) * sizeof *twice);
    memcpy(once, c, (size_t)(m * ldc + 1) * sizeof *c);
    memcpy(twice, c, (size_t)(m * ldc + 1) * sizeof *c);
    if (beta == 0)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                once[i * ldc + j] = NAN; /* must not be read */
    twin->gemm(NULL, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, once, ldc, threads);
    twin->gemm(NULL, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, twice, ldc, threads);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ldc; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k && j < n; l++)
                sum += rounded(ta ? a[l * lda + i] : a[i * lda + l]) *
                       rounded(tb ? b[j * ldb + l] : b[l * ldb + j]);
            const double was = (double)c[i * ldc + j];
            const double want = j >= n ? was : (double)alpha * sum + (beta == 0 ? 0 : (double)beta * was);
            assert_close((double)once[i * ldc + j], want, sqrt((double)k) + 1);
        }
    }
    assert_memory_equal(once, twice, (size_t)(m * ldc) * sizeof *once); /* the same bits each time */
    free(a);
    free(b);
    free(c);
    free(once);
    free(twice);
}

#endif
