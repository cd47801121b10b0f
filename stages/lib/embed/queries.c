/* queries.c: a batch in which every vertex is a negative, with the loss softmax. Edges that follow each other
 * with the same anchor and relation are one query. A tile of queries is scored in blocks of vertices. Threads
 * share the blocks, so each row of the vertices' gradients is written by one thread, and no thread needs a
 * copy of them. Only the gradients of the queries are sums over ranges of blocks; there are always as many
 * ranges, whatever the number of threads. */
#include "kernels/cpu/embed_rows.h"
#include "stages/lib/embed/side.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 1024, /* vertices whose scores are in the L2 cache together */
    RANGES = 8,   /* of blocks */
    SHARE = 16,   /* queries of a task */
};

struct tile {
    struct side t;
    int64_t m;            /* queries */
    const int64_t *first; /* [m + 1]: the first edge of each */
    bool adds;            /* to node_grads, which an earlier tile has set */
};

bool pst_embed_has_queries(const struct job *j)
{
    return !j->b->neg_dst && j->plan->loss == PST_K_EMBED_SOFTMAX && !j->plan->unfused &&
           j->plan->model->similarity == PST_K_EMBED_PRODUCT;
}

static int64_t blocks(const struct job *j)
{
    return (j->b->n + BLOCK - 1) / BLOCK;
}

static int64_t ranges(const struct job *j)
{
    return pst_min_i64(RANGES, blocks(j));
}

bool pst_embed_grow_queries(struct job *j)
{
    struct scratch *s = &j->w->scratch[0];
    const int64_t m = j->tile, d = j->plan->d, partial = m * blocks(j);
    const size_t real = sizeof(pst_real);
    return pst_embed_grow(&s->scores, m * j->b->n, real) && pst_embed_grow(&s->g, ranges(j) * m * d, real) &&
           pst_embed_grow(&s->tops, partial, real) && pst_embed_grow(&s->sums, partial, sizeof(double)) &&
           pst_embed_grow(&s->first, j->b->edges, sizeof(int64_t)) && pst_embed_grow(&s->q, m * d, real) &&
           pst_embed_grow(&s->dq, m * d, real) && pst_embed_grow(&s->anchor, m * d, real) &&
           pst_embed_grow(&s->keep, m * d, real);
}

/* ---- blocks of a tile's scores: [blocks][queries][vertices of the block] ---------------------------- */

static pst_real *block_of(const struct tile *a, int64_t from)
{
    return (pst_real *)a->t.s->scores.at + a->m * from;
}

static int64_t block_size(const struct tile *a, int64_t from)
{
    return pst_min_i64(BLOCK, a->t.j->b->n - from);
}

/* e^(score - the largest score of the query in the block), and sums of these. */
static void score_block(void *arg, int64_t block, int worker)
{
    (void)worker;
    const struct tile *a = arg;
    const struct scratch *s = a->t.s;
    const int64_t d = a->t.j->plan->d, from = block * BLOCK, n = block_size(a, from), m = a->m;
    pst_real *scores = block_of(a, from), *top = (pst_real *)s->tops.at + block * m;
    double *sum = (double *)s->sums.at + block * m;
    pst_k_gemm(NULL, false, true, m, n, d, 1, s->q.at, d, a->t.j->b->nodes + from * d, d, 0, scores, n, 1);
    for (int64_t i = 0; i < m; i++)
        sum[i] = pst_cpu_embed_exponentials(scores + i * n, n, &top[i]);
}

/* Query i has so many edges. The logarithm of the sum over all vertices; the block's tops become what its
 * exponentials are multiplied by to be the gradient. */
static double normalise(const struct tile *a, int64_t i, int64_t edges)
{
    pst_real *top = (pst_real *)a->t.s->tops.at + i;
    const double *part = (const double *)a->t.s->sums.at + i;
    const int64_t count = blocks(a->t.j), m = a->m;
    pst_real most = top[0];
    double sum = 0;
    for (int64_t k = 1; k < count; k++)
        most = top[k * m] > most ? top[k * m] : most;
    for (int64_t k = 0; k < count; k++)
        sum += part[k * m] * exp((double)(top[k * m] - most));
    for (int64_t k = 0; k < count; k++)
        top[k * m] = (pst_real)((double)edges * exp((double)(top[k * m] - most)) / sum);
    return (double)most + log(sum);
}

/* From exponentials of a block to gradients of its scores. */
static void differentiate_scores(const struct tile *a, int64_t from, pst_real *g)
{
    const struct side *t = &a->t;
    const pst_real *by = (const pst_real *)t->s->tops.at + from / BLOCK * a->m;
    const int64_t n = block_size(a, from);
    for (int64_t i = 0; i < a->m; i++) {
        const pst_real scale = by[i];
        for (int64_t k = 0; k < n; k++)
            g[i * n + k] *= scale;
        for (int64_t e = a->first[i]; e < a->first[i + 1]; e++)
            if (t->target[e] >= from && t->target[e] < from + n)
                g[i * n + t->target[e] - from] -= 1;
    }
}

