/* stride.c: how far apart feature rows lie. */
#include "common/store/dataset/stride.h"

#include <inttypes.h>

#include "common/error.h"

#define STRIDE_MAX (1u << 30) /* bytes: more is a mistake */

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

uint64_t pst_stride_packed(int64_t dim, enum pst_dtype dtype)
{
    assert(dim >= 0 && dim <= INT64_MAX / 16);
    const uint64_t row = (uint64_t)dim * pst_dtype_bytes(dtype);
    uint64_t stride = pst_dtype_bytes(dtype);
    while (stride < row && stride < PST_SECTOR)
        stride *= 2;
    return row > PST_SECTOR ? pst_align_up(row, PST_SECTOR) : stride;
}

pst_rc pst_stride_check(uint64_t stride_bytes, int64_t dim, enum pst_dtype dtype)
{
    uint64_t item = pst_dtype_bytes(dtype), row = (uint64_t)dim * item;
    if (stride_bytes == 0 || (stride_bytes >= row && stride_bytes % item == 0 && stride_bytes <= STRIDE_MAX))
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "--stride-bytes: expected a multiple of %" PRIu64 " from %" PRIu64 " (%" PRId64
                    " columns of %s) to 1 GiB, found %" PRIu64,
                    item, row, dim, pst_dtype_name(dtype), stride_bytes);
}
