/* pipeline_options.h: what the commands that take a pipeline file share. */
#ifndef PST_PIPELINE_OPTIONS_H
#define PST_PIPELINE_OPTIONS_H

#include "common/pipeline/graph.h"

#define PST_SETS_MAX 256

struct pipeline_options {
    char *sets[PST_SETS_MAX]; /* PATH=VALUE, in order */
    int nsets;
    bool group_all;
};

/* Loads, checks and builds; prints every error. True if the pipeline can run. */
bool load_pipeline(struct pst_pipeline *pl, struct pst_graph *graph, const char *file,
                   const struct pipeline_options *options);

#endif
