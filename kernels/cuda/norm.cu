/* norm.cu: layer and batch normalisation and their gradients. One warp for each row, or sums of columns. */
#include "kernels/cuda/rows.cuh"

namespace
{
struct layer {
    float *x;
    int64_t ld, n, dim;
    const float *gain, *shift;
    float *xhat, *rstd;
};

__global__ void __launch_bounds__(PST_CU_THREADS) layer_norm(layer f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        float *x = f.x + i * f.ld;
        double sum = 0, squares = 0;
        for (int64_t j = lane; j < f.dim; j += PST_CU_WARP)
            sum += (double)x[j];
        const double mean = pst_cu_warp_sum(sum) / (double)f.dim;
        for (int64_t j = lane; j < f.dim; j += PST_CU_WARP)
            squares += ((double)x[j] - mean) * ((double)x[j] - mean);
        const double inverse = 1.0 / sqrt(pst_cu_warp_sum(squares) / (double)f.dim + PST_NORM_EPS);
        for (int64_t j = lane; j < f.dim; j += PST_CU_WARP) {
            const float value = (float)(((double)x[j] - mean) * inverse);
            if (f.xhat)
                f.xhat[i * f.dim + j] = value;
            x[j] = value * f.gain[j] + f.shift[j];
        }
        if (f.rstd && lane == 0)
            f.rstd[i] = (float)inverse;
    }
}

struct gradient {
    float *grad;
    int64_t ld, n, dim;
    const float *gain, *xhat, *rstd;
    float *grad_gain, *grad_shift;
};

/* dx = rstd * (g' - mean(g') - xhat * mean(g' * xhat)), g' = g * gain. */
__global__ void __launch_bounds__(PST_CU_THREADS) layer_norm_grad(gradient f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        float *g = f.grad + i * f.ld;
        const float *h = f.xhat + i * f.dim;
        double sum = 0, dot = 0;
        for (int64_t j = lane; j < f.dim; j += PST_CU_WARP) {
            const double value = (double)(g[j] * f.gain[j]);
            sum += value;
            dot += value * (double)h[j];
        }
        const float mean = (float)(pst_cu_warp_sum(sum) / (double)f.dim);
        const float along = (float)(pst_cu_warp_sum(dot) / (double)f.dim);
        for (int64_t j = lane; j < f.dim; j += PST_CU_WARP)
            g[j] = f.rstd[i] * (g[j] * f.gain[j] - mean - h[j] * along);
    }
}

struct grad_and_dot {
    gradient f;
    __device__ struct pst_cu_pair operator()(int64_t i, int64_t j) const
    {
        const double g = (double)f.grad[i * f.ld + j];
        return {g, g * (double)f.xhat[i * f.dim + j]};
    }
};

struct add_affine_grad {
    gradient f;
    __device__ void operator()(int64_t j, double sum, double dot) const
    {
        f.grad_shift[j] += (float)sum;
        f.grad_gain[j] += (float)dot;
    }
};

/* ---- over rows ----------------------------------------------------------------------------------- */

struct batch {
    float *x;
    int64_t ld, n, dim;
    const float *gain, *shift;
    float *xhat, *rstd, *running_mean, *running_var, momentum;
    double *mean, *inverse; /* for each column */
};

struct element {
    batch f;
    __device__ struct pst_cu_pair operator()(int64_t i, int64_t j) const
    {
        return {(double)f.x[i * f.ld + j], 0};
    }
};

struct square {
    batch f;
    __device__ struct pst_cu_pair operator()(int64_t i, int64_t j) const
    {
        const double off = (double)f.x[i * f.ld + j] - f.mean[j];
        return {off * off, 0};
    }
};

__device__ void follow(float *running, double value, float momentum)
{
    *running = (float)((1.0 - (double)momentum) * (double)*running + (double)momentum * value);
}

struct put_mean {
    batch f;
    __device__ void operator()(int64_t j, double sum, double) const
    {
        f.mean[j] = sum / (double)f.n;
        if (f.n > 1)
            follow(&f.running_mean[j], f.mean[j], f.momentum);
    }
};

struct put_inverse {
    batch f;
    __device__ void operator()(int64_t j, double squares, double) const
    {
        f.inverse[j] = 1.0 / sqrt(squares / (double)f.n + PST_NORM_EPS);
        f.rstd[j] = (float)f.inverse[j];
        if (f.n > 1)
            follow(&f.running_var[j], squares / (double)(f.n - 1), f.momentum);
    }
};

struct normalise {
    batch f;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        return (float)(((double)f.x[i * f.ld + j] - f.mean[j]) * f.inverse[j]);
    }
    __device__ void put(int64_t i, int64_t j, float xhat) const
    {
        f.xhat[i * f.dim + j] = xhat;
        f.x[i * f.ld + j] = xhat * f.gain[j] + f.shift[j];
    }
};

