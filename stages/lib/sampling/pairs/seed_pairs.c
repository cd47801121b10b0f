/* seed_pairs.c: the ends of a batch's edges, negatives, and which sampled edges are left out. */
#include "stages/lib/sampling/pairs/seed_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/slots/minibatch.h"
#include "common/util/rng.h"

#define HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio: Knuth, volume 3, section 6.4 */

pst_rc pst_sampling_pairs_init(struct pst_sampling_pairs *p, const struct pst_array *edges,
                               const struct pst_csc *graph, int64_t most, int64_t negatives, bool leave_out)
{
    *p = (struct pst_sampling_pairs){
        .edges = edges, .graph = graph, .negatives = negatives, .leave_out = leave_out, .most = most};
    assert(most >= 1 && negatives >= 1 && negatives <= PST_SAMPLING_PAIRS_NEGATIVES_MAX);
    if (most > PST_MINIBATCH_COUNT_MAX / (2 * (1 + negatives)))
        return pst_fail(PST_E_LIMIT,
                        "a batch of %lld edges with %lld negatives each has too many pairs; expected at most "
                        "%lld: lower batch or negatives",
                        (long long)most, (long long)negatives, (long long)PST_MINIBATCH_COUNT_MAX / 2);
    for (p->slots = 16; p->slots < 2 * (uint64_t)most;)
        p->slots *= 2;
    p->ends = malloc((size_t)(2 * pst_sampling_pairs_of(p, most)) * sizeof *p->ends);
    p->low = leave_out ? malloc(p->slots * sizeof *p->low) : NULL;
    p->high = leave_out ? malloc(p->slots * sizeof *p->high) : NULL;
    if (p->ends != NULL && (!leave_out || (p->low != NULL && p->high != NULL)))
        return PST_OK;
    pst_sampling_pairs_release(p);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the pairs of %lld edges", (long long)most);
}

void pst_sampling_pairs_release(struct pst_sampling_pairs *p)
{
    free(p->ends);
    free(p->low);
    free(p->high);
    p->ends = NULL;
    p->low = p->high = NULL;
}

/* ---- edges ---------------------------------------------------------------------------------------- */

static pst_rc ends_of(const struct pst_sampling_pairs *p, int64_t edge, int64_t ends[2])
{
    for (int k = 0; k < 2; k++) {
        const int64_t at = 2 * edge + k;
        ends[k] = p->edges->dtype == PST_I32 ? ((const int32_t *)p->edges->map)[at]
                                             : ((const int64_t *)p->edges->map)[at];
        if (ends[k] < 0 || ends[k] >= p->graph->vertices)
            return pst_fail(PST_E_FORMAT,
                            "%s: row %lld has vertex %lld, but the graph has only %lld vertices; `penstock "
                            "verify` shows details",
                            p->edges->path, (long long)edge, (long long)ends[k],
                            (long long)p->graph->vertices);
    }
    return PST_OK;
}

/* ---- negatives ------------------------------------------------------------------------------------ */

static bool lists(const struct pst_csc *graph, int64_t vertex, int64_t other)
{
    const int64_t begin = graph->indptr[vertex], end = graph->indptr[vertex + 1];
    bool found = false;
    if (begin < 0 || end > graph->edges) /* the draw of its neighbours reports it */
        return false;
    if (graph->index_bytes == 4)
        for (int64_t i = begin; i < end; i++)
            found |= ((const int32_t *)graph->indices)[i] == other;
    else
        for (int64_t i = begin; i < end; i++)
            found |= ((const int64_t *)graph->indices)[i] == other;
    return found;
}

static void draw_negative(const struct pst_csc *graph, const struct pst_rng_stream *stream, int64_t edge,
                          int64_t number, int64_t ends[2])
{
    for (int t = 0; t < PST_SAMPLING_PAIRS_TRIES; t++) {
        const struct pst_rng_block draw =
            pst_rng_draw(stream, (uint64_t)edge, (uint32_t)(number * PST_SAMPLING_PAIRS_TRIES + t));
        ends[0] = (int64_t)pst_rng_bounded(pst_rng_u64(&draw, 0), (uint64_t)graph->vertices);
        ends[1] = (int64_t)pst_rng_bounded(pst_rng_u64(&draw, 1), (uint64_t)graph->vertices);
        if (ends[0] != ends[1] && !lists(graph, ends[1], ends[0]) && !lists(graph, ends[0], ends[1]))
            return;
    }
}

pst_rc pst_sampling_pairs_fill(struct pst_sampling_pairs *p, uint64_t seed, uint32_t epoch,
                               const int64_t *edges, int64_t n)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_PAIRS, seed, epoch, 0, 0);
    int64_t *to = p->ends;
    assert(n <= p->most);
    for (int64_t i = 0; i < n; i++, to += 2) {
        const pst_rc rc = ends_of(p, edges[i], to);
        if (rc != PST_OK)
            return rc;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < p->negatives; k++, to += 2)
            draw_negative(p->graph, &stream, edges[i], k, to);
    return PST_OK;
}

/* ---- what is left out ------------------------------------------------------------------------------ */

/* The place of a pair in the set, or the free one where it belongs. */
static uint64_t place_of(const struct pst_sampling_pairs *p, uint64_t low, uint64_t high)
{
    uint64_t at = (low * HASH_FACTOR ^ high) * HASH_FACTOR;
    at = (at ^ at >> 32) & (p->slots - 1);
    while (p->low[at] != 0 && (p->low[at] != low + 1 || p->high[at] != high))
        at = (at + 1) & (p->slots - 1);
    return at;
}

static uint64_t place_of_ends(const struct pst_sampling_pairs *p, int64_t a, int64_t b)
{
    return a < b ? place_of(p, (uint64_t)a, (uint64_t)b) : place_of(p, (uint64_t)b, (uint64_t)a);
}

pst_rc pst_sampling_pairs_hold(struct pst_sampling_pairs *p, uint64_t batch, const int64_t *edges, int64_t n)
{
    if (!p->leave_out || (p->held && p->batch == batch))
        return PST_OK;
    assert(n <= p->most);
    memset(p->low, 0, p->slots * sizeof *p->low);
    p->held = false;
    for (int64_t i = 0; i < n; i++) {
        int64_t ends[2];
        const pst_rc rc = ends_of(p, edges[i], ends);
        if (rc != PST_OK)
            return rc;
        const uint64_t at = place_of_ends(p, ends[0], ends[1]);
        p->low[at] = (uint64_t)pst_min_i64(ends[0], ends[1]) + 1;
        p->high[at] = (uint64_t)pst_max_i64(ends[0], ends[1]);
    }
    p->batch = batch;
    p->held = true;
    return PST_OK;
}

void pst_sampling_pairs_leave_out(struct pst_sampling_pairs *p, const int64_t *vertices, int64_t n,
                                  int32_t *indptr, int64_t *ids, float *weights, int32_t *relations)
{
    int32_t kept = 0, begin = 0;
    if (!p->held)
        return;
    for (int64_t i = 0; i < n; i++) {
        const int32_t end = indptr[i + 1];
        for (int32_t e = begin; e < end; e++) {
            if (p->low[place_of_ends(p, vertices[i], ids[e])] != 0)
                continue;
            ids[kept] = ids[e];
            if (weights != NULL)
                weights[kept] = weights[e];
            if (relations != NULL)
                relations[kept] = relations[e];
            kept++;
        }
        p->left_out += (uint64_t)(end - begin);
        begin = end;
        indptr[i + 1] = kept;
    }
    p->left_out -= (uint64_t)kept;
}
