/* A GAT layer's kernels in double precision: the output against naive loops, and the gradients of everything
 * against central differences. */
#include "tests/gradient/numeric.h"
#include "common/util/rng.h"

struct layer {
    struct pst_block block;
    struct pst_gat gat;
    struct pst_dropout drop;
    int64_t *vertices;
    int64_t ld, ld_out;
    pst_real *z, *a_left, *a_right, *probe; /* the loss is the product of the output and the probe */
    pst_real *left, *right, *alpha, *alpha_self, *y;
};

static struct layer layer_new(int64_t dsts, int64_t heads, int64_t dim, bool average, float rate)
{
    const int64_t sources = dsts + (int64_t)random_below(20);
    struct layer l = {.block = numeric_block(dsts, sources), .gat = {heads, dim, average}};
    l.drop = (struct pst_dropout){.seed = 5, .epoch = 2, .layer = 1, .batch = 77, .rate = rate};
    l.ld = heads * dim + (int64_t)random_below(4);
    l.ld_out = pst_gat_width(&l.gat) + (int64_t)random_below(4);
    l.vertices = calloc((size_t)sources, sizeof *l.vertices);
    for (int64_t i = 0; i < sources; i++)
        l.vertices[i] = i * 1000003;
    l.z = reals(sources * l.ld);
    l.a_left = reals(heads * dim);
    l.a_right = reals(heads * dim);
    l.probe = reals(dsts * l.ld_out);
    l.left = zeros(dsts * heads);
    l.right = zeros(sources * heads);
    l.alpha = zeros(l.block.edges * heads);
    l.alpha_self = zeros(dsts * heads);
    l.y = zeros(dsts * l.ld_out);
    return l;
}

static void layer_free(struct layer *l)
{
    pst_real *all[] = {l->z,     l->a_left, l->a_right,    l->probe, l->left,
                       l->right, l->alpha,  l->alpha_self, l->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(l->vertices);
    numeric_block_free(&l->block);
}

/* In two blocks of rows, as tasks do it. */
static void forward(struct layer *l)
{
    const struct pst_block *b = &l->block;
    const int64_t half = b->dsts / 2;
    pst_k_gat_scores(NULL, &l->gat, l->z, l->ld, b->dsts, l->a_left, l->left);
    pst_k_gat_scores(NULL, &l->gat, l->z, l->ld, b->sources, l->a_right, l->right);
    for (int part = 0; part < 2; part++) {
        const int64_t first = part ? half : 0, n = part ? b->dsts - half : half;
        pst_k_gat_softmax(NULL, b, &l->gat, first, n, l->left, l->right, l->vertices, &l->drop, l->alpha,
                          l->alpha_self);
        pst_k_gat_sum(NULL, b, &l->gat, first, n, l->alpha, l->alpha_self, &l->drop, l->z, l->ld, l->y,
                      l->ld_out);
    }
    pst_k_bias_elu_dropout(NULL, l->y, l->ld_out, NULL, l->vertices, b->dsts, pst_gat_width(&l->gat),
                           &l->drop);
}

static double loss_of(void *ctx)
{
    struct layer *l = ctx;
    double loss = 0;
    forward(l);
    for (int64_t d = 0; d < l->block.dsts; d++)
        for (int64_t j = 0; j < pst_gat_width(&l->gat); j++)
            loss += l->y[d * l->ld_out + j] * l->probe[d * l->ld_out + j];
    return loss;
}

struct grads {
    pst_real *z, *a_left, *a_right;
};

static struct grads backward(struct layer *l)
{
    const struct pst_block *b = &l->block;
    const int64_t heads = l->gat.heads, columns = heads * l->gat.dim, half = columns / 2,
                  middle = b->dsts / 2;
    struct grads g = {zeros(b->sources * l->ld), zeros(columns), zeros(columns)};
    pst_real *grad = zeros(b->dsts * l->ld_out), *score = zeros(b->edges * heads),
             *self = zeros(b->dsts * heads), *left = zeros(b->dsts * heads),
             *right = zeros(b->sources * heads);
    memcpy(grad, l->probe, (size_t)(b->dsts * l->ld_out) * sizeof *grad);
    pst_k_bias_elu_dropout_grad(NULL, grad, l->ld_out, l->y, l->ld_out, l->vertices, b->dsts,
                                pst_gat_width(&l->gat), &l->drop, NULL);
    for (int part = 0; part < 2; part++)
        pst_k_gat_softmax_grad(NULL, b, &l->gat, part ? middle : 0, part ? b->dsts - middle : middle, l->left,
                               l->right, l->alpha, l->alpha_self, &l->drop, l->z, l->ld, grad, l->ld_out,
                               score, self, left);
    pst_k_gat_sum_grad(NULL, b, &l->gat, 0, half, l->alpha, l->alpha_self, &l->drop, grad, l->ld_out, g.z,
                       l->ld, score, self, NULL);
    pst_k_gat_sum_grad(NULL, b, &l->gat, half, columns - half, l->alpha, l->alpha_self, &l->drop, grad,
                       l->ld_out, g.z, l->ld, score, self, right);
    pst_k_gat_scores_grad(NULL, &l->gat, l->z, l->ld, b->sources, l->a_right, right, g.z, l->ld, g.a_right);
    pst_k_gat_scores_grad(NULL, &l->gat, l->z, l->ld, b->dsts, l->a_left, left, g.z, l->ld, g.a_left);
    free(grad);
    free(score);
    free(self);
    free(left);
    free(right);
    return g;
}

static void check_layer(struct layer *l)
{
    const int64_t columns = l->gat.heads * l->gat.dim;
    (void)loss_of(l);
    struct grads g = backward(l);
    check_numeric(loss_of, l, l->z, l->block.sources * l->ld, g.z, "rows");
    check_numeric(loss_of, l, l->a_left, columns, g.a_left, "the destinations' vector");
    check_numeric(loss_of, l, l->a_right, columns, g.a_right, "the sources' vector");
    free(g.z);
    free(g.a_left);
    free(g.a_right);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int turn = 0; turn < 96; turn++) {
        struct layer l = layer_new(1 + (int64_t)random_below(15), 1 + turn % 8, 1 + (int64_t)random_below(20),
                                   turn & 8, turn % 3 ? 0.3f : 0);
        check_layer(&l);
        layer_free(&l);
    }
}

