/* feistel.h: the Feistel network of pst_k_shuffle (Luby & Rackoff 1988), which both twins walk: a permutation
 * of [0, 4^half_bits). A number that is not below n is put through the network again until one is (cycle
 * walking: Black & Rogaway, CT-RSA 2002). So each element is found by itself, without a table.
 * Owner: none; plain values. Threads: any. Host and device. */
#ifndef PST_FEISTEL_H
#define PST_FEISTEL_H

#include "common/util/rng.h"

#define PST_K_SHUFFLE_ROUNDS 8 /* four look random; small domains need more */

struct pst_k_shuffle_network {
    uint32_t keys[PST_K_SHUFFLE_ROUNDS];
    uint32_t half_bits; /* of each half of a number */
};

static inline struct pst_k_shuffle_network pst_k_shuffle_network_of(uint64_t seed, uint64_t epoch, int64_t n)
{
    struct pst_k_shuffle_network w;
    w.half_bits = 1;
    while (w.half_bits < 31 && (uint64_t)1 << (2 * w.half_bits) < (uint64_t)n)
        w.half_bits++;
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SHUFFLE, seed, 0, epoch, 0);
    for (int r = 0; r < PST_K_SHUFFLE_ROUNDS; r++)
        w.keys[r] = pst_rng_draw(&stream, (uint64_t)(r / 4), 0).word[r % 4];
    return w;
}

/* What a round adds to the other half, before it is cut to half_bits: Murmur3's finaliser, in which every bit
 * of the input reaches every bit of the output. Use its upper bits. */
static PST_HD uint32_t pst_k_shuffle_round(uint32_t half, uint32_t key)
{
    uint32_t x = half * 0x9E3779B1u + key;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

#endif
