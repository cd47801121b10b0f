/* aggregate.cu: means over in-neighbours, and their gradient. Rows are added in the order of the edges, as
 * on the CPU, except in a row of a block with more than PST_CU_CHUNK edges: several warps add up its chunks.
 * Each lane has its own columns: 16 bytes if the addresses allow it, and it loads the rows of four edges at
 * once.
 *
 * For the gradient, edges are sorted by source, and a warp adds up what each source gets (edges.cuh). */
#include "kernels/cuda/edges.cuh"

namespace
{
enum { AT_ONCE = 4 }; /* edges loaded before the first is added */

template <class P, class I> struct means {
    const P *indptr;
    const I *indices;
    int64_t dsts, edges;
    int64_t from, to; /* `in` has the rows of these ids */
    bool last;        /* `in` has only part of the rows */
    int64_t *cursor;  /* where the edges of the next range begin, from the second range on */
    const float *in;
    int64_t ld_in;
    float *out;
    int64_t ld_out, dim;
    int32_t *status;
};

/* In a whole graph (P has 8 bytes) offsets and ids are checked, and rows may come in ranges. A block comes
 * from the sampler, which has checked it. */
template <class P> constexpr bool CHECKED = sizeof(P) == sizeof(int64_t);

struct stretch { /* edges begin..end; rows first..past */
    int64_t first, begin, end, past;
};

template <class P, class I> __device__ stretch stretch_of(const means<P, I> &s, int64_t d)
{
    const int64_t first = s.indptr[d], past = s.indptr[d + 1];
    if (!CHECKED<P>)
        return {first, first, past, past};
    const bool row = first >= 0 && first <= past && past <= s.edges;
    const int64_t begin = row && s.from > 0 ? s.cursor[d] : first;
    if (!row || begin < first || begin > past) {
        pst_cu_fault(s.status, PST_E_FORMAT);
        return {0, 0, 0, 0};
    }
    int64_t end = s.last ? past : begin, high = past; /* with ranges, neighbours must ascend */
    while (end < high) {
        const int64_t middle = end + (high - end) / 2;
        if (s.indices[middle] < s.to)
            end = middle + 1;
        else
            high = middle;
    }
    return {first, begin, end, past};
}

/* The row of edge e; -1: it is not in this range. */
template <class P, class I> __device__ __forceinline__ int64_t source_of(const means<P, I> &s, int64_t e)
{
    const int64_t source = s.indices[e];
    return !CHECKED<P> ? source : source >= s.from && source < s.to ? source - s.from : -1;
}

template <int W, class P, class I>
__device__ __forceinline__ pst_cu_vec<W> sum_of(const means<P, I> &s, const stretch &r, pst_cu_vec<W> sum,
                                                int64_t column)
{
    bool bad = false;
    for (int64_t e = r.begin; e < r.end; e += AT_ONCE) {
        pst_cu_vec<W> row[AT_ONCE];
        int64_t source[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            source[k] = e + k < r.end ? source_of(s, e + k) : -1;
            bad = bad || (e + k < r.end && source[k] < 0);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (source[k] >= 0) {
                row[k] = pst_cu_vec_load<W>(s.in + source[k] * s.ld_in + column);
                PST_CU_READS_ROW();
            }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int w = 0; source[k] >= 0 && w < W; w++)
                sum.at[w] = e + k == r.first ? row[k].at[w] : sum.at[w] + row[k].at[w];
    }
    if (bad)
        pst_cu_fault(s.status, PST_E_FORMAT);
    return sum;
}

template <int W, class P, class I>
__device__ __forceinline__ void put_mean(const means<P, I> &s, int64_t d, int64_t j, pst_cu_vec<W> sum,
                                         float share)
{
#pragma unroll
    for (int w = 0; w < W; w++)
        sum.at[w] *= share;
    pst_cu_vec_store<W>(s.out + d * s.ld_out + j, sum);
}

/* A row of a block with more than PST_CU_CHUNK edges, by a whole thread block. Each warp adds up every
 * WARPS-th chunk of edges. Then the sums of the warps are added, the first warp's first. So the order of
 * additions depends on the number of edges alone. */
template <int W, class P, class I> __device__ __forceinline__ void hub(const means<P, I> &s, int64_t d)
{
    enum { WARPS = PST_CU_THREADS / PST_CU_WARP };
    PST_CU_SHARED(pst_cu_vec<W>, part, [WARPS][PST_CU_WARP]);
    const int lane = (int)threadIdx.x % PST_CU_WARP, warp = (int)threadIdx.x / PST_CU_WARP;
    const int64_t first = s.indptr[d], past = s.indptr[d + 1], mine = first + warp * PST_CU_CHUNK;
    for (int64_t j = (int64_t)lane * W; j - lane * W < s.dim; j += PST_CU_WARP * W) {
        pst_cu_vec<W> sum = {};
        for (int64_t e = mine; j < s.dim && e < past; e += WARPS * PST_CU_CHUNK)
            sum = sum_of<W>(s, {mine, e, min(e + PST_CU_CHUNK, past), past}, sum, j);
        part[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && j < s.dim) {
            for (int other = 1; other < WARPS && first + other * PST_CU_CHUNK < past; other++)
#pragma unroll
                for (int w = 0; w < W; w++)
                    sum.at[w] += part[other][lane].at[w];
            put_mean<W>(s, d, j, sum, 1.0f / (float)(past - first));
        }
        __syncthreads();
    }
}

/* 2^shift lanes for each row of out. */
template <int W, class P, class I>
__global__ void __launch_bounds__(PST_CU_THREADS, 4) mean(means<P, I> s, int shift)
{
    const int lane = (int)threadIdx.x & ((1 << shift) - 1);
    for (int64_t d = pst_cu_first() >> shift; d < s.dsts; d += pst_cu_step() >> shift) {
        const stretch r = stretch_of(s, d);
        const float share = r.first < r.past ? 1.0f / (float)(r.past - r.first) : 0;
        if (!s.last && r.begin == r.end)
            continue;
        if (!CHECKED<P> && r.end - r.begin > PST_CU_CHUNK) /* hubs() does it */
            continue;
        for (int64_t j = (int64_t)lane * W; j < s.dim; j += (int64_t)W << shift) {
            pst_cu_vec<W> sum = {};
            if (r.begin > r.first)
                sum = pst_cu_vec_load<W>(s.out + d * s.ld_out + j);
            put_mean<W>(s, d, j, sum_of<W>(s, r, sum, j), s.last ? share : 1.0f);
        }
    }
}

/* A thread block looks at PST_CU_THREADS rows, and does those that mean() left out. */
template <int W, class P, class I> __global__ void __launch_bounds__(PST_CU_THREADS, 3) hubs(means<P, I> s)
{
    PST_CU_SHARED(unsigned, found, [PST_CU_THREADS / PST_CU_WARP]);
    for (int64_t base = (int64_t)blockIdx.x * PST_CU_THREADS; base < s.dsts; base += pst_cu_step()) {
        const int64_t d = base + threadIdx.x;
        const bool is = d < s.dsts && s.indptr[d + 1] - s.indptr[d] > PST_CU_CHUNK;
        const unsigned all = __ballot_sync(0xFFFFFFFFu, is);
        if (threadIdx.x % PST_CU_WARP == 0)
            found[threadIdx.x / PST_CU_WARP] = all;
        if (!__syncthreads_or(is))
            continue;
        for (int w = 0; w < PST_CU_THREADS / PST_CU_WARP; w++)
            for (unsigned left = found[w]; left != 0; left &= left - 1)
                hub<W>(s, base + w * PST_CU_WARP + __ffs((int)left) - 1);
        __syncthreads();
    }
}

/* Where the edges of the next range begin. */
template <class I> __global__ void __launch_bounds__(PST_CU_THREADS) move_on(means<int64_t, I> s)
{
    for (int64_t d = pst_cu_first(); d < s.dsts; d += pst_cu_step())
        s.cursor[d] = stretch_of(s, d).end;
}

template <class P, class I> void launch_mean(struct pst_queue *q, const means<P, I> &s)
{
    const bool fours = pst_cu_by_fours(s.in, s.ld_in, s.out, s.ld_out, s.dim);
    const int64_t pieces = fours ? s.dim / 4 : s.dim;
    const int shift = pieces > 16 ? 5 : pieces > 8 ? 4 : 3;
    if (s.dim == 0)
        return;
    const struct pst_cu_launch on = pst_cu_on(q, pst_cu_grid(q, s.dsts, PST_CU_THREADS >> shift));
    if (fours)
        on(mean<4, P, I>, s, shift);
    else
        on(mean<1, P, I>, s, shift);
    if constexpr (!CHECKED<P>) {
        const struct pst_cu_launch more = pst_cu_on(q, pst_cu_grid(q, s.dsts, PST_CU_THREADS));
        if (fours)
            more(hubs<4, P, I>, s);
        else
            more(hubs<1, P, I>, s);
    }
}

/* ---- the gradient -------------------------------------------------------------------------------- */

struct mean_share { /* what an edge adds: its destination's gradient over its number of edges */
    using more = float;
    pst_cu_sorted sorted;
    const int32_t *indptr;
    const float *grad_out;
    int64_t ld_out;

