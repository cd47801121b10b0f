/* splits.h: splits a batch into micro-batches. The split depends only on sizes, so every run splits a batch
 * in the same way. Owner: the caller, also of the memory for `ends`. Threads: one. */
#ifndef PST_SPLITS_H
#define PST_SPLITS_H

#include "common/base.h"

PST_BEGIN_DECLS

/* The n seeds of a batch are cut into grains by their position: grain g of G has the seeds from g * n / G to
 * (g + 1) * n / G, rounded down. Each replica of a sampler has some grains. The pieces of a grain do not
 * depend on the other grains. */
struct pst_splits_share {
    int64_t grains;       /* G */
    int64_t first, count; /* those of this sampler */
};

/* The seeds of a batch that must still be sampled, split into pieces. The next piece is
 * [done, ends[depth - 1]). ends is a stack whose top is the nearest end; it has room for as many numbers as
 * the batch has seeds. */
struct pst_splits {
    int64_t done;
    int64_t depth;
    int64_t *ends;
    int64_t n, grains;
};

/* Splits each grain of the share of n seeds into equal pieces of at most `most` seeds. If all grains are
 * empty, there is no piece. share NULL: the whole batch, as one grain. */
PST_API void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most,
                             const struct pst_splits_share *share);
/* The grain of the next piece. */
PST_API int64_t pst_splits_grain(const struct pst_splits *p);
/* Returns the next piece without removing it. False: there is none. */
PST_API bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last);
/* Removes the next piece. */
PST_API void pst_splits_pop(struct pst_splits *p);
/* Halves the next piece, and splits all later ones of its grain to that size, because they would probably not
 * fit either. False: the next piece is a single seed. */
PST_API bool pst_splits_split(struct pst_splits *p);

PST_END_DECLS
#endif
