/* rows.c: opens, maps and reads feature rows from one file or from stripes. */
#include "common/store/dataset/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/file.h"

#define ROWS_AT_ONCE 256 /* of a stripe, by one system call */

pst_rc pst_stripe_head(const char *path, uint64_t *head)
{
    struct stat st;
    void *text = malloc(PST_STRIPE_HEAD);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    pst_rc rc = PST_OK;
    uint64_t bytes = PST_STRIPE_HEAD;
    if (text == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot read the rows of %s", path);
    else if (fd < 0 || fstat(fd, &st) != 0)
        rc = pst_fail_errno("cannot open %s", path);
    else
        bytes = (uint64_t)st.st_size < bytes ? (uint64_t)st.st_size : bytes;
    if (rc == PST_OK)
        rc = pst_file_read_at(fd, text, bytes, 0, path);
    if (rc == PST_OK)
        *head = XXH3_64bits(text, bytes);
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return rc;
}

pst_rc pst_rows_map_features(struct pst_dataset *ds)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < ds->vertex_types && rc == PST_OK; k++)
        if (ds->vertex_type[k].feature_dim > 0)
            rc = pst_array_map(&ds->vertex_type[k].features);
    if (ds->stripes == 0 && ds->feature_dim > 0)
        rc = pst_array_map(&ds->features);
    for (int k = 0; k < ds->stripes && rc == PST_OK; k++)
        rc = pst_array_map(&ds->stripe[k]);
    return rc;
}

pst_rc pst_rows_join_types(struct pst_dataset *ds)
{
    const struct pst_vertex_type *first = NULL;
    if (ds->vertex_types == 0 || ds->features.joined != NULL)
        return PST_OK;
    if (ds->vertex_types > PST_ROWS_TYPES_MAX)
        return pst_fail(PST_E_UNSUPPORTED, "the dataset %s has %d types of vertices; expected at most %d",
                        ds->dir, ds->vertex_types, PST_ROWS_TYPES_MAX);
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        if (t->feature_dim == 0)
            continue;
        first = first != NULL ? first : t;
        if (t->features.dtype != first->features.dtype)
            return pst_fail(PST_E_UNSUPPORTED,
                            "the dataset %s: the features of %s are %s, but those of %s are %s: import all "
                            "features with the same element type",
                            ds->dir, first->name, pst_dtype_name(first->features.dtype), t->name,
                            pst_dtype_name(t->features.dtype));
        ds->feature_dim = pst_max_i64(ds->feature_dim, t->feature_dim);
        ds->stride_bytes = t->stride_bytes > ds->stride_bytes ? t->stride_bytes : ds->stride_bytes;
    }
    if (first == NULL)
        return pst_fail(PST_E_UNSUPPORTED, "the dataset %s: no type of vertices has features", ds->dir);
    const enum pst_dtype dtype = first->features.dtype;
    ds->features =
        (struct pst_array){.dtype = dtype,
                           .rank = 2,
                           .shape = {ds->vertices, (int64_t)(ds->stride_bytes / pst_dtype_bytes(dtype))},
                           .data_at = PST_PAGE,
                           .data_bytes = (uint64_t)ds->vertices * ds->stride_bytes,
                           .joined = ds->vertex_type,
                           .joined_types = ds->vertex_types};
    (void)snprintf(ds->features.path, sizeof ds->features.path, "%.4000s/features_*.npy", ds->dir);
    return PST_OK;
}

static pst_rc open_types(struct pst_row_files *r, const struct pst_array *joined)
{
    for (; r->files < joined->joined_types; r->files++) {
        const struct pst_vertex_type *t = &joined->joined[r->files];
        r->fd[r->files] = t->feature_dim > 0 ? open(t->features.path, O_RDONLY | O_CLOEXEC) : -1;
        if (r->fd[r->files] < 0 && t->feature_dim > 0) {
            const pst_rc rc = pst_fail_errno("cannot open %s", t->features.path);
            pst_row_files_close(r);
            return rc;
        }
    }
    return PST_OK;
}

pst_rc pst_row_files_open(struct pst_row_files *r, const struct pst_array *file, int files,
                          uint64_t stride_bytes)
{
    assert(files >= 1 && files <= PST_DATASET_FEATURE_FILES_MAX);
    *r = (struct pst_row_files){.file = file, .stride_bytes = stride_bytes};
    if (file->joined != NULL)
        return open_types(r, file);
    for (; r->files < files; r->files++) {
        r->fd[r->files] = open(file[r->files].path, O_RDONLY | O_CLOEXEC);
        if (r->fd[r->files] < 0) {
            pst_rc rc = pst_fail_errno("cannot open %s", file[r->files].path);
            pst_row_files_close(r);
            return rc;
        }
    }
    return PST_OK;
}

