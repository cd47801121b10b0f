/* owner.c: opens embeddings, gathers and updates them, and ends epochs. */
#include "stages/lib/vectors/owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIGURES_MAX = PST_COMMIT_FIGURES_MAX };

/* ---- the end of an epoch --------------------------------------------------------------------------- */

static pst_rc evaluate(struct pst_vectors_owner *s, int part, const pst_real *relations,
                       char figures[FIGURES_MAX], struct pst_embed_ranks *sum)
{
    const double begin = pst_now();
    pst_doing(s->stage, PST_DOES_EVALUATION, 0, 0);
    const pst_rc rc = pst_evaluation_run(&s->evaluation, part, relations, sum);
    pst_doing(s->stage, PST_DOES_BATCHES, 0, 0);
    pst_evaluation_print(sum, part, figures, FIGURES_MAX);
    s->evaluate_s += pst_now() - begin;
    pst_span(s->stage, "evaluation", begin, pst_now());
    return rc;
}

/* Whether the epoch is evaluated, if epochs are. */
static bool is_due(const struct pst_vectors_owner *s, uint32_t epoch)
{
    return epoch + 1 == pst_epochs(s->stage) || (epoch + 1) % s->eval_every == 0;
}

/* What the rates of an epoch are multiplied by: from 1 to least, in half a cosine. */
static double cosine(const struct pst_vectors_owner *s, uint64_t epoch)
{
    const struct pst_schedule schedule = {.kind = PST_SCHEDULE_COSINE,
                                          .rate = 1,
                                          .rate_min = s->plateau.least,
                                          .period =
                                              s->cosine_epochs > 0 ? s->cosine_epochs : pst_epochs(s->stage)};
    return pst_schedule_rate(&schedule, epoch, 1, 1);
}

/* The rate of the next epoch. val: of the epoch's evaluation; without one, a plateau follows the loss. If
 * only some epochs are evaluated, the others change nothing, because their MRR is not known. */
static void follow(struct pst_vectors_owner *s, const struct pst_row_batch *b,
                   const struct pst_embed_ranks *val)
{
    const bool epochs = s->evaluate == PST_VECTORS_EPOCHS;
    if (s->schedule == PST_VECTORS_COSINE)
        s->plateau.state.scale = cosine(s, (uint64_t)b->epoch + 1);
    else if (epochs && is_due(s, b->epoch) && val->n > 0)
        pst_plateau_step(&s->plateau, PST_PLATEAU_SCORE, val->reciprocal / (double)val->n);
    else if (!epochs || is_due(s, b->epoch))
        pst_plateau_step(&s->plateau, PST_PLATEAU_LOSS, pst_vectors_owner_loss(b));
    s->vectors.scale = (float)s->plateau.state.scale;
}

/* What a checkpoint has of it. */
static struct pst_plateau_state *schedule_of(struct pst_vectors_owner *s)
{
    return s->schedule != PST_VECTORS_CONSTANT ? &s->plateau.state : NULL;
}

/* b: the header of the slot that carries the relations. next: where a resumed run goes on. */
static pst_rc save(struct pst_vectors_owner *s, const struct pst_row_batch *b, const pst_real *relations,
                   uint64_t next)
{
    const double begin = pst_now();
    const struct pst_commit c = {.run_dir = pst_run_dir(s->stage),
                                 .dataset = s->ds.digest,
                                 .run = pst_run_identity(s->stage),
                                 .seed = pst_seed(s->stage),
                                 .next_batch = next,
                                 .within = b->flush != 1,
                                 .initial = s->initial.open ? s->initial.reader.next_batch : 0,
                                 .keep = s->partitions > 1 ? 1 : s->keep,
                                 .best = &s->best,
                                 .table = s->partitions > 1 ? &s->exchange.table : NULL,
                                 .partitions = (int)s->partitions,
                                 .model = s->model,
                                 .inverse = s->inverse,
                                 .schedule = schedule_of(s)};
    pst_rc rc = s->partitions > 1 ? pst_vectors_exchange_sync(&s->exchange) : PST_OK;
    if (rc == PST_OK)
        rc = pst_commit_save(&c, &s->vectors, b, relations);
    if (rc == PST_OK && s->partitions > 1 && s->best.batch == next)
        s->exchange.best = s->exchange.table;
    if (rc == PST_OK && s->partitions > 1)
        rc = pst_vectors_exchange_committed(&s->exchange);
    s->commits++;
    s->commit_s += pst_now() - begin;
    pst_span(s->stage, "checkpoint", begin, pst_now());
    return rc;
}

