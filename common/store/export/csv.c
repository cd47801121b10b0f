/* csv.c: a dataset as text. Vertices and relations have the names or ids that the source gave them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/values.h"
#include "common/store/export/export_impl.h"

/* ---- fields ---- */

static void put_text(FILE *f, const char *text, size_t n)
{
    bool quote = n == 0 || memchr(text, ',', n) != NULL || memchr(text, '"', n) != NULL ||
                 memchr(text, '\n', n) != NULL || memchr(text, '\r', n) != NULL || text[0] == ' ' ||
                 text[0] == '\t' || text[n - 1] == ' ' || text[n - 1] == '\t';
    if (!quote) {
        (void)fwrite(text, 1, n, f);
        return;
    }
    (void)fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            (void)fputc('"', f);
        (void)fputc(text[i], f);
    }
    (void)fputc('"', f);
}

static void put_name(const struct pst_array *names_at, const struct pst_array *names, FILE *f, int64_t k)
{
    const int64_t *at = names_at->map;
    assert(names->map != NULL || at[k] == at[k + 1]); /* where they begin comes with names */
    put_text(f, (const char *)names->map + at[k], (size_t)(at[k + 1] - at[k]));
}

/* What the source called a vertex; of several types: the type, and the number within it. A reordered dataset
 * keeps the number that the vertex had before. */
static void put_vertex(const struct pst_dataset *ds, FILE *f, int64_t v)
{
    const int64_t *old = ds->old_ids.map;
    if (ds->vertex_types > 0) {
        const struct pst_vertex_type *t = pst_export_type_of(ds, v);
        put_text(f, t->name, strlen(t->name));
        (void)fprintf(f, ",%" PRId64, (old != NULL ? old[v] : v) - t->first);
    } else if (ds->ids.map != NULL) {
        (void)fprintf(f, "%" PRId64, ((const int64_t *)ds->ids.map)[v]);
    } else if (ds->names_at.map != NULL) {
        put_name(&ds->names_at, &ds->names, f, v);
    } else {
        (void)fprintf(f, "%" PRId64, old != NULL ? old[v] : v);
    }
}

static void put_head(const struct pst_dataset *ds, FILE *f)
{
    (void)fputs(ds->vertex_types > 0 ? "type,vertex" : "vertex", f);
}

static pst_rc put_relation(const struct pst_dataset *ds, const struct pst_array *a, FILE *f, int64_t i,
                           int64_t r)
{
    if (r < 0 || r >= ds->relations)
        return pst_fail(PST_E_FORMAT, "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64,
                        a->path, i, ds->relations - 1, r);
    if (ds->relation_names_at.map != NULL)
        put_name(&ds->relation_names_at, &ds->relation_names, f, r);
    else
        (void)fprintf(f, "%" PRId64, r);
    return PST_OK;
}

/* Shortest where that is cheap; always enough digits to be read back as the same float. */
static void put_float(FILE *f, float x)
{
    const int whole = x > -1e6f && x < 1e6f ? (int)x : 0;
    if ((float)whole == x && (whole != 0 || !signbit(x)))
        (void)fprintf(f, "%d", whole);
    else
        (void)fprintf(f, "%.9g", (double)x);
}

/* ---- files ---- */

/* Opens a file, with its progress. */
static FILE *begin(struct pst_export_job *x, const char *name, int64_t rows)
{
    pst_progress_begin(x->progress, name, (uint64_t)rows, false);
    return pst_export_create(x, name);
}

static pst_rc end(struct pst_export_job *x, FILE *f, const char *name, pst_rc rc)
{
    const pst_rc closed = pst_export_finish(f, name);
    if (rc == PST_OK && closed == PST_OK)
        pst_progress_end(x->progress);
    return rc == PST_OK ? closed : rc;
}

/* After each row: a full disk is told at once. */
static pst_rc row_done(struct pst_export_job *x, FILE *f, const char *name)
{
    (void)fputc('\n', f);
    return ferror(f) == 0 ? pst_progress_add(x->progress, 1) : pst_fail_errno("cannot write %s", name);
}

