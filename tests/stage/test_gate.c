/* The storage access accumulator: N_access of GIDS's drives, its inverse, when the gate opens, what it
 * refuses. */
#include <math.h>

#include "stages/lib/accumulate/gate.h"
#include "tests/unit/store_fixture.h"

static const struct pst_burst optane = {.iop_peak = 1.5e6, .ssds = 1, .overhead_s = (11 + 25 + 5) * 1e-6},
                              samsung = {.iop_peak = 7e5, .ssds = 1, .overhead_s = (324 + 25 + 5) * 1e-6};

/* The figures; the paper prints 812. */
static void the_drives_of_the_paper(void **unused)
{
    (void)unused;
    assert_true(round(pst_burst_accesses(&optane, 0.95)) == 1168);
    assert_true(round(pst_burst_accesses(&samsung, 0.95)) == 4708);
}

static void the_share_is_the_inverse(void **unused)
{
    (void)unused;
    for (double ssds = 1; ssds <= 4; ssds *= 2)
        for (double share = 0.05; share < 1; share += 0.05) {
            struct pst_burst b = optane;
            b.ssds = ssds;
            const double n = pst_burst_accesses(&b, share);
            assert_true(fabs(pst_burst_share(&b, n) - share) < 1e-12);
            assert_true(fabs(n / pst_burst_accesses(&optane, share) - ssds) < 1e-9);
            /* the time of the burst by its parts */
            const double seconds = b.overhead_s + n / (b.iop_peak * ssds);
            assert_true(fabs(n / seconds / (b.iop_peak * ssds) - share) < 1e-12);
        }
    assert_true(pst_burst_share(&optane, 0) == 0);
}

/* Two bursts of a drive give the drive; times that no drive explains give nothing. */
static void two_bursts_fit_the_drive(void **unused)
{
    (void)unused;
    for (double ssds = 1; ssds <= 4; ssds *= 2)
        for (double few = 1; few < 64; few *= 4) {
            struct pst_burst b = {.ssds = ssds};
            const double rate = samsung.iop_peak * ssds, many = 100 * few;
            assert_true(pst_burst_fit(&b, few, samsung.overhead_s + few / rate, many,
                                      samsung.overhead_s + many / rate));
            assert_true(fabs(b.iop_peak / samsung.iop_peak - 1) < 1e-9);
            assert_true(fabs(b.overhead_s / samsung.overhead_s - 1) < 1e-9);
            assert_true(fabs(pst_burst_accesses(&b, 0.95) / (ssds * 4708) - 1) < 1e-3);
        }
    struct pst_burst b = {.ssds = 1};
    assert_false(pst_burst_fit(&b, 1, 1e-3, 1, 2e-3));
    assert_false(pst_burst_fit(&b, 1, 1e-3, 100, 1e-3));
    assert_true(
        pst_burst_fit(&b, 10, 1e-3, 100, 20e-3)); /* the slope alone explains more than the first took */
    assert_true(b.overhead_s == 0);
}

static struct pst_gate gate(const char *text, uint64_t want)
{
    struct pst_gate g;
    bool automatic = false;
    assert_int_equal(pst_gate_parse(&g, text, &automatic), PST_OK);
    assert_int_equal(automatic, strcmp(text, "auto") == 0);
    g.want = automatic ? want : g.want;
    return g;
}

static bool opens(struct pst_gate g, uint64_t waiting, uint64_t accesses, uint64_t flying, uint64_t flown,
                  bool full)
{
    g.waiting = waiting;
    g.waiting_accesses = accesses;
    g.flying = flying;
    g.flying_accesses = flown;
    return pst_gate_opens(&g, full);
}

static void the_gate(void **unused)
{
    (void)unused;
    static const char *const all[] = {"none", "off", "3", "auto"};
    for (int i = 0; i < 4; i++)
        assert_false(opens(gate(all[i], 100), 0, 0, 2, 500, true)); /* nothing waits */
    assert_true(opens(gate("none", 0), 1, 10, 5, 50, false));
    assert_true(opens(gate("off", 0), 2, 20, 0, 0, false));
    assert_false(opens(gate("off", 0), 2, 20, 1, 10, true)); /* never two at a time */
    assert_false(opens(gate("3", 0), 2, 9999, 0, 0, false));
    assert_true(opens(gate("3", 0), 3, 3, 0, 0, false));
    assert_true(opens(gate("3", 0), 1, 1, 2, 2, false)); /* a new one joins */
    assert_false(opens(gate("3", 0), 1, 1, 1, 1, false));
    assert_true(opens(gate("3", 0), 1, 1, 1, 1, true));
    assert_false(opens(gate("auto", 100), 5, 99, 0, 0, false));
    assert_true(opens(gate("auto", 100), 5, 60, 1, 40, false));
    assert_true(opens(gate("auto", 100), 5, 60, 1, 39, true));
}

static void bad_texts(void **unused)
{
    (void)unused;
    static const char *const bad[] = {"", "0", "-1", "4097", "2x", " 2", "on", "1e3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pst_gate g;
        bool automatic;
        assert_int_equal(pst_gate_parse(&g, bad[i], &automatic), PST_E_ARG);
        assert_non_null(strstr(pst_error_text(), "accumulate is \""));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drives_of_the_paper), cmocka_unit_test(the_share_is_the_inverse),
        cmocka_unit_test(two_bursts_fit_the_drive), cmocka_unit_test(the_gate), cmocka_unit_test(bad_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
