/* The disk's engine with queues driven by kernels: tables as they stand, against emulated drives; what is
 * left to the CPU; faults, and ends at a bad moment. On a virtual GPU, or, with PENSTOCK_TWIN=cuda, a real
 * one. */
#include "disk_bench.h"

#include <signal.h>

#include "../../common/device.h"
#include "virtual_gpu.h"

static const char *const stacks[] = {"async", "sync", "batch"};
static const uint64_t strides[] = {512, 4096, 400, 1000, 12, 4100};
#define STACKS (sizeof stacks / sizeof stacks[0])
#define STRIDES (sizeof strides / sizeof strides[0])
#define IMPATIENT_MS 20
#define FEW 1000 /* rows of a file that need not be large */

static const struct pst_gpus *gpus;

static void gpu_bench_rows(struct bench *b, const char *stack, uint64_t row_bytes, uint64_t rows)
{
    char why[PST_DEVICE_WHY_BYTES];
    setup_rows(b, "emulated", row_bytes, rows);
    b->config.nvme.stack = stack;
    b->config.nvme.gpu = "cuda:0";
    if (gpus->pin(0, b->memory.base, b->memory.bytes, why) != PST_OK) /* the runtime does it for slots */
        fail_msg("%s", why);
}

static void gpu_bench(struct bench *b, const char *stack, uint64_t row_bytes)
{
    gpu_bench_rows(b, stack, row_bytes, FEW);
}

static void gpu_end(struct bench *b)
{
    char why[PST_DEVICE_WHY_BYTES];
    pst_disk_free(b->disk);
    b->disk = NULL;
    if (gpus->unpin(0, b->memory.base, why) != PST_OK)
        fail_msg("%s", why);
    teardown(b);
}

static struct pst_io_driven driven(struct bench *b)
{
    struct pst_io_driven d;
    assert_true(pst_disk_driven(b->disk, &d));
    return d;
}

static struct nvme *driver_of(const struct bench *b)
{
    return b->disk->backend.impl;
}

static uint64_t draw_below(uint64_t *seed, uint64_t bound)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (*seed >> 11) % bound;
}

/* ---- reading -------------------------------------------------------------------------------------- */

static void reads_are_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            struct bench b;
            gpu_bench(&b, stacks[i], strides[s]);
            b.config.nvme.ssds = 1 + (uint32_t)s % 3;
            b.config.depth = s == 1 ? 3 : 128; /* waves */
            start(&b);
            const int n = i == 1 ? 60 : 300;
            ask_scattered(&b, n);
            must_serve(&b);
            const struct pst_disk_stats *st = pst_disk_stats(b.disk);
            const struct pst_io_driven d = driven(&b);
            assert_true(d.gpu_commands == (uint64_t)n && d.cpu_commands == 0 && st->handed == 0);
            assert_true(st->rows == (uint64_t)n && st->row_bytes_wanted == (uint64_t)n * strides[s]);
            assert_true(st->copied_bytes == (strides[s] % 512 == 0 ? 0 : st->row_bytes_wanted));
            assert_true(strides[s] % 512 != 0 || st->bytes == st->row_bytes_wanted);
            assert_true(d.sq_doorbells > 0 && d.cq_doorbells > 0);
            assert_true(i != 1 || d.sq_doorbells == (uint64_t)n); /* sync: one a command */
            const struct pst_device *on = &driver_of(&b)->gpu->device;
            if (gpu_is_virtual()) /* before a trainer of the same process */
                assert_true(virtual_gpu_priority(on->twin->stream(on->q)) < 0);
            gpu_end(&b);
        }
    }
}

