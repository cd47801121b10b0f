#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/store/export/export_impl.h"

static const char *const split_files[3] = {"train_idx.csv", "val_idx.csv", "test_idx.csv"};

static void put_text(FILE *f, const char *text, size_t n)
{
    bool quote = n == 0 || memchr(text, ',', n) != NULL || memchr(text, '"', n) != NULL ||
                 memchr(text, '\n', n) != NULL || memchr(text, '\r', n) != NULL || text[0] == ' ';
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

/* What the source called a vertex; of several types: the type, and the number within it. */
static void put_vertex(const struct pst_dataset *ds, FILE *f, int64_t v)
{
    if (ds->vertex_types > 0) {
        const struct pst_vertex_type *t = pst_export_type_of(ds, v);
        put_text(f, t->name, strlen(t->name));
        (void)fprintf(f, ",%" PRId64, v - t->first);
    } else if (ds->ids.map != NULL) {
        (void)fprintf(f, "%" PRId64, ((const int64_t *)ds->ids.map)[v]);
    } else if (ds->names_at.map != NULL) {
        put_name(&ds->names_at, &ds->names, f, v);
    } else {
        (void)fprintf(f, "%" PRId64, v);
    }
}

static void put_head(const struct pst_dataset *ds, FILE *f)
{
    (void)fputs(ds->vertex_types > 0 ? "type,vertex" : "vertex", f);
}

/* Edge i, which goes to v. */
static pst_rc put_edge(const struct pst_dataset *ds, FILE *f, int64_t i, int64_t v)
{
    const int64_t u = pst_export_source(ds, i);
    const int32_t r = ds->edge_relation.map != NULL ? ((const int32_t *)ds->edge_relation.map)[i] : -1;
    if (u < 0)
        return PST_E_FORMAT;
    put_vertex(ds, f, u);
    (void)fputc(',', f);
    put_vertex(ds, f, v);
    if (ds->edge_relation.map != NULL) {
        if (r < 0 || r >= ds->relations)
            return pst_fail(PST_E_FORMAT, "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %d",
                            ds->edge_relation.path, i, ds->relations - 1, r);
        (void)fputc(',', f);
        if (ds->relation_names_at.map != NULL)
            put_name(&ds->relation_names_at, &ds->relation_names, f, r);
        else
            (void)fprintf(f, "%d", r);
    }
    (void)fputc('\n', f);
    return PST_OK;
}

static pst_rc csv_edges(struct pst_export_job *x)
{
    const struct pst_dataset *ds = x->ds;
    const int64_t *indptr = ds->indptr.map;
    FILE *f = pst_export_create(x, "edges.csv");
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    pst_progress_begin(x->progress, "edges", (uint64_t)ds->edges, false);
    (void)fprintf(f, "source,target%s\n", ds->edge_relation.map != NULL ? ",relation" : "");
    for (int64_t v = 0; v < ds->vertices && rc == PST_OK; v++) {
        for (int64_t i = indptr[v]; i < indptr[v + 1] && rc == PST_OK; i++)
            rc = put_edge(ds, f, i, v);
        if (rc == PST_OK)
            rc = pst_progress_add(x->progress, (uint64_t)(indptr[v + 1] - indptr[v]));
    }
    pst_rc closed = pst_export_finish(f, "edges.csv");
    pst_progress_end(x->progress);
    return rc == PST_OK ? closed : rc;
}

static pst_rc csv_rest(struct pst_export_job *x)
{
    const struct pst_dataset *ds = x->ds;
    pst_rc rc = PST_OK;
    FILE *f = ds->classes > 0 ? pst_export_create(x, "labels.csv") : NULL;
    if (ds->classes > 0 && f == NULL)
        return PST_E_IO;
    if (f != NULL) {
        put_head(ds, f);
        (void)fputs(",label\n", f);
        for (int64_t v = 0; v < ds->vertices; v++)
            if (((const int32_t *)ds->labels.map)[v] >= 0) {
                put_vertex(ds, f, v);
                (void)fprintf(f, ",%d\n", ((const int32_t *)ds->labels.map)[v]);
            }
        rc = pst_export_finish(f, "labels.csv");
    }
    for (int k = 0; k < 3 && rc == PST_OK; k++) {
        if (ds->split[k].map == NULL)
            continue;
        if ((f = pst_export_create(x, split_files[k])) == NULL)
            return PST_E_IO;
        put_head(ds, f);
        (void)fputc('\n', f);
        for (int64_t i = 0; i < ds->split[k].shape[0]; i++) {
            put_vertex(ds, f, ((const int64_t *)ds->split[k].map)[i]);
            (void)fputc('\n', f);
        }
        rc = pst_export_finish(f, split_files[k]);
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

static pst_rc csv_rows(struct pst_export_job *x, const struct pst_array *a)
{
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1;
    FILE *f = pst_export_create(x, "rows.csv");
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    pst_progress_begin(x->progress, "rows", (uint64_t)a->shape[0], false);
    put_head(x->ds, f);
    for (int64_t j = 0; j < columns; j++)
        (void)fprintf(f, ",%" PRId64, j);
    (void)fputc('\n', f);
    for (int64_t v = 0; v < a->shape[0] && rc == PST_OK; v++) {
        put_vertex(x->ds, f, v);
        for (int64_t j = 0; j < columns; j++) {
            (void)fputc(',', f);
            put_value(a, f, v * columns + j);
        }
        (void)fputc('\n', f);
        rc = ferror(f) == 0 ? pst_progress_add(x->progress, 1) : pst_fail_errno("cannot write rows.csv");
    }
    pst_rc closed = pst_export_finish(f, "rows.csv");
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    return rc == PST_OK ? closed : rc;
}

pst_rc pst_export_csv(struct pst_export_job *x, const struct pst_array *rows)
{
    pst_rc rc = PST_OK;
    if (x->ds->vertex_types > 0 && (x->ds->names_at.map != NULL || x->ds->ids.map != NULL))
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s has names and several types, which csv has no place for: export npy keeps both",
                        x->ds->dir);
    if (rows != NULL)
        return csv_rows(x, rows);
    if (x->ds->vertex_types > 0) {
        rc = pst_export_typed_edges(x, PST_EXPORT_CSV);
        if (rc == PST_OK)
            rc = pst_export_graphbolt(x, PST_EXPORT_CSV);
    } else {
        rc = csv_edges(x);
    }
    return rc == PST_OK ? csv_rest(x) : rc;
}