    __device__ __forceinline__ pst_cu_edge<float> look(int64_t at) const
    {
        const int32_t d = sorted.value[at];
        return {d, 1.0f / (float)(indptr[d + 1] - indptr[d])};
    }

    template <int W>
    __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<float> edge, int64_t column) const
    {
        pst_cu_vec<W> part = pst_cu_vec_load<W>(grad_out + edge.dst * ld_out + column);
#pragma unroll
        for (int w = 0; w < W; w++)
            part.at[w] *= edge.more;
        return part;
    }
};
} // namespace

template <class I>
static void mean_part(struct pst_queue *q, const struct pst_csc *graph, int64_t first, int64_t n,
                      int64_t from, int64_t to, const float *in, int64_t ld_in, int64_t *cursor, float *out,
                      int64_t ld_out, int64_t dim)
{
    const means<int64_t, I> s = {graph->indptr + first,
                                 static_cast<const I *>(graph->indices),
                                 n,
                                 graph->edges,
                                 from,
                                 to,
                                 to == graph->vertices,
                                 cursor,
                                 in,
                                 ld_in,
                                 out,
                                 ld_out,
                                 dim,
                                 q->status};
    launch_mean(q, s);
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(move_on<I>, s);
}

void pst_k_mean(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                const struct pst_twin_view *in, float *out, int64_t ld_out, int64_t dim)
{
    assert(dsts >= 0 && dim >= 0 && in->ld >= dim && ld_out >= dim);
    assert(in->bf16 == NULL && in->elsewhere == NULL);
    launch_mean(q, means<int32_t, int32_t>{indptr, indices, dsts, 0, 0, 0, true, NULL, in->at, in->ld, out,
                                           ld_out, dim, q->status});
}

