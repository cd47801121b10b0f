/* The twins of a GCN's kernels: degrees and weights are equal to the bit; weighted sums have a relative
 * error, norm-wise, of at most 1e-5. */
#include "tests/kernel/twin_block.h"

static struct block any_block(void)
{
    const int64_t dsts = size_below(150);
    return block_new(dsts, dsts + size_below(200));
}

/* Degrees of all sources: at least 1 for those that have edges, and sometimes large. */
static struct both degrees_new(const struct block *b)
{
    struct both degree = both_new((size_t)b->sources * sizeof(int64_t));
    for (int64_t i = 0; i < b->sources; i++)
        ((int64_t *)degree.host)[i] = (int64_t)rnd(rnd(10) ? 40 : (uint64_t)1 << 33);
    send(&degree);
    return degree;
}

static void test_degrees(void **state)
{
    (void)state;
    int refused = 0;
    FOR_SHAPES
    {
        const int64_t vertices = 1 + size_below(300), n = size_below(300);
        struct both indptr = both_new((size_t)(vertices + 1) * sizeof(int64_t)),
                    ids = both_new((size_t)n * sizeof(int64_t)),
                    degree = both_new((size_t)n * sizeof(int64_t)), count = both_new(sizeof(int64_t));
        int64_t *rows = indptr.host;
        for (int64_t v = 0; v < vertices; v++)
            rows[v + 1] = rows[v] + (int64_t)rnd(rnd(4) ? 20 : 2);
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)ids.host)[i] = (int64_t)rnd((uint64_t)vertices);
        const int64_t edges = rows[vertices];
        const int fault = (int)rnd(6), at = (int)rnd((uint64_t)n);
        if (n > 0 && fault < 2)
            ((int64_t *)ids.host)[at] = fault ? vertices : -1;
        else if (n > 0 && fault == 2)
            rows[((int64_t *)ids.host)[at] + 1] = edges + 1;
        *(int64_t *)count.host = n;
        send(&indptr);
        send(&ids);
        send(&count);
        const struct pst_csc on_host = {indptr.host, NULL, 4, vertices, edges};
        const struct pst_csc on_device = {indptr.device, NULL, 4, vertices, edges};
        const pst_rc rc = cpu->degrees(NULL, &on_host, ids.host, n, degree.host);
        if (rnd(2))
            assert_int_equal(cuda->degrees(queue, &on_device, ids.device, n, degree.device), PST_OK);
        else
            assert_int_equal(cuda->degrees_n(queue, &on_device, ids.device,
                                             (struct pst_twin_n){count.device, n + 7}, degree.device),
                             PST_OK);
        settled(rc);
        refused += rc != PST_OK;
        if (rc == PST_OK)
            same_bytes(&degree, degree.bytes, "degrees");
        struct both *all[] = {&indptr, &ids, &degree, &count};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
    }
    assert_true(refused > 0 || shapes() < 50);
}

static void test_weights(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = any_block();
        const bool shared = rnd(2);
        struct both degree = degrees_new(&b), share = floats_new(b.edges), weight = floats_new(b.edges),
                    self = floats_new(b.dsts), count = both_new(sizeof(int64_t));
        *(int64_t *)count.host = b.dsts;
        send(&count);
        cpu->gcn_weights(NULL, b.indptr.host, b.indices.host, b.dsts, degree.host, shared ? share.host : NULL,
                         weight.host, self.host);
        if (rnd(2))
            cuda->gcn_weights(queue, b.indptr.device, b.indices.device, b.dsts, degree.device,
                              shared ? share.device : NULL, weight.device, self.device);
        else
            cuda->gcn_weights_n(queue, b.indptr.device, b.indices.device,
                                (struct pst_twin_n){count.device, b.dsts + 5}, degree.device,
                                shared ? share.device : NULL, weight.device, self.device);
        same_bytes(&weight, weight.bytes, "weights of edges");
        same_bytes(&self, self.bytes, "weights of the vertices themselves");
        struct both *all[] = {&degree, &share, &weight, &self, &count};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            both_free(all[i]);
        block_free(&b);
    }
}

/* The whole block at once, or in blocks of rows on the CPU. */
static void test_weighted_sum(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = any_block();
        const int64_t dim = size_below(rnd(8) ? 160 : 700), first = (int64_t)rnd((uint64_t)b.dsts + 1);
        const int64_t n = (int64_t)rnd((uint64_t)(b.dsts - first) + 1), half = n / 2;
        struct matrix in = matrix_new(b.sources, dim), out = matrix_new(b.dsts, dim);
        struct both weight = floats_new(b.edges), self = floats_new(b.dsts);
        const struct pst_twin_view on_host = {.at = host(&in), .ld = in.ld},
                                   on_device = {.at = device(&in), .ld = in.ld};
        cpu->weighted_sum(NULL, &b.on_host, first, half, weight.host, self.host, &on_host, host(&out), out.ld,
                          dim);
        cpu->weighted_sum(NULL, &b.on_host, first + half, n - half, weight.host, self.host, &on_host,
                          host(&out), out.ld, dim);
        cuda->weighted_sum(queue, &b.on_device, first, n, weight.device, self.device, &on_device,
                           device(&out), out.ld, dim);
        close_floats(&out.all, LIMIT, "weighted sums");
        matrix_free(&in);
        matrix_free(&out);
        both_free(&weight);
        both_free(&self);
        block_free(&b);
    }
}

/* The CPU's in two groups of columns, CUDA's at once: groups do not matter. */
static void test_weighted_sum_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = any_block();
        const int64_t dim = size_below(rnd(8) ? 160 : 700), half = dim / 2;
        struct matrix in = matrix_new(b.sources, dim), out = matrix_new(b.dsts, dim);
        struct both weight = floats_new(b.edges), self = floats_new(b.dsts);
        cpu->weighted_sum_grad(NULL, &b.on_host, weight.host, self.host, host(&out), out.ld, host(&in), in.ld,
                               half);
        cpu->weighted_sum_grad(NULL, &b.on_host, weight.host, self.host, host(&out) + half, out.ld,
                               host(&in) + half, in.ld, dim - half);
        cuda->weighted_sum_grad(queue, &b.on_device, weight.device, self.device, device(&out), out.ld,
                                device(&in), in.ld, dim);
        close_floats(&in.all, LIMIT, "gradient of weighted sums");
        matrix_free(&in);
        matrix_free(&out);
        both_free(&weight);
        both_free(&self);
        block_free(&b);
    }
}

static void test_scale_rows(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(200), dim = size_below(300);
        struct matrix x = matrix_new(n, dim);
        struct both scale = floats_new(n);
        cpu->scale_rows(NULL, host(&x), x.ld, n, dim, scale.host);
        cuda->scale_rows(queue, device(&x), x.ld, n, dim, scale.device);
        same_bytes(&x.all, x.all.bytes, "scaled rows");
        matrix_free(&x);
        both_free(&scale);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_degrees),      cmocka_unit_test(test_weights),
        cmocka_unit_test(test_weighted_sum), cmocka_unit_test(test_weighted_sum_grad),
        cmocka_unit_test(test_scale_rows),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
