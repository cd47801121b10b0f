/* state.c: writes, reads and finds the trainer's checkpoints. */
#include "stages/lib/gnn/state.h"
#include "stages/lib/gnn/layer.h"
#include "common/store/checkpoint.h"
#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VALUE_MAX = 320, /* of a model's description, the longest string in a checkpoint */
    FIELDS = 32,
    LIST_MAX = 4096, /* checkpoints in one directory */
};
/* The number changes whenever a field is added, removed or gets another meaning. */
static const char FORMAT_NAME[] = "penstock-checkpoint-", FORMAT[] = "penstock-checkpoint-2";

void pst_gnn_training_init(struct pst_gnn_training *progress)
{
    *progress =
        (struct pst_gnn_training){.plateau = {.scale = 1},
                                  .best_epoch = -1,
                                  .best_val = PST_METRIC_UNKNOWN,
                                  .best_test = -1,
                                  .final_test = -1,
                                  .best_test_metric = PST_METRIC_UNKNOWN,
                                  .final_test_metric = PST_METRIC_UNKNOWN,
                                  .best_fit = {PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN},
                                  .final_fit = {PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN},
                                  .best_batch = UINT64_MAX};
}

static const char MULTILABEL[] = " multilabel", REGRESSION[] = " regression"; /* end such a description */
static const char *const optimizers[] = {"adam", "adamw", "sgd"};             /* enum pst_gnn_optimizer */
static const char *const scores[PST_GNN_SCORES] = {"none", "dot", "mlp"};     /* enum pst_gnn_score */
static const char *const norms[] = {"none", "layer", "batch"};                /* enum pst_gnn_norm */

/* parse_model reads this text. */
void pst_gnn_identity_of(struct pst_gnn_identity *id, const struct pst_gnn_model *model,
                         const char *dataset_digest)
{
    const struct pst_gnn_config *c = &model->config;
    id->dataset = dataset_digest;
    id->run = NULL;
    int n = snprintf(id->model, sizeof id->model,
                     "%s layers=%d in=%" PRId64 " hidden=%" PRId64 " classes=%" PRId64
                     " norm=%s residual=%d aggregate=%s",
                     model->kind->name, c->layers, c->in, c->hidden, c->classes, norms[c->norm], c->residual,
                     c->aggregate ? "mean" : "none");
    if (pst_gnn_has_heads(c->model))
        (void)snprintf(id->model + n, sizeof id->model - (size_t)n, " heads=%" PRId64, c->heads);
    if (c->bases > 0)
        (void)snprintf(id->model + n, sizeof id->model - (size_t)n, " bases=%" PRId64, c->bases);
    if (c->score != PST_GNN_SCORE_NONE)
        (void)snprintf(id->model + strlen(id->model), sizeof id->model - strlen(id->model), " score=%s",
                       scores[c->score]);
    if (c->learned > 0)
        (void)snprintf(id->model + strlen(id->model), sizeof id->model - strlen(id->model),
                       " learned=%" PRId64, c->learned);
    if (c->multilabel || c->regression)
        (void)snprintf(id->model + strlen(id->model), sizeof id->model - strlen(id->model), "%s",
                       c->multilabel ? MULTILABEL : REGRESSION);
}

/* One number of the progress, with its name in the checkpoint. */
struct field {
    const char *key;
    enum { COUNT, SIGNED, REAL } type;
    size_t at;
};
#define FIELD(name, kind)                                                                                    \
    {                                                                                                        \
#name, kind, offsetof(struct pst_gnn_training, name)                                                 \
    }
