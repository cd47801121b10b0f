/* The disk's engine with queues driven by kernels: requests that are wrong, faults, and ends at a bad moment.
 */
#include "tests/stage/device_disk.h"

#include <signal.h>

#define IMPATIENT_MS 20

static uint64_t draw_below(uint64_t *seed, uint64_t bound)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (*seed >> 11) % bound;
}

/* ---- what other processes may send ------------------------------------------------------------------ */

static void refuse(struct pst_request bad, const char *word)
{
    struct bench b;
    gpu_bench_rows(&b, "async", 512, ROWS);
    start(&b);
    ask_scattered(&b, 100);
    b.table[55] = bad;
    b.table[77] = bad; /* the first is named */
    char *before = malloc(b.slot_bytes);
    memcpy(before, b.slot, b.slot_bytes);
    const pst_rc rc = serve(&b);
    assert_true(rc == PST_E_FORMAT || rc == PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "request 55 "));
    if (strstr(pst_error_text(), word) == NULL)
        fail_msg("%s: not in: %s", word, pst_error_text());
    assert_memory_equal(before, b.slot, b.slot_bytes);
    free(before);
    gpu_end(&b);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    for_bad_requests(refuse);
}

/* Requests of which any field may be anything: what a kernel finds wrong, and in which, is what the CPU does.
 */
static struct pst_request any_request(uint64_t *seed, const struct bench *b)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 511, FEW - 1, FEW, UINT32_MAX, UINT64_MAX, UINT64_MAX - 511};
    enum { ODDS = sizeof odd / sizeof odd[0] };
    struct pst_request r = {.array = PST_ARRAY_FEATURES, .rows = 1, .row = draw_below(seed, FEW - 5)};
    r.offset = b->rows_at + draw_below(seed, FEW - 5) * b->row_bytes;
    if (draw_below(seed, 3) == 0)
        r.rows = (uint32_t)(1 + draw_below(seed, 5));
    if (draw_below(seed, 250) == 0)
        r.op = (uint16_t)draw_below(seed, 4);
    if (draw_below(seed, 250) == 0)
        r.array = (uint16_t)draw_below(seed, PST_REQUEST_ARRAYS_MAX + 5);
    if (draw_below(seed, 250) == 0)
        r.rows = (uint32_t)odd[draw_below(seed, ODDS)];
    if (draw_below(seed, 250) == 0)
        r.row = odd[draw_below(seed, ODDS)];
    if (draw_below(seed, 250) == 0)
        r.offset = draw_below(seed, 2)
                       ? odd[draw_below(seed, ODDS)]
                       : b->slot_bytes - b->row_bytes * draw_below(seed, 3) + draw_below(seed, 3) - 1;
    return r;
}

static void any_requests_are_judged_alike(void **state)
{
    (void)state;
    enum { N = 40, TABLES = 120 };
    uint64_t seed = 7;
    int wrong = 0;
    struct bench b;
    gpu_bench(&b, "async", 512);
    b.config.nvme.ssds = 2;
    start(&b);
    struct pst_io_gpu *gpu = driver_of(&b)->gpu;
    uint32_t left[N];
    atomic_bool whole = true;
    assert_int_equal(pthread_mutex_lock(&driver_of(&b)->lock), 0); /* its thread, which sleeps, looks on */
    for (int i = 0; i < TABLES; i++) {
        struct pst_io_group group = {
            .slot = b.slot, .slot_bytes = b.slot_bytes, .n = N, .whole = &whole, .left = left};
        struct pst_io_group *done[1];
        uint32_t bad = 0;
        int n;
        struct pst_disk_table table = {.slot = b.slot, .slot_bytes = b.slot_bytes, .count = N};
        for (uint32_t k = 0; k < N; k++) {
            b.table[k] = any_request(&seed, &b);
            if (bad == 0 && pst_disk_pieces_check(&b.disk->pieces, &table, k, &b.table[k]) != PST_OK)
                bad = k + 1;
        }
        assert_int_equal(pst_io_gpu_submit(gpu, &group), PST_OK);
        pst_io_gpu_finish(gpu, &group, done, &n);
        if (n != 1 || group.why[0] != '\0')
            fail_msg("%s", group.why);
        assert_int_equal(group.bad, bad);
        assert_true(bad ? group.commands == 0 && group.rows == 0 : group.commands + group.nleft == N);
        wrong += bad > 0;
    }
    assert_int_equal(pthread_mutex_unlock(&driver_of(&b)->lock), 0);
    assert_true(wrong > TABLES / 8 && wrong < TABLES - TABLES / 8);
    gpu_end(&b);
}

