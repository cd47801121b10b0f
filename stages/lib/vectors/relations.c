/* relations.c: trains batches, and keeps the relations. */
#include "stages/lib/vectors/relations.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/stage.h"
#include "common/util/team.h"
#include "common/store/checkpoint.h"
#include "stages/lib/vectors/commit.h"

/* ---- opening ------------------------------------------------------------------------------------- */

pst_rc pst_relations_plan(struct pst_relations *e, int64_t relations, uint64_t seed)
{
    e->plan = (struct pst_embed_plan){.model = pst_embed_model_named(e->model),
                                      .d = e->dim,
                                      .relations = relations,
                                      .inverse = e->inverse,
                                      .loss = e->loss,
                                      .margin = (pst_real)e->margin,
                                      .temperature = (pst_real)e->temperature,
                                      .n3 = (pst_real)e->n3,
                                      .l2 = (pst_real)e->l2,
                                      .dropout = e->dropout,
                                      .unfused = !e->fused,
                                      .seed = seed};
    const pst_rc rc = pst_embed_check(&e->plan);
    if (rc != PST_OK)
        return rc;
    pst_relations_table_plan(&e->table, &e->plan, e->optimizer);
    return PST_OK;
}

uint64_t pst_relations_slot_bytes(const struct pst_relations *e)
{
    const bool carried = e->way == PST_RELATIONS_SYNC;
    return PST_ROW_BATCH_CARRIED_AT + (carried ? pst_relations_table_bytes(&e->table) : 0);
}

/* A checkpoint of the middle of an epoch has the epoch's figures so far. */
static pst_rc resume_epoch(struct pst_relations *e, const char *path)
{
    struct pst_checkpoint ck;
    double sofar[PST_COMMIT_EPOCH_FIGURES] = {0};
    const struct pst_tensor t = pst_commit_epoch_tensor(sofar);
    struct pst_tensor found;
    uint64_t at;
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    if (pst_checkpoint_find(&ck, t.name, &found, &at) == PST_OK) {
        rc = pst_checkpoint_read(&ck, &t, sofar);
        e->epoch.loss = sofar[0];
        e->epoch.begin = pst_now() - sofar[1];
        e->epoch.edges = (uint64_t)sofar[2];
    }
    pst_checkpoint_close(&ck);
    return rc;
}

/* A queue for the smallest batches; it grows. */
static pst_rc open_queue(struct pst_relations *e)
{
    return pst_device_queue(
        e->device, (struct pst_queue_options){.products = true,
                                              .precision = e->tf32 ? PST_TWIN_TF32 : PST_TWIN_FLOAT32});
}

pst_rc pst_relations_open(struct pst_relations *e, const char *checkpoint, struct pst_device *device,
                          uint64_t slot_bytes)
{
    e->device = device;
    const bool lent = e->way == PST_RELATIONS_ASYNC;
    const struct pst_relations_origin from = {
        .checkpoint = lent ? NULL : checkpoint, .init_from = lent ? "" : e->init_from, .scale = e->scale};
    e->grads = calloc((size_t)(e->table.rows * e->table.dim) + 1, sizeof *e->grads);
    e->touched = calloc((size_t)e->table.rows + 1, sizeof *e->touched);
    if (!e->grads || !e->touched)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the gradients of %" PRId64 " relations",
                        e->table.rows);
    pst_rc rc = pst_relations_table_open(&e->table, &e->plan, &from, &e->updates);
    if (rc == PST_OK && checkpoint)
        rc = resume_epoch(e, checkpoint);
    if (rc == PST_OK)
        rc = open_queue(e);
    if (rc != PST_OK)
        return rc;
    return pst_device_is_cuda(device)
               ? pst_relations_open_device(e, slot_bytes)
               : pst_embed_workspace_new(&e->workspace, e->threads > 0 ? (int)e->threads : pst_team_cores());
}

void pst_relations_close(struct pst_relations *e)
{
    pst_embed_workspace_free(e->workspace);
    pst_relations_table_close(&e->table);
    free(e->grads);
    free(e->touched);
}

/* ---- batches ------------------------------------------------------------------------------------- */

