/* infer.c: penstock infer: applies a trained model to all vertices of a dataset, and writes .npy files. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/run/report.h"
#include "common/util/memory.h"
#include "stages/lib/gnn/eval.h"
#include "stages/lib/gnn/state.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/infer/npy_file.h"
#include "tools/penstock/cli/options.h"
#include "common/util/clock.h"

static const char help[] =
    "usage: penstock infer RUN --out FILE.npy [OPTION]...\n"
    "Computes embeddings and predictions of every vertex with the model of the run in the directory RUN. It "
    "uses "
    "all\n"
    "neighbours of a vertex, layer by layer. It writes\n"
    "  FILE.npy           float32 (vertices, hidden): the output of the last hidden layer, or of --layer\n"
    "  FILE.classes.npy   int32 (vertices): the predicted class; uint8 (vertices, classes) if the model was\n"
    "                     trained on several labels a vertex: 1 for each predicted label\n"
    "  FILE.values.npy    float32 (vertices, columns), instead of FILE.classes.npy: the predicted numbers, "
    "if the\n"
    "                     model was trained with the loss mse\n"
    "  FILE.logits.npy    float32 (vertices, classes): the output of the last layer, with --logits\n"
    "and prints the accuracy on each split; micro-F1 for several labels a vertex; mse, mae and r2 for "
    "numbers.\n\n"
    "  --checkpoint best|last  use the weights of the best epoch on the validation split, or the last "
    "weights\n"
    "                     (default: best, to which the report's test_accuracy belongs)\n"
    "  --layer N          the hidden layer whose output is written, counted from 1\n"
    "  --logits           write the output of the last layer, too\n"
    "  --dataset DIR      the directory of the dataset (default: where the report says that it was)\n"
    "  --split NAME       the split whose accuracies are printed, if the dataset has several (default: the "
    "run's)\n"
    "  --other-dataset    accept a dataset that the model was not trained on; its features must mean the "
    "same\n"
    "  --memory BYTES     limit for activations; what exceeds it goes to files beside FILE (default: half of "
    "the\n"
    "                     free memory)\n"
    "  --threads N        default: all cores; the result does not depend on it\n"
    "  --report FILE      write accuracies, time and memory as JSON; - is standard output\n"
    "  --force            replace existing files\n"
    "  --quiet            show no progress line\n";

enum { OUT_EMBEDDINGS, OUT_CLASSES, OUT_LOGITS, OUTS };

struct args {
    const char *run, *out, *dataset, *report, *split;
    bool last, logits, other, force, quiet, help;
    int64_t layer, threads; /* 0: not said */
    uint64_t memory;
};

struct inference {
    const struct args *args;
    struct pst_dataset ds;
    struct pst_gnn_types types; /* for models of relations */
    struct pst_gnn_config config;
    struct pst_gnn_model model;
    struct pst_gnn_eval eval;
    struct pst_progress progress;
    struct npy_file out[OUTS];
    bool ds_open, model_open;
    char checkpoint[PST_PATH_MAX], trained_on[17], dir[PST_PATH_MAX]; /* dir: FILE's */
    int layer;                                                        /* of the embeddings, from 0 */
    double accuracy[3], seconds;
};

/* ---- options --------------------------------------------------------------------------------- */

static pst_rc one_option(struct args *a, int opt)
{
    switch (opt) {
    case 'o': a->out = optarg; return PST_OK;
    case 'd': a->dataset = optarg; return PST_OK;
    case 'r': a->report = optarg; return PST_OK;
    case 's': a->split = optarg; return PST_OK;
    case 'l': return option_int("--layer", optarg, 1, PST_GNN_LAYERS_MAX, &a->layer);
    case 't': return option_int("--threads", optarg, 1, PST_TEAM_MAX, &a->threads);
    case 'm': return option_bytes("--memory", optarg, &a->memory);
    case 'L': a->logits = true; return PST_OK;
    case 'O': a->other = true; return PST_OK;
    case 'f': a->force = true; return PST_OK;
    case 'q': a->quiet = true; return PST_OK;
    case 'h': a->help = true; return PST_OK;
    case 'c': return option_checkpoint("--checkpoint", optarg, &a->last);
    default: return pst_fail(PST_E_ARG, "invalid option: `penstock infer --help` lists the options");
    }
}

