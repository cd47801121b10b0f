/* Evaluation over the whole graph, in memory and spilled, against the naive forward pass. */
#include "tests/stage/trainer_world.h"

static void check_predictions(const struct pst_gnn_eval *eval, const double *logits)
{
    int64_t clear = 0;
    for (int64_t v = 0; v < VERTICES; v++) {
        double best = -1e300, second = -1e300;
        int32_t at = 0;
        for (int32_t c = 0; c < CLASSES; c++) {
            const double z = logits[v * CLASSES + c];
            if (z > best) {
                second = best;
                best = z;
                at = c;
            } else if (z > second) {
                second = z;
            }
        }
        if (best - second > 1e-3) {
            assert_int_equal(eval->predicted[v], at);
            clear++;
        }
    }
    assert_true(clear > VERTICES * 9 / 10);
}

static void check_accuracy(const struct world *w, const struct pst_gnn_eval *eval, const double *accuracy)
{
    for (int s = 0; s < 3; s++) {
        int64_t right = 0, counted = 0;
        for (int64_t i = 0; i < VERTICES / 3; i++) {
            const int64_t v = w->split[s][i];
            counted += w->labels[v] >= 0;
            right += w->labels[v] >= 0 && eval->predicted[v] == w->labels[v];
        }
        assert_true(accuracy[s] == (double)right / (double)counted);
    }
}

/* What the last two layers give, to compare bit by bit; each vertex of each layer comes once. */
struct caught {
    const struct pst_gnn_config *config;
    float hidden[VERTICES * COLUMNS_MAX], logits[VERTICES * CLASSES];
    _Atomic int seen[PST_GNN_LAYERS_MAX];
};

static pst_rc catch_rows(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    struct caught *c = ctx;
    const bool last = layer == c->config->layers - 1;
    const int64_t width = last ? c->config->classes : pst_gnn_columns(c->config);
    for (int64_t i = 0; i < n && layer >= c->config->layers - 2; i++)
        memcpy((last ? c->logits : c->hidden) + (first + i) * width, rows + i * ld,
               (size_t)width * sizeof *rows);
    c->seen[layer] += (int)n;
    return PST_OK;
}

static struct caught *evaluate(struct world *w, const struct pst_gnn_model *m, const double *logits,
                               uint64_t memory, bool spilled)
{
    struct pst_gnn_eval eval;
    double accuracy[3];
    struct caught *c = calloc(1, sizeof *c);
    const struct pst_gnn_eval_options options = {
        .spill_dir = w->dir, .memory_bytes = memory, .sink = catch_rows, .sink_ctx = c};
    c->config = &m->config;
    assert_int_equal(pst_gnn_eval_open(&eval, &m->config, &w->ds, &options), PST_OK);
    assert_true(eval.spilled == (spilled && m->config.aggregate));
    assert_int_equal(pst_gnn_eval_run(&eval, m, accuracy), PST_OK);
    assert_int_equal(pst_gnn_eval_run(&eval, m, accuracy), PST_OK); /* nothing is left of the first run */
    check_predictions(&eval, logits);
    check_accuracy(w, &eval, accuracy);
    for (int l = 0; l < m->config.layers; l++)
        assert_int_equal(c->seen[l], 2 * VERTICES);
    pst_gnn_eval_close(&eval);
    return c;
}

/* Neither memory nor threads change a bit. */
static void check_evaluation(struct world *w, const struct pst_gnn_config *config)
{
    static const uint64_t memory[] = {1u << 30, 0, 150000, 300000};
    struct caught *first = NULL;
    for (int k = 0; k < 8; k++) {
        struct pst_gnn_config c = *config;
        struct pst_gnn_model m;
        c.threads = 1 + k % 3;
        assert_int_equal(pst_gnn_model_init(&m, &c), PST_OK);
        w->random = 4711;
        stir(w, &m);
        double *logits = naive_forward(w, &m);
        struct caught *one = evaluate(w, &m, logits, memory[k % 4], k % 4 > 0);
        if (first) {
            assert_memory_equal(first->hidden, one->hidden, sizeof one->hidden);
            assert_memory_equal(first->logits, one->logits, sizeof one->logits);
            free(one);
        } else {
            first = one;
        }
        free(logits);
        pst_gnn_model_release(&m);
    }
    free(first);
}

