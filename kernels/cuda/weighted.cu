/* weighted.cu: weighted sums of the rows of a block's sources, and their gradient: a GCN's, with one weight
 * for each edge, and a GAT's, with one for each edge and head. The order of additions is the CPU's: the own
 * row first, then the edges in order. */
#include "kernels/attention.h"
#include "kernels/cuda/edges.cuh"
#include "kernels/cuda/rows.cuh"

#include <cmath>

namespace
{
enum { AT_ONCE = 4 }; /* edges loaded before the first is added */

struct weights {
    /* heads numbers for each edge, and for each destination; self NULL: it is not a source */
    const float *edge, *self;
    int32_t heads, dim; /* of one head */
    bool average;       /* the output has the mean of all heads in dim columns */
    bool drops;         /* a set sign bit means 0 */
    float scale;        /* of those that count */

    __device__ __forceinline__ float factor(float weight) const
    {
        return drops && std::signbit(weight) ? 0 : weight * scale;
    }
};

struct sums {
    const int32_t *indptr, *indices;
    int64_t first, n;
    weights w;
    const float *in;
    int64_t ld_in;
    float *out;
    int64_t ld_out;
};

template <int W>
__device__ __forceinline__ void add(pst_cu_vec<W> &sum, const pst_cu_vec<W> &row, float by, bool fresh)
{
#pragma unroll
    for (int w = 0; w < W; w++)
        sum.at[w] = fresh ? row.at[w] * by : sum.at[w] + row.at[w] * by;
}

/* W columns of one head of one destination; column: in `in`. */
template <int W>
__device__ __forceinline__ void sum_head(const sums &s, int64_t d, int head, int64_t column, bool fresh,
                                         pst_cu_vec<W> &sum)
{
    if (s.w.self)
        add(sum, pst_cu_vec_load<W>(s.in + d * s.ld_in + column), s.w.factor(s.w.self[d * s.w.heads + head]),
            fresh);
    const int64_t end = s.indptr[d + 1];
    for (int64_t e = s.indptr[d]; e < end; e += AT_ONCE) {
        pst_cu_vec<W> row[AT_ONCE];
        float by[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (e + k >= end)
                continue;
            row[k] = pst_cu_vec_load<W>(s.in + (int64_t)s.indices[e + k] * s.ld_in + column);
            by[k] = s.w.factor(s.w.edge[(e + k) * s.w.heads + head]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (e + k < end)
                add(sum, row[k], by[k], false);
    }
}

/* 2^shift lanes for each row of out. */
template <int W> __global__ void __launch_bounds__(PST_CU_THREADS, 3) weighted_sum(sums s, int shift)
{
    const int lane = (int)threadIdx.x & ((1 << shift) - 1);
    const int64_t width = s.w.average ? s.w.dim : (int64_t)s.w.heads * s.w.dim;
    for (int64_t i = pst_cu_first() >> shift; i < s.n; i += pst_cu_step() >> shift) {
        const int64_t d = s.first + i;
        for (int64_t j = (int64_t)lane * W; j < width; j += (int64_t)W << shift) {
            const int from = s.w.average ? 0 : (int)j / s.w.dim, to = s.w.average ? s.w.heads : from + 1;
            pst_cu_vec<W> sum = {};
            for (int h = from; h < to; h++)
                sum_head<W>(s, d, h, s.w.average ? (int64_t)h * s.w.dim + j : j, h == from, sum);
            pst_cu_vec_store<W>(s.out + d * s.ld_out + j, sum);
        }
    }
}

void launch_sum(struct pst_queue *q, const sums &s)
{
    const bool fours = s.w.dim % 4 == 0 && pst_cu_by_fours(s.in, s.ld_in, s.out, s.ld_out, s.w.dim);
    const int64_t width = s.w.average ? s.w.dim : (int64_t)s.w.heads * s.w.dim;
    const int64_t pieces = fours ? width / 4 : width;
    const int shift = pieces > 16 ? 5 : pieces > 8 ? 4 : 3;
    if (width == 0)
        return;
    const struct pst_cu_launch on = pst_cu_on(q, pst_cu_grid(q, s.n, PST_CU_THREADS >> shift));
    if (fours)
        on(weighted_sum<4>, s, shift);
    else
        on(weighted_sum<1>, s, shift);
}

/* ---- the gradient -------------------------------------------------------------------------------- */

struct spreading {
    using more = int32_t; /* the edge's number */
    pst_cu_sorted sorted;
    weights w;
    int64_t column; /* the first */
    const float *grad_out;
    int64_t ld_out;
    float *grad_in;
    int64_t ld_in;

    __device__ __forceinline__ pst_cu_edge<int32_t> look(int64_t at) const
    {
        const int32_t number = sorted.value[at];
        return {sorted.dst[number], number};
    }

    template <int W>
    __device__ __forceinline__ pst_cu_vec<W> part(int64_t d, const float *weight, int64_t j) const
    {
        const int c = (int)(column + j), head = c / w.dim;
        const float by = w.factor(weight[head]);
        pst_cu_vec<W> v = pst_cu_vec_load<W>(grad_out + d * ld_out + (w.average ? c - head * w.dim : c));
#pragma unroll
        for (int k = 0; k < W; k++)
            v.at[k] *= by;
        return v;
    }

    template <int W> __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<int32_t> e, int64_t j) const
    {
        return part<W>(e.dst, w.edge + (int64_t)e.more * w.heads, j);
    }

    __device__ int operator()(int64_t d, int64_t j) const /* of the own row */
    {
        grad_in[d * ld_in + column + j] += part<1>(d, w.self + d * w.heads, j).at[0];
        return 0;
    }
};

void launch_spread(struct pst_queue *q, const struct pst_block *block, spreading f, int64_t width)
{
    float *to = f.grad_in + f.column;
    if (f.w.self)
        pst_cu_each(q, f, block->dsts, width);
    if (block->edges == 0 || width == 0)
        return;
    const float *from = f.grad_out + (f.w.average ? f.column % f.w.dim : f.column);
    if (f.w.dim % 4 == 0 && pst_cu_by_fours(from, f.ld_out, to, f.ld_in, width))
        pst_cu_scatter<4>(q, f.sorted, f, to, f.ld_in, width);
    else
        pst_cu_scatter<1>(q, f.sorted, f, to, f.ld_in, width);
}

struct righting { /* sums of numbers of edges, heads for each */
    using more = int32_t;
    pst_cu_sorted sorted;
    int32_t heads;
    const float *grad_score, *grad_self;
    float *grad_right;

    __device__ __forceinline__ pst_cu_edge<int32_t> look(int64_t at) const
    {
        return {0, sorted.value[at]};
    }

    template <int W> __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<int32_t> e, int64_t h) const
    {
        return {grad_score[(int64_t)e.more * heads + h]};
    }

    __device__ int operator()(int64_t d, int64_t h) const /* of the own row */
    {
        grad_right[d * heads + h] += grad_self[d * heads + h];
        return 0;
    }
};

weights attention(const struct pst_gat *gat, const float *alpha, const float *alpha_self,
                  const struct pst_dropout *drop)
{
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX && gat->dim >= 0 &&
           gat->heads * gat->dim <= INT32_MAX);
    return {alpha,
            alpha_self,
            (int32_t)gat->heads,
            (int32_t)gat->dim,
            gat->average,
            true,
            (float)(pst_gat_scale(drop) / (gat->average ? (double)gat->heads : 1.0))};
}

