/* eval.h: a model over a whole dataset with all neighbours, layer by layer (Hamilton et al. 2017; the way of
 * doing it by layers is DGL's and OGB's): each vertex is computed once a layer. Training's evaluation and
 * `penstock infer` are both this.
 *
 * The mean and the products commute, so features are streamed from disk once, in order, and only their
 * products with the first layer's weights are kept: 2 x vertices x hidden reals. Where those are too large
 * for the memory allowed, they are in unlinked files, and a mean is made of parts: for each range of
 * destinations whose sums fit in memory, all sources' rows go by once, in order. No row is read at random.
 * The bits depend neither on memory nor on threads: products are always made for the same blocks of rows,
 * and sums in the order of the edges.
 *
 * Owner: pst_gnn_eval_open fills what the caller owns; pst_gnn_eval_close releases it. Threads: one at a
 * time, which the model's team helps. */
#ifndef PST_EVAL_H
#define PST_EVAL_H

#include "common/util/progress.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/gnn/model.h"
#include "stages/lib/gnn/spill_rows.h"

/* Gets what layer `layer` makes of vertices first..first+n: rows of its width, ld apart. Called on the team's
 * threads, several at a time, for each vertex and layer once, in no order. */
typedef pst_rc pst_gnn_eval_sink(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows,
                                 int64_t ld);

struct pst_gnn_eval_options {
    const char *spill_dir; /* for unlinked files of what memory_bytes do not hold */
    uint64_t memory_bytes;
    struct pst_progress *progress; /* NULL: none; else a signal ends a run with PST_E_INTERRUPTED */
    pst_gnn_eval_sink *sink;       /* NULL: only accuracy is of interest */
    void *sink_ctx;
};

struct pst_gnn_eval_failure { /* the first of a job's tasks, carried from its thread */
    pthread_mutex_t lock;
    _Atomic bool there;
    pst_rc rc;
    char text[4096];
};

struct pst_gnn_eval {
    const struct pst_dataset *ds; /* borrowed */
    struct pst_gnn_eval_options options;
    struct pst_csc graph;
    enum pst_dtype dtype; /* of features */
    struct pst_row_files features;
    bool drop;     /* features are larger than the limit: do not leave them in the page cache */
    int threads;   /* each has buffers of its own, one after another in `buffers`: */
    char *buffers; /* a block of features as stored, the same widened, two blocks of activations */
    size_t worker_bytes, wide_at, block_at[2];
    int64_t ld; /* of blocks: the widest layer */
    struct pst_gnn_rows kept,
        projected; /* a layer's output; its product with W_neigh. Not without the graph */
    bool spilled;
    char *work; /* sums and cursors of a range of destinations; a part of the sources' rows, if spilled */
    size_t work_bytes;
    uint64_t memory_bytes;    /* what all of the above may take; above the limit where that is too small */
    pst_real *scale, *offset; /* batch norm with fixed statistics, for each layer */
    int32_t *predicted;
    char what[48]; /* is being done: progress shows it */
    struct pst_gnn_eval_failure failure;
};

/* Sizes and maps everything for models of this configuration; ds must outlive eval. A limit that is too small
 * is passed (see memory_bytes). */
PST_MUST_USE pst_rc pst_gnn_eval_open(struct pst_gnn_eval *eval, const struct pst_gnn_config *config,
                                      const struct pst_dataset *ds,
                                      const struct pst_gnn_eval_options *options);
void pst_gnn_eval_close(struct pst_gnn_eval *eval);

/* accuracy[PST_TRAIN..PST_TEST]: the share of a split's labelled vertices that are predicted right; -1: the
 * split has none. Errors: PST_E_IO; PST_E_FORMAT for a graph or split whose ids are out of range; the sink's.
 */
PST_MUST_USE pst_rc pst_gnn_eval_run(struct pst_gnn_eval *eval, const struct pst_gnn_model *model,
                                     double accuracy[3]);

#endif