static void test_evaluation(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 12 + 6 * (PST_GNN_MODEL_KINDS - 1); variant++) {
        struct pst_gnn_config config =
            config_of(variant & 1 ? 3 : 2, (enum pst_gnn_norm)(variant % 3), variant & 1, 0.5);
        config.model = (enum pst_gnn_model_kind)(variant < 12 ? 0 : variant / 6 - 1);
        config.aggregate = variant < 8 || config.model != PST_GNN_GRAPHSAGE;
        check_evaluation(w, &config);
    }
    world_free(w);
}

static void test_evaluation_types(void **state)
{
    (void)state;
    struct pst_gnn_config config = config_of(2, PST_GNN_NORM_NONE, false, 0);
    const enum pst_dtype dtypes[] = {PST_F16, PST_BF16};
    for (int d = 0; d < 2; d++) {
        struct world *w = world_new(dtypes[d], true);
        for (int model = 0; model < PST_GNN_MODEL_KINDS; model++) {
            config.model = (enum pst_gnn_model_kind)model;
            check_evaluation(w, &config);
        }
        world_free(w);
    }
}

/* On one of the team's threads: the message must come through. */
static pst_rc refuse_rows(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    (void)ctx;
    (void)n;
    (void)rows;
    (void)ld;
    return layer == 1 && first > 900 ? pst_fail(PST_E_LIMIT, "no room for layer 1") : PST_OK;
}

static void test_evaluation_refuses(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    struct pst_gnn_config config = config_of(2, PST_GNN_NORM_NONE, false, 0);
    struct pst_gnn_model m;
    struct pst_gnn_eval eval;
    config.threads = 2;
    double accuracy[3];
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_OK);
    struct pst_gnn_eval_options options = {.spill_dir = w->dir, .memory_bytes = 1u << 30};
    assert_int_equal(pst_gnn_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    const int32_t was = w->indices[700];
    w->indices[700] = VERTICES;
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->indices[700] = was;
    w->split[1][5] = -1;
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->split[1][5] = 0;
    w->ds.split[2].shape[0] = 0;
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_OK);
    assert_true(accuracy[2] == -1);
    assert_int_equal(truncate(w->ds.features.path, 9000), 0);
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    pst_gnn_eval_close(&eval);
    write_features(w, PST_F32);
    int64_t row = 0;
    while (w->indptr[row + 1] - w->indptr[row] < 2 || w->indices[w->indptr[row]] > 10)
        row++;
    const int32_t swap = w->indices[w->indptr[row]];
    w->indices[w->indptr[row]] = VERTICES - 1; /* neighbours that do not ascend: parts cannot be told apart */
    options.memory_bytes = 0;
    assert_int_equal(pst_gnn_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_E_FORMAT);
    w->indices[w->indptr[row]] = swap;
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_OK);
    options.sink = refuse_rows;
    pst_gnn_eval_close(&eval);
    assert_int_equal(pst_gnn_eval_open(&eval, &config, &w->ds, &options), PST_OK);
    assert_int_equal(pst_gnn_eval_run(&eval, &m, accuracy), PST_E_LIMIT);
    assert_non_null(strstr(pst_error_text(), "no room for layer 1"));
    pst_gnn_eval_close(&eval);
    options = (struct pst_gnn_eval_options){.spill_dir = "/nowhere/at/all", .memory_bytes = 10};
    assert_int_equal(pst_gnn_eval_open(&eval, &config, &w->ds, &options), PST_E_IO);
    w->ds.features.dtype = PST_F64;
    options.spill_dir = w->dir;
    assert_int_equal(pst_gnn_eval_open(&eval, &config, &w->ds, &options), PST_E_UNSUPPORTED);
    pst_gnn_model_release(&m);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_evaluation_types),
        cmocka_unit_test(test_evaluation_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
