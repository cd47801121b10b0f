/* The disk's engine against generated files: every backend, aligned and unaligned rows, merging, faults. */
#include <poll.h>

#include "common/nvme/stack/stack.h"
#include "tests/stage/disk_bench.h"

static const char *const backends[] = {"file", "pread", "mmap", "emulated"};
static const uint64_t strides[] = {512, 4096, 400, 1000, 12, 4100};
#define BACKENDS (sizeof backends / sizeof backends[0])
#define STRIDES (sizeof strides / sizeof strides[0])

/* ---- reading ------------------------------------------------------------------------------------- */

static void reads_are_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            for (int depth = 1; depth <= 128; depth += 127) {
                struct bench b;
                setup(&b, backends[i], strides[s]);
                b.config.depth = depth;
                start(&b);
                ask_scattered(&b, depth == 1 ? 150 : 800);
                must_serve(&b);
                const struct pst_disk_stats *st = pst_disk_stats(b.disk);
                assert_int_equal(st->rows, b.count);
                assert_int_equal(st->row_bytes_wanted, (uint64_t)b.count * strides[s]);
                assert_true(st->bytes >= (strides[s] % 512 == 0 ? st->row_bytes_wanted : 1));
                assert_true(st->active_s > 0); /* also if one call served all */
                assert_true(st->in_flight_s >= st->active_s);
                assert_int_equal(st->retries, 0);
                assert_string_equal(pst_disk_backend(b.disk), backends[i]);
                teardown(&b);
            }
        }
    }
}

static void aligned_rows_are_not_copied(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "file", 4096);
    start(&b);
    if (!pst_disk_direct(b.disk)) {
        print_message("skipped: %s\n", b.notes);
        teardown(&b);
        skip();
    }
    ask_scattered(&b, 500);
    must_serve(&b);
    assert_int_equal(pst_disk_stats(b.disk)->copied_bytes, 0);
    assert_int_equal(pst_disk_stats(b.disk)->bytes, 500 * 4096);
    teardown(&b);
    setup(&b, "pread", 400);
    start(&b);
    ask_scattered(&b, 500);
    must_serve(&b);
    assert_int_equal(pst_disk_stats(b.disk)->copied_bytes, 500 * 400);
    teardown(&b);
}

static void neighbours_are_merged(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "file", 512);
    start(&b);
    for (int i = 0; i < 1024; i++) /* backwards, and into places that are not in order */
        ask(&b, (uint64_t)(1023 - i), 1, (uint64_t)(i * 7 % 1024));
    must_serve(&b);
    const struct pst_disk_stats *st = pst_disk_stats(b.disk);
    assert_int_equal(st->requests, 1024 * 512 / (64 << 10));
    assert_int_equal(st->merged, 1024 - st->requests);
    assert_int_equal(st->bytes, 1024 * 512);
    teardown(&b);

    /* rows that share a block share the read */
    setup(&b, "file", 100);
    start(&b);
    for (int i = 0; i < 40; i++)
        ask(&b, (uint64_t)i, 1, (uint64_t)(39 - i));
    must_serve(&b);
    assert_int_equal(pst_disk_stats(b.disk)->requests, 1);
    assert_true(pst_disk_stats(b.disk)->bytes <= 8192);
    teardown(&b);

    /* without merging: one operation a row */
    setup(&b, "file", 4096);
    b.config.coalesce_bytes = 4096;
    start(&b);
    for (int i = 0; i < 64; i++)
        ask(&b, (uint64_t)i, 1, (uint64_t)i);
    must_serve(&b);
    assert_int_equal(pst_disk_stats(b.disk)->requests, 64);
    assert_int_equal(pst_disk_stats(b.disk)->merged, 0);
    teardown(&b);
}

static void gaps_are_read_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            struct bench b;
            setup(&b, backends[i], strides[s]);
            b.config.gap_bytes = 3 * strides[s] + 600;
            b.config.faults.short_rate = 0.2;
            b.config.retries = 20;
            start(&b);
            for (int k = 0; k < 400; k++)
                ask(&b, (uint64_t)(k / 3 * 7 + k % 3 * 2), 1, (uint64_t)(399 - k));
            must_serve(&b);
            teardown(&b);
        }
    }
    struct bench b;
    for (int gap = 0; gap <= 1; gap++) { /* every other of 101 rows: one operation, or 51 */
        setup(&b, "file", 512);
        b.config.gap_bytes = gap ? 512 : 511;
        start(&b);
        for (int k = 0; k <= 100; k += 2)
            ask(&b, (uint64_t)k, 1, (uint64_t)k);
        must_serve(&b);
        assert_int_equal(pst_disk_stats(b.disk)->requests, gap ? 1 : 51);
        assert_int_equal(pst_disk_stats(b.disk)->bytes, (gap ? 101 : 51) * 512);
        assert_int_equal(pst_disk_stats(b.disk)->row_bytes_wanted, 51 * 512);
        teardown(&b);
    }
}