/* One head that is as wide as the row, and nothing is dropped. */
weights plain(const float *weight, const float *self_weight, int64_t dim)
{
    assert(dim <= INT32_MAX);
    return {weight, self_weight, 1, (int32_t)dim, false, false, 1};
}
} // namespace

void pst_k_weighted_sum(struct pst_queue *q, const struct pst_block *block, int64_t first, int64_t n,
                        const float *weight, const float *self_weight, const struct pst_twin_view *in,
                        float *out, int64_t ld_out, int64_t dim)
{
    assert(first >= 0 && n >= 0 && first + n <= block->dsts && dim >= 0 && ld_out >= dim);
    assert(in->ld >= dim && in->bf16 == NULL && in->elsewhere == NULL);
    launch_sum(q, {block->indptr, block->indices, first, n, plain(weight, self_weight, dim), in->at, in->ld,
                   out, ld_out});
}

void pst_k_weighted_sum_grad(struct pst_queue *q, const struct pst_block *block, const float *weight,
                             const float *self_weight, const float *grad_out, int64_t ld_out, float *grad_in,
                             int64_t ld_in, int64_t dim)
{
    assert(dim >= 0 && ld_in >= dim && ld_out >= dim);
    spreading f = {{}, plain(weight, self_weight, dim), 0, grad_out, ld_out, grad_in, ld_in};
    pst_cu_begin(q);
    if (block->edges == 0 || pst_cu_sort_edges(q, block, PST_CU_EDGE_NUMBER, &f.sorted))
        launch_spread(q, block, f, dim);
}

void pst_k_gat_sum(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                   int64_t first, int64_t n, const float *alpha, const float *alpha_self,
                   const struct pst_dropout *drop, const float *z, int64_t ld_z, float *out, int64_t ld_out)
{
    assert(first >= 0 && n >= 0 && first + n <= block->dsts);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    launch_sum(q, {block->indptr, block->indices, first, n, attention(gat, alpha, alpha_self, drop), z, ld_z,
                   out, ld_out});
}

void pst_k_gat_sum_grad(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                        int64_t column, int64_t width, const float *alpha, const float *alpha_self,
                        const struct pst_dropout *drop, const float *grad_out, int64_t ld_out, float *grad_z,
                        int64_t ld_z, const float *grad_score, const float *grad_self, float *grad_right)
{
    assert(column >= 0 && width >= 0 && column + width <= gat->heads * gat->dim);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    spreading f = {{}, attention(gat, alpha, alpha_self, drop), column, grad_out, ld_out, grad_z, ld_z};
    pst_cu_begin(q);
    if (block->edges > 0 && !pst_cu_sort_edges(q, block, PST_CU_EDGE_NUMBER, &f.sorted))
        return;
    launch_spread(q, block, f, width);
    if (!grad_right)
        return;
    const righting r = {f.sorted, (int32_t)gat->heads, grad_score, grad_self, grad_right};
    if (alpha_self)
        pst_cu_each(q, r, block->dsts, gat->heads);
    if (block->edges > 0)
        pst_cu_scatter<1>(q, f.sorted, r, grad_right, gat->heads, gat->heads);
}
