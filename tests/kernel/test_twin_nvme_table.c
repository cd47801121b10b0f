/* Tables of disk requests that a kernel takes as they stand (kernels/nvme.h), against emulated controllers
 * whose content is a function of the address: each request is brought, byte for byte and nothing beside it,
 * or left, and which of the two follows from the layout alone; so do the commands, and what they move. */
#include "tests/kernel/shared_reads.h"
#include "tests/kernel/twin_nvme.h"

enum {
    MOST = 200,
    MANY = 16384, /* as many as the disk stage sends at once */
    BATCHES = 2,  /* of a drive */
    SSDS = 3,
    ROWS = 5000,
    SLOT = 1 << 21,
    TABLE_AT = 64, /* of the slot */
    TRANSFER = 16384,
    IMPATIENT = 50, /* ms */
};

struct world {
    struct rig r;
    struct pst_k_nvme_layout layout;
    uint64_t row_bytes, block, data_at; /* data_at: of the slot */
    uint32_t ssds, most;
    uint32_t arrays[2], missing, files[2]; /* numbers: two that are there, and an array that is not */
    char *slot;
    struct pst_request *table;
};

/* What should become of a table. */
static struct {
    bool left[MANY];
    uint32_t nleft, straight, staged, reads; /* of requests; of the staged ones' commands */
    struct wanted wanted[MANY];              /* staged */
    uint64_t straight_bytes, read_bytes[MANY];
} expected;

/* Where byte k of a request lies: the byte of its namespace, and the SSD. */
static uint64_t byte_at(const struct world *w, const struct pst_request *r, uint64_t k, uint32_t *ssd,
                        const struct pst_extent **file)
{
    const struct pst_extent *a = &w->layout.arrays[r->array].rows_in;
    const uint64_t row = r->row + k / w->row_bytes;
    const struct pst_extent *f = *file = &w->layout.files[a->first + row % a->over];
    const uint64_t at = a->base + row / a->over * w->row_bytes + k % w->row_bytes - f->from;
    *ssd = (uint32_t)(at / f->unit % w->ssds);
    return f->base + at / f->unit / w->ssds * f->unit + at % f->unit;
}

static uint8_t byte_of(const struct world *w, const struct pst_request *r, uint64_t k)
{
    const struct pst_extent *f;
    uint32_t ssd;
    const uint64_t byte = byte_at(w, r, k, &ssd, &f);
    return (uint8_t)(pst_nvme_emulated_pattern(ssd, f->nsid, byte & ~7ull) >> 8 * (byte & 7));
}

/* What one command cannot bring is left. */
static void expect_one(const struct world *w, uint32_t i)
{
    const struct pst_request *r = &w->table[i];
    const struct pst_extent *a = &w->layout.arrays[r->array].rows_in;
    const struct pst_extent *f;
    uint32_t ssd, last_ssd;
    const uint64_t bytes = r->rows * w->row_bytes, at = byte_at(w, r, 0, &ssd, &f);
    const uint64_t end = byte_at(w, r, bytes - 1, &last_ssd, &f) + 1, base = f->base;
    const uint64_t blocks = (end + w->block - 1) / w->block * w->block - at / w->block * w->block;
    const bool straight = at % w->block == 0 && bytes % w->block == 0 && r->offset % 4 == 0;
    const bool apart = w->ssds > 1 && (at - base) / f->unit != (end - 1 - base) / f->unit;
    expected.left[i] = r->op == PST_REQUEST_WRITE || (a->over > 1 && r->rows > 1) || ssd != last_ssd ||
                       apart || blocks > TRANSFER || (!straight && blocks > w->layout.staging_each);
    expected.nleft += expected.left[i];
    if (expected.left[i])
        return;
    if (straight) {
        expected.straight++;
        expected.straight_bytes += bytes;
        return;
    }
    expected.wanted[expected.staged++] =
        (struct wanted){.request = i, .drive = f->nsid * SSDS_MAX + ssd, .at = at, .end = end};
}

static void expect(const struct world *w, uint32_t n)
{
    const struct pst_k_nvme_layout *l = &w->layout;
    expected.nleft = expected.straight = expected.staged = 0;
    expected.straight_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        expect_one(w, i);
    expected.reads = share_reads(expected.wanted, expected.staged, w->block, l->staging_each, l->merge_bytes,
                                 expected.read_bytes);
}

