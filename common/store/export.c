#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../error.h"
#include "derive.h"
#include "rows.h"

#define BLOCK 65536 /* entries that are gathered before they are written */
#define COPY_BYTES (1u << 20)

struct export
{
    struct pst_dataset *ds;
    char partial[4096];
    struct pst_progress *progress;
};

static const char *const split_names[3] = {"train_idx", "val_idx", "test_idx"};

static pst_rc write_mapped(struct export *x, struct pst_array_writer *w, const struct pst_array *a)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; rc == PST_OK && at < a->data_bytes; at += COPY_BYTES) {
        const uint64_t left = a->data_bytes - at, n = left < COPY_BYTES ? left : COPY_BYTES;
        rc = pst_array_write(w, (const char *)a->map + at, n);
        if (rc == PST_OK)
            rc = pst_progress_add(x->progress, n);
    }
    return rc;
}

/* As it is, with whatever it says of itself. */
static pst_rc write_array(struct export *x, const char *name, const struct pst_array *a)
{
    char path[4096 + 64];
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    if (a->map == NULL)
        return PST_OK;
    (void)snprintf(path, sizeof path, "%s/%s.npy", x->partial, name);
    pst_rc rc = pst_array_writer_init(&w, path, a->dtype, a->rank, a->shape);
    if (rc == PST_OK)
        rc = write_mapped(x, &w, a);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    pst_array_writer_release(&w);
    return rc;
}

/* Row 0 is indices as they are; row 1 says for each which vertex's row it is in. */
static pst_rc write_edges(struct export *x)
{
    const struct pst_dataset *ds = x->ds;
    const int64_t *indptr = ds->indptr.map, shape[2] = {2, ds->edges};
    char path[4096 + 64];
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    bool narrow = ds->indices.dtype == PST_I32;
    int64_t *block = malloc(BLOCK * sizeof *block), n = 0;
    (void)snprintf(path, sizeof path, "%s/edges.npy", x->partial);
    pst_rc rc = block != NULL ? pst_array_writer_init(&w, path, ds->indices.dtype, 2, shape)
                              : pst_fail(PST_E_NOMEM, "no memory to export edges");
    pst_progress_begin(x->progress, "edges", 2 * ds->indices.data_bytes, true);
    if (rc == PST_OK)
        rc = write_mapped(x, &w, &ds->indices);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++)
        for (int64_t i = indptr[v]; i < indptr[v + 1] && rc == PST_OK; i++) {
            if (narrow)
                ((int32_t *)block)[n++] = (int32_t)v;
            else
                block[n++] = v;
            if (n == BLOCK) {
                rc = pst_array_write(&w, block, (size_t)n * pst_dtype_bytes(ds->indices.dtype));
                if (rc == PST_OK)
                    rc = pst_progress_add(x->progress, (uint64_t)n * pst_dtype_bytes(ds->indices.dtype));
                n = 0;
            }
        }
    if (rc == PST_OK)
        rc = pst_array_write(&w, block, (size_t)n * pst_dtype_bytes(ds->indices.dtype));
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    pst_array_writer_release(&w);
    free(block);
    return rc;
}

/* Without padding. */
static pst_rc write_features(struct export *x)
{
    const struct pst_dataset *ds = x->ds;
    char path[4096 + 64];
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    const int64_t shape[2] = {ds->vertices, ds->feature_dim};
    size_t row = (size_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype);
    (void)snprintf(path, sizeof path, "%s/feat.npy", x->partial);
    pst_progress_begin(x->progress, "features", (uint64_t)ds->vertices * row, true);
    pst_rc rc = pst_array_writer_init(&w, path, ds->features.dtype, 2, shape);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        rc = pst_array_write(&w, pst_feature_row(ds, v), row);
        if (rc == PST_OK)
            rc = pst_progress_add(x->progress, row);
    }
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    pst_array_writer_release(&w);
    return rc;
}

/* Counts, and what import npy cannot tell from the arrays that every program writes. */
static json_t *meta_of(const struct pst_dataset *ds, json_t *kept)
{
    json_t *meta =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "name", ds->name, "num_nodes", (json_int_t)ds->vertices,
                  "num_edge_rows", (json_int_t)ds->edges, "num_features", (json_int_t)ds->feature_dim,
                  "num_classes", (json_int_t)ds->classes, "kept", kept);
    if (meta != NULL && ds->relations > 0)
        (void)json_object_set_new(meta, "num_relations", json_integer((json_int_t)ds->relations));
    if (meta != NULL && ds->feature_dim > 0)
        (void)json_object_set_new(meta, "stride_bytes", json_integer((json_int_t)ds->stride_bytes));
    return meta;
}

static pst_rc write_meta(struct export *x, json_t *kept)
{
    char path[4096 + 64];
    (void)snprintf(path, sizeof path, "%s/meta.json", x->partial);
    json_t *meta = meta_of(x->ds, kept);
    FILE *f = meta != NULL ? fopen(path, "wxe") : NULL;
    bool ok =
        f != NULL && json_dumpf(meta, f, JSON_INDENT(1)) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    json_decref(meta);
    if (f != NULL)
        ok = fclose(f) == 0 && ok;
    return ok ? PST_OK : pst_fail_errno("cannot write %s", path);
}

