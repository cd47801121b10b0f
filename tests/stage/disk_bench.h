/* disk_bench.h: the disk's engine over a generated file, and requests whose every byte is known. Used by
 * test_disk_engine.c and device_disk.h. Included once by each. */
#ifndef DISK_BENCH_H
#define DISK_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/driver/dma.h"
#include "common/util/clock.h"
#include "stages/lib/io/engine_impl.h"
#include "stages/lib/io/pieces.h"
#include "tests/unit/programs.h"

#define ROWS 4000 /* of the file, and requests at most, unless setup_rows says otherwise */
#define WAIT_MS 20000
#define NOTES 4096

struct bench {
    char path[256];
    uint64_t row_bytes, rows;
    struct pst_disk_config config;
    struct pst_disk *disk;
    char notes[NOTES];
    struct pst_nvme_dma memory; /* the slot's: drives must be able to reach it */
    struct iovec region;
    char *slot;
    uint64_t slot_bytes;
    struct pst_request *table; /* at byte 0 of the slot */
    uint64_t rows_at;          /* of the slot's rows */
    int count;
};

static inline uint8_t byte_of(uint64_t row, uint64_t column)
{
    uint64_t z = row * 0x9e3779b97f4a7c15ull + column * 0xbf58476d1ce4e5b9ull;
    return (uint8_t)(z >> 32 ^ z >> 17);
}

static inline void make_file(struct bench *b)
{
    const char *dir = getenv("TMPDIR"); /* /tmp is often a tmpfs, which has no direct I/O on older kernels */
    (void)snprintf(b->path, sizeof b->path, "%s/test_disk_XXXXXX", dir ? dir : "/var/tmp");
    int fd = mkstemp(b->path);
    assert_true(fd >= 0);
    uint64_t bytes = PST_PAGE + b->rows * b->row_bytes;
    uint8_t *data = calloc(1, bytes);
    for (uint64_t r = 0; r < b->rows; r++)
        for (uint64_t c = 0; c < b->row_bytes; c++)
            data[PST_PAGE + r * b->row_bytes + c] = byte_of(r, c);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    assert_int_equal(fsync(fd), 0);
    free(data);
    (void)close(fd);
}

static inline void setup_rows(struct bench *b, const char *backend, uint64_t row_bytes, uint64_t rows)
{
    memset(b, 0, sizeof *b);
    b->row_bytes = row_bytes;
    b->rows = rows;
    make_file(b);
    b->rows_at = pst_align_up(ROWS * sizeof(struct pst_request), PST_PAGE);
    b->slot_bytes = b->rows_at + pst_align_up(rows * row_bytes, PST_PAGE);
    assert_int_equal(pst_nvme_dma_new(&b->memory, NULL, b->slot_bytes), PST_OK);
    b->slot = b->memory.base;
    b->region = (struct iovec){b->memory.base, b->memory.bytes};
    memset(b->slot, 0x11, b->slot_bytes);
    b->table = (struct pst_request *)(void *)b->slot;
    b->config = (struct pst_disk_config){.backend = backend,
                                         .depth = 32,
                                         .threads = 4,
                                         .retries = 3,
                                         .direct = true,
                                         .coalesce_bytes = 64 << 10,
                                         .tables_max = 8,
                                         .regions = &b->region,
                                         .nregions = 1,
                                         .nvme = {.stack = "async",
                                                  .preset = "none",
                                                  .dilate = 1,
                                                  .ssds = 3,
                                                  .queues = 2,
                                                  .lanes = 1,
                                                  .timeout_ms = 5000},
                                         .faults = {.bad_file = -1, .seed = 7}};
    pst_disk_config_add(&b->config, PST_ARRAY_FEATURES, (const char *const[]){b->path}, 1, PST_PAGE, rows,
                        row_bytes, row_bytes);
}

