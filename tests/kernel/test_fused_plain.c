/* The plain loops of fused.c, which other processors run, against those that this one runs, and against those
 * in AVX2, which this one may not choose: the same bits. */
#include "kernels/kernels.h"
#undef PST_REAL_IS_FLOAT
#define pst_k_bias_relu_dropout plain_bias_relu_dropout
#define pst_k_bias_relu_dropout_grad plain_bias_relu_dropout_grad
#define pst_k_add plain_add
#define pst_k_widen plain_widen
void plain_bias_relu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                             const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                             const struct pst_dropout *drop);
void plain_bias_relu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad, const pst_real *y,
                                  int64_t ld_y, const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                  const struct pst_dropout *drop, pst_real *grad_bias);
void plain_add(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y, int64_t n,
               int64_t dim);
void plain_widen(struct pst_queue *q, const void *src, uint64_t stride_bytes, bool bfloat, pst_real *out,
                 int64_t ld, int64_t n, int64_t dim);
#include "kernels/cpu/fused.c"
#pragma GCC diagnostic ignored "-Wunused-function" /* those in AVX-512 */
#include "kernels/cpu/fused_simd.h"
#undef pst_k_bias_relu_dropout
#undef pst_k_bias_relu_dropout_grad
#include "tests/kernel/random_batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { ROWS = 37, WIDEST = 300, LD = 305 };

static void fill(float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = (float)random_unit();
}

static void assert_same(const float *a, const float *b)
{
    for (int64_t i = 0; i < ROWS * LD; i++) /* a NaN's sign and payload may differ */
        assert_true(memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (isnan(a[i]) && isnan(b[i])));
}

static void check(int64_t n, int64_t dim, bool relu, bool with_bias, float rate)
{
    static float x[3][ROWS * LD], grad[2][ROWS * LD], bias[WIDEST], sums[2][WIDEST];
    int64_t vertices[ROWS];
    const struct pst_dropout drop = {.seed = 3ull << 40, .epoch = 5, .layer = 1, .batch = 7, .rate = rate};
    fill(x[0], ROWS * LD);
    fill(grad[0], ROWS * LD);
    fill(bias, WIDEST);
    fill(sums[0], WIDEST);
    x[0][0] = NAN;
    x[0][LD + 1] = INFINITY;
    x[0][2] = -0.0f;
    for (int64_t i = 0; i < ROWS; i++)
        vertices[i] = (int64_t)random_below(1ull << 60);
    memcpy(x[1], x[0], sizeof x[0]);
    memcpy(x[2], x[0], sizeof x[0]);
    memcpy(grad[1], grad[0], sizeof grad[0]);
    memcpy(sums[1], sums[0], sizeof sums[0]);
    pst_k_bias_relu_dropout(NULL, x[0], LD, with_bias ? bias : NULL, vertices, n, dim, relu, &drop);
    plain_bias_relu_dropout(NULL, x[1], LD, with_bias ? bias : NULL, vertices, n, dim, relu, &drop);
    assert_same(x[0], x[1]);
    if (__builtin_cpu_supports("avx2")) {
        const struct mask mask = mask_of(&drop);
        forward256(x[2], LD, with_bias ? bias : NULL, vertices, n, dim, relu, &mask);
        assert_same(x[2], x[1]);
    }
    pst_k_bias_relu_dropout_grad(NULL, grad[0], LD, x[0], LD, vertices, n, dim, relu, &drop,
                                 with_bias ? sums[0] : NULL);
    plain_bias_relu_dropout_grad(NULL, grad[1], LD, x[1], LD, vertices, n, dim, relu, &drop,
                                 with_bias ? sums[1] : NULL);
    for (int64_t i = 0; i < ROWS * LD; i++) /* 0 times something below it may be -0 */
        assert_true(grad[0][i] == grad[1][i]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const float RATES[] = {0, 0.5f, 0.3f, 1e-6f, 0.999999f};
    for (int64_t dim = 0; dim <= WIDEST; dim += 1 + dim % 13)
        for (int variant = 0; variant < 20; variant++)
            check((int64_t)random_below(ROWS + 1), dim, variant & 1, variant & 2, RATES[variant / 4]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
