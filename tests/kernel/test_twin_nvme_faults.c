/* Queues driven by kernels when controllers fail: errors are counted and named, what is lost is left to the
 * host in time, a controller that makes completions up is not believed, and the host mends all of it. */
#include <unistd.h>

#include "tests/kernel/twin_nvme.h"

enum { N = 100, IMPATIENT = 50 /* ms */, BATCHES = 2, SECOND = 1 };

static const struct pst_k_nvme_shape usual;

static void start_filled(struct rig *r, const char *faults)
{
    char json[512];
    (void)snprintf(json, sizeof json,
                   "{\"ssds\": 2, \"faults\": {%s}, \"namespaces\": [{\"kind\": \"ram\", \"bytes\": %d, "
                   "\"filled\": true}]}",
                   faults, (int)SSD_BYTES);
    rig_start(r, json, 2, 2, 64, N);
    for (uint32_t ssd = 0; ssd < 2; ssd++)
        for (uint64_t at = 0; at < SSD_BYTES; at += 8)
            *(uint64_t *)(void *)(r->shadow[ssd] + at) = pst_nvme_emulated_pattern(ssd, 1, at);
}

static uint64_t counted(const struct rig *r, size_t field)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->b.ssds; i++)
        sum += *(const uint64_t *)(const void *)((const char *)pst_nvme_emulated_stats(&r->b.t[i]) + field);
    return sum;
}
#define COUNTED(r, field) counted(r, offsetof(struct pst_nvme_emulated_stats, field))

/* Reads, as they have become: those that ended well are checked. */
static void run(struct rig *r, struct pst_nvme_io *ios)
{
    for (uint32_t i = 0; i < N; i++)
        ios[i] = random_io(r, i, false, 0);
    put_ios(r, SECOND, ios, N);
    assert_int_equal(cuda->nvme->submit(r->drive, SECOND, (struct pst_twin_n){NULL, N}, &usual), PST_OK);
    assert_int_equal(cuda->nvme->complete(r->drive, SECOND, &usual, r->records, 1), PST_OK);
    settled(PST_OK);
    get_ios(r, SECOND, ios, N);
    for (uint32_t i = 0; i < N; i++) {
        const uint64_t at = (uint64_t)(landing_of(r, &ios[i]) - (uint8_t *)r->b.memory.base);
        if (ios[i].status != PST_K_NVME_PENDING && PST_NVME_STATUS(ios[i].status) == PST_NVME_OK)
            check_io(r, &ios[i], (uint32_t)(at / PLACE));
    }
}

/* The host's stack reads what did not end well. */
static void mend(struct rig *r, struct pst_nvme_io *ios)
{
    make_stack(&r->b, PST_NVME_ASYNC, 1, IMPATIENT);
    for (uint32_t i = 0; i < N; i++) {
        if (ios[i].status != PST_K_NVME_PENDING && PST_NVME_STATUS(ios[i].status) == PST_NVME_OK)
            continue;
        const struct pst_nvme_request request = {.ssd = (uint16_t)ssd_of(r, &ios[i]),
                                                 .opcode = PST_NVME_READ,
                                                 .lba_shift = 9,
                                                 .nsid = 1,
                                                 .lba = ios[i].lba,
                                                 .bytes = ios[i].bytes,
                                                 .iova = ios[i].iova};
        struct pst_nvme_result result;
        const uint64_t at = (uint64_t)(landing_of(r, &ios[i]) - (uint8_t *)r->b.memory.base);
        NEED(pst_nvme_stack_add(r->b.stack, &request));
        for (uint32_t n = 0; n == 0;)
            NEED(pst_nvme_stack_poll(r->b.stack, &result, 1, &n));
        assert_int_equal(result.status, PST_NVME_OK);
        check_io(r, &ios[i], (uint32_t)(at / PLACE));
    }
    pst_nvme_stack_free(r->b.stack);
    r->b.stack = NULL;
}

