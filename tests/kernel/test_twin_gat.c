/* The twins of a GAT's kernels: relative error, norm-wise, of at most 1e-5, and the same coefficients are
 * dropped. The CPU works in two blocks of rows or groups of columns, CUDA at once. */
#include "tests/kernel/twin_block.h"

struct layer {
    struct block b;
    struct pst_gat gat;
    struct pst_dropout drop;
    int64_t columns, middle; /* of z; where the CPU's second block of rows begins */
    struct both vertices, left, right, alpha, alpha_self;
    bool alone;           /* destinations are not sources: the kernels get no alpha_self */
    struct matrix z, out; /* out is the output, or its gradient */
};

static struct pst_dropout random_dropout(void)
{
    const struct pst_dropout drop = {rnd(UINT64_MAX), (uint32_t)rnd(50), (uint32_t)rnd(4), rnd(1u << 20),
                                     rnd(3) ? (float)rnd(1000) / 1001.0f : 0};
    return drop;
}

/* 1 to 8 heads of 1 to 300 columns. */
static struct layer layer_new(void)
{
    const int64_t dsts = size_below(60), sources = dsts + size_below(100), heads = 1 + (int64_t)rnd(8);
    const int64_t dim = 1 + size_below(rnd(6) ? 31 : 299);
    struct layer l = {.b = block_new(dsts, sources),
                      .gat = {heads, dim, rnd(2)},
                      .drop = random_dropout(),
                      .alone = rnd(3) == 0,
                      .columns = heads * dim,
                      .middle = (int64_t)rnd((uint64_t)dsts + 1),
                      .vertices = both_new((size_t)sources * sizeof(int64_t)),
                      .left = floats_new(dsts * heads),
                      .right = floats_new(sources * heads)};
    if (l.alone)
        l.drop.rate = 0;
    l.alpha = floats_new(l.b.edges * heads);
    l.alpha_self = floats_new(dsts * heads);
    l.z = matrix_new(sources, l.columns);
    l.out = matrix_new(dsts, pst_gat_width(&l.gat));
    for (int64_t i = 0; i < sources; i++)
        ((int64_t *)l.vertices.host)[i] = (int64_t)rnd((uint64_t)1 << 40);
    for (int64_t i = 0; i < sources * heads; i++)
        ((float *)l.right.host)[i] *= rnd(50) ? 4 : 100;
    send(&l.vertices);
    send(&l.right);
    return l;
}

static void *own(const struct layer *l, void *alpha_self)
{
    return l->alone ? NULL : alpha_self;
}

/* Does a destination have two different sources? The gradient of a single coefficient, 1, is what rounding
 * leaves of 0. */
static bool has_gradient(const struct layer *l)
{
    const int32_t *indptr = l->b.on_host.indptr, *indices = l->b.on_host.indices;
    for (int64_t d = 0; d < l->b.dsts; d++)
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            if (!l->alone || indices[e] != indices[indptr[d]])
                return true;
    return false;
}

static void layer_free(struct layer *l)
{
    struct both *all[] = {&l->vertices, &l->left, &l->right, &l->alpha, &l->alpha_self};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        both_free(all[i]);
    matrix_free(&l->z);
    matrix_free(&l->out);
    block_free(&l->b);
}

static void test_scores(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        struct both a = floats_new(l.columns);
        cpu->gat_scores(NULL, &l.gat, host(&l.z), l.z.ld, l.b.sources, a.host, l.right.host);
        cuda->gat_scores(queue, &l.gat, device(&l.z), l.z.ld, l.b.sources, a.device, l.right.device);
        close_floats(&l.right, LIMIT, "products with the vector");
        both_free(&a);
        layer_free(&l);
    }
}

static void test_scores_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        struct both a = floats_new(l.columns), grad_a = floats_new(l.columns);
        struct matrix grad = matrix_new(l.b.sources, l.columns);
        cpu->gat_scores_grad(NULL, &l.gat, host(&l.z), l.z.ld, l.b.sources, a.host, l.right.host, host(&grad),
                             grad.ld, grad_a.host);
        cuda->gat_scores_grad(queue, &l.gat, device(&l.z), l.z.ld, l.b.sources, a.device, l.right.device,
                              device(&grad), grad.ld, grad_a.device);
        close_floats(&grad.all, LIMIT, "gradient of the rows");
        close_floats(&grad_a, LIMIT, "gradient of the vector");
        matrix_free(&grad);
        both_free(&a);
        both_free(&grad_a);
        layer_free(&l);
    }
}

