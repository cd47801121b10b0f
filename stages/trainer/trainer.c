/* trainer.c: the trainer stage: trains a model on minibatches, evaluates it, keeps checkpoints. The model,
 * the evaluation and the checkpoints are in stages/lib/gnn; here are ports, parameters, events and reports.
 */
#include "stages/trainer/trainer.h"
#include "common/slots/minibatch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- the end of an epoch ------------------------------------------------------------------------- */

static bool due(struct pst_stage *self, int64_t every, uint64_t epoch)
{
    return every > 0 && ((epoch + 1) % (uint64_t)every == 0 || epoch + 1 == (uint64_t)pst_epochs(self));
}

/* Without validation, the last epoch is. */
static bool is_best(const struct trainer *t, double by)
{
    const double before = t->now.best_val;
    if (by <= PST_METRIC_UNKNOWN || before <= PST_METRIC_UNKNOWN)
        return true;
    return pst_trainer_recipe_falls(&t->recipe, &t->config) ? by < before : by > before;
}

/* Evaluates. Remembers the epoch if it is the best by the metric on the validation split (without validation:
 * in any case). *val: the accuracy there. *by: the metric. */
static pst_rc evaluate(struct pst_stage *self, struct trainer *t, double *val, double *by)
{
    struct pst_gnn_training *p = &t->now;
    double accuracy[3];
    const double begin = pst_now();
    pst_doing(self, PST_DOES_EVALUATION, 0, 0);
    pst_rc rc = pst_gnn_model_fetch(&t->model);
    if (rc == PST_OK)
        rc = pst_gnn_eval_run(&t->eval, &t->model, accuracy);
    if (rc == PST_OK && t->part_rows.ds)
        rc = pst_trainer_part_rows_end(&t->part_rows);
    if (rc == PST_OK && t->config.head) {
        pst_links_hits_measure(&t->hits, &t->model);
        for (int s = PST_TRAIN; s <= PST_TEST; s++)
            t->eval.metric_of[s] = accuracy[s] = t->hits.of[s];
    }
    pst_span(self, "evaluate", begin, pst_now());
    pst_doing(self, PST_DOES_BATCHES, 0, 0);
    if (rc != PST_OK)
        return pst_wrap(rc, "evaluation");
    *val = accuracy[PST_VAL];
    *by = t->eval.metric_of[PST_VAL];
    p->final_test = accuracy[PST_TEST];
    p->final_test_metric = t->eval.metric_of[PST_TEST];
    p->final_fit = t->eval.fit[PST_TEST];
    if (is_best(t, *by)) {
        p->best_val = *by;
        p->best_test = accuracy[PST_TEST];
        p->best_fit = p->final_fit;
        p->best_test_metric = p->final_test_metric;
        p->best_epoch = (int64_t)p->epoch;
        if (due(self, t->checkpoint_every, p->epoch))
            p->best_batch = p->next_batch;
    }
    return PST_OK;
}

/* All replicas have the same weights, and the first one keeps them. */
static pst_rc save(struct pst_stage *self, struct trainer *t)
{
    const double begin = pst_now();
    if (t->replica > 0)
        return PST_OK;
    pst_rc rc = pst_gnn_model_fetch(&t->model);
    if (rc == PST_OK)
        rc = pst_gnn_state_save(pst_run_dir(self), t->keep, &t->model, &t->done, &t->identity);
    pst_span(self, "checkpoint", begin, pst_now());
    return rc;
}

/* Adds the time since `clock` to the epoch. */
static void take_time(struct trainer *t, struct pst_gnn_training *p)
{
    const double now = pst_now(), since = now - t->clock;
    p->seconds += since;
    t->total.span_s += since;
    t->clock = now;
}

