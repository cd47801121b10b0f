/* parts.cu: finds the lists of vertices in several parts (memories.h), reads the drawn neighbours there, and
 * counts what came from which part. The structs of parts are parameters of the kernels. Loops over them are
 * unrolled, because an index that varies would put the arrays into local memory. */
#include "kernels/cuda/queue.cuh"

namespace
{
enum { SUMS = PST_K_PARTS_MAX + 2 }; /* edges of each part and of the graph, and lines */
constexpr unsigned ALL_LANES = 0xFFFFFFFFu;

struct counting {
    int parts;
    int64_t first[PST_K_PARTS_MAX];
    const int32_t *rows;
    struct pst_twin_n n;
    int64_t *counts;
    const int32_t *status;
};

/* The sums of a block begin at 0. They have 32 bits, which shared memory can add to at once: a launch of few
 * blocks is for few vertices, and one of many gives a block a small part of at most INT32_MAX edges. */
__device__ __forceinline__ void clear(unsigned *sums)
{
    if (threadIdx.x < SUMS)
        sums[threadIdx.x] = 0;
    __syncthreads();
}

/* Adds the block's first n sums to the result. */
__device__ __forceinline__ void add(const unsigned *sums, int n, int64_t *to)
{
    __syncthreads();
    if ((int)threadIdx.x < n && sums[threadIdx.x] > 0)
        (void)atomicAdd(reinterpret_cast<unsigned long long *>(to) + threadIdx.x,
                        (unsigned long long)sums[threadIdx.x]);
}

__global__ void __launch_bounds__(PST_CU_THREADS) count_rows(counting c)
{
    PST_CU_SHARED(unsigned, sums, [SUMS]);
    const int64_t n = pst_cu_value(c.n, c.status);
    clear(sums);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const int64_t row = c.rows[i];
        int part = 0;
#pragma unroll
        for (int k = 1; k < PST_K_PARTS_MAX; k++)
            part = k < c.parts && row >= c.first[k] ? k : part;
        (void)atomicAdd(&sums[part], 1u);
    }
    add(sums, c.parts, c.counts);
}

struct finding {
    struct pst_k_list_parts lists;
    const int64_t *vertices;
    const int32_t *list;
    struct pst_twin_n n;
    int32_t *source;
    int64_t *begin, *degree;
    int32_t *status;
};

__global__ void __launch_bounds__(PST_CU_THREADS) find_lists(finding f)
{
    const int64_t n = pst_cu_value(f.n, f.status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const int64_t vertex = f.vertices[i], list = f.list[i];
        const bool known = vertex >= 0 && vertex < f.lists.graph.vertices;
        const int64_t *at = f.lists.graph.indptr + (known ? vertex : 0);
        int source = f.lists.n;
#pragma unroll
        for (int k = 0; k < PST_K_PARTS_MAX; k++)
            if (k < f.lists.n && list >= f.lists.first[k]) {
                at = f.lists.at[k] + (list - f.lists.first[k]);
                source = k;
            }
        const int64_t begin = at[0], end = at[1];
        const bool good = begin >= 0 && begin <= end && (list >= 0 || (known && end <= f.lists.graph.edges));
        if (!good)
            pst_cu_fault(f.status, PST_E_FORMAT);
        f.source[i] = source;
        f.begin[i] = begin;
        f.degree[i] = good ? end - begin : 0;
    }
}

struct reading {
    const void *graph, *entries[PST_K_PARTS_MAX];
    int parts, bytes, line_shift, fanout;
    bool replace;
    int64_t vertices_of_graph;
    const int64_t *vertices;
    const int32_t *source;
    const int64_t *begin, *degree;
    struct pst_twin_n n;
    const int32_t *indptr;
    int64_t *ids, *counts;
    int32_t *status;
};

__device__ __forceinline__ int64_t line_of(const reading &r, int64_t at)
{
    return at * r.bytes >> r.line_shift;
}

/* Is this the first of a vertex's drawn entries in its line? Whole lists are read in order, so there only the
 * entry before it matters. */
__device__ __forceinline__ bool is_new_line(const reading &r, const int64_t *position, int64_t begin, int e,
                                            bool whole)
{
    const int64_t line = line_of(r, begin + position[e]);
    bool is_new = true;
    for (int before = whole && e > 0 ? e - 1 : 0; before < e; before++)
        is_new = is_new && line_of(r, begin + position[before]) != line;
    return is_new;
}