static pst_rc check_fit(const struct pst_relations *e, const struct pst_row_batch *b)
{
    if (b->edges > 0 && (b->flags & PST_EDGE_BATCH_ALL) && (b->chunks != 1 || b->negatives != b->nodes))
        return pst_fail(PST_E_PEER,
                        "the batch has %u vertices, but %u chunks of %u negatives; expected one chunk with "
                        "each vertex as a negative",
                        b->nodes, b->chunks, b->negatives);
    if (b->dim == e->dim && b->relations == e->plan.relations)
        return PST_OK;
    return pst_fail(PST_E_PEER,
                    "the batch has embeddings of %u floats and %u relations; expected %" PRId64
                    " floats and %" PRId64 " relations: do both stages have the same dataset and `dim`?",
                    b->dim, b->relations, e->dim, e->plan.relations);
}

/* The owner of lent relations updates them as this stage would. */
static pst_rc check_lent(const struct pst_relations *e, const struct pst_row_batch *b)
{
    const int64_t dim = e->way == PST_RELATIONS_ASYNC ? e->table.dim : 0;
    if (b->relation_dim != dim)
        return pst_fail(PST_E_PEER,
                        "the batch brings embeddings of relations with %u floats; expected %" PRId64
                        ": set `relations` to the same value in both stages",
                        b->relation_dim, dim);
    if (dim == 0 || (b->relation_optimizer == e->optimizer && b->relation_rate == (pst_real)e->rate))
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "with `relations` async, the store updates the relations with its own optimizer and rate "
                    "(%g), but this stage has the rate %g, or another optimizer: give both stages the same "
                    "`optimizer` and `rate`, or set `relations` to sync",
                    (double)b->relation_rate, e->rate);
}

/* Puts the rows that a batch brought where the step looks for them. */
static pst_rc borrow(struct pst_relations *e, const struct pst_row_batch *b, const char *slot)
{
    const size_t row = (size_t)e->table.dim * sizeof *e->table.row;
    const uint32_t *list = pst_row_batch_at(slot, b->relation_list_at);
    const char *rows = pst_row_batch_at(slot, b->relation_rows_at);
    for (uint32_t i = 0; i < b->relation_rows; i++) {
        if (list[i] >= e->table.rows)
            return pst_fail(PST_E_PEER,
                            "the batch brings the embedding of relation %u; expected 0 to %" PRId64, list[i],
                            e->table.rows - 1);
        memcpy(e->table.row + list[i] * e->table.dim, rows + i * row, row);
    }
    return PST_OK;
}

static pst_rc give_back(const struct pst_relations *e, const struct pst_row_batch *b,
                        const struct pst_embed_batch *batch, char *slot)
{
    const size_t row = (size_t)e->table.dim * sizeof *e->grads;
    const size_t list = b->relation_rows * sizeof *e->touched;
    char *grads = pst_row_batch_at(slot, b->relation_grads_at);
    if (batch->touched_n != b->relation_rows ||
        memcmp(e->touched, pst_row_batch_at(slot, b->relation_list_at), list) != 0)
        return pst_fail(PST_E_PEER,
                        "the batch brings embeddings of %u relations, but its edges use %" PRId64
                        " relations, or other ones: set `inverse` to the same value in both stages",
                        b->relation_rows, batch->touched_n);
    for (uint32_t i = 0; i < b->relation_rows; i++)
        memcpy(grads + i * row, e->grads + e->touched[i] * e->table.dim, row);
    return PST_OK;
}

static pst_rc finish(struct pst_relations *e, const struct pst_row_batch *b,
                     const struct pst_embed_batch *batch, char *slot)
{
    if (e->way == PST_RELATIONS_ASYNC)
        return give_back(e, b, batch, slot);
    pst_relations_table_update(&e->table, e->touched, batch->touched_n, e->grads, false,
                               (pst_real)e->rate * b->rate, ++e->updates);
    return PST_OK;
}

/* Where a batch's arrays are. all: every vertex is a negative, so their list need not be read. */
static struct pst_embed_batch arrays_of(const struct pst_row_batch *b, const char *slot, bool all)
{
    return (struct pst_embed_batch){.edges = b->edges,
                                    .chunks = b->chunks,
                                    .n = b->nodes,
                                    .negatives = b->negatives,
                                    .src = pst_row_batch_at(slot, b->source_at),
                                    .rel = pst_row_batch_at(slot, b->relation_at),
                                    .dst = pst_row_batch_at(slot, b->destination_at),
                                    .neg_src = all ? NULL : pst_row_batch_at(slot, b->negatives_at[0]),
                                    .neg_dst = all ? NULL : pst_row_batch_at(slot, b->negatives_at[1]),
                                    .turned = b->flags & PST_EDGE_BATCH_TURNED,
                                    .nodes = pst_row_batch_at(slot, b->rows_at),
                                    .node_grads = pst_row_batch_at(slot, b->grads_at),
                                    .epoch = b->epoch,
                                    .batch = b->batch_in_epoch};
}