static void large_requests_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            struct bench b;
            setup(&b, backends[i], strides[s]);
            b.config.coalesce_bytes = 10000;
            start(&b);
            ask(&b, 3, ROWS - 3, 1);
            must_serve(&b);
            assert_int_equal(pst_disk_stats(b.disk)->rows, ROWS - 3);
            teardown(&b);
        }
    }
}

static void the_same_row_may_be_asked_twice(void **state)
{
    (void)state;
    for (size_t s = 0; s < 3; s++) {
        struct bench b;
        setup(&b, "file", strides[s]);
        start(&b);
        for (int i = 0; i < 20; i++)
            ask(&b, (uint64_t)(i / 2), 1, (uint64_t)i);
        must_serve(&b);
        teardown(&b);
    }
}

static void misaligned_memory_is_staged(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "file", 512);
    b.rows_at += 4; /* rows are sector multiples, their places in the slot are not */
    start(&b);
    ask_scattered(&b, 200);
    must_serve(&b);
    teardown(&b);
}

static void many_tables_at_once(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "file", 512);
    start(&b);
    ask_scattered(&b, 800);
    struct pst_disk_ticket tickets[4] = {{0}, {0}, {0}, {0}};
    for (uint64_t t = 0; t < 8; t++)
        assert_int_equal(pst_disk_add(b.disk, &tickets[t / 2], b.slot, b.slot_bytes,
                                      t * 100 * sizeof(struct pst_request), 100),
                         PST_OK);
    assert_int_equal(pst_disk_add(b.disk, &tickets[0], b.slot, b.slot_bytes, 0, 1), PST_E_LIMIT);
    assert_false(pst_disk_idle(&tickets[3]));
    assert_int_equal(pst_disk_wait(b.disk, WAIT_MS), PST_OK);
    for (int t = 0; t < 4; t++)
        assert_true(pst_disk_idle(&tickets[t]));
    assert_int_equal(wrong_rows(&b), 0);
    teardown(&b);
}

static void slots_may_be_registered(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "file", 4096);
    const struct iovec region = {b.slot, b.slot_bytes};
    b.config.regions = &region;
    b.config.nregions = 1;
    start(&b);
    ask_scattered(&b, 1000);
    must_serve(&b);
    teardown(&b);
}

static void buffered_when_asked(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        setup(&b, backends[i], 1000);
        b.config.direct = false;
        start(&b);
        assert_false(pst_disk_direct(b.disk));
        ask_scattered(&b, 1000);
        must_serve(&b);
        teardown(&b);
    }
}

static void auto_says_what_it_is(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "auto", 512);
    start(&b);
    bool file = strcmp(pst_disk_backend(b.disk), "file") == 0;
    assert_true(file || strstr(b.notes, "instead of") != NULL);
    teardown(&b);
    setup(&b, "floppy", 512);
    assert_int_equal(pst_disk_new(&b.disk, &b.config, b.notes, sizeof b.notes), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "floppy"));
    assert_null(b.disk);
    teardown(&b);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void writes_are_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            struct bench b;
            if (strcmp(backends[i], "emulated") == 0 && strides[s] % 512 != 0)
                continue; /* drives write whole blocks */
            setup(&b, backends[i], strides[s]);
            b.config.writable = true;
            start(&b);
            for (int k = 0; k < 200; k++) {
                ask(&b, (uint64_t)k * 13, 1, (uint64_t)k);
                b.table[k].op = PST_REQUEST_WRITE;
                memset(b.slot + b.table[k].offset, k + 1, b.row_bytes);
            }
            assert_int_equal(serve(&b), PST_OK);
            memset(b.slot + b.rows_at, 0, 300 * b.row_bytes);
            for (int k = 0; k < 200; k++)
                b.table[k].op = PST_REQUEST_READ;
            ask(&b, 1, 1, 250); /* between two that were written */
            assert_int_equal(serve(&b), PST_OK);
            for (int k = 0; k < 200; k++)
                for (uint64_t c = 0; c < b.row_bytes; c++)
                    assert_int_equal((uint8_t)b.slot[b.table[k].offset + c], k + 1);
            for (uint64_t c = 0; c < b.row_bytes; c++)
                assert_int_equal((uint8_t)b.slot[b.table[200].offset + c], byte_of(1, c));
            teardown(&b);
        }
    }
}

/* ---- faults -------------------------------------------------------------------------------------- */

