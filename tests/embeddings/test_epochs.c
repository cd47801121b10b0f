/* The batches of epochs: a model of the exchanges, in which a slot comes home as late as it may, never stands
 * still, and needs every batch without edges that there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/parts/epochs.h"

/* What the store knows (stages/lib/vectors/exchange.c), if `ahead` is as low as it may be: linger. */
struct model {
    const struct pst_parts_epochs *e;
    int64_t left, loaded; /* exchanges */
};

static bool holds(const struct model *m, int64_t exchange, int64_t partition)
{
    const struct pst_order *o = m->e->order;
    bool found = false;
    for (int place = 0; place < o->buffer; place++)
        found = found || o->state[exchange * o->buffer + place] == partition;
    return found;
}

static int64_t brought(const struct model *m, int64_t exchange)
{
    const struct pst_order *o = m->e->order;
    int64_t id = -1;
    for (int place = 0; place < o->buffer; place++)
        if (!holds(m, exchange - 1, o->state[exchange * o->buffer + place]))
            id = o->state[exchange * o->buffer + place];
    return id;
}

/* A partition is in memory from its exchange until the one that takes it out has begun. */
static bool is_in_memory(const struct model *m, int64_t partition)
{
    bool is = false;
    for (int64_t i = m->left; i <= m->loaded; i++)
        is = is || holds(m, i, partition);
    return is;
}

/* Batches that are home before the next partition leaves. A commit needs only the first of its batches
 * without edges. */
static uint64_t wanted(const struct model *m)
{
    const struct pst_parts_epochs *e = m->e;
    return e->group_batch[2 * m->left + 1] -
           (pst_parts_epochs_commits(e, m->left) ? (uint64_t)e->staleness - 1 : 0);
}

/* Does what can be done when the first `home` batches of the epoch are home. */
static void exchange(struct model *m, uint64_t home)
{
    const struct pst_parts_epochs *e = m->e;
    for (bool any = true; any;) {
        any = false;
        while (m->left < e->order->exchanges && m->loaded >= m->left && home >= wanted(m)) {
            m->left++;
            any = true;
        }
        while (m->loaded < e->order->exchanges && m->loaded < m->left + e->linger &&
               !is_in_memory(m, brought(m, m->loaded + 1))) {
            m->loaded++;
            any = true;
        }
    }
}

/* When so many batches were sent, those up to `staleness` before are home for sure, but for the slot that the
 * next batch gets. */
static uint64_t home_when(const struct pst_parts_epochs *e, uint64_t sent)
{
    return sent >= (uint64_t)e->staleness ? sent + 1 - (uint64_t)e->staleness : 0;
}

/* Returns the epoch's batches without edges before its end. */
static uint64_t check_epoch(const struct pst_parts_epochs *e)
{
    struct model m = {.e = e};
    uint64_t pauses = 0;
    for (int64_t g = 0; g < e->groups; g++) {
        const uint64_t full = (uint64_t)((e->group_edges[g] + e->batch - 1) / e->batch);
        const uint64_t here = e->group_batch[g + 1] - e->group_batch[g] - full;
        exchange(&m, home_when(e, e->group_batch[g]));
        if (m.loaded < pst_parts_needs(g))
            fail_msg("%s %d/%d, staleness %d, linger %d, a commit after %d: group %d waits for ever",
                     pst_order_kind_name(e->order->kind), e->order->partitions, e->order->buffer,
                     (int)e->staleness, (int)e->linger, (int)e->commit_swaps, (int)g);
        if (here > 0 && e->commit_swaps == 0) { /* with one less, the next would */
            struct model less = m;
            assert_true(g % 2 == 1);
            exchange(&less, home_when(e, e->group_batch[g + 1] - 1));
            assert_true(less.loaded < pst_parts_needs(g + 1));
        }
        pauses += here;
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

static void no_batch_waits_for_ever(void **unused)
{
    (void)unused;
    static const struct {
        enum pst_order_kind kind;
        int partitions, buffer;
    } orders[] = {{PST_ORDER_BETA, 6, 3},    {PST_ORDER_BETA, 5, 2},    {PST_ORDER_HILBERT, 7, 3},
                  {PST_ORDER_HILBERT, 9, 2}, {PST_ORDER_LEGEND, 12, 3}, {PST_ORDER_HILBERT_SYMMETRIC, 8, 4}};
    static int64_t edges[12 * 12];
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
                    uint64_t before = UINT64_MAX;
                    for (int64_t linger = 0; linger <= 3; linger++) {
                        const uint64_t pauses = pauses_of(&(struct pst_parts_epochs){.batch = 10,
                                                                                     .staleness = staleness,
                                                                                     .epochs = 2,
                                                                                     .commit_swaps = swaps,
                                                                                     .linger = linger,
                                                                                     .seed = 3},
                                                          &o, edges);
                        assert_true(pauses <= before && (staleness > 1 || swaps > 0 || pauses == 0));
                        before = pauses;
                    }
                }
            pst_order_release(&o);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_batch_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
