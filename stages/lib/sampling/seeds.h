/* seeds.h: the seeds of batches: the vertices of one split of the dataset, in a new order every epoch.
 * Owner: the caller. Threads: one. */
#ifndef PST_SEEDS_H
#define PST_SEEDS_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_dataset;

struct pst_seeds {
    int64_t *ids;    /* of the split, each once */
    int64_t repeats; /* number of repeated ids that were skipped */
    int64_t n, batch;
    uint64_t batches; /* in an epoch */
    uint64_t seed;
    bool shuffle;
    int64_t epoch; /* the epoch that `order` is for; -1: none yet */
    int64_t *order;
};

/* split: "train", "val" or "test". PST_E_ARG: the dataset does not have this split, or it is empty.
 * PST_E_FORMAT: an id is out of range. */
PST_API PST_MUST_USE pst_rc pst_seeds_init(struct pst_seeds *s, const struct pst_dataset *ds,
                                           const char *split, int64_t batch, uint64_t seed, bool shuffle);
PST_API void pst_seeds_release(struct pst_seeds *s);

/* Copies the seeds of a batch (counted over the run) to out, which has room for s->batch. Returns their
 * number. */
PST_API int64_t pst_seeds_of(struct pst_seeds *s, uint64_t batch, int64_t *out);

PST_END_DECLS
#endif
