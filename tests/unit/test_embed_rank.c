/* Ranks against a float64 brute force over all vertices, for every triple of a small graph: 1, 8 and 32
 * blocks, ties, near ties, every model, 1 and 2 threads. */
#include "stages/lib/embed/ranks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { VERTICES = 211, TRIPLES = 300, RELATIONS = 2, D = 10 };

struct graph {
    uint32_t src[TRIPLES], rel[TRIPLES], dst[TRIPLES];
    float nodes[VERTICES * D], relations[RELATIONS * D];
    float q[TRIPLES * D], own[TRIPLES * D];
};

static struct graph g;
static uint64_t state_of_random = 1;

static uint32_t below(uint32_t n)
{
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % n;
}

/* Small integers make ties; sums of a large and a tiny number make scores that single precision cannot tell
 * apart. */
static void fill(const struct pst_embed_model *model)
{
    state_of_random = 11;
    for (int i = 0; i < TRIPLES; i++) {
        g.src[i] = below(40);
        g.rel[i] = below(RELATIONS);
        g.dst[i] = below(VERTICES);
    }
    for (int i = 0; i < VERTICES * D; i++)
        g.nodes[i] = (float)((int)below(5) - 2);
    for (int v = 0; v < VERTICES; v += 3)
        g.nodes[v * D + D - 1] += 1e-6f * (float)below(4);
    memcpy(g.nodes + 7 * D, g.nodes + 8 * D, D * sizeof(float));
    for (int i = 0; i < RELATIONS * D; i++)
        g.relations[i] = (float)((int)below(5) - 2);
    const int64_t dr = model->relation_share ? D / model->relation_share : 0;
    for (int i = 0; i < TRIPLES; i++) {
        model->query(g.q + i * D, g.nodes + g.src[i] * D, g.relations + g.rel[i] * dr, D, false);
        memcpy(g.own + i * D, g.nodes + g.dst[i] * D, D * sizeof(float));
    }
}

static double brute_score(enum pst_k_embed_similarity s, const float *q, const float *x)
{
    double sum = 0;
    for (int c = 0; c < (s == PST_K_EMBED_MODULI ? D / 2 : D); c++) {
        const double a = q[c], b = x[c];
        if (s == PST_K_EMBED_PRODUCT)
            sum += a * b;
        else if (s == PST_K_EMBED_L1)
            sum -= fabs(a - b);
        else if (s == PST_K_EMBED_L2)
            sum += (a - b) * (a - b);
        else
            sum -= sqrt((a - b) * (a - b) + pow((double)q[c + D / 2] - (double)x[c + D / 2], 2));
    }
    return s == PST_K_EMBED_L2 ? -sqrt(sum) : sum;
}

static bool is_known(int i, uint32_t v)
{
    for (int k = 0; k < TRIPLES; k++)
        if (g.src[k] == g.src[i] && g.rel[k] == g.rel[i] && g.dst[k] == v)
            return true;
    return false;
}

static double brute_rank(enum pst_k_embed_similarity s, int i, bool filtered, enum pst_embed_tie tie)
{
    const double own = brute_score(s, g.q + i * D, g.nodes + g.dst[i] * D);
    double rank = 1;
    for (uint32_t v = 0; v < VERTICES; v++) {
        const double score = brute_score(s, g.q + i * D, g.nodes + v * D);
        if (v == g.dst[i] || (filtered && is_known(i, v)))
            continue;
        if (score > own)
            rank++;
        if (score == own)
            rank += tie == PST_EMBED_TIE_MEAN ? 0.5 : tie == PST_EMBED_TIE_PESSIMISTIC ? 1 : 0;
    }
    return rank;
}

