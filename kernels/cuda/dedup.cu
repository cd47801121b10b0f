/* dedup.cu: removes duplicates and relabels, in the CPU's order of first appearance. An entry of the hash
 * table is one word: the stamp of its batch, and either the position of a vertex or, while a call runs,
 * the lowest index in ids at which a new id was found. After all threads have tried, the thread that holds
 * an entry is the first appearance; a scan over these gives the order. The id itself is read where the
 * word points.
 *
 * Therefore vertices must stay the same array, and *count what the last call left, between two resets. */
#include "kernels/cuda/queue.cuh"

#include <cub/cub.cuh>

typedef unsigned long long word;

/* It is in device memory; the host knows only its address. */
struct pst_dedup {
    int64_t max_ids, used;
    int64_t base, fresh; /* in the running call: *count before it, and new ids */
    word met;            /* new ids so far, if there could be too many */
    uint32_t stamp;
    int shift; /* 64 - log2(places) */
    uint64_t mask;
};

namespace
{
constexpr uint32_t NEWCOMER = 0x80000000u;
enum {
    PATIENCE = 64
}; /* after so many probes, check whether the table is too full: in one that is half full no chain is as long
    */

int places_log2(int64_t max_ids)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * max_ids)
        log2++;
    return log2;
}

/* The entries come after the header. */
__host__ __device__ word *entries_of(struct pst_dedup *table)
{
    const uintptr_t end = (uintptr_t)(table + 1);
    return reinterpret_cast<word *>((end + PST_CACHE_LINE - 1) / PST_CACHE_LINE * PST_CACHE_LINE);
}

struct dedup {
    struct pst_dedup *table;
    const int64_t *ids;
    struct pst_twin_n n;
    int64_t *vertices, *count;
    int64_t limit;
    int32_t *local;
    word *entries;  /* the table's */
    uint32_t *slot; /* for each id: its place there */
    uint32_t *rank; /* for each id: new ids up to and including it */
    int32_t *status;
};

__device__ __forceinline__ word newcomer(const struct pst_dedup &t, int64_t i)
{
    return (word)t.stamp << 32 | NEWCOMER | (uint32_t)i;
}

/* Finds or takes the entry of id i. *fresh: nobody had it. */
__device__ uint64_t enter(const dedup &d, const struct pst_dedup &t, int64_t i, bool *fresh)
{
    const int64_t id = d.ids[i];
    const word mine = newcomer(t, i);
    uint64_t at = ((uint64_t)id * 0x9E3779B97F4A7C15ull) >> t.shift;
    for (uint64_t probes = 1;; probes++, at = (at + 1) & t.mask) {
        word entry = pst_cu_load(&d.entries[at]);
        if ((uint32_t)(entry >> 32) != t.stamp) {
            const word before = atomicCAS(&d.entries[at], entry, mine);
            *fresh = before == entry;
            if (*fresh)
                return at;
            entry = before;
        }
        const uint32_t value = (uint32_t)entry;
        if ((value & NEWCOMER ? d.ids[value & ~NEWCOMER] : d.vertices[value]) == id) {
            if (value & NEWCOMER && mine < entry)
                (void)atomicMin(&d.entries[at], mine);
            return at;
        }
        const bool crowded =
            probes % PATIENCE == 0 && pst_cu_load(&d.table->met) > (word)(t.max_ids - t.used);
        if (crowded || probes > t.mask) {
            pst_cu_fault(d.status, PST_E_LIMIT);
            return 0;
        }
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS) enter_all(dedup d)
{
    const struct pst_dedup t = *d.table;
    const int64_t n = pst_cu_warp_value(d.n, d.status);
    const bool counted = t.used + n > t.max_ids;
    if (pst_cu_first() == 0)
        d.table->base = *d.count;
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first(); i - lane < n; i += pst_cu_step()) {
        bool fresh = false;
        if (i < n)
            d.slot[i] = (uint32_t)enter(d, t, i, &fresh);
        if (counted) {
            const unsigned all = __ballot_sync(0xFFFFFFFFu, fresh);
            if (lane == 0 && all)
                (void)atomicAdd(&d.table->met, (word)__popc(all));
        }
    }
}

struct first { /* 1 if id i is the first appearance of a new id */
    using value = uint32_t;
    dedup d;
    __device__ uint32_t operator()(int64_t i) const
    {
        if (i >= pst_cu_value(d.n, d.status))
            return 0;
        return (uint32_t)pst_cu_load(&d.entries[d.slot[i]]) == (NEWCOMER | (uint32_t)i);
    }
};

