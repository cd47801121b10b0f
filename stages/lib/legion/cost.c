/* cost.c: the transactions that a share of the cache for lists leads to, as printed and corrected. */
#include "stages/lib/legion/cost.h"

#include <stdlib.h>

#include "common/error.h"
#include "stages/lib/clique/cslp.h"

#define LAST (PST_LEGION_ALPHAS - 1)

uint64_t pst_legion_list_bytes(const void *graph, int64_t v)
{
    const struct pst_csc *g = graph;
    return (uint64_t)(g->indptr[v + 1] - g->indptr[v]) * (uint64_t)g->index_bytes + sizeof *g->indptr;
}

/* ---- capacities ----------------------------------------------------------------------------------- */

/* What lists get with alpha i, and rows with alpha LAST - i: both ascend. */
static uint64_t lists_bytes(const struct pst_legion_cost *c, int i)
{
    return (uint64_t)((double)c->bytes * i / LAST);
}

static uint64_t rows_bytes(const struct pst_legion_cost *c, int i)
{
    return c->bytes - lists_bytes(c, LAST - i);
}

static double row_lines(const struct pst_legion_cost *c)
{
    return (double)((c->row_bytes + c->source->line_bytes - 1) / c->source->line_bytes);
}

/* The longest prefixes of the orders that fit. */
static void find_prefixes(struct pst_legion_cost *c)
{
    const int64_t n = c->source->graph->vertices;
    uint64_t used = 0;
    int64_t at = 0;
    for (int i = 0; i < PST_LEGION_ALPHAS; i++) {
        for (; at < n; at++) {
            const uint64_t bytes = pst_legion_list_bytes(c->source->graph, c->lists_order[at]);
            if (used + bytes > lists_bytes(c, i))
                break;
            used += bytes;
        }
        c->lists[i] = at;
        c->cached_rows[LAST - i] = pst_min_i64(n, (int64_t)(rows_bytes(c, i) / c->row_bytes));
    }
}

/* ---- sums over prefixes --------------------------------------------------------------------------- */

/* What the clique's devices count for a vertex. */
static uint64_t sum_of(const struct pst_legion_cost *c, const struct pst_legion_counts *counts,
                       const uint32_t *array, int64_t v)
{
    uint64_t sum = 0;
    for (uint64_t left = c->devices; left != 0; left &= left - 1)
        sum += array[__builtin_ctzll(left) * counts->vertices + v];
    return sum;
}

/* outside[i] = the sum over all vertices of `order` but the first prefix[i], which may ascend or descend. */
static double sum_outside(const struct pst_legion_cost *c, const struct pst_legion_counts *counts,
                          const uint32_t *array, const int64_t *order, const int64_t *prefix, bool ascends,
                          double *outside)
{
    double all = 0, inside = 0;
    int64_t at = 0;
    for (int64_t v = 0; v < counts->vertices; v++)
        all += (double)sum_of(c, counts, array, v);
    for (int k = 0; k < PST_LEGION_ALPHAS; k++) {
        const int i = ascends ? k : LAST - k;
        for (; at < prefix[i]; at++)
            inside += (double)sum_of(c, counts, array, order[at]);
        outside[i] = all - inside;
    }
    return all;
}

void pst_legion_cost_count(const struct pst_legion_cost *c, const struct pst_legion_counts *counts,
                           double t[PST_LEGION_ALPHAS], double f[PST_LEGION_ALPHAS])
{
    (void)sum_outside(c, counts, counts->lines, c->lists_order, c->lists, true, t);
    (void)sum_outside(c, counts, counts->rows, c->rows_order, c->cached_rows, false, f);
    for (int i = 0; i < PST_LEGION_ALPHAS; i++)
        f[i] *= row_lines(c);
}

/* Equations 4, 5, 7 and 8. */
static void predict_as_printed(struct pst_legion_cost *c)
{
    double lines[PST_LEGION_ALPHAS];
    pst_legion_cost_count(c, c->counts, lines, c->printed_f);
    double all_lines = 0;
    for (int64_t v = 0; v < c->counts->vertices; v++)
        all_lines += (double)sum_of(c, c->counts, c->counts->lines, v);
    const double edges =
        sum_outside(c, c->counts, c->counts->edges, c->lists_order, c->lists, true, c->printed_t);
    for (int i = 0; i < PST_LEGION_ALPHAS; i++)
        c->printed_t[i] *= edges > 0 ? all_lines / edges : 0;
}

