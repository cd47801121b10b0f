/* The NVMe driver against a controller: by default the emulated one; `test_nvme vfio PCI` runs what any
 * controller must do against a drive that is bound to vfio-pci (its namespace 1 is overwritten). Every byte
 * is checked. */
#include <signal.h>
#include <sys/wait.h>

#include "common/nvme/driver/vfio.h"
#include "tests/nvme/nvme_fixture.h"

#define RAM "\"namespaces\": [{\"kind\": \"ram\", \"bytes\": 4194304}]"
#define BLOCKS 8192 /* of 512 bytes in 4 MiB */

static const char *vfio_address; /* NULL: emulated */

static void start(struct bench *b, const char *json, uint32_t ssds, uint32_t queues, uint32_t depth)
{
    if (vfio_address == NULL) {
        connect_all(b, json, ssds);
        bring_up(b, ssds, queues, depth, (uint64_t)SLOTS * SLOT_BYTES);
        return;
    }
    memset(b, 0, sizeof *b);
    NEED(pst_nvme_vfio_connect(&b->t[0], vfio_address));
    bring_up(b, 1, queues, depth, (uint64_t)SLOTS * SLOT_BYTES);
}

/* One request, whose status it returns. */
static struct pst_nvme_result one(struct bench *b, uint8_t opcode, uint64_t lba, uint64_t bytes, uint64_t at)
{
    const struct pst_nvme_request r = {.opcode = opcode,
                                       .nsid = b->ns.nsid,
                                       .lba_shift = b->ns.lba_bytes == 512 ? 9 : 12,
                                       .lba = lba,
                                       .bytes = bytes,
                                       .iova = b->iova[0] + at};
    struct pst_nvme_result result;
    uint32_t n = 0;
    NEED(pst_nvme_stack_add(b->stack, &r));
    for (const double deadline = seconds() + 30; n == 0;) {
        NEED(pst_nvme_stack_poll(b->stack, &result, 1, &n));
        assert_true(seconds() < deadline);
    }
    return result;
}

/* What the namespace holds, to begin with. */
static void learn(struct exercise *x, struct bench *b)
{
    const uint64_t step = REQUEST_MAX / b->ns.lba_bytes;
    for (uint32_t ssd = 0; ssd < b->ssds && vfio_address != NULL; ssd++) {
        x->shadow[ssd] = calloc(x->blocks, b->ns.lba_bytes);
        for (uint64_t at = 0; at < x->blocks; at += step) {
            const uint64_t n = x->blocks - at < step ? x->blocks - at : step;
            assert_int_equal(one(b, PST_NVME_READ, at, n * b->ns.lba_bytes, 0).status, PST_NVME_OK);
            memcpy(x->shadow[ssd] + at * b->ns.lba_bytes, b->memory.base, n * b->ns.lba_bytes);
        }
    }
}

static void drive(const char *json, enum pst_nvme_way way, uint32_t lanes, uint32_t ssds, uint32_t queues,
                  uint32_t depth, uint64_t n, uint64_t most)
{
    struct bench b;
    struct exercise x = {.seed = 88172645463325252u + depth, .blocks = BLOCKS};
    start(&b, json, ssds, queues, depth);
    make_stack(&b, way, lanes, 5000);
    x.blocks = b.ns.lba_bytes == 512 ? BLOCKS : BLOCKS / 8;
    learn(&x, &b);
    exercise(&x, &b, n, 240, most); /* a sanitizer on a busy machine is slow */
    assert_true(x.reads + x.writes == n && x.reads > 0 && x.writes > 0);
    const struct pst_nvme_stack_stats *stats = pst_nvme_stack_stats(b.stack);
    assert_int_equal(stats->strange, 0);
    assert_int_equal(stats->resets, 0);
    exercise_free(&x);
    tear_down(&b);
}

/* ---- what any controller must do ------------------------------------------------------------------ */