static pst_rc end_epoch(struct pst_stage *self, struct trainer *t)
{
    struct pst_gnn_training *p = &t->now;
    double val = -1, by = PST_METRIC_UNKNOWN;
    pst_rc rc = pst_trainer_settle(t, 0);
    take_time(t, p);
    if (rc == PST_OK && due(self, t->eval_every, p->epoch))
        rc = t->replica == 0 ? evaluate(self, t, &val, &by) : pst_trainer_part_rows_serve(&t->part_rows);
    if (rc == PST_OK && t->replica == 0)
        rc = pst_trainer_report_epoch(self, t, val, by);
    if (rc == PST_OK)
        rc = pst_trainer_grains_tell(&t->grains, &by);
    if (rc == PST_E_INTERRUPTED) { /* the first replica has what it needs, and keeps the whole epoch */
        t->alone = true;
        rc = PST_OK;
    }
    if (rc != PST_OK)
        return rc;
    if (t->eval_every == 0 || due(self, t->eval_every, p->epoch))
        pst_trainer_recipe_epoch(&t->recipe, p, by, pst_trainer_recipe_falls(&t->recipe, &t->config));
    const bool checkpoint = due(self, t->checkpoint_every, p->epoch);
    p->epoch++;
    p->loss = p->seconds = 0;
    p->seeds = p->correct = p->counted = 0;
    t->done = *p;
    if (checkpoint)
        rc = save(self, t);
    t->clock = pst_now();
    return rc;
}

/* ---- batches ------------------------------------------------------------------------------------- */

/* Checks that the minibatch suits the model. */
static pst_rc check_fit(const struct trainer *t, const struct pst_minibatch *mb, const void *slot)
{
    if (mb->feature_dim != t->ds.feature_dim || mb->feature_dtype != (uint32_t)t->ds.features.dtype)
        return pst_fail(PST_E_PEER,
                        "the feature rows of the minibatch have %u columns (type %u), but those of the "
                        "dataset have %" PRId64 " columns (type %u): use the same dataset for all stages",
                        mb->feature_dim, mb->feature_dtype, t->ds.feature_dim,
                        (unsigned)t->ds.features.dtype);
    if (mb->stride_bytes % sizeof(pst_real) != 0)
        return pst_fail(PST_E_PEER,
                        "the feature rows of the minibatch are %" PRIu64
                        " bytes apart; expected a multiple of %zu bytes",
                        mb->stride_bytes, sizeof(pst_real));
    if ((mb->pairs_at != 0) != (t->config.head != NULL))
        return pst_fail(PST_E_PEER, "%s",
                        t->config.head
                            ? "the minibatch has no pairs to score, but loss is link: set the sampler's "
                              "seeds to edges"
                            : "the seeds of the minibatch are edges, but loss is not link: set loss to link, "
                              "or the sampler's seeds to vertices");
    const int32_t *labels = pst_minibatch_at(slot, mb->labels_at);
    const bool classes = !t->config.multilabel && !t->config.regression && !t->config.head;
    for (int64_t i = 0; i < mb->n[0] && classes; i++)
        if (labels[i] >= t->ds.classes)
            return pst_fail(PST_E_PEER,
                            "the label of seed %" PRId64 " is %d, but the dataset has only %" PRId64
                            " classes",
                            i, labels[i], t->ds.classes);
    return PST_OK;
}

/* Brings what a step reads to where the model computes. */
static pst_rc bring(struct trainer *t, struct pst_inputs_given *g)
{
    pst_rc rc = pst_inputs_bring(&t->inputs, g);
    if (rc == PST_OK)
        rc = pst_trainer_targets_bring(&t->targets, pst_minibatch_at(g->slot, g->batch.mb.vertices_at),
                                       &g->batch);
    if (rc == PST_OK && pst_trainer_is_typed(t)) {
        rc = pst_gnn_typed_batch_fill(&t->typed, &t->types, &t->model.terms, &g->batch.mb, g->slot);
        g->batch.typed = &t->typed;
    }
    return rc;
}