static pst_rc read_carrier(const char *slot, uint64_t bytes, struct pst_row_batch *b)
{
    const pst_rc rc = pst_row_batch_read(slot, bytes, b);
    if (rc == PST_OK && pst_row_batch_carried(b) > bytes - PST_ROW_BATCH_CARRIED_AT)
        return pst_fail(PST_E_PEER,
                        "batch %" PRIu64 " says that it contains %" PRIu64
                        " bytes of embeddings of relations, which is more than its slot has",
                        b->batch, pst_row_batch_carried(b));
    return rc;
}

/* The relations that the slot carries. If they are async, it does not: describes those of the owner in its
 * header. */
static const char *carried_relations(const struct pst_vectors_owner *s, const char *slot,
                                     struct pst_row_batch *b)
{
    if (!s->vectors.relations)
        return slot + PST_ROW_BATCH_CARRIED_AT;
    b->carried_rows = (uint32_t)s->own_relations.rows;
    b->carried_dim = (uint32_t)s->own_relations.dim;
    b->carried_state = (uint32_t)s->own_relations.state_dim;
    return (const char *)s->own_relations.row;
}

static bool is_best(const struct pst_vectors_owner *s, const struct pst_embed_ranks *val)
{
    return s->evaluate == PST_VECTORS_EPOCHS && val->n > 0 &&
           (s->best.batch == UINT64_MAX || val->reciprocal / (double)val->n > s->best.mrr);
}

/* Evaluates what is due after an epoch, and remembers it, if it is the best. next: the next epoch's batch. */
static pst_rc evaluate_epoch(struct pst_vectors_owner *s, const struct pst_row_batch *b, uint64_t next,
                             const pst_real *relations, char val[FIGURES_MAX], char test[FIGURES_MAX],
                             struct pst_embed_ranks ranks[2])
{
    const bool last = b->epoch + 1 == pst_epochs(s->stage);
    pst_rc rc = PST_OK;
    if ((s->evaluate == PST_VECTORS_EPOCHS && is_due(s, b->epoch)) ||
        (s->evaluate == PST_VECTORS_END && last))
        rc = evaluate(s, PST_VAL, relations, val, &ranks[0]);
    const bool best = rc == PST_OK && is_best(s, &ranks[0]);
    if (rc == PST_OK && s->evaluate != PST_VECTORS_NEVER && (last || best))
        rc = evaluate(s, PST_TEST, relations, test, &ranks[1]);
    if (rc != PST_OK || !best)
        return rc;
    s->best = (struct pst_commit_best){
        .batch = next, .epoch = b->epoch, .mrr = ranks[0].reciprocal / (double)ranks[0].n};
    memcpy(s->best.test, test, FIGURES_MAX);
    return PST_OK;
}