/* Relations (in the order of the edges), names, triples, several labels: under their own names. */
static pst_rc write_kept(struct export *x, json_t *kept)
{
    pst_rc rc = PST_OK;
    for (unsigned i = PST_IN_RELATIONS; i < PST_ARRAY_IDS && rc == PST_OK; i++) {
        const struct pst_array *a = pst_dataset_array(x->ds, i);
        if (a->map == NULL)
            continue;
        (void)json_array_append_new(kept, json_string(pst_array_id_name(i)));
        pst_progress_begin(x->progress, pst_array_id_name(i), a->data_bytes, true);
        rc = write_array(x, pst_array_id_name(i), a);
        if (rc == PST_OK)
            pst_progress_end(x->progress);
    }
    return rc;
}

static pst_rc export_npy(struct export *x)
{
    json_t *kept = json_array();
    pst_rc rc = write_edges(x);
    if (rc == PST_OK && x->ds->feature_dim > 0)
        rc = write_features(x);
    pst_progress_begin(x->progress, "labels, splits", x->ds->labels.data_bytes, true);
    if (rc == PST_OK)
        rc = write_array(x, "labels", &x->ds->labels);
    for (int i = 0; i < 3 && rc == PST_OK; i++)
        rc = write_array(x, split_names[i], &x->ds->split[i]);
    if (rc == PST_OK)
        rc = write_kept(x, kept);
    if (rc == PST_OK)
        return write_meta(x, kept);
    json_decref(kept);
    return rc;
}

/* What the source called a vertex: quoted where CSV wants it. */
static void put_name(const struct pst_dataset *ds, FILE *f, int64_t v)
{
    if (ds->ids.map != NULL) {
        (void)fprintf(f, "%" PRId64, ((const int64_t *)ds->ids.map)[v]);
        return;
    }
    if (ds->names.map == NULL && ds->names_at.map == NULL) {
        (void)fprintf(f, "%" PRId64, v);
        return;
    }
    const int64_t *at = ds->names_at.map;
    const char *name = (const char *)ds->names.map + at[v];
    size_t n = (size_t)(at[v + 1] - at[v]);
    assert(ds->names.map != NULL); /* names_at comes with names */
    bool quote = memchr(name, ',', n) != NULL || memchr(name, '"', n) != NULL ||
                 memchr(name, '\n', n) != NULL || memchr(name, '\r', n) != NULL || (n > 0 && name[0] == ' ');
    if (!quote) {
        (void)fwrite(name, 1, n, f);
        return;
    }
    (void)fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '"')
            (void)fputc('"', f);
        (void)fputc(name[i], f);
    }
    (void)fputc('"', f);
}

static FILE *create(const struct export *x, const char *name)
{
    char path[4096 + 64];
    (void)snprintf(path, sizeof path, "%s/%s.csv", x->partial, name);
    FILE *f = fopen(path, "wxe");
    if (f == NULL)
        (void)pst_fail_errno("cannot create %s", path);
    return f;
}

static pst_rc finish(FILE *f, const char *name)
{
    bool ok = ferror(f) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    pst_rc rc = ok ? PST_OK : pst_fail_errno("cannot write %s.csv", name);
    if (fclose(f) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s.csv", name);
    return rc;
}

static pst_rc csv_edges(struct export *x)
{
    const struct pst_dataset *ds = x->ds;
    const int64_t *indptr = ds->indptr.map;
    FILE *f = create(x, "edges");
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    pst_progress_begin(x->progress, "edges", (uint64_t)ds->edges, false);
    (void)fputs("source,target\n", f);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        for (int64_t i = indptr[v]; i < indptr[v + 1]; i++) {
            put_name(ds, f,
                     ds->indices.dtype == PST_I32 ? ((const int32_t *)ds->indices.map)[i]
                                                  : ((const int64_t *)ds->indices.map)[i]);
            (void)fputc(',', f);
            put_name(ds, f, v);
            (void)fputc('\n', f);
        }
        rc = pst_progress_add(x->progress, (uint64_t)(indptr[v + 1] - indptr[v]));
    }
    pst_rc closed = finish(f, "edges");
    pst_progress_end(x->progress);
    return rc == PST_OK ? closed : rc;
}

static pst_rc csv_rest(struct export *x)
{
    const struct pst_dataset *ds = x->ds;
    pst_rc rc = PST_OK;
    FILE *f = ds->classes > 0 ? create(x, "labels") : NULL;
    if (ds->classes > 0 && f == NULL)
        return PST_E_IO;
    if (f != NULL) {
        (void)fputs("vertex,label\n", f);
        for (int64_t v = 0; v < ds->vertices; v++)
            if (((const int32_t *)ds->labels.map)[v] >= 0) {
                put_name(ds, f, v);
                (void)fprintf(f, ",%d\n", ((const int32_t *)ds->labels.map)[v]);
            }
        rc = finish(f, "labels");
    }
    for (int k = 0; k < 3 && rc == PST_OK; k++) {
        if (ds->split[k].map == NULL)
            continue;
        if ((f = create(x, split_names[k])) == NULL)
            return PST_E_IO;
        (void)fputs("vertex\n", f);
        for (int64_t i = 0; i < ds->split[k].shape[0]; i++) {
            put_name(ds, f, ((const int64_t *)ds->split[k].map)[i]);
            (void)fputc('\n', f);
        }
        rc = finish(f, split_names[k]);
    }
    return rc;
}

