/* Sums of products in bfloat16 that leave out the zeros of one factor, against plain loops over rounded
 * factors; which sums are made so. */
#include "kernels/cpu/products/products.h"
#include "tests/products/product_checks.h"

enum { GAP = 3, LARGEST = 700 * 300, FACTORS = 2 };

struct shape {
    int64_t m, n, k;
    double share; /* of entries of B that are not zero */
};

static float left[FACTORS][LARGEST], right[LARGEST], sums[FACTORS][LARGEST], before[FACTORS][LARGEST];
static uint16_t halves[LARGEST];

static void fill(float *x, int64_t rows, int64_t cols, double share)
{
    assert_true(rows * (cols + GAP) <= LARGEST);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols + GAP; j++)
            x[i * (cols + GAP) + j] = fabs(random_unit()) < share || j >= cols ? (float)random_unit() : -0.0F;
}

static void make(const struct shape *s)
{
    for (int i = 0; i < FACTORS; i++) {
        fill(left[i], s->k, s->m, 1);
        fill(sums[i], s->m, s->n, 1);
    }
    fill(right, s->k, s->n, s->share);
    memcpy(before, sums, sizeof before);
    for (int64_t i = 0; i < s->k * (s->m + GAP); i++) { /* the second A is given in bfloat16 */
        left[1][i] = (float)bf16(left[1][i]);
        halves[i] = top_half(left[1][i]);
    }
}

static bool multiply(const struct shape *s, bool narrow, float beta, float *first, float *second)
{
    const struct pst_twin_view a[FACTORS] = {
        {.at = left[0], .ld = s->m + GAP},
        {.at = narrow ? NULL : left[1], .bf16 = narrow ? halves : NULL, .ld = s->m + GAP}};
    float *const c[FACTORS] = {first, second};
    return pst_products_zeros_bf16(FACTORS, s->m, s->n, s->k, a, right, s->n + GAP, beta, c, s->n + GAP);
}

static void need_zeros(void)
{
    if (!pst_products_can_zeros_bf16())
        skip(); /* this CPU has no such products */
}

static void check_sums(const struct shape *s, float beta)
{
    const int64_t lda = s->m + GAP, ldb = s->n + GAP;
    make(s);
    assert_true(multiply(s, true, beta, sums[0], sums[1]));
    for (int f = 0; f < FACTORS; f++)
        for (int64_t i = 0; i < s->m; i++) {
            for (int64_t j = 0; j < s->n; j++) {
                double sum = (double)beta * (double)before[f][i * ldb + j], size = 1;
                for (int64_t l = 0; l < s->k; l++) {
                    const double term = bf16(left[f][l * lda + i]) * bf16(right[l * ldb + j]);
                    sum += term;
                    size += fabs(term);
                }
                assert_true(fabs(sum - (double)sums[f][i * ldb + j]) < 1e-6 * size);
            }
            assert_memory_equal(sums[f] + i * ldb + s->n, before[f] + i * ldb + s->n, GAP * sizeof **sums);
        }
}

static void test_sums(void **state)
{
    (void)state;
    need_zeros();
    static const struct shape SHAPES[] = {
        {128, 256, 640, 0.25}, {96, 283, 257, 0.5}, {256, 40, 577, 0.25}, {608, 33, 67, 0.3},
        {111, 101, 333, 0.01}, {128, 256, 64, 0},   {128, 129, 65, 0.55}, {224, 257, 301, 0.4},
    };
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        check_sums(&SHAPES[i], 0);
        check_sums(&SHAPES[i], 1);
    }
}

/* The same numbers give the same bits, in bfloat16 and in float32, and with another A or alone. */
static void test_same_bits(void **state)
{
    (void)state;
    need_zeros();
    const struct shape s = {128, 257, 300, 0.3};
    static float again[FACTORS][LARGEST];
    make(&s);
    memcpy(again, before, sizeof again);
    assert_true(multiply(&s, true, 1, sums[0], sums[1]));
    assert_true(multiply(&s, false, 1, again[0], again[1]));
    assert_memory_equal(sums, again, sizeof sums);
    const struct pst_twin_view a = {.bf16 = halves, .ld = s.m + GAP};
    float *const c = again[0];
    memcpy(again[0], before[1], sizeof *again);
    assert_true(pst_products_zeros_bf16(1, s.m, s.n, s.k, &a, right, s.n + GAP, 1, &c, s.n + GAP));
    assert_memory_equal(sums[1], again[0], sizeof *again);
}

/* A NaN of B is not a zero. An infinity of A counts where B is not zero, and only there. */
static void test_not_finite(void **state)
{
    (void)state;
    need_zeros();
    const struct shape s = {128, 256, 160, 0.2};
    const int64_t lda = s.m + GAP, ldb = s.n + GAP;
    make(&s);
    right[5 * ldb + 9] = NAN;
    left[0][64 * lda + 3] = INFINITY;
    assert_true(multiply(&s, true, 0, sums[0], sums[1]));
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            const float found = sums[0][i * ldb + j];
            if (j == 9)
                assert_true(isnan(found));
            else
                assert_int_equal(isfinite(found), i != 3 || right[64 * ldb + j] == 0);
            assert_int_equal(isnan(sums[1][i * ldb + j]), j == 9);
        }
}

static void test_refused(void **state)
{
    (void)state;
    need_zeros();
    static const struct shape SHAPES[] = {
        {128, 256, 640, 0.9}, {128, 256, 10, 0},  {64, 256, 700, 0.1},
        {131, 256, 600, 0.1}, {0, 256, 700, 0.1}, {128, 0, 700, 0.1},
    };
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        make(&SHAPES[i]);
        assert_false(multiply(&SHAPES[i], true, 1, sums[0], sums[1]));
        assert_memory_equal(sums, before, sizeof sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_not_finite), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
