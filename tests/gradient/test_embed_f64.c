/* Embeddings in double precision: every model and loss against a plain serial reference, which is written
 * here from the papers' formulas, and gradients against central differences. */
#include "stages/lib/embed/embed.h"
#include "tests/gradient/numeric.h"

#include <complex.h>
#include <string.h>

enum { EDGES = 7, CHUNKS = 2, NEGATIVES = 5, VERTICES = 9, D = 6, RELATIONS = 3 };

struct trial {
    struct pst_embed_plan plan;
    struct pst_embed_batch b;
    struct pst_embed_workspace *w;
    uint32_t src[EDGES], rel[EDGES], dst[EDGES], neg[2][CHUNKS * NEGATIVES], touched[2 * RELATIONS];
    double nodes[VERTICES * D], node_grads[VERTICES * D];
    double relations[2 * RELATIONS * D], relation_grads[2 * RELATIONS * D];
    double share[2 * EDGES][VERTICES]; /* of the loss adversarial: what each negative of a row counts */
    bool fixed;                        /* the reference takes the shares of the call before */
};

static uint32_t below(int64_t n)
{
    return (uint32_t)random_below((uint64_t)n);
}

static void fill(struct trial *t, const struct pst_embed_model *model, enum pst_k_embed_loss loss,
                 bool inverse, bool all)
{
    memset(t, 0, sizeof *t);
    t->plan = (struct pst_embed_plan){.model = model,
                                      .d = D,
                                      .relations = RELATIONS,
                                      .inverse = inverse,
                                      .loss = loss,
                                      .margin = 0.7,
                                      .temperature = 1.3,
                                      .tile = 3};
    for (int i = 0; i < EDGES; i++) {
        t->src[i] = below(VERTICES);
        t->dst[i] = i == 2 ? t->src[i] : below(VERTICES); /* a self loop */
        t->rel[i] = below(RELATIONS);
    }
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < CHUNKS * NEGATIVES; i++)
            t->neg[s][i] = i % NEGATIVES ? below(VERTICES) : (s ? t->dst : t->src)[i ? EDGES - 1 : 0];
    for (int i = 0; i < VERTICES * D; i++)
        t->nodes[i] = random_unit();
    for (int i = 0; i < 2 * RELATIONS * D; i++)
        t->relations[i] = random_unit();
    t->b = (struct pst_embed_batch){.edges = EDGES,
                                    .chunks = all ? 1 : CHUNKS,
                                    .n = VERTICES,
                                    .negatives = all ? VERTICES : NEGATIVES,
                                    .src = t->src,
                                    .rel = t->rel,
                                    .dst = t->dst,
                                    .neg_src = all ? NULL : t->neg[0],
                                    .neg_dst = all ? NULL : t->neg[1],
                                    .nodes = t->nodes,
                                    .node_grads = t->node_grads,
                                    .relation_rows = t->relations,
                                    .relation_grads = t->relation_grads,
                                    .touched = t->touched};
    assert_int_equal(pst_embed_workspace_new(&t->w, 1), PST_OK);
    assert_int_equal(pst_embed_check(&t->plan), PST_OK);
}

static double step(void *ctx)
{
    struct trial *t = ctx;
    double loss;
    assert_int_equal(pst_embed_step(&t->plan, &t->b, t->w, &loss), PST_OK);
    return loss;
}

/* ---- the reference ------------------------------------------------------------------------------- */

static double complex number(const double *row, int i)
{
    return row[i] + I * row[i + D / 2];
}

static double reference_score(const char *model, const double *s, const double *r, const double *o)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        if (!strcmp(model, "dot"))
            sum += s[i] * o[i];
        else if (!strcmp(model, "distmult"))
            sum += s[i] * r[i] * o[i];
        else if (!strcmp(model, "transe-l1"))
            sum -= fabs(s[i] + r[i] - o[i]);
        else if (!strcmp(model, "transe-l2"))
            sum += pow(s[i] + r[i] - o[i], 2);
        else if (i < D / 2 && !strcmp(model, "complex"))
            sum += creal(number(s, i) * number(r, i) * conj(number(o, i)));
        else if (i < D / 2 && !strcmp(model, "rotate"))
            sum -= cabs(number(s, i) * cexp(I * r[i]) - number(o, i));
    return !strcmp(model, "transe-l2") ? -sqrt(sum) : sum;
}

/* The shares are constant for the gradient. */
static double adversarial(struct trial *t, double *share, double f, const double *negative, int n)
{
    double all = 0, sum = 0;
    for (int k = 0; k < n; k++)
        all += exp(t->plan.temperature * negative[k]);
    for (int k = 0; k < n; k++) {
        share[k] = t->fixed ? share[k] : exp(t->plan.temperature * negative[k]) / all;
        sum += share[k] * log(1 + exp(t->plan.margin + negative[k]));
    }
    return log(1 + exp(-t->plan.margin - f)) + sum;
}

