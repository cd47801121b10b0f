/* The trainer's parts without a pipeline: a split batch, logits against a naive forward pass, state. */
#include "tests/stage/trainer_world.h"

static void check_split(struct world *w, const struct pst_gnn_config *config, int64_t cut)
{
    int64_t seeds[SEEDS];
    some_seeds(w, seeds);
    struct pst_gnn_model whole, parts;
    struct pst_gnn_figures a = {0}, b = {0};
    assert_int_equal(pst_gnn_model_init(&whole, config), PST_OK);
    assert_int_equal(pst_gnn_model_init(&parts, config), PST_OK);
    struct sampled *all = sample(w, config->layers, 4, seeds, SEEDS);
    assert_int_equal(pst_gnn_model_step(&whole, &all->view, &a, NULL), PST_OK);
    for (int64_t from = 0; from < SEEDS; from += cut) {
        struct sampled *part =
            sample(w, config->layers, 4, seeds + from, from + cut > SEEDS ? SEEDS - from : cut);
        assert_int_equal(pst_gnn_model_step(&parts, &part->view, &b, NULL), PST_OK);
        free(part);
    }
    double error = 0, size = 0;
    for (int64_t i = 0; i < whole.size; i++) {
        error += pow((double)(whole.grad[i] - parts.grad[i]), 2);
        size += pow((double)whole.grad[i], 2);
    }
    assert_true(size > 0 && sqrt(error / size) < 1e-5);
    assert_true(fabs(a.loss - b.loss) < 1e-5 * a.loss);
    assert_int_equal(a.counted, b.counted);
    free(all);
    pst_gnn_model_release(&whole);
    pst_gnn_model_release(&parts);
}

static void test_split(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 8 * PST_GNN_MODEL_KINDS; variant++) {
        struct pst_gnn_config config =
            config_of(variant & 1 ? 3 : 2, variant & 2 ? PST_GNN_NORM_LAYER : PST_GNN_NORM_NONE, variant & 1,
                      variant & 4 ? 0.5 : 0);
        config.model = (enum pst_gnn_model_kind)(variant / 8);
        check_split(w, &config, 16);
        check_split(w, &config, 23);
    }
    world_free(w);
}

/* A minibatch with all neighbours gives the logits of the naive pass. */
static void test_step_logits(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 4 * PST_GNN_MODEL_KINDS; variant++) {
        struct pst_gnn_config config = config_of(
            variant & 1 ? 3 : 2, variant & 2 ? PST_GNN_NORM_LAYER : PST_GNN_NORM_NONE, variant & 1, 0);
        config.model = (enum pst_gnn_model_kind)(variant / 4);
        int64_t seeds[SEEDS];
        struct pst_gnn_model m;
        struct pst_gnn_figures figures = {0};
        const float *logits;
        assert_int_equal(pst_gnn_model_init(&m, &config), PST_OK);
        stir(w, &m);
        struct sampled *s = sample(w, config.layers, -1, some_seeds(w, seeds), SEEDS);
        double *naive = naive_forward(w, &m);
        assert_int_equal(pst_gnn_model_step(&m, &s->view, &figures, &logits), PST_OK);
        for (int64_t i = 0; i < SEEDS; i++)
            for (int64_t c = 0; c < CLASSES; c++)
                assert_true(fabs((double)logits[i * pst_gnn_width(CLASSES) + c] -
                                 naive[seeds[i] * CLASSES + c]) < 1e-4);
        free(naive);
        free(s);
        pst_gnn_model_release(&m);
    }
    world_free(w);
}

static void train_some(struct world *w, struct pst_gnn_model *m, int64_t from, int64_t to)
{
    for (int64_t batch = from; batch < to; batch++) {
        int64_t seeds[SEEDS];
        struct pst_gnn_figures figures = {0};
        w->random = (uint64_t)batch;
        struct sampled *s = sample(w, m->config.layers, 3, some_seeds(w, seeds), SEEDS);
        s->view.mb.batch = (uint64_t)batch;
        assert_int_equal(pst_gnn_model_step(m, &s->view, &figures, NULL), PST_OK);
        pst_gnn_model_update(m, 0.01, 5e-4);
        free(s);
    }
}

