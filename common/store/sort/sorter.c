/* sorter.c: takes keys in, in memory first, then divided among buckets by threads. */
#include "common/store/sort/sorter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/sort/sorter_state.h"

#define NARROW_ID_MAX (UINT32_MAX - 1) /* all ones stands for no key */
#define SLICE_BYTES_MAX (512u << 10)   /* of keys that go from thread to thread: they stay in a cache */
#define SLICES_MIN 8
#define BLOCK_BYTES_MIN 4096u
#define BLOCK_BYTES_MAX (256u << 10)

static void *slice_keys(const struct pst_sorter *s, size_t i)
{
    return s->arena + i * s->slice_bytes;
}

static void note_failure(struct pst_sorter *s, pst_rc rc)
{
    if (s->failed != PST_OK || rc == PST_OK)
        return;
    s->failed = rc;
    (void)snprintf(s->error, sizeof s->error, "%s", pst_error_text());
}

static pst_rc failure_of(struct pst_sorter *s)
{
    return s->failed == PST_OK ? PST_OK : pst_fail(s->failed, "%s", s->error);
}

/* ---- making one ---- */

static size_t clamp(uint64_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : (size_t)value;
}

static size_t power_below(size_t value)
{
    return (size_t)1 << (63 - __builtin_clzll(value));
}

