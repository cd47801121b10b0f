/* features.c: writes or links the feature rows, and checks their values. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/store/dataset/stride.h"
#include "common/error.h"
#include "common/store/import/importing.h"

#define BLOCK_BYTES (1u << 20) /* rows are written in blocks of about this, at least one row */

static pst_rc bad_value(const struct pst_array *a, int64_t row, int64_t column, double value)
{
    const char *why = isnan(value)   ? "NaN: expected a finite number"
                      : isinf(value) ? "infinite: expected a finite number"
                                     : "the value does not fit float32";
    return pst_fail(PST_E_FORMAT, "%s: row %" PRId64 ", column %" PRId64 ": %s", a->path, row, column, why);
}

static inline double real_at(const struct pst_array *a, int64_t i)
{
    return a->dtype == PST_F32 ? (double)((const float *)a->map)[i] : ((const double *)a->map)[i];
}

static inline bool fits_float(double x)
{
    return isfinite(x) && isfinite((float)x);
}

static pst_rc dense_row(const struct pst_import_state *im, int64_t v, float *out)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    for (int64_t j = 0; j < im->feature_dim; j++) {
        double x = real_at(a, v * im->feature_dim + j);
        if (!fits_float(x))
            return bad_value(a, v, j, x);
        out[j] = (float)x;
    }
    return PST_OK;
}

static pst_rc sparse_row(const struct pst_import_state *im, int64_t v, float *out)
{
    const struct pst_array *indptr = &im->src[PST_IMPORT_FEAT_INDPTR], *data = &im->src[PST_IMPORT_FEAT_DATA];
    memset(out, 0, (size_t)im->feature_dim * sizeof *out);
    int64_t end = pst_import_int_at(indptr, v + 1);
    for (int64_t k = pst_import_int_at(indptr, v); k < end; k++) {
        int64_t column = pst_import_int_at(&im->src[PST_IMPORT_FEAT_INDICES], k);
        double x = real_at(data, k);
        if (!fits_float(x) || !fits_float((double)out[column] + x))
            return bad_value(data, v, column, x);
        out[column] = (float)((double)out[column] + x);
    }
    return PST_OK;
}

/* float16 and bfloat16 go through as they are: only the exponent is looked at. */
static pst_rc half_row(const struct pst_import_state *im, int64_t v, uint16_t *out)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    const uint16_t *from = (const uint16_t *)a->map + v * im->feature_dim;
    uint16_t exponent = a->dtype == PST_F16 ? 0x7c00 : 0x7f80;
    for (int64_t j = 0; j < im->feature_dim; j++) {
        if ((from[j] & exponent) == exponent)
            return bad_value(a, v, j, (from[j] & 0x7fff & ~exponent) != 0 ? (double)NAN : (double)INFINITY);
        out[j] = from[j];
    }
    return PST_OK;
}

static void normalize_row(enum pst_import_normalize how, float *row, int64_t dim)
{
    double sum = 0;
    for (int64_t j = 0; j < dim; j++)
        sum += how == PST_IMPORT_NORMALIZE_L1 ? fabs((double)row[j]) : (double)row[j] * (double)row[j];
    double scale = how == PST_IMPORT_NORMALIZE_L1 ? sum : sqrt(sum);
    for (int64_t j = 0; j < dim && scale > 0; j++)
        row[j] = (float)((double)row[j] / scale);
}

static pst_rc fill_row(const struct pst_import_state *im, enum pst_dtype dtype, int64_t v, void *out)
{
    if (dtype != PST_F32)
        return half_row(im, v, out);
    pst_rc rc = pst_import_has(im, PST_IMPORT_FEATURES) ? dense_row(im, v, out) : sparse_row(im, v, out);
    if (rc == PST_OK && im->spec->normalize != PST_IMPORT_NORMALIZE_NONE)
        normalize_row(im->spec->normalize, out, im->feature_dim);
    return rc;
}

/* What is written: halves as they are, all else as float32. */
static enum pst_dtype dtype_of(const struct pst_import_state *im)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    bool half = pst_import_has(im, PST_IMPORT_FEATURES) && (a->dtype == PST_F16 || a->dtype == PST_BF16);
    return half ? a->dtype : PST_F32;
}

static pst_rc stream(const struct pst_import_state *im, struct pst_build *b, int type,
                     struct pst_build_row_writer *w, char *buffer, int64_t block, uint64_t stride,
                     struct pst_progress *progress)
{
    for (int64_t first = w->next; first < im->vertices; first += block) {
        int64_t rows = pst_min_i64(block, im->vertices - first);
        pst_rc rc = PST_OK;
        for (int64_t i = 0; i < rows && rc == PST_OK; i++)
            rc = fill_row(im, dtype_of(im), first + i, buffer + (uint64_t)i * stride);
        if (rc == PST_OK)
            rc = pst_build_row_writer_put(w, buffer, rows);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)rows * stride);
        if (rc == PST_OK && pst_journal_due(&b->journal)) {
            rc = pst_build_rows_note(b, type, w);
            if (rc == PST_OK)
                rc = pst_journal_save(&b->journal);
        }
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* ---- --link: the source itself, by a symbolic link ---- */

