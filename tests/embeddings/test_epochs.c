/* The batches of epochs: when a partition comes again, every batch before it left is so far back that the
 * next one has its updates by the rule of staleness; and no batch without edges is there for nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/parts/epochs.h"

static bool holds(const struct pst_order *o, int64_t exchange, int64_t partition)
{
    bool found = false;
    for (int place = 0; place < o->buffer; place++)
        found = found || o->state[exchange * o->buffer + place] == partition;
    return found;
}

/* The first batch of the epoch that need not be home when a batch after exchange i is gathered: the one after
 * the last use of what the exchange loads. */
static uint64_t first_after(const struct pst_parts_epochs *e, int64_t i)
{
    const struct pst_order *o = e->order;
    uint64_t first = 0;
    for (int64_t p = 0; p < o->partitions; p++) {
        if (!holds(o, i, p) || holds(o, i - 1, p))
            continue;
        for (int64_t before = 0; before < i; before++) /* groups up to 2 x before can use it */
            if (holds(o, before, p))
                first = e->group_batch[2 * before + 1];
    }
    return first;
}

/* Returns the epoch's batches without edges before its end. */
static uint64_t check_epoch(const struct pst_parts_epochs *e)
{
    const uint64_t wanted = (uint64_t)e->staleness - 1;
    uint64_t pauses = 0;
    for (int64_t g = 0; g < e->groups; g++) {
        const uint64_t full = (uint64_t)((e->group_edges[g] + e->batch - 1) / e->batch);
        const uint64_t here = e->group_batch[g + 1] - e->group_batch[g] - full;
        pauses += here;
        if (g % 2 == 0 && here > 0) /* a commit */
            assert_true(pst_parts_epochs_commits(e, g / 2) && here == wanted + 1);
        if (g % 2 == 0)
            continue;
        const uint64_t first = first_after(e, (g + 1) / 2);
        const uint64_t since = e->group_batch[g + 1] - first; /* edges of a commit have pauses behind them */
        if (first > 0 && since < wanted && e->commit_swaps == 0)
            fail_msg("%s %d/%d, staleness %d: after group %d, a partition has come too soon",
                     pst_order_kind_name(e->order->kind), e->order->partitions, e->order->buffer,
                     (int)e->staleness, (int)g);
        assert_true(here == 0 || (first > 0 && since == wanted));
    }
    return pauses;
}

static uint64_t pauses_of(struct pst_parts_epochs *e, const struct pst_order *o, const int64_t *edges)
{
    uint64_t pauses = 0;
    e->order = o;
    e->bucket_edges = edges;
    assert_int_equal(pst_parts_epochs_open(e), PST_OK);
    for (int64_t epoch = 0; epoch < e->epochs; epoch++) {
        pst_parts_epochs_go(e, epoch);
        pauses += check_epoch(e);
    }
    pst_parts_epochs_close(e);
    return pauses;
}

static void partitions_come_again_with_their_updates_only(void **unused)
{
    (void)unused;
    static const struct {
        enum pst_order_kind kind;
        int partitions, buffer;
    } orders[] = {{PST_ORDER_BETA, 6, 3},    {PST_ORDER_BETA, 5, 2},    {PST_ORDER_HILBERT, 7, 3},
                  {PST_ORDER_HILBERT, 9, 2}, {PST_ORDER_LEGEND, 12, 3}, {PST_ORDER_HILBERT_SYMMETRIC, 8, 4}};
    static int64_t edges[12 * 12];
    uint64_t all = 0;
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++)
        for (int between = 0; between < 2; between++) {
            const int p = orders[k].partitions;
            struct pst_order o;
            assert_int_equal(pst_order_build(&o, orders[k].kind, p, orders[k].buffer), PST_OK);
            if (between)
                pst_order_between_exchanges(&o);
            for (int i = 0; i < p * p; i++)
                edges[i] = i * 7 % 23; /* some buckets are empty */
            for (int64_t staleness = 1; staleness <= 17; staleness += staleness < 5 ? 1 : 6)
                for (int64_t swaps = 0; swaps <= 3; swaps += 3) {
                    struct pst_parts_epochs e = {
                        .batch = 10, .staleness = staleness, .epochs = 2, .commit_swaps = swaps, .seed = 3};
                    const uint64_t pauses = pauses_of(&e, &o, edges);
                    assert_true(staleness > 1 || swaps > 0 || pauses == 0);
                    all += swaps == 0 ? pauses : 0;
                }
            pst_order_release(&o);
        }
    assert_true(all > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitions_come_again_with_their_updates_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
