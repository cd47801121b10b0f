/* A graph of several types as GraphBolt's OnDiskDataset describes one (dgl.ai, "YAML specification"):
 * metadata.yaml over the files that the export has anyway, and the splits as seeds and labels of each type.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/export/export_impl.h"

#define BLOCK 4096 /* ids that are gathered before they are written */

static const char *const set_names[3] = {"train_set", "validation_set", "test_set"};
static const char *const seed_names[3] = {"train", "val", "test"};

/* In double quotes, which YAML reads as JSON's. */
static void put_quoted(FILE *f, const char *text)
{
    json_t *string = json_string(text);
    char *quoted = json_dumps(string, JSON_ENCODE_ANY);
    (void)fputs(quoted != NULL ? quoted : "\"\"", f);
    free(quoted);
    json_decref(string);
}

/* SOURCE:RELATION:TARGET, as every importer of ours names them; else made so. */
static void put_edge_type(FILE *f, const struct pst_dataset *ds, const struct pst_edge_type *t)
{
    const char *source = ds->vertex_type[t->source].name, *target = ds->vertex_type[t->target].name;
    const size_t ns = strlen(source), nt = strlen(target), n = strlen(t->name);
    char name[3 * PST_NAME_MAX];
    const bool as_it_is = n > ns + nt + 2 && strncmp(t->name, source, ns) == 0 && t->name[ns] == ':' &&
                          t->name[n - nt - 1] == ':' && strcmp(t->name + n - nt, target) == 0;
    (void)snprintf(name, sizeof name, as_it_is ? "%s" : "%s:%s:%s", as_it_is ? t->name : source, t->name,
                   target);
    put_quoted(f, name);
}

static void put_graph(FILE *f, const struct pst_dataset *ds, bool npy)
{
    (void)fputs("dataset_name: ", f);
    put_quoted(f, ds->name);
    (void)fputs("\ngraph:\n  nodes:\n", f);
    for (int k = 0; k < ds->vertex_types; k++) {
        (void)fputs("    - type: ", f);
        put_quoted(f, ds->vertex_type[k].name);
        (void)fprintf(f, "\n      num: %" PRId64 "\n", ds->vertex_type[k].vertices);
    }
    (void)fputs("  edges:\n", f);
    for (int k = 0; k < ds->edge_types; k++) {
        (void)fputs("    - type: ", f);
        put_edge_type(f, ds, &ds->edge_type[k]);
        (void)fprintf(f, "\n      format: %s\n      path: edges_%d.%s\n", npy ? "numpy" : "csv", k,
                      npy ? "npy" : "csv");
    }
}

static void put_features(FILE *f, const struct pst_dataset *ds)
{
    bool first = true;
    for (int k = 0; k < ds->vertex_types; k++) {
        if (ds->vertex_type[k].feature_dim == 0)
            continue;
        (void)fprintf(f, "%s  - domain: node\n    type: ", first ? "feature_data:\n" : "");
        put_quoted(f, ds->vertex_type[k].name);
        (void)fprintf(f, "\n    name: feat\n    format: numpy\n    in_memory: false\n    path: feat_%d.npy\n",
                      k);
        first = false;
    }
}

/* ---- splits ---- */

/* The ids of one split that are of one type, or their labels. */
struct seeds {
    const struct pst_array *split;
    const struct pst_vertex_type *type;
    const int32_t *labels; /* NULL: the ids within the type */
};

static bool is_of(const struct pst_vertex_type *t, int64_t v)
{
    return v >= t->first && v - t->first < t->vertices;
}

static pst_rc put_seeds(const struct seeds *s, struct pst_array_writer *w)
{
    const int64_t *id = s->split->map;
    int64_t block[BLOCK], n = 0;
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < s->split->shape[0] && rc == PST_OK; i++) {
        if (is_of(s->type, id[i]))
            block[n++] = s->labels != NULL ? s->labels[id[i]] : id[i] - s->type->first;
        if (n == BLOCK) {
            rc = pst_array_write(w, block, sizeof block);
            n = 0;
        }
    }
    return rc == PST_OK ? pst_array_write(w, block, (size_t)n * sizeof *block) : rc;
}

static pst_rc write_seeds(const struct pst_export_job *x, const struct seeds *s, int64_t count,
                          const char *name)
{
    const int64_t shape[2] = {count, 1};
    char path[PST_EXPORT_PATH_MAX];
    struct pst_array_writer w;
    uint64_t checksum;
    pst_export_path(x, name, path);
    pst_rc rc = pst_array_writer_init(&w, path, PST_I64, 1, shape);
    if (rc == PST_OK)
        rc = put_seeds(s, &w);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    pst_array_writer_release(&w);
    return rc;
}

/* One type's part of one split, if it has one: its files, and their entry. */
static pst_rc put_part(const struct pst_export_job *x, FILE *f, int split, int type, bool *first)
{
    const struct pst_dataset *ds = x->ds;
    struct seeds s = {.split = &ds->split[split], .type = &ds->vertex_type[type]};
    const int64_t *id = s.split->map;
    int64_t count = 0;
    char name[48];
    for (int64_t i = 0; i < s.split->shape[0]; i++)
        count += is_of(s.type, id[i]);
    if (count == 0)
        return PST_OK;
    (void)fprintf(f, "%s%s%s      - type: ", *first ? "    " : "", *first ? set_names[split] : "",
                  *first ? ":\n" : "");
    *first = false;
    put_quoted(f, s.type->name);
    (void)snprintf(name, sizeof name, "%s_%d.npy", seed_names[split], type);
    (void)fprintf(f, "\n        data:\n          - {name: seeds, format: numpy, path: %s}\n", name);
    pst_rc rc = write_seeds(x, &s, count, name);
    if (rc != PST_OK || ds->labels.map == NULL)
        return rc;
    s.labels = ds->labels.map;
    (void)snprintf(name, sizeof name, "%s_labels_%d.npy", seed_names[split], type);
    (void)fprintf(f, "          - {name: labels, format: numpy, path: %s}\n", name);
    return write_seeds(x, &s, count, name);
}

static pst_rc put_task(const struct pst_export_job *x, FILE *f)
{
    const struct pst_dataset *ds = x->ds;
    pst_rc rc = PST_OK;
    if (ds->split[0].map == NULL && ds->split[1].map == NULL && ds->split[2].map == NULL)
        return PST_OK;
    (void)fputs("tasks:\n  - name: vertices\n", f);
    if (ds->classes > 0)
        (void)fprintf(f, "    num_classes: %" PRId64 "\n", ds->classes);
    for (int split = 0; split < 3; split++) {
        bool first = true;
        for (int type = 0; type < ds->vertex_types && rc == PST_OK && ds->split[split].map != NULL; type++)
            rc = put_part(x, f, split, type, &first);
    }
    return rc;
}

pst_rc pst_export_graphbolt(struct pst_export_job *x, enum pst_export_format format)
{
    FILE *f = pst_export_create(x, "metadata.yaml");
    if (f == NULL)
        return PST_E_IO;
    pst_rc rc = PST_OK;
    put_graph(f, x->ds, format == PST_EXPORT_NPY);
    if (format == PST_EXPORT_NPY) {
        put_features(f, x->ds);
        rc = put_task(x, f);
    }
    const pst_rc closed = pst_export_finish(f, "metadata.yaml");
    return rc == PST_OK ? closed : rc;
}
