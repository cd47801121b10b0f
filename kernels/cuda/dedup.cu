/* dedup.cu: removes duplicates and relabels, in the CPU's order of first appearance. An entry of the hash
 * table is one word: the stamp of its batch, a tag of the id, and either the position of a vertex or, while a
 * call runs, the lowest index in ids at which a new id was found. The id itself is read where the word
 * points, only if the tag is the id's.
 *
 * The first kernel enters all ids. A thread that takes an empty entry notes that its id is new. If a lower
 * index later takes the entry from it, this is noted in another bitmap. When all ids are entered, the ids
 * that are noted in the first bitmap only are the first appearances. The second kernel counts these, numbers
 * them, and writes the numbers into the table. For the other ids, it reads the numbers there. The number of
 * an id is written by a block that took an earlier tile or by its own block, so a thread can wait for it.
 *
 * Therefore vertices must stay the same array, and *count what the last call left, between two resets. */
#include "kernels/cuda/queue.cuh"

typedef unsigned long long word;

/* It is in device memory; the host knows only its address. After it come the entries, and then one bit for
 * each of the first `places` ids of a call: another id took its entry. All bits are 0 between calls. */
struct pst_dedup {
    uint32_t stamp; /* 1 to STAMP_LAST */
    bool noted;     /* a call has failed, and some bits may be 1 */
    int64_t max_ids, used;
    int64_t base; /* in the running call: *count before it */
    word met;     /* new ids so far, if there could be too many */
    int shift;    /* 64 - log2(places) */
    uint64_t mask;
};

namespace
{
constexpr uint32_t NEWCOMER = 0x80000000u;
enum {
    TAG_BITS = 12,
    STAMP_LAST = (1 << (32 - TAG_BITS)) - 1,
    PATIENCE = 32, /* after so many pairs of entries, check whether the table is too full: in one that is half
                      full no chain is as long */
    AT_ONCE = 4,   /* ids of a thread whose entries are read side by side */
    WORDS = 8,     /* words of 32 ids that a warp numbers */
    TILE = PST_CU_THREADS * WORDS,
};

int places_log2(int64_t max_ids)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * max_ids)
        log2++;
    return log2;
}

size_t bits_bytes(int log2)
{
    return (((size_t)1 << log2) + 31) / 32 * sizeof(uint32_t);
}

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
    word *entries;   /* the table's */
    uint32_t *slot;  /* for each id: its place there */
    uint32_t *fresh; /* a bit for each id: it took the entry */
    struct pst_cu_tiles tiles;
    int64_t tile_words; /* of `tiles` */
    int32_t *status;
};

/* The bits of ids whose entry another one took; NULL: there are not enough. */
__device__ __forceinline__ uint32_t *lost_of(const dedup &d, uint64_t mask, int64_t n)
{
    return n <= (int64_t)mask + 1 ? reinterpret_cast<uint32_t *>(d.entries + mask + 1) : NULL;
}

struct hashed {
    uint64_t at; /* an even place */
    word key;    /* stamp and tag, of the upper half */
};

__device__ __forceinline__ hashed hash(const struct pst_dedup &t, int64_t id)
{
    const uint64_t mixed = (uint64_t)id * 0x9E3779B97F4A7C15ull;
    const uint32_t tag = (uint32_t)(mixed >> (t.shift - TAG_BITS)) & ((1u << TAG_BITS) - 1);
    return {mixed >> t.shift & ~1ull, (word)(t.stamp << TAG_BITS | tag) << 32};
}

__device__ __forceinline__ bool is_old(const struct pst_dedup &t, word entry)
{
    return (uint32_t)(entry >> (32 + TAG_BITS)) != t.stamp;
}

/* Two entries, which lie in one piece of 16 bytes. Each of them is what it was at some time in the load. */
struct pair {
    word entry[2];
};

__device__ __forceinline__ pair load_pair(const word *at)
{
    pair p;
#ifdef PST_HOST_BUILD
    p = {{pst_cu_load(at), pst_cu_load(at + 1)}};
#else
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(p.entry[0]), "=l"(p.entry[1])
                 : "l"(at)
                 : "memory");
#endif
    return p;
}

/* The id of an entry, of this or an earlier call. */
__device__ __forceinline__ int64_t id_of(const dedup &d, word entry)
{
    const uint32_t value = (uint32_t)entry;
    return value & NEWCOMER ? d.ids[value & ~NEWCOMER] : d.vertices[value];
}

