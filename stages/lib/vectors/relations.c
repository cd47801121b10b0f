/* relations.c: trains batches, and keeps the relations. */
#include "stages/lib/vectors/relations.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/checkpoint.h"
#include "common/stage.h"
#include "stages/lib/gnn/team.h"
#include "stages/lib/vectors/initial.h"

/* ---- opening ------------------------------------------------------------------------------------- */

pst_rc pst_relations_plan(struct pst_relations *e, int64_t relations, uint64_t seed)
{
    e->plan = (struct pst_embed_plan){.model = pst_embed_model_named(e->model),
                                      .d = e->dim,
                                      .relations = relations,
                                      .inverse = e->inverse,
                                      .loss = e->loss,
                                      .margin = (pst_real)e->margin,
                                      .n3 = (pst_real)e->n3,
                                      .l2 = (pst_real)e->l2,
                                      .dropout = e->dropout,
                                      .unfused = !e->fused,
                                      .seed = seed};
    const pst_rc rc = pst_embed_check(&e->plan);
    if (rc != PST_OK)
        return rc;
    e->row_dim = pst_embed_relation_floats(&e->plan);
    e->rows = e->row_dim > 0 ? relations * (e->inverse ? 2 : 1) : 0;
    e->state_dim = e->row_dim > 0 ? pst_embed_state_floats(e->optimizer, e->row_dim) : 0;
    return PST_OK;
}

uint64_t pst_relations_slot_bytes(const struct pst_relations *e)
{
    const uint64_t floats = (uint64_t)e->rows * (uint64_t)(e->row_dim + e->state_dim);
    return PST_ROW_BATCH_CARRIED_AT + floats * sizeof *e->relations;
}

static struct pst_tensor tensor(const char *name, int64_t rows, int64_t columns)
{
    struct pst_tensor t = {.dtype = PST_F32, .rank = 2, .shape = {rows, columns}};
    memcpy(t.name, name, strlen(name) + 1);
    return t;
}

static pst_rc resume(struct pst_relations *e, const char *path)
{
    struct pst_checkpoint ck;
    const struct pst_tensor rows = tensor("relations", e->rows, e->row_dim);
    const struct pst_tensor state = tensor("relations.state", e->rows, e->state_dim);
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = pst_checkpoint_u64(&ck, "updates", &e->updates);
    if (rc == PST_OK && e->rows > 0)
        rc = pst_checkpoint_read(&ck, &rows, e->relations);
    if (rc == PST_OK && e->rows > 0 && e->state_dim > 0)
        rc = pst_checkpoint_read(&ck, &state, e->state);
    pst_checkpoint_close(&ck);
    return rc;
}

pst_rc pst_relations_open(struct pst_relations *e, const char *checkpoint)
{
    const size_t n = (size_t)e->rows, real = sizeof *e->relations;
    const pst_real scale = e->plan.model->relation_scale;
    e->relations = calloc(n * (size_t)e->row_dim + 1, real);
    e->grads = calloc(n * (size_t)e->row_dim + 1, real);
    e->state = calloc(n * (size_t)e->state_dim + 1, real);
    e->touched = calloc(n + 1, sizeof *e->touched);
    if (!e->relations || !e->grads || !e->state || !e->touched)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the embeddings of %zu relations", n);
    if (e->rows > 0)
        pst_embed_init(e->plan.seed, 1, scale > 0 ? scale : (pst_real)e->scale, 0, e->rows, e->row_dim,
                       e->relations);
    if (!checkpoint && e->init_from[0] != '\0') {
        const pst_rc rc = pst_vectors_initial_relations(e->init_from, &e->plan, e->relations);
        if (rc != PST_OK)
            return rc;
    }
    const int threads = e->threads > 0 ? (int)e->threads : pst_gnn_team_cores();
    pst_rc rc = pst_embed_workspace_new(&e->workspace, threads);
    if (rc == PST_OK && checkpoint)
        rc = resume(e, checkpoint);
    return rc;
}

void pst_relations_close(struct pst_relations *e)
{
    pst_embed_workspace_free(e->workspace);
    free(e->relations);
    free(e->grads);
    free(e->state);
    free(e->touched);
}

/* ---- batches ------------------------------------------------------------------------------------- */