static const char *why_not(const struct pst_import_state *im, int type)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    uint64_t row = (uint64_t)im->feature_dim * pst_dtype_bytes(dtype_of(im));
    if (!pst_import_has(im, PST_IMPORT_FEATURES))
        return "the features come from several arrays";
    if (type >= 0)
        return "there are several vertex types";
    if (im->spec->raw[PST_IMPORT_FEATURES].rank != 0)
        return "the file has no NumPy header";
    if (im->spec->told_as[PST_IMPORT_FEATURES][0] != '\0')
        return "the features are computed from another file";
    if (a->dtype == PST_F64)
        return "float64 must be converted to float32";
    if (im->spec->normalize != PST_IMPORT_NORMALIZE_NONE)
        return "--normalize changes the values";
    if (im->spec->stride_bytes != 0 && im->spec->stride_bytes != row)
        return "--stride-bytes differs from the row size of the file";
    return NULL;
}

/* Looks at every value, and takes the checksum of the whole file. */
static pst_rc look_at_all(const struct pst_import_state *im, uint64_t row, uint64_t *checksum,
                          struct pst_progress *progress)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    void *out = malloc(row);
    XXH3_state_t *hash = XXH3_createState();
    pst_rc rc = out != NULL && hash != NULL && XXH3_64bits_reset(hash) == XXH_OK
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a row of %" PRIu64 " bytes", row);
    if (rc == PST_OK)
        (void)XXH3_64bits_update(hash, a->map_base, a->data_at);
    for (int64_t v = 0; rc == PST_OK && v < im->vertices; v++) {
        rc = fill_row(im, a->dtype, v, out);
        (void)XXH3_64bits_update(hash, (const char *)a->map + (uint64_t)v * row, row);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, row);
    }
    if (rc == PST_OK)
        *checksum = XXH3_64bits_digest(hash);
    free(out);
    (void)XXH3_freeState(hash);
    return rc;
}

static pst_rc link_features(const struct pst_import_state *im, struct pst_build *b, int type,
                            struct pst_progress *progress)
{
    const struct pst_array *a = &im->src[PST_IMPORT_FEATURES];
    const char *why = why_not(im, type);
    if (why != NULL)
        return pst_fail(PST_E_ARG,
                        "--link cannot be used, because %s: import without --link to copy the features", why);
    uint64_t row = (uint64_t)im->feature_dim * pst_dtype_bytes(a->dtype);
    struct pst_array_entry e = {
        .present = true, .dtype = a->dtype, .rank = 2, .shape = {im->vertices, im->feature_dim}};
    char target[PATH_MAX], path[4096 + PST_NAME_MAX];
    struct stat st;
    if (realpath(a->path, target) == NULL || stat(target, &st) != 0)
        return pst_fail_errno("cannot create a link to %s", a->path);
    pst_progress_begin(progress, "features: checking", (uint64_t)im->vertices * row, true);
    pst_rc rc = look_at_all(im, row, &e.checksum, progress);
    if (rc != PST_OK)
        return rc;
    pst_progress_end(progress);
    e.linked_bytes = (int64_t)st.st_size;
    e.linked_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    (void)snprintf(e.file, sizeof e.file, "%s.npy", pst_array_id_name(PST_ARRAY_FEATURES));
    (void)snprintf(path, sizeof path, "%s/%s", b->partial, e.file);
    (void)unlink(path); /* of an import that was killed */
    if (symlink(target, path) != 0)
        return pst_fail_errno("cannot create the link %s", path);
    b->manifest.array[PST_ARRAY_FEATURES] = e;
    pst_build_note_features(b, type, im->feature_dim, row);
    return PST_OK;
}

pst_rc pst_import_features(const struct pst_import_state *im, struct pst_build *b, int type,
                           struct pst_progress *progress)
{
    if (im->feature_dim == 0)
        return PST_OK;
    enum pst_dtype dtype = dtype_of(im);
    if (dtype != PST_F32 && im->spec->normalize != PST_IMPORT_NORMALIZE_NONE)
        return pst_fail(PST_E_ARG, "%s: %s features cannot be normalized: convert them to float32 first",
                        im->src[PST_IMPORT_FEATURES].path, pst_dtype_name(dtype));
    if (im->spec->link)
        return link_features(im, b, type, progress);
    pst_rc rc = pst_stride_check(im->spec->stride_bytes, im->feature_dim, dtype);
    if (rc != PST_OK)
        return rc;
    uint64_t stride =
        im->spec->stride_bytes != 0 ? im->spec->stride_bytes : pst_stride_for(im->feature_dim, dtype);
    int64_t block = pst_max_i64(1, (int64_t)(BLOCK_BYTES / stride));
    char *buffer = calloc((size_t)block, stride); /* padding is never written again: it stays zero */
    if (buffer == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " rows of %" PRIu64 " bytes",
                        block, stride);
    const int64_t shape[2] = {im->vertices, (int64_t)(stride / pst_dtype_bytes(dtype))};
    struct pst_build_row_writer *w = calloc(1, sizeof *w); /* paths: too much for the stack */
    rc = w != NULL ? pst_build_rows(b, type, dtype, shape, w)
                   : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate paths");
    pst_progress_begin(progress, "features", (uint64_t)im->vertices * stride, true);
    if (rc == PST_OK)
        rc = stream(im, b, type, w, buffer, block, stride, progress);
    if (rc == PST_OK)
        rc = pst_build_rows_end(b, type, w);
    if (rc == PST_OK) {
        pst_progress_end(progress);
        pst_build_note_features(b, type, im->feature_dim, stride);
    }
    if (w != NULL)
        pst_build_row_writer_release(w);
    free(w);
    free(buffer);
    return rc;
}
