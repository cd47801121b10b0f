/* backend_nvme.c: "nvme" and "emulated": our own NVMe driver (common/nvme) over real drives or emulated ones.
 * A thread of its own drives the stack; operations go to it and come back over lists, as in backend_pread.c.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "drives.h"
#include "error.h"
#include "op_list.h"

#define RESULTS_MAX 64
#define SPINS 300    /* empty looks before the thread naps: about what a fast drive takes */
#define NAP_NS 20000 /* then it looks as often as this */
#define REQUESTS_MAX 8192
#define MEM_ALIGN 4u /* PRPs: section 4.1.1 */

struct nvme {
    struct pst_drives drives;
    struct pst_nvme_stack *stack;
    pthread_t thread;
    bool started;
    int event;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct pst_op_list posted;     /* the engine's thread alone; given over by ring */
    struct pst_op_list todo, done; /* under lock */
    bool stop;
    /* the driving thread's */
    struct pst_op_list cutting; /* operations of which not all requests have been made; the head is at: */
    int iov;
    uint64_t within, moved;
    uint64_t in_flight; /* operations */
    char failure[256];  /* the stack is of no use any more, and why */
};

/* ---- the driving thread --------------------------------------------------------------------------- */

static void end_op(struct nvme *n, struct pst_io_op *op)
{
    const uint64_t one = 1;
    if (op->why[0] == '\0')
        op->result = (int64_t)op->bytes;
    else
        op->result = -EIO;
    n->in_flight--;
    (void)pthread_mutex_lock(&n->lock);
    pst_op_push(&n->done, op);
    (void)pthread_mutex_unlock(&n->lock);
    (void)!write(n->event, &one, sizeof one);
}

/* The next request of the operation at the head; false: the stack has no room. */
static bool cut_one(struct nvme *n, struct pst_io_op *op)
{
    const struct iovec *iov = &op->iov[n->iov];
    struct pst_nvme_request r = {.opcode = op->write ? PST_NVME_WRITE : PST_NVME_READ, .user = op};
    char *memory = (char *)iov->iov_base + n->within;
    uint64_t run = 0, left = iov->iov_len - n->within;
    if (!pst_drives_find(&n->drives, op->file, op->at + n->moved, &r, &run)) {
        (void)snprintf(op->why, sizeof op->why,
                       "the drives hold no such bytes: only features are stored on them");
    } else {
        r.bytes = left < run ? left : run;
        if (!pst_drives_iova(&n->drives, r.ssd, memory, r.bytes, &r.iova))
            (void)snprintf(op->why, sizeof op->why, "memory that the drives do not know");
    }
    if (op->why[0] == '\0') {
        pst_rc rc = pst_nvme_stack_add(n->stack, &r);
        if (rc == PST_E_LIMIT)
            return false;
        if (rc != PST_OK)
            (void)snprintf(op->why, sizeof op->why, "%s", pst_error_text());
        else
            op->pending++;
    }
    n->within += r.bytes;
    n->moved += r.bytes;
    if (n->within == iov->iov_len) {
        n->iov++;
        n->within = 0;
    }
    return true;
}

static void cut_all(struct nvme *n)
{
    while (n->cutting.head != NULL) {
        struct pst_io_op *op = n->cutting.head;
        while (n->iov < op->niov && op->why[0] == '\0') {
            if (!cut_one(n, op))
                return;
        }
        n->iov = 0;
        n->within = n->moved = 0;
        (void)pst_op_pop(&n->cutting);
        op->cut = true;
        if (op->pending == 0)
            end_op(n, op);
    }
}

static void take_result(struct nvme *n, const struct pst_nvme_result *result)
{
    struct pst_io_op *op = result->user;
    char text[64];
    if (result->status == PST_NVME_INTERNAL && n->failure[0] != '\0')
        (void)snprintf(op->why, sizeof op->why, "%s", n->failure);
    else if (result->status != PST_NVME_OK)
        (void)snprintf(op->why, sizeof op->why, "%s, namespace %u, LBA %llu: %s",
                       n->drives.t[result->ssd].what, result->nsid, (unsigned long long)result->lba,
                       pst_nvme_status_text(result->status, text));
    if (--op->pending == 0 && op->cut)
        end_op(n, op);
}

/* Waits until there is something to do; false: it is time to end. */
static bool await_work(struct nvme *n)
{
    (void)pthread_mutex_lock(&n->lock);
    while (n->todo.head == NULL && n->in_flight == 0 && !n->stop)
        (void)pthread_cond_wait(&n->work, &n->lock);
    for (struct pst_io_op *op; (op = pst_op_pop(&n->todo)) != NULL; n->in_flight++)
        pst_op_push(&n->cutting, op);
    const bool stop = n->stop;
    (void)pthread_mutex_unlock(&n->lock);
    return !stop;
}

