/* MAG240M (ogb.lsc): processed/SOURCE___RELATION___TARGET/edge_index.npy of shape (2, E),
 * processed/paper/node_feat.npy (float16), processed/paper/node_label.npy (NaN: none), meta.pt (how many
 * vertices of each type), split_dict.pt; or splits as arrays beside them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/importing.h"
#include "common/store/import/typed.h"
#include "common/store/text/python.h"

static bool exists(const char *dir, const char *name, char out[4096])
{
    (void)snprintf(out, 4096, "%.3800s/%.250s", dir, name);
    return access(out, F_OK) == 0;
}

/* NAME.pt as temp-NAME-KEY.npy, one for each key; prefix: their path up to KEY. */
static pst_rc unpack(struct pst_import_job *job, const char *path, const char *name, char prefix[4096])
{
    pst_build_temp(job->build, name, prefix);
    (void)snprintf(prefix + strlen(prefix) - strlen(".npy"), 2, "-");
    return pst_python_run("torch_file", path, prefix);
}

/* One integer of an unpacked file; -1: it has none of that name. */
static pst_rc read_count(const char *prefix, const char *key, int64_t *out)
{
    char path[4096 + 80];
    struct pst_array a;
    *out = -1;
    (void)snprintf(path, sizeof path, "%s%s.npy", prefix, key);
    if (access(path, F_OK) != 0)
        return PST_OK;
    pst_rc rc = pst_array_open(&a, path);
    if (rc == PST_OK)
        rc = pst_array_map(&a);
    if (rc == PST_OK && (a.dtype != PST_I64 || a.shape[0] != 1 || pst_import_int_at(&a, 0) < 0))
        rc = pst_fail(PST_E_FORMAT, "meta.pt: %s: expected a count", key);
    if (rc == PST_OK)
        *out = pst_import_int_at(&a, 0);
    pst_array_close(&a);
    return rc;
}

static pst_rc read_meta(struct pst_typed *t, const char *root)
{
    char path[4096], prefix[4096];
    if (!exists(root, "meta.pt", path))
        return PST_OK;
    pst_rc rc = unpack(t->job, path, "meta", prefix);
    for (int k = 0; k < t->vertex_types && rc == PST_OK; k++)
        rc = read_count(prefix, t->vertex[k].name, &t->vertex[k].vertices);
    int64_t classes = -1;
    if (rc == PST_OK)
        rc = read_count(prefix, "num_classes", &classes);
    if (rc == PST_OK && t->job->spec.classes < 0)
        t->job->spec.classes = classes;
    return rc;
}

/* The first of a split's usual names that is there. */
static bool find_array(const char *prefix, const char *const *names, char out[4096])
{
    for (; *names != NULL; names++) {
        (void)snprintf(out, 4096, "%.3900s%s.npy", prefix, *names);
        if (access(out, F_OK) == 0)
            return true;
    }
    out[0] = '\0';
    return false;
}

static pst_rc find_splits(struct pst_import_job *job, const char *root, const char *dir)
{
    static const char *const names[3][4] = {
        {"train_idx", "train", NULL}, {"val_idx", "valid_idx", "valid", NULL}, {"test_idx", "test", NULL}};
    static const char *const keys[3][4] = {
        {"train", NULL}, {"valid", NULL}, {"test-whole", "test", "test-dev", NULL}};
    char path[4096], prefix[4096], place[2][4096];
    (void)snprintf(place[0], sizeof place[0], "%.4000s/", root);
    (void)snprintf(place[1], sizeof place[1], "%.4000s/", dir);
    bool packed = exists(root, "split_dict.pt", path);
    pst_rc rc = packed ? unpack(job, path, "split", prefix) : PST_OK;
    for (unsigned i = 0; i < 3 && rc == PST_OK; i++) {
        char *to = job->spec.source[PST_IMPORT_TRAIN + i];
        if (to[0] != '\0' || job->skip[PST_IMPORT_TRAIN + i])
            continue;
        if (packed && find_array(prefix, keys[i], to))
            (void)snprintf(job->spec.told_as[PST_IMPORT_TRAIN + i], 4096, "%.4000s (%s)", path, keys[i][0]);
        else if (!find_array(place[0], names[i], to))
            (void)find_array(place[1], names[i], to);
    }
    return rc;
}

static void find_arrays(struct pst_typed *t, const char *dir)
{
    struct pst_import_job *job = t->job;
    for (int k = 0; k < t->vertex_types; k++) {
        char name[PST_NAME_MAX + 32];
        (void)snprintf(name, sizeof name, "%s/node_feat.npy", t->vertex[k].name);
        if (job->skip[PST_IMPORT_FEATURES] || !exists(dir, name, t->vertex[k].features))
            t->vertex[k].features[0] = '\0';
    }
    char *labels = job->spec.source[PST_IMPORT_LABELS];
    if (t->labelled >= 0 && labels[0] == '\0' && !job->skip[PST_IMPORT_LABELS] &&
        !exists(dir, "paper/node_label.npy", labels))
        labels[0] = '\0';
}

static pst_rc import_mag240m(struct pst_import_job *job)
{
    char root[4096], dir[4096];
    struct pst_typed t;
    pst_import_name(&job->spec, job->from);
    (void)snprintf(root, sizeof root, "%.4000s", job->from);
    if (!exists(root, "processed", dir)) {
        (void)snprintf(dir, sizeof dir, "%.4000s", job->from);
        (void)snprintf(root, sizeof root, "%.4000s/..", job->from);
    }
    pst_rc rc = pst_typed_init(&t, job);
    t.format = "MAG240M";
    t.shape = PST_EDGES_2XE;
    t.types_otherwise = "paper";
    if (rc == PST_OK)
        rc = pst_typed_vertex(&t, "paper", &t.labelled);
    if (rc == PST_OK)
        rc = pst_typed_find(&t, dir, "___");
    if (rc == PST_OK && t.edge_types == 0)
        rc = pst_fail(PST_E_ARG, "%s: paper___cites___paper/edge_index.npy is missing", dir);
    if (rc == PST_OK)
        rc = pst_typed_select(&t);
    if (rc == PST_OK)
        rc = read_meta(&t, root);
    if (rc == PST_OK && t.labelled >= 0)
        rc = find_splits(job, root, dir);
    if (rc == PST_OK) {
        find_arrays(&t, dir);
        rc = pst_typed_import(&t);
    }
    pst_typed_release(&t);
    return rc;
}

const struct pst_import_format pst_format_mag240m = {
    "mag240m", "MAG240M: processed/, meta.pt and split_dict.pt (reading these two needs python3)",
    import_mag240m};
