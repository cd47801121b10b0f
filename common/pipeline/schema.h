/* schema.h: a JSON Schema of pipeline files, made of what stages say of themselves. Owner: the caller, who
 * releases what it gets. Threads: one. */
#ifndef PST_SCHEMA_H
#define PST_SCHEMA_H

#include <jansson.h>

#include "common/stage.h"

/* A stage that pipelines may name. */
struct pst_pipeline_schema_stage {
    const char *run; /* as pipelines name it */
    const struct pst_stage_desc *desc;
};

/* The schema (draft 7) of pipelines of these n stages; other stages may only be named by a path, and may have
 * any parameters. settings: of files for --with, which may leave anything out. NULL: out of memory. */
PST_API json_t *pst_pipeline_schema(const struct pst_pipeline_schema_stage *stages, size_t n, bool settings);

/* The value of one parameter, with its help and its default. */
PST_API json_t *pst_pipeline_param_schema(const struct pst_param_desc *param);

#endif
