/* The gradients of models with products in bfloat16, beside those in float32. */
#include "tests/stage/trainer_world.h"

/* Skips the test if this CPU cannot multiply in bfloat16. */
static struct pst_device bf16_device(void)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    const struct pst_twin *twin = pst_twin_cpu_bf16(why);
    if (!twin) {
        print_message("%s\n", why);
        skip();
    }
    return (struct pst_device){.twin = twin, .number = -1};
}

/* The gradients of a step in bfloat16 are those of float32 but for the rounding of factors: 2^-9 of each. It
 * also moves some numbers to the other side of ReLU, where the gradient jumps; ELU (GAT) has no jump. */
static void test_bf16_gradients(void **state)
{
    (void)state;
    struct pst_device rounds = bf16_device();
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 4 * PST_GNN_MODEL_KINDS; variant++) {
        struct pst_gnn_config config =
            config_of(variant & 1 ? 3 : 2, variant & 2 ? PST_GNN_NORM_LAYER : PST_GNN_NORM_NONE, false, 0);
        config.model = (enum pst_gnn_model_kind)(variant / 4);
        const double most = config.model == PST_GNN_GAT ? 0.01 : 0.12;
        int64_t seeds[SEEDS];
        struct pst_gnn_model exact, rounded;
        struct pst_gnn_figures a = {0}, b = {0};
        assert_int_equal(pst_gnn_model_init(&exact, &config), PST_OK);
        config.device = &rounds;
        assert_int_equal(pst_gnn_model_init(&rounded, &config), PST_OK);
        struct sampled *s = sample(w, config.layers, 4, some_seeds(w, seeds), SEEDS);
        for (int step = 0; step < 2; step++) { /* the second has other weights */
            pst_gnn_model_forget(&exact);
            pst_gnn_model_forget(&rounded);
            assert_int_equal(pst_gnn_model_step(&exact, &s->view, &a, NULL), PST_OK);
            assert_int_equal(pst_gnn_model_step(&rounded, &s->view, &b, NULL), PST_OK);
            double error = 0, size = 0;
            for (int64_t i = 0; i < exact.size; i++) {
                error += pow((double)(exact.grad[i] - rounded.grad[i]), 2);
                size += pow((double)exact.grad[i], 2);
            }
            if (!(error > 0 && sqrt(error / size) < most && fabs(a.loss - b.loss) < 0.02 * a.loss))
                fail_msg("variant %d: gradients differ by %g of their norm, the losses are %g and %g",
                         variant, sqrt(error / size), a.loss, b.loss);
            for (int64_t i = 0; i < exact.size; i++)
                exact.weight[i] = rounded.weight[i] = -0.5f * exact.weight[i];
        }
        free(s);
        pst_gnn_model_release(&exact);
        pst_gnn_model_release(&rounded);
    }
    world_free(w);
}

/* Gives a batch its features in bfloat16, in rows of any stride, where the floats lie: those have twice the
 * bytes. */
static void narrow_features(struct sampled *s, int64_t rows, int64_t ld)
{
    uint16_t *const to = malloc((size_t)(rows * ld) * sizeof *to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < DIM; j++) {
            uint32_t bits;
            memcpy(&bits, &s->features[i * DIM + j], sizeof bits);
            to[i * ld + j] = (uint16_t)(bits >> 16);
        }
    memcpy(s->features, to, (size_t)(rows * ld) * sizeof *to);
    free(to);
    s->view.mb.feature_dtype = PST_BF16;
    s->view.mb.stride_bytes = (uint32_t)ld * sizeof *to;
}

/* Random weights of the edges of all blocks. */
static pst_real *weigh(struct world *w, struct sampled *s, int hops)
{
    pst_real *const weights = malloc(EDGES_MAX * sizeof *weights);
    for (int64_t e = 0; e < EDGES_MAX; e++)
        weights[e] = (pst_real)(unit(w) + 1);
    for (int h = 0; h < hops; h++)
        s->view.weights[h] = weights;
    return weights;
}

/* Features in bfloat16, used as they lie, and the same numbers in float32: the same bits. With dropped
 * inputs, they are widened. */
static void test_bf16_features(void **state)
{
    (void)state;
    struct pst_device rounds = bf16_device();
    struct world *w = world_new(PST_BF16, false);
    for (int variant = 0; variant < 8 * PST_GNN_MODEL_KINDS; variant++) {
        struct pst_gnn_config config =
            config_of(variant & 1 ? 3 : 2, PST_GNN_NORM_NONE, false, variant & 2 ? 0.5 : 0);
        if (variant & 4)
            config.input_dropout = 0;
        if (variant & 1)
            config.hidden = 2; /* some products come before sums */
        config.model = (enum pst_gnn_model_kind)(variant / 8);
        config.device = &rounds;
        int64_t seeds[SEEDS];
        struct pst_gnn_model wide, narrow;
        struct pst_gnn_figures a = {0}, b = {0};
        assert_int_equal(pst_gnn_model_init(&wide, &config), PST_OK);
        assert_int_equal(pst_gnn_model_init(&narrow, &config), PST_OK);
        struct sampled *s = sample(w, config.layers, 4, some_seeds(w, seeds), SEEDS);
        pst_real *const weights = variant % 3 == 0 ? weigh(w, s, config.layers) : NULL;
        assert_int_equal(pst_gnn_model_step(&wide, &s->view, &a, NULL), PST_OK);
        narrow_features(s, s->view.mb.n[config.layers], variant & 1 ? DIM : DIM + 3);
        assert_int_equal(pst_gnn_model_step(&narrow, &s->view, &b, NULL), PST_OK);
        assert_true(a.loss == b.loss && a.loss > 0);
        assert_memory_equal(wide.grad, narrow.grad, (size_t)wide.size * sizeof *wide.grad);
        free(weights);
        free(s);
        pst_gnn_model_release(&wide);
        pst_gnn_model_release(&narrow);
    }
    world_free(w);
}

int main(void)
{
    (void)setenv("ONEDNN_MAX_CPU_ISA", "ALL", 1); /* the sanitizers' tests exclude what bfloat16 needs */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16_gradients),
                                       cmocka_unit_test(test_bf16_features)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
