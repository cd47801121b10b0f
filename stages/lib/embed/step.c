/* step.c: forward, loss and backward of a batch. A task is one side of one chunk. It writes the gradient of
 * each row that it reads, an entry, to a place of its own. Then entries are summed by vertex and by relation,
 * in the order of entries. So no sum depends on the threads. */
#include "common/error.h"
#include "kernels/cpu/embed_rows.h"
#include "stages/lib/embed/side.h"

#include <math.h>
#include <string.h>

enum {
    TILE_SCORES = 1 << 20, /* of a tile: with their gradients 8 MiB a thread */
    TILE_MIN = 16,
    QUERIES = 256,          /* of a tile, if every vertex is a negative: oneDNN's rate no longer grows */
    QUERY_SCORES = 1 << 24, /* of such a tile: 64 MiB */
    SUM_ROWS = 64,          /* rows of one task that sums entries */
};

int64_t pst_embed_relation_floats(const struct pst_embed_plan *plan)
{
    return plan->model->relation_share ? plan->d / plan->model->relation_share : 0;
}

pst_rc pst_embed_check(const struct pst_embed_plan *plan)
{
    const char *name = plan->model->name;
    if (plan->d < 1 || (plan->model->complex && plan->d % 2))
        return pst_fail(PST_E_ARG, "dim is %lld, but model %s needs %s", (long long)plan->d, name,
                        plan->model->complex ? "an even number, for real and imaginary parts" : "at least 1");
    if (plan->model->relation_share && (plan->relations < 1 || plan->d % plan->model->relation_share))
        return pst_fail(
            PST_E_ARG,
            "the dataset has %lld relations, but model %s needs at least one (with dim / %d floats for each)",
            (long long)plan->relations, name, plan->model->relation_share);
    if (!(plan->dropout >= 0 && plan->dropout < 1))
        return pst_fail(PST_E_ARG, "dropout is %g; expected a number of at least 0 and below 1",
                        plan->dropout);
    if (!(plan->n3 >= 0 && plan->l2 >= 0 && isfinite(plan->n3) && isfinite(plan->l2)))
        return pst_fail(
            PST_E_ARG,
            "the weights of the regularizers N3 and L2 are %g and %g; expected numbers of at least 0",
            (double)plan->n3, (double)plan->l2);
    const bool adversarial = plan->loss == PST_K_EMBED_ADVERSARIAL;
    if ((plan->loss == PST_K_EMBED_MARGIN || adversarial) && !isfinite(plan->margin))
        return pst_fail(PST_E_ARG, "the margin of the loss is not a finite number; expected a finite one");
    if (adversarial && !(plan->temperature >= 0 && isfinite(plan->temperature)))
        return pst_fail(PST_E_ARG, "the temperature of the loss is %g; expected a number of at least 0",
                        (double)plan->temperature);
    return PST_OK;
}

/* ---- memory -------------------------------------------------------------------------------------- */

int64_t pst_embed_sides(const struct pst_embed_batch *b)
{
    return b->turned ? 1 : 2;
}

/* Of train_side. */
static int64_t tasks(const struct pst_embed_batch *b)
{
    return pst_embed_sides(b) * b->chunks;
}

static int64_t entries(const struct job *j)
{
    const int64_t ends = 2 * pst_embed_sides(j->b) * j->b->edges;
    return pst_embed_has_queries(j) ? ends : ends + tasks(j->b) * j->b->negatives;
}

static bool grow_scratch(struct scratch *s, const struct job *j)
{
    const int64_t n = j->b->negatives, d = j->plan->d, m = j->tile, real = sizeof(pst_real);
    return pst_embed_grow(&s->x, j->b->neg_dst ? n * d : 0, (size_t)real) &&
           pst_embed_grow(&s->xt, j->plan->model->similarity == PST_K_EMBED_PRODUCT ? 0 : n * d,
                          (size_t)real) &&
           pst_embed_grow(&s->scores, m * n, (size_t)real) && pst_embed_grow(&s->g, m * n, (size_t)real) &&
           pst_embed_grow(&s->q, m * d, (size_t)real) && pst_embed_grow(&s->dq, m * d, (size_t)real) &&
           pst_embed_grow(&s->anchor, m * d, (size_t)real) && pst_embed_grow(&s->keep, m * d, (size_t)real) &&
           pst_embed_grow(&s->f, 2 * m, (size_t)real);
}