static void test_async(void **state)
{
    (void)state;
    drive("{\"ssds\": 3, \"workers\": 2, " RAM "}", PST_NVME_ASYNC, 1, 3, 2, 64, 4000, UINT64_MAX);
}

static void test_async_by_several_lanes(void **state)
{
    (void)state;
    drive("{\"ssds\": 2, " RAM "}", PST_NVME_ASYNC, 3, 2, 1, 256, 1500, UINT64_MAX);
}

static void test_sync(void **state)
{
    (void)state;
    drive("{\"ssds\": 2, " RAM "}", PST_NVME_SYNC, 16, 2, 2, 64, 2000, UINT64_MAX);
}

static void test_batch(void **state)
{
    (void)state;
    drive("{\"ssds\": 2, " RAM "}", PST_NVME_BATCH, 1, 2, 1, 64, 2000, UINT64_MAX);
}

/* Two and four entries wrap all the time. */
static void test_shallow_queues(void **state)
{
    (void)state;
    drive("{" RAM "}", PST_NVME_ASYNC, 1, 1, 1, 2, 600, 64);
    drive("{" RAM ", \"check_ids\": true}", PST_NVME_BATCH, 1, 1, 2, 4, 1500, 64);
}

/* Ids have 16 bits: 70,000 commands of one queue go round. */
static void test_ids_wrap(void **state)
{
    (void)state;
    drive("{" RAM ", \"check_ids\": true}", PST_NVME_ASYNC, 1, 1, 1, 32, 70000, 1);
}

static void test_strange_controllers(void **state)
{
    (void)state;
    if (vfio_address != NULL)
        skip();
    drive("{" RAM ", \"dstrd\": 3, \"entries_max\": 100, \"lba_bytes\": 4096}", PST_NVME_ASYNC, 1, 1, 2, 4096,
          1000, UINT64_MAX);
    drive("{" RAM ", \"transfer_bytes\": 8192, \"queues\": 1}", PST_NVME_ASYNC, 1, 1, 8, 64, 500, UINT64_MAX);
    drive("{" RAM ", \"transfer_bytes\": 0}", PST_NVME_BATCH, 1, 1, 1, 1024, 500, UINT64_MAX);
}

static void test_identify(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{\"queues\": 5, \"transfer_bytes\": 65536, " RAM "}", 1, 9, 1000);
    assert_true(b.c[0].io[1] != NULL && b.c[0].io[1]->depth <= 1000 && b.ns.blocks > 0);
    if (vfio_address == NULL) {
        assert_string_equal(b.c[0].model, "Penstock emulated SSD");
        assert_string_equal(b.c[0].serial, "PENSTOCK0");
        assert_int_equal(b.c[0].queues, 5);
        assert_int_equal(b.c[0].transfer_bytes, 65536);
        assert_int_equal(b.c[0].io[5]->depth, 512);
        assert_int_equal(b.ns.blocks, BLOCKS);
    }
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    tear_down(&b);
}

static void test_lba_out_of_range(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{\"transfer_bytes\": 8192, " RAM "}", 1, 1, 16);
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    const uint64_t lba = b.ns.lba_bytes, page = 8192;
    struct pst_nvme_result r = one(&b, PST_NVME_READ, b.ns.blocks, lba, 0);
    assert_int_equal(r.status, PST_NVME_LBA_RANGE);
    assert_true(r.lba == b.ns.blocks);
    r = one(&b, PST_NVME_WRITE, UINT64_MAX - 1, lba, 0);
    assert_int_equal(r.status, PST_NVME_LBA_RANGE);
    /* a request of several commands names the one that failed */
    r = one(&b, PST_NVME_READ, b.ns.blocks - page / lba, 4 * page, 0);
    assert_int_equal(r.status, PST_NVME_LBA_RANGE);
    if (vfio_address == NULL)
        assert_true(r.lba == b.ns.blocks);
    assert_int_equal(one(&b, PST_NVME_READ, b.ns.blocks - 1, lba, 0).status, PST_NVME_OK);
    tear_down(&b);
}

