/* open.c: opens the trainer's dataset, device and model, and releases them. */
#include <inttypes.h>
#include <math.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/util/memory.h"
#include "stages/trainer/trainer.h"

#define EVAL_MOST ((uint64_t)1 << 30) /* bytes for evaluation, if eval_memory is "auto" */

/* Every vertex of a split must have finite targets. */
static pst_rc check_targets(const struct trainer *t, const struct pst_array *ids)
{
    const float *targets = t->ds.targets.map;
    const int64_t *v = ids->map, columns = t->config.classes;
    for (int64_t i = 0; v && i < ids->shape[0]; i++)
        for (int64_t c = 0; v[i] >= 0 && v[i] < t->ds.vertices && c < columns; c++)
            if (!isfinite(targets[v[i] * columns + c]))
                return pst_fail(
                    PST_E_FORMAT,
                    "%s: the target of vertex %" PRId64 ", column %" PRId64
                    ", is %g, but the vertex is in the split %s: expected a finite number. Correct "
                    "it, or leave the vertex out of all splits",
                    t->ds.targets.path, v[i], c, (double)targets[v[i] * columns + c], ids->path);
    return PST_OK;
}

static pst_rc open_targets(struct trainer *t)
{
    const struct pst_array *targets = &t->ds.targets;
    pst_rc rc = PST_OK;
    if (!targets->map)
        return pst_fail(
            PST_E_ARG,
            "loss is mse, but %s has no targets: add the array `targets` to what you import, or set "
            "loss to cross_entropy",
            t->ds.dir);
    t->config.classes = targets->rank == 2 ? targets->shape[1] : 1;
    for (int s = PST_TRAIN; s <= PST_TEST && rc == PST_OK; s++)
        rc = check_targets(t, &t->ds.split[s]);
    return rc;
}

/* Link prediction: the outputs of vertices are as wide as the hidden layers. */
static pst_rc open_links(struct trainer *t)
{
    t->config.score = t->mlp ? PST_GNN_SCORE_MLP : PST_GNN_SCORE_DOT;
    t->config.head = pst_links_head(t->config.score);
    t->config.classes = t->config.hidden;
    return t->ds.edges_split[PST_TRAIN].map
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "loss is link, but %s has no edges_train: import a dataset for link prediction, or "
                          "choose another loss",
                          t->ds.dir);
}

static pst_rc open_dataset(struct pst_stage *self, struct trainer *t)
{
    pst_rc rc = pst_dataset_open_part(&t->ds, pst_dataset_dir(self));
    if (rc != PST_OK)
        return rc;
    t->dataset_open = true;
    rc = pst_rows_join_types(&t->ds);
    if (rc != PST_OK)
        return rc;
    rc = pst_dataset_choose_split(&t->ds, t->split, NULL);
    if (rc != PST_OK)
        return rc;
    t->config.learned = t->learned ? t->ds.vertices : 0;
    if (!t->learned && (t->ds.feature_dim < 1 || t->ds.features.path[0] == '\0'))
        return pst_fail(
            PST_E_ARG,
            "%s has no features, which the model needs (`penstock features` makes random features; or set "
            "inputs to learned)",
            t->ds.dir);
    if (t->eval_every > 0 && (t->ds.cut.lists || (t->ds.cut.parts > 0 && pst_trainer_is_typed(t))))
        return pst_fail(
            PST_E_ARG, "%s is a part of a cut dataset, but the evaluation needs all %s: set eval_every to 0",
            t->ds.dir, t->ds.cut.lists ? "lists of neighbours" : "features for a model of relations");
    if (t->recipe.loss == PST_TRAINER_LINK)
        return open_links(t);
    t->config.regression = t->recipe.loss == PST_TRAINER_MSE;
    if (t->config.regression)
        return open_targets(t);
    t->config.multilabel = !t->ds.labels.map && t->ds.multilabels.map;
    t->config.classes = t->config.multilabel ? t->ds.multilabels.shape[1] : t->ds.classes;
    if (t->config.classes < (t->config.multilabel ? 1 : 2) && t->ds.targets.map)
        return pst_fail(PST_E_ARG, "%s has no labels, but targets, which are numbers: set loss to mse",
                        t->ds.dir);
    if (t->config.classes < (t->config.multilabel ? 1 : 2))
        return pst_fail(PST_E_ARG, "%s has %" PRId64 " classes of labels; training needs at least 2 classes",
                        t->ds.dir, t->ds.classes);
    return PST_OK;
}

