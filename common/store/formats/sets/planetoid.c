/* Planetoid's pickles: the Python package reads them, with a list of what they may name, in a process of its
 * own. */
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/job.h"
#include "common/store/import/importing.h"
#include "common/store/text/python.h"

/* The columns that the matrices have, where the last of them may be empty. */
static pst_rc read_shape(struct pst_import_job *job, const char *prefix)
{
    char path[4096 + 32];
    struct pst_array shape;
    (void)snprintf(path, sizeof path, "%sshape.npy", prefix);
    pst_rc rc = pst_array_open(&shape, path);
    if (rc == PST_OK)
        rc = pst_array_map(&shape);
    if (rc == PST_OK) {
        job->spec.vertices = pst_import_int_at(&shape, 0);
        job->spec.feature_dim = pst_import_int_at(&shape, 1);
    }
    pst_array_close(&shape);
    return rc;
}

static pst_rc import_planetoid(struct pst_import_job *job)
{
    static const char *const files[PST_IMPORT_SOURCES] = {[PST_IMPORT_EDGES] = "edges",
                                                          [PST_IMPORT_FEAT_INDPTR] = "feat_indptr",
                                                          [PST_IMPORT_FEAT_INDICES] = "feat_indices",
                                                          [PST_IMPORT_FEAT_DATA] = "feat_data",
                                                          [PST_IMPORT_LABELS] = "labels",
                                                          [PST_IMPORT_TRAIN] = "train_idx",
                                                          [PST_IMPORT_VAL] = "val_idx",
                                                          [PST_IMPORT_TEST] = "test_idx"};
    char temp[4096];
    const char *dot = strrchr(job->from, '.');
    if (job->spec.name[0] == '\0' && dot != NULL && strchr(dot, '/') == NULL && dot[1] != '\0')
        (void)snprintf(job->spec.name, sizeof job->spec.name, "%s", dot + 1);
    pst_import_name(&job->spec, job->from);
    pst_build_temp(job->build, "", temp);
    temp[strlen(temp) - strlen(".npy")] = '\0';
    pst_rc rc = pst_python_run("planetoid", job->from, temp);
    if (rc == PST_OK)
        rc = read_shape(job, temp);
    for (unsigned i = 0; i < PST_IMPORT_SOURCES && rc == PST_OK; i++) {
        if (files[i] == NULL || job->spec.source[i][0] != '\0' || job->skip[i])
            continue;
        if ((size_t)snprintf(job->spec.source[i], sizeof job->spec.source[i], "%s%s.npy", temp, files[i]) >=
            sizeof job->spec.source[i])
            rc = pst_fail(PST_E_LIMIT, "%s: the path is too long", temp);
    }
    return rc == PST_OK ? pst_import(&job->spec, job->build, job->result, job->progress) : rc;
}

const struct pst_import_format pst_format_planetoid = {
    "planetoid",
    "Planetoid's pickle files: SRC is .../ind.cora for ind.cora.x, ind.cora.graph, ... (needs python3)",
    import_planetoid};
