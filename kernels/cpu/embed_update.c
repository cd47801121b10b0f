/* embed_update.c: optimizers, row by row. */
#include "kernels/cpu/clones.h"
#include "kernels/cpu/embed_rows.h"

#include <math.h>

PST_CPU_INLINE pst_real root(pst_real x)
{
    return _Generic(x, float : sqrtf, double : sqrt)(x);
}

PST_CPU_CLONES static void adagrad(pst_real *restrict x, pst_real *restrict state,
                                   const pst_real *restrict grad, int64_t d, pst_real rate)
{
    for (int64_t i = 0; i < d; i++) {
        state[i] += grad[i] * grad[i];
        x[i] -= rate * grad[i] / (root(state[i]) + (pst_real)PST_K_EMBED_ADAGRAD_EPS);
    }
}

static void adagrad_row(pst_real *x, pst_real *state, const pst_real *grad, int64_t d, pst_real rate)
{
    pst_real sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += grad[i] * grad[i];
    state[0] += sum / (pst_real)d;
    const pst_real by = rate / (root(state[0]) + (pst_real)PST_K_EMBED_ADAGRAD_EPS);
    for (int64_t i = 0; i < d; i++)
        x[i] -= by * grad[i];
}

PST_CPU_CLONES static void adam(pst_real *restrict x, pst_real *restrict state, const pst_real *restrict grad,
                                int64_t d, pst_real rate, uint64_t step)
{
    const pst_real b1 = (pst_real)PST_K_EMBED_ADAM_BETA1, b2 = (pst_real)PST_K_EMBED_ADAM_BETA2;
    const pst_real c1 = (pst_real)(1 - pow(PST_K_EMBED_ADAM_BETA1, (double)step));
    const pst_real c2 = (pst_real)(1 - pow(PST_K_EMBED_ADAM_BETA2, (double)step));
    pst_real *m = state, *v = state + d;
    for (int64_t i = 0; i < d; i++) {
        m[i] = b1 * m[i] + (1 - b1) * grad[i];
        v[i] = b2 * v[i] + (1 - b2) * grad[i] * grad[i];
        x[i] -= rate * (m[i] / c1) / (root(v[i] / c2) + (pst_real)PST_K_EMBED_ADAM_EPS);
    }
}

void pst_cpu_embed_update(const struct pst_k_embed_table *t, pst_real *x, pst_real *state,
                          const pst_real *grad)
{
    switch (t->optimizer) {
    case PST_K_EMBED_ADAGRAD: adagrad(x, state, grad, t->d, t->rate); return;
    case PST_K_EMBED_ADAGRAD_ROW: adagrad_row(x, state, grad, t->d, t->rate); return;
    case PST_K_EMBED_ADAM: adam(x, state, grad, t->d, t->rate, t->step); return;
    case PST_K_EMBED_SGD:
        for (int64_t i = 0; i < t->d; i++)
            x[i] -= t->rate * grad[i];
    }
}

void pst_k_embed_update(struct pst_queue *q, const struct pst_k_embed_table *t, const uint32_t *rows,
                        int64_t n, const pst_real *grad, bool packed)
{
    const int64_t state = pst_k_embed_state_floats(t->optimizer, t->d);
    assert(q == NULL && n >= 0 && t->d >= 1 && t->step >= 1);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = rows ? rows[i] : i;
        pst_cpu_embed_update(t, t->x + row * t->d, t->state + row * state, grad + (packed ? i : row) * t->d);
    }
}