/* Opens the device, with a queue for the model's largest calls, and takes the staging: from host memory,
 * products would read the features again and again. */
static pst_rc open_device(struct pst_stage *self, struct trainer *t)
{
    const int64_t heads = pst_gnn_has_heads(t->config.model) ? t->config.heads : 1;
    const int64_t widest =
        pst_max_i64(t->ds.feature_dim, heads * pst_max_i64(t->config.classes, t->config.hidden));
    pst_rc rc = pst_device_open(&t->device, pst_device_name(self));
    if (rc != PST_OK)
        return rc;
    /* the model reserves what a batch needs: pst_gnn_model_grow */
    rc = pst_device_queue(&t->device, (struct pst_queue_options){
                                          .columns = widest, .products = true, .precision = t->precision});
    if (rc != PST_OK || !pst_device_is_cuda(&t->device))
        return rc;
    rc = pst_inputs_stage(&t->inputs);
    return rc == PST_OK ? pst_stream(self, t->device.twin->stream(t->device.q)) : rc;
}

const char *pst_trainer_precision(const struct trainer *t)
{
    static const char *const names[] = {"float32", "tf32", "bf16"};
    return names[t->precision];
}

bool pst_trainer_is_typed(const struct trainer *t)
{
    return t->config.model >= PST_GNN_MODEL_KINDS;
}

static pst_rc open_hits(struct trainer *t, struct pst_gnn_eval_options *options)
{
    t->hits_sink = (struct pst_links_hits_sink){&t->hits, t->config.layers - 1};
    options->sink = pst_links_hits_take;
    options->sink_ctx = &t->hits_sink;
    return pst_links_hits_open(&t->hits, &t->ds, &t->model, t->hits_at);
}

/* What the parameter eval_memory says. A limit and not what is free: the tiers may still be filled now. */
static uint64_t eval_memory(const struct trainer *t)
{
    const uint64_t part = pst_memory_limit() / 8;
    return t->eval_memory < UINT64_MAX ? t->eval_memory : part < EVAL_MOST ? part : EVAL_MOST;
}

