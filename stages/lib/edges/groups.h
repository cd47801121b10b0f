/* groups.h: the edges of batches, and the vertices that may corrupt them, if embeddings are partitioned. A
 * batch has edges of one group of the order (stages/lib/order), in a new sequence every epoch (Marius,
 * algorithm 4). Negatives are uniform over the vertices whose partitions are in the buffer then.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_EDGES_GROUPS_H
#define PST_EDGES_GROUPS_H

#include "stages/lib/parts/training.h"

struct pst_edges_groups {
    struct pst_parts_training training;
    struct pst_parts_batch batch; /* the one that was found last */
    int64_t epoch, group;         /* whose edges are in `edge`; -1: none */
    int64_t *edge, *order;        /* [largest group]: positions in the buckets' file; their sequence */
    int resident, partition[PST_ORDER_PARTITIONS_MAX];
    int64_t rows_before[PST_ORDER_PARTITIONS_MAX + 1]; /* of each resident partition; then all of them */
};

/* Opens the buckets at path (pst_parts_training_open); g->training.epochs has its numbers. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_edges_groups_open(struct pst_edges_groups *g, const char *path, const char *digest,
                                          int partitions, int buffer, enum pst_order_kind kind);
void pst_edges_groups_close(struct pst_edges_groups *g);

/* Finds a batch of the run. shuffle: false keeps the sequence of the buckets' file. */
void pst_edges_groups_find(struct pst_edges_groups *g, uint64_t batch, bool shuffle);

/* Column 0 of the batch's edge i is the source, the last one the destination. */
int64_t pst_edges_groups_value(const struct pst_edges_groups *g, uint32_t i, int column);

/* Vertices in the buffer, and one of them, from 0. */
static inline int64_t pst_edges_groups_vertices(const struct pst_edges_groups *g)
{
    return g->rows_before[g->resident];
}
int64_t pst_edges_groups_vertex(const struct pst_edges_groups *g, int64_t i);

#endif
