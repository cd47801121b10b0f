/* Orders of partitions: the papers' figures, and a proof of every order that is built. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "stages/lib/order/orders.h"

static struct pst_order_counts verified(enum pst_order_kind kind, int partitions, int buffer)
{
    struct pst_order o;
    struct pst_order_counts n;
    assert_int_equal(pst_order_build(&o, kind, partitions, buffer), PST_OK);
    if (pst_order_verify(&o) != PST_OK)
        fail_msg("%s %d/%d: %s", pst_order_kind_name(kind), partitions, buffer, pst_error_text());
    pst_order_count(&o, &n);
    assert_true(n.swaps >= n.bound && n.loads == n.swaps + buffer);
    pst_order_release(&o);
    return n;
}

/* Marius, equation 3 */
static int64_t equation_3(int p, int c)
{
    const int64_t left = p - c, x = left / (c - 1);
    return left + (x + 1) * left - x * (x + 1) * (c - 1) / 2;
}

static void beta_has_the_swaps_of_its_formula(void **unused)
{
    (void)unused;
    for (int p = 2; p <= 64; p += p < 20 ? 1 : 4)
        for (int c = 2; c <= 16 && c <= p; c += c < 5 ? 1 : 3)
            assert_int_equal(verified(PST_ORDER_BETA, p, c).swaps, equation_3(p, c));
}

/* Legend, Table 6: it counts buffer states. Its 34 for BETA at 12 is the number of swaps. */
static void states_of_the_table(void **unused)
{
    (void)unused;
    static const int table[][3] = {{6, 8, 8},    {8, 15, 16},  {10, 24, 24},
                                   {12, 35, 36}, {14, 48, 50}, {16, 63, 66}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(verified(PST_ORDER_BETA, table[i][0], 3).swaps + 1, table[i][1]);
        assert_int_equal(verified(PST_ORDER_LEGEND, table[i][0], 3).swaps + 1, table[i][2]);
    }
    assert_int_equal(verified(PST_ORDER_COVER, 16, 4).loads, 80);
    assert_int_equal(verified(PST_ORDER_LEGEND, 12, 3).not_overlapped, 4); /* of 35: Legend, section 4 */
}

/* Marius, Figures 6 and 7 */
static void hilbert_curves(void **unused)
{
    (void)unused;
    assert_int_equal(verified(PST_ORDER_HILBERT, 4, 2).swaps, 9);
    assert_int_equal(verified(PST_ORDER_BETA, 4, 2).swaps, 5);
    assert_int_equal(verified(PST_ORDER_HILBERT, 32, 8).swaps, 204);
    assert_int_equal(verified(PST_ORDER_HILBERT_SYMMETRIC, 32, 8).swaps, 112);
    assert_int_equal(verified(PST_ORDER_BETA, 32, 8).swaps, 78);
    assert_int_equal(verified(PST_ORDER_BETA, 32, 8).bound, 67);
}

static bool exists(enum pst_order_kind kind, int partitions, int buffer)
{
    if (kind == PST_ORDER_LEGEND)
        return buffer == 3;
    return kind != PST_ORDER_COVER ||
           (buffer == 4 && (partitions == 4 || partitions == 16 || partitions == 64));
}

static void every_published_order_is_whole(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < PST_ORDER_AUTO; kind++)
        for (int p = 1; p <= 64; p += p < 12 ? 1 : 13)
            for (int c = p > 1 ? 2 : 1; c <= p; c += c < 5 ? 1 : 7)
                if (exists((enum pst_order_kind)kind, p, c))
                    (void)verified((enum pst_order_kind)kind, p, c);
}

/* Legend, Figure 6: the order for 6 partitions and its first groups. */
static void the_example_of_the_paper(void **unused)
{
    (void)unused;
    static const uint16_t states[8][3] = {{0, 1, 2}, {0, 3, 2}, {0, 3, 4}, {0, 5, 4},
                                          {1, 5, 4}, {1, 5, 3}, {2, 5, 3}, {2, 5, 4}};
    struct pst_order o;
    assert_int_equal(pst_order_build(&o, PST_ORDER_LEGEND, 6, 3), PST_OK);
    for (int64_t i = 0; i <= o.exchanges; i++)
        for (int p = 0; p < 3; p++) {
            bool found = false;
            for (int place = 0; place < 3; place++)
                found = found || o.state[i * 3 + place] == states[i][p];
            assert_true(found);
        }
    /* before 1 leaves: its five buckets; while 3 comes: those of 2, which leaves next, with 0 */
    assert_int_equal(o.cut[1], 5);
    for (int64_t b = 0; b < 5; b++)
        assert_true(o.bucket[b].source == 1 || o.bucket[b].destination == 1);
    assert_int_equal(o.cut[2] - o.cut[1], 3);
    for (int64_t b = 5; b < 8; b++)
        assert_true((o.bucket[b].source == 2 || o.bucket[b].destination == 2) && o.bucket[b].source != 3 &&
                    o.bucket[b].destination != 3);
    pst_order_release(&o);
}

