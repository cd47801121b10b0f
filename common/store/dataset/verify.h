/* verify.h: reads all of a dataset and checks the checksum of every file and the contents of every array.
 * Owner: the caller owns the report. Threads: one. */
#ifndef PST_VERIFY_H
#define PST_VERIFY_H

#include "common/store/dataset/manifest.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

struct pst_verified {
    bool present;
    uint64_t bytes;
    double seconds;
    const char *checked; /* in words */
};

struct pst_verify_report {
    struct pst_verified array[PST_ARRAY_COUNT];
    struct pst_verified features[PST_MANIFEST_VERTEX_TYPES_MAX]; /* of each type of vertices */
    struct pst_verified stripe[PST_DATASET_FEATURE_FILES_MAX];
    struct pst_verified splits; /* all arrays of all named splits but the first */
};

/* PST_E_FORMAT with every problem, one per line. progress may be NULL. */
PST_API PST_MUST_USE pst_rc pst_verify(const char *dir, struct pst_verify_report *report,
                                       struct pst_progress *progress);

PST_END_DECLS
#endif
