/* recipe.c: the optimizer's settings, the learning rate, the weights of classes, the metric. */
#include "stages/trainer/recipe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define WEIGHT_MAX 1e6 /* of a class */

/* ---- weights of classes -------------------------------------------------------------------------- */

/* In inverse proportion to the classes of the training split: vertices / (classes * vertices of the class).
 * So the mean over the vertices is 1. A class without vertices gets 0. */
static pst_rc balance(struct pst_trainer_recipe *r, const struct pst_dataset *ds, int64_t classes)
{
    const struct pst_array *split = &ds->split[PST_TRAIN];
    const int32_t *labels = ds->labels.map;
    const int64_t *ids = split->map, n = ids ? split->shape[0] : 0;
    int64_t labelled = 0, *counts = calloc((size_t)classes, sizeof *counts);
    if (!counts)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the vertices of %" PRId64 " classes",
                        classes);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= ds->vertices || labels[ids[i]] < 0 || labels[ids[i]] >= classes)
            continue;
        counts[labels[ids[i]]]++;
        labelled++;
    }
    for (int64_t c = 0; c < classes; c++)
        r->weights[c] = counts[c] ? (pst_real)((double)labelled / ((double)classes * (double)counts[c])) : 0;
    free(counts);
    return labelled > 0
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "class_weights is balanced, but no vertex of the training split of %s has a "
                          "label",
                          ds->dir);
}

/* Numbers, separated by commas. */
static pst_rc parse_weights(struct pst_trainer_recipe *r, int64_t classes)
{
    const char *at = r->class_weights;
    double total = 0;
    int64_t n = 0;
    for (bool more = true; more; n++) {
        char *end;
        const double weight = strtod(at, &end);
        if (end == at || (*end != '\0' && *end != ',') || !(weight >= 0 && weight <= WEIGHT_MAX))
            return pst_fail(
                PST_E_ARG,
                "class_weights has \"%.20s\" as the weight of class %" PRId64
                "; expected balanced, or a number from 0 to %g for each class, separated by commas",
                at, n, WEIGHT_MAX);
        if (n < classes)
            r->weights[n] = (pst_real)weight;
        total += weight;
        more = *end == ',';
        at = end + 1;
    }
    if (n != classes)
        return pst_fail(PST_E_ARG,
                        "class_weights has %" PRId64 " weights, but the dataset has %" PRId64
                        " classes: give one weight for each class",
                        n, classes);
    return total > 0
               ? PST_OK
               : pst_fail(PST_E_ARG, "all numbers in class_weights are 0: set at least one weight above 0");
}

/* Where steps are made. */
static pst_rc send_weights(const struct pst_trainer_recipe *r, struct pst_gnn_config *c,
                           struct pst_device *device)
{
    const size_t bytes = (size_t)c->classes * sizeof *r->weights;
    void *at = NULL;
    c->loss.weight = r->weights;
    if (!pst_device_is_cuda(device))
        return PST_OK;
    const pst_rc rc =
        pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, "the weights of the classes", &at);
    if (rc != PST_OK)
        return rc;
    (void)device->twin->copy(device->q, at, r->weights, bytes);
    c->loss.weight = at;
    return pst_device_wait(device);
}

static pst_rc open_loss(struct pst_trainer_recipe *r, struct pst_gnn_config *c, const struct pst_dataset *ds,
                        struct pst_device *device)
{
    const bool given = r->class_weights[0] != '\0', balanced = strcmp(r->class_weights, "balanced") == 0;
    if (!given && r->label_smoothing == 0)
        return PST_OK;
    if (c->regression || c->head)
        return pst_fail(PST_E_ARG, "%s has no effect if loss is %s: leave it out",
                        given ? "class_weights" : "label_smoothing", c->head ? "link" : "mse");
    if (c->multilabel)
        return pst_fail(PST_E_ARG,
                        "%s can be set only if each vertex has one label, but the vertices of %s have "
                        "several labels each: leave it out",
                        given ? "class_weights" : "label_smoothing", ds->dir);
    r->weights = malloc((size_t)c->classes * sizeof *r->weights);
    if (!r->weights)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the weights of %" PRId64 " classes",
                        c->classes);
    for (int64_t k = 0; k < c->classes; k++)
        r->weights[k] = 1;
    const pst_rc rc = balanced ? balance(r, ds, c->classes) : given ? parse_weights(r, c->classes) : PST_OK;
    if (rc != PST_OK)
        return rc;
    c->loss = (struct pst_xent){.smoothing = r->label_smoothing};
    for (int64_t k = 0; k < c->classes; k++)
        c->loss.total += (double)r->weights[k];
    return send_weights(r, c, device);
}

/* ---- the rest ------------------------------------------------------------------------------------ */

