/* effective.c: writes the pipeline that a run uses: the file with its overlays and --set merged. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/pipeline/pipeline.h"
#include "common/util/file.h"

/* The paths and the group of a stage, so that they do not depend on a directory or an option. */
static void settle_stage(json_t *j, const struct pst_pipeline_stage_spec *stage)
{
    if (strchr(stage->caps.run, '/') && stage->caps.file)
        (void)json_object_set_new(j, "run", json_string(stage->caps.file));
    if (stage->group[0] && !strchr(stage->group, '.')) /* of replicas: the file has it without their number */
        (void)json_object_set_new(j, "group", json_string(stage->group));
}

pst_rc pst_pipeline_write(const struct pst_pipeline *pl, const char *path)
{
    json_t *root = json_deep_copy(pl->doc.root);
    const json_t *stages = json_object_get(root, "stages");
    for (int s = 0; s < pl->nstages; s++) {
        json_t *stage = json_object_get(stages, pl->stages[s].origin);
        if (stage) /* a copy between devices is not in the file */
            settle_stage(stage, &pl->stages[s]);
    }
    (void)json_object_set_new(root, "name", json_string(pl->name));
    (void)json_object_set_new(root, "seed", json_integer((json_int_t)pl->seed));
    (void)json_object_set_new(root, "epochs", json_integer(pl->epochs));
    if (pl->dataset[0])
        (void)json_object_set_new(root, "dataset", json_string(pl->dataset));
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    const pst_rc rc =
        text ? pst_file_replace(path, text, strlen(text)) : pst_fail(PST_E_NOMEM, "out of memory");
    free(text);
    return rc;
}
