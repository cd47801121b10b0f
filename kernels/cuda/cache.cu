/* cache.cu: the index of cached rows, and counts of how often vertices appear. The index has the three
 * forms of the CPU's. Each id is looked up once. A scan then counts the hits before it, which gives its
 * position among the hits or the misses. And the requests for the rows of the misses. */
#include "kernels/cuda/queue.cuh"

#include <cstddef>
#include <cub/cub.cuh>

typedef unsigned long long word;

namespace
{
struct alignas(16) place {
    word vertex, row; /* all ones: none */
};
constexpr word NONE = ~0ull;
} // namespace

/* It is in device memory; the host knows only its address. */
struct pst_cache {
    int64_t n;
    word span;        /* only lower vertices can be cached */
    int32_t identity; /* row v is the row of vertex v */
    int32_t shift;    /* 64 - log2(places) */
    uint64_t mask;
    uint32_t *rows; /* the row of each of `span` vertices, all ones: not cached; NULL: look in places */
    place *places;
};

namespace
{
int places_log2(int64_t n)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * n)
        log2++;
    return log2;
}

__device__ __forceinline__ uint64_t home(const struct pst_cache &cache, int64_t vertex)
{
    return ((uint64_t)vertex * 0x9E3779B97F4A7C15ull) >> cache.shift;
}

__global__ void __launch_bounds__(PST_CU_THREADS) survey(struct pst_cache *cache, const int64_t *vertices)
{
    word span = 0;
    bool identity = true;
    for (int64_t row = pst_cu_first(); row < cache->n; row += pst_cu_step()) {
        span = max(span, (word)vertices[row] + 1);
        identity = identity && vertices[row] == row;
    }
    for (int with = PST_CU_WARP / 2; with > 0; with /= 2)
        span = max(span, __shfl_xor_sync(0xFFFFFFFFu, span, with));
    const bool differs = __any_sync(0xFFFFFFFFu, !identity);
    if (threadIdx.x % PST_CU_WARP != 0)
        return;
    (void)atomicMax(&cache->span, span);
    if (differs)
        (void)atomicMin(&cache->identity, 0);
}

/* If a vertex has several rows, the first counts. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    fill_index(const struct pst_cache *at, const int64_t *vertices)
{
    const struct pst_cache cache = *at;
    for (int64_t row = pst_cu_first(); row < cache.n; row += pst_cu_step()) {
        const int64_t vertex = vertices[row];
        if (cache.rows) {
            (void)atomicMin(&cache.rows[vertex], (uint32_t)row);
            continue;
        }
        uint64_t p = home(cache, vertex);
        for (;; p = (p + 1) & cache.mask) {
            const word before = atomicCAS(&cache.places[p].vertex, NONE, (word)vertex);
            if (before == NONE || before == (word)vertex)
                break;
        }
        (void)atomicMin(&cache.places[p].row, (word)row);
    }
}

/* -1: not cached. */
__device__ int32_t row_of(const struct pst_cache &cache, int64_t vertex)
{
    if (cache.identity || cache.rows) {
        if ((uint64_t)vertex >= cache.span)
            return -1;
        return cache.rows ? (int32_t)cache.rows[vertex] : (int32_t)vertex;
    }
    for (uint64_t p = home(cache, vertex);; p = (p + 1) & cache.mask) {
        const place found = cache.places[p];
        if (found.vertex == (word)vertex || found.vertex == NONE)
            return (int32_t)found.row;
    }
}

struct lookup {
    const struct pst_cache *cache;
    const int64_t *ids;
    struct pst_twin_n n;
    int32_t *hit_pos, *hit_row, *miss_pos;
    int64_t *hits, *misses;
    int32_t *row; /* for each id */
    int32_t *status;
};

