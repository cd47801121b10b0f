/* Types of vertices and edges in dataset.json. Ids of one type are consecutive, in the order of the types. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest_impl.h"

static const char *const vertex_keys[] = {"name", "vertices", "feature_dim", "stride_bytes", "features"};
static const char *const edge_keys[] = {"name", "source", "target"};

pst_rc pst_manifest_types(struct pst_manifest *m, int vertex_types, int edge_types)
{
    assert(m->vertex_type == NULL && m->edge_type == NULL);
    if (vertex_types > PST_MANIFEST_VERTEX_TYPES_MAX || edge_types > PST_MANIFEST_EDGE_TYPES_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "the dataset would have %d vertex types and %d edge types; at most %d and %d are allowed",
            vertex_types, edge_types, PST_MANIFEST_VERTEX_TYPES_MAX, PST_MANIFEST_EDGE_TYPES_MAX);
    m->vertex_type = calloc((size_t)vertex_types + 1, sizeof *m->vertex_type);
    m->edge_type = calloc((size_t)edge_types + 1, sizeof *m->edge_type);
    m->vertex_types = vertex_types;
    m->edge_types = edge_types;
    return m->vertex_type != NULL && m->edge_type != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d types", vertex_types + edge_types);
}

static void read_vertex_type(struct pst_manifest_vertex_type *t, json_t *object, int k,
                             struct pst_problems *problems)
{
    char where[64], features[96];
    (void)snprintf(where, sizeof where, "vertex_types[%d]", k);
    (void)snprintf(features, sizeof features, "%s.features", where);
    pst_manifest_check_keys(object, where, vertex_keys, sizeof vertex_keys / sizeof vertex_keys[0], problems);
    (void)pst_manifest_read_string(object, where, "name", t->name, sizeof t->name, problems);
    t->vertices = pst_manifest_read_count(object, "vertices", INT64_MAX / 16, problems);
    t->feature_dim = pst_manifest_read_count(object, "feature_dim", INT32_MAX, problems);
    t->stride_bytes = (uint64_t)pst_manifest_read_count(object, "stride_bytes", INT64_MAX / 16, problems);
    if (json_object_get(object, "features") != NULL)
        pst_manifest_read_entry(json_object_get(object, "features"), features, false, &t->features, problems);
}

/* The type of that name; -1: there is none. */
static int find_type(const struct pst_manifest *m, const char *name)
{
    for (int k = 0; k < m->vertex_types; k++)
        if (strcmp(m->vertex_type[k].name, name) == 0)
            return k;
    return -1;
}

static void read_edge_type(const struct pst_manifest *m, struct pst_edge_type *t, json_t *object, int k,
                           struct pst_problems *problems)
{
    static const char *const ends[2] = {"source", "target"};
    int *const end[2] = {&t->source, &t->target};
    char where[64], name[PST_NAME_MAX];
    (void)snprintf(where, sizeof where, "edge_types[%d]", k);
    pst_manifest_check_keys(object, where, edge_keys, sizeof edge_keys / sizeof edge_keys[0], problems);
    (void)pst_manifest_read_string(object, where, "name", t->name, sizeof t->name, problems);
    for (int i = 0; i < 2; i++) {
        if (!pst_manifest_read_string(object, where, ends[i], name, sizeof name, problems))
            continue;
        *end[i] = find_type(m, name);
        if (*end[i] < 0)
            pst_problem(problems, "%s.%s: '%s' is not one of vertex_types", where, ends[i], name);
    }
}

void pst_manifest_read_types(struct pst_manifest *m, json_t *root, struct pst_problems *problems)
{
    json_t *vertices = json_object_get(root, "vertex_types"), *edges = json_object_get(root, "edge_types");
    if (vertices == NULL && edges == NULL)
        return;
    size_t nv = json_array_size(vertices), ne = json_array_size(edges);
    if (nv == 0 || !json_is_array(edges) || nv > PST_MANIFEST_VERTEX_TYPES_MAX ||
        ne > PST_MANIFEST_EDGE_TYPES_MAX) {
        pst_problem(problems, "vertex_types, edge_types: expected lists of 1 to %d and 0 to %d types",
                    PST_MANIFEST_VERTEX_TYPES_MAX, PST_MANIFEST_EDGE_TYPES_MAX);
        return;
    }
    if (pst_manifest_types(m, (int)nv, (int)ne) != PST_OK) {
        pst_problem_from_error(problems);
        return;
    }
    for (int k = 0; k < m->vertex_types; k++)
        read_vertex_type(&m->vertex_type[k], json_array_get(vertices, (size_t)k), k, problems);
    for (int k = 0; k < m->edge_types; k++)
        read_edge_type(m, &m->edge_type[k], json_array_get(edges, (size_t)k), k, problems);
}

void pst_manifest_check_types(const struct pst_manifest *m, struct pst_problems *problems)
{
    int64_t sum = 0;
    if (m->vertex_types == 0)
        return;
    for (int k = 0; k < m->vertex_types; k++) {
        const struct pst_manifest_vertex_type *t = &m->vertex_type[k];
        char where[96];
        (void)snprintf(where, sizeof where, "vertex_types[%d].features", k);
        pst_manifest_check_features(&t->features, where, t->vertices, t->feature_dim, t->stride_bytes,
                                    problems);
        if (find_type(m, t->name) != k)
            pst_problem(problems, "vertex_types[%d]: '%s' occurs twice", k, t->name);
        if (__builtin_add_overflow(sum, t->vertices, &sum))
            sum = -1;
    }
    if (sum != m->vertices)
        pst_problem(problems, "vertex_types: expected %" PRId64 " vertices in total, found %" PRId64,
                    m->vertices, sum);
    if (m->edge_types != m->relations)
        pst_problem(problems, "edge_types: expected %" PRId64 " types, as in relation_types, found %d",
                    m->relations, m->edge_types);
    if (m->edges > 0 && !m->array[PST_ARRAY_RELATIONS].present)
        pst_problem(problems, "arrays.relations is missing: it holds the type of each edge");
    if (m->feature_dim > 0)
        pst_problem(problems, "feature_dim: expected 0, because each of vertex_types has its own features");
}

void pst_manifest_write_types(const struct pst_manifest *m, json_t *root)
{
    json_t *vertices = json_array(), *edges = json_array();
    for (int k = 0; k < m->vertex_types; k++) {
        const struct pst_manifest_vertex_type *t = &m->vertex_type[k];
        (void)json_array_append_new(
            vertices,
            json_pack("{s:s, s:I, s:I, s:I, s:o*}", "name", t->name, "vertices", (json_int_t)t->vertices,
                      "feature_dim", (json_int_t)t->feature_dim, "stride_bytes", (json_int_t)t->stride_bytes,
                      "features", t->features.present ? pst_manifest_entry_json(&t->features) : NULL));
    }
    for (int k = 0; k < m->edge_types; k++) {
        const struct pst_edge_type *t = &m->edge_type[k];
        (void)json_array_append_new(edges, json_pack("{s:s, s:s, s:s}", "name", t->name, "source",
                                                     m->vertex_type[t->source].name, "target",
                                                     m->vertex_type[t->target].name));
    }
    (void)json_object_set_new(root, "vertex_types", vertices);
    (void)json_object_set_new(root, "edge_types", edges);
}