static const struct field fields[] = {
    FIELD(next_batch, COUNT),       FIELD(epoch, COUNT),
    FIELD(digest, COUNT),           FIELD(loss, REAL),
    FIELD(seeds, SIGNED),           FIELD(correct, SIGNED),
    FIELD(counted, SIGNED),         FIELD(seconds, REAL),
    FIELD(best_epoch, SIGNED),      FIELD(best_val, REAL),
    FIELD(best_test, REAL),         FIELD(final_test, REAL),
    FIELD(best_batch, COUNT),       FIELD(plateau.scale, REAL),
    FIELD(plateau.best, REAL),      FIELD(plateau.waited, REAL),
    FIELD(plateau.figure, REAL),    FIELD(best_test_metric, REAL),
    FIELD(final_test_metric, REAL), FIELD(best_fit.mse, REAL),
    FIELD(best_fit.mae, REAL),      FIELD(best_fit.r2, REAL),
    FIELD(final_fit.mse, REAL),     FIELD(final_fit.mae, REAL),
    FIELD(final_fit.r2, REAL),
};
enum { PROGRESS_FIELDS = sizeof fields / sizeof *fields };

static void print_field(const struct field *f, const struct pst_gnn_training *progress, char *out)
{
    const char *at = (const char *)progress + f->at;
    if (f->type == REAL)
        snprintf(out, VALUE_MAX, "%a", *(const double *)(const void *)at); /* exact */
    else if (f->type == SIGNED)
        snprintf(out, VALUE_MAX, "%" PRId64, *(const int64_t *)(const void *)at);
    else
        snprintf(out, VALUE_MAX, "%" PRIu64, *(const uint64_t *)(const void *)at);
}

static pst_rc parse_field(const struct field *f, const struct pst_checkpoint *ck,
                          struct pst_gnn_training *progress)
{
    char *at = (char *)progress + f->at;
    if (f->type == COUNT)
        return pst_checkpoint_u64(ck, f->key, (uint64_t *)(void *)at);
    double value;
    const pst_rc rc = pst_checkpoint_real(ck, f->key, &value);
    if (rc != PST_OK)
        return rc;
    if (f->type == REAL)
        *(double *)(void *)at = value;
    else if (value >= -1 && value <= 9007199254740992.0) /* 2^53: integers up to this are exact in a double */
        *(int64_t *)(void *)at = (int64_t)value;
    else
        return pst_fail(PST_E_FORMAT,
                        "%s: the value of \"%s\" is out of range: the checkpoint is damaged, or another "
                        "version of Penstock wrote it",
                        ck->path, f->key);
    return PST_OK;
}

static enum pst_dtype real_dtype(void)
{
    return sizeof(pst_real) == 4 ? PST_F32 : PST_F64;
}

/* The model's arrays as named tensors, which point into the model. */
static size_t list_tensors(const struct pst_gnn_model *model, struct pst_tensor *list)
{
    const bool sgd = model->config.optimizer == PST_GNN_SGD;
    const pst_real *const flat[3] = {model->weight, model->m, model->v};
    const char *const prefix[3] = {"", sgd ? "sgd.momentum." : "adam.m.", "adam.v."};
    size_t n = 0;
    for (int a = 0; a < (sgd ? 2 : 3); a++) {
        for (int p = 0; p < model->parameters; p++, n++) {
            const struct pst_gnn_parameter *param = &model->parameter[p];
            const bool matrix = param->rows > 1;
            list[n] =
                (struct pst_tensor){.dtype = real_dtype(),
                                    .rank = matrix ? 2 : 1,
                                    .shape = {matrix ? param->rows : param->cols, matrix ? param->cols : 1},
                                    .data = flat[a] + param->at};
            snprintf(list[n].name, sizeof list[n].name, "%s%.40s", prefix[a], param->name);
        }
    }
    if (model->running_size > 0) {
        list[n] = (struct pst_tensor){.name = "running",
                                      .dtype = real_dtype(),
                                      .rank = 1,
                                      .shape = {model->running_size, 1},
                                      .data = model->running};
        n++;
    }
    return n;
}
_Static_assert(3 * PST_GNN_TENSORS_MAX + 1 <= PST_CHECKPOINT_TENSORS_MAX, "a checkpoint holds any model");

