/* shuffle.c: a permutation by a Feistel network (Luby & Rackoff 1988) over the next power of four, walking
 * the cycle until it falls below n (Black & Rogaway, CT-RSA 2002): every element alone, no scratch memory.
 * Elements walk side by side; one that has arrived makes room for the next. */
#include "kernels/kernels.h"
#include "common/util/rng.h"
#include "kernels/cpu/clones.h"

enum {
    ROUNDS = 8,  /* four are a permutation no one can tell from random; tiny domains want more */
    LANES = 256, /* elements on their way */
};

struct walk {
    uint32_t keys[ROUNDS];
    uint32_t half_bits;
    uint64_t n;
    int lanes; /* in use */
    uint32_t left[LANES], right[LANES];
    int64_t element[LANES];
};

/* Murmur3's finaliser: every bit of x reaches every bit of the result. */
PST_INLINE uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

/* One step of every lane: the whole network. */
PST_CLONES static void step(struct walk *w)
{
    const uint32_t mask = (uint32_t)(((uint64_t)1 << w->half_bits) - 1), down = 32 - w->half_bits;
    uint32_t *restrict left = w->left, *restrict right = w->right;
    for (int r = 0; r < ROUNDS; r++) {
        const uint32_t key = w->keys[r];
        for (int i = 0; i < LANES; i++) {
            const uint32_t next = left[i] ^ ((mix(right[i] * 0x9E3779B1u + key) >> down) & mask);
            left[i] = right[i];
            right[i] = next;
        }
    }
}

/* Lanes that have arrived are written and left; the others close up. */
static void arrive(struct walk *w, int64_t *perm)
{
    int kept = 0;
    for (int i = 0; i < w->lanes; i++) {
        const uint64_t x = (uint64_t)w->left[i] << w->half_bits | w->right[i];
        const int64_t element = w->element[i];
        perm[element] = (int64_t)x; /* one that has not arrived is written again */
        w->left[kept] = w->left[i];
        w->right[kept] = w->right[i];
        w->element[kept] = element;
        kept += x >= w->n;
    }
    w->lanes = kept;
}

void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n)
{
    assert(q == NULL && n >= 0);
    (void)q;
    struct walk w = {.half_bits = 1, .n = (uint64_t)n};
    while (w.half_bits < 31 && (uint64_t)1 << (2 * w.half_bits) < (uint64_t)n)
        w.half_bits++;
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SHUFFLE, seed, 0, epoch, 0);
    for (int r = 0; r < ROUNDS; r++)
        w.keys[r] = pst_rng_draw(&stream, (uint64_t)(r / 4), 0).word[r % 4];
    const uint64_t mask = ((uint64_t)1 << w.half_bits) - 1;
    int64_t next = 0;
    while (next < n || w.lanes > 0) {
        for (; w.lanes < LANES && next < n; w.lanes++, next++) {
            w.left[w.lanes] = (uint32_t)((uint64_t)next >> w.half_bits);
            w.right[w.lanes] = (uint32_t)((uint64_t)next & mask);
            w.element[w.lanes] = next;
        }
        step(&w);
        arrive(&w, perm);
    }
}