static void test_errors(void **state)
{
    (void)state;
    struct rig r;
    struct pst_nvme_io ios[N];
    start_filled(&r, "\"error_rate\": 0.2, \"reorder_us\": 300");
    for (int way = 0; way < 3; way++) {
        rig_drive(&r, (enum pst_nvme_way)way, BATCHES, N, PATIENT);
        const uint64_t before = COUNTED(&r, errors);
        run(&r, ios);
        uint32_t failed = 0, first = N;
        for (uint32_t i = N; i-- > 0;) {
            if (PST_NVME_STATUS(ios[i].status) == PST_NVME_OK)
                continue;
            failed++;
            first = i;
        }
        assert_true(failed > 0 && failed == COUNTED(&r, errors) - before);
        assert_true(r.records->n == N && r.records->ended == N && r.records->late == 0);
        assert_true(r.records->failed == failed && r.records->first_failed == first);
        assert_int_equal(r.records->first_status, PST_NVME_STATUS(ios[first].status));
        assert_true(r.records->first_lba == ios[first].lba);
        rig_undrive(&r);
        mend(&r, ios);
    }
    rig_stop(&r);
}

/* Some are lost: what had to wait behind them is late too, and nothing waits for ever. The queues are not
 * used again until the host has reset their controllers. */
static void test_lost(void **state)
{
    (void)state;
    struct rig r;
    struct pst_nvme_io ios[N];
    start_filled(&r, "\"lost_rate\": 0.1, \"reorder_us\": 300");
    for (int way = 0; way < 3; way++) {
        rig_drive(&r, (enum pst_nvme_way)way, BATCHES, N, IMPATIENT);
        const uint64_t before = COUNTED(&r, lost);
        run(&r, ios);
        uint32_t pending = 0;
        for (uint32_t i = 0; i < N; i++)
            pending += ios[i].status == PST_K_NVME_PENDING;
        for (int i = 0; COUNTED(&r, lost) == before && i < PATIENT; i++)
            usleep(1000); /* on a busy machine the controllers may not have seen the commands yet */
        const uint64_t lost = COUNTED(&r, lost) - before;
        assert_true(lost > 0 && r.records->late >= lost && r.records->late == pending);
        assert_true(r.records->n == N && r.records->ended == N - pending && r.records->failed == 0);
        if (cuda->nvme->give_back(r.drive, why) != PST_OK)
            fail_msg("%s", why);
        assert_int_equal(cuda->nvme->take_over(r.drive, why), PST_E_STATE);
        assert_non_null(strstr(why, "in flight"));
        for (uint32_t i = 0; i < r.b.ssds; i++)
            NEED(pst_nvme_reset(&r.b.c[i]));
        mend(&r, ios); /* which loses some, too */
        if (cuda->nvme->take_over(r.drive, why) != PST_OK)
            fail_msg("%s", why);
        run(&r, ios); /* and the GPU goes on where the host left off */
        assert_true(r.records->n == N && r.records->ended + r.records->late == N);
        rig_undrive(&r);
        for (uint32_t i = 0; i < r.b.ssds; i++)
            NEED(pst_nvme_reset(&r.b.c[i]));
        mend(&r, ios);
    }
    rig_stop(&r);
}

/* Where the caller's grouping and its number of commands disagree, nothing is sent. */
static void test_wrong_groups(void **state)
{
    (void)state;
    struct rig r;
    struct pst_nvme_io ios[N];
    start_filled(&r, "\"seed\": 1");
    rig_drive(&r, PST_NVME_BATCH, BATCHES, N, PATIENT);
    for (uint32_t i = 0; i < N; i++)
        ios[i] = random_io(&r, i, false, 0);
    put_ios(&r, SECOND, ios, N);
    const uint64_t before = COUNTED(&r, fetched);
    assert_int_equal(cuda->nvme->submit(r.drive, SECOND, (struct pst_twin_n){NULL, N - 1}, &usual), PST_OK);
    assert_int_equal(cuda->nvme->complete(r.drive, SECOND, &usual, r.records, 1), PST_OK);
    settled(PST_E_ARG);
    assert_true(r.records->sequence == 1 && r.records->n == 0 && r.records->late == 0);
    assert_true(COUNTED(&r, fetched) == before);
    rig_undrive(&r);
    rig_stop(&r);
}

