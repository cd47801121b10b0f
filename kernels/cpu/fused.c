/* fused.c: operations on activations, row by row: bias, ReLU and dropout in one pass, its gradient, ELU in
 * place of ReLU, sums, and widening of 16-bit rows. */
#include "common/util/rng.h"
#include "kernels/cpu/exp.h"

#include <string.h>

enum {
    LANES = 16,                /* Philox calls side by side: each word fills one AVX-512 vector */
    PIECES = 8,                /* numbers of 16 bits that one call gives */
    GROUP = PST_DROPOUT_GROUP, /* columns that a group of calls decides */
    PANEL = 256,               /* columns whose sums are kept at once */
};
_Static_assert(GROUP == LANES * PIECES, "one call's bits for each lane");

struct mask {
    struct pst_rng_stream stream;
    uint32_t threshold; /* a column is dropped if its 16 bits, shifted up by 16, are below this */
    pst_real scale;     /* kept values are multiplied by this, so that the mean stays */
    bool on;
};

/* The rate in units of 1/65536: at least 1 if it is above 0, and never all. */
static struct mask mask_of(const struct pst_dropout *drop)
{
    assert(drop->rate >= 0 && drop->rate < 1);
    struct mask mask = {.scale = 1, .on = drop->rate > 0};
    mask.stream = pst_rng_stream_of(PST_RNG_DROPOUT, drop->seed, drop->epoch, drop->batch, drop->layer);
    const double share = pst_dropout_share(drop->rate);
    mask.threshold = (uint32_t)(share * 65536.0) << 16;
    if (mask.on)
        mask.scale = (pst_real)(1.0 / (1.0 - share));
    return mask;
}

/* One round of Philox in every lane. Each of the four words has its own array. */
PST_CPU_INLINE void round_of(uint32_t w[4][LANES], uint32_t key0, uint32_t key1)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t hi0 = (uint32_t)(((uint64_t)0xD2511F53u * w[0][i]) >> 32), lo0 = 0xD2511F53u * w[0][i];
        const uint32_t hi1 = (uint32_t)(((uint64_t)0xCD9E8D57u * w[2][i]) >> 32), lo1 = 0xCD9E8D57u * w[2][i];
        w[0][i] = hi1 ^ w[1][i] ^ key0;
        w[2][i] = hi0 ^ w[3][i] ^ key1;
        w[1][i] = lo1;
        w[3][i] = lo0;
    }
}

/* pst_rng_draw() of one vertex and LANES successive blocks of columns. */
PST_CPU_INLINE void draw_group(const struct mask *mask, uint64_t vertex, uint32_t group, uint32_t w[4][LANES])
{
    for (int i = 0; i < LANES; i++) {
        w[0][i] = (uint32_t)vertex;
        w[1][i] = (uint32_t)(vertex >> 32);
        w[2][i] = group * LANES + (uint32_t)i;
        w[3][i] = mask->stream.salt;
    }
    uint32_t key0 = mask->stream.key[0], key1 = mask->stream.key[1];
    for (int round = 0; round < 10; round++) {
        round_of(w, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* In one group of a row's columns: x[j] = x[j] * scale if the column is kept, else 0. */
PST_CPU_INLINE void drop_group(pst_real *restrict x, int64_t width, const struct mask *mask, uint64_t vertex,
                               uint32_t group)
{
    uint32_t w[4][LANES];
    draw_group(mask, vertex, group, w);
    const uint32_t threshold = mask->threshold;
    const pst_real scale = mask->scale;
    int64_t piece = 0;
    for (; (piece + 1) * LANES <= width; piece++) {
        const int shift = piece % 2 ? 0 : 16;
        for (int i = 0; i < LANES; i++)
            x[piece * LANES + i] *= w[piece / 2][i] << shift < threshold ? 0 : scale;
    }
    for (int64_t j = piece * LANES; j < width; j++)
        x[j] *= w[piece / 2][j % LANES] << (piece % 2 ? 0 : 16) < threshold ? 0 : scale;
}

PST_CPU_INLINE void drop_row(pst_real *x, int64_t dim, const struct mask *mask, uint64_t vertex)
{
    for (int64_t at = 0; at < dim; at += GROUP)
        drop_group(x + at, pst_min_i64(GROUP, dim - at), mask, vertex, (uint32_t)(at / GROUP));
}

/* A NaN stays a NaN, so that a diverging run is noticed. (v > 0 ? v : 0) would hide it. */
PST_CPU_INLINE void add_and_clip(pst_real *restrict x, const pst_real *restrict bias, int64_t dim, bool relu)
{
    if (bias && relu) {
        for (int64_t j = 0; j < dim; j++)
            x[j] = x[j] + bias[j] < 0 ? 0 : x[j] + bias[j];
    } else if (bias) {
        for (int64_t j = 0; j < dim; j++)
            x[j] += bias[j];
    } else if (relu) {
        for (int64_t j = 0; j < dim; j++)
            x[j] = x[j] < 0 ? 0 : x[j];
    }
}

PST_CPU_CLONES static void forward(pst_real *x, int64_t ld, const pst_real *bias, const int64_t *vertices,
                                   int64_t n, int64_t dim, bool relu, const struct mask *mask)
{
    for (int64_t i = 0; i < n; i++) {
        add_and_clip(x + i * ld, bias, dim, relu);
        if (mask->on)
            drop_row(x + i * ld, dim, mask, (uint64_t)vertices[i]);
    }
}

#ifdef PST_REAL_IS_FLOAT
#include "kernels/cpu/fused_simd.h"

static bool has_512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static bool has_256(void)
{
    return __builtin_cpu_supports("avx2");
}
#endif

void pst_k_bias_relu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                             const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                             const struct pst_dropout *drop)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim);
    (void)q;
    const struct mask mask = mask_of(drop);
    if (!bias && !relu && !mask.on)
        return;
#ifdef PST_REAL_IS_FLOAT
    if (has_512()) {
        forward512(x, ld, bias, vertices, n, dim, relu, &mask);
        return;
    }
    if (has_256()) {
        forward256(x, ld, bias, vertices, n, dim, relu, &mask);
        return;
    }
#endif
    forward(x, ld, bias, vertices, n, dim, relu, &mask);
}

