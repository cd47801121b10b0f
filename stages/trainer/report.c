/* report.c: what the trainer adds to the report. */
#include "stages/trainer/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    NUMBER_MAX = 40,
    METRIC_MAX = 100,
    FIGURES_MAX = 256
}; /* a real number as JSON; with its name; several */

/* A share as JSON; a negative one (PST_METRIC_UNKNOWN, too) was not measured. */
static const char *share(double value, char out[NUMBER_MAX])
{
    if (value < 0)
        snprintf(out, NUMBER_MAX, "null");
    else
        snprintf(out, NUMBER_MAX, "%.17g", value);
    return out;
}

/* What the shares of the report are. */
static const char *measure(const struct trainer *t)
{
    return t->config.head ? "hits" : t->config.multilabel ? "micro_f1" : "accuracy";
}

/* `,"PREFIX_METRIC":VALUE`; nothing if the metric is the measure above. */
static const char *metric(const struct trainer *t, const char *prefix, double value, char out[METRIC_MAX])
{
    char text[NUMBER_MAX];
    out[0] = '\0';
    if (t->recipe.metric != PST_METRIC_NONE && !t->config.regression)
        (void)snprintf(out, METRIC_MAX, ",\"%s_%s\":%s", prefix, pst_metric_name(t->recipe.metric),
                       share(value, text));
    return out;
}

/* A figure of a regression as JSON. */
static const char *figure(double value, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "null");
    if (value > PST_METRIC_UNKNOWN)
        (void)snprintf(out, NUMBER_MAX, "%.17g", value);
    return out;
}

/* "PREFIX_mse": ... of a regression. */
static const char *fitted(const char *prefix, const struct pst_fit *fit, char out[FIGURES_MAX])
{
    char mse[NUMBER_MAX], mae[NUMBER_MAX], r2[NUMBER_MAX];
    (void)snprintf(out, FIGURES_MAX, "\"%s_mse\":%s,\"%s_mae\":%s,\"%s_r2\":%s", prefix,
                   figure(fit->mse, mse), prefix, figure(fit->mae, mae), prefix, figure(fit->r2, r2));
    return out;
}

/* What an epoch's row has of the quality of its model. val: the accuracy (with several labels, micro-F1) of
 * validation. by: the metric there. */
static void quality(const struct trainer *t, double val, double by, char out[2 * FIGURES_MAX])
{
    const struct pst_gnn_training *p = &t->now;
    static const struct pst_fit none = {PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN};
    char train_text[NUMBER_MAX], val_text[NUMBER_MAX], more[METRIC_MAX], fit[FIGURES_MAX];
    const double train = p->counted ? (double)p->correct / (double)p->counted : -1;
    if (t->config.regression)
        (void)snprintf(out, 2 * FIGURES_MAX, "%s",
                       fitted("val", by > PST_METRIC_UNKNOWN ? &t->eval.fit[PST_VAL] : &none, fit));
    else
        (void)snprintf(out, 2 * FIGURES_MAX, "\"train_%s\":%s,\"val_%s\":%s%s",
                       t->config.head ? "accuracy" : measure(t), share(train, train_text), measure(t),
                       share(val, val_text), metric(t, "val", by, more));
}

pst_rc pst_trainer_report_epoch(struct pst_stage *self, const struct trainer *t, double val, double by)
{
    const struct pst_gnn_training *p = &t->now;
    char figures[2 * FIGURES_MAX];
    quality(t, val, by, figures);
    return pst_report(self, "epochs",
                      "{\"epoch\":%" PRIu64 ",\"seconds\":%.6f,\"loss\":%.17g,%s,\"rate\":%.9g,"
                      "\"seeds_per_second\":%.1f}",
                      p->epoch, p->seconds, p->seeds ? p->loss / (double)p->seeds : 0.0, figures,
                      t->recipe.last_rate, p->seconds > 0 ? (double)p->seeds / p->seconds : 0.0);
}

/* With a regression: the errors of the test split. */
static pst_rc report_fit(struct pst_stage *self, const struct trainer *t, uint64_t weights)
{
    char best[FIGURES_MAX], last[FIGURES_MAX];
    return pst_report(self, "result",
                      "{%s,\"best_epoch\":%" PRId64 ",%s,\"digest\":\"%016" PRIx64
                      "\",\"weights_digest\":\"%016" PRIx64 "\"}",
                      fitted("test", &t->done.best_fit, best), t->done.best_epoch,
                      fitted("final_test", &t->done.final_fit, last), t->done.digest, weights);
}

