/* predict.h: what `penstock inspect DATASET --reorder ORDER` and `penstock reorder` share.
 * Owner: see below. Threads: one. */
#ifndef PST_REORDER_PREDICT_H
#define PST_REORDER_PREDICT_H

#include "tools/penstock/reorder/reorder_args.h"

/* What an order is made from, and judged by. */
struct reorder_job {
    const struct reorder_args *args;
    struct pst_hoods hoods;
    bool draws;        /* there are seeds, and features to read */
    uint32_t *counts;  /* vertices; NULL: nothing needs them */
    uint32_t *hotness; /* the same, of the plan; NULL: there is no plan, or nothing needs it */
    uint8_t *tier;     /* vertices: enum pst_renumber_tier */
    int64_t cached_rows;
    struct pst_reads_disk disk;
    uint64_t memory_bytes; /* what is left of --memory besides all arrays of 8 bytes a vertex */
};

/* Opens the dataset, counts an epoch's batches if something needs that, and chooses the cached rows.
 * reorder_close ends it, also after an error. */
PST_MUST_USE pst_rc reorder_open(struct reorder_job *j, const struct reorder_args *args,
                                 struct pst_progress *progress);
void reorder_close(struct reorder_job *j);

/* old_of gets the order. */
PST_MUST_USE pst_rc reorder_find(struct reorder_job *j, enum pst_renumber_by by, int64_t *old_of,
                                 struct pst_progress *progress);

/* What an epoch reads: out[0] as the dataset is, out[1] with these numbers. */
PST_MUST_USE pst_rc reorder_predict(struct reorder_job *j, const int64_t *new_of, struct pst_reads out[2],
                                    struct pst_progress *progress);

#endif
