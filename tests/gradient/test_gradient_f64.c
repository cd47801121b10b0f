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

/* The central difference of the loss by one weight, h to either side. */
static double difference(struct pst_gnn_model *model, const struct pst_gnn_batch *batch, int64_t at, double h)
{
    const double was = model->weight[at];
    model->weight[at] = was + h;
    const double above = loss_of(model, batch);
    model->weight[at] = was - h;
    const double below = loss_of(model, batch);
    model->weight[at] = was;
    return (above - below) / (2 * h);
}

/* The difference whose step is short enough that no activation's kink lies within it: the first of three
 * steps at which it agrees with the analytic gradient. A wrong gradient agrees at none. */
static double agreeing_difference(struct pst_gnn_model *model, const struct pst_gnn_batch *batch, int64_t at,
                                  double analytic)
{
    double numeric = 0;
    for (double h = 1e-5; h > 1e-8; h /= 16) {
        numeric = difference(model, batch, at, h);
        /* the loss has an error of some 1e-16, which the step divides */
        if (fabs(numeric - analytic) <= 1e-6 * (fabs(numeric) + fabs(analytic)) + 1e-15 / h)
            break;
    }
    return numeric;
}

/* Central differences of a tensor's elements: every one, or `most` of them where there are many. */
static void check_tensor(struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                         const struct pst_gnn_parameter *p, const pst_real *grad, int64_t most)
{
    const int64_t n = p->rows * p->cols, stride = 1 + n / most;
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i += stride) {
        const double analytic = grad[p->at + i],
                     numeric = agreeing_difference(model, batch, p->at + i, analytic);
        error += (numeric - analytic) * (numeric - analytic);
        size += numeric * numeric + analytic * analytic;
    }
    error = sqrt(error) / fmax(sqrt(size), 1e-8);
    if (error >= TOLERANCE)
        print_message("%s: relative error %.3g\n", p->name, error);
    assert_true(error < TOLERANCE);
}

/* The shares of a block's edges: equal ones, or others. The caller frees them. */
static pst_real *shares_new(const struct pst_gnn_batch *batch, uint32_t hop, bool equal)
{
    const int32_t *indptr = batch->indptr[hop];
    pst_real *share = malloc(((size_t)batch->edges[hop] + 1) * sizeof *share);
    assert_non_null(share);
    for (int64_t d = 0; d < batch->mb.n[hop]; d++) {
        double sum = 0;
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            sum += share[e] = equal ? 1 : 1.1 + random_unit();
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            share[e] /= sum;
    }
    return share;
}

/* Equal shares are what none are; the batch goes on with others. */
static void weigh_edges(struct pst_gnn_model *model, struct pst_gnn_batch *batch)
{
    const double none = loss_of(model, batch);
    pst_real *share[PST_HOPS_MAX];
    for (uint32_t h = 0; h < batch->mb.hops; h++)
        batch->weights[h] = share[h] = shares_new(batch, h, true);
    const double equal = loss_of(model, batch);
    assert_true(fabs(equal - none) < 1e-12 * fabs(none));
    for (uint32_t h = 0; h < batch->mb.hops; h++) {
        free(share[h]);
        batch->weights[h] = shares_new(batch, h, false);
    }
    assert_true(model->config.model == PST_GNN_GAT || fabs(loss_of(model, batch) - none) > 1e-9 * fabs(none));
    pst_gnn_model_forget(model);
}

static void check_model(const struct pst_gnn_config *config, int64_t seeds, int64_t most)
{
    struct random_batch b;
    struct pst_gnn_model model;
    random_batch_init(&b, config->layers, seeds, config->in, config->classes);
    assert_int_equal(pst_gnn_model_init(&model, config), PST_OK);
    const bool weighs = config->aggregate && config->hidden % 2 == 1 && config->layers == 2;
    if (weighs)
        weigh_edges(&model, &b.view);
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
        check_tensor(&model, &b.view, &model.parameter[p], grad, most);
    free(grad);
    for (uint32_t h = 0; h < b.view.mb.hops && weighs; h++)
        free((void *)(uintptr_t)b.view.weights[h]);
    pst_gnn_model_release(&model);
    random_batch_release(&b);
}