static void the_search_reaches_the_bound(void **unused)
{
    (void)unused;
    for (int p = 7; p <= 16; p++) {
        const struct pst_order_counts n = verified(PST_ORDER_AUTO, p, 3);
        assert_int_equal(n.swaps, n.bound);
        assert_int_equal(n.not_overlapped, 0);
    }
    (void)verified(PST_ORDER_AUTO, 9, 2);
    (void)verified(PST_ORDER_AUTO, 5, 5);
    (void)verified(PST_ORDER_AUTO, 1, 1);
}

static void wrong_numbers_are_told(void **unused)
{
    (void)unused;
    static const struct {
        enum pst_order_kind kind;
        int partitions, buffer;
        const char *told;
    } wrong[] = {{PST_ORDER_BETA, 0, 2, "partitions is 0; expected 1 to 256"},
                 {PST_ORDER_BETA, 257, 2, "partitions is 257; expected 1 to 256"},
                 {PST_ORDER_BETA, 8, 9, "the buffer holds 9 partitions; expected 2 to 8"},
                 {PST_ORDER_AUTO, 8, 1, "the buffer holds 1 partitions; expected 2 to 8"},
                 {PST_ORDER_LEGEND, 8, 4, "buffer of 3 partitions; found 4"},
                 {PST_ORDER_COVER, 8, 4, "4, 16, 64 or 256 partitions"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct pst_order o;
        assert_int_equal(pst_order_build(&o, wrong[i].kind, wrong[i].partitions, wrong[i].buffer), PST_E_ARG);
        assert_non_null(strstr(pst_error_text(), wrong[i].told));
    }
}

/* ---- files ------------------------------------------------------------------------------------------ */

static void an_order_comes_back_from_its_file(void **unused)
{
    (void)unused;
    char path[] = "/tmp/penstock-order-XXXXXX";
    (void)close(mkstemp(path));
    for (int kind = 0; kind < PST_ORDER_AUTO; kind++) {
        struct pst_order o, back;
        assert_int_equal(pst_order_build(&o, (enum pst_order_kind)kind, 16, kind == PST_ORDER_LEGEND ? 3 : 4),
                         PST_OK);
        assert_int_equal(pst_order_write(&o, path), PST_OK);
        assert_int_equal(pst_order_read(&back, path), PST_OK);
        assert_true(back.kind == o.kind && back.exchanges == o.exchanges && back.reload == o.reload);
        assert_memory_equal(back.state, o.state, (size_t)((o.exchanges + 1) * o.buffer) * sizeof *o.state);
        assert_memory_equal(back.bucket, o.bucket, 256 * sizeof *o.bucket);
        assert_memory_equal(back.cut, o.cut, (size_t)(2 * o.exchanges + 2) * sizeof *o.cut);
        pst_order_release(&o);
        pst_order_release(&back);
    }
    (void)unlink(path);
}

/* Every bucket is still trained once, while its partitions are there, but none during an exchange. */
static void buckets_between_exchanges(void **unused)
{
    (void)unused;
    static const int partitions[] = {3, 7, 12, 16}, buffer[] = {2, 3, 3, 8};
    for (int i = 0; i < 4; i++) {
        struct pst_order o;
        struct pst_order_counts counts;
        assert_int_equal(pst_order_build(&o, PST_ORDER_AUTO, partitions[i], buffer[i]), PST_OK);
        pst_order_between_exchanges(&o);
        assert_int_equal(pst_order_verify(&o), PST_OK);
        pst_order_count(&o, &counts);
        assert_true(counts.not_overlapped == o.exchanges && counts.overlap == 0);
        pst_order_release(&o);
    }
}

/* The schedule of a real order, with one thing changed. */
static void what_is_not_an_order_is_refused(void **unused)
{
    (void)unused;
    struct pst_order o;
    assert_int_equal(pst_order_build(&o, PST_ORDER_BETA, 8, 3), PST_OK);
    const struct pst_order_bucket saved = o.bucket[0];
    o.bucket[0] = o.bucket[1];
    assert_int_equal(pst_order_verify(&o), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "twice"));
    o.bucket[0] = (struct pst_order_bucket){7, 6};
    assert_int_equal(pst_order_verify(&o), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "bucket (7, 6)"));
    o.bucket[0] = saved;
    const uint16_t partition = o.state[0];
    o.state[0] = o.state[1];
    assert_int_equal(pst_order_verify(&o), PST_E_FORMAT);
    o.state[0] = partition;
    assert_int_equal(pst_order_verify(&o), PST_OK);
    /* a bucket that waits for exchange 1 although the loaded partition is one of its own */
    o.cut[2] = o.cut[3];
    assert_int_equal(pst_order_verify(&o), PST_E_FORMAT);
    pst_order_release(&o);
}

