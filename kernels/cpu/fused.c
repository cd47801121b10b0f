/* fused.c: what is done to activations row by row (kernels.h): bias, ReLU and dropout in one pass and its
 * gradient, sums, and widening of 16-bit rows. Columns go in panels of one Philox call a lane. */
#include "../kernels.h"
#include "../rng.h"
#include "clones.h"

#include <string.h>

enum {
    LANES = 64,        /* Philox calls side by side: enough for rows of usual widths in one go */
    PANEL = 4 * LANES, /* columns that they decide */
};

struct mask {
    struct pst_stream stream;
    uint32_t threshold; /* a column is dropped if its 32 bits are below */
    pst_real scale;     /* what is kept is multiplied by this, so that the mean stays */
    bool on;
};

static struct mask mask_of(const struct pst_dropout *drop)
{
    assert(drop->rate >= 0 && drop->rate < 1);
    struct mask mask = {.scale = 1, .on = drop->rate > 0};
    mask.stream = pst_stream_of(PST_RNG_DROPOUT, drop->seed, drop->epoch, drop->batch, drop->layer);
    mask.threshold = (uint32_t)((double)drop->rate * 4294967296.0);
    if (mask.on)
        mask.scale = (pst_real)(1.0 / (1.0 - (double)drop->rate));
    return mask;
}

/* One round of Philox in every lane; the four words of a lane are apart. */
PST_INLINE void round_of(uint32_t *restrict w0, uint32_t *restrict w1, uint32_t *restrict w2,
                         uint32_t *restrict w3, int64_t lanes, uint32_t key0, uint32_t key1)
{
    for (int64_t i = 0; i < lanes; i++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * w0[i];
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * w2[i];
        w0[i] = (uint32_t)(p1 >> 32) ^ w1[i] ^ key0;
        w2[i] = (uint32_t)(p0 >> 32) ^ w3[i] ^ key1;
        w1[i] = (uint32_t)p1;
        w3[i] = (uint32_t)p0;
    }
}

/* factor[c] of columns panel * PANEL + c, c < width, of one vertex: 0 or the scale. The lanes are
 * pst_draw(), abreast; how many there are is left open so that the compiler makes vectors of them. */
PST_INLINE void draw_panel(const struct mask *mask, uint64_t vertex, uint32_t panel, int64_t width,
                           pst_real *restrict factor)
{
    uint32_t w0[LANES], w1[LANES], w2[LANES], w3[LANES];
    const int64_t lanes = (width + 3) / 4;
    for (int64_t i = 0; i < lanes; i++) {
        w0[i] = (uint32_t)vertex;
        w1[i] = (uint32_t)(vertex >> 32);
        w2[i] = panel * LANES + (uint32_t)i;
        w3[i] = mask->stream.salt;
    }
    uint32_t key0 = mask->stream.key[0], key1 = mask->stream.key[1];
    for (int round = 0; round < 10; round++) {
        round_of(w0, w1, w2, w3, lanes, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const uint32_t threshold = mask->threshold;
    const pst_real scale = mask->scale;
    for (int64_t i = 0; i < lanes; i++) {
        factor[4 * i] = w0[i] < threshold ? 0 : scale;
        factor[4 * i + 1] = w1[i] < threshold ? 0 : scale;
        factor[4 * i + 2] = w2[i] < threshold ? 0 : scale;
        factor[4 * i + 3] = w3[i] < threshold ? 0 : scale;
    }
}

/* A NaN must stay one, so that a diverging run is noticed: hence not (v > 0 ? v : 0). */
PST_INLINE void forward_panel(pst_real *restrict x, const pst_real *restrict bias, int64_t width, bool relu,
                              const struct mask *mask, uint64_t vertex, uint32_t panel)
{
    if (bias)
        for (int64_t j = 0; j < width; j++)
            x[j] += bias[j];
    if (relu)
        for (int64_t j = 0; j < width; j++)
            x[j] = x[j] < 0 ? 0 : x[j];
    if (mask->on) {
        pst_real factor[PANEL];
        draw_panel(mask, vertex, panel, width, factor);
        for (int64_t j = 0; j < width; j++)
            x[j] *= factor[j];
    }
}

PST_CLONES static void forward(pst_real *x, int64_t ld, const pst_real *bias, const int64_t *vertices,
                               int64_t n, int64_t dim, bool relu, const struct mask *mask)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t at = 0; at < dim; at += PANEL) {
            const uint64_t vertex = mask->on ? (uint64_t)vertices[i] : 0;
            forward_panel(x + i * ld + at, bias ? bias + at : NULL, pst_min_i64(PANEL, dim - at), relu, mask,
                          vertex, (uint32_t)(at / PANEL));
        }
    }
}

void pst_k_bias_relu_dropout(struct pst_queue *q, pst_real *x, int64_t ld, const pst_real *bias,
                             const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                             const struct pst_dropout *drop)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim);
    (void)q;
    const struct mask mask = mask_of(drop);
    if (bias || relu || mask.on)
        forward(x, ld, bias, vertices, n, dim, relu, &mask);
}

PST_INLINE void backward_panel(pst_real *restrict grad, const pst_real *restrict y, int64_t width, bool relu,
                               const struct mask *mask, uint64_t vertex, uint32_t panel)
{
    if (relu) { /* y > 0: kept and above zero */
        for (int64_t j = 0; j < width; j++)
            grad[j] = y[j] > 0 ? grad[j] * mask->scale : 0;
    } else if (mask->on) {
        pst_real factor[PANEL];
        draw_panel(mask, vertex, panel, width, factor);
        for (int64_t j = 0; j < width; j++)
            grad[j] *= factor[j];
    }
}

/* Panel by panel, so that the sums of a panel's columns stay in registers, in double precision. */
PST_CLONES static void backward(pst_real *grad, int64_t ld, const pst_real *y, int64_t ld_y,
                                const int64_t *vertices, int64_t n, int64_t dim, bool relu,
                                const struct mask *mask, pst_real *grad_bias)
{
    for (int64_t at = 0; at < dim; at += PANEL) {
        const int64_t width = pst_min_i64(PANEL, dim - at);
        double sum[PANEL] = {0};
        for (int64_t i = 0; i < n; i++) {
            pst_real *row = grad + i * ld + at;
            const uint64_t vertex = mask->on && !relu ? (uint64_t)vertices[i] : 0;
            backward_panel(row, relu ? y + i * ld_y + at : NULL, width, relu, mask, vertex,
                           (uint32_t)(at / PANEL));
            if (grad_bias)
                for (int64_t j = 0; j < width; j++)
                    sum[j] += (double)row[j];
        }
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
    if (relu || mask.on || grad_bias)
        backward(grad, ld_grad, y, ld_y, vertices, n, dim, relu, &mask, grad_bias);
}

PST_CLONES static void add(pst_real *x, int64_t ld, const pst_real *y, int64_t ld_y, int64_t n, int64_t dim)
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

PST_INLINE float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE half to single: the exponent is rebased by a multiplication, which gets subnormals right too. */
PST_INLINE float from_half(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7FFF) << 13;
    const float rebased = from_bits(magnitude) * from_bits(0x77800000u); /* 2^112 */
    uint32_t bits;
    memcpy(&bits, &rebased, sizeof bits);
    bits = (half & 0x7C00) == 0x7C00 ? magnitude | 0x7F800000u : bits; /* infinities and NaNs */
    return from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

PST_CLONES static void widen(const char *src, uint64_t stride, bool bfloat, pst_real *out, int64_t ld,
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
