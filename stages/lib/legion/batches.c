/* batches.c: samples batches, and counts what they read. */
#include "stages/lib/legion/batches.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

pst_rc pst_legion_reader_init(struct pst_legion_reader *r, const struct pst_legion_source *s)
{
    struct pst_minibatch_size bound;
    int64_t edges = 1;
    *r = (struct pst_legion_reader){.source = s};
    if (s->algorithm->algorithm->pick == NULL)
        return pst_fail(PST_E_UNSUPPORTED,
                        "the sampling algorithm %s does not say which entries of a list of neighbours it "
                        "reads; use uniform",
                        s->algorithm->algorithm->name);
    pst_sampling_size_bound(&bound, s->algorithm, s->graph, s->fanout, s->hops, s->shares->batch_max);
    for (int h = 0; h < s->hops; h++)
        edges = pst_max_i64(edges, bound.edges[h]);
    const int64_t vertices = bound.n[s->hops];
    if (vertices > PST_MINIBATCH_COUNT_MAX || edges > PST_MINIBATCH_COUNT_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "a batch of %lld seeds may have %lld vertices and %lld edges per hop; expected at most "
            "%lld: use a smaller batch or fanout",
            (long long)s->shares->batch_max, (long long)vertices, (long long)edges,
            (long long)PST_MINIBATCH_COUNT_MAX);
    r->seeds = malloc((size_t)s->shares->batch_max * sizeof *r->seeds);
    r->vertices = malloc((size_t)vertices * sizeof *r->vertices);
    r->edges = malloc((size_t)vertices * sizeof *r->edges);
    r->lines = malloc((size_t)vertices * sizeof *r->lines);
    r->degrees = malloc((size_t)vertices * sizeof *r->degrees);
    r->indptr = malloc(((size_t)vertices + 1) * sizeof *r->indptr);
    r->indices = malloc((size_t)edges * sizeof *r->indices);
    r->positions = malloc((size_t)edges * sizeof *r->positions);
    r->line = malloc((size_t)edges * sizeof *r->line);
    pst_rc rc = r->seeds != NULL && r->vertices != NULL && r->edges != NULL && r->lines != NULL &&
                        r->degrees != NULL && r->indptr != NULL && r->indices != NULL &&
                        r->positions != NULL && r->line != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot sample batches of %lld vertices",
                               (long long)vertices);
    if (rc == PST_OK)
        rc = pst_expander_init(&r->expander, s->graph, s->algorithm, vertices, edges);
    if (rc != PST_OK)
        pst_legion_reader_release(r);
    return rc;
}

void pst_legion_reader_release(struct pst_legion_reader *r)
{
    pst_expander_release(&r->expander);
    free(r->seeds);
    free(r->vertices);
    free(r->edges);
    free(r->lines);
    free(r->degrees);
    free(r->indptr);
    free(r->indices);
    free(r->positions);
    free(r->line);
    *r = (struct pst_legion_reader){.n = 0};
}

/* ---- one batch ------------------------------------------------------------------------------------ */

static int by_number(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static uint32_t distinct(int64_t *numbers, int64_t n)
{
    uint32_t found = n > 0;
    qsort(numbers, (size_t)n, sizeof *numbers, by_number);
    for (int64_t i = 1; i < n; i++)
        found += numbers[i] != numbers[i - 1];
    return found;
}

/* What the hop reads of the list of vertex i: two entries of indptr, and those at the drawn positions. Both
 * arrays begin with a line. */
static void note_list(struct pst_legion_reader *r, int64_t i)
{
    const struct pst_csc *g = r->source->graph;
    const int64_t line = r->source->line_bytes, entry = g->index_bytes;
    const int64_t v = r->vertices[i], n = r->indptr[i + 1] - r->indptr[i];
    const int64_t first = v * (int64_t)sizeof *g->indptr, last = first + (int64_t)sizeof *g->indptr;
    for (int64_t k = 0; k < n; k++)
        r->line[k] = (g->indptr[v] + r->positions[r->indptr[i] + k]) * entry / line;
    r->edges[i] += (uint32_t)n;
    r->lines[i] += (uint32_t)(last / line - first / line + 1) + distinct(r->line, n);
}

static void take_drawn(struct pst_legion_reader *r)
{
    const struct pst_csc *g = r->source->graph;
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t k = r->indptr[i]; k < r->indptr[i + 1]; k++) {
            const int64_t e = g->indptr[r->vertices[i]] + r->positions[k];
            r->expander.ids[k] =
                g->index_bytes == 4 ? ((const int32_t *)g->indices)[e] : ((const int64_t *)g->indices)[e];
        }
}

