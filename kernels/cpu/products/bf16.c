/* bf16.c: products in bfloat16 (8 bits of precision, float32's exponent) with sums in float32. Both
 * factors are rounded to the nearest bfloat16, ties to even. oneDNN multiplies, with AMX or AVX512_BF16.
 *
 * oneDNN compiles code for each shape, and the numbers of rows differ from batch to batch. So a product is
 * cut along its rows into pieces of few sizes: powers of two. A weight's gradient is cut along what it sums
 * over, and its last piece is filled up with zeros. The pieces depend on the shape alone, so the result does
 * not depend on threads. */
#include "kernels/cpu/products/products.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/onednn/bf16.h"

bool pst_products_can_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

#ifdef PST_REAL_IS_FLOAT /* the double-precision build of the tests rounds nothing */

enum {
    LANES = 16,
    ROWS_MAX = 512, /* of a piece */
    SUMMED_MAX = 512,
    SUMMED_MIN = 32,         /* AMX multiplies 32 columns at a time */
    PIECE_ELEMENTS = 1 << 19 /* of A: 1 MiB, half of a core's second-level cache */
};

void omp_set_num_threads(int threads); /* of libgomp, which oneDNN runs on; there is no header for it */

static pst_onednn_bf16_fn multiply;
static bool has_blocks; /* B can be stored in blocks */
static bool zeros;      /* sums may leave out the zeros of B */
static pthread_key_t scratch_key;

struct scratch {
    uint16_t *at[2]; /* for A and B */
    size_t elements[2];
};

static void free_scratch(void *at)
{
    struct scratch *s = at;
    free(s->at[0]);
    free(s->at[1]);
    free(s);
}

static void load(void)
{
    void *found = pst_products_load(PST_ONEDNN_BF16_SYMBOL);
    memcpy(&multiply, &found, sizeof found); /* ISO C converts no object pointer to a function pointer */
    pst_onednn_blocks_fn ask;
    found = pst_products_load(PST_ONEDNN_BLOCKS_SYMBOL);
    memcpy(&ask, &found, sizeof found);
    has_blocks = ask() != 0;
    zeros = pst_products_want_zeros_bf16();
    if (pthread_key_create(&scratch_key, free_scratch) != 0) {
        fprintf(stderr, "cannot multiply in bfloat16: the process has too many thread-specific keys\n");
        abort();
    }
}

/* Memory of this thread for a factor. */
static uint16_t *scratch(int factor, size_t elements)
{
    struct scratch *s = pthread_getspecific(scratch_key);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (s && pthread_setspecific(scratch_key, s) != 0) {
            free(s);
            s = NULL;
        }
    }
    if (s && s->elements[factor] < elements) {
        free(s->at[factor]);
        s->at[factor] =
            aligned_alloc(PST_CACHE_LINE, (size_t)pst_align_up(elements * sizeof(uint16_t), PST_CACHE_LINE));
        s->elements[factor] = s->at[factor] ? elements : 0;
    }
    if (!s || !s->at[factor]) {
        fprintf(stderr, "out of memory: cannot allocate %zu bytes for a product in bfloat16\n",
                elements * sizeof(uint16_t));
        abort();
    }
    return s->at[factor];
}

/* Rounds rows of floats, to the nearest and ties to even. ld_to: of the rounded rows. Numbers below 2^-126
 * become zero, as the CPU's conversion does it. */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void