/* Also sets the count to 0 if there are no ids. */
__global__ void __launch_bounds__(PST_CU_THREADS) find_rows(lookup l)
{
    const struct pst_cache cache = *l.cache;
    const int64_t n = pst_cu_value(l.n, l.status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        l.row[i] = row_of(cache, l.ids[i]);
    if (pst_cu_first() == 0)
        *l.hits = *l.misses = 0;
}

struct hit {
    using value = uint32_t;
    lookup l;
    __device__ uint32_t operator()(int64_t i) const
    {
        return i < pst_cu_value(l.n, l.status) && l.row[i] >= 0;
    }
};

struct plus {
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const
    {
        return a + b;
    }
};

struct split {
    lookup l;
    __device__ void operator()(int64_t i, uint32_t hits) const
    {
        const int64_t n = pst_cu_value(l.n, l.status);
        if (i >= n)
            return;
        if (l.row[i] >= 0) {
            l.hit_pos[hits - 1] = (int32_t)i;
            l.hit_row[hits - 1] = l.row[i];
        } else {
            l.miss_pos[i - hits] = (int32_t)i;
        }
        if (i == n - 1) {
            *l.hits = hits;
            *l.misses = n - hits;
        }
    }
};

__global__ void __launch_bounds__(PST_CU_THREADS)
    find(const struct pst_cache *at, const int64_t *ids, struct pst_twin_n most, int32_t *row,
         const int32_t *status)
{
    const struct pst_cache cache = *at;
    const int64_t n = pst_cu_value(most, status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        row[i] = row_of(cache, ids[i]);
}

/* Beyond half of the largest number, threads take care not to exceed it. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    count(const int64_t *ids, struct pst_twin_n most, uint32_t *counts, const int32_t *status)
{
    const int64_t n = pst_cu_value(most, status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        uint32_t *at = &counts[ids[i]], before = pst_cu_load(at);
        if (before < UINT32_MAX / 2) {
            (void)atomicAdd(at, 1u);
            continue;
        }
        for (uint32_t expected; before < UINT32_MAX; before = expected == before ? UINT32_MAX : expected) {
            expected = before;
            expected = atomicCAS(at, expected, expected + 1);
        }
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS) zero(int64_t *at)
{
    *at = 0;
}

__global__ void __launch_bounds__(PST_CU_THREADS)
    count_below(const int32_t *values, struct pst_twin_n most, int64_t limit, int64_t *below,
                const int32_t *status)
{
    const int64_t n = pst_cu_warp_value(most, status);
    unsigned found = 0;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        found += values[i] < limit;
    for (int with = PST_CU_WARP / 2; with > 0; with /= 2)
        found += __shfl_xor_sync(0xFFFFFFFFu, found, with);
    if (threadIdx.x % PST_CU_WARP == 0 && found > 0)
        (void)atomicAdd(reinterpret_cast<unsigned long long *>(below), (unsigned long long)found);
}

struct requesting {
    const int64_t *ids;
    const int32_t *positions;
    int64_t from;
    struct pst_twin_n n;
    uint64_t begin; /* op, array and rows */
    uint64_t first, stride;
    struct pst_request *table;
    int32_t *missing;
    int32_t *status;
};

struct alignas(16) half_request {
    uint64_t word[2];
};
static_assert(sizeof(struct pst_request) == 2 * sizeof(half_request) &&
                  offsetof(struct pst_request, array) == 2 && offsetof(struct pst_request, rows) == 4 &&
                  offsetof(struct pst_request, row) == 8 && offsetof(struct pst_request, offset) == 16 &&
                  offsetof(struct pst_request, tag) == 24,
              "the halves of a request are written as words");

/* The table crosses PCIe to pinned memory. So two lanes write a request: a warp writes 512 bytes without a
 * gap. */
__global__ void __launch_bounds__(PST_CU_THREADS) requests(requesting r)
{
    const int64_t halves = 2 * pst_cu_value(r.n, r.status);
    if (pst_cu_first() == 0) {
        PST_CU_CROSSES(r.table, (size_t)halves * sizeof(half_request));
        PST_CU_CROSSES(r.missing, (size_t)halves / 2 * sizeof *r.missing);
    }
    for (int64_t h = pst_cu_first(); h < halves; h += pst_cu_step()) {
        const int64_t i = h / 2, at = r.from + (r.positions ? r.positions[i] : i);
        const uint64_t row = (uint64_t)r.ids[at];
        half_request *to = reinterpret_cast<half_request *>(r.table) + h;
        if (h % 2) {
            *to = {{r.first + (uint64_t)at * r.stride, row}};
        } else {
            *to = {{r.begin, row}};
            r.missing[i] = (int32_t)at;
        }
    }
}

/* Makes the index. False: CUDA failed. */
bool build(struct pst_cache *at, struct pst_cache *cache, const int64_t *vertices)
{
    const size_t bytes = sizeof(place) * (cache->mask + 1);
    void *table = reinterpret_cast<void *>(pst_align_up((uint64_t)(uintptr_t)(at + 1), PST_CACHE_LINE));
    struct pst_queue q = {};
    char why[PST_TWIN_WHY_BYTES];
    q.why = why;
    q.multiprocessors = 1;
    const unsigned blocks = pst_cu_grid(&q, cache->n, PST_CU_THREADS);
    if (!pst_cu_checked(&q, cudaMemcpy(at, cache, sizeof *cache, cudaMemcpyDefault)))
        return false;
    pst_cu_on(&q, blocks)(survey, at, vertices);
    if (!pst_cu_checked(&q, cudaMemcpy(cache, at, sizeof *cache, cudaMemcpyDefault)) || cache->identity)
        return q.rc == PST_OK;
    if (cache->span <= bytes / sizeof *cache->rows)
        cache->rows = static_cast<uint32_t *>(table);
    else
        cache->places = static_cast<place *>(table);
    if (!pst_cu_checked(&q, cudaMemcpy(at, cache, sizeof *cache, cudaMemcpyDefault)) ||
        !pst_cu_checked(&q, cudaMemsetAsync(table, 0xFF, bytes, NULL)))
        return false;
    pst_cu_on(&q, blocks)(fill_index, at, vertices);
    return pst_cu_checked(&q, cudaStreamSynchronize(NULL));
}
} // namespace