static pst_rc put_edge(const struct pst_dataset *ds, FILE *f, int64_t i, int64_t v)
{
    const int64_t u = pst_export_source(ds, i);
    if (u < 0)
        return PST_E_FORMAT;
    put_vertex(ds, f, u);
    (void)fputc(',', f);
    put_vertex(ds, f, v);
    if (ds->edge_relation.map == NULL)
        return PST_OK;
    (void)fputc(',', f);
    return put_relation(ds, &ds->edge_relation, f, i, ((const int32_t *)ds->edge_relation.map)[i]);
}

static pst_rc csv_edges(struct pst_export_job *x)
{
    const struct pst_dataset *ds = x->ds;
    const int64_t *indptr = ds->indptr.map;
    FILE *f = begin(x, "edges.csv", ds->edges);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    (void)fprintf(f, "source,target%s\n", ds->edge_relation.map != NULL ? ",relation" : "");
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++)
        for (int64_t i = indptr[v]; i < indptr[v + 1] && rc == PST_OK; i++) {
            rc = put_edge(ds, f, i, v);
            if (rc == PST_OK)
                rc = row_done(x, f, "edges.csv");
        }
    return end(x, f, "edges.csv", rc);
}

/* vertices.csv and relations.csv: what each is called, in the order of their numbers. */
static pst_rc csv_names(struct pst_export_job *x)
{
    const struct pst_dataset *ds = x->ds;
    pst_rc rc = PST_OK;
    if (ds->ids.map != NULL || ds->names_at.map != NULL) {
        FILE *f = begin(x, "vertices.csv", ds->vertices);
        if (f == NULL)
            return PST_E_IO;
        (void)fputs("vertex\n", f);
        for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
            put_vertex(ds, f, v);
            rc = row_done(x, f, "vertices.csv");
        }
        rc = end(x, f, "vertices.csv", rc);
    }
    if (rc != PST_OK || ds->relation_names_at.map == NULL)
        return rc;
    FILE *f = begin(x, "relations.csv", ds->relations);
    if (f == NULL)
        return PST_E_IO;
    (void)fputs("relation\n", f);
    for (int64_t r = 0; r < ds->relations && rc == PST_OK; r++) {
        put_name(&ds->relation_names_at, &ds->relation_names, f, r);
        rc = row_done(x, f, "relations.csv");
    }
    return end(x, f, "relations.csv", rc);
}

static pst_rc csv_labels(struct pst_export_job *x)
{
    const struct pst_dataset *ds = x->ds;
    const int32_t *label = ds->labels.map;
    if (ds->classes == 0)
        return PST_OK;
    FILE *f = begin(x, "labels.csv", ds->vertices);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    put_head(ds, f);
    (void)fputs(",label\n", f);
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        if (label[v] < 0)
            continue;
        put_vertex(ds, f, v);
        (void)fprintf(f, ",%d", label[v]);
        rc = row_done(x, f, "labels.csv");
    }
    return end(x, f, "labels.csv", rc);
}

static pst_rc csv_split(struct pst_export_job *x, const struct pst_array part[3], const char *ending)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < 3 && rc == PST_OK; k++) {
        char name[48];
        if (part[k].map == NULL)
            continue;
        (void)snprintf(name, sizeof name, "%s_idx%s.csv", pst_export_parts[k], ending);
        FILE *f = begin(x, name, part[k].shape[0]);
        if (f == NULL)
            return PST_E_IO;
        put_head(x->ds, f);
        (void)fputc('\n', f);
        for (int64_t i = 0; i < part[k].shape[0] && rc == PST_OK; i++) {
            put_vertex(x->ds, f, ((const int64_t *)part[k].map)[i]);
            rc = row_done(x, f, name);
        }
        rc = end(x, f, name, rc);
    }
    return rc;
}