static pst_rc grow_all(struct pst_embed_workspace *w, struct job *j)
{
    const int64_t all = entries(j), edges = j->b->edges, rows = pst_max_i64(j->b->n, 2 * j->plan->relations);
    bool ok = pst_embed_grow(&w->vertex_entries, all * j->plan->d, sizeof(pst_real)) &&
              pst_embed_grow(&w->relation_entries, pst_embed_sides(j->b) * edges * j->dr, sizeof(pst_real)) &&
              pst_embed_grow(&w->start, rows + 2, sizeof(uint32_t)) &&
              pst_embed_grow(&w->entry, all, sizeof(uint32_t)) &&
              pst_embed_grow(&w->row, all, sizeof(uint32_t)) &&
              pst_embed_grow(&w->losses, pst_max_i64(tasks(j->b), j->tile), sizeof(double));
    for (int i = 0; ok && !pst_embed_has_queries(j) && i < w->team->threads; i++)
        ok = grow_scratch(&w->scratch[i], j);
    if (ok && pst_embed_has_queries(j))
        ok = pst_embed_grow_queries(j);
    if (!ok)
        return pst_fail(PST_E_NOMEM,
                        "out of memory: cannot train a batch of %lld edges with %lld negatives in each of "
                        "%lld chunks: lower one of these numbers",
                        (long long)edges, (long long)j->b->negatives, (long long)j->b->chunks);
    j->entries = w->vertex_entries.at;
    j->relation_entries = w->relation_entries.at;
    j->losses = w->losses.at;
    return PST_OK;
}

/* ---- one side of one chunk --------------------------------------------------------------------------- */

int64_t pst_embed_relation_row(const struct job *j, int64_t side, int64_t edge)
{
    return (int64_t)j->b->rel[edge] +
           (side == 0 /* never if edges are turned */ && j->plan->inverse ? j->plan->relations : 0);
}

static const pst_real *relation(const struct side *t, int64_t edge)
{
    const struct job *j = t->j;
    return j->dr ? j->b->relation_rows + pst_embed_relation_row(j, t->side, edge) * j->dr : NULL;
}

static bool backwards(const struct side *t)
{
    return t->side == 0 && !t->j->plan->inverse;
}

pst_real *pst_embed_entry_of(const struct side *t, bool target, int64_t edge)
{
    const int64_t first = t->j->b->turned ? 0 : 2 * t->side;
    return t->j->entries + ((first + target) * t->j->b->edges + edge) * t->j->plan->d;
}

static void gather_negatives(struct side *t)
{
    const struct pst_embed_batch *b = t->j->b;
    const int64_t d = t->j->plan->d, n = b->negatives;
    t->x = b->nodes;
    pst_real *x = t->s->x.at, *xt = t->s->xt.at;
    for (int64_t i = 0; t->ids && i < n; i++)
        memcpy(x + i * d, b->nodes + (int64_t)t->ids[i] * d, (size_t)d * sizeof *x);
    if (t->ids)
        t->x = x;
    if (t->j->plan->model->similarity != PST_K_EMBED_PRODUCT)
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < d; c++)
                xt[c * n + i] = t->x[i * d + c];
}

/* keep[d]: 0 for a dropped float, what to multiply by for others. */
static void draw_dropout(const struct side *t, int64_t edge, pst_real *keep)
{
    const double p = t->j->plan->dropout;
    for (int64_t c = 0; c < t->j->plan->d; c++)
        keep[c] = 1;
    pst_cpu_embed_drop(&t->j->dropout, (uint64_t)(2 * edge + t->side), p, t->j->plan->d, keep);
}

