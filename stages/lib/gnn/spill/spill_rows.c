/* spill_rows.c: rows in memory, or in an unlinked file. */
#include "stages/lib/gnn/spill/spill_rows.h"
#include "common/error.h"
#include "common/util/file.h"
#include "common/util/tempname.h"
#include "common/util/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Creates a file without a name. If the file system cannot, its name is removed at once. */
static int open_unnamed(const char *dir)
{
    char path[PST_PATH_MAX], name[PST_PATH_MAX];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
        (void)pst_fail_errno("cannot create a file for activations in %s", dir);
        return -1;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/activations", dir) >= sizeof path) {
        (void)pst_fail(PST_E_ARG, "the path of the directory for activations is too long: %s", dir);
        return -1;
    }
    if (pst_tempname(name, sizeof name, path, PST_TEMPNAME_PARTIAL) != PST_OK ||
        pst_tempname_open(name, &fd) != PST_OK)
        return -1;
    (void)unlink(name);
    return fd;
}

/* Creates a file of this size. Its space is taken now, so that a full disk is noticed at the beginning. */
static int open_file(const char *dir, size_t bytes)
{
    const int fd = open_unnamed(dir);
    if (fd < 0)
        return -1;
    const int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed == 0)
        return fd;
    close(fd);
    errno = failed;
    (void)pst_fail_errno(
        "cannot reserve %zu bytes in %s for activations (free some space there, choose another "
        "directory, or allow more memory)",
        bytes, dir);
    return -1;
}

void *pst_gnn_file_map(const char *dir, size_t bytes)
{
    const int fd = open_file(dir, bytes > 0 ? bytes : 1);
    if (fd < 0)
        return NULL;
    void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        (void)pst_fail_errno("cannot map %zu bytes of a file in %s", bytes, dir);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t row_bytes(const struct pst_gnn_rows *rows)
{
    return (uint64_t)rows->ld * sizeof(pst_real);
}

pst_rc pst_gnn_rows_open(struct pst_gnn_rows *rows, int64_t n, int64_t ld, const char *spill_dir)
{
    *rows = (struct pst_gnn_rows){.fd = -1, .ld = ld, .bytes = (size_t)n * (size_t)ld * sizeof(pst_real)};
    if (spill_dir) {
        snprintf(rows->dir, sizeof rows->dir, "%s", spill_dir);
        rows->fd = open_file(spill_dir, rows->bytes > 0 ? rows->bytes : 1);
        return rows->fd >= 0 ? PST_OK : PST_E_IO;
    }
    rows->memory = pst_hugepage_map(rows->bytes);
    return rows->memory ? PST_OK
                        : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes of activations",
                                   rows->bytes);
}

void pst_gnn_rows_close(struct pst_gnn_rows *rows)
{
    pst_hugepage_unmap(rows->memory, rows->bytes);
    if (rows->bytes > 0 && rows->fd >= 0)
        close(rows->fd);
    *rows = (struct pst_gnn_rows){.fd = -1};
}

pst_real *pst_gnn_rows_make(const struct pst_gnn_rows *rows, int64_t first, pst_real *buffer)
{
    return rows->memory ? rows->memory + first * rows->ld : buffer;
}

pst_rc pst_gnn_rows_put(const struct pst_gnn_rows *rows, int64_t first, int64_t n, const pst_real *made)
{
    const uint64_t bytes = (uint64_t)n * row_bytes(rows);
    if (!rows->memory)
        return pst_file_write_at(rows->fd, made, bytes, (uint64_t)first * row_bytes(rows), rows->dir);
    if (made != rows->memory + first * rows->ld)
        memcpy(rows->memory + first * rows->ld, made, bytes);
    return PST_OK;
}

pst_rc pst_gnn_rows_get(const struct pst_gnn_rows *rows, int64_t first, int64_t n, pst_real *buffer,
                        const pst_real **at)
{
    *at = rows->memory ? rows->memory + first * rows->ld : buffer;
    if (rows->memory)
        return PST_OK;
    return pst_file_read_at(rows->fd, buffer, (uint64_t)n * row_bytes(rows),
                            (uint64_t)first * row_bytes(rows), rows->dir);
}

void pst_gnn_rows_expect(const struct pst_gnn_rows *rows, int64_t first, int64_t n)
{
    if (!rows->memory && n > 0)
        (void)posix_fadvise(rows->fd, (off_t)((uint64_t)first * row_bytes(rows)),
                            (off_t)((uint64_t)n * row_bytes(rows)), POSIX_FADV_WILLNEED);
}

void pst_gnn_rows_drop(const struct pst_gnn_rows *rows, int64_t first, int64_t n)
{
    if (rows->memory || n <= 0)
        return;
    const off_t at = (off_t)((uint64_t)first * row_bytes(rows)),
                bytes = (off_t)((uint64_t)n * row_bytes(rows));
    (void)sync_file_range(rows->fd, at, bytes, SYNC_FILE_RANGE_WRITE);
    (void)posix_fadvise(rows->fd, at, bytes, POSIX_FADV_DONTNEED); /* only what is on the disk by now */
}
