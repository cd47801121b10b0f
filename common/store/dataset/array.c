/* array.c: opens, maps and writes array files. */
#include "common/store/dataset/array.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"

#define WRITE_BUFFER_BYTES (1u << 20) /* past this, larger writes are no faster */
#define WRITEBACK_BYTES (8u << 20)    /* handed to the disk at a time, so that it works while we do */

static pst_rc read_head(int fd, unsigned char *head, size_t room, size_t *got)
{
    *got = 0;
    while (*got < room) {
        ssize_t n = pread(fd, head + *got, room - *got, (off_t)*got);
        if (n < 0)
            return pst_fail_errno("cannot read the array's file");
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return PST_OK;
}

static pst_rc parse_file(struct pst_array *array, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pst_fail_errno("cannot get the status of the array's file");
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_FORMAT, "expected a regular file with an array, found another kind of file");
    size_t room = PST_NPY_HEADER_MAX + 12, got;
    unsigned char *head = malloc(room);
    if (head == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a header");
    struct pst_npy npy;
    pst_rc rc = read_head(fd, head, room, &got);
    if (rc == PST_OK)
        rc = pst_npy_parse(head, got, (uint64_t)st.st_size, &npy);
    free(head);
    if (rc != PST_OK)
        return rc;
    array->dtype = npy.dtype;
    array->rank = npy.rank;
    array->shape[0] = npy.shape[0];
    array->shape[1] = npy.shape[1];
    array->fortran = npy.fortran;
    array->data_at = npy.data_at;
    array->data_bytes = npy.data_bytes;
    return PST_OK;
}

pst_rc pst_array_open_edges(struct pst_array *array, const char *path)
{
    *array = (struct pst_array){.map = NULL};
    if (strlen(path) >= sizeof array->path)
        return pst_fail(PST_E_LIMIT, "the path of an array has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof array->path - 1, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pst_fail_errno("cannot open %s", path);
    pst_rc rc = parse_file(array, fd);
    (void)close(fd);
    if (rc == PST_OK)
        memcpy(array->path, path, strlen(path) + 1);
    return pst_wrap(rc, "%s", path);
}

pst_rc pst_array_open(struct pst_array *array, const char *path)
{
    pst_rc rc = pst_array_open_edges(array, path);
    if (rc == PST_OK && array->fortran) {
        array->path[0] = '\0';
        rc = pst_fail(PST_E_FORMAT,
                      "%s: 'fortran_order' is True: expected rows in C order (save it again with "
                      "numpy.ascontiguousarray(a))",
                      path);
    }
    return rc;
}

pst_rc pst_array_open_raw(struct pst_array *array, const char *path, enum pst_dtype dtype, int rank,
                          const int64_t shape[2])
{
    struct stat st;
    *array = (struct pst_array){.dtype = dtype, .rank = rank, .shape = {shape[0], shape[1]}};
    if (strlen(path) >= sizeof array->path)
        return pst_fail(PST_E_LIMIT, "the path of an array has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof array->path - 1, path);
    if (stat(path, &st) != 0)
        return pst_fail_errno("cannot open %s", path);
    if (__builtin_mul_overflow((uint64_t)shape[0], (uint64_t)shape[1], &array->data_bytes) ||
        __builtin_mul_overflow(array->data_bytes, pst_dtype_bytes(dtype), &array->data_bytes) ||
        !S_ISREG(st.st_mode) || (uint64_t)st.st_size != array->data_bytes)
        return pst_fail(PST_E_FORMAT,
                        "%s: expected a file of %" PRId64 " x %" PRId64
                        " %s without a header, found %jd bytes",
                        path, shape[0], shape[1], pst_dtype_name(dtype), (intmax_t)st.st_size);
    memcpy(array->path, path, strlen(path) + 1);
    return PST_OK;
}

pst_rc pst_array_map(struct pst_array *array)
{
    assert(array->path[0] != '\0' && array->map == NULL);
    if (array->data_at % pst_dtype_bytes(array->dtype) != 0)
        return pst_fail(PST_E_FORMAT,
                        "%s: data begins at byte %" PRIu64
                        ", which is not a multiple of %zu: save the array again with numpy.save",
                        array->path, array->data_at, pst_dtype_bytes(array->dtype));
    int fd = open(array->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open %s", array->path);
    pst_rc rc = PST_OK;
    struct stat st;
    size_t bytes = (size_t)(array->data_at + array->data_bytes);
    void *base = MAP_FAILED;
    if (bytes == 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected numbers, found an empty file", array->path);
    else if (fstat(fd, &st) != 0)
        rc = pst_fail_errno("%s: cannot get the status of the file", array->path);
    else if ((uint64_t)st.st_size != bytes)
        rc = pst_fail(PST_E_FORMAT, "%s: expected %zu bytes, found %jd: the file changed since it was opened",
                      array->path, bytes, (intmax_t)st.st_size);
    else if ((base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        rc = pst_fail_errno("%s: cannot map %zu bytes", array->path, bytes);
    (void)close(fd);
    if (rc != PST_OK)
        return rc;
    array->map_base = base;
    array->map_bytes = bytes;
    array->map = (const char *)base + array->data_at;
    return PST_OK;
}

void pst_array_close(struct pst_array *array)
{
    /* ThreadSanitizer forgets only pages that munmap() gets whole: a library that is then mapped there would
     * seem to race with this array. */
    if (array->map_base != NULL)
        (void)munmap(array->map_base, pst_align_up(array->map_bytes, PST_PAGE));
    *array = (struct pst_array){.map = NULL};
}

static pst_rc flush(struct pst_array_writer *w)
{
    if (XXH3_64bits_update(w->hash, w->buffer, w->fill) != XXH_OK)
        return pst_fail(PST_E_STATE, "%s: cannot compute the checksum", w->path);
    size_t done = 0;
    while (done < w->fill) {
        ssize_t n = write(w->fd, w->buffer + done, w->fill - done);
        if (n < 0)
            return pst_fail_errno("%s: cannot write %zu bytes at byte %" PRIu64, w->path, w->fill - done,
                                  w->written);
        done += (size_t)n;
    }
    w->flushed += w->fill;
    w->fill = 0;
    if (w->flushed - w->started >= WRITEBACK_BYTES) {
        /* A hint: where it is not supported, the sync at the end does all the work. */
        (void)sync_file_range(w->fd, (off_t)w->started, (off_t)(w->flushed - w->started),
                              SYNC_FILE_RANGE_WRITE);
        w->started = w->flushed;
    }
    return PST_OK;
}

/* All of a writer but its file. */
static pst_rc prepare(struct pst_array_writer *w, const char *path, enum pst_dtype dtype, int rank,
                      const int64_t shape[2])
{
    assert(rank == 1 || rank == 2);
    *w = (struct pst_array_writer){.fd = -1, .dtype = dtype, .rank = rank};
    if (strlen(path) >= sizeof w->path)
        return pst_fail(PST_E_LIMIT, "the path of an array has %zu bytes; at most %zu are allowed: %.80s...",
                        strlen(path), sizeof w->path - 1, path);
    memcpy(w->path, path, strlen(path) + 1);
    w->shape[0] = shape[0];
    w->shape[1] = rank == 2 ? shape[1] : 1;
    assert(w->shape[0] >= 0 && w->shape[1] >= 0);
    uint64_t items;
    if (__builtin_mul_overflow((uint64_t)w->shape[0], (uint64_t)w->shape[1], &items) ||
        __builtin_mul_overflow(items, pst_dtype_bytes(dtype), &w->expected) || w->expected > INT64_MAX)
        return pst_fail(PST_E_LIMIT,
                        "%s: %" PRId64 " x %" PRId64
                        " %s is too large: the size in bytes does not fit 63 bits",
                        path, w->shape[0], w->shape[1], pst_dtype_name(dtype));
    w->buffer = malloc(WRITE_BUFFER_BYTES);
    w->hash = XXH3_createState();
    if (w->buffer == NULL || w->hash == NULL || XXH3_64bits_reset(w->hash) != XXH_OK)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a buffer of %u bytes", path,
                        WRITE_BUFFER_BYTES);
    return PST_OK;
}

pst_rc pst_array_writer_init(struct pst_array_writer *w, const char *path, enum pst_dtype dtype, int rank,
                             const int64_t shape[2])
{
    pst_rc rc = prepare(w, path, dtype, rank, shape);
    if (rc == PST_OK) {
        w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        rc = w->fd >= 0 ? PST_OK : pst_fail_errno("cannot create %s", path);
    }
    if (rc != PST_OK) {
        pst_array_writer_release(w);
        return rc;
    }
    pst_npy_format((char *)w->buffer, dtype, rank, shape);
    w->fill = PST_PAGE;
    return PST_OK;
}

/* The checksum of the file's first bytes. */
static pst_rc hash_begin(struct pst_array_writer *w, int fd, uint64_t bytes)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t at = 0; at < bytes;) {
        size_t want = bytes - at < WRITE_BUFFER_BYTES ? (size_t)(bytes - at) : WRITE_BUFFER_BYTES;
        ssize_t n = pread(fd, w->buffer, want, (off_t)at);
        if (n < 0)
            return pst_fail_errno("%s: cannot read", w->path);
        if (n == 0)
            return pst_fail(PST_E_FORMAT, "%s: expected %" PRIu64 " bytes, found %" PRIu64, w->path, bytes,
                            at);
        (void)XXH3_64bits_update(w->hash, w->buffer, (size_t)n);
        at += (uint64_t)n;
    }
    return PST_OK;
}

pst_rc pst_array_writer_reopen(struct pst_array_writer *w, const char *path, enum pst_dtype dtype, int rank,
                               const int64_t shape[2], uint64_t written)
{
    pst_rc rc = prepare(w, path, dtype, rank, shape);
    uint64_t bytes = PST_PAGE + written;
    if (rc == PST_OK && written > w->expected)
        rc = pst_fail(PST_E_STATE,
                      "%s: the interrupted import wrote more bytes than the array's shape allows: import "
                      "again without --resume",
                      path);
    if (rc == PST_OK && (w->fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        rc = pst_fail_errno("cannot open %s", path);
    if (rc == PST_OK)
        rc = hash_begin(w, w->fd, bytes);
    if (rc == PST_OK && (ftruncate(w->fd, (off_t)bytes) != 0 || lseek(w->fd, 0, SEEK_END) < 0))
        rc = pst_fail_errno("%s: cannot truncate the file", path);
    w->written = written;
    w->flushed = w->started = bytes;
    if (rc != PST_OK)
        pst_array_writer_release(w);
    return rc;
}

pst_rc pst_array_writer_sync(struct pst_array_writer *w)
{
    pst_rc rc = flush(w);
    if (rc == PST_OK && fdatasync(w->fd) != 0)
        rc = pst_fail_errno("%s: cannot sync to disk", w->path);
    return rc;
}

pst_rc pst_array_write(struct pst_array_writer *w, const void *data, size_t bytes)
{
    if (bytes > w->expected - w->written)
        return pst_fail(PST_E_STATE, "%s: cannot write %zu bytes more than the array's shape allows", w->path,
                        bytes - (size_t)(w->expected - w->written));
    const unsigned char *from = data;
    while (bytes > 0) {
        size_t n = WRITE_BUFFER_BYTES - w->fill;
        if (n > bytes)
            n = bytes;
        memcpy(w->buffer + w->fill, from, n);
        w->fill += n;
        w->written += n;
        from += n;
        bytes -= n;
        if (w->fill == WRITE_BUFFER_BYTES) {
            pst_rc rc = flush(w);
            if (rc != PST_OK)
                return rc;
        }
    }
    return PST_OK;
}

pst_rc pst_array_writer_shrink(struct pst_array_writer *w, int64_t rows)
{
    assert(rows >= 0 && rows <= w->shape[0]);
    w->shrunk = rows != w->shape[0];
    w->shape[0] = rows;
    w->expected = (uint64_t)rows * (uint64_t)w->shape[1] * pst_dtype_bytes(w->dtype);
    return w->written == w->expected
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "%s: the array needs %" PRIu64 " bytes of data, but %" PRIu64 " were written",
                          w->path, w->expected, w->written);
}

/* The header that is true now, and the checksum with it. */
static pst_rc rewrite_header(struct pst_array_writer *w)
{
    pst_npy_format((char *)w->buffer, w->dtype, w->rank, w->shape);
    if (pwrite(w->fd, w->buffer, PST_PAGE, 0) != PST_PAGE)
        return pst_fail_errno("%s: cannot write the header", w->path);
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open %s", w->path);
    (void)XXH3_64bits_reset(w->hash);
    pst_rc rc = hash_begin(w, fd, PST_PAGE + w->expected);
    (void)close(fd);
    return rc;
}

pst_rc pst_array_writer_finish(struct pst_array_writer *w, uint64_t *checksum)
{
    if (w->written != w->expected)
        return pst_fail(PST_E_STATE,
                        "%s: the array needs %" PRIu64 " bytes of data, but %" PRIu64 " were written",
                        w->path, w->expected, w->written);
    pst_rc rc = flush(w);
    if (rc == PST_OK && w->shrunk)
        rc = rewrite_header(w);
    if (rc != PST_OK)
        return rc;
    if (fsync(w->fd) != 0)
        return pst_fail_errno("%s: cannot sync to disk", w->path);
    *checksum = XXH3_64bits_digest(w->hash);
    int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 ? PST_OK : pst_fail_errno("%s: cannot close", w->path);
}

void pst_array_writer_release(struct pst_array_writer *w)
{
    if (w->path[0] != '\0' && w->fd >= 0)
        (void)close(w->fd); /* a zeroed writer's fd 0 is not ours */
    free(w->buffer);
    (void)XXH3_freeState(w->hash);
    *w = (struct pst_array_writer){.fd = -1};
}