/* One step whose figures are taken later. If memory has to grow, the queue gets empty anyway: the figures of
 * the step before are taken first, so that its errors are not lost. The slot goes home when its copy is made.
 * If a stage on a CPU uses the slots, the host waits for the copy then, so the step is on the queue first. */
static pst_rc step_later(struct pst_stage *self, struct trainer *t, struct pst_inputs_given *g,
                         const struct pst_trainer_step *step)
{
    pst_rc rc = pst_slot_queued(self, g->frame.refs[0]);
    if (rc == PST_OK && !pst_gnn_model_has_room(&t->model, &g->batch))
        rc = pst_trainer_settle(t, 0);
    const double before = pst_now();
    if (rc == PST_OK)
        rc = pst_trainer_put(t, step, &g->batch);
    if (rc == PST_OK)
        rc = pst_consume(self, &g->frame);
    pst_trainer_spent(t, before);
    return rc;
}

/* One step with its figures. On a GPU the slot goes home as soon as its copy is on the queue. With "overlap":
 * false it goes home when the batch has ended (take_given), because then the sampler begins the next batch.
 */
static pst_rc step_now(struct pst_stage *self, struct trainer *t, struct pst_inputs_given *g,
                       const struct pst_trainer_step *step)
{
    struct pst_gnn_figures figures = {0};
    const double before = pst_now();
    const bool overlap = pst_overlap(self), copied = t->inputs.staging != NULL;
    pst_rc rc = overlap && copied ? pst_consume(self, &g->frame) : PST_OK;
    if (rc == PST_OK)
        rc = pst_gnn_model_step(&t->model, &g->batch, &figures, NULL);
    if (rc == PST_OK && overlap && !copied)
        rc = pst_consume(self, &g->frame);
    pst_trainer_spent(t, before);
    if (rc != PST_OK)
        return rc;
    if (t->grains.grains == 1)
        return pst_trainer_note(t, step, &figures);
    rc = pst_trainer_check_loss(t, step, &figures);
    if (rc == PST_OK)
        pst_trainer_grains_note(&t->grains, &figures, &g->batch.mb);
    return rc;
}

static pst_rc train(struct pst_stage *self, struct trainer *t, struct pst_inputs_given *g)
{
    const struct pst_minibatch *mb = &g->batch.mb;
    const struct pst_trainer_step step = {.batch = mb->batch,
                                          .micro = g->frame.micro,
                                          .epoch = mb->epoch,
                                          .batch_in_epoch = mb->batch_in_epoch,
                                          .batch_seeds = mb->batch_seeds};
    pst_rc rc = check_fit(t, mb, g->slot);
    if (rc == PST_OK)
        rc = pst_trainer_grains_begin(&t->grains, mb->grain);
    if (rc != PST_OK)
        return rc;
    const double before = pst_now();
    rc = bring(t, g);
    pst_trainer_spent(t, before);
    if (rc != PST_OK)
        return rc;
    const int64_t seeds = pst_trainer_seeds_of(mb);
    /* The wait for the first batch is left out of the times, so it must not be counted with the second. */
    rc = t->later && t->total.batches > 0 ? step_later(self, t, g, &step) : step_now(self, t, g, &step);
    if (rc != PST_OK)
        return rc;
    t->total.seeds += (uint64_t)seeds;
    if (t->grains.grains > 1)
        return PST_OK;
    t->gradients = true;
    t->now.seeds += seeds;
    t->now.digest = XXH3_64bits_withSeed(&mb->digest, sizeof mb->digest, t->now.digest);
    return PST_OK;
}

