/* sum.cu: sums of the gradients of each row of a table, without atomics. A stable sort by row brings what a
 * row gets together, in order; a warp adds it. */
#include "kernels/cuda/edges.cuh"
#include "kernels/cuda/embed/embed.cuh"

#include <cub/cub.cuh>

namespace
{
int bits_of(int64_t rows)
{
    int bits = 1;
    while (bits < 32 && (int64_t)1 << bits < rows)
        bits++;
    return bits;
}

uint32_t *words(struct pst_queue *q, int64_t n)
{
    return static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n * sizeof(uint32_t)));
}

__global__ void __launch_bounds__(PST_CU_THREADS) count_up(int32_t *number, int64_t n)
{
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        number[i] = (int32_t)i;
}

struct adding { /* rows of `from` */
    using more = int32_t;
    const int32_t *number;
    const float *from;
    int64_t width;

    __device__ __forceinline__ pst_cu_edge<int32_t> look(int64_t at) const
    {
        return {number[at], 0};
    }

    template <int W> __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<int32_t> e, int64_t j) const
    {
        return pst_cu_vec_load<W>(from + (int64_t)e.dst * width + j);
    }
};

/* The order of additions is that of the entries, whatever other rows there are: the numbers of rows depend on
 * where partitions lie in their buffer, and results must not. So these are not the chunks of pst_cu_scatter.
 */
enum { SPAN = 8 }; /* sorted entries among which a warp looks for the first of a row */

/* Adds up what one row gets; its entries begin at `begin`. The warp looks up 32 of them at once and passes
 * them round. */
template <int W, class F>
__device__ void add_row(const pst_cu_sorted &s, const F &f, float *row, int64_t begin, int64_t column,
                        bool in, int lane)
{
    const uint32_t same = s.source[begin];
    pst_cu_vec<W> sum = {};
    if (in)
        sum = pst_cu_vec_load<W>(row + column);
    int64_t count = PST_CU_WARP;
    for (int64_t base = begin; count == PST_CU_WARP; base += PST_CU_WARP) {
        const int64_t at = base + lane;
        const bool mine = at < s.edges && s.source[at] == same;
        pst_cu_edge<typename F::more> edge = {};
        if (mine)
            edge = f.look(at);
        count = __popc(__ballot_sync(0xFFFFFFFFu, mine));
        for (int t = 0; t < count; t += PST_CU_AHEAD) {
            pst_cu_vec<W> part[PST_CU_AHEAD];
#pragma unroll
            for (int k = 0; k < PST_CU_AHEAD; k++) { /* past the end: entry 0, which is not added */
                const pst_cu_edge<typename F::more> turn = {__shfl_sync(0xFFFFFFFFu, edge.dst, t + k),
                                                            __shfl_sync(0xFFFFFFFFu, edge.more, t + k)};
                part[k] = f.template get<W>(turn, in ? column : 0);
            }
#pragma unroll
            for (int k = 0; k < PST_CU_AHEAD; k++)
#pragma unroll
                for (int w = 0; w < W; w++)
                    sum.at[w] = t + k < count ? sum.at[w] + part[k].at[w] : sum.at[w];
        }
    }
    if (in)
        pst_cu_vec_store<W>(row + column, sum);
}

/* A warp takes the rows whose first entry is among its SPAN entries. */
template <int W, class F>
__global__ void __launch_bounds__(PST_CU_THREADS, 4)
    add_rows(pst_cu_sorted s, F f, float *to, int64_t ld, int64_t width)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t base = pst_cu_first() / PST_CU_WARP * SPAN; base < s.edges;
         base += pst_cu_step() / PST_CU_WARP * SPAN) {
        const int64_t e = base + lane;
        const bool head = lane < SPAN && e < s.edges && (e == 0 || s.source[e - 1] != s.source[e]);
        for (unsigned heads = __ballot_sync(0xFFFFFFFFu, head); heads; heads &= heads - 1) {
            const int64_t begin = base + __ffs((int)heads) - 1;
            float *row = to + (int64_t)s.source[begin] * ld;
            for (int64_t j = 0; j < width; j += PST_CU_WARP * W)
                add_row<W>(s, f, row, begin, j + lane * W, j + lane * W < width, lane);
        }
    }
}

struct head { /* 1 if sorted row i is the first with its number */
    using value = uint32_t;
    const uint32_t *row;
    __device__ uint32_t operator()(int64_t i) const
    {
        return i == 0 || row[i - 1] != row[i];
    }
};

