/* What marius_preprocess makes (marius-project.org): dataset.yaml with counts;
 * edges/{train,validation,test}_edges.bin, int32 or int64 in rows of source, target or source, relation,
 * target; nodes/features.bin (float32), labels.bin, {train,validation,test}_nodes.bin; nodes/node_mapping.txt
 * and edges/relation_mapping.txt: what was called so, and its number. No file has a header: sizes tell what
 * they are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/pairs.h"
#include "common/store/import/importing.h"
#include "common/store/import/job.h"
#include "common/store/names/name_map.h"
#include "common/store/text/yaml.h"

static const char *const split_names[3] = {"train", "validation", "test"};

struct marius {
    struct pst_import_job *job;
    int64_t nodes, edges, relations, feature_dim, classes, count[3];
    enum pst_dtype dtype;
    int64_t columns;
    char file[3][4096]; /* of edges; "": there is none */
    struct pst_array split[3];
};

static pst_rc read_counts(struct marius *m)
{
    static const char *const keys[] = {"num_nodes",   "num_edges", "num_relations", "node_feature_dim",
                                       "num_classes", "num_train", "num_valid",     "num_test"};
    int64_t *const counts[] = {&m->nodes,   &m->edges,    &m->relations, &m->feature_dim,
                               &m->classes, &m->count[0], &m->count[1],  &m->count[2]};
    char path[4096];
    struct pst_yaml y;
    (void)snprintf(path, sizeof path, "%.4000s/dataset.yaml", m->job->from);
    pst_rc rc = pst_yaml_load(&y, path);
    for (int k = 0; k < 8 && rc == PST_OK; k++) {
        *counts[k] = -1;
        rc = pst_yaml_int(&y, pst_yaml_root(&y), keys[k], k < 2, k == 0 ? 0 : k == 1 ? 1 : -1, counts[k]);
    }
    pst_yaml_close(&y);
    return rc;
}

static bool find(const struct marius *m, const char *name, char out[4096])
{
    (void)snprintf(out, 4096, "%.4000s/%.80s", m->job->from, name);
    if (access(out, F_OK) == 0)
        return true;
    out[0] = '\0';
    return false;
}

static pst_rc file_bytes(const char *path, int64_t *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return pst_fail_errno("cannot open %s", path);
    *out = st.st_size;
    return PST_OK;
}

/* What a row of the edges is: 8, 12, 16 or 24 bytes can only be one thing each. */
static pst_rc look_at_edges(struct marius *m)
{
    char path[4096];
    int64_t bytes = 0;
    (void)snprintf(path, sizeof path, "%.4000s/edges/train_edges.bin", m->job->from);
    pst_rc rc = file_bytes(path, &bytes);
    if (rc != PST_OK)
        return rc;
    int64_t row = bytes / m->edges;
    if (bytes % m->edges != 0 || (row != 8 && row != 12 && row != 16 && row != 24))
        return pst_fail(PST_E_FORMAT,
                        "%s: expected %" PRId64
                        " rows (num_edges of dataset.yaml) of 2 or 3 int32 or int64, found "
                        "%" PRId64 " bytes: is it truncated?",
                        path, m->edges, bytes);
    m->dtype = row == 8 || row == 12 ? PST_I32 : PST_I64;
    m->columns = row == 12 || row == 24 ? 3 : 2;
    if (m->columns == 3 ? m->relations < 1 : m->relations > 1)
        return pst_fail(PST_E_FORMAT,
                        "%s: rows have %" PRId64 " numbers, but num_relations in dataset.yaml is %" PRId64
                        ": expected 2 numbers without relations, and 3 with relations",
                        path, m->columns, m->relations);
    return PST_OK;
}

