/* npy_types.h: meta.json with several types, as `penstock export` writes it. Owner: none. Threads: one. */
#ifndef PST_NPY_TYPES_H
#define PST_NPY_TYPES_H

#include "common/store/import/job.h"

PST_MUST_USE pst_rc pst_arrays_import_types(struct pst_import_job *job, const json_t *meta);

#endif
