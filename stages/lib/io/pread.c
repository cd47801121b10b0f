/* pread.c: a few threads that call preadv, for machines that forbid io_uring. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stages/lib/io/backend.h"
#include "common/error.h"
#include "stages/lib/io/op_list.h"

#define THREADS_MAX 256

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct pst_io_op_list posted; /* only for the engine's thread; ring moves them to todo */
    struct pst_io_op_list todo, done;
    bool stop;
    int event;
    int nthreads;
    struct pst_io_file *files;
    pthread_t threads[THREADS_MAX];
};

static void carry_out(const struct pool *pool, struct pst_io_op *op)
{
    const struct pst_io_file *file = &pool->files[op->file];
    int fd = op->direct ? file->direct : file->fd;
    ssize_t n = op->write ? pwritev(fd, op->iov, op->niov, (off_t)op->at)
                          : preadv(fd, op->iov, op->niov, (off_t)op->at);
    op->result = n >= 0 ? n : -errno;
}

static void *work(void *argument)
{
    struct pool *pool = argument;
    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct pst_io_op *op = pst_io_op_pop(&pool->todo);
        if (op != NULL) {
            (void)pthread_mutex_unlock(&pool->lock);
            carry_out(pool, op);
            (void)pthread_mutex_lock(&pool->lock);
            pst_io_op_push(&pool->done, op);
            const uint64_t one = 1;
            (void)!write(pool->event, &one, sizeof one);
        } else if (pool->stop) {
            break;
        } else {
            (void)pthread_cond_wait(&pool->work, &pool->lock);
        }
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pread_close(struct pst_io_backend *b)
{
    struct pool *pool = b->impl;
    if (pool == NULL)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    (void)pthread_cond_broadcast(&pool->work);
    (void)pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->nthreads; i++)
        (void)pthread_join(pool->threads[i], NULL);
    if (pool->event >= 0)
        (void)close(pool->event);
    (void)pthread_cond_destroy(&pool->work);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
    b->impl = NULL;
}

static pst_rc pread_open(struct pst_io_backend *b, const struct pst_io_config *config,
                         char note[PST_IO_NOTE_BYTES])
{
    (void)note;
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of the threads");
    b->impl = pool;
    pool->files = config->files;
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->work, NULL);
    pool->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int failed = pool->event < 0 ? errno : 0;
    int wanted = config->threads < THREADS_MAX ? config->threads : THREADS_MAX;
    while (failed == 0 && pool->nthreads < wanted) {
        failed = pthread_create(&pool->threads[pool->nthreads], NULL, work, pool);
        pool->nthreads += failed == 0;
    }
    if (failed == 0)
        return PST_OK;
    int started = pool->nthreads;
    pread_close(b);
    return pst_fail(PST_E_IO,
                    "could start only %d of %d threads that read: %s (the limit may be reached: ulimit -u)",
                    started, wanted, strerror(failed));
}

static void pread_post(struct pst_io_backend *b, struct pst_io_op *op)
{
    pst_io_op_push(&((struct pool *)b->impl)->posted, op);
}

static pst_rc pread_ring(struct pst_io_backend *b)
{
    struct pool *pool = b->impl;
    if (pool->posted.head == NULL)
        return PST_OK;
    (void)pthread_mutex_lock(&pool->lock);
    for (struct pst_io_op *op = pst_io_op_pop(&pool->posted); op != NULL; op = pst_io_op_pop(&pool->posted)) {
        pst_io_op_push(&pool->todo, op);
        (void)pthread_cond_signal(&pool->work);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return PST_OK;
}

static int pread_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct pool *pool = b->impl;
    uint64_t signals;
    (void)!read(pool->event, &signals, sizeof signals);
    int n = 0;
    (void)pthread_mutex_lock(&pool->lock);
    while (n < max && (done[n] = pst_io_op_pop(&pool->done)) != NULL)
        n++;
    (void)pthread_mutex_unlock(&pool->lock);
    return n;
}

static int pread_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    fds[0] = ((const struct pool *)b->impl)->event;
    return 1;
}

const struct pst_io_backend_ops pst_io_pread_ops = {
    .name = "pread",
    .direct = true,
    .open = pread_open,
    .post = pread_post,
    .ring = pread_ring,
    .poll = pread_poll,
    .fds = pread_fds,
    .close = pread_close,
};
