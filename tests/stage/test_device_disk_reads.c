/* The disk's engine with queues driven by kernels: tables as they stand, against emulated drives; what each
 * costs, and what is left to the CPU. */
#include "tests/stage/device_disk.h"

#include "tests/kernel/shared_reads.h"

static const uint64_t strides[] = {512, 4096, 400, 1000, 12, 4100, 64};
#define STRIDES (sizeof strides / sizeof strides[0])

/* ---- what a table costs ---------------------------------------------------------------------------- */

struct cost {
    uint64_t commands, bytes, merged;
};

/* The most blocks that a row of these lies in. */
static uint64_t widest(uint64_t row_bytes)
{
    uint64_t most = 0;
    for (uint64_t row = 0; row < PST_SECTOR; row++) {
        const uint64_t first = row * row_bytes / PST_SECTOR, last = ((row + 1) * row_bytes - 1) / PST_SECTOR;
        most = last + 1 - first > most ? last + 1 - first : most;
    }
    return most * PST_SECTOR;
}

/* Of the bench's table, where each request is one that a command can bring. */
static struct cost cost_of(const struct bench *b)
{
    static struct wanted wanted[ROWS];
    static uint64_t bytes[ROWS];
    struct cost c = {0, 0, 0};
    uint64_t unit = b->row_bytes, each = widest(b->row_bytes), most = b->config.coalesce_bytes;
    while (unit % PST_SECTOR != 0)
        unit += b->row_bytes;
    most = most < each ? each : most;
    for (uint32_t from = 0, n; from < (uint32_t)b->count; from += n) {
        n = (uint32_t)b->count - from;
        n = n < b->disk->backend.group_requests ? n : b->disk->backend.group_requests;
        for (uint32_t i = 0; i < n; i++) {
            const struct pst_request *r = &b->table[from + i];
            const uint64_t byte = r->row * b->row_bytes, ssds = b->config.nvme.ssds;
            const uint64_t at = byte / unit / ssds * unit + byte % unit;
            wanted[i] = (struct wanted){.drive = (uint32_t)(byte / unit % ssds), .at = at};
            wanted[i].end = at + r->rows * b->row_bytes;
        }
        if (b->row_bytes % PST_SECTOR == 0) { /* straight to its place, each by itself */
            c.commands += n;
            c.bytes += n * b->row_bytes;
            continue;
        }
        const uint32_t reads = share_reads(wanted, n, PST_SECTOR, each, most, bytes);
        c.commands += reads;
        c.merged += n - reads;
        for (uint32_t i = 0; i < reads; i++)
            c.bytes += bytes[i];
    }
    return c;
}

static void costs(struct bench *b, struct cost c)
{
    const struct pst_disk_stats *st = pst_disk_stats(b->disk);
    const struct pst_io_driven d = driven(b);
    assert_true(d.cpu_commands == 0 && st->handed == 0);
    assert_true(d.gpu_commands == c.commands && st->requests == c.commands);
    assert_true(st->bytes == c.bytes && st->merged == c.merged);
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
            costs(&b, cost_of(&b));
            assert_true(st->rows == (uint64_t)n && st->row_bytes_wanted == (uint64_t)n * strides[s]);
            assert_true(st->copied_bytes == (strides[s] % 512 == 0 ? 0 : st->row_bytes_wanted));
            assert_true(strides[s] % 512 != 0 || (st->bytes == st->row_bytes_wanted && st->merged == 0));
            assert_true(d.sq_doorbells > 0 && d.cq_doorbells > 0);
            assert_true(i != 1 || d.sq_doorbells == d.gpu_commands); /* sync: one a command */
            const struct pst_device *on = pst_io_gpu_device(driver_of(&b)->gpu);
            if (gpu_is_virtual()) /* before a trainer of the same process */
                assert_true(virtual_gpu_priority(on->twin->stream(on->q)) < 0);
            gpu_end(&b);
        }
    }
}

/* Rows that lie in the same blocks, or across two, come with one read of them, each row as often as it is
 * asked for. */
static void neighbours_share_reads(void **state)
{
    (void)state;
    static const uint64_t narrow[] = {64, 400, 12, 1000};
    static const struct {
        int rows, apart;
    } asked[] = {{300, 1}, {300, 3}, {40, 17}};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        for (size_t k = 0; k < sizeof asked / sizeof asked[0]; k++) {
            struct bench b;
            gpu_bench(&b, stacks[(i + k) % STACKS], narrow[i]);
            b.config.nvme.ssds = 1 + (uint32_t)k;
            b.config.coalesce_bytes = k == 0 ? 1 : 64 << 10; /* 1: the same blocks, and no more */
            start(&b);
            for (int row = asked[k].rows; row-- > 0;)
                for (int twice = 0; twice < 2; twice++)
                    ask(&b, (uint64_t)row * (uint64_t)asked[k].apart, 1, (uint64_t)b.count);
            must_serve(&b);
            const struct cost c = cost_of(&b);
            costs(&b, c);
            assert_true(c.commands <= (uint64_t)asked[k].rows && c.merged >= (uint64_t)asked[k].rows);
            assert_true(k > 0 || narrow[i] != 64 || c.commands == (300 * 64 + 511) / 512);
            assert_true(pst_disk_stats(b.disk)->rows == 2 * (uint64_t)asked[k].rows);
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
    costs(&b, cost_of(&b));
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
        pst_disk_config_add(&b.config, PST_ARRAY_INDICES, (const char *const[]){b.path}, 1, PST_PAGE,
                            b.rows * b.row_bytes / 4, 4, 4);
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
        assert_true(staged ? driven(&b).gpu_commands > 0 && pst_disk_stats(b.disk)->handed < 20
                           : pst_disk_stats(b.disk)->handed == 100);
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
        b.table[k].op = PST_REQUEST_WRITE;
        memset(b.slot + b.table[k].offset, k + 1, b.row_bytes);
    }
    assert_int_equal(serve(&b), PST_OK);
    assert_true(driven(&b).gpu_commands == 0 && pst_disk_stats(b.disk)->handed == 50);
    memset(b.slot + b.rows_at, 0, 50 * b.row_bytes);
    for (int k = 0; k < 50; k++)
        b.table[k].op = PST_REQUEST_READ;
    assert_int_equal(serve(&b), PST_OK);
    assert_true(driven(&b).gpu_commands == 50);
    for (int k = 0; k < 50; k++)
        for (uint64_t c = 0; c < b.row_bytes; c++)
            assert_int_equal((uint8_t)b.slot[b.table[k].offset + c], k + 1);
    gpu_end(&b);
}

int main(void)
{
    find_gpus();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_right),           cmocka_unit_test(neighbours_share_reads),
        cmocka_unit_test(parts_of_several_slots),    cmocka_unit_test(each_part_by_itself),
        cmocka_unit_test(tables_larger_than_groups), cmocka_unit_test(the_rest_is_the_cpus),
        cmocka_unit_test(other_arrays_are_read),     cmocka_unit_test(writes_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
