/* The twins of the kernels that take means over neighbours: relative error, norm-wise, of at most 1e-5. And
 * how often products ask cuBLASLt for an algorithm. The host build counts it; on a real GPU, only the results
 * are compared. test_twin_float.c has the products themselves. */
#include "tests/gpu/host_counts.h"
#include "tests/kernel/twin_block.h"

static void test_mean(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        struct block b = block_new(size_below(150), size_below(300));
        const int64_t dim = size_below(rnd(8) ? 160 : 700);
        struct matrix in = matrix_new(b.sources, dim), out = matrix_new(b.dsts, dim);
        const struct pst_twin_view on_host = {.at = host(&in), .ld = in.ld},
                                   on_device = {.at = device(&in), .ld = in.ld};
        cpu->mean(NULL, b.indptr.host, b.indices.host, b.dsts, &on_host, host(&out), out.ld, dim);
        cuda->mean(queue, b.indptr.device, b.indices.device, b.dsts, &on_device, device(&out), out.ld, dim);
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

/* ---- plans of products ----------------------------------------------------------------------------- */

enum { WIDE = 6, DEEP = 9 };

/* One product of both twins. Returns how often the heuristic was asked, or `unknown` on a real GPU. */
static uint64_t asked(bool ta, bool tb, int64_t m, int64_t n, int64_t k, uint64_t unknown)
{
    uint64_t count[PST_HOST_COUNTS];
    struct both a = floats_new(m * k), b = floats_new(n * k), c = floats_new(m * n);
    const int64_t lda = ta ? m : k, ldb = tb ? k : n;
    (void)host_counts(count);
    cpu->gemm(NULL, ta, tb, m, n, k, 1, a.host, lda, b.host, ldb, 0, c.host, n, 1);
    cuda->gemm(queue, ta, tb, m, n, k, 1, a.device, lda, b.device, ldb, 0, c.device, n, 1);
    settled(PST_OK);
    const bool counted = host_counts(count);
    close_floats(&c, LIMIT, "product");
    both_free(&a);
    both_free(&b);
    both_free(&c);
    return counted ? count[PST_HOST_QUESTIONS] : unknown;
}

/* Every batch has another number of vertices, and nearly the same one. */
static void batches_share_a_plan(void **state)
{
    (void)state;
    enum { ROWS = 1000, BATCHES = 20 };
    assert_int_equal(asked(false, false, ROWS, WIDE, DEEP, 1), 1); /* forward */
    assert_int_equal(asked(false, true, ROWS, DEEP, WIDE, 1), 1);  /* the input's gradient */
    assert_int_equal(asked(true, false, DEEP, WIDE, ROWS, 1), 1);  /* the weights' gradient */
    for (int64_t rows = ROWS; rows < ROWS + BATCHES; rows++) {
        assert_int_equal(asked(false, false, rows, WIDE, DEEP, 0), 0);
        assert_int_equal(asked(false, true, rows, DEEP, WIDE, 0), 0);
        assert_int_equal(asked(true, false, DEEP, WIDE, rows, 0), 0);
    }
    assert_int_equal(asked(false, false, 2 * ROWS, WIDE, DEEP, 1), 1); /* a much larger one has its own */
    assert_int_equal(asked(true, true, DEEP, WIDE, ROWS, 1), 1);       /* B has no room for rounded-up rows */
}

/* An algorithm that was chosen for 128 rows cannot compute three. Both answers are kept. */
static void a_plan_must_serve(void **state)
{
    (void)state;
    assert_int_equal(asked(false, false, 3, WIDE + 1, DEEP, 2), 2);
    assert_int_equal(asked(false, false, 3, WIDE + 1, DEEP, 0), 0);
    assert_int_equal(asked(false, false, 120, WIDE + 1, DEEP, 0), 0);
    assert_int_equal(asked(false, false, 3, WIDE + 1, DEEP, 0), 0);
}

/* Of ever more shapes, the last ones are kept. */
static void plans_are_bounded(void **state)
{
    (void)state;
    enum { KEPT = 128, FIRST = 20, SHAPES = KEPT + 10 };
    for (int64_t n = FIRST; n < FIRST + SHAPES; n++)
        assert_int_equal(asked(false, false, 100, n, DEEP, 1), 1);
    for (int64_t n = FIRST + SHAPES - KEPT; n < FIRST + SHAPES; n++)
        assert_int_equal(asked(false, false, 100, n, DEEP, 0), 0);
    assert_int_equal(asked(false, false, 100, FIRST, DEEP, 1), 1);
    assert_int_equal(asked(false, false, 100, FIRST + SHAPES - 1, DEEP, 0), 0);
}

/* Also that a NaN stays in its place. */
static void test_squared_error(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(400), columns = 1 + size_below(rnd(4) ? 4 : 200);
        struct matrix outputs = matrix_new(n, columns), targets = matrix_new(n, columns),
                      grad = matrix_new(n, columns);
        struct both sum = both_new(sizeof(double));
        const bool wanted = rnd(4), broken = n > 0 && rnd(5) == 0;
        if (broken)
            host(&outputs)[(n - 1) * outputs.ld] = NAN;
        send(&outputs.all);
        cpu->squared_error(NULL, host(&outputs), outputs.ld, host(&targets), targets.ld, n, columns,
                           (double)n + 1, wanted ? host(&grad) : NULL, grad.ld, sum.host);
        cuda->squared_error(queue, device(&outputs), outputs.ld, device(&targets), targets.ld, n, columns,
                            (double)n + 1, wanted ? device(&grad) : NULL, grad.ld, sum.device);
        settled(PST_OK);
        double *got = fetched(&sum);
        const double should = *(double *)sum.host;
        assert_true(broken ? isnan(*got) && isnan(should) : fabs(*got - should) <= LIMIT * fabs(should));
        if (!broken)
            close_floats(&grad.all, LIMIT, "gradient of the squared error");
        free(got);
        matrix_free(&outputs);
        matrix_free(&targets);
        matrix_free(&grad);
        both_free(&sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_mean_grad),
        cmocka_unit_test(test_mean_grad_repeats),
        cmocka_unit_test(test_mean_csc),
        cmocka_unit_test(test_squared_error),
        cmocka_unit_test(batches_share_a_plan),
        cmocka_unit_test(a_plan_must_serve),
        cmocka_unit_test(plans_are_bounded),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
