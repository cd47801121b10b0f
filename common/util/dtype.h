/* dtype.h: the number types of array elements. Owner: none. Threads: any, the functions are pure. */
#ifndef PST_DTYPE_H
#define PST_DTYPE_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Datasets use the types up to PST_U8. Importers can also read the others. */
enum pst_dtype {
    PST_F32,
    PST_F16,
    PST_BF16,
    PST_F64,
    PST_I32,
    PST_I64,
    PST_U8,
    PST_BOOL, /* one byte each: 0 or 1 */
    PST_I8,
    PST_I16,
    PST_U16,
    PST_U32
};

PST_API size_t pst_dtype_bytes(enum pst_dtype dtype);
PST_API const char *pst_dtype_name(enum pst_dtype dtype); /* as dataset.json spells it: "float32" */
/* PST_E_FORMAT: no number type has this name. */
PST_API PST_MUST_USE pst_rc pst_dtype_parse(const char *name, enum pst_dtype *out);

static inline bool pst_dtype_is_integer(enum pst_dtype dtype)
{
    return dtype == PST_I32 || dtype == PST_I64 || dtype == PST_U8 || dtype >= PST_I8;
}

/* Element i of an array of integers, or of bool. */
static inline int64_t pst_dtype_int_at(const void *data, enum pst_dtype dtype, int64_t i)
{
    switch (dtype) {
    case PST_I32: return ((const int32_t *)data)[i];
    case PST_I64: return ((const int64_t *)data)[i];
    case PST_I8: return ((const int8_t *)data)[i];
    case PST_I16: return ((const int16_t *)data)[i];
    case PST_U16: return ((const uint16_t *)data)[i];
    case PST_U32: return ((const uint32_t *)data)[i];
    default: assert(dtype == PST_U8 || dtype == PST_BOOL); return ((const uint8_t *)data)[i];
    }
}

PST_END_DECLS
#endif
