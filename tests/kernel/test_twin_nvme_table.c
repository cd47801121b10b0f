/* Tables of disk requests that a kernel takes as they stand (kernels/nvme.h), against emulated controllers
 * whose content is a function of the address: each request is brought, byte for byte and nothing beside it,
 * or left, and which of the two follows from the layout alone. */
#include "twin_nvme.h"

enum {
    MOST = 200,
    SSDS = 3,
    ROWS = 5000,
    SLOT = 1 << 20,
    TABLE_AT = 64, /* of the slot */
    DATA_AT = MOST * 32 + 4096,
    STAGED = 1 << 13, /* bytes of a request's staging */
    TRANSFER = 16384,
};

struct world {
    struct rig r;
    struct pst_nvme_layout layout;
    uint64_t row_bytes;
    uint32_t ssds;
    char *slot;
    struct pst_request *table;
};

static uint8_t byte_of(const struct world *w, const struct pst_request *r, uint64_t k)
{
    const struct pst_nvme_array *a = &w->layout.arrays[r->array];
    const uint64_t row = r->row + k / w->row_bytes;
    const struct pst_nvme_file *f = &w->layout.files[a->file[row % a->stripes]];
    const uint64_t at = a->data_at + row / a->stripes * w->row_bytes + k % w->row_bytes - f->from;
    const uint64_t unit = at / f->unit, byte = f->base + unit / w->ssds * f->unit + at % f->unit;
    const uint64_t word = pst_nvme_pattern((uint32_t)(unit % w->ssds), f->nsid, byte & ~7ull);
    return (uint8_t)(word >> 8 * (byte & 7));
}

/* What one command cannot bring. */
static bool is_left(const struct world *w, const struct pst_request *r)
{
    const struct pst_nvme_array *a = &w->layout.arrays[r->array];
    const struct pst_nvme_file *f = &w->layout.files[a->file[r->row % a->stripes]];
    const uint64_t at = a->data_at + r->row / a->stripes * w->row_bytes - f->from;
    const uint64_t bytes = r->rows * w->row_bytes;
    if (r->op == PST_WRITE || (a->stripes > 1 && r->rows > 1) ||
        (w->ssds > 1 && at / f->unit != (at + bytes - 1) / f->unit))
        return true;
    const uint64_t in_block = (f->base + at % f->unit + at / f->unit / w->ssds * f->unit) % LBA;
    const uint64_t blocks = (in_block + bytes + LBA - 1) / LBA * LBA;
    const bool straight = in_block == 0 && bytes % LBA == 0 && r->offset % 4 == 0;
    return blocks > TRANSFER || (!straight && blocks > w->layout.staging_each);
}

static void begin_world(struct world *w)
{
    static const uint64_t sizes[] = {512, 1024, 4096, 100, 300, 1000, 4, 5000};
    memset(w, 0, sizeof *w);
    w->row_bytes = sizes[rnd(sizeof sizes / sizeof sizes[0])];
    w->ssds = 1 + (uint32_t)rnd(SSDS);
    rig_start(
        &w->r,
        "{\"ssds\": 3, \"transfer_bytes\": 16384, \"namespaces\": [{\"kind\": \"function\", \"blocks\": "
        "35184372088832}, {\"kind\": \"function\", \"blocks\": 35184372088832}]}",
        w->ssds, 2, 8u << rnd(4), (SLOT + MOST * STAGED) / PLACE + 1);
    struct pst_nvme_layout *l = &w->layout;
    uint64_t group = 1;
    while (group * w->row_bytes % LBA != 0)
        group++;
    for (uint32_t i = 0; i < 2; i++)
        l->files[i] = (struct pst_nvme_file){
            .from = 4096, .unit = group * w->row_bytes, .base = LBA * rnd((uint64_t)1 << 40), .nsid = i + 1};
    for (uint32_t i = 0; i < PST_NVME_ARRAYS; i++) /* one in two files, one in the second, one there is not */
        l->arrays[i] = (struct pst_nvme_array){.data_at = 4096,
                                               .row_bytes = w->row_bytes,
                                               .wanted_bytes = w->row_bytes,
                                               .rows = i == 2 ? 0 : ROWS,
                                               .stripes = i == 0 ? 2 : 1,
                                               .file = {i == 0 ? 0 : 1, 1}};
    l->transfer_bytes = TRANSFER;
    l->lba_shift = 9;
    l->writable = true;
    l->staging = (char *)w->r.b.memory.base + SLOT;
    l->staging_each = rnd(4) ? STAGED : 0;
    for (uint32_t i = 0; i < w->ssds; i++)
        l->staging_iova[i] = w->r.b.iova[i] + SLOT;
    w->slot = w->r.b.memory.base;
    w->table = (struct pst_request *)(void *)(w->slot + TABLE_AT);
    w->r.layout = l;
}