static pst_rc check_fit(const struct pst_relations *e, const struct pst_row_batch *b)
{
    if (b->dim == e->dim && b->relations == e->plan.relations)
        return PST_OK;
    return pst_fail(PST_E_PEER,
                    "the batch has rows of %u floats and %u relations; expected %" PRId64 " floats and "
                    "%" PRId64 " relations",
                    b->dim, b->relations, e->dim, e->plan.relations);
}

static void update_relations(struct pst_relations *e, const struct pst_embed_batch *batch, pst_real rate)
{
    e->updates++;
    for (int64_t i = 0; i < batch->touched_n; i++) {
        const size_t row = e->touched[i];
        pst_embed_update(e->optimizer, e->relations + row * (size_t)e->row_dim,
                         e->state + row * (size_t)e->state_dim, e->grads + row * (size_t)e->row_dim,
                         e->row_dim, rate, e->updates);
    }
}

static pst_rc train(struct pst_relations *e, const struct pst_row_batch *b, char *slot)
{
    struct pst_embed_batch batch = {.edges = b->edges,
                                    .chunks = b->chunks,
                                    .n = b->nodes,
                                    .negatives = b->negatives,
                                    .src = pst_row_batch_at(slot, b->source_at),
                                    .rel = pst_row_batch_at(slot, b->relation_at),
                                    .dst = pst_row_batch_at(slot, b->destination_at),
                                    .neg_src = pst_row_batch_at(slot, b->negatives_at[0]),
                                    .neg_dst = pst_row_batch_at(slot, b->negatives_at[1]),
                                    .nodes = pst_row_batch_at(slot, b->rows_at),
                                    .node_grads = pst_row_batch_at(slot, b->grads_at),
                                    .relation_rows = e->relations,
                                    .relation_grads = e->grads,
                                    .touched = e->touched,
                                    .epoch = b->epoch,
                                    .batch = b->batch_in_epoch};
    double loss = 0;
    const double begin = pst_now();
    const pst_rc rc = pst_embed_step(&e->plan, &batch, e->workspace, &loss);
    if (rc != PST_OK)
        return rc;
    if (!isfinite(loss))
        return pst_fail(PST_E_ARG,
                        "epoch %u (its batch %" PRIu64 "): the loss is %g, so training has diverged; lower "
                        "`rate` (it is %g) or `scale` (it is %g)",
                        b->epoch, b->batch_in_epoch, loss, e->rate, e->scale);
    update_relations(e, &batch, (pst_real)e->rate * b->rate);
    e->train_s += pst_now() - begin;
    e->epoch.loss += loss;
    e->epoch.edges += b->edges;
    e->edges += b->edges;
    return PST_OK;
}

/* Ends an epoch. The slot carries its figures to the store's report, and the relations to the store's
 * checkpoint. */
static uint64_t carry(struct pst_relations *e, char *slot)
{
    struct pst_row_batch *b = (struct pst_row_batch *)(void *)slot;
    char *at = slot + PST_ROW_BATCH_CARRIED_AT;
    const size_t rows = (size_t)(e->rows * e->row_dim) * sizeof *e->relations;
    const size_t state = (size_t)(e->rows * e->state_dim) * sizeof *e->state;
    b->carried_rows = (uint32_t)e->rows;
    b->carried_dim = (uint32_t)e->row_dim;
    b->carried_state = (uint32_t)e->state_dim;
    b->loss = e->epoch.loss;
    b->seconds = pst_now() - e->epoch.begin;
    b->trained = e->epoch.edges;
    e->epoch.loss = 0;
    e->epoch.edges = 0;
    memcpy(at, e->relations, rows);
    memcpy(at + rows, e->state, state);
    return PST_ROW_BATCH_CARRIED_AT + rows + state;
}

pst_rc pst_relations_train(struct pst_relations *e, const struct pst_row_batch *b, char *slot, uint64_t *used)
{
    *used = 0;
    pst_rc rc = check_fit(e, b);
    if (e->epoch.edges == 0)
        e->epoch.begin = pst_now();
    if (rc == PST_OK && b->edges > 0)
        rc = train(e, b, slot);
    if (rc == PST_OK && b->flush == 1)
        *used = carry(e, slot);
    return rc;
}
