/* resident.h: batches over partitions that lie on a GPU (Legend, sections 3 to 5). A batch's ends are rows of
 * the vectors, negatives are drawn on the GPU as such rows, and kernels read and update rows where they lie.
 *
 * Owner: the stage. The device owns the memory. Threads: one. */
#ifndef PST_VECTORS_RESIDENT_H
#define PST_VECTORS_RESIDENT_H

#include "stages/lib/embed/embed_gpu.h"
#include "stages/lib/vectors/vectors.h"

struct pst_vectors_resident {
    const struct pst_vectors *vectors;
    struct pst_device *device;
    int64_t edges, negatives; /* at most; negatives: of all chunks, on each side */
    /* pinned: the ends and the ranges of a batch. Two, because one is copied while the other is written */
    char *ends[2];
    int turn;
    char *there; /* on the GPU, like the next: a copy of them */
    uint32_t *drawn[2], *node_list;
    pst_real *node_grads;
};

/* The partitions in memory; `before` counts vertices before each of them (stages/lib/edges/groups.h). */
struct pst_vectors_ranges {
    const int *partition;
    int n;
    const int64_t *before; /* [n + 1] */
};

/* device: with the queue of the training steps; the vectors' own is for copies. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_vectors_resident_open(struct pst_vectors_resident *r,
                                                      const struct pst_vectors *v, struct pst_device *device,
                                                      int64_t edges, int64_t negatives);

/* Puts on the queue that the GPU gets the edges of the batch in `from`, and draws negatives. draw: its seed,
 * drawn and all are set. *out gets the arrays; relations are missing. At most one earlier batch may be on the
 * queue. PST_E_PEER: a vertex is in no block. */
PST_API PST_MUST_USE pst_rc pst_vectors_resident_bring(struct pst_vectors_resident *r,
                                                       const struct pst_edge_batch *b, const void *from,
                                                       const struct pst_vectors_ranges *ranges,
                                                       struct pst_k_embed_draws draw,
                                                       struct pst_embed_batch *out);
/* Puts on the queue that rows are updated with their gradients (pst_relations_begin). */
PST_API void pst_vectors_resident_update(const struct pst_vectors_resident *r,
                                         const struct pst_embed_batch *b, const struct pst_embed_device *w);

#endif
