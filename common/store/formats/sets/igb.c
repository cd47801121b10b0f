/* IGB (github.com/IllinoisGraphBenchmark/IGB-Datasets): processed/SOURCE__RELATION__TARGET/edge_index.npy of
 * shape (E, 2), processed/TYPE/node_feat.npy, processed/paper/node_label_19.npy or node_label_2K.npy (2,983
 * classes). In the large and full sets features and labels are memory maps that NumPy wrote without a header:
 * float32, rows of 1024. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/importing.h"
#include "common/store/import/typed.h"

#define FEATURES 1024 /* columns */
#define FULL_VERTICES 269346174
static const int64_t full_labelled[2] = {227130858,
                                         157675969}; /* of 19 and of 2,983 classes: they come first */

static bool exists(const char *dir, const char *name, char out[4096])
{
    (void)snprintf(out, 4096, "%.3800s/%.250s", dir, name);
    return access(out, F_OK) == 0;
}

static pst_rc find_labels(struct pst_import_job *job, const char *dir)
{
    static const char *const names[] = {"paper/node_label_19.npy", "paper/node_label_2K.npy",
                                        "paper/node_label_2983.npy"};
    struct pst_import_spec *s = &job->spec;
    char *path = s->source[PST_IMPORT_LABELS];
    if (path[0] != '\0' || job->skip[PST_IMPORT_LABELS])
        return PST_OK;
    if (s->classes >= 0 && s->classes != 19 && s->classes != 2983)
        return pst_fail(PST_E_ARG, "--classes: IGB has 19 or 2983 classes, found %" PRId64, s->classes);
    int k = s->classes == 2983 ? 1 : 0, end = s->classes == 19 ? 1 : 3;
    while (k < end && !exists(dir, names[k], path))
        k++;
    if (k == end && s->classes >= 0)
        return pst_fail(PST_E_ARG, "%s: the labels for %" PRId64 " classes are missing", dir, s->classes);
    if (k == end) {
        path[0] = '\0';
        return PST_OK;
    }
    s->classes = k == 0 ? 19 : 2983;
    return pst_raw_look(path, PST_F32, 1, &s->raw[PST_IMPORT_LABELS]);
}

static bool is_labelled(const struct pst_array *a, int64_t v)
{
    switch (a->dtype) {
    case PST_F32: return ((const float *)a->map)[v] >= 0; /* no NaN is */
    case PST_F64: return ((const double *)a->map)[v] >= 0;
    default: return pst_import_int_at(a, v) >= 0;
    }
}

/* Of the labelled vertices, as they come, the first 60 %, the next 20 %, and the rest: igb/dataloader.py. */
static pst_rc write_splits(struct pst_import_job *job, const struct pst_array *a, int64_t end,
                           int64_t labelled)
{
    const int64_t train = (int64_t)((double)labelled * 0.6), val = (int64_t)((double)labelled * 0.2);
    const int64_t count[3] = {train, val, labelled - train - val};
    pst_rc rc = PST_OK;
    int64_t v = 0;
    for (int k = 0; k < 3 && rc == PST_OK; k++) {
        static const char *const names[3] = {"train", "val", "test"};
        const int64_t shape[2] = {count[k], 1};
        struct pst_array_writer w = {.fd = -1};
        uint64_t checksum;
        pst_build_temp(job->build, names[k], job->spec.source[PST_IMPORT_TRAIN + k]);
        (void)snprintf(job->spec.told_as[PST_IMPORT_TRAIN + k], sizeof job->spec.told_as[0],
                       "%.4000s (IGB's %s split)", job->spec.source[PST_IMPORT_LABELS], names[k]);
        rc = pst_array_writer_init(&w, job->spec.source[PST_IMPORT_TRAIN + k], PST_I64, 1, shape);
        for (int64_t n = 0; n < count[k] && v < end && rc == PST_OK; v++) {
            const int64_t id = v;
            if (!is_labelled(a, v))
                continue;
            rc = pst_array_write(&w, &id, sizeof id);
            n++;
        }
        if (rc == PST_OK)
            rc = pst_array_writer_finish(&w, &checksum);
        pst_array_writer_release(&w);
    }
    return rc;
}

