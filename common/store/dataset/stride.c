/* stride.c: how far apart feature rows lie. */
#include "common/store/dataset/stride.h"

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
