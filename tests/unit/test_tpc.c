/* The cost model: equations 3, 4 and 5, prices and their mistakes, predictions, the search and its hint. */
#include "tests/unit/store_fixture.h"

#include <math.h>

#include "common/pipeline/json/diag.h"
#include "common/tpc/prices.h"
#include "common/tpc/scale.h"
#include "common/tpc/search.h"
#include "common/tpc/tpc.h"

static void assert_near(double found, double wanted)
{
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("expected %.12g, found %.12g", wanted, found);
}

static struct pst_tpc_prices builtin(void)
{
    struct pst_tpc_prices p;
    struct pst_diag diag = {0};
    assert_true(pst_tpc_prices_load(&p, NULL, &diag));
    assert_int_equal(diag.count, 0);
    return p;
}

/* ---- equations ----------------------------------------------------------------------------------- */

static void test_equation_4(void **state)
{
    (void)state;
    /* 1,000,000 transactions at 4 x 25,000 a second: 10 s, and 0.5 s of lookup; (1,000,000 + 200,000) over
     * 400,000 a second: 3 s */
    struct pst_tpc_batch batch = {.samples = 8000, .n_ssd = 1e6, .n_mem = 2e5, .alpha_s = 0.5, .train_s = 7};
    struct pst_tpc_rates rates = {.th_ssd = 25e3, .th_pcie = 4e5, .ssds = 4};
    struct pst_tpc_times t = pst_tpc_times(&batch, &rates);
    assert_near(t.ssd_s, 10.5);
    assert_near(t.pcie_s, 3);
    assert_near(t.batch_s, 10.5);
    assert_int_equal(t.bound, PST_TPC_SSD);
    rates.ssds = 12;
    t = pst_tpc_times(&batch, &rates);
    assert_near(t.ssd_s, 10.0 / 3 + 0.5);
    assert_near(t.batch_s, 7);
    assert_int_equal(t.bound, PST_TPC_TRAIN);
    batch.train_s = 1;
    rates.th_pcie = 1e5;
    t = pst_tpc_times(&batch, &rates);
    assert_near(t.batch_s, 12);
    assert_int_equal(t.bound, PST_TPC_PCIE);
}

static void test_unknown_values(void **state)
{
    (void)state;
    struct pst_tpc_batch batch = {.samples = 1, .n_ssd = 100, .n_mem = 0, .alpha_s = 0, .train_s = 2};
    struct pst_tpc_rates rates = {.th_ssd = 10, .th_pcie = NAN, .ssds = 1};
    struct pst_tpc_times t = pst_tpc_times(&batch, &rates);
    assert_true(isnan(t.pcie_s));
    assert_near(t.batch_s, 10);
    batch.n_ssd = NAN;
    t = pst_tpc_times(&batch, &rates);
    assert_true(isnan(t.ssd_s));
    assert_near(t.batch_s, 2);
    assert_int_equal(t.bound, PST_TPC_TRAIN);
    batch.train_s = NAN;
    t = pst_tpc_times(&batch, &rates);
    assert_true(isnan(t.batch_s));
    assert_null(pst_tpc_bound_name(t.bound));
    batch = (struct pst_tpc_batch){.samples = 1, .alpha_s = 0.25, .train_s = 0.125};
    rates = (struct pst_tpc_rates){.th_ssd = NAN, .th_pcie = NAN, .ssds = 0};
    t = pst_tpc_times(&batch, &rates); /* nothing is read: the rates do not matter */
    assert_true(t.ssd_s <= 0 && t.pcie_s <= 0);
    assert_string_equal(pst_tpc_bound_name(t.bound), "train");
}

static void test_table_1(void **state)
{
    (void)state;
    const struct pst_tpc_prices p = builtin();
    static const struct {
        const char *name;
        double each, all;
        const char *text;
    } want[] = {{"A", 48971, 48971, "48,971"}, {"B", 78794, 78794, "78,794"}, {"C", 45275, 362200, "45,275"}};
    char text[PST_TPC_MONEY_BYTES];
    assert_int_equal(p.nsystems, 3);
    for (int i = 0; i < 3; i++) {
        double each = 0;
        assert_string_equal(p.systems[i].name, want[i].name);
        assert_near(pst_tpc_system_cost(&p, &p.systems[i], &each), want[i].all);
        assert_near(each, want[i].each);
        assert_string_equal(pst_tpc_money(each, text), want[i].text);
    }
    assert_near(pst_tpc_of(8000, 0.5, 48971), 8000 / (0.5 * 48971));
}

static void test_money(void **state)
{
    (void)state;
    static const struct {
        double usd;
        const char *text;
    } want[] = {{0, "0"},           {999.4, "999"},   {999.5, "1,000"},      {1234567, "1,234,567"},
                {-1500, "-1,500"},  {NAN, "unknown"}, {INFINITY, "unknown"}, {1e15, "unknown"},
                {100000, "100,000"}};
    char text[PST_TPC_MONEY_BYTES];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(pst_tpc_money(want[i].usd, text), want[i].text);
}

