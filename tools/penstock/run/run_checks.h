/* run_checks.h: does this dataset suit this pipeline? */
#ifndef PST_RUN_CHECKS_H
#define PST_RUN_CHECKS_H

#include "common/pipeline/pipeline.h"
#include "common/store/store.h"

/* Checks the dataset's contents as far as that is quick, and that the splits which the pipeline names are
 * there. Prints what is wrong to standard error; false if anything is. */
bool dataset_suits(const struct pst_pipeline *pl, const struct pst_dataset *ds);

#endif
