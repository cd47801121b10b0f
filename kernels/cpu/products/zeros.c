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

#include "kernels/cpu/products/transpose.h"

#define TARGET __attribute__((target("avx2,fma")))
#define TARGET_512 __attribute__((target("avx2,fma,avx512f,avx512bw")))
#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 8,
    LANES_512 = 16,     /* of a vector of AVX-512 */
    ROWS = 64,          /* of both factors that are worked on together: bits of a mask */
    WIDTH = 64,         /* columns of the dense factor, whose sums are in registers */
    WIDTH_512 = 128,    /* the same with AVX-512 */
    PANEL = 128,        /* columns of the dense factor that one look at the sparse factor serves */
    COLUMNS = 256,      /* of the sparse factor */
    SAMPLE = 16,        /* every sixteenth row is counted */
    SHARE_COLUMNS = 60, /* percent of entries that are not zero: above, the plain product is faster */
    SHARE_ROWS = 35,    /* the same, where rows of the sparse factor make sums */
    /* with AVX-512, for a dense factor of more than WIDTH columns: */
    SHARE_COLUMNS_512 = 50,
    SHARE_ROWS_512 = 40,
    /* with AVX-512, for one of at most WIDTH columns: */
    SHARE_COLUMNS_NARROW = 28,
    SHARE_ROWS_NARROW = 22,
    FETCH = 4,        /* columns of the sparse factor that are worked on while a row is fetched */
    NARROWEST = 32,   /* dense factor */
    FEWEST = 1 << 20, /* multiply-adds; a smaller product is not worth it */
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
    _Alignas(64) float sums[COLUMNS * PANEL];   /* for each `width` columns of the dense factor: rows of as
                                                   many sums, one for each column of the sparse factor */
    _Alignas(64) float sparse[COLUMNS * ROWS];  /* columns of the sparse factor, as rows */
    const float *at;                            /* 64 rows of the sparse factor: there, or where they are */
    int64_t ld, step;                           /* from column to column, from row to row */
    uint64_t mask[COLUMNS];                     /* for each column, the rows where it is not zero */
    _Alignas(64) float dense[ROWS * WIDTH_512]; /* rows of `width` */
    int64_t width;                              /* WIDTH or WIDTH_512 */
    struct next {                               /* rows that are worked on next, and fetched meanwhile */
        const char *at;
        int64_t bytes, stride;
    } next[2];
    int64_t next_rows, fetched;
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
TARGET_512 INLINE uint64_t add_row_512(const float *dense, const float *factor, int64_t step, uint64_t mask,
                                       __m512 *sum, const int vectors)
{
    const int64_t row = __builtin_ctzll(mask);
    const __m512 by = _mm512_set1_ps(factor[row * step]);
    for (int v = 0; v < vectors; v++)
        sum[v] = _mm512_fmadd_ps(by, _mm512_load_ps(dense + row * WIDTH_512 + v * LANES_512), sum[v]);
    return mask & (mask - 1);
}

/* add_rows with AVX-512, with the same bits. */
TARGET_512 INLINE void add_rows_512(struct space *s, float *sums, int64_t columns, const int vectors)
{
    const int64_t step = s->step;
    for (int64_t j = 0; j < columns; j++) {
        const float *factor = s->at + j * s->ld;
        float *to = sums + j * WIDTH_512;
        __m512 sum[WIDTH_512 / LANES_512];
        if (j % FETCH == 0)
            fetch(s);
        uint64_t mask = s->mask[j];
        for (int v = 0; v < vectors; v++)
            sum[v] = _mm512_load_ps(to + v * LANES_512);
        while (mask != 0)
            mask = add_row_512(s->dense, factor, step, mask, sum, vectors);
        for (int v = 0; v < vectors; v++)
            _mm512_store_ps(to + v * LANES_512, sum[v]);
    }
}

/* The same for few sums of a column, which would wait for each other: two columns take turns. */
TARGET_512 INLINE void add_narrow_rows_512(struct space *s, float *sums, int64_t columns, const int vectors,
                                           const int64_t step)
{
    for (int64_t j = 0; j < columns; j += 2) {
        const float *one = s->at + j * s->ld, *two = one + s->ld;
        float *to = sums + j * WIDTH_512;
        __m512 a[WIDTH / LANES_512], b[WIDTH / LANES_512];
        if (j % FETCH == 0)
            fetch(s);
        uint64_t m = s->mask[j], n = j + 1 < columns ? s->mask[j + 1] : 0;
        for (int v = 0; v < vectors; v++) {
            a[v] = _mm512_load_ps(to + v * LANES_512);
            b[v] = _mm512_load_ps(to + WIDTH_512 + v * LANES_512);
        }
        while (m != 0 && n != 0) {
            m = add_row_512(s->dense, one, step, m, a, vectors);
            n = add_row_512(s->dense, two, step, n, b, vectors);
        }
        while (m != 0)
            m = add_row_512(s->dense, one, step, m, a, vectors);
        while (n != 0)
            n = add_row_512(s->dense, two, step, n, b, vectors);
        for (int v = 0; v < vectors; v++) {
            _mm512_store_ps(to + v * LANES_512, a[v]);
            _mm512_store_ps(to + WIDTH_512 + v * LANES_512, b[v]);
        }
    }
}

