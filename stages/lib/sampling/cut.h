/* cut.h: pieces of a batch: of its seeds (pst_splits), and of a batch that was sampled whole (pst_cut).
 *
 * The seeds of a batch are split into micro-batches. The split depends only on sizes, so every run splits a
 * batch in the same way.
 *
 * If the neighbours of a vertex depend on all destinations
 * of a hop (PST_SAMPLING_WHOLE), a piece of a batch cannot be sampled alone. The whole batch is then sampled
 * into memory, and each piece takes the neighbours of its vertices from there. So the pieces have the
 * neighbours and weights that the whole batch has.
 *
 * Owner: the caller owns both structs, what pst_cut borrows, and the memory for `ends` of pst_splits.
 * Threads: one. */
#ifndef PST_SAMPLING_CUT_H
#define PST_SAMPLING_CUT_H

#include "stages/lib/sampling/expand.h"

PST_BEGIN_DECLS

/* ---- seeds ------------------------------------------------------------------------------------------ */

/* The n seeds of a batch are cut into grains by their position: grain g of G has the seeds from g * n / G to
 * (g + 1) * n / G, rounded down. Each replica of a sampler has some grains. The pieces of a grain do not
 * depend on the other grains. */
struct pst_splits_share {
    int64_t grains;       /* G */
    int64_t first, count; /* those of this sampler */
};

/* The seeds of a batch that must still be sampled, split into pieces. The next piece is
 * [done, ends[depth - 1]). ends is a stack whose top is the nearest end; it has room for as many numbers as
 * the batch has seeds. */
struct pst_splits {
    int64_t done;
    int64_t depth;
    int64_t *ends;
    int64_t n, grains;
};

/* Splits each grain of the share of n seeds into equal pieces of at most `most` seeds. If all grains are
 * empty, there is no piece. share NULL: the whole batch, as one grain. */
PST_API void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most,
                             const struct pst_splits_share *share);
/* The grain of the next piece. */
PST_API int64_t pst_splits_grain(const struct pst_splits *p);
/* Returns the next piece without removing it. False: there is none. */
PST_API bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last);
/* Removes the next piece. */
PST_API void pst_splits_pop(struct pst_splits *p);
/* Halves the next piece, and splits all later ones of its grain to that size, because they would probably not
 * fit either. False: the next piece is a single seed. */
PST_API bool pst_splits_split(struct pst_splits *p);

/* ---- a batch that was sampled whole ----------------------------------------------------------------- */

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