static pst_rc read_args(struct args *a, int argc, char **argv)
{
    static const struct option options[] = {{"out", required_argument, NULL, 'o'},
                                            {"dataset", required_argument, NULL, 'd'},
                                            {"split", required_argument, NULL, 's'},
                                            {"report", required_argument, NULL, 'r'},
                                            {"layer", required_argument, NULL, 'l'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {"logits", no_argument, NULL, 'L'},
                                            {"other-dataset", no_argument, NULL, 'O'},
                                            {"force", no_argument, NULL, 'f'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"checkpoint", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    pst_rc rc = PST_OK;
    int opt;
    *a = (struct args){.memory = 0};
    optind = 1;
    while (rc == PST_OK && !a->help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
        rc = one_option(a, opt);
    if (rc != PST_OK || a->help)
        return rc;
    if (argc - optind != 1)
        return pst_fail(PST_E_ARG, "expected one run directory, found %d arguments", argc - optind);
    a->run = argv[optind];
    const size_t n = a->out != NULL ? strlen(a->out) : 0;
    if (n < 5 || strcmp(a->out + n - 4, ".npy") != 0)
        return pst_fail(PST_E_ARG, "--out: expected a file name that ends in .npy, found '%.200s'",
                        a->out != NULL ? a->out : "");
    if (a->other && a->dataset == NULL)
        return pst_fail(PST_E_ARG, "--other-dataset requires the dataset: also give --dataset DIR");
    if (a->memory == 0)
        a->memory = pst_memory_default();
    return PST_OK;
}

/* ---- the model and its dataset --------------------------------------------------------------- */

/* Where the run's report says that the dataset was, and which of its splits was used ("": the only one). */
static pst_rc dataset_of_run(const char *run, char dir[PST_PATH_MAX], char split[PST_NAME_MAX])
{
    char path[PST_PATH_MAX];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%.4000s/report.json", run);
    json_t *report = json_load_file(path, 0, &error);
    const char *said = json_string_value(json_object_get(json_object_get(report, "dataset"), "dir"));
    const char *named = json_string_value(json_object_get(json_object_get(report, "dataset"), "split"));
    if (said != NULL)
        (void)snprintf(dir, PST_PATH_MAX, "%s", said);
    (void)snprintf(split, PST_NAME_MAX, "%s", named != NULL ? named : "");
    json_decref(report);
    return said != NULL
               ? PST_OK
               : pst_fail(PST_E_ARG, "%s does not contain the path of the dataset (%s): give --dataset DIR",
                          path, report != NULL ? "no dataset.dir" : error.text);
}

static pst_rc check_fit(const struct inference *in)
{
    const struct pst_dataset *ds = &in->ds;
    if (in->config.learned > 0 && ds->vertices != in->config.learned)
        return pst_fail(PST_E_ARG,
                        "%s has %" PRId64 " vertices, but the model of %s has learned inputs of %" PRId64
                        " vertices: use the dataset that it was trained on",
                        ds->dir, ds->vertices, in->checkpoint, in->config.learned);
    if (in->config.learned == 0 && ds->feature_dim != in->config.in)
        return pst_fail(PST_E_ARG,
                        "%s has %" PRId64 " features per vertex, but the model of %s needs %" PRId64, ds->dir,
                        ds->feature_dim, in->checkpoint, in->config.in);
    if (!in->args->other && strcmp(ds->digest, in->trained_on) != 0)
        return pst_fail(PST_E_ARG,
                        "%s is not the dataset that %s was trained on: its digest is %s, but the training "
                        "set's was %s; give --other-dataset to use it anyway",
                        ds->dir, in->checkpoint, ds->digest, in->trained_on);
    const struct pst_array *targets = &ds->targets;
    const int64_t columns = !targets->map ? 0 : targets->rank == 2 ? targets->shape[1] : 1;
    if (in->config.regression && columns > 0 && columns != in->config.classes)
        return pst_fail(PST_E_ARG,
                        "%s has %" PRId64 " targets per vertex, but the model of %s predicts %" PRId64,
                        ds->dir, columns, in->checkpoint, in->config.classes);
    const int64_t classes = in->config.regression    ? 0
                            : !in->config.multilabel ? ds->classes
                            : ds->multilabels.map    ? ds->multilabels.shape[1]
                                                     : 0;
    if (classes > 0 && classes != in->config.classes)
        return pst_fail(PST_E_ARG, "%s has %" PRId64 " classes, but the model of %s has %" PRId64, ds->dir,
                        classes, in->checkpoint, in->config.classes);
    return pst_dataset_check(ds);
}

static pst_rc open_dataset(struct inference *in)
{
    char dir[PST_PATH_MAX], split[PST_NAME_MAX] = "";
    pst_rc rc = dataset_of_run(in->args->run, dir, split);
    if (in->args->dataset != NULL) {
        (void)snprintf(dir, sizeof dir, "%s", in->args->dataset);
        rc = PST_OK;
        split[0] = in->args->other ? '\0' : split[0];
    }
    if (in->args->split != NULL)
        (void)snprintf(split, sizeof split, "%s", in->args->split);
    if (rc == PST_OK)
        rc = pst_dataset_open(&in->ds, dir);
    if (rc != PST_OK)
        return rc;
    in->ds_open = true;
    rc = pst_rows_join_types(&in->ds);
    if (rc != PST_OK)
        return rc;
    if (split[0] != '\0' && (in->args->split != NULL || in->ds.splits > 0))
        rc = pst_dataset_choose_split(&in->ds, split, NULL);
    return rc == PST_OK ? check_fit(in) : rc;
}

static pst_rc open_model(struct inference *in)
{
    struct pst_gnn_training unused;
    struct pst_gnn_identity id;
    in->config.threads = in->args->threads > 0 ? (int)in->args->threads : pst_team_cores();
    in->config.types = &in->types;
    pst_rc rc = in->config.model >= PST_GNN_MODEL_KINDS ? pst_gnn_types_of(&in->types, &in->ds) : PST_OK;
    if (rc == PST_OK)
        rc = pst_gnn_model_init(&in->model, &in->config);
    if (rc != PST_OK)
        return rc;
    in->model_open = true;
    pst_gnn_identity_of(&id, &in->model, in->trained_on);
    return pst_gnn_state_load(in->checkpoint, &in->model, &unused, &id);
}

static pst_rc choose(struct inference *in)
{
    const struct args *a = in->args;
    char warning[1024] = "", dir[PST_PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%.4000s/checkpoints", a->run);
    if (access(dir, F_OK) != 0)
        return pst_fail(PST_E_ARG,
                        "'%s' has no checkpoints: expected the directory of a run that trained a model",
                        a->run);
    pst_rc rc = pst_gnn_state_find(a->run, !a->last, in->checkpoint, warning, sizeof warning);
    if (warning[0] != '\0')
        (void)fprintf(stderr, "warning: %s\n", warning);
    if (rc == PST_OK)
        rc = pst_gnn_state_describe(in->checkpoint, &in->config, in->trained_on);
    if (rc != PST_OK)
        return rc;
    if (in->config.score != PST_GNN_SCORE_NONE)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s has a model of link prediction (loss link), which this command cannot apply: "
                        "expected a model that predicts something of vertices",
                        in->checkpoint);
    if (a->layer >= in->config.layers)
        return pst_fail(PST_E_ARG,
                        "--layer: expected 1 to %d, because %s has that many hidden layers, found %" PRId64
                        " (--logits writes the output of the last layer)",
                        in->config.layers - 1, in->checkpoint, a->layer);
    in->layer = a->layer > 0 ? (int)a->layer - 1 : in->config.layers - 2;
    return PST_OK;
}

/* ---- the files ------------------------------------------------------------------------------- */

static pst_rc open_outputs(struct inference *in)
{
    const struct args *a = in->args;
    const int64_t n = in->ds.vertices;
    char path[4200];
    const int stem = (int)strlen(a->out) - 4;
    pst_rc rc =
        npy_file_open(&in->out[OUT_EMBEDDINGS], a->out, PST_F32, n, pst_gnn_columns(&in->config), a->force);
    (void)snprintf(path, sizeof path, "%.*s.%s.npy", stem, a->out,
                   in->config.regression ? "values" : "classes");
    if (rc == PST_OK)
        rc = in->config.regression
                 ? npy_file_open(&in->out[OUT_CLASSES], path, PST_F32, n, in->config.classes, a->force)
             : in->config.multilabel
                 ? npy_file_open(&in->out[OUT_CLASSES], path, PST_U8, n, in->config.classes, a->force)
                 : npy_file_open(&in->out[OUT_CLASSES], path, PST_I32, n, 0, a->force);
    (void)snprintf(path, sizeof path, "%.*s.logits.npy", stem, a->out);
    if (rc == PST_OK && a->logits)
        rc = npy_file_open(&in->out[OUT_LOGITS], path, PST_F32, n, in->config.classes, a->force);
    const char *slash = strrchr(a->out, '/');
    (void)snprintf(in->dir, sizeof in->dir, "%.*s", slash != NULL ? (int)(slash - a->out) : 1,
                   slash != NULL ? a->out : ".");
    if (slash == a->out)
        (void)snprintf(in->dir, sizeof in->dir, "/");
    return rc;
}

static pst_rc take_rows(void *ctx, int layer, int64_t first, int64_t n, const pst_real *rows, int64_t ld)
{
    const struct inference *in = ctx;
    const bool last = layer == in->config.layers - 1;
    const struct npy_file *f = layer == in->layer         ? &in->out[OUT_EMBEDDINGS]
                               : last && in->args->logits ? &in->out[OUT_LOGITS]
                                                          : NULL;
    return f != NULL ? npy_file_put(f, first, n, rows, (uint64_t)ld * sizeof *rows) : PST_OK;
}

/* All files are on disk before the first is renamed; FILE itself comes last. */
static pst_rc keep_outputs(struct inference *in)
{
    const void *predicted = in->eval.fitted != NULL   ? (const void *)in->eval.fitted
                            : in->eval.labels != NULL ? (const void *)in->eval.labels
                                                      : in->eval.predicted;
    pst_rc rc = npy_file_put(&in->out[OUT_CLASSES], 0, in->ds.vertices, predicted,
                             in->eval.predicted_bytes / (uint64_t)in->ds.vertices);
    for (int i = 0; i < OUTS && rc == PST_OK; i++)
        if (in->out[i].open)
            rc = npy_file_sync(&in->out[i]);
    for (int i = OUTS - 1; i >= 0 && rc == PST_OK; i--)
        if (in->out[i].open)
            rc = npy_file_keep(&in->out[i]);
    return rc;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_fit(FILE *out, const char *split, const struct pst_fit *fit)
{
    (void)fprintf(out, "%s MSE %.6g, MAE %.6g", split, fit->mse, fit->mae);
    if (fit->r2 > PST_METRIC_UNKNOWN)
        (void)fprintf(out, ", R2 %.4f", fit->r2);
    (void)fprintf(out, "\n");
}

/* Beside a report on standard output, on standard error. */
static void tell(const struct inference *in)
{
    static const char *const splits[] = {"train", "val", "test"};
    const bool taken = in->args->report != NULL && strcmp(in->args->report, "-") == 0;
    FILE *out = taken ? stderr : stdout;
    char text[32];
    for (int i = 0; i < OUTS; i++) {
        const struct npy_file *f = &in->out[i];
        if (!f->open)
            continue;
        (void)fprintf(out, "%s: %s (%" PRId64, f->file.path, pst_dtype_name(f->dtype), f->rows);
        if (f->cols > 0)
            (void)fprintf(out, ", %" PRId64, f->cols);
        (void)fprintf(out, ")\n");
    }
    (void)fprintf(out, "%s, layer %d of %d\n", in->checkpoint, in->layer + 1, in->config.layers);
    for (int s = 0; s < 3; s++)
        if (in->accuracy[s] >= 0)
            (void)fprintf(out, "%s %s %.4f\n", splits[s], in->config.multilabel ? "micro-F1" : "accuracy",
                          in->accuracy[s]);
        else if (in->eval.fit[s].mse > PST_METRIC_UNKNOWN)
            tell_fit(out, splits[s], &in->eval.fit[s]);
    (void)fprintf(out, "in %.1f s, activations %s, peak memory %s\n", in->seconds,
                  in->eval.spilled ? "in files" : "in memory",
                  pst_bytes_text((double)pst_memory_peak(), text));
}

static json_t *share(double accuracy)
{
    return accuracy >= 0 ? json_real(accuracy) : json_null();
}

/* SPLIT_METRIC of each split. */
static void put_figures(const struct inference *in, json_t *report)
{
    static const char *const splits[] = {"train", "val", "test"}, *const names[] = {"mse", "mae", "r2"};
    char key[32];
    for (int s = 0; s < 3; s++) {
        const double fit[] = {in->eval.fit[s].mse, in->eval.fit[s].mae, in->eval.fit[s].r2};
        (void)snprintf(key, sizeof key, "%s_%s", splits[s], in->config.multilabel ? "micro_f1" : "accuracy");
        if (!in->config.regression)
            (void)json_object_set_new(report, key, share(in->accuracy[s]));
        for (int k = 0; in->config.regression && k < 3; k++) {
            (void)snprintf(key, sizeof key, "%s_%s", splits[s], names[k]);
            (void)json_object_set_new(report, key,
                                      fit[k] > PST_METRIC_UNKNOWN ? json_real(fit[k]) : json_null());
        }
    }
}

static pst_rc write_report(const struct inference *in)
{
    json_t *report = json_pack("{ss ss sI si si sb sI sI sf}", "checkpoint", in->checkpoint, "dataset",
                               in->ds.dir, "vertices", (json_int_t)in->ds.vertices, "layer", in->layer + 1,
                               "threads", in->config.threads, "spilled", in->eval.spilled, "memory_bytes",
                               (json_int_t)in->args->memory, "peak_bytes", (json_int_t)pst_memory_peak(),
                               "seconds", in->seconds);
    if (report == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a report");
    put_figures(in, report);
    pst_rc rc = pst_report_put_json(report, in->args->report);
    json_decref(report);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static pst_rc compute(struct inference *in)
{
    const struct pst_gnn_eval_options options = {.spill_dir = in->dir,
                                                 .memory_bytes = in->args->memory,
                                                 .progress = &in->progress,
                                                 .sink = take_rows,
                                                 .sink_ctx = in};
    pst_rc rc = pst_gnn_eval_open(&in->eval, &in->config, &in->ds, &options);
    if (rc == PST_OK && in->eval.memory_bytes > in->args->memory)
        rc = pst_fail(PST_E_LIMIT,
                      "--memory: %" PRIu64 " bytes are too few: this model needs %" PRIu64
                      " bytes for this dataset with %d threads (fewer --threads need less)",
                      in->args->memory, in->eval.memory_bytes, in->config.threads);
    return rc == PST_OK ? pst_gnn_eval_run(&in->eval, &in->model, in->accuracy) : rc;
}

static void release(struct inference *in)
{
    for (int i = 0; i < OUTS; i++)
        npy_file_release(&in->out[i]);
    pst_gnn_eval_close(&in->eval);
    if (in->model_open)
        pst_gnn_model_release(&in->model);
    if (in->ds_open)
        pst_dataset_close(&in->ds);
    free(in);
}

static pst_rc infer(const struct args *a)
{
    struct inference *in = calloc(1, sizeof *in); /* paths: too much for the stack */
    const double began = pst_clock_s();
    if (in == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot start");
    in->args = a;
    pst_progress_init(&in->progress, a->quiet);
    pst_rc rc = a->report != NULL ? pst_report_check_path("--report", a->report) : PST_OK;
    if (rc == PST_OK)
        rc = choose(in);
    if (rc == PST_OK)
        rc = open_dataset(in);
    if (rc == PST_OK)
        rc = open_model(in);
    if (rc == PST_OK)
        rc = open_outputs(in);
    if (rc == PST_OK)
        rc = compute(in);
    if (rc == PST_OK)
        rc = keep_outputs(in);
    in->seconds = pst_clock_s() - began;
    if (rc == PST_OK && a->report != NULL)
        rc = write_report(in);
    if (rc == PST_OK)
        tell(in);
    release(in);
    return rc;
}

int cmd_infer(int argc, char **argv)
{
    struct args a;
    pst_rc rc = read_args(&a, argc, argv);
    if (rc == PST_OK && a.help) {
        (void)fputs(help, stdout);
        return 0;
    }
    return command_result("infer", rc == PST_OK ? infer(&a) : rc);
}