static void put_columns(FILE *f, const char *prefix, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++)
        (void)fprintf(f, ",%s%" PRId64, prefix, j);
    (void)fputc('\n', f);
}

/* features.csv, or feat_K.csv of one type, where vertices are numbers within it. type -1: all. */
static pst_rc csv_features(struct pst_export_job *x, int type)
{
    const struct pst_dataset *ds = x->ds;
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    const int64_t rows = t == NULL ? ds->vertices : t->vertices,
                  dim = t == NULL ? ds->feature_dim : t->feature_dim;
    const enum pst_dtype dtype = t == NULL ? ds->features.dtype : t->features.dtype;
    const int64_t *old = ds->old_ids.map;
    char name[32] = "features.csv";
    if (dim == 0)
        return PST_OK;
    if (t != NULL)
        (void)snprintf(name, sizeof name, "feat_%d.csv", type);
    FILE *f = begin(x, name, rows);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    (void)fputs("vertex", f);
    put_columns(f, "x", dim);
    for (int64_t v = 0; v < rows && rc == PST_OK; v++) {
        const void *row = pst_rows_type_row(ds, type, v);
        if (t == NULL)
            put_vertex(ds, f, v);
        else
            (void)fprintf(f, "%" PRId64, old != NULL ? old[t->first + v] - t->first : v);
        for (int64_t j = 0; j < dim; j++) {
            (void)fputc(',', f);
            put_float(f, pst_feature_value(row, dtype, j));
        }
        rc = row_done(x, f, name);
    }
    return end(x, f, name, rc);
}

/* Triples and edges to predict: head, relation, tail; or source, target. */
static pst_rc csv_pairs(struct pst_export_job *x, const struct pst_array *a, const char *array)
{
    const int64_t columns = a->shape[1];
    char name[48];
    if (a->map == NULL)
        return PST_OK;
    (void)snprintf(name, sizeof name, "%s.csv", array);
    FILE *f = begin(x, name, a->shape[0]);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    (void)fputs(columns == 3 ? "head,relation,tail\n" : "source,target\n", f);
    for (int64_t i = 0; i < a->shape[0] && rc == PST_OK; i++) {
        put_vertex(x->ds, f, pst_dtype_int_at(a->map, a->dtype, i * columns));
        (void)fputc(',', f);
        if (columns == 3) {
            rc = put_relation(x->ds, a, f, i, pst_dtype_int_at(a->map, a->dtype, 3 * i + 1));
            (void)fputc(',', f);
        }
        put_vertex(x->ds, f, pst_dtype_int_at(a->map, a->dtype, i * columns + columns - 1));
        if (rc == PST_OK)
            rc = row_done(x, f, name);
    }
    return end(x, f, name, rc);
}

static pst_rc csv_multilabels(struct pst_export_job *x)
{
    const struct pst_array *a = &x->ds->multilabels;
    const uint8_t *bit = a->map;
    if (bit == NULL)
        return PST_OK;
    FILE *f = begin(x, "multilabels.csv", a->shape[0]);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    put_head(x->ds, f);
    put_columns(f, "task", a->shape[1]);
    for (int64_t v = 0; v < a->shape[0] && rc == PST_OK; v++) {
        put_vertex(x->ds, f, v);
        for (int64_t j = 0; j < a->shape[1]; j++, bit++) {
            (void)fputc(',', f);
            if (*bit <= 1)
                (void)fputc('0' + *bit, f);
        }
        rc = row_done(x, f, "multilabels.csv");
    }
    return end(x, f, "multilabels.csv", rc);
}

/* ---- rows of an array ---- */

static void put_value(const struct pst_array *a, FILE *f, int64_t i)
{
    switch (a->dtype) {
    case PST_F32: (void)fprintf(f, "%.9g", (double)((const float *)a->map)[i]); break; /* exact */
    case PST_F64: (void)fprintf(f, "%.17g", ((const double *)a->map)[i]); break;
    default: (void)fprintf(f, "%" PRId64, pst_dtype_int_at(a->map, a->dtype, i));
    }
}