/* If rows of the sparse factor make sums, the step is 1. As a constant, it was faster for 33 to 48 columns.
 */
TARGET_512 static void add_panel_512(struct space *s, float *sums, int64_t columns, int64_t width)
{
    if (width <= 2 * LANES_512)
        add_narrow_rows_512(s, sums, columns, 2, s->step);
    else if (width <= 3 * LANES_512 && s->step == 1)
        add_narrow_rows_512(s, sums, columns, 3, 1);
    else if (width <= 3 * LANES_512)
        add_narrow_rows_512(s, sums, columns, 3, s->step);
    else if (width <= 4 * LANES_512)
        add_narrow_rows_512(s, sums, columns, 4, s->step);
    else
        add_rows_512(s, sums, columns, WIDTH_512 / LANES_512);
}

/* The number of vectors is a constant in each call, so that the sums are in registers. */
TARGET static void add_panel(struct space *s, float *sums, int64_t columns, int64_t width)
{
    if (s->width == WIDTH_512)
        add_panel_512(s, sums, columns, width);
    else if (width <= 3 * LANES)
        add_rows(s, sums, columns, 3);
    else if (width <= 5 * LANES)
        add_rows(s, sums, columns, 5);
    else
        add_rows(s, sums, columns, WIDTH / LANES);
}

/* ---- the factors --------------------------------------------------------------------------------- */

/* Finds what is not zero in 64 rows and 16 columns of the sparse factor. */
TARGET_512 INLINE void look_512(uint64_t *mask, const float *at, int64_t ld, int64_t rows, int64_t cols)
{
    _Alignas(64) uint16_t found[ROWS] = {0}; /* a bit for each column */
    const __mmask16 these = (__mmask16)((1U << pst_min_i64(cols, LANES_512)) - 1);
    for (int64_t i = 0; i < rows; i++)
        found[i] = _mm512_mask_cmp_ps_mask(these, _mm512_maskz_loadu_ps(these, at + i * ld),
                                           _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512i first = _mm512_load_si512(found), last = _mm512_load_si512(found + ROWS / 2);
    for (int byte = 0; byte < 2; byte++) {
        const __m128i by = _mm_cvtsi32_si128(8 * byte);
        const __m512i rows64 =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srl_epi16(first, by))),
                               _mm512_cvtepi16_epi8(_mm512_srl_epi16(last, by)), 1); /* a byte for each row */
        for (int bit = 0; bit < 8; bit++)
            mask[8 * byte + bit] = _mm512_movepi8_mask(_mm512_sll_epi16(rows64, _mm_cvtsi32_si128(7 - bit)));
    }
}

/* take_sparse with AVX-512, which uses the columns where they are. With a copy, products took 6 to 28 %
 * longer. */
TARGET_512 static void take_columns_512(struct space *s, const float *at, int64_t ld, int64_t rows,
                                        int64_t cols)
{
    s->at = at;
    s->ld = 1;
    s->step = ld;
    for (int64_t j = 0; j < cols; j += LANES_512)
        look_512(s->mask + j, at + j, ld, rows, cols - j);
}

/* What makes `cols` sums: their factors for 64 rows of the dense factor. Those that are missing are zeros,
 * which are left out. */
TARGET static void take_sparse(struct space *s, const struct job *job, int64_t row, int64_t rows, int64_t col,
                               int64_t cols)
{
    const struct factor *f = job->sparse;
    const bool whole = rows == ROWS;
    if (!job->by_rows && s->width == WIDTH_512) {
        take_columns_512(s, f->at + row * f->ld + col, f->ld, rows, cols);
        return;
    }
    if (!whole)
        memset(s->sparse, 0, (size_t)cols * ROWS * sizeof *s->sparse);
    if (!job->by_rows)
        pst_products_transpose(f->at + row * f->ld + col, f->ld, rows, cols, s->sparse, ROWS);
    for (int64_t j = 0; job->by_rows && !whole && j < cols; j++)
        memcpy(s->sparse + j * ROWS, f->at + (col + j) * f->ld + row, (size_t)rows * sizeof *s->sparse);
    s->at = job->by_rows && whole ? f->at + col * f->ld + row : s->sparse;
    s->ld = job->by_rows && whole ? f->ld : ROWS;
    s->step = 1;
    for (int64_t j = 0; j < cols; j++)
        s->mask[j] = nonzeros(s->at + j * s->ld);
}

