/* read_ahead.c: two windows of the file, which change places, and the thread that fills one of them. */
#include "common/store/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/signals.h"

/* Whole pages of the file, because a direct read begins and ends at sectors. */
struct window {
    char *memory;
    uint64_t from, size; /* what is read */
    uint64_t bytes;      /* what was read: less than `size` at the file's end */
    int error;           /* errno of the read, or 0 */
};

struct pst_read_ahead {
    char *path;
    int fd;
    bool direct;
    uint64_t most, at, wanted; /* at, wanted: of the piece that was asked for */
    struct window now, ahead;  /* the caller's, and the one that the thread fills while it is asked to */
    bool started, asked, stop;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* `asked` or `stop` */
};

/* ---- the thread ---------------------------------------------------------------------------------- */

static void fill(const struct pst_read_ahead *a, struct window *w)
{
    w->bytes = 0;
    w->error = 0;
    while (w->bytes < w->size) {
        const ssize_t n = pread(a->fd, w->memory + w->bytes, w->size - w->bytes, (off_t)(w->from + w->bytes));
        if (n < 0 && errno != EINTR)
            w->error = errno;
        if (n == 0 || w->error != 0)
            break;
        w->bytes += n > 0 ? (uint64_t)n : 0;
        if (w->bytes % PST_PAGE != 0) /* the end of the file; a direct read must begin at a sector */
            break;
    }
    if (!a->direct)
        (void)posix_fadvise(a->fd, (off_t)w->from, (off_t)w->bytes, POSIX_FADV_DONTNEED);
}

static void *work(void *arg)
{
    struct pst_read_ahead *a = arg;
    (void)pthread_mutex_lock(&a->mutex);
    while (!a->stop) {
        if (!a->asked) {
            (void)pthread_cond_wait(&a->changed, &a->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&a->mutex);
        fill(a, &a->ahead);
        (void)pthread_mutex_lock(&a->mutex);
        a->asked = false;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->mutex);
    return NULL;
}

/* ---- the caller ---------------------------------------------------------------------------------- */

void pst_read_ahead_ask(struct pst_read_ahead *a, uint64_t at, uint64_t bytes)
{
    assert(bytes <= a->most && !a->asked);
    (void)pthread_mutex_lock(&a->mutex);
    a->at = at;
    a->wanted = bytes;
    a->ahead.from = at & ~(uint64_t)(PST_PAGE - 1);
    a->ahead.size = pst_align_up(at + bytes, PST_PAGE) - a->ahead.from;
    a->asked = true;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->mutex);
}

pst_rc pst_read_ahead_take(struct pst_read_ahead *a, const char **piece, uint64_t *bytes)
{
    (void)pthread_mutex_lock(&a->mutex);
    while (a->asked)
        (void)pthread_cond_wait(&a->changed, &a->mutex);
    (void)pthread_mutex_unlock(&a->mutex);
    const struct window other = a->now;
    a->now = a->ahead;
    a->ahead = other;
    const uint64_t before = a->at - a->now.from, has = a->now.bytes > before ? a->now.bytes - before : 0;
    *piece = a->now.memory + before;
    *bytes = has < a->wanted ? has : a->wanted;
    if (a->now.error == 0 || *bytes == a->wanted)
        return PST_OK;
    errno = a->now.error;
    return pst_fail_errno("cannot read %s at byte %" PRIu64, a->path, a->now.from + a->now.bytes);
}

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc open_file(struct pst_read_ahead *a)
{
    a->fd = open(a->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    a->direct = a->fd >= 0;
    if (a->fd < 0 && errno == EINVAL)
        a->fd = open(a->path, O_RDONLY | O_CLOEXEC);
    return a->fd >= 0 ? PST_OK : pst_fail_errno("cannot open %s", a->path);
}

static pst_rc start(struct pst_read_ahead *a)
{
    const uint64_t bytes = pst_align_up(a->most, PST_PAGE) + PST_PAGE; /* a piece begins anywhere in a page */
    a->now.memory = aligned_alloc(PST_PAGE, bytes);
    a->ahead.memory = aligned_alloc(PST_PAGE, bytes);
    if (a->path == NULL || a->now.memory == NULL || a->ahead.memory == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes to read a file",
                        2 * bytes);
    const pst_rc rc = open_file(a);
    if (rc != PST_OK)
        return rc;
    errno = pst_signals_thread(&a->thread, work, a);
    a->started = errno == 0;
    return a->started ? PST_OK : pst_fail_errno("cannot start a thread that reads %s", a->path);
}

pst_rc pst_read_ahead_open(struct pst_read_ahead **a, const char *path, uint64_t most)
{
    *a = calloc(1, sizeof **a);
    if (*a == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes", sizeof **a);
    **a = (struct pst_read_ahead){.path = strdup(path), .fd = -1, .most = most};
    (void)pthread_mutex_init(&(*a)->mutex, NULL);
    (void)pthread_cond_init(&(*a)->changed, NULL);
    const pst_rc rc = start(*a);
    if (rc != PST_OK) {
        pst_read_ahead_close(*a);
        *a = NULL;
    }
    return rc;
}

void pst_read_ahead_close(struct pst_read_ahead *a)
{
    if (a == NULL)
        return;
    if (a->started) {
        (void)pthread_mutex_lock(&a->mutex);
        a->stop = true;
        (void)pthread_cond_broadcast(&a->changed);
        (void)pthread_mutex_unlock(&a->mutex);
        (void)pthread_join(a->thread, NULL);
    }
    if (a->fd >= 0)
        (void)close(a->fd);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->mutex);
    free(a->path);
    free(a->now.memory);
    free(a->ahead.memory);
    free(a);
}