static void faults_are_survived(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < STRIDES; s++) {
            struct bench b;
            setup(&b, backends[i], strides[s]);
            b.config.faults.error_rate = 0.1;
            b.config.faults.short_rate = 0.1;
            b.config.retries = 8;
            b.config.coalesce_bytes = 16 << 10;
            start(&b);
            ask_scattered(&b, 600);
            must_serve(&b);
            assert_true(pst_disk_stats(b.disk)->retries > 0);
            teardown(&b);
        }
    }
}

static void late_completions_are_waited_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        struct bench b;
        setup(&b, backends[i], 4096);
        b.config.faults.delay_us = 2000;
        b.config.coalesce_bytes = 4096;
        start(&b);
        ask_scattered(&b, 100);
        int64_t begin = pst_clock_ms();
        must_serve(&b);
        assert_true(pst_clock_ms() - begin >= 6); /* four waves of 32 */
        struct pst_io_driven driven;
        if (pst_disk_driven(b.disk, &driven)) /* of the backend that the faults are around */
            assert_int_equal(driven.cpu_commands, pst_disk_stats(b.disk)->requests);
        teardown(&b);
    }
}

/* A backend over the bench's file, without an engine. */
static void choose(const struct bench *b, const char *name, struct pst_io_backend *backend,
                   struct pst_io_file *file)
{
    char notes[PST_IO_NOTE_BYTES] = "";
    const char *paths[] = {b->path};
    const struct pst_io_config config = {
        .files = file, .nfiles = 1, .depth = 4, .threads = 1, .faults = {.bad_file = -1}};
    assert_int_equal(pst_io_choose(backend, &config, name, paths, true, false, notes, sizeof notes), PST_OK);
}

/* With nothing in flight; a longer wait before leaves the next one as short as it should be. */
static void waits_end(void **state)
{
    static const int ms[] = {30, 1, 300, 10, 10, 400};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        struct pst_io_backend backend;
        struct pst_io_file file = {0};
        setup(&b, backends[i], 4096);
        choose(&b, backends[i], &backend, &file);
        for (size_t k = 0; k < sizeof ms / sizeof ms[0]; k++) {
            const int64_t begin = pst_clock_ms();
            assert_int_equal(pst_io_wait(&backend, ms[k]), PST_OK);
            assert_true(pst_clock_ms() - begin <= ms[k] + 200);
        }
        backend.ops->close(&backend);
        pst_io_files_close(&file, 1);
        teardown(&b);
    }
}

/* Who begins to watch when all has ended hears of it. */
static void what_ended_unwatched_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        struct pst_io_backend backend;
        struct pst_io_file file = {0};
        struct pst_io_op *done[1];
        int fds[PST_IO_FDS_MAX];
        struct pollfd watched[PST_IO_FDS_MAX];
        setup(&b, backends[i], 4096);
        choose(&b, backends[i], &backend, &file);
        struct iovec iov = {b.slot, 4096};
        struct pst_io_op op = {.direct = file.direct >= 0, .iov = &iov, .niov = 1, .bytes = 4096};
        backend.ops->post(&backend, &op);
        assert_int_equal(backend.ops->ring(&backend), PST_OK);
        (void)poll(NULL, 0, 50);
        const int n = backend.ops->fds(&backend, fds);
        for (int k = 0; k < n; k++)
            watched[k] = (struct pollfd){.fd = fds[k], .events = POLLIN};
        assert_true(n == 0 || poll(watched, (nfds_t)n, 5000) > 0);
        int ended =
            0; /* a descriptor may say so a moment early, and a busy machine may need more than 50 ms */
        for (const int64_t begin = pst_clock_ms(); ended == 0 && pst_clock_ms() - begin < 5000;)
            ended = (int)backend.ops->poll(&backend, done, 1);
        assert_int_equal(ended, 1);
        assert_ptr_equal(done[0], &op);
        backend.ops->close(&backend);
        pst_io_files_close(&file, 1);
        teardown(&b);
    }
}

static void a_bad_row_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < BACKENDS; i++) {
        for (size_t s = 0; s < 3; s++) {
            struct bench b;
            setup(&b, backends[i], strides[s] == 400 ? 8192 : strides[s]);
            b.config.faults.bad_file = 0;
            b.config.faults.bad_at = PST_PAGE + 77 * b.row_bytes;
            b.config.faults.bad_bytes = b.row_bytes;
            start(&b);
            for (int k = 0; k < 100; k++) /* merged with its neighbours */
                ask(&b, (uint64_t)k + 50, 1, (uint64_t)k);
            assert_int_equal(serve(&b), PST_E_IO);
            assert_non_null(strstr(pst_error_text(), "vertex 77 "));
            assert_non_null(strstr(pst_error_text(), b.path));
            assert_int_equal(pst_disk_pump(b.disk), PST_E_IO); /* final */
            teardown(&b);
        }
    }
}

