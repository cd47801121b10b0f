/* fused.cu: operations on activations, row by row: bias, ReLU and dropout in one pass, its gradient, ELU in
 * place of ReLU, sums, and widening of 16-bit rows. */
#include "kernels/cuda/rows.cuh"

namespace
{
enum {
    LANES = 16,
    PIECES = PST_DROPOUT_GROUP / LANES
}; /* one draw decides PIECES columns, which are LANES apart */

struct mask {
    struct pst_rng_stream stream;
    uint32_t threshold; /* a column is dropped if its 16 bits are below this */
    float scale;
    bool on;
};

mask mask_of(const struct pst_dropout *drop)
{
    assert(drop->rate >= 0 && drop->rate < 1);
    const double share = pst_dropout_share(drop->rate);
    return {pst_rng_stream_of(PST_RNG_DROPOUT, drop->seed, drop->epoch, drop->batch, drop->layer),
            (uint32_t)(share * 65536.0), drop->rate > 0 ? (float)(1.0 / (1.0 - share)) : 1, drop->rate > 0};
}

struct activation {
    float *x;
    int64_t ld;
    const float *bias;
    const int64_t *vertices;
    int64_t n, dim;
    bool relu;
    mask drop;
};

/* A thread has the columns of one draw; 16 neighbouring threads have a group of 128 columns of a row. A
 * NaN stays a NaN. */
__global__ void __launch_bounds__(PST_CU_THREADS) forward(activation f, int64_t groups)
{
    for (int64_t t = pst_cu_first(); t < f.n * groups * LANES; t += pst_cu_step()) {
        const int64_t lane = t % LANES, group = t / LANES % groups, i = t / LANES / groups;
        const int64_t first = group * PST_DROPOUT_GROUP + lane;
        float *x = f.x + i * f.ld;
        struct pst_rng_block draw = {{0, 0, 0, 0}};
        if (f.drop.on)
            draw = pst_rng_draw(&f.drop.stream, (uint64_t)f.vertices[i], (uint32_t)(group * LANES + lane));
        float value[PIECES];
#pragma unroll
        for (int p = 0; p < PIECES; p++)
            value[p] = first + p * LANES < f.dim ? x[first + p * LANES] : 0;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            const int64_t j = first + p * LANES;
            const uint32_t bits = draw.word[p / 2] >> (p % 2 ? 16 : 0) & 0xFFFFu;
            if (j >= f.dim)
                continue;
            const float v = f.bias ? value[p] + f.bias[j] : value[p], clipped = f.relu && v < 0 ? 0 : v;
            x[j] = !f.drop.on ? clipped : bits < f.drop.threshold ? clipped * 0 : clipped * f.drop.scale;
        }
    }
}

void launch_forward(struct pst_queue *q, const activation &f)
{
    const int64_t groups = (f.dim + PST_DROPOUT_GROUP - 1) / PST_DROPOUT_GROUP;
    pst_cu_on(q, pst_cu_grid(q, f.n * groups * LANES, PST_CU_THREADS))(forward, f, groups);
}

struct backward { /* y is NULL if there is no ReLU */
    float *grad;
    const float *y;
    int64_t ld, ld_y;
    float scale;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        const float g = grad[i * ld + j];
        return !y ? g : y[i * ld_y + j] > 0 ? g * scale : 0;
    }
    __device__ struct pst_cu_pair put(int64_t i, int64_t j, float g) const
    {
        if (y)
            grad[i * ld + j] = g;
        return {(double)g, 0};
    }
};

struct add_sum {
    float *to;
    __device__ void operator()(int64_t j, double sum, double) const
    {
        to[j] += (float)sum;
    }
};

struct elu_element {
    float *x;
    int64_t ld;
    const float *bias;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        const float v = bias ? x[i * ld + j] + bias[j] : x[i * ld + j];
        return v > 0 ? v : expm1f(v);
    }
    __device__ void put(int64_t i, int64_t j, float v) const
    {
        x[i * ld + j] = v;
    }
};

struct elu_backward { /* kept: the share that dropout keeps; y was divided by it */
    float *grad;
    const float *y;
    int64_t ld, ld_y;
    float kept;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        const float out = y[i * ld_y + j];
        return grad[i * ld + j] * (out > 0 ? 1 : out * kept + 1);
    }
    __device__ struct pst_cu_pair put(int64_t i, int64_t j, float g) const
    {
        grad[i * ld + j] = g;
        return {(double)g, 0};
    }
};

