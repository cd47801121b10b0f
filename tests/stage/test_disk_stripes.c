/* Rows in stripes: what the disk engine's backends bring, and what is read through the page cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/nvme/driver/dma.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/io/engine.h"
#include "tests/unit/programs.h"

enum { ROWS = 200, STRIPES = 3, REQUESTS = 40, WAIT_MS = 20000, NOTES = 4096 };

struct bench {
    uint64_t row_bytes;
    struct pst_array file[STRIPES];
};

static uint8_t byte_of(uint64_t row, uint64_t column)
{
    return (uint8_t)(row * 31 + column * 7 + (row >> 3));
}

static void make_files(struct bench *b, uint64_t row_bytes)
{
    const char *dir = getenv("TMPDIR"); /* /tmp is often a tmpfs, which has no direct I/O on older kernels */
    uint8_t *row = malloc(row_bytes > PST_PAGE ? row_bytes : PST_PAGE);
    memset(b, 0, sizeof *b);
    b->row_bytes = row_bytes;
    for (uint64_t k = 0; k < STRIPES; k++) {
        struct pst_array *a = &b->file[k];
        (void)snprintf(a->path, sizeof a->path, "%s/test_stripes_XXXXXX", dir ? dir : "/var/tmp");
        a->data_at = PST_PAGE;
        int fd = mkstemp(a->path);
        assert_true(fd >= 0);
        memset(row, 0, PST_PAGE);
        assert_int_equal(write(fd, row, PST_PAGE), PST_PAGE);
        for (uint64_t v = k; v < ROWS; v += STRIPES) {
            for (uint64_t c = 0; c < row_bytes; c++)
                row[c] = byte_of(v, c);
            assert_int_equal(write(fd, row, row_bytes), (ssize_t)row_bytes);
        }
        assert_int_equal(fsync(fd), 0);
        (void)close(fd);
    }
    free(row);
}

static void remove_files(struct bench *b)
{
    for (int k = 0; k < STRIPES; k++)
        (void)unlink(b->file[k].path);
}

static bool is_row(const struct bench *b, const void *at, uint64_t v)
{
    for (uint64_t c = 0; c < b->row_bytes; c++)
        if (((const uint8_t *)at)[c] != byte_of(v, c))
            return false;
    return true;
}

static void name_features(struct pst_disk_config *config, const struct bench *b)
{
    const char *paths[STRIPES];
    for (int k = 0; k < STRIPES; k++)
        paths[k] = b->file[k].path;
    pst_disk_config_add(config, PST_ARRAY_FEATURES, paths, STRIPES, PST_PAGE, ROWS, b->row_bytes,
                        b->row_bytes);
}

/* Requests of 1 to 9 rows, from all over. */
static void serve_from(const struct bench *b, const char *backend)
{
    const uint64_t rows_at = PST_PAGE, bytes = rows_at + pst_align_up(REQUESTS * 9 * b->row_bytes, PST_PAGE);
    struct pst_nvme_dma memory;
    assert_int_equal(pst_nvme_dma_new(&memory, NULL, bytes), PST_OK);
    const struct iovec region = {memory.base, memory.bytes};
    struct pst_disk_config config = {.backend = backend,
                                     .depth = 16,
                                     .threads = 3,
                                     .retries = 1,
                                     .direct = true,
                                     .coalesce_bytes = 8 << 10,
                                     .tables_max = 2,
                                     .regions = &region,
                                     .nregions = 1,
                                     .nvme = {.stack = "async",
                                              .preset = "none",
                                              .dilate = 1,
                                              .ssds = 2,
                                              .queues = 1,
                                              .lanes = 1,
                                              .timeout_ms = 5000},
                                     .faults = {.bad_file = -1}};
    name_features(&config, b);
    char *slot = memory.base, notes[NOTES];
    struct pst_request *table = memory.base;
    uint64_t at = rows_at, asked = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const uint32_t rows = 1 + i % 9;
        const uint64_t row = i == 0 ? ROWS - 1 : (uint64_t)i * 37 % (ROWS - 9);
        table[i] = (struct pst_request){.op = PST_REQUEST_READ,
                                        .array = PST_ARRAY_FEATURES,
                                        .rows = rows,
                                        .row = row,
                                        .offset = at,
                                        .tag = row};
        at += rows * b->row_bytes;
        asked += rows;
    }
    struct pst_disk *disk;
    struct pst_disk_ticket ticket = {0};
    assert_int_equal(pst_disk_new(&disk, &config, notes, sizeof notes), PST_OK);
    assert_int_equal(pst_disk_add(disk, &ticket, slot, bytes, 0, REQUESTS), PST_OK);
    assert_int_equal(pst_disk_wait(disk, WAIT_MS), PST_OK);
    assert_int_equal(pst_disk_stats(disk)->rows, asked);
    for (uint32_t i = 0; i < REQUESTS; i++)
        for (uint64_t k = 0; k < table[i].rows; k++)
            assert_true(is_row(b, slot + table[i].offset + k * b->row_bytes, table[i].row + k));
    pst_disk_free(disk);
    pst_nvme_dma_free(&memory);
}