void pst_row_files_close(struct pst_row_files *r)
{
    while (r->files > 0)
        if (r->fd[--r->files] >= 0)
            (void)close(r->fd[r->files]);
}

/* Which rows of file k are of rows first to first + n - 1: as many as this gives, from row *row of the file
 * on; the first of them is the *place-th asked for. */
static int64_t part_of(const struct pst_row_files *r, int k, int64_t first, int64_t n, int64_t *row,
                       int64_t *place)
{
    *place = (k - first % r->files + r->files) % r->files;
    *row = (first + *place) / r->files;
    return *place < n ? (n - 1 - *place) / r->files + 1 : 0;
}

/* `rows` rows of one stripe from `row` on, to every files-th place of out. */
static pst_rc read_stripe(const struct pst_row_files *r, int k, int64_t row, int64_t rows, char *out)
{
    const struct pst_array *a = &r->file[k];
    pst_rc rc = PST_OK;
    for (int64_t done = 0; done < rows && rc == PST_OK;) {
        struct iovec piece[ROWS_AT_ONCE];
        const int64_t take = pst_min_i64(ROWS_AT_ONCE, rows - done);
        for (int64_t i = 0; i < take; i++)
            piece[i] = (struct iovec){out + (uint64_t)(done + i) * (uint64_t)r->files * r->stride_bytes,
                                      r->stride_bytes};
        rc = pst_file_readv_at(r->fd[k], piece, (int)take,
                               a->data_at + (uint64_t)(row + done) * r->stride_bytes, a->path);
        done += take;
    }
    return rc;
}

/* Rows first.. of the type k, which has all of them. They are read to the end of `out`, and move from there
 * to their places. */
static pst_rc read_type(const struct pst_row_files *r, int k, int64_t first, int64_t n, char *out)
{
    const struct pst_vertex_type *t = &r->file->joined[k];
    const uint64_t stride = r->stride_bytes, own = t->feature_dim > 0 ? t->stride_bytes : 0;
    char *from = out + (uint64_t)n * (stride - own);
    if (own == 0) {
        memset(out, 0, (uint64_t)n * stride);
        return PST_OK;
    }
    const pst_rc rc = pst_file_read_at(r->fd[k], from, (uint64_t)n * own,
                                       t->features.data_at + (uint64_t)first * own, t->features.path);
    for (int64_t i = 0; i < n && own < stride && rc == PST_OK; i++) {
        memmove(out + (uint64_t)i * stride, from + (uint64_t)i * own, own);
        memset(out + (uint64_t)i * stride + own, 0, stride - own); /* ends before the next row to be moved */
    }
    return rc;
}

static pst_rc read_types(const struct pst_row_files *r, int64_t first, int64_t n, char *out)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < r->files && rc == PST_OK; k++) {
        const struct pst_vertex_type *t = &r->file->joined[k];
        const int64_t from = pst_max_i64(first, t->first),
                      end = pst_min_i64(first + n, t->first + t->vertices);
        if (from < end)
            rc = read_type(r, k, from - t->first, end - from,
                           out + (uint64_t)(from - first) * r->stride_bytes);
    }
    return rc;
}

pst_rc pst_row_files_read(const struct pst_row_files *r, int64_t first, int64_t n, void *out)
{
    pst_rc rc = PST_OK;
    assert(r->files > 0);
    if (r->file->joined != NULL)
        return read_types(r, first, n, out);
    if (r->files == 1) {
        const int64_t row = first - r->file[0].first_row;
        if (row < 0)
            return pst_fail(
                PST_E_FORMAT,
                "%s has the feature rows from vertex %lld on, which is a part of the dataset; the "
                "row of vertex %lld is in another part",
                r->file[0].path, (long long)r->file[0].first_row, (long long)first);
        return pst_file_read_at(r->fd[0], out, (uint64_t)n * r->stride_bytes,
                                r->file[0].data_at + (uint64_t)row * r->stride_bytes, r->file[0].path);
    }
    for (int k = 0; k < r->files && rc == PST_OK; k++) {
        int64_t row, place;
        const int64_t rows = part_of(r, k, first, n, &row, &place);
        rc = read_stripe(r, k, row, rows, (char *)out + (uint64_t)place * r->stride_bytes);
    }
    return rc;
}

void pst_row_files_advise(const struct pst_row_files *r, int64_t first, int64_t n, int advice)
{
    for (int k = 0; k < r->files && r->file->joined == NULL; k++) {
        int64_t row, place;
        const int64_t rows = part_of(r, k, first, n, &row, &place);
        if (rows > 0) /* nothing of a file would be all of it */
            (void)posix_fadvise(r->fd[k], (off_t)(r->file[k].data_at + (uint64_t)row * r->stride_bytes),
                                (off_t)((uint64_t)rows * r->stride_bytes), advice);
    }
}
