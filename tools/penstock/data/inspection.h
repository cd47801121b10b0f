/* inspection.h: the facts that `penstock inspect` prints as text (inspect.c) or as JSON.
 * Owner: inspect fills what the caller owns, even if it fails; inspection_release frees it. Threads: one. */
#ifndef PST_INSPECTION_H
#define PST_INSPECTION_H

#include "common/store/dataset/describe.h"
#include "common/store/dataset/manifest.h"

struct inspection {
    struct pst_dataset ds;
    bool open;
    struct pst_describe_degrees degrees;
    struct pst_describe_hotness hot;
    struct pst_feature_stats features[1 + PST_MANIFEST_VERTEX_TYPES_MAX]; /* the dataset's; each type's */
    int64_t *label;                                                       /* vertices of each class */
    int64_t unlabelled;
    int64_t multilabels[3]; /* how many are 0, 1, not known */
    int64_t unknown_targets;
    double target_least, target_most; /* of those that are known */
};

/* whole: read all features and not a sample. PST_E_FORMAT: a value is out of range. */
PST_MUST_USE pst_rc inspect(struct inspection *in, const char *dir, bool whole,
                            struct pst_progress *progress);
void inspection_release(struct inspection *in);
PST_MUST_USE pst_rc inspection_json(struct inspection *in); /* prints */

#endif
