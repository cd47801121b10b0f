/* stride.h: how far apart the rows of features lie on disk. Owner: none. Threads: pure functions. */
#ifndef PST_STRIDE_H
#define PST_STRIDE_H

#include "common/util/dtype.h"

PST_BEGIN_DECLS

/* Stride in bytes for rows of `dim` elements: whole sectors if the padding costs at most 1/8; a power of two
 * that packs a sector if that costs as little; else no padding. */
PST_API uint64_t pst_stride_for(int64_t dim, enum pst_dtype dtype);

/* Stride in bytes with which no row shares a sector with a part of another row: the smallest power of two
 * that holds the row, or whole sectors. */
PST_API uint64_t pst_stride_packed(int64_t dim, enum pst_dtype dtype);

/* Checks a stride that the user gave: 0 (none), or a multiple of an element's size that holds dim elements.
 * Fails: PST_E_ARG. */
PST_API PST_MUST_USE pst_rc pst_stride_check(uint64_t stride_bytes, int64_t dim, enum pst_dtype dtype);

PST_END_DECLS
#endif
