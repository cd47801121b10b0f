/* normal.h: logarithm, exponential and the normal distribution for samplers, for both twins. They use
 * additions, multiplications, divisions and square roots alone, which are rounded correctly everywhere, in a
 * fixed order. So both twins get the same bits, which the functions of C libraries do not promise. Owner:
 * none. Threads: any. */
#ifndef PST_NORMAL_H
#define PST_NORMAL_H

#include "common/base.h"

#include <math.h>
#include <string.h>

static PST_HD double pst_k_normal_polynomial(const double *c, int n, double x)
{
    double sum = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* ln x, for a normal x above 0: x = 2^e m, and ln m = 2 artanh((m - 1) / (m + 1)). Within 2 units in the last
 * place of the larger of the result and 1. */
static PST_HD double pst_k_normal_log(double x)
{
    const double series[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                             1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    const double s = (m - 1) / (m + 1);
    return 2 * s * pst_k_normal_polynomial(series, 12, s * s) + (double)e * 0.6931471805599453;
}

/* exp(-x) - 1 for 0 <= x <= ln 2 / 2, without losing digits if x is near 0: the Taylor series. */
static PST_HD double pst_k_normal_expm1_small(double r)
{
    const double series[] = {1.0,
                             1.0 / 2,
                             1.0 / 6,
                             1.0 / 24,
                             1.0 / 120,
                             1.0 / 720,
                             1.0 / 5040,
                             1.0 / 40320,
                             1.0 / 362880,
                             1.0 / 3628800,
                             1.0 / 39916800,
                             1.0 / 479001600,
                             1.0 / 6227020800,
                             1.0 / 87178291200};
    return r * pst_k_normal_polynomial(series, 14, r);
}

/* exp(-x) for x >= 0; 0 if x is above 700. */
static PST_HD double pst_k_normal_exp(double x)
{
    if (!(x <= 700))
        return 0;
    const int n = (int)(x * 1.4426950408889634 + 0.5);
    const double r = (double)n * 1.90821492927058770002e-10 - (x - (double)n * 6.93147180369123816490e-01);
    const uint64_t bits = (uint64_t)(1023 - n) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return (1 + pst_k_normal_expm1_small(r)) * scale;
}

/* 1 - exp(-x) for x >= 0. */
static PST_HD double pst_k_normal_below(double x)
{
    return x < 0.34 ? -pst_k_normal_expm1_small(-x) : 1 - pst_k_normal_exp(x);
}

/* The value below which a standard normal number is with probability p, 0 < p < 1 (Wichura, "Algorithm AS
 * 241: the percentage points of the normal distribution", Applied Statistics 37(3), 1988, PPND16). */
static PST_HD double pst_k_normal_quantile(double p)
{
    const double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                        1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                        3.3430575583588128105e+4, 2.5090809287301226727e+3},
                 b[] = {1.0,
                        4.2313330701600911252e+1,
                        6.8718700749205790830e+2,
                        5.3941960214247511077e+3,
                        2.1213794301586595867e+4,
                        3.9307895800092710610e+4,
                        2.8729085735721942674e+4,
                        5.2264952788528545610e+3},
                 c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                        3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                        2.27238449892691845833e-2, 7.74545014278341407640e-4},
                 d[] = {1.0,
                        2.05319162663775882187e0,
                        1.67638483018380384940e0,
                        6.89767334985100004550e-1,
                        1.48103976427480074590e-1,
                        1.51986665636164571966e-2,
                        5.47593808499534494600e-4,
                        1.05075007164441684324e-9},
                 e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                        2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                        2.71155556874348757815e-5, 2.01033439929228813265e-7},
                 f[] = {1.0,
                        5.99832206555887937690e-1,
                        1.36929880922735805310e-1,
                        1.48753612908506148525e-2,
                        7.86869131145613259100e-4,
                        1.84631831751005468180e-5,
                        1.42151175831644588870e-7,
                        2.04426310338993978564e-15};
    const double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * pst_k_normal_polynomial(a, 8, r) / pst_k_normal_polynomial(b, 8, r);
    }
    const double r = sqrt(-pst_k_normal_log(q < 0 ? p : 1 - p));
    const double x = r <= 5 ? pst_k_normal_polynomial(c, 8, r - 1.6) / pst_k_normal_polynomial(d, 8, r - 1.6)
                            : pst_k_normal_polynomial(e, 8, r - 5) / pst_k_normal_polynomial(f, 8, r - 5);
    return q < 0 ? -x : x;
}

/* The probability that a standard normal number is below x, within 1e-15 (Marsaglia, "Evaluating the normal
 * distribution", Journal of Statistical Software 11(4), 2004). 0 or 1 beyond 8. */
static PST_HD double pst_k_normal_share(double x)
{
    double term = x, sum = x, before = 0;
    if (!(x > -8))
        return 0;
    if (!(x < 8))
        return 1;
    for (int i = 3; sum != before; i += 2) {
        before = sum;
        term = term * (x * x) / i;
        sum += term;
    }
    return 0.5 + sum * 0.3989422804014327 * pst_k_normal_exp(x * x / 2);
}

#endif
