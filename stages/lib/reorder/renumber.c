/* renumber.c: the orders by hotness, by degree and breadth first; counts of accesses; types stay together. */
#include "stages/lib/reorder/renumber.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/legion/partition.h"
#include "stages/lib/reorder/renumber_impl.h"

static const char *const names[PST_RENUMBER_ORDERS] = {"access", "hotness", "degree", "bfs", "metis"};

const char *pst_renumber_name(enum pst_renumber_by by)
{
    return names[by];
}

bool pst_renumber_find(const char *name, enum pst_renumber_by *by)
{
    for (int k = 0; k < PST_RENUMBER_ORDERS; k++)
        if (strcmp(name, names[k]) == 0) {
            *by = (enum pst_renumber_by)k;
            return true;
        }
    return false;
}

/* ---- counts --------------------------------------------------------------------------------------- */

pst_rc pst_renumber_count(struct pst_hoods *h, uint32_t *counts, struct pst_progress *progress)
{
    pst_rc rc = PST_OK;
    memset(counts, 0, (size_t)h->graph.vertices * sizeof *counts);
    pst_progress_begin(progress, "counting batches", h->seeds.batches, false);
    pst_hoods_begin(h);
    for (uint64_t b = 0; b < h->seeds.batches && rc == PST_OK; b++) {
        rc = pst_hoods_batch(h, b);
        for (int64_t i = 0; i < h->n[h->spec.hops] && rc == PST_OK; i++)
            counts[h->vertices[i]]++;
        if (rc == PST_OK)
            rc = pst_progress_add(progress, 1);
    }
    pst_hoods_end(h);
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc;
}

/* What a vertex is sorted by in a pass: the 16 lower bits of its count, the 16 higher ones, its tier. */
static uint32_t digit_of(const uint32_t *counts, const uint8_t *tier, enum pst_renumber_tier least, int pass,
                         int64_t v)
{
    return pass < 2 ? counts[v] >> 16 * pass & 65535 : tier[v] >= least ? tier[v] : 0;
}

/* A counting sort; it is stable, and digits fall. */
pst_rc pst_renumber_hottest(const uint32_t *counts, const uint8_t *tier, enum pst_renumber_tier least,
                            int64_t vertices, int64_t *order)
{
    int64_t *from = malloc((size_t)vertices * sizeof *from + 1), *at = calloc(65537, sizeof *at);
    if (from == NULL || at == NULL) {
        free(from);
        free(at);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort %lld vertices", (long long)vertices);
    }
    for (int64_t v = 0; v < vertices; v++)
        from[v] = v;
    for (int pass = 0; pass < (tier != NULL ? 3 : 2); pass++) {
        memset(at, 0, 65537 * sizeof *at);
        for (int64_t i = 0; i < vertices; i++)
            at[65535 - digit_of(counts, tier, least, pass, from[i]) + 1]++;
        for (int k = 0; k < 65536; k++)
            at[k + 1] += at[k];
        for (int64_t i = 0; i < vertices; i++)
            order[at[65535 - digit_of(counts, tier, least, pass, from[i])]++] = from[i];
        memcpy(from, order, (size_t)vertices * sizeof *from);
    }
    free(from);
    free(at);
    return PST_OK;
}

/* ---- orders --------------------------------------------------------------------------------------- */

static pst_rc by_degree(const struct pst_csc *g, int64_t *order)
{
    uint32_t *lists = calloc((size_t)g->vertices + 1, sizeof *lists);
    if (lists == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the edges of %lld vertices",
                        (long long)g->vertices);
    for (int64_t e = 0; e < g->edges; e++) {
        uint32_t *n = &lists[pst_renumber_neighbour(g, e)];
        *n += *n < UINT32_MAX;
    }
    const pst_rc rc = pst_renumber_hottest(lists, NULL, 0, g->vertices, order);
    free(lists);
    return rc;
}

/* Appends what can be reached from v, in the order in which it is found. */
static void search(const struct pst_csc *g, int64_t v, uint8_t *seen, int64_t *order, int64_t *n)
{
    int64_t next = *n;
    if (seen[v])
        return;
    seen[v] = 1;
    order[(*n)++] = v;
    for (; next < *n; next++)
        for (int64_t e = g->indptr[order[next]]; e < g->indptr[order[next] + 1]; e++) {
            const int64_t u = pst_renumber_neighbour(g, e);
            if (!seen[u])
                order[(*n)++] = u;
            seen[u] = 1;
        }
}

/* From all seeds in turn, and then from what they do not reach. */
static pst_rc breadth_first(const struct pst_hoods *h, int64_t *order)
{
    const struct pst_csc *g = &h->graph;
    uint8_t *seen = calloc((size_t)g->vertices + 1, 1);
    int64_t n = 0;
    if (seen == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot search %lld vertices", (long long)g->vertices);
    for (int64_t i = 0; i < h->seeds.n; i++)
        search(g, h->seeds.ids[i], seen, order, &n);
    for (int64_t v = 0; v < g->vertices; v++)
        search(g, v, seen, order, &n);
    free(seen);
    return PST_OK;
}

/* ---- types ---------------------------------------------------------------------------------------- */

/* Moves each vertex to the numbers of its type; those of a type keep their order. */
static pst_rc part_types(const struct pst_dataset *ds, int64_t *order)
{
    int64_t *copy, next[PST_MANIFEST_VERTEX_TYPES_MAX] = {0};
    if (ds->vertex_types == 0)
        return PST_OK;
    copy = malloc((size_t)ds->vertices * sizeof *copy + 1);
    if (copy == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot order %lld vertices", (long long)ds->vertices);
    memcpy(copy, order, (size_t)ds->vertices * sizeof *copy);
    for (int k = 0; k < ds->vertex_types; k++)
        next[k] = ds->vertex_type[k].first;
    for (int64_t i = 0; i < ds->vertices; i++)
        order[next[pst_rows_type_of(ds, copy[i])]++] = copy[i];
    free(copy);
    return PST_OK;
}

pst_rc pst_renumber(const struct pst_renumber_spec *spec, int64_t *old_of, struct pst_progress *progress)
{
    const struct pst_csc *g = &spec->hoods->graph;
    pst_rc rc = pst_legion_check(g);
    if (rc == PST_OK && spec->by == PST_RENUMBER_HOTNESS)
        rc = pst_renumber_hottest(spec->hotness, spec->tier, PST_RENUMBER_LIST, g->vertices, old_of);
    else if (rc == PST_OK)
        rc = spec->by == PST_RENUMBER_DEGREE ? by_degree(g, old_of) : breadth_first(spec->hoods, old_of);
    if (rc == PST_OK && spec->by == PST_RENUMBER_ACCESS)
        rc = pst_renumber_by_access(spec, old_of, progress);
    if (rc == PST_OK && spec->by == PST_RENUMBER_METIS)
        rc = pst_renumber_by_parts(spec, old_of, progress);
    return rc == PST_OK ? part_types(&spec->hoods->ds, old_of) : rc;
}
