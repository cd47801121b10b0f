/* adam.c: one step of the Adam optimizer. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>
#include <tgmath.h>

struct factors {
    pst_real decay, beta1, beta2, one_minus_beta1, one_minus_beta2, rate, root, eps;
};

PST_CPU_CLONES static void step(const struct factors *f, pst_real *restrict w, const pst_real *restrict g,
                                pst_real *restrict m, pst_real *restrict v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const pst_real gradient = g[i] + f->decay * w[i];
        m[i] = f->beta1 * m[i] + f->one_minus_beta1 * gradient;
        v[i] = f->beta2 * v[i] + f->one_minus_beta2 * gradient * gradient;
        w[i] -= f->rate * m[i] / (sqrt(v[i]) * f->root + f->eps);
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
        .decay = (pst_real)opt->weight_decay,
        .beta1 = (pst_real)opt->beta1,
        .beta2 = (pst_real)opt->beta2,
        .one_minus_beta1 = (pst_real)(1 - opt->beta1),
        .one_minus_beta2 = (pst_real)(1 - opt->beta2),
        .rate = (pst_real)(opt->rate / correct1),
        .root = (pst_real)(1 / sqrt(correct2)),
        .eps = (pst_real)opt->eps,
    };
    step(&f, w, g, m, v, n);
}
