/* hotness_rank.c: scores that come from the graph's structure, without the fanout. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"
#include "stages/lib/plan/hotness.h"

#define DAMPING 0.85
#define CHANGE_MAX 1e-6 /* the sum of the absolute changes of a round, at the end */
#define ROUNDS_MAX 1000 /* the change falls by DAMPING in a round, so 100 are enough */

static int64_t neighbour(const struct pst_csc *graph, int64_t edge)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[edge]
                                   : ((const int64_t *)graph->indices)[edge];
}

static pst_rc check_list(const struct pst_csc *graph, int64_t v)
{
    const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1];
    bool right = begin >= 0 && begin <= end && end <= graph->edges;
    for (int64_t e = begin; right && e < end; e++)
        right = neighbour(graph, e) >= 0 && neighbour(graph, e) < graph->vertices;
    return right ? PST_OK
                 : pst_fail(PST_E_FORMAT,
                            "vertex %" PRId64
                            " has a list that is outside of the edges, or a neighbour that does "
                            "not exist; the topology is damaged (`penstock verify` shows details)",
                            v);
}

/* next(u) = sum over v with u in N(v) of now(v) / deg v. *lost: the sum of now(v) where deg v is 0. */
static void spread(const struct pst_csc *graph, const double *now, double *next, double *lost)
{
    memset(next, 0, (size_t)graph->vertices * sizeof *next);
    *lost = 0;
    for (int64_t v = 0; v < graph->vertices; v++) {
        const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1];
        if (begin == end)
            *lost += now[v];
        else if (now[v] > 0)
            for (int64_t e = begin; e < end; e++)
                next[neighbour(graph, e)] += now[v] / (double)(end - begin);
    }
}

/* One round. Returns the sum of the absolute changes. now gets the result. */
static double round_of(const struct pst_hotness_input *in, double *now, double *next, uint8_t *seed)
{
    double lost, change = 0;
    const double t = 1 / (double)in->nseeds;
    spread(in->graph, now, next, &lost);
    for (int64_t u = 0; u < in->graph->vertices; u++) {
        const double teleport = seed[u] ? t * (1 - DAMPING + DAMPING * lost) : 0;
        const double value = teleport + DAMPING * next[u];
        change += fabs(value - now[u]);
        now[u] = value;
    }
    return change;
}

static pst_rc pagerank(const struct pst_hotness_input *in, float *row)
{
    const size_t n = (size_t)in->graph->vertices;
    double *now = calloc(n + 1, sizeof *now), *next = malloc((n + 1) * sizeof *next), change = 1;
    uint8_t *seed = calloc(n + 1, 1);
    const bool all = now != NULL && next != NULL && seed != NULL;
    for (int64_t i = 0; all && i < in->nseeds; i++) {
        seed[in->seeds[i]] = 1;
        now[in->seeds[i]] = 1 / (double)in->nseeds;
    }
    for (int i = 0; all && i < ROUNDS_MAX && change >= CHANGE_MAX; i++)
        change = round_of(in, now, next, seed);
    for (size_t v = 0; all && v < n; v++)
        row[v] = (float)now[v];
    free(now);
    free(next);
    free(seed);
    return all ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the page ranks of %zu vertices", n);
}

/* How many lists a vertex is in. */
static void degree(const struct pst_csc *graph, float *row)
{
    memset(row, 0, (size_t)graph->vertices * sizeof *row);
    for (int64_t v = 0; v < graph->vertices; v++)
        for (int64_t e = graph->indptr[v]; e < graph->indptr[v + 1]; e++)
            row[neighbour(graph, e)] += 1;
}

static void random_scores(uint64_t seed, int64_t vertices, float *row)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_HOTNESS, seed, 0, 0, 0);
    for (int64_t v = 0; v < vertices; v++)
        row[v] = (float)pst_rng_unit(pst_rng_draw(&stream, (uint64_t)v, 0).word[0]);
}

pst_rc pst_hotness_of_structure(enum pst_hotness_source source, const struct pst_hotness_input *in,
                                uint64_t seed, float *scores)
{
    const struct pst_csc *graph = in->graph;
    pst_rc rc = PST_OK;
    for (int64_t v = 0; v < graph->vertices && source != PST_HOTNESS_RANDOM && rc == PST_OK; v++)
        rc = check_list(graph, v);
    if (rc != PST_OK)
        return rc;
    if (source == PST_HOTNESS_PAGERANK)
        rc = pagerank(in, scores);
    else if (source == PST_HOTNESS_DEGREE)
        degree(graph, scores);
    else
        random_scores(seed, graph->vertices, scores);
    for (int h = 1; h <= in->hops; h++)
        memcpy(scores + h * graph->vertices, scores, (size_t)graph->vertices * sizeof *scores);
    return rc;
}
