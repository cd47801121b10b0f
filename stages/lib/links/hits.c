/* hits.c: scores edges and negatives, and counts hits. */
#include "stages/lib/links/hits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"
#include "stages/lib/learning/metric.h"

enum { BLOCK = 128 }; /* pairs of one task */

static const struct pst_array *array_of(const struct pst_dataset *ds, int split, bool negatives)
{
    return negatives ? &ds->negatives[split - PST_VAL] : &ds->edges_split[split];
}

static int64_t end_of(const struct pst_array *a, int64_t row, int end)
{
    const int64_t at = 2 * row + end;
    return a->dtype == PST_I32 ? ((const int32_t *)a->map)[at] : ((const int64_t *)a->map)[at];
}

bool pst_links_hits_measurable(const struct pst_dataset *ds, int split)
{
    const struct pst_array *edges = array_of(ds, split, false), *negatives = array_of(ds, split, true);
    return edges->map && edges->shape[0] > 0 && negatives->map && negatives->shape[0] > 0;
}

static pst_rc check_ends(const struct pst_array *a, int64_t vertices)
{
    for (int64_t i = 0; i < a->shape[0]; i++)
        for (int e = 0; e < 2; e++)
            if (end_of(a, i, e) < 0 || end_of(a, i, e) >= vertices)
                return pst_fail(PST_E_FORMAT,
                                "%s: row %" PRId64 " has vertex %" PRId64 ", but the graph has only %" PRId64
                                " vertices; `penstock verify` shows details",
                                a->path, i, end_of(a, i, e), vertices);
    return PST_OK;
}

static pst_rc check_split(const struct pst_links_hits *h, int split, int64_t most[2])
{
    pst_rc rc = PST_OK;
    if (!pst_links_hits_measurable(h->ds, split))
        return PST_OK;
    for (int n = 0; n < 2 && rc == PST_OK; n++) {
        const struct pst_array *a = array_of(h->ds, split, n);
        most[n] = pst_max_i64(most[n], a->shape[0]);
        rc = check_ends(a, h->ds->vertices);
        if (rc == PST_OK && n == 1 && a->shape[0] < h->k)
            rc = pst_fail(PST_E_ARG, "hits is %" PRId64 ", but %s has only %" PRId64 " pairs: lower hits",
                          h->k, a->path, a->shape[0]);
    }
    return rc;
}

pst_rc pst_links_hits_open(struct pst_links_hits *h, const struct pst_dataset *ds,
                           const struct pst_gnn_model *model, int64_t k)
{
    int64_t most[2] = {1, 1};
    *h = (struct pst_links_hits){.ds = ds, .k = k, .ld = pst_gnn_width(model->config.classes)};
    for (int s = PST_TRAIN; s <= PST_TEST; s++)
        h->of[s] = PST_METRIC_UNKNOWN;
    pst_rc rc = check_split(h, PST_VAL, most);
    if (rc == PST_OK)
        rc = check_split(h, PST_TEST, most);
    if (rc != PST_OK)
        return rc;
    h->bytes = (size_t)ds->vertices * (size_t)h->ld * sizeof *h->outputs;
    h->scratch_reals = model->config.head->scratch(model, BLOCK);
    h->outputs = pst_hugepage_map(h->bytes);
    h->score[0] = malloc((size_t)most[0] * sizeof *h->score[0]);
    h->score[1] = malloc((size_t)most[1] * sizeof *h->score[1]);
    h->scratch = malloc((size_t)(h->scratch_reals * model->config.threads + 1) * sizeof *h->scratch);
    if (h->outputs && h->score[0] && h->score[1] && h->scratch)
        return PST_OK;
    const size_t bytes = h->bytes;
    pst_links_hits_close(h);
    return pst_fail(PST_E_NOMEM,
                    "out of memory: cannot allocate %zu bytes for the outputs of %" PRId64
                    " vertices, which link prediction evaluates in memory; use fewer hidden columns, or set "
                    "eval_every to 0",
                    bytes, ds->vertices);
}

void pst_links_hits_close(struct pst_links_hits *h)
{
    pst_hugepage_unmap(h->outputs, h->bytes);
    free(h->score[0]);
    free(h->score[1]);
    free(h->scratch);
    memset(h, 0, sizeof *h);
}

pst_rc pst_links_hits_take(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    const struct pst_links_hits_sink *sink = ctx;
    const struct pst_links_hits *h = sink->hits;
    for (int64_t i = 0; layer == sink->layer && i < n; i++)
        memcpy(h->outputs + (first + i) * h->ld, rows + i * ld, (size_t)h->ld * sizeof *rows);
    return PST_OK;
}

struct scoring {
    const struct pst_links_hits *h;
    const struct pst_gnn_model *model;
    const struct pst_array *pairs;
    pst_real *score;
};

static void score_task(void *arg, int64_t block, int worker)
{
    const struct scoring *s = arg;
    const int64_t at = block * BLOCK, n = pst_min_i64(BLOCK, s->pairs->shape[0] - at);
    int64_t u[BLOCK], v[BLOCK];
    for (int64_t i = 0; i < n; i++) {
        u[i] = end_of(s->pairs, at + i, 0);
        v[i] = end_of(s->pairs, at + i, 1);
    }
    s->model->config.head->score_rows(s->model, s->h->outputs, s->h->ld, u, v, n, s->score + at,
                                      s->h->scratch + worker * s->h->scratch_reals);
}

/* A NaN counts as the lowest score. */
static int compare(const void *left, const void *right)
{
    const pst_real a = *(const pst_real *)left, b = *(const pst_real *)right;
    if (a != a || b != b)
        return (a != a) - (b != b);
    return (a < b) - (a > b); /* the largest first */
}

double pst_links_hits_share(const pst_real *score, int64_t n, pst_real *other, int64_t m, int64_t k)
{
    int64_t hits = 0;
    assert(n >= 1 && k >= 1 && k <= m);
    qsort(other, (size_t)m, sizeof *other, compare);
    for (int64_t i = 0; i < n; i++)
        hits += score[i] > other[k - 1];
    return (double)hits / (double)n;
}

void pst_links_hits_measure(struct pst_links_hits *h, const struct pst_gnn_model *model)
{
    for (int split = PST_VAL; split <= PST_TEST; split++) {
        if (!pst_links_hits_measurable(h->ds, split))
            continue;
        for (int n = 0; n < 2; n++) {
            struct scoring s = {h, model, array_of(h->ds, split, n), h->score[n]};
            pst_team_run(model->team, score_task, &s, (s.pairs->shape[0] + BLOCK - 1) / BLOCK);
        }
        h->of[split] = pst_links_hits_share(h->score[0], array_of(h->ds, split, false)->shape[0], h->score[1],
                                            array_of(h->ds, split, true)->shape[0], h->k);
    }
}
