/* zeros_bf16.c: sums of products in bfloat16, A' B, that leave out the zeros of B: the gradient of a layer's
 * output, of which ReLU and dropout make about three quarters zero. One instruction (VDPBF16PS) adds two
 * products to each of 16 sums, so the entries of a column of B that are not zero are taken in pairs. The two
 * rows of A that belong to a pair are interleaved in registers.
 *
 * The sums of a column of B stay in registers for 64 rows. These rows are added in order, so the result
 * depends on the factors alone. */
#include "kernels/cpu/products/products.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/products/transpose.h"

#ifdef PST_REAL_IS_FLOAT

#define AMX_BF16 (1U << 22) /* of edx of CPUID leaf 7 */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,avx512vbmi2,popcnt")))
#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16,
    ROWS = 64,        /* of both factors that are worked on together: bits of a mask */
    WIDTH = 128,      /* columns of A whose sums are in registers */
    VECTORS = 8,      /* these sums */
    COLUMNS = 256,    /* of B */
    SHARE = 60,       /* percent of entries that are not zero: above, the plain product is faster */
    NARROWEST = 96,   /* columns of A in the last WIDTH, whose sums take as long as WIDTH of them */
    FEWEST = 1 << 20, /* multiply-adds; a smaller product is not worth it */
};

struct space {
    _Alignas(64) float sums[PST_TWIN_FACTOR_MAX][COLUMNS][WIDTH]; /* in the order that interleaving makes */
    _Alignas(64) uint16_t rows[PST_TWIN_FACTOR_MAX][ROWS + 1][WIDTH]; /* of each A; the last one is zeros */
    /* A float stands for two numbers in bfloat16: of two rows of B, and of columns of B without zeros. */
    _Alignas(64) float by_rows[ROWS / 2][COLUMNS];
    _Alignas(64) float values[COLUMNS][ROWS / 2];
    uint8_t row[COLUMNS][ROWS]; /* the row of each of the values */
    uint8_t pairs[COLUMNS];
};

struct job {
    int count;
    const struct pst_twin_view *a;
    const float *b;
    int64_t ldb;
};

/* ---- the factors ----------------------------------------------------------------------------------- */

/* Rows of A, rounded. Columns and rows that are missing are zeros. */
TARGET static void take_rows(uint16_t (*to)[WIDTH], const struct pst_twin_view *a, int64_t row, int64_t rows,
                             int64_t col, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < WIDTH; j += LANES) {
            const int64_t left = pst_max_i64(0, pst_min_i64(cols - j, LANES)),
                          at = (row + r) * a->ld + col + j;
            const __mmask16 some = (__mmask16)((1U << left) - 1);
            const __m256i x = a->bf16 != NULL
                                  ? _mm256_maskz_loadu_epi16(some, a->bf16 + at)
                                  : (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, a->at + at));
            _mm256_store_si256((__m256i *)(void *)(to[r] + j), x);
        }
}

/* Rounds rows of B, two of them into one. */
TARGET static void round_pairs(struct space *s, const float *b, int64_t ldb, int64_t rows, int64_t cols)
{
    const __m512i alternate = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                               23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t r = 0; r < ROWS; r += 2)
        for (int64_t j = 0; j < cols; j += LANES) {
            const int64_t left = pst_min_i64(cols - j, LANES);
            const __mmask16 some = (__mmask16)((1U << left) - 1);
            const __m512 even = r < rows ? _mm512_maskz_loadu_ps(some, b + r * ldb + j) : _mm512_setzero_ps(),
                         odd = r + 1 < rows ? _mm512_maskz_loadu_ps(some, b + (r + 1) * ldb + j)
                                            : _mm512_setzero_ps();
            _mm512_store_si512(s->by_rows[r / 2] + j,
                               _mm512_permutexvar_epi16(alternate, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
        }
}

/* Moves what is not zero in a column of B to its front. Zeros follow. If the number is odd, one of them makes
 * a pair with the last value, and meets a row of zeros, because a row of A may have an infinity. */
TARGET INLINE void compress(struct space *s, int64_t col)
{
    char *values = (char *)s->values[col];
    const __m512i numbers = _mm512_set1_epi16(0x7fff), /* without the sign: -0 is a zero, too */
        first = _mm512_load_si512(values), last = _mm512_load_si512(values + ROWS);
    const __mmask32 low = _mm512_test_epi16_mask(first, numbers),
                    high = _mm512_test_epi16_mask(last, numbers);
    const int nlow = __builtin_popcount(low), n = nlow + __builtin_popcount(high);
    const __m512i row =
        _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43,
                        42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22,
                        21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    _mm512_storeu_si512(values, _mm512_maskz_compress_epi16(low, first));
    _mm512_storeu_si512(values + 2 * nlow, _mm512_maskz_compress_epi16(high, last));
    _mm512_storeu_si512(s->row[col], _mm512_maskz_compress_epi8((uint64_t)high << 32 | low, row));
    if (n % 2 != 0)
        s->row[col][n] = ROWS;
    s->pairs[col] = (uint8_t)((n + 1) / 2);
}

TARGET static void take_columns(struct space *s, const float *b, int64_t ldb, int64_t rows, int64_t cols)
{
    round_pairs(s, b, ldb, rows, cols);
    pst_products_transpose(s->by_rows[0], COLUMNS, ROWS / 2, cols, s->values[0], ROWS / 2);
    for (int64_t j = 0; j < cols; j++)
        compress(s, j);
}

/* ---- the sums -------------------------------------------------------------------------------------- */

/* Adds rows of A to the sums of a column of B. */
TARGET INLINE void add_column(struct space *s, int which, int64_t col)
{
    float *sums = s->sums[which][col];
    const uint8_t *row = s->row[col];
    __m512 sum[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        sum[v] = _mm512_load_ps(sums + v * LANES);
    for (int i = 0; i < s->pairs[col]; i++) {
        const __m512bh by = (__m512bh)_mm512_set1_ps(s->values[col][i]);
        const uint16_t *one = s->rows[which][row[2 * i]], *two = s->rows[which][row[2 * i + 1]];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v += 2) {
            const __m512i a = _mm512_load_si512(one + v * LANES);
            __m512i b = _mm512_load_si512(two + v * LANES);
            __asm__("" : "+v"(b)); /* it is loaded once, although two instructions could load it */
            sum[v] = _mm512_dpbf16_ps(sum[v], (__m512bh)_mm512_unpacklo_epi16(a, b), by);
            sum[v + 1] = _mm512_dpbf16_ps(sum[v + 1], (__m512bh)_mm512_unpackhi_epi16(a, b), by);
        }
    }
    for (int v = 0; v < VECTORS; v++)
        _mm512_store_ps(sums + v * LANES, sum[v]);
}

/* Puts the sums of a column of B into the order of the columns of A. */
TARGET static void put_in_order(float *sums)
{
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0),
                  last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int v = 0; v < VECTORS; v += 2) {
        const __m512 low = _mm512_load_ps(sums + v * LANES), high = _mm512_load_ps(sums + (v + 1) * LANES);
        _mm512_store_ps(sums + v * LANES, _mm512_permutex2var_ps(low, first, high));
        _mm512_store_ps(sums + (v + 1) * LANES, _mm512_permutex2var_ps(low, last, high));
    }
}

