/* gat.cu: attention: scores of a block's edges, their softmax, and the gradients of both (sums with these
 * coefficients are in weighted.cu). A warp makes a product of two rows; a thread has a head of a destination
 * and goes through its edges in order. */
#include "kernels/attention.h"
#include "kernels/cuda/rows.cuh"

#include <cmath>

namespace
{
__device__ __forceinline__ float warp_sum(float value)
{
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, by);
    return value;
}

/* All lanes get it. */
__device__ __forceinline__ float warp_dot(const float *a, const float *b, int64_t n, int lane)
{
    float sum = 0;
    for (int64_t j = lane; j < n; j += PST_CU_WARP)
        sum += a[j] * b[j];
    return warp_sum(sum);
}

/* One warp for each row and head. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    scores(struct pst_gat gat, const float *z, int64_t ld, int64_t n, const float *a, float *score)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t t = pst_cu_first() / PST_CU_WARP; t < n * gat.heads; t += pst_cu_step() / PST_CU_WARP) {
        const int64_t i = t / gat.heads, h = t % gat.heads;
        const float sum = warp_dot(z + i * ld + h * gat.dim, a + h * gat.dim, gat.dim, lane);
        if (lane == 0)
            score[t] = sum;
    }
}

struct scores_grad {
    struct pst_gat gat;
    const float *z, *a, *grad_score;
    float *grad_z;
    int64_t ld, ld_grad;
    __device__ struct pst_cu_pair operator()(int64_t i, int64_t j) const
    {
        const float by = grad_score[i * gat.heads + j / gat.dim];
        grad_z[i * ld_grad + j] += by * a[j];
        return {(double)(by * z[i * ld + j]), 0};
    }
};

struct add_sum {
    float *to;
    __device__ void operator()(int64_t j, double sum, double) const
    {
        to[j] += (float)sum;
    }
};

/* ---- softmax ------------------------------------------------------------------------------------- */

struct attention {
    const int32_t *indptr, *indices;
    int64_t first, n, heads;
    const float *left, *right;
    const int64_t *vertices;
    struct pst_rng_stream layer;
    uint32_t threshold; /* 0: nothing is dropped */
    float *alpha, *alpha_self;

    __device__ __forceinline__ float score(int64_t d, int64_t source, int64_t h) const
    {
        const float x = left[d * heads + h] + right[source * heads + h];
        return x < 0 ? x * (float)PST_GAT_SLOPE : x;
    }

    /* The coefficient, with its sign bit set if it is dropped. */
    __device__ __forceinline__ float mark(const struct pst_rng_stream &of_v, int64_t source, int64_t h,
                                          float coefficient) const
    {
        if (threshold == 0)
            return coefficient;
        const struct pst_rng_block draw =
            pst_gat_draw(&of_v, vertices[source], (uint32_t)h / PST_GAT_HEADS_A_DRAW);
        return pst_gat_drops(&draw, (uint32_t)h, threshold) ? -coefficient : coefficient;
    }
};

__global__ void __launch_bounds__(PST_CU_THREADS) softmax(attention a)
{
    for (int64_t t = pst_cu_first(); t < a.n * a.heads; t += pst_cu_step()) {
        const int64_t d = a.first + t / a.heads, h = t % a.heads, begin = a.indptr[d], end = a.indptr[d + 1];
        const float self = a.alpha_self ? a.score(d, d, h) : -INFINITY;
        float most = self;
        for (int64_t e = begin; e < end; e++) {
            const float score = a.score(d, a.indices[e], h);
            most = score > most ? score : most;
            a.alpha[e * a.heads + h] = score;
        }
        double sum = a.alpha_self ? (double)expf(self - most) : 0;
        for (int64_t e = begin; e < end; e++)
            sum += (double)expf(a.alpha[e * a.heads + h] - most);
        const float share = (float)(1 / sum);
        struct pst_rng_stream of_v = a.layer;
        if (a.threshold > 0)
            of_v = pst_gat_stream_of(&a.layer, a.vertices[d]);
        if (a.alpha_self)
            a.alpha_self[d * a.heads + h] = a.mark(of_v, d, h, expf(self - most) * share);
        for (int64_t e = begin; e < end; e++) {
            float *at = &a.alpha[e * a.heads + h];
            *at = a.mark(of_v, a.indices[e], h, expf(*at - most) * share);
        }
    }
}

/* ---- the gradient of the softmax ----------------------------------------------------------------- */

struct attention_grad {
    struct pst_gat gat;
    const int32_t *indptr, *indices;
    int64_t first, n;
    const float *left, *right, *alpha, *alpha_self, *z, *grad_out;
    int64_t ld_z, ld_out;
    float scale; /* of coefficients that are not dropped, in out */
    float *grad_score, *grad_self, *grad_left;
};

