/* A GCN's kernels in double precision: weights and weighted sums against naive loops, the gradient against
 * central differences. */
#include "tests/gradient/numeric.h"

struct sums {
    struct pst_block block;
    pst_real *weight, *self, *x, *y, *probe;
    int64_t ld, dim;
};

static struct sums sums_new(int64_t dsts, int64_t sources, int64_t dim)
{
    struct sums s = {.block = numeric_block(dsts, sources), .ld = dim + (int64_t)random_below(4), .dim = dim};
    s.weight = reals(s.block.edges);
    s.self = reals(dsts);
    s.x = reals(sources * s.ld);
    s.y = zeros(dsts * s.ld);
    s.probe = reals(dsts * s.ld);
    return s;
}

static void sums_free(struct sums *s)
{
    numeric_block_free(&s->block);
    free(s->weight);
    free(s->self);
    free(s->x);
    free(s->y);
    free(s->probe);
}

/* The sum's product with a random matrix: its gradient is that matrix. */
static double probed(void *ctx)
{
    struct sums *s = ctx;
    double sum = 0;
    pst_k_weighted_sum(NULL, &s->block, 0, s->block.dsts, s->weight, s->self,
                       &(struct pst_twin_view){.at = s->x, .ld = s->ld}, s->y, s->ld, s->dim);
    for (int64_t d = 0; d < s->block.dsts; d++)
        for (int64_t j = 0; j < s->dim; j++)
            sum += s->y[d * s->ld + j] * s->probe[d * s->ld + j];
    return sum;
}

static double naive(const struct sums *s, int64_t d, int64_t j)
{
    double sum = s->self[d] * s->x[d * s->ld + j];
    for (int32_t e = s->block.indptr[d]; e < s->block.indptr[d + 1]; e++)
        sum += s->weight[e] * s->x[s->block.indices[e] * s->ld + j];
    return sum;
}

static void test_sums(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        const int64_t dsts = 1 + (int64_t)random_below(20);
        struct sums s = sums_new(dsts, dsts + (int64_t)random_below(20), 1 + (int64_t)random_below(40));
        pst_real *grad = zeros(s.block.sources * s.ld);
        (void)probed(&s);
        for (int64_t d = 0; d < dsts; d++)
            for (int64_t j = 0; j < s.ld; j++)
                check_near(s.y[d * s.ld + j], j < s.dim ? naive(&s, d, j) : 0, "weighted sum");
        pst_k_weighted_sum_grad(NULL, &s.block, s.weight, s.self, s.probe, s.ld, grad, s.ld, s.dim);
        check_numeric(probed, &s, s.x, s.block.sources * s.ld, grad, "weighted sums");
        free(grad);
        sums_free(&s);
    }
}

/* With all neighbours, weights are those of Kipf & Welling; with few, the sum is the same on average. */
static void test_weights(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        const int64_t dsts = 1 + (int64_t)random_below(20);
        struct sums s = sums_new(dsts, dsts + (int64_t)random_below(20), 1);
        int64_t *degree = calloc((size_t)s.block.sources, sizeof *degree);
        for (int64_t i = 0; i < s.block.sources; i++)
            degree[i] = (int64_t)random_below(30);
        pst_k_gcn_weights(NULL, s.block.indptr, s.block.indices, dsts, degree, NULL, s.weight, s.self);
        for (int64_t d = 0; d < dsts; d++) {
            const int32_t begin = s.block.indptr[d], end = s.block.indptr[d + 1];
            const double own = sqrt((double)degree[d] + 1);
            check_near(s.self[d], 1 / own / own, "weight of the vertex itself");
            for (int32_t e = begin; e < end; e++) {
                const double other = sqrt((double)degree[s.block.indices[e]] + 1);
                check_near(s.weight[e], 1 / (own * other) * (double)degree[d] / (end - begin), "weight");
            }
        }
        free(degree);
        sums_free(&s);
    }
}

static void test_degrees(void **state)
{
    (void)state;
    int64_t indptr[] = {0, 3, 3, 8}, vertices[] = {2, 0, 1, 2}, degree[4];
    const struct pst_csc graph = {indptr, NULL, 4, 3, 8};
    assert_int_equal(pst_k_degrees(NULL, &graph, vertices, 4, degree), PST_OK);
    const int64_t wanted[] = {5, 3, 0, 5};
    assert_memory_equal(degree, wanted, sizeof wanted);
    vertices[1] = 3;
    assert_int_equal(pst_k_degrees(NULL, &graph, vertices, 4, degree), PST_E_FORMAT);
    vertices[1] = 0;
    indptr[3] = 9;
    assert_int_equal(pst_k_degrees(NULL, &graph, vertices, 4, degree), PST_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_degrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
