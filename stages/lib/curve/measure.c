/* measure.c: measures a drive with random reads of a few sizes, each with the queue full. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/util/clock.h"
#include "common/util/rng.h"
#include "stages/lib/curve/curve.h"
#include "stages/lib/io/backend.h"

#define ROUNDS 3       /* the fastest of each size counts: other work only slows the drive down */
#define SLICE_S 0.02   /* of one measurement, after the queue has filled */
#define ENOUGH_S 2.0   /* after this time no further round begins */
#define COUNTED_MIN 16 /* reads of one measurement at least */
#define WAIT_MS 10000  /* a drive that takes longer does not answer */
#define PLACES_MAX 128 /* pieces of memory that reads use in turn: what they read is not needed */
#define FILE_BYTES_MIN ((uint64_t)1 << 20)
#define POLLED_MAX 64

static const uint64_t sizes[] = {512, 4096, 16384, 65536, 131072};
#define SIZES (sizeof sizes / sizeof *sizes)

struct probe {
    const struct pst_curve_files *of;
    struct pst_io_file file[PST_REQUEST_FILES_MAX];
    uint64_t file_bytes[PST_REQUEST_FILES_MAX];
    struct pst_io_backend backend;
    bool open;
    struct pst_io_op *op; /* of->depth, each with one iov */
    struct iovec *iov;
    char *memory;
    int places, in_flight;
    uint64_t turn;
};

static void release(struct probe *p)
{
    if (p->open) {
        p->backend.ops->close(&p->backend);
        pst_io_files_close(p->file, p->of->n);
    }
    if (p->memory != NULL)
        (void)munmap(p->memory, (size_t)p->places * sizes[SIZES - 1]);
    free(p->op);
    free(p->iov);
}

/* Finds out whether the drive itself can be read. */
static pst_rc look_at_files(struct probe *p, struct pst_curve *c)
{
    for (uint32_t i = 0; i < p->of->n; i++) {
        struct stat st;
        if (p->file[i].direct < 0)
            return pst_fail(PST_E_UNSUPPORTED,
                            "reads of %s go through the page cache, whose speed is not the drive's",
                            p->file[i].path);
        if (fstat(p->file[i].fd, &st) != 0)
            return pst_fail_errno("measuring the drive: %s", p->file[i].path);
        p->file_bytes[i] = (uint64_t)st.st_size;
        if (p->file_bytes[i] < FILE_BYTES_MIN)
            return pst_fail(PST_E_UNSUPPORTED,
                            "%s has %llu bytes, which is too few to measure the drive: expected %llu or more",
                            p->file[i].path, (unsigned long long)p->file_bytes[i],
                            (unsigned long long)FILE_BYTES_MIN);
        c->span += p->file_bytes[i];
    }
    return PST_OK;
}

static pst_rc prepare(struct probe *p, struct pst_curve *c)
{
    const struct pst_curve_files *of = p->of;
    const struct pst_io_config config = {.files = p->file,
                                         .nfiles = of->n,
                                         .depth = of->depth,
                                         .threads = of->threads,
                                         .faults = {.bad_file = -1}};
    char notes[4 * PST_IO_NOTE_BYTES] = "";
    pst_rc rc = pst_io_choose(&p->backend, &config, of->backend, of->paths, true, false, notes, sizeof notes);
    p->open = rc == PST_OK;
    if (rc == PST_OK)
        rc = look_at_files(p, c);
    if (rc != PST_OK)
        return rc;
    p->places = of->depth < PLACES_MAX ? of->depth : PLACES_MAX;
    p->op = calloc((size_t)of->depth, sizeof *p->op);
    p->iov = calloc((size_t)of->depth, sizeof *p->iov);
    p->memory = mmap(NULL, (size_t)p->places * sizes[SIZES - 1], PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->memory == MAP_FAILED)
        p->memory = NULL;
    return p->op != NULL && p->iov != NULL && p->memory != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot measure the drive with %d reads in flight",
                          of->depth);
}

/* Reads `bytes` bytes of the next file, from a block that is drawn at random. */
static void post(struct probe *p, struct pst_io_op *op, uint64_t bytes)
{
    const int number = (int)(op - p->op);
    const uint64_t turn = p->turn++;
    const struct pst_rng_block draw =
        pst_rng_philox((struct pst_rng_block){{(uint32_t)turn, (uint32_t)(turn >> 32)}}, 1, 0);
    const uint32_t file = (uint32_t)(turn % p->of->n);
    const uint64_t block = p->file[file].block > PST_SECTOR ? p->file[file].block : PST_SECTOR;
    const uint64_t blocks = (p->file_bytes[file] - bytes) / block + 1;
    const uint64_t random = (uint64_t)draw.word[0] << 32 | draw.word[1];
    p->iov[number] = (struct iovec){p->memory + (size_t)(number % p->places) * sizes[SIZES - 1], bytes};
    *op = (struct pst_io_op){.file = file,
                             .direct = true,
                             .at = random % blocks * block,
                             .iov = &p->iov[number],
                             .niov = 1,
                             .bytes = bytes};
    p->backend.ops->post(&p->backend, op);
    p->in_flight++;
}