/* A warp for each vertex. It counts before the positions become ids. The bound keeps the compiler from
 * spilling for the sake of more threads. */
__global__ void __launch_bounds__(PST_CU_THREADS, 4) count_entries(reading r)
{
    PST_CU_SHARED(unsigned, sums, [SUMS]);
    const int64_t n = pst_cu_warp_value(r.n, r.status);
    const int lane = (int)threadIdx.x % PST_CU_WARP, offset_shift = r.line_shift - 3;
    clear(sums);
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        const int first = r.indptr[i], source = r.source[i], drawn = r.indptr[i + 1] - first;
        const int64_t begin = r.begin[i], degree = r.degree[i], v = r.vertices[i];
        const bool whole = r.fanout < 0 || (!r.replace && degree <= r.fanout), of_graph = source == r.parts;
        unsigned lines = lane == 0 ? 1 + (unsigned)(((v + 1) >> offset_shift) - (v >> offset_shift)) : 0;
        for (int e = lane; of_graph && e < drawn; e += PST_CU_WARP)
            lines += is_new_line(r, r.ids + first, begin, e, whole);
        for (int with = PST_CU_WARP / 2; with > 0; with /= 2)
            lines += __shfl_xor_sync(ALL_LANES, lines, with);
        if (lane == 0 && of_graph)
            (void)atomicAdd(&sums[r.parts + 1], lines);
        if (lane == 0)
            (void)atomicAdd(&sums[source], (unsigned)drawn);
    }
    add(sums, r.parts + 2, r.counts);
}

/* A warp for each vertex. */
__global__ void __launch_bounds__(PST_CU_THREADS) read_entries(reading r)
{
    const int64_t n = pst_cu_value(r.n, r.status);
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        const int first = r.indptr[i], drawn = r.indptr[i + 1] - first, source = r.source[i];
        const int64_t begin = r.begin[i];
        const void *entries = r.graph;
#pragma unroll
        for (int k = 0; k < PST_K_PARTS_MAX; k++)
            entries = k < r.parts && k == source ? r.entries[k] : entries;
        for (int e = lane; e < drawn; e += PST_CU_WARP) {
            const int64_t at = begin + r.ids[first + e], id = r.bytes == 4
                                                                  ? static_cast<const int32_t *>(entries)[at]
                                                                  : static_cast<const int64_t *>(entries)[at];
            if (id < 0 || id >= r.vertices_of_graph)
                pst_cu_fault(r.status, PST_E_FORMAT);
            r.ids[first + e] = id;
        }
    }
}
} // namespace

void pst_kn_count_parts(struct pst_queue *q, const struct pst_k_row_parts *parts, const int32_t *rows,
                        struct pst_twin_n n, int64_t *counts)
{
    counting c = {parts->n, {}, rows, n, counts, q->status};
    assert(parts->n >= 1 && parts->n <= PST_K_PARTS_MAX);
    for (int k = 0; k < parts->n; k++)
        c.first[k] = parts->first[k];
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(count_rows, c);
}

pst_rc pst_kn_find_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *list, struct pst_twin_n n, int32_t *source, int64_t *begin,
                         int64_t *degree)
{
    assert(lists->n >= 0 && lists->n <= PST_K_PARTS_MAX);
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(
        find_lists, finding{*lists, vertices, list, n, source, begin, degree, q->status});
    return q->rc;
}

pst_rc pst_kn_read_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *source, const int64_t *begin, const int64_t *degree,
                         struct pst_twin_n n, int fanout, bool replace, const int32_t *indptr, int64_t *ids,
                         int64_t *counts)
{
    int shift = 0;
    while ((int64_t)1 << shift < lists->line_bytes)
        shift++;
    assert((int64_t)1 << shift == lists->line_bytes && shift >= 3 && lists->n <= PST_K_PARTS_MAX);
    reading r = {lists->graph.indices,
                 {},
                 lists->n,
                 lists->graph.index_bytes,
                 shift,
                 fanout,
                 replace,
                 lists->graph.vertices,
                 vertices,
                 source,
                 begin,
                 degree,
                 n,
                 indptr,
                 ids,
                 counts,
                 q->status};
    for (int k = 0; k < lists->n; k++)
        r.entries[k] = lists->entries[k];
    const unsigned blocks = pst_cu_grid(q, n.most, PST_CU_THREADS / PST_CU_WARP);
    pst_cu_on(q, blocks)(count_entries, r);
    pst_cu_on(q, blocks)(read_entries, r);
    return q->rc;
}
