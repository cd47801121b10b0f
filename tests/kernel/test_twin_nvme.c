/* NVMe queues driven by kernels (kernels/nvme.h) against the emulated controllers, which are another process:
 * every byte of every command, against what the CPU's stack reads; waves, wraps of queues and ids, and rows
 * that a kernel asks for. */
#include "tests/kernel/twin_nvme.h"

enum { LANES = 32 };

static uint32_t random_threads(uint32_t most)
{
    return LANES * (1 + (uint32_t)rnd(most / LANES));
}

static struct pst_k_nvme_shape random_shape(void)
{
    struct pst_k_nvme_shape shape = {.warps = (uint32_t)rnd(20)};
    if (rnd(2))
        shape.submit_threads = random_threads(256);
    shape.complete_blocks = (uint32_t)rnd(5);
    shape.complete_threads = random_threads(128);
    return shape;
}

/* A round: batches of writes, or of reads, submitted one after the other and then completed, in any order. */
static void round_of(struct rig *r, uint32_t batches, uint32_t most, bool write)
{
    struct pst_nvme_io *ios = calloc((size_t)batches * most + 1, sizeof *ios);
    uint32_t n[RECORDS] = {0}, unit = 0;
    const uint32_t units = r->b.ssds * (SSD_BYTES / LBA / UNIT), first = (uint32_t)rnd(batches);
    assert_non_null(ios);
    for (uint32_t b = 0; b < batches; b++) {
        const struct pst_k_nvme_shape shape = random_shape();
        n[b] = (uint32_t)size_below(most);
        n[b] = write && n[b] > units / batches ? units / batches : n[b];
        for (uint32_t i = 0; i < n[b]; i++)
            ios[b * most + i] = random_io(r, b * most + i, write, unit++);
        put_ios(r, b, ios + (size_t)b * most, n[b]);
        assert_int_equal(cuda->nvme->submit(r->drive, b, (struct pst_twin_n){NULL, n[b]}, &shape), PST_OK);
    }
    for (uint32_t i = 0; i < batches; i++) {
        const struct pst_k_nvme_shape shape = random_shape();
        const uint32_t b = (first + i) % batches;
        assert_int_equal(cuda->nvme->complete(r->drive, b, &shape, &r->records[b], 7 + i), PST_OK);
    }
    settled(PST_OK);
    for (uint32_t i = 0; i < batches; i++) {
        const uint32_t b = (first + i) % batches;
        const struct pst_k_nvme_record *record = &r->records[b];
        assert_true(record->sequence == 7 + i && record->n == n[b] && record->ended == n[b]);
        assert_true(record->failed == 0 && record->late == 0 && record->strange == 0);
        for (uint32_t k = 0; k < n[b]; k++) /* places are as given; the commands may be in another order */
            check_io(r, &ios[b * most + k],
                     (uint32_t)((landing_of(r, &ios[b * most + k]) - (uint8_t *)r->b.memory.base) / PLACE));
    }
    free(ios);
}

static void test_ways(void **state)
{
    (void)state;
    static const char json[] = "{\"ssds\": 3, \"check_ids\": true, \"queues\": 4, \"transfer_bytes\": 16384, "
                               "\"namespaces\": [{\"kind\": \"ram\", \"bytes\": 1048576}]}";
    enum { MOST = 300 };
    struct rig r;
    for (int group = 0, groups = (shapes() + 19) / 20; group < groups; group++) {
        const uint32_t depth = 2u << rnd(8);
        rig_start(&r, json, 1 + (uint32_t)rnd(3), 1 + (uint32_t)rnd(3), depth, 3 * MOST);
        for (int i = 0; i < 20 && group * 20 + i < shapes(); i++) {
            const enum pst_nvme_way way = (enum pst_nvme_way)rnd(3);
            const uint32_t batches = 1 + (uint32_t)rnd(3);
            const uint32_t most = depth < 8 ? 40 : MOST; /* a wave holds one to three */
            rig_drive(&r, way, batches, most, PATIENT);
            round_of(&r, batches, most, true);
            round_of(&r, batches, most, false);
            round_of(&r, batches, most, false);
            rig_undrive(&r);
        }
        check_by_host(&r);
        rig_stop(&r);
    }
}

