/* ranks.h: exact ranks of edges' ends among all vertices, which may come in blocks (partitions). Bordes et
 * al., NIPS 2013, for raw and filtered ranks.
 *
 * A score is a float64 sum, in column order, over a query and a row in single precision. A product in single
 * precision decides only what its error bound allows; other scores are summed again. So ranks depend neither
 * on the blocks nor on the product. A NaN counts as above everything: a model that diverged has the worst
 * rank.
 *
 * Owner: all memory is the caller's. Threads: as for the workspace. */
#ifndef PST_EMBED_RANKS_H
#define PST_EMBED_RANKS_H

#include "stages/lib/embed/embed.h"

/* The score of a candidate: a float64 sum in column order over q[d] and x[d]. */
PST_API double pst_embed_exact_score(enum pst_k_embed_similarity similarity, const pst_real *q,
                                     const pst_real *x, int64_t d);

/* What is counted for one query: candidates other than the true end. */
struct pst_embed_count {
    double score;               /* of the true end */
    int64_t above[2], equal[2]; /* 0: raw; 1: filtered, without known ends */
};

/* A block of candidates. */
struct pst_embed_candidates {
    const pst_real *x;          /* [n][d] */
    int64_t n;                  /* at least 1 */
    const int64_t *own;         /* [queries]: the row of the true end, -1 if it is not in this block */
    const int64_t *known_start; /* [queries + 1]: known[known_start[i]] and so on are query i's known ends */
    const uint32_t *known; /* rows of this block, each at most once a query; the true end may be among them */
};

/* Begins the counts of m queries q[m][d] (struct pst_embed_model makes them), given their true ends' rows. */
PST_API void pst_embed_count_begin(enum pst_k_embed_similarity similarity, const pst_real *q,
                                   const pst_real *own, int64_t m, int64_t d, struct pst_embed_count *counts);
/* Counts the candidates of one block. Each vertex must come in exactly one block. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_embed_count_block(enum pst_k_embed_similarity similarity, const pst_real *q,
                                                  int64_t m, int64_t d, const struct pst_embed_candidates *c,
                                                  struct pst_embed_workspace *w,
                                                  struct pst_embed_count *counts);

enum pst_embed_tie { PST_EMBED_TIE_MEAN, PST_EMBED_TIE_OPTIMISTIC, PST_EMBED_TIE_PESSIMISTIC };

/* The rank, from 1. With the mean of ties it can end in a half. */
PST_API double pst_embed_rank(const struct pst_embed_count *c, bool filtered, enum pst_embed_tie tie);

/* Sums over ranks; divide by n for the means. Begins as 0. hits: ranks of at most 1, 3, 10. */
struct pst_embed_ranks {
    int64_t n, hits[3];
    double reciprocal, rank;
};

PST_API void pst_embed_ranks_add(struct pst_embed_ranks *sum, double rank);

#endif
