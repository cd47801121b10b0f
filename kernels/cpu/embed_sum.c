/* embed_sum.c: rows of a table: sums of their gradients, and negatives that are drawn from them. */
#include "kernels/embedding.h"

#include <string.h>

/* Inserts a row into an ascending list of *n, unless it is there. */
static void insert(uint32_t *touched, int64_t *n, uint32_t row)
{
    int64_t at = *n;
    while (at > 0 && touched[at - 1] > row)
        at--;
    if (at > 0 && touched[at - 1] == row)
        return;
    memmove(touched + at + 1, touched + at, (size_t)(*n - at) * sizeof *touched);
    touched[at] = row;
    ++*n;
}

/* Where the sum of a row is. */
static int64_t place_of(const uint32_t *touched, int64_t n, uint32_t row)
{
    int64_t low = 0;
    while (touched && n > 1) {
        const int64_t half = n / 2;
        low += touched[low + half] <= row ? half : 0;
        n -= half;
    }
    return touched ? low : row;
}

void pst_k_embed_sum(struct pst_queue *q, int64_t n, const uint32_t *row, const pst_real *from, int64_t rows,
                     int64_t width, pst_real *to, uint32_t *touched, int64_t *touched_n)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX && rows >= 0 && width >= 0);
    (void)q;
    int64_t sums = touched ? 0 : rows;
    for (int64_t i = 0; i < n && touched; i++)
        insert(touched, &sums, row[i]);
    if (touched)
        *touched_n = sums;
    memset(to, 0, (size_t)(sums * width) * sizeof *to);
    for (int64_t i = 0; i < n; i++) {
        assert(row[i] < rows);
        const int64_t at = place_of(touched, sums, row[i]);
        for (int64_t c = 0; c < width; c++)
            to[at * width + c] += from[i * width + c];
    }
}

/* ---- negatives ---- */

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
