/* heads.h: the heads that score pairs of vertices (struct pst_gnn_head of model.h), for link prediction. y_u
 * and y_v are the outputs of the model's last layer for both ends of a pair.
 *
 *   dot   score = y_u . y_v
 *   mlp   score = dropout(relu((y_u * y_v) W + b)) . w + c, with the elementwise product and a square W, as
 * in OGB's examples (Hu et al. 2020)
 *
 * The loss of a batch is the mean over its edges of -log(sigmoid(score)), plus the mean over its negatives of
 * -log(1 - sigmoid(score)).
 *
 * Owner: a head is constant. Threads: its functions run in a pass of the model (pass.h). Sums are made in an
 * order that depends only on the batch, so results do not depend on the number of threads. */
#ifndef PST_HEADS_H
#define PST_HEADS_H

#include "stages/lib/gnn/model.h"

PST_BEGIN_DECLS

/* NULL for PST_GNN_SCORE_NONE. */
PST_API const struct pst_gnn_head *pst_links_head(enum pst_gnn_score score);

PST_END_DECLS
#endif