/* All updates of an epoch are in the rows, and the slot carries the relations. */
static pst_rc end_epoch(struct pst_vectors_owner *s, const char *slot, uint64_t bytes)
{
    struct pst_row_batch b;
    pst_rc rc = read_carrier(slot, bytes, &b);
    if (rc != PST_OK)
        return rc;
    const char *carried = carried_relations(s, slot, &b);
    const pst_real *relations = (const pst_real *)(const void *)carried;
    const bool last = b.epoch + 1 == pst_epochs(s->stage);
    const uint64_t next = b.batch - b.batch_in_epoch + b.batches_in_epoch;
    char val[FIGURES_MAX] = "", test[FIGURES_MAX] = "";
    struct pst_embed_ranks ranks[2] = {{0}}; /* of val and test */
    rc = evaluate_epoch(s, &b, next, relations, val, test, ranks);
    if (rc == PST_OK)
        rc = pst_vectors_owner_report_epoch(s, &b, val);
    if (rc == PST_OK && s->schedule != PST_VECTORS_CONSTANT)
        follow(s, &b, &ranks[0]);
    const bool due = s->checkpoint_every > 0 &&
                     (last || s->best.batch == next || (b.epoch + 1) % s->checkpoint_every == 0);
    if (rc == PST_OK && due)
        rc = save(s, &b, relations, next);
    if (rc == PST_OK && last)
        rc = pst_vectors_owner_report_result(s, &b, carried, val, test, ranks);
    return rc == PST_OK && last ? pst_vectors_owner_report(s) : rc;
}

/* ---- batches ------------------------------------------------------------------------------------- */

pst_rc pst_vectors_owner_gather(struct pst_vectors_owner *s, const void *from, uint64_t from_bytes,
                                char *slot, uint64_t bytes, struct pst_row_batch *b)
{
    struct pst_edge_batch edges;
    const double begin = pst_now();
    pst_rc rc = pst_edge_batch_read(from, from_bytes, &edges);
    if (rc == PST_OK && edges.vertices != s->ds.vertices)
        rc = pst_fail(PST_E_PEER, "the edges are of a dataset with %" PRId64 " vertices; expected %" PRId64,
                      edges.vertices, s->ds.vertices);
    if (rc == PST_OK && edges.relations != s->relations)
        rc = pst_fail(PST_E_PEER, "the edges are of a dataset with %" PRId64 " relations; expected %" PRId64,
                      edges.relations, s->relations);
    if (rc == PST_OK)
        rc = pst_vectors_gather(&s->vectors, &edges, from, slot, bytes, b);
    if (rc != PST_OK)
        return rc;
    s->gather_s += pst_now() - begin;
    s->edges += b->edges;
    s->nodes += b->nodes;
    if (b->edges > 0) {
        s->gathered++;
        s->lacked += s->lent++;
    }
    pst_span_of(s->stage, "G", b->batch, -1, begin, pst_now());
    return PST_OK;
}

/* All updates are in the rows, but rows are not yet in their array. The slot is needed for the next batch. */
static pst_rc keep_carrier(struct pst_vectors_owner *s, const char *slot, uint64_t bytes)
{
    struct pst_row_batch b;
    const pst_rc rc = read_carrier(slot, bytes, &b);
    if (rc != PST_OK)
        return rc;
    memcpy(s->carried, slot, PST_ROW_BATCH_CARRIED_AT + pst_row_batch_carried(&b));
    s->ending = b.flush == 1;
    s->saving = !s->ending;
    if (s->ending)
        return pst_vectors_exchange_close_epoch(&s->exchange);
    struct pst_parts_batch at;
    pst_parts_epochs_find(&s->exchange.training.epochs, b.batch, &at);
    return pst_vectors_exchange_save(&s->exchange, pst_parts_needs(at.group));
}

pst_rc pst_vectors_owner_take(struct pst_vectors_owner *s, const struct pst_row_batch *b, const char *slot,
                              uint64_t bytes, const struct pst_vectors_settled *settled)
{
    if (pst_row_batch_carries(b))
        return s->partitions > 1 ? keep_carrier(s, slot, bytes) : end_epoch(s, slot, bytes);
    if (b->edges == 0)
        return PST_OK;
    const double begin = pst_now();
    const pst_rc rc = pst_vectors_update(&s->vectors, b, slot, settled);
    s->lent--;
    s->update_s += pst_now() - begin;
    pst_span_of(s->stage, "U", b->batch, -1, begin, pst_now());
    return rc;
}

pst_rc pst_vectors_owner_home(struct pst_vectors_owner *s, uint64_t batch)
{
    return s->partitions > 1 ? pst_vectors_exchange_home(&s->exchange, batch) : PST_OK;
}

