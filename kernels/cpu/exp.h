/* exp.h: exp(x) for x <= 0, in plain arithmetic that compilers vectorise. Owner: none. Threads: any. */
#ifndef PST_EXP_H
#define PST_EXP_H

#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>
#include <string.h>

struct pst_cpu_exp { /* exp(x) = (1 + part) * scale */
    float part, scale;
};

/* 2^n * exp(r), |r| <= ln 2 / 2, with exp(r) by its Taylor polynomial. An x whose exponential would be below
 * the smallest normal number counts as -87. */
PST_CPU_INLINE struct pst_cpu_exp pst_cpu_exp_parts(float x)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits */
    const float y = x < -87.0f ? -87.0f : x;
    const float shifted = y * 1.44269504f + shift, n = shifted - shift;
    const float r =
        (y - n * 0.693359375f) - n * -2.12194440e-4f; /* ln 2 in two parts: the first product is exact */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    struct pst_cpu_exp e = {.part = p};
    memcpy(&e.scale, &bits, sizeof e.scale);
    return e;
}

/* Within 2 units in the last place. A NaN stays a NaN. */
PST_CPU_INLINE float pst_cpu_exp_f32(float x)
{
    const struct pst_cpu_exp e = pst_cpu_exp_parts(x);
    return (1.0f + e.part) * e.scale;
}

PST_CPU_INLINE double pst_cpu_exp_f64(double x)
{
    return exp(x);
}

/* exp(x) - 1, without losing digits if x is near 0. */
PST_CPU_INLINE float pst_cpu_expm1_f32(float x)
{
    const struct pst_cpu_exp e = pst_cpu_exp_parts(x);
    return e.part * e.scale + (e.scale - 1.0f);
}

PST_CPU_INLINE double pst_cpu_expm1_f64(double x)
{
    return expm1(x);
}

#define PST_CPU_EXP(x) _Generic((x), float : pst_cpu_exp_f32, double : pst_cpu_exp_f64)(x)
#define PST_CPU_EXPM1(x) _Generic((x), float : pst_cpu_expm1_f32, double : pst_cpu_expm1_f64)(x)

#endif
