/* hits.h: how well a model predicts the validation and test edges of a dataset: Hits@K, as OGB measures it
 * (Hu et al. 2020, section 5): the share of the edges whose score is above the K-th largest score of the
 * negatives, which are the same for all edges of the split. The outputs of all vertices are in memory.
 *
 * Owner: pst_links_hits_open fills what the caller owns; pst_links_hits_close releases it, and accepts a
 * zeroed struct. Threads: one at a time; the model's team helps. */
#ifndef PST_HITS_H
#define PST_HITS_H

#include "common/store/store.h"
#include "stages/lib/gnn/model.h"

PST_BEGIN_DECLS

struct pst_links_hits {
    const struct pst_dataset *ds; /* borrowed */
    int64_t k;
    int64_t ld;         /* from one row of outputs to the next */
    pst_real *outputs;  /* of the last layer, for all vertices */
    size_t bytes;       /* of the outputs */
    pst_real *score[2]; /* of edges; of negatives */
    pst_real *scratch;  /* of each thread */
    int64_t scratch_reals;
    double of[3]; /* by split; PST_METRIC_UNKNOWN: not measured */
};

/* Whether a split (PST_VAL or PST_TEST) has edges and negatives. */
PST_API bool pst_links_hits_measurable(const struct pst_dataset *ds, int split);

/* model: initialised, with a head. PST_E_ARG: a split has fewer than k negatives. PST_E_FORMAT: an end is not
 * a vertex; the message names the row. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_links_hits_open(struct pst_links_hits *h, const struct pst_dataset *ds,
                                                const struct pst_gnn_model *model, int64_t k);
PST_API void pst_links_hits_close(struct pst_links_hits *h);

/* A pst_gnn_eval_sink: takes the outputs of the last layer. ctx: the struct pst_links_hits. */
struct pst_links_hits_sink {
    struct pst_links_hits *hits;
    int layer; /* the last one */
};
PST_API pst_rc pst_links_hits_take(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows,
                                   int64_t ld);

/* After an evaluation over all vertices: fills h->of. */
PST_API void pst_links_hits_measure(struct pst_links_hits *h, const struct pst_gnn_model *model);

/* The share of n scores that are above the k-th largest of m others, which are reordered. 1 <= k <= m. */
PST_API double pst_links_hits_share(const pst_real *score, int64_t n, pst_real *other, int64_t m, int64_t k);

PST_END_DECLS
#endif