pst_rc pst_vectors_owner_part(struct pst_vectors_owner *s, const struct pst_event *event)
{
    return pst_vectors_mover_credit(&s->exchange.mover, &event->credit, event->kind == PST_EV_RETURN);
}

/* The updates of all batches up to the carrier's are in the array. */
static pst_rc save_within(struct pst_vectors_owner *s)
{
    struct pst_row_batch b = *(const struct pst_row_batch *)(const void *)s->carried;
    const char *relations = carried_relations(s, s->carried, &b);
    s->saving = false;
    return save(s, &b, (const pst_real *)(const void *)relations, b.batch + (uint64_t)s->staleness);
}

/* Ends an epoch whose partitions are written, or makes a commit within one. */
static pst_rc end_written(struct pst_vectors_owner *s)
{
    if (s->saving && pst_vectors_exchange_saved(&s->exchange))
        return save_within(s);
    if (!s->ending || !pst_vectors_exchange_closed(&s->exchange))
        return PST_OK;
    s->ending = false;
    return end_epoch(s, s->carried, s->slot_bytes);
}

pst_rc pst_vectors_owner_ready(struct pst_vectors_owner *s, uint64_t batch, bool *ready)
{
    *ready = s->partitions == 1;
    if (*ready)
        return PST_OK;
    pst_rc rc = end_written(s);
    if (rc != PST_OK || s->ending || s->saving || batch == UINT64_MAX)
        return rc;
    rc = pst_vectors_exchange_ready(&s->exchange, batch, ready);
    if (!*ready && s->waiting_since == 0)
        s->waiting_since = pst_now();
    if (*ready && s->waiting_since > 0) {
        s->waited_s += pst_now() - s->waiting_since;
        pst_span(s->stage, "partitions", s->waiting_since, pst_now());
        s->waiting_since = 0;
    }
    return rc;
}

/* ---- opening ------------------------------------------------------------------------------------- */

/* Partitions travel by the port `parts`. */
static pst_rc size_exchange(struct pst_vectors_owner *s)
{
    struct pst_stage *self = s->stage;
    s->exchange = (struct pst_vectors_exchange){.vectors = &s->vectors,
                                                .seed = pst_seed(self),
                                                .scale = s->scale,
                                                .partitions = (int)s->partitions,
                                                .buffer = (int)s->buffer,
                                                .ahead = s->prefetch ? (int)s->ahead : 0,
                                                .prefetch = s->prefetch,
                                                .settle = s->settle,
                                                .settle_arg = s->settle_arg,
                                                .keeps_best = s->evaluate == PST_VECTORS_EPOCHS &&
                                                              s->checkpoint_every > 0};
    if (!pst_linked(self, s->parts))
        return pst_fail(PST_E_ARG,
                        "partitions is %" PRId64
                        ", but the port parts is not linked; link it to a stage that writes and "
                        "reads the array \"embeddings\", for example disk.requests",
                        s->partitions);
    if (s->buffer >= s->partitions || s->partitions > s->ds.vertices)
        return pst_fail(PST_E_ARG,
                        "%" PRId64 " partitions with a buffer of %" PRId64
                        ": expected more partitions than the buffer holds, and at most one for each of the "
                        "%" PRId64 " vertices; with \"partitions\": 1 everything is in memory",
                        s->partitions, s->buffer, s->ds.vertices);
    if (s->piece % PST_PAGE != 0)
        return pst_fail(PST_E_ARG, "piece is %" PRIu64 "; expected a multiple of %d", s->piece, PST_PAGE);
    pst_need(self, s->parts, PST_PAGE + s->piece, PST_PAGE);
    return pst_vectors_exchange_make(&s->exchange, pst_run_dir(self));
}

/* What edges of the same query need, to come together. */
static pst_rc check_together(const struct pst_vectors_owner *s)
{
    const char *needs = s->negatives_from != PST_PARTS_ALL        ? "negatives_from all"
                        : !s->inverse                             ? "inverse true"
                        : s->partitions > 1                       ? "partitions 1"
                        : s->relations_way == PST_RELATIONS_ASYNC ? "relations sync"
                                                                  : NULL;
    return needs ? pst_fail(PST_E_ARG,
                            "together is %" PRId64 ", but training the edges of a query together requires "
                            "%s: set that, or set together to 0",
                            s->together, needs)
                 : PST_OK;
}

