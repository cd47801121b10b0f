/* lists.cuh: the lists of a graph that samplers read, a warp for each, and their checks.
 * Owner: the caller owns all memory. Threads: device code. */
#ifndef PST_CU_LISTS_CUH
#define PST_CU_LISTS_CUH

#include "kernels/cuda/queue.cuh"
#include "kernels/vertex_rank.h"

struct pst_cu_list {
    int64_t begin, degree;
};

/* False: it is not a vertex of the graph, or its offsets are out of range. */
static __device__ __forceinline__ bool pst_cu_list_of(const pst_csc &graph, int64_t vertex, pst_cu_list *list)
{
    *list = {0, 0};
    if (vertex < 0 || vertex >= graph.vertices)
        return false;
    const int64_t begin = graph.indptr[vertex], end = graph.indptr[vertex + 1];
    if (begin < 0 || begin > end || end > graph.edges)
        return false;
    *list = {begin, end - begin};
    return true;
}

static __device__ __forceinline__ int64_t pst_cu_list_at(const pst_csc &graph, int64_t entry)
{
    return graph.index_bytes == 4 ? static_cast<const int32_t *>(graph.indices)[entry]
                                  : static_cast<const int64_t *>(graph.indices)[entry];
}

static __device__ __forceinline__ bool pst_cu_list_knows(const pst_csc &graph, int64_t id)
{
    return (uint64_t)id < (uint64_t)graph.vertices;
}

/* The loop of warps over vertices: for (PST_CU_LISTS(i, n)). All lanes of a warp have the same i. */
#define PST_CU_LISTS(i, n)                                                                                   \
    int64_t i = pst_cu_first() / PST_CU_WARP;                                                                \
    i < (n);                                                                                                 \
    i += pst_cu_step() / PST_CU_WARP

/* The loop of a warp's lanes over a list, all together: the last round has lanes without an entry. */
#define PST_CU_ENTRIES(e, degree)                                                                            \
    int64_t e = (int64_t)(threadIdx.x % PST_CU_WARP);                                                        \
    e - (int64_t)(threadIdx.x % PST_CU_WARP) < (degree);                                                     \
    e += PST_CU_WARP

static inline unsigned pst_cu_lists_grid(const struct pst_queue *q, struct pst_twin_n n)
{
    return pst_cu_grid(q, n.most > 0 ? n.most : 1, PST_CU_THREADS / PST_CU_WARP);
}

/* indptr[0] = 0, indptr[i + 1] = the sum of the counts of vertices 0..i, and *total the sum of all n.
 * counts(n.most) are at least 0. More than limit edges: PST_E_LIMIT in the queue's status. */
pst_rc pst_cu_offsets(struct pst_queue *q, const uint32_t *counts, struct pst_twin_n n, int32_t *indptr,
                      int64_t limit, int64_t *total);

#endif
