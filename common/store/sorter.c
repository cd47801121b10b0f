#include "sorter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../error.h"
#include "sorter_parts.h"

#define NARROW_ID_MAX (UINT32_MAX - 1) /* all ones stands for no key */
#define FAN_IN_CHUNK (64u << 10)       /* of memory for one input of a merge, at least */
#define FAN_IN_MAX 1024

enum buffer_state { FREE, FULL, BUSY };

struct buffer {
    void *keys;
    size_t n;
    bool wide;
    enum buffer_state state;
};

/* What the merging thread has made ready. */
struct block {
    void *keys;
    size_t n;
    bool full;
};

struct pst_sorter {
    struct pst_sorter_spec spec;
    size_t buffer_bytes;
    bool wide, finished, stop;
    int workers, buffers, mine; /* mine: the buffer that is filled now */
    struct buffer buffer[SORT_WORKERS_MAX + 1];
    void *scratch[SORT_WORKERS_MAX];
    pthread_t thread[SORT_WORKERS_MAX];
    int started;
    pthread_t merger;
    bool merging;
    struct merge merge;
    struct block block[2];
    int give;
    size_t given; /* keys of the present block that next gave */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock while threads run */
    struct spill spill;
    pst_rc failed;
    char error[1024];
};

static void note_failure(struct pst_sorter *s, pst_rc rc)
{
    if (s->failed != PST_OK)
        return;
    s->failed = rc;
    (void)snprintf(s->error, sizeof s->error, "%s", pst_error_text());
}

/* ---- making runs ---- */

