/* The twins of the kernels that take means over neighbours: relative error, norm-wise, of at most 1e-5. */
#include "tests/kernel/twin_block.h"

static void test_mean(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = block_new(size_below(150), size_below(300));
        const int64_t dim = size_below(rnd(8) ? 160 : 700);
        struct matrix in = matrix_new(b.sources, dim), out = matrix_new(b.dsts, dim);
        cpu->mean(NULL, b.indptr.host, b.indices.host, b.dsts, host(&in), in.ld, host(&out), out.ld, dim);
        cuda->mean(queue, b.indptr.device, b.indices.device, b.dsts, device(&in), in.ld, device(&out), out.ld,
                   dim);
        close_floats(&out.all, LIMIT, "means");
        matrix_free(&in);
        matrix_free(&out);
        block_free(&b);
    }
}

static void test_mean_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = block_new(size_below(150), size_below(300));
        const int64_t dim = size_below(rnd(8) ? 160 : 700);
        struct matrix in = matrix_new(b.sources, dim), out = matrix_new(b.dsts, dim);
        cpu->mean_grad(NULL, b.indptr.host, b.indices.host, b.dsts, host(&out), out.ld, host(&in), in.ld,
                       dim);
        if (rnd(3))
            cuda->mean_grad_n(queue, b.indptr.device, b.indices.device, b.dsts, b.edges, b.sources,
                              device(&out), out.ld, device(&in), in.ld, dim);
        else
            cuda->mean_grad(queue, b.indptr.device, b.indices.device, b.dsts, device(&out), out.ld,
                            device(&in), in.ld, dim);
        close_floats(&in.all, LIMIT, "gradient of means");
        matrix_free(&in);
        matrix_free(&out);
        block_free(&b);
    }
}

/* The gradient is the same to the last bit, whatever runs first. */
static void test_mean_grad_repeats(void **state)
{
    (void)state;
    struct block b = block_new(500, 40);
    struct matrix out = matrix_new(b.dsts, 37), in = matrix_new(b.sources, 37);
    float *first = NULL;
    for (int round = 0; round < 5; round++) {
        send(&in.all);
        cuda->mean_grad_n(queue, b.indptr.device, b.indices.device, b.dsts, b.edges, b.sources, device(&out),
                          out.ld, device(&in), in.ld, 37);
        float *got = fetched(&in.all);
        if (first)
            assert_memory_equal(got, first, in.all.bytes);
        else
            first = got;
        if (got != first)
            free(got);
    }
    free(first);
    matrix_free(&in);
    matrix_free(&out);
    block_free(&b);
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Neighbours of each vertex ascend; with `fault`, vertex `at` has one out of range, or one that does not
 * ascend. */
static void random_graph(struct both *indptr, struct both *indices, int64_t vertices, int bytes, int fault,
                         int64_t at)
{
    int64_t *rows = indptr->host, row[20];
    for (int64_t v = 0; v < vertices; v++) {
        const int64_t degree = rows[v + 1] - rows[v];
        for (int64_t i = 0; i < degree; i++)
            row[i] = (int64_t)rnd((uint64_t)vertices);
        qsort(row, (size_t)degree, sizeof *row, ascending);
        if (fault == 1 && v == at && degree > 0)
            row[degree - 1] = vertices + (int64_t)rnd(2);
        if (fault == 2 && v == at && degree > 1)
            row[0] = vertices - 1, row[1] = 0;
        for (int64_t i = 0; i < degree; i++)
            memcpy((char *)indices->host + (rows[v] + i) * bytes, &row[i], (size_t)bytes);
    }
    send(indptr);
    send(indices);
}

/* A whole graph's means, its rows in one part or in several. */
static void test_mean_csc(void **state)
{
    (void)state;
    int refused = 0;
    FOR_SHAPES
    {
        const int64_t vertices = 1 + size_below(200), first = (int64_t)rnd((uint64_t)vertices);
        const int64_t n = (int64_t)rnd((uint64_t)(vertices - first) + 1), dim = 1 + size_below(130);
        const int bytes = rnd(2) ? 4 : 8, parts = 1 + (int)rnd(3), fault = (int)rnd(8);
        struct both indptr = both_new((size_t)(vertices + 1) * sizeof(int64_t)),
                    cursor = both_new((size_t)n * sizeof(int64_t));
        for (int64_t v = 0; v < vertices; v++)
            ((int64_t *)indptr.host)[v + 1] = ((int64_t *)indptr.host)[v] + (int64_t)rnd(20);
        const int64_t edges = ((int64_t *)indptr.host)[vertices];
        struct both indices = both_new((size_t)(edges * bytes));
        random_graph(&indptr, &indices, vertices, bytes, fault, first);
        struct matrix in = matrix_new(vertices, dim), out = matrix_new(n, dim);
        const struct pst_csc on_host = {indptr.host, indices.host, bytes, vertices, edges};
        const struct pst_csc on_device = {indptr.device, indices.device, bytes, vertices, edges};
        pst_rc rc = PST_OK, found = PST_OK; /* CUDA's may see it a part earlier */
        for (int64_t part = 0, from = 0; part < parts; part++) {
            const int64_t to =
                part + 1 < parts ? from + (int64_t)rnd((uint64_t)(vertices - from) + 1) : vertices;
            if (rc == PST_OK)
                rc = cpu->mean_csc(NULL, &on_host, first, n, from, to, host(&in) + from * in.ld, in.ld,
                                   cursor.host, host(&out), out.ld, dim);
            assert_int_equal(cuda->mean_csc(queue, &on_device, first, n, from, to, device(&in) + from * in.ld,
                                            in.ld, cursor.device, device(&out), out.ld, dim),
                             PST_OK);
            const pst_rc now = cuda->wait(queue, why);
            found = found == PST_OK ? now : found;
            from = to;
        }
        assert_int_equal(found, rc);
        refused += rc == PST_E_FORMAT;
        if (rc == PST_OK) {
            close_floats(&out.all, LIMIT, "means over a graph");
            same_bytes(&cursor, cursor.bytes, "cursors");
        }
        matrix_free(&in);
        matrix_free(&out);
        both_free(&indptr);
        both_free(&indices);
        both_free(&cursor);
    }
    assert_true(refused > 0 || shapes() < 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_mean_grad),
        cmocka_unit_test(test_mean_grad_repeats),
        cmocka_unit_test(test_mean_csc),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
