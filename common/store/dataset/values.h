/* values.h: features as floats, whatever they are stored as. Owner: none. Threads: pure functions. */
#ifndef PST_VALUES_H
#define PST_VALUES_H

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

#endif
