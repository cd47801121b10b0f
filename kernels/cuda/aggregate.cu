/* aggregate.cu: means over in-neighbours, and their gradient. Rows are added in the order of the edges, as
 * on the CPU. Each lane has its own columns: 16 bytes if the addresses allow it, and it loads the rows of
 * four edges at once.
 *
 * For the gradient, edges are sorted by source (stable, so that the edges of a source stay in order), and
 * a warp adds up what each source gets. There are no atomics, so the sum is the same every time. */
#include "kernels/cuda/queue.cuh"

#include <cub/cub.cuh>

namespace
{
enum {
    AT_ONCE = 4,
    SPAN = 8
}; /* edges loaded before the first is added; sorted edges that a warp looks at */

template <int W> struct columns { /* W numbers side by side */
    float at[W];
};

template <int W> __device__ __forceinline__ columns<W> load(const float *from)
{
    columns<W> c;
    if (W == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(from);
        c.at[0] = v.x, c.at[W > 1] = v.y, c.at[W > 2 ? 2 : 0] = v.z, c.at[W > 3 ? 3 : 0] = v.w;
    }
    if (W == 1)
        c.at[0] = *from;
    return c;
}

template <int W> __device__ __forceinline__ void store(float *to, const columns<W> &c)
{
    if (W == 4)
        *reinterpret_cast<float4 *>(to) = {c.at[0], c.at[W > 1], c.at[W > 2 ? 2 : 0], c.at[W > 3 ? 3 : 0]};
    if (W == 1)
        *to = c.at[0];
}

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
__device__ __forceinline__ columns<W> sum_of(const means<P, I> &s, const stretch &r, columns<W> sum,
                                             int64_t column)
{
    bool bad = false;
    for (int64_t e = r.begin; e < r.end; e += AT_ONCE) {
        columns<W> row[AT_ONCE];
        int64_t source[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            source[k] = e + k < r.end ? source_of(s, e + k) : -1;
            bad = bad || (e + k < r.end && source[k] < 0);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (source[k] >= 0)
                row[k] = load<W>(s.in + source[k] * s.ld_in + column);
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
        for (int64_t j = (int64_t)lane * W; j < s.dim; j += (int64_t)W << shift) {
            float *out = s.out + d * s.ld_out + j;
            columns<W> sum = {};
            if (r.begin > r.first)
                sum = load<W>(out);
            sum = sum_of<W>(s, r, sum, j);
#pragma unroll
            for (int w = 0; s.last && w < W; w++)
                sum.at[w] *= share;
            store<W>(out, sum);
        }
    }
}

/* Where the edges of the next range begin. */
template <class I> __global__ void __launch_bounds__(PST_CU_THREADS) move_on(means<int64_t, I> s)
{
    for (int64_t d = pst_cu_first(); d < s.dsts; d += pst_cu_step())
        s.cursor[d] = stretch_of(s, d).end;
}

/* Can rows of both be taken 16 bytes at a time? */
bool by_fours(const float *a, int64_t ld_a, const float *b, int64_t ld_b, int64_t dim)
{
    return ((uintptr_t)a | (uintptr_t)b) % sizeof(float4) == 0 && (ld_a | ld_b | dim) % 4 == 0;
}

template <class P, class I> void launch_mean(struct pst_queue *q, const means<P, I> &s)
{
    const bool fours = by_fours(s.in, s.ld_in, s.out, s.ld_out, s.dim);
    const int64_t pieces = fours ? s.dim / 4 : s.dim;
    const int shift = pieces > 16 ? 5 : pieces > 8 ? 4 : 3;
    if (s.dim == 0)
        return;
    const struct pst_cu_launch on = pst_cu_on(q, pst_cu_grid(q, s.dsts, PST_CU_THREADS >> shift));
    if (fours)
        on(mean<4, P, I>, s, shift);
    else
        on(mean<1, P, I>, s, shift);
}

/* ---- the gradient -------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(PST_CU_THREADS)
    put_dsts(const int32_t *indptr, int64_t dsts, int64_t edges, int32_t *dst)
{
    const int lane = (int)threadIdx.x % SPAN;
    for (int64_t d = pst_cu_first() / SPAN; d < dsts; d += pst_cu_step() / SPAN)
        for (int64_t e = indptr[d] + lane; e < indptr[d + 1] && e < edges; e += SPAN)
            dst[e] = (int32_t)d;
}

struct sorted_edges {
    const int32_t *indptr;
    const uint32_t *source; /* ascending */
    const int32_t *dst;
    int64_t edges;
    const float *grad_out;
    int64_t ld_out;
    float *grad_in;
    int64_t ld_in, dim;
};

/* Adds up what one source gets; its edges begin at `begin`. The warp looks up 32 of them at once and
 * passes them round. */
template <int W>
__device__ void add_source(const sorted_edges &s, int64_t begin, int64_t column, bool in, int lane)
{
    const uint32_t source = s.source[begin];
    float *to = s.grad_in + (int64_t)source * s.ld_in + column;
    columns<W> sum = {};
    if (in)
        sum = load<W>(to);
    int64_t count = PST_CU_WARP;
    for (int64_t at = begin; count == PST_CU_WARP; at += PST_CU_WARP) {
        const int64_t e = at + lane;
        const bool mine = e < s.edges && s.source[e] == source;
        const int32_t d = mine ? s.dst[e] : 0;
        const float share = mine ? 1.0f / (float)(s.indptr[d + 1] - s.indptr[d]) : 0;
        count = __popc(__ballot_sync(0xFFFFFFFFu, mine));
#pragma unroll 4
        for (int t = 0; t < count; t++) {
            const int64_t row = __shfl_sync(0xFFFFFFFFu, d, t);
            const float part = __shfl_sync(0xFFFFFFFFu, share, t);
            if (!in)
                continue;
            const columns<W> grad = load<W>(s.grad_out + row * s.ld_out + column);
#pragma unroll
            for (int w = 0; w < W; w++)
                sum.at[w] += grad.at[w] * part;
        }
    }
    if (in)
        store<W>(to, sum);
}

/* A warp takes the sources whose first edge is among its SPAN edges. */
template <int W> __global__ void __launch_bounds__(PST_CU_THREADS, 4) mean_grad(sorted_edges s)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t base = pst_cu_first() / PST_CU_WARP * SPAN; base < s.edges;
         base += pst_cu_step() / PST_CU_WARP * SPAN) {
        const int64_t e = base + lane;
        const bool head = lane < SPAN && e < s.edges && (e == 0 || s.source[e - 1] != s.source[e]);
        for (unsigned heads = __ballot_sync(0xFFFFFFFFu, head); heads; heads &= heads - 1)
            for (int64_t j = 0; j < s.dim; j += PST_CU_WARP * W)
                add_source<W>(s, base + __ffs((int)heads) - 1, j + lane * W, j + lane * W < s.dim, lane);
    }
}