/* Updates the weights with the gradients of the batch: those of all its grains, of all replicas. */
static pst_rc update(struct trainer *t)
{
    const double before = pst_now();
    int64_t seeds;
    if (t->grains.grains > 1) {
        const pst_rc rc = pst_trainer_grains_end(&t->grains, &t->now, &seeds);
        t->alone = rc == PST_E_INTERRUPTED;
        if (rc != PST_OK)
            return t->alone ? PST_OK : rc;
        t->gradients = seeds > 0;
    }
    if (t->gradients)
        pst_gnn_model_update(&t->model, pst_trainer_recipe_rate(&t->recipe, &t->now, t->batches_in_epoch),
                             t->weight_decay);
    t->total.train_s += pst_now() - before;
    if (++t->total.batches == 1) {
        t->total.train_s = 0;
        t->total.span_s = t->clock - pst_now(); /* take_time adds what follows */
    }
    t->gradients = false;
    return PST_OK;
}

/* Ends a batch, whose gradients are in the weights, and ends the epoch if it is complete. */
static pst_rc end_batch(struct pst_stage *self, struct trainer *t, uint64_t batch)
{
    t->now.next_batch = batch + 1;
    t->done = t->now;
    if (t->batches_in_epoch > 0 && t->now.next_batch % t->batches_in_epoch == 0)
        return end_epoch(self, t);
    return PST_OK;
}

/* Trains on a minibatch and releases its slot. */
static pst_rc take_minibatch(struct pst_stage *self, struct trainer *t, struct pst_inputs_given *g,
                             bool *last)
{
    uint64_t bytes;
    g->slot = pst_slot(self, g->frame.refs[0], &bytes);
    if (g->cached.nrefs > 0)
        g->rows = pst_slot(self, g->cached.refs[0], &g->rows_bytes);
    if (!g->slot || (g->cached.nrefs > 0 && !g->rows))
        return PST_E_ARG;
    const struct pst_minibatch *mb = &g->batch.mb;
    const pst_rc rc = pst_minibatch_read(g->slot, bytes, &g->batch.mb);
    if (rc != PST_OK)
        return rc;
    if (mb->batch != g->frame.batch || mb->batch % mb->batches_in_epoch != mb->batch_in_epoch)
        return pst_fail(PST_E_PEER,
                        "the header of the minibatch does not match the frame that brought it: the header "
                        "says batch %" PRIu64 ", batch_in_epoch %" PRIu64 " of %" PRIu64,
                        mb->batch, mb->batch_in_epoch, mb->batches_in_epoch);
    const pst_rc served = pst_minibatch_check_served(mb);
    if (served != PST_OK)
        return served;
    t->batches_in_epoch = mb->batches_in_epoch;
    *last = *last || mb->last_micro;
    if (mb->n[mb->hops] > 0)
        return train(self, t, g);
    return pst_overlap(self) ? pst_consume(self, &g->frame) : PST_OK; /* an empty one only ends its batch */
}

static pst_rc take_given(struct pst_stage *self, struct trainer *t, struct pst_inputs_given *g)
{
    const struct pst_frame *frame = &g->frame;
    if (frame->batch != t->now.next_batch)
        return pst_fail(PST_E_PEER,
                        "batch %" PRIu64 " arrived; expected batch %" PRIu64
                        ": a stage before the trainer left a batch out, or changed the order",
                        frame->batch, t->now.next_batch);
    bool last = frame->flags & PST_LAST_MICRO;
    const double begin = pst_now();
    pst_rc rc = frame->nrefs > 0 ? take_minibatch(self, t, g, &last) : PST_OK;
    if (rc == PST_OK && last)
        rc = update(t);
    const pst_rc before = t->named_batch ? PST_OK : pst_trainer_settle(t, rc == PST_OK ? 1 : 0);
    rc = before != PST_OK ? before : rc; /* an error of the batch before is the first one */
    pst_span_of(self, "T", frame->batch, -1, begin, pst_now());
    if (rc == PST_OK)
        rc = pst_inputs_let_go(&t->inputs, g);
    if (rc != PST_OK)
        return t->named_batch ? rc
                              : pst_wrap(rc, "batch %" PRIu64 ", micro-batch %u", frame->batch, frame->micro);
    return last && !t->alone ? end_batch(self, t, frame->batch)
                             : PST_OK; /* meanwhile, other stages make the next batches */
}

