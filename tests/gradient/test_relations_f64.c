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

/* An element of the weight of the k-th term of layer l; with bases, by their definition (layer.h). */
static double weight_of(const struct pst_gnn_model *m, int l, int k, int64_t i, int64_t j)
{
    const struct pst_gnn_layer *layer = &m->layer[l];
    const int64_t bases = m->config.bases, r = m->terms.term[k].relation;
    double w = 0;
    if (bases == 0 || r < 0)
        return pst_gnn_weight_of_term(m, l, k, m->weight, NULL)[i * layer->out + j];
    for (int64_t b = 0; b < bases; b++)
        w += m->weight[layer->coefficients + r * bases + b] *
             m->weight[layer->bases + (b * layer->in + i) * layer->out + j];
    return w;
}

/* y += x W for the k-th term of layer l. x has no more columns than the term's input. */
static void add_row(const struct pst_gnn_model *m, int l, int k, const double *x, double share, double *y)
{
    const int64_t out = m->layer[l].out, in = pst_gnn_in_of_term(m, l, k);
    for (int64_t i = 0; i < in; i++)
        for (int64_t j = 0; j < out; j++)
            y[j] += share * x[i] * weight_of(m, l, k, i, j);
}

/* x . column j of a matrix of `columns`. */
static double column(const double *x, const pst_real *w, int64_t in, int64_t columns, int64_t j)
{
    double sum = 0;
    for (int64_t i = 0; i < in; i++)
        sum += x[i] * w[i * columns + j];
    return sum;
}

/* Attention within the relation of the k-th term (layer.h), for one destination. */
static void attend(struct pst_gnn_model *m, const struct typed_batch *b, int l, int k, int64_t d,
                   const double *x, int64_t ld, double *y)
{
    const int h = m->config.layers - 1 - l;
    const int64_t heads = m->config.heads, dim = m->layer[l].wide / heads, wide = m->layer[l].wide;
    const int32_t *indptr = b->view.indptr[h], *indices = b->view.indices[h];
    const int32_t *relation = (const int32_t *)(const void *)(b->slot + b->view.mb.relations_at[h]);
    const struct pst_gnn_attention w = pst_gnn_attention_of(m, l, k, m->weight);
    for (int64_t head = 0; head < heads; head++) {
        double all = 0, sum[16] = {0};
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++) {
            const double *x_u = x + indices[e] * ld;
            double score = column(x + d * ld, w.left, w.in_target, heads, head), z[16];
            if (relation[e] != m->terms.term[k].relation)
                continue;
            for (int64_t j = 0; j < dim; j++) {
                z[j] = column(x_u, w.weight, w.in, wide, head * dim + j);
                score += w.right[head * dim + j] * z[j];
            }
            const double power = exp(score > 0 ? score : PST_GAT_SLOPE * score);
            all += power;
            for (int64_t j = 0; j < dim; j++)
                sum[j] += power * z[j];
        }
        for (int64_t j = 0; j < dim && all > 0; j++)
            y[m->layer[l].last ? j : head * dim + j] += sum[j] / all / (m->layer[l].last ? (double)heads : 1);
    }
}

/* The definition (layer.h), for one destination. */
static void mix(struct pst_gnn_model *m, const struct typed_batch *b, int l, int64_t d, const double *x,
                int64_t ld, double *y)
{
    const int h = m->config.layers - 1 - l, type = typed_type_of(b->view.vertices[d]);
    const int32_t *indptr = b->view.indptr[h], *indices = b->view.indices[h];
    const int32_t *relation = (const int32_t *)(const void *)(b->slot + b->view.mb.relations_at[h]);
    const pst_real *weight =
        b->layout.size.weights ? (const pst_real *)(const void *)(b->slot + b->view.mb.weights_at[h]) : NULL;
    for (int k = 0; k < m->terms.n; k++) {
        const struct pst_gnn_term *t = &m->terms.term[k];
        double count = 0, sum = 0;
        if (t->relation < 0 && t->target == type)
            add_row(m, l, k, x + d * ld, 1, y);
        if (t->relation >= 0 && m->config.model == PST_GNN_RGAT) {
            attend(m, b, l, k, d, x, ld, y);
            continue;
        }
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            if (relation[e] == t->relation) {
                count++;
                sum += weight != NULL ? weight[e] : 0;
            }
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            if (relation[e] == t->relation)
                add_row(m, l, k, x + indices[e] * ld, sum > 0 ? weight[e] / sum : 1 / count, y);
    }
    for (int64_t j = 0; j < m->layer[l].out; j++)
        y[j] += m->weight[m->layer[l].bias + j];
}

