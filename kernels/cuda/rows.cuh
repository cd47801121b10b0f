/* rows.cuh: loops over matrices: each element, sums of columns, sums over a warp. Sums are in double
 * precision, in an order that depends only on the shape, so they are the same every time.
 * Owner: the caller owns all memory. Threads: device code; a block works on its own rows or columns. */
#ifndef PST_ROWS_CUH
#define PST_ROWS_CUH

#include "kernels/cuda/queue.cuh"

#include <type_traits>

enum {
    PST_CU_COLUMN_PARTS =
        128,            /* parts of the rows, whose sums are added at the end: enough blocks for any GPU */
    PST_CU_AT_ONCE = 4, /* elements of a lane that are loaded before the first is stored */
    PST_CU_COLUMN_ROWS = PST_CU_THREADS / PST_CU_WARP, /* rows that a block adds side by side */
};

static __device__ __forceinline__ double pst_cu_warp_sum(double value)
{
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, by);
    return value;
}

/* What a functor does to element (i, j). A functor that has F::value does it in two steps: get(i, j) loads
 * and computes, put(i, j, value) stores. Then all loads of PST_CU_AT_ONCE elements come before the first
 * store, which could otherwise change what the next load reads, for all that the compiler knows. */
template <class F, class = void> struct pst_cu_steps {
    static constexpr bool two = false;
};
template <class F> struct pst_cu_steps<F, std::void_t<typename F::value>> {
    static constexpr bool two = true;
};

/* Calls f for each element, with 2^shift lanes for each row. */
template <class F>
__global__ void __launch_bounds__(PST_CU_THREADS) pst_cu_each_kernel(F f, int64_t n, int64_t dim, int shift)
{
    const int lane = (int)threadIdx.x & ((1 << shift) - 1), step = 1 << shift;
    for (int64_t i = pst_cu_first() >> shift; i < n; i += pst_cu_step() >> shift) {
        if constexpr (pst_cu_steps<F>::two) {
            for (int64_t j = lane; j < dim; j += PST_CU_AT_ONCE * step) {
                typename F::value value[PST_CU_AT_ONCE];
#pragma unroll
                for (int k = 0; k < PST_CU_AT_ONCE; k++) /* past the end: the first element once more */
                    value[k] = f.get(i, j + k * step < dim ? j + k * step : j);
#pragma unroll
                for (int k = 0; k < PST_CU_AT_ONCE; k++)
                    if (j + k * step < dim)
                        f.put(i, j + k * step, value[k]);
            }
        } else {
#pragma unroll 4
            for (int64_t j = lane; j < dim; j += step)
                (void)f(i, j);
        }
    }
}

template <class F> void pst_cu_each(struct pst_queue *q, F f, int64_t n, int64_t dim)
{
    const int shift = dim > 16 ? 5 : dim > 4 ? 4 : 2;
    if (dim > 0)
        pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS >> shift))(pst_cu_each_kernel<F>, f, n, dim, shift);
}

struct pst_cu_pair {
    double a, b;
};

/* The sum of rows first, first + step, ... of column j. */
template <class F>
static __device__ __forceinline__ struct pst_cu_pair pst_cu_column_sum(const F &f, int64_t n, int64_t j,
                                                                       int64_t first, int64_t step)
{
    struct pst_cu_pair sum = {0, 0};
    if constexpr (pst_cu_steps<F>::two) {
        for (int64_t i = first; i < n; i += PST_CU_AT_ONCE * step) {
            typename F::value value[PST_CU_AT_ONCE];
#pragma unroll
            for (int k = 0; k < PST_CU_AT_ONCE; k++)
                value[k] = f.get(i + k * step < n ? i + k * step : i, j);
#pragma unroll
            for (int k = 0; k < PST_CU_AT_ONCE; k++) {
                if (i + k * step >= n)
                    continue;
                const struct pst_cu_pair more = f.put(i + k * step, j, value[k]);
                sum.a += more.a;
                sum.b += more.b;
            }
        }
    } else {
#pragma unroll 4
        for (int64_t i = first; i < n; i += step) {
            const struct pst_cu_pair more = f(i, j);
            sum.a += more.a;
            sum.b += more.b;
        }
    }
    return sum;
}

