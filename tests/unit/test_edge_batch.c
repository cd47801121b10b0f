/* Writer and reader of a batch of edges agree for random shapes. A damaged batch is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/slots/edge_batch.h"

#define SLOT_BYTES 65536

struct slot {
    _Alignas(PST_CACHE_LINE) char bytes[SLOT_BYTES];
};

static struct pst_edge_batch *make(struct slot *slot, uint32_t edges, uint32_t chunks, uint32_t negatives)
{
    memset(slot, 0, sizeof *slot);
    struct pst_edge_batch *b = (struct pst_edge_batch *)(void *)slot->bytes;
    *b = (struct pst_edge_batch){.magic = PST_EDGE_BATCH_MAGIC,
                                 .batches_in_epoch = 1,
                                 .edges = edges,
                                 .chunks = chunks,
                                 .negatives = negatives,
                                 .vertices = 10,
                                 .relations = 2};
    pst_edge_batch_place(b);
    return b;
}

static void random_shapes_agree(void **state)
{
    (void)state;
    static struct slot slot;
    for (unsigned i = 0; i < 200; i++) {
        const uint32_t edges = 1 + i * 7 % 300, chunks = 1 + i % 9, negatives = 1 + i * 5 % 60;
        struct pst_edge_batch *b = make(&slot, edges, chunks, negatives), got;
        ((int64_t *)pst_edge_batch_at(b, b->source_at))[edges - 1] = 9;
        ((int32_t *)pst_edge_batch_at(b, b->relation_at))[edges - 1] = 1;
        ((int64_t *)pst_edge_batch_at(b, b->negatives_at[0]))[chunks * negatives - 1] = 9;
        assert_int_equal(pst_edge_batch_read(slot.bytes, b->bytes_used, &got), PST_OK);
        assert_memory_equal(&got, b, sizeof got);
        assert_int_equal(((int64_t *)pst_edge_batch_at(b, b->source_at))[edges - 1], 9);
        uint32_t sum = 0;
        for (uint32_t c = 0; c < chunks; c++)
            sum += pst_edge_batch_chunk(b, c + 1) - pst_edge_batch_chunk(b, c);
        assert_int_equal(sum, edges);
        assert_int_not_equal(pst_edge_batch_read(slot.bytes, b->bytes_used - 1, &got), PST_OK);
    }
}

static void one_without_edges_is_only_a_header(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_edge_batch *b = make(&slot, 0, 4, 1000), got;
    b->flush = 2;
    assert_int_equal(pst_edge_batch_read(slot.bytes, b->bytes_used, &got), PST_OK);
    assert_true(b->bytes_used <= pst_align_up(sizeof *b, PST_CACHE_LINE));
    b->flush = 0;
    assert_int_equal(pst_edge_batch_read(slot.bytes, SLOT_BYTES, &got), PST_E_FORMAT);
}

#define CORRUPTIONS(X)                                                                                       \
    X(b->magic ^= 1)                                                                                         \
    X(b->bytes_used = SLOT_BYTES + 1)                                                                        \
    X(b->bytes_used = 8)                                                                                     \
    X(b->bytes_used -= 1)                                                                                    \
    X(b->edges = 0)                                                                                          \
    X(b->flush = 1)                                                                                          \
    X(b->edges = UINT32_MAX)                                                                                 \
    X(b->chunks = 0)                                                                                         \
    X(b->chunks = UINT32_MAX)                                                                                \
    X(b->negatives = 0)                                                                                      \
    X(b->negatives = UINT32_MAX)                                                                             \
    X(b->batch_in_epoch = 1)                                                                                 \
    X(b->source_at = UINT64_MAX - 7)                                                                         \
    X(b->source_at += 1)                                                                                     \
    X(b->destination_at = 8)                                                                                 \
    X(b->relation_at = SLOT_BYTES)                                                                           \
    X(b->negatives_at[1] += 1 << 12)                                                                         \
    X(*(int64_t *)pst_edge_batch_at(b, b->source_at) = 10)                                                   \
    X(*(int64_t *)pst_edge_batch_at(b, b->destination_at) = -1)                                              \
    X(*(int32_t *)pst_edge_batch_at(b, b->relation_at) = 2)                                                  \
    X(*(int64_t *)pst_edge_batch_at(b, b->negatives_at[0]) = INT64_MAX)                                      \
    X(*(int64_t *)pst_edge_batch_at(b, b->negatives_at[1]) = 10)

static void damage_is_refused(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_edge_batch got;
#define TRY(change)                                                                                          \
    do {                                                                                                     \
        struct pst_edge_batch *b = make(&slot, 20, 3, 5);                                                    \
        change;                                                                                              \
        if (pst_edge_batch_read(slot.bytes, SLOT_BYTES, &got) != PST_E_FORMAT)                               \
            fail_msg("not refused: %s", #change);                                                            \
        assert_non_null(strstr(pst_error_text(), "not a batch of edges"));                                   \
    } while (0);
    CORRUPTIONS(TRY)
    assert_int_equal(pst_edge_batch_read(slot.bytes, 16, &got), PST_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes_agree),
                                       cmocka_unit_test(one_without_edges_is_only_a_header),
                                       cmocka_unit_test(damage_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