static pst_rc check(const struct pst_trainer_recipe *r, const struct pst_gnn_config *c)
{
    if (c->nesterov && !(c->momentum > 0))
        return pst_fail(
            PST_E_ARG,
            "nesterov is true, but momentum is 0: set momentum to a number above 0, or nesterov to false");
    if (r->schedule.kind != PST_SCHEDULE_CONSTANT && r->schedule.rate_min > r->schedule.rate)
        return pst_fail(PST_E_ARG,
                        "rate_min is %g, which is above the learning rate %g: lower rate_min, or raise rate",
                        r->schedule.rate_min, r->schedule.rate);
    return PST_OK;
}

/* The metric must be one of the loss. What is always measured is PST_METRIC_NONE from here on. */
static pst_rc check_metric(struct pst_trainer_recipe *r, const struct pst_gnn_config *c,
                           const struct pst_dataset *ds)
{
    const enum pst_metric_kind usual = c->regression   ? PST_METRIC_MSE
                                       : c->multilabel ? PST_METRIC_MICRO_F1
                                                       : PST_METRIC_ACCURACY;
    if (c->head && r->metric != PST_METRIC_NONE)
        return pst_fail(PST_E_ARG,
                        "metric is %s, which is not defined for the loss link, whose metric is Hits@K: leave "
                        "metric out",
                        pst_metric_name(r->metric));
    if (c->head)
        return PST_OK;
    if (c->regression && r->metric != PST_METRIC_NONE && !pst_metric_fits(r->metric))
        return pst_fail(PST_E_ARG,
                        "metric is %s, which is not defined for the loss mse: set metric to mse, mae or r2",
                        pst_metric_name(r->metric));
    if (!c->regression && pst_metric_fits(r->metric))
        return pst_fail(PST_E_ARG,
                        "metric is %s, which is not defined for the loss cross_entropy: set metric to "
                        "accuracy, micro_f1, macro_f1, roc_auc or average_precision, or set loss to mse",
                        pst_metric_name(r->metric));
    if (c->multilabel && r->metric == PST_METRIC_ACCURACY)
        return pst_fail(
            PST_E_ARG,
            "metric is accuracy, which is not defined for the several labels of each vertex of %s: "
            "set metric to micro_f1, macro_f1, roc_auc or average_precision",
            ds->dir);
    r->metric = r->metric == usual ? PST_METRIC_NONE : r->metric;
    return PST_OK;
}

const char *pst_trainer_recipe_metric(const struct pst_trainer_recipe *r, const struct pst_gnn_config *c)
{
    return r->metric != PST_METRIC_NONE ? pst_metric_name(r->metric)
           : c->head                    ? "hits"
           : c->regression              ? "mse"
           : c->multilabel              ? "micro_f1"
                                        : "accuracy";
}

bool pst_trainer_recipe_falls(const struct pst_trainer_recipe *r, const struct pst_gnn_config *c)
{
    return c->regression && r->metric != PST_METRIC_R2;
}

pst_rc pst_trainer_recipe_open(struct pst_trainer_recipe *r, struct pst_gnn_config *config,
                               const struct pst_dataset *ds, int64_t epochs, struct pst_device *device)
{
    pst_rc rc = check(r, config);
    r->schedule.period = r->schedule.kind == PST_SCHEDULE_STEP ? r->period
                         : r->cosine_epochs > 0                ? r->cosine_epochs
                                                               : epochs;
    if (rc == PST_OK && r->schedule.kind == PST_SCHEDULE_COSINE &&
        r->schedule.warmup >= (double)r->schedule.period)
        rc = pst_fail(PST_E_ARG,
                      "warmup is %g epochs, but the cosine ends after %" PRId64
                      " epochs: lower warmup, or raise cosine_epochs or the run's epochs",
                      r->schedule.warmup, r->schedule.period);
    if (rc == PST_OK)
        rc = check_metric(r, config, ds);
    return rc == PST_OK ? open_loss(r, config, ds, device) : rc;
}

void pst_trainer_recipe_close(struct pst_trainer_recipe *r)
{
    free(r->weights); /* the device releases its own memory */
    r->weights = NULL;
}

double pst_trainer_recipe_rate(struct pst_trainer_recipe *r, const struct pst_gnn_training *progress,
                               uint64_t batches_in_epoch)
{
    r->last_rate =
        pst_schedule_rate(&r->schedule, progress->next_batch, batches_in_epoch, progress->plateau.scale);
    return r->last_rate;
}

void pst_trainer_recipe_epoch(const struct pst_trainer_recipe *r, struct pst_gnn_training *progress,
                              double val, bool falls)
{
    if (r->schedule.kind != PST_SCHEDULE_PLATEAU)
        return;
    struct pst_plateau plateau = {.patience = (double)r->patience,
                                  .factor = r->schedule.factor,
                                  .least = r->schedule.rate_min / r->schedule.rate,
                                  .state = progress->plateau};
    if (val > PST_METRIC_UNKNOWN)
        pst_plateau_step(&plateau, falls ? PST_PLATEAU_LOSS : PST_PLATEAU_SCORE, val);
    else if (progress->seeds > 0)
        pst_plateau_step(&plateau, PST_PLATEAU_LOSS, progress->loss / (double)progress->seeds);
    progress->plateau = plateau.state;
}