/* Sums of f(i, j), or of what put returns, which is a pair, over each part of the rows. parts has (parts,
 * dim) pairs. */
template <class F>
__global__ void __launch_bounds__(PST_CU_THREADS)
    pst_cu_column_parts(F f, int64_t n, int64_t dim, int parts, struct pst_cu_pair *sums)
{
    PST_CU_SHARED(struct pst_cu_pair, kept, [PST_CU_COLUMN_ROWS][PST_CU_WARP]);
    const int lane = (int)threadIdx.x % PST_CU_WARP, row = (int)threadIdx.x / PST_CU_WARP;
    const int64_t part = blockIdx.x % (unsigned)parts,
                  j = (int64_t)(blockIdx.x / (unsigned)parts) * PST_CU_WARP + lane;
    struct pst_cu_pair sum = {0, 0};
    if (j < dim)
        sum =
            pst_cu_column_sum(f, n, j, part * PST_CU_COLUMN_ROWS + row, (int64_t)parts * PST_CU_COLUMN_ROWS);
    kept[row][lane] = sum;
    __syncthreads();
    if (row > 0 || j >= dim)
        return;
    for (int r = 1; r < PST_CU_COLUMN_ROWS; r++) {
        sum.a += kept[r][lane].a;
        sum.b += kept[r][lane].b;
    }
    sums[part * dim + j] = sum;
}

/* A warp adds up the parts of a column: each lane every 32nd, and then the lanes in pairs. */
template <class G>
__global__ void __launch_bounds__(PST_CU_THREADS)
    pst_cu_column_totals(G g, int64_t dim, int parts, const struct pst_cu_pair *sums)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t j = pst_cu_first() / PST_CU_WARP; j < dim; j += pst_cu_step() / PST_CU_WARP) {
        struct pst_cu_pair sum = {0, 0};
#pragma unroll
        for (int k = 0; k < PST_CU_COLUMN_PARTS / PST_CU_WARP; k++) {
            const int part = k * PST_CU_WARP + lane;
            const struct pst_cu_pair more = sums[(part < parts ? part : 0) * dim + j];
            sum.a += part < parts ? more.a : 0;
            sum.b += part < parts ? more.b : 0;
        }
        sum.a = pst_cu_warp_sum(sum.a);
        sum.b = pst_cu_warp_sum(sum.b);
        if (lane == 0)
            g(j, sum.a, sum.b);
    }
}

/* Calls g(j, a, b) with the sums over all rows of f(i, j) = {a, b}. */
template <class F, class G> void pst_cu_columns(struct pst_queue *q, F f, G g, int64_t n, int64_t dim)
{
    const int64_t wanted = (n + PST_CU_COLUMN_ROWS * 4 - 1) / (PST_CU_COLUMN_ROWS * 4);
    const int parts = (int)pst_min_i64(wanted > 0 ? wanted : 1, PST_CU_COLUMN_PARTS);
    const unsigned panels = (unsigned)((dim + PST_CU_WARP - 1) / PST_CU_WARP);
    struct pst_cu_pair *sums =
        static_cast<struct pst_cu_pair *>(pst_cu_scratch(q, (size_t)(parts * dim) * sizeof *sums));
    if (!sums || dim == 0)
        return;
    pst_cu_on(q, panels * (unsigned)parts)(pst_cu_column_parts<F>, f, n, dim, parts, sums);
    pst_cu_on(q, pst_cu_grid(q, dim, PST_CU_THREADS / PST_CU_WARP))(pst_cu_column_totals<G>, g, dim, parts,
                                                                    (const struct pst_cu_pair *)sums);
}

#endif