int bits_of(int64_t sources)
{
    int bits = 1;
    while (bits < 32 && (int64_t)1 << bits < sources)
        bits++;
    return bits;
}

/* edges may be fewer than the scratch memory has room for. */
bool sort_edges(struct pst_queue *q, const int32_t *indices, int64_t dsts, int64_t sources, sorted_edges *s)
{
    const size_t bytes = (size_t)s->edges * sizeof(int32_t);
    int32_t *dst = static_cast<int32_t *>(pst_cu_scratch(q, bytes)),
            *dst_out = static_cast<int32_t *>(pst_cu_scratch(q, bytes));
    uint32_t *source_out = static_cast<uint32_t *>(pst_cu_scratch(q, bytes));
    const uint32_t *source = reinterpret_cast<const uint32_t *>(indices);
    s->source = source_out;
    s->dst = dst_out;
    size_t more = 0;
    if (!pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(NULL, more, source, source_out, dst, dst_out,
                                                           s->edges, 0, bits_of(sources), q->stream)))
        return false;
    void *temp = pst_cu_scratch(q, more);
    pst_cu_on(q, pst_cu_grid(q, dsts, PST_CU_THREADS / SPAN))(put_dsts, s->indptr, dsts, s->edges, dst);
    return temp &&
           pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(temp, more, source, source_out, dst, dst_out,
                                                             s->edges, 0, bits_of(sources), q->stream));
}
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
                const float *in, int64_t ld_in, float *out, int64_t ld_out, int64_t dim)
{
    assert(dsts >= 0 && dim >= 0 && ld_in >= dim && ld_out >= dim);
    launch_mean(q, means<int32_t, int32_t>{indptr, indices, dsts, 0, 0, 0, true, NULL, in, ld_in, out, ld_out,
                                           dim, q->status});
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
    sorted_edges s = {indptr, NULL, NULL, edges, grad_out, ld_out, grad_in, ld_in, dim};
    pst_cu_begin(q);
    if (edges == 0 || dim == 0 || !sort_edges(q, indices, dsts, sources, &s))
        return;
    const struct pst_cu_launch on =
        pst_cu_on(q, pst_cu_grid(q, (edges + SPAN - 1) / SPAN, PST_CU_THREADS / PST_CU_WARP));
    if (by_fours(grad_out, ld_out, grad_in, ld_in, dim))
        on(mean_grad<4>, s);
    else
        on(mean_grad<1>, s);
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