static void test_bad_requests(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{" RAM "}", 1, 1, 16);
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    struct pst_nvme_request r = {.opcode = PST_NVME_READ, .nsid = 1, .lba_shift = 9, .bytes = 100};
    assert_int_equal(pst_nvme_stack_add(b.stack, &r), PST_E_ARG);
    r.bytes = 512;
    r.iova = 2;
    assert_int_equal(pst_nvme_stack_add(b.stack, &r), PST_E_ARG);
    r.iova = b.iova[0];
    r.ssd = 1;
    assert_int_equal(pst_nvme_stack_add(b.stack, &r), PST_E_ARG);
    r.ssd = 0;
    r.nsid = b.c[0].namespaces + 1; /* one that can never be: an inactive one is another error */
    uint32_t n = 0;
    struct pst_nvme_result result;
    NEED(pst_nvme_stack_add(b.stack, &r));
    while (n == 0)
        NEED(pst_nvme_stack_poll(b.stack, &result, 1, &n));
    assert_int_equal(result.status, PST_NVME_BAD_NAMESPACE);
    tear_down(&b);
}

/* A controller that is reset while all of its queues are full goes on with the same requests. */
static void test_reset_in_flight(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{\"latency_us\": 3000, " RAM "}", 1, 2, 32);
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    for (uint32_t i = 0; i < 50; i++) {
        const struct pst_nvme_request r = {.opcode = PST_NVME_READ,
                                           .nsid = 1,
                                           .lba_shift = b.ns.lba_bytes == 512 ? 9 : 12,
                                           .lba = i,
                                           .bytes = b.ns.lba_bytes,
                                           .iova = b.iova[0] + (uint64_t)i * SLOT_BYTES};
        NEED(pst_nvme_stack_add(b.stack, &r));
    }
    pst_nvme_stack_submit(b.stack);
    /* QEMU 7.2 crashes if it is reset between a doorbell and its fetching of what that announced */
    struct pst_nvme_cqe cqe;
    for (uint16_t qid = 1; vfio_address != NULL && qid <= 2; qid++) {
        const struct pst_nvme_qp *qp = b.c[0].io[qid];
        for (const double deadline = seconds() + 30; !pst_nvme_poll(qp, qp->taken, &cqe);)
            assert_true(seconds() < deadline);
    }
    pst_nvme_stack_free(b.stack); /* resets what is in flight */
    make_stack(&b, PST_NVME_BATCH, 1, 1000);
    assert_true(b.c[0].resets > 0);
    memset(b.memory.base, CANARY, PST_PAGE);
    (void)usleep(10000); /* three latencies: what the reset did not end would be here */
    assert_int_equal(*(uint8_t *)b.memory.base, CANARY);
    assert_int_equal(one(&b, PST_NVME_READ, 0, b.ns.lba_bytes, 0).status, PST_NVME_OK);
    assert_true(*(uint8_t *)b.memory.base != CANARY || vfio_address != NULL);
    tear_down(&b);
}

/* ---- what only the emulated controller can do ------------------------------------------------------- */