/* ---- prices -------------------------------------------------------------------------------------- */

static const char good[] = "{\"machine_usd\": 1000, \"electricity_usd\": 0,\n"
                           "\"gpus\": {\"g\": {\"usd\": 100, \"tflops\": 10, \"pcie_bytes_per_s\": 1e9}},\n"
                           "\"ssds\": {\"s\": {\"usd\": 10, \"iops\": 1000, \"bytes_per_s\": 4e6}}%s}\n";

static bool load_text(const char *text, struct pst_tpc_prices *p, struct pst_diag *diag)
{
    char path[] = "/tmp/penstock-test-prices-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    const bool ok = pst_tpc_prices_load(p, path, diag);
    (void)unlink(path);
    return ok;
}

static void test_price_file(void **state)
{
    (void)state;
    char text[1024];
    struct pst_tpc_prices p;
    struct pst_diag diag = {0};
    (void)snprintf(text, sizeof text, good,
                   ", \"systems\": {\"x\": {\"gpu\": \"g\", \"gpus\": 2, \"ssd\": \"s\", \"ssds\": 3}}");
    assert_true(load_text(text, &p, &diag));
    double each = 0;
    assert_near(pst_tpc_system_cost(&p, &p.systems[0], &each), 1000 + 200 + 30);
    assert_int_equal(pst_tpc_gpu_named(&p, "a100"), -1); /* a file replaces the built-in values */
    assert_true(load_text(pst_tpc_prices_default(), &p, &diag));
    assert_int_equal(pst_tpc_ssd_named(&p, "980pro"), 1);
}

static void test_price_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *line, *told;
    } cases[] = {
        {"\"machine_usd\": 1000, ", "", "", "the key \"machine_usd\" is missing"},
        {"\"tflops\": 10, ", "", ":2: gpus.g: ", "the key \"tflops\" is missing"},
        {"\"usd\": 10,", "\"usd\": -10,", ":3: ssds.s.usd: ", "expected a number of at least 0, found -10"},
        {"\"iops\": 1000", "\"iops\": 0", ":3: ssds.s.iops: ", "expected a number above 0, found 0"},
        {"\"iops\": 1000", "\"iops\": NaN", ":3: ", "not JSON"},
        {"\"iops\": 1000", "\"iops\": 1e999", ":3: ", "not JSON"},
        {"\"usd\": 100", "\"usd\": \"cheap\"", ":2: gpus.g.usd: ", "expected a number, found a string"},
        {"\"usd\": 100", "\"usd\": true", ":2: gpus.g.usd: ", "expected a number, found true or false"},
        {"\"electricity_usd\"", "\"electricty_usd\"",
         ":1: electricty_usd: ", "did you mean \"electricity_usd\"?"},
        {"{\"s\": {", "{\"s\": 3, \"t\": {", ":3: ssds.s: ", "expected an object, found an integer"},
        {"{\"g\": {\"usd\": 100, \"tflops\": 10, \"pcie_bytes_per_s\": 1e9}}", "{}",
         ":2: gpus: ", "at least one GPU"},
        {"}}}\n", "}}, \"systems\": {\"x\": {\"gpu\": \"q\"}}}\n",
         ":3: systems.x.gpu: ", "\"q\" is not one of the names in \"gpus\""},
        {"}}}\n", "}}, \"systems\": {\"x\": {\"gpu\": \"g\", \"ssds\": 2}}}\n",
         ":3: systems.x: ", "the key \"ssd\" is missing"},
        {"}}}\n", "}}, \"systems\": {\"x\": {\"gpu\": \"g\", \"machines\": 0}}}\n",
         ":3: systems.x.machines: ", "expected an integer from 1 to 4096"},
        {"}}}\n", "}}, \"systems\": {\"x\": {\"gpu\": \"g\", \"gpus\": 1.5}}}\n",
         ":3: systems.x.gpus: ", "found a real number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[1024], text[2048];
        struct pst_tpc_prices p;
        struct pst_diag diag = {0};
        (void)snprintf(whole, sizeof whole, good, "");
        const char *at = strstr(whole, cases[i].from);
        assert_non_null(at);
        (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, cases[i].to,
                       at + strlen(cases[i].from));
        assert_false(load_text(text, &p, &diag));
        bool told = false;
        for (size_t k = 0; k < diag.count; k++)
            told = told || (strstr(diag.line[k], cases[i].line) && strstr(diag.line[k], cases[i].told));
        if (!told)
            fail_msg("case %zu: expected '%s ... %s', found '%s'", i, cases[i].line, cases[i].told,
                     diag.line[0]);
        pst_diag_release(&diag);
    }
    struct pst_tpc_prices p;
    struct pst_diag diag = {0};
    assert_false(pst_tpc_prices_load(&p, "/nonexistent/prices.json", &diag));
    assert_non_null(strstr(diag.line[0], "/nonexistent/prices.json"));
    pst_diag_release(&diag);
}