struct plus {
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const
    {
        return a + b;
    }
};

struct clear_heads {
    head first;
    const uint32_t *rank;
    float *to;
    int64_t width;
    __device__ int operator()(int64_t i, int64_t j) const
    {
        if (first(i))
            to[(int64_t)(rank[i] - 1) * width + j] = 0;
        return 0;
    }
};

__global__ void __launch_bounds__(PST_CU_THREADS)
    list_heads(head first, const uint32_t *rank, int64_t n, uint32_t *touched, int64_t *touched_n)
{
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        if (first(i))
            touched[rank[i] - 1] = first.row[i];
        if (i == n - 1)
            *touched_n = rank[i];
    }
}

/* Sorts the numbers 0 to n - 1 by row. False: the queue has failed. */
bool sort_rows(struct pst_queue *q, const uint32_t *row, int64_t rows, int64_t n, uint32_t *sorted,
               int32_t *in, int32_t *number)
{
    const int bits = bits_of(rows);
    size_t bytes = 0;
    if (!sorted || !in || !number ||
        !pst_cu_checked(
            q, cub::DeviceRadixSort::SortPairs(NULL, bytes, row, sorted, in, number, n, 0, bits, q->stream)))
        return false;
    const size_t kept = q->scratch_used; /* what comes after it is free again when all is sorted */
    void *temp = pst_cu_scratch(q, bytes);
    q->scratch_used = kept;
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(count_up, in, n);
    return temp && pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(temp, bytes, row, sorted, in, number, n,
                                                                     0, bits, q->stream));
}

/* rank(n) gets the number of each sorted row's sum, from 1. False: the queue has failed. */
bool list_rows(struct pst_queue *q, head first, int64_t n, uint32_t *rank, uint32_t *touched,
               int64_t *touched_n)
{
    const pst_cu_input<head> in = {first, 0};
    size_t bytes = 0;
    if (!pst_cu_checked(q, cub::DeviceScan::InclusiveScan(NULL, bytes, in, rank, plus(), n, q->stream)))
        return false;
    void *temp = pst_cu_scratch(q, bytes);
    if (!temp ||
        !pst_cu_checked(q, cub::DeviceScan::InclusiveScan(temp, bytes, in, rank, plus(), n, q->stream)))
        return false;
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(list_heads, first, (const uint32_t *)rank, n, touched,
                                                    touched_n);
    return true;
}
} // namespace

void pst_k_embed_sum(struct pst_queue *q, int64_t n, const uint32_t *row, const float *from, int64_t rows,
                     int64_t width, float *to, uint32_t *touched, int64_t *touched_n)
{
    assert(n >= 0 && n <= INT32_MAX && rows >= 0 && rows <= UINT32_MAX && width >= 0);
    assert(n == 0 || rows > 0);
    pst_cu_begin(q);
    if (touched && n == 0)
        (void)pst_cu_checked(q, cudaMemsetAsync(touched_n, 0, sizeof *touched_n, q->stream));
    if (!touched && rows * width > 0)
        (void)pst_cu_checked(q, cudaMemsetAsync(to, 0, (size_t)(rows * width) * sizeof *to, q->stream));
    if (n == 0 || q->rc != PST_OK)
        return;
    uint32_t *sorted = words(q, n);
    int32_t *in = reinterpret_cast<int32_t *>(words(q, n)),
            *number = reinterpret_cast<int32_t *>(words(q, n));
    if (!sort_rows(q, row, rows, n, sorted, in, number))
        return;
    uint32_t *rank = reinterpret_cast<uint32_t *>(in); /* `in` is not needed any more */
    if (touched && !list_rows(q, {sorted}, n, rank, touched, touched_n))
        return;
    if (width == 0)
        return;
    if (touched)
        pst_cu_each(q, clear_heads{{sorted}, rank, to, width}, n, width);
    /* Sums are numbered by rows, or, if rows are listed, by ranks, which begin with 1. */
    const pst_cu_sorted s = {touched ? rank : sorted, number, NULL, n};
    const adding f = {number, from, width};
    to -= touched ? width : 0;
    const struct pst_cu_launch on =
        pst_cu_on(q, pst_cu_grid(q, (n + SPAN - 1) / SPAN, PST_CU_THREADS / PST_CU_WARP));
    if (pst_cu_by_fours(from, width, to, width, width))
        on(add_rows<4, adding>, s, f, to, width, width);
    else
        on(add_rows<1, adding>, s, f, to, width, width);
}
