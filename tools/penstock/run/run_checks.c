#include "tools/penstock/run/run_checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

/* A stage's parameter "split" names one of the dataset's; batches are drawn from it. */
static void check_split(const struct pst_pipeline *pl, const struct pst_pipeline_stage_spec *stage,
                        const struct pst_dataset *ds, struct pst_diag *diag)
{
    static const char *const names[] = {"train", "val", "test"};
    const char *split = json_string_value(json_object_get(stage->params, "split"));
    for (int i = PST_TRAIN; split && i <= PST_TEST; i++) {
        const struct pst_array *ids = &ds->split[i];
        if (strcmp(split, names[i]) != 0 || (ids->path[0] && ids->shape[0] > 0))
            continue;
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s.params.split", stage->name);
        pst_json_error(&pl->doc, diag, path, "dataset %s has %s split \"%s\"", ds->dir,
                       ids->path[0] ? "an empty" : "no", split);
    }
}

/* No stage reads types of vertices yet. */
static bool has_types(const struct pst_dataset *ds)
{
    if (ds->vertex_types == 0)
        return false;
    fprintf(
        stderr,
        "dataset %s: it has %d types of vertices and %d of edges, whose features and relations no stage can "
        "use yet; import one type alone (penstock import FORMAT SRC DIR --types NAME), as of:",
        ds->dir, ds->vertex_types, ds->edge_types);
    for (int k = 0; k < ds->vertex_types; k++)
        fprintf(stderr, "%s %s (%" PRId64 " features)", k > 0 ? "," : "", ds->vertex_type[k].name,
                ds->vertex_type[k].feature_dim);
    fputc('\n', stderr);
    return true;
}

bool dataset_suits(const struct pst_pipeline *pl, const struct pst_dataset *ds)
{
    if (has_types(ds))
        return false;
    if (pst_dataset_check(ds) != PST_OK) {
        fprintf(stderr, "dataset %s: %s\n", ds->dir, pst_error_text());
        return false;
    }
    struct pst_diag diag = {0};
    for (int s = 0; s < pl->nstages; s++)
        check_split(pl, &pl->stages[s], ds, &diag);
    bool ok = diag.count == 0;
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    return ok;
}
