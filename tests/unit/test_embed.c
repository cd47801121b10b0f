/* Embeddings in single precision: the number of threads does not change a bit, optimizers follow their
 * formulas, initial values do not depend on how they are asked for, and bad plans are refused. */
#include "common/error.h"
#include "stages/lib/embed/embed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { EDGES = 501, CHUNKS = 4, NEGATIVES = 67, VERTICES = 300, D = 24, RELATIONS = 5 };

static uint64_t state_of_random = 1;

static uint32_t below(uint32_t n)
{
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % n;
}

struct result {
    double loss;
    float nodes[VERTICES * D], relations[2 * RELATIONS * D];
};

static void train(const struct pst_embed_plan *plan, int threads, struct result *r)
{
    static uint32_t src[EDGES], rel[EDGES], dst[EDGES], neg[2][CHUNKS * NEGATIVES], touched[2 * RELATIONS];
    static float nodes[VERTICES * D], relations[2 * RELATIONS * D];
    state_of_random = 7;
    for (int i = 0; i < EDGES; i++) {
        src[i] = below(VERTICES);
        dst[i] = below(VERTICES);
        rel[i] = below(RELATIONS);
    }
    for (int i = 0; i < 2 * CHUNKS * NEGATIVES; i++)
        neg[i % 2][i / 2] = below(VERTICES);
    pst_embed_init(1, 0, 1, 0, VERTICES, D, nodes);
    pst_embed_init(1, 1, 1, 0, (plan->inverse ? 2 : 1) * RELATIONS, pst_embed_relation_floats(plan),
                   relations);
    memset(r, 0, sizeof *r);
    struct pst_embed_batch b = {.edges = EDGES,
                                .chunks = CHUNKS,
                                .n = VERTICES,
                                .negatives = NEGATIVES,
                                .src = src,
                                .rel = rel,
                                .dst = dst,
                                .neg_src = neg[0],
                                .neg_dst = neg[1],
                                .nodes = nodes,
                                .node_grads = r->nodes,
                                .relation_rows = relations,
                                .relation_grads = r->relations,
                                .touched = touched};
    struct pst_embed_workspace *w;
    assert_int_equal(pst_embed_workspace_new(&w, threads), PST_OK);
    for (int turn = 0; turn < 2; turn++) /* the second turn finds the memory of the first */
        assert_int_equal(pst_embed_step(plan, &b, w, &r->loss), PST_OK);
    pst_embed_workspace_free(w);
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"dot", "distmult", "complex", "transe-l1", "transe-l2", "rotate"};
    static struct result one, other;
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++)
        for (int loss = PST_K_EMBED_SOFTMAX; loss <= PST_K_EMBED_MARGIN; loss++) {
            const struct pst_embed_plan plan = {.model = pst_embed_model_named(NAMES[m]),
                                                .d = D,
                                                .relations = RELATIONS,
                                                .inverse = m % 2,
                                                .loss = (enum pst_k_embed_loss)loss,
                                                .margin = 1,
                                                .dropout = 0.1};
            train(&plan, 1, &one);
            assert_true(isfinite(one.loss) && one.loss > 0);
            for (int threads = 2; threads <= 5; threads += 3) {
                train(&plan, threads, &other);
                assert_memory_equal(&one, &other, sizeof one);
            }
        }
}

/* Both ways to compute a step give the same loss and gradients, but for the last bits. */
static void test_unfused(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"dot", "distmult", "complex", "transe-l1", "transe-l2", "rotate"};
    static struct result fused, unfused, two;
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++)
        for (int loss = PST_K_EMBED_SOFTMAX; loss <= PST_K_EMBED_MARGIN; loss++) {
            struct pst_embed_plan plan = {.model = pst_embed_model_named(NAMES[m]),
                                          .d = D,
                                          .relations = RELATIONS,
                                          .inverse = m % 2,
                                          .loss = (enum pst_k_embed_loss)loss,
                                          .margin = 1,
                                          .tile = 7,
                                          .dropout = 0.1};
            train(&plan, 1, &fused);
            plan.unfused = true;
            train(&plan, 1, &unfused);
            train(&plan, 2, &two);
            assert_memory_equal(&unfused, &two, sizeof two);
            assert_true(fabs(fused.loss - unfused.loss) <= 1e-5 * fused.loss);
            for (int i = 0; i < VERTICES * D; i++)
                assert_true(fabsf(fused.nodes[i] - unfused.nodes[i]) < 2e-4f);
            for (int i = 0; i < 2 * RELATIONS * D; i++)
                assert_true(fabsf(fused.relations[i] - unfused.relations[i]) < 2e-3f);
        }
}