/* A half of the memory is the arena; of the rest, less than a half are blocks and keys on their way. */
static pst_rc allocate(struct pst_sorter *s)
{
    uint64_t memory = s->spec.memory_bytes;
    s->slice_bytes = clamp(memory / 2 / SLICES_MIN / PST_PAGE * PST_PAGE, PST_PAGE, SLICE_BYTES_MAX);
    s->slices = (size_t)(memory / 2) / s->slice_bytes;
    s->spill.block_bytes = clamp(power_below(memory / 4096), BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    s->spill.extent_bytes = EXTENT_BLOCKS * s->spill.block_bytes;
    s->round = clamp(2 * (uint64_t)(s->workers + 1), 1, s->slices);
    s->fresh = s->slices;
    s->slice = calloc(s->slices, sizeof *s->slice);
    void *arena = mmap(NULL, s->slices * s->slice_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->arena = arena == MAP_FAILED ? NULL : arena;
    return s->slice != NULL && s->arena != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM,
                          "out of memory: cannot allocate %llu bytes to sort with: decrease --memory",
                          (unsigned long long)memory);
}

pst_rc pst_sorter_new(struct pst_sorter **out, const struct pst_sorter_spec *spec)
{
    *out = NULL;
    if (spec->memory_bytes < PST_SORTER_MEMORY_MIN)
        return pst_fail(PST_E_ARG,
                        "--memory: sorting edges needs at least %u bytes, but only %llu are left for it: "
                        "increase --memory",
                        PST_SORTER_MEMORY_MIN, (unsigned long long)spec->memory_bytes);
    struct pst_sorter *s = calloc(1, sizeof *s);
    if (s == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort the edges");
    s->spec = *spec;
    s->spill.fd = -1;
    s->wide = spec->tagged;
    s->workers = (int)clamp(spec->threads > 1 ? (uint64_t)spec->threads - 1 : 0, 0, SORT_WORKERS_MAX);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    pst_rc rc = allocate(s);
    if (rc != PST_OK) {
        pst_sorter_free(s);
        return rc;
    }
    s->slice[0].wide = s->wide;
    *out = s;
    return PST_OK;
}

/* ---- parting ---- */

/* A slice's keys to their buckets. One that does not go round gives its memory back. */
static pst_rc part_slice(struct pst_sorter *s, size_t i, struct scatter *scatter)
{
    struct slice *slice = &s->slice[i];
    pst_rc rc = pst_sorter_scatter_add(scatter, slice_keys(s, i), slice->n, slice->wide);
    if (i >= s->round)
        (void)madvise(slice_keys(s, i), s->slice_bytes, MADV_DONTNEED);
    slice->n = 0;
    return rc;
}

struct start {
    struct pst_sorter *s;
    int index;
};

static void *work(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    struct pst_sorter *s = start.s;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->slice[slice_at(s, s->taking)].state != FULL && !s->stop)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        size_t i = slice_at(s, s->taking);
        if (s->slice[i].state != FULL)
            break;
        s->taking++;
        s->slice[i].state = BUSY;
        s->at_work++;
        pst_rc rc = s->failed;
        (void)pthread_mutex_unlock(&s->lock);
        if (rc == PST_OK)
            rc = part_slice(s, i, &s->scatter[start.index]);
        (void)pthread_mutex_lock(&s->lock);
        note_failure(s, rc);
        s->slice[i].n = 0;
        s->slice[i].state = FREE;
        s->at_work--;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static pst_rc start_workers(struct pst_sorter *s)
{
    while (s->started < s->workers) {
        struct start *start = malloc(sizeof *start);
        if (start == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of a sorting thread");
        *start = (struct start){s, s->started};
        errno = pthread_create(&s->thread[s->started], NULL, work, start);
        if (errno != 0) {
            free(start);
            return pst_fail_errno("cannot start a sorting thread");
        }
        s->started++;
    }
    return PST_OK;
}

void pst_sorter_end_workers(struct pst_sorter *s)
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

unsigned pst_sorter_buckets(const struct pst_sorter *s)
{
    return (unsigned)clamp(s->spec.memory_bytes / 8 / s->spill.block_bytes, BUCKETS_MIN, BUCKETS_MAX);
}

size_t pst_sorter_pack_keys(const struct pst_sorter *s)
{
    uint64_t streams = (uint64_t)(s->workers + 1) * pst_sorter_buckets(s);
    return clamp(s->spec.memory_bytes / 8 / (streams * sizeof(wide_key)), 32, PACK_KEYS_MAX);
}

pst_rc pst_sorter_start_scattering(struct pst_sorter *s)
{
    pst_rc rc = PST_OK;
    for (int i = 0; rc == PST_OK && i < (s->workers > 0 ? s->workers : 1); i++)
        rc = pst_sorter_scatter_init(&s->scatter[i], &s->parts);
    return rc == PST_OK ? start_workers(s) : rc;
}

static void put_keys(void *keys, bool wide, const int64_t *high, const int64_t *low, const int32_t *tag,
                     int64_t n)
{
    uint64_t *narrow = keys;
    wide_key *w = keys;
    for (int64_t i = 0; i < n && !wide; i++)
        narrow[i] = (uint64_t)high[i] << 32 | (uint64_t)low[i];
    for (int64_t i = 0; i < n && wide; i++)
        w[i] = (wide_key)(uint64_t)high[i] << 80 | (wide_key)(uint64_t)low[i] << 32 |
               (tag != NULL ? (uint32_t)tag[i] : 0);
}

/* Largest id of a block, as unsigned: a negative one is the largest of all. */
static uint64_t largest(const int64_t *high, const int64_t *low, int64_t n)
{
    uint64_t any = 0, max = 0;
    for (int64_t i = 0; i < n; i++)
        any |= (uint64_t)high[i] | (uint64_t)low[i];
    if (any < NARROW_ID_MAX)
        return any;
    for (int64_t i = 0; i < n; i++) {
        max = (uint64_t)high[i] > max ? (uint64_t)high[i] : max;
        max = (uint64_t)low[i] > max ? (uint64_t)low[i] : max;
    }
    return max;
}

static size_t sample_max(const struct pst_sorter *s)
{
    return (size_t)SAMPLE_PER_BUCKET * pst_sorter_buckets(s);
}

int64_t pst_sorter_sample(const struct pst_sorter *s, int64_t keys)
{
    const bool fits = (uint64_t)keys < s->slices * (s->slice_bytes / key_bytes(s->wide));
    return fits ? 0 : pst_min_i64(keys, (int64_t)sample_max(s));
}

pst_rc pst_sorter_expect(struct pst_sorter *s, const int64_t *high, const int64_t *low, int64_t n)
{
    const int64_t *const from[] = {high, low};
    const size_t room = sample_max(s), take = clamp((uint64_t)n, 0, room - s->nexpected);
    assert(!spilling(s) && !s->finished);
    if (largest(high, low, n) > NARROW_ID_MAX)
        return PST_OK; /* keys are narrow until one is not */
    for (int i = 0; i < 2; i++) {
        if (s->expected[i] == NULL)
            s->expected[i] = malloc(room * sizeof *s->expected[i]);
        if (s->expected[i] == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot take a sample of the edges");
        memcpy(s->expected[i] + s->nexpected, from[i], take * sizeof **from);
    }
    s->nexpected += take;
    if (s->nexpected > 0) /* memory will not hold all keys, so they need not be collected in it */
        s->fresh = s->round;
    return PST_OK;
}

/* Up to `want` keys as a sample: those that the caller gave, or some of the first slices. Returns how many.
 */
static size_t take_sample(const struct pst_sorter *s, size_t slices, char *sample, size_t want)
{
    const size_t item = key_bytes(s->slice[0].wide);
    size_t all = (slices - 1) * (s->slice_bytes / item) + s->slice[slices - 1].n, n = 0;
    if (s->nexpected > 0) {
        put_keys(sample, s->slice[0].wide, s->expected[0], s->expected[1], NULL, (int64_t)s->nexpected);
        return s->nexpected;
    }
    for (; n < want && n < all; n++)
        memcpy(sample + n * item, s->arena + (n * all / (all < want ? all : want)) * item, item);
    return n;
}

/* The arena is full, or keys become wide: splitters are chosen. */
static pst_rc start_spilling(struct pst_sorter *s, size_t slices)
{
    size_t want = sample_max(s), item = key_bytes(s->slice[0].wide), n = 0;
    char *sample = malloc(want * item), *scratch = malloc(want * item);
    pst_rc rc = sample != NULL && scratch != NULL
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot partition the edges");
    if (rc == PST_OK)
        n = take_sample(s, slices, sample, want);
    if (rc == PST_OK)
        rc = pst_sorter_spill_make(&s->spill, s->spec.dir, s->spec.named);
    if (rc == PST_OK)
        rc = pst_sorter_partition_init(&s->parts, &s->spill, sample, scratch, n, s->slice[0].wide,
                                       pst_sorter_buckets(s), pst_sorter_pack_keys(s));
    free(sample);
    free(scratch);
    if (rc == PST_OK)
        rc = pst_sorter_start_scattering(s);
    return rc;
}

static pst_rc hand_over(struct pst_sorter *s, uint64_t count)
{
    size_t i = slice_at(s, count);
    if (s->workers == 0) {
        s->taking++;
        return part_slice(s, i, &s->scatter[0]);
    }
    (void)pthread_mutex_lock(&s->lock);
    s->slice[i].state = FULL;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return PST_OK;
}

/* The slice after the one that is filled: a fresh one while there are some, then one that came back. */
static pst_rc next_slice(struct pst_sorter *s)
{
    bool widened = s->slice[slice_at(s, s->filling)].wide != s->wide;
    pst_rc rc = PST_OK;
    if (spilling(s)) {
        rc = hand_over(s, s->filling);
    } else if (widened || s->filling + 1 == s->fresh) {
        rc = start_spilling(s, (size_t)s->filling + 1);
        for (uint64_t i = 0; rc == PST_OK && i <= s->filling; i++)
            rc = hand_over(s, i);
    }
    struct slice *slice = &s->slice[slice_at(s, ++s->filling)];
    (void)pthread_mutex_lock(&s->lock);
    while (slice->state != FREE)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    slice->wide = s->wide;
    rc = rc == PST_OK ? failure_of(s) : rc;
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

pst_rc pst_sorter_add(struct pst_sorter *s, const int64_t *high, const int64_t *low, const int32_t *tag,
                      int64_t n)
{
    assert(!s->finished && (tag != NULL) == s->spec.tagged);
    uint64_t max = largest(high, low, n);
    if (max > PST_SORTER_ID_MAX)
        return pst_fail(PST_E_LIMIT, "vertex id %lld is out of range: expected 0 to %lld", (long long)max,
                        (long long)PST_SORTER_ID_MAX);
    struct slice *slice = &s->slice[slice_at(s, s->filling)];
    if (max > NARROW_ID_MAX && !s->wide) {
        s->wide = true;
        if (slice->n == 0 && s->filling == 0 && !spilling(s))
            slice->wide = true;
    }
    for (int64_t done = 0; done < n;) {
        slice = &s->slice[slice_at(s, s->filling)];
        int64_t room = (int64_t)(s->slice_bytes / key_bytes(slice->wide) - slice->n);
        if (room == 0 || slice->wide != s->wide) {
            pst_rc rc = next_slice(s);
            if (rc != PST_OK)
                return rc;
            continue;
        }
        int64_t take = pst_min_i64(room, n - done);
        size_t at = (size_t)(slice - s->slice);
        put_keys((char *)slice_keys(s, at) + slice->n * key_bytes(slice->wide), slice->wide, high + done,
                 low + done, tag != NULL ? tag + done : NULL, take);
        slice->n += (size_t)take;
        done += take;
    }
    return PST_OK;
}

void pst_sorter_free_parting(struct pst_sorter *s)
{
    for (int i = 0; i <= SORT_WORKERS_MAX; i++) {
        pst_sorter_scatter_release(&s->scatter[i]);
        s->scatter[i] = (struct scatter){.to = NULL};
    }
    pst_sorter_partition_release(&s->parts, false);
    if (s->arena != NULL)
        (void)munmap(s->arena, s->slices * s->slice_bytes);
    s->arena = NULL;
}

/* All that was added is in the buckets, and on disk; the workers wait for more. */
pst_rc pst_sorter_settle(struct pst_sorter *s)
{
    pst_rc rc = hand_over(s, s->filling);
    (void)pthread_mutex_lock(&s->lock);
    while (s->at_work > 0 || (s->workers > 0 && s->taking <= s->filling))
        (void)pthread_cond_wait(&s->changed, &s->lock);
    if (rc == PST_OK)
        rc = failure_of(s);
    for (int i = 0; rc == PST_OK && i < (s->workers > 0 ? s->workers : 1); i++)
        rc = pst_sorter_scatter_flush(&s->scatter[i]);
    (void)pthread_mutex_unlock(&s->lock);
    s->slice[slice_at(s, ++s->filling)].wide = s->wide;
    return rc == PST_OK ? pst_sorter_partition_flush(&s->parts) : rc;
}

void pst_sorter_free(struct pst_sorter *s)
{
    if (s == NULL)
        return;
    pst_sorter_end_workers(s);
    pst_sorter_giver_free(s->giver);
    pst_sorter_free_parting(s);
    pst_sorter_partition_release(&s->parts, true);
    for (size_t i = 0; i < s->agains; i++)
        pst_sorter_partition_release(&s->again[i], true);
    free(s->again);
    free(s->order);
    free(s->expected[0]);
    free(s->expected[1]);
    free(s->slice);
    free(s->scratch);
    if (spilling(s))
        (void)close(s->spill.fd);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
    free(s);
}