static void cpu_softmax(struct layer *l)
{
    for (int part = 0; part < 2; part++)
        cpu->gat_softmax(NULL, &l->b.on_host, &l->gat, part ? l->middle : 0,
                         part ? l->b.dsts - l->middle : l->middle, l->left.host, l->right.host,
                         l->vertices.host, &l->drop, l->alpha.host, own(l, l->alpha_self.host));
}

/* How many sign bits differ: dropped coefficients have them set, zeros too. */
static int64_t signs_differ(const struct both *b)
{
    float *got = fetched(b);
    int64_t differ = 0;
    for (size_t i = 0; i < b->bytes / sizeof *got; i++)
        differ += !signbit(got[i]) != !signbit(((float *)b->host)[i]);
    free(got);
    return differ;
}

static void test_softmax(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        cpu_softmax(&l);
        cuda->gat_softmax(queue, &l.b.on_device, &l.gat, 0, l.b.dsts, l.left.device, l.right.device,
                          l.vertices.device, &l.drop, l.alpha.device, own(&l, l.alpha_self.device));
        close_floats(&l.alpha, LIMIT, "coefficients of edges");
        close_floats(&l.alpha_self, LIMIT, "coefficients of the vertices themselves");
        assert_int_equal(signs_differ(&l.alpha) + signs_differ(&l.alpha_self), 0);
        layer_free(&l);
    }
}

static void test_sum(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        for (int part = 0; part < 2; part++)
            cpu->gat_sum(NULL, &l.b.on_host, &l.gat, part ? l.middle : 0,
                         part ? l.b.dsts - l.middle : l.middle, l.alpha.host, own(&l, l.alpha_self.host),
                         &l.drop, host(&l.z), l.z.ld, host(&l.out), l.out.ld);
        cuda->gat_sum(queue, &l.b.on_device, &l.gat, 0, l.b.dsts, l.alpha.device,
                      own(&l, l.alpha_self.device), &l.drop, device(&l.z), l.z.ld, device(&l.out), l.out.ld);
        close_floats(&l.out.all, LIMIT, "sums");
        layer_free(&l);
    }
}

static void test_softmax_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        struct both score = floats_new(l.b.edges * l.gat.heads), self = floats_new(l.b.dsts * l.gat.heads),
                    left = floats_new(l.b.dsts * l.gat.heads);
        cpu_softmax(&l);
        send(&l.alpha);
        send(&l.alpha_self);
        for (int part = 0; part < 2; part++)
            cpu->gat_softmax_grad(NULL, &l.b.on_host, &l.gat, part ? l.middle : 0,
                                  part ? l.b.dsts - l.middle : l.middle, l.left.host, l.right.host,
                                  l.alpha.host, own(&l, l.alpha_self.host), &l.drop, host(&l.z), l.z.ld,
                                  host(&l.out), l.out.ld, score.host, self.host, left.host);
        cuda->gat_softmax_grad(queue, &l.b.on_device, &l.gat, 0, l.b.dsts, l.left.device, l.right.device,
                               l.alpha.device, own(&l, l.alpha_self.device), &l.drop, device(&l.z), l.z.ld,
                               device(&l.out), l.out.ld, score.device, self.device, left.device);
        settled(PST_OK); /* before the memory is freed, whatever is compared */
        if (has_gradient(&l)) {
            close_floats(&score, LIMIT, "gradient of the edges' scores");
            close_floats(&self, LIMIT, "gradient of the vertices' own scores");
        }
        both_free(&score);
        both_free(&self);
        both_free(&left);
        layer_free(&l);
    }
}

