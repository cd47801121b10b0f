/* directory.c: edges.csv, vertices.csv, labels.csv, features.csv, splits, triples and so on, each made into
 * an array. */
#include "common/store/formats/text/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/formats/arrays/npy_types.h"
#include "common/store/import/importing.h"
#include "common/store/import/kept.h"

struct directory {
    struct pst_import_job *job;
    json_t *meta; /* NULL: there is none */
    struct pst_kept kept;
    struct pst_import_split_source *splits;
    bool typed;
    bool listed; /* vertices.csv says what each vertex is called */
    struct pst_import_budget budget;
    struct pst_numbering_spec numbering;
    struct pst_numbering_type type[PST_MANIFEST_VERTEX_TYPES_MAX];
    struct pst_dict relations; /* names of them */
    bool relations_named;
    char ids[PST_PATH_MAX], names_at[PST_PATH_MAX], names[PST_PATH_MAX]; /* that numbering looks at */
    int made;                                                            /* temporary arrays */
};

static const char *const endings[] = {".csv", ".csv.gz", ".csv.zst", NULL};

/* NAME.csv, plain or compressed. */
static bool find_table(const struct directory *d, const char *name, char path[PST_PATH_MAX])
{
    for (int i = 0; endings[i] != NULL; i++)
        if ((size_t)snprintf(path, PST_PATH_MAX, "%s/%s%s", d->job->from, name, endings[i]) < PST_PATH_MAX &&
            access(path, F_OK) == 0)
            return true;
    path[0] = '\0';
    return false;
}

static void temp_path(struct directory *d, char path[PST_PATH_MAX])
{
    char name[32];
    (void)snprintf(name, sizeof name, "csv-%d", d->made++);
    pst_build_temp(d->job->build, name, path);
}

/* ---- vertices and relations ---- */

static pst_rc read_types(struct directory *d)
{
    const json_t *types = json_object_get(d->meta, "vertex_types");
    int64_t first = 0;
    const size_t n = json_array_size(types);
    if (n > PST_MANIFEST_VERTEX_TYPES_MAX)
        return pst_fail(PST_E_LIMIT, "%s/meta.json: too many vertex types: at most %d are allowed",
                        d->job->from, PST_MANIFEST_VERTEX_TYPES_MAX);
    for (size_t k = 0; k < n; k++) {
        const json_t *one = json_array_get(types, k);
        const char *name = json_string_value(json_object_get(one, "name"));
        const int64_t vertices = json_integer_value(json_object_get(one, "num_nodes"));
        if (name == NULL || vertices < 0)
            return pst_fail(PST_E_FORMAT, "%s/meta.json: vertex_types[%zu]: expected a name and num_nodes",
                            d->job->from, k);
        d->type[k] = (struct pst_numbering_type){name, first, vertices};
        first += vertices;
    }
    d->numbering = (struct pst_numbering_spec){
        .kind = PST_NUMBERING_IDENTITY, .vertices = first, .type = d->type, .types = (int)n};
    return PST_OK;
}

/* What vertices.csv lists: ids where meta.json or --ids compact says so, else names. */
static pst_rc read_vertices(struct directory *d)
{
    const bool ids = d->meta != NULL && !pst_kept_lists(d->meta, PST_ARRAY_NAMES)
                         ? pst_kept_lists(d->meta, PST_ARRAY_IDS)
                         : d->job->text.ids == PST_EDGE_TEXT_IDS_COMPACT;
    char path[PST_PATH_MAX];
    int64_t rows = 0;
    d->listed = find_table(d, "vertices", path);
    if (!d->listed)
        return PST_OK;
    temp_path(d, d->names_at);
    temp_path(d, d->names);
    temp_path(d, d->ids);
    pst_rc rc =
        ids ? pst_tables_ids(path, d->ids, &rows) : pst_tables_names(path, d->names_at, d->names, &rows);
    if (rc == PST_OK && d->job->spec.vertices >= 0 && d->job->spec.vertices != rows)
        rc = pst_fail(PST_E_FORMAT, "%s: expected %lld vertices, found %lld", path,
                      (long long)d->job->spec.vertices, (long long)rows);
    d->job->spec.vertices = rows;
    if (rc == PST_OK && ids)
        rc = pst_kept_open(&d->kept, PST_ARRAY_IDS, d->ids, path);
    if (rc == PST_OK && !ids)
        rc = pst_kept_open(&d->kept, PST_ARRAY_NAMES_AT, d->names_at, path);
    if (rc == PST_OK && !ids)
        rc = pst_kept_open(&d->kept, PST_ARRAY_NAMES, d->names, path);
    d->numbering = (struct pst_numbering_spec){.kind = ids ? PST_NUMBERING_IDS : PST_NUMBERING_NAMES,
                                               .vertices = rows,
                                               .ids = d->ids,
                                               .names_at = d->names_at,
                                               .names = d->names,
                                               .complete = true,
                                               .list = "vertices.csv",
                                               .memory_bytes = d->budget.names / 2};
    return rc;
}

