/* update.c: updates of single rows, and initial values. */
#include "stages/lib/embed/embed.h"
#include "common/util/rng.h"
#include "kernels/cpu/embed_rows.h"

void pst_embed_update(enum pst_k_embed_optimizer o, pst_real *x, pst_real *state, const pst_real *grad,
                      int64_t d, pst_real lr, uint64_t step)
{
    const struct pst_k_embed_table row = {o, lr, step, d, x, state};
    pst_cpu_embed_update(&row, x, state, grad);
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