static inline void setup(struct bench *b, const char *backend, uint64_t row_bytes)
{
    setup_rows(b, backend, row_bytes, ROWS);
}

static inline void start(struct bench *b)
{
    pst_rc rc = pst_disk_new(&b->disk, &b->config, b->notes, sizeof b->notes);
    if (rc != PST_OK)
        print_error("%s\n", pst_error_text());
    assert_int_equal(rc, PST_OK);
}

static inline void teardown(struct bench *b)
{
    pst_disk_free(b->disk);
    (void)unlink(b->path);
    pst_nvme_dma_free(&b->memory);
}

static inline void ask(struct bench *b, uint64_t row, uint32_t rows, uint64_t place)
{
    b->table[b->count++] = (struct pst_request){.op = PST_REQUEST_READ,
                                                .array = PST_ARRAY_FEATURES,
                                                .rows = rows,
                                                .row = row,
                                                .offset = b->rows_at + place * b->row_bytes,
                                                .tag = row};
}

/* `n` distinct rows in an order that is not the file's. */
static inline void ask_scattered(struct bench *b, int n)
{
    for (int i = 0; i < n; i++)
        ask(b, (uint64_t)i * 1237 % b->rows, 1, (uint64_t)i);
}

static inline int wrong_rows(const struct bench *b)
{
    int wrong = 0;
    for (int i = 0; i < b->count; i++) {
        const struct pst_request *r = &b->table[i];
        for (uint64_t k = 0; k < r->rows; k++) {
            const uint8_t *row = (const uint8_t *)b->slot + r->offset + k * b->row_bytes;
            bool good = true;
            for (uint64_t c = 0; c < b->row_bytes && good; c++)
                good = row[c] == byte_of(r->row + k, c);
            wrong += !good;
        }
    }
    return wrong;
}

static inline pst_rc serve(struct bench *b)
{
    struct pst_disk_ticket ticket = {0};
    pst_rc rc = pst_disk_add(b->disk, &ticket, b->slot, b->slot_bytes, 0, (uint64_t)b->count);
    pst_disk_whole(b->disk, &ticket);
    if (rc == PST_OK)
        rc = pst_disk_wait(b->disk, WAIT_MS);
    if (rc == PST_OK)
        assert_true(pst_disk_idle(&ticket));
    return rc;
}

static inline void must_serve(struct bench *b)
{
    pst_rc rc = serve(b);
    if (rc != PST_OK)
        print_error("%s\n", pst_error_text());
    assert_int_equal(rc, PST_OK);
    assert_int_equal(wrong_rows(b), 0);
}

/* Each kind of wrong request, over ROWS rows of 512 bytes, and a word of what is said of it. */
static inline void for_bad_requests(void (*refuse)(struct pst_request bad, const char *word))
{
    const uint64_t slot = pst_align_up(ROWS * sizeof(struct pst_request), PST_PAGE) + ROWS * 512ull;
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .op = 2, .rows = 1}, "operation 2");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .op = PST_REQUEST_WRITE, .rows = 1}, "writable");
    refuse((struct pst_request){.array = PST_ARRAY_COUNT, .rows = 1}, "expected 0 to");
    refuse((struct pst_request){.array = PST_REQUEST_ARRAYS_MAX, .rows = 1}, "array 40");
    refuse((struct pst_request){.array = UINT16_MAX, .rows = 1}, "array 65535");
    refuse((struct pst_request){.array = PST_ARRAY_INDICES, .rows = 1}, "indices");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .row = ROWS, .rows = 1}, "rows from row");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .row = UINT64_MAX, .rows = 1}, "rows from row");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .row = 1, .rows = ROWS}, "rows from row");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .rows = 0}, "0 rows");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .rows = 1, .offset = slot - 511},
           "of a slot that has only");
    refuse((struct pst_request){.array = PST_ARRAY_FEATURES, .rows = 1, .offset = UINT64_MAX - 100},
           "of a slot that has only");
}

#endif