static pst_rc make_directory(const char *run_dir, char *dir, size_t size)
{
    if ((size_t)snprintf(dir, size, "%s/checkpoints", run_dir) >= size)
        return pst_fail(PST_E_ARG, "the path of the run directory is too long: %s", run_dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create %s", dir);
    return PST_OK;
}

static pst_rc write_state(const char *path, const struct pst_gnn_model *model,
                          const struct pst_gnn_training *progress, const struct pst_gnn_identity *id)
{
    struct pst_tensor *tensors = malloc(PST_CHECKPOINT_TENSORS_MAX * sizeof *tensors);
    char(*values)[VALUE_MAX] = calloc(FIELDS, VALUE_MAX);
    struct pst_checkpoint_text texts[FIELDS];
    pst_rc rc = PST_E_NOMEM;
    size_t n = 0;
    if (!tensors || !values) {
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot write the metadata of a checkpoint");
        goto out;
    }
    for (; n < PROGRESS_FIELDS; n++) {
        print_field(&fields[n], progress, values[n]);
        texts[n] = (struct pst_checkpoint_text){fields[n].key, values[n]};
    }
    texts[n++] = (struct pst_checkpoint_text){"format", FORMAT};
    texts[n++] = (struct pst_checkpoint_text){"dataset", id->dataset};
    texts[n++] = (struct pst_checkpoint_text){"model", id->model};
    texts[n++] = (struct pst_checkpoint_text){"optimizer", optimizers[model->config.optimizer]};
    if (id->run)
        texts[n++] = (struct pst_checkpoint_text){PST_CHECKPOINT_RUN, id->run};
    snprintf(values[n], VALUE_MAX, "%" PRIu64, model->config.seed);
    texts[n] = (struct pst_checkpoint_text){"seed", values[n]};
    n++;
    snprintf(values[n], VALUE_MAX, "%" PRId64, model->steps);
    texts[n] = (struct pst_checkpoint_text){"steps", values[n]};
    n++;
    rc = pst_checkpoint_write(path, tensors, list_tensors(model, tensors), texts, n);
out:
    free(tensors);
    free(values);
    return rc;
}
_Static_assert(PROGRESS_FIELDS + 7 <= FIELDS, "every string has a place");

/* A file that cannot be removed stays; it does no harm. */
static void prune(const char *dir, int64_t keep, uint64_t best)
{
    uint64_t *numbers = malloc(LIST_MAX * sizeof *numbers);
    const size_t n = numbers ? pst_checkpoint_list(dir, numbers, LIST_MAX) : 0;
    for (size_t i = 0; i + (size_t)keep < n; i++) {
        char path[PST_PATH_MAX];
        pst_checkpoint_path(dir, numbers[i], path, sizeof path);
        if (numbers[i] != best)
            unlink(path);
    }
    free(numbers);
}

pst_rc pst_gnn_state_save(const char *run_dir, int64_t keep, const struct pst_gnn_model *model,
                          const struct pst_gnn_training *progress, const struct pst_gnn_identity *id)
{
    assert(keep >= 1);
    char dir[3968], path[PST_PATH_MAX];
    pst_rc rc = make_directory(run_dir, dir, sizeof dir);
    if (rc != PST_OK)
        return rc;
    pst_checkpoint_path(dir, progress->next_batch, path, sizeof path);
    rc = write_state(path, model, progress, id);
    if (rc == PST_OK)
        prune(dir, keep, progress->best_batch);
    return rc;
}

static pst_rc expect_text(const struct pst_checkpoint *ck, const char *key, const char *expected)
{
    const char *found = pst_checkpoint_text(ck, key);
    if (!found)
        return PST_E_FORMAT;
    if (strcmp(found, expected) != 0)
        return pst_fail(PST_E_ARG, "%s was made with another %s: it has \"%s\", but this run has \"%s\"",
                        ck->path, key, found, expected);
    return PST_OK;
}

pst_rc pst_gnn_state_check_version(const struct pst_checkpoint *ck)
{
    const char *found = pst_checkpoint_text(ck, "format");
    if (!found || strcmp(found, FORMAT) == 0 || strncmp(found, FORMAT_NAME, strlen(FORMAT_NAME)) != 0)
        return PST_OK;
    return pst_fail(
        PST_E_UNSUPPORTED,
        "%s was written by another version of Penstock: its format is \"%.64s\", but this version reads and "
        "writes \"%s\". Use the version that wrote it (\"version\" and \"commit\" in the report.json of its "
        "run), or train again without --resume",
        ck->path, found, FORMAT);
}

/* The format is checked before the fields, which depend on it. */
static pst_rc expect_format(const struct pst_checkpoint *ck)
{
    const char *found = pst_checkpoint_text(ck, "format");
    pst_rc rc = found ? pst_gnn_state_check_version(ck) : PST_E_FORMAT;
    if (rc == PST_OK && strcmp(found, FORMAT) != 0)
        rc = pst_fail(PST_E_FORMAT,
                      "%s is not a checkpoint of the trainer: its format is \"%.64s\", expected \"%s\"",
                      ck->path, found, FORMAT);
    return rc;
}

static pst_rc expect_same(const struct pst_checkpoint *ck, const struct pst_gnn_model *model,
                          const struct pst_gnn_identity *id)
{
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, model->config.seed);
    pst_rc rc = expect_format(ck);
    if (rc == PST_OK)
        rc = expect_text(ck, "dataset", id->dataset);
    if (rc == PST_OK)
        rc = expect_text(ck, "model", id->model);
    if (rc == PST_OK)
        rc = expect_text(ck, "seed", seed);
    if (rc == PST_OK)
        rc = expect_text(ck, "optimizer", optimizers[model->config.optimizer]);
    return rc;
}

