/* gen_random.h: the generators' random numbers: Philox4x32-10, keyed by the seed and counted by what is
 * drawn, so that any value can be made alone, in any order, on any machine. The functions below use no libm,
 * whose results differ between processors; with -ffp-contract=off they give the same bits everywhere.
 * Owner: none. Threads: pure functions. */
#ifndef PST_GEN_RANDOM_H
#define PST_GEN_RANDOM_H

#include <math.h>
#include <string.h>

#include "common/util/rng.h"

/* What a number is drawn for. Numbers of different uses never share a counter. */
enum pst_gen_use {
    PST_GEN_LABEL = 1,
    PST_GEN_WEIGHT,
    PST_GEN_EDGE,
    PST_GEN_MEAN,
    PST_GEN_FEATURE,
    PST_GEN_SPLIT,
    PST_GEN_RENAME,
    PST_GEN_EDGE_WEIGHT,
    PST_GEN_TIME,
};

/* Four words for draw `attempt` of thing `index`. */
static inline struct pst_rng_block pst_gen_draw(uint64_t seed, enum pst_gen_use stream, uint64_t index,
                                                uint32_t attempt)
{
    struct pst_rng_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), attempt, (uint32_t)stream}};
    return pst_rng_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* In [0, 1), from 53 bits of a half (0 or 1) of the draw. */
static inline double pst_gen_unit(const struct pst_rng_block *d, int half)
{
    const uint64_t bits = ((uint64_t)d->word[2 * half] << 32 | d->word[2 * half + 1]) >> 11;
    return (double)bits * 0x1p-53;
}

/* Natural logarithm of a normal x > 0: ln m by the series of artanh, for m in [0.7, 1.42). */
static inline double pst_gen_log(double x)
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
static inline double pst_gen_exp(double x)
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
static inline void pst_gen_turn(double u, double *cosine, double *sine)
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
static inline void pst_gen_normal4(struct pst_rng_block d, double out[4])
{
    for (int i = 0; i < 2; i++) {
        double u = ((double)d.word[2 * i] + 1.0) * 0x1p-32;
        double radius = sqrt(-2.0 * pst_gen_log(u));
        double c, s;
        pst_gen_turn((double)d.word[2 * i + 1] * 0x1p-32, &c, &s);
        out[2 * i] = radius * c;
        out[2 * i + 1] = radius * s;
    }
}

#endif
