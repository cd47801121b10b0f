/* row_batch.c: the layout of a batch of edges with rows, and the check of one that another process filled. */
#include "common/slots/row_batch.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"
#include "common/slots/edge_batch.h"

enum { ARRAYS = 11 };
_Static_assert(sizeof(struct pst_row_batch) <= PST_ROW_BATCH_CARRIED_AT,
               "carried rows are behind the header");

struct span {
    const char *name;
    uint64_t at, count, size;
    uint32_t bound; /* values are uint32, below the bound; 0: they are not checked */
};

static void list_spans(const struct pst_row_batch *b, struct span span[ARRAYS])
{
    const uint64_t negatives = b->edges > 0 ? (uint64_t)b->chunks * b->negatives : 0;
    const uint64_t row = (uint64_t)b->dim * sizeof(float);
    span[0] = (struct span){"vertices", b->vertices_at, b->nodes, sizeof(int64_t), 0};
    span[1] = (struct span){"source", b->source_at, b->edges, sizeof(uint32_t), b->nodes};
    span[2] = (struct span){"destination", b->destination_at, b->edges, sizeof(uint32_t), b->nodes};
    span[4] = (struct span){"negatives[0]", b->negatives_at[0], negatives, sizeof(uint32_t), b->nodes};
    span[5] = (struct span){"negatives[1]", b->negatives_at[1], negatives, sizeof(uint32_t), b->nodes};
    const uint64_t relation = (uint64_t)b->relation_dim * sizeof(float), listed = b->relation_rows;
    const uint32_t last = b->relations > UINT32_MAX / 2 ? UINT32_MAX : 2 * b->relations;
    span[3] = (struct span){"relation", b->relation_at, b->edges, sizeof(uint32_t),
                            b->flags & PST_EDGE_BATCH_TURNED ? last : b->relations};
    span[6] = (struct span){"relation_list", b->relation_list_at, listed, sizeof(uint32_t), last};
    span[7] = (struct span){"relation_rows", b->relation_rows_at, listed, relation, 0};
    span[8] = (struct span){"relation_grads", b->relation_grads_at, listed, relation, 0};
    span[9] = (struct span){"rows", b->rows_at, b->nodes, row, 0};
    span[10] = (struct span){"grads", b->grads_at, b->nodes, row, 0};
}

void pst_row_batch_place(struct pst_row_batch *b)
{
    struct span span[ARRAYS];
    uint64_t *const at[ARRAYS] = {&b->vertices_at,      &b->source_at,        &b->destination_at,
                                  &b->relation_at,      &b->negatives_at[0],  &b->negatives_at[1],
                                  &b->relation_list_at, &b->relation_rows_at, &b->relation_grads_at,
                                  &b->rows_at,          &b->grads_at};
    uint64_t end = PST_ROW_BATCH_CARRIED_AT;
    list_spans(b, span);
    for (int i = 0; i < ARRAYS; i++) {
        *at[i] = pst_align_up(end, PST_CACHE_LINE);
        end = *at[i] + span[i].count * span[i].size;
    }
    b->bytes_used = end;
}

uint64_t pst_row_batch_carried(const struct pst_row_batch *b)
{
    return (uint64_t)b->carried_rows * ((uint64_t)b->carried_dim + b->carried_state) * sizeof(float);
}

static pst_rc check_header(const struct pst_row_batch *b, uint64_t bytes)
{
    if (b->magic != PST_ROW_BATCH_MAGIC)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: the slot begins with %016" PRIx64
                        ", expected %016" PRIx64,
                        b->magic, PST_ROW_BATCH_MAGIC);
    if (b->bytes_used > bytes || b->bytes_used < PST_ROW_BATCH_CARRIED_AT)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: bytes_used is %" PRIu64
                        ", but the slot has %" PRIu64 " bytes",
                        b->bytes_used, bytes);
    if (b->edges > PST_EDGE_BATCH_EDGES_MAX || b->chunks < 1 || b->negatives < 1 || b->dim < 1 ||
        b->dim > PST_ROW_BATCH_DIM_MAX || (uint64_t)b->chunks * b->negatives > PST_EDGE_BATCH_NEGATIVES_MAX)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: it has %u edges, %u chunks, %u negatives a "
                        "chunk and embeddings of %u floats; a number is 0, or above its limit in row_batch.h",
                        b->edges, b->chunks, b->negatives, b->dim);
    if ((b->edges == 0) != (b->flush > 0) || (b->edges == 0) != (b->nodes == 0))
        return pst_fail(
            PST_E_FORMAT,
            "not a batch of edges with embeddings: it has %u edges and %u vertices, and flush is %u; "
            "expected flush above 0 in a batch without edges and vertices, and 0 in any other",
            b->edges, b->nodes, b->flush);
    if (b->relation_rows > 2 * (uint64_t)b->edges || b->relation_dim > PST_ROW_BATCH_DIM_MAX)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: it has %u edges, and %u embeddings of "
                        "relations of %u floats; expected at most two embeddings of relations for each edge, "
                        "and no more floats than row_batch.h allows",
                        b->edges, b->relation_rows, b->relation_dim);
    if (!(b->rate > 0 && b->rate <= 1))
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: the factor of the learning rate is %g; "
                        "expected a number above 0 and at most 1",
                        (double)b->rate);
    if (b->batch_in_epoch >= b->batches_in_epoch)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: batch_in_epoch is %" PRIu64
                        "; expected less than batches_in_epoch, which is %" PRIu64,
                        b->batch_in_epoch, b->batches_in_epoch);
    return PST_OK;
}

/* The array lies in the slot, aligned, and its values are in range. */
static pst_rc check_array(const void *slot, const struct pst_row_batch *b, const struct span *s)
{
    if (s->at < PST_ROW_BATCH_CARRIED_AT || s->at % PST_CACHE_LINE != 0 || s->at > b->bytes_used ||
        s->count * s->size > b->bytes_used - s->at)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: %s at byte %" PRIu64
                        " is not aligned, or does not fit the slot",
                        s->name, s->at);
    const uint32_t *value = pst_row_batch_at(slot, s->at);
    for (uint64_t i = 0; i < s->count && s->bound > 0; i++)
        if (value[i] >= s->bound)
            return pst_fail(PST_E_FORMAT,
                            "not a batch of edges with embeddings: %s, entry %" PRIu64
                            ", is %u; expected 0 to %u",
                            s->name, i, value[i], s->bound - 1);
    return PST_OK;
}

pst_rc pst_row_batch_read(const void *slot, uint64_t bytes, struct pst_row_batch *b)
{
    struct span span[ARRAYS];
    if (bytes < PST_ROW_BATCH_CARRIED_AT)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges with embeddings: the slot has only %" PRIu64
                        " bytes, fewer than a header",
                        bytes);
    memcpy(b, slot, sizeof *b);
    pst_rc rc = check_header(b, bytes);
    list_spans(b, span);
    if (rc == PST_OK && b->edges > 0 && b->relations == 0)
        rc = pst_fail(PST_E_FORMAT, "not a batch of edges with embeddings: it has edges, but no relations");
    for (int i = 0; i < ARRAYS && rc == PST_OK; i++)
        rc = check_array(slot, b, &span[i]);
    return rc;
}
