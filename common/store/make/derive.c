/* derive.c: derives a dataset from another: splits, dtype, stride, features, a part of a cut. */
#include "common/store/make/derive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/make/gen.h"
#include "common/store/dataset/stride.h"
#include "common/store/make/gen_impl.h"
#include "common/store/make/shuffle.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/values.h"

#define COPY_BYTES (1u << 20)

/* Between file systems, where copy_file_range may not. */
static pst_rc copy_all(int in, int out, const char *from, const char *to)
{
    char *block = malloc(COPY_BYTES);
    pst_rc rc = block != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot copy %s", from);
    for (ssize_t n = 1; rc == PST_OK && n > 0;) {
        n = read(in, block, COPY_BYTES);
        if (n < 0)
            rc = pst_fail_errno("cannot read %s", from);
        for (ssize_t done = 0, put = 0; rc == PST_OK && done < n; done += put)
            if ((put = write(out, block + done, (size_t)(n - done))) <= 0)
                rc = pst_fail_errno("cannot write %s", to);
    }
    free(block);
    return rc;
}

static pst_rc copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    pst_rc rc = in >= 0 && out >= 0 ? PST_OK : pst_fail_errno("cannot copy %s to %s", from, to);
    if (rc == PST_OK)
        rc = copy_all(in, out, from, to);
    if (rc == PST_OK && fsync(out) != 0)
        rc = pst_fail_errno("cannot sync %s", to);
    if (in >= 0)
        (void)close(in);
    if (out >= 0)
        (void)close(out);
    return rc;
}

static pst_rc copy_link(const char *from, const char *to)
{
    char target[4096];
    ssize_t n = readlink(from, target, sizeof target - 1);
    if (n < 0)
        return pst_fail_errno("cannot read the link %s", from);
    target[n] = '\0';
    return symlink(target, to) == 0 ? PST_OK : pst_fail_errno("cannot create the link %s", to);
}

/* The file of one entry under another name, with its checksum. */
static pst_rc adopt_file(const struct pst_build *b, const struct pst_array_entry *e, const char *dir,
                         const char *name, struct pst_array_entry *out)
{
    if (!e->present)
        return PST_OK;
    char source[4096 + PST_NAME_MAX], path[4096 + PST_NAME_MAX];
    (void)snprintf(source, sizeof source, "%s/%s", dir, e->file);
    (void)snprintf(path, sizeof path, "%s/%s", b->partial, name);
    *out = *e;
    (void)snprintf(out->file, sizeof out->file, "%s", name);
    if (e->linked_ns != 0)
        return copy_link(source, path);
    return link(source, path) == 0 ? PST_OK : copy_file(source, path);
}

pst_rc pst_derive_adopt(struct pst_build *b, const struct pst_manifest *from, const char *dir,
                        enum pst_array_id id)
{
    char name[PST_NAME_MAX];
    (void)snprintf(name, sizeof name, "%s.npy", pst_array_id_name(id));
    return adopt_file(b, &from->array[id], dir, name, &b->manifest.array[id]);
}

/* Each as it is; where stripes lie in other directories, the new ones do so, too. */
static pst_rc adopt_stripes(struct pst_build *b, const struct pst_manifest *from, const char *dir)
{
    if (from->stripes == 0)
        return PST_OK;
    struct pst_manifest *m = &b->manifest;
    pst_rc rc = pst_manifest_stripes(m, from->stripes);
    m->array[PST_ARRAY_FEATURES] = from->array[PST_ARRAY_FEATURES];
    for (int k = 0; k < m->stripes && rc == PST_OK; k++) {
        const struct pst_array_entry *e = &from->stripe[k];
        char name[PST_NAME_MAX], source[4096 + PST_NAME_MAX], path[4096 + PST_NAME_MAX], target[4096];
        bool far;
        pst_build_stripe_name(k, name);
        (void)snprintf(source, sizeof source, "%s/%s", dir, e->file);
        (void)snprintf(path, sizeof path, "%s/%s", b->partial, name);
        rc = pst_build_stripe_link_adopt(b, k, source, path, &far);
        m->stripe[k] = *e;
        (void)snprintf(m->stripe[k].file, sizeof m->stripe[k].file, "%s", name);
        if (rc == PST_OK && !far)
            rc = readlink(source, target, sizeof target) > 0 ? copy_link(source, path)
                                                             : adopt_file(b, e, dir, name, &m->stripe[k]);
    }
    return rc;
}

