/* embed_rows.h: the kernels of embeddings, one row at a time, for callers that have their own threads and
 * their own models. Formulas and papers: kernels/embedding.h.
 *
 * Owner: the caller owns all memory. Threads: functions have no state. */
#ifndef PST_EMBED_ROWS_H
#define PST_EMBED_ROWS_H

#include "kernels/embedding.h"

/* q(d) = the query of an anchor(d) and a relation. */
typedef void pst_cpu_embed_query(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d,
                                 bool backwards);
/* Given dq(d), the gradient of q: sets those of the anchor and of the relation. */
typedef void pst_cpu_embed_query_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel,
                                      int64_t d, bool backwards, pst_real *d_anchor, pst_real *d_rel);
PST_API pst_cpu_embed_query pst_cpu_embed_dot, pst_cpu_embed_distmult, pst_cpu_embed_complex,
    pst_cpu_embed_transe, pst_cpu_embed_rotate;
PST_API pst_cpu_embed_query_grad pst_cpu_embed_dot_grad, pst_cpu_embed_distmult_grad,
    pst_cpu_embed_complex_grad, pst_cpu_embed_transe_grad, pst_cpu_embed_rotate_grad;
struct pst_cpu_embed_model {
    pst_cpu_embed_query *query;
    pst_cpu_embed_query_grad *query_grad;
};
PST_API struct pst_cpu_embed_model pst_cpu_embed_model_of(enum pst_k_embed_model model);

/* Dropout: x(d) is multiplied by 0 or by 1 / (1 - dropout). item: see struct pst_k_embed_side. */
PST_API void pst_cpu_embed_drop(const struct pst_rng_stream *draws, uint64_t item, double dropout, int64_t d,
                                pst_real *x);

/* One query and one candidate: the score; then, given the gradient g of the score, adds to dq and sets dx. */
PST_API pst_real pst_cpu_embed_score(enum pst_k_embed_similarity similarity, const pst_real *q,
                                     const pst_real *x, int64_t d);
PST_API void pst_cpu_embed_score_grad(enum pst_k_embed_similarity similarity, const pst_real *q,
                                      const pst_real *x, int64_t d, pst_real score, pst_real g, pst_real *dq,
                                      pst_real *dx);

/* x(n) becomes e^(x - top), where *top is set to the largest x. Returns their sum. */
PST_API double pst_cpu_embed_exponentials(pst_real *x, int64_t n, pst_real *top);

/* The penalty of a row of d numbers: returns its loss, and adds its gradient. */
PST_API double pst_cpu_embed_penalty(const struct pst_k_embed_penalty *penalty, const pst_real *x, int64_t d,
                                     bool complex, pst_real *grad);

/* The score of a candidate as ranks compare it: a sum in double precision, in the order of columns. */
PST_API double pst_cpu_embed_exact_score(enum pst_k_embed_similarity similarity, const pst_real *q,
                                         const pst_real *x, int64_t d);
PST_API double pst_cpu_embed_norm(const pst_real *x, int64_t d);

/* Updates one row. */
PST_API void pst_cpu_embed_update(const struct pst_k_embed_table *table, pst_real *x, pst_real *state,
                                  const pst_real *grad);

#endif