static void begin_world(struct world *w, uint64_t row_bytes, uint64_t block, uint32_t most, uint32_t staged,
                        const char *faults)
{
    char json[512];
    const unsigned long long blocks = (1ull << 54) / block;
    memset(w, 0, sizeof *w);
    w->row_bytes = row_bytes;
    w->block = block;
    w->most = most;
    w->data_at = most * sizeof(struct pst_request) + 4096;
    w->ssds = 1 + (uint32_t)rnd(SSDS);
    (void)snprintf(
        json, sizeof json,
        "{\"ssds\": %d, \"transfer_bytes\": %d, \"lba_bytes\": %d, \"faults\": {%s}, \"namespaces\": "
        "[{\"kind\": \"function\", \"blocks\": %llu}, {\"kind\": \"function\", \"blocks\": %llu}]}",
        SSDS, TRANSFER, (int)block, faults, blocks, blocks);
    rig_start(&w->r, json, w->ssds, 2, 8u << rnd(4), (SLOT + BATCHES * most * staged) / PLACE + 1);
    struct pst_k_nvme_layout *l = &w->layout;
    w->arrays[0] = (uint32_t)rnd(PST_REQUEST_ARRAYS_MAX - 2);
    w->arrays[1] = w->arrays[0] + 1;
    w->missing = rnd(2) ? w->arrays[0] + 2
                        : PST_REQUEST_ARRAYS_MAX + (uint32_t)rnd(UINT16_MAX - PST_REQUEST_ARRAYS_MAX);
    w->files[0] = (uint32_t)rnd(PST_REQUEST_FILES_MAX - 1);
    w->files[1] = w->files[0] + 1;
    uint64_t group = 1;
    while (group * row_bytes % block != 0)
        group++;
    for (uint32_t i = 0; i < 2; i++)
        l->files[w->files[i]] = (struct pst_extent){.from = 4096,
                                                    .unit = group * row_bytes,
                                                    .base = block * rnd((uint64_t)1 << 40),
                                                    .over = w->ssds,
                                                    .nsid = i + 1};
    for (uint32_t i = 0; i < 2; i++) /* the first array lies in both files, the second in the latter */
        l->arrays[w->arrays[i]] = (struct pst_request_array){
            .rows = ROWS,
            .wanted_bytes = row_bytes,
            .rows_in = {.unit = row_bytes, .base = 4096, .first = w->files[i], .over = 2 - i}};
    l->transfer_bytes = TRANSFER;
    l->lba_shift = block == 512 ? 9 : 12;
    l->writable = true;
    l->staging = (char *)w->r.b.memory.base + SLOT;
    l->staging_each = staged;
    l->merge_bytes = staged + (uint32_t)rnd(TRANSFER - staged + 1);
    for (uint32_t i = 0; i < w->ssds; i++)
        l->staging_iova[i] = w->r.b.iova[i] + SLOT;
    w->slot = w->r.b.memory.base;
    w->table = (struct pst_request *)(void *)(w->slot + TABLE_AT);
    w->r.layout = l;
}

static void begin_any_world(struct world *w)
{
    static const uint64_t sizes[] = {512, 1024, 4096, 64, 100, 300, 400, 1000, 4, 5000};
    begin_world(w, sizes[rnd(sizeof sizes / sizeof sizes[0])], rnd(3) ? 512 : 4096, MOST, rnd(4) ? 8192 : 0,
                "");
}

/* Requests of places that do not overlap, for rows of which many are near each other, or the same. */
static uint32_t ask(struct world *w, uint32_t n)
{
    const uint64_t from = rnd(ROWS - 5), among = rnd(2) ? ROWS - 5 : 1 + rnd(100);
    uint64_t at = w->data_at;
    for (uint32_t i = 0; i < n; i++) {
        struct pst_request *r = &w->table[i];
        at += 4 * rnd(3) + (rnd(30) == 0);
        *r = (struct pst_request){.op = rnd(20) == 0 ? PST_REQUEST_WRITE : PST_REQUEST_READ,
                                  .array = (uint16_t)w->arrays[rnd(2)],
                                  .rows = rnd(4) ? 1 : 1 + (uint32_t)rnd(5),
                                  .row = (from + rnd(among)) % (ROWS - 5),
                                  .offset = at,
                                  .tag = i};
        if (at + r->rows * w->row_bytes > SLOT)
            return i;
        at += r->rows * w->row_bytes;
    }
    return n;
}

static void run_table(struct world *w, uint32_t batch, uint32_t n)
{
    static const struct pst_k_nvme_shape usual = {.submit_threads = 64, .complete_threads = 32};
    struct pst_k_nvme_table table = {.slot = w->slot, .slot_bytes = SLOT, .at = TABLE_AT, .n = n};
    struct pst_twin_n commands;
    memcpy(table.iova, w->r.b.iova, sizeof w->r.b.iova);
    memset(w->slot + w->data_at, CANARY, SLOT - w->data_at);
    assert_int_equal(cuda->nvme->aim_table(w->r.drive, batch, &table, &commands), PST_OK);
    assert_int_equal(cuda->nvme->submit(w->r.drive, batch, commands, &usual), PST_OK);
    assert_int_equal(cuda->nvme->complete(w->r.drive, batch, &usual, w->r.records, 9), PST_OK);
    settled(PST_OK);
    assert_true(w->r.records->sequence == 9);
}

