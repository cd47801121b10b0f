/* identity.h: what a resumed run must have in common with the run that it resumes: the stages that work on
 * batches, and their parameters that change what an epoch is (`fixed` in stage.h). A checkpoint keeps it as
 * text. Owner: the caller. Threads: any. */
#ifndef PST_IDENTITY_H
#define PST_IDENTITY_H

#include "common/pipeline/pipeline.h"

/* JSON text, {"stages.sampler.params.batch": 512, ...}. The caller frees it; NULL: out of memory. */
char *pst_pipeline_identity(const struct pst_pipeline *pl);

/* PST_E_ARG: this pipeline has another identity than the text; the message names each difference. */
PST_API PST_MUST_USE pst_rc pst_pipeline_check_identity(const struct pst_pipeline *pl, const char *text);

#endif