/* Waits for some reads, and makes as many new ones if `again`. *ended: how many have ended. */
static pst_rc turn_over(struct probe *p, uint64_t bytes, bool again, int *ended)
{
    struct pst_io_op *done[POLLED_MAX];
    const int64_t deadline = pst_clock_ms() + WAIT_MS;
    int n;
    while ((n = p->backend.ops->poll(&p->backend, done, POLLED_MAX)) == 0) {
        if (pst_clock_ms() >= deadline)
            return pst_fail(PST_E_TIMEOUT, "measuring the drive: %s did not answer for %d s", p->file[0].path,
                            WAIT_MS / 1000);
        const pst_rc rc = pst_io_wait(&p->backend, WAIT_MS);
        if (rc != PST_OK)
            return rc;
    }
    p->in_flight -= n;
    *ended = n;
    for (int i = 0; i < n; i++) {
        if (done[i]->result != (int64_t)done[i]->bytes)
            return pst_fail(PST_E_IO, "measuring the drive: reading %llu bytes at byte %llu of %s: %s",
                            (unsigned long long)done[i]->bytes, (unsigned long long)done[i]->at,
                            p->file[done[i]->file].path,
                            done[i]->result < 0 ? strerror((int)-done[i]->result) : "too few bytes came");
        if (again)
            post(p, done[i], bytes);
    }
    return again ? p->backend.ops->ring(&p->backend) : PST_OK;
}

/* The time of one read of so many bytes: from when the queue has filled and the first reads have ended. */
static pst_rc time_reads(struct probe *p, uint64_t bytes, double *seconds)
{
    double begin_s = 0, passed_s = 0;
    int64_t ended = 0, counted = 0;
    for (int i = 0; i < p->of->depth; i++)
        post(p, &p->op[i], bytes);
    pst_rc rc = p->backend.ops->ring(&p->backend);
    while (rc == PST_OK && (counted < COUNTED_MIN || passed_s < SLICE_S)) {
        int n = 0;
        rc = turn_over(p, bytes, true, &n);
        ended += n;
        counted += begin_s > 0 ? n : 0;
        passed_s = begin_s > 0 ? pst_clock_s() - begin_s : 0;
        if (begin_s <= 0 && ended >= p->of->depth)
            begin_s = pst_clock_s();
    }
    for (int n = 0; rc == PST_OK && p->in_flight > 0;)
        rc = turn_over(p, bytes, false, &n);
    *seconds = passed_s / (double)counted;
    return rc;
}

/* After a failure: no read may be in flight when its memory is freed. */
static bool drained(struct probe *p)
{
    const int64_t deadline = pst_clock_ms() + WAIT_MS;
    while (p->in_flight > 0 && pst_clock_ms() < deadline) {
        struct pst_io_op *done[POLLED_MAX];
        const int n = p->backend.ops->poll(&p->backend, done, POLLED_MAX);
        p->in_flight -= n;
        if (n == 0 && pst_io_wait(&p->backend, WAIT_MS) != PST_OK)
            return false;
    }
    return p->in_flight == 0;
}

pst_rc pst_curve_measure(struct pst_curve *c, const struct pst_curve_files *files)
{
    assert(files->n >= 1 && files->n <= PST_REQUEST_FILES_MAX && files->depth >= 1 && files->threads >= 1);
    struct probe *p = calloc(1, sizeof *p);
    double best[SIZES];
    *c = (struct pst_curve){0};
    if (p == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot measure the drive");
    p->of = files;
    pst_rc rc = prepare(p, c);
    size_t first = 0; /* smaller reads than a block are not possible */
    for (uint32_t i = 0; i < files->n && rc == PST_OK; i++)
        while (sizes[first] % p->file[i].block != 0)
            first++;
    const double begin_s = pst_clock_s();
    for (int round = 0; round < ROUNDS && (round == 0 || pst_clock_s() - begin_s < ENOUGH_S); round++)
        for (size_t i = first; i < SIZES && rc == PST_OK; i++) {
            double seconds = INFINITY;
            rc = time_reads(p, sizes[i], &seconds);
            best[i] = round == 0 ? seconds : fmin(best[i], seconds);
        }
    for (size_t i = first; i < SIZES && rc == PST_OK; i++)
        if (!pst_curve_add(c, sizes[i], best[i]))
            rc = pst_fail(PST_E_STATE, "measuring the drive: a read of %llu bytes took %g s",
                          (unsigned long long)sizes[i], best[i]);
    if (rc == PST_OK || !p->open || drained(p))
        release(p);
    free(p->in_flight == 0 ? p : NULL); /* a read in flight may still write to the memory */
    return rc;
}
