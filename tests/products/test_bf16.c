/* Products in bfloat16 against naive loops over the rounded factors. */
#include "tests/products/product_checks.h"

/* Skips the test if this CPU cannot multiply in bfloat16. */
static const struct pst_twin *bf16_twin(void)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    const struct pst_twin *twin = pst_twin_cpu_bf16(why);
    if (!twin) {
        print_message("%s\n", why);
        skip();
    }
    return twin;
}

/* Products in bfloat16 are those of the rounded factors: whole pieces, pieces of all smaller sizes, and sums
 * over more and fewer rows than a piece has. */
static void test_gemm_bf16(void **state)
{
    (void)state;
    const struct pst_twin *twin = bf16_twin();
    for (int turn = 0; turn < 60; turn++) {
        const bool ta = turn % 3 == 1, tb = turn % 3 == 2;
        check_gemm_of(twin, bf16, ta, tb, some_size(), some_size(), some_size(), 1, turn % 2 ? 0 : 1, 1);
    }
    check_gemm_of(twin, bf16, true, false, 70, 40, 2 * 1024 + 77, 1, 1, 1);
    check_gemm_of(twin, bf16, false, false, 2 * 512 + 333, 40, 100, 1, 0, 2);
    check_gemm_of(twin, bf16, false, true, 129, 1433, 64, 1, 0, 1);
    float a[4] = {1, NAN, 1, 2}, b[2] = {1, 1}, c[2] = {7, 7};
    twin->gemm(NULL, false, false, 2, 1, 2, 1, a, 2, b, 1, 0, c, 1, 1);
    assert_true(isnan(c[0]) && c[1] == 3);
    twin->gemm(NULL, false, false, 2, 1, 0, 1, a, 2, b, 1, 0, c, 1, 1);
    assert_true(c[0] == 0 && c[1] == 0);
}

/* Rounded, so that a matrix can be in bfloat16. */
static uint16_t *rounded_array(const float *from, int64_t n)
{
    uint16_t *to = malloc((size_t)(n + 1) * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        to[i] = top_half((float)bf16(from[i]));
    return to;
}

/* C = A op(B) + beta C by a factor of `count` matrices, whose values are set again in between. The result is
 * the same if A is rounded before. */
static void check_factor(const struct pst_twin *twin, bool tb, int count, int64_t m, int64_t n, int64_t part,
                         float beta)
{
    const int64_t lda[] = {part + (int64_t)random_below(5), part + (int64_t)random_below(5)};
    const int64_t ldc = n + (random_below(2) ? 0 : (int64_t)random_below(5)); /* B in blocks if 0 */
    struct pst_twin_factor *factor = NULL;
    float *c = random_array(m * ldc), *found = random_array(m * ldc), *again = random_array(m * ldc);
    for (int turn = 0; turn < 2; turn++) {
        float *const a[] = {random_array(m * lda[0]), random_array(m * lda[1])}, *const b[] = {
                                                                                     random_array(n * part),
                                                                                     random_array(n * part)};
        twin->factor_set(&factor, (const float *const *)b, count, tb ? n : part, tb ? part : n);
        memcpy(found, c, (size_t)(m * ldc) * sizeof *c);
        for (int64_t i = 0; i < m && beta == 0; i++)
            for (int64_t j = 0; j < n; j++)
                found[i * ldc + j] = NAN; /* must not be read */
        memcpy(again, found, (size_t)(m * ldc) * sizeof *c);
        uint16_t *const half[] = {rounded_array(a[0], m * lda[0]), rounded_array(a[1], m * lda[1])};
        const struct pst_twin_view wide[] = {{.at = a[0], .ld = lda[0]}, {.at = a[1], .ld = lda[1]}};
        const struct pst_twin_view mixed[] = {{.bf16 = half[0], .ld = lda[0]},
                                              turn ? wide[1]
                                                   : (struct pst_twin_view){.bf16 = half[1], .ld = lda[1]}};
        twin->gemm_factor(tb, m, wide, factor, beta, found, ldc);
        twin->gemm_factor(tb, m, mixed, factor, beta, again, ldc);
        assert_memory_equal(found, again, (size_t)(m * ldc) * sizeof *found);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < ldc; j++) {
                double sum = 0;
                for (int64_t l = 0; l < count * part && j < n; l++)
                    sum += bf16(a[l / part][i * lda[l / part] + l % part]) *
                           bf16(b[l / part][tb ? j * part + l : l % part * n + j]);
                const double was = (double)c[i * ldc + j];
                const double want = j >= n ? was : sum + (beta == 0 ? 0 : was);
                assert_close((double)found[i * ldc + j], want, sqrt((double)(count * part)) + 1);
            }
        }
        for (int i = 0; i < 2; i++) {
            free(a[i]);
            free(b[i]);
            free(half[i]);
        }
    }
    twin->factor_free(factor);
    free(c);
    free(found);
    free(again);
}