static pst_rc load_tensors(const struct pst_checkpoint *ck, struct pst_gnn_model *model)
{
    struct pst_tensor *tensors = malloc(PST_CHECKPOINT_TENSORS_MAX * sizeof *tensors);
    if (!tensors)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %s", ck->path);
    const size_t n = list_tensors(model, tensors);
    pst_rc rc = PST_OK;
    for (size_t i = 0; i < n && rc == PST_OK; i++)
        rc = pst_checkpoint_read(ck, &tensors[i], (void *)(uintptr_t)tensors[i].data);
    free(tensors);
    return rc;
}

pst_rc pst_gnn_state_load(const char *path, struct pst_gnn_model *model, struct pst_gnn_training *progress,
                          const struct pst_gnn_identity *id)
{
    struct pst_checkpoint ck;
    uint64_t steps = 0;
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = expect_same(&ck, model, id);
    for (int i = 0; i < PROGRESS_FIELDS && rc == PST_OK; i++)
        rc = parse_field(&fields[i], &ck, progress);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(&ck, "steps", &steps);
    if (rc == PST_OK)
        rc = load_tensors(&ck, model);
    model->steps = (int64_t)steps;
    pst_checkpoint_close(&ck);
    return rc;
}

/* ---- without a run -------------------------------------------------------------------------------- */

static pst_rc parse_model(const struct pst_checkpoint *ck, struct pst_gnn_config *c)
{
    const char *text = pst_checkpoint_text(ck, "model");
    char kind[16], norm[8], aggregate[8];
    int residual, end = 0, n = 0;
    if (!text)
        return PST_E_FORMAT;
    n = sscanf(text,
               "%15s layers=%d in=%" SCNd64 " hidden=%" SCNd64 " classes=%" SCNd64
               " norm=%7s residual=%d aggregate=%7s%n",
               kind, &c->layers, &c->in, &c->hidden, &c->classes, norm, &residual, aggregate, &end);
    bool known = n == 8;
    for (c->model = PST_GNN_GRAPHSAGE; known && strcmp(pst_gnn_kind_of(c->model)->name, kind) != 0;
         c->model++)
        known = c->model + 1 < PST_GNN_ALL_KINDS;
    for (c->norm = PST_GNN_NORM_NONE; known && strcmp(norms[c->norm], norm) != 0; c->norm++)
        known = c->norm < PST_GNN_NORM_BATCH;
    if (known && pst_gnn_has_heads(c->model)) {
        int more = 0;
        known = sscanf(text + end, " heads=%" SCNd64 "%n", &c->heads, &more) == 1 && c->heads >= 1 &&
                c->heads <= PST_GAT_HEADS_MAX;
        end += more;
    }
    if (known && c->model == PST_GNN_RGCN && strncmp(text + end, " bases=", 7) == 0) {
        int more = 0;
        known = sscanf(text + end, " bases=%" SCNd64 "%n", &c->bases, &more) == 1 && c->bases >= 1 &&
                c->bases <= PST_GNN_RELATIONS_MAX;
        end += more;
    }
    if (known && strncmp(text + end, " score=", 7) == 0) {
        for (c->score = PST_GNN_SCORE_DOT; known && strncmp(text + end + 7, scores[c->score], 3) != 0;
             c->score++)
            known = c->score + 1 < PST_GNN_SCORES;
        end += 10;
    }
    if (known && strncmp(text + end, " learned=", 9) == 0) {
        int more = 0;
        known = sscanf(text + end, " learned=%" SCNd64 "%n", &c->learned, &more) == 1 && c->learned >= 1 &&
                c->learned <= (int64_t)1 << 40;
        end += more;
    }
    c->multilabel = known && strcmp(text + end, MULTILABEL) == 0;
    c->regression = known && strcmp(text + end, REGRESSION) == 0;
    known = known && (c->multilabel || c->regression || text[end] == '\0');
    c->aggregate = known && strcmp(aggregate, "mean") == 0;
    c->residual = residual == 1;
    /* The configuration of such a model; init checks the rest. */
    if (!known || c->layers < 2 || c->layers > PST_GNN_LAYERS_MAX || c->in < 1 || c->in > 1 << 24 ||
        c->hidden < 1 || c->hidden > 1 << 20 || c->classes < 1 || c->classes > 1 << 20)
        return pst_fail(PST_E_FORMAT, "%s: this version of Penstock does not support its model, \"%s\"",
                        ck->path, text);
    return PST_OK;
}