static void put_value(const struct pst_array *a, FILE *f, int64_t i)
{
    switch (a->dtype) {
    case PST_F32: (void)fprintf(f, "%.9g", (double)((const float *)a->map)[i]); break; /* exact */
    case PST_F64: (void)fprintf(f, "%.17g", ((const double *)a->map)[i]); break;
    case PST_I32: (void)fprintf(f, "%d", ((const int32_t *)a->map)[i]); break;
    default: assert(a->dtype == PST_I64); (void)fprintf(f, "%" PRId64, ((const int64_t *)a->map)[i]);
    }
}

static pst_rc csv_rows(struct export *x, const struct pst_array *a)
{
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1;
    FILE *f = create(x, "rows");
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    pst_progress_begin(x->progress, "rows", (uint64_t)a->shape[0], false);
    (void)fputs("vertex", f);
    for (int64_t j = 0; j < columns; j++)
        (void)fprintf(f, ",%" PRId64, j);
    (void)fputc('\n', f);
    for (int64_t v = 0; v < a->shape[0] && rc == PST_OK; v++) {
        put_name(x->ds, f, v);
        for (int64_t j = 0; j < columns; j++) {
            (void)fputc(',', f);
            put_value(a, f, v * columns + j);
        }
        (void)fputc('\n', f);
        rc = ferror(f) == 0 ? pst_progress_add(x->progress, 1) : pst_fail_errno("cannot write rows.csv");
    }
    pst_rc closed = finish(f, "rows");
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    return rc == PST_OK ? closed : rc;
}

/* One row for each vertex of ds. */
static pst_rc open_rows(const struct pst_dataset *ds, const char *path, struct pst_array *a)
{
    pst_rc rc = pst_array_open(a, path);
    if (rc != PST_OK)
        return rc;
    if (a->dtype != PST_F32 && a->dtype != PST_F64 && a->dtype != PST_I32 && a->dtype != PST_I64)
        rc = pst_fail(PST_E_FORMAT, "%s: expected float32, float64, int32 or int64, found %s", path,
                      pst_dtype_name(a->dtype));
    else if (a->shape[0] != ds->vertices)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected a row for each of %" PRId64 " vertices of %s, found %" PRId64, path,
                      ds->vertices, ds->dir, a->shape[0]);
    if (rc == PST_OK)
        rc = pst_array_map(a);
    if (rc != PST_OK)
        pst_array_close(a);
    return rc;
}

static void remove_partial(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL)
        return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    (void)rmdir(path);
}

/* Types of vertices have no place in these files. */
static pst_rc check_types(const struct pst_dataset *ds)
{
    return ds->vertex_types == 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "%s has %d types of vertices: only datasets of one type can be exported",
                          ds->dir, ds->vertex_types);
}

static pst_rc export_all(struct export *x, enum pst_export_format format, const struct pst_array *rows)
{
    if (rows != NULL)
        return csv_rows(x, rows);
    if (format == PST_EXPORT_NPY)
        return export_npy(x);
    pst_rc rc = csv_edges(x);
    return rc == PST_OK ? csv_rest(x) : rc;
}

pst_rc pst_export(struct pst_dataset *ds, const char *dir, enum pst_export_format format,
                  const char *rows_path, struct pst_progress *progress)
{
    struct export x = {.ds = ds, .progress = progress};
    struct pst_array rows = {.rank = 0};
    if (access(dir, F_OK) == 0)
        return pst_fail(PST_E_STATE, "%s is there already: choose another directory", dir);
    if ((size_t)snprintf(x.partial, sizeof x.partial, "%s.partial-%ld", dir, (long)getpid()) >=
        sizeof x.partial)
        return pst_fail(PST_E_ARG, "the path is too long");
    pst_rc rc = check_types(ds);
    if (rc == PST_OK)
        rc = pst_dataset_check(ds); /* indptr is trusted from here on */
    if (rc == PST_OK && rows_path != NULL)
        rc = open_rows(ds, rows_path, &rows);
    if (rc == PST_OK && ds->feature_dim > 0 && format == PST_EXPORT_NPY)
        rc = pst_features_map(ds);
    if (rc == PST_OK && mkdir(x.partial, 0755) != 0)
        rc = pst_fail_errno("cannot create %s", x.partial);
    else if (rc == PST_OK) {
        rc = export_all(&x, format, rows_path != NULL ? &rows : NULL);
        if (rc == PST_OK && rename(x.partial, dir) != 0)
            rc = pst_fail_errno("cannot rename %s to %s", x.partial, dir);
        if (rc != PST_OK)
            remove_partial(x.partial);
    }
    pst_array_close(&rows);
    return rc;
}
