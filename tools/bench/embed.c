/* embed MODEL D EDGES CHUNKS NEGATIVES VERTICES TURNS: seconds of a training step of embeddings on one
 * thread, of the same step with tiles of 128 edges (their scores fit into the L2 cache), of the unfused step,
 * and of the three products alone that the step of a product's model needs: scores, gradients of queries and
 * of negatives. Prints JSON: lists of seconds, one per turn; a turn runs all four. Before that it checks that
 * the steps agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "stages/lib/embed/embed.h"

static uint64_t state = 1;

static uint32_t *draws(int64_t n, int64_t below)
{
    uint32_t *at = calloc((size_t)n, sizeof *at);
    for (int64_t i = 0; at && i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at[i] = (uint32_t)((state >> 33) % (uint64_t)below);
    }
    return at;
}

static float *rows(uint32_t table, int64_t n, int64_t d)
{
    float *at = aligned_alloc(64, (size_t)(n * d * 4 + 63) / 64 * 64);
    if (at)
        pst_embed_init(1, table, 0.1f, 0, n, d, at);
    return at;
}

/* Seconds of one step. */
static double step(const struct pst_embed_plan *plan, struct pst_embed_batch *b,
                   struct pst_embed_workspace *w, double *loss)
{
    const double t0 = pst_clock_s();
    if (pst_embed_step(plan, b, w, loss) != PST_OK) {
        fprintf(stderr, "embed: %s\n", pst_error_text());
        exit(1);
    }
    return pst_clock_s() - t0;
}

/* Seconds of the products of all chunks and sides. */
static double products(const struct pst_embed_batch *b, int64_t d, const float *q, const float *x,
                       float *scores, float *out)
{
    const int64_t m = b->edges / b->chunks, n = b->negatives;
    const double t0 = pst_clock_s();
    for (int64_t t = 0; t < 2 * b->chunks; t++) {
        pst_k_gemm(NULL, false, true, m, n, d, 1, q, d, x, d, 0, scores, n, 1);
        pst_k_gemm(NULL, false, false, m, d, n, 1, scores, n, x, d, 0, out, d, 1);
        pst_k_gemm(NULL, true, false, n, d, m, 1, scores, n, q, d, 0, out, d, 1);
    }
    return pst_clock_s() - t0;
}

static bool agree(const struct pst_embed_plan *plan, const struct pst_embed_plan *small,
                  struct pst_embed_batch *b, struct pst_embed_workspace *w)
{
    double loss, other, error = 0, size = 0;
    float *grads = b->node_grads;
    (void)step(plan, b, w, &loss);
    b->node_grads = rows(0, b->n, plan->d);
    if (!b->node_grads)
        return false;
    (void)step(small, b, w, &other);
    for (int64_t i = 0; i < b->n * plan->d; i++) {
        error += pow((double)grads[i] - (double)b->node_grads[i], 2);
        size += pow((double)grads[i], 2);
    }
    free(b->node_grads);
    b->node_grads = grads;
    return loss > 0 && size > 0 && fabs(loss - other) < 1e-5 * loss && error < 1e-10 * size;
}

static void print(const char *name, const double *seconds, int turns, const char *end)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < turns; i++)
        printf("%s%.6f", i ? ", " : "", seconds[i]);
    printf("]%s", end);
}

int main(int argc, char **argv)
{
    enum { TURNS_MAX = 100, RELATIONS = 237, SMALL_TILE = 128 };
    const struct pst_embed_model *model = argc == 8 ? pst_embed_model_named(argv[1]) : NULL;
    const int turns = argc == 8 ? atoi(argv[7]) : 0;
    if (!model || turns < 1 || turns > TURNS_MAX) {
        fprintf(stderr, "usage: embed MODEL D EDGES CHUNKS NEGATIVES VERTICES TURNS (models: %s)\n",
                pst_embed_models());
        return 2;
    }
    struct pst_embed_plan plan = {
        .model = model, .d = atoll(argv[2]), .relations = RELATIONS, .inverse = true};
    static struct pst_embed_batch b; /* what it holds lives as long as the process */
    b = (struct pst_embed_batch){
        .edges = atoll(argv[3]), .chunks = atoll(argv[4]), .negatives = atoll(argv[5]), .n = atoll(argv[6])};
    if (b.edges < 1 || b.chunks < 1 || b.negatives < 1 || b.n < 1 || pst_embed_check(&plan) != PST_OK) {
        fprintf(stderr, "embed: %s\n", pst_error_text());
        return 2;
    }
    const int64_t d = plan.d, dr = pst_embed_relation_floats(&plan), m = b.edges / b.chunks;
    struct pst_embed_plan small = plan;
    small.tile = SMALL_TILE;
    struct pst_embed_plan unfused = plan;
    unfused.unfused = true;
    struct pst_embed_workspace *w;
    b.src = draws(b.edges, b.n);
    b.dst = draws(b.edges, b.n);
    b.rel = draws(b.edges, RELATIONS);
    b.neg_src = draws(b.chunks * b.negatives, b.n);
    b.neg_dst = draws(b.chunks * b.negatives, b.n);
    b.touched = draws(2 * RELATIONS, 1);
    b.nodes = rows(0, b.n, d);
    b.node_grads = rows(0, b.n, d);
    b.relation_rows = rows(1, 2 * RELATIONS, dr + 1);
    b.relation_grads = rows(1, 2 * RELATIONS, dr + 1);
    float *q = rows(2, m + 1, d), *x = rows(3, b.negatives, d), *scores = rows(4, m + 1, b.negatives);
    float *out = rows(5, m + b.negatives, d);
    if (!b.src || !b.dst || !b.rel || !b.neg_src || !b.neg_dst || !b.touched || !b.nodes || !b.node_grads ||
        !b.relation_rows || !b.relation_grads || !q || !x || !scores || !out ||
        pst_embed_workspace_new(&w, 1) != PST_OK)
        return 1;
    if (!agree(&plan, &small, &b, w) || !agree(&plan, &unfused, &b, w)) {
        fprintf(stderr, "embed: steps with large tiles, with small tiles, and unfused disagree\n");
        return 1;
    }
    double seconds[4][TURNS_MAX], loss;
    (void)products(&b, d, q, x, scores, out); /* loads oneDNN, if the model has not */
    for (int i = 0; i < turns; i++) {
        seconds[0][i] = step(&plan, &b, w, &loss);
        seconds[1][i] = step(&small, &b, w, &loss);
        seconds[2][i] = products(&b, d, q, x, scores, out);
        seconds[3][i] = step(&unfused, &b, w, &loss);
    }
    printf("{");
    print("step_s", seconds[0], turns, ", ");
    print("small_tiles_s", seconds[1], turns, ", ");
    print("unfused_s", seconds[3], turns, ", ");
    print("products_s", seconds[2], turns, "}\n");
    pst_embed_workspace_free(w);
    return 0; /* the rest ends with the process */
}