static double reference_loss(struct trial *t, double *share, double f, const double *negative, int n)
{
    double sum = 0;
    if (t->plan.loss == PST_K_EMBED_ADVERSARIAL)
        return adversarial(t, share, f, negative, n);
    for (int k = 0; k < n; k++)
        if (t->plan.loss == PST_K_EMBED_SOFTMAX)
            sum += exp(negative[k]);
        else if (t->plan.loss == PST_K_EMBED_LOGISTIC)
            sum += log(1 + exp(negative[k])) / n;
        else
            sum += fmax(0, t->plan.margin - f + negative[k]) / n;
    if (t->plan.loss == PST_K_EMBED_SOFTMAX)
        return -f + log(exp(f) + sum);
    return t->plan.loss == PST_K_EMBED_LOGISTIC ? log(1 + exp(-f)) + sum : sum;
}

/* The score of edge e, if its source (side 0) or destination is `other`. */
static double edge_score(const struct trial *t, int e, int side, uint32_t other)
{
    const double *s = t->nodes + t->src[e] * D, *o = t->nodes + t->dst[e] * D, *x = t->nodes + other * D;
    const int64_t dr = pst_embed_relation_floats(&t->plan);
    const double *r = t->relations + t->rel[e] * dr, *inverse = t->relations + (RELATIONS + t->rel[e]) * dr;
    if (side == 1)
        return reference_score(t->plan.model->name, s, r, x);
    return t->plan.inverse ? reference_score(t->plan.model->name, o, inverse, x)
                           : reference_score(t->plan.model->name, x, r, o);
}

static double reference(void *ctx)
{
    struct trial *t = ctx;
    double loss = 0;
    for (int e = 0; e < EDGES; e++)
        for (int side = 0; side < 2; side++) {
            const uint32_t own = side ? t->dst[e] : t->src[e];
            const int chunk = e >= EDGES / 2;
            double negative[VERTICES + NEGATIVES];
            int n = 0;
            for (int k = 0; k < t->b.negatives; k++) {
                const uint32_t id = t->b.neg_src ? t->neg[side][chunk * NEGATIVES + k] : (uint32_t)k;
                if (id != own)
                    negative[n++] = edge_score(t, e, side, id);
            }
            loss += reference_loss(t, t->share[2 * e + side], edge_score(t, e, side, own), negative, n);
        }
    return loss;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void check_gradients(struct trial *t, const char *what)
{
    double nodes[VERTICES * D], relations[2 * RELATIONS * D] = {0};
    const int64_t dr = pst_embed_relation_floats(&t->plan);
    double (*loss)(void *) = t->plan.loss == PST_K_EMBED_ADVERSARIAL ? reference : step;
    (void)step(t);
    (void)reference(t);
    t->fixed = true;
    memcpy(nodes, t->node_grads, sizeof nodes);
    for (int64_t i = 0; i < t->b.touched_n; i++)
        memcpy(relations + t->touched[i] * dr, t->relation_grads + t->touched[i] * dr, (size_t)dr * 8);
    check_numeric(loss, t, t->nodes, VERTICES * D, nodes, what);
    if (dr)
        check_numeric(loss, t, t->relations, (t->plan.inverse ? 2 : 1) * RELATIONS * dr, relations, what);
    t->fixed = false;
}

static void test_models(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"dot", "distmult", "complex", "transe-l1", "transe-l2", "rotate"};
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++)
        for (int loss = PST_K_EMBED_SOFTMAX; loss <= PST_K_EMBED_ADVERSARIAL; loss++)
            for (int how = 0; how < 4; how++) {
                struct trial t;
                fill(&t, pst_embed_model_named(NAMES[m]), (enum pst_k_embed_loss)loss, how & 1, how & 2);
                check_near(step(&t), reference(&t), NAMES[m]);
                check_gradients(&t, NAMES[m]);
                pst_embed_workspace_free(t.w);
            }
}

static void test_regularised_and_dropped(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"distmult", "complex", "rotate"};
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++) {
        struct trial t;
        fill(&t, pst_embed_model_named(NAMES[m]), PST_K_EMBED_SOFTMAX, true, false);
        const double plain = step(&t);
        t.plan.n3 = 0.3;
        const double cubed = step(&t);
        t.plan.l2 = 0.2;
        const double both = step(&t);
        assert_true(plain < cubed && cubed < both);
        check_gradients(&t, "regularised");
        t.plan.dropout = 0.4;
        t.plan.seed = 3;
        assert_true(step(&t) != both);
        check_gradients(&t, "dropped");
        pst_embed_workspace_free(t.w);
    }
}

