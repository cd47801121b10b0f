/* relations_gpu.c: relations on a GPU, with their optimizer's state. A slot's arrays are copied there, and
 * gradients are copied back. */
#include "stages/lib/vectors/relations.h"

#include <string.h>

#include "common/error.h"
#include "common/stage.h"

static pst_rc take(struct pst_relations *e, uint64_t bytes, const char *what, void *to)
{
    void *at;
    const pst_rc rc = pst_device_take(e->device, PST_TWIN_MEMORY_DEVICE, bytes, what, &at);
    memcpy(to, &at, sizeof at);
    return rc;
}

static pst_rc copy_table(struct pst_relations *e, void *to, const void *from)
{
    (void)e->device->twin->copy(e->device->q, to, from, pst_relations_table_bytes(&e->table));
    return pst_device_wait(e->device);
}

pst_rc pst_relations_open_device(struct pst_relations *e, uint64_t slot_bytes)
{
    const uint64_t floats = (uint64_t)(e->table.rows * e->table.dim);
    pst_rc rc = pst_embed_device_open(&e->on.step, e->device);
    if (rc == PST_OK)
        rc = take(e, pst_relations_table_bytes(&e->table), "relations", &e->on.row);
    if (rc == PST_OK)
        rc = take(e, floats * sizeof(pst_real), "gradients of relations", &e->on.grads);
    if (rc == PST_OK)
        rc = take(e, (uint64_t)e->table.rows * sizeof(uint32_t), "the relations of a batch", &e->on.touched);
    if (rc == PST_OK && slot_bytes > 0)
        rc = take(e, slot_bytes, "a batch", &e->on.slot);
    return rc == PST_OK ? copy_table(e, e->on.row, e->table.row) : rc;
}

pst_rc pst_relations_fetch(struct pst_relations *e, void *to)
{
    return copy_table(e, to, e->on.row);
}

/* ---- batches ------------------------------------------------------------------------------------- */

pst_rc pst_relations_begin(struct pst_relations *e, const struct pst_row_batch *b,
                           struct pst_embed_batch *batch, uint32_t *node_list)
{
    if (e->epoch.begin == 0)
        e->epoch.begin = pst_now();
    batch->relation_rows = e->on.row;
    batch->relation_grads = e->on.grads;
    batch->touched = e->on.touched;
    const pst_rc rc = pst_embed_device_step(&e->plan, batch, &e->on.step, node_list);
    if (rc != PST_OK || e->way == PST_RELATIONS_ASYNC)
        return rc;
    const struct pst_k_embed_table table = {.optimizer = e->optimizer,
                                            .rate = (pst_real)e->rate * b->rate,
                                            .step = ++e->updates,
                                            .d = e->table.dim,
                                            .x = e->on.row,
                                            .state = e->on.row + e->table.rows * e->table.dim};
    pst_embed_device_update_relations(&e->plan, batch, &e->on.step, &table);
    return PST_OK;
}

/* Copies the bytes `from` to `to` - 1 of a slot to the same place on the device, or back. */
static void copy_part(struct pst_relations *e, char *slot, uint64_t from, uint64_t to, bool back)
{
    char *there = e->on.slot + from, *here = slot + from;
    (void)e->device->twin->copy(e->device->q, back ? here : there, back ? there : here, to - from);
}

/* The batch must lend those relations that its edges use, because gradients go home in this order. */
static pst_rc check_list(struct pst_relations *e, const struct pst_row_batch *b, const char *slot)
{
    struct pst_row_batch wanted;
    pst_relations_table_list(&e->table, pst_row_batch_at(slot, b->relation_at), b->edges, &wanted);
    if (b->relation_rows == wanted.relation_rows &&
        memcmp(e->table.list, pst_row_batch_at(slot, b->relation_list_at),
               b->relation_rows * sizeof *e->table.list) == 0)
        return PST_OK;
    return pst_fail(PST_E_PEER,
                    "the batch brings embeddings of %u relations, but its edges use %u relations, or other "
                    "ones: set `inverse` to the same value in both stages",
                    b->relation_rows, wanted.relation_rows);
}

/* Puts the rows that a batch brought where the step looks for them. */
static void borrow(struct pst_relations *e, const struct pst_row_batch *b)
{
    const uint64_t row = (uint64_t)e->table.dim * sizeof(pst_real);
    e->device->twin->gather(e->device->q, e->on.slot + b->relation_rows_at, row, NULL, e->on.row, row,
                            pst_row_batch_at(e->on.slot, b->relation_list_at), b->relation_rows, row);
}

/* Both halves of the list, relations and inverse ones, are equally long. */
static void give_back(struct pst_relations *e, const struct pst_row_batch *b, char *slot)
{
    const int64_t halves = e->plan.inverse ? 2 : 1;
    const int64_t each = b->relation_rows / halves * e->table.dim, half = e->plan.relations * e->table.dim;
    pst_real *to = pst_row_batch_at(slot, b->relation_grads_at);
    for (int i = 0; i < halves; i++)
        (void)e->device->twin->copy(e->device->q, to + i * each, e->on.grads + i * half,
                                    (size_t)each * sizeof *to);
}

pst_rc pst_relations_train_slot(struct pst_relations *e, const struct pst_row_batch *b, char *slot,
                                struct pst_embed_batch *batch)
{
    const bool lent = e->way == PST_RELATIONS_ASYNC;
    const uint64_t grads = (uint64_t)b->nodes * b->dim * sizeof(pst_real);
    pst_rc rc = lent ? check_list(e, b, slot) : PST_OK;
    if (rc != PST_OK)
        return rc;
    copy_part(e, slot, b->source_at, b->rows_at + grads, false);
    if (lent)
        borrow(e, b);
    rc = pst_relations_begin(e, b, batch, NULL);
    if (rc != PST_OK)
        return rc;
    copy_part(e, slot, b->grads_at, b->grads_at + grads, true);
    if (lent)
        give_back(e, b, slot);
    pst_embed_device_end(&e->on.step);
    return PST_OK;
}