/* features: theirs, too; else there are none yet. */
static pst_rc adopt_types(struct pst_build *b, const struct pst_manifest *from, const char *dir,
                          bool features)
{
    if (from->vertex_types == 0)
        return PST_OK;
    struct pst_manifest *m = &b->manifest;
    pst_rc rc = pst_manifest_types(m, from->vertex_types, from->edge_types);
    if (rc != PST_OK)
        return rc;
    memcpy(m->vertex_type, from->vertex_type, (size_t)m->vertex_types * sizeof *m->vertex_type);
    memcpy(m->edge_type, from->edge_type, (size_t)m->edge_types * sizeof *m->edge_type);
    for (int k = 0; k < m->vertex_types && rc == PST_OK; k++) {
        char name[PST_NAME_MAX];
        struct pst_array_entry *e = &m->vertex_type[k].features;
        *e = (struct pst_array_entry){.present = false};
        pst_build_features_name(k, name);
        if (features)
            rc = adopt_file(b, &from->vertex_type[k].features, dir, name, e);
    }
    return rc;
}

/* All named splits: the first one's arrays are adopted as others are. */
static pst_rc adopt_splits(struct pst_build *b, const struct pst_manifest *from, const char *dir)
{
    if (from->splits == 0)
        return PST_OK;
    struct pst_manifest *m = &b->manifest;
    pst_rc rc = pst_manifest_splits(m, from->splits);
    for (int k = 0; k < from->splits && rc == PST_OK; k++) {
        memcpy(m->split[k].name, from->split[k].name, sizeof m->split[k].name);
        for (int i = 0; i < 3 && rc == PST_OK; i++) {
            char name[PST_NAME_MAX];
            pst_build_split_name(k, i, name);
            rc = adopt_file(b, &from->split[k].ids[i], dir, name, &m->split[k].ids[i]);
        }
    }
    return rc;
}

/* Counts, names and every array but those from `first` to `last`. */
static pst_rc adopt_but(const struct pst_dataset *ds, struct pst_build *b, enum pst_array_id first,
                        enum pst_array_id last)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest from;
    pst_manifest_read(&from, ds->dir, &problems);
    pst_rc rc = pst_problems_result(&problems, ds->dir);
    memcpy(b->manifest.name, from.name, sizeof from.name);
    b->manifest.vertices = from.vertices;
    b->manifest.edges = from.edges;
    b->manifest.feature_dim = from.feature_dim;
    b->manifest.classes = from.classes;
    b->manifest.relations = from.relations;
    b->manifest.stride_bytes = from.stride_bytes;
    b->manifest.provenance = json_incref(from.provenance);
    for (unsigned i = 0; i < PST_ARRAY_COUNT && rc == PST_OK; i++)
        if ((i < first || i > last) && (i != PST_ARRAY_FEATURES || from.stripes == 0))
            rc = pst_derive_adopt(b, &from, ds->dir, i);
    const bool features = PST_ARRAY_FEATURES < first || PST_ARRAY_FEATURES > last;
    if (rc == PST_OK && features)
        rc = adopt_stripes(b, &from, ds->dir);
    if (rc == PST_OK && (PST_ARRAY_TRAIN < first || PST_ARRAY_TRAIN > last))
        rc = adopt_splits(b, &from, ds->dir);
    if (rc == PST_OK)
        rc = adopt_types(b, &from, ds->dir, features);
    pst_manifest_release(&from);
    return rc;
}

/* ---- splits ---- */

/* Vertices that can be in a split, ascending. */
static int64_t candidates(const struct pst_dataset *ds, int64_t *id)
{
    const int32_t *label = ds->labels.map;
    int64_t n = 0;
    for (int64_t v = 0; v < ds->vertices; v++)
        if (label == NULL || label[v] >= 0)
            id[n++] = v;
    return n;
}

static pst_rc write_split(struct pst_build *b, const struct pst_dataset *ds, const uint8_t *owner, int split,
                          int64_t count)
{
    if (count == 0)
        return PST_OK;
    int64_t *id = malloc((size_t)count * sizeof *id), n = 0;
    if (id == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " ids", count);
    for (int64_t v = 0; v < ds->vertices; v++)
        if (owner[v] == split + 1)
            id[n++] = v;
    pst_rc rc = pst_build_array_from(b, (enum pst_array_id)(PST_ARRAY_TRAIN + split), PST_I64, n, id);
    free(id);
    return rc;
}

