/* stop.c: the pipeline's `stop`: the run ends when a figure of the epochs has not improved for some epochs.
 * The figures are kept in RUN/stop.json, so that a resumed run ends after the same epoch. Also the best epoch
 * of a stage that reports only epochs. */
#include "common/run/run_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/file.h"

#define FILE_BYTES_MAX (64u << 20) /* of a million epochs */
#define NAME "stop.json"
#define COLUMNS_MAX 1024 /* of their names */

/* A loss or an error improves when it falls, anything else when it rises. */
static bool improves(const struct pst_run_stop *s, const char *metric, double value)
{
    static const char *const falling[] = {"loss", "_mse", "_mae", "_rmse"};
    const size_t n = strlen(metric);
    bool falls = false;
    for (size_t i = 0; i < sizeof falling / sizeof *falling; i++) {
        const size_t end = strlen(falling[i]);
        falls |= n >= end && strcmp(metric + n - end, falling[i]) == 0;
    }
    return s->best_epoch < 0 || (falls ? value < s->best : value > s->best);
}

static void count(struct pst_run_stop *s, const char *metric, json_int_t epoch, double value)
{
    if (improves(s, metric, value)) {
        s->best = value;
        s->best_epoch = epoch;
        s->waited = 0;
    } else {
        s->waited++;
    }
}

/* Epochs before `first` of the run that this one goes on from. A file that is not there or of another metric
 * has none. */
static void recall(struct pst_supervisor *sv, json_int_t first)
{
    char path[PST_PATH_MAX + 32], *text;
    size_t bytes, i;
    json_t *row;
    (void)snprintf(path, sizeof path, "%s", sv->opt->resume);
    for (int up = 0; up < 2; up++) { /* RUN/checkpoints/NUMBER */
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = '\0';
    }
    (void)strncat(path, "/" NAME, sizeof path - strlen(path) - 1);
    if (access(path, F_OK) != 0)
        return;
    if (pst_file_read(path, FILE_BYTES_MAX, &text, &bytes) != PST_OK) {
        pst_run_warn(sv, "supervisor", pst_error_text());
        return;
    }
    json_t *kept = json_loadb(text, bytes, 0, NULL);
    if (!kept)
        pst_run_warn(sv, "supervisor",
                     NAME
                     " of the run that this one goes on from is damaged: `stop` counts epochs from here");
    const char *metric = json_string_value(json_object_get(kept, "metric"));
    free(text);
    json_array_foreach(json_object_get(kept, "epochs"), i, row)
    {
        const json_int_t epoch = json_integer_value(json_array_get(row, 0));
        if (!metric || strcmp(metric, sv->pl->stop_metric) != 0 || epoch >= first)
            continue;
        count(&sv->stop, metric, epoch, json_number_value(json_array_get(row, 1)));
        (void)json_array_append(sv->stop.epochs, row);
    }
    json_decref(kept);
}

static void keep(const struct pst_supervisor *sv)
{
    char path[PST_PATH_MAX + 32];
    json_t *all = json_pack("{ss sO}", "metric", sv->pl->stop_metric, "epochs", sv->stop.epochs);
    char *text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17));
    (void)snprintf(path, sizeof path, "%s/" NAME, sv->opt->run_dir);
    if (!text || pst_file_replace(path, text, strlen(text)) != PST_OK)
        pst_run_warn(sv, "supervisor", text ? pst_error_text() : "out of memory: " NAME " is not written");
    free(text);
    json_decref(all);
}

static void tell(struct pst_supervisor *sv, json_int_t epoch)
{
    struct pst_run_stop *s = &sv->stop;
    (void)json_object_set_new(sv->report, "stopped",
                              json_pack("{ss sI sI sf}", "metric", sv->pl->stop_metric, "epoch", epoch,
                                        "best_epoch", s->best_epoch, "best", s->best));
    pst_run_clear_line(sv);
    fprintf(
        stderr,
        "stopping after epoch %lld: %s has not improved for %lld epochs; the best was %.6g in epoch %lld\n",
        (long long)epoch, sv->pl->stop_metric, (long long)s->waited, s->best, (long long)s->best_epoch);
}

/* An epoch's row does not have the column that `stop` watches: says so at once, with what it has. */
static void tell_missing(struct pst_supervisor *sv, const json_t *row)
{
    char text[COLUMNS_MAX + 256], columns[COLUMNS_MAX] = "";
    const char *key;
    json_t *value;
    if (sv->stop.told)
        return;
    sv->stop.told = true;
    json_object_foreach((json_t *)(uintptr_t)row, key, value)
    {
        const size_t used = strlen(columns);
        if (json_is_number(value) && strcmp(key, "epoch") != 0)
            (void)snprintf(columns + used, sizeof columns - used, "%s%.64s", used ? ", " : "", key);
    }
    (void)snprintf(text, sizeof text,
                   "`stop` waits for the metric %s, which the epoch's row does not have, so it has no effect "
                   "until a stage reports it. The row has %s: set stop.metric to one of these",
                   sv->pl->stop_metric, columns[0] ? columns : "no numbers");
    pst_run_warn(sv, "supervisor", text);
}

bool pst_run_stop_after(struct pst_supervisor *sv, const json_t *row)
{
    struct pst_run_stop *s = &sv->stop;
    const json_t *value = json_object_get(row, sv->pl->stop_metric), *number = json_object_get(row, "epoch");
    if (!value)
        tell_missing(sv, row);
    if (!json_is_number(value) || !json_is_integer(number) || !isfinite(json_number_value(value)))
        return false;
    const json_int_t epoch = json_integer_value(number);
    if (!s->epochs) {
        s->best_epoch = -1;
        s->epochs = json_array();
        if (sv->opt->resume)
            recall(sv, epoch);
    }
    count(s, sv->pl->stop_metric, epoch, json_number_value(value));
    (void)json_array_append_new(s->epochs, json_pack("[IO]", epoch, value));
    keep(sv);
    if (s->waited < sv->pl->stop_patience || epoch + 1 >= sv->pl->epochs)
        return false;
    tell(sv, epoch);
    return true;
}

void pst_run_tell_best(struct pst_supervisor *sv)
{
    const char *metric = sv->pl->stop_metric[0] ? sv->pl->stop_metric : "val_accuracy";
    const json_t *rows = json_object_get(sv->report, "epochs"), *test = NULL;
    struct pst_run_stop best = {.best_epoch = -1};
    size_t i;
    json_t *row;
    if (json_object_get(sv->report, "best_epoch"))
        return;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        const json_t *value = json_object_get(row, metric), *number = json_object_get(row, "epoch");
        if (!json_is_number(value) || !json_is_integer(number) ||
            !improves(&best, metric, json_number_value(value)))
            continue;
        best.best = json_number_value(value);
        best.best_epoch = json_integer_value(number);
        test = json_object_get(row, "test_accuracy");
    }
    if (best.best_epoch >= 0)
        (void)json_object_set_new(sv->report, "best_epoch", json_integer(best.best_epoch));
    if (json_is_number(test) && !json_object_get(sv->report, "test_accuracy"))
        (void)json_object_set_new(sv->report, "test_accuracy", json_real(json_number_value(test)));
}

void pst_run_stop_release(struct pst_supervisor *sv)
{
    if (sv->pl->stop_patience > 0 && !sv->stop.epochs && sv->end == PST_RUN_OK) {
        char text[128 + PST_NAME_MAX];
        (void)snprintf(text, sizeof text, "no stage has reported %s, so `stop` had no effect",
                       sv->pl->stop_metric);
        pst_run_warn(sv, "supervisor", text);
    }
    json_decref(sv->stop.epochs);
}
