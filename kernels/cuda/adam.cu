/* adam.cu: one step of the Adam optimizer. Each thread does four parameters if the addresses allow it. */
#include "kernels/cuda/queue.cuh"

#include <cmath>

namespace
{
struct factors {
    float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, rate, root, eps;
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
    *w -= f.rate * *m / (sqrtf(*v) * f.root + f.eps);
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
} // namespace

void pst_k_adam(struct pst_queue *q, const struct pst_adam *opt, float *w, const float *g, float *m, float *v,
                int64_t n)
{
    assert(n >= 0 && opt->step >= 1);
    const double correct1 = 1 - pow(opt->beta1, (double)opt->step);
    const double correct2 = 1 - pow(opt->beta2, (double)opt->step);
    const factors f = {(float)opt->weight_decay,    (float)opt->beta1,       (float)opt->beta2,
                       (float)(1 - opt->beta1),     (float)(1 - opt->beta2), (float)(opt->rate / correct1),
                       (float)(1 / sqrt(correct2)), (float)opt->eps};
    const parameters p = {w, m, v, g};
    const uintptr_t all = (uintptr_t)w | (uintptr_t)g | (uintptr_t)m | (uintptr_t)v;
    const int64_t fours = all % sizeof(float4) == 0 ? n / 4 : 0;
    pst_cu_on(q, pst_cu_grid(q, fours, PST_CU_THREADS))(step_four, f, p, fours);
    pst_cu_on(q, pst_cu_grid(q, n - 4 * fours, PST_CU_THREADS))(step_each, f, p, 4 * fours, n);
}
