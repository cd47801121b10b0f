/* measurable.c: says before training what the evaluation cannot measure. What decides which epoch is the best
 * must be measurable; anything else is a warning. */
#include <inttypes.h>

#include "common/error.h"
#include "stages/trainer/trainer.h"

/* The metric that decides. */
static const char *name_of(const struct trainer *t)
{
    return pst_trainer_recipe_metric(&t->recipe, &t->config);
}

/* Whether the list has vertices, and two of them have different targets in one of the columns, so that r2 is
 * defined. */
static bool varies(const struct trainer *t, int split)
{
    const struct pst_array *ids = &t->ds.split[split];
    const float *targets = t->ds.targets.map;
    const int64_t *v = ids->map, columns = t->config.classes;
    for (int64_t i = 1; v && i < ids->shape[0]; i++)
        for (int64_t c = 0; c < columns; c++)
            if (targets[v[i] * columns + c] != targets[v[0] * columns + c])
                return true;
    return false;
}

static pst_rc support_of(const struct trainer *t, int split, struct pst_metric_support *support)
{
    const struct pst_array *ids = &t->ds.split[split];
    const struct pst_metric_labels labels = {.one = t->config.multilabel ? NULL : t->ds.labels.map,
                                             .several = t->config.multilabel ? t->ds.multilabels.map : NULL,
                                             .classes = t->config.classes};
    return pst_metric_supported(&labels, t->ds.vertices, ids->map, ids->map ? ids->shape[0] : 0, support);
}

/* Nothing can be measured on the validation split. If the user chose no metric, training needs none. */
static pst_rc nothing_known(struct pst_stage *self, const struct trainer *t)
{
    const char *why = t->config.regression ? "has no vertices" : "has no vertex with a known label";
    if (t->recipe.metric != PST_METRIC_NONE)
        return pst_fail(
            PST_E_ARG,
            "metric is %s, but the validation split of %s %s, so no epoch can be the best: make a "
            "validation split (`penstock split`), or leave metric out",
            name_of(t), t->ds.dir, why);
    pst_warn(
        self,
        "the validation split of %s %s, so the %s of an epoch cannot be measured: best_epoch is the last "
        "epoch that was evaluated%s",
        t->ds.dir, why, name_of(t),
        t->recipe.schedule.kind == PST_SCHEDULE_PLATEAU
            ? ", and the schedule plateau follows the training loss"
            : "");
    return PST_OK;
}

/* r2 needs targets that differ. */
static pst_rc check_fit(struct pst_stage *self, const struct trainer *t)
{
    const struct pst_array *val = &t->ds.split[PST_VAL], *test = &t->ds.split[PST_TEST];
    if (!val->map || val->shape[0] == 0)
        return nothing_known(self, t);
    if (!varies(t, PST_VAL) && t->recipe.metric == PST_METRIC_R2)
        return pst_fail(
            PST_E_ARG,
            "metric is r2, which is not defined on the validation split of %s: all of its targets are "
            "equal. Choose mse or mae, or another split",
            t->ds.dir);
    if (!varies(t, PST_VAL))
        pst_warn(self,
                 "r2 is not defined on the validation split of %s, because all of its targets are equal: "
                 "val_r2 is null",
                 t->ds.dir);
    if (test->map && test->shape[0] > 0 && !varies(t, PST_TEST))
        pst_warn(self,
                 "r2 is not defined on the test split of %s, because all of its targets are equal: test_r2 "
                 "is null",
                 t->ds.dir);
    return PST_OK;
}

/* ROC AUC and average precision need vertices in a class, and vertices out of it. */
static pst_rc check_classes(struct pst_stage *self, const struct trainer *t, int split,
                            const struct pst_metric_support *s)
{
    const char *name = pst_metric_name(t->recipe.metric), *part = split == PST_VAL ? "validation" : "test";
    if (s->undefined == 0)
        return PST_OK;
    if (s->undefined < t->config.classes) {
        pst_warn(
            self,
            "%s is not defined for %" PRId64 " of %" PRId64 " classes of the %s split of %s (the first is "
            "class %" PRId64 "), because none or all of its vertices are in the class: it is the mean over "
            "the other classes",
            name, s->undefined, t->config.classes, part, t->ds.dir, s->first);
        return PST_OK;
    }
    if (split == PST_VAL)
        return pst_fail(
            PST_E_ARG,
            "metric is %s, which is not defined on the validation split of %s: none or all of its "
            "vertices are in each class. Choose macro_f1 or accuracy, or another split",
            name, t->ds.dir);
    pst_warn(self,
             "%s is not defined on the test split of %s, because none or all of its vertices are in each "
             "class: test_%s is null",
             name, t->ds.dir, name);
    return PST_OK;
}

/* Hits@K needs edges and negatives. */
static pst_rc check_links(struct pst_stage *self, const struct trainer *t)
{
    if (!pst_links_hits_measurable(&t->ds, PST_VAL))
        pst_warn(
            self,
            "%s has no validation edges (edges_val) or no negatives (negatives_val), so val_hits is null, "
            "and best_epoch is the last epoch that was evaluated",
            t->ds.dir);
    if (!pst_links_hits_measurable(&t->ds, PST_TEST))
        pst_warn(self,
                 "%s has no test edges (edges_test) or no negatives (negatives_test): test_hits is null",
                 t->ds.dir);
    return PST_OK;
}

pst_rc pst_trainer_check_measurable(struct pst_stage *self, const struct trainer *t)
{
    struct pst_metric_support val, test;
    if (t->replica > 0)
        return PST_OK;
    if (t->eval_every == 0) {
        if (t->recipe.metric != PST_METRIC_NONE)
            pst_warn(self, "metric is %s, but eval_every is 0, so nothing is evaluated: no epoch is the best",
                     pst_metric_name(t->recipe.metric));
        return PST_OK;
    }
    if (t->config.regression)
        return check_fit(self, t);
    if (t->config.head)
        return check_links(self, t);
    pst_rc rc = support_of(t, PST_VAL, &val);
    if (rc == PST_OK)
        rc = support_of(t, PST_TEST, &test);
    if (rc == PST_OK && val.labelled == 0)
        return nothing_known(self, t);
    if (rc == PST_OK && pst_metric_ranks(t->recipe.metric))
        rc = check_classes(self, t, PST_VAL, &val);
    if (rc == PST_OK && pst_metric_ranks(t->recipe.metric) && test.labelled > 0)
        rc = check_classes(self, t, PST_TEST, &test);
    return rc;
}
