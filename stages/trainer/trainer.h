/* trainer.h: the state of the trainer stage, for its parts: trainer.c (ports, parameters, events),
 * figures.c, open.c and report.c.
 *
 * Owner: the runtime, which allocates it. Threads: one. */
#ifndef PST_TRAINER_H
#define PST_TRAINER_H

#include "common/stage.h"
#include "stages/lib/gnn/eval.h"
#include "stages/lib/gnn/state.h"
#include "stages/lib/links/heads.h"
#include "stages/lib/links/hits.h"
#include "stages/trainer/grains.h"
#include "stages/trainer/inputs.h"
#include "stages/trainer/part_rows.h"
#include "stages/trainer/recipe.h"
#include "stages/trainer/targets.h"

/* A micro-batch whose figures are still to come, or have just come. */
struct pst_trainer_step {
    uint64_t batch, batch_in_epoch, batch_seeds;
    uint32_t micro, epoch;
};

struct trainer {
    struct pst_dataset ds;
    struct pst_device device;
    struct pst_inputs inputs;
    struct pst_trainer_targets targets;
    struct pst_trainer_recipe recipe;
    struct pst_gnn_types types;       /* of the dataset; only models of relations need these two */
    struct pst_gnn_typed_batch typed; /* the current batch, by relation */
    struct pst_gnn_config config;     /* most of it is filled from the parameters */
    int threads;                      /* 0: as many as cores */
    uint64_t eval_memory;
    const char *split;
    enum pst_twin_precision precision;
    double device_s; /* time of steps, with the waits for the device, in seconds */
    struct pst_gnn_model model;
    struct pst_trainer_step open[PST_GNN_OPEN_MAX]; /* step i of the model, from 0 on, is in i % that */
    bool later;       /* figures are read when the next step is on the queue: pst_trainer_later */
    bool idle;        /* the timer has fired since the last frame */
    bool named_batch; /* an error's message already says which batch it belongs to */
    struct pst_gnn_eval eval;
    struct pst_links_hits hits; /* loss link: measures the outputs of the evaluation */
    struct pst_links_hits_sink hits_sink;
    int64_t hits_at; /* the parameter `hits` */
    bool mlp, learned;
    int64_t input_dim;
    struct pst_gnn_identity identity;
    bool dataset_open, model_open;
    double weight_decay;
    int64_t eval_every, checkpoint_every, keep;
    struct pst_gnn_training done; /* up to the last completed batch: for checkpoints */
    struct pst_gnn_training now;  /* and with what the current batch has added */
    bool gradients;               /* the current batch has added gradients */
    struct pst_trainer_grains grains;
    struct pst_trainer_part_rows part_rows; /* with a part of a cut dataset: for the evaluation */
    int64_t grain_count;                    /* the parameter `grains` */
    enum pst_trainer_reduce reduce;
    int replica;
    bool alone; /* another replica has left, because the run is ending: nothing more is trained */
    uint64_t batches_in_epoch;
    double clock; /* when time was last added to the current epoch */
    struct {
        uint64_t batches, seeds;
        /* without the first batch, which warms up: */
        double train_s; /* training and updating */
        double span_s;  /* the epochs' time, with waiting, without evaluations and checkpoints */
    } total;            /* of this process */
};

/* The stage's open and close. */
PST_MUST_USE pst_rc pst_trainer_open(struct pst_stage *self);
void pst_trainer_close(struct pst_stage *self);
/* Checks, once the recipe is open, that the metric can be measured on the validation split. Warns of what
 * else cannot be measured. PST_E_ARG: the metric was chosen, and is not defined there. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_trainer_check_measurable(struct pst_stage *self, const struct trainer *t);
/* The name of the precision of matrix products: a choice of the parameter. */
const char *pst_trainer_precision(const struct trainer *t);
/* Whether the model has weights for each relation of a typed graph. */
bool pst_trainer_is_typed(const struct trainer *t);

/* figures.c: the figures (loss, counts) of steps. On a GPU they are read when the next step is on the queue,
 * so that the GPU does not idle meanwhile. */

/* Whether this trainer may do so: nothing on the host is used by two batches in turn. */
bool pst_trainer_later(struct pst_stage *self, const struct trainer *t);
/* Puts a step on the queue, whose figures pst_trainer_settle takes. */
PST_MUST_USE pst_rc pst_trainer_put(struct trainer *t, const struct pst_trainer_step *step,
                                    const struct pst_gnn_batch *batch);
/* Takes the figures of steps, the oldest first, until at most `most` steps are open, and adds them to the
 * epoch. Adds the time to that of training. An error names the step's batch and micro-batch. */
PST_MUST_USE pst_rc pst_trainer_settle(struct trainer *t, uint64_t most);
/* Checks the figures of a step, and adds them to the epoch. PST_E_ARG: training has diverged. */
PST_MUST_USE pst_rc pst_trainer_note(struct trainer *t, const struct pst_trainer_step *step,
                                     const struct pst_gnn_figures *figures);
/* Only checks them. */
PST_MUST_USE pst_rc pst_trainer_check_loss(const struct trainer *t, const struct pst_trainer_step *step,
                                           const struct pst_gnn_figures *figures);
/* After each frame: if there is no frame with which the GPU could go on, takes the figures that are open. So
 * the time of a batch does not depend on when the next one comes. */
PST_MUST_USE pst_rc pst_trainer_on_timer(struct pst_stage *self, struct trainer *t);
/* Adds the time since `before` to that of training. */
void pst_trainer_spent(struct trainer *t, double before);

/* Reports the current epoch. val: the accuracy (with several labels, micro-F1) of validation, negative if it
 * was not measured. by: the metric there, or PST_METRIC_UNKNOWN. */
PST_MUST_USE pst_rc pst_trainer_report_epoch(struct pst_stage *self, const struct trainer *t, double val,
                                             double by);
/* At the end of the run: the figures of the model; where the time went. */
PST_MUST_USE pst_rc pst_trainer_report_result(struct pst_stage *self, struct trainer *t);
PST_MUST_USE pst_rc pst_trainer_report_work(struct pst_stage *self, const struct trainer *t);

#endif
