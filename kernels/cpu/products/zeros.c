/* zeros.c: products that leave out the zeros of one factor. After ReLU and dropout, most entries of a layer's
 * output and of its gradient are zero. The output is a factor of the next layer's products, and both are
 * factors of the gradients of weights.
 *
 * One factor is taken as sparse, the other as dense. In C = A' B, each column of the sparse factor makes a
 * row of sums: it adds up those rows of the dense factor where the column is not zero. In C = A B, where A is
 * the sparse factor, each row of A does so. The sums stay in registers for 64 rows of the dense factor. These
 * rows are added in order, so the result depends on the factors alone. */
#include "kernels/cpu/products/products.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma")))
#define TARGET_512 __attribute__((target("avx2,fma,avx512f")))
#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 8,
    LANES_512 = 16,     /* of a vector of AVX-512 */
    ROWS = 64,          /* of both factors that are worked on together: bits of a mask */
    WIDTH = 64,         /* columns of the dense factor, whose sums are in registers */
    PANELS = 2,         /* of WIDTH columns; one transposition serves all */
    COLUMNS = 256,      /* of the sparse factor */
    SAMPLE = 16,        /* every sixteenth row is counted */
    SHARE_COLUMNS = 60, /* percent of entries that are not zero: above, the plain product is faster */
    SHARE_ROWS = 35,    /* the same, where rows of the sparse factor make sums */
    SHARE_512 = 67,     /* percent of these shares, where vectors of 512 bits are in use */
    FETCH = 4,          /* columns of the sparse factor that are worked on while a row is fetched */
    NARROWEST = 32,     /* dense factor */
    FEWEST = 1 << 20,   /* multiply-adds; a smaller product is not worth it */
};

struct factor {
    const float *at;
    int64_t ld, cols; /* columns; of a sparse factor whose rows make sums, rows */
};

struct job {
    const struct factor *sparse, *dense;
    bool by_rows; /* rows of the sparse factor make sums; else its columns */
    bool turned;  /* the sums are columns of C, because the dense factor is A */
    int64_t k;    /* terms of each sum */
    float beta, *c;
    int64_t ldc;
};

struct space {
    _Alignas(64) float sums[PANELS][COLUMNS * WIDTH]; /* a row for each column of the sparse factor */
    _Alignas(64) float sparse[COLUMNS * ROWS];        /* its columns, as rows */
    const float *at; /* these rows, `ld` apart: in `sparse`, or in the factor */
    int64_t ld;
    uint64_t mask[COLUMNS]; /* where they are not zero */
    _Alignas(64) float dense[ROWS * WIDTH];
    struct next { /* rows that are worked on next, and fetched meanwhile */
        const char *at;
        int64_t bytes, stride;
    } next[2];
    int64_t next_rows, fetched;
    bool wide; /* vectors of 512 bits are in use */
};

/* ---- the sums ------------------------------------------------------------------------------------ */

/* A bit for each of 64 numbers that is not zero; a NaN is not. */
TARGET INLINE uint64_t nonzeros(const float *x)
{
    uint64_t mask = 0;
    for (int i = 0; i < ROWS / LANES; i++) {
        const __m256 other = _mm256_cmp_ps(_mm256_loadu_ps(x + i * LANES), _mm256_setzero_ps(), _CMP_NEQ_UQ);
        mask |= (uint64_t)(unsigned)_mm256_movemask_ps(other) << (i * LANES);
    }
    return mask;
}

/* Fetches a row of each factor that is worked on next. */
INLINE void fetch(struct space *s)
{
    for (int i = 0; i < 2 && s->fetched < s->next_rows; i++)
        for (int64_t at = 0; at < s->next[i].bytes; at += PST_CACHE_LINE)
            __builtin_prefetch(s->next[i].at + s->fetched * s->next[i].stride + at, 0, 2);
    s->fetched++;
}

