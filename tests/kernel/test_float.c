/* Float kernels against naive loops, over shapes that include nothing, one and primes. */
#include "tests/products/product_checks.h"

static void check_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, float beta,
                       int threads)
{
    check_gemm_of(pst_twin_cpu(), exact, ta, tb, m, n, k, alpha, beta, threads);
}

static void test_gemm(void **state)
{
    (void)state;
    for (int turn = 0; turn < 300; turn++)
        check_gemm(turn & 1, turn & 2, some_size(), some_size(), some_size(), turn % 3 ? 1.0f : 0.5f,
                   turn % 5 == 0   ? 0.0f
                   : turn % 5 == 1 ? -0.5f
                                   : 1.0f,
                   1 + turn % 2);
    check_gemm(true, false, 1433, 64, 500, 1, 1, 2);
    check_gemm(false, false, 700, 64, 1433, 1, 0, 2);
}

/* A block with degrees 0..9. */
struct block {
    int64_t dsts, srcs;
    int32_t *indptr, *indices;
};

static struct block random_block(int64_t dsts, int64_t srcs)
{
    struct block b = {.dsts = dsts, .srcs = srcs};
    b.indptr = calloc((size_t)dsts + 1, sizeof *b.indptr);
    b.indices = calloc((size_t)dsts * 10 + 1, sizeof *b.indices);
    for (int64_t d = 0; d < dsts; d++) {
        const int32_t degree = srcs ? (int32_t)random_below(10) : 0;
        for (int32_t e = 0; e < degree; e++)
            b.indices[b.indptr[d] + e] = (int32_t)random_below((uint64_t)srcs);
        b.indptr[d + 1] = b.indptr[d] + degree;
    }
    return b;
}

static void check_mean(int64_t dsts, int64_t srcs, int64_t dim)
{
    struct block b = random_block(dsts, srcs);
    const int64_t ld_in = dim + (int64_t)random_below(4), ld_out = dim + (int64_t)random_below(4);
    float *in = random_array(srcs * ld_in), *out = random_array(dsts * ld_out),
          *grad = random_array(srcs * ld_in);
    double *want = malloc((size_t)(srcs * ld_in + 1) * sizeof *want);
    for (int64_t i = 0; i < srcs * ld_in; i++)
        want[i] = (double)grad[i];
    const struct pst_twin_view rows = {.at = in, .ld = ld_in};
    pst_k_mean(NULL, b.indptr, b.indices, dsts, &rows, out, ld_out, dim);
    pst_k_mean_grad(NULL, b.indptr, b.indices, dsts, out, ld_out, grad, ld_in, dim);
    for (int64_t d = 0; d < dsts; d++) {
        const int64_t degree = b.indptr[d + 1] - b.indptr[d];
        for (int64_t j = 0; j < dim; j++) {
            double sum = 0;
            for (int64_t e = b.indptr[d]; e < b.indptr[d + 1]; e++) {
                sum += (double)in[b.indices[e] * ld_in + j];
                want[b.indices[e] * ld_in + j] += (double)out[d * ld_out + j] / (double)degree;
            }
            assert_close((double)out[d * ld_out + j], degree ? sum / (double)degree : 0, 1);
        }
    }
    for (int64_t i = 0; i < srcs * ld_in; i++)
        assert_close((double)grad[i], want[i], 4 + (double)dsts / (double)srcs);
    free(b.indptr);
    free(b.indices);
    free(in);
    free(out);
    free(grad);
    free(want);
}

static void test_mean(void **state)
{
    (void)state;
    for (int turn = 0; turn < 200; turn++)
        check_mean(some_size(), some_size(), some_size());
}

