/* vertex_rank.h: what both twins of samplers compute alike: ranks of vertices, and the steps that solve
 * LABOR's equation. Owner: none. Threads: any. */
#ifndef PST_VERTEX_RANK_H
#define PST_VERTEX_RANK_H

#include "kernels/normal.h"
#include "kernels/samplers.h"

enum { PST_K_RANK_LANES = 32 }; /* sums of a list have so many parts: entry i is in part i % 32 */

/* A uniform number in (0, 1) with 53 bits, never 0 or 1. */
static PST_HD double pst_k_rank_unit(const struct pst_rng_stream *stream, int64_t item)
{
    const struct pst_rng_block draw = pst_rng_draw(stream, (uint64_t)item, 0);
    return ((double)(pst_rng_u64(&draw, 0) >> 11) + 0.5) * (1.0 / 9007199254740992.0);
}

/* Phi^-1 of the rank, if the ranks are mixed. */
static PST_HD double pst_k_rank_normal(const struct pst_k_ranks *r, int64_t vertex)
{
    return r->near * pst_k_normal_quantile(pst_k_rank_unit(&r->stream[0], vertex)) +
           r->far * pst_k_normal_quantile(pst_k_rank_unit(&r->stream[1], vertex));
}

/* The rank r_u. */
static PST_HD double pst_k_rank_of(const struct pst_k_ranks *r, int64_t vertex)
{
    return r->mixed ? pst_k_normal_share(pst_k_rank_normal(r, vertex))
                    : pst_k_rank_unit(&r->stream[0], vertex);
}

/* A whole number of the same order as the number. */
static PST_HD uint64_t pst_k_rank_order(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
}

/* A number of the same order as the rank, without Phi. */
static PST_HD uint64_t pst_k_rank_key(const struct pst_k_ranks *r, int64_t vertex)
{
    return pst_k_rank_order(r->mixed ? pst_k_rank_normal(r, vertex) : pst_k_rank_unit(&r->stream[0], vertex));
}

/* LABOR's equation in x = 1 / c: the sum over a list of max(1, x / pi) is `target`. The sum is convex and
 * piecewise linear in x, so Newton's method from above comes down to the solution in a few steps. Step from
 * x: `ones` entries have pi >= x, and the sum of 1 / pi of the others is `inverse`. */
static PST_HD double pst_k_rank_newton(double target, int64_t ones, double inverse)
{
    return (target - (double)ones) / inverse;
}

/* The probability that an entry is kept. */
static PST_HD double pst_k_rank_share(double pi, double x)
{
    return pi >= x ? 1 : pi / x;
}

/* ---- weighted edges ------------------------------------------------------------------------------- */

/* -log(U) / w of an entry with weight w > 0: the bits of such numbers have their order. */
static PST_HD uint64_t pst_k_rank_edge(const struct pst_rng_stream *stream, int64_t vertex, int64_t position,
                                       float w)
{
    const struct pst_rng_block draw = pst_rng_draw(stream, (uint64_t)vertex, (uint32_t)position);
    const double u = ((double)(pst_rng_u64(&draw, 0) >> 11) + 0.5) * (1.0 / 9007199254740992.0),
                 key = -pst_k_normal_log(u) / (double)w;
    uint64_t bits;
    memcpy(&bits, &key, sizeof bits);
    return bits & 0x7FFFFFFFFFFFFFFFull; /* -0 is 0 */
}

/* 1 over the probability that the key of an entry with weight w is below `least`. */
static PST_HD float pst_k_rank_edge_weight(float w, uint64_t least)
{
    double t;
    memcpy(&t, &least, sizeof t);
    const double share = pst_k_normal_below((double)w * t);
    return (float)(1 / (share > 1e-30 ? share : 1e-30));
}

/* Can entries have such a weight? */
static PST_HD bool pst_k_rank_edge_good(float w)
{
    return w >= 0 && w <= 3.4028234e38f;
}

/* ---- LADIES --------------------------------------------------------------------------------------- */

#define PST_K_RANK_DRAWN 0x8000000000000000ull /* in the units of a vertex: it is drawn */

/* pi is counted in units of 2^-shift, which n destinations cannot make overflow. */
static PST_HD int pst_k_rank_shift(int64_t n)
{
    int shift = 62;
    while (n >> (62 - shift) != 0)
        shift--;
    return shift;
}

/* P_vu^2, in units; at least one. */
static PST_HD uint64_t pst_k_rank_units(int64_t degree, int shift)
{
    const uint64_t units = (uint64_t)((double)((uint64_t)1 << shift) / ((double)degree * (double)degree));
    return units > 0 ? units : 1;
}

/* -log(U) / pi, up to a factor: the bits of such numbers have their order, and the smallest ones are drawn.
 */
static PST_HD uint64_t pst_k_rank_exponential(const struct pst_rng_stream *stream, int64_t vertex,
                                              uint64_t units)
{
    const double key = -pst_k_normal_log(pst_k_rank_unit(stream, vertex)) / (double)units;
    uint64_t bits;
    memcpy(&bits, &key, sizeof bits);
    return bits & ~PST_K_RANK_DRAWN; /* -0 is 0 */
}

/* P_vu / pi(u). */
static PST_HD float pst_k_rank_weight(int64_t degree, uint64_t units, int shift)
{
    return (float)((double)((uint64_t)1 << shift) / ((double)degree * (double)units));
}

#endif