/* Of the two entries of one id: is this one of a higher index? */
__device__ __forceinline__ bool is_higher(word entry, word mine)
{
    return (uint32_t)entry & NEWCOMER && mine < entry;
}

enum outcome { KNOWN, LOWER, TOOK }; /* someone has it; took it from a higher index; took an empty entry */

/* Finds or takes the entry of id i. An entry that is taken keeps its id until the next reset. So an id that
 * went past it can never be there, and no id has two entries. */
__device__ uint32_t enter(const dedup &d, const struct pst_dedup &t, int64_t i, int64_t n, enum outcome *out)
{
    const int64_t id = d.ids[i];
    const hashed h = hash(t, id);
    const word mine = h.key | NEWCOMER | (uint32_t)i;
    *out = KNOWN;
    uint64_t at = h.at;
    for (uint64_t pairs = 1;; pairs++, at = (at + 2) & t.mask) {
        const pair p = load_pair(&d.entries[at]);
        for (int half = 0; half < 2; half++) {
            word entry = half ? p.entry[1] : p.entry[0];
            if (is_old(t, entry)) {
                const word before = atomicCAS(&d.entries[at + half], entry, mine);
                if (before == entry) {
                    *out = TOOK;
                    return (uint32_t)(at + half);
                }
                entry = before;
            }
            if ((entry ^ mine) >> 32 != 0)
                continue;
            if (id_of(d, entry) != id)
                continue;
            if (is_higher(entry, mine)) {
                const word before = atomicMin(&d.entries[at + half], mine);
                const uint32_t from = (uint32_t)before & ~NEWCOMER;
                uint32_t *lost = lost_of(d, t.mask, n);
                if (before > mine)
                    *out = LOWER;
                if (before > mine && lost) /* nobody loses an entry twice, so this sets a bit */
                    (void)atomicAdd(&lost[from / 32], 1u << from % 32);
            }
            return (uint32_t)(at + half);
        }
        const bool crowded =
            pairs % PATIENCE == 0 && pst_cu_load(&d.table->met) > (word)(d.table->max_ids - d.table->used);
        if (crowded || 2 * pairs > t.mask) {
            pst_cu_fault(d.status, PST_E_LIMIT);
            return 0;
        }
    }
}

/* A warp enters 32 * AT_ONCE ids at a time. Most find their home empty or with themselves, or with another id
 * and such an entry beside it, so all first try that at once. A run of equal ids would meet in an empty
 * entry, so only its first lane tries. The other ids then go their own ways. */
__global__ void __launch_bounds__(PST_CU_THREADS, 4) enter_all(dedup d)
{
    const struct pst_dedup t = *d.table;
    const int64_t n = pst_cu_warp_value(d.n, d.status);
    const bool counted = t.used + n > t.max_ids;
    for (int64_t i = pst_cu_first(); i < d.tile_words; i += pst_cu_step())
        d.tiles.taken[i] = 0;
    if (pst_cu_first() == 0)
        d.table->base = *d.count;
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t chunk = pst_cu_first() / PST_CU_WARP * PST_CU_WARP * AT_ONCE; chunk < n;
         chunk += pst_cu_step() * AT_ONCE) {
        int64_t id[AT_ONCE];
        pair p[AT_ONCE];
        word got[AT_ONCE]; /* what an entry was when it was tried, or its id */
        const uint32_t first = (uint32_t)chunk + (uint32_t)lane; /* below 2^32 */
        const int room = (int)min(n - chunk, (int64_t)PST_CU_WARP * AT_ONCE) - lane;
        unsigned asked = 0, second = 0, todo = 0, took = 0, lower = 0;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) /* past the end: the last id, which does nothing */
            id[k] = d.ids[k * PST_CU_WARP < room ? first + k * PST_CU_WARP : (uint32_t)n - 1];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            p[k] = load_pair(&d.entries[hash(t, id[k]).at]);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const uint32_t i = first + k * PST_CU_WARP;
            const bool in = k * PST_CU_WARP < room;
            const hashed h = hash(t, id[k]);
            const word a = p[k].entry[0], b = p[k].entry[1], mine = h.key | NEWCOMER | i;
            const bool next = !is_old(t, a) && (a ^ mine) >> 32 != 0;
            const word entry = next ? b : a;
            const int64_t left = __shfl_up_sync(0xFFFFFFFFu, id[k], 1);
            const bool leads = lane == 0 || left != id[k];
            second |= (unsigned)next << k;
            p[k].entry[0] = entry;
            got[k] = 0;
            if (in && is_old(t, entry) && leads) {
                got[k] = atomicCAS(&d.entries[h.at + next], entry, mine);
                asked |= 1u << k;
            } else if (in && !is_old(t, entry) && (entry ^ mine) >> 32 == 0) {
                got[k] = (word)id_of(d, entry);
                asked |= 1u << k;
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const uint32_t i = first + k * PST_CU_WARP;
            const bool in = k * PST_CU_WARP < room;
            const bool next = second >> k & 1;
            const hashed h = hash(t, id[k]);
            const word entry = p[k].entry[0], mine = h.key | NEWCOMER | i;
            const bool told = asked >> k & 1, takes = told && is_old(t, entry) && got[k] == entry,
                       knows = told && !is_old(t, entry) && got[k] == (word)id[k] && !is_higher(entry, mine);
            took |= (unsigned)takes << k;
            if (takes || knows)
                d.slot[i] = (uint32_t)h.at + next;
            else if (in)
                todo |= 1u << k;
        }
        for (; todo; todo &= todo - 1) {
            const int k = __ffs((int)todo) - 1;
            const uint32_t i = first + (uint32_t)k * PST_CU_WARP;
            enum outcome out;
            d.slot[i] = enter(d, t, i, n, &out);
            took |= (unsigned)(out == TOOK) << k;
            lower |= (unsigned)(out == LOWER) << k;
        }
        unsigned all = 0, met = 0;
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned taken = __ballot_sync(0xFFFFFFFFu, took >> k & 1),
                           fresh = taken | __ballot_sync(0xFFFFFFFFu, lower >> k & 1);
            met += (unsigned)__popc(taken);
            if (lane == k)
                all = fresh;
        }
        if (lane < AT_ONCE && chunk + lane * PST_CU_WARP < n)
            d.fresh[chunk / PST_CU_WARP + lane] = all;
        if (counted && lane == 0 && met)
            (void)atomicAdd(&d.table->met, (word)met);
    }
}

