/* ranked.c: the entries of each list with the smallest ranks. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/cpu/samplers/entry_heap.h"
#include "kernels/vertex_rank.h"

#include <stdlib.h>

/* The `most` best entries of a longer list, in its order. PST_E_FORMAT: an entry is not a vertex. */
static pst_rc choose(const struct pst_csc *graph, const struct pst_k_ranks *ranks, struct pst_cpu_list list,
                     int64_t most, struct pst_cpu_list_entry *heap)
{
    int64_t n = 0;
    for (int64_t i = 0; i < list.degree; i++) {
        const int64_t id = pst_cpu_list_at(graph, list.begin + i);
        if (!pst_cpu_list_knows(graph, id))
            return PST_E_FORMAT;
        n = pst_cpu_list_offer(heap, n, most, (struct pst_cpu_list_entry){pst_k_rank_key(ranks, id), i});
    }
    qsort(heap, (size_t)n, sizeof *heap, pst_cpu_list_by_position);
    return PST_OK;
}

/* Writes the neighbours of one vertex. Returns how many, or an error. */
static int64_t sample_vertex(const struct pst_csc *graph, const struct pst_k_ranks *ranks, int64_t vertex,
                             int fanout, int64_t *out, int64_t room)
{
    struct pst_cpu_list_entry heap[PST_FANOUT_MAX];
    struct pst_cpu_list list;
    if (!pst_cpu_list_of(graph, vertex, &list))
        return PST_E_FORMAT;
    const bool all = fanout < 0 || list.degree <= fanout;
    const int64_t taken = all ? list.degree : fanout;
    if (taken > room)
        return PST_E_LIMIT;
    if (!all && taken > 0 && choose(graph, ranks, list, taken, heap) != PST_OK)
        return PST_E_FORMAT;
    for (int64_t i = 0; i < taken; i++) {
        out[i] = pst_cpu_list_at(graph, list.begin + (all ? i : heap[i].position));
        if (!pst_cpu_list_knows(graph, out[i]))
            return PST_E_FORMAT;
    }
    return taken;
}

pst_rc pst_k_sample_ranked(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                           const int64_t *vertices, int64_t n, int fanout, int32_t *indptr, int64_t *out,
                           int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && fanout >= -1 && fanout <= PST_FANOUT_MAX);
    (void)q;
    int64_t used = 0;
    capacity = pst_min_i64(capacity, INT32_MAX);
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t taken = sample_vertex(graph, ranks, vertices[i], fanout, out + used, capacity - used);
        if (taken < 0)
            return (pst_rc)taken;
        used += taken;
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}