pst_rc pst_derive_split(const struct pst_dataset *ds, struct pst_build *b, const double fraction[3],
                        uint64_t seed)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        if (!(fraction[i] >= 0 && fraction[i] <= 1))
            return pst_fail(PST_E_ARG, "the size of a split: expected a fraction from 0 to 1, found %g",
                            fraction[i]);
        sum += fraction[i];
    }
    if (sum <= 0)
        return pst_fail(PST_E_ARG, "give at least one of --train, --val and --test, for example --train 0.6");
    if (sum > 1 + 1e-9)
        return pst_fail(PST_E_ARG, "the sizes of the splits: expected a sum of at most 1, found %g", sum);
    int64_t *id = malloc(((size_t)ds->vertices + 1) * sizeof *id);
    uint8_t *owner = calloc((size_t)ds->vertices + 1, 1);
    pst_rc rc =
        id != NULL && owner != NULL
            ? adopt_but(ds, b, PST_ARRAY_TRAIN, PST_ARRAY_TEST)
            : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " vertices", ds->vertices);
    if (rc != PST_OK)
        goto out;
    int64_t n = candidates(ds, id), at = 0, count[3];
    if (sum * (double)n < 0.5)
        rc = pst_fail(PST_E_ARG,
                      "every split would be empty: the sizes of the splits sum to %g of %" PRId64
                      " vertices%s; give larger sizes",
                      sum, n, ds->labels.map != NULL ? " that have a label" : "");
    struct pst_shuffle shuffle;
    pst_shuffle_init(&shuffle, n, seed, 0);
    const bool all = sum > 1 - 1e-9; /* then the last part takes what rounding left over */
    int last = 2;
    while (fraction[last] <= 0)
        last--;
    for (int i = 0; i < 3 && rc == PST_OK; i++) {
        count[i] = all && i == last ? n - at : pst_min_i64((int64_t)(fraction[i] * (double)n + 0.5), n - at);
        for (int64_t end = at + count[i]; at < end; at++)
            owner[id[pst_shuffle_at(&shuffle, at)]] = (uint8_t)(i + 1);
    }
    for (int i = 0; i < 3 && rc == PST_OK; i++)
        rc = write_split(b, ds, owner, i, count[i]);
out:
    free(id);
    free(owner);
    return rc;
}

/* ---- dtypes ---- */

/* What makes the features of a new dataset looks at. */
struct made {
    const struct pst_array *rows; /* copied from, */
    const struct pst_dataset *ds; /* or converted from */
    int type;                     /* of vertices; -1: all */
    uint64_t seed;                /* or drawn */
    enum pst_dtype dtype;
    float *row; /* of drawn features */
};

static const struct pst_array *features_of(const struct pst_dataset *ds, int type)
{
    return type < 0 ? &ds->features : &ds->vertex_type[type].features;
}

static pst_rc put_row(const struct made *m, const struct pst_array *f, const void *from, int64_t v,
                      int64_t dim, void *out)
{
    for (int64_t j = 0; j < dim; j++)
        if (!pst_feature_put(out, m->dtype, j, pst_feature_value(from, f->dtype, j)))
            return pst_fail(PST_E_FORMAT,
                            "%s: row %" PRId64 ", column %" PRId64 ": the value does not fit %s", f->path, v,
                            j, pst_dtype_name(m->dtype));
    return PST_OK;
}

static pst_rc convert_rows(const void *ctx, int64_t first, int64_t rows, int64_t dim, int64_t stride,
                           void *out)
{
    const struct made *m = ctx;
    pst_rc rc = PST_OK;
    for (int64_t v = first; v < first + rows && rc == PST_OK;
         v++, out = (char *)out + (size_t)stride * pst_dtype_bytes(m->dtype))
        rc = put_row(m, features_of(m->ds, m->type), pst_rows_type_row(m->ds, m->type, v), v, dim, out);
    return rc;
}

static pst_rc copy_rows(const void *ctx, int64_t first, int64_t rows, int64_t dim, int64_t stride, void *out)
{
    const struct made *m = ctx;
    const size_t bytes = (size_t)dim * pst_dtype_bytes(m->rows->dtype);
    pst_rc rc = PST_OK;
    for (int64_t v = first; v < first + rows && rc == PST_OK;
         v++, out = (char *)out + (size_t)stride * pst_dtype_bytes(m->dtype))
        rc = put_row(m, m->rows, (const char *)m->rows->map + (size_t)v * bytes, v, dim, out);
    return rc;
}

/* The features of one type of vertices, if it has some; type -1: of all. only_check: looks at the stride
 * alone. */