/* One panel of a row: the gradient passes where y > 0. The sums are in double precision. */
PST_CPU_INLINE void backward_panel(pst_real *restrict grad, const pst_real *restrict y, int64_t width,
                                   pst_real scale, double *restrict sum)
{
    if (y && sum) {
        for (int64_t j = 0; j < width; j++) {
            const pst_real g = y[j] > 0 ? grad[j] * scale : 0;
            grad[j] = g;
            sum[j] += (double)g;
        }
    } else if (y) {
        for (int64_t j = 0; j < width; j++)
            grad[j] = y[j] > 0 ? grad[j] * scale : 0;
    } else if (sum) {
        for (int64_t j = 0; j < width; j++)
            sum[j] += (double)grad[j];
    }
}

/* Goes panel by panel, so that the sums of its columns stay in registers. */
PST_CPU_CLONES static void backward(pst_real *grad, int64_t ld, const pst_real *y, int64_t ld_y,
                                    const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                    const struct mask *mask, pst_real *grad_bias)
{
    if (mask->on && !relu)
        for (int64_t i = 0; i < n; i++)
            drop_row(grad + i * ld, dim, mask, (uint64_t)vertices[i]);
    for (int64_t at = 0; at < dim; at += PANEL) {
        const int64_t width = pst_min_i64(PANEL, dim - at);
        double sum[PANEL] = {0};
        for (int64_t i = 0; i < n; i++)
            backward_panel(grad + i * ld + at, relu ? y + i * ld_y + at : NULL, width, mask->scale,
                           grad_bias ? sum : NULL);
        if (grad_bias)
            for (int64_t j = 0; j < width; j++)
                grad_bias[at + j] += (pst_real)sum[j];
    }
}

void pst_k_bias_relu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad, const pst_real *y,
                                  int64_t ld_y, const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                  const struct pst_dropout *drop, pst_real *grad_bias)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld_grad >= dim);
    (void)q;
    const struct mask mask = mask_of(drop);
    if (!relu && !mask.on && !grad_bias)
        return;
#ifdef PST_REAL_IS_FLOAT
    if (has_512() && (relu || !mask.on)) {
        backward512(grad, ld_grad, relu ? y : NULL, ld_y, n, dim, mask.scale, grad_bias);
        return;
    }
#endif
    backward(grad, ld_grad, y, ld_y, vertices, n, dim, relu, &mask, grad_bias);
}

/* ---- ELU ----------------------------------------------------------------------------------------- */