struct plus {
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const
    {
        return a + b;
    }
};

__global__ void __launch_bounds__(PST_CU_THREADS) append(dedup d)
{
    const int64_t n = pst_cu_value(d.n, d.status), base = d.table->base;
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const int64_t position = base + d.rank[i] - 1;
        if (i == n - 1)
            d.table->fresh = d.rank[i];
        if (!first{d}(i))
            continue;
        if (position >= d.limit) {
            pst_cu_fault(d.status, PST_E_LIMIT);
            continue;
        }
        d.vertices[position] = d.ids[i];
        volatile word *entry = &d.entries[d.slot[i]];
        *entry = *entry >> 32 << 32 | (uint32_t)position;
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS) relabel(dedup d)
{
    const int64_t n = pst_cu_value(d.n, d.status);
    for (int64_t i = pst_cu_first(); d.local && i < n; i += pst_cu_step())
        d.local[i] = (int32_t)d.entries[d.slot[i]];
    if (pst_cu_first() > 0 || n == 0)
        return;
    d.table->used += d.table->fresh;
    d.table->met = 0;
    *d.count = d.table->base + d.table->fresh;
    if (d.table->used > d.table->max_ids)
        pst_cu_fault(d.status, PST_E_LIMIT);
}

/* One block. After 2^32 resets old stamps would be valid again. */
__global__ void __launch_bounds__(PST_CU_THREADS) reset(struct pst_dedup *table)
{
    const uint32_t stamp = table->stamp;
    __syncthreads();
    for (uint64_t at = threadIdx.x; stamp == UINT32_MAX && at <= table->mask; at += blockDim.x)
        entries_of(table)[at] = 0;
    if (threadIdx.x > 0)
        return;
    table->stamp = stamp == UINT32_MAX ? 1 : stamp + 1;
    table->used = 0;
    table->met = 0;
}
} // namespace

size_t pst_k_dedup_bytes(int64_t max_ids)
{
    assert(max_ids >= 0 && max_ids <= INT32_MAX);
    return sizeof(struct pst_dedup) + PST_CACHE_LINE + (sizeof(word) << places_log2(max_ids));
}

/* Waits. NULL: CUDA failed. */
struct pst_dedup *pst_k_dedup_init(void *memory, int64_t max_ids)
{
    const int log2 = places_log2(max_ids);
    struct pst_dedup table = {}, *at = static_cast<struct pst_dedup *>(memory);
    table.max_ids = max_ids;
    table.stamp = 1;
    table.shift = 64 - log2;
    table.mask = ((uint64_t)1 << log2) - 1;
    if (cudaMemsetAsync(entries_of(at), 0, sizeof(word) << log2, NULL) != cudaSuccess ||
        cudaMemcpy(at, &table, sizeof table, cudaMemcpyDefault) != cudaSuccess ||
        cudaStreamSynchronize(NULL) != cudaSuccess)
        return NULL;
    return at;
}

void pst_k_dedup_reset(struct pst_queue *q, struct pst_dedup *table)
{
    pst_cu_on(q, 1)(reset, table);
}

pst_rc pst_kn_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, struct pst_twin_n n,
                    int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    assert(n.most >= 0 && n.most <= INT32_MAX);
    if (n.most == 0)
        return q->rc;
    pst_cu_begin(q);
    uint32_t *slot = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *slot));
    uint32_t *rank = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *rank));
    const dedup d = {
        table, ids,  n,        vertices, count, pst_min_i64(capacity, INT32_MAX), local, entries_of(table),
        slot,  rank, q->status};
    const pst_cu_input<first> in = {{d}, 0};
    const unsigned blocks = pst_cu_grid(q, n.most, PST_CU_THREADS);
    size_t bytes = 0;
    if (!pst_cu_checked(q, cub::DeviceScan::InclusiveScan(NULL, bytes, in, rank, plus(), n.most, q->stream)))
        return q->rc;
    void *temp = pst_cu_scratch(q, bytes);
    pst_cu_on(q, blocks)(enter_all, d);
    if (temp)
        (void)pst_cu_checked(
            q, cub::DeviceScan::InclusiveScan(temp, bytes, in, rank, plus(), n.most, q->stream));
    pst_cu_on(q, blocks)(append, d);
    pst_cu_on(q, blocks)(relabel, d);
    return q->rc;
}

pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                   int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    return pst_kn_dedup(q, table, ids, {NULL, n}, vertices, count, capacity, local);
}
