/* gat.c: attention: scores of a block's edges, their softmax, and the gradients of both (sums with these
 * coefficients are in weighted.c). Products are added up in 16 lanes, so the order of a sum is the same on
 * all instruction sets. */
#include "kernels/attention.h"
#include "kernels/cpu/exp.h"

enum {
    LANES = 16,
    PANEL = 256, /* columns whose sums are kept at once */
};

PST_CPU_INLINE pst_real dot(const pst_real *restrict a, const pst_real *restrict b, int64_t n)
{
    pst_real sum[LANES] = {0};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int i = 0; i < LANES; i++)
            sum[i] += a[j + i] * b[j + i];
    for (int i = 0; j + i < n; i++)
        sum[i] += a[j + i] * b[j + i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

PST_CPU_CLONES static void scores(const struct pst_gat *gat, const pst_real *z, int64_t ld, int64_t n,
                                  const pst_real *a, pst_real *score)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < gat->heads; h++)
            score[i * gat->heads + h] = dot(z + i * ld + h * gat->dim, a + h * gat->dim, gat->dim);
}

void pst_k_gat_scores(struct pst_queue *q, const struct pst_gat *gat, const pst_real *z, int64_t ld,
                      int64_t n, const pst_real *a, pst_real *score)
{
    assert(q == NULL && n >= 0 && ld >= gat->heads * gat->dim);
    (void)q;
    scores(gat, z, ld, n, a, score);
}

/* Columns at..at+width of all rows, which are of one head. */
PST_CPU_INLINE void scores_grad_panel(const pst_real *z, int64_t ld, int64_t n, int64_t width,
                                      const pst_real *restrict a, const pst_real *grad_score, int64_t heads,
                                      pst_real *grad_z, int64_t ld_grad, pst_real *restrict grad_a)
{
    double sum[PANEL] = {0};
    for (int64_t i = 0; i < n; i++) {
        const pst_real by = grad_score[i * heads];
        const pst_real *restrict from = z + i * ld;
        pst_real *restrict to = grad_z + i * ld_grad;
        for (int64_t j = 0; j < width; j++) {
            sum[j] += (double)(by * from[j]);
            to[j] += by * a[j];
        }
    }
    for (int64_t j = 0; j < width; j++)
        grad_a[j] += (pst_real)sum[j];
}

PST_CPU_CLONES static void scores_grad(const struct pst_gat *gat, const pst_real *z, int64_t ld, int64_t n,
                                       const pst_real *a, const pst_real *grad_score, pst_real *grad_z,
                                       int64_t ld_grad, pst_real *grad_a)
{
    for (int64_t h = 0; h < gat->heads; h++)
        for (int64_t at = 0; at < gat->dim; at += PANEL) {
            const int64_t c = h * gat->dim + at;
            scores_grad_panel(z + c, ld, n, pst_min_i64(PANEL, gat->dim - at), a + c, grad_score + h,
                              gat->heads, grad_z + c, ld_grad, grad_a + c);
        }
}

void pst_k_gat_scores_grad(struct pst_queue *q, const struct pst_gat *gat, const pst_real *z, int64_t ld,
                           int64_t n, const pst_real *a, const pst_real *grad_score, pst_real *grad_z,
                           int64_t ld_grad, pst_real *grad_a)
{
    assert(q == NULL && n >= 0 && ld >= gat->heads * gat->dim && ld_grad >= gat->heads * gat->dim);
    (void)q;
    scores_grad(gat, z, ld, n, a, grad_score, grad_z, ld_grad, grad_a);
}

/* ---- softmax ------------------------------------------------------------------------------------- */

struct attention {
    const struct pst_block *block;
    int64_t heads;
    const pst_real *left, *right;
    pst_real *alpha, *alpha_self;
};

PST_CPU_INLINE pst_real leaky(pst_real x)
{
    return x < 0 ? x * (pst_real)PST_GAT_SLOPE : x;
}