/* A NaN stays a NaN. */
PST_CPU_CLONES static void elu_forward(pst_real *x, int64_t ld, const pst_real *restrict bias, int64_t n,
                                       int64_t dim)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict row = x + i * ld;
        for (int64_t j = 0; bias && j < dim; j++)
            row[j] += bias[j];
        for (int64_t j = 0; j < dim; j++)
            row[j] = row[j] > 0 ? row[j] : PST_CPU_EXPM1(row[j] > 0 ? 0 : row[j]);
    }
}

void pst_k_bias_elu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                            const int64_t *vertices, int64_t n, int64_t dim, const struct pst_dropout *drop)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim);
    elu_forward(x, ld, bias, n, dim);
    pst_k_bias_relu_dropout(q, x, ld, NULL, vertices, n, dim, false, drop);
}

/* The slope of ELU at x is 1, or exp(x) = elu(x) + 1 if x is not positive. kept: the share that dropout
 * keeps; y was divided by it. */
PST_CPU_CLONES static void elu_backward(pst_real *grad, int64_t ld, const pst_real *y, int64_t ld_y,
                                        int64_t n, int64_t dim, pst_real kept, pst_real *grad_bias)
{
    for (int64_t at = 0; at < dim; at += PANEL) {
        const int64_t width = pst_min_i64(PANEL, dim - at);
        double sum[PANEL] = {0};
        for (int64_t i = 0; i < n; i++) {
            pst_real *restrict to = grad + i * ld + at;
            const pst_real *restrict from = y + i * ld_y + at;
            for (int64_t j = 0; j < width; j++) {
                to[j] *= from[j] > 0 ? 1 : from[j] * kept + 1;
                sum[j] += (double)to[j];
            }
        }
        for (int64_t j = 0; grad_bias && j < width; j++)
            grad_bias[at + j] += (pst_real)sum[j];
    }
}

void pst_k_bias_elu_dropout_grad(struct pst_queue *q, pst_real *grad, int64_t ld_grad, const pst_real *y,
                                 int64_t ld_y, const int64_t *vertices, int64_t n, int64_t dim,
                                 const struct pst_dropout *drop, pst_real *grad_bias)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld_grad >= dim && ld_y >= dim);
    pst_k_bias_relu_dropout_grad(q, grad, ld_grad, NULL, 0, vertices, n, dim, false, drop, NULL);
    elu_backward(grad, ld_grad, y, ld_y, n, dim, (pst_real)(1 - pst_dropout_share(drop->rate)), grad_bias);
}

/* ---- sums and 16-bit rows ------------------------------------------------------------------------ */

PST_CPU_CLONES static void add(pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y, int64_t n,
                               int64_t dim)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict to = x + i * ld;
        const pst_real *restrict from = y + i * ld_y;
        for (int64_t j = 0; j < dim; j++)
            to[j] += from[j];
    }
}

void pst_k_add(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y, int64_t n,
               int64_t dim)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim && ld_y >= dim);
    (void)q;
    add(x, ld, y, ld_y, n, dim);
}

PST_CPU_INLINE float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE half to single: a multiplication changes the exponent's bias, which is also right for subnormals. */
PST_CPU_INLINE float from_half(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7FFF) << 13;
    const float rebased = from_bits(magnitude) * from_bits(0x77800000u); /* 2^112 */
    uint32_t bits;
    memcpy(&bits, &rebased, sizeof bits);
    bits = (half & 0x7C00) == 0x7C00 ? magnitude | 0x7F800000u : bits; /* infinity or NaN */
    return from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

PST_CPU_CLONES static void widen(const char *src, uint64_t stride, bool bfloat, pst_real *out, int64_t ld,
                                 int64_t n, int64_t dim)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t *restrict row = (const uint16_t *)(const void *)(src + (uint64_t)i * stride);
        pst_real *restrict to = out + i * ld;
        if (bfloat) {
            for (int64_t j = 0; j < dim; j++)
                to[j] = from_bits((uint32_t)row[j] << 16);
        } else {
            for (int64_t j = 0; j < dim; j++)
                to[j] = from_half(row[j]);
        }
    }
}

void pst_k_widen(struct pst_queue *q, const void *src, uint64_t stride_bytes, bool bfloat, pst_real *out,
                 int64_t ld, int64_t n, int64_t dim)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim && stride_bytes >= 2 * (uint64_t)dim);
    (void)q;
    widen(src, stride_bytes, bfloat, out, ld, n, dim);
}
