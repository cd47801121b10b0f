/* nvme.c: the backends "nvme" and "emulated": our own NVMe driver (common/nvme) with real or emulated drives.
 * A thread drives the stack; operations go to it and come back in lists, as in pread.c.
 *
 * On a GPU (gpu.h) the same thread launches kernels for groups of requests and sleeps until they are done.
 * Meanwhile the GPU owns the queues. Operations are requests that kernels left, that failed, or that are
 * late. The stack carries them out when the GPU has nothing in flight any more. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/error.h"
#include "stages/lib/io/nvme_impl.h"

#define OPERATION_REQUESTS 8192 /* held by the stack for operations */
#define WHOLE_GROUPS 8u         /* of the largest size, held by the stack; further ones wait for room */
#define MEM_ALIGN 4u            /* of PRPs (section 4.1.1) */

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
        pst_io_gpu_stop(n->gpu);
        (void)pthread_join(n->thread, NULL);
    }
    pst_io_gpu_close(n->gpu);
    pst_nvme_stack_free(n->stack);
    pst_io_drives_close(&n->drives);
    pst_io_gpu_free(n->gpu);
    pst_io_tables_close(n->tables);
    if (n->emulator >= 0)
        (void)close(n->emulator);
    if (n->event >= 0)
        (void)close(n->event);
    (void)pthread_cond_destroy(&n->work);
    (void)pthread_mutex_destroy(&n->lock);
    free(n);
    b->impl = NULL;
}

/* The alignment is that of the drives' blocks and of PRPs, and not that of the file system. */
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

static pst_rc open_stack(struct nvme *n, const struct pst_io_config *config, const struct pst_io_backend *b)
{
    const uint32_t groups = n->tables != NULL ? WHOLE_GROUPS * b->group_requests : 0;
    struct pst_nvme_stack_config c = {.controllers = n->drives.list,
                                      .ssds = n->drives.n,
                                      .lanes = config->nvme->lanes,
                                      .requests_max = groups + OPERATION_REQUESTS,
                                      .depth = config->commands,
                                      .timeout_ms = config->nvme->timeout_ms};
    pst_rc rc = pst_nvme_way_named(config->nvme->stack, &c.way);
    return rc == PST_OK ? pst_nvme_stack_new(&n->stack, &c) : rc;
}

static pst_rc open_any(struct pst_io_backend *b, const struct pst_io_config *config, bool emulated)
{
    assert(config->nvme != NULL);
    struct nvme *n = calloc(1, sizeof *n);
    if (n == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of the NVMe driver");
    b->impl = n;
    n->emulator = -1;
    n->timeout_ms = config->nvme->timeout_ms;
    (void)pthread_mutex_init(&n->lock, NULL);
    (void)pthread_cond_init(&n->work, NULL);
    n->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pst_rc rc = n->event < 0 ? pst_fail_errno("eventfd") : pst_io_drives_open(&n->drives, config, emulated);
    rc = rc == PST_OK ? set_alignment(n, config) : rc;
    if (rc == PST_OK && config->nvme->gpu != NULL)
        rc = pst_io_gpu_open(&n->gpu, &n->drives, config, b);
    else if (rc == PST_OK)
        rc = pst_io_tables_open(&n->tables, &n->drives, config, b);
    rc = rc == PST_OK ? open_stack(n, config, b) : rc;
    if (rc == PST_OK && n->drives.emulated.pid > 0) /* without this call, only a timeout shows that it died */
        n->emulator = (int)syscall(SYS_pidfd_open, n->drives.emulated.pid, 0);
    if (rc == PST_OK) {
        const int failed = pthread_create(&n->thread, NULL, pst_io_nvme_thread, n);
        n->started = failed == 0;
        rc = failed == 0
                 ? PST_OK
                 : pst_fail(
                       PST_E_NOMEM,
                       "cannot start the thread of the NVMe driver: %s (the limit may be reached: ulimit -u)",
                       strerror(failed));
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
    pst_io_op_push(&((struct nvme *)b->impl)->posted, op);
}

static void nvme_post_group(struct pst_io_backend *b, struct pst_io_group *group)
{
    pst_io_group_push(&((struct nvme *)b->impl)->groups_posted, group);
}

static pst_rc nvme_ring(struct pst_io_backend *b)
{
    struct nvme *n = b->impl;
    if (n->posted.head == NULL && n->groups_posted.head == NULL && n->gpu == NULL)
        return PST_OK;
    (void)pthread_mutex_lock(&n->lock);
    pst_io_groups_move(&n->groups_todo, &n->groups_posted);
    for (struct pst_io_op *op = pst_io_op_pop(&n->posted); op != NULL; op = pst_io_op_pop(&n->posted))
        pst_io_op_push(&n->todo, op);
    (void)pthread_cond_signal(&n->work);
    (void)pthread_mutex_unlock(&n->lock);
    return PST_OK;
}

/* Stops the kernels if the emulating process has died. */
static void look_after_emulator(const struct nvme *n)
{
    struct pollfd process = {.fd = n->emulator, .events = POLLIN};
    if (n->gpu != NULL && n->emulator >= 0 && poll(&process, 1, 0) == 1)
        pst_io_gpu_stop(n->gpu);
}

static int nvme_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct nvme *n = b->impl;
    uint64_t signals;
    look_after_emulator(n);
    /* read before the lists are, so that no completion is missed */
    (void)!read(n->event, &signals, sizeof signals);
    int count = 0;
    (void)pthread_mutex_lock(&n->lock);
    while (count < max && (done[count] = pst_io_op_pop(&n->done)) != NULL)
        count++;
    (void)pthread_mutex_unlock(&n->lock);
    return count;
}

static int nvme_poll_groups(struct pst_io_backend *b, struct pst_io_group **done, int max)
{
    struct nvme *n = b->impl;
    int count = 0;
    (void)pthread_mutex_lock(&n->lock);
    while (count < max && (done[count] = pst_io_group_pop(&n->groups_done)) != NULL)
        count++;
    (void)pthread_mutex_unlock(&n->lock);
    return count;
}

static int nvme_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    const struct nvme *n = b->impl;
    fds[0] = n->event;
    fds[1] = n->emulator;
    return n->gpu != NULL && n->emulator >= 0 ? 2 : 1;
}

static void nvme_count(struct pst_io_backend *b, struct pst_io_driven *driven)
{
    struct nvme *n = b->impl;
    (void)pthread_mutex_lock(&n->lock);
    *driven = n->driven;
    driven->drives = n->drives.n;
    driven->iops = n->drives.speed.iops;
    driven->bytes_per_s = n->drives.speed.bytes_per_s;
    driven->latency_s = n->drives.speed.latency_s;
    (void)pthread_mutex_unlock(&n->lock);
}

/* The two differ in where their drives come from. */
#define NVME_OPS(called, opened)                                                                             \
    {                                                                                                        \
        .name = called, .direct = true, .dma = true, .open = opened, .post = nvme_post, .ring = nvme_ring,   \
        .poll = nvme_poll, .fds = nvme_fds, .close = nvme_close, .post_group = nvme_post_group,              \
        .poll_groups = nvme_poll_groups, .count = nvme_count                                                 \
    }
const struct pst_io_backend_ops pst_io_nvme_ops = NVME_OPS("nvme", nvme_open);
const struct pst_io_backend_ops pst_io_emulated_ops = NVME_OPS("emulated", emulated_open);
