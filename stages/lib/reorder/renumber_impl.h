/* renumber_impl.h: the orders. Owner: none. Threads: one. */
#ifndef PST_RENUMBER_IMPL_H
#define PST_RENUMBER_IMPL_H

#include "stages/lib/reorder/renumber.h"

static inline int64_t pst_renumber_neighbour(const struct pst_csc *g, int64_t e)
{
    return g->index_bytes == 4 ? ((const int32_t *)g->indices)[e] : ((const int64_t *)g->indices)[e];
}

/* access.c. order: breadth first; it becomes the order by access. */
PST_MUST_USE pst_rc pst_renumber_by_access(const struct pst_renumber_spec *spec, int64_t *order,
                                           struct pst_progress *progress);
/* parts.c: the same, for METIS. */
PST_MUST_USE pst_rc pst_renumber_by_parts(const struct pst_renumber_spec *spec, int64_t *order,
                                          struct pst_progress *progress);

#endif
