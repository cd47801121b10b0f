/* npy_file.c: see npy_file.h. */
#include "tools/penstock/infer/npy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util/tempname.h"
#include "common/error.h"
#include "common/util/file.h"
#include "common/store/dataset/npy.h"

static uint64_t row_bytes(const struct npy_file *f)
{
    return (uint64_t)pst_max_i64(f->cols, 1) * pst_dtype_bytes(f->dtype);
}

/* The header, and space for the rows. */
static pst_rc begin(struct npy_file *f)
{
    char head[PST_PAGE];
    const int64_t shape[2] = {f->rows, pst_max_i64(f->cols, 1)};
    pst_npy_format(head, f->dtype, f->cols > 0 ? 2 : 1, shape);
    const uint64_t bytes = PST_PAGE + (uint64_t)f->rows * row_bytes(f);
    errno = posix_fallocate(f->file.fd, 0, (off_t)bytes);
    if (errno != 0)
        return pst_fail_errno("cannot reserve %llu bytes for %s", (unsigned long long)bytes, f->file.path);
    return pst_file_write_at(f->file.fd, head, PST_PAGE, 0, f->file.partial);
}

/* What killed processes were writing for the same place can be as large as a dataset. */
static void sweep(const char *path)
{
    char dir[PST_PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (snprintf(dir, sizeof dir, "%.*s", slash != NULL ? (int)(slash - path + 1) : 1,
                 slash != NULL ? path : ".") >= (int)sizeof dir)
        return;
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)pst_tempname_sweep(fd, slash != NULL ? slash + 1 : path, false);
    (void)close(fd);
}

pst_rc npy_file_open(struct npy_file *f, const char *path, enum pst_dtype dtype, int64_t rows, int64_t cols,
                     bool replace)
{
    *f = (struct npy_file){.dtype = dtype, .rows = rows, .cols = cols};
    if (!replace && access(path, F_OK) == 0)
        return pst_fail(PST_E_STATE, "%s already exists: choose another file, or replace it with --force",
                        path);
    sweep(path);
    pst_rc rc = pst_file_new_begin(&f->file, path);
    if (rc != PST_OK)
        return rc;
    f->open = true;
    rc = begin(f);
    if (rc != PST_OK)
        npy_file_release(f);
    return rc;
}

pst_rc npy_file_put(const struct npy_file *f, int64_t first, int64_t n, const void *from,
                    uint64_t stride_bytes)
{
    const uint64_t row = row_bytes(f), at = PST_PAGE + (uint64_t)first * row;
    char *packed = NULL;
    assert(first >= 0 && n >= 0 && first + n <= f->rows);
    if (stride_bytes != row) {
        packed = malloc((size_t)n * row + 1);
        if (packed == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %lld rows of %s", (long long)n,
                            f->file.path);
        for (int64_t i = 0; i < n; i++)
            memcpy(packed + (uint64_t)i * row, (const char *)from + (uint64_t)i * stride_bytes, row);
    }
    pst_rc rc =
        pst_file_write_at(f->file.fd, packed != NULL ? packed : from, (uint64_t)n * row, at, f->file.partial);
    free(packed);
    if (rc == PST_OK) /* now, rather than all of it at the end */
        (void)sync_file_range(f->file.fd, (off_t)at, (off_t)((uint64_t)n * row), SYNC_FILE_RANGE_WRITE);
    return rc;
}

pst_rc npy_file_sync(struct npy_file *f)
{
    return fsync(f->file.fd) == 0 ? PST_OK : pst_fail_errno("cannot sync %s", f->file.partial);
}

pst_rc npy_file_keep(struct npy_file *f)
{
    return pst_file_new_commit(&f->file);
}

void npy_file_release(struct npy_file *f)
{
    if (f->open)
        pst_file_new_abandon(&f->file);
    f->open = false;
}
