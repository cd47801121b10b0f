/* optimizer.c: one step of an optimizer: Adam, AdamW, SGD; and clipping of gradients. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>
#include <tgmath.h>

struct factors {
    pst_real decay, keep, beta1, beta2, one_minus_beta1, one_minus_beta2, rate, root, eps;
};

PST_CPU_CLONES static void adam(const struct factors *f, pst_real *restrict w, const pst_real *restrict g,
                                pst_real *restrict m, pst_real *restrict v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const pst_real gradient = g[i] + f->decay * w[i];
        m[i] = f->beta1 * m[i] + f->one_minus_beta1 * gradient;
        v[i] = f->beta2 * v[i] + f->one_minus_beta2 * gradient * gradient;
        w[i] = f->keep * w[i] - f->rate * m[i] / (sqrt(v[i]) * f->root + f->eps);
    }
}

void pst_k_adam(struct pst_queue *q, const struct pst_adam *opt, pst_real *w, const pst_real *g, pst_real *m,
                pst_real *v, int64_t n)
{
    assert(q == NULL && n >= 0 && opt->step >= 1);
    (void)q;
    /* The bias corrections of both moments are the same for all parameters. */
    const double correct1 = 1 - pow(opt->beta1, (double)opt->step);
    const double correct2 = 1 - pow(opt->beta2, (double)opt->step);
    const struct factors f = {
        .decay = (pst_real)(opt->decoupled ? 0 : opt->weight_decay),
        .keep = (pst_real)(opt->decoupled ? 1 - opt->rate * opt->weight_decay : 1),
        .beta1 = (pst_real)opt->beta1,
        .beta2 = (pst_real)opt->beta2,
        .one_minus_beta1 = (pst_real)(1 - opt->beta1),
        .one_minus_beta2 = (pst_real)(1 - opt->beta2),
        .rate = (pst_real)(opt->rate / correct1),
        .root = (pst_real)(1 / sqrt(correct2)),
        .eps = (pst_real)opt->eps,
    };
    adam(&f, w, g, m, v, n);
}

PST_CPU_CLONES static void sgd(pst_real rate, pst_real momentum, pst_real decay, bool nesterov,
                               pst_real *restrict w, const pst_real *restrict g, pst_real *restrict m,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const pst_real gradient = g[i] + decay * w[i];
        m[i] = momentum * m[i] + gradient;
        w[i] -= rate * (nesterov ? gradient + momentum * m[i] : m[i]);
    }
}

void pst_k_sgd(struct pst_queue *q, const struct pst_sgd *opt, pst_real *w, const pst_real *g, pst_real *m,
               int64_t n)
{
    assert(q == NULL && n >= 0);
    (void)q;
    sgd((pst_real)opt->rate, (pst_real)opt->momentum, (pst_real)opt->weight_decay, opt->nesterov, w, g, m, n);
}

enum { LANES = 16 }; /* sums that are made side by side, so the order is the same on all instruction sets */

PST_CPU_CLONES static double square_sum(const pst_real *restrict x, int64_t n)
{
    double sum[LANES] = {0};
    int64_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (int i = 0; i < LANES; i++)
            sum[i] += (double)x[at + i] * (double)x[at + i];
    for (int i = 0; at + i < n; i++)
        sum[i] += (double)x[at + i] * (double)x[at + i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

void pst_k_square_sum(struct pst_queue *q, const pst_real *x, int64_t n, double *sum)
{
    assert(q == NULL && n >= 0);
    (void)q;
    *sum = square_sum(x, n);
}

void pst_k_clip(struct pst_queue *q, pst_real *x, int64_t n, const double *square, double most)
{
    assert(q == NULL && n >= 0 && most > 0);
    (void)q;
    const double share = most / (sqrt(*square) + PST_NORM_CLIP_EPS);
    const pst_real scale = (pst_real)share;
    for (int64_t i = 0; i < n && !(share >= 1); i++)
        x[i] *= scale;
}