void pst_embed_make_anchor(const struct side *t, int64_t edge, int64_t i)
{
    const int64_t d = t->j->plan->d;
    pst_real *to = (pst_real *)t->s->anchor.at + i * d, *keep = (pst_real *)t->s->keep.at + i * d;
    memcpy(to, t->j->b->nodes + (int64_t)t->anchor[edge] * d, (size_t)d * sizeof *to);
    if (t->j->plan->dropout > 0) {
        draw_dropout(t, edge, keep);
        for (int64_t c = 0; c < d; c++)
            to[c] *= keep[c];
    }
}

void pst_embed_make_query(const struct side *t, int64_t edge, int64_t i)
{
    const int64_t d = t->j->plan->d;
    t->j->plan->model->query((pst_real *)t->s->q.at + i * d, (pst_real *)t->s->anchor.at + i * d,
                             relation(t, edge), d, backwards(t));
}

pst_real *pst_embed_relation_entry_of(const struct side *t, int64_t edge)
{
    return t->j->relation_entries + ((t->j->b->turned ? 0 : t->side) * t->j->b->edges + edge) * t->j->dr;
}

void pst_embed_finish_query(const struct side *t, int64_t edge, int64_t i)
{
    const struct pst_embed_plan *plan = t->j->plan;
    const int64_t d = plan->d;
    const pst_real *anchor = (pst_real *)t->s->anchor.at + i * d, *keep = (pst_real *)t->s->keep.at + i * d;
    pst_real *d_anchor = pst_embed_entry_of(t, false, edge);
    plan->model->query_grad((pst_real *)t->s->dq.at + i * d, anchor, relation(t, edge), d, backwards(t),
                            d_anchor, pst_embed_relation_entry_of(t, edge));
    if (plan->dropout > 0)
        for (int64_t c = 0; c < d; c++)
            d_anchor[c] *= keep[c];
}

double pst_embed_penalise(const struct side *t, int64_t edge)
{
    const struct pst_embed_plan *plan = t->j->plan;
    const int64_t d = plan->d, dr = t->j->dr;
    const pst_real *nodes = t->j->b->nodes;
    const struct pst_k_embed_penalty penalty = {plan->n3, plan->l2};
    pst_real *d_anchor = pst_embed_entry_of(t, false, edge), *d_rel = pst_embed_relation_entry_of(t, edge);
    double loss = pst_cpu_embed_penalty(&penalty, nodes + (int64_t)t->anchor[edge] * d, d,
                                        plan->model->complex, d_anchor);
    loss += pst_cpu_embed_penalty(&penalty, nodes + (int64_t)t->target[edge] * d, d, plan->model->complex,
                                  pst_embed_entry_of(t, true, edge));
    if (dr)
        loss +=
            pst_cpu_embed_penalty(&penalty, relation(t, edge), dr, plan->model->complex && dr == d, d_rel);
    return loss;
}

/* An unfused operation does not find the queries of the one before it. */
static void queries_again(const struct side *t, int64_t from, int64_t m)
{
    for (int64_t i = 0; i < m && t->j->plan->unfused; i++)
        pst_embed_make_query(t, from + i, i);
}

/* The loss of the tile's edges; sets its gradients. */
static double lose(const struct pst_k_embed_loss_rows *rows)
{
    double loss = 0;
    pst_k_embed_loss(NULL, rows, &loss);
    return loss;
}

