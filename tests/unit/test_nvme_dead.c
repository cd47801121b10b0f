/* A drive that dies for good, with requests in flight. */
#include "nvme_fixture.h"

#define RAM "\"namespaces\": [{\"kind\": \"ram\", \"bytes\": 4194304}]"

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dead_controller)};
    return cmocka_run_group_tests_name("dead", tests, NULL, NULL);
}
