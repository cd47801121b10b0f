/* shuffle.c: a permutation by a Feistel network (Luby & Rackoff 1988) over the next power of four, walking
 * the cycle until it falls below n (Black & Rogaway, CT-RSA 2002): every element alone, no scratch memory. */
#include "../kernels.h"
#include "../rng.h"

enum { ROUNDS = 8 }; /* four are a permutation no one can tell from random; tiny domains want more */

/* Murmur3's finaliser: every bit of x reaches every bit of the result. */
static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

static uint64_t feistel(const uint32_t *keys, int half_bits, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (int r = 0; r < ROUNDS; r++) {
        const uint64_t next =
            left ^ ((mix((uint32_t)right * 0x9E3779B1u + keys[r]) >> (32 - half_bits)) & mask);
        left = right;
        right = next;
    }
    return (left << half_bits) | right;
}

void pst_k_shuffle(struct pst_queue *q, uint64_t seed, uint64_t epoch, int64_t *perm, int64_t n)
{
    assert(q == NULL && n >= 0);
    (void)q;
    int half_bits = 1;
    while (half_bits < 31 && (uint64_t)1 << (2 * half_bits) < (uint64_t)n)
        half_bits++;
    const struct pst_stream stream = pst_stream_of(PST_RNG_SHUFFLE, seed, 0, epoch, 0);
    uint32_t keys[ROUNDS];
    for (int r = 0; r < ROUNDS; r++)
        keys[r] = pst_draw(&stream, (uint64_t)(r / 4), 0).word[r % 4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)i;
        do {
            x = feistel(keys, half_bits, x);
        } while (x >= (uint64_t)n);
        perm[i] = (int64_t)x;
    }
}