/* Edges from `from` to from + m - 1. */
static double train_tile(const struct side *t, int64_t from, int64_t m, pst_real *d_negatives)
{
    const struct pst_embed_plan *plan = t->j->plan;
    const struct pst_embed_batch *b = t->j->b;
    const int64_t d = plan->d, n = b->negatives;
    const enum pst_k_embed_similarity kind = plan->model->similarity;
    pst_real *q = t->s->q.at, *dq = t->s->dq.at;
    const struct pst_k_embed_tile tile = {kind, m, n, d, q, t->x, t->s->xt.at, t->s->scores.at, t->s->g.at};
    pst_real *f = t->s->f.at, *df = f + m;
    const struct pst_k_embed_loss_rows rows = {plan->loss,  plan->margin, plan->temperature, m,         n, f,
                                               tile.scores, t->ids,       t->target + from,  tile.grad, df};
    for (int64_t i = 0; i < m; i++) {
        pst_embed_make_anchor(t, from + i, i);
        pst_embed_make_query(t, from + i, i);
    }
    for (int64_t i = 0; i < m; i++)
        f[i] = pst_cpu_embed_score(kind, q + i * d, b->nodes + (int64_t)t->target[from + i] * d, d);
    queries_again(t, from, m);
    pst_k_embed_scores(NULL, &tile);
    double loss = lose(&rows);
    if (plan->unfused) /* the gradient of the loss */
        loss = lose(&rows);
    queries_again(t, from, m);
    pst_k_embed_scores_grad(NULL, &tile, dq, d_negatives);
    queries_again(t, from, m);
    for (int64_t i = 0; i < m; i++) {
        pst_cpu_embed_score_grad(kind, q + i * d, b->nodes + (int64_t)t->target[from + i] * d, d, f[i], df[i],
                                 dq + i * d, pst_embed_entry_of(t, true, from + i));
        pst_embed_finish_query(t, from + i, i);
        loss += pst_embed_penalise(t, from + i);
    }
    return loss;
}

/* ---- tasks ------------------------------------------------------------------------------------------ */

static void train_side(void *arg, int64_t task, int worker)
{
    struct job *j = arg;
    const struct pst_embed_batch *b = j->b;
    const int64_t n = b->negatives, d = j->plan->d, side = task % 2, chunk = task / 2;
    const uint32_t *ids = side ? b->neg_dst : b->neg_src;
    struct side t = {.j = j,
                     .s = &j->w->scratch[worker],
                     .task = task,
                     .side = side,
                     .from = b->edges * chunk / b->chunks,
                     .to = b->edges * (chunk + 1) / b->chunks,
                     .anchor = side ? b->src : b->dst,
                     .target = side ? b->dst : b->src,
                     .ids = ids ? ids + chunk * n : NULL};
    pst_real *d_negatives = j->entries + (4 * b->edges + task * n) * d;
    memset(d_negatives, 0, (size_t)(n * d) * sizeof *d_negatives);
    j->losses[task] = 0;
    gather_negatives(&t);
    for (int64_t from = t.from; from < t.to; from += j->tile)
        j->losses[task] += train_tile(&t, from, pst_min_i64(j->tile, t.to - from), d_negatives);
}

/* ---- sums by row --------------------------------------------------------------------------------- */

static void sum_rows(void *arg, int64_t task, int worker)
{
    (void)worker;
    const struct job *j = arg;
    for (int64_t i = task * SUM_ROWS; i < j->count && i < (task + 1) * SUM_ROWS; i++) {
        const int64_t row = j->rows ? j->rows[i] : i;
        pst_real *to = j->to + row * j->width;
        if (!j->adds)
            memset(to, 0, (size_t)j->width * sizeof *to);
        for (uint32_t k = j->start[row]; k < j->start[row + 1]; k++) {
            const pst_real *from = j->from + (int64_t)j->entry[k] * j->width;
            for (int64_t c = 0; c < j->width; c++)
                to[c] += from[c];
        }
    }
}

/* row[n]: of each entry. Sets start and entry: the entries of each row, ascending. */
static void group(struct job *j, int64_t n, int64_t rows)
{
    const uint32_t *row = j->w->row.at;
    uint32_t *start = j->w->start.at, *entry = j->w->entry.at;
    memset(start, 0, (size_t)(rows + 2) * sizeof *start);
    for (int64_t i = 0; i < n; i++)
        start[row[i] + 2]++;
    for (int64_t r = 0; r < rows; r++)
        start[r + 2] += start[r + 1];
    for (int64_t i = 0; i < n; i++)
        entry[start[row[i] + 1]++] = (uint32_t)i;
    j->start = start;
    j->entry = entry;
}