/* ---- faults ----------------------------------------------------------------------------------------- */

/* Three batches, with a GPU that goes on after each. */
static void survive(const char *stack, uint64_t row_bytes, const char *faults)
{
    enum { N = 100 };
    struct bench b;
    char json[256];
    (void)snprintf(json, sizeof json, "{\"faults\": {%s}}", faults);
    gpu_bench(&b, stack, row_bytes);
    b.config.nvme.emulated = json;
    b.config.nvme.timeout_ms = IMPATIENT_MS;
    b.config.nvme.ssds = 2;
    b.config.retries = 50;
    b.config.coalesce_bytes = PST_SECTOR; /* as many commands as can be, for each to have its chance */
    start(&b);
    for (int batch = 0; batch < 3; batch++) {
        b.count = 0;
        ask_scattered(&b, N);
        memset(b.slot + b.rows_at, 0x11, N * b.row_bytes);
        must_serve(&b);
    }
    const struct pst_io_driven d = driven(&b);
    assert_true(d.gpu_commands > 0 && d.cpu_commands >= pst_disk_stats(b.disk)->handed / OP_PIECES_MAX);
    assert_true(pst_disk_stats(b.disk)->handed > 0 && pst_disk_stats(b.disk)->rows == 3 * N);
    assert_true(strstr(faults, "fatal") == NULL || d.resets > 0);
    assert_true(strncmp(faults, "\"delay", 6) != 0 || d.aborts > 0);
    gpu_end(&b);
}

static void faults_are_survived(void **state)
{
    (void)state;
    static const char mixed[] = "\"error_rate\": 0.05, \"lost_rate\": 0.01, \"fatal_rate\": 0.005, "
                                "\"torn_rate\": 0.02, \"reorder_us\": 300";
    survive("async", 512, "\"error_rate\": 0.1");
    survive("async", 1000, "\"lost_rate\": 0.05");
    survive("async", 512, "\"fatal_rate\": 0.04");
    survive("async", 1000,
            "\"delay_rate\": 0.05, \"delay_us\": 10000000"); /* longer than any machine is held up */
    for (size_t i = 0; i < STACKS; i++)
        survive(stacks[i], i == 1 ? 512 : 1000, mixed);
    survive("async", 64, mixed); /* commands that several rows share */
    survive("batch", 400, mixed);
}

static void what_cannot_be_read_is_named(void **state)
{
    (void)state;
    struct bench b;
    gpu_bench(&b, "async", 512);
    b.config.nvme.emulated = "{\"faults\": {\"error_rate\": 1}}";
    b.config.nvme.ssds = 1;
    start(&b);
    ask(&b, 77, 1, 0);
    assert_int_equal(serve(&b), PST_E_IO);
    const char *const words[] = {"the features of vertex 77 ", b.path,
                                 "emulated SSD 0, namespace 1, LBA 77:", "unrecovered read"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strstr(pst_error_text(), words[i]) == NULL)
            fail_msg("%s: not in: %s", words[i], pst_error_text());
    }
    gpu_end(&b);
    gpu_bench(&b, "async", 64); /* three in one block: the first of them is named */
    b.config.nvme.emulated = "{\"faults\": {\"error_rate\": 1}}";
    start(&b);
    for (uint64_t k = 0; k < 3; k++)
        ask(&b, 79 - k, 1, k);
    assert_int_equal(serve(&b), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "the features of vertex 77 "));
    assert_int_equal(pst_disk_stats(b.disk)->handed, 3);
    gpu_end(&b);
    gpu_bench(&b, "batch", 512);
    b.config.nvme.emulated = "{\"faults\": {\"dead_after\": 50}}";
    b.config.nvme.timeout_ms = IMPATIENT_MS;
    start(&b);
    ask_scattered(&b, 400);
    assert_int_equal(serve(&b), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "the features of vertex "));
    assert_non_null(strstr(pst_error_text(), "cannot be reset"));
    gpu_end(&b);
}

