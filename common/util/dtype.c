/* dtype.c: names and sizes of the types of numbers. */
#include "common/util/dtype.h"

#include <string.h>

#include "common/error.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [PST_F32] = {"float32", 4}, [PST_F16] = {"float16", 2}, [PST_BF16] = {"bfloat16", 2},
    [PST_F64] = {"float64", 8}, [PST_I32] = {"int32", 4},   [PST_I64] = {"int64", 8},
    [PST_U8] = {"uint8", 1},    [PST_BOOL] = {"bool", 1},   [PST_I8] = {"int8", 1},
    [PST_I16] = {"int16", 2},   [PST_U16] = {"uint16", 2},  [PST_U32] = {"uint32", 4},
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0], STORED = PST_U8 + 1 };

size_t pst_dtype_bytes(enum pst_dtype dtype)
{
    assert((unsigned)dtype < DTYPES);
    return dtypes[dtype].bytes;
}

const char *pst_dtype_name(enum pst_dtype dtype)
{
    assert((unsigned)dtype < DTYPES);
    return dtypes[dtype].name;
}

pst_rc pst_dtype_parse(const char *name, enum pst_dtype *out)
{
    for (unsigned i = 0; i < STORED; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (enum pst_dtype)i;
            return PST_OK;
        }
    }
    return pst_fail(
        PST_E_FORMAT,
        "dtype: expected float32, float16, bfloat16, float64, int32, int64 or uint8, found '%.32s'", name);
}
