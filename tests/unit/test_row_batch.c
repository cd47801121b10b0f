/* Writer and reader of a batch with rows agree. A damaged batch is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/slots/row_batch.h"

#define SLOT_BYTES 65536

struct slot {
    _Alignas(PST_CACHE_LINE) char bytes[SLOT_BYTES];
};

static struct pst_row_batch *make(struct slot *slot, uint32_t edges, uint32_t nodes)
{
    memset(slot, 0, sizeof *slot);
    struct pst_row_batch *b = (struct pst_row_batch *)(void *)slot->bytes;
    *b = (struct pst_row_batch){.magic = PST_ROW_BATCH_MAGIC,
                                .batches_in_epoch = 1,
                                .edges = edges,
                                .chunks = 2,
                                .negatives = 9,
                                .flush = edges == 0,
                                .nodes = nodes,
                                .dim = 6,
                                .rate = 1,
                                .relations = 2,
                                .relation_rows = edges < 4 ? edges : 4,
                                .relation_dim = 5};
    pst_row_batch_place(b);
    return b;
}

static void shapes_agree(void **state)
{
    (void)state;
    static struct slot slot;
    for (uint32_t i = 1; i < 200; i++) {
        struct pst_row_batch *b = make(&slot, i, 1 + i * 7 % 500), got;
        ((uint32_t *)pst_row_batch_at(b, b->source_at))[i - 1] = b->nodes - 1;
        ((uint32_t *)pst_row_batch_at(b, b->relation_at))[i - 1] = 1;
        const size_t lent = (size_t)b->relation_rows * b->relation_dim * sizeof(float);
        ((uint32_t *)pst_row_batch_at(b, b->relation_list_at))[b->relation_rows - 1] = 3;
        memset(pst_row_batch_at(b, b->relation_rows_at), 255, lent);
        memset(pst_row_batch_at(b, b->relation_grads_at), 255, lent);
        memset(pst_row_batch_at(b, b->rows_at), 255, (size_t)b->nodes * b->dim * sizeof(float));
        memset(pst_row_batch_at(b, b->grads_at), 255, (size_t)b->nodes * b->dim * sizeof(float));
        assert_int_equal(pst_row_batch_read(slot.bytes, b->bytes_used, &got), PST_OK);
        assert_memory_equal(&got, b, sizeof got);
        assert_int_not_equal(pst_row_batch_read(slot.bytes, b->bytes_used - 1, &got), PST_OK);
    }
}

static void one_without_edges_carries_relations(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_row_batch *b = make(&slot, 0, 0), got;
    b->carried_rows = 5;
    b->carried_dim = 6;
    b->carried_state = 1;
    assert_int_equal(pst_row_batch_read(slot.bytes, SLOT_BYTES, &got), PST_OK);
    assert_int_equal(pst_row_batch_carried(&got), 5 * 7 * sizeof(float));
    b->carried_rows = b->carried_dim = b->carried_state = UINT32_MAX;
    assert_true(pst_row_batch_carried(b) > SLOT_BYTES);
}

#define CORRUPTIONS(X)                                                                                       \
    X(b->magic ^= 1)                                                                                         \
    X(b->bytes_used = SLOT_BYTES + 1)                                                                        \
    X(b->bytes_used = 8)                                                                                     \
    X(b->bytes_used -= 1)                                                                                    \
    X(b->edges = 0)                                                                                          \
    X(b->rate = 0)                                                                                           \
    X(b->rate = 2)                                                                                           \
    X(b->rate = NAN)                                                                                         \
    X(b->flush = 1)                                                                                          \
    X(b->edges = UINT32_MAX)                                                                                 \
    X(b->nodes = 0)                                                                                          \
    X(b->nodes = UINT32_MAX)                                                                                 \
    X(b->dim = 0)                                                                                            \
    X(b->dim = UINT32_MAX)                                                                                   \
    X(b->chunks = 0)                                                                                         \
    X(b->negatives = UINT32_MAX)                                                                             \
    X(b->relations = 0)                                                                                      \
    X(b->batch_in_epoch = 1)                                                                                 \
    X(b->rows_at = UINT64_MAX - 63)                                                                          \
    X(b->relation_rows = 41)                                                                                 \
    X(b->relation_rows = UINT32_MAX)                                                                         \
    X(b->relation_dim = UINT32_MAX)                                                                          \
    X(b->relation_list_at += 4)                                                                              \
    X(b->relation_rows_at = UINT64_MAX - 63)                                                                 \
    X(b->relation_grads_at = 64)                                                                             \
    X(((uint32_t *)pst_row_batch_at(b, b->relation_list_at))[3] = 4)                                         \
    X(b->rows_at += 1)                                                                                       \
    X(b->grads_at += PST_CACHE_LINE)                                                                         \
    X(b->vertices_at = 0)                                                                                    \
    X(*(uint32_t *)pst_row_batch_at(b, b->source_at) = 30)                                                   \
    X(*(uint32_t *)pst_row_batch_at(b, b->destination_at) = UINT32_MAX)                                      \
    X(*(uint32_t *)pst_row_batch_at(b, b->relation_at) = 2)                                                  \
    X(((uint32_t *)pst_row_batch_at(b, b->negatives_at[0]))[17] = 30)                                        \
    X(*(uint32_t *)pst_row_batch_at(b, b->negatives_at[1]) = 30)

static void damage_is_refused(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_row_batch got;
#define TRY(change)                                                                                          \
    do {                                                                                                     \
        struct pst_row_batch *b = make(&slot, 20, 30);                                                       \
        change;                                                                                              \
        if (pst_row_batch_read(slot.bytes, SLOT_BYTES, &got) != PST_E_FORMAT)                                \
            fail_msg("not refused: %s", #change);                                                            \
        assert_non_null(strstr(pst_error_text(), "not a batch of edges with embeddings"));                   \
    } while (0);
    CORRUPTIONS(TRY)
    assert_int_equal(pst_row_batch_read(slot.bytes, 16, &got), PST_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes_agree),
                                       cmocka_unit_test(one_without_edges_carries_relations),
                                       cmocka_unit_test(damage_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