static void every_backend_reads_stripes(void **state)
{
    (void)state;
    static const char *const backends[] = {"file", "pread", "mmap", "emulated"};
    static const uint64_t strides[] = {512, 4096, 400};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        struct bench b;
        make_files(&b, strides[i]);
        for (size_t k = 0; k < sizeof backends / sizeof backends[0]; k++)
            serve_from(&b, backends[k]);
        remove_files(&b);
    }
}

static void a_row_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    struct bench b;
    make_files(&b, 512);
    assert_int_equal(truncate(b.file[1].path, PST_PAGE), 0);
    struct pst_disk_config config = {.backend = "pread",
                                     .depth = 1,
                                     .threads = 1,
                                     .coalesce_bytes = 4096,
                                     .tables_max = 1,
                                     .faults = {.bad_file = -1}};
    name_features(&config, &b);
    static _Alignas(PST_PAGE) char slot[2 * PST_PAGE];
    char notes[NOTES];
    *(struct pst_request *)(void *)slot = (struct pst_request){.op = PST_REQUEST_READ,
                                                               .array = PST_ARRAY_FEATURES,
                                                               .rows = 1,
                                                               .row = 7,
                                                               .offset = PST_PAGE,
                                                               .tag = 7};
    struct pst_disk *disk;
    struct pst_disk_ticket ticket = {0};
    assert_int_equal(pst_disk_new(&disk, &config, notes, sizeof notes), PST_OK);
    assert_int_equal(pst_disk_add(disk, &ticket, slot, sizeof slot, 0, 1), PST_OK);
    assert_int_equal(pst_disk_wait(disk, WAIT_MS), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "the features of vertex 7"));
    assert_non_null(strstr(pst_error_text(), b.file[1].path));
    pst_disk_free(disk);
    remove_files(&b);
}

static void any_rows_through_the_page_cache(void **state)
{
    (void)state;
    struct bench b;
    struct pst_row_files open;
    make_files(&b, 24);
    char *out = malloc((ROWS + 1) * b.row_bytes);
    assert_int_equal(pst_row_files_open(&open, b.file, STRIPES, b.row_bytes), PST_OK);
    for (int64_t first = 0; first < ROWS; first += first < 10 ? 1 : 13)
        for (int64_t n = 0; n <= ROWS - first; n += n < 10 ? 1 : 17) {
            memset(out, 0xee, (ROWS + 1) * b.row_bytes);
            assert_int_equal(pst_row_files_read(&open, first, n, out), PST_OK);
            pst_row_files_advise(&open, first, n, 0);
            for (int64_t i = 0; i < n; i++)
                assert_true(is_row(&b, out + (uint64_t)i * b.row_bytes, (uint64_t)(first + i)));
            assert_int_equal((uint8_t)out[(uint64_t)n * b.row_bytes], 0xee);
        }
    assert_int_equal(truncate(b.file[2].path, PST_PAGE + 10), 0);
    assert_int_equal(pst_row_files_read(&open, 0, 3, out), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), b.file[2].path));
    pst_row_files_close(&open);
    (void)unlink(b.file[1].path);
    assert_int_equal(pst_row_files_open(&open, b.file, STRIPES, b.row_bytes), PST_E_IO);
    assert_int_equal(open.files, 0);
    free(out);
    remove_files(&b);
}

int main(void)
{
    find_programs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_backend_reads_stripes),
        cmocka_unit_test(a_row_that_cannot_be_read_is_named),
        cmocka_unit_test(any_rows_through_the_page_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