/* One queue of 32 entries, and more commands than ids have numbers. */
static void test_ids_wrap(void **state)
{
    (void)state;
    enum { MOST = 4000, ROUNDS = 17 };
    struct rig r;
    rig_start(
        &r,
        "{\"check_ids\": true, \"namespaces\": [{\"kind\": \"ram\", \"bytes\": 1048576, \"filled\": true}]}",
        1, 1, 32, 64);
    for (uint64_t at = 0; at < SSD_BYTES; at += 8)
        *(uint64_t *)(void *)(r.shadow[0] + at) = pst_nvme_emulated_pattern(0, 1, at);
    const enum pst_nvme_way ways[] = {PST_NVME_ASYNC, PST_NVME_BATCH, PST_NVME_SYNC};
    struct pst_nvme_io *ios = calloc(MOST, sizeof *ios);
    const int rounds[] = {shapes() > 1 ? ROUNDS : 1, 2, 1};
    for (int way = 0; way < 3; way++) {
        rig_drive(&r, ways[way], 1, MOST, PATIENT);
        for (uint32_t i = 0; i < MOST; i++)
            ios[i] = random_io(&r, i % 64, false, 0);
        for (uint32_t i = 0; i + 64 < MOST; i++)
            ios[i] = ios[MOST - 64 + i % 64]; /* so that the last to be read into a place is known */
        put_ios(&r, 0, ios, MOST);
        for (int i = 0; i < rounds[way]; i++) {
            const struct pst_k_nvme_shape shape = {.submit_threads = 64, .complete_threads = 32, .warps = 16};
            assert_int_equal(cuda->nvme->submit(r.drive, 0, (struct pst_twin_n){NULL, MOST}, &shape), PST_OK);
            assert_int_equal(cuda->nvme->complete(r.drive, 0, &shape, r.records, 1), PST_OK);
            settled(PST_OK);
            assert_true(r.records->ended == MOST && r.records->failed == 0 && r.records->strange == 0);
        }
        for (uint32_t i = MOST - 64; i < MOST; i++)
            check_io(&r, &ios[i], i % 64);
        rig_undrive(&r);
    }
    assert_true(r.b.c[0].io[1]->posted == (uint64_t)MOST * (uint64_t)(rounds[0] + rounds[1] + rounds[2]));
    free(ios);
    rig_stop(&r);
}

/* From what lookup leaves to rows in their places, in one go: how many there are is never told to the host.
 */
static void test_rows(void **state)
{
    (void)state;
    enum { SSDS = 3, MOST = 300, STRIDE = 1024, ROWS = 100000, FIRST = 8 };
    struct rig r;
    rig_start(&r, "{\"ssds\": 3, \"namespaces\": [{\"kind\": \"function\", \"blocks\": 35184372088832}]}",
              SSDS, 2, 64, MOST * STRIDE / PLACE + 1);
    struct both ids = both_new(MOST * sizeof(int64_t)), picks = both_new(MOST * sizeof(int32_t));
    struct both numbers = both_new(sizeof(int64_t));
    const struct pst_k_nvme_shape usual = {0};
    int64_t *id = ids.host, *n = numbers.host;
    int32_t *pick = picks.host;
    for (int way = 0; way < 2; way++) {
        rig_drive(&r, way == 0 ? PST_NVME_ASYNC : PST_NVME_SYNC, 1, MOST, PATIENT);
        for (int shape = 0, count = shapes() / 5 + 1; shape < count; shape++) {
            *n = 0;
            for (int32_t i = 0; i < MOST; i++) {
                id[i] = (int64_t)rnd((uint64_t)1 << 44) * (int64_t)rnd(2) + (int64_t)rnd(ROWS);
                if (rnd(3) == 0)
                    pick[(*n)++] = i;
            }
            send(&ids);
            send(&picks);
            send(&numbers);
            struct pst_k_nvme_rows rows = {.ids = ids.device,
                                           .pick = picks.device,
                                           .n = {numbers.device, MOST},
                                           .nsid = 1,
                                           .row_bytes = LBA * 2,
                                           .lba_shift = 9,
                                           .lba = FIRST,
                                           .stride = STRIDE};
            memcpy(rows.iova, r.b.iova, sizeof r.b.iova);
            memset(r.b.memory.base, CANARY, r.b.memory.bytes);
            assert_int_equal(cuda->nvme->aim(r.drive, 0, &rows), PST_OK);
            assert_int_equal(cuda->nvme->submit(r.drive, 0, rows.n, &usual), PST_OK);
            assert_int_equal(cuda->nvme->complete(r.drive, 0, &usual, r.records, 3), PST_OK);
            settled(PST_OK);
            assert_true(r.records->n == *n && r.records->ended == *n && r.records->failed == 0);
            for (int32_t i = 0, k = 0; i < MOST; i++) {
                const uint8_t *row = (uint8_t *)r.b.memory.base + (size_t)i * STRIDE;
                if (k == *n || pick[k] != i) {
                    assert_true(untouched(row, STRIDE));
                    continue;
                }
                k++;
                const uint64_t from = (FIRST + (uint64_t)(id[i] / SSDS) * 2) * LBA;
                for (uint64_t at = 0; at < 2 * LBA; at += 8)
                    assert_true(*(const uint64_t *)(const void *)(row + at) ==
                                pst_nvme_emulated_pattern((uint32_t)(id[i] % SSDS), 1, from + at));
            }
        }
        id[0] = -1; /* is nobody's row: nothing is read, and the queue tells */
        pick[0] = 0;
        *n = 1;
        send(&ids);
        send(&picks);
        send(&numbers);
        const struct pst_k_nvme_rows none = {.ids = ids.device,
                                             .pick = picks.device,
                                             .n = {numbers.device, MOST},
                                             .nsid = 1,
                                             .row_bytes = LBA,
                                             .lba_shift = 9};
        assert_int_equal(cuda->nvme->aim(r.drive, 0, &none), PST_OK);
        assert_int_equal(cuda->nvme->submit(r.drive, 0, none.n, &usual), PST_OK);
        assert_int_equal(cuda->nvme->complete(r.drive, 0, &usual, r.records, 4), PST_OK);
        settled(PST_E_FORMAT);
        assert_true(r.records->n == 0 && r.records->sequence == 4);
        rig_undrive(&r);
    }
    both_free(&ids);
    both_free(&picks);
    both_free(&numbers);
    rig_stop(&r);
}

