/* pipeline.c: looks things up in a loaded pipeline, and releases it. */
#include "common/pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pst_pipeline_release(struct pst_pipeline *pl)
{
    for (int i = 0; i < pl->nstages; i++) {
        pst_caps_release(&pl->stages[i].caps);
        json_decref(pl->stages[i].params);
    }
    free(pl->stages);
    free(pl->links);
    pst_json_release(&pl->doc);
    memset(pl, 0, sizeof *pl);
}

int pst_pipeline_stage(const struct pst_pipeline *pl, const char *name)
{
    for (int i = 0; i < pl->nstages; i++)
        if (strcmp(pl->stages[i].name, name) == 0)
            return i;
    return -1;
}

void pst_pipeline_param_path(const struct pst_pipeline *pl, const char *stage, const char *param,
                             char out[PST_JSON_PATH_MAX])
{
    const json_t *root = pl->doc.root;
    const int s = pst_pipeline_stage(pl, stage);
    stage = s >= 0 ? pl->stages[s].origin : stage;
    const json_t *own = json_object_get(json_object_get(json_object_get(root, "stages"), stage), "params");
    if (!json_object_get(own, param) && json_object_get(json_object_get(root, "params"), param))
        (void)snprintf(out, PST_JSON_PATH_MAX, "params.%s", param);
    else
        (void)snprintf(out, PST_JSON_PATH_MAX, "stages.%s.params.%s", stage, param);
}

int pst_pipeline_port_hold(const struct pst_pipeline_stage_spec *stage, const struct pst_port_desc *port)
{
    json_int_t hold = port->hold > 0 ? port->hold : 1;
    if (port->hold_param)
        hold = port->hold + json_integer_value(json_object_get(stage->params, port->hold_param));
    return hold < 1 ? 1 : hold > PST_SLOTS_MAX ? PST_SLOTS_MAX : (int)hold;
}