size_t pst_k_cache_bytes(int64_t n)
{
    assert(n >= 0 && n <= INT32_MAX);
    return sizeof(struct pst_cache) + PST_CACHE_LINE + (sizeof(place) << places_log2(n));
}

/* Waits. NULL: CUDA failed. */
struct pst_cache *pst_k_cache_init(void *memory, const int64_t *vertices, int64_t n)
{
    const int log2 = places_log2(n);
    struct pst_cache cache = {}, *at = static_cast<struct pst_cache *>(memory);
    cache.n = n;
    cache.identity = 1;
    cache.shift = 64 - log2;
    cache.mask = ((uint64_t)1 << log2) - 1;
    return build(at, &cache, vertices) ? at : NULL;
}

void pst_kn_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids,
                   struct pst_twin_n n, int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos,
                   int64_t *misses)
{
    assert(n.most >= 0 && n.most <= INT32_MAX);
    pst_cu_begin(q);
    int32_t *row = static_cast<int32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *row));
    const lookup l = {cache, ids, n, hit_pos, hit_row, miss_pos, hits, misses, row, q->status};
    const pst_cu_input<hit> in = {{l}, 0};
    const pst_cu_output<split> out = {{l}, 0};
    size_t bytes = 0;
    pst_cu_on(q, pst_cu_grid(q, n.most > 0 ? n.most : 1, PST_CU_THREADS))(find_rows, l);
    if (n.most == 0 ||
        !pst_cu_checked(q, cub::DeviceScan::InclusiveScan(NULL, bytes, in, out, plus(), n.most, q->stream)))
        return;
    void *temp = pst_cu_scratch(q, bytes);
    if (temp)
        (void)pst_cu_checked(q,
                             cub::DeviceScan::InclusiveScan(temp, bytes, in, out, plus(), n.most, q->stream));
}

void pst_k_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, int64_t n,
                  int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos, int64_t *misses)
{
    pst_kn_lookup(q, cache, ids, {NULL, n}, hit_pos, hit_row, hits, miss_pos, misses);
}

void pst_kn_find(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, struct pst_twin_n n,
                 int32_t *row)
{
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(find, cache, ids, n, row, q->status);
}

void pst_kn_count_below(struct pst_queue *q, const int32_t *values, struct pst_twin_n n, int64_t limit,
                        int64_t *below)
{
    pst_cu_on(q, 1, 1)(zero, below);
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(count_below, values, n, limit, below, q->status);
}

void pst_kn_count(struct pst_queue *q, const int64_t *ids, struct pst_twin_n n, uint32_t *counts)
{
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(count, ids, n, counts, q->status);
}

void pst_k_count(struct pst_queue *q, const int64_t *ids, int64_t n, uint32_t *counts)
{
    pst_kn_count(q, ids, {NULL, n}, counts);
}

void pst_kn_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                     struct pst_twin_n n, uint16_t array, uint64_t first, uint64_t stride,
                     struct pst_request *table, int32_t *missing)
{
    assert(n.most >= 0 && (uintptr_t)table % sizeof(half_request) == 0);
    const uint64_t begin = (uint64_t)PST_REQUEST_READ | (uint64_t)array << 16 | (uint64_t)1 << 32;
    pst_cu_on(q, pst_cu_grid(q, 2 * n.most, PST_CU_THREADS))(
        requests, requesting{ids, positions, from, n, begin, first, stride, table, missing, q->status});
}

void pst_k_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                    int64_t n, uint16_t array, uint64_t first, uint64_t stride, struct pst_request *table,
                    int32_t *missing)
{
    pst_kn_requests(q, ids, positions, from, {NULL, n}, array, first, stride, table, missing);
}
