/* cslp.h: which device of a clique caches which vertex: "complete sharing with local preference" (Legion,
 * Algorithm 1). The same functions place lists of neighbours (hotness H_T) and feature rows (H_F).
 *
 * Owner: the caller owns all arrays. Threads: any; the functions have no state. */
#ifndef PST_CSLP_H
#define PST_CSLP_H

#include "stages/lib/clique/cliques.h"

PST_BEGIN_DECLS

#define PST_CSLP_NOWHERE (-1) /* no device of the clique has the vertex */

struct pst_cslp {
    int devices;                                   /* of the clique: 1 to PST_CLIQUES_MAX */
    const uint32_t *hotness[PST_CLIQUES_MAX];      /* of each device: a number for each vertex */
    uint64_t room[PST_CLIQUES_MAX];                /* of each device, in bytes */
    uint64_t (*bytes)(const void *of, int64_t id); /* what a vertex takes: at least 1 */
    const void *of;
    /* Algorithm 1 as printed: each vertex goes to the device with the highest hotness, of equal ones to the
     * first; what does not fit there is not cached, though another device has room. */
    bool as_printed;
};

/* Lines 1 and 2: sum[v] = the sum of a vertex's hotness over devices (A_T or A_F), and order = all vertices
 * by sum, descending; of equal ones, lower ids come first (Q_T or Q_F). Both arrays have `vertices` entries.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_cslp_order(const struct pst_cslp *c, int64_t vertices, uint64_t *sum,
                                           int64_t *order);

/* Line 3: gives each of the first n vertices of `order`, in this order, to the device that is hottest for it
 * of those with room; of equally hot ones to that with the most room, and of these to the first. So devices
 * that hold entries of one size hold exactly the top of the order together. at[v] becomes the device's place
 * in the clique; entries of vertices that no device takes stay as they are. */
PST_API void pst_cslp_assign(const struct pst_cslp *c, const int64_t *order, int64_t n, int8_t *at);

PST_END_DECLS
#endif