/* ---- leaving out ---------------------------------------------------------------------------------- */

/* All vertices of one hotness: what they take of the cache, and what the left-out batch needs of them. */
struct level {
    uint64_t bytes;
    double needed;
};

struct levels {
    struct level *level;
    uint64_t highest;
    double needed, missed[PST_LEGION_ALPHAS]; /* of all probes */
};

static pst_rc levels_init(struct levels *l, const struct pst_legion_cost *c, const uint64_t *hotness,
                          bool lists)
{
    const struct pst_csc *g = c->source->graph;
    *l = (struct levels){.highest = 0};
    for (int64_t v = 0; v < g->vertices; v++)
        l->highest = hotness[v] > l->highest ? hotness[v] : l->highest;
    if (l->highest > PST_LEGION_LEVELS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "a vertex was needed %llu times, expected at most %u: sample fewer epochs ahead",
                        (unsigned long long)l->highest, PST_LEGION_LEVELS_MAX);
    l->level = calloc((size_t)l->highest + 1, sizeof *l->level);
    if (l->level == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort vertices by hotness");
    for (int64_t v = 0; v < g->vertices; v++)
        l->level[hotness[v]].bytes += lists ? pst_legion_list_bytes(g, v) : c->row_bytes;
    return PST_OK;
}

/* Moves a vertex down by its own part of the hotness, or back up. */
static void move(struct levels *l, uint64_t hotness, uint64_t own, uint64_t bytes, double needed, bool down)
{
    struct level *high = &l->level[hotness], *low = &l->level[hotness - own];
    if (down) {
        high->bytes -= bytes;
        low->bytes += bytes;
        low->needed += needed;
    } else {
        high->bytes += bytes;
        low->bytes -= bytes;
        low->needed = 0;
    }
}

/* Adds what the batch misses with each capacity. The cache has all levels above one, and of that level as
 * large a part as fits. */
static void add_missed(struct levels *l, const struct pst_legion_cost *c,
                       uint64_t (*capacity)(const struct pst_legion_cost *c, int i))
{
    double needed = 0, found[PST_LEGION_ALPHAS] = {0}, above = 0;
    uint64_t used = 0;
    int i = 0;
    for (uint64_t k = l->highest + 1; k-- > 0;) {
        const struct level *level = &l->level[k];
        for (; i < PST_LEGION_ALPHAS && capacity(c, i) < used + level->bytes; i++)
            found[i] = above + level->needed * (double)(capacity(c, i) - used) / (double)level->bytes;
        used += level->bytes;
        above += level->needed;
    }
    needed = above;
    for (; i < PST_LEGION_ALPHAS; i++)
        found[i] = above;
    for (i = 0; i < PST_LEGION_ALPHAS; i++)
        l->missed[i] += needed - found[i];
    l->needed += needed;
}

static void leave_out_lists(struct levels *l, const struct pst_legion_cost *c,
                            const struct pst_legion_reader *r)
{
    for (int down = 1; down >= 0; down--) {
        for (int64_t i = 0; i < r->n; i++)
            move(l, c->edges[r->vertices[i]], r->edges[i],
                 pst_legion_list_bytes(c->source->graph, r->vertices[i]), r->lines[i], down);
        if (down)
            add_missed(l, c, lists_bytes);
    }
}

static void leave_out_rows(struct levels *l, const struct pst_legion_cost *c,
                           const struct pst_legion_reader *r)
{
    for (int down = 1; down >= 0; down--) {
        for (int64_t i = 0; i < r->n; i++)
            move(l, c->rows[r->vertices[i]], 1, c->row_bytes, 1, down);
        if (down)
            add_missed(l, c, rows_bytes);
    }
}

/* Leaves batches out in turn, evenly spread over the clique's devices and epochs. */
static pst_rc probe(const struct pst_legion_cost *c, struct levels *lists, struct levels *rows)
{
    struct pst_legion_reader r;
    int device[PST_CLIQUES_MAX], devices = 0;
    for (uint64_t left = c->devices; left != 0; left &= left - 1)
        device[devices++] = __builtin_ctzll(left);
    const int64_t steps = c->source->shares->steps, batches = devices * c->epochs * steps;
    const int64_t probes = pst_min_i64(batches, PST_LEGION_PROBES_MAX);
    pst_rc rc = pst_legion_reader_init(&r, c->source);
    if (rc != PST_OK)
        return rc;
    for (int64_t k = 0; k < probes && rc == PST_OK; k++) {
        const int64_t b = k * batches / probes;
        rc = pst_legion_read_batch(&r, device[b / steps / c->epochs], b / steps % c->epochs, b % steps);
        if (rc == PST_OK) {
            leave_out_lists(lists, c, &r);
            leave_out_rows(rows, c, &r);
        }
    }
    pst_legion_reader_release(&r);
    return rc;
}

static pst_rc predict_corrected(struct pst_legion_cost *c)
{
    struct levels lists = {.level = NULL}, rows = {.level = NULL};
    double all_lines = 0, all_rows = 0;
    pst_rc rc = levels_init(&lists, c, c->edges, true);
    if (rc == PST_OK)
        rc = levels_init(&rows, c, c->rows, false);
    if (rc == PST_OK)
        rc = probe(c, &lists, &rows);
    for (int64_t v = 0; v < c->counts->vertices; v++) {
        all_lines += (double)sum_of(c, c->counts, c->counts->lines, v);
        all_rows += (double)c->rows[v];
    }
    for (int i = 0; i < PST_LEGION_ALPHAS && rc == PST_OK; i++) {
        c->n_t[i] = lists.needed > 0 ? all_lines * lists.missed[i] / lists.needed : 0;
        c->n_f[LAST - i] = rows.needed > 0 ? row_lines(c) * all_rows * rows.missed[i] / rows.needed : 0;
    }
    free(lists.level);
    free(rows.level);
    return rc;
}

/* ---- all ------------------------------------------------------------------------------------------ */

static int least(const double *t, const double *f)
{
    int best = 0;
    for (int i = 1; i < PST_LEGION_ALPHAS; i++)
        if (t[i] + f[i] < t[best] + f[best])
            best = i;
    return best;
}

static pst_rc rank(struct pst_legion_cost *c)
{
    struct pst_cslp lists = {.devices = 0}, rows = {.devices = 0};
    const int64_t n = c->counts->vertices;
    for (uint64_t left = c->devices; left != 0; left &= left - 1) {
        const int64_t from = __builtin_ctzll(left) * n;
        lists.hotness[lists.devices++] = c->counts->edges + from;
        rows.hotness[rows.devices++] = c->counts->rows + from;
    }
    c->edges = malloc((size_t)n * sizeof *c->edges);
    c->rows = malloc((size_t)n * sizeof *c->rows);
    c->lists_order = malloc((size_t)n * sizeof *c->lists_order);
    c->rows_order = malloc((size_t)n * sizeof *c->rows_order);
    if (c->edges == NULL || c->rows == NULL || c->lists_order == NULL || c->rows_order == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices by hotness", (long long)n);
    const pst_rc rc = pst_cslp_order(&lists, n, c->edges, c->lists_order);
    return rc != PST_OK ? rc : pst_cslp_order(&rows, n, c->rows, c->rows_order);
}

pst_rc pst_legion_cost_predict(struct pst_legion_cost *c)
{
    pst_rc rc = rank(c);
    if (rc == PST_OK) {
        find_prefixes(c);
        predict_as_printed(c);
        rc = predict_corrected(c);
    }
    if (rc != PST_OK) {
        pst_legion_cost_release(c);
        return rc;
    }
    c->best_printed = least(c->printed_t, c->printed_f);
    c->best = least(c->n_t, c->n_f);
    return PST_OK;
}

void pst_legion_cost_release(struct pst_legion_cost *c)
{
    free(c->edges);
    free(c->rows);
    free(c->lists_order);
    free(c->rows_order);
    c->edges = c->rows = NULL;
    c->lists_order = c->rows_order = NULL;
}
