/* heads_impl.h: what both heads share. Owner: the pass. Threads: tasks of the model's team. */
#ifndef PST_HEADS_IMPL_H
#define PST_HEADS_IMPL_H

#include "stages/lib/gnn/pass.h"
#include "stages/lib/links/heads.h"

/* Pairs of one task and product: fixed, so that results depend on nothing else. */
enum { PST_LINKS_BLOCK = 128 };

extern const struct pst_gnn_head pst_links_head_dot, pst_links_head_mlp;

/* a . b; 16 partial sums, so that it can be made in vectors. */
pst_real pst_links_dot(const pst_real *a, const pst_real *b, int64_t n);

/* The loss of pairs at..at+n, whose scores become the gradients of the loss. Adds to *f. */
void pst_links_loss(const struct step *s, int64_t at, int64_t n, pst_real *score,
                    struct pst_gnn_block_figures *f);

/* The outputs of the last layer: rows of `dim` columns, *ld apart. */
const pst_real *pst_links_outputs(const struct step *s, int64_t *dim, int64_t *ld);

/* s->grad += what pairs give to their ends, for all columns, in the order of the pairs: with dz (pairs x ld)
 * dz * the other end; with dz NULL, g of the pair times the other end. Clears s->grad first. */
void pst_links_scatter(struct step *s, const pst_real *g, const pst_real *dz);

#endif
