/* uring.c: io_uring with registered files, and with registered buffers if the memlock limit permits. */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stages/lib/io/backend.h"
#include "common/error.h"

#define BUFFER_BYTES ((size_t)1 << 30) /* the most that the kernel registers as one buffer */
#define BUFFERS_MAX 1024               /* enough for 1 TiB of slots */
#define BATCH_SHARE 32                 /* README.md, "When to submit" */

struct uring {
    struct io_uring ring;
    uint32_t held; /* operations that were posted and not polled */
    int event;     /* the ring's descriptor does not report completions that still need a system call */
    bool ring_made, files_registered, watched;
    int timer_ms; /* of a timer operation that ends a wait; 0: none is set */
    struct __kernel_timespec timer;
    struct pst_io_file *files;
    uint32_t nfiles;
    struct iovec *buffers; /* the registered buffers, in the order given */
    int nbuffers;
};

static void register_files(struct uring *u)
{
    int fds[2 * 64];
    if (u->nfiles > 64)
        return;
    for (uint32_t i = 0; i < u->nfiles; i++) {
        fds[2 * i] = u->files[i].fd;
        fds[2 * i + 1] = u->files[i].direct;
    }
    u->files_registered = u->nfiles > 0 && io_uring_register_files(&u->ring, fds, 2 * u->nfiles) == 0;
}

static void register_buffers(struct uring *u, const struct pst_io_config *config,
                             char note[PST_IO_NOTE_BYTES])
{
    u->buffers = calloc(BUFFERS_MAX, sizeof *u->buffers);
    if (u->buffers == NULL || config->nregions == 0)
        return;
    int n = 0;
    for (int r = 0; r < config->nregions; r++) {
        char *base = config->regions[r].iov_base;
        for (size_t at = 0; at < config->regions[r].iov_len && n < BUFFERS_MAX; at += BUFFER_BYTES) {
            size_t left = config->regions[r].iov_len - at;
            u->buffers[n++] = (struct iovec){base + at, left < BUFFER_BYTES ? left : BUFFER_BYTES};
        }
    }
    int rc = n > 0 ? io_uring_register_buffers(&u->ring, u->buffers, (unsigned)n) : 0;
    if (rc == 0)
        u->nbuffers = n;
    else
        (void)snprintf(note, PST_IO_NOTE_BYTES,
                       "cannot register the slots with io_uring (%s), so each read pins its memory pages "
                       "again; raise the limit (ulimit -l)",
                       strerror(-rc));
}

/* The kernel may map a new ring where a closed one was. This lock orders the two uses of that memory for
 * ThreadSanitizer, which does not see that liburing maps and unmaps it. */
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

/* Prefers completions that wait until we ask for them, instead of interrupting the thread. Kernels before 6.1
 * cannot do that. */
static int make_ring(struct uring *u, unsigned depth)
{
    /* TASKRUN_FLAG: a poll enters the kernel only if needed */
    static const unsigned ways[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                        IORING_SETUP_TASKRUN_FLAG,
                                    IORING_SETUP_COOP_TASKRUN, 0};
    int rc = -EINVAL;
    (void)pthread_mutex_lock(&mapping_lock);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && rc == -EINVAL; i++)
        rc = io_uring_queue_init(depth, &u->ring, IORING_SETUP_CLAMP | ways[i]);
    (void)pthread_mutex_unlock(&mapping_lock);
    return rc;
}

static void uring_close(struct pst_io_backend *b)
{
    struct uring *u = b->impl;
    if (u == NULL)
        return;
    if (u->ring_made) {
        (void)pthread_mutex_lock(&mapping_lock);
        io_uring_queue_exit(&u->ring);
        (void)pthread_mutex_unlock(&mapping_lock);
    }
    if (u->event >= 0)
        (void)close(u->event);
    free(u->buffers);
    free(u);
    b->impl = NULL;
}