static void a_file_that_shrank_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct bench b;
        setup(&b, backends[i], 1000);
        start(&b);
        assert_int_equal(truncate(b.path, PST_PAGE + 1000 * 100 + 500), 0);
        for (int k = 90; k < 110; k++)
            ask(&b, (uint64_t)k, 1, (uint64_t)k);
        assert_int_equal(serve(&b), PST_E_IO);
        assert_non_null(strstr(pst_error_text(), "ends before"));
        teardown(&b);
    }
}

/* ---- what other processes may send --------------------------------------------------------------- */

static void refuse(struct pst_request bad, const char *word)
{
    struct bench b;
    setup(&b, "pread", 512);
    start(&b);
    ask_scattered(&b, 10);
    b.table[5] = bad;
    char *before = malloc(b.slot_bytes);
    memcpy(before, b.slot, b.slot_bytes);
    pst_rc rc = serve(&b);
    assert_true(rc == PST_E_FORMAT || rc == PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "request 5"));
    assert_non_null(strstr(pst_error_text(), word));
    assert_memory_equal(before, b.slot, b.slot_bytes);
    free(before);
    teardown(&b);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    for_bad_requests(refuse);
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    struct bench b;
    setup(&b, "pread", 512);
    start(&b);
    struct pst_disk_ticket t = {0};
    const uint64_t bad[][2] = {{b.slot_bytes, 1},   {b.slot_bytes - 31, 1}, {4, 1},
                               {UINT64_MAX - 7, 2}, {0, UINT64_MAX},        {0, b.slot_bytes / 32 + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(pst_disk_add(b.disk, &t, b.slot, b.slot_bytes, bad[i][0], bad[i][1]), PST_E_FORMAT);
    assert_int_equal(pst_disk_add(b.disk, &t, b.slot, b.slot_bytes, 0, 0), PST_OK);
    assert_true(pst_disk_idle(&t));
    teardown(&b);
}

static void every_name_has_what_it_names(void **state)
{
    (void)state;
    static const struct pst_io_backend_ops *const all[] = {
        &pst_io_uring_ops, &pst_io_pread_ops, &pst_io_mmap_ops, &pst_io_nvme_ops, &pst_io_emulated_ops};
    enum pst_nvme_way way;
    char names[] = PST_IO_BACKEND_NAMES, ways[] = PST_IO_STACK_NAMES, *save;
    size_t n = 0;
    for (const char *at = strtok_r(names, "|", &save); at != NULL; at = strtok_r(NULL, "|", &save), n++) {
        assert_true(n < sizeof all / sizeof all[0] && pst_io_backend_named(at) == all[n]);
        assert_string_equal(all[n]->name, at);
    }
    assert_int_equal(n, sizeof all / sizeof all[0]);
    assert_null(pst_io_backend_named("file|pread"));
    assert_non_null(strstr(pst_error_text(), "expected auto|" PST_IO_BACKEND_NAMES));
    n = 0;
    for (const char *at = strtok_r(ways, "|", &save); at != NULL; at = strtok_r(NULL, "|", &save), n++)
        assert_true(pst_nvme_way_named(at, &way) == PST_OK && way == (enum pst_nvme_way)n);
    assert_int_equal(n, PST_NVME_BATCH + 1);
    assert_int_equal(pst_nvme_way_named("asyn", &way), PST_E_ARG);
    assert_int_equal(pst_nvme_way_named("", &way), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "expected " PST_IO_STACK_NAMES));
}

int main(void)
{
    find_programs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_right),
        cmocka_unit_test(aligned_rows_are_not_copied),
        cmocka_unit_test(neighbours_are_merged),
        cmocka_unit_test(gaps_are_read_over),
        cmocka_unit_test(large_requests_are_cut),
        cmocka_unit_test(the_same_row_may_be_asked_twice),
        cmocka_unit_test(misaligned_memory_is_staged),
        cmocka_unit_test(many_tables_at_once),
        cmocka_unit_test(slots_may_be_registered),
        cmocka_unit_test(buffered_when_asked),
        cmocka_unit_test(auto_says_what_it_is),
        cmocka_unit_test(writes_are_read_back),
        cmocka_unit_test(faults_are_survived),
        cmocka_unit_test(late_completions_are_waited_for),
        cmocka_unit_test(waits_end),
        cmocka_unit_test(what_ended_unwatched_is_told),
        cmocka_unit_test(a_bad_row_is_named),
        cmocka_unit_test(a_file_that_shrank_is_an_error),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(every_name_has_what_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