/* The gradients of the coefficients: one warp for each destination and head. */
__global__ void __launch_bounds__(PST_CU_THREADS) products(attention_grad a)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t heads = a.gat.heads, dim = a.gat.dim;
    for (int64_t t = pst_cu_first() / PST_CU_WARP; t < a.n * heads; t += pst_cu_step() / PST_CU_WARP) {
        const int64_t d = a.first + t / heads, h = t % heads, begin = a.indptr[d], end = a.indptr[d + 1];
        const float *from = a.grad_out + d * a.ld_out + (a.gat.average ? 0 : h * dim);
        for (int64_t e = begin - (a.alpha_self != NULL); e < end; e++) { /* begin - 1: d itself */
            const int64_t source = e < begin ? d : a.indices[e];
            const float product = warp_dot(from, a.z + source * a.ld_z + h * dim, dim, lane) * a.scale;
            const float *alpha = e < begin ? &a.alpha_self[d * heads + h] : &a.alpha[e * heads + h];
            float *to = e < begin ? &a.grad_self[d * heads + h] : &a.grad_score[e * heads + h];
            if (lane == 0)
                *to = std::signbit(*alpha) ? 0 : product;
        }
    }
}

__device__ __forceinline__ float finish(const attention_grad &a, int64_t d, int64_t source, int64_t h,
                                        float alpha, float grad, float total)
{
    const bool below = a.left[d * a.gat.heads + h] + a.right[source * a.gat.heads + h] < 0;
    const float score = fabsf(alpha) * (grad - total);
    return below ? score * (float)PST_GAT_SLOPE : score;
}

/* From there to the gradients of the scores. */
__global__ void __launch_bounds__(PST_CU_THREADS) softmax_grad(attention_grad a)
{
    const int64_t heads = a.gat.heads;
    for (int64_t t = pst_cu_first(); t < a.n * heads; t += pst_cu_step()) {
        const int64_t d = a.first + t / heads, h = t % heads, begin = a.indptr[d], end = a.indptr[d + 1];
        const bool own = a.alpha_self != NULL;
        const float alpha = own ? a.alpha_self[d * heads + h] : 0,
                    grad = own ? a.grad_self[d * heads + h] : 0;
        double total = (double)fabsf(alpha) * (double)grad;
        for (int64_t e = begin; e < end; e++)
            total += (double)fabsf(a.alpha[e * heads + h]) * (double)a.grad_score[e * heads + h];
        const float self = own ? finish(a, d, d, h, alpha, grad, (float)total) : 0;
        double left = (double)self;
        if (own)
            a.grad_self[d * heads + h] = self;
        for (int64_t e = begin; e < end; e++) {
            float *at = &a.grad_score[e * heads + h];
            *at = finish(a, d, a.indices[e], h, a.alpha[e * heads + h], *at, (float)total);
            left += (double)*at;
        }
        a.grad_left[d * heads + h] = (float)left;
    }
}
} // namespace

void pst_k_gat_scores(struct pst_queue *q, const struct pst_gat *gat, const float *z, int64_t ld, int64_t n,
                      const float *a, float *score)
{
    assert(n >= 0 && ld >= gat->heads * gat->dim);
    const int64_t warps = n * gat->heads;
    pst_cu_on(q, pst_cu_grid(q, warps, PST_CU_THREADS / PST_CU_WARP))(scores, *gat, z, ld, n, a, score);
}

void pst_k_gat_scores_grad(struct pst_queue *q, const struct pst_gat *gat, const float *z, int64_t ld,
                           int64_t n, const float *a, const float *grad_score, float *grad_z, int64_t ld_grad,
                           float *grad_a)
{
    assert(n >= 0 && ld >= gat->heads * gat->dim && ld_grad >= gat->heads * gat->dim);
    const scores_grad f = {*gat, z, a, grad_score, grad_z, ld, ld_grad};
    pst_cu_begin(q);
    pst_cu_columns(q, f, add_sum{grad_a}, n, gat->heads * gat->dim);
}

void pst_k_gat_softmax(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                       int64_t first, int64_t n, const float *left, const float *right,
                       const int64_t *vertices, const struct pst_dropout *drop, float *alpha,
                       float *alpha_self)
{
    assert(first >= 0 && n >= 0 && first + n <= block->dsts && drop->rate >= 0 && drop->rate < 1);
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX && (alpha_self || drop->rate == 0));
    const uint32_t threshold = (uint32_t)(pst_dropout_share(drop->rate) * 65536.0);
    const attention a = {block->indptr, block->indices,       first,     n,     gat->heads, left, right,
                         vertices,      pst_gat_stream(drop), threshold, alpha, alpha_self};
    pst_cu_on(q, pst_cu_grid(q, n * gat->heads, PST_CU_THREADS))(softmax, a);
}

void pst_k_gat_softmax_grad(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                            int64_t first, int64_t n, const float *left, const float *right,
                            const float *alpha, const float *alpha_self, const struct pst_dropout *drop,
                            const float *z, int64_t ld_z, const float *grad_out, int64_t ld_out,
                            float *grad_score, float *grad_self, float *grad_left)
{
    assert(first >= 0 && n >= 0 && first + n <= block->dsts);
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    const double scale = pst_gat_scale(drop) / (gat->average ? (double)gat->heads : 1.0);
    const attention_grad a = {*gat,   block->indptr, block->indices, first,     n,        left,
                              right,  alpha,         alpha_self,     z,         grad_out, ld_z,
                              ld_out, (float)scale,  grad_score,     grad_self, grad_left};
    const int64_t items = n * gat->heads;
    pst_cu_on(q, pst_cu_grid(q, items, PST_CU_THREADS / PST_CU_WARP))(products, a);
    pst_cu_on(q, pst_cu_grid(q, items, PST_CU_THREADS))(softmax_grad, a);
}
