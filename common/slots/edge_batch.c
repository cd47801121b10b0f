/* edge_batch.c: the layout of a batch of edges, and the check of one that another process filled. */
#include "common/slots/edge_batch.h"

#include <inttypes.h>
#include <string.h>

#include "common/error.h"

enum { ARRAYS = 5 };

struct span {
    const char *name;
    uint64_t at, count, size;
    int64_t bound; /* values are 0 to bound - 1 */
};

static void list_spans(const struct pst_edge_batch *b, struct span span[ARRAYS])
{
    const uint64_t negatives = b->edges > 0 ? (uint64_t)b->chunks * b->negatives : 0;
    span[0] = (struct span){"source", b->source_at, b->edges, sizeof(int64_t), b->vertices};
    span[1] = (struct span){"destination", b->destination_at, b->edges, sizeof(int64_t), b->vertices};
    const int64_t relations = b->flags & PST_EDGE_BATCH_TURNED ? 2 * b->relations : b->relations;
    span[2] = (struct span){"relation", b->relation_at, b->edges, sizeof(int32_t), relations};
    span[3] = (struct span){"negatives[0]", b->negatives_at[0], negatives, sizeof(int64_t), b->vertices};
    span[4] = (struct span){"negatives[1]", b->negatives_at[1], negatives, sizeof(int64_t), b->vertices};
}

void pst_edge_batch_place(struct pst_edge_batch *b)
{
    struct span span[ARRAYS];
    uint64_t *const at[ARRAYS] = {&b->source_at, &b->destination_at, &b->relation_at, &b->negatives_at[0],
                                  &b->negatives_at[1]};
    uint64_t end = sizeof *b;
    list_spans(b, span);
    for (int i = 0; i < ARRAYS; i++) {
        *at[i] = pst_align_up(end, PST_CACHE_LINE);
        end = *at[i] + span[i].count * span[i].size;
    }
    b->bytes_used = end;
}

static pst_rc check_header(const struct pst_edge_batch *b, uint64_t bytes)
{
    if (b->magic != PST_EDGE_BATCH_MAGIC)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: the slot begins with %016" PRIx64 ", expected %016" PRIx64,
                        b->magic, PST_EDGE_BATCH_MAGIC);
    if (b->bytes_used > bytes || b->bytes_used < sizeof *b)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: bytes_used is %" PRIu64 ", but the slot has %" PRIu64 " bytes",
                        b->bytes_used, bytes);
    if (b->edges > PST_EDGE_BATCH_EDGES_MAX || b->chunks < 1 || b->negatives < 1 ||
        (uint64_t)b->chunks * b->negatives > PST_EDGE_BATCH_NEGATIVES_MAX)
        return pst_fail(
            PST_E_FORMAT,
            "not a batch of edges: it has %u edges, %u chunks and %u negatives a "
            "chunk; expected at most %d edges, at least one chunk and one negative, and at most %d negatives",
            b->edges, b->chunks, b->negatives, PST_EDGE_BATCH_EDGES_MAX, PST_EDGE_BATCH_NEGATIVES_MAX);
    if ((b->edges == 0) != (b->flush > 0))
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: it has %u edges, and flush is %u; expected flush above 0 in a "
                        "batch without edges, and 0 in any other",
                        b->edges, b->flush);
    if (b->batch_in_epoch >= b->batches_in_epoch)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: batch_in_epoch is %" PRIu64
                        "; expected less than batches_in_epoch, which is %" PRIu64,
                        b->batch_in_epoch, b->batches_in_epoch);
    return PST_OK;
}

/* The array lies in the slot, aligned, and its values are in range. */
static pst_rc check_array(const void *slot, const struct pst_edge_batch *b, const struct span *s)
{
    if (s->at < sizeof *b || s->at % s->size != 0 || s->at > b->bytes_used ||
        s->count * s->size > b->bytes_used - s->at)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: %s at byte %" PRIu64
                        " is not aligned, or does not fit the slot",
                        s->name, s->at);
    const void *data = pst_edge_batch_at(slot, s->at);
    for (uint64_t i = 0; i < s->count; i++) {
        const int64_t value =
            s->size == sizeof(int32_t) ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
        if (value < 0 || value >= s->bound)
            return pst_fail(PST_E_FORMAT,
                            "not a batch of edges: %s, entry %" PRIu64 ", is %" PRId64
                            "; expected 0 to %" PRId64,
                            s->name, i, value, s->bound - 1);
    }
    return PST_OK;
}

pst_rc pst_edge_batch_read(const void *slot, uint64_t bytes, struct pst_edge_batch *b)
{
    struct span span[ARRAYS];
    if (bytes < sizeof *b)
        return pst_fail(PST_E_FORMAT,
                        "not a batch of edges: the slot has only %" PRIu64 " bytes, fewer than a header",
                        bytes);
    memcpy(b, slot, sizeof *b);
    pst_rc rc = check_header(b, bytes);
    list_spans(b, span);
    for (int i = 0; i < ARRAYS && rc == PST_OK; i++)
        rc = check_array(slot, b, &span[i]);
    return rc;
}