static int compare_i32(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void sort_rows(struct block *b, int64_t *wide)
{
    for (int d = 0; d < 97; d++)
        qsort(b->indices + b->indptr[d], (size_t)(b->indptr[d + 1] - b->indptr[d]), sizeof *b->indices,
              compare_i32);
    for (int32_t e = 0; e < b->indptr[97]; e++)
        wide[e] = b->indices[e];
}

/* Sums of rows of which some are elsewhere have the bits of the same sums of rows side by side. */
static void test_rows_elsewhere(void **state)
{
    enum { DSTS = 41, SOURCES = 53 };
    (void)state;
    for (int turn = 0; turn < 60; turn++) {
        struct block b = random_block(DSTS, SOURCES);
        const int64_t dim = 1 + some_size(), ld = dim + (int64_t)random_below(4), edges = b.indptr[DSTS];
        float *in = random_array(SOURCES * ld), *rows = random_array(SOURCES * ld),
              *other = random_array(SOURCES * ld), *want = random_array(DSTS * dim),
              *found = random_array(DSTS * dim), *weight = random_array(edges), *self = random_array(DSTS);
        int32_t elsewhere[SOURCES];
        memcpy(rows, in, sizeof *in * (size_t)(SOURCES * ld));
        move_rows(rows, sizeof *rows * (size_t)ld, SOURCES, elsewhere, other);
        const struct pst_twin_view whole = {.at = in, .ld = ld},
                                   view = {.at = rows, .ld = ld, .elsewhere = elsewhere, .other = other};
        const struct pst_block block = {b.indptr, b.indices, DSTS, edges, SOURCES};
        pst_k_mean(NULL, b.indptr, b.indices, DSTS, &whole, want, dim, dim);
        pst_k_mean(NULL, b.indptr, b.indices, DSTS, &view, found, dim, dim);
        assert_memory_equal(want, found, sizeof *want * (size_t)(DSTS * dim));
        pst_k_weighted_sum(NULL, &block, 0, DSTS, weight, self, &whole, want, dim, dim);
        pst_k_weighted_sum(NULL, &block, 0, DSTS, weight, self, &view, found, dim, dim);
        assert_memory_equal(want, found, sizeof *want * (size_t)(DSTS * dim));
        free(in);
        free(rows);
        free(other);
        free(want);
        free(found);
        free(weight);
        free(self);
        free(b.indptr);
        free(b.indices);
    }
}

/* Gradients of sums, source by source and in pieces, have the bits of those that scatter. */
static void test_by_source(void **state)
{
    (void)state;
    for (int turn = 0; turn < 120; turn++) {
        const int64_t dsts = some_size(), sources = dsts + some_size(), dim = some_size(),
                      ld = dim + (int64_t)random_below(4), kept = turn % 3 == 0 ? 0 : dsts;
        const bool weighted = turn % 2 != 0;
        struct block b = random_block(dsts, sources);
        const struct pst_block block = {b.indptr, b.indices, dsts, b.indptr[dsts], sources};
        float *from = random_array(dsts * ld), *want = random_array(sources * ld),
              *found = random_array(sources * ld), *weight = random_array(block.edges),
              *self = random_array(dsts), *shares = random_array(block.edges);
        struct pst_block_by_source edges = {malloc(((size_t)sources + 1) * sizeof(int32_t)),
                                            malloc(((size_t)block.edges + 1) * sizeof(int32_t)), shares};
        for (int64_t i = 0; i < sources * ld; i++)
            want[i] = i < kept * ld ? found[i] : i % ld < dim ? 0 : found[i];
        if (weighted)
            pst_k_weighted_sum_grad(NULL, &block, weight, self, from, ld, want, ld, dim);
        else
            pst_k_mean_grad(NULL, b.indptr, b.indices, dsts, from, ld, want, ld, dim);
        pst_k_by_source(&block, weighted ? weight : NULL, &edges);
        assert_true(edges.begin[0] == 0 && edges.begin[sources] == block.edges);
        for (int64_t at = 0, n; at < sources; at += n) {
            n = pst_min_i64(1 + (int64_t)random_below(40), sources - at);
            pst_k_sum_by_source(&edges, weighted ? self : NULL, dsts, at, n, kept, from, ld, found, ld, dim);
        }
        assert_memory_equal(want, found, sizeof *want * (size_t)(sources * ld));
        free(from);
        free(want);
        free(found);
        free(weight);
        free(self);
        free(shares);
        free(edges.begin);
        free(edges.dst);
        free(b.indptr);
        free(b.indices);
    }
}

static void test_mean_csc(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct block b = random_block(97, 97);
        int64_t indptr[98], *wide_indices = malloc((size_t)b.indptr[97] * sizeof *wide_indices + 1);
        for (int i = 0; i < 98; i++)
            indptr[i] = b.indptr[i];
        for (int32_t e = 0; e < b.indptr[97]; e++)
            wide_indices[e] = b.indices[e];
        struct pst_csc g = {.indptr = indptr,
                            .indices = wide ? (const void *)wide_indices : (const void *)b.indices,
                            .index_bytes = wide ? 8 : 4,
                            .vertices = 97,
                            .edges = indptr[97]};
        float *in = random_array(97 * 31), *all = random_array(97 * 31), *part = random_array(97 * 31);
        int64_t cursor[97];
        pst_k_mean(NULL, b.indptr, b.indices, 97, &(struct pst_twin_view){.at = in, .ld = 31}, all, 31, 31);
        assert_int_equal(pst_k_mean_csc(NULL, &g, 0, 0, 0, 97, in, 31, cursor, part, 31, 31), PST_OK);
        for (int64_t first = 0; first < 97; first += 20)
            assert_int_equal(pst_k_mean_csc(NULL, &g, first, first + 20 > 97 ? 97 - first : 20, 0, 97, in, 31,
                                            cursor + first, part + first * 31, 31, 31),
                             PST_OK);
        assert_memory_equal(all, part, sizeof(float) * 97 * 31);
        sort_rows(&b, wide_indices);
        pst_k_mean(NULL, b.indptr, b.indices, 97, &(struct pst_twin_view){.at = in, .ld = 31}, all, 31, 31);
        for (int64_t width = 1; width < 97; width = width * 2 + 1) { /* in parts: the same bits */
            for (int64_t from = 0; from < 97; from += width) {
                const int64_t to = pst_min_i64(97, from + width);
                assert_int_equal(
                    pst_k_mean_csc(NULL, &g, 0, 97, from, to, in + from * 31, 31, cursor, part, 31, 31),
                    PST_OK);
            }
            assert_memory_equal(all, part, sizeof(float) * 97 * 31);
        }
        int64_t row = 0; /* with at least two neighbours: they must ascend where there are parts */
        while (indptr[row + 1] - indptr[row] < 2)
            row++;
        const int32_t before[2] = {b.indices[indptr[row]], b.indices[indptr[row] + 1]};
        b.indices[indptr[row]] = 96;
        wide_indices[indptr[row]] = 96;
        b.indices[indptr[row] + 1] = 0;
        wide_indices[indptr[row] + 1] = 0;
        assert_int_equal(pst_k_mean_csc(NULL, &g, 0, 97, 0, 50, in, 31, cursor, part, 31, 31), PST_OK);
        assert_int_equal(pst_k_mean_csc(NULL, &g, 0, 97, 50, 97, in + 50 * 31, 31, cursor, part, 31, 31),
                         PST_E_FORMAT);
        for (int i = 0; i < 2; i++)
            wide_indices[indptr[row] + i] = b.indices[indptr[row] + i] = before[i];
        b.indices[5] = 97;
        wide_indices[5] = -1;
        assert_int_equal(pst_k_mean_csc(NULL, &g, 0, 97, 0, 97, in, 31, cursor, part, 31, 31), PST_E_FORMAT);
        b.indices[5] = 0;
        wide_indices[5] = 0;
        indptr[4] = indptr[97] + 1;
        assert_int_equal(pst_k_mean_csc(NULL, &g, 0, 97, 0, 97, in, 31, cursor, part, 31, 31), PST_E_FORMAT);
        free(b.indptr);
        free(b.indices);
        free(wide_indices);
        free(in);
        free(all);
        free(part);
    }
}

