/* run_checks.h: checks whether a dataset suits a pipeline. Owner: none. Threads: one. */
#ifndef PST_RUN_CHECKS_H
#define PST_RUN_CHECKS_H

#include "common/pipeline/pipeline.h"
#include "common/store/store.h"

/* Checks the dataset as far as that is quick, and whether it has what the descriptions of the stages need
 * (struct pst_stage_desc, dataset); chooses the split that they name. Prints every error to standard error;
 * false if there are any. */
bool dataset_suits(const struct pst_pipeline *pl, struct pst_dataset *ds);

/* The same for the dataset that the pipeline names, or the rank's part of it, which it opens and closes. True
 * if it names none. */
bool named_dataset_suits(const struct pst_pipeline *pl, int rank);

#endif