static pst_rc account(struct pst_relations *e, const struct pst_row_batch *b, double loss)
{
    if (!isfinite(loss))
        return pst_fail(PST_E_ARG,
                        "epoch %u (its batch %" PRIu64 "): the loss is %g, so training has diverged; lower "
                        "`rate` (it is %g) or `scale` (it is %g)",
                        b->epoch, b->batch_in_epoch, loss, e->rate, e->scale);
    e->epoch.loss += loss;
    e->epoch.edges += b->edges;
    e->edges += b->edges;
    return PST_OK;
}

pst_rc pst_relations_end(struct pst_relations *e, const struct pst_row_batch *b, int64_t *nodes)
{
    double loss = 0;
    const pst_rc rc = pst_embed_device_loss(&e->on.step, &loss, nodes);
    return rc == PST_OK ? account(e, b, loss) : rc;
}

static pst_rc train_here(struct pst_relations *e, const struct pst_row_batch *b, char *slot)
{
    struct pst_embed_batch batch = arrays_of(b, slot, b->flags & PST_EDGE_BATCH_ALL);
    double loss = 0;
    batch.relation_rows = e->table.row;
    batch.relation_grads = e->grads;
    batch.touched = e->touched;
    pst_rc rc = borrow(e, b, slot);
    if (rc == PST_OK)
        rc = pst_embed_step(&e->plan, &batch, e->workspace, &loss);
    if (rc == PST_OK)
        rc = account(e, b, loss);
    return rc == PST_OK ? finish(e, b, &batch, slot) : rc;
}

static pst_rc train_on_device(struct pst_relations *e, const struct pst_row_batch *b, char *slot)
{
    struct pst_embed_batch batch = arrays_of(b, e->on.slot, false);
    int64_t nodes;
    if (b->flags & PST_EDGE_BATCH_TURNED)
        return pst_fail(PST_E_UNSUPPORTED,
                        "`together` works only on a CPU: set `together` to 0, or place the stage on cpu:0");
    const pst_rc rc = pst_relations_train_slot(e, b, slot, &batch);
    return rc == PST_OK ? pst_relations_end(e, b, &nodes) : rc;
}

static pst_rc train(struct pst_relations *e, const struct pst_row_batch *b, char *slot)
{
    const double begin = pst_now();
    const pst_rc rc = pst_device_is_cuda(e->device) ? train_on_device(e, b, slot) : train_here(e, b, slot);
    e->train_s += pst_now() - begin;
    return rc;
}

/* The slot carries the figures of the epoch so far to the store's report, and the relations to the store's
 * checkpoint, unless they are lent. */
static pst_rc carry(struct pst_relations *e, char *slot, uint64_t *used)
{
    struct pst_row_batch *b = (struct pst_row_batch *)(void *)slot;
    const struct pst_relations_table *t = &e->table;
    const bool own = e->way == PST_RELATIONS_SYNC;
    const uint64_t bytes = own ? pst_relations_table_bytes(t) : 0;
    b->carried_rows = own ? (uint32_t)t->rows : 0;
    b->carried_dim = (uint32_t)t->dim;
    b->carried_state = (uint32_t)t->state_dim;
    b->loss = e->epoch.loss;
    b->seconds = pst_now() - e->epoch.begin;
    b->trained = e->epoch.edges;
    if (b->flush == 1) {
        e->epoch.loss = e->epoch.begin = 0;
        e->epoch.edges = 0;
    }
    *used = PST_ROW_BATCH_CARRIED_AT + bytes;
    if (own && pst_device_is_cuda(e->device))
        return pst_relations_fetch(e, slot + PST_ROW_BATCH_CARRIED_AT);
    memcpy(slot + PST_ROW_BATCH_CARRIED_AT, t->row, bytes);
    return PST_OK;
}

pst_rc pst_relations_train(struct pst_relations *e, const struct pst_row_batch *b, char *slot, uint64_t *used)
{
    *used = 0;
    pst_rc rc = check_fit(e, b);
    if (rc == PST_OK)
        rc = check_lent(e, b);
    if (e->epoch.begin == 0)
        e->epoch.begin = pst_now();
    if (rc == PST_OK && b->edges > 0)
        rc = train(e, b, slot);
    if (rc == PST_OK && pst_row_batch_carries(b))
        rc = carry(e, slot, used);
    return rc;
}