/* What rng.h says of one column of one vertex. */
static double kept(const struct pst_dropout *drop, int64_t vertex, int64_t column)
{
    const struct pst_rng_stream s =
        pst_rng_stream_of(PST_RNG_DROPOUT, drop->seed, drop->epoch, drop->batch, drop->layer);
    const uint32_t word = pst_rng_draw(&s, (uint64_t)vertex, (uint32_t)(column / 128 * 16 + column % 16))
                              .word[column % 128 / 32];
    const uint32_t bits = column % 32 < 16 ? word & 0xFFFF : word >> 16;
    const double share = round((double)drop->rate * 65536) / 65536;
    return (double)bits / 65536 < share ? 0 : 1 / (1 - share);
}

static void check_fused(int64_t n, int64_t dim, bool relu, bool with_bias, float rate)
{
    const int64_t ld = dim + (int64_t)random_below(4);
    float *x = random_array(n * ld), *y = malloc((size_t)(n * ld + 1) * sizeof *y), *bias = random_array(dim);
    float *grad = random_array(n * ld), *g = malloc((size_t)(n * ld + 1) * sizeof *g),
          *gb = random_array(dim);
    double *want = malloc((size_t)(dim + 1) * sizeof *want);
    int64_t *vertices = malloc((size_t)(n + 1) * sizeof *vertices);
    for (int64_t i = 0; i < n; i++)
        vertices[i] = (int64_t)random_below(1ull << 40);
    for (int64_t j = 0; j < dim; j++)
        want[j] = (double)gb[j];
    memcpy(y, x, (size_t)(n * ld + 1) * sizeof *y);
    memcpy(g, grad, (size_t)(n * ld + 1) * sizeof *g);
    const struct pst_dropout drop = {.seed = 1ull << 40, .epoch = 3, .layer = 2, .batch = 9, .rate = rate};
    pst_k_bias_relu_dropout(NULL, y, ld, with_bias ? bias : NULL, vertices, n, dim, relu, &drop);
    pst_k_bias_relu_dropout_grad(NULL, g, ld, y, ld, vertices, n, dim, relu, &drop, with_bias ? gb : NULL);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < ld; j++) {
            double v = (double)x[i * ld + j], d = (double)grad[i * ld + j];
            if (j < dim) {
                const double factor = rate > 0 ? kept(&drop, vertices[i], j) : 1;
                const double sum = with_bias ? (double)(x[i * ld + j] + bias[j]) : v;
                v = (relu && sum < 0 ? 0 : sum) * factor;
                d *= relu && sum <= 0 ? 0 : factor;
                want[j] += d;
            }
            assert_close((double)y[i * ld + j], v, 1);
            assert_close((double)g[i * ld + j], d, 1);
        }
    }
    for (int64_t j = 0; with_bias && j < dim; j++)
        assert_close((double)gb[j], want[j], 10);
    free(x);
    free(y);
    free(bias);
    free(grad);
    free(g);
    free(gb);
    free(want);
    free(vertices);
}

