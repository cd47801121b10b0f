/* meta.c: meta.json, which says what the other files cannot. */
#include <stdio.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/export/export_impl.h"

static json_t *vertex_types(const struct pst_dataset *ds)
{
    json_t *list = json_array();
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        (void)json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "name", t->name, "num_nodes",
                                                    (json_int_t)t->vertices, "num_features",
                                                    (json_int_t)t->feature_dim, "stride_bytes",
                                                    (json_int_t)t->stride_bytes));
        if (t->feature_dim > 0)
            (void)json_object_set_new(json_array_get(list, (size_t)k), "feature_dtype",
                                      json_string(pst_dtype_name(t->features.dtype)));
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

/* Names, that of the split beside the edges first. */
static json_t *splits(const struct pst_dataset *ds)
{
    json_t *list = json_array();
    for (int k = 0; k < ds->splits; k++)
        (void)json_array_append_new(list, json_string(ds->named_split[k].name));
    return list;
}

/* Counts, and what import npy cannot tell from the arrays that every program writes. */
static json_t *meta_of(const struct pst_dataset *ds, json_t *kept, enum pst_export_format format)
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
    if (meta != NULL && ds->splits > 0)
        (void)json_object_set_new(meta, "splits", splits(ds));
    if (meta != NULL && ds->feature_dim > 0 && format == PST_EXPORT_CSV)
        (void)json_object_set_new(meta, "feature_dtype", json_string(pst_dtype_name(ds->features.dtype)));
    return meta;
}

pst_rc pst_export_meta(const struct pst_export_job *x, json_t *kept, enum pst_export_format format)
{
    char path[PST_EXPORT_PATH_MAX];
    pst_export_path(x, "meta.json", path);
    json_t *meta = meta_of(x->ds, kept, format);
    FILE *f = meta != NULL ? fopen(path, "wxe") : NULL;
    bool ok =
        f != NULL && json_dumpf(meta, f, JSON_INDENT(1)) == 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    json_decref(meta);
    if (f != NULL)
        ok = fclose(f) == 0 && ok;
    return ok ? PST_OK : pst_fail_errno("cannot write %s", path);
}
