/* GraphBolt's OnDiskDataset (dgl.ai, "YAML specification"): metadata.yaml names the files. Edges of shape (2,
 * E) or lines of CSV without a header; features of vertices called "feat"; one of the tasks. */
#include "common/store/formats/sets/graphbolt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/text/python.h"
#include "common/store/text/text_array.h"

static void beside(const struct pst_graphbolt *g, const char *name, char out[4096])
{
    const char *slash = strrchr(g->yaml.path, '/');
    int n = slash == NULL ? 0 : (int)(slash - g->yaml.path) + 1;
    (void)snprintf(out, 4096, "%.*s%.1000s", name[0] == '/' ? 0 : n, g->yaml.path, name);
}

pst_rc pst_graphbolt_file(struct pst_graphbolt *g, pst_yaml_node entry, char path[4096], char told[4096])
{
    char name[1000], format[16], prefix[4096];
    pst_rc rc = pst_yaml_text(&g->yaml, entry, "path", true, name, sizeof name);
    if (rc == PST_OK)
        rc = pst_yaml_text(&g->yaml, entry, "format", true, format, sizeof format);
    if (rc != PST_OK)
        return rc;
    beside(g, name, told);
    memcpy(path, told, 4096);
    if (strcmp(format, "numpy") == 0)
        return PST_OK;
    if (strcmp(format, "torch") != 0)
        return pst_yaml_fail(&g->yaml, pst_yaml_get(&g->yaml, entry, "format"),
                             "format: expected numpy or torch, found '%s'", format);
    (void)snprintf(name, sizeof name, "torch%d", g->temps++);
    pst_build_temp(g->job->build, name, prefix);
    prefix[strlen(prefix) - strlen(".npy")] = '\0';
    rc = pst_python_run("torch_file", told, prefix);
    (void)snprintf(path, 4096, "%.4000svalue.npy", prefix);
    if (rc == PST_OK && access(path, F_OK) != 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected a tensor or an array", told);
    return rc;
}

/* ---- the graph ---- */

static pst_rc read_vertices(struct pst_graphbolt *g, pst_yaml_node graph)
{
    pst_yaml_node list = pst_yaml_get(&g->yaml, graph, "nodes");
    int n = pst_yaml_count(list);
    if (n == 0)
        return pst_yaml_fail(&g->yaml, list != NULL ? list : graph,
                             "expected a list of nodes with type and num");
    pst_rc rc = PST_OK;
    for (int i = 0; i < n && rc == PST_OK; i++) {
        pst_yaml_node entry = pst_yaml_at(&g->yaml, list, i);
        char name[PST_NAME_MAX];
        int type, before = g->typed.vertex_types;
        rc = pst_yaml_text(&g->yaml, entry, "type", n > 1, name, sizeof name);
        if (rc == PST_OK && name[0] == '\0')
            g->plain = true;
        if (rc == PST_OK)
            rc = pst_typed_vertex(&g->typed, name[0] != '\0' ? name : "vertex", &type);
        if (rc == PST_OK && type < before)
            rc = pst_yaml_fail(&g->yaml, entry, "type '%s' occurs twice", name);
        if (rc == PST_OK)
            rc = pst_yaml_int(&g->yaml, entry, "num", true, 0, &g->typed.vertex[type].vertices);
        if (rc == PST_OK && g->typed.vertex[type].vertices > INT64_MAX / 32 / PST_MANIFEST_VERTEX_TYPES_MAX)
            rc = pst_yaml_fail(&g->yaml, entry, "num: the total number of vertices is too large");
    }
    return rc;
}

/* "author:writes:paper", in place, between types that are there. */
static pst_rc split_type(struct pst_graphbolt *g, pst_yaml_node entry, char *type, char *part[3])
{
    part[0] = type;
    for (int i = 1; i < 3; i++) {
        char *colon = part[i - 1] != NULL ? strchr(part[i - 1], ':') : NULL;
        part[i] = colon != NULL ? colon + 1 : NULL;
        if (colon != NULL)
            *colon = '\0';
    }
    if (part[2] == NULL || part[1][0] == '\0')
        return pst_yaml_fail(&g->yaml, entry, "type: expected SOURCE:RELATION:TARGET");
    for (int i = 0; i < 3; i += 2) {
        int k = 0;
        while (k < g->typed.vertex_types && strcmp(g->typed.vertex[k].name, part[i]) != 0)
            k++;
        if (k == g->typed.vertex_types)
            return pst_yaml_fail(&g->yaml, entry, "type: '%.64s' is not one of the types of nodes", part[i]);
    }
    return PST_OK;
}

static pst_rc read_edges(struct pst_graphbolt *g, pst_yaml_node entry)
{
    char type[PST_NAME_MAX], format[16], name[1000], path[4096], *part[3];
    struct pst_yaml *y = &g->yaml;
    pst_rc rc = pst_yaml_text(y, entry, "type", !g->plain, type, sizeof type);
    if (rc == PST_OK)
        rc = pst_yaml_text(y, entry, "format", true, format, sizeof format);
    if (rc == PST_OK)
        rc = pst_yaml_text(y, entry, "path", true, name, sizeof name);
    if (rc == PST_OK && g->plain && type[0] == '\0')
        (void)snprintf(type, sizeof type, "vertex:to:vertex");
    if (rc == PST_OK)
        rc = split_type(g, entry, type, part);
    bool csv = rc == PST_OK && strcmp(format, "csv") == 0;
    if (rc == PST_OK && !csv && strcmp(format, "numpy") != 0)
        rc = pst_yaml_fail(y, entry, "format: expected csv or numpy, found '%s'", format);
    if (rc != PST_OK)
        return rc;
    beside(g, name, path);
    rc = pst_typed_edge(&g->typed, part[0], part[1], part[2], path);
    if (rc == PST_OK)
        g->typed.edge[g->typed.edge_types - 1].csv = csv;
    return rc;
}

static pst_rc read_graph(struct pst_graphbolt *g)
{
    pst_yaml_node root = pst_yaml_root(&g->yaml), graph = pst_yaml_get(&g->yaml, root, "graph");
    if (graph == NULL && pst_yaml_get(&g->yaml, root, "graph_topology") != NULL)
        return pst_yaml_fail(&g->yaml, root,
                             "this is GraphBolt's preprocessed copy of a dataset: import the directory above "
                             "it, whose metadata.yaml has `graph`");
    if (graph == NULL)
        return pst_yaml_fail(&g->yaml, root, "the key graph is missing");
    pst_rc rc = read_vertices(g, graph);
    pst_yaml_node list = pst_yaml_get(&g->yaml, graph, "edges");
    if (rc == PST_OK && pst_yaml_count(list) == 0)
        rc = pst_yaml_fail(&g->yaml, graph, "expected a list of edges");
    for (int i = 0; rc == PST_OK && i < pst_yaml_count(list); i++)
        rc = read_edges(g, pst_yaml_at(&g->yaml, list, i));
    return rc;
}

/* ---- features ---- */

static int find_type(const struct pst_graphbolt *g, const char *name)
{
    for (int k = 0; k < g->typed.vertex_types; k++)
        if (strcmp(g->typed.vertex[k].name, g->plain && name[0] == '\0' ? "vertex" : name) == 0)
            return k;
    return -1;
}

/* The feature of a type that is called feat, else the first; the others are told. */
static pst_rc read_feature(struct pst_graphbolt *g, pst_yaml_node entry, bool called_feat)
{
    char domain[16], type[PST_NAME_MAX], name[PST_NAME_MAX], told[4096];
    pst_rc rc = pst_yaml_text(&g->yaml, entry, "domain", true, domain, sizeof domain);
    if (rc == PST_OK)
        rc = pst_yaml_text(&g->yaml, entry, "type", false, type, sizeof type);
    if (rc == PST_OK)
        rc = pst_yaml_text(&g->yaml, entry, "name", true, name, sizeof name);
    if (rc != PST_OK || (strcmp(name, "feat") == 0) != called_feat)
        return rc;
    int k = strcmp(domain, "node") == 0 ? find_type(g, type) : -1;
    if (k >= 0 && g->typed.vertex[k].features[0] == '\0' && !g->job->skip[PST_IMPORT_FEATURES])
        return pst_graphbolt_file(g, entry, g->typed.vertex[k].features, told);
    pst_problem(&g->job->result->warnings, "%s: feature '%s' of %s%s%s is not imported", g->yaml.path, name,
                domain, type[0] != '\0' ? " " : "", type);
    return PST_OK;
}

static pst_rc read_features(struct pst_graphbolt *g)
{
    pst_yaml_node list = pst_yaml_get(&g->yaml, pst_yaml_root(&g->yaml), "feature_data");
    pst_rc rc = PST_OK;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < pst_yaml_count(list) && rc == PST_OK; i++)
            rc = read_feature(g, pst_yaml_at(&g->yaml, list, i), pass == 0);
    return rc;
}