static void test_sum_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct layer l = layer_new();
        struct both score = floats_new(l.b.edges * l.gat.heads), self = floats_new(l.b.dsts * l.gat.heads);
        const int64_t half = (int64_t)rnd((uint64_t)l.columns + 1), first = rnd(2) ? 0 : half;
        const bool right = rnd(4);
        cpu->gat_sum_grad(NULL, &l.b.on_host, &l.gat, half, l.columns - half, l.alpha.host,
                          own(&l, l.alpha_self.host), &l.drop, host(&l.out), l.out.ld, host(&l.z), l.z.ld,
                          score.host, self.host, right ? l.right.host : NULL);
        if (first == 0)
            cpu->gat_sum_grad(NULL, &l.b.on_host, &l.gat, 0, half, l.alpha.host, own(&l, l.alpha_self.host),
                              &l.drop, host(&l.out), l.out.ld, host(&l.z), l.z.ld, score.host, self.host,
                              NULL);
        cuda->gat_sum_grad(queue, &l.b.on_device, &l.gat, first, l.columns - first, l.alpha.device,
                           own(&l, l.alpha_self.device), &l.drop, device(&l.out), l.out.ld, device(&l.z),
                           l.z.ld, score.device, self.device, right ? l.right.device : NULL);
        close_floats(&l.z.all, LIMIT, "gradient of the rows");
        close_floats(&l.right, LIMIT, "gradient of the sources' scores");
        both_free(&score);
        both_free(&self);
        layer_free(&l);
    }
}

/* The gradient is the same to the last bit, whatever runs first. */
static void test_sum_grad_repeats(void **state)
{
    (void)state;
    struct layer l = layer_new();
    while (l.b.edges == 0) {
        layer_free(&l);
        l = layer_new();
    }
    float *first = NULL;
    for (int round = 0; round < 5; round++) {
        send(&l.z.all);
        cuda->gat_sum_grad(queue, &l.b.on_device, &l.gat, 0, l.columns, l.alpha.device,
                           own(&l, l.alpha_self.device), &l.drop, device(&l.out), l.out.ld, device(&l.z),
                           l.z.ld, NULL, NULL, NULL);
        float *got = fetched(&l.z.all);
        if (first)
            assert_memory_equal(got, first, l.z.all.bytes);
        else
            first = got;
        if (got != first)
            free(got);
    }
    free(first);
    layer_free(&l);
}

static void test_elu(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(rnd(8) ? 150 : 3000), dim = size_below(n > 500 ? 40 : 300);
        struct matrix x = matrix_new(n, dim), grad = matrix_new(n, dim);
        struct both bias = floats_new(dim), sums = floats_new(dim),
                    vertices = both_new((size_t)n * sizeof(int64_t));
        const struct pst_dropout drop = random_dropout();
        const bool biased = rnd(2), wanted = rnd(3);
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)vertices.host)[i] = (int64_t)rnd((uint64_t)1 << 40);
        send(&vertices);
        cpu->bias_elu_dropout(NULL, host(&x), x.ld, biased ? bias.host : NULL, vertices.host, n, dim, &drop);
        cuda->bias_elu_dropout(queue, device(&x), x.ld, biased ? bias.device : NULL, vertices.device, n, dim,
                               &drop);
        close_floats(&x.all, LIMIT, "ELU");
        send(&x.all);
        cpu->bias_elu_dropout_grad(NULL, host(&grad), grad.ld, host(&x), x.ld, vertices.host, n, dim, &drop,
                                   wanted ? sums.host : NULL);
        cuda->bias_elu_dropout_grad(queue, device(&grad), grad.ld, device(&x), x.ld, vertices.device, n, dim,
                                    &drop, wanted ? sums.device : NULL);
        close_floats(&grad.all, LIMIT, "gradient of ELU");
        close_floats(&sums, LIMIT, "gradient of the bias");
        struct both *all[] = {&bias, &sums, &vertices};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
        matrix_free(&x);
        matrix_free(&grad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),           cmocka_unit_test(test_scores_grad),
        cmocka_unit_test(test_softmax),          cmocka_unit_test(test_sum),
        cmocka_unit_test(test_softmax_grad),     cmocka_unit_test(test_sum_grad),
        cmocka_unit_test(test_sum_grad_repeats), cmocka_unit_test(test_elu),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