struct batch_gradient {
    gradient f;
    float *mean_sum, *mean_dot; /* of each column */
    __device__ void operator()(int64_t j, double sum, double dot) const
    {
        add_affine_grad{f}(j, sum, dot);
        mean_sum[j] = (float)(sum / (double)f.n);
        mean_dot[j] = (float)(dot / (double)f.n);
    }
};

/* dx = gain * rstd * (g - mean(g) - xhat * mean(g * xhat)), means over rows. */
struct put_gradient {
    batch_gradient b;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        const float g = b.f.grad[i * b.f.ld + j];
        return b.f.gain[j] * b.f.rstd[j] * (g - b.mean_sum[j] - b.f.xhat[i * b.f.dim + j] * b.mean_dot[j]);
    }
    __device__ void put(int64_t i, int64_t j, float g) const
    {
        b.f.grad[i * b.f.ld + j] = g;
    }
};

struct scale_and_offset {
    float *x;
    int64_t ld;
    const float *scale, *offset;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        return x[i * ld + j] * scale[j] + offset[j];
    }
    __device__ void put(int64_t i, int64_t j, float y) const
    {
        x[i * ld + j] = y;
    }
};
} // namespace

void pst_k_layer_norm(struct pst_queue *q, float *x, int64_t ld, int64_t n, int64_t dim, const float *gain,
                      const float *shift, float *xhat, float *rstd)
{
    assert(n >= 0 && dim > 0 && ld >= dim && (xhat == NULL) == (rstd == NULL));
    const layer f = {x, ld, n, dim, gain, shift, xhat, rstd};
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(layer_norm, f);
}

void pst_k_layer_norm_grad(struct pst_queue *q, float *grad, int64_t ld, int64_t n, int64_t dim,
                           const float *gain, const float *xhat, const float *rstd, float *grad_gain,
                           float *grad_shift)
{
    assert(n >= 0 && dim > 0 && ld >= dim);
    const gradient f = {grad, ld, n, dim, gain, xhat, rstd, grad_gain, grad_shift};
    pst_cu_begin(q);
    pst_cu_columns(q, grad_and_dot{f}, add_affine_grad{f}, n, dim);
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(layer_norm_grad, f);
}

void pst_k_batch_norm(struct pst_queue *q, float *x, int64_t ld, int64_t n, int64_t dim, const float *gain,
                      const float *shift, float *xhat, float *rstd, float *running_mean, float *running_var,
                      float momentum)
{
    assert(n >= 0 && dim > 0 && ld >= dim);
    if (n == 0)
        return;
    pst_cu_begin(q);
    double *mean = static_cast<double *>(pst_cu_scratch(q, (size_t)dim * sizeof *mean));
    double *inverse = static_cast<double *>(pst_cu_scratch(q, (size_t)dim * sizeof *inverse));
    const batch f = {x,    ld,           n,           dim,      gain, shift,  xhat,
                     rstd, running_mean, running_var, momentum, mean, inverse};
    pst_cu_columns(q, element{f}, put_mean{f}, n, dim);
    pst_cu_begin(q);
    (void)pst_cu_scratch(
        q, 2 * pst_align_up((size_t)dim * sizeof *mean, 256)); /* the running figures stay as they are */
    pst_cu_columns(q, square{f}, put_inverse{f}, n, dim);
    pst_cu_each(q, normalise{f}, n, dim);
}

void pst_k_batch_norm_grad(struct pst_queue *q, float *grad, int64_t ld, int64_t n, int64_t dim,
                           const float *gain, const float *xhat, const float *rstd, float *grad_gain,
                           float *grad_shift)
{
    assert(n >= 0 && dim > 0 && ld >= dim);
    if (n == 0)
        return;
    pst_cu_begin(q);
    float *mean_sum = static_cast<float *>(pst_cu_scratch(q, (size_t)dim * sizeof *mean_sum));
    float *mean_dot = static_cast<float *>(pst_cu_scratch(q, (size_t)dim * sizeof *mean_dot));
    const batch_gradient b = {
        {grad, ld, n, dim, gain, xhat, rstd, grad_gain, grad_shift}, mean_sum, mean_dot};
    pst_cu_columns(q, grad_and_dot{b.f}, b, n, dim);
    pst_cu_each(q, put_gradient{b}, n, dim);
}

void pst_k_affine(struct pst_queue *q, float *x, int64_t ld, int64_t n, int64_t dim, const float *scale,
                  const float *offset)
{
    assert(n >= 0 && dim >= 0 && ld >= dim);
    pst_cu_each(q, scale_and_offset{x, ld, scale, offset}, n, dim);
}
