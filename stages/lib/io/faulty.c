/* faulty.c: wraps a backend and makes it behave like a bad drive: errors, short transfers (with rubbish in
 * the missing part) and late completions, all from a seeded generator. It also holds completions back until
 * the modelled bus has moved their data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "stages/lib/io/backend.h"
#include "common/error.h"
#include "common/util/clock.h"

#define RUBBISH 0xA5
#define POLL_MAX 64

struct faulty {
    struct pst_io_backend inner;
    struct pst_io_backend_ops ops; /* with the name of the inner backend */
    struct pst_io_faults faults;
    struct pst_io_bus bus;
    uint64_t state;
    int timer;
    struct pst_io_op *head, *tail; /* completed operations, held until they are due */
};

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t next_random(struct faulty *f)
{
    uint64_t z = (f->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static bool happens(struct faulty *f, double rate)
{
    return rate > 0 && (double)(next_random(f) >> 11) * 0x1p-53 < rate;
}

static void hold_back(struct faulty *f, struct pst_io_op *op)
{
    const bool passes = f->bus.book != NULL && op->result > 0;
    const uint64_t now = passes || f->faults.delay_us > 0 ? pst_clock_ns() : 0;
    op->due_ns = f->faults.delay_us > 0 ? now + (uint64_t)f->faults.delay_us * 1000 : 0;
    if (passes) {
        const uint64_t passed = f->bus.book(f->bus.to, (uint64_t)op->result, now);
        op->due_ns = passed > op->due_ns ? passed : op->due_ns;
    }
    op->next = NULL;
    if (f->tail != NULL)
        f->tail->next = op;
    else
        f->head = op;
    f->tail = op;
}

static bool is_bad(const struct pst_io_faults *faults, const struct pst_io_op *op)
{
    return faults->bad_file >= 0 && op->file == (uint32_t)faults->bad_file &&
           op->at < faults->bad_at + faults->bad_bytes && faults->bad_at < op->at + op->bytes;
}

static void faulty_post(struct pst_io_backend *b, struct pst_io_op *op)
{
    struct faulty *f = b->impl;
    if (is_bad(&f->faults, op) || happens(f, f->faults.error_rate)) {
        op->result = -EIO;
        hold_back(f, op);
        return;
    }
    f->inner.ops->post(&f->inner, op);
}

static pst_rc faulty_ring(struct pst_io_backend *b)
{
    struct faulty *f = b->impl;
    return f->inner.ops->ring(&f->inner);
}

/* Undoes a part of a transfer. */
static void shorten(struct faulty *f, struct pst_io_op *op)
{
    int64_t kept = 1 + (int64_t)(next_random(f) % (uint64_t)(op->result - 1));
    uint64_t skip = (uint64_t)kept;
    for (int i = 0; i < op->niov && !op->write; i++) {
        uint64_t bytes = op->iov[i].iov_len;
        if (skip < bytes)
            memset((char *)op->iov[i].iov_base + skip, RUBBISH, bytes - skip);
        skip = skip < bytes ? 0 : skip - bytes;
    }
    op->result = kept;
}

static void arm_timer(const struct faulty *f)
{
    struct itimerspec when = {0};
    if (f->head != NULL) {
        when.it_value.tv_sec = (time_t)(f->head->due_ns / 1000000000u);
        when.it_value.tv_nsec = (long)(f->head->due_ns % 1000000000u) + (f->head->due_ns == 0);
    }
    (void)timerfd_settime(f->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static int faulty_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct faulty *f = b->impl;
    uint64_t expirations;
    (void)!read(f->timer, &expirations, sizeof expirations);
    struct pst_io_op *finished[POLL_MAX];
    int got;
    while ((got = f->inner.ops->poll(&f->inner, finished, POLL_MAX)) > 0) {
        for (int i = 0; i < got; i++) {
            if (finished[i]->result > 1 && happens(f, f->faults.short_rate))
                shorten(f, finished[i]);
            hold_back(f, finished[i]);
        }
    }
    int n = 0;
    uint64_t now = pst_clock_ns();
    while (n < max && f->head != NULL && f->head->due_ns <= now) {
        done[n++] = f->head;
        f->head = f->head->next;
        if (f->head == NULL)
            f->tail = NULL;
    }
    arm_timer(f);
    return n;
}

static int faulty_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    const struct faulty *f = b->impl;
    int n = f->inner.ops->fds(&f->inner, fds);
    assert(n < PST_IO_FDS_MAX);
    fds[n] = f->timer;
    return n + 1;
}

static void faulty_close(struct pst_io_backend *b)
{
    struct faulty *f = b->impl;
    if (f == NULL)
        return;
    f->inner.ops->close(&f->inner);
    (void)close(f->timer);
    free(f);
    b->impl = NULL;
}

static void faulty_count(struct pst_io_backend *b, struct pst_io_driven *driven)
{
    struct faulty *f = b->impl;
    f->inner.ops->count(&f->inner, driven);
}

pst_rc pst_io_faulty_wrap(struct pst_io_backend *b, const struct pst_io_config *config)
{
    struct faulty *f = calloc(1, sizeof *f);
    if (f == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the fault injector");
    f->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (f->timer < 0) {
        free(f);
        return pst_fail_errno("cannot create a timer for the fault injector");
    }
    f->inner = *b;
    f->faults = config->faults;
    f->bus = b->ops->dma ? (struct pst_io_bus){0} : config->bus;
    f->state = config->faults.seed;
    /* without wait, because completions are held back here */
    f->ops = (struct pst_io_backend_ops){.name = b->ops->name,
                                         .copies = b->ops->copies,
                                         .direct = b->ops->direct,
                                         .dma = b->ops->dma,
                                         .post = faulty_post,
                                         .ring = faulty_ring,
                                         .poll = faulty_poll,
                                         .fds = faulty_fds,
                                         .close = faulty_close,
                                         .count = b->ops->count != NULL ? faulty_count : NULL};
    *b = (struct pst_io_backend){.ops = &f->ops, .impl = f};
    return PST_OK;
}
