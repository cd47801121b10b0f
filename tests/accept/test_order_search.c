/* The search for orders: how near it comes to the bound, and how long it takes. And every order up to 256
 * partitions. The times are of the process, so that other processes do not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "common/error.h"
#include "stages/lib/order/orders.h"

#define SECONDS_MAX 5

static struct pst_order_counts verified(enum pst_order_kind kind, int partitions, int buffer)
{
    struct pst_order o;
    struct pst_order_counts n;
    const clock_t begin = clock();
    assert_int_equal(pst_order_build(&o, kind, partitions, buffer), PST_OK);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (pst_order_verify(&o) != PST_OK)
        fail_msg("%s %d/%d: %s", pst_order_kind_name(kind), partitions, buffer, pst_error_text());
    pst_order_count(&o, &n);
    if (kind == PST_ORDER_AUTO) {
        print_message("auto %d/%d: %lld swaps, bound %lld, %lld not overlapped, %.2f s\n", partitions, buffer,
                      (long long)n.swaps, (long long)n.bound, (long long)n.not_overlapped, seconds);
        assert_true(seconds < SECONDS_MAX);
    }
    pst_order_release(&o);
    return n;
}

static void buffers_of_three(void **unused)
{
    (void)unused;
    for (int p = 7; p <= 64; p += p < 24 ? 1 : 8) {
        const struct pst_order_counts n = verified(PST_ORDER_AUTO, p, 3);
        const double over = p <= 16 ? 0 : p <= 22 ? 1 : (p <= 32 ? 0.03 : 0.04) * (double)n.bound;
        assert_true((double)(n.swaps - n.bound) <= over);
        assert_true((double)n.not_overlapped <= (p <= 24 ? 0 : 0.01 * (double)n.swaps));
        assert_true(n.swaps <= verified(PST_ORDER_BETA, p, 3).swaps);
    }
}

static void larger_buffers(void **unused)
{
    (void)unused;
    static const int sizes[][3] = {{12, 4, 21}, {16, 4, 39}, {16, 8, 16}, {32, 8, 75}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(verified(PST_ORDER_AUTO, sizes[i][0], sizes[i][1]).swaps <= sizes[i][2]);
}

static void up_to_the_largest(void **unused)
{
    (void)unused;
    static const int buffers[] = {2, 3, 4, 16, 100};
    for (int p = 100; p <= PST_ORDER_PARTITIONS_MAX; p += 52) {
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
            const int64_t beta = verified(PST_ORDER_BETA, p, buffers[i]).swaps;
            (void)verified(PST_ORDER_HILBERT, p, buffers[i]);
            (void)verified(PST_ORDER_HILBERT_SYMMETRIC, p, buffers[i]);
            assert_true(verified(PST_ORDER_AUTO, p, buffers[i]).swaps <= beta);
        }
        (void)verified(PST_ORDER_LEGEND, p, 3);
    }
    (void)verified(PST_ORDER_COVER, 256, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_of_three), cmocka_unit_test(larger_buffers),
                                       cmocka_unit_test(up_to_the_largest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
