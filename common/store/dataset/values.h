/* values.h: converts feature values between their stored type and float. Owner: none. Threads: pure
 * functions. */
#ifndef PST_VALUES_H
#define PST_VALUES_H

#include <math.h>
#include <string.h>

#include "common/store/store.h"

static inline float pst_half_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Element j of a row of float32, float16 or bfloat16. */
static inline float pst_feature_value(const void *row, enum pst_dtype dtype, int64_t j)
{
    uint32_t bits;
    float value;
    switch (dtype) {
    case PST_F32: return ((const float *)row)[j];
    case PST_F16: return pst_half_value(((const uint16_t *)row)[j]);
    default:
        assert(dtype == PST_BF16);
        bits = (uint32_t)((const uint16_t *)row)[j] << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

/* To the nearest, ties to even; subnormal numbers too. */
static inline uint16_t pst_half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float size = fabsf(value);
    if (size >= 65520.0f)
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)lrintf(size * 0x1p24f));
    uint32_t rest = bits & 0x7fffffffu;
    rest += 0xfffu + (rest >> 13 & 1);
    return (uint16_t)(sign | ((rest >> 13) - (112u << 10)));
}

/* Element j of a row becomes value, to the nearest, ties to even; false: it becomes infinite, or is not
 * finite. */
static inline bool pst_feature_put(void *row, enum pst_dtype dtype, int64_t j, float value)
{
    if (dtype == PST_F32) {
        ((float *)row)[j] = value;
        return isfinite(value);
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t exponent = dtype == PST_F16 ? 0x7c00 : 0x7f80,
                   half = dtype == PST_F16 ? pst_half_of(value)
                                           : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    ((uint16_t *)row)[j] = half;
    return isfinite(value) && (half & exponent) != exponent;
}

#endif