/* Sorts one buffer and writes it; the buffer and the scratch may change places. Called without the lock. */
static pst_rc spill_buffer(struct pst_sorter *s, struct buffer *b, void **scratch)
{
    void *sorted = pst_sort_keys(b->keys, *scratch, &b->n, b->wide, s->spec.dedupe);
    if (sorted != b->keys) {
        *scratch = b->keys;
        b->keys = sorted;
    }
    size_t bytes = b->n * key_bytes(b->wide);
    (void)pthread_mutex_lock(&s->lock);
    struct run run = {.at = s->spill.end, .keys = b->n, .wide = b->wide};
    s->spill.end += (off_t)pst_align_up(bytes, PST_PAGE);
    (void)pthread_mutex_unlock(&s->lock);
    pst_rc rc = pst_spill_write(&s->spill, run.at, b->keys, bytes);
    if (rc != PST_OK)
        return rc;
    (void)pthread_mutex_lock(&s->lock);
    rc = pst_spill_add(&s->spill, run);
    s->spill.ever++;
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

static struct buffer *in_state(struct pst_sorter *s, enum buffer_state state)
{
    for (int i = 0; i < s->buffers; i++)
        if (s->buffer[i].state == state && i != s->mine)
            return &s->buffer[i];
    return NULL;
}

struct worker_start {
    struct pst_sorter *s;
    int index;
};

static void *work(void *arg)
{
    struct worker_start start = *(struct worker_start *)arg;
    free(arg);
    struct pst_sorter *s = start.s;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        struct buffer *b;
        while ((b = in_state(s, FULL)) == NULL && !s->stop)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        if (b == NULL)
            break;
        b->state = BUSY;
        pst_rc rc = s->failed;
        (void)pthread_mutex_unlock(&s->lock);
        if (rc == PST_OK)
            rc = spill_buffer(s, b, &s->scratch[start.index]);
        (void)pthread_mutex_lock(&s->lock);
        if (rc != PST_OK)
            note_failure(s, rc);
        b->state = FREE;
        b->n = 0;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static pst_rc start_workers(struct pst_sorter *s)
{
    while (s->started < s->workers) {
        struct worker_start *start = malloc(sizeof *start);
        if (start == NULL)
            return pst_fail(PST_E_NOMEM, "no memory for a thread");
        *start = (struct worker_start){s, s->started};
        int error = pthread_create(&s->thread[s->started], NULL, work, start);
        if (error != 0) {
            free(start);
            errno = error;
            return pst_fail_errno("cannot start a thread that sorts");
        }
        s->started++;
    }
    return PST_OK;
}

static pst_rc make_file(struct pst_sorter *s)
{
    s->spill.fd = open(s->spec.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->spill.fd >= 0)
        return PST_OK;
    char path[4096 + 32];
    (void)snprintf(path, sizeof path, "%s/sort-XXXXXX", s->spec.dir);
    s->spill.fd = mkostemp(path, O_CLOEXEC);
    if (s->spill.fd < 0)
        return pst_fail_errno("cannot make a file in %s to sort with", s->spec.dir);
    return unlink(path) == 0 ? PST_OK : pst_fail_errno("cannot remove %s", path);
}

static pst_rc failure_of(struct pst_sorter *s)
{
    return s->failed == PST_OK ? PST_OK : pst_fail(s->failed, "%s", s->error);
}

/* Hands my buffer over and takes another. */
static pst_rc next_buffer(struct pst_sorter *s)
{
    struct buffer *mine = &s->buffer[s->mine];
    if (mine->n == 0) {
        mine->wide = s->wide;
        return PST_OK;
    }
    pst_rc rc = s->spill.fd < 0 ? make_file(s) : PST_OK;
    if (rc != PST_OK)
        return rc;
    if (s->workers == 0) {
        rc = spill_buffer(s, mine, &s->scratch[0]);
        mine->n = 0;
        mine->wide = s->wide;
        return rc;
    }
    rc = start_workers(s);
    if (rc != PST_OK)
        return rc;
    (void)pthread_mutex_lock(&s->lock);
    mine->state = FULL;
    s->mine = -1;
    (void)pthread_cond_broadcast(&s->changed);
    struct buffer *b;
    while ((b = in_state(s, FREE)) == NULL)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    s->mine = (int)(b - s->buffer);
    b->wide = s->wide;
    rc = failure_of(s);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

static pst_rc allocate(struct pst_sorter *s)
{
    int scratches = s->workers > 0 ? s->workers : 1;
    s->buffers = s->workers + 1;
    s->buffer_bytes = s->spec.memory_bytes / (size_t)(s->buffers + scratches) / PST_PAGE * PST_PAGE;
    bool ok = true;
    for (int i = 0; i < s->buffers; i++)
        ok &= (s->buffer[i].keys = malloc(s->buffer_bytes)) != NULL;
    for (int i = 0; i < scratches; i++)
        ok &= (s->scratch[i] = malloc(s->buffer_bytes)) != NULL;
    return ok ? PST_OK
              : pst_fail(PST_E_NOMEM, "no memory for %llu bytes to sort with: give --memory less",
                         (unsigned long long)s->spec.memory_bytes);
}

pst_rc pst_sorter_new(struct pst_sorter **out, const struct pst_sorter_spec *spec)
{
    *out = NULL;
    if (spec->memory_bytes < PST_SORTER_MEMORY_MIN)
        return pst_fail(PST_E_ARG, "memory: expected at least %u bytes to sort with, found %llu",
                        PST_SORTER_MEMORY_MIN, (unsigned long long)spec->memory_bytes);
    struct pst_sorter *s = calloc(1, sizeof *s);
    if (s == NULL)
        return pst_fail(PST_E_NOMEM, "no memory to sort");
    s->spec = *spec;
    s->spill.fd = -1;
    s->wide = spec->tagged;
    s->buffer[0].wide = s->wide;
    s->workers = spec->threads <= 1                     ? 0
                 : spec->threads - 1 < SORT_WORKERS_MAX ? spec->threads - 1
                                                        : SORT_WORKERS_MAX;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    pst_rc rc = allocate(s);
    if (rc != PST_OK) {
        pst_sorter_free(s);
        return rc;
    }
    *out = s;
    return PST_OK;
}

/* Largest id of a block, as unsigned: a negative one is the largest of all. */
static uint64_t largest(const int64_t *high, const int64_t *low, int64_t n)
{
    uint64_t any = 0, max = 0;
    for (int64_t i = 0; i < n; i++) {
        any |= (uint64_t)high[i] | (uint64_t)low[i];
        max = (uint64_t)high[i] > max ? (uint64_t)high[i] : max;
        max = (uint64_t)low[i] > max ? (uint64_t)low[i] : max;
    }
    return any <= NARROW_ID_MAX ? any : max;
}

static void put_keys(struct buffer *b, const int64_t *high, const int64_t *low, const int32_t *tag, int64_t n)
{
    if (!b->wide) {
        uint64_t *to = (uint64_t *)b->keys + b->n;
        for (int64_t i = 0; i < n; i++)
            to[i] = (uint64_t)high[i] << 32 | (uint64_t)low[i];
    } else {
        wide_key *to = (wide_key *)b->keys + b->n;
        for (int64_t i = 0; i < n; i++)
            to[i] = (wide_key)(uint64_t)high[i] << 80 | (wide_key)(uint64_t)low[i] << 32 |
                    (tag != NULL ? (uint32_t)tag[i] : 0);
    }
    b->n += (size_t)n;
}

pst_rc pst_sorter_add(struct pst_sorter *s, const int64_t *high, const int64_t *low, const int32_t *tag,
                      int64_t n)
{
    assert(!s->finished && (tag != NULL) == s->spec.tagged);
    uint64_t max = largest(high, low, n);
    if (max > PST_SORTER_ID_MAX)
        return pst_fail(PST_E_LIMIT, "an id of %lld: expected 0 to %lld", (long long)max,
                        (long long)PST_SORTER_ID_MAX);
    if (max > NARROW_ID_MAX && !s->wide) {
        s->wide = true;
        pst_rc rc = next_buffer(s);
        if (rc != PST_OK)
            return rc;
    }
    for (int64_t done = 0; done < n;) {
        struct buffer *b = &s->buffer[s->mine];
        int64_t room = (int64_t)(s->buffer_bytes / key_bytes(b->wide) - b->n);
        if (room == 0) {
            pst_rc rc = next_buffer(s);
            if (rc != PST_OK)
                return rc;
            continue;
        }
        int64_t take = pst_min_i64(room, n - done);
        put_keys(b, high + done, low + done, tag != NULL ? tag + done : NULL, take);
        done += take;
    }
    return PST_OK;
}

/* ---- giving them ---- */

static void *merge_ahead(void *arg)
{
    struct pst_sorter *s = arg;
    for (int i = 0;; i ^= 1) {
        struct block *b = &s->block[i];
        (void)pthread_mutex_lock(&s->lock);
        while (b->full && !s->stop)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        bool stop = s->stop;
        (void)pthread_mutex_unlock(&s->lock);
        if (stop)
            return NULL;
        pst_rc rc = pst_merge_fill(&s->merge, b->keys, PST_SORTER_BLOCK, &b->n);
        (void)pthread_mutex_lock(&s->lock);
        if (rc != PST_OK)
            note_failure(s, rc);
        b->full = true;
        (void)pthread_cond_broadcast(&s->changed);
        bool last = rc != PST_OK || b->n == 0;
        (void)pthread_mutex_unlock(&s->lock);
        if (last)
            return NULL;
    }
}

static void end_workers(struct pst_sorter *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->started; i++)
        (void)pthread_join(s->thread[i], NULL);
    s->started = 0;
    s->stop = false;
}

static void free_buffers(struct pst_sorter *s)
{
    for (int i = 0; i <= SORT_WORKERS_MAX; i++) {
        free(s->buffer[i].keys);
        s->buffer[i].keys = NULL;
    }
    for (int i = 0; i < SORT_WORKERS_MAX; i++) {
        free(s->scratch[i]);
        s->scratch[i] = NULL;
    }
}

static pst_rc start_merging(struct pst_sorter *s)
{
    size_t fan_in = (size_t)(s->spec.memory_bytes / 2 / FAN_IN_CHUNK);
    fan_in = fan_in > FAN_IN_MAX ? FAN_IN_MAX : fan_in;
    pst_rc rc = pst_spill_shrink(&s->spill, fan_in, s->spec.dedupe, s->spec.memory_bytes / 2);
    for (int i = 0; rc == PST_OK && i < 2; i++)
        if ((s->block[i].keys = malloc(PST_SORTER_BLOCK * sizeof(wide_key))) == NULL)
            rc = pst_fail(PST_E_NOMEM, "no memory to merge");
    if (rc == PST_OK)
        rc = pst_merge_init(&s->merge, &s->spill, 0, (unsigned)s->spill.runs, s->wide, s->spec.dedupe,
                            s->spec.memory_bytes / 2);
    if (rc != PST_OK || s->spec.threads <= 1)
        return rc;
    int error = pthread_create(&s->merger, NULL, merge_ahead, s);
    errno = error;
    s->merging = error == 0;
    return error == 0 ? PST_OK : pst_fail_errno("cannot start a thread that merges");
}

pst_rc pst_sorter_finish(struct pst_sorter *s, int64_t *distinct)
{
    assert(!s->finished);
    s->finished = true;
    struct buffer *mine = &s->buffer[s->mine];
    if (s->spill.fd < 0) { /* all in memory */
        void *sorted = pst_sort_keys(mine->keys, s->scratch[0], &mine->n, mine->wide, s->spec.dedupe);
        if (sorted != mine->keys)
            s->scratch[0] = mine->keys;
        mine->keys = sorted;
        *distinct = (int64_t)mine->n;
        return PST_OK;
    }
    pst_rc rc = next_buffer(s);
    end_workers(s);
    if (rc == PST_OK)
        rc = failure_of(s);
    free_buffers(s);
    int64_t all = 0;
    for (size_t i = 0; i < s->spill.runs; i++)
        all += (int64_t)s->spill.run[i].keys;
    *distinct = s->spec.dedupe ? -1 : all;
    return rc == PST_OK ? start_merging(s) : rc;
}

/* The block that next gives from: the sorted buffer itself, or what was merged. */
static pst_rc present_block(struct pst_sorter *s, const void **keys, size_t *n)
{
    if (s->spill.fd < 0) {
        *keys = s->buffer[s->mine].keys;
        *n = s->buffer[s->mine].n;
        return PST_OK;
    }
    struct block *b = &s->block[s->give];
    pst_rc rc = PST_OK;
    if (!s->merging && s->given == b->n) {
        rc = pst_merge_fill(&s->merge, b->keys, PST_SORTER_BLOCK, &b->n);
        s->given = 0;
    } else if (s->merging) {
        (void)pthread_mutex_lock(&s->lock);
        if (s->given > 0 && s->given == b->n) {
            b->full = false;
            (void)pthread_cond_broadcast(&s->changed);
            s->give ^= 1;
            b = &s->block[s->give];
            s->given = 0;
        }
        while (!b->full)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        rc = failure_of(s);
        (void)pthread_mutex_unlock(&s->lock);
    }
    *keys = b->keys;
    *n = b->n;
    return rc;
}

pst_rc pst_sorter_next(struct pst_sorter *s, int64_t *high, int64_t *low, int32_t *tag, int64_t *n)
{
    assert(s->finished && (tag != NULL || !s->spec.tagged));
    const void *keys;
    size_t end;
    *n = 0;
    pst_rc rc = present_block(s, &keys, &end);
    if (rc != PST_OK)
        return rc;
    size_t take = end - s->given < PST_SORTER_BLOCK ? end - s->given : PST_SORTER_BLOCK;
    const uint64_t *narrow = (const uint64_t *)keys + s->given;
    const wide_key *wide = (const wide_key *)keys + s->given;
    for (size_t i = 0; i < take && !s->wide; i++) {
        high[i] = (int64_t)(narrow[i] >> 32);
        low[i] = (int64_t)(narrow[i] & UINT32_MAX);
    }
    for (size_t i = 0; i < take && s->wide; i++) {
        high[i] = (int64_t)(uint64_t)(wide[i] >> 80);
        low[i] = (int64_t)((uint64_t)(wide[i] >> 32) & ((UINT64_C(1) << 48) - 1));
        if (tag != NULL)
            tag[i] = (int32_t)(uint32_t)wide[i];
    }
    s->given += take;
    *n = (int64_t)take;
    return PST_OK;
}

int64_t pst_sorter_runs(const struct pst_sorter *s)
{
    return s->spill.ever;
}

void pst_sorter_free(struct pst_sorter *s)
{
    if (s == NULL)
        return;
    end_workers(s);
    if (s->merging) {
        (void)pthread_mutex_lock(&s->lock);
        s->stop = true;
        (void)pthread_cond_broadcast(&s->changed);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->merger, NULL);
    }
    pst_merge_release(&s->merge);
    for (int i = 0; i < 2; i++)
        free(s->block[i].keys);
    free_buffers(s);
    if (s->spill.fd >= 0)
        (void)close(s->spill.fd);
    free(s->spill.run);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
    free(s);
}