/* Turns every edge round, too: the batch has the edges of both sides, in the order of their queries. */
static void turn(struct trial *t, uint32_t list[3][2 * EDGES])
{
    struct pst_embed_batch *b = &t->b;
    int n = 0;
    for (uint32_t anchor = 0; anchor < VERTICES; anchor++)
        for (uint32_t rel = 0; rel < 2 * RELATIONS; rel++)
            for (int e = 0; e < 2 * EDGES; e++) {
                const bool turned = e >= EDGES;
                const int edge = e % EDGES;
                if ((turned ? t->dst : t->src)[edge] != anchor ||
                    t->rel[edge] + (turned ? RELATIONS : 0) != rel)
                    continue;
                list[0][n] = anchor;
                list[1][n] = rel;
                list[2][n++] = (turned ? t->src : t->dst)[edge];
            }
    assert_int_equal(n, 2 * EDGES);
    b->src = list[0];
    b->rel = list[1];
    b->dst = list[2];
    b->edges = n;
    b->turned = true;
}

/* Edges of the same query share it. Loss and gradients are those of the edges one by one, on both sides. */
static void test_edges_of_the_same_query(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"dot", "distmult", "complex"};
    for (size_t m = 0; m < sizeof NAMES / sizeof *NAMES; m++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct trial t;
            uint32_t list[3][2 * EDGES];
            double nodes[VERTICES * D], loss;
            fill(&t, pst_embed_model_named(NAMES[m]), PST_K_EMBED_SOFTMAX, true, true);
            for (int e = 0; e < EDGES - 2; e++) { /* many edges of few queries */
                t.src[e] = 4;
                t.rel[e] = 1;
            }
            t.plan.unfused = true;
            t.plan.n3 = 0.1;
            loss = step(&t);
            memcpy(nodes, t.node_grads, sizeof nodes);
            t.plan.unfused = false;
            turn(&t, list);
            pst_embed_workspace_free(t.w);
            assert_int_equal(pst_embed_workspace_new(&t.w, threads), PST_OK);
            check_near(step(&t), loss, NAMES[m]);
            for (int i = 0; i < VERTICES * D; i++)
                check_near(t.node_grads[i], nodes[i], NAMES[m]);
            t.plan.dropout = 0.4;
            check_gradients(&t, NAMES[m]);
            pst_embed_workspace_free(t.w);
        }
}

/* Blocks of vertices, and tiles of queries that have fewer edges. */
static void test_many_vertices(void **state)
{
    (void)state;
    enum { N = 2500, MANY = 40 };
    static double rows[N * D], grads[N * D], want[N * D];
    struct trial t;
    uint32_t src[MANY], rel[MANY], dst[MANY];
    double loss;
    fill(&t, pst_embed_model_named("complex"), PST_K_EMBED_SOFTMAX, true, true);
    for (int e = 0; e < MANY; e++) {
        src[e] = e % 3 ? 1024 : below(N);
        rel[e] = e % 3 ? 1 : below(RELATIONS);
        dst[e] = e % 2 ? below(N) : 2047;
    }
    for (int i = 0; i < N * D; i++)
        rows[i] = 9 * random_unit(); /* the largest score is rarely in the first block */
    t.b.src = src;
    t.b.rel = rel;
    t.b.dst = dst;
    t.b.edges = MANY;
    t.b.n = t.b.negatives = N;
    t.b.nodes = rows;
    t.b.node_grads = want;
    t.plan.unfused = true;
    loss = step(&t);
    t.b.node_grads = grads;
    t.plan.unfused = false;
    check_near(step(&t), loss, "blocks");
    for (int i = 0; i < N * D; i++)
        check_near(grads[i], want[i], "blocks");
    pst_embed_workspace_free(t.w);
}

/* A model of one's own: the query is the anchor plus the squares of the relation. */
static void own_query(double *q, const double *anchor, const double *rel, int64_t d, bool backwards)
{
    (void)backwards;
    for (int64_t i = 0; i < d; i++)
        q[i] = anchor[i] + rel[i] * rel[i];
}

static void own_grad(const double *dq, const double *anchor, const double *rel, int64_t d, bool backwards,
                     double *d_anchor, double *d_rel)
{
    (void)anchor;
    (void)backwards;
    for (int64_t i = 0; i < d; i++) {
        d_anchor[i] = dq[i];
        d_rel[i] = 2 * dq[i] * rel[i];
    }
}

static const struct pst_embed_model OWN = {"own", PST_K_EMBED_PRODUCT, false, 1, 0, own_query, own_grad};

static void test_own_model(void **state)
{
    (void)state;
    struct trial t;
    fill(&t, &OWN, PST_K_EMBED_SOFTMAX, true, false);
    check_gradients(&t, "a model of one's own");
    pst_embed_workspace_free(t.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),        cmocka_unit_test(test_regularised_and_dropped),
        cmocka_unit_test(test_own_model),     cmocka_unit_test(test_edges_of_the_same_query),
        cmocka_unit_test(test_many_vertices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
