/* bisect.h: orders items so that those that the same queries need lie near one another, by recursive
 * bisection (Dhulipala et al., "Compressing graphs and indexes with recursive graph bisection", KDD 2016).
 * Each step divides a range of the order into halves, and swaps items between them as long as that makes
 * queries concentrate in one half. The cost of a query is the expected number of halves that a
 * random share p of its items touches (the p-fanout of Kabiljo et al., "Social Hash Partitioner", VLDB 2017),
 * because a read is saved only if a whole block is not needed.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_BISECT_H
#define PST_BISECT_H

#include "common/util/progress.h"

PST_BEGIN_DECLS

/* Item i is in queries[at[i]..at[i + 1]). */
struct pst_bisect_spec {
    uint32_t items, nqueries;
    const uint64_t *at;
    const uint32_t *queries;
    uint32_t least; /* a range of at most so many items is left as it is */
};

/* order[0..n): some of the items, each once; it is changed in place. Equal input gives equal output. Takes 9
 * bytes of memory an item and 8 a query. PST_E_NOMEM; PST_E_INTERRUPTED. */
PST_API PST_MUST_USE pst_rc pst_bisect(const struct pst_bisect_spec *spec, uint32_t *order, uint32_t n,
                                       struct pst_progress *progress);

PST_END_DECLS
#endif
