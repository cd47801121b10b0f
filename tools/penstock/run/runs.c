/* runs.c: penstock runs: a table of runs, from what each wrote to its directory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/run/run_dir.h"

/* ---- one run ------------------------------------------------------------------------------------- */

/* NULL: no such regular file (opening a pipe would wait for its writer), or no JSON. */
static json_t *load(const char *dir, const char *name)
{
    char path[PST_PATH_MAX + 32];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? json_load_file(path, 0, NULL) : NULL;
}

static bool has_lock(const char *dir)
{
    struct run_lock lock;
    int fd = -1;
    const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool found = dir_fd >= 0 && run_lock_open(dir_fd, &lock, &fd);
    if (fd >= 0)
        (void)close(fd);
    if (dir_fd >= 0)
        (void)close(dir_fd);
    return found;
}

/* When the run wrote its pipeline file, in the form of the report's "started". */
static json_t *time_of(const char *dir)
{
    char path[PST_PATH_MAX + 32], text[32];
    struct stat st;
    struct tm tm;
    (void)snprintf(path, sizeof path, "%s/" RUN_PIPELINE_NAME, dir);
    if (stat(path, &st) != 0)
        return json_null();
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&st.st_mtime, &tm));
    return json_string(text);
}

/* The measure of quality that the run reports. */
static void put_quality(json_t *row, const json_t *report)
{
    static const char *const names[] = {"test_accuracy", "test_micro_f1", "test_mrr", "test_mse"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(report, names[i]);
        if (json_is_number(value)) {
            (void)json_object_set_new(row, "metric", json_string(names[i]));
            (void)json_object_set(row, "value", value);
            return;
        }
    }
    (void)json_object_set_new(row, "metric", json_null());
    (void)json_object_set_new(row, "value", json_null());
}

static void put(json_t *row, const char *key, json_t *value)
{
    (void)json_object_set(row, key, value ? value : json_null());
}

static json_t *row_of(const char *dir, const json_t *report, const json_t *pipeline, bool held)
{
    json_t *row = json_object(), *epochs = json_object_get(report, "epochs");
    json_t *started = json_object_get(report, "started"), *own = started ? NULL : time_of(dir);
    json_t *name = json_object_get(report, "pipeline"), *seed = json_object_get(report, "seed");
    json_t *dataset = json_object_get(json_object_get(report, "dataset"), "dir");
    const size_t n = json_array_size(epochs);
    (void)json_object_set_new(row, "run", json_string(dir));
    put(row, "started", started ? started : own);
    json_t *status = json_object_get(report, "status");
    if (held)
        (void)json_object_set_new(row, "status", json_string("running"));
    else if (status)
        (void)json_object_set(row, "status", status);
    else /* it had no time to write a report */
        (void)json_object_set_new(row, "status", json_string("killed"));
    put(row, "pipeline", name ? name : json_object_get(pipeline, "name"));
    put(row, "dataset", dataset ? dataset : json_object_get(pipeline, "dataset"));
    put(row, "seed", seed ? seed : json_object_get(pipeline, "seed"));
    (void)json_object_set_new(row, "epochs", json_integer((json_int_t)n));
    put(row, "loss", json_object_get(json_array_get(epochs, n - 1), "loss"));
    put_quality(row, report);
    put(row, "total_s", json_object_get(json_object_get(report, "phases"), "total_s"));
    put(row, "bound_by", json_object_get(report, "bound_by"));
    put(row, "weights_digest", json_object_get(report, "weights_digest"));
    put(row, "commit", json_object_get(report, "commit"));
    put(row, "command", json_object_get(report, "command"));
    json_decref(own);
    return row;
}

/* Adds the run in dir to the rows. False: dir holds no run. */
static bool add_run(json_t *rows, const char *dir)
{
    json_t *report = load(dir, "report.json");
    const bool reported = json_is_object(json_object_get(report, "stages")) &&
                          json_is_string(json_object_get(report, "status"));
    const bool found = reported || has_lock(dir);
    if (found) {
        json_t *pipeline = load(dir, RUN_PIPELINE_NAME);
        (void)json_array_append_new(rows,
                                    row_of(dir, reported ? report : NULL, pipeline, run_dir_is_held(dir)));
        json_decref(pipeline);
    }
    json_decref(report);
    return found;
}

