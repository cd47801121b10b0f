/* npy_types.h: meta.json with several types, as `penstock export` writes it. Owner: none. Threads: one. */
#ifndef PST_NPY_TYPES_H
#define PST_NPY_TYPES_H

#include "common/store/import/job.h"

/* Makes the array of the features of the K-th type, `entry` of meta.json, and says where it is. */
typedef pst_rc pst_arrays_features_fn(void *ctx, int k, int64_t vertices, const json_t *entry,
                                      char path[PST_PATH_MAX]);

/* edges_K.npy and feat_K.npy of job->from; or, if features is not NULL, edges_K.csv and what it makes. */
PST_MUST_USE pst_rc pst_arrays_import_types(struct pst_import_job *job, const json_t *meta,
                                            pst_arrays_features_fn *features, void *ctx);

#endif