/* The names of relations.csv, to their numbers. */
static pst_rc load_relations(struct directory *d)
{
    const int64_t *at = d->kept.array[PST_ARRAY_RELATION_NAMES_AT].map;
    const char *text = d->kept.array[PST_ARRAY_RELATION_NAMES].map;
    for (int64_t r = 0; r < d->kept.relations; r++) {
        int64_t number = 0;
        pst_rc rc = pst_dict_add(&d->relations, text + at[r], (size_t)(at[r + 1] - at[r]), &number);
        if (rc != PST_OK)
            return rc;
        if (number != r)
            return pst_fail(PST_E_FORMAT, "%s: '%.*s' occurs twice",
                            d->kept.array[PST_ARRAY_RELATION_NAMES].path,
                            (int)pst_min_i64(64, at[r + 1] - at[r]), text + at[r]);
    }
    return PST_OK;
}

static pst_rc read_relations(struct directory *d)
{
    char path[PST_PATH_MAX], at[PST_PATH_MAX], names[PST_PATH_MAX];
    d->relations_named = find_table(d, "relations", path);
    if (!d->relations_named)
        return PST_OK;
    temp_path(d, at);
    temp_path(d, names);
    pst_dict_init(&d->relations, d->budget.names / 2);
    pst_rc rc = pst_tables_names(path, at, names, &d->kept.relations);
    if (rc == PST_OK)
        rc = pst_kept_open(&d->kept, PST_ARRAY_RELATION_NAMES_AT, at, path);
    if (rc == PST_OK)
        rc = pst_kept_open(&d->kept, PST_ARRAY_RELATION_NAMES, names, path);
    return rc == PST_OK ? load_relations(d) : rc;
}

/* ---- edges ---- */

static struct pst_tables_spec table_spec(struct directory *d, struct pst_numbering *numbering,
                                         const char *path, const char *to, const char *temp)
{
    return (struct pst_tables_spec){.numbering = numbering,
                                    .columns = &d->job->spec.columns,
                                    .path = path,
                                    .to = to,
                                    .temp = temp,
                                    .warnings = &d->job->result->warnings,
                                    .progress = d->job->progress};
}

static struct pst_tables_edges edges_spec(struct directory *d, int64_t vertices)
{
    return (struct pst_tables_edges){.dtype = vertices >= 0 ? pst_manifest_id_dtype(vertices) : PST_I64,
                                     .relation = d->relations_named ? &d->relations : NULL,
                                     .relations = d->kept.relations > 0 ? d->kept.relations : -1};
}

/* Whether a table has a column of relations. */
static pst_rc has_relation(const char *path, bool *has)
{
    static const char *const relation[] = {"relation", "rel", "predicate", NULL};
    static const char *const known[] = {"source", "target", "src", "dst", "from", "to", "head", "tail", NULL};
    struct pst_table t;
    pst_rc rc = pst_table_open(&t, path, PST_TABLE_HEADER_AUTO, known);
    *has = rc == PST_OK && pst_table_column(&t, relation) >= 0;
    pst_table_close(&t);
    return rc;
}

/* Edges whose vertices have names, or that have relations: an array of numbers first. */
static pst_rc edges_to_array(struct directory *d, const char *path)
{
    struct pst_import_spec *s = &d->job->spec;
    struct pst_numbering n;
    char temp[PST_PATH_MAX];
    struct pst_numbering_spec numbering = d->numbering;
    if (!d->listed) /* ids as they are */
        numbering =
            (struct pst_numbering_spec){.kind = PST_NUMBERING_IDENTITY,
                                        .vertices = s->vertices >= 0 ? s->vertices : PST_CSC_BUILDER_ID_MAX};
    struct pst_tables_edges edges = edges_spec(d, s->vertices);
    temp_path(d, s->source[PST_IMPORT_EDGES]);
    temp_path(d, temp);
    pst_rc rc = pst_numbering_open(&n, &numbering);
    if (rc == PST_OK) {
        const struct pst_tables_spec spec = table_spec(d, &n, path, s->source[PST_IMPORT_EDGES], temp);
        rc = pst_tables_edges(&spec, &edges);
    }
    pst_numbering_close(&n);
    (void)snprintf(s->told_as[PST_IMPORT_EDGES], sizeof s->told_as[0], "%s", path);
    s->edge_shape = edges.three ? PST_EDGES_EX3 : PST_EDGES_EX2;
    s->relations = d->kept.relations;
    s->numbering = d->listed ? &d->numbering : NULL;
    s->memory_bytes = d->budget.sort;
    return rc;
}

