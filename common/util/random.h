/* random.h: the generators' random numbers: Philox4x32-10, keyed by the seed and counted by what is drawn,
 * so that any value can be made alone, in any order, on any machine. The functions below use no libm,
 * whose results differ between processors; with -ffp-contract=off they give the same bits everywhere.
 * Owner: none. Threads: pure functions. */
#ifndef PST_STORE_RANDOM_H
#define PST_STORE_RANDOM_H

#include <math.h>
#include <string.h>

#include "common/base.h"

/* What a number is drawn for. Streams never share a counter. */
enum pst_stream {
    PST_STREAM_LABEL = 1,
    PST_STREAM_WEIGHT,
    PST_STREAM_EDGE,
    PST_STREAM_MEAN,
    PST_STREAM_FEATURE,
    PST_STREAM_SPLIT,
    PST_STREAM_RENAME,
};

struct pst_draw {
    uint32_t word[4];
};

/* Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011). */
static inline struct pst_draw pst_philox_block(struct pst_draw counter, uint32_t key0, uint32_t key1)
{
    struct pst_draw c = counter;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c.word[0];
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c.word[2];
        struct pst_draw next = {{(uint32_t)(p1 >> 32) ^ c.word[1] ^ key0, (uint32_t)p1,
                                 (uint32_t)(p0 >> 32) ^ c.word[3] ^ key1, (uint32_t)p0}};
        c = next;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return c;
}

/* Four words for draw `attempt` of thing `index` of a stream. */
static inline struct pst_draw pst_draw_at(uint64_t seed, enum pst_stream stream, uint64_t index,
                                          uint32_t attempt)
{
    struct pst_draw counter = {{(uint32_t)index, (uint32_t)(index >> 32), attempt, (uint32_t)stream}};
    return pst_philox_block(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* In [0, 1), with 53 bits. */
static inline double pst_unit53(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return (double)bits * 0x1p-53;
}

/* 0 .. bound-1. The bias, bound/2^64, cannot be observed. */
static inline uint64_t pst_below(uint32_t high, uint32_t low, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)((uint64_t)high << 32 | low) * bound) >> 64);
}

/* Natural logarithm of a normal x > 0: ln m by the series of artanh, for m in [0.7, 1.42). */
static inline double pst_exact_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    double m;
    memcpy(&m, &bits, sizeof m);
    double halve = m >= 1.4142135623730951 ? 0.5 : 1.0;
    double e = (double)exponent + (halve < 1.0 ? 1.0 : 0.0);
    m *= halve;
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 1.0 / 23;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * z + 1.0 / k;
    return e * 0.6931471805599453 + 2.0 * s * sum;
}

/* e^x for |x| < 700, by Taylor's series after taking out powers of two. */
static inline double pst_exact_exp(double x)
{
    assert(x > -700 && x < 700);
    int64_t k = (int64_t)(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
    double r = x - (double)k * 0.6931471805599453, sum = 1.0;
    for (int i = 14; i >= 1; i--)
        sum = 1.0 + sum * r / i;
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* cos(2 pi u) and sin(2 pi u) for u in [0, 1): Taylor's series within an eighth of the circle. */
static inline void pst_exact_turn(double u, double *cosine, double *sine)
{
    int quarter = (int)(u * 4.0 + 0.5);
    double t = (u - quarter * 0.25) * 6.283185307179586, z = t * t;
    double s = 1.0, c = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        c = 1.0 - c * z / (double)(k * (k - 1));
        s = 1.0 - s * z / (double)(k * (k + 1));
    }
    s *= t;
    *cosine = quarter & 1 ? (quarter & 2 ? s : -s) : (quarter & 2 ? -c : c);
    *sine = quarter & 1 ? (quarter & 2 ? -c : c) : (quarter & 2 ? -s : s);
}

/* Four values of the standard normal distribution (Box and Muller 1958), within +-6.7. */
static inline void pst_normal4(struct pst_draw d, double out[4])
{
    for (int i = 0; i < 2; i++) {
        double u = ((double)d.word[2 * i] + 1.0) * 0x1p-32;
        double radius = sqrt(-2.0 * pst_exact_log(u));
        double c, s;
        pst_exact_turn((double)d.word[2 * i + 1] * 0x1p-32, &c, &s);
        out[2 * i] = radius * c;
        out[2 * i + 1] = radius * s;
    }
}

#endif
