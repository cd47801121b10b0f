/* embed_negatives.c: draws negatives as rows of a table. */
#include "kernels/embedding.h"

/* The row of vertex i of the ranges. */
static uint32_t row_of(const struct pst_k_embed_draws *d, int64_t i)
{
    int64_t range = 0;
    while (i >= d->before[range + 1])
        range++;
    return d->first[range] + (uint32_t)(i - d->before[range]);
}

static void draw_side(const struct pst_k_embed_draws *d, int64_t chunk, int side, uint32_t *to)
{
    const struct pst_rng_stream stream =
        pst_rng_stream_of(PST_RNG_NEGATIVE, d->seed, d->epoch, d->batch, (uint32_t)(2 * chunk + side));
    for (int64_t k = 0; k < d->negatives; k++) {
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)k, 0);
        const uint64_t bits = pst_rng_u64(&draw, 0);
        to[k] = d->all         ? row_of(d, k)
                : k < d->drawn ? d->end[side][pst_rng_bounded(bits, (uint64_t)d->edges)]
                               : row_of(d, (int64_t)pst_rng_bounded(bits, (uint64_t)d->before[d->ranges]));
    }
}

void pst_k_embed_negatives(struct pst_queue *q, const struct pst_k_embed_draws *d, uint32_t *const to[2])
{
    assert(q == NULL && d->chunks >= 1 && (!d->all || d->chunks == 1) && d->ranges >= 1);
    assert(!d->all || d->negatives <= d->before[d->ranges]);
    (void)q;
    for (int64_t chunk = 0; chunk < d->chunks; chunk++)
        for (int side = 0; side < 2; side++)
            draw_side(d, chunk, side, to[side] + chunk * d->negatives);
}
