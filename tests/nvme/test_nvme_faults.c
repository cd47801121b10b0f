/* Faults, which the emulated controller has on request: one at a time, all at once, and a drive that dies for
 * good. */
#include "tests/nvme/nvme_fixture.h"

#define RAM "\"namespaces\": [{\"kind\": \"ram\", \"bytes\": 4194304}]"
#define BLOCKS 8192      /* of 512 bytes in 4 MiB */
#define FAULTS_LATE_S 60 /* after its time, for a machine that is busy with something else */

typedef bool (*seen_fn)(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s);

static struct pst_nvme_emulated_stats faults_of(const struct bench *b)
{
    struct pst_nvme_emulated_stats sum = {0};
    for (uint32_t i = 0; i < b->ssds; i++) {
        const struct pst_nvme_emulated_stats *e = pst_nvme_emulated_stats(&b->t[i]);
        assert_int_equal(e->dma_refused, 0);
        sum.errors += e->errors;
        sum.delayed += e->delayed;
        sum.reordered += e->reordered;
        sum.lost += e->lost;
        sum.torn += e->torn;
        sum.fatal += e->fatal;
    }
    return sum;
}

/* For so many seconds, and on a slow machine until each kind of fault has been seen. */
static void faulty(const char *faults, double for_s, seen_fn seen)
{
    char json[512];
    struct bench b;
    struct exercise x = {.seed = 77, .blocks = BLOCKS};
    const double deadline = seconds() + for_s + FAULTS_LATE_S;
    (void)snprintf(json, sizeof json, "{\"ssds\": 2, \"workers\": 2, \"faults\": {%s}, " RAM "}", faults);
    connect_all(&b, json, 2);
    bring_up(&b, 2, 2, 32, (uint64_t)SLOTS * SLOT_BYTES);
    make_stack(&b, PST_NVME_ASYNC, 1, 20);
    for (;;) {
        exercise(&x, &b, UINT64_MAX, for_s, UINT64_MAX);
        const struct pst_nvme_emulated_stats e = faults_of(&b);
        if (seen(&e, pst_nvme_stack_stats(b.stack)))
            break;
        assert_true(seconds() < deadline);
    }
    const struct pst_nvme_stack_stats *s = pst_nvme_stack_stats(b.stack);
    assert_true(x.reads > 0 && x.writes > 0);
    assert_int_equal(s->strange, 0);
    print_message("# %llu commands, %llu retries, %llu timeouts, %llu aborts, %llu resets\n",
                  (unsigned long long)s->commands, (unsigned long long)s->retries,
                  (unsigned long long)s->timeouts, (unsigned long long)s->aborts,
                  (unsigned long long)s->resets);
    exercise_free(&x);
    tear_down(&b);
}

static bool saw_errors(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    return e->errors > 0 && s->retries > 0;
}

static void test_errors(void **state)
{
    (void)state;
    faulty("\"error_rate\": 0.1", 0.4, saw_errors);
}

static bool saw_reordered(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    (void)s;
    return e->reordered > 0;
}

static void test_reordered(void **state)
{
    (void)state;
    faulty("\"reorder_us\": 300", 0.4, saw_reordered);
}

static bool saw_delayed_and_aborted(const struct pst_nvme_emulated_stats *e,
                                    const struct pst_nvme_stack_stats *s)
{
    return e->delayed > 0 && s->timeouts > 0 && s->aborts > 0;
}

static void test_delayed_and_aborted(void **state)
{
    (void)state;
    faulty("\"delay_rate\": 0.02, \"delay_us\": 200000", 0.6, saw_delayed_and_aborted);
}

static bool saw_lost(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    return e->lost > 0 && s->resets > 0;
}

static void test_lost(void **state)
{
    (void)state;
    faulty("\"lost_rate\": 0.005", 0.8, saw_lost);
}

static bool saw_torn_writes(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    return e->torn > 0 && s->retries > 0;
}