TARGET_512 static void take_dense_512(struct space *s, const float *at, int64_t ld, int64_t rows,
                                      int64_t cols)
{
    const int64_t width = cols > WIDTH ? WIDTH_512 : WIDTH;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j += LANES_512) {
            const int64_t left = pst_max_i64(0, pst_min_i64(cols - j, LANES_512));
            _mm512_store_ps(s->dense + i * WIDTH_512 + j,
                            _mm512_maskz_loadu_ps((__mmask16)((1U << left) - 1), at + i * ld + j));
        }
}

/* Columns that are missing have zeros. A copy of a constant size needs no call. */
TARGET static void take_dense(struct space *s, const struct factor *f, int64_t row, int64_t rows, int64_t col,
                              int64_t cols)
{
    if (s->width == WIDTH_512) {
        take_dense_512(s, f->at + row * f->ld + col, f->ld, rows, cols);
        return;
    }
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

TARGET int64_t pst_products_share(const float *at, int64_t ld, int64_t rows, int64_t cols)
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
    const int64_t part = s->width;
    for (int64_t p = 0; p * part < width; p++)
        memset(s->sums + p * COLUMNS * part, 0, (size_t)(cols * part) * sizeof *s->sums);
    for (int64_t row = 0; row < job->k; row += ROWS) {
        const int64_t rows = pst_min_i64(ROWS, job->k - row);
        take_sparse(s, job, row, rows, col, cols);
        look_ahead(s, job, row, col, cols, from, width);
        for (int64_t p = 0; p * part < width; p++) {
            const int64_t w = pst_min_i64(part, width - p * part);
            take_dense(s, job->dense, row, rows, from + p * part, w);
            add_panel(s, s->sums + p * COLUMNS * part, cols, w);
        }
    }
    for (int64_t p = 0; p * part < width; p++) {
        const int64_t at = from + p * part, w = pst_min_i64(part, width - p * part);
        const float *sums = s->sums + p * COLUMNS * part;
        for (int64_t j = 0; job->turned && j < w; j += ROWS) { /* as many rows of sums as `sparse` holds */
            const int64_t some = pst_min_i64(ROWS, w - j);
            pst_products_transpose(sums + j, part, cols, some, s->sparse, COLUMNS);
            put(s->sparse, COLUMNS, some, cols, job->beta, job->c + (at + j) * job->ldc + col, job->ldc);
        }
        if (!job->turned)
            put(sums, part, cols, w, job->beta, job->c + col * job->ldc + at, job->ldc);
    }
}

/* The largest share for which zeros are left out, in percent. */
static int64_t most_of(bool wide, bool by_rows, int64_t width)
{
    if (!wide)
        return by_rows ? SHARE_ROWS : SHARE_COLUMNS;
    if (width <= WIDTH)
        return by_rows ? SHARE_ROWS_NARROW : SHARE_COLUMNS_NARROW;
    return by_rows ? SHARE_ROWS_512 : SHARE_COLUMNS_512;
}

bool pst_products_zeros_by(bool wide, bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                           const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m < NARROWEST || n < NARROWEST || m * n * k < FEWEST)
        return false;
    const int64_t of_a = ta ? pst_products_share(a, lda, k, m) : pst_products_share(a, lda, m, k);
    const int64_t of_b =
        ta ? pst_products_share(b, ldb, k, n) : 101; /* more than A: A is the sparse factor */
    const bool turned = of_b <= of_a;
    if (pst_min_i64(of_a, of_b) > most_of(wide, !ta, turned ? m : n))
        return false;
    const struct factor left = {a, lda, m}, right = {b, ldb, n};
    const struct job job = {.sparse = turned ? &right : &left,
                            .dense = turned ? &left : &right,
                            .by_rows = !ta,
                            .turned = turned,
                            .k = k,
                            .beta = beta,
                            .c = c,
                            .ldc = ldc};
    struct space space;
    space.width = wide ? WIDTH_512 : WIDTH;
    for (int64_t col = 0; col < job.sparse->cols; col += COLUMNS)
        for (int64_t from = 0; from < job.dense->cols; from += PANEL)
            product(&space, &job, col, pst_min_i64(COLUMNS, job.sparse->cols - col), from,
                    pst_min_i64(PANEL, job.dense->cols - from));
    return true;
}

/* Zen 4 works on 512 bits in two halves, and AVX2 is faster there. */
bool pst_products_zeros(bool ta, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float beta, float *c, int64_t ldc)
{
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      !__builtin_cpu_is("amdfam19h");
    return pst_products_zeros_by(wide, ta, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

bool pst_products_can_zeros(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