/* Products that share B have the same bits as products one by one, and as those of a rounded A. */
static void check_sums(const struct pst_twin *twin, int64_t m, int64_t n, int64_t k, float beta)
{
    const int64_t lda[] = {m + (random_below(2) ? 0 : (int64_t)random_below(5)),
                           m + (int64_t)random_below(5)};
    const int64_t ldb = n + (int64_t)random_below(5),
                  ldc = n + (random_below(2) ? 0 : (int64_t)random_below(5));
    float *const a[] = {random_array(k * lda[0]), random_array(k * lda[1])}, *b = random_array(k * ldb);
    float *const found[] = {random_array(m * ldc), random_array(m * ldc)};
    float *const want[] = {random_array(m * ldc), random_array(m * ldc)};
    for (int i = 0; i < 2; i++) {
        memcpy(want[i], found[i], (size_t)(m * ldc) * sizeof **want);
        twin->gemm(NULL, true, false, m, n, k, 1, a[i], lda[i], b, ldb, beta, want[i], ldc, 1);
    }
    uint16_t *const half = rounded_array(a[0], k * lda[0]);
    const struct pst_twin_view views[] = {{.bf16 = half, .ld = lda[0]}, {.at = a[1], .ld = lda[1]}};
    twin->gemm_sums(2, m, n, k, views, b, ldb, beta, found, ldc);
    free(half);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(found[i], want[i], (size_t)(m * ldc) * sizeof **want);
        free(found[i]);
        free(want[i]);
        free(a[i]);
    }
    free(b);
}

static void test_factors_bf16(void **state)
{
    (void)state;
    const struct pst_twin *twin = bf16_twin();
    assert_null(pst_twin_cpu()->factor_set);
    for (int turn = 0; turn < 40; turn++) {
        check_factor(twin, turn % 2, turn % 2 ? 1 : 1 + turn / 2 % 2, some_size(), some_size() + 1,
                     some_size() + 1, turn % 3 ? 0 : 1);
        check_sums(twin, some_size(), some_size(), some_size(), turn % 2 ? 0 : 1);
    }
    check_factor(twin, false, 2, 128 + 77, 256, 128, 0);
    check_factor(twin, true, 1, 128, 256, 40, 0);
    check_factor(twin, false, 1, 600, 40, 1433, 1);
    check_sums(twin, 128, 256, 2 * 512 + 77, 0);
    twin->factor_free(NULL);
}

/* Sums over neighbours in float32 and in bfloat16 are those of the plain kernels, rounded: of any number of
 * columns, also if some of the rows are elsewhere. */
static void check_neighbours(const struct pst_twin *twin, int64_t dim, bool weighted, bool moved)
{
    enum { DSTS = 40, SOURCES = 50, DEGREES = 12, FIRST = 3 };
    const int64_t ld = dim + (int64_t)random_below(5), ld_out = dim + (int64_t)random_below(5);
    int32_t indptr[DSTS + 1] = {0}, indices[DSTS * DEGREES];
    for (int d = 0; d < DSTS; d++) {
        indptr[d + 1] = indptr[d] + (int32_t)(d % DEGREES); /* some have no neighbours */
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            indices[e] = (int32_t)random_below(SOURCES);
    }
    const struct pst_block block = {indptr, indices, DSTS, indptr[DSTS], SOURCES};
    float *const wide = random_array(SOURCES * ld), *const want = random_array(DSTS * ld_out);
    float *const weight = weighted ? random_array(block.edges) : NULL, *const self_weight =
                                                                           random_array(DSTS);
    uint16_t *const half = rounded_array(wide, SOURCES * ld), *const found =
                                                                  malloc(DSTS * (size_t)ld_out * 2);
    float *const rows = malloc(SOURCES * (size_t)ld * 4), *const other = malloc(SOURCES * (size_t)ld * 4);
    for (int narrow = 0; narrow < 2; narrow++) {
        const size_t row_bytes = (size_t)ld * (narrow ? 2 : 4);
        int32_t elsewhere[SOURCES];
        struct pst_twin_view in = {
            .at = narrow ? NULL : rows, .bf16 = narrow ? (uint16_t *)rows : NULL, .ld = ld};
        for (int64_t i = 0; i < SOURCES * ld && narrow; i++)
            wide[i] = (float)bf16(wide[i]);
        const struct pst_twin_view all = {.at = wide, .ld = ld};
        memcpy(rows, narrow ? (void *)half : wide, SOURCES * row_bytes);
        if (moved) {
            move_rows(rows, row_bytes, SOURCES, elsewhere, other);
            in.elsewhere = elsewhere;
            in.other = other;
        }
        if (weighted)
            twin->weighted_sum(NULL, &block, FIRST, DSTS - FIRST, weight, self_weight, &all, want, ld_out,
                               dim);
        else
            twin->mean(NULL, indptr, indices, DSTS, &all, want, ld_out, dim);
        memset(found, 0xee, DSTS * (size_t)ld_out * 2);
        twin->sum_rounded(&block, FIRST, DSTS - FIRST, weight, self_weight, &in, found, ld_out, dim);
        for (int64_t d = 0; d < DSTS; d++)
            for (int64_t j = 0; j < ld_out; j++)
                assert_int_equal(found[d * ld_out + j], d >= FIRST && j < dim
                                                            ? top_half((float)bf16(want[d * ld_out + j]))
                                                            : 0xeeee);
    }
    free(weight);
    free(self_weight);
    free(wide);
    free(want);
    free(half);
    free(found);
    free(rows);
    free(other);
}

static void test_neighbours_bf16(void **state)
{
    (void)state;
    const struct pst_twin *twin = bf16_twin();
    assert_null(pst_twin_cpu()->sum_rounded);
    for (int64_t dim = 1; dim < 300; dim += dim < 140 ? 1 : 13)
        for (int weighted = 0; weighted < 2; weighted++)
            check_neighbours(twin, dim, weighted != 0, dim % 2 != 0);
}

int main(void)
{
    (void)setenv("ONEDNN_MAX_CPU_ISA", "ALL", 1); /* the sanitizers' tests exclude what bfloat16 needs */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_bf16),
        cmocka_unit_test(test_factors_bf16),
        cmocka_unit_test(test_neighbours_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
