/* shuffle.c: a Feistel network as a permutation of 0..n-1. */
#include "common/store/make/shuffle.h"

#include "common/store/make/gen_random.h"

void pst_shuffle_init(struct pst_shuffle *s, int64_t n, uint64_t seed, int stream)
{
    assert(n >= 0 && n <= INT64_MAX / 32);
    *s = (struct pst_shuffle){.n = (uint64_t)n, .half = 1};
    while ((int64_t)1 << (2 * s->half) < n)
        s->half++;
    for (uint32_t round = 0; round < PST_SHUFFLE_ROUNDS; round++) {
        struct pst_rng_block d = pst_gen_draw(seed, (enum pst_gen_use)stream, 0, round);
        s->key[round] = (uint64_t)d.word[0] << 32 | d.word[1];
    }
}

/* Mixes all bits into all: the finalizer of MurmurHash3. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

int64_t pst_shuffle_at(const struct pst_shuffle *s, int64_t i)
{
    assert(i >= 0 && (uint64_t)i < s->n);
    uint64_t mask = ((uint64_t)1 << s->half) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> s->half, right = x & mask;
        for (int round = 0; round < PST_SHUFFLE_ROUNDS; round++) {
            uint64_t next = left ^ (mix(right + s->key[round]) & mask);
            left = right;
            right = next;
        }
        x = left << s->half | right;
    } while (x >= s->n);
    return (int64_t)x;
}