/* More heads than one draw of dropout decides, and more columns than one panel of sums. */
static void test_wide(void **state)
{
    (void)state;
    struct layer many = layer_new(12, 19, 3, true, 0.4f), wide = layer_new(12, 2, 300, false, 0.4f);
    check_layer(&many);
    check_layer(&wide);
    layer_free(&many);
    layer_free(&wide);
}

/* ---- against naive loops ------------------------------------------------------------------------- */

static double product(const pst_real *a, const pst_real *b, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

static double weight_of(const struct layer *l, int64_t d, int64_t u, int64_t h)
{
    const int64_t at = h * l->gat.dim;
    const double score = product(l->z + d * l->ld + at, l->a_left + at, l->gat.dim) +
                         product(l->z + u * l->ld + at, l->a_right + at, l->gat.dim);
    return exp(score < 0 ? 0.2 * score : score);
}

/* 1 over the share that is kept, or 0: from what rng.h and kernels.h say. */
static double kept(const struct layer *l, int64_t d, int64_t u, int64_t h)
{
    const struct pst_dropout *o = &l->drop;
    const struct pst_rng_stream s =
        pst_rng_stream_of(PST_RNG_ATTENTION, o->seed, o->epoch, o->batch, o->layer);
    const struct pst_rng_block v = pst_rng_draw(&s, (uint64_t)l->vertices[d], 0);
    const struct pst_rng_stream of_v = {{v.word[0], v.word[1]}, v.word[2]};
    const uint32_t word =
        pst_rng_draw(&of_v, (uint64_t)l->vertices[u], (uint32_t)(h / 8)).word[h % 8 / 2] >> (h % 2 * 16);
    const double share = pst_dropout_share(o->rate);
    return (double)(word & 0xFFFF) / 65536 < share ? 0 : 1 / (1 - share);
}

static double naive(const struct layer *l, int64_t d, int64_t h, int64_t j)
{
    const int32_t begin = l->block.indptr[d], end = l->block.indptr[d + 1];
    double sum = weight_of(l, d, d, h);
    double out = sum * kept(l, d, d, h) * l->z[d * l->ld + h * l->gat.dim + j];
    for (int32_t e = begin; e < end; e++) {
        const int64_t u = l->block.indices[e];
        const double weight = weight_of(l, d, u, h);
        sum += weight;
        out += weight * kept(l, d, u, h) * l->z[u * l->ld + h * l->gat.dim + j];
    }
    return out / sum;
}

static void check_output(const struct layer *l, int64_t d, int64_t j)
{
    double wanted = 0;
    if (l->gat.average)
        for (int64_t h = 0; h < l->gat.heads; h++)
            wanted += naive(l, d, h, j) / (double)l->gat.heads;
    else
        wanted = naive(l, d, j / l->gat.dim, j % l->gat.dim);
    check_near(l->y[d * l->ld_out + j], wanted, "output");
}

static void test_output(void **state)
{
    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        struct layer l = layer_new(1 + (int64_t)random_below(15), 1 + turn % 10,
                                   1 + (int64_t)random_below(40), turn & 1, turn % 3 ? 0.3f : 0);
        forward(&l);
        pst_k_gat_sum(NULL, &l.block, &l.gat, 0, l.block.dsts, l.alpha, l.alpha_self, &l.drop, l.z, l.ld, l.y,
                      l.ld_out);
        for (int64_t d = 0; d < l.block.dsts; d++)
            for (int64_t j = 0; j < pst_gat_width(&l.gat); j++)
                check_output(&l, d, j);
        layer_free(&l);
    }
}

