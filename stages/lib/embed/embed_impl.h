/* embed_impl.h: the parts of a step. Owner: none; all memory is the caller's. Threads: any number, each with
 * its own memory. */
#ifndef PST_EMBED_IMPL_H
#define PST_EMBED_IMPL_H

#include "stages/lib/embed/embed.h"

/* m queries q[m][d] against n candidates x[n][d]. Distances read their transpose xt[d][n] instead. */
struct pst_embed_tile {
    enum pst_embed_similarity similarity;
    int64_t m, n, d;
    const pst_real *q, *x, *xt;
    pst_real *scores; /* [m][n] */
    pst_real *g;      /* [m][n]: gradient of the loss with respect to the scores */
};

/* Sets t->scores. */
void pst_embed_scores(const struct pst_embed_tile *t);
/* Sets dq[m][d], and adds to dx[n][d]. */
void pst_embed_scores_grad(const struct pst_embed_tile *t, pst_real *dq, pst_real *dx);

/* One query and one candidate: the score; then, given the gradient g of the score, adds to dq and sets dx. */
pst_real pst_embed_score(enum pst_embed_similarity similarity, const pst_real *q, const pst_real *x,
                         int64_t d);
void pst_embed_score_grad(enum pst_embed_similarity similarity, const pst_real *q, const pst_real *x,
                          int64_t d, pst_real score, pst_real g, pst_real *dq, pst_real *dx);

/* The loss of one edge and side. f: score of the edge. ids[n]: the negatives' positions, NULL if they are 0
 * to n - 1. Those equal to `own` do not count. Sets g[n] and *df; overwrites the scores that do not count. */
double pst_embed_loss_row(const struct pst_embed_plan *plan, pst_real f, pst_real *scores, int64_t n,
                          const uint32_t *ids, uint32_t own, pst_real *g, pst_real *df);

/* The plan's regularisation of a row: returns its loss, and adds its gradient. */
double pst_embed_regularise(const struct pst_embed_plan *plan, const pst_real *x, int64_t d, bool complex,
                            pst_real *grad);

#endif