/* Which of 32 ids are the first appearances: those that took their entry and kept it. Lane k returns those of
 * word k. */
__device__ uint32_t first_ones(const dedup &d, uint32_t *lost, int64_t word_0, int64_t n, int lane)
{
    uint32_t bits = 0;
    if (lane < WORDS && (word_0 + lane) * 32 < n) {
        bits = d.fresh[word_0 + lane];
        const uint32_t gone = lost ? lost[word_0 + lane] : 0;
        if (gone)
            lost[word_0 + lane] = 0;
        bits &= ~gone;
    }
    for (int k = 0; !lost && k < WORDS; k++) { /* the entries tell, too */
        const uint32_t fresh = __shfl_sync(0xFFFFFFFFu, bits, k);
        const uint32_t i = (uint32_t)(word_0 + k) * 32 + (uint32_t)lane;
        const bool first =
            fresh >> lane & 1 && (uint32_t)pst_cu_load(&d.entries[d.slot[i]]) == (NEWCOMER | i);
        const uint32_t kept = __ballot_sync(0xFFFFFFFFu, first);
        if (lane == k)
            bits = kept;
    }
    return bits;
}

/* A fault of this kernel comes from the block of the last tile, when all tiles are taken: then no block
 * waits for one that is not. */
__global__ void __launch_bounds__(PST_CU_THREADS) number_all(dedup d)
{
    const int64_t n = pst_cu_block_value(d.n, d.status);
    const struct pst_dedup t = *d.table;
    const int lane = (int)threadIdx.x % PST_CU_WARP, warp = (int)threadIdx.x / PST_CU_WARP;
    uint32_t *lost = lost_of(d, t.mask, n);
    if (n == 0 && pst_cu_first() == 0 && *d.status != PST_OK)
        d.table->noted = true;
    if (n == 0)
        return;
    for (int64_t tile; (tile = pst_cu_next_tile(d.tiles)) * TILE < n;) {
        const int64_t word_0 = (tile * TILE) / 32 + warp * WORDS;
        const uint32_t bits = first_ones(d, lost, word_0, n, lane);
        const int firsts = __popc(bits);
        int64_t sum;
        const int64_t in_tile = pst_cu_block_before<PST_CU_THREADS>(firsts, &sum);
        if (threadIdx.x == 0)
            pst_cu_publish_sum(&d.tiles.sum[tile], sum);
        uint32_t at[WORDS];
        int64_t id[WORDS];
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const int64_t i = (word_0 + k) * 32 + lane;
            at[k] = d.slot[i < n ? i : n - 1];
            id[k] = d.ids[i < n ? i : n - 1];
        }
        const int64_t before = pst_cu_tiles_before<PST_CU_THREADS>(d.tiles, tile, sum);
        const int64_t mine = t.base + before + in_tile;
        unsigned others = 0;
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const int64_t i = (word_0 + k) * 32 + lane;
            const uint32_t word_k = __shfl_sync(0xFFFFFFFFu, bits, k);
            const int64_t position = __shfl_sync(0xFFFFFFFFu, mine, k) + __popc(word_k & ((1u << lane) - 1));
            if (!(word_k >> lane & 1)) {
                others |= (unsigned)(i < n) << k;
                continue;
            }
            /* Past the limit it gets a number, too, because others wait for it. */
            const int32_t number = (int32_t)min(position, (int64_t)INT32_MAX);
            if (position < d.limit)
                d.vertices[position] = id[k];
            *static_cast<volatile word *>(&d.entries[at[k]]) = hash(t, id[k]).key | (uint32_t)number;
            if (d.local)
                d.local[i] = number;
        }
        if (tile == (n - 1) / TILE && threadIdx.x == 0) {
            d.table->used = t.used + before + sum;
            d.table->met = 0;
            *d.count = t.base + before + sum;
            if (t.base + before + sum > d.limit || t.used + before + sum > t.max_ids)
                pst_cu_fault(d.status, PST_E_LIMIT);
        }
        if (!d.local)
            continue;
        uint32_t value[WORDS];
        __syncthreads(); /* a block never waits for itself */
