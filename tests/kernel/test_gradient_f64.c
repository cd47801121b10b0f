/* Gradients of every layer and the loss against central differences, the whole model built in double. */
#include "stages/lib/gnn/pass.h"
#include "tests/kernel/random_batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>

_Static_assert(sizeof(pst_real) == 8, "this test is compiled with -DPST_REAL=double");

static const double TOLERANCE = 1e-6;

static double loss_of(struct pst_gnn_model *model, const struct pst_gnn_batch *batch)
{
    struct pst_gnn_figures figures = {0};
    assert_int_equal(pst_gnn_model_step(model, batch, &figures, NULL), PST_OK);
    return figures.loss;
}

/* Central differences of a tensor's elements (every one, or a stride of them where there are many). */
static void check_tensor(struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                         const struct pst_gnn_parameter *p, const pst_real *grad)
{
    const double h = 1e-5;
    const int64_t n = p->rows * p->cols, stride = 1 + n / 60;
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i += stride) {
        const double was = model->weight[p->at + i];
        model->weight[p->at + i] = was + h;
        const double above = loss_of(model, batch);
        model->weight[p->at + i] = was - h;
        const double below = loss_of(model, batch);
        model->weight[p->at + i] = was;
        const double numeric = (above - below) / (2 * h), analytic = grad[p->at + i];
        error += (numeric - analytic) * (numeric - analytic);
        size += numeric * numeric + analytic * analytic;
    }
    error = sqrt(error) / fmax(sqrt(size), 1e-8);
    if (error >= TOLERANCE)
        print_message("%s: relative error %.3g\n", p->name, error);
    assert_true(error < TOLERANCE);
}

static void check_model(const struct pst_gnn_config *config, int64_t seeds)
{
    struct random_batch b;
    struct pst_gnn_model model;
    random_batch_init(&b, config->layers, seeds, config->in, config->classes);
    assert_int_equal(pst_gnn_model_init(&model, config), PST_OK);
    /* Away from symmetric starting values, and from ReLU's kink: its slope is not defined there. */
    for (int64_t i = 0; i < model.size; i++)
        model.weight[i] += 0.05 * random_unit();
    (void)loss_of(&model, &b.view);
    pst_real *grad = malloc((size_t)model.size * sizeof *grad);
    memcpy(grad, model.grad, (size_t)model.size * sizeof *grad);
    double total = 0;
    for (int64_t i = 0; i < model.size; i++)
        total += fabs(grad[i]);
    assert_true(total > 1e-3);
    for (int p = 0; p < model.parameters; p++)
        check_tensor(&model, &b.view, &model.parameter[p], grad);
    free(grad);
    pst_gnn_model_release(&model);
    random_batch_release(&b);
}

static void sweep(enum pst_gnn_norm norm)
{
    for (int variant = 0; variant < 32; variant++) {
        const struct pst_gnn_config config = {.layers = variant & 1 ? 3 : 2,
                                              .in = variant & 2 ? 11 : 5,
                                              .hidden = variant & 2 ? 5 : 11,
                                              .classes = variant & 2 ? 3 : 17,
                                              .norm = norm,
                                              .residual = (variant & 5) == 5,
                                              .aggregate = !(variant & 16),
                                              .dropout = variant & 8 ? 0.4 : 0,
                                              .input_dropout = variant & 8 ? 0.2 : 0,
                                              .seed = 5,
                                              .threads = 1,
                                              .rows_max = 1000};
        check_model(&config, 9);
    }
}

static void test_plain(void **state)
{
    (void)state;
    sweep(PST_GNN_NORM_NONE);
}

static void test_layer_norm(void **state)
{
    (void)state;
    sweep(PST_GNN_NORM_LAYER);
}

static void test_batch_norm(void **state)
{
    (void)state;
    sweep(PST_GNN_NORM_BATCH);
}

static void test_residual_deep(void **state)
{
    (void)state;
    for (int norm = 0; norm < 3; norm++) {
        const struct pst_gnn_config config = {.layers = 4,
                                              .in = 7,
                                              .hidden = 7,
                                              .classes = 4,
                                              .norm = (enum pst_gnn_norm)norm,
                                              .residual = true,
                                              .aggregate = true,
                                              .dropout = 0.3,
                                              .seed = 6,
                                              .threads = 1,
                                              .rows_max = 3000};
        check_model(&config, 8);
    }
}

/* So many rows that the weights' gradients are made in parts, by several threads. */
static void test_parts(void **state)
{
    (void)state;
    for (int norm = 0; norm < 2; norm++) {
        const struct pst_gnn_config config = {.layers = 3,
                                              .in = 7,
                                              .hidden = 5,
                                              .classes = 4,
                                              .norm = (enum pst_gnn_norm)norm,
                                              .residual = norm > 0,
                                              .aggregate = true,
                                              .dropout = 0.3,
                                              .seed = 7,
                                              .threads = 3,
                                              .rows_max = 30000};
        check_model(&config, 600);
    }
}

/* Both orders of mean and product are reached, and give the same loss. */
static void test_project_first(void **state)
{
    (void)state;
    const struct pst_gnn_layer wide = {.in = 1000, .out = 8}, narrow = {.in = 8, .out = 1000};
    assert_true(pst_gnn_projects_first(&wide, 10, 20, 100));
    assert_false(pst_gnn_projects_first(&narrow, 10, 20, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_batch_norm), cmocka_unit_test(test_residual_deep),
        cmocka_unit_test(test_parts),      cmocka_unit_test(test_project_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
