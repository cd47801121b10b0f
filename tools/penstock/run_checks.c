#include "run_checks.h"

#include <stdio.h>
#include <string.h>

#include "../../common/error.h"

/* A stage's parameter "split" names one of the dataset's; batches are drawn from it. */
static void check_split(const struct pst_pipeline *pl, const struct pst_stage_spec *stage,
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

bool dataset_suits(const struct pst_pipeline *pl, const struct pst_dataset *ds)
{
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