/* Adds rows of the dense factor to the sums of `columns` columns. vectors: of a row. */
TARGET INLINE void add_rows(struct space *s, float *sums, int64_t columns, const int vectors)
{
    for (int64_t j = 0; j < columns; j++) {
        const float *factor = s->at + j * s->ld;
        float *to = sums + j * WIDTH;
        __m256 sum[WIDTH / LANES];
        uint64_t mask = s->mask[j];
        if (j % FETCH == 0)
            fetch(s);
        if (mask == 0)
            continue;
        for (int v = 0; v < vectors; v++)
            sum[v] = _mm256_load_ps(to + v * LANES);
        for (; mask != 0; mask &= mask - 1) {
            const int row = __builtin_ctzll(mask);
            const __m256 by = _mm256_broadcast_ss(factor + row);
            for (int v = 0; v < vectors; v++)
                sum[v] = _mm256_fmadd_ps(by, _mm256_load_ps(s->dense + row * WIDTH + v * LANES), sum[v]);
        }
        for (int v = 0; v < vectors; v++)
            _mm256_store_ps(to + v * LANES, sum[v]);
    }
}

/* Adds the next row of the dense factor to the sums of one column. */
TARGET_512 INLINE void add_row_512(const struct space *s, const float *factor, uint64_t *mask, __m512 *sum,
                                   const int vectors)
{
    const int row = __builtin_ctzll(*mask);
    const __m512 by = _mm512_set1_ps(factor[row]);
    for (int v = 0; v < vectors; v++)
        sum[v] = _mm512_fmadd_ps(by, _mm512_load_ps(s->dense + row * WIDTH + v * LANES_512), sum[v]);
    *mask &= *mask - 1;
}

/* add_rows with AVX-512, with the same bits. Two columns take turns, because the few sums of one column would
 * wait for each other. */
TARGET_512 INLINE void add_rows_512(struct space *s, float *sums, int64_t columns, const int vectors)
{
    for (int64_t j = 0; j < columns; j += 2) {
        const int count = j + 1 < columns ? 2 : 1;
        const float *factor[2] = {s->at + j * s->ld, s->at + (j + count - 1) * s->ld};
        float *to = sums + j * WIDTH;
        if (j % FETCH == 0)
            fetch(s);
        uint64_t mask[2] = {s->mask[j], count == 2 ? s->mask[j + 1] : 0};
        __m512 sum[2][WIDTH / LANES_512];
        for (int c = 0; c < 2; c++)
            for (int v = 0; v < vectors; v++)
                sum[c][v] = _mm512_load_ps(to + (c < count ? c : 0) * WIDTH + v * LANES_512);
        while (mask[0] != 0 && mask[1] != 0)
            for (int c = 0; c < 2; c++)
                add_row_512(s, factor[c], &mask[c], sum[c], vectors);
        for (int c = 0; c < count; c++) {
            while (mask[c] != 0)
                add_row_512(s, factor[c], &mask[c], sum[c], vectors);
            for (int v = 0; v < vectors; v++)
                _mm512_store_ps(to + c * WIDTH + v * LANES_512, sum[c][v]);
        }
    }
}

TARGET_512 static void add_panel_512(struct space *s, float *sums, int64_t columns, int64_t width)
{
    if (width <= 2 * LANES_512)
        add_rows_512(s, sums, columns, 2);
    else if (width <= 3 * LANES_512)
        add_rows_512(s, sums, columns, 3);
    else
        add_rows_512(s, sums, columns, WIDTH / LANES_512);
}

/* The number of vectors is a constant in each call, so that the sums are in registers. */
TARGET static void add_panel(struct space *s, float *sums, int64_t columns, int64_t width)
{
    if (s->wide)
        add_panel_512(s, sums, columns, width);
    else if (width <= 3 * LANES)
        add_rows(s, sums, columns, 3);
    else if (width <= 5 * LANES)
        add_rows(s, sums, columns, 5);
    else
        add_rows(s, sums, columns, WIDTH / LANES);
}

/* ---- the factors --------------------------------------------------------------------------------- */

