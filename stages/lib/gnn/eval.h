/* eval.h: runs a model over a whole dataset with all neighbours, layer by layer (Hamilton et al. 2017; DGL
 * and OGB go by layers too), so each vertex is computed once per layer. The trainer's evaluation and
 * `penstock infer` both use it.
 *
 * The mean and the products commute. So features are read from disk once, in order, and only their
 * products with the first layer's weights are kept: 2 x vertices x hidden reals. If these are too large
 * for the memory that is allowed, they go to unlinked files, and a mean is made in parts: for each range
 * of destinations whose sums fit in memory, the rows of all sources are read once, in order. No row is
 * read at random. The result depends neither on memory nor on threads, to the bit: products are made for
 * fixed blocks of rows, and sums in the order of the edges.
 *
 * Owner: pst_gnn_eval_open fills what the caller owns; pst_gnn_eval_close releases it. Threads: one at a
 * time; the model's team helps. */
#ifndef PST_EVAL_H
#define PST_EVAL_H

#include "common/util/progress.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/gnn/model.h"
#include "stages/lib/gnn/spill/spill_rows.h"
#include "stages/lib/learning/fit.h"
#include "stages/lib/learning/metric.h"

/* Gets the output of layer `layer` for vertices first..first+n: rows of the layer's width, ld apart. It is
 * called on the threads of the team, on several at a time, once for each vertex and layer, in no order. */
typedef pst_rc pst_gnn_eval_sink(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows,
                                 int64_t ld);

struct pst_gnn_eval_options {
    const char *spill_dir; /* for unlinked files of what does not fit in memory_bytes */
    uint64_t memory_bytes;
    struct pst_progress
        *progress; /* if not NULL, it is shown, and a signal ends the run with PST_E_INTERRUPTED */
    /* NULL: the dataset has all features. Else brings rows first to first + n - 1 to out, of stride_bytes
     * each; called on the caller's thread, in the order of the vertices. Not for models of relations. */
    pst_rc (*rows)(void *ctx, int64_t first, int64_t n, void *out);
    void *rows_ctx;
    pst_gnn_eval_sink *sink; /* NULL: the caller wants only accuracies */
    void *sink_ctx;
    enum pst_metric_kind metric; /* a figure of the validation and the test split, beside the accuracy */
};

struct pst_gnn_eval_failure { /* the first failure among a job's tasks, brought to the thread that runs the
                                 job */
    pthread_mutex_t lock;
    _Atomic bool there;
    pst_rc rc;
    char text[4096];
};

struct pst_gnn_eval {
    const struct pst_dataset *ds; /* borrowed */
    struct pst_gnn_eval_options options;
    struct pst_csc graph;
    bool learned;         /* the model has the inputs of all vertices, so features are not read */
    enum pst_dtype dtype; /* of features */
    struct pst_row_files features;
    char *fetched; /* rows of a job, if options.rows brings them; else NULL */
    uint64_t fetched_bytes;
    bool drop;     /* features are larger than the memory allowed: do not leave them in the page cache */
    int threads;   /* each has its part of `buffers` */
    char *buffers; /* a block of features as stored, the same as reals, two blocks of activations */
    size_t worker_bytes, wide_at, block_at[2];
    int64_t state_reals;    /* GAT: of a destination's heads */
    pst_real *left, *right; /* GAT: scores of all vertices, one for each head */
    int64_t ld;             /* from one row of a block to the next: the widest layer */
    struct pst_gnn_rows kept,
        projected;             /* a layer's output; its product with W_neigh. Unused without the graph */
    struct pst_gnn_rows added; /* models of relations: the sum of the terms so far */
    bool spilled;
    char *work; /* sums and cursors of a range of destinations; if spilled, also part of the sources' rows */
    size_t work_bytes;
    uint64_t
        memory_bytes; /* how much all of the above can take; more than was allowed if that was too little */
    pst_real *scale, *offset;         /* batch norm with fixed statistics, of each layer */
    int32_t *predicted;               /* the class of each vertex; NULL with multilabel and regression */
    uint8_t *labels;                  /* multilabel: vertices x classes, 1: predicted; else NULL */
    float *fitted;                    /* regression: vertices x columns, the outputs; else NULL */
    uint64_t predicted_bytes;         /* of any of the three */
    struct pst_fit fit[3];            /* regression: of the last run, by split */
    struct pst_metric metric[3];      /* by split; none for PST_TRAIN */
    double metric_of[3];              /* of the last run; PST_METRIC_UNKNOWN: none */
    uint64_t score_bytes;             /* of all metrics */
    char *ranking;                    /* scratch memory of each thread, and the figures of the columns */
    size_t rank_bytes, ranking_bytes; /* of one thread; of all */
    char what[48];                    /* what is being done: progress shows it */
    struct pst_gnn_eval_failure failure;
};

/* Sizes and maps everything for models of this configuration. ds must outlive eval. If the memory that is
 * allowed is too little, it takes more (see memory_bytes). PST_E_NOMEM, PST_E_IO, PST_E_UNSUPPORTED: the
 * features' type. */
PST_API PST_MUST_USE pst_rc pst_gnn_eval_open(struct pst_gnn_eval *eval, const struct pst_gnn_config *config,
                                              const struct pst_dataset *ds,
                                              const struct pst_gnn_eval_options *options);
PST_API void pst_gnn_eval_close(struct pst_gnn_eval *eval);

/* accuracy[PST_TRAIN..PST_TEST]: the share of a split's labelled vertices that are predicted right; with
 * multilabel, micro-F1 over the vertices' known labels. -1: there are none, as with regression, whose figures
 * are in eval->fit. PST_E_IO; PST_E_FORMAT: ids of
 * the graph or a split are out of range; any error of the sink. */
PST_API PST_MUST_USE pst_rc pst_gnn_eval_run(struct pst_gnn_eval *eval, const struct pst_gnn_model *model,
                                             double accuracy[3]);

#endif
