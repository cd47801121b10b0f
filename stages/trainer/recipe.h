/* recipe.h: how the trainer trains, apart from the model: the optimizer's settings, the learning rate of a
 * batch, the weights of classes in the loss, and the metric by which the best epoch is chosen.
 *
 * Owner: the trainer, which lends its device and dataset. Threads: one. */
#ifndef PST_RECIPE_H
#define PST_RECIPE_H

#include "common/store/store.h"
#include "stages/lib/gnn/state.h"
#include "stages/lib/learning/metric.h"
#include "stages/lib/learning/schedule.h"

#define PST_TRAINER_METRICS /* as enum pst_metric_kind */                                                    \
    "auto|accuracy|micro_f1|macro_f1|roc_auc|average_precision|mse|mae|r2"

enum pst_trainer_loss {
    PST_TRAINER_CROSS_ENTROPY,
    PST_TRAINER_MSE,
    PST_TRAINER_LINK
}; /* as in the parameter `loss` */

struct pst_trainer_recipe {
    /* Parameters. */
    struct pst_schedule schedule;
    int64_t period, cosine_epochs, patience;
    double label_smoothing;
    const char *class_weights; /* "", "balanced", or numbers */
    enum pst_trainer_loss loss;
    enum pst_metric_kind metric; /* PST_METRIC_NONE: that of the loss (pst_trainer_recipe_metric) */
    /* Made by open. */
    pst_real *weights; /* of the classes, on the host; NULL: all are equal, and labels are not smoothed */
    double last_rate;  /* of the last batch */
};

/* Checks the parameters, and fills config->loss. epochs: of the run. PST_E_ARG, PST_E_NOMEM. The device must
 * have its queue. */
PST_MUST_USE pst_rc pst_trainer_recipe_open(struct pst_trainer_recipe *recipe, struct pst_gnn_config *config,
                                            const struct pst_dataset *ds, int64_t epochs,
                                            struct pst_device *device);
void pst_trainer_recipe_close(struct pst_trainer_recipe *recipe);

/* The learning rate of the batch `progress->next_batch`. */
double pst_trainer_recipe_rate(struct pst_trainer_recipe *recipe, const struct pst_gnn_training *progress,
                               uint64_t batches_in_epoch);
/* The name of the metric that decides which epoch is the best. Whether it improves when it falls. */
const char *pst_trainer_recipe_metric(const struct pst_trainer_recipe *recipe,
                                      const struct pst_gnn_config *config);
bool pst_trainer_recipe_falls(const struct pst_trainer_recipe *recipe, const struct pst_gnn_config *config);

/* At the end of an epoch, or only of those that are evaluated: a plateau may lower the rate. val: what the
 * validation split has in the metric; falls: the metric improves when it falls. PST_METRIC_UNKNOWN: it was
 * not evaluated, so the training loss counts. */
void pst_trainer_recipe_epoch(const struct pst_trainer_recipe *recipe, struct pst_gnn_training *progress,
                              double val, bool falls);

#endif
