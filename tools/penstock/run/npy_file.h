/* npy_file.h: an .npy file of one array whose rows may come in any order: written beside its place, then
 * renamed. Owner: npy_file_open fills what the caller owns; npy_file_release frees it, and removes what was
 * not kept. Threads: different rows may be put at a time. */
#ifndef PST_NPY_FILE_H
#define PST_NPY_FILE_H

#include "common/store/store.h"

struct npy_file {
    char path[4096], aside[4096 + 32];
    int fd;
    bool open, kept;
    enum pst_dtype dtype;
    int64_t rows, cols; /* cols 0: the array has one dimension */
};

/* Takes the space on disk at once. PST_E_STATE: path is there, and replace is false. PST_E_IO: no space. */
PST_MUST_USE pst_rc npy_file_open(struct npy_file *f, const char *path, enum pst_dtype dtype, int64_t rows,
                                  int64_t cols, bool replace);
/* Rows first..first+n, stride_bytes apart. */
PST_MUST_USE pst_rc npy_file_put(const struct npy_file *f, int64_t first, int64_t n, const void *from,
                                 uint64_t stride_bytes);
PST_MUST_USE pst_rc npy_file_sync(struct npy_file *f);
PST_MUST_USE pst_rc npy_file_keep(struct npy_file *f); /* renames it to its place */
void npy_file_release(struct npy_file *f);

#endif
