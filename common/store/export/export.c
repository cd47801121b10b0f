#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util/file.h"
#include "common/util/tempname.h"
#include "common/error.h"
#include "common/store/export/export_impl.h"
#include "common/store/export/leftover.h"
#include "common/store/dataset/rows.h"

#define BLOCK 65536 /* entries that are gathered before they are written */
#define COPY_BYTES (1u << 20)

static const char *const split_names[3] = {"train_idx", "val_idx", "test_idx"};

void pst_export_path(const struct pst_export_job *x, const char *name, char path[4096 + 64])
{
    (void)snprintf(path, 4096 + 64, "%s/%s", x->partial, name);
}

FILE *pst_export_create(const struct pst_export_job *x, const char *name)
{
    char path[4096 + 64];
    pst_export_path(x, name, path);
    FILE *f = fopen(path, "wxe");
    if (f == NULL)
        (void)pst_fail_errno("cannot create %s", path);
    return f;
}

pst_rc pst_export_finish(FILE *f, const char *name)
{
    bool ok = ferror(f) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    pst_rc rc = ok ? PST_OK : pst_fail_errno("cannot write %s", name);
    if (fclose(f) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", name);
    return rc;
}

static pst_rc write_mapped(struct pst_export_job *x, struct pst_array_writer *w, const struct pst_array *a)
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
static pst_rc write_array(struct pst_export_job *x, const char *name, const struct pst_array *a)
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
static pst_rc write_edges(struct pst_export_job *x)
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

static pst_rc put_rows(struct pst_export_job *x, struct pst_array_writer *w, int type, int64_t rows,
                       size_t bytes)
{
    pst_rc rc = PST_OK;
    for (int64_t v = 0; v < rows && rc == PST_OK; v++) {
        rc = pst_array_write(w, pst_rows_type_row(x->ds, type, v), bytes);
        if (rc == PST_OK)
            rc = pst_progress_add(x->progress, bytes);
    }
    return rc;
}

pst_rc pst_export_features(struct pst_export_job *x, int type)
{
    const struct pst_dataset *ds = x->ds;
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    const int64_t shape[2] = {t == NULL ? ds->vertices : t->vertices,
                              t == NULL ? ds->feature_dim : t->feature_dim};
    const enum pst_dtype dtype = t == NULL ? ds->features.dtype : t->features.dtype;
    const size_t row = (size_t)shape[1] * pst_dtype_bytes(dtype);
    char path[4096 + 64], name[32] = "feat.npy";
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    if (shape[1] == 0)
        return PST_OK;
    if (t != NULL)
        (void)snprintf(name, sizeof name, "feat_%d.npy", type);
    pst_export_path(x, name, path);
    pst_progress_begin(x->progress, "features", (uint64_t)shape[0] * row, true);
    pst_rc rc = pst_array_writer_init(&w, path, dtype, 2, shape);
    if (rc == PST_OK)
        rc = put_rows(x, &w, type, shape[0], row);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    pst_array_writer_release(&w);
    return rc;
}

int64_t pst_export_source(const struct pst_dataset *ds, int64_t i)
{
    const int64_t u = ds->indices.dtype == PST_I32 ? ((const int32_t *)ds->indices.map)[i]
                                                   : ((const int64_t *)ds->indices.map)[i];
    if (u >= 0 && u < ds->vertices)
        return u;
    (void)pst_fail(PST_E_FORMAT,
                   "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64
                   ": penstock verify tells more",
                   ds->indices.path, i, ds->vertices - 1, u);
    return -1;
}

static json_t *vertex_types(const struct pst_dataset *ds)
{
    json_t *list = json_array();
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        (void)json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "name", t->name, "num_nodes",
                                                    (json_int_t)t->vertices, "num_features",
                                                    (json_int_t)t->feature_dim, "stride_bytes",
                                                    (json_int_t)t->stride_bytes));
    }
    return list;
}

static json_t *edge_types(const struct pst_dataset *ds)
{
    json_t *list = json_array();
    for (int k = 0; k < ds->edge_types; k++) {
        const struct pst_edge_type *t = &ds->edge_type[k];
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", t->name, "source",
                                                    ds->vertex_type[t->source].name, "target",
                                                    ds->vertex_type[t->target].name));
    }
    return list;
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
    if (meta != NULL && ds->vertex_types > 0) {
        (void)json_object_set_new(meta, "vertex_types", vertex_types(ds));
        (void)json_object_set_new(meta, "edge_types", edge_types(ds));
    }
    return meta;
}

static pst_rc write_meta(struct pst_export_job *x, json_t *kept)
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
static pst_rc write_kept(struct pst_export_job *x, json_t *kept)
{
    pst_rc rc = PST_OK;
    for (unsigned i = PST_ARRAY_RELATIONS; i < PST_ARRAY_COUNT && rc == PST_OK; i++) {
        const struct pst_array *a = pst_manifest_dataset_array((struct pst_dataset *)x->ds, i);
        if (a->map == NULL || (i == PST_ARRAY_RELATIONS && x->ds->vertex_types > 0)) /* their files say it */
            continue;
        (void)json_array_append_new(kept, json_string(pst_array_id_name(i)));
        pst_progress_begin(x->progress, pst_array_id_name(i), a->data_bytes, true);
        rc = write_array(x, pst_array_id_name(i), a);
        if (rc == PST_OK)
            pst_progress_end(x->progress);
    }
    return rc;
}

static pst_rc export_npy(struct pst_export_job *x)
{
    json_t *kept = json_array();
    const bool typed = x->ds->vertex_types > 0;
    pst_rc rc = typed ? pst_export_typed_edges(x, PST_EXPORT_NPY) : write_edges(x);
    for (int type = typed ? 0 : -1; type < x->ds->vertex_types && rc == PST_OK; type++)
        rc = pst_export_features(x, type);
    if (rc == PST_OK && typed)
        rc = pst_export_graphbolt(x, PST_EXPORT_NPY);
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

pst_rc pst_export(struct pst_dataset *ds, const char *dir, enum pst_export_format format,
                  const char *rows_path, struct pst_progress *progress)
{
    struct pst_export_job x = {.ds = ds, .progress = progress};
    struct pst_array rows = {.rank = 0};
    int held;
    if (dir[0] == '\0')
        return pst_fail(PST_E_ARG, "the directory to export to has no name");
    if (access(dir, F_OK) == 0)
        return pst_fail(PST_E_STATE, "%s is there already: choose another directory", dir);
    pst_rc rc = pst_tempname(x.partial, sizeof x.partial, dir, PST_TEMPNAME_PARTIAL);
    if (rc == PST_OK)
        rc = pst_dataset_check(ds); /* indptr is trusted from here on */
    if (rc == PST_OK && rows_path != NULL)
        rc = open_rows(ds, rows_path, &rows);
    if (rc == PST_OK && format == PST_EXPORT_NPY)
        rc = pst_rows_map_features(ds);
    if (rc == PST_OK)
        rc = pst_file_make_parents(dir);
    if (rc == PST_OK) {
        pst_export_remove_leftovers(dir);
        rc = pst_tempname_mkdir(x.partial, 0755, &held);
    }
    if (rc == PST_OK) {
        rc = format == PST_EXPORT_NPY ? export_npy(&x) : pst_export_csv(&x, rows_path != NULL ? &rows : NULL);
        if (rc == PST_OK && rename(x.partial, dir) != 0)
            rc = pst_fail_errno("cannot rename %s to %s", x.partial, dir);
        if (rc != PST_OK)
            remove_partial(x.partial);
        (void)close(held);
    }
    pst_array_close(&rows);
    return rc;
}