/* The scores of destination d, and the largest of each head. */
PST_CPU_INLINE void scores_of(const struct attention *a, int64_t d, pst_real most[PST_GAT_HEADS_MAX])
{
    const int64_t heads = a->heads;
    const pst_real *restrict left = a->left + d * heads, *restrict right =
                                                             a->right +
                                                             (a->alpha_self != NULL ? d * heads : 0);
    for (int64_t h = 0; h < heads; h++)
        most[h] = -(pst_real)INFINITY;
    for (int64_t h = 0; h < heads && a->alpha_self != NULL; h++)
        most[h] = a->alpha_self[d * heads + h] = leaky(left[h] + right[h]);
    for (int64_t e = a->block->indptr[d]; e < a->block->indptr[d + 1]; e++) {
        const pst_real *restrict other = a->right + a->block->indices[e] * heads;
        pst_real *restrict score = a->alpha + e * heads;
        for (int64_t h = 0; h < heads; h++) {
            score[h] = leaky(left[h] + other[h]);
            most[h] = score[h] > most[h] ? score[h] : most[h];
        }
    }
}

PST_CPU_INLINE void softmax_row(const struct attention *a, int64_t d)
{
    const int64_t heads = a->heads, begin = a->block->indptr[d], end = a->block->indptr[d + 1];
    const int64_t own = a->alpha_self != NULL ? heads : 0; /* coefficients of d itself */
    pst_real most[PST_GAT_HEADS_MAX], share[PST_GAT_HEADS_MAX];
    pst_real *self = own > 0 ? a->alpha_self + d * heads : NULL;
    double sum[PST_GAT_HEADS_MAX] = {0};
    scores_of(a, d, most);
    for (int64_t h = 0; h < own; h++)
        sum[h] = (double)(self[h] = PST_CPU_EXP(self[h] - most[h]));
    for (int64_t e = begin; e < end; e++)
        for (int64_t h = 0; h < heads; h++) {
            pst_real *at = a->alpha + e * heads + h;
            sum[h] += (double)(*at = PST_CPU_EXP(*at - most[h]));
        }
    for (int64_t h = 0; h < heads; h++)
        share[h] = (pst_real)(1 / sum[h]);
    for (int64_t h = 0; h < own; h++)
        self[h] *= share[h];
    for (int64_t e = begin; e < end; e++)
        for (int64_t h = 0; h < heads; h++)
            a->alpha[e * heads + h] *= share[h];
}

PST_CPU_CLONES static void softmax(const struct attention *a, int64_t first, int64_t n)
{
    for (int64_t d = first; d < first + n; d++)
        softmax_row(a, d);
}

/* Sets the sign bits of the coefficients of u's row that are dropped. */
static void drop_heads(const struct pst_rng_stream *of_v, int64_t u, int64_t heads, uint32_t threshold,
                       pst_real *alpha)
{
    for (int64_t h = 0; h < heads; h += PST_GAT_HEADS_A_DRAW) {
        const struct pst_rng_block draw = pst_gat_draw(of_v, u, (uint32_t)(h / PST_GAT_HEADS_A_DRAW));
        for (int64_t k = h; k < heads && k < h + PST_GAT_HEADS_A_DRAW; k++)
            if (pst_gat_drops(&draw, (uint32_t)k, threshold))
                alpha[k] = -alpha[k];
    }
}

static void drop_row(const struct attention *a, int64_t d, const int64_t *vertices,
                     const struct pst_rng_stream *layer, uint32_t threshold)
{
    const struct pst_rng_stream of_v = pst_gat_stream_of(layer, vertices[d]);
    if (a->alpha_self != NULL)
        drop_heads(&of_v, vertices[d], a->heads, threshold, a->alpha_self + d * a->heads);
    for (int64_t e = a->block->indptr[d]; e < a->block->indptr[d + 1]; e++)
        drop_heads(&of_v, vertices[a->block->indices[e]], a->heads, threshold, a->alpha + e * a->heads);
}

void pst_k_gat_softmax(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                       int64_t first, int64_t n, const pst_real *left, const pst_real *right,
                       const int64_t *vertices, const struct pst_dropout *drop, pst_real *alpha,
                       pst_real *alpha_self)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= block->dsts);
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX && drop->rate >= 0 && drop->rate < 1);
    assert(alpha_self != NULL || drop->rate == 0);
    (void)q;
    const struct attention a = {block, gat->heads, left, right, alpha, alpha_self};
    const struct pst_rng_stream layer = pst_gat_stream(drop);
    const uint32_t threshold = (uint32_t)(pst_dropout_share(drop->rate) * 65536.0);
    softmax(&a, first, n);
    for (int64_t d = first; threshold > 0 && d < first + n; d++)
        drop_row(&a, d, vertices, &layer, threshold);
}