/* R-GCN, R-SAGE, R-GAT, and R-GCN with one to three bases. */
static struct pst_gnn_config case_of(int i)
{
    struct pst_gnn_config c = config_of(i < 3 ? (enum pst_gnn_model_kind)(PST_GNN_RGCN + i) : PST_GNN_RGCN);
    c.bases = i < 3 ? 0 : i - 2;
    c.heads = 3;
    return c;
}
enum { CASES = 6 };

static void test_forward(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * CASES; i++) { /* the second half: edges have weights */
        struct pst_gnn_config c = case_of(i % CASES);
        struct pst_gnn_model m;
        struct typed_batch b;
        struct pst_gnn_figures figures = {0};
        const pst_real *logits;
        assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
        stir(&m);
        typed_batch_init_with(&b, 2, NULL, i >= CASES);
        assert_int_equal(typed_batch_fill(&b, &m), PST_OK);
        assert_int_equal(pst_gnn_model_step(&m, &b.view, &figures, &logits), PST_OK);
        const int64_t hidden = b.view.mb.n[1];
        const int64_t columns = pst_gnn_columns(&c);
        double *x = calloc((size_t)(hidden * columns), sizeof *x);
        for (int64_t d = 0; d < hidden; d++) {
            mix(&m, &b, 0, d, b.view.features, 8, x + d * columns);
            for (int64_t j = d * columns; j < (d + 1) * columns; j++)
                x[j] = x[j] > 0 ? x[j] : c.model == PST_GNN_RGAT ? expm1(x[j]) : 0;
        }
        for (int64_t d = 0; d < TYPED_SEEDS; d++) {
            double y[TYPED_CLASSES] = {0};
            mix(&m, &b, 1, d, x, columns, y);
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

static void check_gradients(const struct pst_gnn_config *config, bool weights)
{
    struct run *r = calloc(1, sizeof *r);
    assert_int_equal(pst_gnn_model_init(&r->model, config), PST_OK);
    stir(&r->model);
    typed_batch_init_with(&r->b, config->layers, NULL, weights);
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
    for (int i = 0; i < CASES; i++) {
        for (int variant = 0; variant < 12; variant++) {
            struct pst_gnn_config c = case_of(i);
            c.norm = (enum pst_gnn_norm)(variant % 3);
            c.layers = variant & 4 ? 3 : 2;
            c.residual = c.layers == 3;
            c.dropout = variant >= 8 ? 0.3 : 0;
            c.input_dropout = variant >= 8 ? 0.2 : 0;
            check_gradients(&c, variant % 4 == 3); /* three of them */
        }
    }
}

/* Of two layers: 7 to 5 columns and 5 to 4. Own weights of types with 7, 4 and 0 features, then seven
 * relations, whose sources are the types 0, 1, 1, 0, 2, 0, 1. */
static void test_parameters(void **state)
{
    (void)state;
    const int64_t own = (7 + 4 + 0) * 5 + 3 * 5 * 4, biases = 5 + 4;
    for (int i = 0; i < CASES; i++) {
        const struct pst_gnn_config c = case_of(i);
        struct pst_gnn_model m;
        assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
        if (c.model == PST_GNN_RGCN)
            assert_int_equal(pst_gnn_model_parameters(&m),
                             own + biases +
                                 (c.bases == 0 ? (3 * 7 + 3 * 4) * 5 + 7 * 5 * 4
                                               : c.bases * (7 * 5 + 5 * 4) + 2 * 7 * c.bases));
        pst_gnn_model_release(&m);
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
    c.bases = typed_types.relations;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
    pst_gnn_model_release(&m);
    c.bases++;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
    c.bases = 1;
    c.model = PST_GNN_RSAGE;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
    c.bases = 0;
    c.model = PST_GNN_RGAT;
    c.heads = 0;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
    c.heads = 2;
    c.attention_dropout = 0.1;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
    c.attention_dropout = 0;
    c.types = NULL;
    assert_int_equal(pst_gnn_model_init(&m, &c), PST_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
