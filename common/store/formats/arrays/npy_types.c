/* What penstock export npy writes of a graph of several types: meta.json names them; edges_K.npy (2, E) of
 * the K-th type of edges has ids within the types of its ends, feat_K.npy the features of the K-th type of
 * vertices; labels and splits speak of all vertices, type after type. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/formats/arrays/npy_types.h"
#include "common/store/import/importing.h"
#include "common/store/import/typed.h"

/* A count of the K-th entry of a list, which must be there. */
static pst_rc count_of(const struct pst_import_job *job, const json_t *entry, const char *list, int k,
                       const char *key, int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(entry, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= max
               ? PST_OK
               : pst_fail(PST_E_FORMAT, "%s/meta.json: %s[%d].%s: expected an integer from 0 to %" PRId64,
                          job->from, list, k, key, max);
}

static pst_rc text_of(const struct pst_import_job *job, const json_t *entry, const char *list, int k,
                      const char *key, const char **out)
{
    *out = json_string_value(json_object_get(entry, key));
    return *out != NULL && (*out)[0] != '\0' && strlen(*out) < PST_NAME_MAX
               ? PST_OK
               : pst_fail(PST_E_FORMAT, "%s/meta.json: %s[%d].%s: expected a name of 1 to %d bytes",
                          job->from, list, k, key, PST_NAME_MAX - 1);
}

static pst_rc vertex_type(struct pst_typed *t, const json_t *entry, int k, pst_arrays_features_fn *features,
                          void *ctx)
{
    static const char list[] = "vertex_types";
    const char *name;
    int64_t dim, stride;
    int type;
    pst_rc rc = text_of(t->job, entry, list, k, "name", &name);
    if (rc == PST_OK)
        rc = pst_typed_vertex(t, name, &type);
    if (rc == PST_OK && type != k)
        rc = pst_fail(PST_E_FORMAT, "%s/meta.json: %s[%d]: '%s' occurs twice", t->job->from, list, k, name);
    if (rc != PST_OK)
        return rc;
    struct pst_typed_vertices *v = &t->vertex[k];
    rc = count_of(t->job, entry, list, k, "num_nodes", INT64_MAX / 32 / PST_MANIFEST_VERTEX_TYPES_MAX,
                  &v->vertices);
    if (rc == PST_OK)
        rc = count_of(t->job, entry, list, k, "num_features", INT32_MAX, &dim);
    if (rc == PST_OK)
        rc = count_of(t->job, entry, list, k, "stride_bytes", INT64_MAX / 16, &stride);
    if (rc != PST_OK || dim == 0 || t->job->skip[PST_IMPORT_FEATURES])
        return rc;
    v->stride_bytes = (uint64_t)stride;
    if (features != NULL)
        return features(ctx, k, v->vertices, entry, v->features);
    (void)snprintf(v->features, sizeof v->features, "%.4000s/feat_%d.npy", t->job->from, k);
    return PST_OK;
}

static pst_rc edge_type(struct pst_typed *t, const json_t *entry, int k, bool csv)
{
    static const char list[] = "edge_types", *const ends[2] = {"source", "target"};
    struct pst_typed_edges *e = &t->edge[k];
    int *const type[2] = {&e->source, &e->target};
    const int before = t->vertex_types;
    const char *name, *end;
    pst_rc rc = text_of(t->job, entry, list, k, "name", &name);
    if (rc == PST_OK)
        (void)snprintf(e->name, sizeof e->name, "%s", name);
    for (int i = 0; i < 2 && rc == PST_OK; i++) {
        rc = text_of(t->job, entry, list, k, ends[i], &end);
        if (rc == PST_OK)
            rc = pst_typed_vertex(t, end, type[i]);
        if (rc == PST_OK && *type[i] >= before)
            rc = pst_fail(PST_E_FORMAT, "%s/meta.json: %s[%d].%s: '%s' is not one of vertex_types",
                          t->job->from, list, k, ends[i], end);
    }
    (void)snprintf(e->path, sizeof e->path, "%.4000s/edges_%d.%s", t->job->from, k, csv ? "csv" : "npy");
    e->csv = csv;
    t->edge_types = k + 1;
    return rc;
}

static pst_rc read_types(struct pst_typed *t, const json_t *meta, pst_arrays_features_fn *features, void *ctx)
{
    const json_t *vertices = json_object_get(meta, "vertex_types"),
                 *edges = json_object_get(meta, "edge_types");
    const size_t nv = json_array_size(vertices), ne = json_array_size(edges);
    if (nv == 0 || !json_is_array(edges) || nv > PST_MANIFEST_VERTEX_TYPES_MAX ||
        ne > PST_MANIFEST_EDGE_TYPES_MAX)
        return pst_fail(PST_E_FORMAT,
                        "%s/meta.json: vertex_types, edge_types: expected lists of 1 to %d and 0 to %d types",
                        t->job->from, PST_MANIFEST_VERTEX_TYPES_MAX, PST_MANIFEST_EDGE_TYPES_MAX);
    pst_rc rc = PST_OK;
    for (size_t k = 0; k < nv && rc == PST_OK; k++)
        rc = vertex_type(t, json_array_get(vertices, k), (int)k, features, ctx);
    for (size_t k = 0; k < ne && rc == PST_OK; k++)
        rc = edge_type(t, json_array_get(edges, k), (int)k, features != NULL);
    return rc;
}

pst_rc pst_arrays_import_types(struct pst_import_job *job, const json_t *meta,
                               pst_arrays_features_fn *features, void *ctx)
{
    struct pst_typed t;
    if (job->types[0] != '\0' && strcmp(job->types, "all") != 0)
        return pst_fail(PST_E_ARG,
                        "--types: the labels and splits of %s cover all types together; only `penstock "
                        "import graphbolt` can select types, from its metadata.yaml",
                        job->from);
    pst_rc rc = pst_typed_init(&t, job);
    t.shape = PST_EDGES_2XE;
    t.format = "penstock export";
    t.labelled = -1;
    t.keep = true;
    if (rc == PST_OK)
        rc = read_types(&t, meta, features, ctx);
    if (rc == PST_OK)
        rc = pst_typed_import(&t);
    pst_typed_release(&t);
    return rc;
}