/* Parts are sent as they come, and waited for when the slot is whole; several slots are in flight. */
static void parts_of_several_slots(void **state)
{
    (void)state;
    enum { SLOTS = 3, PARTS = 2, EACH = 40 };
    for (size_t i = 0; i < STACKS; i++) {
        struct bench b;
        struct pst_disk_ticket tickets[SLOTS] = {{0}};
        gpu_bench(&b, stacks[i], 512);
        start(&b);
        ask_scattered(&b, SLOTS * PARTS * EACH);
        for (uint64_t part = 0; part < PARTS; part++) {
            for (uint64_t slot = 0; slot < SLOTS; slot++)
                assert_int_equal(pst_disk_add(b.disk, &tickets[slot], b.slot, b.slot_bytes,
                                              (slot * PARTS + part) * EACH * sizeof(struct pst_request),
                                              EACH),
                                 PST_OK);
            assert_int_equal(pst_disk_pump(b.disk), PST_OK);
        }
        (void)usleep(20000);
        assert_int_equal(pst_disk_pump(b.disk), PST_OK);
        assert_int_equal(pst_disk_in_flight(b.disk), SLOTS * PARTS * EACH); /* none is whole yet */
        for (int slot = 0; slot < SLOTS; slot++)
            pst_disk_whole(b.disk, &tickets[slot]);
        assert_int_equal(pst_disk_wait(b.disk, WAIT_MS), PST_OK);
        for (int slot = 0; slot < SLOTS; slot++)
            assert_true(pst_disk_idle(&tickets[slot]));
        assert_int_equal(wrong_rows(&b), 0);
        gpu_end(&b);
    }
}

/* Asked to, it waits for each part: nobody need say that a slot is whole. */
static void each_part_by_itself(void **state)
{
    (void)state;
    struct bench b;
    struct pst_disk_ticket ticket = {0};
    gpu_bench(&b, "async", 512);
    b.config.complete_parts = true;
    start(&b);
    ask_scattered(&b, 80);
    for (uint64_t part = 0; part < 2; part++) {
        assert_int_equal(
            pst_disk_add(b.disk, &ticket, b.slot, b.slot_bytes, part * 40 * sizeof(struct pst_request), 40),
            PST_OK);
        assert_int_equal(pst_disk_wait(b.disk, WAIT_MS), PST_OK);
        assert_true(pst_disk_idle(&ticket) && !ticket.whole);
    }
    assert_int_equal(wrong_rows(&b), 0);
    gpu_end(&b);
}

/* More groups than are in flight at once, of a slot that is not whole before all have been. */
static void tables_larger_than_groups(void **state)
{
    (void)state;
    struct bench b;
    gpu_bench_rows(&b, "async", 24100, 300); /* staged: 25 KB of 8 MiB each */
    start(&b);
    assert_true(b.disk->backend.group_requests < 400);
    for (int i = 0; i < ROWS; i++)
        ask(&b, (uint64_t)i % 300, 1, (uint64_t)i % 300);
    must_serve(&b);
    assert_true(driven(&b).gpu_commands == ROWS && pst_disk_stats(b.disk)->handed == 0);
    gpu_end(&b);
}

/* What is no command of one row's kind goes to the CPU, in between. */
static void the_rest_is_the_cpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        struct bench b;
        gpu_bench(&b, stacks[i], i == 1 ? 1000 : 512);
        start(&b);
        ask_scattered(&b, 60);
        ask(&b, 7, 50, 100); /* over all drives */
        ask(&b, 500, 1, 160);
        ask(&b, 200, FEW - 200, 200);
        must_serve(&b);
        assert_true(pst_disk_stats(b.disk)->handed == 2 && driven(&b).gpu_commands == 61);
        assert_true(driven(&b).cpu_commands > 0 && driven(&b).turns == 1);
        assert_int_equal(pst_disk_stats(b.disk)->rows, 61 + 50 + FEW - 200);
        b.count = 0;
        ask_scattered(&b, 60); /* and the GPU goes on */
        must_serve(&b);
        assert_true(driven(&b).gpu_commands == 121);
        gpu_end(&b);
    }
    struct bench b; /* rows larger than a command, memory that commands cannot name */
    gpu_bench(&b, "async", 4096);
    b.config.nvme.emulated = "{\"transfer_bytes\": 8192}";
    b.config.nvme.ssds = 1;
    b.rows_at += 2;
    start(&b);
    ask(&b, 1, 1, 0);
    ask(&b, 11, 2, 10);
    ask(&b, 21, 3, 20);
    must_serve(&b);
    assert_true(pst_disk_stats(b.disk)->handed == 3);
    b.rows_at -= 2;
    b.count = 0;
    ask(&b, 31, 1, 0);
    ask(&b, 41, 2, 10);
    ask(&b, 51, 3, 20);
    must_serve(&b);
    assert_true(pst_disk_stats(b.disk)->handed == 4 && driven(&b).gpu_commands == 2);
    gpu_end(&b);
}

