/* engine FILE ROW_BYTES DEPTH SECONDS [ROWS] [SLOTS]: the rate of the disk engine on a file. It gets tables
 * of ROWS requests for random rows, for SLOTS slots in turn, as from the disk stage. The file's rows begin at
 * byte 4096. Before it prints a rate, it compares the slots with the file. It prints operations a second, and
 * the percentage of a core in user and in system time. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "stages/lib/io/engine.h"

#define NOTES_BYTES 4096
#define SLOTS_MAX 64
#define WAIT_MS 10000 /* a drive that does not answer for longer is broken */

struct slot {
    char *memory;
    uint64_t bytes;
    struct pst_disk_ticket ticket;
};

struct bench {
    struct pst_disk *disk;
    const char *path;
    uint64_t row_bytes, file_rows;
    uint64_t rows, rows_at, random; /* rows: in a table */
    int nslots;
    struct slot slots[SLOTS_MAX];
};

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* xorshift64. */
static uint64_t next_row(struct bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    assert(b->file_rows > 0);
    return b->random % b->file_rows;
}

static pst_rc ask(struct bench *b, struct slot *slot)
{
    struct pst_request *table = (struct pst_request *)(void *)slot->memory;
    for (uint64_t i = 0; i < b->rows; i++) {
        const uint64_t row = next_row(b);
        table[i] = (struct pst_request){.op = PST_REQUEST_READ,
                                        .array = PST_ARRAY_FEATURES,
                                        .rows = 1,
                                        .row = row,
                                        .offset = b->rows_at + i * b->row_bytes,
                                        .tag = row};
    }
    return pst_disk_add(b->disk, &slot->ticket, slot->memory, slot->bytes, 0, b->rows);
}

static pst_rc open_all(struct bench *b, const char *path, int depth)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return pst_fail_errno("cannot get the status of %s", path);
    b->path = path;
    b->file_rows = ((uint64_t)st.st_size - PST_PAGE) / b->row_bytes;
    b->rows_at = pst_align_up(b->rows * sizeof(struct pst_request), PST_PAGE);
    const uint64_t bytes = b->rows_at + pst_align_up(b->rows * b->row_bytes, PST_PAGE);
    struct iovec regions[SLOTS_MAX];
    for (int i = 0; i < b->nslots; i++) {
        b->slots[i] = (struct slot){.memory = aligned_alloc(PST_PAGE, bytes), .bytes = bytes};
        if (b->slots[i].memory == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d slots", b->nslots);
        memset(b->slots[i].memory, 0x11, bytes);
        regions[i] = (struct iovec){b->slots[i].memory, bytes};
    }
    struct pst_disk_config config = {.backend = "file",
                                     .depth = depth,
                                     .threads = 1,
                                     .retries = 3,
                                     .direct = true,
                                     .coalesce_bytes = 128 << 10,
                                     .tables_max = SLOTS_MAX,
                                     .regions = regions,
                                     .nregions = b->nslots,
                                     .faults = {.bad_file = -1}};
    pst_disk_config_add(&config, PST_ARRAY_FEATURES, &b->path, 1, PST_PAGE, b->file_rows, b->row_bytes,
                        b->row_bytes);
    char notes[NOTES_BYTES];
    pst_rc rc = pst_disk_new(&b->disk, &config, notes, sizeof notes);
    if (rc == PST_OK && notes[0] != '\0')
        (void)fprintf(stderr, "%s\n", notes);
    return rc;
}

static pst_rc keep_reading(struct bench *b, double until)
{
    for (bool busy = true; busy;) {
        const bool more = pst_clock_s() < until;
        for (int i = 0; i < b->nslots && more; i++) {
            if (pst_disk_idle(&b->slots[i].ticket)) {
                pst_rc rc = ask(b, &b->slots[i]);
                if (rc != PST_OK)
                    return rc;
            }
        }
        assert(b->disk != NULL);
        pst_rc rc = pst_disk_pump(b->disk);
        if (rc != PST_OK)
            return rc;
        busy = more;
        bool whole = false;
        for (int i = 0; i < b->nslots; i++) {
            whole = whole || pst_disk_idle(&b->slots[i].ticket);
            busy = busy || !pst_disk_idle(&b->slots[i].ticket);
        }
        if (busy && (!whole || !more))
            pst_disk_sleep(b->disk, WAIT_MS);
    }
    return PST_OK;
}

/* Compares every row of every slot's last table with the file. */
static pst_rc verify(const struct bench *b)
{
    FILE *file = fopen(b->path, "rb");
    char *row = malloc(b->row_bytes);
    pst_rc rc = file != NULL && row != NULL ? PST_OK : pst_fail_errno("opening %s", b->path);
    for (int s = 0; s < b->nslots && rc == PST_OK; s++) {
        const struct pst_request *table = (const struct pst_request *)(const void *)b->slots[s].memory;
        for (uint64_t i = 0; i < b->rows && rc == PST_OK; i++) {
            if (fseek(file, (long)(PST_PAGE + table[i].row * b->row_bytes), SEEK_SET) != 0 ||
                fread(row, b->row_bytes, 1, file) != 1)
                rc = pst_fail_errno("cannot read row %llu", (unsigned long long)table[i].row);
            else if (memcmp(row, b->slots[s].memory + table[i].offset, b->row_bytes) != 0)
                rc = pst_fail(PST_E_FORMAT, "row %llu in slot %d differs from the row in the file",
                              (unsigned long long)table[i].row, s);
        }
    }
    free(row);
    if (file != NULL)
        (void)fclose(file);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        (void)fprintf(stderr, "usage: engine FILE ROW_BYTES DEPTH SECONDS [ROWS] [SLOTS]\n");
        return 2;
    }
    struct bench b = {.row_bytes = strtoull(argv[2], NULL, 10),
                      .rows = argc > 5 ? strtoull(argv[5], NULL, 10) : 1600,
                      .nslots = argc > 6 ? (int)strtol(argv[6], NULL, 10) : 4,
                      .random = (uint64_t)time(NULL) * 0x9e3779b97f4a7c15ull | 1};
    const double want_s = strtod(argv[4], NULL);
    if (b.row_bytes < 1 || b.rows < 1 || b.nslots < 1 || b.nslots > SLOTS_MAX) {
        (void)fprintf(stderr, "expected at least one byte, row and slot, and at most %d slots\n", SLOTS_MAX);
        return 2;
    }
    pst_rc rc = open_all(&b, argv[1], (int)strtol(argv[3], NULL, 10));
    struct rusage before, after;
    (void)getrusage(RUSAGE_SELF, &before);
    const double begin = pst_clock_s();
    if (rc == PST_OK)
        rc = keep_reading(&b, begin + want_s);
    const double end = pst_clock_s();
    (void)getrusage(RUSAGE_SELF, &after);
    if (rc == PST_OK)
        rc = verify(&b);
    if (rc != PST_OK) {
        (void)fprintf(stderr, "engine: %s\n", pst_error_text());
        return 1;
    }
    const struct pst_disk_stats *stats = pst_disk_stats(b.disk);
    printf("%.0f %.1f %.1f\n", (double)stats->requests / (end - begin),
           100 * (seconds_of(after.ru_utime) - seconds_of(before.ru_utime)) / (end - begin),
           100 * (seconds_of(after.ru_stime) - seconds_of(before.ru_stime)) / (end - begin));
    pst_disk_free(b.disk);
    for (int i = 0; i < b.nslots; i++)
        free(b.slots[i].memory);
    return 0;
}
