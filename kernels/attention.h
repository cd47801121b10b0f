/* attention.h: the random numbers of attention dropout, for both twins: 16 bits for each (v, u, head), where
 * u's row goes to v. Owner: none. Threads: any. */
#ifndef PST_ATTENTION_H
#define PST_ATTENTION_H

#include "common/util/rng.h"
#include "kernels/kernels.h"

enum { PST_GAT_HEADS_A_DRAW = 8 }; /* a draw has 128 bits */

static inline struct pst_rng_stream pst_gat_stream(const struct pst_dropout *drop)
{
    return pst_rng_stream_of(PST_RNG_ATTENTION, drop->seed, drop->epoch, drop->batch, drop->layer);
}

/* The stream of destination v. */
static PST_HD struct pst_rng_stream pst_gat_stream_of(const struct pst_rng_stream *layer, int64_t v)
{
    const struct pst_rng_block draw = pst_rng_draw(layer, (uint64_t)v, 0);
    const struct pst_rng_stream stream = {{draw.word[0], draw.word[1]}, draw.word[2]};
    return stream;
}

/* The draw that decides heads 8 group .. 8 group + 7 of u's row. */
static PST_HD struct pst_rng_block pst_gat_draw(const struct pst_rng_stream *of_v, int64_t u, uint32_t group)
{
    return pst_rng_draw(of_v, (uint64_t)u, group);
}

/* Is a head's coefficient dropped? threshold: the dropped share times 65536. */
static PST_HD bool pst_gat_drops(const struct pst_rng_block *draw, uint32_t head, uint32_t threshold)
{
    const uint32_t *w = draw->word, pair = head % PST_GAT_HEADS_A_DRAW / 2;
    const uint32_t word = pair == 0 ? w[0] : pair == 1 ? w[1] : pair == 2 ? w[2] : w[3]; /* in registers */
    return (head % 2 ? word >> 16 : word & 0xFFFFu) < threshold;
}

/* What kept coefficients are multiplied with, so that the mean stays. */
static inline double pst_gat_scale(const struct pst_dropout *drop)
{
    return 1.0 / (1.0 - pst_dropout_share(drop->rate));
}

#endif
