/* same.c: whether two datasets have the same graph under their old ids. */
#include "common/store/reorder/same.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/dataset/rows.h"

#define ROWS_BYTES (1u << 20) /* of features that are read at a time, unless one row is larger */

struct same {
    struct pst_dataset *ds[2];
    uint64_t *hash; /* by old id: of what the first dataset has */
    struct pst_same_report *report;
    struct pst_progress *progress;
};

static int64_t old_id(const struct pst_dataset *ds, int64_t v)
{
    const int64_t *old = ds->old_ids.map;
    return old != NULL ? old[v] : v;
}

static void note(struct same *s, const char *name)
{
    char *to = s->report->compared;
    const size_t n = strlen(to);
    (void)snprintf(to + n, sizeof s->report->compared - n, "%s%s", n > 0 ? ", " : "", name);
}

static pst_rc differ_at(const struct same *s, const char *what, int64_t v)
{
    return pst_fail(PST_E_FORMAT,
                    "%s and %s differ in %s of the vertex with old id %" PRId64 " (vertex %" PRId64 " of %s)",
                    s->ds[0]->dir, s->ds[1]->dir, what, old_id(s->ds[1], v), v, s->ds[1]->dir);
}

static pst_rc counts_differ(const struct same *s, const char *what, int64_t a, int64_t b)
{
    return a == b ? PST_OK
                  : pst_fail(PST_E_FORMAT, "%s has %" PRId64 " %s, but %s has %" PRId64, s->ds[0]->dir, a,
                             what, s->ds[1]->dir, b);
}

/* ---- what vertices have --------------------------------------------------------------------------- */

/* The hash of what vertex v of a dataset has. */
typedef uint64_t hash_fn(const void *of, const struct pst_dataset *ds, int64_t v);

/* Compares or, for the first dataset, notes. */
static pst_rc meet(const struct same *s, int side, const char *what, int64_t v, uint64_t hash)
{
    uint64_t *there = &s->hash[old_id(s->ds[side], v)];
    if (side == 0)
        *there = hash;
    return side == 0 || *there == hash ? PST_OK : differ_at(s, what, v);
}

static pst_rc each_vertex(struct same *s, const char *what, hash_fn *hash, const void *of)
{
    pst_rc rc = PST_OK;
    pst_progress_begin(s->progress, what, 2 * (uint64_t)s->ds[0]->vertices, false);
    for (int side = 0; side < 2 && rc == PST_OK; side++)
        for (int64_t v = 0; v < s->ds[side]->vertices && rc == PST_OK; v++) {
            rc = meet(s, side, what, v, hash(of, s->ds[side], v));
            if (rc == PST_OK && (v & 4095) == 4095)
                rc = pst_progress_add(s->progress, 4096);
        }
    if (rc == PST_OK)
        pst_progress_end(s->progress);
    note(s, what);
    return rc;
}

/* One entry of a list. Equal entries in another order give equal sums. */
struct list_entry {
    int64_t source;
    uint32_t relation, weight, time, zero;
};

static uint32_t word_at(const struct pst_array *a, int64_t i)
{
    uint32_t word = 0;
    if (a->map != NULL)
        memcpy(&word, (const char *)a->map + i * 4, sizeof word);
    return word;
}

static uint64_t hash_list(const void *of, const struct pst_dataset *ds, int64_t v)
{
    const int64_t *indptr = ds->indptr.map;
    uint64_t sum = (uint64_t)(indptr[v + 1] - indptr[v]);
    (void)of;
    for (int64_t i = indptr[v]; i < indptr[v + 1]; i++) {
        const int64_t u = ds->indices.dtype == PST_I32 ? ((const int32_t *)ds->indices.map)[i]
                                                       : ((const int64_t *)ds->indices.map)[i];
        const struct list_entry e = {.source = u >= 0 && u < ds->vertices ? old_id(ds, u) : -1,
                                     .relation = word_at(&ds->edge_relation, i),
                                     .weight = word_at(&ds->edge_weights, i),
                                     .time = word_at(&ds->edge_times, i)};
        sum += XXH3_64bits(&e, sizeof e);
    }
    return sum;
}

/* of: the array's id. */
static uint64_t hash_row(const void *of, const struct pst_dataset *ds, int64_t v)
{
    const struct pst_array *a =
        pst_manifest_dataset_array((struct pst_dataset *)ds, *(const enum pst_array_id *)of);
    const size_t bytes = pst_dtype_bytes(a->dtype) * (size_t)(a->rank == 2 ? a->shape[1] : 1);
    return XXH3_64bits((const char *)a->map + (size_t)v * bytes, bytes);
}

