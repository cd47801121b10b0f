/* eval.h: accuracy over a whole dataset with all neighbours, layer by layer (Hamilton et al. 2017; the way
 * of doing it by layers is DGL's and OGB's): each vertex is computed once a layer.
 *
 * The mean and the products commute, so features are streamed from disk once, in order, and only their
 * products with the first layer's weights are kept: 2 x vertices x hidden reals, in memory, or in an
 * unlinked file above a limit. The result does not depend on how much is read at a time: products are
 * always made for the same blocks of rows.
 *
 * Owner: pst_eval_open fills what the caller owns; pst_eval_close releases it. Threads: one at a time. */
#ifndef PST_EVAL_H
#define PST_EVAL_H

#include "../../common/store/store.h"
#include "model.h"

#pragma GCC visibility push(hidden) /* of this stage alone: no other library's symbol may stand in */

struct pst_eval {
    const struct pst_dataset *ds; /* borrowed */
    struct pst_csc graph;
    enum pst_feature_kind kind;
    int fd;
    bool drop;          /* features are larger than the limit: do not leave them in the page cache */
    int64_t chunk_rows; /* read at a time: whole blocks */
    char *chunk;        /* of chunk_rows rows as stored */
    size_t chunk_bytes;
    pst_real *wide;      /* one block of features, widened; NULL if they are floats */
    pst_real *block[2];  /* one block of activations */
    int64_t ld;          /* of blocks: the widest layer */
    pst_real *kept;      /* a layer's output, (vertices, ld_kept); NULL without the graph */
    pst_real *projected; /* its product with W_neigh, (vertices, ld) */
    int64_t ld_kept;
    size_t stored_bytes; /* of both, mapped together */
    bool spilled;
    pst_real *scale, *offset; /* batch norm with fixed statistics */
    int32_t *predicted;
};

/* Sizes and maps everything for models of this configuration. Above memory_bytes of activations, they go to
 * a file in spill_dir. chunk_bytes: read at a time. ds must outlive eval. */
PST_MUST_USE pst_rc pst_eval_open(struct pst_eval *eval, const struct pst_model_config *config,
                                  const struct pst_dataset *ds, const char *spill_dir, uint64_t memory_bytes,
                                  uint64_t chunk_bytes);
void pst_eval_close(struct pst_eval *eval);

/* accuracy[PST_TRAIN..PST_TEST]: the share of a split's labelled vertices that are predicted right; -1: the
 * split has none. Errors: PST_E_IO; PST_E_FORMAT for a graph or split whose ids are out of range. */
PST_MUST_USE pst_rc pst_eval_run(struct pst_eval *eval, const struct pst_model *model, double accuracy[3]);

#pragma GCC visibility pop
#endif
