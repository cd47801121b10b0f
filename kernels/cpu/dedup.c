/* dedup.c: removes duplicates and relabels. Open addressing with linear probing, at most half full. An
 * entry counts only if it has the current stamp of the table, so a reset is one increment. Whether an id
 * is new is unpredictable, so nothing branches on it. */
#include "kernels/kernels.h"

#include <string.h>

enum { AHEAD = 12 }; /* how many ids ahead entries are prefetched */

struct entry {
    int64_t id;
    int32_t position;
    uint32_t stamp;
};

struct pst_dedup {
    int64_t max_ids;
    int64_t used;
    uint32_t stamp;
    int shift; /* 64 - log2(places) */
    uint64_t mask;
    struct entry *entries;
};

static int places_log2(int64_t max_ids)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * max_ids)
        log2++;
    return log2;
}

size_t pst_k_dedup_bytes(int64_t max_ids)
{
    assert(max_ids >= 0 && max_ids <= INT32_MAX);
    return sizeof(struct pst_dedup) + PST_CACHE_LINE + (sizeof(struct entry) << places_log2(max_ids));
}

struct pst_dedup *pst_k_dedup_init(void *memory, int64_t max_ids)
{
    struct pst_dedup *table = memory;
    assert((uintptr_t)memory % _Alignof(struct pst_dedup) == 0);
    const int log2 = places_log2(max_ids);
    table->max_ids = max_ids;
    table->used = 0;
    table->stamp = 1;
    table->shift = 64 - log2;
    table->mask = ((uint64_t)1 << log2) - 1;
    table->entries = (struct entry *)pst_align_up((uint64_t)(uintptr_t)(table + 1), PST_CACHE_LINE);
    memset(table->entries, 0, sizeof(struct entry) << log2);
    return table;
}

void pst_k_dedup_reset(struct pst_queue *q, struct pst_dedup *table)
{
    assert(q == NULL);
    (void)q;
    table->used = 0;
    if (++table->stamp == 0) { /* after 2^32 resets old stamps would be valid again */
        memset(table->entries, 0, (table->mask + 1) * sizeof(struct entry));
        table->stamp = 1;
    }
}

static uint64_t home(const struct pst_dedup *table, int64_t id)
{
    return ((uint64_t)id * 0x9E3779B97F4A7C15ull) >> table->shift;
}

/* Hides a condition, so that the compiler makes no branch of it. */
static inline uint32_t opaque(uint32_t condition)
{
    __asm__("" : "+r"(condition));
    return condition;
}

/* The place of an id, or the empty place where it belongs; then *fresh is 1. Only collisions branch. */
static inline struct entry *find(struct pst_dedup *table, int64_t id, uint32_t *fresh)
{
    for (uint64_t at = home(table, id);; at++) {
        struct entry *entry = &table->entries[at & table->mask];
        *fresh = opaque(entry->stamp != table->stamp);
        if (opaque(*fresh | (entry->id == id)))
            return entry;
    }
}

/* Takes ids[i..end), for which there is room even if all are new. Returns how many were new. */
static int64_t add(struct pst_dedup *table, const int64_t *ids, int64_t i, int64_t end, int64_t n,
                   int64_t *vertices, int64_t count, int32_t *local)
{
    const int64_t before = count;
    for (; i < end; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(&table->entries[home(table, ids[i + AHEAD])], 1);
        const int64_t id = ids[i];
        uint32_t fresh;
        struct entry *entry = find(table, id, &fresh);
        const uint32_t known = (uint32_t)entry->position, other = (uint32_t)count ^ known;
        const int32_t position = (int32_t)(known ^ (other & (0u - fresh)));
        *entry = (struct entry){id, position, table->stamp};
        vertices[count] = id;
        count += fresh;
        if (local)
            local[i] = position;
    }
    return count - before;
}

pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                   int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    assert(q == NULL && n >= 0 && *count >= 0);
    (void)q;
    const int64_t limit = pst_min_i64(capacity, INT32_MAX);
    for (int64_t i = 0; i < n;) {
        const int64_t room = pst_min_i64(limit - *count, table->max_ids - table->used);
        if (room > 0) {
            const int64_t end = i + pst_min_i64(room, n - i);
            const int64_t fresh = add(table, ids, i, end, n, vertices, *count, local);
            *count += fresh;
            table->used += fresh;
            i = end;
            continue;
        }
        uint32_t fresh;
        const struct entry *entry = find(table, ids[i], &fresh);
        if (fresh)
            return PST_E_LIMIT;
        if (local)
            local[i] = entry->position;
        i++;
    }
    return PST_OK;
}
