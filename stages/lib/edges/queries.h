/* queries.h: an order of edges in which those of the same query follow each other. The query of an edge is
 * its source and its relation; that of a turned edge, which replaces sources, is its destination and the
 * inverse relation. So a query is scored against all vertices once for all of its edges ("KvsAll": Dettmers
 * et al., AAAI 2018, section 3).
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_EDGES_QUERIES_H
#define PST_EDGES_QUERIES_H

#include "common/base.h"

struct pst_edges_queries_item {
    int64_t key;  /* the same for edges of the same query */
    int64_t edge; /* a number of the caller's */
};

struct pst_edges_queries {
    struct pst_edges_queries_item *item; /* [n], sorted by query */
    int64_t *start, pieces, n;           /* piece i has the items start[i] to start[i + 1] - 1 */
    int64_t *order;                      /* of pieces */
};

/* Takes item[n], which malloc made, and divides the edges of each query into pieces of at most `together`.
 * PST_E_NOMEM; the items are then freed by close, too. */
PST_API PST_MUST_USE pst_rc pst_edges_queries_open(struct pst_edges_queries *q,
                                                   struct pst_edges_queries_item *item, int64_t n,
                                                   int64_t together);
PST_API void pst_edges_queries_close(struct pst_edges_queries *q);
/* edge[n] = the edges, piece by piece. shuffle: in an order of pieces that depends on seed and epoch only. */
PST_API void pst_edges_queries_order(struct pst_edges_queries *q, uint64_t seed, int64_t epoch, bool shuffle,
                                     int64_t *edge);

#endif