/* to[j][i] = from[i][j] of 8 rows and 8 columns. */
TARGET INLINE void transpose8(const float *from, int64_t ld, float *to, int64_t ld_to)
{
    __m256 r[LANES], p[LANES];
    for (int i = 0; i < LANES; i++)
        r[i] = _mm256_loadu_ps(from + i * ld);
    for (int i = 0; i < LANES; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int half = 0; half < 2; half++) {
            r[i + 2 * half] = _mm256_shuffle_ps(p[i + half], p[i + half + 2], 0x44);
            r[i + 2 * half + 1] = _mm256_shuffle_ps(p[i + half], p[i + half + 2], 0xEE);
        }
    for (int i = 0; i < LANES / 2; i++) {
        _mm256_storeu_ps(to + i * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * ld_to, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

TARGET static void transpose(const float *from, int64_t ld, int64_t rows, int64_t cols, float *to,
                             int64_t ld_to)
{
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < cols; j += LANES) {
            if (i + LANES <= rows && j + LANES <= cols) {
                transpose8(from + i * ld + j, ld, to + j * ld_to + i, ld_to);
                continue;
            }
            for (int64_t a = i; a < pst_min_i64(i + LANES, rows); a++)
                for (int64_t b = j; b < pst_min_i64(j + LANES, cols); b++)
                    to[b * ld_to + a] = from[a * ld + b];
        }
}

/* What makes `cols` sums: their factors for 64 rows of the dense factor. Those that are missing are zeros,
 * which are left out. */
TARGET static void take_sparse(struct space *s, const struct job *job, int64_t row, int64_t rows, int64_t col,
                               int64_t cols)
{
    const struct factor *f = job->sparse;
    const bool whole = rows == ROWS;
    if (!whole)
        memset(s->sparse, 0, (size_t)cols * ROWS * sizeof *s->sparse);
    if (!job->by_rows)
        transpose(f->at + row * f->ld + col, f->ld, rows, cols, s->sparse, ROWS);
    for (int64_t j = 0; job->by_rows && !whole && j < cols; j++)
        memcpy(s->sparse + j * ROWS, f->at + (col + j) * f->ld + row, (size_t)rows * sizeof *s->sparse);
    s->at = job->by_rows && whole ? f->at + col * f->ld + row : s->sparse;
    s->ld = job->by_rows && whole ? f->ld : ROWS;
    for (int64_t j = 0; j < cols; j++)
        s->mask[j] = nonzeros(s->at + j * s->ld);
}

/* Columns that are missing have zeros. A copy of a constant size needs no call. */
TARGET static void take_dense(struct space *s, const struct factor *f, int64_t row, int64_t rows, int64_t col,
                              int64_t cols)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *from = f->at + (row + i) * f->ld + col;
        float *to = s->dense + i * WIDTH;
        if (cols == WIDTH) {
            memcpy(to, from, WIDTH * sizeof *to);
        } else {
            memcpy(to, from, (size_t)cols * sizeof *to);
            memset(to + cols, 0, (size_t)(WIDTH - cols) * sizeof *to);
        }
    }
}

/* Notes what is worked on after `row`, so that it is fetched meanwhile. If rows of the sparse factor make
 * sums, this was not faster. */
static void look_ahead(struct space *s, const struct job *job, int64_t row, int64_t col, int64_t cols,
                       int64_t from, int64_t width)
{
    const struct factor *f = job->sparse, *d = job->dense;
    const int64_t next = row + ROWS, unit = sizeof *f->at;
    s->fetched = 0;
    s->next_rows = job->by_rows ? 0 : pst_max_i64(0, pst_min_i64(ROWS, job->k - next));
    if (s->next_rows == 0)
        return;
    s->next[0] = (struct next){(const char *)(d->at + next * d->ld + from), width * unit, d->ld * unit};
    s->next[1] = (struct next){(const char *)(f->at + next * f->ld + col), cols * unit, f->ld * unit};
}