/* ---- the gradient of the softmax ------------------------------------------------------------------ */

struct attention_grad {
    const struct pst_block *block;
    const struct pst_gat *gat;
    const pst_real *left, *right, *alpha, *alpha_self, *z, *grad_out;
    int64_t ld_z, ld_out;
    pst_real scale; /* of coefficients that are not dropped, in out */
    pst_real *grad_score, *grad_self, *grad_left;
};

/* The gradient of the coefficients of one source. */
PST_CPU_INLINE void products_of(const struct attention_grad *a, int64_t d, int64_t source,
                                const pst_real *alpha, pst_real *grad)
{
    const int64_t dim = a->gat->dim;
    for (int64_t h = 0; h < a->gat->heads; h++) {
        const pst_real *from = a->grad_out + d * a->ld_out + (a->gat->average ? 0 : h * dim);
        grad[h] = signbit(alpha[h]) ? 0 : dot(from, a->z + source * a->ld_z + h * dim, dim) * a->scale;
    }
}

/* Goes from the gradient of one source's coefficients to that of its scores. */
PST_CPU_INLINE void finish_source(const struct attention_grad *a, int64_t d, int64_t source,
                                  const pst_real *alpha, const double *total, pst_real *grad, double *left)
{
    const int64_t heads = a->gat->heads;
    for (int64_t h = 0; h < heads; h++) {
        const bool below = a->left[d * heads + h] + a->right[source * heads + h] < 0;
        const pst_real score = (pst_real)fabs((double)alpha[h]) * (grad[h] - (pst_real)total[h]);
        grad[h] = below ? score * (pst_real)PST_GAT_SLOPE : score;
        left[h] += (double)grad[h];
    }
}

PST_CPU_CLONES static void softmax_grad(const struct attention_grad *a, int64_t first, int64_t n)
{
    const int64_t heads = a->gat->heads;
    for (int64_t d = first; d < first + n; d++) {
        double total[PST_GAT_HEADS_MAX] = {0}, left[PST_GAT_HEADS_MAX] = {0};
        const int64_t begin = a->block->indptr[d], end = a->block->indptr[d + 1];
        const int32_t *indices = a->block->indices;
        const bool own = a->alpha_self != NULL;
        const pst_real *self = own ? a->alpha_self + d * heads : NULL;
        pst_real *grad = own ? a->grad_self + d * heads : NULL;
        if (own)
            products_of(a, d, d, self, grad);
        for (int64_t h = 0; own && h < heads; h++)
            total[h] = fabs((double)self[h]) * (double)grad[h];
        for (int64_t e = begin; e < end; e++) {
            products_of(a, d, indices[e], a->alpha + e * heads, a->grad_score + e * heads);
            for (int64_t h = 0; h < heads; h++)
                total[h] += fabs((double)a->alpha[e * heads + h]) * (double)a->grad_score[e * heads + h];
        }
        if (own)
            finish_source(a, d, d, self, total, grad, left);
        for (int64_t e = begin; e < end; e++)
            finish_source(a, d, indices[e], a->alpha + e * heads, total, a->grad_score + e * heads, left);
        for (int64_t h = 0; h < heads; h++)
            a->grad_left[d * heads + h] = (pst_real)left[h];
    }
}

void pst_k_gat_softmax_grad(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                            int64_t first, int64_t n, const pst_real *left, const pst_real *right,
                            const pst_real *alpha, const pst_real *alpha_self, const struct pst_dropout *drop,
                            const pst_real *z, int64_t ld_z, const pst_real *grad_out, int64_t ld_out,
                            pst_real *grad_score, pst_real *grad_self, pst_real *grad_left)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= block->dsts);
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    (void)q;
    const double scale = pst_gat_scale(drop) / (gat->average ? (double)gat->heads : 1.0);
    const struct attention_grad a = {.block = block,
                                     .gat = gat,
                                     .left = left,
                                     .right = right,
                                     .alpha = alpha,
                                     .alpha_self = alpha_self,
                                     .z = z,
                                     .grad_out = grad_out,
                                     .ld_z = ld_z,
                                     .ld_out = ld_out,
                                     .scale = (pst_real)scale,
                                     .grad_score = grad_score,
                                     .grad_self = grad_self,
                                     .grad_left = grad_left};
    softmax_grad(&a, first, n);
}
