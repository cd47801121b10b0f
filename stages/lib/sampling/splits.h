/* splits.h: how a batch is cut into micro-batches. Sizes alone decide, so every run cuts alike.
 * Owner: the caller, also of the memory for `ends`. Threads: one. */
#ifndef PST_SPLITS_H
#define PST_SPLITS_H

#include "common/base.h"

PST_BEGIN_DECLS

/* The seeds of a batch that are still to be sampled, cut into pieces. The next piece is
 * [done, ends[depth - 1]). ends is a stack whose top is the nearest end; it has room for as many numbers as
 * the batch has seeds. */
struct pst_splits {
    int64_t done;
    int64_t depth;
    int64_t *ends;
};

/* Cuts n seeds into equal pieces of at most `most`. */
PST_API void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most);
/* The next piece, which stays the next. False: there is none. */
PST_API bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last);
/* The next piece is done. */
PST_API void pst_splits_pop(struct pst_splits *p);
/* Cuts the next piece in two, and all later ones to that size, because they would hardly fit either. False:
 * the next piece is a single seed. */
PST_API bool pst_splits_split(struct pst_splits *p);

PST_END_DECLS
#endif