/* The share of entries that are not zero, in percent, in a sample of the rows. */
TARGET static int64_t share_of(const float *at, int64_t ld, int64_t rows, int64_t cols)
{
    int64_t found = 0, looked = 0;
    for (int64_t i = 0; i < rows; i += SAMPLE) {
        const float *row = at + i * ld;
        int64_t j = 0;
        for (; j + LANES <= cols; j += LANES) {
            const __m256 other = _mm256_cmp_ps(_mm256_loadu_ps(row + j), _mm256_setzero_ps(), _CMP_NEQ_UQ);
            found += __builtin_popcount((unsigned)_mm256_movemask_ps(other));
        }
        for (; j < cols; j++)
            found += row[j] != 0;
        looked += cols;
    }
    return 100 * found / pst_max_i64(looked, 1);
}

/* ---- the product --------------------------------------------------------------------------------- */

/* c = x + beta c, where beta is 0 or 1. */
static void put(const float *x, int64_t ld, int64_t rows, int64_t cols, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * ldc + j] = beta == 0 ? x[i * ld + j] : c[i * ldc + j] + x[i * ld + j];
}

/* `cols` sums from `col` on, and columns from..from+width of the dense factor. */
TARGET static void product(struct space *s, const struct job *job, int64_t col, int64_t cols, int64_t from,
                           int64_t width)
{
    for (int64_t p = 0; p * WIDTH < width; p++)
        memset(s->sums[p], 0, (size_t)cols * WIDTH * sizeof *s->sums[p]);
    for (int64_t row = 0; row < job->k; row += ROWS) {
        const int64_t rows = pst_min_i64(ROWS, job->k - row);
        take_sparse(s, job, row, rows, col, cols);
        look_ahead(s, job, row, col, cols, from, width);
        for (int64_t p = 0; p * WIDTH < width; p++) {
            const int64_t w = pst_min_i64(WIDTH, width - p * WIDTH);
            take_dense(s, job->dense, row, rows, from + p * WIDTH, w);
            add_panel(s, s->sums[p], cols, w);
        }
    }
    for (int64_t p = 0; p * WIDTH < width; p++) {
        const int64_t at = from + p * WIDTH, w = pst_min_i64(WIDTH, width - p * WIDTH);
        if (job->turned) {
            transpose(s->sums[p], WIDTH, cols, w, s->sparse, COLUMNS);
            put(s->sparse, COLUMNS, w, cols, job->beta, job->c + at * job->ldc + col, job->ldc);
        } else {
            put(s->sums[p], WIDTH, cols, w, job->beta, job->c + col * job->ldc + at, job->ldc);
        }
    }
}

bool pst_products_zeros_by(bool wide, bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                           const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m < NARROWEST || n < NARROWEST || m * n * k < FEWEST)
        return false;
    const int64_t of_a = ta ? share_of(a, lda, k, m) : share_of(a, lda, m, k);
    const int64_t of_b = ta ? share_of(b, ldb, k, n) : 101; /* more than A: A is the sparse factor */
    const int64_t most = (ta ? SHARE_COLUMNS : SHARE_ROWS) * (wide ? SHARE_512 : 100) / 100;
    if (pst_min_i64(of_a, of_b) > most)
        return false;
    const struct factor left = {a, lda, m}, right = {b, ldb, n};
    const bool turned = of_b <= of_a;
    const struct job job = {.sparse = turned ? &right : &left,
                            .dense = turned ? &left : &right,
                            .by_rows = !ta,
                            .turned = turned,
                            .k = k,
                            .beta = beta,
                            .c = c,
                            .ldc = ldc};
    struct space space;
    space.wide = wide;
    for (int64_t col = 0; col < job.sparse->cols; col += COLUMNS)
        for (int64_t from = 0; from < job.dense->cols; from += (int64_t)PANELS * WIDTH)
            product(&space, &job, col, pst_min_i64(COLUMNS, job.sparse->cols - col), from,
                    pst_min_i64((int64_t)PANELS * WIDTH, job.dense->cols - from));
    return true;
}

/* Zen 4 works on 512 bits in two halves, and AVX2 is faster there. */
bool pst_products_zeros(bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float beta, float *c, int64_t ldc)
{
    const bool wide = __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("amdfam19h");
    return pst_products_zeros_by(wide, ta, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

bool pst_products_can_zeros(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
