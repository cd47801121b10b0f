/* relations_table.c: makes, lends and updates the embeddings of relations. */
#include "stages/lib/vectors/relations_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/checkpoint.h"
#include "stages/lib/vectors/initial.h"

/* ---- opening ------------------------------------------------------------------------------------- */

void pst_relations_table_plan(struct pst_relations_table *t, const struct pst_embed_plan *plan,
                              enum pst_k_embed_optimizer optimizer)
{
    t->optimizer = optimizer;
    t->relations = plan->relations;
    t->dim = pst_embed_relation_floats(plan);
    t->rows = t->dim > 0 ? plan->relations * (plan->inverse ? 2 : 1) : 0;
    t->state_dim = t->dim > 0 ? pst_k_embed_state_floats(optimizer, t->dim) : 0;
}

uint64_t pst_relations_table_bytes(const struct pst_relations_table *t)
{
    return (uint64_t)t->rows * (uint64_t)(t->dim + t->state_dim) * sizeof *t->row;
}

static struct pst_tensor tensor(const char *name, int64_t rows, int64_t columns)
{
    struct pst_tensor t = {.dtype = PST_F32, .rank = 2, .shape = {rows, columns}};
    memcpy(t.name, name, strlen(name) + 1);
    return t;
}

static pst_rc resume(struct pst_relations_table *t, const char *path, uint64_t *updates)
{
    struct pst_checkpoint ck;
    const struct pst_tensor rows = tensor("relations", t->rows, t->dim);
    const struct pst_tensor state = tensor("relations.state", t->rows, t->state_dim);
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = pst_checkpoint_u64(&ck, "updates", updates);
    if (rc == PST_OK && t->rows > 0)
        rc = pst_checkpoint_read(&ck, &rows, t->row);
    if (rc == PST_OK && t->rows > 0 && t->state_dim > 0)
        rc = pst_checkpoint_read(&ck, &state, t->state);
    pst_checkpoint_close(&ck);
    return rc;
}

pst_rc pst_relations_table_open(struct pst_relations_table *t, const struct pst_embed_plan *plan,
                                const struct pst_relations_origin *from, uint64_t *updates)
{
    const pst_real scale = plan->model->relation_scale;
    t->row = calloc(pst_relations_table_bytes(t) + 1, 1);
    t->marked = calloc((size_t)t->relations + 1, sizeof *t->marked);
    t->list = calloc((size_t)t->rows + 1, sizeof *t->list);
    if (!t->row || !t->marked || !t->list)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the embeddings of %" PRId64 " relations",
                        t->rows);
    t->state = t->row + t->rows * t->dim;
    if (t->rows > 0)
        pst_embed_init(plan->seed, 1, scale > 0 ? scale : (pst_real)from->scale, 0, t->rows, t->dim, t->row);
    if (from->checkpoint)
        return resume(t, from->checkpoint, updates);
    return from->init_from[0] != '\0' ? pst_vectors_initial_relations(from->init_from, plan, t->row) : PST_OK;
}

void pst_relations_table_close(struct pst_relations_table *t)
{
    free(t->row);
    free(t->marked);
    free(t->list);
    *t = (struct pst_relations_table){.rows = 0};
}

/* ---- batches ------------------------------------------------------------------------------------- */

void pst_relations_table_update(struct pst_relations_table *t, const uint32_t *rows, int64_t n,
                                const pst_real *grads, bool packed, pst_real rate, uint64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = rows[i];
        pst_embed_update(t->optimizer, t->row + row * t->dim, t->state + row * t->state_dim,
                         grads + (packed ? i : row) * t->dim, t->dim, rate, step);
    }
}

void pst_relations_table_list(struct pst_relations_table *t, const int32_t *relation, uint32_t edges,
                              struct pst_row_batch *b)
{
    uint32_t n = 0;
    memset(t->marked, 0, (size_t)t->relations * sizeof *t->marked);
    for (uint32_t i = 0; i < edges; i++)
        t->marked[relation[i]] = true;
    for (int64_t row = 0; row < t->rows; row++)
        if (t->marked[row % t->relations])
            t->list[n++] = (uint32_t)row;
    b->relation_rows = n;
    b->relation_dim = (uint32_t)t->dim;
    b->relation_optimizer = (uint32_t)t->optimizer;
}

void pst_relations_table_lend(const struct pst_relations_table *t, const struct pst_row_batch *b, char *slot)
{
    const size_t row = (size_t)t->dim * sizeof *t->row;
    char *rows = pst_row_batch_at(slot, b->relation_rows_at);
    memcpy(pst_row_batch_at(slot, b->relation_list_at), t->list, b->relation_rows * sizeof *t->list);
    for (uint32_t i = 0; i < b->relation_rows; i++)
        memcpy(rows + i * row, t->row + t->list[i] * t->dim, row);
}

pst_rc pst_relations_table_take(struct pst_relations_table *t, const struct pst_row_batch *b,
                                const char *slot, pst_real rate, uint64_t step)
{
    const uint32_t *list = pst_row_batch_at(slot, b->relation_list_at);
    for (uint32_t i = 0; i < b->relation_rows; i++)
        if (list[i] >= t->rows || (i > 0 && list[i] <= list[i - 1]))
            return pst_fail(PST_E_PEER,
                            "batch %" PRIu64 " came back with a damaged list of relations: entry %u is %u; "
                            "expected relations from 0 to %" PRId64 " in ascending order",
                            b->batch, i, list[i], t->rows - 1);
    pst_relations_table_update(t, list, b->relation_rows, pst_row_batch_at(slot, b->relation_grads_at), true,
                               rate, step);
    return PST_OK;
}