/* Block p has the vertices v with v % blocks == p, as row v / blocks. */
static void count_block(enum pst_k_embed_similarity s, int blocks, int p, struct pst_embed_workspace *w,
                        struct pst_embed_count *counts)
{
    static float x[VERTICES * D];
    static int64_t own[TRIPLES], start[TRIPLES + 1];
    static uint32_t known[TRIPLES * VERTICES];
    int64_t n = 0, k = 0;
    for (int v = p; v < VERTICES; v += blocks)
        memcpy(x + n++ * D, g.nodes + v * D, D * sizeof *x);
    for (int i = 0; i < TRIPLES; i++) {
        own[i] = (int)g.dst[i] % blocks == p ? (int)g.dst[i] / blocks : -1;
        start[i] = k;
        for (int v = p; v < VERTICES; v += blocks)
            if (is_known(i, (uint32_t)v))
                known[k++] = (uint32_t)(v / blocks);
    }
    start[TRIPLES] = k;
    const struct pst_embed_candidates c = {x, n, own, start, known};
    assert_int_equal(pst_embed_count_block(s, g.q, TRIPLES, D, &c, w, counts), PST_OK);
}

static void check_model(const char *name, int blocks, int threads)
{
    static struct pst_embed_count counts[TRIPLES];
    const struct pst_embed_model *model = pst_embed_model_named(name);
    const enum pst_k_embed_similarity s = model->similarity;
    struct pst_embed_workspace *w;
    int ties = 0;
    fill(model);
    assert_int_equal(pst_embed_workspace_new(&w, threads), PST_OK);
    pst_embed_count_begin(s, g.q, g.own, TRIPLES, D, counts);
    for (int p = 0; p < blocks; p++)
        count_block(s, blocks, p, w, counts);
    for (int i = 0; i < TRIPLES; i++)
        for (int how = 0; how < 6; how++) {
            const double found = pst_embed_rank(&counts[i], how % 2, (enum pst_embed_tie)(how / 2));
            const double wanted = brute_rank(s, i, how % 2, (enum pst_embed_tie)(how / 2));
            if (found != wanted)
                fail_msg("%s, %d blocks, triple %d, way %d: rank %g, expected %g", name, blocks, i, how,
                         found, wanted);
            ties += counts[i].equal[0] > 0;
        }
    if (s == PST_K_EMBED_PRODUCT)
        assert_true(ties > 0);
    pst_embed_workspace_free(w);
}

static void test_every_triple(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"dot", "distmult", "complex", "transe-l1", "transe-l2", "rotate"};
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++) {
        check_model(NAMES[m], 1, 1);
        check_model(NAMES[m], 8, 2);
        check_model(NAMES[m], 32, 1);
    }
}

/* A score that is not a number is above; one that overflows single precision is summed again. */
static void test_not_finite(void **state)
{
    (void)state;
    const float q[2] = {1e30f, 1e30f}, own[2] = {1, 1};
    const float x[3 * 2] = {NAN, 0, 1e30f, -1e30f, 1, 1};
    const int64_t row = 2, start[2] = {0, 0};
    const uint32_t none = 0;
    const struct pst_embed_candidates c = {x, 3, &row, start, &none};
    struct pst_embed_count count;
    struct pst_embed_workspace *w;
    assert_int_equal(pst_embed_workspace_new(&w, 1), PST_OK);
    pst_embed_count_begin(PST_K_EMBED_PRODUCT, q, own, 1, 2, &count);
    assert_int_equal(pst_embed_count_block(PST_K_EMBED_PRODUCT, q, 1, 2, &c, w, &count), PST_OK);
    assert_int_equal(count.above[0], 1);
    assert_int_equal(count.equal[0], 0);
    pst_embed_workspace_free(w);
}

static void test_means(void **state)
{
    (void)state;
    struct pst_embed_ranks sum = {0};
    const double ranks[] = {1, 1.5, 4, 20};
    for (int i = 0; i < 4; i++)
        pst_embed_ranks_add(&sum, ranks[i]);
    assert_int_equal(sum.n, 4);
    assert_int_equal(sum.hits[0], 1);
    assert_int_equal(sum.hits[1], 2);
    assert_int_equal(sum.hits[2], 3);
    assert_true(fabs(sum.reciprocal - (1 + 1 / 1.5 + 0.25 + 0.05)) < 1e-12 && sum.rank == 26.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_triple),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
