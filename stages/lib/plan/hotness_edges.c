/* hotness_edges.c: the windows, and the thread that reads ahead. */
#include "stages/lib/plan/hotness_edges.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/signals.h"

struct window {
    char *memory;
    uint64_t from, bytes; /* of the file; bytes is less than a window's size at its end */
    int error;            /* errno of the read, or 0 */
};

struct pst_hotness_reader {
    int fd;
    bool direct;
    uint64_t window_bytes;
    struct window now, ahead; /* the thread fills `ahead` while it is asked to */
    pthread_t thread;
    bool started, asked, stop;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* `asked` or `stop` */
};

/* ---- reading ------------------------------------------------------------------------------------- */

/* Reads the window from byte `from` on, or as much as the file has. */
static void fill(const struct pst_hotness_reader *r, struct window *w, uint64_t from)
{
    w->from = from;
    w->bytes = 0;
    w->error = 0;
    while (w->bytes < r->window_bytes) {
        const ssize_t n =
            pread(r->fd, w->memory + w->bytes, r->window_bytes - w->bytes, (off_t)(from + w->bytes));
        if (n < 0 && errno != EINTR)
            w->error = errno;
        if (n == 0 || w->error != 0)
            break;
        w->bytes += n > 0 ? (uint64_t)n : 0;
        if (w->bytes % PST_PAGE != 0) /* the end of the file; a direct read must begin at a sector */
            break;
    }
    if (!r->direct)
        (void)posix_fadvise(r->fd, (off_t)from, (off_t)w->bytes, POSIX_FADV_DONTNEED);
}

static void *read_ahead(void *arg)
{
    struct pst_hotness_reader *r = arg;
    (void)pthread_mutex_lock(&r->mutex);
    while (!r->stop) {
        if (!r->asked) {
            (void)pthread_cond_wait(&r->changed, &r->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&r->mutex);
        fill(r, &r->ahead, r->ahead.from);
        (void)pthread_mutex_lock(&r->mutex);
        r->asked = false;
        (void)pthread_cond_broadcast(&r->changed);
    }
    (void)pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* Afterwards, the caller may use `ahead`. */
static void wait_for_reader(struct pst_hotness_reader *r)
{
    (void)pthread_mutex_lock(&r->mutex);
    while (r->asked)
        (void)pthread_cond_wait(&r->changed, &r->mutex);
    (void)pthread_mutex_unlock(&r->mutex);
}

static void ask(struct pst_hotness_reader *r, uint64_t from)
{
    (void)pthread_mutex_lock(&r->mutex);
    r->ahead.from = from;
    r->asked = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->mutex);
}

static bool has(const struct window *w, uint64_t begin, uint64_t size)
{
    return begin >= w->from && begin + size <= w->from + w->bytes;
}

pst_rc pst_hotness_edges_move(struct pst_hotness_edges *e, int64_t at)
{
    struct pst_hotness_reader *r = e->reader;
    const uint64_t size = (uint64_t)e->entry_bytes, begin = e->file->data_at + (uint64_t)at * size;
    wait_for_reader(r);
    if (has(&r->ahead, begin, size)) {
        const struct window other = r->now;
        r->now = r->ahead;
        r->ahead = other;
    } else {
        fill(r, &r->now, begin & ~(uint64_t)(PST_PAGE - 1));
    }
    const struct window *w = &r->now;
    if (w->error != 0) {
        errno = w->error;
        return pst_fail_errno("cannot read the edges %s at byte %" PRIu64, e->file->path, w->from + w->bytes);
    }
    if (!has(w, begin, size))
        return pst_fail(PST_E_IO,
                        "%s ends before edge %" PRId64 " of %" PRId64
                        ": the file became shorter while it was being read",
                        e->file->path, at, e->all);
    const uint64_t before = begin - w->from; /* earlier entries, and perhaps the end of the header */
    e->entries = w->memory + before;
    e->first = at;
    e->end = pst_min_i64(e->all, at + (int64_t)((w->bytes - before) / size));
    if (e->end < e->all && w->bytes == r->window_bytes) /* else the file became shorter */
        ask(r, w->from + w->bytes);
    return PST_OK;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc open_file(struct pst_hotness_reader *r, const char *path)
{
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    r->direct = r->fd >= 0;
    if (r->fd < 0 && errno == EINVAL)
        r->fd = open(path, O_RDONLY | O_CLOEXEC);
    return r->fd >= 0 ? PST_OK : pst_fail_errno("cannot open the edges %s", path);
}

static pst_rc start(struct pst_hotness_reader *r, const char *path)
{
    for (int i = 0; i < 2; i++) {
        struct window *w = i == 0 ? &r->now : &r->ahead;
        w->memory = aligned_alloc(PST_PAGE, r->window_bytes);
        if (w->memory == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes to read edges",
                            r->window_bytes);
    }
    const pst_rc rc = open_file(r, path);
    if (rc != PST_OK)
        return rc;
    errno = pst_signals_thread(&r->thread, read_ahead, r);
    r->started = errno == 0;
    return r->started ? PST_OK : pst_fail_errno("cannot start a thread that reads the edges %s", path);
}

pst_rc pst_hotness_edges_open(struct pst_hotness_edges *e, const struct pst_csc *graph,
                              const struct pst_array *file, uint64_t window_bytes)
{
    *e = (struct pst_hotness_edges){.file = file, .entry_bytes = graph->index_bytes, .all = graph->edges};
    if (file == NULL) {
        e->entries = graph->indices;
        e->end = e->all;
        return PST_OK;
    }
    e->reader = calloc(1, sizeof *e->reader);
    if (e->reader == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes", sizeof *e->reader);
    *e->reader = (struct pst_hotness_reader){.fd = -1, .window_bytes = pst_align_up(window_bytes, PST_PAGE)};
    (void)pthread_mutex_init(&e->reader->mutex, NULL);
    (void)pthread_cond_init(&e->reader->changed, NULL);
    const pst_rc rc = start(e->reader, file->path);
    if (rc != PST_OK)
        pst_hotness_edges_close(e);
    return rc;
}

void pst_hotness_edges_close(struct pst_hotness_edges *e)
{
    struct pst_hotness_reader *r = e->reader;
    if (r != NULL && r->started) {
        (void)pthread_mutex_lock(&r->mutex);
        r->stop = true;
        (void)pthread_cond_broadcast(&r->changed);
        (void)pthread_mutex_unlock(&r->mutex);
        (void)pthread_join(r->thread, NULL);
    }
    if (r != NULL) {
        if (r->fd >= 0)
            (void)close(r->fd);
        (void)pthread_cond_destroy(&r->changed);
        (void)pthread_mutex_destroy(&r->mutex);
        free(r->now.memory);
        free(r->ahead.memory);
        free(r);
    }
    *e = (struct pst_hotness_edges){0};
}