pst_rc pst_k_mean_csc(struct pst_queue *q, const struct pst_csc *graph, int64_t first, int64_t n,
                      int64_t from, int64_t to, const float *in, int64_t ld_in, int64_t *cursor, float *out,
                      int64_t ld_out, int64_t dim)
{
    assert(first >= 0 && n >= 0 && first + n <= graph->vertices);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    assert(from >= 0 && from <= to && to <= graph->vertices && ld_in >= dim && ld_out >= dim);
    if (graph->index_bytes == 4)
        mean_part<int32_t>(q, graph, first, n, from, to, in, ld_in, cursor, out, ld_out, dim);
    else
        mean_part<int64_t>(q, graph, first, n, from, to, in, ld_in, cursor, out, ld_out, dim);
    return q->rc;
}

void pst_kn_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                      int64_t edges, int64_t sources, const float *grad_out, int64_t ld_out, float *grad_in,
                      int64_t ld_in, int64_t dim)
{
    assert(dsts >= 0 && edges >= 0 && dim >= 0 && ld_in >= dim && ld_out >= dim);
    const struct pst_block block = {indptr, indices, dsts, edges, sources};
    pst_cu_sorted sorted;
    pst_cu_begin(q);
    if (edges == 0 || dim == 0 || !pst_cu_sort_edges(q, &block, PST_CU_EDGE_DST, &sorted))
        return;
    const mean_share f = {sorted, indptr, grad_out, ld_out};
    if (pst_cu_by_fours(grad_out, ld_out, grad_in, ld_in, dim))
        pst_cu_scatter<4>(q, sorted, f, grad_in, ld_in, dim);
    else
        pst_cu_scatter<1>(q, sorted, f, grad_in, ld_in, dim);
}

/* Waits for the number of edges. Within a batch, call mean_grad_n (twin.h) instead. */
void pst_k_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                     const float *grad_out, int64_t ld_out, float *grad_in, int64_t ld_in, int64_t dim)
{
    int32_t edges = 0;
    if (pst_cu_checked(q,
                       cudaMemcpyAsync(&edges, indptr + dsts, sizeof edges, cudaMemcpyDefault, q->stream)) &&
        pst_cu_checked(q, cudaStreamSynchronize(q->stream)))
        pst_kn_mean_grad(q, indptr, indices, dsts, edges, INT32_MAX, grad_out, ld_out, grad_in, ld_in, dim);
}