/* ---- all of them --------------------------------------------------------------------------------- */

/* dir is a run, or holds runs. */
static bool add_dir(json_t *rows, const char *dir)
{
    char path[PST_PATH_MAX];
    if (add_run(rows, dir))
        return true;
    DIR *d = opendir(dir);
    if (!d) {
        fprintf(stderr, "penstock runs: cannot list %s: %s\n", dir, strerror(errno));
        return false;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            (void)add_run(rows, path);
    (void)closedir(d);
    return true;
}

static const char *text(const json_t *row, const char *key)
{
    const char *value = json_string_value(json_object_get(row, key));
    return value ? value : "-";
}

struct row {
    const json_t *json;
};

static int by_start(const void *a, const void *b)
{
    const json_t *x = ((const struct row *)a)->json, *y = ((const struct row *)b)->json;
    const int order = strcmp(text(x, "started"), text(y, "started"));
    return order ? order : strcmp(text(x, "run"), text(y, "run"));
}

static json_t *sorted(const json_t *rows)
{
    const size_t n = json_array_size(rows);
    struct row *list = calloc(n + 1, sizeof *list);
    json_t *out = json_array();
    for (size_t i = 0; i < n && list; i++)
        list[i].json = json_array_get(rows, i);
    if (list)
        qsort(list, n, sizeof *list, by_start);
    for (size_t i = 0; i < n && list; i++)
        (void)json_array_append(out, (json_t *)(uintptr_t)list[i].json);
    free(list);
    return out;
}

static void number(const json_t *row, const char *key, const char *format, char out[32])
{
    const json_t *value = json_object_get(row, key);
    (void)snprintf(out, 32, "-");
    if (json_is_number(value))
        (void)snprintf(out, 32, format, json_number_value(value)); /* formats are constants of print() */
}

static void print(json_t *rows)
{
    static const char head[] = "run";
    size_t i, width = sizeof head - 1;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const size_t n = strlen(text(row, "run"));
        width = n > width ? n : width;
    }
    printf("%-*s  %-20s %-11s %-14s %-16s %6s %9s %9s %9s  %s\n", (int)width, head, "started", "status",
           "pipeline", "dataset", "epochs", "loss", "test", "seconds", "bound by");
    json_array_foreach(rows, i, row)
    {
        char loss[32], value[32], total[32];
        const char *dataset = text(row, "dataset"), *slash = strrchr(dataset, '/');
        number(row, "loss", "%.4f", loss);
        number(row, "value", "%.4f", value);
        number(row, "total_s", "%.1f", total);
        printf("%-*s  %-20s %-11s %-14s %-16s %6lld %9s %9s %9s  %s\n", (int)width, text(row, "run"),
               text(row, "started"), text(row, "status"), text(row, "pipeline"), slash ? slash + 1 : dataset,
               (long long)json_integer_value(json_object_get(row, "epochs")), loss, value, total,
               text(row, "bound_by"));
    }
}

int cmd_runs(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock runs [--json] [DIR]...\n"
        "Lists runs, the oldest first. A DIR is the directory of a run, or holds such directories (default: "
        "runs).\n"
        "The status is that of the report (ok, failed or interrupted), running, or killed: the run ended "
        "without\n"
        "a report. `test` is the accuracy, micro-F1 or MRR that the run reported for the test split.\n"
        "RUN/pipeline.json is the whole pipeline: `penstock run RUN/pipeline.json` repeats the run.\n\n"
        "  --json   print JSON, with the command, the commit and the digest of the weights of each run\n";
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    static char standard[] = "runs";
    char *only[] = {standard};
    bool json = false, ok = true;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c != 'j') {
            fprintf(c == 'h' ? stdout : stderr, "%s", usage);
            return c == 'h' ? 0 : 2;
        }
        json = true;
    }
    char **dirs = optind < argc ? argv + optind : only;
    const int n = optind < argc ? argc - optind : 1;
    json_t *rows = json_array();
    for (int i = 0; i < n; i++)
        ok = add_dir(rows, dirs[i]) && ok;
    json_t *list = sorted(rows);
    if (json) {
        (void)json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
    } else if (json_array_size(list) > 0 || ok) {
        print(list);
    }
    json_decref(list);
    json_decref(rows);
    return ok ? 0 : 2;
}