static void sweep(enum pst_gnn_model_kind model, enum pst_gnn_norm norm)
{
    for (int variant = 0; variant < (model == PST_GNN_GRAPHSAGE ? 32 : 16);
         variant += model == PST_GNN_GAT ? 3 : 1) {
        const struct pst_gnn_config config = {.model = model,
                                              .layers = variant & 1 ? 3 : 2,
                                              .in = variant & 2 ? 11 : 5,
                                              .hidden = variant & 2 ? 5 : 11,
                                              .classes = variant & 2 ? 3 : 17,
                                              .heads = variant & 4 ? 3 : 1,
                                              .attention_dropout = variant & 8 ? 0.3 : 0,
                                              .norm = norm,
                                              .residual = (variant & 5) == 5,
                                              .aggregate = !(variant & 16),
                                              .multilabel = variant % 5 == 3,
                                              .dropout = variant & 8 ? 0.4 : 0,
                                              .input_dropout = variant & 8 ? 0.2 : 0,
                                              .seed = 5,
                                              .threads = 1,
                                              .rows_max = 1000,
                                              .edges_max = 4000};
        check_model(&config, 9, 40);
    }
}

static void test_plain(void **state)
{
    (void)state;
    for (int model = 0; model < PST_GNN_MODEL_KINDS; model++)
        sweep((enum pst_gnn_model_kind)model, PST_GNN_NORM_NONE);
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (int model = 0; model < PST_GNN_MODEL_KINDS; model++)
        sweep((enum pst_gnn_model_kind)model, PST_GNN_NORM_LAYER);
}

static void test_batch_norm(void **state)
{
    (void)state;
    for (int model = 0; model < PST_GNN_MODEL_KINDS; model++)
        sweep((enum pst_gnn_model_kind)model, PST_GNN_NORM_BATCH);
}

static void test_residual_deep(void **state)
{
    (void)state;
    for (int k = 0; k < 3 * PST_GNN_MODEL_KINDS; k++) {
        const struct pst_gnn_config config = {.model = (enum pst_gnn_model_kind)(k / 3),
                                              .layers = 4,
                                              .in = 7,
                                              .hidden = 7,
                                              .classes = 4,
                                              .heads = 2,
                                              .attention_dropout = 0.3,
                                              .norm = (enum pst_gnn_norm)(k % 3),
                                              .residual = true,
                                              .aggregate = true,
                                              .dropout = 0.3,
                                              .seed = 6,
                                              .threads = 1,
                                              .rows_max = 3000,
                                              .edges_max = 12000};
        check_model(&config, 8, 40);
    }
}

/* So many rows that the weights' gradients are made in parts, by several threads. */
static void test_parts(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * PST_GNN_MODEL_KINDS; k++) {
        const struct pst_gnn_config config = {.model = (enum pst_gnn_model_kind)(k / 2),
                                              .layers = 3,
                                              .in = 7,
                                              .hidden = 5,
                                              .classes = 4,
                                              .heads = 2,
                                              .attention_dropout = 0.3,
                                              .norm = (enum pst_gnn_norm)(k % 2),
                                              .residual = k % 2 > 0,
                                              .aggregate = true,
                                              .dropout = 0.3,
                                              .seed = 7,
                                              .threads = 3,
                                              .rows_max = 30000,
                                              .edges_max = 120000};
        check_model(&config, 600, 8);
    }
}

/* Both orders of mean and product are reached, and give the same loss. */
static void test_project_first(void **state)
{
    (void)state;
    const struct pst_gnn_layer wide = {.in = 1000, .out = 8, .left = -1},
                               narrow = {.in = 8, .out = 1000, .left = -1},
                               gat = {.in = 8, .out = 1000, .left = 0};
    assert_true(pst_gnn_projects_first(&wide, 10, 20, 100));
    assert_false(pst_gnn_projects_first(&narrow, 10, 20, 100));
    assert_true(pst_gnn_projects_first(&gat, 10, 20, 100));
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