/* Requests of places that do not overlap. */
static uint32_t ask(struct world *w)
{
    const uint32_t n = 1 + (uint32_t)rnd(MOST);
    uint64_t at = DATA_AT;
    for (uint32_t i = 0; i < n; i++) {
        struct pst_request *r = &w->table[i];
        at += 4 * rnd(3) + (rnd(30) == 0);
        *r = (struct pst_request){.op = rnd(20) == 0 ? PST_WRITE : PST_READ,
                                  .array = (uint16_t)rnd(2),
                                  .rows = rnd(4) ? 1 : 1 + (uint32_t)rnd(5),
                                  .row = rnd(ROWS - 5),
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
    static const struct pst_nvme_shape usual = {.submit_threads = 64, .complete_threads = 32};
    struct pst_nvme_table table = {.slot = w->slot, .slot_bytes = SLOT, .at = TABLE_AT, .n = n};
    struct pst_n commands;
    memcpy(table.iova, w->r.b.iova, sizeof w->r.b.iova);
    memset(w->slot + DATA_AT, CANARY, SLOT - DATA_AT);
    assert_int_equal(cuda->nvme->aim_table(w->r.drive, batch, &table, &commands), PST_OK);
    assert_int_equal(cuda->nvme->submit(w->r.drive, batch, commands, &usual), PST_OK);
    assert_int_equal(cuda->nvme->complete(w->r.drive, batch, &usual, w->r.records, 9), PST_OK);
    settled(PST_OK);
    assert_true(w->r.records->sequence == 9 && w->r.records->late == 0 && w->r.records->failed == 0);
}

static void check_table(struct world *w, uint32_t batch, uint32_t n)
{
    const struct pst_nvme_record *record = w->r.records;
    uint32_t left[MOST], expected = 0;
    bool is[MOST] = {false};
    uint64_t rows = 0, at = DATA_AT;
    assert_int_equal(
        cuda->copy(queue, left, cuda->nvme->left(w->r.drive, batch), record->left * sizeof *left), PST_OK);
    settled(PST_OK);
    for (uint32_t i = 0; i < record->left; i++) {
        assert_true(left[i] < n && !is[left[i]]);
        is[left[i]] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct pst_request *r = &w->table[i];
        const uint64_t bytes = r->rows * w->row_bytes;
        assert_int_equal(is[i], is_left(w, r));
        assert_true(untouched((uint8_t *)w->slot + at, r->offset - at));
        for (uint64_t k = 0; k < bytes; k++)
            assert_int_equal((uint8_t)w->slot[r->offset + k], is[i] ? CANARY : byte_of(w, r, k));
        rows += is[i] ? 0 : r->rows;
        expected += is[i];
        at = r->offset + bytes;
    }
    assert_true(untouched((uint8_t *)w->slot + at, SLOT - at));
    assert_true(record->left == expected && record->n == n - expected && record->bad == 0);
    assert_true(record->rows == rows && record->wanted == rows * w->row_bytes &&
                record->bytes >= record->wanted);
}

static void test_tables(void **state)
{
    (void)state;
    enum { EACH = 10 };
    for (int done = 0; done < shapes(); done += EACH) {
        struct world w;
        begin_world(&w);
        rig_drive(&w.r, (enum pst_nvme_way)rnd(3), 1, MOST, PATIENT);
        for (int i = 0; i < EACH && done + i < shapes(); i++) {
            const uint32_t n = ask(&w);
            if (n == 0)
                continue;
            run_table(&w, 0, n);
            check_table(&w, 0, n);
        }
        rig_undrive(&w.r);
        rig_stop(&w.r);
    }
}

/* Of a table with a request that is wrong nothing is sent, and the first that is wrong is told; what is in
 * the batch next to it goes on. */
static void test_wrong_tables(void **state)
{
    (void)state;
    struct world w;
    begin_world(&w);
    rig_drive(&w.r, PST_NVME_WAY_ASYNC, 2, MOST, PATIENT);
    for (int i = 0; i < 20; i++) {
        uint32_t n;
        while ((n = ask(&w)) < 2)
            ;
        const uint32_t first = (uint32_t)rnd(n), second = first + (uint32_t)rnd(n - first);
        const struct pst_request kept[2] = {w.table[first], w.table[second]};
        w.table[second].row = ROWS;
        w.table[first].array = 2; /* which there is not */
        run_table(&w, 1, n);
        assert_true(w.r.records->bad == first + 1 && w.r.records->n == 0 && w.r.records->rows == 0);
        assert_true(untouched((uint8_t *)w.slot + DATA_AT, SLOT - DATA_AT));
        w.table[second] = kept[1];
        w.table[first] = kept[0];
        run_table(&w, 0, n);
        check_table(&w, 0, n);
    }
    rig_undrive(&w.r);
    rig_stop(&w.r);
}

/* Once the host wants it no more, a command of seconds is not waited for, however patient the drive is; the
 * host then brings it to an end. */
static void test_stop(void **state)
{
    (void)state;
    static const struct pst_nvme_shape usual = {.submit_threads = 64, .complete_threads = 32, .warps = 4};
    struct rig r;
    uint32_t *stop = NULL;
    rig_start(&r,
              "{\"latency_us\": 10000000, \"spread\": 0, \"namespaces\": [{\"kind\": \"ram\", \"bytes\": "
              "1048576}]}",
              1, 1, 8, 2);
    assert_int_equal(cuda->alloc(0, PST_MEMORY_PINNED, sizeof *stop, (void **)&stop, why), PST_OK);
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
        assert_int_equal(cuda->nvme->submit(r.drive, 0, (struct pst_n){NULL, 1}, &usual), PST_OK);
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
    cuda->release(PST_MEMORY_PINNED, stop);
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
        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, setup, twin_teardown);
}