static void test_torn_writes(void **state)
{
    (void)state;
    faulty("\"torn_rate\": 0.2", 0.4, saw_torn_writes);
}

static bool saw_fatal(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    return e->fatal > 0 && s->resets > 0;
}

static void test_fatal(void **state)
{
    (void)state;
    faulty("\"fatal_rate\": 0.001", 0.8, saw_fatal);
}

static bool saw_all_faults(const struct pst_nvme_emulated_stats *e, const struct pst_nvme_stack_stats *s)
{
    return e->errors > 0 && e->lost + e->fatal > 0 && e->torn > 0 && s->resets > 0;
}

static void test_all_faults(void **state)
{
    (void)state;
    const char *s = getenv("PENSTOCK_NVME_SECONDS"); /* `make accept` sets 300 */
    faulty("\"error_rate\": 0.02, \"reorder_us\": 100, \"delay_rate\": 0.001, "
           "\"delay_us\": 100000, \"lost_rate\": 0.0005, \"torn_rate\": 0.02, "
           "\"fatal_rate\": 0.0002",
           s != NULL ? strtod(s, NULL) : 3, saw_all_faults);
}

/* A controller that cannot be reset any more: all that is held ends, once, whichever SSD it was for. */
static void test_dead_controller(void **state)
{
    (void)state;
    struct bench b;
    struct pst_nvme_ticket ticket = {0};
    uint32_t ends[SLOTS] = {0}, failed = 0, n = 0;
    connect_all(&b, "{\"ssds\": 2, \"latency_us\": 20000, \"faults\": {\"dead_after\": 20}, " RAM "}", 2);
    bring_up(&b, 2, 1, 32, (uint64_t)SLOTS * SLOT_BYTES);
    make_stack(&b, PST_NVME_ASYNC, 1, 5000);
    struct pst_nvme_request r = {
        .opcode = PST_NVME_READ, .nsid = 1, .lba_shift = 9, .bytes = 512, .ticket = &ticket};
    for (uint32_t i = 0; i < SLOTS; i++) { /* more than a queue takes: some wait; a few go to the other SSD */
        r.ssd = i % 8 == 7;
        r.lba = i;
        r.iova = b.iova[r.ssd] + i * 512ull;
        r.user = &ends[i];
        NEED(pst_nvme_stack_add(b.stack, &r));
    }
    struct pst_nvme_result results[SLOTS];
    for (const double deadline = seconds() + 30; pst_nvme_stack_in_flight(b.stack) > 0;) {
        const pst_rc rc = pst_nvme_stack_poll(b.stack, results, 7, &n);
        for (uint32_t i = 0; i < n; i++) {
            ++*(uint32_t *)results[i].user;
            failed += results[i].status != PST_NVME_OK;
            assert_true(results[i].status == PST_NVME_OK || rc == PST_E_IO);
            assert_true(results[i].status == PST_NVME_OK ||
                        (results[i].status == PST_NVME_INTERNAL &&
                         results[i].lba == (uint64_t)((uint32_t *)results[i].user - ends)));
        }
        assert_true(seconds() < deadline);
    }
    assert_true(failed > 0 && ticket.failed == failed && ticket.pending == 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(ends[i], 1);
    (void)usleep(50000); /* the other SSD's reads are done by now */
    assert_int_equal(pst_nvme_stack_poll(b.stack, results, SLOTS, &n), PST_E_IO);
    assert_int_equal(n, 0);
    assert_non_null(strstr(pst_error_text(), "emulated SSD 0 cannot be reset"));
    assert_int_equal(pst_nvme_stack_add(b.stack, &r), PST_E_IO);
    tear_down(&b);
}

int main(void)
{
    find_programs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reordered),
        cmocka_unit_test(test_delayed_and_aborted),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_torn_writes),
        cmocka_unit_test(test_fatal),
        cmocka_unit_test(test_all_faults),
        cmocka_unit_test(test_dead_controller),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
