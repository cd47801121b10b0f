/* weighted_edges.c: weighted sampling without replacement. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/cpu/samplers/entry_heap.h"
#include "kernels/vertex_rank.h"

#include <stdlib.h>

struct weighted {
    const struct pst_csc *graph;
    const struct pst_k_weighted_edges *edges;
    int fanout;
    bool weighs;
};

/* Checks a list, and puts its `most` best entries in a heap. Returns how many entries can be drawn, or an
 * error. */
static int64_t look_at(const struct weighted *w, int64_t vertex, struct pst_cpu_list list, int64_t most,
                       struct pst_cpu_list_entry *heap)
{
    int64_t there = 0, n = 0;
    for (int64_t i = 0; i < list.degree; i++) {
        const float weight = w->edges->edge_weight[list.begin + i];
        if (!pst_k_rank_edge_good(weight))
            return PST_E_FORMAT;
        if (!(weight > 0))
            continue;
        if (w->fanout != 0 && !pst_cpu_list_knows(w->graph, pst_cpu_list_at(w->graph, list.begin + i)))
            return PST_E_FORMAT;
        there++;
        if (most > 0)
            n = pst_cpu_list_offer(
                heap, n, most,
                (struct pst_cpu_list_entry){pst_k_rank_edge(&w->edges->stream, vertex, i, weight), i});
    }
    return there;
}

/* All entries that can be drawn, or those of the heap, whose worst entry says where the others begin. */
static void put(const struct weighted *w, struct pst_cpu_list list, const struct pst_cpu_list_entry *heap,
                int64_t taken, uint64_t least, int64_t *out, float *weight)
{
    for (int64_t i = 0, at = 0; at < taken; i++) {
        const int64_t entry = list.begin + (heap != NULL ? heap[i].position : i);
        const float of_edge = w->edges->edge_weight[entry];
        if (!(of_edge > 0))
            continue;
        out[at] = pst_cpu_list_at(w->graph, entry);
        if (w->weighs)
            weight[at] = heap != NULL ? pst_k_rank_edge_weight(of_edge, least) : 1;
        at++;
    }
}

/* Writes the neighbours of one vertex. Returns how many, or an error. */
static int64_t sample_vertex(const struct weighted *w, int64_t vertex, int64_t *out, float *weight,
                             int64_t room)
{
    struct pst_cpu_list_entry heap[PST_FANOUT_MAX + 1];
    struct pst_cpu_list list;
    if (!pst_cpu_list_of(w->graph, vertex, &list))
        return PST_E_FORMAT;
    const int64_t there = look_at(w, vertex, list, w->fanout < 0 ? 0 : w->fanout + 1, heap);
    const bool all = w->fanout < 0 || there <= w->fanout;
    const int64_t taken = there < 0 || all ? there : w->fanout;
    if (taken <= 0 || taken > room)
        return taken > room ? PST_E_LIMIT : taken;
    const uint64_t least = heap[0].key; /* of the best entry that is not drawn: the worst of the heap */
    if (!all) {
        heap[0] = heap[taken];
        qsort(heap, (size_t)taken, sizeof *heap, pst_cpu_list_by_position);
    }
    put(w, list, all ? NULL : heap, taken, least, out, weight);
    return taken;
}

pst_rc pst_k_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                             const struct pst_k_weighted_edges *edges, const int64_t *vertices, int64_t n,
                             int fanout, int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && fanout >= -1 && fanout <= PST_FANOUT_MAX);
    (void)q;
    const struct weighted w = {.graph = graph, .edges = edges, .fanout = fanout, .weighs = weight != NULL};
    int64_t used = 0;
    capacity = pst_min_i64(capacity, INT32_MAX);
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t taken = sample_vertex(&w, vertices[i], out + used,
                                            weight != NULL ? weight + used : NULL, capacity - used);
        if (taken < 0)
            return (pst_rc)taken;
        used += taken;
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}
