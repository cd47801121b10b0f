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

static uint64_t lists_bytes(const struct pst_legion_cost *c, int i)
{
    return (uint64_t)((double)c->bytes * i / LAST);
}

static double row_lines(const struct pst_legion_cost *c)
{
    const uint64_t lines = (c->row_bytes + c->line_bytes - 1) / c->line_bytes;
    return (double)lines;
}

/* The longest prefixes of the orders that fit. */
static void find_prefixes(struct pst_legion_cost *c)
{
    const int64_t n = c->graph->vertices;
    uint64_t used = 0;
    int64_t at = 0;
    for (int i = 0; i < PST_LEGION_ALPHAS; i++) {
        for (; at < n; at++) {
            const uint64_t bytes = pst_legion_list_bytes(c->graph, c->lists_order[at]);
            if (used + bytes > lists_bytes(c, i))
                break;
            used += bytes;
        }
        c->lists[i] = at;
        c->cached_rows[i] = pst_min_i64(n, (int64_t)((c->bytes - lists_bytes(c, i)) / c->row_bytes));
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
    for (int i = 0; i < PST_LEGION_ALPHAS; i++) {
        c->printed_t[i] *= edges > 0 ? all_lines / edges / (double)c->epochs : 0;
        c->printed_f[i] /= (double)c->epochs;
    }
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
    const pst_rc rc = rank(c);
    if (rc != PST_OK) {
        pst_legion_cost_release(c);
        return rc;
    }
    find_prefixes(c);
    predict_as_printed(c);
    pst_legion_cost_count(c, c->rehearsal, c->n_t, c->n_f);
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