/* ---- all ---- */

static void place(struct pst_graphbolt *g)
{
    g->vertices = 0;
    for (int k = 0; k < g->typed.vertex_types; k++) {
        g->first[k] = g->vertices;
        g->vertices += g->typed.vertex[k].vertices;
    }
}

static pst_rc run(struct pst_graphbolt *g)
{
    pst_yaml_node root = pst_yaml_root(&g->yaml);
    char name[PST_NAME_MAX];
    pst_rc rc = pst_yaml_text(&g->yaml, root, "dataset_name", false, name, sizeof name);
    if (rc == PST_OK && name[0] != '\0' && g->job->spec.name[0] == '\0')
        memcpy(g->job->spec.name, name, sizeof name);
    pst_import_name(&g->job->spec, g->job->from);
    if (rc == PST_OK)
        rc = read_graph(g);
    if (rc == PST_OK)
        rc = pst_typed_select(&g->typed);
    if (rc == PST_OK)
        rc = read_features(g);
    if (rc != PST_OK)
        return rc;
    place(g);
    g->typed.labelled = -1; /* labels and splits are made for all */
    rc = pst_graphbolt_choose(g);
    if (rc == PST_OK)
        rc = pst_graphbolt_vertex_sets(g);
    if (rc == PST_OK)
        rc = pst_typed_import(&g->typed);
    return rc == PST_OK ? pst_graphbolt_pair_sets(g) : rc;
}

static pst_rc import_graphbolt(struct pst_import_job *job)
{
    struct pst_graphbolt g = {.job = job};
    char path[4096];
    struct stat st;
    bool dir = stat(job->from, &st) == 0 && S_ISDIR(st.st_mode);
    (void)snprintf(path, sizeof path, "%.4000s%s", job->from, dir ? "/metadata.yaml" : "");
    pst_rc rc = pst_typed_init(&g.typed, job);
    g.typed.format = "GraphBolt";
    g.typed.shape = PST_EDGES_2XE;
    if (rc == PST_OK)
        rc = pst_yaml_load(&g.yaml, path);
    if (rc == PST_OK)
        rc = run(&g);
    free(g.labels);
    pst_yaml_close(&g.yaml);
    pst_typed_release(&g.typed);
    return rc;
}

const struct pst_import_format pst_format_graphbolt = {
    "graphbolt", "a directory of GraphBolt: metadata.yaml lists the files", import_graphbolt};