/* The largest batch can bring so many relations. */
static void plan_relations(struct pst_vectors_owner *s, struct pst_row_batch *largest)
{
    s->plan = (struct pst_embed_plan){.model = pst_embed_model_named(s->model),
                                      .d = s->dim,
                                      .relations = s->relations,
                                      .inverse = s->inverse,
                                      .seed = pst_seed(s->stage)};
    if (s->relations_way == PST_RELATIONS_SYNC)
        return;
    pst_relations_table_plan(&s->own_relations, &s->plan, s->optimizer);
    s->vectors.relations = &s->own_relations;
    largest->relation_rows = (uint32_t)pst_min_i64(s->own_relations.rows, 2 * s->batch);
    largest->relation_dim = (uint32_t)s->own_relations.dim;
}

pst_rc pst_vectors_owner_size(struct pst_vectors_owner *s, struct pst_stage *stage, int parts)
{
    const struct pst_array *training = NULL;
    s->stage = stage;
    s->parts = parts;
    pst_rc rc = pst_dataset_open(&s->ds, pst_dataset_dir(stage));
    if (rc == PST_OK)
        rc = pst_dataset_edges(&s->ds, PST_TRAIN, &training, &s->relations);
    if (rc != PST_OK)
        return rc;
    s->training = s->together > 0 ? 2 * training->shape[0] : training->shape[0];
    if (s->together > 0)
        rc = check_together(s);
    if (rc != PST_OK)
        return rc;
    if (s->ds.vertices > UINT32_MAX - 1)
        return pst_fail(PST_E_ARG, "%s has %" PRId64 " vertices; expected at most %u", s->ds.dir,
                        s->ds.vertices, UINT32_MAX - 1);
    s->vectors = (struct pst_vectors){.vertices = s->ds.vertices,
                                      .dim = s->dim,
                                      .optimizer = s->optimizer,
                                      .rate = (pst_real)s->rate,
                                      .scale = 1,
                                      .blocks = s->partitions > 1 ? (int)(s->buffer + s->ahead) : 1,
                                      .block_rows = (s->ds.vertices + s->partitions - 1) / s->partitions,
                                      .unit = s->partitions > 1 ? s->piece : 1};
    pst_parts_negatives(s->negatives_from, s->ds.vertices, s->partitions, s->buffer, &s->chunks,
                        &s->negatives);
    const int64_t most = 2 * (s->batch + s->chunks * s->negatives);
    struct pst_row_batch largest = {.edges = (uint32_t)s->batch,
                                    .chunks = (uint32_t)s->chunks,
                                    .negatives = (uint32_t)s->negatives,
                                    .nodes = (uint32_t)pst_min_i64(most, s->ds.vertices),
                                    .dim = (uint32_t)s->dim};
    plan_relations(s, &largest);
    pst_row_batch_place(&largest);
    s->slot_bytes = largest.bytes_used;
    if (s->partitions == 1 && s->checkpoint_swaps > 0)
        return pst_fail(PST_E_ARG,
                        "checkpoint_swaps is %" PRId64
                        ", but with 1 partition all embeddings are in memory, and nothing is exchanged; "
                        "expected 0, or more partitions (checkpoint_every is for whole epochs)",
                        s->checkpoint_swaps);
    return s->partitions > 1 ? size_exchange(s) : PST_OK;
}

static pst_rc load_partition(void *arg, int partition)
{
    return pst_vectors_exchange_read(arg, partition, 0);
}

static pst_rc open_evaluation(struct pst_vectors_owner *s, int threads)
{
    s->evaluation = (struct pst_evaluation){.ds = &s->ds,
                                            .plan = &s->plan,
                                            .tie = s->tie,
                                            .among = s->evaluate_among,
                                            .alpha = s->evaluate_alpha,
                                            .seed = pst_seed(s->stage),
                                            .vectors = &s->vectors,
                                            .gpu = s->gpu,
                                            .load = load_partition,
                                            .load_arg = &s->exchange};
    return pst_evaluation_open(&s->evaluation, s->stage, threads);
}