static void test_fused(void **state)
{
    (void)state;
    for (int turn = 0; turn < 240; turn++)
        check_fused(some_size(), some_size(), turn & 1, turn & 2, turn % 3 ? 0.3f : 0);
    check_fused(5, 263, true, true, 0.5f);
    check_fused(3, 600, false, true, 0.9f);
}

/* Half of the columns are dropped, and the rest doubled; a NaN survives. */
static void test_dropout_rate(void **state)
{
    (void)state;
    enum { N = 1000, DIM = 100 };
    float *x = malloc(N * DIM * sizeof *x);
    int64_t vertices[N], zeros = 0;
    for (int i = 0; i < N * DIM; i++)
        x[i] = 1;
    for (int i = 0; i < N; i++)
        vertices[i] = i;
    const struct pst_dropout drop = {.rate = 0.5f};
    pst_k_bias_relu_dropout(NULL, x, DIM, NULL, vertices, N, DIM, true, &drop);
    for (int i = 0; i < N * DIM; i++) {
        assert_true(x[i] == 0 || x[i] == 2);
        zeros += x[i] == 0;
    }
    assert_in_range(zeros, 50000 - 6 * 158, 50000 + 6 * 158); /* six standard deviations */
    const struct pst_dropout none = {0};
    x[0] = NAN;
    pst_k_bias_relu_dropout(NULL, x, DIM, NULL, vertices, 1, DIM, true, &none);
    assert_true(isnan(x[0]));
    free(x);
}