pst_rc pst_trainer_report_result(struct pst_stage *self, struct trainer *t)
{
    const pst_rc rc = pst_gnn_model_fetch(&t->model);
    if (rc != PST_OK)
        return rc;
    char best[NUMBER_MAX], last[NUMBER_MAX], best_by[METRIC_MAX], last_by[METRIC_MAX];
    const uint64_t weights = XXH3_64bits(t->model.weight, (size_t)t->model.size * sizeof *t->model.weight);
    if (t->config.regression)
        return report_fit(self, t, weights);
    if (t->config.head && pst_report(self, "result", "{\"hits_at\":%" PRId64 "}", t->hits_at) != PST_OK)
        return PST_E_STATE;
    return pst_report(self, "result",
                      "{\"test_%s\":%s,\"best_epoch\":%" PRId64 ",\"final_test_%s\":%s%s%s,"
                      "\"parameters\":%" PRId64 ",\"digest\":\"%016" PRIx64
                      "\",\"weights_digest\":\"%016" PRIx64 "\"}",
                      measure(t), share(t->done.best_test, best), t->done.best_epoch, measure(t),
                      share(t->done.final_test, last), metric(t, "test", t->done.best_test_metric, best_by),
                      metric(t, "final_test", t->done.final_test_metric, last_by),
                      pst_gnn_model_parameters(&t->model), t->done.digest, weights);
}

/* On a GPU: what it computed with, and how long the host worked on steps and waited for them. */
static pst_rc report_device(struct pst_stage *self, const struct trainer *t, const char *rows)
{
    return pst_report(self, "trainer",
                      "{\"device\":\"%s\",\"products\":\"%s\",\"evaluation\":\"cpu\",\"device_s\":%.6f,"
                      "\"device_bytes\":%" PRIu64 ",\"rows_brought\":%" PRIu64 ",\"rows_cached\":%" PRIu64
                      "%s}",
                      t->device.name, pst_trainer_precision(t), t->device_s, t->device.device_bytes,
                      t->inputs.rows_brought, t->inputs.rows_cached, rows);
}

/* What a layer worked on, from which FLOPs and bytes are counted. */
static void add_counts(const char *what, const int64_t *count, int layers, char *out, size_t bytes)
{
    for (int l = 0; l < layers; l++)
        (void)snprintf(out + strlen(out), bytes - strlen(out), ",\"%s_%d\":%" PRId64, what, l, count[l]);
}

/* Where the threads' processor time went, estimated from the passes that were timed (updates: measured), and
 * how much each layer had to do. */
pst_rc pst_trainer_report_work(struct pst_stage *self, const struct trainer *t)
{
    const struct pst_gnn_model *m = &t->model;
    char counts[(3 * PST_GNN_LAYERS_MAX + 1) * NUMBER_MAX] = "";
    double s[2][PST_GNN_WORK_KINDS] = {{0}};
    const double scale = m->timed > 0 ? (double)m->passes / (double)m->timed : 0;
    for (int w = 0; w < m->config.threads; w++)
        for (int k = 0; k < 2 * PST_GNN_WORK_KINDS; k++)
            s[k / PST_GNN_WORK_KINDS][k % PST_GNN_WORK_KINDS] +=
                m->spent[w].s[k / PST_GNN_WORK_KINDS][k % PST_GNN_WORK_KINDS] *
                (k % PST_GNN_WORK_KINDS == PST_GNN_WORK_UPDATE ? 1 : scale);
    add_counts("rows", m->rows, m->config.layers, counts, sizeof counts);
    add_counts("sources", m->sources, m->config.layers, counts, sizeof counts);
    add_counts("edges", m->edges, m->config.layers, counts, sizeof counts);
    if (t->grains.collective)
        (void)snprintf(counts + strlen(counts), sizeof counts - strlen(counts), ",\"exchange_s\":%.6f",
                       t->grains.exchange_s);
    if (t->inputs.staging)
        return report_device(self, t, counts);
    const double *f = s[0], *b = s[1];
    return pst_report(
        self, "trainer",
        "{\"products_s\":%.6f,\"products_grad_s\":%.6f,\"weights_grad_s\":%.6f,\"means_s\":%.6f,"
        "\"means_grad_s\":%.6f,\"fused_s\":%.6f,\"fused_grad_s\":%.6f,\"loss_s\":%.6f,\"update_s\":%.6f%s}",
        f[PST_GNN_WORK_PRODUCTS], b[PST_GNN_WORK_PRODUCTS], f[PST_GNN_WORK_WEIGHTS] + b[PST_GNN_WORK_WEIGHTS],
        f[PST_GNN_WORK_MEANS], b[PST_GNN_WORK_MEANS], f[PST_GNN_WORK_FUSED], b[PST_GNN_WORK_FUSED],
        f[PST_GNN_WORK_LOSS] + b[PST_GNN_WORK_LOSS], b[PST_GNN_WORK_UPDATE], counts);
}
