/* state.h: the progress of training, and its checkpoints. A resumed run gives the same bits as an
 * uninterrupted one. README.md lists the tensors of a checkpoint.
 *
 * Owner: the trainer. Threads: one. */
#ifndef PST_STATE_H
#define PST_STATE_H

#include "stages/lib/gnn/model.h"
#include "stages/lib/learning/fit.h"
#include "stages/lib/learning/plateau.h"

/* Counts only completed batches. The current batch is counted separately until its last micro-batch, so a
 * checkpoint between two micro-batches has the state after the previous batch. */
struct pst_gnn_training {
    uint64_t next_batch; /* the first batch that is not in the weights */
    uint64_t epoch;
    uint64_t digest; /* chain over the minibatches' digests */
    /* The current epoch. */
    double loss; /* sum over its seeds */
    int64_t seeds, correct, counted;
    double seconds;
    struct pst_plateau_state plateau; /* of the learning rate */
    /* The best epoch so far, by the metric on the validation split: without one, the accuracy. */
    int64_t best_epoch;                         /* -1: none was evaluated */
    double best_val;                            /* in the metric; PST_METRIC_UNKNOWN: none */
    double best_test, final_test;               /* accuracies; with multilabel, micro-F1; -1: none */
    double best_test_metric, final_test_metric; /* PST_METRIC_UNKNOWN: none */
    struct pst_fit best_fit, final_fit;         /* of the test split, with regression */
    uint64_t best_batch; /* number of the best checkpoint that was kept; UINT64_MAX: none */
};

PST_API void pst_gnn_training_init(struct pst_gnn_training *progress);

/* What a checkpoint must agree with: dataset (its digest), seed and the shape of the model. */
struct pst_gnn_identity {
    const char *dataset;
    const char *run; /* of pst_run_identity; NULL: it is not kept. Compared before the run begins */
    char model[256];
};
PST_API void pst_gnn_identity_of(struct pst_gnn_identity *id, const struct pst_gnn_model *model,
                                 const char *dataset_digest);

/* Writes RUN_DIR/checkpoints/<next_batch>.safetensors. Removes older checkpoints except the last `keep`
 * and the best one. PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_gnn_state_save(const char *run_dir, int64_t keep,
                                               const struct pst_gnn_model *model,
                                               const struct pst_gnn_training *progress,
                                               const struct pst_gnn_identity *id);
/* PST_E_ARG: the checkpoint is of another dataset, seed or model. PST_E_UNSUPPORTED: another version of
 * Penstock wrote it, in another format. PST_E_FORMAT, PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_gnn_state_load(const char *path, struct pst_gnn_model *model,
                                               struct pst_gnn_training *progress,
                                               const struct pst_gnn_identity *id);

/* PST_E_UNSUPPORTED: it is a checkpoint of the trainer, of another version of Penstock. PST_OK for any other
 * file. */
struct pst_checkpoint;
PST_API PST_MUST_USE pst_rc pst_gnn_state_check_version(const struct pst_checkpoint *ck);

/* Describes the model of a checkpoint: fills all of config but threads and rows_max, and the dataset's
 * digest. PST_E_FORMAT: it is not a checkpoint of this trainer. PST_E_UNSUPPORTED: another version of
 * Penstock wrote it, in another format. */
PST_API PST_MUST_USE pst_rc pst_gnn_state_describe(const char *path, struct pst_gnn_config *config,
                                                   char dataset[17]);

/* Finds a checkpoint of a run. best: the best validated epoch that was kept, or the last one if none was;
 * else the last one. warning, if not NULL, gets a text about damaged ones, which are passed over.
 * PST_E_STATE: there is none. */
PST_API PST_MUST_USE pst_rc pst_gnn_state_find(const char *run_dir, bool best, char path[PST_PATH_MAX],
                                               char *warning, size_t warning_size);

#endif
