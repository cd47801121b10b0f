/* find.c: numbers the names of each stream, several streams at a time. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/error.h"
#include "common/store/names/names_impl.h"

#define TICK_NS 100000000 /* between two looks at progress */

/* ---- streams by several threads ---- */

struct run {
    struct pst_names *n;
    pst_names_part_fn fn;
    int next, living;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pst_rc failed;
    char error[1024];
};

static pst_rc work_part(struct pst_names *n, pst_names_part_fn fn, int part)
{
    pst_rc rc = fn(n, part, n->spec.memory_bytes / (uint64_t)n->workers);
    if (rc == PST_OK)
        __atomic_store_n(&n->part[part].done, true, __ATOMIC_RELEASE);
    return rc;
}

static void *work(void *arg)
{
    struct run *r = arg;
    (void)pthread_mutex_lock(&r->lock);
    while (r->failed == PST_OK && r->next < r->n->parts) {
        const int part = r->next++;
        if (r->n->part[part].done)
            continue;
        (void)pthread_mutex_unlock(&r->lock);
        const pst_rc rc = work_part(r->n, r->fn, part);
        (void)pthread_mutex_lock(&r->lock);
        if (rc == PST_OK || r->failed != PST_OK)
            continue;
        r->failed = rc;
        (void)snprintf(r->error, sizeof r->error, "%s", pst_error_text());
    }
    r->living--;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Progress since *told, and perhaps a note of what is done. */
static pst_rc tick(struct pst_names *n, uint64_t *told)
{
    const uint64_t now = __atomic_load_n(&n->worked, __ATOMIC_RELAXED);
    pst_rc rc = pst_progress_add(n->spec.progress, now - *told);
    *told = now;
    return rc == PST_OK && n->spec.note != NULL ? n->spec.note(n->spec.ctx, false) : rc;
}

/* Until all workers have ended. What fails here stops them. */
static void wait_workers(struct run *r)
{
    uint64_t told = 0;
    (void)pthread_mutex_lock(&r->lock);
    while (r->living > 0) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
        if (r->failed != PST_OK)
            continue;
        (void)pthread_mutex_unlock(&r->lock);
        const pst_rc rc = tick(r->n, &told);
        (void)pthread_mutex_lock(&r->lock);
        if (rc == PST_OK || r->failed != PST_OK)
            continue;
        r->failed = rc;
        (void)snprintf(r->error, sizeof r->error, "%s", pst_error_text());
        __atomic_store_n(&r->n->stop, true, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

static pst_rc run_threads(struct pst_names *n, pst_names_part_fn fn)
{
    struct run r = {.n = n, .fn = fn};
    pthread_t thread[NAMES_WORKERS_MAX];
    int started = 0;
    bool failed = false;
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.changed, NULL);
    while (started < n->workers && !failed) {
        (void)pthread_mutex_lock(&r.lock);
        errno = pthread_create(&thread[started], NULL, work, &r);
        failed = errno != 0;
        if (failed && r.failed == PST_OK) {
            r.failed = PST_E_NOMEM;
            (void)snprintf(r.error, sizeof r.error, "cannot start a thread: %s", strerror(errno));
        }
        r.living += !failed;
        started += !failed;
        (void)pthread_mutex_unlock(&r.lock);
    }
    wait_workers(&r);
    for (int i = 0; i < started; i++)
        (void)pthread_join(thread[i], NULL);
    (void)pthread_cond_destroy(&r.changed);
    (void)pthread_mutex_destroy(&r.lock);
    return r.failed == PST_OK ? PST_OK : pst_fail(r.failed, "%s", r.error);
}

/* Names that were parted before are numbered in the thread that does it: it is one of several. */
pst_rc pst_names_run_parts(struct pst_names *n, pst_names_part_fn fn, const char *what)
{
    pst_rc rc = PST_OK;
    uint64_t mentions = 0;
    for (int p = 0; p < n->parts; p++)
        mentions += n->part[p].done ? 0 : n->part[p].mentions;
    n->worked = 0;
    pst_progress_begin(n->spec.progress, what, mentions, false);
    if (n->spec.depth == 0)
        rc = run_threads(n, fn);
    for (int p = 0; rc == PST_OK && n->spec.depth > 0 && p < n->parts; p++)
        rc = work_part(n, fn, p);
    if (rc == PST_OK)
        pst_progress_end(n->spec.progress);
    return rc;
}

void pst_names_begin_step(struct pst_names *n, enum pst_names_step step)
{
    n->step = step;
    for (int p = 0; p < n->parts; p++)
        n->part[p].done = false;
}

pst_rc pst_names_note(struct pst_names *n)
{
    return n->spec.note != NULL ? n->spec.note(n->spec.ctx, true) : PST_OK;
}

/* ---- one stream's names ---- */

struct finding {
    struct pst_names *n;
    int part;
    struct pst_ids_writer ids;
    uint64_t at, last; /* mentions so far; up to the last new name and with it */
    uint64_t before;   /* mentions that were numbered at once */
    int64_t names;
    uint64_t text_bytes;
};

static pst_rc put_found(struct finding *f, uint64_t mention, struct pst_name name)
{
    unsigned char distance[VARINT_MAX];
    struct pst_log_streams *s = &f->n->file[FILE_FOUND];
    pst_rc rc =
        pst_log_stream_put(s, found_names(f->part), distance, put_varint(distance, mention + 1 - f->last));
    f->last = mention + 1;
    f->names++;
    f->text_bytes += name.bytes;
    return rc == PST_OK ? put_name(s, found_names(f->part), name) : rc;
}

static pst_rc put_found_later(void *ctx, int64_t mention, struct pst_name name)
{
    struct finding *f = ctx;
    return put_found(f, f->before + (uint64_t)mention, name);
}

pst_rc pst_names_take(struct pst_log_stream_reader *r, struct pst_name name[NAMES_BATCH], size_t *count,
                      size_t *bytes)
{
    size_t record;
    *count = *bytes = 0;
    pst_rc rc = pst_log_stream_ahead(r, VARINT_MAX + 1);
    if (rc != PST_OK || r->at == r->end)
        return rc;
    (void)name_ahead(r, 0, &record);
    if (record == 0 && (rc = pst_log_stream_ahead(r, VARINT_MAX + PST_NAMES_BYTES_MAX)) != PST_OK)
        return rc;
    while (*count < NAMES_BATCH) {
        name[*count] = name_ahead(r, *bytes, &record);
        if (record == 0)
            break;
        *bytes += record;
        ++*count;
    }
    return *count > 0 ? PST_OK : damaged();
}

static pst_rc find_batches(struct finding *f, struct pst_names *inner)
{
    struct pst_log_stream_reader r;
    struct pst_name name[NAMES_BATCH] = {{NULL, 0}};
    int64_t id[NAMES_BATCH];
    size_t count, bytes, known;
    pst_log_stream_read(&r, &f->n->file[FILE_MENTIONS], f->part);
    pst_rc rc;
    while ((rc = pst_names_take(&r, name, &count, &bytes)) == PST_OK && count > 0) {
        if (pst_names_stopped(f->n))
            rc = pst_fail(PST_E_INTERRUPTED, "interrupted");
        if (rc == PST_OK)
            rc = pst_names_add(inner, name, count, id, &known);
        for (size_t i = 0; rc == PST_OK && i < known; i++) {
            if (id[i] == f->names)
                rc = put_found(f, f->before + i, name[i]);
            if (rc == PST_OK)
                rc = pst_ids_put(&f->ids, (uint64_t)id[i]);
        }
        if (rc != PST_OK)
            break;
        f->before += known;
        r.at += bytes;
        (void)__atomic_fetch_add(&f->n->worked, count, __ATOMIC_RELAXED);
    }
    pst_log_stream_reader_release(&r);
    return rc;
}

/* Those that did not fit in memory: the same again, with another hash. */
static pst_rc find_rest(struct finding *f, struct pst_names *inner)
{
    int64_t id[NAMES_BATCH];
    size_t count = 1;
    pst_rc rc = pst_names_find(inner);
    if (rc == PST_OK)
        rc = pst_names_order(inner, put_found_later, f);
    if (rc == PST_OK)
        rc = pst_names_number(inner);
    while (rc == PST_OK && count > 0) {
        rc = pst_names_next(inner, id, NAMES_BATCH, &count);
        for (size_t i = 0; rc == PST_OK && i < count; i++)
            rc = pst_ids_put(&f->ids, (uint64_t)id[i]);
    }
    return rc;
}

static pst_rc find_part(struct pst_names *n, int part, uint64_t memory_bytes)
{
    const uint64_t own =
        (uint64_t)4 * n->block_bytes + sizeof(struct finding); /* to read, and to write twice */
    const struct pst_names_spec spec = {
        .dir = n->spec.dir,
        .memory_bytes = memory_bytes > own + PST_NAMES_MEMORY_MIN ? memory_bytes - own : PST_NAMES_MEMORY_MIN,
        .threads = 1,
        .row = 1,
        .hash_bits = n->spec.hash_bits,
        .depth = n->spec.depth + 1,
        .stop = n->spec.stop != NULL ? n->spec.stop : &n->stop};
    struct finding f = {.n = n, .part = part, .ids = {.s = &n->file[FILE_FOUND], .stream = found_ids(part)}};
    struct pst_names *inner = NULL;
    if (n->part[part].mentions == 0)
        return PST_OK;
    pst_rc rc = pst_names_new(&inner, &spec);
    if (rc == PST_OK)
        rc = find_batches(&f, inner);
    if (rc == PST_OK && pst_names_aside(inner))
        rc = find_rest(&f, inner);
    pst_names_free(inner);
    if (rc == PST_OK)
        rc = pst_ids_flush(&f.ids);
    if (rc == PST_OK)
        rc = pst_log_stream_end(&n->file[FILE_FOUND], found_ids(part));
    if (rc == PST_OK)
        rc = pst_log_stream_end(&n->file[FILE_FOUND], found_names(part));
    n->part[part].names = (uint64_t)f.names;
    n->part[part].text_bytes = f.text_bytes;
    return rc;
}

/* The names in memory go to the log's file: the memory is needed. */
static pst_rc put_resident(struct pst_names *n)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; rc == PST_OK && n->spec.depth == 0 && at < n->dict.used;)
        rc = put_name(&n->file[FILE_LOG], LOG_NAMES, pst_dict_name(&n->dict, &at));
    pst_dict_release(&n->dict);
    return rc;
}

static pst_rc end_adding(struct pst_names *n)
{
    pst_rc rc = pst_ids_flush(&n->known);
    if (rc == PST_OK)
        rc = put_resident(n);
    if (rc == PST_OK)
        rc = pst_log_streams_end(&n->file[FILE_LOG]);
    if (rc == PST_OK)
        rc = pst_log_streams_end(&n->file[FILE_MENTIONS]);
    if (rc == PST_OK)
        rc = pst_names_open(n, FILE_FOUND, 2 * n->parts);
    pst_names_begin_step(n, PST_NAMES_FINDING);
    return rc == PST_OK ? pst_names_note(n) : rc;
}

pst_rc pst_names_find(struct pst_names *n)
{
    assert(n->aside && n->step <= PST_NAMES_FINDING);
    pst_rc rc = n->step == PST_NAMES_ADDING ? end_adding(n) : PST_OK;
    return rc == PST_OK ? pst_names_run_parts(n, find_part, "names: finding") : rc;
}