/* Topology is read by kernels too, where there is staging for it, from a namespace of its own. */
static void other_arrays_are_read(void **state)
{
    (void)state;
    for (int staged = 0; staged < 2; staged++) {
        struct bench b;
        gpu_bench(&b, "batch", staged ? 400 : 512);
        struct pst_disk_array *array = &b.config.arrays[PST_ARRAY_INDICES];
        *array = b.config.arrays[PST_ARRAY_FEATURES];
        array->row_bytes = array->wanted_bytes = 4;
        array->rows = b.rows * b.row_bytes / 4;
        start(&b);
        for (int i = 0; i < 100; i++) {
            ask(&b, (uint64_t)i * 37, i % 7 == 0 ? 25 : 1, (uint64_t)i);
            b.table[i].array = PST_ARRAY_INDICES;
        }
        assert_int_equal(serve(&b), PST_OK);
        for (int i = 0; i < 100; i++) {
            for (uint64_t k = 0; k < 4ull * b.table[i].rows; k++) {
                const uint64_t at = b.table[i].row * 4 + k;
                assert_int_equal((uint8_t)b.slot[b.table[i].offset + k],
                                 byte_of(at / b.row_bytes, at % b.row_bytes));
            }
        }
        assert_int_equal(pst_disk_stats(b.disk)->rows, 85 + 15 * 25);
        assert_true(staged ? driven(&b).gpu_commands > 80 : pst_disk_stats(b.disk)->handed == 100);
        gpu_end(&b);
    }
}

static void writes_are_read_back(void **state)
{
    (void)state;
    struct bench b;
    gpu_bench(&b, "async", 512);
    b.config.writable = true;
    start(&b);
    for (int k = 0; k < 50; k++) {
        ask(&b, (uint64_t)k * 13, 1, (uint64_t)k);
        b.table[k].op = PST_WRITE;
        memset(b.slot + b.table[k].offset, k + 1, b.row_bytes);
    }
    assert_int_equal(serve(&b), PST_OK);
    assert_true(driven(&b).gpu_commands == 0 && pst_disk_stats(b.disk)->handed == 50);
    memset(b.slot + b.rows_at, 0, 50 * b.row_bytes);
    for (int k = 0; k < 50; k++)
        b.table[k].op = PST_READ;
    assert_int_equal(serve(&b), PST_OK);
    assert_true(driven(&b).gpu_commands == 50);
    for (int k = 0; k < 50; k++)
        for (uint64_t c = 0; c < b.row_bytes; c++)
            assert_int_equal((uint8_t)b.slot[b.table[k].offset + c], k + 1);
    gpu_end(&b);
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
    struct pst_request r = {.rows = 1, .row = draw_below(seed, FEW - 5)};
    r.offset = b->rows_at + draw_below(seed, FEW - 5) * b->row_bytes;
    if (draw_below(seed, 3) == 0)
        r.rows = (uint32_t)(1 + draw_below(seed, 5));
    if (draw_below(seed, 250) == 0)
        r.op = (uint16_t)draw_below(seed, 4);
    if (draw_below(seed, 250) == 0)
        r.array = (uint16_t)draw_below(seed, 5);
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
    struct pst_gpu_drives *gpu = driver_of(&b)->gpu;
    uint32_t left[N];
    atomic_bool whole = true;
    assert_int_equal(pthread_mutex_lock(&driver_of(&b)->lock), 0); /* its thread, which sleeps, looks on */
    for (int i = 0; i < TABLES; i++) {
        struct pst_io_group group = {
            .slot = b.slot, .slot_bytes = b.slot_bytes, .n = N, .whole = &whole, .left = left};
        struct pst_io_group *done[1];
        uint32_t bad = 0;
        int n;
        struct pst_table table = {.slot = b.slot, .slot_bytes = b.slot_bytes, .count = N};
        for (uint32_t k = 0; k < N; k++) {
            b.table[k] = any_request(&seed, &b);
            if (bad == 0 && check_request(&b.disk->pieces, &table, k, &b.table[k]) != PST_OK)
                bad = k + 1;
        }
        assert_int_equal(pst_gpu_drives_submit(gpu, &group), PST_OK);
        pst_gpu_drives_finish(gpu, &group, done, &n);
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
    survive("async", 1000, "\"delay_rate\": 0.05, \"delay_us\": 300000");
    for (size_t i = 0; i < STACKS; i++)
        survive(stacks[i], i == 1 ? 512 : 1000, mixed);
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
        const int64_t begun = now_ms();
        assert_int_equal(pst_disk_wait(b.disk, WAIT_MS), PST_E_IO);
        assert_non_null(strstr(pst_error_text(), "it is gone"));
        assert_non_null(strstr(pst_error_text(), "the features of vertex "));
        gpu_end(&b);
        assert_true(now_ms() - begun < WAIT_MS / 4);
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
        const int64_t begun = now_ms();
        gpu_end(&b);
        assert_true(now_ms() - begun < 5000);
    }
}

