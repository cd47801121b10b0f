/* partition.c: makes the undirected graph that METIS needs, from all edges or a sample, and calls METIS. */
#include "stages/lib/legion/partition.h"

#include <metis.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"

#define FEWER 0.98    /* a sample that is too large by chance is drawn again with so much of its share */
#define CONSTRAINTS 2 /* vertices and training vertices are balanced */

_Static_assert(sizeof(idx_t) == sizeof(int32_t), "entries_max is for METIS with indices of 32 bits");

/* The graph without directions, loops and repeated edges. */
struct undirected {
    idx_t n, *at, *to, *weight, *part;
};

static void release(struct undirected *u)
{
    free(u->at);
    free(u->to);
    free(u->weight);
    free(u->part);
}

static int64_t entry(const struct pst_csc *g, int64_t e)
{
    return g->index_bytes == 4 ? ((const int32_t *)g->indices)[e] : ((const int64_t *)g->indices)[e];
}

pst_rc pst_legion_check(const struct pst_csc *g)
{
    for (int64_t v = 0; v < g->vertices; v++) {
        const int64_t begin = g->indptr[v], end = g->indptr[v + 1];
        if (begin < 0 || end < begin || end > g->edges)
            return pst_fail(
                PST_E_FORMAT,
                "indptr gives vertex %lld the edges %lld to %lld, but the graph has %lld; `penstock "
                "verify` shows details",
                (long long)v, (long long)begin, (long long)end, (long long)g->edges);
        for (int64_t e = begin; e < end; e++)
            if ((uint64_t)entry(g, e) >= (uint64_t)g->vertices)
                return pst_fail(PST_E_FORMAT,
                                "an edge leads from vertex %lld to vertex %lld, but the graph has %lld "
                                "vertices; `penstock verify` shows details",
                                (long long)entry(g, e), (long long)v, (long long)g->vertices);
    }
    return PST_OK;
}

/* Edges are drawn by their two ends, so both directions of one are in the sample, or none. */
static bool taken(const struct pst_legion_partition *p, int64_t a, int64_t b)
{
    if (a == b)
        return false;
    if (p->sampled >= 1)
        return true;
    const struct pst_rng_stream s = pst_rng_stream_of(PST_RNG_PARTITION, p->seed, 0, 0, 2);
    const struct pst_rng_block draw =
        pst_rng_draw(&s, (uint64_t)pst_min_i64(a, b) << 32 | (uint64_t)pst_max_i64(a, b), 0);
    return pst_rng_unit(draw.word[0]) < p->sampled;
}

/* degree[v] = entries of v's list, with repeats. Returns the sum. */
static int64_t count(const struct pst_legion_partition *p, int64_t *degree)
{
    const struct pst_csc *g = p->graph;
    int64_t all = 0;
    memset(degree, 0, (size_t)g->vertices * sizeof *degree);
    for (int64_t v = 0; v < g->vertices; v++)
        for (int64_t e = g->indptr[v]; e < g->indptr[v + 1]; e++)
            if (taken(p, v, entry(g, e))) {
                degree[v]++;
                degree[entry(g, e)]++;
                all += 2;
            }
    return all;
}

/* Chooses the share of edges, and counts their entries. */
static int64_t choose_sample(struct pst_legion_partition *p, int64_t *degree)
{
    const int64_t most = pst_min_i64(p->entries_max, PST_LEGION_ENTRIES_MAX);
    p->sampled = 1;
    int64_t all = count(p, degree);
    const int64_t whole = all;
    for (double share = 1; all > most; share *= FEWER) {
        p->sampled = share * (double)most / (double)whole;
        all = count(p, degree);
    }
    return all;
}

static int by_id(const void *left, const void *right)
{
    const idx_t a = *(const idx_t *)left, b = *(const idx_t *)right;
    return (a > b) - (a < b);
}

/* Sorts each list and removes repeats. */
static void tidy(struct undirected *u)
{
    idx_t out = 0, begin = 0;
    for (idx_t v = 0; v < u->n; v++) {
        const idx_t end = u->at[v + 1], first = out;
        qsort(u->to + begin, (size_t)(end - begin), sizeof *u->to, by_id);
        for (idx_t e = begin; e < end; e++)
            if (out == first || u->to[out - 1] != u->to[e])
                u->to[out++] = u->to[e];
        begin = end;
        u->at[v + 1] = out;
    }
}