static pst_rc make_splits(struct pst_import_job *job)
{
    const struct pst_import_spec *s = &job->spec;
    struct pst_array a;
    bool said = s->source[PST_IMPORT_LABELS][0] == '\0' || strcmp(job->split, "none") == 0;
    for (unsigned i = PST_IMPORT_TRAIN; i <= PST_IMPORT_TEST; i++)
        said |= s->source[i][0] != '\0' || job->skip[i];
    if (said)
        return PST_OK;
    const struct pst_raw *raw = &s->raw[PST_IMPORT_LABELS];
    pst_rc rc = raw->rank == 0
                    ? pst_array_open(&a, s->source[PST_IMPORT_LABELS])
                    : pst_array_open_raw(&a, s->source[PST_IMPORT_LABELS], raw->dtype, 1, raw->shape);
    if (rc == PST_OK)
        rc = pst_array_map(&a);
    if (rc != PST_OK || a.dtype == PST_F16 || a.dtype == PST_BF16)
        goto out; /* the import says what is wrong */
    int64_t end = a.shape[0], labelled = 0;
    for (int64_t v = 0; v < end; v++)
        labelled += is_labelled(&a, v);
    if (end == FULL_VERTICES && labelled == end) {
        labelled = end = full_labelled[s->classes == 19 ? 0 : 1];
        pst_problem(&job->result->warnings,
                    "IGB's full set: the splits cover only the first %" PRId64
                    " vertices, as its authors define them",
                    end);
    }
    rc = write_splits(job, &a, end, labelled);
out:
    pst_array_close(&a);
    return rc;
}

static pst_rc find_features(struct pst_typed *t, const char *dir)
{
    const int64_t columns = t->job->spec.feature_dim >= 0 ? t->job->spec.feature_dim : FEATURES;
    pst_rc rc = PST_OK;
    for (int k = 0; k < t->vertex_types && rc == PST_OK && !t->job->skip[PST_IMPORT_FEATURES]; k++) {
        char name[PST_NAME_MAX + 32];
        (void)snprintf(name, sizeof name, "%s/node_feat.npy", t->vertex[k].name);
        if (exists(dir, name, t->vertex[k].features))
            rc = pst_raw_look(t->vertex[k].features, PST_F32, pst_max_i64(columns, 1), &t->vertex[k].raw);
        else
            t->vertex[k].features[0] = '\0';
    }
    return rc;
}

static pst_rc import_igb(struct pst_import_job *job)
{
    char dir[4096];
    struct pst_typed t;
    pst_import_name(&job->spec, job->from);
    if (!exists(job->from, "processed", dir))
        (void)snprintf(dir, sizeof dir, "%.4000s", job->from);
    pst_rc rc = pst_typed_init(&t, job);
    t.format = "IGB";
    t.shape = PST_EDGES_EX2;
    t.types_otherwise = "paper";
    if (rc == PST_OK)
        rc = pst_typed_vertex(&t, "paper", &t.labelled);
    if (rc == PST_OK)
        rc = pst_typed_find(&t, dir, "__");
    if (rc == PST_OK && t.edge_types == 0)
        rc = pst_fail(PST_E_ARG, "%s: paper__cites__paper/edge_index.npy is missing", dir);
    if (rc == PST_OK)
        rc = pst_typed_select(&t);
    if (rc == PST_OK)
        rc = find_features(&t, dir);
    if (rc == PST_OK && t.labelled >= 0)
        rc = find_labels(job, dir);
    if (rc == PST_OK && t.labelled >= 0)
        rc = make_splits(job);
    if (rc == PST_OK)
        rc = pst_typed_import(&t);
    pst_typed_release(&t);
    return rc;
}

const struct pst_import_format pst_format_igb = {
    "igb", "a directory of IGB: processed/paper__cites__paper/edge_index.npy, paper/node_feat.npy",
    import_igb};