static void what_kernels_cannot_do_is_refused(void **state)
{
    (void)state;
    struct bench b;
    gpu_bench(&b, "async", 512);
    b.config.faults.error_rate = 0.1;
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "emulated drives' own"));
    b.config.faults.error_rate = 0;
    b.config.nvme.timeout_ms = 150001;
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "timeout_ms is 150001: on cuda:0"));
    assert_non_null(
        strstr(pst_error_text(), "after 300 s (PENSTOCK_GPU_WAIT_S); expected at most half of it, 150000"));
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
    const struct pst_io_nvme wanted = {
        .stack = "async", .gpu = "cuda:0", .timeout_ms = 10, .arrays = b.config.arrays};
    const struct pst_io_config config = {.regions = &b.region, .nregions = 1, .nvme = &wanted};
    struct pst_io_backend unused;
    assert_int_equal(pthread_mutex_lock(&n->lock), 0); /* its thread looks on */
    n->drives.t[0].ops = &vfio;
    n->drives.t[0].regs = NULL;
    assert_int_equal(pst_gpu_drives_open(&n->gpu, &n->drives, &config, &unused), PST_E_UNSUPPORTED);
    n->drives.t[0] = kept;
    assert_int_equal(pthread_mutex_unlock(&n->lock), 0);
    for (size_t i = 0; i < 3; i++)
        assert_non_null(strstr(pst_error_text(), ((const char *const[]){"cuda:0 cannot drive emulated SSD 0",
                                                                        "registers", "penstock probe"})[i]));
    pst_disk_free(b.disk);
    b.disk = NULL;
    b.config.nvme.gpu = "cuda:99";
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_UNSUPPORTED);
    assert_non_null(strstr(pst_error_text(), "cuda:99"));
    gpu_end(&b);
}

int main(void)
{
    find_programs();
    gpu_setup();
    assert(pst_gpus_open(&gpus) == PST_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_right),
        cmocka_unit_test(parts_of_several_slots),
        cmocka_unit_test(each_part_by_itself),
        cmocka_unit_test(tables_larger_than_groups),
        cmocka_unit_test(the_rest_is_the_cpus),
        cmocka_unit_test(other_arrays_are_read),
        cmocka_unit_test(writes_are_read_back),
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