static pst_rc parse_optimizer(const struct pst_checkpoint *ck, struct pst_gnn_config *c)
{
    const char *text = pst_checkpoint_text(ck, "optimizer");
    for (int o = PST_GNN_ADAM; text && o <= PST_GNN_SGD; o++)
        if (strcmp(text, optimizers[o]) == 0) {
            c->optimizer = (enum pst_gnn_optimizer)o;
            return PST_OK;
        }
    return text ? pst_fail(PST_E_FORMAT,
                           "%s: the checkpoint needs the optimizer \"%s\", which this version of Penstock "
                           "does not support",
                           ck->path, text)
                : PST_E_FORMAT;
}

pst_rc pst_gnn_state_describe(const char *path, struct pst_gnn_config *config, char dataset[17])
{
    struct pst_checkpoint ck;
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    *config = (struct pst_gnn_config){.threads = 1, .rows_max = 1};
    rc = expect_format(&ck);
    if (rc == PST_OK)
        rc = parse_model(&ck, config);
    if (rc == PST_OK)
        rc = parse_optimizer(&ck, config);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(&ck, "seed", &config->seed);
    const char *digest = rc == PST_OK ? pst_checkpoint_text(&ck, "dataset") : NULL;
    if (rc == PST_OK && !digest)
        rc = PST_E_FORMAT;
    if (rc == PST_OK)
        snprintf(dataset, 17, "%s", digest);
    pst_checkpoint_close(&ck);
    return rc;
}

pst_rc pst_gnn_state_find(const char *run_dir, bool best, char path[PST_PATH_MAX], char *warning,
                          size_t warning_size)
{
    char dir[3968];
    struct pst_checkpoint ck;
    uint64_t number;
    if ((size_t)snprintf(dir, sizeof dir, "%s/checkpoints", run_dir) >= sizeof dir)
        return pst_fail(PST_E_ARG, "the path of the run directory is too long: %s", run_dir);
    pst_rc rc = pst_checkpoint_latest(dir, path, PST_PATH_MAX, warning, warning_size);
    if (rc != PST_OK || !best)
        return rc;
    rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = pst_checkpoint_u64(&ck, "best_batch", &number);
    pst_checkpoint_close(&ck);
    if (rc != PST_OK || number == UINT64_MAX)
        return rc;
    pst_checkpoint_path(dir, number, path, PST_PATH_MAX);
    return access(path, F_OK) == 0
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "%s does not exist: the best epoch belongs to the run that this one was "
                          "resumed from; name that run, or use --checkpoint last",
                          path);
}