static void check_norm(int64_t n, int64_t dim, bool batch)
{
    const int64_t ld = dim + (int64_t)random_below(4);
    float *x = random_array(n * ld), *y = malloc((size_t)(n * ld + 1) * sizeof *y);
    float *gain = random_array(dim), *shift = random_array(dim), *xhat = random_array(n * dim);
    float *rstd = random_array(n + dim), *mean = random_array(dim), *variance = random_array(dim);
    memcpy(y, x, (size_t)(n * ld + 1) * sizeof *y);
    const double mean0 = (double)mean[0], variance0 = (double)variance[0];
    if (batch)
        pst_k_batch_norm(NULL, y, ld, n, dim, gain, shift, xhat, rstd, mean, variance, 0.1f);
    else
        pst_k_layer_norm(NULL, y, ld, n, dim, gain, shift, xhat, rstd);
    const int64_t groups = batch ? dim : n, members = batch ? n : dim;
    for (int64_t a = 0; a < groups; a++) {
        double sum = 0, squares = 0;
        for (int64_t b = 0; b < members; b++)
            sum += (double)(batch ? x[b * ld + a] : x[a * ld + b]);
        sum /= (double)members;
        for (int64_t b = 0; b < members; b++) {
            const double off = (double)(batch ? x[b * ld + a] : x[a * ld + b]) - sum;
            squares += off * off;
        }
        const double inverse = 1 / sqrt(squares / (double)members + PST_NORM_EPS);
        for (int64_t b = 0; b < members; b++) {
            const int64_t i = batch ? b : a, j = batch ? a : b;
            const double hat = ((double)x[i * ld + j] - sum) * inverse;
            assert_close((double)xhat[i * dim + j], hat, 1);
            assert_close((double)y[i * ld + j], hat * (double)gain[j] + (double)shift[j], 2);
        }
        if (members > 0)
            assert_close((double)rstd[a], inverse, 1);
        if (batch && a == 0 && n > 1) {
            assert_close((double)mean[0], 0.9 * mean0 + 0.1 * sum, 1);
            assert_close((double)variance[0], 0.9 * variance0 + 0.1 * squares / (double)(n - 1), 1);
        } else if (batch && a == 0) {
            assert_true((double)mean[0] == mean0 && (double)variance[0] == variance0);
        }
    }
    free(x);
    free(y);
    free(gain);
    free(shift);
    free(xhat);
    free(rstd);
    free(mean);
    free(variance);
}

static void test_norm(void **state)
{
    (void)state;
    for (int turn = 0; turn < 200; turn++) {
        const int64_t dim = some_size();
        if (dim > 0)
            check_norm(some_size(), dim, turn % 2);
    }
}

static void test_xent(void **state)
{
    (void)state;
    enum { N = 31, C = 7, LD = 9 };
    float *x = random_array(N * LD), *grad = random_array(N * LD);
    int32_t labels[N];
    double loss = 1, want = 1;
    int64_t correct = 2, counted = 3, hits = 2, rows = 3;
    for (int i = 0; i < N; i++)
        labels[i] = (int32_t)random_below(C + 1) - 1;
    labels[0] = -1;
    x[3 * LD] = 800; /* must not overflow */
    pst_k_softmax_xent(NULL, x, LD, labels, N, C, 31, grad, LD, &loss, &correct, &counted);
    for (int i = 0; i < N; i++) {
        double most = -1e9, sum = 0;
        int best = 0;
        for (int c = 0; c < C; c++) {
            if ((double)x[i * LD + c] > most) {
                most = (double)x[i * LD + c];
                best = c;
            }
        }
        for (int c = 0; c < C; c++)
            sum += exp((double)x[i * LD + c] - most);
        if (labels[i] >= 0) {
            want += (log(sum) + most - (double)x[i * LD + labels[i]]) / 31;
            hits += best == labels[i];
            rows++;
        }
        for (int c = 0; c < C; c++) {
            const double p = exp((double)x[i * LD + c] - most) / sum;
            assert_close((double)grad[i * LD + c], labels[i] < 0 ? 0 : (p - (c == labels[i])) / 31, 0.1);
        }
    }
    assert_close(loss, want, 0);
    assert_int_equal(correct, hits);
    assert_int_equal(counted, rows);
    x[5] = NAN;
    labels[0] = 1;
    pst_k_softmax_xent(NULL, x, LD, labels, N, C, 31, NULL, 0, &loss, &correct, &counted);
    assert_true(isnan(loss));
    free(x);
    free(grad);
}

