/* cut.h: pieces of a batch that was sampled whole. If the neighbours of a vertex depend on all destinations
 * of a hop (PST_SAMPLING_WHOLE), a piece of a batch cannot be sampled alone. The whole batch is then sampled
 * into memory, and each piece takes the neighbours of its vertices from there. So the pieces have the
 * neighbours and weights that the whole batch has.
 *
 * Owner: the caller owns struct pst_cut and what it borrows. Threads: one. */
#ifndef PST_SAMPLING_CUT_H
#define PST_SAMPLING_CUT_H

#include "stages/lib/sampling/expand.h"

PST_BEGIN_DECLS

struct pst_cut {
    /* set by the caller */
    const struct pst_csc *graph;
    const struct pst_sampling_opened *algorithm;
    const int64_t *fanout;
    int hops;
    /* The batch that is held. Its blocks are in memory that grows with the largest batch. */
    bool held;
    struct pst_sample_key key; /* without the hop */
    struct pst_minibatch_size found;
    struct pst_expander expander;
    int64_t vertices_max, edges_max, *vertices;
    int32_t *indptr[PST_HOPS_MAX], *indices[PST_HOPS_MAX];
    float *weights[PST_HOPS_MAX]; /* NULL: the algorithm does not weigh edges */
    int32_t *at;                  /* of a piece's destinations: their places in the whole batch */
};

/* Samples the whole batch of n seeds, unless it is held. key: the hop is ignored. Errors are those of
 * pst_expand_hop. PST_E_LIMIT: the algorithm drew more than its own bound. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_cut_hold(struct pst_cut *c, const struct pst_sample_key *key,
                                         const int64_t *seeds, int64_t n);
/* Draws a hop of a piece from the batch that is held. Weights are shares already. PST_E_LIMIT: the edges
 * exceed hop->capacity. */
PST_API PST_MUST_USE pst_rc pst_cut_draw(struct pst_cut *c, const struct pst_sampling_hop *hop);
/* Accepts a struct without a batch. */
PST_API void pst_cut_release(struct pst_cut *c);

PST_END_DECLS
#endif
