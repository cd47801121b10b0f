/* optimizer.cu: one step of an optimizer: Adam, AdamW, SGD; and clipping of gradients. In Adam, each thread
 * does four parameters if the addresses allow it. */
#include "kernels/cuda/rows.cuh"

#include <cmath>

namespace
{
struct factors {
    float decay, keep, beta1, beta2, one_minus_beta1, one_minus_beta2, rate, root, eps;
};

struct parameters {
    float *w, *m, *v;
    const float *g;
};

__device__ __forceinline__ void step_one(const factors &f, float *w, float g, float *m, float *v)
{
    const float gradient = g + f.decay * *w;
    *m = f.beta1 * *m + f.one_minus_beta1 * gradient;
    *v = f.beta2 * *v + f.one_minus_beta2 * gradient * gradient;
    *w = f.keep * *w - f.rate * *m / (sqrtf(*v) * f.root + f.eps);
}

__global__ void __launch_bounds__(PST_CU_THREADS) step_each(factors f, parameters p, int64_t first, int64_t n)
{
    for (int64_t i = first + pst_cu_first(); i < n; i += pst_cu_step())
        step_one(f, &p.w[i], p.g[i], &p.m[i], &p.v[i]);
}

__global__ void __launch_bounds__(PST_CU_THREADS) step_four(factors f, parameters p, int64_t fours)
{
    for (int64_t i = pst_cu_first(); i < fours; i += pst_cu_step()) {
        float4 w = reinterpret_cast<float4 *>(p.w)[i], m = reinterpret_cast<float4 *>(p.m)[i];
        float4 v = reinterpret_cast<float4 *>(p.v)[i];
        const float4 g = reinterpret_cast<const float4 *>(p.g)[i];
        step_one(f, &w.x, g.x, &m.x, &v.x);
        step_one(f, &w.y, g.y, &m.y, &v.y);
        step_one(f, &w.z, g.z, &m.z, &v.z);
        step_one(f, &w.w, g.w, &m.w, &v.w);
        reinterpret_cast<float4 *>(p.w)[i] = w;
        reinterpret_cast<float4 *>(p.m)[i] = m;
        reinterpret_cast<float4 *>(p.v)[i] = v;
    }
}

struct momentum {
    float rate, momentum, decay;
    bool nesterov;
};

__global__ void __launch_bounds__(PST_CU_THREADS) step_sgd(momentum f, parameters p, int64_t n)
{
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const float w = p.w[i], gradient = p.g[i] + f.decay * w, m = f.momentum * p.m[i] + gradient;
        p.m[i] = m;
        p.w[i] = w - f.rate * (f.nesterov ? gradient + f.momentum * m : m);
    }
}

/* ---- the norm of all gradients ------------------------------------------------------------------- */

enum {
    PART = 4096,      /* elements of a block's turn */
    PARTS_MAX = 1024, /* blocks */
};

/* The sum over the threads of a block, in the first. */
__device__ __forceinline__ double block_sum(double value)
{
    PST_CU_SHARED(double, sum, [PST_CU_THREADS]);
    const int me = (int)threadIdx.x;
    sum[me] = value;
    for (int half = PST_CU_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            sum[me] += sum[me + half];
    }
    return sum[me];
}

__global__ void __launch_bounds__(PST_CU_THREADS) sum_squares(const float *x, int64_t n, double *parts)
{
    double sum = 0;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

/* One block. */
__global__ void __launch_bounds__(PST_CU_THREADS) add_parts(const double *parts, int n, double *total)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += PST_CU_THREADS)
        sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *total = sum;
}

__global__ void __launch_bounds__(PST_CU_THREADS) clip(float *x, int64_t n, const double *square, double most)
{
    const double share = most / (sqrt(*square) + PST_NORM_CLIP_EPS);
    const float scale = (float)share;
    for (int64_t i = pst_cu_first(); i < n && !(share >= 1); i += pst_cu_step())
        x[i] *= scale;
}
} // namespace

void pst_k_sgd(struct pst_queue *q, const struct pst_sgd *opt, float *w, const float *g, float *m, int64_t n)
{
    assert(n >= 0);
    const momentum f = {(float)opt->rate, (float)opt->momentum, (float)opt->weight_decay, opt->nesterov};
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(step_sgd, f, parameters{w, m, NULL, g}, n);
}

void pst_k_square_sum(struct pst_queue *q, const float *x, int64_t n, double *sum)
{
    assert(n >= 0);
    pst_cu_begin(q);
    const unsigned blocks = (unsigned)pst_min_i64(PARTS_MAX, (n + PART - 1) / PART);
    double *parts = static_cast<double *>(pst_cu_scratch(q, PARTS_MAX * sizeof *parts));
    pst_cu_on(q, blocks)(sum_squares, x, n, parts);
    pst_cu_on(q, 1)(add_parts, static_cast<const double *>(parts), (int)blocks, sum);
}

void pst_k_clip(struct pst_queue *q, float *x, int64_t n, const double *square, double most)
{
    assert(n >= 0 && most > 0);
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(clip, x, n, square, most);
}

void pst_k_adam(struct pst_queue *q, const struct pst_adam *opt, float *w, const float *g, float *m, float *v,
                int64_t n)
{
    assert(n >= 0 && opt->step >= 1);
    const double correct1 = 1 - pow(opt->beta1, (double)opt->step);
    const double correct2 = 1 - pow(opt->beta2, (double)opt->step);
    const double decay = opt->weight_decay;
    const factors f = {(float)(opt->decoupled ? 0 : decay),
                       (float)(opt->decoupled ? 1 - opt->rate * decay : 1),
                       (float)opt->beta1,
                       (float)opt->beta2,
                       (float)(1 - opt->beta1),
                       (float)(1 - opt->beta2),
                       (float)(opt->rate / correct1),
                       (float)(1 / sqrt(correct2)),
                       (float)opt->eps};
    const parameters p = {w, m, v, g};
    const uintptr_t all = (uintptr_t)w | (uintptr_t)g | (uintptr_t)m | (uintptr_t)v;
    const int64_t fours = all % sizeof(float4) == 0 ? n / 4 : 0;
    pst_cu_on(q, pst_cu_grid(q, fours, PST_CU_THREADS))(step_four, f, p, fours);
    pst_cu_on(q, pst_cu_grid(q, n - 4 * fours, PST_CU_THREADS))(step_each, f, p, 4 * fours, n);
}
