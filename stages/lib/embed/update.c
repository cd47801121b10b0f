/* update.c: optimizers, row by row, and initial values. Adagrad: Duchi et al., JMLR 2011. */
#include "stages/lib/embed/embed.h"
#include "common/util/rng.h"

#include <math.h>

static const pst_real ADAGRAD_EPSILON = (pst_real)1e-10;

static pst_real root(pst_real x)
{
    return _Generic(x, float : sqrtf, double : sqrt)(x);
}

int64_t pst_embed_state_floats(enum pst_embed_optimizer o, int64_t d)
{
    switch (o) {
    case PST_EMBED_ADAGRAD: return d;
    case PST_EMBED_ADAGRAD_ROW: return 1;
    case PST_EMBED_SGD: return 0;
    case PST_EMBED_ADAM: return 2 * d;
    }
    return 0;
}

static void adagrad(pst_real *x, pst_real *state, const pst_real *grad, int64_t d, pst_real lr)
{
    for (int64_t i = 0; i < d; i++) {
        state[i] += grad[i] * grad[i];
        x[i] -= lr * grad[i] / (root(state[i]) + ADAGRAD_EPSILON);
    }
}

static void adagrad_row(pst_real *x, pst_real *state, const pst_real *grad, int64_t d, pst_real lr)
{
    pst_real sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += grad[i] * grad[i];
    state[0] += sum / (pst_real)d;
    const pst_real rate = lr / (root(state[0]) + ADAGRAD_EPSILON);
    for (int64_t i = 0; i < d; i++)
        x[i] -= rate * grad[i];
}

static void adam(pst_real *x, pst_real *state, const pst_real *grad, int64_t d, pst_real lr, uint64_t step)
{
    const pst_real b1 = (pst_real)0.9, b2 = (pst_real)0.999, epsilon = (pst_real)1e-8;
    const pst_real c1 = (pst_real)(1 - pow(0.9, (double)step)), c2 = (pst_real)(1 - pow(0.999, (double)step));
    pst_real *m = state, *v = state + d;
    for (int64_t i = 0; i < d; i++) {
        m[i] = b1 * m[i] + (1 - b1) * grad[i];
        v[i] = b2 * v[i] + (1 - b2) * grad[i] * grad[i];
        x[i] -= lr * (m[i] / c1) / (root(v[i] / c2) + epsilon);
    }
}

void pst_embed_update(enum pst_embed_optimizer o, pst_real *x, pst_real *state, const pst_real *grad,
                      int64_t d, pst_real lr, uint64_t step)
{
    switch (o) {
    case PST_EMBED_ADAGRAD: adagrad(x, state, grad, d, lr); return;
    case PST_EMBED_ADAGRAD_ROW: adagrad_row(x, state, grad, d, lr); return;
    case PST_EMBED_ADAM: adam(x, state, grad, d, lr, step); return;
    case PST_EMBED_SGD:
        for (int64_t i = 0; i < d; i++)
            x[i] -= lr * grad[i];
    }
}

void pst_embed_init(uint64_t seed, uint32_t table, pst_real scale, int64_t first, int64_t rows, int64_t d,
                    pst_real *out)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_INIT, seed, 0, 0, table);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < d; c += 4) {
            const struct pst_rng_block draw =
                pst_rng_draw(&stream, (uint64_t)(first + row), (uint32_t)(c / 4));
            for (int64_t i = c; i < d && i < c + 4; i++)
                out[row * d + i] = scale * (pst_real)(2 * pst_rng_unit(draw.word[i - c]) - 1);
        }
}
