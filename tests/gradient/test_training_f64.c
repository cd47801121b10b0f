/* What training does beside the plain loss and Adam, in double precision, against the papers' formulas
 * written as plainly as possible: weighted and smoothed cross-entropy (its gradient against central
 * differences, too), AdamW, SGD with momentum, and clipping. */
#include "tests/gradient/numeric.h"

/* ---- the loss ------------------------------------------------------------------------------------ */

struct weighted {
    struct pst_xent how;
    pst_real *x, *grad, *weight;
    int32_t *label;
    int64_t n, classes, ld, correct, counted;
};

static struct weighted weighted_new(int64_t n, int64_t classes, double smoothing)
{
    struct weighted f = {.n = n, .classes = classes, .ld = classes + (int64_t)random_below(4)};
    f.x = reals(n * f.ld);
    f.grad = zeros(n * f.ld);
    f.weight = reals(classes);
    f.label = calloc((size_t)n, sizeof *f.label);
    assert_non_null(f.label);
    f.how = (struct pst_xent){.weight = f.weight, .smoothing = smoothing};
    for (int64_t i = 0; i < n; i++)
        f.label[i] = (int32_t)random_below((uint64_t)classes + 1) - 1;
    for (int64_t i = 0; i < n * f.ld; i++)
        f.x[i] *= 6;
    for (int64_t c = 0; c < classes; c++) {
        f.weight[c] = random_below(4) ? fabs(f.weight[c]) : 0;
        f.how.total += f.weight[c];
    }
    return f;
}

static void weighted_free(struct weighted *f)
{
    free(f->x);
    free(f->grad);
    free(f->weight);
    free(f->label);
}

static double loss_of(void *ctx)
{
    struct weighted *f = ctx;
    double loss = 0;
    f->correct = f->counted = 0;
    pst_k_softmax_xent_weighted(NULL, &f->how, f->x, f->ld, f->label, f->n, f->classes, 7, f->grad, f->ld,
                                &loss, &f->correct, &f->counted);
    return loss;
}

static double naive_loss(const struct weighted *f)
{
    double loss = 0;
    for (int64_t i = 0; i < f->n; i++) {
        double sum = 0;
        for (int64_t c = 0; c < f->classes; c++)
            sum += exp(f->x[i * f->ld + c]);
        for (int64_t c = 0; c < f->classes && f->label[i] >= 0; c++) {
            const double target =
                (c == f->label[i] ? 1 - f->how.smoothing : 0) + f->how.smoothing / (double)f->classes;
            loss -= f->weight[c] * target * log(exp(f->x[i * f->ld + c]) / sum) / 7;
        }
    }
    return loss;
}

static void test_loss(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        struct weighted f =
            weighted_new(1 + (int64_t)random_below(8), 1 + (int64_t)random_below(turn % 5 ? 40 : 600),
                         turn % 3 ? 0.3 * fabs(random_unit()) : 0);
        const double wanted = naive_loss(&f), found = loss_of(&f);
        assert_true(fabs(found - wanted) <= 1e-10 * (1 + wanted));
        pst_real *grad = zeros(f.n * f.ld);
        memcpy(grad, f.grad, (size_t)(f.n * f.ld) * sizeof *grad);
        check_numeric(loss_of, &f, f.x, f.n * f.ld, grad, "the weighted loss");
        free(grad);
        weighted_free(&f);
    }
}

/* Equal weights without smoothing are the plain loss. */
static void test_plain(void **state)
{
    (void)state;
    struct weighted f = weighted_new(30, 20, 0);
    pst_real *grad = zeros(f.n * f.ld);
    double plain = 0;
    int64_t correct = 0, counted = 0;
    for (int64_t c = 0; c < f.classes; c++)
        f.weight[c] = 1;
    const double loss = loss_of(&f);
    pst_k_softmax_xent(NULL, f.x, f.ld, f.label, f.n, f.classes, 7, grad, f.ld, &plain, &correct, &counted);
    check_near(loss, plain, "loss");
    for (int64_t i = 0; i < f.n; i++)
        for (int64_t c = 0; c < f.classes; c++)
            check_near(f.grad[i * f.ld + c], grad[i * f.ld + c], "gradient");
    assert_true(correct == f.correct && counted == f.counted);
    free(grad);
    weighted_free(&f);
}

/* ---- steps --------------------------------------------------------------------------------------- */

enum { N = 37, STEPS = 20 };

/* Loshchilov & Hutter 2019, algorithm 2, with eta = 1; lambda there is rate * weight_decay. */
static void test_adamw(void **state)
{
    (void)state;
    pst_real *w = reals(N), *m = zeros(N), *v = zeros(N), dw[N], dm[N] = {0}, dv[N] = {0};
    memcpy(dw, w, sizeof dw);
    for (int step = 1; step <= STEPS; step++) {
        pst_real *g = reals(N);
        const struct pst_adam opt = {0.01, 0.9, 0.999, 1e-8, 0.1, step, true};
        pst_k_adam(NULL, &opt, w, g, m, v, N);
        for (int i = 0; i < N; i++) {
            dm[i] = 0.9 * dm[i] + 0.1 * g[i];
            dv[i] = 0.999 * dv[i] + 0.001 * g[i] * g[i];
            const double mean = dm[i] / (1 - pow(0.9, step)), square = dv[i] / (1 - pow(0.999, step));
            dw[i] -= 0.01 * mean / (sqrt(square) + 1e-8) + 0.01 * 0.1 * dw[i];
            check_near(w[i], dw[i], "weight");
        }
        free(g);
    }
    free(w);
    free(m);
    free(v);
}

static void test_sgd(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        const struct pst_sgd opt = {0.1, kind & 1 ? 0.9 : 0, kind & 2 ? 0.05 : 0, kind & 4};
        pst_real *w = reals(N), *m = zeros(N), dw[N], sum[N] = {0};
        memcpy(dw, w, sizeof dw);
        for (int step = 1; step <= STEPS; step++) {
            pst_real *g = reals(N);
            pst_k_sgd(NULL, &opt, w, g, m, N);
            for (int i = 0; i < N; i++) {
                const double gradient = g[i] + opt.weight_decay * dw[i];
                sum[i] = opt.momentum * sum[i] + gradient;
                dw[i] -= 0.1 * (kind & 4 ? gradient + opt.momentum * sum[i] : sum[i]);
                check_near(w[i], dw[i], "weight");
            }
            free(g);
        }
        free(w);
        free(m);
    }
}

static void test_clip(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 100; n++) {
        pst_real *x = reals(n), *was = zeros(n);
        double square = 0, wanted = 0;
        memcpy(was, x, (size_t)n * sizeof *x);
        for (int64_t i = 0; i < n; i++)
            wanted += x[i] * x[i];
        pst_k_square_sum(NULL, x, n, &square);
        check_near(square, wanted, "square of the norm");
        const double norm = sqrt(square), limits[] = {norm / 2 + 1e-3, 2 * norm + 1};
        pst_k_clip(NULL, x, n, &square, limits[1]);
        if (n > 0)
            assert_memory_equal(x, was, (size_t)n * sizeof *x); /* below the limit, nothing changes */
        pst_k_clip(NULL, x, n, &square, limits[0]);
        for (int64_t i = 0; i < n; i++)
            check_near(x[i], was[i] * fmin(1, limits[0] / (norm + 1e-6)), "clipped");
        free(x);
        free(was);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss), cmocka_unit_test(test_plain), cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_sgd),  cmocka_unit_test(test_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
