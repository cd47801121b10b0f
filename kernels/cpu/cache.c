/* cache.c: the index of cached rows, and counts of how often vertices appear. If a good share of the
 * vertices is cached, the index is an array by vertex: it takes no more memory than a hash table and needs
 * a single load. If the cached vertices are 0..n-1, there is nothing to look up. */
#include "kernels/kernels.h"

enum { AHEAD = 12 }; /* how many ids ahead places are prefetched */

struct place {
    int64_t vertex; /* -1: empty */
    int64_t row;
};

struct pst_cache {
    int64_t n;
    uint64_t span; /* only lower vertices can be cached; set with rows or identity */
    bool identity; /* row v is the row of vertex v */
    /* One table or none, at the next cache line. Instances map the memory at addresses of their own, so there
     * is no pointer. */
    bool has_rows; /* int32_t: the row of each of `span` vertices, -1: not cached */
    bool has_places;
    uint64_t mask;
    int shift; /* 64 - log2(places) */
};

static void *table(const struct pst_cache *cache)
{
    return (void *)pst_align_up((uint64_t)(uintptr_t)(cache + 1), PST_CACHE_LINE);
}

static struct place *places(const struct pst_cache *cache)
{
    return table(cache);
}

static int32_t *rows(const struct pst_cache *cache)
{
    return table(cache);
}

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

/* The place of a vertex, or the empty place where it belongs. The condition uses | so that only collisions
 * branch. */
static struct place *find(const struct pst_cache *cache, int64_t vertex)
{
    for (uint64_t at = home(cache, vertex);; at++) {
        struct place *place = &places(cache)[at & cache->mask];
        if ((place->vertex == vertex) | (place->vertex < 0))
            return place;
    }
}

static void fill_places(struct pst_cache *cache, const int64_t *vertices)
{
    for (uint64_t i = 0; i <= cache->mask; i++)
        places(cache)[i] = (struct place){-1, -1};
    for (int64_t row = 0; row < cache->n; row++) {
        struct place *place = find(cache, vertices[row]);
        if (place->vertex < 0)
            *place = (struct place){vertices[row], row};
    }
}

static void fill_rows(struct pst_cache *cache, const int64_t *vertices)
{
    for (uint64_t v = 0; v < cache->span; v++)
        rows(cache)[v] = -1;
    for (int64_t row = cache->n - 1; row >= 0; row--)
        rows(cache)[vertices[row]] = (int32_t)row;
}

struct pst_cache *pst_k_cache_init(void *memory, const int64_t *vertices, int64_t n)
{
    struct pst_cache *cache = memory;
    assert((uintptr_t)memory % _Alignof(struct pst_cache) == 0);
    const int log2 = places_log2(n);
    *cache =
        (struct pst_cache){.n = n, .identity = true, .mask = ((uint64_t)1 << log2) - 1, .shift = 64 - log2};
    for (int64_t row = 0; row < n; row++) {
        assert(vertices[row] >= 0);
        cache->identity = cache->identity && vertices[row] == row;
        cache->span = (uint64_t)pst_max_i64((int64_t)cache->span, vertices[row] + 1);
    }
    if (cache->identity)
        return cache;
    if (cache->span <= (sizeof(struct place) << log2) / sizeof(int32_t)) {
        cache->has_rows = true;
        fill_rows(cache, vertices);
    } else {
        cache->has_places = true;
        fill_places(cache, vertices);
    }
    return cache;
}

static void fetch(const struct pst_cache *cache, int64_t vertex)
{
    if (cache->has_places)
        __builtin_prefetch(&places(cache)[home(cache, vertex)]);
    else if (cache->has_rows && (uint64_t)vertex < cache->span)
        __builtin_prefetch(&rows(cache)[vertex]);
}

static int64_t row_of(const struct pst_cache *cache, int64_t vertex)
{
    if (cache->has_places)
        return find(cache, vertex)->row;
    if ((uint64_t)vertex >= cache->span)
        return -1;
    return cache->has_rows ? rows(cache)[vertex] : vertex;
}

/* Whether an id hits is unpredictable, so both outputs are written, and only one of the counts moves. */
void pst_k_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, int64_t n,
                  int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos, int64_t *misses)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX);
    (void)q;
    int64_t hit = 0, miss = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            fetch(cache, ids[i + AHEAD]);
        const int64_t row = row_of(cache, ids[i]);
        hit_pos[hit] = (int32_t)i;
        hit_row[hit] = (int32_t)row;
        miss_pos[miss] = (int32_t)i;
        hit += row >= 0;
        miss += row < 0;
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

void pst_k_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                    int64_t n, uint16_t array, uint64_t first, uint64_t stride, struct pst_request *table,
                    int32_t *missing)
{
    assert(q == NULL && n >= 0);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = from + (positions != NULL ? positions[i] : i);
        missing[i] = (int32_t)at;
        table[i] = (struct pst_request){.op = PST_REQUEST_READ,
                                        .array = array,
                                        .rows = 1,
                                        .row = (uint64_t)ids[at],
                                        .offset = first + (uint64_t)at * stride,
                                        .tag = (uint64_t)ids[at]};
    }
}
