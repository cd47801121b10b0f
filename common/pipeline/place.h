/* place.h: where the stages of a pipeline run: their devices, cores and groups. Threads: one at a time. */
#ifndef PST_PLACE_H
#define PST_PLACE_H

#include "common/pipeline/pipeline.h"

#define PST_PLACE_WHY_MAX 160 /* bytes of a reason */

/* Checks the device of a stage whose description is known. If it is "auto", chooses one. If it is empty,
 * takes the pipeline's. `path` is the stage's path in the file. Looks for GPUs only if that matters. After an
 * error the device is cpu:0, so that links are checked independently; an error in the pipeline's own device
 * is reported once. */
void pst_place_device(struct pst_pipeline *pl, struct pst_diag *diag, const char *path,
                      struct pst_pipeline_stage_spec *stage);

/* The same for a device that is cpu:N or cuda:N and was given at the path `at`. False, after an error: the
 * stage cannot run there, and its device is cpu:0 now. */
bool pst_place_device_at(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at,
                         struct pst_pipeline_stage_spec *stage);

/* Is it cpu:N or cuda:N? */
bool pst_place_names_device(const char *device);

/* Whether stages that "auto" placed on a GPU share one: the stage that uses batches up (the trainer) gets
 * another GPU than those that make them, if two GPUs reach each other and the measured run says that a batch
 * is then faster. Writes the reason, with its figures, to `chosen` of each stage. Call it after devices and
 * groups are known, and before links are. An error: the measured run cannot be read. */
void pst_place_pair(struct pst_pipeline *pl, struct pst_diag *diag);

/* The first port that is not linked, but has the flag PST_PORT_NEEDED_ON_GPU, of a stage on a GPU; -1: there
 * is none. Both after links are known. The second moves stages with such a port to cpu:0, unless the file
 * names their device. A link that is left out ("when") stays so. */
int pst_place_missing_port(const struct pst_pipeline_stage_spec *stage);
void pst_place_move_unlinked(struct pst_pipeline *pl);

/* Checks a list of cores: "0-3,6", each of which this machine has. */
void pst_place_cores(const struct pst_pipeline *pl, struct pst_diag *diag, const char *at, const char *cores);

/* For GPUs that processes share by turns (without MPS): stages that "auto" placed on the same GPU, and that
 * are in no group, become threads of one process. Returns whether there were any. */
PST_API bool pst_place_group(struct pst_pipeline *pl);

/* Can the stage run on a GPU? If not, why says the reason. */
PST_API_TEST bool pst_place_stage_on_gpu(const struct pst_pipeline_stage_spec *stage,
                                         char why[PST_PLACE_WHY_MAX]);

/* Can kernels of the stage use memory of the GPU that `home` is on? Yes on the same GPU. Yes on another GPU
 * that reaches it, in another process, because a process opens memory of another process for one GPU only. */
bool pst_place_gpu_memory(const struct pst_pipeline_stage_spec *stage,
                          const struct pst_pipeline_stage_spec *home);

#endif