static void test_resume(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int k = 0; k < 3 * PST_GNN_MODEL_KINDS; k++) {
        struct pst_gnn_config config = config_of(3, (enum pst_gnn_norm)(k % 3), true, 0.5);
        config.model = (enum pst_gnn_model_kind)(k / 3);
        struct pst_gnn_model straight, first, second;
        struct pst_gnn_identity id;
        struct pst_gnn_training p, back;
        char path[256], dir[128];
        assert_int_equal(pst_gnn_model_init(&straight, &config), PST_OK);
        assert_int_equal(pst_gnn_model_init(&first, &config), PST_OK);
        assert_int_equal(pst_gnn_model_init(&second, &config), PST_OK);
        pst_gnn_identity_of(&id, &first, "0123456789abcdef");
        pst_gnn_training_init(&p);
        p.next_batch = 5;
        p.loss = 1.0 / 3;
        p.digest = UINT64_MAX - 1;
        p.best_epoch = 2;
        train_some(w, &straight, 0, 10);
        train_some(w, &first, 0, 5);
        assert_int_equal(pst_gnn_state_save(w->dir, 3, &first, &p, &id), PST_OK);
        snprintf(dir, sizeof dir, "%s/checkpoints", w->dir);
        assert_int_equal(pst_checkpoint_latest(dir, path, sizeof path, NULL, 0), PST_OK);
        assert_int_equal(pst_gnn_state_load(path, &second, &back, &id), PST_OK);
        assert_memory_equal(&p, &back, sizeof p);
        train_some(w, &second, 5, 10);
        const size_t bytes = (size_t)straight.size * sizeof(float);
        assert_memory_equal(straight.weight, second.weight, bytes);
        assert_memory_equal(straight.m, second.m, bytes);
        assert_memory_equal(straight.v, second.v, bytes);
        assert_memory_equal(straight.running, second.running, (size_t)straight.running_size * sizeof(float));
        id.dataset = "another";
        assert_int_equal(pst_gnn_state_load(path, &second, &back, &id), PST_E_ARG);
        id.dataset = "0123456789abcdef";
        second.config.seed++;
        assert_int_equal(pst_gnn_state_load(path, &second, &back, &id), PST_E_ARG);
        second.config.seed--;
        second.config.hidden++;
        pst_gnn_identity_of(&id, &second, id.dataset);
        assert_int_equal(pst_gnn_state_load(path, &second, &back, &id), PST_E_ARG);
        pst_gnn_model_release(&straight);
        pst_gnn_model_release(&first);
        pst_gnn_model_release(&second);
    }
    world_free(w);
}

static void test_keep(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    const struct pst_gnn_config config = config_of(2, PST_GNN_NORM_NONE, false, 0);
    struct pst_gnn_model m;
    struct pst_gnn_identity id;
    struct pst_gnn_training p;
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_OK);
    pst_gnn_identity_of(&id, &m, "d");
    pst_gnn_training_init(&p);
    p.best_batch = 20;
    for (p.next_batch = 10; p.next_batch <= 70; p.next_batch += 10)
        assert_int_equal(pst_gnn_state_save(w->dir, 2, &m, &p, &id), PST_OK);
    char dir[128];
    uint64_t numbers[10];
    snprintf(dir, sizeof dir, "%s/checkpoints", w->dir);
    assert_int_equal(pst_checkpoint_list(dir, numbers, 10), 3);
    assert_int_equal(numbers[0], 20);
    assert_int_equal(numbers[1], 60);
    assert_int_equal(numbers[2], 70);
    pst_gnn_model_release(&m);
    world_free(w);
}

/* The same bits with one thread and with many, more than there are cores too. */
static void test_same_bits(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    for (int variant = 0; variant < 6; variant++) {
        struct pst_gnn_config config =
            config_of(2 + variant % 2, (enum pst_gnn_norm)(variant / 2), variant % 2, 0.5);
        struct pst_gnn_model a, b, c;
        config.aggregate = variant != 3;
        assert_int_equal(pst_gnn_model_init(&a, &config), PST_OK);
        config.threads = 2 + variant;
        assert_int_equal(pst_gnn_model_init(&b, &config), PST_OK);
        config.seed++;
        assert_int_equal(pst_gnn_model_init(&c, &config), PST_OK);
        assert_memory_not_equal(a.weight, c.weight, (size_t)a.size * sizeof(float));
        train_some(w, &a, 0, 20);
        train_some(w, &b, 0, 20);
        assert_memory_equal(a.weight, b.weight, (size_t)a.size * sizeof(float));
        assert_memory_equal(a.running, b.running, (size_t)a.running_size * sizeof(float));
        pst_gnn_model_release(&a);
        pst_gnn_model_release(&b);
        pst_gnn_model_release(&c);
    }
    world_free(w);
}

static void test_refusals(void **state)
{
    (void)state;
    struct world *w = world_new(PST_F32, false);
    struct pst_gnn_model m;
    struct pst_gnn_figures figures = {0};
    int64_t seeds[SEEDS];
    struct pst_gnn_config config = config_of(2, PST_GNN_NORM_NONE, true, 0);
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_E_ARG);
    config = config_of(1, PST_GNN_NORM_NONE, false, 0);
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_E_ARG);
    config = config_of(2, PST_GNN_NORM_NONE, false, 1);
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_E_ARG);
    config = config_of(2, PST_GNN_NORM_NONE, false, 0);
    config.rows_max = 20;
    assert_int_equal(pst_gnn_model_init(&m, &config), PST_OK);
    struct sampled *s = sample(w, 2, 5, some_seeds(w, seeds), SEEDS);
    assert_int_equal(pst_gnn_model_step(&m, &s->view, &figures, NULL), PST_E_LIMIT);
    s->view.mb.hops = 1;
    assert_int_equal(pst_gnn_model_step(&m, &s->view, &figures, NULL), PST_E_ARG);
    free(s);
    pst_gnn_model_release(&m);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split), cmocka_unit_test(test_step_logits), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_keep),  cmocka_unit_test(test_same_bits),   cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