static void test_adam(void **state)
{
    (void)state;
    enum { N = 37 };
    float *w = random_array(N), *m = calloc(N, sizeof *m), *v = calloc(N, sizeof *v);
    double dw[N], dm[N] = {0}, dv[N] = {0};
    for (int i = 0; i < N; i++)
        dw[i] = (double)w[i];
    for (int step = 1; step <= 20; step++) {
        float *g = random_array(N);
        const struct pst_adam opt = {0.01, 0.9, 0.999, 1e-8, 0.1, step, false};
        pst_k_adam(NULL, &opt, w, g, m, v, N);
        for (int i = 0; i < N; i++) {
            const double grad = (double)g[i] + 0.1 * dw[i];
            dm[i] = 0.9 * dm[i] + 0.1 * grad;
            dv[i] = 0.999 * dv[i] + 0.001 * grad * grad;
            dw[i] -= 0.01 * dm[i] / (1 - pow(0.9, step)) / (sqrt(dv[i] / (1 - pow(0.999, step))) + 1e-8);
            assert_close((double)w[i], dw[i], 10);
        }
        free(g);
    }
    free(w);
    free(m);
    free(v);
}

static void test_widen(void **state)
{
    (void)state;
    /* 1, -2, 65504, smallest subnormal, largest subnormal, 0, -0, infinity; then a NaN. */
    const uint16_t half[9] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x03FF, 0, 0x8000, 0x7C00, 0x7E01};
    const float want[8] = {1, -2, 65504, 0x1p-24f, 0x1.ff8p-15f, 0, -0.0f, INFINITY};
    float out[9];
    pst_k_widen(NULL, half, sizeof half, false, out, 9, 1, 9);
    assert_memory_equal(out, want, sizeof want);
    assert_true(isnan(out[8]));
    const uint16_t brain[4] = {0x3F80, 0xC049, 0x0001, 0x7F80};
    const float wide[4] = {1, -3.140625f, 0x1p-133f, INFINITY};
    pst_k_widen(NULL, brain, 4, true, out, 2, 2, 2);
    assert_memory_equal(out, wide, sizeof wide);
}

static void test_add_affine(void **state)
{
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6};
    const float y[4] = {10, 20, 30, 40}, scale[2] = {2, 3}, offset[2] = {1, -1};
    const float sum[6] = {11, 22, 3, 34, 45, 6}, want[6] = {23, 65, 3, 69, 134, 6};
    pst_k_add(NULL, x, 3, y, 2, 2, 2);
    assert_memory_equal(x, sum, sizeof sum);
    pst_k_affine(NULL, x, 3, 2, 2, scale, offset);
    assert_memory_equal(x, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),           cmocka_unit_test(test_mean),
        cmocka_unit_test(test_mean_csc),       cmocka_unit_test(test_fused),
        cmocka_unit_test(test_dropout_rate),   cmocka_unit_test(test_norm),
        cmocka_unit_test(test_xent),           cmocka_unit_test(test_adam),
        cmocka_unit_test(test_widen),          cmocka_unit_test(test_add_affine),
        cmocka_unit_test(test_rows_elsewhere), cmocka_unit_test(test_by_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