static void *drive_stack(void *argument)
{
    struct nvme *n = argument;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    for (int idle = 0; await_work(n);) {
        struct pst_nvme_result results[RESULTS_MAX];
        uint32_t ended = 0;
        cut_all(n);
        pst_rc rc = pst_nvme_stack_poll(n->stack, results, RESULTS_MAX, &ended);
        if (rc != PST_OK) /* the stack has ended all that it held, and takes no more */
            (void)snprintf(n->failure, sizeof n->failure, "%s", pst_error_text());
        for (uint32_t i = 0; i < ended; i++)
            take_result(n, &results[i]);
        idle = ended > 0 ? 0 : idle + 1;
        if (idle > SPINS)
            (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return NULL;
}

/* ---- the backend ---------------------------------------------------------------------------------- */

static void nvme_close(struct pst_io_backend *b)
{
    struct nvme *n = b->impl;
    if (n == NULL)
        return;
    if (n->started) {
        (void)pthread_mutex_lock(&n->lock);
        n->stop = true;
        (void)pthread_cond_signal(&n->work);
        (void)pthread_mutex_unlock(&n->lock);
        (void)pthread_join(n->thread, NULL);
    }
    pst_nvme_stack_free(n->stack);
    pst_drives_close(&n->drives);
    if (n->event >= 0)
        (void)close(n->event);
    (void)pthread_cond_destroy(&n->work);
    (void)pthread_mutex_destroy(&n->lock);
    free(n);
    b->impl = NULL;
}

/* The drives move whole blocks of theirs, to any memory that PRPs can name, whatever the file system can do.
 */
static pst_rc set_alignment(const struct nvme *n, const struct pst_io_config *config)
{
    for (uint32_t i = 0; i < config->nfiles; i++) {
        struct pst_io_file *file = &config->files[i];
        if (file->fd < 0)
            continue;
        file->block = 1u << n->drives.lba_shift;
        file->mem_align = MEM_ALIGN;
        if (file->direct < 0)
            file->direct = dup(file->fd);
        if (file->direct < 0)
            return pst_fail_errno("%s", file->path);
    }
    return PST_OK;
}

static pst_rc open_stack(struct nvme *n, const struct pst_io_config *config)
{
    struct pst_nvme_stack_config c = {.controllers = n->drives.list,
                                      .ssds = n->drives.n,
                                      .lanes = config->nvme->lanes,
                                      .requests_max = REQUESTS_MAX,
                                      .timeout_ms = config->nvme->timeout_ms};
    pst_rc rc = pst_nvme_stack_kind(config->nvme->stack, &c.kind);
    return rc == PST_OK ? pst_nvme_stack_new(&n->stack, &c) : rc;
}

static pst_rc open_any(struct pst_io_backend *b, const struct pst_io_config *config, bool emulated)
{
    assert(config->nvme != NULL);
    struct nvme *n = calloc(1, sizeof *n);
    if (n == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for the NVMe driver");
    b->impl = n;
    (void)pthread_mutex_init(&n->lock, NULL);
    (void)pthread_cond_init(&n->work, NULL);
    n->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pst_rc rc = n->event < 0 ? pst_fail_errno("eventfd") : pst_drives_open(&n->drives, config, emulated);
    rc = rc == PST_OK ? set_alignment(n, config) : rc;
    rc = rc == PST_OK ? open_stack(n, config) : rc;
    if (rc == PST_OK) {
        const int failed = pthread_create(&n->thread, NULL, drive_stack, n);
        n->started = failed == 0;
        rc = failed == 0 ? PST_OK
                         : pst_fail(PST_E_NOMEM, "starting the driver's thread: %s", strerror(failed));
    }
    if (rc != PST_OK)
        nvme_close(b);
    return rc;
}

static pst_rc nvme_open(struct pst_io_backend *b, const struct pst_io_config *config,
                        char note[PST_IO_NOTE_BYTES])
{
    (void)note;
    return open_any(b, config, false);
}

static pst_rc emulated_open(struct pst_io_backend *b, const struct pst_io_config *config,
                            char note[PST_IO_NOTE_BYTES])
{
    (void)note;
    return open_any(b, config, true);
}

static void nvme_post(struct pst_io_backend *b, struct pst_io_op *op)
{
    op->why[0] = '\0';
    op->pending = 0;
    op->cut = false;
    pst_op_push(&((struct nvme *)b->impl)->posted, op);
}

static pst_rc nvme_ring(struct pst_io_backend *b)
{
    struct nvme *n = b->impl;
    if (n->posted.head == NULL)
        return PST_OK;
    (void)pthread_mutex_lock(&n->lock);
    for (struct pst_io_op *op = pst_op_pop(&n->posted); op != NULL; op = pst_op_pop(&n->posted))
        pst_op_push(&n->todo, op);
    (void)pthread_cond_signal(&n->work);
    (void)pthread_mutex_unlock(&n->lock);
    return PST_OK;
}

static int nvme_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct nvme *n = b->impl;
    uint64_t signals;
    (void)!read(n->event, &signals, sizeof signals); /* before looking, so that no completion goes unseen */
    int count = 0;
    (void)pthread_mutex_lock(&n->lock);
    while (count < max && (done[count] = pst_op_pop(&n->done)) != NULL)
        count++;
    (void)pthread_mutex_unlock(&n->lock);
    return count;
}

static int nvme_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    fds[0] = ((const struct nvme *)b->impl)->event;
    return 1;
}

const struct pst_io_backend_ops pst_io_nvme = {
    .name = "nvme",
    .direct = true,
    .dma = true,
    .open = nvme_open,
    .post = nvme_post,
    .ring = nvme_ring,
    .poll = nvme_poll,
    .fds = nvme_fds,
    .close = nvme_close,
};

const struct pst_io_backend_ops pst_io_emulated = {
    .name = "emulated",
    .direct = true,
    .dma = true,
    .open = emulated_open,
    .post = nvme_post,
    .ring = nvme_ring,
    .poll = nvme_poll,
    .fds = nvme_fds,
    .close = nvme_close,
};