static void test_optimizers(void **state)
{
    (void)state;
    const float grad[2] = {0.5f, -1.5f}, lr = 0.1f;
    static const int64_t FLOATS[] = {2, 1, 0, 4};
    double want[4][2];
    for (int i = 0; i < 2; i++) {
        double g = 0, m = 0, v = 0, x = 1, mean = 0, row = 1, sgd = 1, adam = 1;
        for (int step = 1; step <= 3; step++) {
            g += grad[i] * grad[i];
            mean += (0.25 + 2.25) / 2;
            m = 0.9 * m + 0.1 * grad[i];
            v = 0.999 * v + 0.001 * grad[i] * grad[i];
            x -= 0.1 * grad[i] / sqrt(g);
            row -= 0.1 * grad[i] / sqrt(mean);
            sgd -= 0.1 * grad[i];
            adam -= 0.1 * (m / (1 - pow(0.9, step))) / (sqrt(v / (1 - pow(0.999, step))) + 1e-8);
        }
        want[PST_K_EMBED_ADAGRAD][i] = x;
        want[PST_K_EMBED_ADAGRAD_ROW][i] = row;
        want[PST_K_EMBED_SGD][i] = sgd;
        want[PST_K_EMBED_ADAM][i] = adam;
    }
    for (int o = PST_K_EMBED_ADAGRAD; o <= PST_K_EMBED_ADAM; o++) {
        float x[2] = {1, 1}, memory[4] = {0};
        assert_int_equal(pst_k_embed_state_floats((enum pst_k_embed_optimizer)o, 2), FLOATS[o]);
        for (uint64_t step = 1; step <= 3; step++)
            pst_embed_update((enum pst_k_embed_optimizer)o, x, memory, grad, 2, lr, step);
        for (int i = 0; i < 2; i++)
            assert_true(fabs((double)x[i] - want[o][i]) < 1e-5);
    }
    float still = 1, none = 0; /* a gradient of 0 changes nothing, even the first time */
    const float zero = 0;
    pst_embed_update(PST_K_EMBED_ADAGRAD, &still, &none, &zero, 1, lr, 1);
    assert_true(still == 1);
}

static void test_init(void **state)
{
    (void)state;
    float all[100 * 7], part[7];
    double mean = 0;
    pst_embed_init(5, 0, 0.5f, 0, 100, 7, all);
    for (int row = 0; row < 100; row++) {
        pst_embed_init(5, 0, 0.5f, row, 1, 7, part);
        assert_memory_equal(part, all + row * 7, sizeof part);
    }
    for (int i = 0; i < 700; i++) {
        assert_true(fabsf(all[i]) <= 0.5f);
        mean += (double)all[i] / 700;
    }
    assert_true(fabs(mean) < 0.05);
    pst_embed_init(6, 0, 0.5f, 0, 1, 7, part);
    assert_memory_not_equal(part, all, sizeof part);
    pst_embed_init(5, 1, 0.5f, 0, 1, 7, part);
    assert_memory_not_equal(part, all, sizeof part);
}

static void test_refused(void **state)
{
    (void)state;
    const struct pst_embed_plan good = {.model = pst_embed_model_named("complex"),
                                        .d = 8,
                                        .relations = 1,
                                        .loss = PST_K_EMBED_MARGIN,
                                        .margin = 1};
    assert_int_equal(pst_embed_check(&good), PST_OK);
    struct pst_embed_plan bad = good;
    bad.d = 7;
    assert_int_equal(pst_embed_check(&bad), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "even"));
    bad = good;
    bad.relations = 0;
    assert_int_equal(pst_embed_check(&bad), PST_E_ARG);
    bad = good;
    bad.dropout = 1;
    assert_int_equal(pst_embed_check(&bad), PST_E_ARG);
    bad = good;
    bad.n3 = NAN;
    assert_int_equal(pst_embed_check(&bad), PST_E_ARG);
    bad = good;
    bad.margin = INFINITY;
    assert_int_equal(pst_embed_check(&bad), PST_E_ARG);
    assert_null(pst_embed_model_named("complexx"));
    assert_non_null(strstr(pst_embed_models(), "rotate"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_unfused), cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_init),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