static pst_rc import_edges(struct directory *d)
{
    struct pst_import_job *job = d->job;
    char path[PST_PATH_MAX];
    bool related = false;
    if (!find_table(d, "edges", path))
        return pst_fail(PST_E_ARG, "%s: expected edges.csv (or .csv.gz, .csv.zst)", job->from);
    pst_rc rc = has_relation(path, &related);
    if (rc != PST_OK)
        return rc;
    if (job->text.weighted && (d->listed || related))
        return pst_fail(PST_E_UNSUPPORTED, "%s: --weight-column cannot be used with %s", path,
                        related ? "edges that have relations" : "vertices.csv, which lists the vertices");
    if (!d->listed && !related) {
        job->text.by = PST_EDGE_TEXT_BY_CHARACTER;
        job->text.separator = ',';
        return pst_import_edge_text(job, path);
    }
    if (d->listed && job->spec.memory_bytes > 0 && job->text.ids == PST_EDGE_TEXT_IDS_STRINGS)
        job->text.ids = PST_EDGE_TEXT_IDS_KEEP; /* the names are vertices.csv's */
    rc = edges_to_array(d, path);
    return rc == PST_OK ? pst_import(&job->spec, job->build, job->result, job->progress) : rc;
}

/* ---- the rest ---- */

/* What vertices are called after the import. */
static struct pst_numbering_spec numbering_after(struct directory *d)
{
    const struct pst_manifest *m = &d->job->build->manifest;
    const char *partial = d->job->build->partial;
    struct pst_numbering_spec n = d->numbering;
    if (d->typed || d->listed)
        return n;
    n = (struct pst_numbering_spec){.kind = PST_NUMBERING_IDENTITY,
                                    .vertices = m->vertices,
                                    .ids = d->ids,
                                    .names_at = d->names_at,
                                    .names = d->names,
                                    .complete = true,
                                    .list = "edges.csv",
                                    .memory_bytes = d->budget.names / 2};
    (void)snprintf(d->ids, sizeof d->ids, "%.4000s/ids.npy", partial);
    (void)snprintf(d->names_at, sizeof d->names_at, "%.4000s/names_at.npy", partial);
    (void)snprintf(d->names, sizeof d->names, "%.4000s/names.npy", partial);
    if (m->array[PST_ARRAY_IDS].present)
        n.kind = PST_NUMBERING_IDS;
    if (m->array[PST_ARRAY_NAMES].present)
        n.kind = PST_NUMBERING_NAMES;
    return n;
}

static pst_rc keep_table(struct directory *d, struct pst_numbering *n, enum pst_array_id id, const char *path)
{
    char to[PST_PATH_MAX], temp[PST_PATH_MAX];
    struct pst_tables_edges edges = edges_spec(d, n->spec.vertices);
    temp_path(d, to);
    temp_path(d, temp);
    const struct pst_tables_spec spec = table_spec(d, n, path, to, temp);
    pst_rc rc = id == PST_ARRAY_MULTILABELS ? pst_tables_multilabels(&spec)
                : id == PST_ARRAY_TARGETS   ? pst_tables_targets(&spec)
                                            : pst_tables_edges(&spec, &edges);
    return rc == PST_OK ? pst_kept_open(&d->kept, id, to, path) : rc;
}

/* Triples, edges to predict, several labels, targets: NAME.csv of each array. */
static pst_rc keep_tables(struct directory *d)
{
    const struct pst_numbering_spec spec = numbering_after(d);
    struct pst_numbering n = {.first = 0};
    bool open = false;
    pst_rc rc = PST_OK;
    for (unsigned i = PST_ARRAY_TRIPLES_TRAIN; i <= PST_ARRAY_TARGETS && rc == PST_OK; i++) {
        char path[PST_PATH_MAX];
        if (d->kept.array[i].map != NULL || i == PST_ARRAY_EDGE_WEIGHTS ||
            !find_table(d, pst_array_id_name(i), path) ||
            (i >= PST_ARRAY_IDS && i <= PST_ARRAY_RELATION_NAMES))
            continue;
        if (!open)
            rc = pst_numbering_open(&n, &spec);
        open = true;
        if (rc == PST_OK)
            rc = keep_table(d, &n, i, path);
    }
    if (open)
        pst_numbering_close(&n);
    return rc;
}

