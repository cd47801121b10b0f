/* Products that leave out zeros, against plain loops in double precision; which products are made so. */
#include "kernels/cpu/products/products.h"
#include "kernels/twin.h"
#include "tests/kernel/random_batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { GAP = 3, LARGEST = 700 * 300 };

struct shape {
    bool ta;
    int64_t m, n, k;
    double a, b; /* shares of entries that are not zero */
};

static float left[LARGEST], right[LARGEST], sums[LARGEST], before[LARGEST];

static void fill(float *x, int64_t rows, int64_t cols, double share)
{
    assert_true(rows * (cols + GAP) <= LARGEST);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols + GAP; j++)
            x[i * (cols + GAP) + j] = fabs(random_unit()) < share || j >= cols ? (float)random_unit() : 0;
}

static void make(const struct shape *s)
{
    fill(left, s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->a);
    fill(right, s->k, s->n, s->b);
    fill(sums, s->m, s->n, 1);
    memcpy(before, sums, sizeof sums);
}

static bool multiply(const struct shape *s, bool wide, float beta, float *c)
{
    const int64_t lda = (s->ta ? s->m : s->k) + GAP;
    return pst_products_zeros_by(wide, s->ta, s->m, s->n, s->k, left, lda, right, s->n + GAP, beta, c,
                                 s->n + GAP);
}

static void check_product(const struct shape *s, float beta)
{
    const int64_t lda = (s->ta ? s->m : s->k) + GAP, ldb = s->n + GAP;
    make(s);
    assert_true(multiply(s, false, beta, sums));
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double sum = beta * before[i * ldb + j], size = 1;
            for (int64_t l = 0; l < s->k; l++) {
                const double term =
                    (double)(s->ta ? left[l * lda + i] : left[i * lda + l]) * right[l * ldb + j];
                sum += term;
                size += fabs(term);
            }
            assert_true(fabs(sum - sums[i * ldb + j]) < 1e-6 * size);
        }
    for (int64_t i = 0; i < s->m; i++) /* what lies between the rows is not touched */
        assert_memory_equal(sums + i * ldb + s->n, before + i * ldb + s->n, GAP * sizeof *sums);
}

static void need_zeros(void)
{
    if (!pst_twin_cpu()->gemm_zeros)
        skip(); /* this CPU has no such products */
}

static void test_products(void **state)
{
    (void)state;
    need_zeros();
    static const struct shape SHAPES[] = {
        {true, 128, 256, 640, 1, 0.25}, {true, 131, 283, 257, 1, 0.5},   {true, 256, 40, 577, 0.25, 1},
        {true, 599, 33, 67, 0.3, 1},    {true, 97, 101, 333, 0.3, 0.6},  {true, 64, 256, 64, 1, 0},
        {false, 128, 40, 256, 0.25, 1}, {false, 128, 259, 131, 0.1, 1},  {false, 283, 37, 577, 0.2, 0.2},
        {false, 37, 64, 599, 0.01, 1},  {false, 600, 300, 64, 0.2, 0.9},
    };
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        check_product(&SHAPES[i], 0);
        check_product(&SHAPES[i], 1);
    }
}

/* The same factors give the same bits, wherever they are in memory. */
static void test_same_bits(void **state)
{
    (void)state;
    need_zeros();
    const struct shape s = {true, 131, 257, 300, 1, 0.3};
    static float again[LARGEST + 1], moved[LARGEST + 1];
    make(&s);
    assert_true(multiply(&s, false, 0, sums));
    memcpy(moved + 1, left, sizeof left);
    assert_true(pst_twin_cpu()->gemm_zeros(true, s.m, s.n, s.k, moved + 1, s.m + GAP, right, s.n + GAP, 0,
                                           again + 1, s.n + GAP));
    for (int64_t i = 0; i < s.m; i++)
        assert_memory_equal(sums + i * (s.n + GAP), again + 1 + i * (s.n + GAP), (size_t)s.n * sizeof *sums);
}

/* AVX2 and AVX-512 give the same bits, for odd numbers of columns, too. */
static void test_widths(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512bw"))
        skip();
    static const struct shape SHAPES[] = {
        {true, 128, 256, 640, 1, 0.25}, {true, 131, 283, 257, 1, 0.3},   {true, 256, 40, 577, 0.25, 1},
        {true, 599, 33, 67, 0.02, 1},   {false, 128, 259, 131, 0.1, 1},  {false, 283, 37, 577, 0.2, 0.2},
        {false, 37, 64, 599, 0.01, 1},  {false, 601, 300, 64, 0.2, 0.9}, {true, 64, 256, 64, 1, 0},
    };
    static float wide[LARGEST];
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        const struct shape *s = &SHAPES[i];
        make(s);
        memcpy(wide, sums, sizeof wide);
        assert_true(multiply(s, false, 1, sums));
        assert_true(multiply(s, true, 1, wide));
        assert_memory_equal(wide, sums, sizeof wide);
    }
}

/* A NaN of the sparse factor is a number that is not zero. */
static void test_nan(void **state)
{
    (void)state;
    need_zeros();
    const struct shape s = {true, 64, 256, 128, 1, 0.2};
    for (int wide = 0; wide < (__builtin_cpu_supports("avx512bw") ? 2 : 1); wide++) {
        make(&s);
        right[5 * (s.n + GAP) + 9] = NAN;
        assert_true(multiply(&s, wide, 0, sums));
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++)
                assert_int_equal(isnan(sums[i * (s.n + GAP) + j]), j == 9);
    }
}

static void test_refused(void **state)
{
    (void)state;
    need_zeros();
    static const struct shape SHAPES[] = {
        {true, 128, 256, 640, 1, 0.9}, {true, 128, 256, 640, 1, 1},  {true, 128, 256, 10, 1, 0},
        {true, 16, 256, 700, 1, 0.1},  {true, 256, 16, 700, 0.1, 1}, {true, 0, 256, 700, 1, 0.1},
        {false, 128, 40, 256, 0.5, 1}, {false, 128, 256, 256, 1, 0}, {false, 128, 256, 0, 0.1, 1},
    };
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        make(&SHAPES[i]);
        assert_false(multiply(&SHAPES[i], false, 1, sums));
        assert_memory_equal(sums, before, sizeof sums);
    }
    static const struct shape NARROW[] = {{true, 256, 40, 700, 0.4, 1}, {false, 128, 40, 256, 0.3, 1}};
    for (size_t i = 0; i < 2 && __builtin_cpu_supports("avx512bw"); i++) {
        make(&NARROW[i]);
        assert_false(multiply(&NARROW[i], true, 1, sums));
        assert_true(multiply(&NARROW[i], false, 1, sums));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_widths), cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