/* Brought, byte for byte, or left, and nothing beside: which of the two, in is[0..n). */
static void check_bytes(struct world *w, uint32_t batch, uint32_t n, bool *is)
{
    static uint32_t left[MANY];
    const struct pst_k_nvme_record *record = w->r.records;
    uint64_t at = w->data_at, rows = 0;
    assert_int_equal(
        cuda->copy(queue, left, cuda->nvme->left(w->r.drive, batch), record->left * sizeof *left), PST_OK);
    settled(PST_OK);
    memset(is, 0, n * sizeof *is);
    for (uint32_t i = 0; i < record->left; i++) {
        assert_true(left[i] < n && !is[left[i]]);
        is[left[i]] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct pst_request *r = &w->table[i];
        const uint64_t bytes = r->rows * w->row_bytes;
        assert_true(untouched((uint8_t *)w->slot + at, r->offset - at));
        for (uint64_t k = 0; k < bytes; k++)
            assert_int_equal((uint8_t)w->slot[r->offset + k], is[i] ? CANARY : byte_of(w, r, k));
        rows += is[i] ? 0 : r->rows;
        at = r->offset + bytes;
    }
    assert_true(untouched((uint8_t *)w->slot + at, SLOT - at));
    assert_true(record->bad == 0 && record->rows == rows && record->wanted == rows * w->row_bytes);
}

/* Returns how many commands did not end well: what each was to bring is left, all of it. */
static uint32_t check_table(struct world *w, uint32_t batch, uint32_t n)
{
    static bool is[MANY], lost[MANY];
    const struct pst_k_nvme_record *record = w->r.records;
    uint32_t nleft = expected.nleft, nlost = 0;
    uint64_t copied = 0, merged = 0, bytes = expected.straight_bytes;
    check_bytes(w, batch, n, is);
    for (uint32_t i = 0; i < n; i++)
        assert_true(is[i] || !expected.left[i]);
    for (uint32_t i = 0; i < expected.staged; i++) {
        const struct wanted *each = &expected.wanted[i];
        const bool first = i == 0 || each->read != each[-1].read, gone = is[each->request];
        nleft += gone;
        if (first) {
            lost[each->read] = gone;
            nlost += gone;
            bytes += gone ? 0 : expected.read_bytes[each->read];
        }
        assert_int_equal(gone, lost[each->read]);
        copied += gone ? 0 : each->end - each->at;
        merged += !first && !gone;
    }
    assert_int_equal(record->n, expected.straight + expected.reads);
    assert_true(record->left == nleft && record->failed + record->late == nlost);
    assert_true(record->merged == merged && record->copied == copied && record->bytes == bytes);
    return nlost;
}

static void test_tables(void **state)
{
    (void)state;
    enum { EACH = 10 };
    uint64_t merged = 0;
    for (int done = 0; done < shapes(); done += EACH) {
        struct world w;
        begin_any_world(&w);
        rig_drive(&w.r, (enum pst_nvme_way)rnd(3), BATCHES, MOST, PATIENT);
        for (int i = 0; i < EACH && done + i < shapes(); i++) {
            const uint32_t n = ask(&w, 1 + (uint32_t)rnd(MOST)), batch = (uint32_t)rnd(BATCHES);
            if (n == 0)
                continue;
            expect(&w, n);
            run_table(&w, batch, n);
            assert_int_equal(check_table(&w, batch, n), 0);
            merged += w.r.records->merged;
        }
        rig_undrive(&w.r);
        rig_stop(&w.r);
    }
    assert_true(merged > 0 || shapes() < 100);
}

/* As many as the disk stage sends at once, of fewer rows, of which eight fill a block. */
static void test_large_table(void **state)
{
    (void)state;
    struct world w;
    begin_world(&w, 64, 512, MANY, 1024, "");
    rig_drive(&w.r, PST_NVME_ASYNC, 1, MANY, PATIENT);
    const uint32_t n = ask(&w, MANY);
    assert_true(n > MANY / 2);
    expect(&w, n);
    run_table(&w, 0, n);
    assert_int_equal(check_table(&w, 0, n), 0);
    assert_true(w.r.records->n < n / 8);
    rig_undrive(&w.r);
    rig_stop(&w.r);
}