/* A controller that says nothing at all. */
static void test_silence(void **state)
{
    (void)state;
    struct rig r;
    struct pst_nvme_io ios[N];
    start_filled(&r, "\"lost_rate\": 1");
    for (int way = 0; way < 3; way++) {
        rig_drive(&r, (enum pst_nvme_way)way, BATCHES, N, 20);
        run(&r, ios);
        assert_true(r.records->late == N && r.records->ended == 0);
        const uint64_t before = COUNTED(&r, fetched);
        run(&r, ios); /* the queues are left alone: nothing more is sent */
        assert_true(r.records->late == N && r.records->ended == 0 && COUNTED(&r, fetched) == before);
        rig_undrive(&r);
        for (uint32_t i = 0; i < r.b.ssds; i++)
            NEED(pst_nvme_reset(&r.b.c[i]));
    }
    rig_stop(&r);
}

/* ---- queues that nobody serves: the test writes the completions -----------------------------------------
 */

enum { DEPTH = 8 };

struct alone {
    struct pst_nvme_qp qp;
    struct pst_nvme_dma memory;
    uint16_t ids[DEPTH];
    uint32_t live[DEPTH];
};

static void alone_new(struct alone *a, struct pst_k_nvme_drive **drive, enum pst_nvme_way way)
{
    memset(a, 0, sizeof *a);
    NEED(pst_nvme_dma_new(&a->memory, NULL, PST_PAGE));
    char *base = a->memory.base;
    a->qp = (struct pst_nvme_qp){.sq = (void *)base,
                                 .cq = (void *)(base + 1024),
                                 .sq_doorbell = (void *)(base + 2048),
                                 .cq_doorbell = (void *)(base + 2052),
                                 .ids = a->ids,
                                 .live = a->live,
                                 .depth = DEPTH,
                                 .qid = 1};
    pst_nvme_qp_reset(&a->qp);
    struct pst_nvme_qp *const pairs[] = {&a->qp};
    const struct pst_k_nvme_shared shared = {.at = base, .bytes = PST_PAGE};
    struct pst_k_nvme_drive_options options = {.queue = queue,
                                               .way = way,
                                               .pairs = pairs,
                                               .ssds = 1,
                                               .queues_each = 1,
                                               .page = PST_PAGE,
                                               .batches = 1,
                                               .most = DEPTH,
                                               .timeout_ms = 20,
                                               .shared = &shared};
    assert_int_equal(cuda->nvme->drive_new(&options, drive, why), PST_E_UNSUPPORTED); /* nothing is shared */
    assert_non_null(strstr(why, "a queue that is not in the memory shared with the GPU"));
    options.shareds = 1;
    if (cuda->nvme->drive_new(&options, drive, why) != PST_OK)
        fail_msg("%s", why);
}

