/* The loss of several labels a vertex, and the squared error, in double precision: against a naive loop, and
 * its gradient against central differences. */
#include "tests/gradient/numeric.h"

struct labelled {
    pst_real *x, *grad;
    uint8_t *label;
    int64_t n, classes, ld;
    int64_t counts[PST_LABEL_COUNTS];
};

static struct labelled labelled_new(int64_t n, int64_t classes)
{
    struct labelled f = {.n = n, .classes = classes, .ld = classes + (int64_t)random_below(4)};
    f.x = reals(n * f.ld);
    f.grad = zeros(n * f.ld);
    f.label = calloc((size_t)(n * f.ld), 1);
    assert_non_null(f.label);
    for (int64_t i = 0; i < n * f.ld; i++) {
        f.x[i] *= 6;
        f.label[i] = random_below(4) ? (uint8_t)random_below(2) : PST_LABEL_IGNORED;
    }
    return f;
}

static double loss_of(void *ctx)
{
    struct labelled *f = ctx;
    double loss = 0;
    memset(f->counts, 0, sizeof f->counts);
    pst_k_sigmoid_xent(NULL, f->x, f->ld, f->label, f->ld, f->n, f->classes, 7, f->grad, f->ld, &loss,
                       f->counts);
    return loss;
}

static double naive_loss(const struct labelled *f, int64_t counts[PST_LABEL_COUNTS])
{
    double loss = 0;
    for (int64_t i = 0; i < f->n; i++)
        for (int64_t c = 0; c < f->classes; c++) {
            const double p = 1 / (1 + exp(-f->x[i * f->ld + c]));
            const uint8_t label = f->label[i * f->ld + c];
            if (label == PST_LABEL_IGNORED)
                continue;
            loss -= (label ? log(p) : log(1 - p)) / 7;
            counts[PST_LABEL_TRUE_POSITIVES] += label && p > 0.5;
            counts[PST_LABEL_FALSE_POSITIVES] += !label && p > 0.5;
            counts[PST_LABEL_FALSE_NEGATIVES] += label && p <= 0.5;
            counts[PST_LABELS_COUNTED]++;
        }
    return loss;
}

static void test_loss(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        struct labelled f =
            labelled_new(1 + (int64_t)random_below(8), 1 + (int64_t)random_below(turn % 5 ? 40 : 600));
        int64_t counts[PST_LABEL_COUNTS] = {0};
        const double wanted = naive_loss(&f, counts), found = loss_of(&f);
        assert_true(fabs(found - wanted) <= 1e-10 * (1 + wanted));
        assert_memory_equal(f.counts, counts, sizeof counts);
        pst_real *grad = zeros(f.n * f.ld);
        memcpy(grad, f.grad, (size_t)(f.n * f.ld) * sizeof *grad);
        check_numeric(loss_of, &f, f.x, f.n * f.ld, grad, "the loss of several labels");
        free(grad);
        free(f.x);
        free(f.grad);
        free(f.label);
    }
}

/* Large logits neither overflow nor lose the loss. */
static void test_far_logits(void **state)
{
    (void)state;
    pst_real x[] = {800, -800, 800, -800}, grad[4];
    const uint8_t label[] = {1, 0, 0, 1};
    int64_t counts[PST_LABEL_COUNTS] = {0};
    double loss = 0;
    pst_k_sigmoid_xent(NULL, x, 4, label, 4, 1, 4, 1, grad, 4, &loss, counts);
    check_near(loss, 1600, "loss");
    const double wanted[] = {0, 0, 1, -1};
    for (int c = 0; c < 4; c++)
        check_near(grad[c], wanted[c], "gradient");
}

struct fitted {
    pst_real *y, *grad;
    float *target;
    int64_t n, columns, ld;
};

static double error_of(void *ctx)
{
    struct fitted *f = ctx;
    double loss = 0;
    pst_k_squared_error(NULL, f->y, f->ld, f->target, f->ld, f->n, f->columns, 7, f->grad, f->ld, &loss);
    return loss;
}

static void test_squared_error(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        const int64_t n = 1 + (int64_t)random_below(8),
                      columns = 1 + (int64_t)random_below(turn % 5 ? 3 : 60),
                      ld = columns + (int64_t)random_below(4);
        struct fitted f = {
            reals(n * ld), zeros(n * ld), malloc((size_t)(n * ld) * sizeof(float)), n, columns, ld};
        double wanted = 0;
        for (int64_t i = 0; i < n * ld; i++) {
            f.target[i] = (float)random_below(1000) / 100 - 5;
            const double off = i % ld < columns ? f.y[i] - (double)f.target[i] : 0;
            wanted += off * off / 7;
        }
        assert_true(fabs(error_of(&f) - wanted) <= 1e-10 * (1 + wanted));
        pst_real *grad = zeros(n * ld);
        memcpy(grad, f.grad, (size_t)(n * ld) * sizeof *grad);
        check_numeric(error_of, &f, f.y, n * ld, grad, "the squared error");
        free(grad);
        free(f.y);
        free(f.grad);
        free(f.target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loss), cmocka_unit_test(test_far_logits),
                                       cmocka_unit_test(test_squared_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