/* The gradients of the vertices of a range of blocks, and the range's part of those of the queries. */
static void differentiate(void *arg, int64_t range, int worker)
{
    (void)worker;
    const struct tile *a = arg;
    const struct job *j = a->t.j;
    const struct scratch *s = a->t.s;
    const int64_t d = j->plan->d, all = blocks(j), m = a->m, begin = all * range / ranges(j),
                  end = all * (range + 1) / ranges(j);
    pst_real *dq = (pst_real *)s->g.at + range * m * d;
    for (int64_t block = begin; block < end; block++) {
        const int64_t from = block * BLOCK, n = block_size(a, from);
        pst_real *g = block_of(a, from);
        differentiate_scores(a, from, g);
        pst_k_gemm(NULL, false, false, m, d, n, 1, g, n, j->b->nodes + from * d, d, block > begin, dq, d, 1);
        pst_k_gemm(NULL, true, false, n, d, m, 1, g, n, s->q.at, d, a->adds, j->b->node_grads + from * d, d,
                   1);
    }
}

/* ---- queries ---------------------------------------------------------------------------------------- */

static void make_queries(void *arg, int64_t task, int worker)
{
    (void)worker;
    const struct tile *a = arg;
    for (int64_t i = task * SHARE; i < a->m && i < (task + 1) * SHARE; i++) {
        pst_embed_make_anchor(&a->t, a->first[i], i);
        pst_embed_make_query(&a->t, a->first[i], i);
    }
}

/* The losses of the queries: each edge's is the logarithm of the query's sum less the edge's score. */
static void lose(void *arg, int64_t task, int worker)
{
    (void)worker;
    const struct tile *a = arg;
    const struct job *j = a->t.j;
    const int64_t d = j->plan->d;
    const pst_real *q = a->t.s->q.at;
    for (int64_t i = task * SHARE; i < a->m && i < (task + 1) * SHARE; i++) {
        const int64_t edges = a->first[i + 1] - a->first[i];
        double loss = (double)edges * normalise(a, i, edges);
        for (int64_t e = a->first[i]; e < a->first[i + 1]; e++)
            loss -= (double)pst_cpu_embed_score(PST_K_EMBED_PRODUCT, q + i * d,
                                                j->b->nodes + (int64_t)a->t.target[e] * d, d);
        j->losses[i] = loss;
    }
}

/* Edges of a query other than its first one have no gradients of their own. */
static void clear_entries(const struct side *t, int64_t first, int64_t edge)
{
    const size_t row = (size_t)t->j->plan->d * sizeof(pst_real);
    memset(pst_embed_entry_of(t, true, edge), 0, row);
    if (edge == first)
        return;
    memset(pst_embed_entry_of(t, false, edge), 0, row);
    memset(pst_embed_relation_entry_of(t, edge), 0, (size_t)t->j->dr * sizeof(pst_real));
}

static void finish_queries(void *arg, int64_t task, int worker)
{
    (void)worker;
    const struct tile *a = arg;
    const struct job *j = a->t.j;
    const int64_t d = j->plan->d;
    for (int64_t i = task * SHARE; i < a->m && i < (task + 1) * SHARE; i++) {
        pst_real *dq = (pst_real *)a->t.s->dq.at + i * d;
        memset(dq, 0, (size_t)d * sizeof *dq);
        for (int64_t range = 0; range < ranges(j); range++)
            for (int64_t c = 0; c < d; c++)
                dq[c] += ((const pst_real *)a->t.s->g.at)[(range * a->m + i) * d + c];
        pst_embed_finish_query(&a->t, a->first[i], i);
        for (int64_t e = a->first[i]; e < a->first[i + 1]; e++) {
            clear_entries(&a->t, a->first[i], e);
            j->losses[i] += pst_embed_penalise(&a->t, e);
        }
    }
}

static double train_tile(struct tile *a)
{
    const struct job *j = a->t.j;
    struct pst_team *team = j->w->team;
    const int64_t shares = (a->m + SHARE - 1) / SHARE;
    double loss = 0;
    pst_team_run(team, make_queries, a, shares);
    pst_team_run(team, score_block, a, blocks(j));
    pst_team_run(team, lose, a, shares);
    pst_team_run(team, differentiate, a, ranges(j));
    pst_team_run(team, finish_queries, a, shares);
    for (int64_t i = 0; i < a->m; i++)
        loss += j->losses[i];
    return loss;
}

static int64_t list_queries(const struct side *t, int64_t *first)
{
    int64_t queries = 0;
    for (int64_t e = t->from; e < t->to; e++)
        if (e == t->from || t->anchor[e] != t->anchor[e - 1] ||
            pst_embed_relation_row(t->j, t->side, e) != pst_embed_relation_row(t->j, t->side, e - 1))
            first[queries++] = e;
    first[queries] = t->to;
    return queries;
}

double pst_embed_train_queries(struct job *j)
{
    const struct pst_embed_batch *b = j->b;
    struct tile a = {.adds = false};
    double loss = 0;
    for (int64_t side = b->turned; side < 2; side++) {
        struct scratch *s = &j->w->scratch[0];
        a.t = (struct side){.j = j,
                            .s = s,
                            .side = side,
                            .to = b->edges,
                            .anchor = side ? b->src : b->dst,
                            .target = side ? b->dst : b->src};
        const int64_t queries = list_queries(&a.t, s->first.at);
        const int64_t tiles = (queries + j->tile - 1) / j->tile; /* of equal size: small ones are slow */
        for (int64_t k = 0; k < tiles; k++) {
            a.first = (const int64_t *)s->first.at + queries * k / tiles;
            a.m = queries * (k + 1) / tiles - queries * k / tiles;
            loss += train_tile(&a);
            a.adds = true;
        }
    }
    return loss;
}
