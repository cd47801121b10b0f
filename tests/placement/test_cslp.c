/* test_cslp.c: which device of a clique caches which vertex (Legion, Algorithm 1). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/clique/cslp.h"

#define VERTICES 40
#define DEVICES 4
#define GRAPHS 2000

static uint64_t one(const void *of, int64_t id)
{
    (void)of;
    (void)id;
    return 1;
}

static uint64_t listed(const void *of, int64_t id)
{
    return ((const uint64_t *)of)[id];
}

struct world {
    uint32_t hotness[DEVICES][VERTICES];
    uint64_t bytes[VERTICES], sum[VERTICES];
    int64_t order[VERTICES];
    int8_t at[VERTICES];
    struct pst_cslp c;
};

static void make(struct world *w, unsigned seed, uint32_t levels)
{
    srand(seed);
    *w = (struct world){.c = {.devices = DEVICES, .bytes = one}};
    for (int d = 0; d < DEVICES; d++) {
        w->c.hotness[d] = w->hotness[d];
        w->c.room[d] = (uint64_t)(rand() % 8);
        for (int v = 0; v < VERTICES; v++)
            w->hotness[d][v] = (uint32_t)rand() % levels;
    }
    for (int v = 0; v < VERTICES; v++)
        w->bytes[v] = 1 + (uint64_t)(rand() % 5);
    memset(w->at, PST_CSLP_NOWHERE, sizeof w->at);
    assert_int_equal(pst_cslp_order(&w->c, VERTICES, w->sum, w->order), PST_OK);
}

/* The order is a permutation, by sum, then id. */
static void order(void **state)
{
    (void)state;
    struct world w;
    for (unsigned seed = 0; seed < 50; seed++) {
        bool seen[VERTICES] = {false};
        make(&w, seed, 3);
        for (int i = 0; i < VERTICES; i++) {
            const int64_t v = w.order[i], next = i + 1 < VERTICES ? w.order[i + 1] : -1;
            uint64_t sum = 0;
            for (int d = 0; d < DEVICES; d++)
                sum += w.hotness[d][v];
            assert_int_equal(w.sum[v], sum);
            assert_false(seen[v]);
            seen[v] = true;
            assert_true(next < 0 || w.sum[v] > w.sum[next] || (w.sum[v] == w.sum[next] && v < next));
        }
    }
}

/* With rows of one size, the clique holds exactly the top of the order, each device what it has room for, and
 * each vertex is on the hottest device that had room when its turn came. */
static void holds_the_top(void **state)
{
    (void)state;
    struct world w;
    for (unsigned seed = 0; seed < GRAPHS; seed++) {
        uint64_t room[DEVICES], all = 0;
        make(&w, seed, 1 + seed % 5);
        for (int d = 0; d < DEVICES; d++)
            all += room[d] = w.c.room[d];
        pst_cslp_assign(&w.c, w.order, VERTICES, w.at);
        for (int i = 0; i < VERTICES; i++) {
            const int64_t v = w.order[i];
            const int at = w.at[v];
            assert_int_equal(at >= 0, (uint64_t)i < all);
            if (at < 0)
                continue;
            assert_true(room[at] > 0);
            for (int d = 0; d < DEVICES; d++)
                if (room[d] > 0 && d != at)
                    assert_true(w.hotness[d][v] < w.hotness[at][v] ||
                                (w.hotness[d][v] == w.hotness[at][v] &&
                                 (room[d] < room[at] || (room[d] == room[at] && d > at))));
            room[at]--;
        }
    }
}

/* Lists of different sizes: none is on a device without room, and one that was left out fits on no device. */
static void lists_fit(void **state)
{
    (void)state;
    struct world w;
    for (unsigned seed = 0; seed < GRAPHS; seed++) {
        make(&w, seed, 4);
        w.c.bytes = listed;
        w.c.of = w.bytes;
        pst_cslp_assign(&w.c, w.order, VERTICES, w.at);
        for (int i = 0; i < VERTICES; i++) {
            const int64_t v = w.order[i];
            bool fits = false;
            for (int d = 0; d < DEVICES; d++)
                fits = fits || w.bytes[v] <= w.c.room[d];
            assert_int_equal(w.at[v] >= 0, fits);
            if (w.at[v] >= 0) {
                assert_true(w.bytes[v] <= w.c.room[w.at[v]]);
                w.c.room[w.at[v]] -= w.bytes[v];
            }
        }
    }
}

/* As printed: hot vertices tie, all go to the first device, and the others stay empty. */
static void as_printed(void **state)
{
    (void)state;
    struct world w;
    make(&w, 1, 1);
    for (int d = 0; d < DEVICES; d++)
        w.c.room[d] = 5;
    w.c.as_printed = true;
    pst_cslp_assign(&w.c, w.order, VERTICES, w.at);
    for (int i = 0; i < VERTICES; i++)
        assert_int_equal(w.at[w.order[i]], i < 5 ? 0 : PST_CSLP_NOWHERE);
    w.hotness[2][w.order[7]] = 1;
    pst_cslp_assign(&w.c, w.order, VERTICES, w.at);
    assert_int_equal(w.at[w.order[7]], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(holds_the_top),
        cmocka_unit_test(lists_fit),
        cmocka_unit_test(as_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