static pst_rc uring_open(struct pst_io_backend *b, const struct pst_io_config *config,
                         char note[PST_IO_NOTE_BYTES])
{
    struct uring *u = calloc(1, sizeof *u);
    if (u == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of io_uring");
    b->impl = u;
    u->files = config->files;
    u->nfiles = config->nfiles;
    u->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = u->event < 0 ? -errno : make_ring(u, (unsigned)config->depth + 1);
    u->ring_made = rc == 0;
    if (rc == 0)
        rc = io_uring_register_eventfd(&u->ring, u->event);
    if (rc == 0)
        (void)io_uring_cq_eventfd_toggle(&u->ring, false); /* until pst_io_uring's fds are used */
    if (rc != 0) {
        uring_close(b);
        return pst_fail(
            PST_E_UNSUPPORTED,
            "io_uring cannot be used here (%s). Containers often forbid it: use backend \"pread\"",
            strerror(-rc));
    }
    register_files(u);
    register_buffers(u, config, note);
    return PST_OK;
}

/* The registered buffer that contains the memory, or -1. */
static int buffer_of(const struct uring *u, const struct iovec *iov)
{
    const char *begin = iov->iov_base;
    for (int i = 0; i < u->nbuffers; i++) {
        const char *base = u->buffers[i].iov_base;
        if (begin >= base && begin + iov->iov_len <= base + u->buffers[i].iov_len)
            return i;
    }
    return -1;
}

static void uring_post(struct pst_io_backend *b, struct pst_io_op *op)
{
    struct uring *u = b->impl;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe != NULL); /* the engine posts no more than depth */
    const struct pst_io_file *file = &u->files[op->file];
    int fd = op->direct ? file->direct : file->fd;
    if (u->files_registered)
        fd = (int)(2 * op->file + (op->direct ? 1u : 0u));
    int buffer = op->niov == 1 ? buffer_of(u, op->iov) : -1;
    void *base = op->iov[0].iov_base;
    unsigned bytes = (unsigned)op->iov[0].iov_len, niov = (unsigned)op->niov;
    if (buffer >= 0 && op->write)
        io_uring_prep_write_fixed(sqe, fd, base, bytes, op->at, buffer);
    else if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, base, bytes, op->at, buffer);
    else if (op->write)
        io_uring_prep_writev(sqe, fd, op->iov, niov, op->at);
    else
        io_uring_prep_readv(sqe, fd, op->iov, niov, op->at);
    if (u->files_registered)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, op);
    const uint32_t before = u->held++;
    if (before > 0 && io_uring_sq_ready(&u->ring) > before / BATCH_SHARE)
        (void)io_uring_submit(&u->ring); /* ring submits what is left, and reports an error */
}

static pst_rc uring_ring(struct pst_io_backend *b)
{
    struct uring *u = b->impl;
    while (io_uring_sq_ready(&u->ring) > 0) {
        int n = io_uring_submit(&u->ring);
        if (n == -EINTR || n == -EAGAIN || n == -EBUSY)
            continue;
        if (n < 0)
            return pst_fail(PST_E_IO, "io_uring did not accept %u operations: %s",
                            io_uring_sq_ready(&u->ring), strerror(-n));
    }
    return PST_OK;
}

static int uring_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct uring *u = b->impl;
    uint64_t signals;
    if (u->watched) /* read before the ring is, so that no completion is missed */
        (void)!read(u->event, &signals, sizeof signals);
    int n = 0;
    struct io_uring_cqe *cqe;
    while (n < max && io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct pst_io_op *op = io_uring_cqe_get_data(cqe);
        if (op != NULL) {
            op->result = cqe->res;
            done[n++] = op;
        } else {
            u->timer_ms = 0;
        }
        io_uring_cqe_seen(&u->ring, cqe);
    }
    u->held -= (uint32_t)n;
    return n;
}

/* One timer serves many waits and may end some of them early. Setting a timer for each wait would be the
 * largest cost of this call. */
static void set_timer(struct uring *u, int ms)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe != NULL); /* the ring has room for one more than the engine's operations */
    u->timer = (struct __kernel_timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    io_uring_prep_timeout(sqe, &u->timer, 0, 0);
    io_uring_sqe_set_data(sqe, NULL);
    u->timer_ms = ms;
}

static pst_rc uring_wait(struct pst_io_backend *b, int ms)
{
    struct uring *u = b->impl;
    struct io_uring_cqe *cqe;
    struct __kernel_timespec most = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (u->timer_ms == 0)
        set_timer(u, ms);
    const int rc = ms < u->timer_ms ? io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &most, NULL)
                                    : io_uring_submit_and_wait(&u->ring, 1);
    if (rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY)
        return PST_OK;
    return pst_fail(PST_E_IO, "io_uring did not accept %u operations: %s", io_uring_sq_ready(&u->ring),
                    strerror(-rc));
}

static int uring_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    struct uring *u = b->impl;
    if (!u->watched) {
        (void)io_uring_cq_eventfd_toggle(&u->ring, true);
        (void)eventfd_write(u->event, 1); /* completions from before were not signalled */
    }
    u->watched = true;
    fds[0] = u->event;
    return 1;
}

const struct pst_io_backend_ops pst_io_uring_ops = {
    .name = "file",
    .direct = true,
    .open = uring_open,
    .post = uring_post,
    .ring = uring_ring,
    .poll = uring_poll,
    .wait = uring_wait,
    .fds = uring_fds,
    .close = uring_close,
};