static uint64_t hash_name(const void *of, const struct pst_dataset *ds, int64_t v)
{
    const int64_t *at = ds->names_at.map;
    (void)of;
    return XXH3_64bits((const char *)ds->names.map + at[v], (size_t)(at[v + 1] - at[v]));
}

/* ---- features ------------------------------------------------------------------------------------- */

static pst_rc read_side(struct same *s, int side, int type, const char *what)
{
    const struct pst_dataset *ds = s->ds[side];
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    const uint64_t stride = t == NULL ? ds->stride_bytes : t->stride_bytes;
    const struct pst_array *file = t == NULL ? pst_feature_file(ds, 0) : &t->features;
    const int64_t rows = t == NULL ? ds->vertices : t->vertices, first = t == NULL ? 0 : t->first,
                  most = pst_max_i64(1, (int64_t)(ROWS_BYTES / stride));
    const size_t bytes =
        (size_t)(t == NULL ? ds->feature_dim : t->feature_dim) * pst_dtype_bytes(file->dtype);
    struct pst_row_files files;
    char *block = malloc((size_t)most * stride);
    if (block == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot compare rows of %" PRIu64 " bytes", stride);
    pst_rc rc = pst_row_files_open(&files, file, t == NULL ? pst_feature_files(ds) : 1, stride);
    if (rc == PST_OK) {
        for (int64_t v = 0, n; v < rows && rc == PST_OK; v += n) {
            n = pst_min_i64(most, rows - v);
            rc = pst_row_files_read(&files, v, n, block);
            for (int64_t i = 0; i < n && rc == PST_OK; i++)
                rc = meet(s, side, what, first + v + i, XXH3_64bits(block + (uint64_t)i * stride, bytes));
            if (rc == PST_OK)
                rc = pst_progress_add(s->progress, (uint64_t)n * stride);
        }
        pst_row_files_close(&files);
    }
    free(block);
    return rc;
}

static pst_rc compare_features(struct same *s, int type)
{
    int64_t dim[2];
    uint64_t bytes = 0;
    enum pst_dtype dtype[2];
    char what[PST_NAME_MAX + 16] = "features";
    for (int side = 0; side < 2; side++) {
        const struct pst_dataset *ds = s->ds[side];
        const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
        dim[side] = t == NULL ? ds->feature_dim : t->feature_dim;
        dtype[side] = t == NULL ? ds->features.dtype : t->features.dtype;
        bytes += (uint64_t)(t == NULL ? ds->vertices : t->vertices) *
                 (t == NULL ? ds->stride_bytes : t->stride_bytes);
    }
    if (type >= 0)
        (void)snprintf(what, sizeof what, "features of %s", s->ds[0]->vertex_type[type].name);
    pst_rc rc = counts_differ(s, type < 0 ? "columns of features" : what, dim[0], dim[1]);
    if (rc != PST_OK || dim[0] == 0)
        return rc;
    if (dtype[0] != dtype[1])
        return pst_fail(PST_E_FORMAT, "%s has %s in %s, but %s has %s", s->ds[0]->dir, what,
                        pst_dtype_name(dtype[0]), s->ds[1]->dir, pst_dtype_name(dtype[1]));
    pst_progress_begin(s->progress, what, bytes, true);
    for (int side = 0; side < 2 && rc == PST_OK; side++)
        rc = read_side(s, side, type, what);
    if (rc == PST_OK)
        pst_progress_end(s->progress);
    note(s, what);
    return rc;
}

/* ---- arrays of ids, and arrays that no order changes ----------------------------------------------- */

static int64_t id_at(const struct pst_array *a, int64_t i)
{
    return a->dtype == PST_I32 ? ((const int32_t *)a->map)[i] : ((const int64_t *)a->map)[i];
}

static pst_rc compare_ids(struct same *s, const char *what, const struct pst_array *a,
                          const struct pst_array *b)
{
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1;
    for (int64_t i = 0; i < a->shape[0] * columns; i++) {
        const int64_t x = id_at(a, i), y = id_at(b, i), end = s->ds[0]->vertices;
        const bool relation = columns == 3 && i % 3 == 1, known = x >= 0 && x < end && y >= 0 && y < end;
        if (relation ? x != y : !known || old_id(s->ds[0], x) != old_id(s->ds[1], y))
            return pst_fail(PST_E_FORMAT,
                            "%s and %s differ in %s: entry %" PRId64 " is %" PRId64
                            " in the first and %" PRId64
                            " in the second, which are not the same by their old ids",
                            s->ds[0]->dir, s->ds[1]->dir, what, i, x, y);
    }
    note(s, what);
    return PST_OK;
}

static pst_rc same_shape(const struct same *s, const char *what, const struct pst_array *a,
                         const struct pst_array *b)
{
    if ((a->path[0] != '\0') != (b->path[0] != '\0'))
        return pst_fail(PST_E_FORMAT, "only %s has %s", s->ds[a->path[0] == '\0']->dir, what);
    if (a->dtype != b->dtype || a->rank != b->rank || a->shape[0] != b->shape[0] ||
        a->shape[1] != b->shape[1])
        return pst_fail(PST_E_FORMAT,
                        "%s of %s is %s of %" PRId64 " x %" PRId64 ", but that of %s is %s of %" PRId64
                        " x %" PRId64,
                        what, s->ds[0]->dir, pst_dtype_name(a->dtype), a->shape[0], a->shape[1],
                        s->ds[1]->dir, pst_dtype_name(b->dtype), b->shape[0], b->shape[1]);
    return PST_OK;
}

static pst_rc compare_array(struct same *s, enum pst_array_id id)
{
    const struct pst_array *a = pst_manifest_dataset_array(s->ds[0], id),
                           *b = pst_manifest_dataset_array(s->ds[1], id);
    const char *what = pst_array_id_name(id);
    if (id == PST_ARRAY_OLD_IDS || id == PST_ARRAY_FEATURES)
        return PST_OK;
    const pst_rc rc = same_shape(s, what, a, b);
    if (rc != PST_OK || a->path[0] == '\0')
        return rc;
    switch (id) {
    case PST_ARRAY_INDPTR:
    case PST_ARRAY_RELATIONS:
    case PST_ARRAY_EDGE_WEIGHTS:
    case PST_ARRAY_EDGE_TIMES: note(s, what); return PST_OK; /* with the indices */
    case PST_ARRAY_INDICES: return each_vertex(s, what, hash_list, NULL);
    case PST_ARRAY_LABELS:
    case PST_ARRAY_IDS:
    case PST_ARRAY_MULTILABELS:
    case PST_ARRAY_TARGETS:
    case PST_ARRAY_VERTEX_TIMES: return each_vertex(s, what, hash_row, &id);
    case PST_ARRAY_NAMES_AT: return PST_OK; /* with the names */
    case PST_ARRAY_NAMES: return each_vertex(s, what, hash_name, NULL);
    case PST_ARRAY_RELATION_NAMES_AT:
    case PST_ARRAY_RELATION_NAMES:
        note(s, what);
        return a->data_bytes == 0 || memcmp(a->map, b->map, a->data_bytes) == 0
                   ? PST_OK
                   : pst_fail(PST_E_FORMAT, "%s and %s differ in %s", s->ds[0]->dir, s->ds[1]->dir, what);
    default: return compare_ids(s, what, a, b);
    }
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static pst_rc compare_types(const struct same *s)
{
    const struct pst_dataset *a = s->ds[0], *b = s->ds[1];
    pst_rc rc = counts_differ(s, "types of vertices", a->vertex_types, b->vertex_types);
    if (rc == PST_OK)
        rc = counts_differ(s, "types of edges", a->edge_types, b->edge_types);
    for (int k = 0; k < a->vertex_types && rc == PST_OK; k++)
        if (strcmp(a->vertex_type[k].name, b->vertex_type[k].name) != 0 ||
            a->vertex_type[k].vertices != b->vertex_type[k].vertices)
            rc = pst_fail(PST_E_FORMAT, "%s and %s differ in vertex type %d, %s", a->dir, b->dir, k,
                          a->vertex_type[k].name);
    for (int k = 0; k < a->edge_types && rc == PST_OK; k++)
        if (strcmp(a->edge_type[k].name, b->edge_type[k].name) != 0 ||
            a->edge_type[k].source != b->edge_type[k].source ||
            a->edge_type[k].target != b->edge_type[k].target)
            rc = pst_fail(PST_E_FORMAT, "%s and %s differ in edge type %d, %s", a->dir, b->dir, k,
                          a->edge_type[k].name);
    return rc;
}

static pst_rc compare_counts(const struct same *s)
{
    const struct pst_dataset *a = s->ds[0], *b = s->ds[1];
    pst_rc rc = counts_differ(s, "vertices", a->vertices, b->vertices);
    if (rc == PST_OK)
        rc = counts_differ(s, "edges", a->edges, b->edges);
    if (rc == PST_OK)
        rc = counts_differ(s, "classes", a->classes, b->classes);
    if (rc == PST_OK)
        rc = counts_differ(s, "relations", a->relations, b->relations);
    if (rc == PST_OK)
        rc = counts_differ(s, "named splits", a->splits, b->splits);
    return rc == PST_OK ? compare_types(s) : rc;
}

static pst_rc compare_splits(struct same *s)
{
    pst_rc rc = PST_OK;
    for (int k = 1; k < s->ds[0]->splits && rc == PST_OK; k++)
        for (int part = 0; part < 3 && rc == PST_OK; part++) {
            const struct pst_array *a = &s->ds[0]->named_split[k].ids[part],
                                   *b = &s->ds[1]->named_split[k].ids[part];
            char what[PST_NAME_MAX + 16];
            (void)snprintf(what, sizeof what, "split %s:%s", s->ds[0]->named_split[k].name,
                           pst_dataset_part_name(part));
            rc = same_shape(s, what, a, b);
            if (rc == PST_OK && a->map != NULL)
                rc = compare_ids(s, what, a, b);
        }
    return rc;
}

/* Old ids are a permutation within each type: every vertex has a partner then. */
static pst_rc check_old_ids(struct same *s, int side)
{
    const struct pst_dataset *ds = s->ds[side];
    memset(s->hash, 0, (size_t)ds->vertices * sizeof *s->hash);
    for (int64_t v = 0; v < ds->vertices; v++) {
        const int64_t old = old_id(ds, v);
        if (old < 0 || old >= ds->vertices || s->hash[old]++ != 0 ||
            pst_rows_type_of(ds, old) != pst_rows_type_of(ds, v))
            return pst_fail(PST_E_FORMAT,
                            "%s: vertex %" PRId64 " has the old id %" PRId64
                            ", which is not a vertex of its type, or is there twice",
                            ds->old_ids.path, v, old);
    }
    return PST_OK;
}

/* Lists and names are read by their starts. */
static pst_rc check_starts(const struct pst_dataset *ds, const struct pst_array *at, int64_t end)
{
    const int64_t *x = at->map;
    for (int64_t v = 0; v < ds->vertices && x != NULL; v++)
        if (x[v] < 0 || x[v + 1] < x[v] || x[v + 1] > end)
            return pst_fail(PST_E_FORMAT, "%s: falls at vertex %" PRId64 "; `penstock verify` shows details",
                            at->path, v);
    return PST_OK;
}

static pst_rc compare(struct same *s)
{
    pst_rc rc = compare_counts(s);
    const int64_t n = s->ds[0]->vertices;
    if (rc == PST_OK && (s->hash = malloc((size_t)n * sizeof *s->hash + 1)) == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot compare %" PRId64 " vertices", n);
    for (int side = 0; side < 2 && rc == PST_OK; side++) {
        rc = check_old_ids(s, side);
        if (rc == PST_OK)
            rc = check_starts(s->ds[side], &s->ds[side]->indptr, s->ds[side]->edges);
        if (rc == PST_OK)
            rc = check_starts(s->ds[side], &s->ds[side]->names_at, s->ds[side]->names.shape[0]);
    }
    for (unsigned id = 0; id < PST_ARRAY_COUNT && rc == PST_OK; id++)
        rc = compare_array(s, (enum pst_array_id)id);
    if (rc == PST_OK)
        rc = compare_splits(s);
    if (rc == PST_OK && s->ds[0]->vertex_types == 0)
        rc = compare_features(s, -1);
    for (int type = 0; type < s->ds[0]->vertex_types && rc == PST_OK; type++)
        rc = compare_features(s, type);
    for (int64_t v = 0; v < n && rc == PST_OK; v++)
        s->report->moved += old_id(s->ds[0], v) != old_id(s->ds[1], v);
    s->report->vertices = n;
    s->report->edges = s->ds[0]->edges;
    free(s->hash);
    return rc;
}

pst_rc pst_same(const char *dir, const char *other, struct pst_same_report *report,
                struct pst_progress *progress)
{
    struct pst_dataset a, b;
    struct same s = {.ds = {&a, &b}, .report = report, .progress = progress};
    *report = (struct pst_same_report){.vertices = 0};
    pst_rc rc = pst_dataset_open(&a, dir);
    if (rc != PST_OK)
        return rc;
    rc = pst_dataset_open(&b, other);
    if (rc == PST_OK) {
        rc = compare(&s);
        pst_dataset_close(&b);
    }
    pst_dataset_close(&a);
    return rc;
}
