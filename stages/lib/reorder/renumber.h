/* renumber.h: new numbers for a graph's vertices, so that rows that batches need together lie together.
 * Vertices keep their type: the order is one of each type's vertices, one type after the other.
 *
 * Owner: the caller. Threads: one, because METIS draws from the C library's rand(). */
#ifndef PST_RENUMBER_H
#define PST_RENUMBER_H

#include "stages/lib/reorder/hoods.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

enum pst_renumber_by {
    PST_RENUMBER_ACCESS,  /* by what pre-sampled batches need, and need together */
    PST_RENUMBER_HOTNESS, /* by falling tiers; in each, hottest first */
    PST_RENUMBER_DEGREE,  /* by the number of lists that a vertex is in, largest first */
    PST_RENUMBER_BFS,     /* breadth first from the seeds, along lists of neighbours */
    PST_RENUMBER_METIS,   /* parts of METIS, divided again until they are small; each breadth first */
    PST_RENUMBER_ORDERS
};
#define PST_RENUMBER_CHOICES "access, hotness, degree, bfs or metis"
PST_API const char *pst_renumber_name(enum pst_renumber_by by);
PST_API bool pst_renumber_find(const char *name, enum pst_renumber_by *by);

/* What the caches of a run have of a vertex. Vertices are ordered by falling tiers, so that cached rows, and
 * cached lists, lie side by side. */
enum pst_renumber_tier {
    PST_RENUMBER_NOTHING,
    PST_RENUMBER_LIST,
    PST_RENUMBER_BOTH, /* the list and the row */
    PST_RENUMBER_ROW
};

struct pst_renumber_spec {
    enum pst_renumber_by by;
    struct pst_hoods *hoods;
    const uint32_t *counts;  /* vertices: in how many batches of an epoch each was; of pst_renumber_count; for
                                ACCESS */
    const uint32_t *hotness; /* vertices: how often batches need them, in any unit; for HOTNESS */
    const uint8_t *tier;     /* vertices: enum pst_renumber_tier. Cached rows are not read */
    uint64_t memory_bytes;
};

/* counts[v]: in how many batches of epoch 0 vertex v is. */
PST_API PST_MUST_USE pst_rc pst_renumber_count(struct pst_hoods *h, uint32_t *counts,
                                               struct pst_progress *progress);
/* order[0..vertices): vertices by falling counts; equal ones by id. tier: NULL, or those of tier `least` and
 * above come before the others, the highest tier first. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_renumber_hottest(const uint32_t *counts, const uint8_t *tier,
                                                 enum pst_renumber_tier least, int64_t vertices,
                                                 int64_t *order);

/* old_of[i] becomes the vertex that gets number i. PST_E_ARG: the memory is too small; PST_E_LIMIT: METIS
 * cannot count the graph; PST_E_FORMAT, PST_E_NOMEM, PST_E_INTERRUPTED. */
PST_API PST_MUST_USE pst_rc pst_renumber(const struct pst_renumber_spec *spec, int64_t *old_of,
                                         struct pst_progress *progress);

PST_END_DECLS
#endif