/* Four reads meet the completions of these ids and statuses. */
static void forge(enum pst_nvme_way way, const uint16_t cids[], const uint16_t statuses[], uint32_t n,
                  struct pst_k_nvme_record *record, uint32_t *rang_cq)
{
    struct alone a;
    struct pst_k_nvme_drive *drive = NULL;
    alone_new(&a, &drive, way);
    for (uint32_t i = 0; i < n; i++)
        a.qp.cq[i] = (struct pst_nvme_cqe){.cid = cids[i], .status = (uint16_t)(statuses[i] << 1 | 1)};
    struct pst_nvme_io ios[4];
    uint32_t begin_at[2] = {0, 4};
    for (uint32_t i = 0; i < 4; i++)
        ios[i] = (struct pst_nvme_io){.lba = 1000 + i,
                                      .iova = 0x40000 + i * PST_PAGE,
                                      .bytes = 512,
                                      .nsid = 1,
                                      .opcode = PST_NVME_READ,
                                      .lba_shift = 9};
    struct pst_k_nvme_record *pinned = NULL;
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_PINNED, sizeof *pinned, (void **)&pinned, why), PST_OK);
    assert_int_equal(cuda->copy(queue, cuda->nvme->ios(drive, 0), ios, sizeof ios), PST_OK);
    assert_int_equal(cuda->copy(queue, cuda->nvme->begin(drive, 0), begin_at, sizeof begin_at), PST_OK);
    assert_int_equal(cuda->nvme->submit(drive, 0, (struct pst_twin_n){NULL, 4}, &usual), PST_OK);
    assert_int_equal(cuda->nvme->complete(drive, 0, &usual, pinned, 1), PST_OK);
    settled(PST_OK);
    *record = *pinned;
    *rang_cq = *a.qp.cq_doorbell;
    if (cuda->nvme->give_back(drive, why) != PST_OK)
        fail_msg("%s", why);
    for (uint32_t i = 0; i < 4; i++) {
        const struct pst_nvme_sqe *sqe = &a.qp.sq[i];
        assert_true(sqe->opcode == PST_NVME_READ && sqe->nsid == 1 && sqe->cid == i && sqe->cdw12 == 0);
        assert_true(sqe->cdw10 == 1000 + i && sqe->cdw11 == 0 && sqe->prp1 == 0x40000 + i * PST_PAGE &&
                    sqe->prp2 == 0);
    }
    for (uint32_t i = 0; i < n && record->strange == 0; i++) /* ids come back a generation later */
        assert_true(a.ids[i] == cids[i] + DEPTH && a.live[cids[i]] == PST_NVME_NOT_LIVE);
    assert_true(*a.qp.sq_doorbell == 4 && a.qp.posted == 4);
    cuda->nvme->drive_free(drive);
    cuda->release(PST_TWIN_MEMORY_PINNED, pinned);
    pst_nvme_dma_free(&a.memory);
}

static void test_forged(void **state)
{
    (void)state;
    const uint16_t good[4] = {0};
    for (int batch = 0; batch < 2; batch++) {
        const enum pst_nvme_way way = batch ? PST_NVME_BATCH : PST_NVME_ASYNC;
        struct pst_k_nvme_record r;
        uint32_t rang;
        forge(way, (const uint16_t[]){3, 1, 0, 2}, (const uint16_t[]){0, 0x281, 0, 0x80}, 4, &r, &rang);
        assert_true(r.ended == 4 && r.late == 0 && r.strange == 0 && r.failed == 2 && rang == 4);
        assert_true(r.first_failed == 1 && r.first_status == 0x281 && r.first_lba == 1001);
        forge(way, (const uint16_t[]){3, 1, 3, 2}, good, 4, &r, &rang); /* twice the same */
        assert_true(r.strange == 1 && r.ended == 3 && r.late == 1 && rang == 0);
        forge(way, (const uint16_t[]){0, 1, 2, 4}, good, 4, &r, &rang); /* one that was never sent */
        assert_true(r.strange == 1 && r.ended == 3 && r.late == 1 && rang == 0);
        forge(way, (const uint16_t[]){0, 1, 2, 3 + DEPTH}, good, 4, &r, &rang); /* of the next round */
        assert_true(r.strange == 1 && r.ended == 3 && r.late == 1 && rang == 0);
        forge(way, (const uint16_t[]){2, 0, 1}, good, 3, &r, &rang); /* one has not come */
        assert_true(r.strange == 0 && r.late == 1 && r.ended == 3 && rang == 3);
    }
}

static int setup(void **state)
{
    find_programs();
    return twin_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_lost),   cmocka_unit_test(test_silence),
        cmocka_unit_test(test_wrong_groups), cmocka_unit_test(test_forged),
    };
    return cmocka_run_group_tests(tests, setup, twin_teardown);
}
