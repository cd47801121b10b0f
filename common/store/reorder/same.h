/* same.h: compares two datasets whose vertices have different numbers. Vertices are the same if their old ids
 * are (the array old_ids; a dataset without it has the old numbers). Each vertex's row, list of neighbours
 * and other values are hashed (XXH3, 64 bits), with old ids in place of new ones, so both datasets are read
 * once, from beginning to end. Splits, triples and edges to predict are compared entry by entry.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_SAME_H
#define PST_SAME_H

#include "common/store/store.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

struct pst_same_report {
    int64_t vertices, edges;
    int64_t moved;       /* vertices whose numbers differ */
    char compared[1024]; /* names of what was compared, with commas between */
};

/* PST_E_FORMAT: the datasets differ; the message says in what, and names the first vertex. Takes 8 bytes of
 * memory a vertex. */
PST_API PST_MUST_USE pst_rc pst_same(const char *dir, const char *other, struct pst_same_report *report,
                                     struct pst_progress *progress);

PST_END_DECLS
#endif