/* The drives' process dies with commands in flight: no kernel waits on for the long timeout. */
static void dead_drives_are_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        struct bench b;
        gpu_bench(&b, stacks[i], 4096);
        b.config.nvme.emulated = "{\"latency_us\": 300000}";
        b.config.nvme.timeout_ms = 60000;
        start(&b);
        ask_scattered(&b, 100);
        struct pst_disk_ticket ticket = {0};
        assert_int_equal(pst_disk_add(b.disk, &ticket, b.slot, b.slot_bytes, 0, 100), PST_OK);
        pst_disk_whole(b.disk, &ticket);
        assert_int_equal(pst_disk_pump(b.disk), PST_OK);
        (void)usleep(20000);
        assert_int_equal(kill(driver_of(&b)->drives.emulated.pid, SIGKILL), 0);
        const int64_t begun = pst_clock_ms();
        assert_int_equal(pst_disk_wait(b.disk, WAIT_MS), PST_E_IO);
        assert_non_null(strstr(pst_error_text(), "the controller has disappeared"));
        assert_non_null(strstr(pst_error_text(), "the features of vertex "));
        gpu_end(&b);
        assert_true(pst_clock_ms() - begun < WAIT_MS / 4);
    }
}

/* The stage ends while a slot that is not whole has reads in flight. */
static void ends_with_reads_in_flight(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        struct bench b;
        struct pst_disk_ticket ticket = {0};
        gpu_bench(&b, stacks[i], 512);
        start(&b);
        ask_scattered(&b, 100);
        assert_int_equal(pst_disk_add(b.disk, &ticket, b.slot, b.slot_bytes, 0, 100), PST_OK);
        assert_int_equal(pst_disk_pump(b.disk), PST_OK);
        const int64_t begun = pst_clock_ms();
        gpu_end(&b);
        assert_true(pst_clock_ms() - begun < 5000);
    }
}

static void what_kernels_cannot_do_is_refused(void **state)
{
    (void)state;
    struct bench b;
    gpu_bench(&b, "async", 512);
    b.config.faults.error_rate = 0.1;
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_ARG);
    assert_non_null(
        strstr(pst_error_text(), "use the faults of emulated drives (\"emulated\": {\"faults\": ...})"));
    b.config.faults.error_rate = 0;
    b.config.nvme.timeout_ms = 150001;
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "timeout_ms is 150001, but on cuda:0"));
    assert_non_null(strstr(pst_error_text(),
                           "longest wait for a GPU (PENSTOCK_GPU_WAIT_S, 300 s): expected at most 150000"));
    setenv("PENSTOCK_GPU_WAIT_S", "301", 1);
    start(&b);
    pst_disk_free(b.disk);
    unsetenv("PENSTOCK_GPU_WAIT_S");
    b.config.nvme.timeout_ms = 5000;
    /* a controller's registers that CUDA does not take: VFIO's, on a machine that lacks something */
    b.config.nvme.gpu = NULL;
    start(&b);
    struct nvme *n = driver_of(&b);
    const struct pst_nvme_transport kept = n->drives.t[0];
    const struct pst_nvme_transport_ops vfio = {.name = "vfio", .dma_map = kept.ops->dma_map};
    const struct pst_io_nvme_config wanted = {.stack = "async", .gpu = "cuda:0", .timeout_ms = 10};
    const struct pst_io_config config = {
        .arrays = b.config.arrays, .regions = &b.region, .nregions = 1, .nvme = &wanted};
    struct pst_io_backend unused;
    assert_int_equal(pthread_mutex_lock(&n->lock), 0); /* its thread looks on */
    n->drives.t[0].ops = &vfio;
    setenv("PENSTOCK_VIRTUAL_NO_IO_MEMORY", "1", 1);
    assert_int_equal(pst_io_gpu_open(&n->gpu, &n->drives, &config, &unused), PST_E_UNSUPPORTED);
    unsetenv("PENSTOCK_VIRTUAL_NO_IO_MEMORY");
    n->drives.t[0] = kept;
    assert_int_equal(pthread_mutex_unlock(&n->lock), 0);
    static const char *const said[] = {"cuda:0 cannot drive emulated SSD 0", "an NVMe controller's registers",
                                       "penstock probe"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_non_null(strstr(pst_error_text(), said[i]));
    assert_true(strstr(pst_error_text(), "PeerMappingOverride=1") ||
                strstr(pst_error_text(), "install a newer driver"));
    pst_disk_free(b.disk);
    b.disk = NULL;
    b.config.nvme.gpu = "cuda:99";
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_UNSUPPORTED);
    assert_non_null(strstr(pst_error_text(), "cuda:99"));
    gpu_end(&b);
}

int main(void)
{
    find_gpus();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(any_requests_are_judged_alike),
        cmocka_unit_test(faults_are_survived),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(dead_drives_are_told),
        cmocka_unit_test(ends_with_reads_in_flight),
        cmocka_unit_test(what_kernels_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
