/* find.c: finds the arrays of a directory and reads its meta.json. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/importing.h"
#include "common/util/memory.h"

struct source_row {
    const char *option;
    const char *file, *other; /* usual names */
};

static const struct source_row sources[PST_IMPORT_SOURCES] = {
    [PST_IMPORT_EDGES] = {"--edges", "edges.npy", NULL},
    [PST_IMPORT_EDGE_WEIGHTS] = {"--edge-weights", "edge_weights.npy", "edge_weight.npy"},
    [PST_IMPORT_EDGE_TIMES] = {"--edge-times", "edge_times.npy", "edge_time.npy"},
    [PST_IMPORT_FEATURES] = {"--features", "feat.npy", "features.npy"},
    [PST_IMPORT_FEAT_INDPTR] = {"--feat-indptr", "feat_indptr.npy", NULL},
    [PST_IMPORT_FEAT_INDICES] = {"--feat-indices", "feat_indices.npy", NULL},
    [PST_IMPORT_FEAT_DATA] = {"--feat-data", "feat_data.npy", NULL},
    [PST_IMPORT_LABELS] = {"--labels", "labels.npy", NULL},
    [PST_IMPORT_TRAIN] = {"--train", NULL, NULL}, /* see find_splits.c */
    [PST_IMPORT_VAL] = {"--val", NULL, NULL},
    [PST_IMPORT_TEST] = {"--test", NULL, NULL},
};

const char *pst_import_source_option(enum pst_import_source_id id)
{
    return sources[id].option;
}

void pst_import_defaults(struct pst_import_spec *spec)
{
    *spec = (struct pst_import_spec){.vertices = -1,
                                     .classes = -1,
                                     .feature_dim = -1,
                                     .target_vertices = -1,
                                     .loop_weight = -1,
                                     .self_loops = PST_LOOPS_KEEP,
                                     .memory_bytes = pst_memory_default(),
                                     .threads = 1};
}

static bool find_one(const char *dir, const char *file, char *out)
{
    char path[4096];
    if (file == NULL || (size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path ||
        access(path, F_OK) != 0)
        return false;
    memcpy(out, path, sizeof path);
    return true;
}

static pst_rc find_sources(struct pst_import_spec *spec, const char *dir, const bool *skip)
{
    bool csr_named = spec->source[PST_IMPORT_FEAT_INDPTR][0] != '\0';
    bool dense_named = spec->source[PST_IMPORT_FEATURES][0] != '\0';
    for (int part = 0; part < 3; part++) {
        static const char *const npy[] = {".npy", NULL};
        char *to = spec->source[PST_IMPORT_TRAIN + part];
        pst_rc rc = to[0] != '\0' || skip[PST_IMPORT_TRAIN + part] ? PST_OK
                                                                   : pst_import_find_part(dir, part, npy, to);
        if (rc != PST_OK)
            return rc;
    }
    for (unsigned i = 0; i < PST_IMPORT_TRAIN; i++) {
        bool csr = i >= PST_IMPORT_FEAT_INDPTR && i <= PST_IMPORT_FEAT_DATA;
        if (spec->source[i][0] != '\0' || skip[i] || (csr && dense_named) ||
            (i == PST_IMPORT_FEATURES && csr_named))
            continue;
        bool found = find_one(dir, sources[i].file, spec->source[i]);
        char other[4096];
        if (!find_one(dir, sources[i].other, other))
            continue;
        if (found)
            return pst_fail(PST_E_ARG, "found both %s and %s: choose one with %s", spec->source[i], other,
                            sources[i].option);
        memcpy(spec->source[i], other, sizeof other);
    }
    if (spec->source[PST_IMPORT_FEATURES][0] != '\0' && spec->source[PST_IMPORT_FEAT_INDPTR][0] != '\0')
        return pst_fail(PST_E_ARG,
                        "%s has dense and CSR features: choose one with --features or --feat-indptr", dir);
    return PST_OK;
}

static pst_rc meta_count(const json_t *meta, const char *path, const char *key, int64_t *out)
{
    json_t *value = json_object_get(meta, key);
    if (value == NULL || *out >= 0)
        return PST_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return pst_fail(PST_E_FORMAT, "%s: %s: expected an integer of 0 or more", path, key);
    *out = json_integer_value(value);
    return PST_OK;
}

pst_rc pst_import_meta(const char *dir, json_t **meta)
{
    struct stat st;
    char path[4096];
    *meta = NULL;
    if (!find_one(dir, "meta.json", path))
        return PST_OK;
    if (stat(path, &st) != 0)
        return pst_fail_errno("cannot stat %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > PST_MANIFEST_BYTES_MAX)
        return pst_fail(PST_E_FORMAT, "%s: expected a file of at most %d bytes", path,
                        PST_MANIFEST_BYTES_MAX);
    json_error_t error;
    *meta = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (*meta == NULL)
        return pst_fail(PST_E_FORMAT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    return PST_OK;
}

pst_rc pst_import_read_meta(struct pst_import_spec *spec, const char *dir, const json_t *meta)
{
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/meta.json", dir);
    const char *name = json_string_value(json_object_get(meta, "name"));
    if (spec->name[0] == '\0' && name != NULL)
        (void)snprintf(spec->name, sizeof spec->name, "%s", name);
    pst_rc rc = meta_count(meta, path, "num_nodes", &spec->vertices);
    if (rc == PST_OK && spec->source[PST_IMPORT_FEAT_INDPTR][0] != '\0')
        rc = meta_count(meta, path, "num_features", &spec->feature_dim);
    if (rc == PST_OK && spec->source[PST_IMPORT_LABELS][0] != '\0')
        rc = meta_count(meta, path, "num_classes", &spec->classes);
    return rc;
}

static void name_from_dir(struct pst_import_spec *spec, const char *dir)
{
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && dir[from - 1] != '/')
        from--;
    int n = (int)(end - from);
    (void)snprintf(spec->name, sizeof spec->name, "%.*s", n, dir + from);
    if (strcmp(spec->name, ".") == 0 || strcmp(spec->name, "..") == 0 || spec->name[0] == '\0')
        (void)snprintf(spec->name, sizeof spec->name, "imported");
}

pst_rc pst_import_find(struct pst_import_spec *spec, const char *dir, const bool skip[PST_IMPORT_SOURCES])
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return errno == ENOENT ? pst_fail(PST_E_ARG, "%s: the directory does not exist", dir)
                               : pst_fail_errno("cannot read %s", dir);
    if (!S_ISDIR(st.st_mode))
        return pst_fail(PST_E_ARG, "%s: expected a directory of .npy files", dir);
    pst_rc rc = find_sources(spec, dir, skip);
    json_t *meta = NULL;
    if (rc == PST_OK)
        rc = pst_import_meta(dir, &meta);
    if (rc == PST_OK)
        rc = pst_import_read_meta(spec, dir, meta);
    json_decref(meta);
    if (rc != PST_OK)
        return rc;
    if (spec->name[0] == '\0')
        name_from_dir(spec, dir);
    if (spec->source[PST_IMPORT_EDGES][0] == '\0' && !skip[PST_IMPORT_EDGES])
        return pst_fail(PST_E_ARG, "%s does not contain edges.npy: give the file of edges with --edges FILE",
                        dir);
    return PST_OK;
}
