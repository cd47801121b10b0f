/* npy_file.h: an .npy file of one array whose rows are written in any order. It replaces PATH whole or not at
 * all (pst_file_new). Owner: npy_file_open fills what the caller owns; npy_file_release frees it, and removes
 * the temporary file if npy_file_keep was not called. Threads: several may put different rows at once. */
#ifndef PST_NPY_FILE_H
#define PST_NPY_FILE_H

#include "common/store/store.h"
#include "common/util/file.h"

struct npy_file {
    struct pst_file_new file;
    bool open;
    enum pst_dtype dtype;
    int64_t rows, cols; /* cols 0: the array has one dimension */
};

/* Removes what dead processes left of earlier attempts, and takes the space on disk at once. PST_E_STATE:
 * path exists, and replace is false. PST_E_IO: no space. */
PST_MUST_USE pst_rc npy_file_open(struct npy_file *f, const char *path, enum pst_dtype dtype, int64_t rows,
                                  int64_t cols, bool replace);
/* Writes rows first to first + n - 1, which are stride_bytes apart in memory. */
PST_MUST_USE pst_rc npy_file_put(const struct npy_file *f, int64_t first, int64_t n, const void *from,
                                 uint64_t stride_bytes);
PST_MUST_USE pst_rc npy_file_sync(struct npy_file *f);
PST_MUST_USE pst_rc npy_file_keep(struct npy_file *f); /* renames it to PATH */
void npy_file_release(struct npy_file *f);

#endif