/* Of a command that fails or is lost, all that it was to bring is left, and nothing else. */
static void test_shared_failures(void **state)
{
    (void)state;
    static const char *const faults[] = {"\"error_rate\": 0.2, \"reorder_us\": 300", "\"lost_rate\": 0.1"};
    for (int way = 0; way < 3; way++) {
        for (int lost = 0; lost < 2; lost++) {
            struct world w;
            uint32_t gone = 0;
            begin_world(&w, rnd(2) ? 64 : 400, 512, MOST, 1024, faults[lost]);
            rig_drive(&w.r, (enum pst_nvme_way)way, 1, MOST, lost ? IMPATIENT : PATIENT);
            for (int i = 0; i < (lost ? 1 : 5); i++) {
                const uint32_t n = ask(&w, MOST);
                expect(&w, n);
                run_table(&w, 0, n);
                gone += check_table(&w, 0, n);
            }
            assert_true(gone > 0 && (w.r.records->late > 0) == lost);
            rig_undrive(&w.r);
            for (uint32_t i = 0; i < w.ssds; i++)
                NEED(pst_nvme_reset(&w.r.b.c[i]));
            rig_stop(&w.r);
        }
    }
}

/* Of a table with a request that is wrong nothing is sent, and the first that is wrong is told; what is in
 * the batch next to it goes on. */
static void test_wrong_tables(void **state)
{
    (void)state;
    for (int staged = 0; staged < 2; staged++) {
        struct world w;
        begin_world(&w, staged ? 64 : 512, 512, MOST, 1024, "");
        rig_drive(&w.r, PST_NVME_ASYNC, BATCHES, MOST, PATIENT);
        for (int i = 0; i < 10; i++) {
            const uint32_t n = ask(&w, 2 + (uint32_t)rnd(MOST - 2));
            const uint32_t first = (uint32_t)rnd(n), second = first + (uint32_t)rnd(n - first);
            const struct pst_request kept[2] = {w.table[first], w.table[second]};
            w.table[second].row = ROWS;
            w.table[first].array = (uint16_t)w.missing;
            run_table(&w, 1, n);
            assert_true(w.r.records->bad == first + 1 && w.r.records->n == 0 && w.r.records->rows == 0);
            assert_true(w.r.records->merged == 0 && w.r.records->bytes == 0);
            assert_true(untouched((uint8_t *)w.slot + w.data_at, SLOT - w.data_at));
            w.table[second] = kept[1];
            w.table[first] = kept[0];
            expect(&w, n);
            run_table(&w, 0, n);
            assert_int_equal(check_table(&w, 0, n), 0);
        }
        rig_undrive(&w.r);
        rig_stop(&w.r);
    }
}

/* Once the host wants it no more, a command of seconds is not waited for, however patient the drive is; the
 * host then brings it to an end. */
static void test_stop(void **state)
{
    (void)state;
    static const struct pst_k_nvme_shape usual = {.submit_threads = 64, .complete_threads = 32, .warps = 4};
    struct rig r;
    uint32_t *stop = NULL;
    rig_start(&r,
              "{\"latency_us\": 10000000, \"spread\": 0, \"namespaces\": [{\"kind\": \"ram\", \"bytes\": "
              "1048576}]}",
              1, 1, 8, 2);
    assert_int_equal(cuda->alloc(0, PST_TWIN_MEMORY_PINNED, sizeof *stop, (void **)&stop, why), PST_OK);
    *stop = 1;
    r.stop = stop;
    for (int way = 0; way < 3; way++) {
        struct pst_nvme_settled did = {0};
        const double begun = seconds();
        rig_drive(&r, (enum pst_nvme_way)way, 1, 1, PATIENT);
        const volatile uint64_t *fetched = &pst_nvme_emulated_stats(&r.b.t[0])->fetched;
        const uint64_t before = *fetched;
        struct pst_nvme_io io = random_io(&r, 0, false, 0);
        put_ios(&r, 0, &io, 1);
        assert_int_equal(cuda->nvme->submit(r.drive, 0, (struct pst_twin_n){NULL, 1}, &usual), PST_OK);
        assert_int_equal(cuda->nvme->complete(r.drive, 0, &usual, r.records, 3), PST_OK);
        settled(PST_OK);
        assert_true(r.records->sequence == 3 && r.records->late == 1 && r.records->ended == 0);
        rig_undrive(&r);
        while (*fetched == before) /* a controller cannot abort what it has not seen */
            assert_true(seconds() - begun < 5);
        NEED(pst_nvme_settle(&r.b.c[0], PATIENT, &did));
        assert_true(r.b.c[0].io[1]->posted == r.b.c[0].io[1]->taken && did.resets == 0 && did.aborts == 1);
        assert_true(seconds() - begun < 5);
    }
    cuda->release(PST_TWIN_MEMORY_PINNED, stop);
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
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_large_table),
        cmocka_unit_test(test_shared_failures),
        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, setup, twin_teardown);
}