static pst_rc make(struct undirected *u, struct pst_legion_partition *p)
{
    const struct pst_csc *g = p->graph;
    int64_t *next = malloc(((size_t)g->vertices + 1) * sizeof *next);
    const int64_t all = next != NULL ? choose_sample(p, next) : 0;
    u->n = (idx_t)g->vertices;
    u->at = malloc(((size_t)g->vertices + 1) * sizeof *u->at);
    u->to = malloc((size_t)pst_max_i64(1, all) * sizeof *u->to);
    u->part = malloc((size_t)g->vertices * sizeof *u->part);
    u->weight = calloc((size_t)g->vertices * CONSTRAINTS, sizeof *u->weight);
    if (next == NULL || u->at == NULL || u->to == NULL || u->part == NULL || u->weight == NULL) {
        free(next);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot partition %lld vertices with %lld entries",
                        (long long)g->vertices, (long long)all);
    }
    u->at[0] = 0;
    for (int64_t v = 0; v < g->vertices; v++) {
        u->at[v + 1] = u->at[v] + (idx_t)next[v];
        next[v] = u->at[v];
        u->weight[CONSTRAINTS * v] = 1;
    }
    for (int64_t i = 0; i < p->ntrain; i++)
        u->weight[CONSTRAINTS * p->train[i] + 1] = 1;
    for (int64_t v = 0; v < g->vertices; v++)
        for (int64_t e = g->indptr[v]; e < g->indptr[v + 1]; e++) {
            const int64_t w = entry(g, e);
            if (taken(p, v, w)) {
                u->to[next[v]++] = (idx_t)w;
                u->to[next[w]++] = (idx_t)v;
            }
        }
    free(next);
    tidy(u);
    return PST_OK;
}

static pst_rc call_metis(struct undirected *u, const struct pst_legion_partition *p)
{
    real_t share[PST_CLIQUES_MAX * CONSTRAINTS];
    idx_t options[METIS_NOPTIONS], constraints = CONSTRAINTS, parts = p->parts, cut = 0;
    int sum = 0;
    for (int k = 0; k < p->parts; k++)
        sum += p->weight[k];
    for (int k = 0; k < p->parts; k++)
        for (int i = 0; i < CONSTRAINTS; i++)
            share[CONSTRAINTS * k + i] = (real_t)p->weight[k] / (real_t)sum;
    (void)METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = (idx_t)(p->seed & INT32_MAX);
    const int rc = METIS_PartGraphKway(&u->n, &constraints, u->at, u->to, u->weight, NULL, NULL, &parts,
                                       share, NULL, options, &cut, u->part);
    if (rc == METIS_ERROR_MEMORY)
        return pst_fail(PST_E_NOMEM, "out of memory: METIS cannot partition %lld vertices with %lld entries",
                        (long long)u->n, (long long)u->at[u->n]);
    return rc == METIS_OK ? PST_OK
                          : pst_fail(PST_E_UNSUPPORTED,
                                     "METIS cannot divide this graph into %d parts: error %d", p->parts, rc);
}

int64_t pst_legion_cut_edges(const struct pst_csc *g, const int8_t *part)
{
    int64_t cut = 0;
    for (int64_t v = 0; v < g->vertices; v++)
        for (int64_t e = g->indptr[v]; e < g->indptr[v + 1]; e++)
            cut += part[v] != part[entry(g, e)];
    return cut;
}

pst_rc pst_legion_partition(struct pst_legion_partition *p, int8_t *part)
{
    struct undirected u = {.n = 0};
    const int64_t n = p->graph->vertices;
    assert(p->parts >= 1 && p->parts <= PST_CLIQUES_MAX);
    p->sampled = 1;
    p->cut_edges = 0;
    memset(part, 0, (size_t)n * sizeof *part);
    if (p->parts == 1)
        return PST_OK;
    if (n >= PST_LEGION_ENTRIES_MAX)
        return pst_fail(PST_E_LIMIT, "METIS cannot partition %lld vertices; expected fewer than %lld",
                        (long long)n, (long long)PST_LEGION_ENTRIES_MAX);
    pst_rc rc = make(&u, p);
    if (rc == PST_OK)
        rc = call_metis(&u, p);
    if (rc == PST_OK) {
        for (int64_t v = 0; v < n; v++)
            part[v] = (int8_t)u.part[v];
        p->cut_edges = pst_legion_cut_edges(p->graph, part);
    }
    release(&u);
    return rc;
}
