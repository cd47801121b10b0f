/* Models of relations in double: the forward pass against plain loops, gradients against central differences.
 */
#include "stages/lib/gnn/layer.h"
#include "tests/gradient/numeric.h"
#include "tests/gradient/typed_batch.h"

static struct pst_gnn_config config_of(enum pst_gnn_model_kind model)
{
    return (struct pst_gnn_config){.model = model,
                                   .layers = 2,
                                   .in = TYPED_WIDE,
                                   .hidden = 5,
                                   .classes = TYPED_CLASSES,
                                   .aggregate = true,
                                   .seed = 5,
                                   .threads = 1,
                                   .rows_max = 100,
                                   .edges_max = 4000,
                                   .types = &typed_types};
}

static void stir(struct pst_gnn_model *model)
{
    for (int64_t i = 0; i < model->size; i++)
        model->weight[i] += 0.1 * random_unit();
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* y += x W for the k-th term of layer l. x has no more columns than the term's input. */
static void add_row(const struct pst_gnn_model *m, int l, int k, const double *x, double share, double *y)
{
    const int64_t out = m->layer[l].out, in = pst_gnn_in_of_term(m, l, k);
    const pst_real *w = m->weight + pst_gnn_weight_of_term(m, l, k);
    for (int64_t i = 0; i < in; i++)
        for (int64_t j = 0; j < out; j++)
            y[j] += share * x[i] * w[i * out + j];
}

/* The definition (layer.h), for one destination. */
static void mix(const struct pst_gnn_model *m, const struct typed_batch *b, int l, int64_t d, const double *x,
                int64_t ld, double *y)
{
    const int h = m->config.layers - 1 - l, type = typed_type_of(b->view.vertices[d]);
    const int32_t *indptr = b->view.indptr[h], *indices = b->view.indices[h];
    const int32_t *relation = (const int32_t *)(const void *)(b->slot + b->view.mb.relations_at[h]);
    for (int k = 0; k < m->terms.n; k++) {
        const struct pst_gnn_term *t = &m->terms.term[k];
        int64_t count = 0;
        if (t->relation < 0 && t->target == type)
            add_row(m, l, k, x + d * ld, 1, y);
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            count += relation[e] == t->relation;
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            if (relation[e] == t->relation)
                add_row(m, l, k, x + indices[e] * ld, 1.0 / (double)count, y);
    }
    for (int64_t j = 0; j < m->layer[l].out; j++)
        y[j] += m->weight[m->layer[l].bias + j];
}

static void test_forward(void **state)
{
    (void)state;
    for (int model = PST_GNN_MODEL_KINDS; model < PST_GNN_ALL_KINDS; model++) {
        struct pst_gnn_config c = config_of((enum pst_gnn_model_kind)model);
        struct pst_gnn_model m;
        struct typed_batch b;
        struct pst_gnn_figures figures = {0};
        const pst_real *logits;
        assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
        stir(&m);
        typed_batch_init(&b, 2, NULL);
        assert_int_equal(typed_batch_fill(&b, &m), PST_OK);
        assert_int_equal(pst_gnn_model_step(&m, &b.view, &figures, &logits), PST_OK);
        const int64_t hidden = b.view.mb.n[1];
        double *x = calloc((size_t)hidden * 5, sizeof *x);
        for (int64_t d = 0; d < hidden; d++) {
            mix(&m, &b, 0, d, b.view.features, 8, x + d * 5);
            for (int j = 0; j < 5; j++)
                x[d * 5 + j] = fmax(0, x[d * 5 + j]);
        }
        for (int64_t d = 0; d < TYPED_SEEDS; d++) {
            double y[TYPED_CLASSES] = {0};
            mix(&m, &b, 1, d, x, 5, y);
            for (int j = 0; j < TYPED_CLASSES; j++)
                check_near(logits[d * pst_gnn_width(TYPED_CLASSES) + j], y[j], "a logit");
        }
        free(x);
        typed_batch_release(&b);
        pst_gnn_model_release(&m);
    }
}

/* ---- gradients ---------------------------------------------------------------------------------- */

struct run {
    struct pst_gnn_model model;
    struct typed_batch b;
};

static double loss_of(void *ctx)
{
    struct run *r = ctx;
    struct pst_gnn_figures figures = {0};
    assert_int_equal(pst_gnn_model_step(&r->model, &r->b.view, &figures, NULL), PST_OK);
    return figures.loss;
}

static void check_gradients(const struct pst_gnn_config *config)
{
    struct run *r = calloc(1, sizeof *r);
    assert_int_equal(pst_gnn_model_init(&r->model, config), PST_OK);
    stir(&r->model);
    typed_batch_init(&r->b, config->layers, NULL);
    assert_int_equal(typed_batch_fill(&r->b, &r->model), PST_OK);
    (void)loss_of(r);
    pst_real *grad = malloc((size_t)r->model.size * sizeof *grad);
    memcpy(grad, r->model.grad, (size_t)r->model.size * sizeof *grad);
    for (int p = 0; p < r->model.parameters; p++) {
        const struct pst_gnn_parameter *t = &r->model.parameter[p];
        check_numeric(loss_of, r, r->model.weight + t->at, t->rows * t->cols, grad + t->at, t->name);
    }
    free(grad);
    typed_batch_release(&r->b);
    pst_gnn_model_release(&r->model);
    free(r);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int model = PST_GNN_MODEL_KINDS; model < PST_GNN_ALL_KINDS; model++) {
        for (int variant = 0; variant < 12; variant++) {
            struct pst_gnn_config c = config_of((enum pst_gnn_model_kind)model);
            c.norm = (enum pst_gnn_norm)(variant % 3);
            c.layers = variant & 4 ? 3 : 2;
            c.residual = c.layers == 3;
            c.dropout = variant >= 8 ? 0.3 : 0;
            c.input_dropout = variant >= 8 ? 0.2 : 0;
            check_gradients(&c);
        }
    }
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    struct pst_gnn_config c = config_of(PST_GNN_RGCN);
    struct pst_gnn_model m;
    struct typed_batch b;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
    typed_batch_init(&b, 2, NULL);
    int32_t *relation = (int32_t *)(void *)(b.slot + b.view.mb.relations_at[1]);
    const int32_t was = relation[3];
    for (int32_t r = 0; r <= typed_types.relations; r++) {
        relation[3] = r;
        const bool fits = r < typed_types.relations && typed_types.source[r] == typed_types.source[was] &&
                          typed_types.target[r] == typed_types.target[was];
        assert_int_equal(typed_batch_fill(&b, &m), fits ? PST_OK : PST_E_PEER);
    }
    relation[3] = was;
    b.view.mb.relations_at[0] = 0;
    assert_int_equal(typed_batch_fill(&b, &m), PST_E_PEER);
    typed_batch_release(&b);
    pst_gnn_model_release(&m);
    c.types = NULL;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
