/* digest.h: the hash of an array, which both twins of pst_k_copy_digest compute. The terms of all words are
 * added modulo 2^64, so threads may add them in any order. Not for data from an adversary. Owner: none.
 * Threads: any. */
#ifndef PST_DIGEST_H
#define PST_DIGEST_H

#include "common/base.h"

/* The term of word i (below 2^32) of array `array`: the finaliser of SplitMix64 (Steele et al. 2014), without
 * its first shift, in which every bit of word, place and array reaches every bit of the term. */
static PST_HD uint64_t pst_k_digest_term(uint64_t array, uint64_t i, uint32_t word)
{
    uint64_t x = (i << 32 | word) + (array + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

#endif
