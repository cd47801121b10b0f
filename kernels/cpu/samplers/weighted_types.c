/* weighted_types.c: weighted sampling without replacement within each relation of a vertex. One pass over a
 * list offers each entry to the heap of its relation; a second pass writes the entries of relations of which
 * all are taken. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/cpu/samplers/entry_heap.h"
#include "kernels/vertex_rank.h"

#include <stdlib.h>
#include <string.h>

struct weighted {
    const struct pst_csc *graph;
    const struct pst_k_weighted_edges *edges;
    const struct pst_k_typed *how;
    int64_t *there;                  /* of each relation: entries that can be drawn */
    int64_t *kept;                   /* of each: entries in its heap */
    int64_t *start;                  /* of each: where its edges go; while they are written, the next */
    struct pst_cpu_list_entry *heap; /* of the relations with a fanout above 0, one after the other: one entry
                                        more than that */
};

static struct weighted weighted_of(const struct pst_csc *graph, const struct pst_k_weighted_edges *edges,
                                   const struct pst_k_typed *how, int64_t *scratch)
{
    const int64_t r = how->relations;
    return (struct weighted){.graph = graph,
                             .edges = edges,
                             .how = how,
                             .there = scratch,
                             .kept = scratch + r,
                             .start = scratch + 2 * r,
                             .heap = (struct pst_cpu_list_entry *)(void *)(scratch + 3 * r)};
}

static int32_t relation_of(const struct weighted *w, int64_t entry)
{
    return w->how->relation != NULL ? w->how->relation[entry] : 0;
}

/* Checks a list, and puts the best entries of each relation in its heap. False: something is wrong. */
static bool look_at(const struct weighted *w, int64_t vertex, struct pst_cpu_list list)
{
    memset(w->there, 0, (size_t)w->how->relations * sizeof *w->there);
    memset(w->kept, 0, (size_t)w->how->relations * sizeof *w->kept);
    for (int64_t i = 0; i < list.degree; i++) {
        const float weight = w->edges->edge_weight[list.begin + i];
        const int32_t r = relation_of(w, list.begin + i);
        if (!pst_k_rank_edge_good(weight) || r < 0 || r >= w->how->relations)
            return false;
        const int32_t fanout = w->how->fanout[r];
        if (!(weight > 0) || fanout == 0)
            continue;
        if (!pst_cpu_list_knows(w->graph, pst_cpu_list_at(w->graph, list.begin + i)))
            return false;
        w->there[r]++;
        if (fanout > 0)
            w->kept[r] = pst_cpu_list_offer(
                w->heap + w->start[r], w->kept[r], fanout + 1,
                (struct pst_cpu_list_entry){pst_k_rank_edge(&w->edges->stream, vertex, i, weight), i});
    }
    return true;
}

static bool takes_all(const struct weighted *w, int32_t r)
{
    return w->how->fanout[r] < 0 || w->there[r] <= w->how->fanout[r];
}

/* The drawn entries of a relation, in the order of the list. */
static void put_drawn(const struct weighted *w, struct pst_cpu_list list, struct pst_cpu_list_entry *heap,
                      int64_t taken, int64_t *out, float *weight)
{
    const uint64_t least = heap[0].key; /* of the best entry that is not drawn: the worst of the heap */
    heap[0] = heap[taken];
    qsort(heap, (size_t)taken, sizeof *heap, pst_cpu_list_by_position);
    for (int64_t i = 0; i < taken; i++) {
        const int64_t entry = list.begin + heap[i].position;
        out[i] = pst_cpu_list_at(w->graph, entry);
        if (weight != NULL)
            weight[i] = pst_k_rank_edge_weight(w->edges->edge_weight[entry], least);
    }
}

/* The entries of the relations of which all are taken. start: where those of each go. */
static void put_whole(const struct weighted *w, struct pst_cpu_list list, int64_t *out, float *weight)
{
    for (int64_t i = 0; i < list.degree; i++) {
        const int32_t r = relation_of(w, list.begin + i);
        if (!(w->edges->edge_weight[list.begin + i] > 0) || w->how->fanout[r] == 0 || !takes_all(w, r))
            continue;
        const int64_t at = w->start[r]++;
        out[at] = pst_cpu_list_at(w->graph, list.begin + i);
        if (weight != NULL)
            weight[at] = 1;
    }
}

/* Writes the neighbours of one vertex. Returns how many, or an error. */
static int64_t sample_vertex(const struct weighted *w, int64_t vertex, int64_t *out, float *weight,
                             int32_t *relation, int64_t room)
{
    struct pst_cpu_list list;
    int64_t total = 0, heap = 0;
    for (int32_t r = 0; r < w->how->relations; r++) { /* start: first of the heaps */
        w->start[r] = heap;
        heap += w->how->fanout[r] > 0 ? w->how->fanout[r] + 1 : 0;
    }
    if (!pst_cpu_list_of(w->graph, vertex, &list) || !look_at(w, vertex, list))
        return PST_E_FORMAT;
    for (int32_t r = 0; r < w->how->relations; r++)
        total += takes_all(w, r) ? w->there[r] : w->how->fanout[r];
    if (total > room)
        return PST_E_LIMIT;
    int64_t at = 0;
    for (int32_t r = 0; r < w->how->relations && total > 0; r++) {
        const int64_t taken = takes_all(w, r) ? w->there[r] : w->how->fanout[r];
        if (!takes_all(w, r))
            put_drawn(w, list, w->heap + w->start[r], taken, out + at, weight != NULL ? weight + at : NULL);
        for (int64_t i = 0; i < taken && relation != NULL; i++)
            relation[at + i] = r;
        w->start[r] = at;
        at += taken;
    }
    if (total > 0)
        put_whole(w, list, out, weight);
    return total;
}

pst_rc pst_k_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                   const struct pst_k_weighted_edges *edges, const struct pst_k_typed *how,
                                   const int64_t *vertices, int64_t n, int64_t *scratch, int32_t *indptr,
                                   int64_t *out, float *weight, int32_t *relation, int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && scratch != NULL);
    assert(how->relations >= 1 && how->relations <= PST_K_RELATIONS_MAX);
    assert(!how->replace && how->time == NULL && how->partition == NULL);
    (void)q;
    const struct weighted w = weighted_of(graph, edges, how, scratch);
    int64_t used = 0;
    capacity = pst_min_i64(capacity, INT32_MAX);
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t taken =
            sample_vertex(&w, vertices[i], out + used, weight != NULL ? weight + used : NULL,
                          relation != NULL ? relation + used : NULL, capacity - used);
        if (taken < 0)
            return (pst_rc)taken;
        used += taken;
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}
