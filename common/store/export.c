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

#define BLOCK 65536 /* entries that are gathered before they are written */

struct export
{
    struct pst_dataset *ds;
    char partial[4096];
    struct pst_progress *progress;
};

static const char *const split_names[3] = {"train_idx", "val_idx", "test_idx"};

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
        rc = pst_array_write(&w, a->map, (size_t)a->data_bytes);
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
    if (rc == PST_OK)
        rc = pst_array_write(&w, ds->indices.map, (size_t)ds->indices.data_bytes);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++)
        for (int64_t i = indptr[v]; i < indptr[v + 1] && rc == PST_OK; i++) {
            if (narrow)
                ((int32_t *)block)[n++] = (int32_t)v;
            else
                block[n++] = v;
            if (n == BLOCK) {
                rc = pst_array_write(&w, block, (size_t)n * pst_dtype_bytes(ds->indices.dtype));
                n = 0;
            }
        }
    if (rc == PST_OK)
        rc = pst_array_write(&w, block, (size_t)n * pst_dtype_bytes(ds->indices.dtype));
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
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
        rc = pst_array_write(&w, (const char *)ds->features.map + (uint64_t)v * ds->stride_bytes, row);
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

static pst_rc write_meta(struct export *x)
{
    const struct pst_dataset *ds = x->ds;
    char path[4096 + 64];
    (void)snprintf(path, sizeof path, "%s/meta.json", x->partial);
    json_t *meta = json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", ds->name, "num_nodes",
                             (json_int_t)ds->vertices, "num_edge_rows", (json_int_t)ds->edges, "num_features",
                             (json_int_t)ds->feature_dim, "num_classes", (json_int_t)ds->classes);
    int failed = meta == NULL ? -1 : json_dump_file(meta, path, JSON_INDENT(1));
    json_decref(meta);
    return failed == 0 ? PST_OK : pst_fail(PST_E_IO, "cannot write %s", path);
}

static pst_rc export_npy(struct export *x)
{
    pst_rc rc = write_edges(x);
    if (rc == PST_OK && x->ds->feature_dim > 0)
        rc = write_features(x);
    if (rc == PST_OK)
        rc = write_array(x, "labels", &x->ds->labels);
    for (int i = 0; i < 3 && rc == PST_OK; i++)
        rc = write_array(x, split_names[i], &x->ds->split[i]);
    return rc == PST_OK ? write_meta(x) : rc;
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
    bool quote = memchr(name, ',', n) != NULL || memchr(name, '"', n) != NULL || (n > 0 && name[0] == ' ');
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
                  struct pst_progress *progress)
{
    struct export x = {.ds = ds, .progress = progress};
    if (access(dir, F_OK) == 0)
        return pst_fail(PST_E_STATE, "%s is there already: choose another directory", dir);
    if ((size_t)snprintf(x.partial, sizeof x.partial, "%s.partial-%ld", dir, (long)getpid()) >=
        sizeof x.partial)
        return pst_fail(PST_E_ARG, "the path is too long");
    pst_rc rc = pst_dataset_check(ds); /* indptr is trusted from here on */
    if (rc == PST_OK && ds->feature_dim > 0 && format == PST_EXPORT_NPY)
        rc = pst_array_map(&ds->features);
    if (rc == PST_OK && mkdir(x.partial, 0755) != 0)
        return pst_fail_errno("cannot create %s", x.partial);
    if (rc == PST_OK && format == PST_EXPORT_NPY)
        rc = export_npy(&x);
    else if (rc == PST_OK && (rc = csv_edges(&x)) == PST_OK)
        rc = csv_rest(&x);
    if (rc == PST_OK && rename(x.partial, dir) != 0)
        rc = pst_fail_errno("cannot rename %s to %s", x.partial, dir);
    if (rc != PST_OK)
        remove_partial(x.partial);
    return rc;
}
