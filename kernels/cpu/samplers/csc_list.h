/* csc_list.h: the lists of a graph that samplers read, and their checks: the topology is not verified before
 * a run. Owner: none. Threads: any. */
#ifndef PST_CPU_LISTS_H
#define PST_CPU_LISTS_H

#include "kernels/kernels.h"

struct pst_cpu_list {
    int64_t begin, degree;
};

/* False: it is not a vertex of the graph, or its offsets are out of range. */
static inline bool pst_cpu_list_of(const struct pst_csc *graph, int64_t vertex, struct pst_cpu_list *list)
{
    *list = (struct pst_cpu_list){0, 0};
    if (vertex < 0 || vertex >= graph->vertices)
        return false;
    const int64_t begin = graph->indptr[vertex], end = graph->indptr[vertex + 1];
    *list = (struct pst_cpu_list){begin, end - begin};
    return begin >= 0 && begin <= end && end <= graph->edges;
}

static inline int64_t pst_cpu_list_at(const struct pst_csc *graph, int64_t entry)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[entry]
                                   : ((const int64_t *)graph->indices)[entry];
}

/* Is it the id of a vertex? */
static inline bool pst_cpu_list_knows(const struct pst_csc *graph, int64_t id)
{
    return (uint64_t)id < (uint64_t)graph->vertices;
}

#endif
