/* edges.cuh: what kernels over the edges of a block share: some columns of a row at once, and edges sorted by
 * source, so that a warp can add up what one source gets without atomics.
 * Owner: sorted edges are in the queue's scratch memory until the next call. Threads: device code; a queue
 * belongs to one thread at a time. */
#ifndef PST_EDGES_CUH
#define PST_EDGES_CUH

#include "kernels/cuda/queue.cuh"

template <int W> struct pst_cu_vec { /* W numbers side by side: 1 or 4 */
    float at[W];
};

template <int W> static __device__ __forceinline__ pst_cu_vec<W> pst_cu_vec_load(const float *from)
{
    pst_cu_vec<W> c;
    if (W == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(from);
        c.at[0] = v.x, c.at[W > 1] = v.y, c.at[W > 2 ? 2 : 0] = v.z, c.at[W > 3 ? 3 : 0] = v.w;
    }
    if (W == 1)
        c.at[0] = *from;
    return c;
}

template <int W> static __device__ __forceinline__ void pst_cu_vec_store(float *to, const pst_cu_vec<W> &c)
{
    if (W == 4)
        *reinterpret_cast<float4 *>(to) = {c.at[0], c.at[W > 1], c.at[W > 2 ? 2 : 0], c.at[W > 3 ? 3 : 0]};
    if (W == 1)
        *to = c.at[0];
}

/* Can rows of both be taken 16 bytes at a time? */
static inline bool pst_cu_by_fours(const float *a, int64_t ld_a, const float *b, int64_t ld_b, int64_t dim)
{
    return ((uintptr_t)a | (uintptr_t)b) % sizeof(float4) == 0 && (ld_a | ld_b | dim) % 4 == 0;
}

enum pst_cu_edge_value { PST_CU_EDGE_DST, PST_CU_EDGE_NUMBER };

struct pst_cu_sorted { /* the edges of a block by source; those of one source stay in order */
    const uint32_t *source;
    const int32_t *value; /* each edge's destination or number */
    const int32_t *dst;   /* by number, not sorted: each edge's destination */
    int64_t edges;
};

/* Sorts. edges is at least 1, and may be fewer than the scratch memory has room for. False: the queue has
 * failed. */
bool pst_cu_sort_edges(struct pst_queue *q, const struct pst_block *block, enum pst_cu_edge_value value,
                       struct pst_cu_sorted *sorted);

/* ---- scattering rows to sources ------------------------------------------------------------------ */

enum { PST_CU_SPAN = 8 }; /* sorted edges among which a warp looks for the first of a source */

template <class T> struct pst_cu_edge {
    int32_t dst;
    T more; /* whatever else get() needs */
};

/* Adds up what one source gets; its edges begin at `begin`. The warp looks up 32 of them at once and
 * passes them round. */
template <int W, class F>
static __device__ void pst_cu_add_source(const pst_cu_sorted &s, const F &f, float *row, int64_t begin,
                                         int64_t column, bool in, int lane)
{
    const uint32_t source = s.source[begin];
    pst_cu_vec<W> sum = {};
    if (in)
        sum = pst_cu_vec_load<W>(row + column);
    int64_t count = PST_CU_WARP;
    for (int64_t base = begin; count == PST_CU_WARP; base += PST_CU_WARP) {
        const int64_t at = base + lane;
        const bool mine = at < s.edges && s.source[at] == source;
        pst_cu_edge<typename F::more> edge = {};
        if (mine)
            edge = f.look(at);
        count = __popc(__ballot_sync(0xFFFFFFFFu, mine));
#pragma unroll 4
        for (int t = 0; t < count; t++) {
            const pst_cu_edge<typename F::more> turn = {__shfl_sync(0xFFFFFFFFu, edge.dst, t),
                                                        __shfl_sync(0xFFFFFFFFu, edge.more, t)};
            if (!in)
                continue;
            const pst_cu_vec<W> part = f.template get<W>(turn, column);
#pragma unroll
            for (int w = 0; w < W; w++)
                sum.at[w] += part.at[w];
        }
    }
    if (in)
        pst_cu_vec_store<W>(row + column, sum);
}

/* A warp takes the sources whose first edge is among its PST_CU_SPAN edges. */
template <int W, class F>
__global__ void __launch_bounds__(PST_CU_THREADS, 4)
    pst_cu_scatter_kernel(pst_cu_sorted s, F f, float *to, int64_t ld, int64_t width)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t base = pst_cu_first() / PST_CU_WARP * PST_CU_SPAN; base < s.edges;
         base += pst_cu_step() / PST_CU_WARP * PST_CU_SPAN) {
        const int64_t e = base + lane;
        const bool head = lane < PST_CU_SPAN && e < s.edges && (e == 0 || s.source[e - 1] != s.source[e]);
        for (unsigned heads = __ballot_sync(0xFFFFFFFFu, head); heads; heads &= heads - 1) {
            const int64_t begin = base + __ffs((int)heads) - 1;
            float *row = to + (int64_t)s.source[begin] * ld;
            for (int64_t j = 0; j < width; j += PST_CU_WARP * W)
                pst_cu_add_source<W>(s, f, row, begin, j + lane * W, j + lane * W < width, lane);
        }
    }
}

/* to[source][j] += f.get(edge, j) for each edge, in order; j < width. f.look(at) is what get() needs of
 * sorted edge `at`, and is called by one lane for all. There are no atomics, so the sum is the same every
 * time. */
template <int W, class F>
void pst_cu_scatter(struct pst_queue *q, const pst_cu_sorted &s, F f, float *to, int64_t ld, int64_t width)
{
    const int64_t spans = (s.edges + PST_CU_SPAN - 1) / PST_CU_SPAN;
    pst_cu_on(q, pst_cu_grid(q, spans, PST_CU_THREADS / PST_CU_WARP))(pst_cu_scatter_kernel<W, F>, s, f, to,
                                                                      ld, width);
}

#endif