#pragma unroll
        for (int k = 0; k < WORDS; k++)
            value[k] = others >> k & 1 ? (uint32_t)pst_cu_load(&d.entries[at[k]]) : 0;
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            while (value[k] & NEWCOMER) /* an earlier tile's block is about to write it */
                value[k] = (uint32_t)pst_cu_load(&d.entries[at[k]]);
            if (others >> k & 1)
                d.local[(word_0 + k) * 32 + lane] = (int32_t)value[k];
        }
    }
}

/* One block. After STAMP_LAST resets old stamps would be valid again. */
__global__ void __launch_bounds__(PST_CU_THREADS) reset(struct pst_dedup *table)
{
    const uint32_t stamp = table->stamp;
    const bool noted = table->noted;
    const uint64_t places = table->mask + 1;
    word *entries = entries_of(table);
    __syncthreads();
    for (uint64_t at = threadIdx.x; stamp == STAMP_LAST && at < places; at += blockDim.x)
        entries[at] = 0;
    for (uint64_t at = threadIdx.x; noted && at < (places + 31) / 32; at += blockDim.x)
        reinterpret_cast<uint32_t *>(entries + places)[at] = 0;
    if (threadIdx.x > 0)
        return;
    table->stamp = stamp == STAMP_LAST ? 1 : stamp + 1;
    table->noted = false;
    table->used = 0;
    table->met = 0;
}
} // namespace

size_t pst_k_dedup_bytes(int64_t max_ids)
{
    assert(max_ids >= 0 && max_ids <= INT32_MAX);
    const int log2 = places_log2(max_ids);
    return sizeof(struct pst_dedup) + PST_CACHE_LINE + (sizeof(word) << log2) + bits_bytes(log2);
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
    if (cudaMemsetAsync(entries_of(at), 0, (sizeof(word) << log2) + bits_bytes(log2), NULL) != cudaSuccess ||
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
    const int64_t words = (n.most + 31) / 32, tiles = (n.most + TILE - 1) / TILE,
                  tile_words = pst_cu_tiles_words(tiles);
    pst_cu_begin(q);
    uint32_t *slot = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *slot));
    uint32_t *fresh = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)words * sizeof *fresh));
    void *sums = pst_cu_scratch(q, (size_t)tile_words * sizeof(unsigned long long));
    const dedup d = {table,
                     ids,
                     n,
                     vertices,
                     count,
                     pst_min_i64(capacity, INT32_MAX),
                     local,
                     entries_of(table),
                     slot,
                     fresh,
                     pst_cu_tiles_at(sums, tiles),
                     tile_words,
                     q->status};
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS * AT_ONCE))(enter_all, d);
    pst_cu_on(q, pst_cu_grid(q, n.most, TILE))(number_all, d);
    return q->rc;
}

pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                   int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    return pst_kn_dedup(q, table, ids, {NULL, n}, vertices, count, capacity, local);
}
