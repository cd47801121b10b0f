/* The squared error on a GPU, or the host build of its kernel: the loss and the gradient are those of the
 * CPU. */
#include "tests/kernel/twin_matrix.h"
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_squared_error)};
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