static pst_rc open_split(struct marius *m, int split)
{
    char name[64];
    int64_t bytes = 0, row = m->columns * (int64_t)pst_dtype_bytes(m->dtype);
    (void)snprintf(name, sizeof name, "edges/%s_edges.bin", split_names[split]);
    if (!find(m, name, m->file[split]))
        return PST_OK;
    pst_rc rc = file_bytes(m->file[split], &bytes);
    if (rc == PST_OK && bytes % row != 0)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected rows of %" PRId64 " %s, as in train_edges.bin, found %" PRId64 " bytes",
                      m->file[split], m->columns, pst_dtype_name(m->dtype), bytes);
    const int64_t shape[2] = {bytes / row, m->columns};
    if (rc == PST_OK)
        rc = pst_array_open_raw(&m->split[split], m->file[split], m->dtype, 2, shape);
    if (rc == PST_OK && bytes == 0)
        m->file[split][0] = '\0';
    return rc;
}

static struct pst_import_edge_array edges_of(const struct marius *m, int split)
{
    return (struct pst_import_edge_array){.a = &m->split[split],
                                          .file = m->file[split],
                                          .shape = m->columns == 3 ? PST_EDGES_EX3 : PST_EDGES_EX2,
                                          .edges = m->split[split].shape[0],
                                          .limit = {m->nodes, m->nodes},
                                          .relations = m->columns == 3 ? m->relations : 0};
}

static pst_rc give(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    struct marius *m = ctx;
    struct pst_problems problems = {.count = 0};
    const struct pst_import_edge_array e = edges_of(m, 0);
    *vertices = m->nodes;
    pst_progress_begin(progress, "edges: reading", (uint64_t)e.edges, false);
    pst_rc rc = pst_import_edge_array_read(&e, pst_edges_to_csc, csc, &problems, progress);
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc == PST_OK ? pst_problems_result(&problems, "cannot import") : rc;
}

/* ---- nodes ---- */

/* A file of `rows` integers, or of as many as it has where rows is -1. */
static pst_rc find_integers(struct marius *m, const char *name, int64_t rows, enum pst_import_source_id id)
{
    struct pst_import_spec *s = &m->job->spec;
    char path[4096];
    int64_t bytes = 0;
    if (s->source[id][0] != '\0' || m->job->skip[id] || !find(m, name, path))
        return PST_OK;
    pst_rc rc = file_bytes(path, &bytes);
    if (rc != PST_OK)
        return rc;
    int64_t item = rows > 0 ? bytes / rows : (int64_t)pst_dtype_bytes(m->dtype);
    if (item == 0 || bytes % item != 0 || (item != 4 && item != 8) || (rows >= 0 && bytes != rows * item))
        return pst_fail(PST_E_FORMAT,
                        "%s: expected %" PRId64
                        " values of int32 or int64, as in dataset.yaml, found %" PRId64 " bytes",
                        path, rows, bytes);
    if (bytes == 0)
        return PST_OK;
    memcpy(s->source[id], path, sizeof path);
    s->raw[id] =
        (struct pst_raw){.dtype = item == 4 ? PST_I32 : PST_I64, .rank = 1, .shape = {bytes / item, 1}};
    return PST_OK;
}

static pst_rc find_nodes(struct marius *m)
{
    struct pst_import_spec *s = &m->job->spec;
    char path[4096];
    pst_rc rc = PST_OK;
    if (m->feature_dim > 0 && s->source[PST_IMPORT_FEATURES][0] == '\0' &&
        !m->job->skip[PST_IMPORT_FEATURES] && find(m, "nodes/features.bin", path)) {
        memcpy(s->source[PST_IMPORT_FEATURES], path, sizeof path);
        s->raw[PST_IMPORT_FEATURES] =
            (struct pst_raw){.dtype = PST_F32, .rank = 2, .shape = {m->nodes, m->feature_dim}};
    }
    if (s->classes < 0 && m->classes > 0)
        s->classes = m->classes;
    rc = find_integers(m, "nodes/labels.bin", m->nodes, PST_IMPORT_LABELS);
    for (unsigned i = 0; i < 3 && rc == PST_OK; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "nodes/%s_nodes.bin", split_names[i]);
        rc = find_integers(m, name, m->count[i], PST_IMPORT_TRAIN + i);
    }
    return rc;
}

/* ---- names ---- */

