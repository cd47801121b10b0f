/* ranked.c: the entries of each list with the smallest ranks. A heap has the best so far, with the worst of
 * them on top; most entries of a long list are worse than that one. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/vertex_rank.h"

#include <stdlib.h>

struct entry {
    uint64_t key;
    int64_t position; /* in the list */
};

static bool worse(const struct entry *a, const struct entry *b)
{
    return a->key != b->key ? a->key > b->key : a->position > b->position;
}

static void swap(struct entry *a, struct entry *b)
{
    const struct entry kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_up(struct entry *heap, int64_t i)
{
    for (; i > 0 && worse(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&heap[i], &heap[(i - 1) / 2]);
}

static void sift_down(struct entry *heap, int64_t n)
{
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && worse(&heap[child + 1], &heap[child]);
        if (!worse(&heap[child], &heap[i]))
            return;
        swap(&heap[child], &heap[i]);
    }
}

static int by_position(const void *a, const void *b)
{
    const int64_t x = ((const struct entry *)a)->position, y = ((const struct entry *)b)->position;
    return (x > y) - (x < y);
}

/* The `most` best entries of a longer list, in its order. PST_E_FORMAT: an entry is not a vertex. */
static pst_rc choose(const struct pst_csc *graph, const struct pst_k_ranks *ranks, struct pst_cpu_list list,
                     int64_t most, struct entry *heap)
{
    int64_t n = 0;
    for (int64_t i = 0; i < list.degree; i++) {
        const int64_t id = pst_cpu_list_at(graph, list.begin + i);
        if (!pst_cpu_list_knows(graph, id))
            return PST_E_FORMAT;
        const struct entry e = {pst_k_rank_key(ranks, id), i};
        if (n < most) {
            heap[n] = e;
            sift_up(heap, n++);
        } else if (worse(&heap[0], &e)) {
            heap[0] = e;
            sift_down(heap, n);
        }
    }
    qsort(heap, (size_t)n, sizeof *heap, by_position);
    return PST_OK;
}

/* Writes the neighbours of one vertex. Returns how many, or an error. */
static int64_t sample_vertex(const struct pst_csc *graph, const struct pst_k_ranks *ranks, int64_t vertex,
                             int fanout, int64_t *out, int64_t room)
{
    struct entry heap[PST_FANOUT_MAX];
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