/* ---- predictions and the search ------------------------------------------------------------------ */

/* A P5510 brings 3.072e9 / 64 = 48e6 transactions a second. One needs 48 ms a batch. Training takes 10 ms, so
 * five are enough. */
static struct pst_tpc_profile profile_of(const struct pst_tpc_prices *p)
{
    return (struct pst_tpc_profile){
        .batch = {.samples = 8000, .n_ssd = 48e6 * 0.048, .n_mem = 0, .alpha_s = 0, .train_s = 0.01},
        .rates = {.th_ssd = NAN, .th_pcie = NAN, .ssds = 1},
        .access_bytes = 4096,
        .dilate = 1,
        .gpu = pst_tpc_gpu_named(p, "a100"),
        .ssd = pst_tpc_ssd_named(p, "p5510")};
}

static void test_predict(void **state)
{
    (void)state;
    const struct pst_tpc_prices p = builtin();
    struct pst_tpc_profile profile = profile_of(&p);
    struct pst_tpc_option o = pst_tpc_predict(&p, &profile, 0, 0, 2);
    assert_near(o.times.ssd_s, 0.024);
    assert_near(o.cost_usd, 14098 + 14177 + 2 * 308 + 17000);
    assert_near(o.samples_per_s, 8000 / 0.024);
    assert_near(o.tpc, 8000 / 0.024 / o.cost_usd);
    profile.dilate = 100;
    assert_near(pst_tpc_predict(&p, &profile, 0, 0, 2).times.ssd_s, 2.4);
    profile.access_bytes = 512; /* now the number of reads counts */
    assert_near(pst_tpc_predict(&p, &profile, 0, 0, 2).times.ssd_s, 2.4 * 8);
    profile.rates.th_ssd = 1e6; /* the profiled SSD's rate wins over the prices'; the other keeps theirs */
    assert_near(pst_tpc_predict(&p, &profile, 0, 0, 1).times.ssd_s, 48 * 0.048);
    assert_near(pst_tpc_predict(&p, &profile, 0, 1, 1).times.ssd_s, 4.8 * 8 * 750 / 700);
    profile.rates.th_pcie = 1e6;
    o = pst_tpc_predict(&p, &profile, 1, 0, 12);
    assert_near(o.times.pcie_s, 48 * 0.048 / 2); /* twice the rate in a slot of PCIe 5.0 */
    assert_near(o.times.train_s, 0.01 * 19.5 / 51);
}

static void test_best(void **state)
{
    (void)state;
    const struct pst_tpc_prices p = builtin();
    struct pst_tpc_profile profile = profile_of(&p);
    struct pst_tpc_limits limits = {.budget_usd = INFINITY, .slots = 12};
    struct pst_tpc_option best, only;
    char hint[PST_TPC_HINT_BYTES];
    assert_true(pst_tpc_best(&p, &profile, &limits, 0, 0, &best));
    assert_int_equal(best.ssds, 5);
    assert_int_equal(best.times.bound, PST_TPC_TRAIN);
    const struct pst_tpc_option now = pst_tpc_predict(&p, &profile, 0, 0, 1);
    (void)pst_tpc_hint(&p, &now, &best, hint);
    assert_non_null(strstr(hint, "Add 4 p5510: the TPC is then 4.67 times as high"));
    assert_non_null(strstr(hint, "for 46,815 instead of 45,583 dollars, and training bounds each batch."));
    limits.slots = 3;
    assert_true(pst_tpc_best(&p, &profile, &limits, 0, 0, &best));
    assert_int_equal(best.ssds, 3);
    limits.slots = 12;
    limits.budget_usd = 45900; /* 45,275 and two of 308, not three */
    assert_true(pst_tpc_best(&p, &profile, &limits, 0, 0, &best));
    assert_int_equal(best.ssds, 2);
    limits.budget_usd = 45000;
    assert_false(pst_tpc_best(&p, &profile, &limits, -1, -1, &best));
    assert_non_null(strstr(pst_tpc_hint(&p, &now, NULL, hint), "No such system is within the budget"));
    /* any parts: the best of each pair, found one by one */
    limits.budget_usd = INFINITY;
    assert_true(pst_tpc_best(&p, &profile, &limits, -1, -1, &best));
    for (int g = 0; g < 2; g++)
        for (int s = 0; s < 2; s++) {
            assert_true(pst_tpc_best(&p, &profile, &limits, g, s, &only));
            assert_true(only.tpc <= best.tpc);
        }
    profile.batch.train_s = profile.batch.n_ssd = NAN;
    assert_false(pst_tpc_best(&p, &profile, &limits, -1, -1, &best));
}