static pst_rc write_ids(struct marius *m, const struct pst_name_map_spec *map, bool *integers)
{
    int64_t *ids = malloc((size_t)(m->nodes + 1) * sizeof *ids);
    pst_rc rc = ids != NULL
                    ? pst_name_map_read_ids(map, ids, integers)
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " ids", m->nodes);
    if (rc == PST_OK && *integers)
        rc = pst_build_array_from(m->job->build, PST_ARRAY_IDS, PST_I64, m->nodes, ids);
    free(ids);
    return rc;
}

static pst_rc write_names(struct marius *m, const char *file, int64_t n, enum pst_array_id at_id,
                          enum pst_array_id bytes_id)
{
    char path[4096];
    struct pst_dict names;
    bool integers = false;
    if (!find(m, file, path))
        return PST_OK;
    const struct pst_name_map_spec map = {
        .path = path, .separator = ',', .n = n, .warnings = &m->job->result->warnings};
    pst_rc rc = at_id == PST_ARRAY_NAMES_AT ? write_ids(m, &map, &integers) : PST_OK;
    if (rc != PST_OK || integers)
        return rc;
    pst_dict_init(&names, m->job->spec.memory_bytes / 4);
    rc = pst_name_map_read(&map, &names);
    if (rc == PST_OK)
        rc = pst_dict_write(&names, m->job->build, at_id, bytes_id);
    pst_dict_release(&names);
    return rc;
}

/* Edges to predict: triples, or pairs where there is something to predict beside the graph. */
static pst_rc write_splits(struct marius *m)
{
    bool pairs = m->columns == 2 && (m->file[1][0] != '\0' || m->file[2][0] != '\0');
    pst_rc rc = PST_OK;
    for (int k = 0; k < 3 && rc == PST_OK && (pairs || m->columns == 3); k++) {
        const struct pst_import_edge_array e = edges_of(m, k);
        unsigned id =
            (unsigned)(m->columns == 3 ? PST_ARRAY_TRIPLES_TRAIN : PST_ARRAY_EDGES_TRAIN) + (unsigned)k;
        if (m->file[k][0] != '\0')
            rc = pst_pairs_from(m->job->build, id, m->nodes, &e, m->job->progress);
    }
    return rc;
}

static pst_rc run(struct marius *m)
{
    struct pst_import_job *job = m->job;
    struct pst_import_spec *s = &job->spec;
    pst_rc rc = look_at_edges(m);
    for (int k = 0; k < 3 && rc == PST_OK; k++)
        rc = open_split(m, k);
    if (rc == PST_OK && m->columns == 3 && (s->symmetrize || s->self_loops == PST_LOOPS_ADD))
        rc = pst_fail(PST_E_ARG, "--symmetrize and --self-loops add cannot be used if edges have relations, "
                                 "because a relation has a direction");
    if (rc == PST_OK && s->source[PST_IMPORT_EDGES][0] != '\0')
        rc = pst_fail(PST_E_ARG, "--edges cannot be used with this format: SRC contains the edges");
    if (rc == PST_OK)
        rc = find_nodes(m);
    s->vertices = m->nodes;
    s->feed = give;
    s->feed_ctx = m;
    s->relations = m->columns == 3 ? m->relations : 0;
    if (rc == PST_OK)
        rc = pst_import(s, job->build, job->result, job->progress);
    if (rc == PST_OK)
        rc = write_splits(m);
    if (rc == PST_OK)
        rc = write_names(m, "nodes/node_mapping.txt", m->nodes, PST_ARRAY_NAMES_AT, PST_ARRAY_NAMES);
    if (rc == PST_OK && m->columns == 3)
        rc = write_names(m, "edges/relation_mapping.txt", m->relations, PST_ARRAY_RELATION_NAMES_AT,
                         PST_ARRAY_RELATION_NAMES);
    return rc;
}

static pst_rc import_marius(struct pst_import_job *job)
{
    struct marius m = {.job = job};
    pst_import_name(&job->spec, job->from);
    pst_rc rc = read_counts(&m);
    return rc == PST_OK ? run(&m) : rc;
}

const struct pst_import_format pst_format_marius = {
    "marius", "a directory written by marius_preprocess: dataset.yaml, edges/train_edges.bin, nodes/",
    import_marius};