static pst_rc convert_type(const struct pst_dataset *ds, struct pst_build *b, int type,
                           const struct pst_derive_convert_spec *spec, bool only_check,
                           struct pst_progress *progress)
{
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    const int64_t dim = t == NULL ? ds->feature_dim : t->feature_dim;
    const enum pst_dtype now = features_of(ds, type)->dtype;
    const struct made made = {.ds = ds, .type = type, .dtype = spec->change_dtype ? spec->dtype : now};
    if (dim == 0)
        return PST_OK;
    pst_rc rc = only_check ? pst_stride_check(spec->stride_bytes, dim, made.dtype)
                           : pst_gen_features(b, type, t == NULL ? ds->vertices : t->vertices, dim,
                                              made.dtype, spec->stride_bytes, convert_rows, &made, progress);
    return rc == PST_OK || t == NULL ? rc : pst_wrap(rc, "type %s", t->name);
}

pst_rc pst_derive_convert(const struct pst_dataset *ds, struct pst_build *b,
                          const struct pst_derive_convert_spec *spec, struct pst_progress *progress)
{
    const int first = ds->vertex_types > 0 ? 0 : -1, end = ds->vertex_types;
    int wide = 0;
    assert(!spec->change_dtype || spec->dtype == PST_F32 || spec->dtype == PST_F16 ||
           spec->dtype == PST_BF16);
    pst_rc rc = PST_OK;
    for (int type = first; type < end && rc == PST_OK; type++) {
        wide += (type < 0 ? ds->feature_dim : ds->vertex_type[type].feature_dim) > 0;
        rc = convert_type(ds, b, type, spec, true, progress);
    }
    if (rc == PST_OK && wide == 0)
        rc = pst_fail(PST_E_ARG, "%s has no features to convert", ds->dir);
    if (rc == PST_OK)
        rc = adopt_but(ds, b, PST_ARRAY_FEATURES, PST_ARRAY_FEATURES);
    for (int type = first; type < end && rc == PST_OK; type++)
        rc = convert_type(ds, b, type, spec, false, progress);
    return rc;
}

/* ---- features of an array, and generated ones ---- */

static pst_rc draw_rows(const void *ctx, int64_t first, int64_t rows, int64_t dim, int64_t stride, void *out)
{
    const struct made *m = ctx;
    for (int64_t v = first; v < first + rows;
         v++, out = (char *)out + (size_t)stride * pst_dtype_bytes(m->dtype)) {
        pst_gen_uniform(m->seed, v, dim, m->row);
        for (int64_t j = 0; j < dim; j++)
            (void)pst_feature_put(out, m->dtype, j, m->row[j]); /* at most 1: it fits */
    }
    return PST_OK;
}

pst_rc pst_derive_features(const struct pst_dataset *ds, struct pst_build *b,
                           const struct pst_derive_features_spec *spec, struct pst_progress *progress)
{
    assert(spec->dtype == PST_F32 || spec->dtype == PST_F16 || spec->dtype == PST_BF16);
    const struct pst_array *rows = spec->rows;
    const int64_t dim = rows != NULL ? rows->shape[1] : spec->dim;
    if (rows != NULL && (rows->dtype != PST_F32 && rows->dtype != PST_F16 && rows->dtype != PST_BF16))
        return pst_fail(PST_E_ARG, "%s: expected float32, float16 or bfloat16, found %s", rows->path,
                        pst_dtype_name(rows->dtype));
    if (rows != NULL && rows->shape[0] != ds->vertices)
        return pst_fail(PST_E_ARG,
                        "%s has %" PRId64 " rows; expected one for each of the %" PRId64 " vertices of %s",
                        rows->path, rows->shape[0], ds->vertices, ds->dir);
    const char *told = rows != NULL ? "the number of columns of --rows" : "--dim";
    if (dim < 1 || dim > PST_GEN_DIM_MAX)
        return pst_fail(PST_E_ARG, "%s: expected 1 to %d, found %" PRId64, told, PST_GEN_DIM_MAX, dim);
    if (ds->vertex_types > 0)
        return pst_fail(PST_E_ARG, "%s has %d vertex types, each with its own features: expected one type",
                        ds->dir, ds->vertex_types);
    struct made made = {
        .rows = rows, .seed = spec->seed, .dtype = spec->dtype, .row = calloc((size_t)dim, sizeof(float))};
    if (made.row == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a row of %" PRId64 " features", dim);
    pst_rc rc = pst_stride_check(spec->stride_bytes, dim, spec->dtype);
    if (rc == PST_OK)
        rc = adopt_but(ds, b, PST_ARRAY_FEATURES, PST_ARRAY_FEATURES);
    if (rc == PST_OK)
        rc = pst_gen_features(b, -1, ds->vertices, dim, spec->dtype, spec->stride_bytes,
                              rows != NULL ? copy_rows : draw_rows, &made, progress);
    if (rc == PST_OK)
        (void)json_object_set_new(
            b->manifest.provenance, "features",
            rows != NULL ? json_pack("{ss}", "rows", rows->path)
                         : json_pack("{ss sI}", "generated", "uniform", "seed", (json_int_t)spec->seed));
    free(made.row);
    return rc;
}

/* ---- parts ---- */

#define PART_BYTES (4u << 20) /* of rows that are copied at a time */

/* The lists of neighbours of the part's vertices. */
static pst_rc copy_lists(const struct pst_dataset *ds, struct pst_build *b, const struct pst_dataset_cut *cut,
                         struct pst_progress *progress)
{
    const struct pst_array *a = &ds->indices;
    const uint64_t item = pst_dtype_bytes(a->dtype);
    const int64_t first = cut->first_edge[cut->part], end = cut->first_edge[cut->part + 1];
    const char *from = (const char *)a->map + (uint64_t)first * item;
    const uint64_t bytes = (uint64_t)(end - first) * item;
    struct pst_array_writer w = {.fd = -1};
    pst_progress_begin(progress, "neighbours", bytes, true);
    pst_rc rc = pst_build_array(b, PST_ARRAY_INDICES, a->dtype, 1, (int64_t[2]){end - first, 1}, &w);
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PART_BYTES) {
        const uint64_t n = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        rc = pst_array_write(&w, from + at, n);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, n);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_INDICES, &w);
    if (rc == PST_OK)
        pst_progress_end(progress);
    pst_array_writer_release(&w);
    return rc;
}