/* c = sums' + beta c, where beta is 0 or 1. */
TARGET static void put(struct space *s, int which, int64_t rows, int64_t cols, float beta, float *c,
                       int64_t ldc)
{
    float *turned = s->by_rows[0]; /* PST_PRODUCTS_SQUARE rows of COLUMNS */
    for (int64_t j = 0; j < cols; j++)
        put_in_order(s->sums[which][j]);
    for (int64_t i = 0; i < rows; i += PST_PRODUCTS_SQUARE) {
        const int64_t some = pst_min_i64(PST_PRODUCTS_SQUARE, rows - i);
        pst_products_transpose(s->sums[which][0] + i, WIDTH, cols, some, turned, COLUMNS);
        for (int64_t r = 0; r < some; r++)
            for (int64_t j = 0; j < cols; j++) {
                const float sum = turned[r * COLUMNS + j];
                c[(i + r) * ldc + j] = beta == 0 ? sum : c[(i + r) * ldc + j] + sum;
            }
    }
}

/* Columns `row` to row+rows of each A, and columns col to col+cols of B. */
TARGET static void product(const struct job *job, int64_t k, int64_t row, int64_t rows, int64_t col,
                           int64_t cols, float beta, float *const *c, int64_t ldc)
{
    struct space s;
    for (int i = 0; i < job->count; i++) {
        memset(s.sums[i], 0, (size_t)cols * sizeof *s.sums[i]);
        memset(s.rows[i][ROWS], 0, sizeof s.rows[i][ROWS]);
    }
    for (int64_t at = 0; at < k; at += ROWS) {
        const int64_t some = pst_min_i64(ROWS, k - at);
        take_columns(&s, job->b + at * job->ldb + col, job->ldb, some, cols);
        for (int i = 0; i < job->count; i++) {
            take_rows(s.rows[i], &job->a[i], at, some, row, rows);
            for (int64_t j = 0; j < cols; j++)
                add_column(&s, i, j);
        }
    }
    for (int i = 0; i < job->count; i++)
        put(&s, i, rows, cols, beta, c[i] + row * ldc + col, ldc);
}

bool pst_products_zeros_bf16(int count, int64_t m, int64_t n, int64_t k, const struct pst_twin_view *a,
                             const float *b, int64_t ldb, float beta, float *const *c, int64_t ldc)
{
    const struct job job = {.count = count, .a = a, .b = b, .ldb = ldb};
    const int64_t rest = m % WIDTH;
    if ((rest > 0 && rest < NARROWEST) || m * n * k < FEWEST || pst_products_share(b, ldb, k, n) > SHARE)
        return false;
    for (int64_t row = 0; row < m; row += WIDTH)
        for (int64_t col = 0; col < n; col += COLUMNS)
            product(&job, k, row, pst_min_i64(WIDTH, m - row), col, pst_min_i64(COLUMNS, n - col), beta, c,
                    ldc);
    return true;
}

bool pst_products_can_zeros_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi2");
}

/* With AMX, the plain product is faster. */
bool pst_products_want_zeros_bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    return pst_products_can_zeros_bf16() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (edx & AMX_BF16) == 0;
}
#endif
