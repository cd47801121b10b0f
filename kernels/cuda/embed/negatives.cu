/* negatives.cu: draws negatives as rows of a table. A thread draws one; the numbers are counter-based, so
 * they are the CPU's. */
#include "kernels/cuda/embed/embed.cuh"

namespace
{
struct drawing {
    pst_k_embed_draws d;
    uint32_t *to[2];
};

/* The row of vertex i of the ranges: the last range that begins at or before it and is not empty. */
__device__ __forceinline__ uint32_t row_of(const pst_k_embed_draws &d, int64_t i)
{
    int64_t low = 0;
    for (int64_t n = d.ranges; n > 1;) {
        const int64_t half = n / 2;
        low += d.before[low + half] <= i ? half : 0;
        n -= half;
    }
    return d.first[low] + (uint32_t)(i - d.before[low]);
}

__global__ void __launch_bounds__(PST_CU_THREADS) draw_all(drawing f)
{
    const pst_k_embed_draws &d = f.d;
    const int64_t lists = 2 * d.chunks;
    for (int64_t at = pst_cu_first(); at < lists * d.negatives; at += pst_cu_step()) {
        const int64_t list = at / d.negatives, k = at % d.negatives;
        const bool side = list % 2 != 0;
        /* an index that the compiler does not know would need a copy of the arrays on the stack */
        const uint32_t *end = side ? d.end[1] : d.end[0];
        uint32_t *to = (side ? f.to[1] : f.to[0]) + list / 2 * d.negatives + k;
        if (d.all) {
            *to = row_of(d, k);
            continue;
        }
        const struct pst_rng_stream stream =
            pst_rng_stream_of(PST_RNG_NEGATIVE, d.seed, d.epoch, d.batch, (uint32_t)list);
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)k, 0);
        const uint64_t bits = pst_rng_u64(&draw, 0);
        *to = k < d.drawn ? end[pst_rng_bounded(bits, (uint64_t)d.edges)]
                          : row_of(d, (int64_t)pst_rng_bounded(bits, (uint64_t)d.before[d.ranges]));
    }
}
} // namespace

void pst_k_embed_negatives(struct pst_queue *q, const struct pst_k_embed_draws *d, uint32_t *const to[2])
{
    assert(d->chunks >= 1 && (!d->all || d->chunks == 1) && d->negatives >= 1 && d->ranges >= 1);
    pst_cu_on(q, pst_cu_grid(q, 2 * d->chunks * d->negatives, PST_CU_THREADS))(draw_all,
                                                                               drawing{*d, {to[0], to[1]}});
}