/* Scores in the thousands do not overflow: all attention goes to the largest. */
static void test_far_scores(void **state)
{
    (void)state;
    struct layer l = layer_new(8, 2, 5, false, 0);
    for (int64_t i = 0; i < 10; i++)
        l.a_right[i] *= 5000;
    forward(&l);
    for (int64_t d = 0; d < l.block.dsts; d++) {
        double sum[2] = {l.alpha_self[2 * d], l.alpha_self[2 * d + 1]};
        for (int32_t e = l.block.indptr[d]; e < l.block.indptr[d + 1]; e++)
            for (int h = 0; h < 2; h++)
                sum[h] += l.alpha[2 * e + h];
        check_near(sum[0], 1, "sum of coefficients");
        check_near(sum[1], 1, "sum of coefficients");
    }
    layer_free(&l);
}

/* ELU: bias, both signs, NaN; a third is dropped. */
static void test_elu(void **state)
{
    (void)state;
    enum { N = 300, DIM = 100 };
    pst_real *x = reals(N * DIM), *y = reals(N * DIM), *bias = reals(DIM), *sums = zeros(DIM),
             *grad = reals(N * DIM);
    int64_t vertices[N], zero = 0;
    for (int64_t i = 0; i < N; i++)
        vertices[i] = i * 31;
    memcpy(y, x, N * DIM * sizeof *y);
    y[7 * DIM + 3] = NAN;
    const struct pst_dropout drop = {.seed = 3, .rate = 1.0f / 3};
    const double scale = 1 / (1 - pst_dropout_share(drop.rate));
    pst_k_bias_elu_dropout(NULL, y, DIM, bias, vertices, N, DIM, &drop);
    for (int64_t i = 0; i < N * DIM; i++) {
        const double v = x[i] + bias[i % DIM], wanted = (v > 0 ? v : expm1(v)) * scale;
        if (i == 7 * DIM + 3)
            assert_true(isnan(y[i]));
        else if (y[i] == 0)
            zero++;
        else
            check_near(y[i], wanted, "ELU");
    }
    assert_true(fabs((double)zero / (N * DIM) - 1.0 / 3) < 0.02);
    pst_k_bias_elu_dropout_grad(NULL, grad, DIM, y, DIM, vertices, 7, DIM, &drop, sums);
    for (int j = 0; j < DIM; j++) {
        double sum = 0;
        for (int i = 0; i < 7; i++)
            sum += grad[i * DIM + j];
        check_near(sums[j], sum, "gradient of the bias");
    }
    free(x);
    free(y);
    free(bias);
    free(sums);
    free(grad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_wide), cmocka_unit_test(test_output),
        cmocka_unit_test(test_far_scores), cmocka_unit_test(test_elu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