static void sum_vertices(struct job *j)
{
    const struct pst_embed_batch *b = j->b;
    uint32_t *row = j->w->row.at;
    const size_t bytes = (size_t)b->edges * sizeof *row;
    for (int64_t side = b->turned; side < 2; side++, row += 2 * b->edges) {
        memcpy(row, side ? b->src : b->dst, bytes);
        memcpy(row + b->edges, side ? b->dst : b->src, bytes);
    }
    for (int64_t t = 0; t < tasks(b) && !pst_embed_has_queries(j); t++) {
        const uint32_t *ids = t % 2 ? b->neg_dst : b->neg_src;
        for (int64_t i = 0; i < b->negatives; i++)
            *row++ = ids ? ids[t / 2 * b->negatives + i] : (uint32_t)i;
    }
    group(j, entries(j), b->n);
    j->adds = pst_embed_has_queries(j); /* node_grads has the gradients as negatives */
    j->rows = NULL;
    j->from = j->entries;
    j->to = b->node_grads;
    j->count = b->n;
    j->width = j->plan->d;
    pst_team_run(j->w->team, sum_rows, j, (b->n + SUM_ROWS - 1) / SUM_ROWS);
}

static void sum_relations(struct job *j)
{
    struct pst_embed_batch *b = j->b;
    uint32_t *row = j->w->row.at;
    const int64_t rows = (j->plan->inverse ? 2 : 1) * j->plan->relations;
    b->touched_n = 0;
    if (!j->dr)
        return;
    for (int64_t i = 0; i < pst_embed_sides(b) * b->edges; i++)
        row[i] = (uint32_t)pst_embed_relation_row(j, b->turned ? 1 : i / b->edges, i % b->edges);
    group(j, pst_embed_sides(b) * b->edges, rows);
    for (int64_t r = 0; r < rows; r++)
        if (j->start[r + 1] > j->start[r])
            b->touched[b->touched_n++] = (uint32_t)r;
    j->rows = b->touched;
    j->adds = false;
    j->from = j->relation_entries;
    j->to = b->relation_grads;
    j->count = b->touched_n;
    j->width = j->dr;
    pst_team_run(j->w->team, sum_rows, j, (b->touched_n + SUM_ROWS - 1) / SUM_ROWS);
}

pst_rc pst_embed_step(const struct pst_embed_plan *plan, struct pst_embed_batch *b,
                      struct pst_embed_workspace *w, double *loss)
{
    assert(b->edges >= 1 && b->chunks >= 1 && b->negatives >= 1 && !b->neg_src == !b->neg_dst);
    assert(b->neg_src || (b->negatives == b->n && b->chunks == 1));
    assert(!b->turned || plan->inverse);
    struct job j = {.plan = plan, .b = b, .w = w, .dr = pst_embed_relation_floats(plan)};
    if (entries(&j) > INT32_MAX)
        return pst_fail(PST_E_LIMIT,
                        "a batch has %lld gradients of embeddings; expected at most %d: use fewer negatives "
                        "or chunks, or a smaller batch",
                        (long long)entries(&j), INT32_MAX);
    if (b->turned && !pst_embed_has_queries(&j))
        return pst_fail(PST_E_ARG, "`together` requires the loss softmax, one of the models dot, distmult "
                                   "and complex, and `fused` true: set these, or set `together` to 0");
    const int64_t fitting = pst_embed_has_queries(&j) ? pst_min_i64(QUERIES, QUERY_SCORES / b->negatives)
                                                      : TILE_SCORES / b->negatives;
    const int64_t tile = plan->unfused ? b->edges : plan->tile ? plan->tile : pst_max_i64(TILE_MIN, fitting);
    j.tile = pst_min_i64(tile, (b->edges + b->chunks - 1) / b->chunks);
    j.dropout = pst_rng_stream_of(PST_RNG_DROPOUT, plan->seed, b->epoch, b->batch, 0);
    const pst_rc rc = grow_all(w, &j);
    if (rc != PST_OK)
        return rc;
    *loss = 0;
    if (pst_embed_has_queries(&j)) {
        *loss = pst_embed_train_queries(&j);
    } else {
        pst_team_run(w->team, train_side, &j, tasks(b));
        for (int64_t t = 0; t < tasks(b); t++)
            *loss += j.losses[t];
    }
    sum_vertices(&j);
    sum_relations(&j);
    return PST_OK;
}
