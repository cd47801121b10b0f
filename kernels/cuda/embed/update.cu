/* update.cu: optimizers, in place. A warp has a row. */
#include "kernels/cuda/embed/embed.cuh"

#include <cmath>

namespace
{
struct updates {
    pst_k_embed_table t;
    float correct1, correct2; /* Adam's */
    const uint32_t *rows;
    struct pst_twin_n n;
    const float *grad;
    bool packed;
    const int32_t *status;
};

__device__ __forceinline__ void adagrad(const updates &u, float *x, float *state, float g)
{
    *state += g * g;
    *x -= u.t.rate * g / (sqrtf(*state) + (float)PST_K_EMBED_ADAGRAD_EPS);
}

__device__ __forceinline__ void adam(const updates &u, float *x, float *m, float *v, float g)
{
    const float b1 = (float)PST_K_EMBED_ADAM_BETA1, b2 = (float)PST_K_EMBED_ADAM_BETA2;
    *m = b1 * *m + (1 - b1) * g;
    *v = b2 * *v + (1 - b2) * g * g;
    *x -= u.t.rate * (*m / u.correct1) / (sqrtf(*v / u.correct2) + (float)PST_K_EMBED_ADAM_EPS);
}

/* The factor of all gradients of the row. Lane 0 updates the state. */
__device__ __forceinline__ float adagrad_row(const updates &u, float *state, const float *g, int lane)
{
    double sum = 0;
    for (int64_t c = lane; c < u.t.d; c += PST_CU_WARP)
        sum += (double)(g[c] * g[c]);
    sum = pst_cu_warp_sum(sum);
    const float all = *state + (float)sum / (float)u.t.d;
    __syncwarp();
    if (lane == 0)
        *state = all;
    return u.t.rate / (sqrtf(all) + (float)PST_K_EMBED_ADAGRAD_EPS);
}

template <int O> __global__ void __launch_bounds__(PST_CU_THREADS) update(updates u)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(u.n, u.status), d = u.t.d;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        const int64_t row = u.rows ? u.rows[i] : i;
        const float *g = u.grad + (u.packed ? i : row) * d;
        float *x = u.t.x + row * d, by = u.t.rate;
        if (O == PST_K_EMBED_ADAGRAD_ROW)
            by = adagrad_row(u, u.t.state + row, g, lane);
        for (int64_t c = lane; c < d; c += PST_CU_WARP) {
            if (O == PST_K_EMBED_ADAGRAD)
                adagrad(u, &x[c], u.t.state + row * d + c, g[c]);
            else if (O == PST_K_EMBED_ADAM)
                adam(u, &x[c], u.t.state + 2 * row * d + c, u.t.state + (2 * row + 1) * d + c, g[c]);
            else
                x[c] -= by * g[c];
        }
    }
}
} // namespace

void pst_kn_embed_update(struct pst_queue *q, const struct pst_k_embed_table *table, const uint32_t *rows,
                         struct pst_twin_n n, const float *grad, bool packed)
{
    assert(n.most >= 0 && table->d >= 1 && table->step >= 1);
    const float correct1 = (float)(1 - pow(PST_K_EMBED_ADAM_BETA1, (double)table->step));
    const float correct2 = (float)(1 - pow(PST_K_EMBED_ADAM_BETA2, (double)table->step));
    const updates u = {*table, correct1, correct2, rows, n, grad, packed, q->status};
    const struct pst_cu_launch on = pst_cu_on(q, pst_cu_embed_warps(q, n.most));
    switch (table->optimizer) {
    case PST_K_EMBED_ADAGRAD: on(update<PST_K_EMBED_ADAGRAD>, u); return;
    case PST_K_EMBED_ADAGRAD_ROW: on(update<PST_K_EMBED_ADAGRAD_ROW>, u); return;
    case PST_K_EMBED_SGD: on(update<PST_K_EMBED_SGD>, u); return;
    case PST_K_EMBED_ADAM: on(update<PST_K_EMBED_ADAM>, u); return;
    }
}

void pst_k_embed_update(struct pst_queue *q, const struct pst_k_embed_table *table, const uint32_t *rows,
                        int64_t n, const float *grad, bool packed)
{
    pst_kn_embed_update(q, table, rows, {NULL, n}, grad, packed);
}