/* A read that can never succeed ends, and says where. */
static void test_gives_up(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{\"faults\": {\"error_rate\": 1}, " RAM "}", 1, 1, 8);
    const struct pst_nvme_stack_config config = {.way = PST_NVME_ASYNC,
                                                 .controllers = b.list,
                                                 .ssds = 1,
                                                 .lanes = 1,
                                                 .requests_max = 4,
                                                 .retries = 3,
                                                 .timeout_ms = 1000};
    NEED(pst_nvme_stack_new(&b.stack, &config));
    const struct pst_nvme_result r = one(&b, PST_NVME_READ, 7, 512, 0);
    assert_int_equal(r.status, PST_NVME_READ_ERROR);
    assert_true(r.lba == 7 && pst_nvme_stack_stats(b.stack)->retries == 3);
    tear_down(&b);
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static void test_unmapped_memory_is_refused(void **state)
{
    (void)state;
    struct bench b;
    start(&b, "{\"latency_us\": 20000, " RAM "}", 1, 1, 64);
    make_stack(&b, PST_NVME_ASYNC, 1, 5000);
    struct pst_nvme_dma other;
    NEED(pst_nvme_dma_new(&other, &b.t[0], 64 * PST_PAGE));
    memset(other.base, CANARY, other.bytes);
    for (uint32_t i = 0; i < 32; i++) {
        const struct pst_nvme_request r = {.opcode = PST_NVME_READ,
                                           .nsid = 1,
                                           .lba_shift = 9,
                                           .bytes = PST_PAGE,
                                           .iova = other.iova + (uint64_t)i * PST_PAGE};
        NEED(pst_nvme_stack_add(b.stack, &r));
    }
    pst_nvme_stack_submit(b.stack);
    (void)usleep(5000); /* fetched, and not due yet */
    NEED(b.t[0].ops->dma_unmap(&b.t[0], other.iova));
    other.t = NULL;
    (void)usleep(60000);
    assert_true(pst_nvme_emulated_stats(&b.t[0])->dma_refused >= 32);
    assert_true(untouched(other.base, other.bytes));
    tear_down(&b);
    pst_nvme_dma_free(&other);
}

/* The victim: thousands of reads in flight into memory that its parent shares, then nothing. */
static void flood(const struct pst_nvme_emulated *e, const struct pst_nvme_dma *memory, int tell)
{
    struct bench b = {.emu = *e, .memory = *memory, .ssds = 1};
    const struct pst_nvme_config config = {.queues = 4, .depth = 1024};
    if (pst_nvme_emulated_connect(&b.t[0], e, 0) != PST_OK ||
        pst_nvme_open(&b.c[0], &b.t[0], &config) != PST_OK ||
        b.t[0].ops->dma_map(&b.t[0], memory->base, memory->bytes, &b.iova[0]) != PST_OK)
        _exit(1);
    b.list[0] = &b.c[0];
    const struct pst_nvme_stack_config stack = {.way = PST_NVME_ASYNC,
                                                .controllers = b.list,
                                                .ssds = 1,
                                                .lanes = 1,
                                                .requests_max = 4000,
                                                .timeout_ms = 60000};
    if (pst_nvme_stack_new(&b.stack, &stack) != PST_OK)
        _exit(1);
    for (uint32_t i = 0; i < 4000; i++) {
        const struct pst_nvme_request r = {.opcode = PST_NVME_READ,
                                           .nsid = 1,
                                           .lba_shift = 9,
                                           .bytes = 4096,
                                           .iova = b.iova[0] + i % 1000 * 4096ull};
        if (pst_nvme_stack_add(b.stack, &r) != PST_OK)
            _exit(1);
    }
    pst_nvme_stack_submit(b.stack);
    while (pst_nvme_emulated_stats(&b.t[0])->fetched < 4000)
        (void)usleep(100);
    (void)!write(tell, "x", 1);
    (void)pause();
    _exit(0);
}

static void test_killed_client(void **state)
{
    (void)state;
    struct bench b;
    connect_all(&b,
                "{\"latency_us\": 300000, \"spread\": 1, \"namespaces\": [{\"kind\": \"function\", "
                "\"blocks\": 1000}]}",
                0);
    NEED(pst_nvme_dma_new(&b.memory, NULL, 1000 * 4096));
    int tell[2];
    char got;
    assert_int_equal(pipe(tell), 0);
    const pid_t victim = fork();
    if (victim == 0)
        flood(&b.emu, &b.memory, tell[1]);
    (void)close(tell[1]);
    assert_int_equal(read(tell[0], &got, 1), 1);
    assert_int_equal(kill(victim, SIGKILL), 0);
    assert_int_equal(waitpid(victim, NULL, 0), victim);
    /* whoever gets the SSD next knows that the last one's commands are over */
    pst_rc rc = PST_E_STATE;
    for (int i = 0; i < 3000 && rc == PST_E_STATE; i++) {
        rc = pst_nvme_emulated_connect(&b.t[0], &b.emu, 0);
        if (rc == PST_E_STATE)
            (void)usleep(1000);
    }
    NEED(rc);
    const struct pst_nvme_emulated_stats *stats = pst_nvme_emulated_stats(&b.t[0]);
    assert_true(stats->fetched > stats->completed + 1000); /* most were in flight */
    memset(b.memory.base, CANARY, b.memory.bytes);
    (void)usleep(900000);
    assert_true(untouched(b.memory.base, b.memory.bytes));
    (void)close(tell[0]);
    b.t[0].ops->close(&b.t[0]);
    pst_nvme_dma_free(&b.memory);
    pst_nvme_emulated_stop(&b.emu);
}

/* ---- large namespaces, files, configuration --------------------------------------------------------- */

static void test_64_bit_lbas(void **state)
{
    (void)state;
    struct bench b;
    const uint64_t blocks = 23000000000000ull / 512;
    start(&b, "{\"namespaces\": [{\"kind\": \"function\", \"blocks\": 44921875000}]}", 1, 1, 64);
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    assert_true(b.ns.blocks == blocks && b.ns.read_only);
    uint64_t seed = 5;
    for (int i = 0; i < 500; i++) {
        const uint64_t lba = i == 0 ? blocks - 8 : draw(&seed, blocks - 8);
        assert_int_equal(one(&b, PST_NVME_READ, lba, 4096, 0).status, PST_NVME_OK);
        for (uint32_t at = 0; at < 4096; at += 8)
            assert_true(((uint64_t *)b.memory.base)[at / 8] ==
                        pst_nvme_emulated_pattern(0, 1, lba * 512 + at));
    }
    assert_int_equal(one(&b, PST_NVME_WRITE, 0, 512, 0).status, PST_NVME_NS_READ_ONLY);
    tear_down(&b);
}

/* A file striped over three SSDs: unit u is on SSD u mod 3. */
static void test_striped_file(void **state)
{
    (void)state;
    char path[] = "/tmp/penstock-nvme-XXXXXX", json[512];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    uint8_t block[1024];
    for (uint32_t unit = 0; unit < 100; unit++) {
        memset(block, (int)unit + 1, sizeof block);
        assert_int_equal(pwrite(fd, block, sizeof block, 4096 + unit * 1024), sizeof block);
    }
    (void)snprintf(
        json, sizeof json,
        "{\"ssds\": 3, \"namespaces\": [{\"kind\": \"file\", \"path\": \"%s\", \"at\": 4096, \"unit\": 1024, "
        "\"writable\": true}]}",
        path);
    struct bench b;
    start(&b, json, 3, 1, 64);
    make_stack(&b, PST_NVME_ASYNC, 1, 1000);
    b.list[0] = &b.c[0];
    assert_int_equal(b.ns.blocks, 34 * 2);
    assert_int_equal(one(&b, PST_NVME_READ, 0, 34 * 1024, 0).status, PST_NVME_OK);
    for (uint32_t i = 0; i < 34; i++)
        assert_int_equal(((uint8_t *)b.memory.base)[i * 1024 + 7], 3 * i + 1);
    memset(b.memory.base, 200, 2048);
    assert_int_equal(one(&b, PST_NVME_WRITE, 2, 2048, 0).status, PST_NVME_OK);
    assert_int_equal(pread(fd, block, 1, 4096 + 3 * 1024), 1);
    assert_int_equal(block[0], 200);
    assert_int_equal(pread(fd, block, 1, 4096 + 4 * 1024), 1);
    assert_int_equal(block[0], 5);
    tear_down(&b);
    (void)close(fd);
    (void)unlink(path);
}

static void test_configuration_errors(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{", "line"},
        {"{\"namespaces\": []}", "namespaces"},
        {"{\"ssds\": 17, " RAM "}", "ssds is 17"},
        {"{\"speed\": 1, " RAM "}", "speed"},
        {"{\"preset\": \"floppy\", " RAM "}", "floppy"},
        {"{\"transfer_bytes\": 5000, " RAM "}", "5000"},
        {"{\"faults\": {\"error_rate\": 2}, " RAM "}", "rate"},
        {"{\"namespaces\": [{\"kind\": \"file\", \"path\": \"/nowhere\"}]}", "/nowhere"},
        {"{\"namespaces\": [{\"kind\": \"tape\", \"bytes\": 1}]}", "tape"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pst_nvme_emulated e;
        assert_int_equal(pst_nvme_emulated_start(&e, bad[i][0]), PST_E_ARG);
        if (strstr(pst_error_text(), bad[i][1]) == NULL)
            fail_msg("\"%s\" is not in: %s", bad[i][1], pst_error_text());
    }
}

static void test_one_client_each(void **state)
{
    (void)state;
    struct bench b;
    struct pst_nvme_transport t;
    connect_all(&b, "{" RAM "}", 1);
    assert_int_equal(pst_nvme_emulated_connect(&t, &b.emu, 0), PST_E_STATE);
    assert_int_equal(pst_nvme_emulated_connect(&t, &b.emu, 1), PST_E_ARG);
    char memory[PST_PAGE];
    uint64_t iova;
    assert_int_equal(b.t[0].ops->dma_map(&b.t[0], memory, sizeof memory, &iova), PST_E_ARG);
    b.t[0].ops->close(&b.t[0]);
    pst_nvme_emulated_stop(&b.emu);
}

/* Hyperion's machine (section II-C): the SSDs are the limit at 512 bytes, the bus at 4096. */
static void test_lanes_needed(void **state)
{
    (void)state;
    struct pst_nvme_supply s = {.ssds = 12, .iops = 750e3, .bytes = 512, .bus_bytes_per_s = 24e9};
    assert_int_equal(pst_nvme_lanes_needed(&s, 6.5e-6), 59);
    s.bytes = 4096;
    assert_int_equal(pst_nvme_lanes_needed(&s, 6.5e-6), 39);
    s.bus_bytes_per_s = 0;
    assert_int_equal(pst_nvme_lanes_needed(&s, 6.5e-6), 59);
    s.bus_bytes_per_s = 12 * 750e3 * 4096; /* full to the last byte */
    assert_int_equal(pst_nvme_lanes_needed(&s, 6.5e-6), 59);
    assert_int_equal(pst_nvme_lanes_needed(&s, 1e-9), 1);
}

int main(int argc, char **argv)
{
    find_programs();
    if (argc == 3 && strcmp(argv[1], "vfio") == 0)
        vfio_address = argv[2];
    const struct CMUnitTest any[] = {
        cmocka_unit_test(test_identify),
        cmocka_unit_test(test_async),
        cmocka_unit_test(test_async_by_several_lanes),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_shallow_queues),
        cmocka_unit_test(test_ids_wrap),
        cmocka_unit_test(test_strange_controllers),
        cmocka_unit_test(test_lba_out_of_range),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_reset_in_flight),
    };
    const struct CMUnitTest emulated[] = {
        cmocka_unit_test(test_gives_up),        cmocka_unit_test(test_unmapped_memory_is_refused),
        cmocka_unit_test(test_killed_client),   cmocka_unit_test(test_64_bit_lbas),
        cmocka_unit_test(test_striped_file),    cmocka_unit_test(test_configuration_errors),
        cmocka_unit_test(test_one_client_each), cmocka_unit_test(test_lanes_needed),
    };
    int failed = cmocka_run_group_tests_name("nvme", any, NULL, NULL);
    if (vfio_address == NULL)
        failed += cmocka_run_group_tests_name("emulated", emulated, NULL, NULL);
    return failed;
}