round_rows(uint16_t *restrict to, int64_t ld_to, const float *from, int64_t rows, int64_t columns, int64_t ld)
{
    const __mmask16 rest = (__mmask16)((1u << (columns % LANES)) - 1);
    for (int64_t r = 0; r < rows; r++, from += ld, to += ld_to) {
        int64_t i = 0;
        for (; i + LANES <= columns; i += LANES)
            _mm256_storeu_si256((__m256i *)(void *)(to + i),
                                (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
        if (rest)
            _mm256_mask_storeu_epi16(to + i, rest,
                                     (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, from + i)));
    }
}

/* Puts rows of a matrix, from `row` on, into `to`. */
static void take_rows(uint16_t *restrict to, int64_t ld_to, const struct pst_twin_view *from, int64_t row,
                      int64_t rows, int64_t columns)
{
    if (from->bf16 == NULL) {
        round_rows(to, ld_to, from->at + row * from->ld, rows, columns, from->ld);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * ld_to, from->bf16 + (row + r) * from->ld, (size_t)columns * sizeof *to);
}

/* `height` rows without gaps, of which those after the first `rows` are zeros. They are where they lie if
 * they are in bfloat16, have no gaps and need no zeros; else in `to`. */
static const uint16_t *dense_rows(uint16_t *to, const struct pst_twin_view *from, int64_t row, int64_t rows,
                                  int64_t height, int64_t columns)
{
    if (from->bf16 != NULL && from->ld == columns && rows == height)
        return from->bf16 + row * columns;
    take_rows(to, columns, from, row, rows, columns);
    memset(to + rows * columns, 0, (size_t)((height - rows) * columns) * sizeof *to);
    return to;
}

/* Elements of a (k,n) matrix in the form in which by_rows and by_sums multiply by it. */
static size_t elements_of_b(int64_t k, int64_t n)
{
    return (size_t)(pst_align_up((uint64_t)k, PST_ONEDNN_ROWS) *
                    pst_align_up((uint64_t)n, PST_ONEDNN_COLUMNS));
}

/* Row r of matrices of `rows` rows that are one below the other; NULL after the last. */
static const float *row_of(const float *const *from, int count, int64_t rows, int64_t ld, int64_t r)
{
    return r < count * rows ? from[r / rows] + r % rows * ld : NULL;
}

/* Rounds `count` matrices of (rows,n), one below the other, into the blocks of a (k,n) matrix
 * (onednn/bf16.h). Rows that they lack become zeros. */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void
round_blocks(uint16_t *restrict to, const float *const *from, int count, int64_t rows, int64_t n, int64_t ld,
             int64_t k)
{
    const int64_t height = (int64_t)pst_align_up((uint64_t)k, PST_ONEDNN_ROWS),
                  width = (int64_t)pst_align_up((uint64_t)n, PST_ONEDNN_COLUMNS);
    const __m512i alternate = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                               23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t r = 0; r < height; r += 2, to += 2 * PST_ONEDNN_COLUMNS) {
        const float *const even = row_of(from, count, rows, ld, r), *const odd =
                                                                        row_of(from, count, rows, ld, r + 1);
        for (int64_t j = 0; j < width; j += LANES) {
            const int64_t left = pst_max_i64(0, pst_min_i64(LANES, n - j));
            const __mmask16 some = (__mmask16)((1u << left) - 1);
            const __m512 low = even ? _mm512_maskz_loadu_ps(some, even + j) : _mm512_setzero_ps(),
                         high = odd ? _mm512_maskz_loadu_ps(some, odd + j) : _mm512_setzero_ps();
            _mm512_storeu_si512(to + j / PST_ONEDNN_COLUMNS * PST_ONEDNN_COLUMNS * height +
                                    j % PST_ONEDNN_COLUMNS * 2,
                                _mm512_permutexvar_epi16(alternate, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
        }
    }
}

/* Rounds B, which is `count` matrices of (rows,n) one below the other, and zeros up to k rows. */
static void round_b(uint16_t *to, bool blocked, const float *const *from, int count, int64_t rows, int64_t n,
                    int64_t ld, int64_t k)
{
    if (blocked) {
        round_blocks(to, from, count, rows, n, ld, k);
        return;
    }
    for (int i = 0; i < count; i++, to += rows * n)
        round_rows(to, n, from[i], rows, n, ld);
    memset(to, 0, (size_t)((k - count * rows) * n) * sizeof *to);
}

static void run(const struct pst_onednn_shape *shape, const uint16_t *a, const uint16_t *b, float *c)
{
    const int status = multiply(shape, a, b, c);
    if (status == 0)
        return;
    fprintf(stderr, "oneDNN cannot multiply (%lld x %lld) by (%lld x %lld) in bfloat16: status %d; %s\n",
            (long long)shape->m, (long long)shape->k, (long long)shape->k, (long long)shape->n, status,
            status == 3 ? "this CPU has no AVX512_BF16, or ONEDNN_MAX_CPU_ISA forbids it"
                        : "probably out of memory");
    abort();
}

static int64_t power_below(int64_t n, int64_t most)
{
    while (most > n)
        most /= 2;
    return most;
}

enum { PARTS_MAX = PST_TWIN_FACTOR_MAX };

/* `parts` matrices A, each with a share of k (by_rows), or each with a C (by_sums). */
struct product {
    int64_t m, n, k;
    int parts;
    const struct pst_twin_view *a;
    const float *b;
    int64_t ldb, ldc;
    float *const *c;
    bool tb, adds;
};

/* Whether B is stored in blocks. oneDNN has no fast product of such a B if there are gaps in C. */
static bool in_blocks(const struct product *p)
{
    return has_blocks && !p->tb && p->ldc == p->n;
}

/* b: B, rounded. */
static void by_rows(const struct product *p, const uint16_t *b)
{
    const int64_t most = power_below(pst_max_i64(1, PIECE_ELEMENTS / p->k), ROWS_MAX),
                  columns = p->k / p->parts;
    for (int64_t at = 0, m; at < p->m; at += m) {
        m = power_below(p->m - at, most);
        uint16_t *const to = scratch(0, (size_t)(m * p->k));
        const uint16_t *a = to;
        if (p->parts == 1)
            a = dense_rows(to, p->a, at, m, m, columns);
        else
            for (int i = 0; i < p->parts; i++)
                take_rows(to + i * columns, p->k, &p->a[i], at, m, columns);
        const struct pst_onednn_shape shape = {.m = m,
                                               .n = p->n,
                                               .k = p->k,
                                               .ldc = p->ldc,
                                               .tb = p->tb,
                                               .adds = p->adds,
                                               .blocked = in_blocks(p)};
        run(&shape, a, b, p->c[0] + at * p->ldc);
    }
}

/* A transposed times B: both are cut along their rows. */
static void by_sums(const struct product *p)
{
    bool adds = p->adds;
    if (zeros &&
        pst_products_zeros_bf16(p->parts, p->m, p->n, p->k, p->a, p->b, p->ldb, adds ? 1 : 0, p->c, p->ldc))
        return;
    for (int64_t at = 0, k; at < p->k; at += k, adds = true) {
        k = power_below(pst_max_i64(p->k - at, SUMMED_MIN), SUMMED_MAX);
        const int64_t rows = pst_min_i64(k, p->k - at);
        uint16_t *const to = scratch(0, (size_t)(k * p->m)), *const b = scratch(1, elements_of_b(k, p->n));
        const float *const from = p->b + at * p->ldb;
        round_b(b, in_blocks(p), &from, 1, rows, p->n, p->ldb, k);
        const struct pst_onednn_shape shape = {
            .m = p->m, .n = p->n, .k = k, .ldc = p->ldc, .ta = 1, .adds = adds, .blocked = in_blocks(p)};
        for (int i = 0; i < p->parts; i++)
            run(&shape, dense_rows(to, &p->a[i], at, rows, k, p->m), b, p->c[i]);
    }
}

/* B is small: a weight. */
static const uint16_t *rounded_b(const struct product *p)
{
    uint16_t *const b = scratch(1, elements_of_b(p->k, p->n));
    if (p->tb)
        round_rows(b, p->k, p->b, p->n, p->k, p->ldb);
    else
        round_b(b, in_blocks(p), &p->b, 1, p->k, p->n, p->ldb, p->k);
    return b;
}

static void begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    omp_set_num_threads(1);
}

/* The product with nothing to sum: C = beta C. */
static void scale(float *c, int64_t ldc, int64_t m, int64_t n, float beta)
{
    for (int64_t i = 0; i < m && beta == 0; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
}

void pst_products_bf16(struct pst_queue *q, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                       int64_t ldc, int threads)
{
    assert(q == NULL && m >= 0 && n >= 0 && k >= 0 && threads >= 1 && alpha == 1 && !(ta && tb));
    assert(lda >= (ta ? m : k) && ldb >= (tb ? k : n) && ldc >= n && (beta == 0 || beta == 1));
    (void)q;
    (void)alpha;
    (void)threads;
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale(c, ldc, m, n, beta);
        return;
    }
    begin();
    const struct pst_twin_view view = {.at = a, .ld = lda};
    const struct product p = {.m = m,
                              .n = n,
                              .k = k,
                              .parts = 1,
                              .a = &view,
                              .b = b,
                              .ldb = ldb,
                              .ldc = ldc,
                              .c = &c,
                              .tb = tb,
                              .adds = beta == 1};
    if (ta)
        by_sums(&p);
    else
        by_rows(&p, rounded_b(&p));
}

/* ---- factors -------------------------------------------------------------------------------------- */

struct pst_twin_factor {
    int64_t rows, cols; /* of each of the matrices */
    int count;
    uint16_t *by_rows, *blocks; /* all of them, one below the other; blocks: NULL if they are not used */
};

static void *must_allocate(size_t bytes)
{
    void *at = aligned_alloc(PST_CACHE_LINE, (size_t)pst_align_up(bytes, PST_CACHE_LINE));
    if (at == NULL) {
        fprintf(stderr, "out of memory: cannot allocate %zu bytes for a weight in bfloat16\n", bytes);
        abort();
    }
    return at;
}

void pst_products_factor_set(struct pst_twin_factor **factor, const float *const *from, int count,
                             int64_t rows, int64_t cols)
{
    struct pst_twin_factor *f = *factor;
    assert(rows > 0 && cols > 0 && count >= 1 && count <= PARTS_MAX);
    assert(f == NULL || (f->rows == rows && f->cols == cols && f->count == count));
    begin();
    if (f == NULL) {
        const int64_t k = count * rows;
        f = must_allocate(sizeof *f);
        *f = (struct pst_twin_factor){
            .rows = rows,
            .cols = cols,
            .count = count,
            .by_rows = must_allocate((size_t)(k * cols) * sizeof(uint16_t)),
            .blocks = has_blocks ? must_allocate(elements_of_b(k, cols) * sizeof(uint16_t)) : NULL};
        *factor = f;
    }
    round_b(f->by_rows, false, from, count, rows, cols, cols, count * rows);
    if (f->blocks != NULL)
        round_b(f->blocks, true, from, count, rows, cols, cols, count * rows);
}

void pst_products_factor_free(struct pst_twin_factor *f)
{
    if (f == NULL)
        return;
    free(f->blocks);
    free(f->by_rows);
    free(f);
}

void pst_products_by_factor(bool tb, int64_t m, const struct pst_twin_view *a,
                            const struct pst_twin_factor *b, float beta, float *c, int64_t ldc)
{
    const struct product p = {.m = m,
                              .n = tb ? b->rows : b->cols,
                              .k = tb ? b->cols : b->count * b->rows,
                              .parts = b->count,
                              .a = a,
                              .ldc = ldc,
                              .c = &c,
                              .tb = tb,
                              .adds = beta == 1};
    assert(m >= 0 && ldc >= p.n && (beta == 0 || beta == 1) && !(tb && b->count > 1));
    for (int i = 0; i < b->count; i++)
        assert(a[i].ld >= p.k / b->count);
    begin();
    by_rows(&p, in_blocks(&p) ? b->blocks : b->by_rows);
}

void pst_products_sums(int count, int64_t m, int64_t n, int64_t k, const struct pst_twin_view *a,
                       const float *b, int64_t ldb, float beta, float *const *c, int64_t ldc)
{
    const struct product p = {.m = m,
                              .n = n,
                              .k = k,
                              .parts = count,
                              .a = a,
                              .b = b,
                              .ldb = ldb,
                              .ldc = ldc,
                              .c = c,
                              .adds = beta == 1};
    assert(count >= 1 && count <= PARTS_MAX && m >= 0 && n >= 0 && k >= 0 && ldb >= n && ldc >= n);
    assert(beta == 0 || beta == 1);
    for (int i = 0; i < count; i++) {
        assert(a[i].ld >= m);
        if (k == 0)
            scale(c[i], ldc, m, n, beta);
    }
    begin();
    if (m > 0 && n > 0)
        by_sums(&p);
}
#endif