struct add_element {
    float *x;
    const float *y;
    int64_t ld, ld_y;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        return x[i * ld + j] + y[i * ld_y + j];
    }
    __device__ void put(int64_t i, int64_t j, float sum) const
    {
        x[i * ld + j] = sum;
    }
};

/* IEEE half to single: a multiplication changes the exponent's bias, which is also right for subnormals. */
__device__ __forceinline__ float from_half(uint32_t half)
{
    const uint32_t magnitude = (half & 0x7FFF) << 13;
    const float rebased = __uint_as_float(magnitude) * __uint_as_float(0x77800000u); /* 2^112 */
    const float value = (half & 0x7C00) == 0x7C00 ? __uint_as_float(magnitude | 0x7F800000u) : rebased;
    return half & 0x8000 ? -value : value;
}

struct widen {
    const char *src;
    uint64_t stride;
    bool bfloat;
    float *out;
    int64_t ld;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        const uint32_t bits = reinterpret_cast<const uint16_t *>(src + (uint64_t)i * stride)[j];
        return bfloat ? __uint_as_float(bits << 16) : from_half(bits);
    }
    __device__ void put(int64_t i, int64_t j, float wide) const
    {
        out[i * ld + j] = wide;
    }
};
} // namespace

void pst_k_bias_relu_dropout(struct pst_queue *q, float *x, int64_t ld, const float *bias,
                             const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                             const struct pst_dropout *drop)
{
    assert(n >= 0 && dim >= 0 && ld >= dim);
    const activation f = {x, ld, bias, vertices, n, dim, relu, mask_of(drop)};
    if (bias || relu || f.drop.on)
        launch_forward(q, f);
}

void pst_k_bias_relu_dropout_grad(struct pst_queue *q, float *grad, int64_t ld_grad, const float *y,
                                  int64_t ld_y, const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                  const struct pst_dropout *drop, float *grad_bias)
{
    assert(n >= 0 && dim >= 0 && ld_grad >= dim);
    const mask kept = mask_of(drop);
    pst_cu_begin(q);
    if (kept.on && !relu) /* y does not show what was dropped, so it is drawn again */
        launch_forward(q, {grad, ld_grad, NULL, vertices, n, dim, false, kept});
    const backward f = {grad, relu ? y : NULL, ld_grad, ld_y, kept.scale};
    if (grad_bias)
        pst_cu_columns(q, f, add_sum{grad_bias}, n, dim);
    else if (relu)
        pst_cu_each(q, f, n, dim);
}

void pst_k_bias_elu_dropout(struct pst_queue *q, float *x, int64_t ld, const float *bias,
                            const int64_t *vertices, int64_t n, int64_t dim, const struct pst_dropout *drop)
{
    assert(n >= 0 && dim >= 0 && ld >= dim);
    pst_cu_each(q, elu_element{x, ld, bias}, n, dim);
    pst_k_bias_relu_dropout(q, x, ld, NULL, vertices, n, dim, false, drop);
}

void pst_k_bias_elu_dropout_grad(struct pst_queue *q, float *grad, int64_t ld_grad, const float *y,
                                 int64_t ld_y, const int64_t *vertices, int64_t n, int64_t dim,
                                 const struct pst_dropout *drop, float *grad_bias)
{
    assert(n >= 0 && dim >= 0 && ld_grad >= dim && ld_y >= dim);
    const elu_backward f = {grad, y, ld_grad, ld_y, (float)(1 - pst_dropout_share(drop->rate))};
    pst_k_bias_relu_dropout_grad(q, grad, ld_grad, NULL, 0, vertices, n, dim, false, drop, NULL);
    pst_cu_begin(q);
    if (grad_bias)
        pst_cu_columns(q, f, add_sum{grad_bias}, n, dim);
    else
        pst_cu_each(q, f, n, dim);
}

void pst_k_add(struct pst_queue *q, float *x, int64_t ld, const float *y, int64_t ld_y, int64_t n,
               int64_t dim)
{
    assert(n >= 0 && dim >= 0 && ld >= dim && ld_y >= dim);
    pst_cu_each(q, add_element{x, y, ld, ld_y}, n, dim);
}

void pst_k_widen(struct pst_queue *q, const void *src, uint64_t stride_bytes, bool bfloat, float *out,
                 int64_t ld, int64_t n, int64_t dim)
{
    assert(n >= 0 && dim >= 0 && ld >= dim && stride_bytes >= 2 * (uint64_t)dim);
    pst_cu_each(q, widen{static_cast<const char *>(src), stride_bytes, bfloat, out, ld}, n, dim);
}