static pst_rc make_schedule(struct pst_vectors_owner *s)
{
    if (s->schedule != PST_VECTORS_CONSTANT && s->rate_min > s->rate)
        return pst_fail(PST_E_ARG, "rate_min is %g, but rate is %g; expected at most the rate", s->rate_min,
                        s->rate);
    s->plateau = (struct pst_plateau){.patience = (double)s->patience,
                                      .factor = s->factor,
                                      .least = s->rate_min / s->rate,
                                      .state = {.scale = 1}};
    return PST_OK;
}

/* A resumed run has its own checkpoint. */
static bool begins_from_run(const struct pst_vectors_owner *s)
{
    return s->init_from[0] != '\0' && !pst_resume_path(s->stage);
}

/* A resumed run whose partitions were not all written yet generates the others as before. */
static bool needs_initial(const struct pst_vectors_owner *s)
{
    bool all = true;
    for (int p = 0; p < (int)s->partitions; p++)
        all = all && s->exchange.table.extent[p] >= 0;
    return s->init_from[0] != '\0' && !all;
}

/* to: where rows go; NULL: they are read later, by partitions. */
static pst_rc open_initial(struct pst_vectors_owner *s, struct pst_vectors *to)
{
    const pst_rc rc = pst_vectors_initial_open(&s->initial, s->init_from, &s->ds, s->dim);
    return rc == PST_OK ? pst_vectors_initial_all(&s->initial, to) : rc;
}

/* All embeddings are in memory. */
static pst_rc open_whole(struct pst_vectors_owner *s, int threads, uint64_t *total)
{
    struct pst_stage *self = s->stage;
    pst_rc rc = pst_vectors_open(&s->vectors, threads);
    if (rc == PST_OK)
        pst_vectors_init(&s->vectors, 0, 0, pst_seed(self), s->scale);
    if (rc == PST_OK && begins_from_run(s))
        rc = open_initial(s, &s->vectors);
    if (rc == PST_OK && pst_resume_path(self))
        rc = pst_commit_load(pst_resume_path(self), &s->vectors, NULL, 0, schedule_of(s), &s->best,
                             &s->first_batch);
    const uint64_t full = (uint64_t)((s->training + s->batch - 1) / s->batch); /* as the stage edges counts */
    *total = (full + (uint64_t)s->staleness) * (uint64_t)pst_epochs(self);
    return rc;
}

static pst_rc open_partitions(struct pst_vectors_owner *s, int threads, uint64_t *total)
{
    struct pst_stage *self = s->stage;
    char path[PST_PATH_MAX];
    struct pst_vectors_exchange *x = &s->exchange;
    x->training.epochs = (struct pst_parts_epochs){.batch = pst_min_i64(s->batch, s->training),
                                                   .staleness = s->staleness,
                                                   .epochs = pst_epochs(self),
                                                   .commit_swaps = s->checkpoint_swaps,
                                                   .seed = pst_seed(self)};
    x->training.between_exchanges = s->between_exchanges;
    for (int p = 0; p < PST_PARTS_MAX; p++)
        x->table.extent[p] = x->best.extent[p] = -1;
    s->carried = malloc(s->slot_bytes);
    if (!s->carried)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot keep a slot of %" PRIu64 " bytes", s->slot_bytes);
    pst_rc rc = pst_parts_training_path(pst_run_dir(self), path);
    if (rc == PST_OK && pst_resume_path(self))
        rc = pst_commit_load(pst_resume_path(self), &s->vectors, &x->table, (int)s->partitions,
                             schedule_of(s), &s->best, &s->first_batch);
    if (rc == PST_OK && pst_resume_path(self))
        rc = pst_vectors_exchange_copy(x, pst_resume_path(self));
    if (rc == PST_OK)
        rc = pst_commit_load_best(pst_run_dir(self), &s->best, (int)s->partitions, &x->best);
    if (rc == PST_OK && needs_initial(s)) {
        rc = open_initial(s, NULL);
        x->initial = &s->initial;
        if (rc == PST_OK && pst_resume_path(self))
            rc = pst_vectors_initial_same(x->initial, pst_resume_path(self));
    }
    if (rc == PST_OK)
        rc = pst_vectors_exchange_open(x, self, s->parts, s->buckets[0] != '\0' ? s->buckets : path,
                                       s->ds.digest, (enum pst_order_kind)pst_order_kind_of(s->order));
    if (rc == PST_OK)
        rc = pst_vectors_open(&s->vectors, threads);
    if (rc != PST_OK)
        return rc;
    pst_fill_many(self, s->parts);
    pst_total(self, s->parts, s->first_batch + pst_vectors_exchange_pieces(x, s->first_batch));
    *total = pst_parts_epochs_total(&x->training.epochs);
    return PST_OK;
}