/* With the input `cached`, a batch waits for both of its frames. */
static pst_rc take_frame(struct pst_stage *self, struct trainer *t, const struct pst_event *event)
{
    struct pst_inputs_given given = {.frame = *event->frame};
    bool any = true;
    if (!(event->frame->flags & PST_LAST_PART) || t->alone)
        return PST_OK;
    if (!t->inputs.cached)
        return take_given(self, t, &given);
    pst_rc rc = pst_inputs_note(&t->inputs, event);
    while (rc == PST_OK && any && !t->alone) {
        rc = pst_inputs_next(&t->inputs, &given, &any);
        if (rc == PST_OK && any)
            rc = take_given(self, t, &given);
    }
    return rc;
}

static pst_rc on_frame(struct pst_stage *self, struct trainer *t, const struct pst_event *event)
{
    const pst_rc rc = take_frame(self, t, event);
    t->idle = false;
    if (rc == PST_OK && t->model.open.put != t->model.open.taken)
        pst_timer(self, 0);
    return rc;
}

/* ---- the end of the run -------------------------------------------------------------------------- */

/* What the model of a batch's time needs (common/tpc). */
static pst_rc report_totals(struct pst_stage *self, struct trainer *t)
{
    if (t->batches_in_epoch > 0 && t->now.next_batch % t->batches_in_epoch != 0)
        take_time(t, &t->now); /* the run ends within an epoch */
    if (t->replica > 0)        /* the batches and times of all replicas are those of the first */
        return pst_report(self, "trainer", "{\"seeds\":%" PRIu64 "}", t->total.seeds);
    return pst_report(self, "trainer",
                      "{\"batches\":%" PRIu64 ",\"seeds\":%" PRIu64
                      ",\"train_s\":%.6f,\"span_s\":%.6f,\"gradient_bytes\":%" PRIu64 "}",
                      t->total.batches, t->total.seeds, t->total.train_s, t->total.span_s,
                      (uint64_t)t->model.size * sizeof *t->model.weight);
}

