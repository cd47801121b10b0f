/* cache.c: which vertices' rows are cached and where, and how often vertices are met (kernels.h). */
#include "../kernels.h"

enum { AHEAD = 12 }; /* ids ahead whose place is fetched */

struct place {
    int64_t vertex; /* -1: empty */
    int64_t row;
};

struct pst_cache {
    int64_t n;
    uint64_t mask;
    int shift; /* 64 - log2(places) */
    struct place *places;
};

static int places_log2(int64_t n)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * n)
        log2++;
    return log2;
}

size_t pst_k_cache_bytes(int64_t n)
{
    assert(n >= 0 && n <= INT32_MAX);
    return sizeof(struct pst_cache) + PST_CACHE_LINE + (sizeof(struct place) << places_log2(n));
}

static uint64_t home(const struct pst_cache *cache, int64_t vertex)
{
    return ((uint64_t)vertex * 0x9E3779B97F4A7C15ull) >> cache->shift;
}

/* The place of vertex, or the empty place where it belongs. */
static struct place *find(const struct pst_cache *cache, int64_t vertex)
{
    for (uint64_t at = home(cache, vertex);; at++) {
        struct place *place = &cache->places[at & cache->mask];
        if (place->vertex == vertex || place->vertex < 0)
            return place;
    }
}

struct pst_cache *pst_k_cache_init(void *memory, const int64_t *vertices, int64_t n)
{
    struct pst_cache *cache = memory;
    assert((uintptr_t)memory % _Alignof(struct pst_cache) == 0);
    const int log2 = places_log2(n);
    cache->n = n;
    cache->mask = ((uint64_t)1 << log2) - 1;
    cache->shift = 64 - log2;
    cache->places = (struct place *)pst_align_up((uint64_t)(uintptr_t)(cache + 1), PST_CACHE_LINE);
    for (uint64_t i = 0; i <= cache->mask; i++)
        cache->places[i].vertex = -1;
    for (int64_t row = 0; row < n; row++) {
        assert(vertices[row] >= 0);
        struct place *place = find(cache, vertices[row]);
        if (place->vertex < 0)
            *place = (struct place){vertices[row], row};
    }
    return cache;
}

void pst_k_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, int64_t n,
                  int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos, int64_t *misses)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX);
    (void)q;
    int64_t hit = 0, miss = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(&cache->places[home(cache, ids[i + AHEAD])]);
        const struct place *place = find(cache, ids[i]);
        if (place->vertex >= 0) {
            hit_pos[hit] = (int32_t)i;
            hit_row[hit++] = (int32_t)place->row;
        } else {
            miss_pos[miss++] = (int32_t)i;
        }
    }
    *hits = hit;
    *misses = miss;
}

void pst_k_count(struct pst_queue *q, const int64_t *ids, int64_t n, uint32_t *counts)
{
    assert(q == NULL && n >= 0);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(&counts[ids[i + AHEAD]], 1);
        if (counts[ids[i]] < UINT32_MAX)
            counts[ids[i]]++;
    }
}