/* A row of columns for each vertex. blank: the array is float32, and a NaN becomes an empty field. */
static pst_rc csv_numbers(struct pst_export_job *x, const struct pst_array *a, const char *name,
                          const char *column, bool blank)
{
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1;
    FILE *f = begin(x, name, a->shape[0]);
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    put_head(x->ds, f);
    put_columns(f, column, columns);
    for (int64_t v = 0; v < a->shape[0] && rc == PST_OK; v++) {
        put_vertex(x->ds, f, v);
        for (int64_t j = 0; j < columns; j++) {
            (void)fputc(',', f);
            if (!blank || !isnan(((const float *)a->map)[v * columns + j]))
                put_value(a, f, v * columns + j);
        }
        rc = row_done(x, f, name);
    }
    return end(x, f, name, rc);
}

/* ---- all of it ---- */

/* Relations come with the edges, names with vertices and relations; the rest has files of its own. */
static pst_rc csv_kept(struct pst_export_job *x, json_t *kept)
{
    pst_rc rc = PST_OK;
    for (unsigned i = PST_ARRAY_RELATIONS; i < PST_ARRAY_COUNT && rc == PST_OK; i++) {
        const struct pst_array *a = pst_manifest_dataset_array((struct pst_dataset *)x->ds, i);
        if (a->map == NULL || (i == PST_ARRAY_RELATIONS && x->ds->vertex_types > 0) ||
            i == PST_ARRAY_OLD_IDS) /* the tables have them */
            continue;
        (void)json_array_append_new(kept, json_string(pst_array_id_name(i)));
        if (i == PST_ARRAY_MULTILABELS)
            rc = csv_multilabels(x);
        else if (i == PST_ARRAY_TARGETS)
            rc = csv_numbers(x, a, "targets.csv", "target", true);
        else if (a->rank == 2)
            rc = csv_pairs(x, a, pst_array_id_name(i));
    }
    return rc;
}

pst_rc pst_export_csv(struct pst_export_job *x, const struct pst_array *rows)
{
    const bool typed = x->ds->vertex_types > 0;
    if (x->ds->edge_weights.map != NULL || x->ds->edge_times.map != NULL || x->ds->vertex_times.map != NULL)
        return pst_fail(PST_E_UNSUPPORTED, "%s has %s, which csv cannot hold: use --format npy", x->ds->dir,
                        x->ds->edge_weights.map != NULL ? "weights of edges" : "times");
    if (typed && (x->ds->names_at.map != NULL || x->ds->ids.map != NULL))
        return pst_fail(
            PST_E_UNSUPPORTED,
            "%s has names and several vertex types, which csv cannot hold together: use --format npy",
            x->ds->dir);
    if (typed && (x->ds->edges_split[0].map != NULL || x->ds->edges_split[1].map != NULL ||
                  x->ds->edges_split[2].map != NULL))
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s has edges to predict and several vertex types, which csv cannot hold together: "
                        "use --format npy",
                        x->ds->dir);
    if (rows != NULL)
        return csv_numbers(x, rows, "rows.csv", "", false);
    json_t *kept = json_array();
    pst_rc rc = typed ? pst_export_typed_edges(x, PST_EXPORT_CSV) : csv_edges(x);
    if (rc == PST_OK && typed)
        rc = pst_export_graphbolt(x, PST_EXPORT_CSV);
    if (rc == PST_OK && !typed)
        rc = csv_names(x);
    for (int type = typed ? 0 : -1; type < x->ds->vertex_types && rc == PST_OK; type++)
        rc = csv_features(x, type);
    if (rc == PST_OK)
        rc = csv_labels(x);
    if (rc == PST_OK)
        rc = pst_export_each_split(x, csv_split);
    if (rc == PST_OK)
        rc = csv_kept(x, kept);
    if (rc == PST_OK)
        return pst_export_meta(x, kept, PST_EXPORT_CSV);
    json_decref(kept);
    return rc;
}
