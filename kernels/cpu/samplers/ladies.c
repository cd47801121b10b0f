/* ladies.c: layer-dependent importance sampling. The scratch memory has three numbers for each vertex of the
 * graph: the units of pi (0: no list of the call has the vertex), the candidates, and their keys. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/vertex_rank.h"

enum { BITS = 8, BINS = 1 << BITS };

struct ladies {
    const struct pst_csc *graph;
    const int64_t *vertices;
    int64_t n, candidates;
    int shift;
    uint64_t *units, *candidate, *key;
};

/* Checks all lists and adds up pi. */
static pst_rc add_up(struct ladies *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        struct pst_cpu_list list;
        if (!pst_cpu_list_of(l->graph, l->vertices[i], &list))
            return PST_E_FORMAT;
        const uint64_t units = list.degree > 0 ? pst_k_rank_units(list.degree, l->shift) : 0;
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            if (!pst_cpu_list_knows(l->graph, u))
                return PST_E_FORMAT;
            if (l->units[u] == 0)
                l->candidate[l->candidates++] = (uint64_t)u;
            l->units[u] += units;
        }
    }
    return PST_OK;
}

/* The `size`-th smallest key: eight bits at a time. */
static uint64_t last_key(const struct ladies *l, int64_t size)
{
    uint64_t first = 0;
    for (int shift = 64 - BITS; shift >= 0; shift -= BITS) {
        int64_t bins[BINS] = {0};
        for (int64_t c = 0; c < l->candidates; c++)
            if (shift == 64 - BITS || (l->key[c] ^ first) >> (shift + BITS) == 0)
                bins[l->key[c] >> shift & (BINS - 1)]++;
        uint64_t bin = 0;
        for (; bins[bin] < size; bin++)
            size -= bins[bin];
        first |= bin << shift;
    }
    return first;
}

static void draw(struct ladies *l, const struct pst_rng_stream *stream, int64_t size)
{
    for (int64_t c = 0; c < l->candidates; c++)
        l->key[c] = pst_k_rank_exponential(stream, (int64_t)l->candidate[c], l->units[l->candidate[c]]);
    const uint64_t last = l->candidates > size ? last_key(l, size) : UINT64_MAX;
    for (int64_t c = 0; c < l->candidates; c++)
        if (l->key[c] <= last)
            l->units[l->candidate[c]] |= PST_K_RANK_DRAWN;
}

static pst_rc keep(const struct ladies *l, int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    int64_t used = 0;
    indptr[0] = 0;
    for (int64_t i = 0; i < l->n; i++) {
        struct pst_cpu_list list;
        (void)pst_cpu_list_of(l->graph, l->vertices[i], &list);
        for (int64_t e = 0; e < list.degree; e++) {
            const int64_t u = pst_cpu_list_at(l->graph, list.begin + e);
            if (!(l->units[u] & PST_K_RANK_DRAWN))
                continue;
            if (used == capacity)
                return PST_E_LIMIT;
            out[used] = u;
            weight[used++] = pst_k_rank_weight(list.degree, l->units[u] & ~PST_K_RANK_DRAWN, l->shift);
        }
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

pst_rc pst_k_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                           const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                           int64_t n, uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight,
                           int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && size >= 1);
    (void)q;
    struct ladies l = {.graph = graph,
                       .vertices = vertices,
                       .n = n,
                       .shift = pst_k_rank_shift(n),
                       .units = scratch,
                       .candidate = scratch + graph->vertices,
                       .key = scratch + 2 * graph->vertices};
    pst_rc rc = add_up(&l);
    if (rc == PST_OK) {
        draw(&l, stream, size);
        rc = keep(&l, indptr, out, weight, pst_min_i64(capacity, INT32_MAX));
    }
    for (int64_t c = 0; c < l.candidates; c++) {
        l.units[l.candidate[c]] = 0;
        l.candidate[c] = l.key[c] = 0;
    }
    return rc;
}