/* feat_K.csv of one type of vertices. */
static pst_rc type_features(void *ctx, int k, int64_t vertices, const json_t *entry, char path[PST_PATH_MAX])
{
    struct directory *d = ctx;
    char name[32], from[PST_PATH_MAX], temp[PST_PATH_MAX];
    const char *dtype = json_string_value(json_object_get(entry, "feature_dtype"));
    enum pst_dtype is = PST_F32;
    struct pst_numbering n;
    const struct pst_numbering_spec numbering = {.kind = PST_NUMBERING_IDENTITY, .vertices = vertices};
    (void)snprintf(name, sizeof name, "feat_%d", k);
    if (!find_table(d, name, from))
        return pst_fail(PST_E_FORMAT,
                        "%s: %s.csv is missing, although meta.json says that these vertices have features",
                        d->job->from, name);
    pst_rc rc = dtype != NULL ? pst_dtype_parse(dtype, &is) : PST_OK;
    temp_path(d, path);
    temp_path(d, temp);
    if (rc == PST_OK)
        rc = pst_numbering_open(&n, &numbering);
    if (rc != PST_OK)
        return rc;
    const struct pst_tables_spec spec = table_spec(d, &n, from, path, temp);
    rc = pst_tables_features(&spec, is);
    pst_numbering_close(&n);
    return rc;
}

static pst_rc find_sources(struct directory *d)
{
    struct pst_import_spec *s = &d->job->spec;
    const char *dtype = json_string_value(json_object_get(d->meta, "feature_dtype"));
    pst_rc rc = pst_import_read_meta(s, d->job->from, d->meta);
    pst_import_name(s, d->job->from);
    if (s->source[PST_IMPORT_LABELS][0] == '\0' && !d->job->skip[PST_IMPORT_LABELS])
        (void)find_table(d, "labels", s->source[PST_IMPORT_LABELS]);
    if (s->source[PST_IMPORT_FEATURES][0] == '\0' && !d->job->skip[PST_IMPORT_FEATURES] && !d->typed)
        (void)find_table(d, "features", s->source[PST_IMPORT_FEATURES]);
    for (int part = 0; part < 3 && rc == PST_OK; part++)
        if (s->source[PST_IMPORT_TRAIN + part][0] == '\0' && !d->job->skip[PST_IMPORT_TRAIN + part])
            rc = pst_import_find_part(d->job->from, part, endings, s->source[PST_IMPORT_TRAIN + part]);
    if (rc == PST_OK && dtype != NULL)
        rc = pst_wrap(pst_dtype_parse(dtype, &s->table_dtype), "%s/meta.json: feature_dtype", d->job->from);
    if (rc == PST_OK && s->table_dtype > PST_BF16)
        rc = pst_fail(PST_E_FORMAT,
                      "%s/meta.json: feature_dtype: expected float32, float16 or bfloat16, found %s",
                      d->job->from, dtype);
    memcpy(s->only_split, d->job->split, sizeof s->only_split);
    return rc == PST_OK ? pst_import_find_splits(d->job->from, d->meta, endings, s, &d->splits) : rc;
}

static pst_rc import_all(struct directory *d)
{
    struct pst_import_job *job = d->job;
    pst_rc rc = pst_kept_begin(&d->kept, job, d->meta);
    if (rc == PST_OK)
        rc = pst_import_budget(job->spec.memory_bytes, PST_IMPORT_KIND_NAMES, &d->budget);
    if (rc == PST_OK)
        rc = find_sources(d);
    if (rc == PST_OK)
        rc = d->typed ? read_types(d) : read_vertices(d);
    if (rc == PST_OK && !d->typed)
        rc = read_relations(d);
    if (rc == PST_OK && d->typed) {
        job->spec.numbering = &d->numbering;
        rc = pst_arrays_import_types(job, d->meta, type_features, d);
    } else if (rc == PST_OK) {
        rc = import_edges(d);
    }
    if (rc == PST_OK)
        rc = keep_tables(d);
    return rc == PST_OK ? pst_kept_copy(&d->kept) : rc;
}

pst_rc pst_csv_import_directory(struct pst_import_job *job)
{
    struct directory *d = calloc(1, sizeof *d); /* paths: too much for the stack */
    if (d == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot import");
    d->job = job;
    pst_rc rc = pst_import_meta(job->from, &d->meta);
    d->typed = json_object_get(d->meta, "vertex_types") != NULL;
    if (rc == PST_OK)
        rc = import_all(d);
    pst_kept_close(&d->kept);
    if (d->relations_named)
        pst_dict_release(&d->relations);
    json_decref(d->meta);
    free(d->splits);
    free(d);
    return rc;
}