static pst_rc read_hop(struct pst_legion_reader *r, const struct pst_sample_key *key, int fanout)
{
    const struct pst_sampling_opened *a = r->source->algorithm;
    const int64_t before = r->n, *indptr = r->source->graph->indptr;
    const struct pst_sampling_pick pick = {.key = key,
                                           .fanout = fanout,
                                           .vertices = r->vertices,
                                           .degrees = r->degrees,
                                           .n = before,
                                           .indptr = r->indptr,
                                           .positions = r->positions,
                                           .capacity = r->expander.edges_max};
    for (int64_t i = 0; i < before; i++)
        r->degrees[i] = indptr[r->vertices[i] + 1] - indptr[r->vertices[i]];
    pst_rc rc = a->algorithm->pick(a->state, &pick);
    if (rc != PST_OK)
        return rc;
    for (int64_t i = 0; i < before; i++)
        note_list(r, i);
    take_drawn(r);
    rc = pst_expand_drawn(&r->expander, r->vertices, &r->n, r->expander.vertices_max, r->indptr, r->indices,
                          r->expander.edges_max);
    memset(r->edges + before, 0, (size_t)(r->n - before) * sizeof *r->edges);
    memset(r->lines + before, 0, (size_t)(r->n - before) * sizeof *r->lines);
    return rc;
}

pst_rc pst_legion_read_batch(struct pst_legion_reader *r, int device, int64_t epoch, int64_t step)
{
    const struct pst_legion_source *s = r->source;
    const int64_t seeds = pst_legion_shares_batch(s->shares, device, epoch, step, r->seeds);
    pst_rc rc = pst_expand_seeds(&r->expander, r->seeds, seeds, r->vertices, &r->n, r->expander.vertices_max);
    memset(r->edges, 0, (size_t)r->n * sizeof *r->edges);
    memset(r->lines, 0, (size_t)r->n * sizeof *r->lines);
    for (int h = 0; h < s->hops && rc == PST_OK; h++) {
        const struct pst_sample_key key = {.seed = s->seed,
                                           .epoch = (uint32_t)epoch,
                                           .hop = (uint32_t)h,
                                           .batch = pst_legion_shares_key(s->shares, device, step)};
        if (s->fanout[h] != 0)
            rc = read_hop(r, &key, (int)s->fanout[h]);
    }
    return rc != PST_OK ? pst_wrap(rc, "batch %lld of device %d, epoch %lld", (long long)step, device,
                                   (long long)epoch)
                        : PST_OK;
}

/* ---- sums ----------------------------------------------------------------------------------------- */

static void add_batch(struct pst_legion_counts *c, int device, const struct pst_legion_reader *r)
{
    const int64_t from = device * c->vertices;
    for (int64_t i = 0; i < r->n; i++) {
        c->edges[from + r->vertices[i]] += r->edges[i];
        c->lines[from + r->vertices[i]] += r->lines[i];
        c->rows[from + r->vertices[i]]++;
    }
}

pst_rc pst_legion_counts_init(struct pst_legion_counts *c, const struct pst_legion_source *s, int64_t first,
                              int64_t epochs)
{
    struct pst_legion_reader r;
    const size_t entries = (size_t)s->shares->devices * (size_t)s->graph->vertices;
    *c = (struct pst_legion_counts){.devices = s->shares->devices, .vertices = s->graph->vertices};
    pst_rc rc = pst_legion_reader_init(&r, s);
    if (rc != PST_OK)
        return rc;
    c->edges = calloc(entries, sizeof *c->edges);
    c->rows = calloc(entries, sizeof *c->rows);
    c->lines = calloc(entries, sizeof *c->lines);
    if (c->edges == NULL || c->rows == NULL || c->lines == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot count the reads of %lld vertices by %d devices",
                      (long long)c->vertices, c->devices);
    for (int64_t epoch = first; epoch < first + epochs; epoch++)
        for (int d = 0; d < c->devices; d++)
            for (int64_t step = 0; step < s->shares->steps && rc == PST_OK; step++) {
                rc = pst_legion_read_batch(&r, d, epoch, step);
                if (rc == PST_OK)
                    add_batch(c, d, &r);
            }
    pst_legion_reader_release(&r);
    if (rc != PST_OK)
        pst_legion_counts_release(c);
    return rc;
}

void pst_legion_counts_release(struct pst_legion_counts *c)
{
    free(c->edges);
    free(c->rows);
    free(c->lines);
    *c = (struct pst_legion_counts){.devices = 0};
}