/* Exchange i of LEGEND at 8 partitions, against a count by hand; Theorem 3 with the paper's numbers. */
static void exchanges_that_training_hides(void **unused)
{
    (void)unused;
    struct pst_order o;
    int64_t edges[64];
    const struct pst_order_machine machine = {.edge_s = 1e-3, .write = 1e6, .read = 2e6};
    struct pst_order_overlap found;
    assert_int_equal(pst_order_build(&o, PST_ORDER_LEGEND, 8, 3), PST_OK);
    for (int b = 0; b < 64; b++)
        edges[b] = 1000 + b;
    for (double bytes = 1e5; bytes < 1e8; bytes *= 3) {
        const double exchange = bytes / 1e6 + bytes / 2e6;
        double waited = 0;
        int64_t hidden = 0, least = INT64_MAX;
        for (int64_t i = 1; i <= o.exchanges; i++) {
            int64_t sum = 0;
            for (int64_t b = o.cut[2 * i - 1]; b < o.cut[2 * i]; b++)
                sum += 1000 + o.bucket[b].source * 8 + o.bucket[b].destination;
            least = sum < least ? sum : least;
            if ((double)sum * 1e-3 >= exchange)
                hidden++;
            else
                waited += exchange - (double)sum * 1e-3;
        }
        pst_order_overlap(&o, edges, bytes, &machine, &found);
        assert_int_equal(found.hidden, hidden);
        assert_int_equal(found.least_edges, least);
        assert_true(fabs(found.waited_s - waited) <= 1e-9 * (1 + waited) &&
                    fabs(found.exchange_s - exchange) < 1e-9 * exchange);
    }
    pst_order_release(&o);
    const struct pst_order_machine paper = {.edge_s = 1e-7, .write = 2e9, .read = 3e9};
    const double density = pst_order_density(100, 15e9, &paper);
    assert_true(density > 5.33e-7 && density < 5.34e-7);
}

/* Theorem 3 follows from the overlap of equal buckets: at its density the least exchange is just hidden. */
static void the_density_of_the_theorem(void **unused)
{
    (void)unused;
    enum { P = 16 };
    const struct pst_order_machine machine = {.edge_s = 1e-6, .write = 2e9, .read = 3e9};
    const double vertices = 1e8, dim = 100, partition = vertices / P * 2 * dim * sizeof(float);
    const double density = pst_order_density(dim, 3 * partition, &machine);
    struct pst_order o;
    assert_int_equal(pst_order_build(&o, PST_ORDER_AUTO, P, 3), PST_OK);
    for (int more = -1; more <= 1; more += 2) {
        int64_t edges[P * P];
        struct pst_order_overlap found;
        for (int b = 0; b < P * P; b++)
            edges[b] = (int64_t)(density * vertices * vertices / (P * P) * (1 + 0.01 * more));
        pst_order_overlap(&o, edges, partition, &machine, &found);
        assert_true((found.hidden == o.exchanges) == (more > 0));
    }
    pst_order_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beta_has_the_swaps_of_its_formula),
        cmocka_unit_test(states_of_the_table),
        cmocka_unit_test(hilbert_curves),
        cmocka_unit_test(every_published_order_is_whole),
        cmocka_unit_test(the_example_of_the_paper),
        cmocka_unit_test(the_search_reaches_the_bound),
        cmocka_unit_test(buckets_between_exchanges),
        cmocka_unit_test(exchanges_that_training_hides),
        cmocka_unit_test(the_density_of_the_theorem),
        cmocka_unit_test(wrong_numbers_are_told),
        cmocka_unit_test(an_order_comes_back_from_its_file),
        cmocka_unit_test(what_is_not_an_order_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