static void test_hints(void **state)
{
    (void)state;
    const struct pst_tpc_prices p = builtin();
    const struct pst_tpc_profile profile = profile_of(&p);
    char hint[PST_TPC_HINT_BYTES];
    static const struct {
        int gpu, ssd, ssds;
        const char *begin;
    } cases[] = {{0, 0, 3, "Keep this system: "},
                 {0, 0, 2, "Remove 1 p5510: "},
                 {0, 0, 7, "Add 4 p5510: "},
                 {0, 1, 3, "Replace the 3 p5510 by 3 980pro: "},
                 {1, 0, 3, "Replace the a100 by one h800: "},
                 {1, 0, 5, "Replace the a100 by one h800, and add 2 p5510: "},
                 {1, 0, 1, "Replace the a100 by one h800, and remove 2 p5510: "},
                 {1, 1, 6, "Replace the a100 by one h800, and the 3 p5510 by 6 980pro: "}};
    const struct pst_tpc_option now = pst_tpc_predict(&p, &profile, 0, 0, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct pst_tpc_option to =
            pst_tpc_predict(&p, &profile, cases[i].gpu, cases[i].ssd, cases[i].ssds);
        (void)pst_tpc_hint(&p, &now, &to, hint);
        if (strncmp(hint, cases[i].begin, strlen(cases[i].begin)) != 0)
            fail_msg("expected '%s...', found '%s'", cases[i].begin, hint);
    }
}

/* ---- several machines ---------------------------------------------------------------------------- */

static void test_scale(void **state)
{
    (void)state;
    struct pst_tpc_machine m = {.devices = 2,
                                .batch = {.samples = 100, .n_ssd = 1000, .alpha_s = 0.5, .train_s = 3},
                                .rates = {.th_ssd = 250, .ssds = 4},
                                .missed_rows = 50,
                                .row_bytes = 10,
                                .gradient_bytes = 400,
                                .nic_bytes_per_s = 1000,
                                .nic_latency_s = 0.1};
    struct pst_tpc_step s = pst_tpc_scale(&m, 1);
    assert_near(s.ssd_s, 2.5); /* 2 x 1000 over 4 x 250 a second, and the lookup */
    assert_true(s.network_s == 0);
    assert_near(s.step_s, 3);
    assert_int_equal(s.bound, PST_TPC_SCALE_COMPUTE);
    assert_near(s.efficiency, 1);
    s = pst_tpc_scale(&m, 4);
    assert_near(s.rows_s, 1.35);  /* of 2 x 50 rows, three quarters are those of others: 75 of 10 + 8 bytes */
    assert_near(s.gradient_s, 1); /* two messages of 0.4 s and 0.1 s of latency */
    assert_near(s.network_bytes, 1350 + 2 * 400);
    assert_near(s.step_s, 4); /* training, then the gradient */
    assert_int_equal(s.bound, PST_TPC_SCALE_COMPUTE);
    assert_near(s.samples_per_s, 4 * 2 * 100 / 4.0);
    m.batch.train_s = 2; /* the SSDs, then the rows */
    s = pst_tpc_scale(&m, 4);
    assert_near(s.step_s, 3.85);
    assert_int_equal(s.bound, PST_TPC_SCALE_SSD);
    m.nic_bytes_per_s = 100;
    s = pst_tpc_scale(&m, 1000); /* ten rounds, and rows */
    assert_near(s.gradient_s, 10 * 4.1);
    assert_near(s.step_s, 41 + 2 * 50 * .999 * 18 / 100);
    assert_int_equal(s.bound, PST_TPC_SCALE_NETWORK);
    m.batch.train_s = 3;
    s = pst_tpc_scale(&m, 1000);
    assert_near(s.efficiency, 3 / s.step_s);
    m.batch.n_ssd = NAN;
    m.batch.train_s = NAN;
    s = pst_tpc_scale(&m, 1);
    assert_true(isnan(s.ssd_s) && isnan(s.step_s));
    m.missed_rows = NAN;
    s = pst_tpc_scale(&m, 2);
    assert_true(isnan(s.network_s) && isnan(s.step_s));
    assert_int_equal(s.bound, PST_TPC_SCALE_UNKNOWN);
    assert_true(pst_tpc_scale_bound_name(s.bound) == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equation_4), cmocka_unit_test(test_unknown_values),
        cmocka_unit_test(test_table_1),    cmocka_unit_test(test_money),
        cmocka_unit_test(test_price_file), cmocka_unit_test(test_price_mistakes),
        cmocka_unit_test(test_predict),    cmocka_unit_test(test_best),
        cmocka_unit_test(test_hints),      cmocka_unit_test(test_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
