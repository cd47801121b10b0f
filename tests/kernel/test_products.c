/* Products of matrices on a GPU: how often cuBLASLt's heuristic is asked for an algorithm. The host build
 * counts it; on a real GPU only the results are compared. test_twin_float.c has the products themselves. */
#include "tests/kernel/twin_matrix.h"
#include "tests/kernel/host_counts.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_share_a_plan),
        cmocka_unit_test(a_plan_must_serve),
        cmocka_unit_test(plans_are_bounded),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