/* The user asked to stop, or the pipeline's `stop` did. What the current batch has added is left out. */
static pst_rc finish(struct pst_stage *self, struct trainer *t)
{
    if (t->grains.collective)
        pst_collective_leave(t->grains.collective); /* others may wait for this replica */
    pst_rc rc = pst_trainer_settle(t, 0);
    take_time(t, &t->done);
    if (rc == PST_OK)
        rc = report_totals(self, t);
    if (rc == PST_OK)
        rc = save(self, t);
    if (rc == PST_OK && t->replica == 0)
        rc = pst_trainer_report_result(self, t);
    if (rc == PST_OK)
        rc = pst_trainer_report_work(self, t);
    if (rc == PST_OK && t->replica == 0)
        pst_log(self, "stopped after %" PRIu64 " batches; the checkpoint is in %s/checkpoints",
                t->done.next_batch, pst_run_dir(self));
    return rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct trainer *t = pst_state(self);
    switch (event->kind) {
    case PST_EV_START: t->clock = pst_now(); return PST_OK;
    case PST_EV_FRAME: return on_frame(self, t, event);
    case PST_EV_END: {
        if (!pst_inputs_end(&t->inputs))
            return PST_OK;
        pst_rc rc = pst_trainer_settle(t, 0);
        if (rc == PST_OK && t->replica == 0)
            rc = pst_trainer_report_result(self, t);
        if (rc == PST_OK)
            rc = report_totals(self, t);
        return rc == PST_OK ? pst_trainer_report_work(self, t) : rc;
    }
    case PST_EV_TIMER: return pst_trainer_on_timer(self, t);
    case PST_EV_FINISH: return finish(self, t);
    default: return PST_OK;
    }
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {
    {.name = "batch",
     .dir = PST_IN,
     .help = "minibatches with their features",
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu,pinned if model=graphsage|gcn|gat|rgcn|rsage|rgat and loss=cross_entropy|mse and "
               "inputs=features",
     .requests = PST_REQUESTS_NEEDS,
     .flags = PST_PORT_ORDERED | PST_PORT_IN_PLACE,
     .whole_if = "norm=batch",
     .in_place_if = "model=graphsage|gcn and inputs=features"},
    {.name = "cached",
     .dir = PST_IN,
     .help = "on a GPU: slots with the cached rows, to which the missing rows are added",
     .type = "rows",
     .dtype = "any",
     .rank = 2,
     .memory = "cuda",
     .flags = PST_PORT_ORDERED | PST_PORT_OPTIONAL | PST_PORT_WRITES},
    {0}};

#define PARAM(name_, type_, member_, def_, ...)                                                              \
    {                                                                                                        \
        .name = name_, .type = PST_PARAM_##type_, .into = PST_INTO(struct trainer, member_), .def = def_,    \
        __VA_ARGS__                                                                                          \
    }

static const struct pst_param_desc params[] = {
    PARAM("model", ENUM, config.model, "\"graphsage\"",
          .choices = "graphsage|gcn|gat|rgcn|rsage|rgat", /* as enum pst_gnn_model_kind */
          .help = "the kind of model; rgcn, rsage and rgat need a sampler with algorithm typed",
          .fixed = true),
    PARAM("layers", INT, config.layers, "2", .min = 2, .max = PST_GNN_LAYERS_MAX,
          .equals = "count(batch.fanout)",
          .help = "number of layers; must be the number of the sampler's hops", .fixed = true),
    PARAM("hidden", INT, config.hidden, "64", .min = 1, .max = 65536,
          .help = "columns of every layer but the last; for gat and rgat, of each head", .fixed = true),
    PARAM("heads", INT, config.heads, "8", .min = 1, .max = PST_GAT_HEADS_MAX,
          .help = "for gat and rgat: attention heads of every layer", .fixed = true),
    PARAM("bases", INT, config.bases, "0", .max = PST_GNN_RELATIONS_MAX, .only_if = "model=rgcn",
          .help =
              "for rgcn: the weight of each relation is a weighted sum of this number of matrices, which all "
              "relations share, so the model has fewer parameters; 0: each relation has its own matrix",
          .fixed = true),
    PARAM("attention_dropout", REAL, config.attention_dropout, "0", .max = 0.99,
          .help = "for gat: share of attention coefficients that are dropped", .fixed = true),
    PARAM("dropout", REAL, config.dropout, "0.5", .max = 0.99,
          .help = "share of activations that are dropped, after every layer but the last", .fixed = true),
    PARAM("input_dropout", REAL, config.input_dropout, "0", .max = 0.99,
          .help = "share of features that are dropped; above 0, each row is copied first", .fixed = true),
    PARAM("norm", ENUM, config.norm, "\"none\"", .choices = "none|layer|batch", /* as enum pst_gnn_norm */
          .help = "normalisation before each activation", .fixed = true),
    PARAM("residual", BOOL, config.residual, "false",
          .help = "add a layer's input to its output if they are equally wide", .fixed = true),
    PARAM("aggregate", ENUM, config.aggregate, "\"mean\"", .choices = "none|mean",
          .help = "mean, or none: GraphSAGE without the graph, for comparison", .fixed = true),
    PARAM("loss", ENUM, recipe.loss, "\"cross_entropy\"",
          .choices = "cross_entropy|mse|link", /* as enum pst_trainer_loss */
          .equals = "batch.seeds:link=edges",
          .help =
              "what training minimises: cross_entropy of labels; mse, the mean squared error of the "
              "dataset's targets, which are numbers (regression); or link, the logistic loss of edges and "
              "of pairs that are not edges (link prediction), for a sampler whose seeds are edges",
          .fixed = true),
    PARAM("score", ENUM, mlp, "\"dot\"", .choices = "dot|mlp", .only_if = "loss=link",
          .help = "for link: how a pair of vertices is scored: the dot product of their outputs, or a "
                  "perceptron with one hidden layer on the elementwise product",
          .fixed = true),
    PARAM("hits", INT, hits_at, "20", .min = 1, .max = 1000000, .only_if = "loss=link",
          .help =
              "for link: K of Hits@K, the share of the validation or test edges that score above the K-th "
              "best of the dataset's negatives",
          .fixed = true),
    PARAM("inputs", ENUM, learned, "\"features\"", .choices = "features|learned",
          .only_if = "model=graphsage|gcn",
          .help = "the inputs of the first layer: the dataset's features; or numbers of each vertex that the "
                  "model learns, for graphs without features. They are in memory, with the optimizer's state",
          .fixed = true),
    PARAM("input_dim", INT, input_dim, "64", .min = 1, .max = 65536, .only_if = "inputs=learned",
          .help = "number of learned inputs of each vertex", .fixed = true),
    PARAM("optimizer", ENUM, config.optimizer, "\"adam\"",
          .choices = "adam|adamw|sgd", /* as enum pst_gnn_optimizer */
          .help = "the method by which gradients change the weights", .fixed = true),
    PARAM("rate", REAL, recipe.schedule.rate, "0.01", .min = 1e-9, .max = 10, .help = "learning rate"),
    PARAM("weight_decay", REAL, weight_decay, "0.0005", .max = 1,
          .help = "L2 penalty, added to the gradient; with adamw, each step reduces the weights by the "
                  "fraction rate x weight_decay instead"),
    PARAM("momentum", REAL, config.momentum, "0", .max = 0.9999, .only_if = "optimizer=sgd",
          .help = "for sgd: the fraction of the past steps' direction that each step keeps", .fixed = true),
    PARAM("nesterov", BOOL, config.nesterov, "false", .only_if = "optimizer=sgd",
          .help = "for sgd: use Nesterov's momentum", .fixed = true),
    PARAM("clip", REAL, config.clip, "0", .max = 1e9,
          .help = "largest norm of all gradients together; gradients with a larger norm are scaled down to "
                  "it. 0: no limit",
          .fixed = true),
    PARAM("schedule", ENUM, recipe.schedule.kind, "\"constant\"",
          .choices = "constant|step|cosine|plateau", /* as enum pst_schedule_kind */
          .help = "how the learning rate falls. step: it is multiplied by `factor` every `period` epochs; "
                  "cosine: it falls to rate_min; plateau: it is multiplied by `factor` when the metric on "
                  "the validation split (or the training loss, if there is no evaluation) no longer improves",
          .fixed = true),
    PARAM("warmup", REAL, recipe.schedule.warmup, "0", .max = 1000000,
          .help = "number of epochs (can be a fraction) in which the rate first rises linearly from near 0",
          .fixed = true),
    PARAM("period", INT, recipe.period, "10", .min = 1, .max = 1000000, .only_if = "schedule=step",
          .help = "for step: number of epochs after which the rate falls each time", .fixed = true),
    PARAM("factor", REAL, recipe.schedule.factor, "0.5", .min = 0.001, .max = 0.999,
          .only_if = "schedule=step|plateau",
          .help = "for step and plateau: the number by which the rate is multiplied", .fixed = true),
    PARAM("patience", INT, recipe.patience, "5", .max = 1000000, .only_if = "schedule=plateau",
          .help = "for plateau: the rate falls after more than this number of epochs without improvement",
          .fixed = true),
    PARAM("rate_min", REAL, recipe.schedule.rate_min, "0", .max = 10,
          .only_if = "schedule=step|cosine|plateau",
          .help = "for step, cosine and plateau: the rate does not fall below this", .fixed = true),
    PARAM("cosine_epochs", INT, recipe.cosine_epochs, "0", .max = 1000000, .only_if = "schedule=cosine",
          .help =
              "for cosine: number of epochs after which the rate is rate_min; 0: all epochs of the pipeline",
          .fixed = true),
    PARAM("label_smoothing", REAL, recipe.label_smoothing, "0", .max = 0.99,
          .help = "share of each label that is spread evenly over all classes", .fixed = true),
    PARAM("class_weights", STRING, recipe.class_weights, "\"\"",
          .help = "weights of the classes in the loss: numbers separated by commas; or balanced: in inverse "
                  "proportion to a class's number of training vertices. Empty: all are equal",
          .fixed = true),
    PARAM("metric", ENUM, recipe.metric, "\"auto\"", .choices = PST_TRAINER_METRICS,
          .help =
              "the metric on the validation split that decides which epoch is the best. auto: accuracy, or "
              "micro_f1 if vertices have several labels, or mse if the loss is mse",
          .fixed = true),
    PARAM("split", STRING, split, "\"train\"",
          .help = "the split to evaluate: train, val or test (the first split of the dataset), or the name "
                  "of a split",
          .fixed = true),
    PARAM("eval_every", INT, eval_every, "1", .max = 1000000,
          .help = "epochs between evaluations over the whole graph; 0: no evaluation"),
    PARAM("eval_memory", BYTES, eval_memory, "\"auto\"", .max = 1e15, .automatic = true,
          .help =
              "memory for evaluation: activations that exceed it go to a file, and features that exceed it "
              "are not cached; auto: an eighth of what the process may use, at most 1 GiB"),
    PARAM("checkpoint_every", INT, checkpoint_every, "1", .max = 1000000,
          .help = "epochs between checkpoints; 0: only when stopped"),
    PARAM("keep", INT, keep, "3", .min = 1, .max = 1000,
          .help = "how many of the latest checkpoints are kept, besides the best one"),
    PARAM("threads", INT, threads, "0", .max = PST_TEAM_MAX,
          .help = "threads that train; 0: one per core that the stage may use. Results do not depend on it"),
    PARAM("grains", INT, grain_count, "1", .min = 1, .max = PST_MINIBATCH_GRAINS_MAX,
          .equals = "batch.grains",
          .help =
              "number of parts (grains) of each batch. Their gradients are computed one by one and added in "
              "a fixed order, so the weights do not depend on the number of replicas, which share the grains",
          .fixed = true, .divided = true),
    PARAM("reduce", ENUM, reduce, "\"tree\"", .choices = "tree|nccl", .choice_if = "nccl if device=cuda",
          .help = "how replicas add up gradients. tree: any number gives the same bits; nccl: by NCCL"),
    PARAM("precision", ENUM, precision, "\"float32\"",
          .choices = "float32|tf32|bf16", /* as enum pst_twin_precision */
          .choice_if = "tf32 if device=cuda, bf16 if device=cuda|avx512_bf16",
          .help = "what the factors of matrix products are rounded to in training; sums, weights and the "
                  "optimizer's state are in float32. bf16: 8 bits of precision, on GPUs and on CPUs with "
                  "AVX512_BF16. tf32: 11 bits, on GPUs",
          .fixed = true),
    {0}};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "trainer",
    .help =
        "trains GraphSAGE (mean), GCN, GAT, R-GCN, R-SAGE or R-GAT on minibatches, evaluates the model and "
        "writes checkpoints",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* each instance would train its own model */
    .replicas = PST_REPLICAS_MEET,
    .dataset = "features:inputs=features,edges:loss=link,labels:loss=cross_entropy,targets:loss=mse,types,"
               "parts,lists:eval_every,evaluated:split",
    .state_bytes = sizeof(struct trainer),
    .open = pst_trainer_open,
    .on_event = on_event,
    .close = pst_trainer_close,
};