static pst_rc open_relations(struct pst_vectors_owner *s)
{
    const struct pst_relations_origin from = {
        .checkpoint = pst_resume_path(s->stage), .init_from = s->init_from, .scale = s->scale};
    return s->vectors.relations
               ? pst_relations_table_open(&s->own_relations, &s->plan, &from, &s->vectors.updates)
               : PST_OK;
}

pst_rc pst_vectors_owner_open(struct pst_vectors_owner *s, uint64_t slot_bytes, uint64_t *total)
{
    const int threads = s->threads > 0 ? (int)s->threads : pst_team_cores();
    s->slot_bytes = slot_bytes;
    s->best.batch = UINT64_MAX;
    pst_rc rc = make_schedule(s);
    if (rc == PST_OK)
        rc = s->partitions > 1 ? open_partitions(s, threads, total) : open_whole(s, threads, total);
    if (rc == PST_OK)
        rc = open_relations(s);
    s->vectors.scale = (float)s->plateau.state.scale;
    return rc == PST_OK && s->evaluate != PST_VECTORS_NEVER ? open_evaluation(s, threads) : rc;
}

/* The checkpoint has the relations that the borrower of batches owns. */
pst_rc pst_vectors_owner_complete(struct pst_vectors_owner *s)
{
    struct pst_relations_table sync = {0};
    const struct pst_relations_table *t = s->vectors.relations ? &s->own_relations : &sync;
    const struct pst_relations_origin from = {
        .checkpoint = pst_resume_path(s->stage), .init_from = "", .scale = s->scale};
    char val[FIGURES_MAX] = "", test[FIGURES_MAX] = "";
    struct pst_embed_ranks ranks[2] = {{0}}; /* of val and test */
    uint64_t updates;
    pst_rc rc = PST_OK;
    if (t == &sync) {
        pst_relations_table_plan(&sync, &s->plan, s->optimizer);
        rc = pst_relations_table_open(&sync, &s->plan, &from, &updates);
    }
    const struct pst_row_batch last = {.epoch = (uint32_t)pst_epochs(s->stage) - 1,
                                       .carried_rows = (uint32_t)t->rows,
                                       .carried_dim = (uint32_t)t->dim,
                                       .carried_state = (uint32_t)t->state_dim};
    if (rc == PST_OK)
        rc = evaluate_epoch(s, &last, s->first_batch, t->row, val, test, ranks);
    if (rc == PST_OK)
        rc = pst_vectors_owner_report_result(s, &last, (const char *)t->row, val, test, ranks);
    pst_relations_table_close(&sync);
    return rc == PST_OK ? pst_vectors_owner_report(s) : rc;
}

void pst_vectors_owner_close(struct pst_vectors_owner *s)
{
    pst_vectors_close(&s->vectors);
    pst_relations_table_close(&s->own_relations);
    pst_vectors_initial_close(&s->initial);
    pst_vectors_exchange_close(&s->exchange);
    free(s->carried);
    pst_evaluation_close(&s->evaluation);
    pst_dataset_close(&s->ds);
}
