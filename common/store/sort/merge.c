/* merge.c: reads buckets ahead with several threads, sorts them and gives their keys in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/sort/sorter_impl.h"
#include "common/util/memory.h"

enum slot_state { FREE, BUSY, READY };

/* One bucket in memory, sorted. */
struct slot {
    enum slot_state state;
    size_t bucket, n;
    void *a, *b, *sorted;
    uint64_t base; /* of narrow keys, as pst_sorter_bucket_next gave them */
    unsigned low_bits;
    bool constant; /* all keys are the bucket's one */
};

struct giver {
    struct give_spec spec;
    struct slot slot[SORT_WORKERS_MAX + 1];
    unsigned char *buffer[SORT_WORKERS_MAX + 1];
    int slots, started;
    pthread_t thread[SORT_WORKERS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t claimed; /* the next bucket that nobody sorts yet */
    bool stop;
    pst_rc failed;
    char error[1024];
    /* the caller's */
    struct slot *present;
    size_t done, given; /* buckets that were given whole; keys of the present one */
};

static int slots_of(const struct give_spec *spec)
{
    return spec->workers + 1;
}

size_t pst_sorter_giver_keys_max(const struct give_spec *spec)
{
    uint64_t slots = (uint64_t)slots_of(spec), buffers = slots * spec->spill->extent_bytes;
    uint64_t left = spec->memory_bytes > 2 * buffers ? spec->memory_bytes - buffers : buffers;
    return (size_t)(left / (2 * slots) / key_bytes(spec->wide));
}

static unsigned bits_for(uint64_t max)
{
    return max == 0 ? 0 : 64 - (unsigned)__builtin_clzll(max);
}

/* Reads one bucket and sorts it. */
static pst_rc load(const struct giver *g, struct slot *slot, unsigned char *buffer)
{
    const struct give_spec *spec = &g->spec;
    const struct bucket *b = spec->bucket[slot->bucket];
    struct bucket_reader r = {.spill = spec->spill, .bucket = b, .buffer = buffer};
    slot->base = (uint64_t)(b->min >> 80);
    slot->low_bits = bits_for(b->low_max);
    slot->n = spec->dedupe && b->keys > 0 && b->min == b->max ? 1 : (size_t)b->keys;
    slot->constant = b->keys > 0 && b->min == b->max;
    if (slot->constant)
        return PST_OK;
    size_t item = key_bytes(spec->wide), at = 0;
    for (size_t n = 1; n > 0; at += n) {
        /* pst_sorter_bucket_next writes up to PACK_KEYS_MAX keys: there is room for as many past the bucket's
         */
        pst_rc rc = pst_sorter_bucket_next(&r, (char *)slot->a + at * item, spec->wide, slot->base,
                                           slot->low_bits, &n);
        if (rc != PST_OK)
            return rc;
        if (n > slot->n - at)
            return pst_fail(PST_E_IO, "the temporary file of edges has more edges than were written: the "
                                      "disk may be faulty; import again");
    }
    if (at != slot->n)
        return pst_fail(PST_E_IO,
                        "a part of the temporary file of edges should have %zu edges, but has %zu: the disk "
                        "may be faulty; import again",
                        slot->n, at);
    slot->sorted = pst_sort_keys(slot->a, slot->b, slot->n, spec->wide);
    if (spec->dedupe)
        slot->n = pst_sorter_unique_keys(slot->sorted, slot->n, spec->wide);
    return PST_OK;
}

static void note_failure(struct giver *g, pst_rc rc)
{
    if (g->failed != PST_OK || rc == PST_OK)
        return;
    g->failed = rc;
    (void)snprintf(g->error, sizeof g->error, "%s", pst_error_text());
}

static struct slot *in_state(struct giver *g, enum slot_state state, size_t bucket)
{
    for (int i = 0; i < g->slots; i++)
        if (g->slot[i].state == state && (state == FREE || g->slot[i].bucket == bucket))
            return &g->slot[i];
    return NULL;
}

/* A free slot for the next bucket; NULL: there is no more to do. Under the lock. */
static struct slot *claim(struct giver *g)
{
    struct slot *slot = NULL;
    while (!g->stop && g->failed == PST_OK && g->claimed < g->spec.buckets &&
           (slot = in_state(g, FREE, 0)) == NULL)
        (void)pthread_cond_wait(&g->changed, &g->lock);
    if (slot == NULL || g->stop || g->failed != PST_OK || g->claimed == g->spec.buckets)
        return NULL;
    slot->bucket = g->claimed++;
    slot->state = BUSY;
    return slot;
}

struct start {
    struct giver *g;
    int index;
};

static void *work(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    struct giver *g = start.g;
    (void)pthread_mutex_lock(&g->lock);
    for (struct slot *slot; (slot = claim(g)) != NULL;) {
        (void)pthread_mutex_unlock(&g->lock);
        size_t ahead = slot->bucket + (size_t)g->slots;
        if (ahead < g->spec.buckets)
            pst_sorter_bucket_prefetch(g->spec.spill, g->spec.bucket[ahead]);
        pst_rc rc = load(g, slot, g->buffer[start.index]);
        (void)pthread_mutex_lock(&g->lock);
        note_failure(g, rc);
        slot->state = READY;
        (void)pthread_cond_broadcast(&g->changed);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return NULL;
}

static pst_rc start_workers(struct giver *g)
{
    while (g->started < g->spec.workers) {
        struct start *start = malloc(sizeof *start);
        if (start == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of a sorting thread");
        *start = (struct start){g, g->started};
        errno = pthread_create(&g->thread[g->started], NULL, work, start);
        if (errno != 0) {
            free(start);
            return pst_fail_errno("cannot start a sorting thread");
        }
        g->started++;
    }
    return PST_OK;
}

pst_rc pst_sorter_giver_new(struct giver **out, const struct give_spec *spec)
{
    assert(spec->workers <= SORT_WORKERS_MAX);
    struct giver *g = calloc(1, sizeof *g);
    *out = g;
    if (g == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort the edges");
    g->spec = *spec;
    g->slots = slots_of(spec);
    g->claimed = g->done = spec->first;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->changed, NULL);
    uint64_t most = 0;
    for (size_t i = spec->first; i < spec->buckets; i++)
        if (spec->bucket[i]->min != spec->bucket[i]->max && spec->bucket[i]->keys > most)
            most = spec->bucket[i]->keys;
    size_t bytes = ((size_t)most + PACK_KEYS_MAX) * key_bytes(spec->wide);
    bool ok = true;
    for (int i = 0; i < g->slots; i++) {
        ok &= (g->slot[i].a = pst_hugepage_alloc(bytes)) != NULL;
        ok &= (g->slot[i].b = pst_hugepage_alloc(bytes)) != NULL;
        ok &= (g->buffer[i] = malloc(spec->spill->extent_bytes + 8)) != NULL;
    }
    return ok ? start_workers(g)
              : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes for sorting", bytes);
}

/* The slot of the first bucket that was not given whole. */
static pst_rc wait_present(struct giver *g)
{
    if (g->spec.workers == 0) {
        g->present = &g->slot[0];
        g->present->bucket = g->done;
        return load(g, g->present, g->buffer[0]);
    }
    (void)pthread_mutex_lock(&g->lock);
    while (g->failed == PST_OK && (g->present = in_state(g, READY, g->done)) == NULL)
        (void)pthread_cond_wait(&g->changed, &g->lock);
    pst_rc rc = g->failed == PST_OK ? PST_OK : pst_fail(g->failed, "%s", g->error);
    (void)pthread_mutex_unlock(&g->lock);
    return rc;
}

static void end_present(struct giver *g)
{
    (void)pthread_mutex_lock(&g->lock);
    g->present->state = FREE;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
    g->present = NULL;
    g->given = 0;
    g->done++;
}

void pst_sorter_keys_out(const void *keys, size_t n, bool wide, uint64_t base, unsigned low_bits,
                         int64_t *high, int64_t *low, int32_t *tag)
{
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1;
    const uint64_t *narrow = keys;
    const wide_key *w = keys;
    for (size_t i = 0; i < n && !wide; i++) {
        high[i] = (int64_t)((narrow[i] >> low_bits) + base);
        low[i] = (int64_t)(narrow[i] & low_mask);
    }
    for (size_t i = 0; i < n && wide; i++) {
        high[i] = (int64_t)(uint64_t)(w[i] >> 80);
        low[i] = (int64_t)((uint64_t)(w[i] >> 32) & ((UINT64_C(1) << 48) - 1));
        if (tag != NULL)
            tag[i] = (int32_t)(uint32_t)w[i];
    }
}

pst_rc pst_sorter_giver_next(struct giver *g, int64_t *high, int64_t *low, int32_t *tag, int64_t *n)
{
    *n = 0;
    while (g->present == NULL || g->given == g->present->n) {
        if (g->present != NULL)
            end_present(g);
        if (g->done == g->spec.buckets)
            return PST_OK;
        pst_rc rc = wait_present(g);
        if (rc != PST_OK)
            return rc;
    }
    const struct slot *slot = g->present;
    size_t take = slot->n - g->given < PST_SORTER_BLOCK ? slot->n - g->given : PST_SORTER_BLOCK;
    size_t item = key_bytes(g->spec.wide);
    if (slot->constant) {
        const wide_key *key = &g->spec.bucket[slot->bucket]->min;
        for (size_t i = 0; i < take; i++)
            pst_sorter_keys_out(key, 1, true, 0, 0, high + i, low + i, tag != NULL ? tag + i : NULL);
    } else {
        pst_sorter_keys_out((const char *)slot->sorted + g->given * item, take, g->spec.wide, slot->base,
                            slot->low_bits, high, low, tag);
    }
    g->given += take;
    *n = (int64_t)take;
    return PST_OK;
}

size_t pst_sorter_giver_done(const struct giver *g)
{
    return g->done + (g->present != NULL && g->given == g->present->n);
}

void pst_sorter_giver_free(struct giver *g)
{
    if (g == NULL)
        return;
    (void)pthread_mutex_lock(&g->lock);
    g->stop = true;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < g->started; i++)
        (void)pthread_join(g->thread[i], NULL);
    for (int i = 0; i < g->slots; i++) {
        free(g->slot[i].a);
        free(g->slot[i].b);
        free(g->buffer[i]);
    }
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_cond_destroy(&g->changed);
    free(g);
}
