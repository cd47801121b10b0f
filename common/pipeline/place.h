/* place.h: where a pipeline's stages are to run: a stage's "place", judged against what it can and what there
 * is.
 */
#ifndef PST_PLACE_H
#define PST_PLACE_H

#include "common/pipeline/pipeline.h"

/* Checks stage->device, whose description is known, or chooses one for "auto", or the pipeline's where it is
 * empty; path is the stage's in the file. Asks what GPUs there are only if that matters. After an error the
 * device is cpu:0, so that links are judged on their own; the pipeline's is told to be wrong once. */
void pst_place_device(struct pst_pipeline *pl, struct pst_diag *diag, const char *path,
                      struct pst_pipeline_stage_spec *stage);
/* "0-3,6", each core one of this machine's. */
void pst_place_cores(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at, const char *cores);
/* For a GPU that processes take turns on: stages that the file leaves to "auto", and puts in no group, become
 * threads of one process for each GPU that has several. True: there were such. */
bool pst_place_group(struct pst_pipeline *pl);
/* Can it be placed on a GPU? If not, the reason. */
bool pst_place_stage_on_gpu(const struct pst_pipeline_stage_spec *stage, char why[160]);
/* Is word in a comma-separated list? */
bool pst_place_list_has(const char *list, const char *word);

#endif
