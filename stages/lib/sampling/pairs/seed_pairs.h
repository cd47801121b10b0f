/* seed_pairs.h: the pairs of vertices of a batch whose seeds are edges: the edges, and random pairs that are
 * not edges (negatives).
 *
 * Owner: the caller. It lends the edges and the graph. Threads: one. */
#ifndef PST_SAMPLING_PAIRS_H
#define PST_SAMPLING_PAIRS_H

#include "common/store/store.h"
#include "kernels/kernels.h"

PST_BEGIN_DECLS

enum {
    PST_SAMPLING_PAIRS_TRIES = 32,          /* draws of a negative; the last one counts in any case */
    PST_SAMPLING_PAIRS_NEGATIVES_MAX = 1000 /* of an edge */
};

struct pst_sampling_pairs {
    const struct pst_array *edges; /* (n, 2), int32 or int64: source and target */
    const struct pst_csc *graph;
    int64_t negatives;    /* of each edge */
    bool leave_out;       /* leave the edges of a batch out of its samples */
    int64_t most;         /* edges of a batch */
    int64_t *ends;        /* room for both ends of all pairs of a batch */
    uint64_t *low, *high; /* a hash set of the edges of a batch: the smaller id + 1, the larger */
    uint64_t slots;       /* of the set, a power of two */
    uint64_t left_out;    /* sampled edges that were left out so far */
    uint64_t batch;       /* the batch whose edges the set has */
    bool held;
};

/* most: edges of a batch, at least 1. PST_E_LIMIT: a batch would have more pairs than a minibatch can have.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_sampling_pairs_init(struct pst_sampling_pairs *p,
                                                    const struct pst_array *edges,
                                                    const struct pst_csc *graph, int64_t most,
                                                    int64_t negatives, bool leave_out);
PST_API void pst_sampling_pairs_release(struct pst_sampling_pairs *p);

/* The number of pairs of n edges. */
static inline int64_t pst_sampling_pairs_of(const struct pst_sampling_pairs *p, int64_t n)
{
    return n * (1 + p->negatives);
}

/* p->ends gets both ends of each pair: first of the edges (rows of the array), then of the negatives of the
 * first edge, of the second, and so on. n: at most `most`. PST_E_FORMAT: an end is not a vertex of the graph;
 * the message names the row. */
PST_API PST_MUST_USE pst_rc pst_sampling_pairs_fill(struct pst_sampling_pairs *p, uint64_t seed,
                                                    uint32_t epoch, const int64_t *edges, int64_t n);

/* Remembers the n edges of a batch, to be left out of its samples. batch: counted over the run; the set is
 * kept until another batch comes. Does nothing if leave_out is false. Errors as above. */
PST_API PST_MUST_USE pst_rc pst_sampling_pairs_hold(struct pst_sampling_pairs *p, uint64_t batch,
                                                    const int64_t *edges, int64_t n);

/* Removes the edges that are held, in both directions, from those drawn for n destinations: indptr (n + 1),
 * ids and, unless NULL, weights and relations (indptr[n] each). The others keep their order. */
PST_API void pst_sampling_pairs_leave_out(struct pst_sampling_pairs *p, const int64_t *vertices, int64_t n,
                                          int32_t *indptr, int64_t *ids, float *weights, int32_t *relations);

PST_END_DECLS
#endif
