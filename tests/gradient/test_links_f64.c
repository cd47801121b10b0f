/* Link prediction in double precision: the gradients of both heads, of the learned inputs and of all weights
 * against central differences, and the loss against a naive loop. */
#include "stages/lib/links/heads.h"
#include "tests/gradient/numeric.h"

enum { SEEDS = 12, PAIRS = 60, EDGES = 20 };

struct linked {
    struct random_batch batch;
    struct pst_gnn_model model;
    int32_t pairs[2 * PAIRS];
};

static double loss_of(void *ctx)
{
    struct linked *l = ctx;
    struct pst_gnn_figures figures = {0};
    assert_int_equal(pst_gnn_model_step(&l->model, &l->batch.view, &figures, NULL), PST_OK);
    assert_int_equal(figures.counted, PAIRS);
    return figures.loss;
}

/* Only with the dot product, whose scores the outputs give. */
static double naive(struct linked *l)
{
    const pst_real *y;
    struct pst_gnn_figures figures = {0};
    double loss = 0;
    assert_int_equal(pst_gnn_model_step(&l->model, &l->batch.view, &figures, &y), PST_OK);
    const int64_t d = l->model.config.classes, ld = pst_gnn_width(d);
    for (int p = 0; p < PAIRS; p++) {
        double score = 0;
        for (int64_t j = 0; j < d; j++)
            score += y[l->pairs[2 * p] * ld + j] * y[l->pairs[2 * p + 1] * ld + j];
        const double chance = 1 / (1 + exp(-score));
        loss -= p < EDGES ? log(chance) / EDGES : log(1 - chance) / (PAIRS - EDGES);
    }
    return loss;
}

static void check(enum pst_gnn_score score, enum pst_gnn_model_kind kind, bool learned)
{
    struct linked l;
    const int64_t d = 9;
    random_batch_init(&l.batch, 2, SEEDS, 7, d);
    struct pst_gnn_batch *v = &l.batch.view;
    for (int i = 0; i < 2 * PAIRS; i++)
        l.pairs[i] = (int32_t)random_below(SEEDS);
    v->pairs = l.pairs;
    v->mb.pairs = PAIRS;
    v->mb.positives = v->mb.batch_seeds = EDGES;
    const int64_t rows = v->mb.n[2];
    for (int64_t i = 0; learned && i < rows; i++)
        l.batch.vertices[i] = (rows - 1 - i) * 2; /* each once */
    const struct pst_gnn_config config = {.model = kind,
                                          .layers = 2,
                                          .in = 7,
                                          .hidden = 9,
                                          .classes = d,
                                          .heads = 1,
                                          .aggregate = true,
                                          .dropout = 0.3,
                                          .input_dropout = learned ? 0.2 : 0,
                                          .seed = 5,
                                          .threads = 2,
                                          .rows_max = rows,
                                          .edges_max = 4 * rows,
                                          .score = score,
                                          .head = pst_links_head(score),
                                          .pairs_max = PAIRS,
                                          .learned = learned ? 2 * rows : 0};
    assert_int_equal(pst_gnn_model_init(&l.model, &config), PST_OK);
    for (int64_t i = 0; i < l.model.size; i++)
        l.model.weight[i] += 0.05 * random_unit();
    const double loss = loss_of(&l);
    pst_real *grad = zeros(l.model.size);
    memcpy(grad, l.model.grad, (size_t)l.model.size * sizeof *grad);
    if (score == PST_GNN_SCORE_DOT)
        assert_true(fabs(naive(&l) - loss) < 1e-12 * (1 + loss));
    for (int p = 0; p < l.model.parameters; p++) {
        const struct pst_gnn_parameter *t = &l.model.parameter[p];
        check_numeric(loss_of, &l, l.model.weight + t->at, t->rows * t->cols, grad + t->at, t->name);
    }
    free(grad);
    pst_gnn_model_release(&l.model);
    random_batch_release(&l.batch);
}

static void test_heads(void **state)
{
    (void)state;
    check(PST_GNN_SCORE_DOT, PST_GNN_GRAPHSAGE, false);
    check(PST_GNN_SCORE_DOT, PST_GNN_GRAPHSAGE, true);
    check(PST_GNN_SCORE_DOT, PST_GNN_GCN, true);
    check(PST_GNN_SCORE_MLP, PST_GNN_GRAPHSAGE, true);
    check(PST_GNN_SCORE_MLP, PST_GNN_GAT, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
