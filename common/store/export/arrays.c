/* arrays.c: a dataset as NumPy arrays. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/export/export_impl.h"

#define BLOCK 65536 /* entries that are gathered before they are written */
#define COPY_BYTES (1u << 20)

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
    char path[PST_EXPORT_PATH_MAX];
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
    char path[PST_EXPORT_PATH_MAX];
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    bool narrow = ds->indices.dtype == PST_I32;
    int64_t *block = malloc(BLOCK * sizeof *block), n = 0;
    (void)snprintf(path, sizeof path, "%s/edges.npy", x->partial);
    pst_rc rc = block != NULL ? pst_array_writer_init(&w, path, ds->indices.dtype, 2, shape)
                              : pst_fail(PST_E_NOMEM, "out of memory: cannot export edges");
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
    char path[PST_EXPORT_PATH_MAX], name[32] = "feat.npy";
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

/* train_idx.npy and so on; train_idx_1.npy of the next split. */
static pst_rc write_split(struct pst_export_job *x, const struct pst_array part[3], const char *ending)
{
    pst_rc rc = PST_OK;
    for (int i = 0; i < 3 && rc == PST_OK; i++) {
        char name[PST_PATH_MAX];
        (void)snprintf(name, sizeof name, "%s_idx%s", pst_export_parts[i], ending);
        rc = write_array(x, name, &part[i]);
    }
    return rc;
}

pst_rc pst_export_arrays(struct pst_export_job *x)
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
    if (rc == PST_OK)
        rc = pst_export_each_split(x, write_split);
    if (rc == PST_OK)
        rc = write_kept(x, kept);
    if (rc == PST_OK)
        return pst_export_meta(x, kept, PST_EXPORT_NPY);
    json_decref(kept);
    return rc;
}
