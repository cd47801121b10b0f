/* npy.h: NumPy's .npy header (NEP 1 and numpy.lib.format). It reads the part that a dataset needs: versions 1
 * to 3, one or two dimensions, little endian, plain numbers. Owner: none. Threads: pure functions. */
#ifndef PST_NPY_H
#define PST_NPY_H

#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_NPY_HEADER_MAX 65536 /* NumPy writes 128 bytes, we 4096; version 1 cannot say more */

struct pst_npy {
    enum pst_dtype dtype;
    int rank;         /* 1 or 2 */
    int64_t shape[2]; /* shape[1] is 1 when rank is 1 */
    bool fortran;     /* columns one after the other; false where there is only one row or column */
    uint64_t data_at;
    uint64_t data_bytes;
};

/* Parses a header from the first `bytes` bytes of a file of file_bytes bytes, and checks that the data fill
 * the rest exactly. The error text names the byte, what was expected and what was found, not the file. */
PST_API PST_MUST_USE pst_rc pst_npy_parse(const void *head, size_t bytes, uint64_t file_bytes,
                                          struct pst_npy *out);

/* Fills PST_PAGE bytes with a version 1 header whose data begin at byte PST_PAGE. */
PST_API void pst_npy_format(char head[PST_PAGE], enum pst_dtype dtype, int rank, const int64_t shape[2]);

const char *pst_npy_descr(enum pst_dtype dtype); /* "<f4" */
PST_MUST_USE pst_rc pst_npy_dtype(const char *descr, enum pst_dtype *out);

PST_END_DECLS
#endif
