/* rank.h: a set of ids that renumbers them without gaps, in the same order. The rank of an id is the number
 * of smaller ids in the set. Owner: the caller; init and release pair. Threads: one adds; after
 * pst_rank_ready, any number may read. */
#ifndef PST_RANK_H
#define PST_RANK_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_rank {
    uint64_t *bits;
    int64_t *before; /* of each word of 64, after pst_rank_ready */
    int64_t ids, members;
    uint64_t memory_bytes; /* what it may take */
};

PST_API void pst_rank_init(struct pst_rank *r, uint64_t memory_bytes);
/* PST_E_LIMIT: the largest id needs more bits than fit; the message says how much memory would be enough. */
PST_API PST_MUST_USE pst_rc pst_rank_add(struct pst_rank *r, const int64_t *ids, int64_t n);
PST_API PST_MUST_USE pst_rc pst_rank_ready(struct pst_rank *r);

static inline bool pst_rank_has(const struct pst_rank *r, int64_t id)
{
    return id < r->ids && (r->bits[id >> 6] >> (id & 63) & 1) != 0;
}

/* The new number of a member. */
static inline int64_t pst_rank_of(const struct pst_rank *r, int64_t id)
{
    uint64_t below = r->bits[id >> 6] & ((UINT64_C(1) << (id & 63)) - 1);
    return r->before[id >> 6] + __builtin_popcountll(below);
}
PST_API void pst_rank_release(struct pst_rank *r);

PST_END_DECLS
#endif