/* One doorbell a queue for each way's submission, as the papers have it, and for batch's completion; one a
 * command for sync. */
static void test_doorbells(void **state)
{
    (void)state;
    enum { N = 40 };
    struct rig r;
    rig_start(&r, "{\"ssds\": 2, \"namespaces\": [{\"kind\": \"ram\", \"bytes\": 1048576}]}", 2, 2, 64, 128);
    const struct pst_k_nvme_shape usual = {0};
    struct pst_nvme_io ios[N];
    for (int way = 0; way < 3; way++) {
        rig_drive(&r, (enum pst_nvme_way)way, 1, N, PATIENT);
        for (uint32_t i = 0; i < N; i++) {
            ios[i] = random_io(&r, i, false, 0);
            ios[i].queue = (uint16_t)(ios[i].queue / 2 * 2 + i % 2);
        }
        put_ios(&r, 0, ios, N);
        uint64_t before[4], cq_before[4], rings = 0, cq_rings = 0, queues = 0;
        for (uint32_t q = 0; q < 4; q++) {
            before[q] = r.b.c[q / 2].io[1 + q % 2]->sq_rings;
            cq_before[q] = r.b.c[q / 2].io[1 + q % 2]->cq_rings;
        }
        assert_int_equal(cuda->nvme->submit(r.drive, 0, (struct pst_twin_n){NULL, N}, &usual), PST_OK);
        assert_int_equal(cuda->nvme->complete(r.drive, 0, &usual, r.records, 1), PST_OK);
        settled(PST_OK);
        assert_int_equal(r.records->ended, N);
        rig_undrive(&r);
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t rang = r.b.c[q / 2].io[1 + q % 2]->sq_rings - before[q];
            rings += rang;
            cq_rings += r.b.c[q / 2].io[1 + q % 2]->cq_rings - cq_before[q];
            queues += rang > 0;
        }
        assert_int_equal(rings, way == PST_NVME_SYNC ? N : queues);
        assert_true(queues > 0 && cq_rings >= queues && cq_rings <= N);
        assert_true(way != PST_NVME_BATCH || cq_rings == queues);
        assert_true(way != PST_NVME_SYNC || cq_rings == N);
    }
    rig_stop(&r);
}

static int setup(void **state)
{
    find_programs();
    return twin_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_ids_wrap),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_doorbells),
    };
    return cmocka_run_group_tests(tests, setup, twin_teardown);
}