static pst_rc copy_part(const struct pst_dataset *ds, struct pst_build_row_writer *w, int64_t first,
                        int64_t end, struct pst_progress *progress)
{
    const int64_t most = pst_max_i64(1, (int64_t)(PART_BYTES / ds->stride_bytes));
    char *rows = malloc((size_t)most * ds->stride_bytes);
    struct pst_row_files files;
    pst_rc rc = rows != NULL ? pst_row_files_open(&files, pst_feature_file(ds, 0), pst_feature_files(ds),
                                                  ds->stride_bytes)
                             : pst_fail(PST_E_NOMEM, "out of memory: cannot copy feature rows");
    if (rc != PST_OK) {
        free(rows);
        return rc;
    }
    for (int64_t v = first; v < end && rc == PST_OK; v += most) {
        const int64_t n = pst_min_i64(most, end - v);
        rc = pst_row_files_read(&files, v, n, rows);
        if (rc == PST_OK)
            rc = pst_build_row_writer_put(w, rows, n);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)n * ds->stride_bytes);
    }
    pst_row_files_close(&files);
    free(rows);
    return rc;
}

pst_rc pst_derive_part(const struct pst_dataset *ds, struct pst_build *b, const struct pst_dataset_cut *cut,
                       struct pst_progress *progress)
{
    const int64_t first = cut->first[cut->part], end = cut->first[cut->part + 1];
    struct pst_build_row_writer w;
    assert(ds->cut.parts == 0 && ds->vertex_types == 0 && ds->feature_dim > 0);
    static_assert(PST_ARRAY_INDICES + 1 == PST_ARRAY_FEATURES, "these two can be left out together");
    pst_rc rc = adopt_but(ds, b, cut->lists ? PST_ARRAY_INDICES : PST_ARRAY_FEATURES, PST_ARRAY_FEATURES);
    if (rc == PST_OK && cut->lists)
        rc = copy_lists(ds, b, cut, progress);
    if (rc != PST_OK)
        return rc;
    b->manifest.cut = *cut;
    b->manifest.whole = strtoull(ds->digest, NULL, 16);
    pst_build_note_features(b, -1, ds->feature_dim, ds->stride_bytes);
    pst_progress_begin(progress, "features", (uint64_t)(end - first) * ds->stride_bytes, true);
    rc = pst_build_rows(b, -1, ds->features.dtype, (int64_t[2]){end - first, ds->features.shape[1]}, &w);
    if (rc == PST_OK)
        rc = copy_part(ds, &w, first, end, progress);
    if (rc == PST_OK)
        rc = pst_build_rows_end(b, -1, &w);
    if (rc == PST_OK)
        pst_progress_end(progress);
    pst_build_row_writer_release(&w);
    return rc;
}
