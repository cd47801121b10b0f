#include <string.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/store/store.h"

struct dtype_row {
    const char *name;
    const char *descr; /* NumPy's; bfloat16 as ml_dtypes saves it */
    size_t bytes;
};

static const struct dtype_row dtypes[] = {
    [PST_F32] = {"float32", "<f4", 4}, [PST_F16] = {"float16", "<f2", 2}, [PST_BF16] = {"bfloat16", "<V2", 2},
    [PST_F64] = {"float64", "<f8", 8}, [PST_I32] = {"int32", "<i4", 4},   [PST_I64] = {"int64", "<i8", 8},
    [PST_U8] = {"uint8", "|u1", 1},
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

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

const char *pst_npy_descr(enum pst_dtype dtype)
{
    assert((unsigned)dtype < DTYPES);
    return dtypes[dtype].descr;
}

pst_rc pst_dtype_parse(const char *name, enum pst_dtype *out)
{
    for (unsigned i = 0; i < DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (enum pst_dtype)i;
            return PST_OK;
        }
    }
    return pst_fail(
        PST_E_FORMAT,
        "dtype: expected float32, float16, bfloat16, float64, int32, int64 or uint8, found '%.32s'", name);
}

pst_rc pst_npy_dtype(const char *descr, enum pst_dtype *out)
{
    for (unsigned i = 0; i < DTYPES; i++) {
        bool anyorder = dtypes[i].bytes == 1 || i == PST_BF16;
        if (strcmp(descr, dtypes[i].descr) == 0 || (anyorder && (descr[0] == '<' || descr[0] == '|') &&
                                                    strcmp(descr + 1, dtypes[i].descr + 1) == 0)) {
            *out = (enum pst_dtype)i;
            return PST_OK;
        }
    }
    if (descr[0] == '>')
        return pst_fail(PST_E_FORMAT, "'descr': expected little endian, found big endian '%s'", descr);
    if (descr[0] != '\0' && descr[1] == 'O')
        return pst_fail(PST_E_FORMAT, "'descr': '%s' holds Python objects, which are never read", descr);
    return pst_fail(
        PST_E_FORMAT,
        "'descr': expected '<f2', '<f4', '<f8', '<i4', '<i8', '|u1' or '<V2' (bfloat16), found '%s'", descr);
}

uint64_t pst_stride_for(int64_t dim, enum pst_dtype dtype)
{
    assert(dim >= 0 && dim <= INT64_MAX / 16);
    uint64_t row = (uint64_t)dim * pst_dtype_bytes(dtype);
    uint64_t padded = pst_align_up(row, PST_SECTOR);
    if (row < PST_SECTOR) {
        padded = pst_dtype_bytes(dtype);
        while (padded < row)
            padded *= 2;
    }
    return (padded - row) * 8 <= row ? padded : row;
}