static pst_rc open_model(struct pst_stage *self, struct trainer *t)
{
    struct pst_gnn_config *c = &t->config;
    pst_rc rc = pst_inputs_open(&t->inputs, self, &t->device);
    if (rc == PST_OK)
        rc = open_device(self, t);
    if (rc != PST_OK)
        return rc;
    c->in = t->learned ? t->input_dim : t->ds.feature_dim;
    c->seed = pst_seed(self);
    c->threads = t->threads > 0 ? t->threads : pst_team_cores();
    const uint64_t slot_bytes = pst_slot_bytes(self, pst_port(self, "batch"));
    /* For each vertex, a slot has a row of features; without features, the vertex's id. If features may be in
     * a cache, it has the id and the number of the row. */
    const uint64_t row_bytes = t->inputs.cache          ? sizeof(int64_t) + sizeof(int32_t)
                               : t->ds.stride_bytes > 0 ? t->ds.stride_bytes
                                                        : sizeof(int64_t);
    c->rows_max = (int64_t)(slot_bytes / row_bytes) + 1;
    if (t->inputs.cache)
        c->rows_max = pst_min_i64(c->rows_max, t->ds.vertices);
    c->pairs_max = c->head ? (int64_t)(slot_bytes / (2 * sizeof(int32_t))) : 0;
    c->edges_max = (int64_t)(pst_inputs_staged(&t->inputs) / sizeof(int32_t)); /* an index takes four bytes */
    c->device = &t->device;
    pst_gnn_typed_batch_init(&t->typed, &t->device);
    rc = pst_trainer_is_typed(t) ? pst_gnn_types_of(&t->types, &t->ds) : PST_OK;
    c->types = pst_trainer_is_typed(t) ? &t->types : NULL;
    if (rc == PST_OK)
        rc = pst_trainer_recipe_open(&t->recipe, c, &t->ds, pst_epochs(self), &t->device);
    if (rc == PST_OK)
        rc = pst_trainer_check_measurable(self, t);
    if (rc == PST_OK)
        rc = pst_gnn_model_init(&t->model, c);
    if (rc != PST_OK)
        return rc;
    t->model_open = true;
    rc = pst_trainer_grains_open(&t->grains, self, &t->model, t->grain_count, t->reduce);
    if (rc == PST_OK)
        rc = pst_trainer_targets_open(&t->targets, &t->model, &t->ds, c->rows_max, &t->device);
    if (rc != PST_OK)
        return rc;
    t->later = pst_trainer_later(self, t);
    if (t->inputs.staging)
        pst_log(self, "on %s: %" PRIu64 " bytes of device memory; products in %s", t->device.name,
                t->device.device_bytes, pst_trainer_precision(t));
    pst_gnn_identity_of(&t->identity, &t->model, t->ds.digest);
    t->identity.run = pst_run_identity(self);
    struct pst_gnn_eval_options options = {
        .spill_dir = pst_run_dir(self), .memory_bytes = eval_memory(t), .metric = t->recipe.metric};
    rc = t->eval_every > 0 ? pst_trainer_part_rows_open(&t->part_rows, &t->ds, t->grains.collective) : PST_OK;
    if (t->part_rows.ds) {
        options.rows = pst_trainer_part_rows_get;
        options.rows_ctx = &t->part_rows;
    }
    if (rc == PST_OK && c->head && t->eval_every > 0 && t->replica == 0)
        rc = open_hits(t, &options);
    if (rc == PST_OK && t->eval_every > 0 && t->replica == 0)
        rc = pst_gnn_eval_open(&t->eval, &t->model.config, &t->ds, &options);
    if (rc == PST_OK && t->eval.spilled)
        pst_log(self,
                "evaluation: the activations need more than eval_memory, so they are stored in files; "
                "evaluation uses %" PRIu64 " bytes of memory",
                t->eval.memory_bytes);
    return rc;
}

pst_rc pst_trainer_open(struct pst_stage *self)
{
    struct trainer *t = pst_state(self);
    pst_gnn_training_init(&t->done);
    t->replica = pst_replica(self, NULL);
    pst_rc rc = open_dataset(self, t);
    if (rc == PST_OK)
        rc = open_model(self, t);
    if (rc == PST_OK && pst_resume_path(self))
        rc = pst_gnn_state_load(pst_resume_path(self), &t->model, &t->done, &t->identity);
    if (rc == PST_OK)
        rc = pst_gnn_model_send(&t->model);
    t->now = t->done;
    return rc;
}

void pst_trainer_close(struct pst_stage *self)
{
    struct trainer *t = pst_state(self);
    pst_gnn_eval_close(&t->eval);
    pst_links_hits_close(&t->hits);
    pst_trainer_part_rows_close(&t->part_rows);
    pst_trainer_grains_close(&t->grains);
    if (t->model_open)
        pst_gnn_model_release(&t->model);
    pst_gnn_typed_batch_release(&t->typed);
    pst_trainer_targets_close(&t->targets);
    pst_trainer_recipe_close(&t->recipe);
    pst_device_close(&t->device);
    pst_inputs_close(&t->inputs);
    if (t->dataset_open)
        pst_dataset_close(&t->ds);
}
