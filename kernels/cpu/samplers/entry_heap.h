/* entry_heap.h: the entries of a list with the smallest keys. A heap has the best so far, with the worst of
 * them on top; most entries of a long list are worse than that one. Between equal keys, the first entries
 * win. Owner: the caller. Threads: any. */
#ifndef PST_CPU_ENTRY_HEAP_H
#define PST_CPU_ENTRY_HEAP_H

#include "common/base.h"

struct pst_cpu_list_entry {
    uint64_t key;
    int64_t position; /* in the list */
};

static inline bool pst_cpu_list_worse(const struct pst_cpu_list_entry *a, const struct pst_cpu_list_entry *b)
{
    return a->key != b->key ? a->key > b->key : a->position > b->position;
}

static inline void pst_cpu_list_swap(struct pst_cpu_list_entry *a, struct pst_cpu_list_entry *b)
{
    const struct pst_cpu_list_entry kept = *a;
    *a = *b;
    *b = kept;
}

static inline void pst_cpu_list_sift_up(struct pst_cpu_list_entry *heap, int64_t i)
{
    for (; i > 0 && pst_cpu_list_worse(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        pst_cpu_list_swap(&heap[i], &heap[(i - 1) / 2]);
}

static inline void pst_cpu_list_sift_down(struct pst_cpu_list_entry *heap, int64_t n)
{
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && pst_cpu_list_worse(&heap[child + 1], &heap[child]);
        if (!pst_cpu_list_worse(&heap[child], &heap[i]))
            return;
        pst_cpu_list_swap(&heap[child], &heap[i]);
    }
}

static inline int pst_cpu_list_by_position(const void *a, const void *b)
{
    const int64_t x = ((const struct pst_cpu_list_entry *)a)->position,
                  y = ((const struct pst_cpu_list_entry *)b)->position;
    return (x > y) - (x < y);
}

/* Offers an entry to a heap of at most `most`. Returns how many it has. */
static inline int64_t pst_cpu_list_offer(struct pst_cpu_list_entry *heap, int64_t n, int64_t most,
                                         struct pst_cpu_list_entry e)
{
    if (n < most) {
        heap[n] = e;
        pst_cpu_list_sift_up(heap, n);
        return n + 1;
    }
    if (pst_cpu_list_worse(&heap[0], &e)) {
        heap[0] = e;
        pst_cpu_list_sift_down(heap, n);
    }
    return n;
}

#endif
