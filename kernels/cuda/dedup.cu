/* dedup.cu: removes duplicates and relabels, in the CPU's order of first appearance. An entry of the hash
 * table is one word: the stamp of its batch, a tag of the id, and where the id is. The id itself is read
 * there, only if the tag is the id's.
 *
 * The ids of a batch are counted from its reset on, each call from a multiple of 32. An entry holds the
 * lowest such number of its id. For 32 ids there is a record: which of them are first appearances, and the
 * position in vertices of the first of these. This gives the position of each, so no position is ever written
 * into the table. A call whose ids do not fit in the records that the table has uses records in scratch
 * memory, which the next call overwrites, and therefore leaves positions in the entries.
 *
 * The first kernel enters all ids. A thread that takes an empty entry notes that its id is new. If a lower
 * number later takes the entry from it, this is noted in a bitmap. When all ids are entered, the ids that are
 * noted as new only are the first appearances. The second kernel counts these and completes the records. For
 * the other ids, it reads entries and records. A record of the same call is completed by a block that took an
 * earlier tile or by its own block, so a thread can wait for it.
 *
 * Therefore vertices must stay the same array, and *count what the last call left, between two resets. After
 * a call that failed, entries and records are incomplete until the next reset. */
#include "kernels/cuda/queue.cuh"

typedef unsigned long long word;

/* It is in device memory; the host knows only its address. After it come the entries, the records of `room`
 * ids, and then one bit for each of the first `places` ids of a call: another id took its entry. All bits are
 * 0 between calls. */
struct pst_dedup {
    uint32_t stamp; /* 1 to STAMP_LAST */
    bool noted;     /* a call has failed, and some bits may be 1 */
    int64_t max_ids, used;
    word met;           /* new ids so far, if there could be too many */
    int shift;          /* 64 - log2(places) */
    uint32_t last;      /* the last place */
    uint32_t room;      /* ids that the records are enough for, a multiple of 32 */
    uint32_t given;     /* numbers given to ids since the reset, a multiple of 32; at most room */
    int64_t call_base;  /* in the running call: *count before it */
    uint32_t call_from; /* in the running call: the number of its first id; room: its records are in scratch
                           memory */
};

namespace
{
constexpr uint32_t NEWCOMER = 0x80000000u; /* the entry holds a number; otherwise, a position */
enum {
    TAG_BITS = 12,
    STAMP_LAST = (1 << (32 - TAG_BITS)) - 1,
    PATIENCE = 32,       /* after so many pairs of entries, check whether the table is too full: in one that
                            is half full no chain is as long */
    ROOM_OF_A_PLACE = 4, /* ids in records: one byte beside the eight of an entry */
    ROOM_MOST = 1 << 26, /* so that the numbers of a call that does not fit are below NEWCOMER */
    /* words of 32 ids that a warp numbers: few, so that small calls have many blocks. Of 3 and 5, 3 was
     * fastest on an H200 */
    WORDS = 3,
    TILE = PST_CU_THREADS * WORDS,
    ENTER_BLOCKS = 8, /* blocks that a multiprocessor runs at a time, which bounds the registers */
    NUMBER_BLOCKS = 6,
    ENTER_WAVES = 16, /* of blocks, at most: each thread loads its next id before it searches */
};

int places_log2(int64_t max_ids)
{
    int log2 = 4;
    while ((int64_t)1 << log2 < 2 * max_ids)
        log2++;
    return log2;
}

int64_t room_of(int log2)
{
    return pst_min_i64((int64_t)ROOM_OF_A_PLACE << log2, ROOM_MOST);
}

size_t body_bytes(int log2)
{
    return (sizeof(word) << log2) + (size_t)room_of(log2) / 32 * sizeof(word) +
           (((size_t)1 << log2) + 31) / 32 * sizeof(uint32_t);
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
    word *entries;  /* the table's */
    uint32_t *slot; /* for each id: its place there */
    word *more;     /* records of a call that does not fit in the table's */
    struct pst_cu_tiles tiles;
    int64_t tile_words; /* of `tiles` */
    int32_t *status;
};

__device__ __forceinline__ word *records_of(const word *entries, uint32_t last)
{
    return const_cast<word *>(entries) + last + 1ull;
}

/* The records of a call whose first number is `from`. */
__device__ __forceinline__ word *call_records(const dedup &d, const struct pst_dedup &t, uint32_t from)
{
    return from < t.room ? records_of(d.entries, t.last) + from / 32 : d.more;
}

/* The bits of ids whose entry another one took; NULL: there are not enough. */
__device__ __forceinline__ uint32_t *lost_of(const dedup &d, const struct pst_dedup &t, int64_t n)
{
    return n <= (int64_t)t.last + 1
               ? reinterpret_cast<uint32_t *>(records_of(d.entries, t.last) + t.room / 32)
               : NULL;
}

/* A record: in its lower half a bit for each of 32 ids, in its upper half one more than the position of the
 * first whose bit is 1. While the upper half is 0, the bits are not final. Both halves are written at once,
 * so who sees the upper half sees the bits. */
__device__ __forceinline__ word record(uint32_t bits, uint32_t position)
{
    return (word)(position + 1) << 32 | bits;
}

__device__ __forceinline__ bool is_final(word record)
{
    return record >> 32 != 0;
}

__device__ __forceinline__ uint32_t position_in(word record, uint32_t number)
{
    return (uint32_t)(record >> 32) - 1 + (uint32_t)__popc((uint32_t)record & ((1u << number % 32) - 1));
}

struct hashed {
    uint32_t at; /* an even place */
    word key;    /* stamp and tag, of the upper half */
};

__device__ __forceinline__ hashed hash(const struct pst_dedup &t, int64_t id)
{
    const uint64_t mixed = (uint64_t)id * 0x9E3779B97F4A7C15ull;
    const uint32_t tag = (uint32_t)(mixed >> (t.shift - TAG_BITS)) & ((1u << TAG_BITS) - 1);
    return {(uint32_t)(mixed >> t.shift) & ~1u, (word)(t.stamp << TAG_BITS | tag) << 32};
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

/* What a thread knows on its search for the entry of an id. */
struct search {
    int64_t id;
    word mine;      /* the entry it would write */
    uint32_t at;    /* where `p` is; in the end, where the entry is */
    uint32_t pairs; /* that it has looked at */
    pair p;
};

enum outcome {
    SEARCHES,
    KNOWN,
    LOWER,
    TOOK
}; /* someone has it; took it from a higher number; took an empty
      entry */

/* The id of an entry, of this or an earlier call. Records of earlier calls are final. */
__device__ __forceinline__ int64_t id_of(const dedup &d, const struct pst_dedup &t, uint32_t from, word entry)
{
    const uint32_t value = (uint32_t)entry, number = value & ~NEWCOMER;
    if (!(value & NEWCOMER))
        return d.vertices[value];
    if (number >= from)
        return d.ids[number - from];
    return d.vertices[position_in(records_of(d.entries, t.last)[number / 32], number)];
}

/* One access of a search, so that the lanes of a warp, which do this together, wait for memory together. An
 * entry that is taken keeps its id until the next reset. So an id that went past it can never be there, and
 * no id has two entries. */
__device__ __forceinline__ enum outcome search_on(const dedup &d, const struct pst_dedup &t, uint32_t from,
                                                  int64_t n, search &s)
{
    const bool second = !is_old(t, s.p.entry[0]) && (s.p.entry[0] ^ s.mine) >> 32 != 0;
    word entry = second ? s.p.entry[1] : s.p.entry[0];
    word *at = &d.entries[s.at + second];
    if (is_old(t, entry)) {
        const word before = atomicCAS(at, entry, s.mine);
        if (before == entry) {
            s.at += second;
            return TOOK;
        }
        entry = before;
    } else if ((entry ^ s.mine) >> 32 == 0) {
        if (id_of(d, t, from, entry) == s.id) {
            s.at += second;
            /* an earlier call's number is lower than all of this call, and a position has no NEWCOMER */
            if (s.mine >= entry)
                return KNOWN;
            const word before = atomicMin(at, s.mine);
            if (before <= s.mine)
                return KNOWN;
            uint32_t *lost = lost_of(d, t, n);
            const uint32_t loser = ((uint32_t)before & ~NEWCOMER) - from;
            if (lost) /* nobody loses an entry twice, so this sets a bit */
                (void)atomicAdd(&lost[loser / 32], 1u << loser % 32);
            return LOWER;
        }
        entry = s.mine ^ (word)1 << 32; /* any other tag */
    } else {
        const bool crowded =
            s.pairs % PATIENCE == 0 && pst_cu_load(&d.table->met) > (word)(t.max_ids - t.used);
        if (crowded || 2ull * s.pairs > t.last) {
            pst_cu_fault(d.status, PST_E_LIMIT);
            s.at = 0;
            return KNOWN;
        }
        s.pairs++;
        s.at = (s.at + 2) & t.last;
        s.p = load_pair(&d.entries[s.at]);
        return SEARCHES;
    }
    s.p.entry[0] = second ? s.p.entry[0] : entry;
    s.p.entry[1] = second ? entry : s.p.entry[1];
    return SEARCHES;
}

/* A thread for each id. In a run of equal ids in a warp only the first one searches: the others have higher
 * numbers, so its entry is theirs. */
__global__ void __launch_bounds__(PST_CU_THREADS, ENTER_BLOCKS) enter_all(dedup d)
{
    const struct pst_dedup t = *d.table;
    const int64_t n = pst_cu_warp_value(d.n, d.status);
    const bool counted = t.used + n > t.max_ids;
    const uint32_t from = t.given + n <= t.room ? t.given : t.room;
    for (int64_t i = pst_cu_first(); i < d.tile_words; i += pst_cu_step())
        d.tiles.taken[i] = 0;
    if (pst_cu_first() == 0) {
        d.table->call_base = *d.count;
        d.table->call_from = from;
    }
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    if (n == 0)
        return;
    int64_t ahead = d.ids[min(pst_cu_first(), n - 1)]; /* past the end: the last id, which does nothing */
    for (int64_t i = pst_cu_first(); i - lane < n; i += pst_cu_step()) {
        search s = {};
        s.id = ahead;
        if (i + pst_cu_step() - lane < n)
            ahead = d.ids[min(i + pst_cu_step(), n - 1)];
        const int64_t left = __shfl_up_sync(0xFFFFFFFFu, s.id, 1);
        const bool leads = lane == 0 || left != s.id;
        const unsigned leaders = __ballot_sync(0xFFFFFFFFu, leads);
        enum outcome out = i < n && leads ? SEARCHES : KNOWN;
        if (out == SEARCHES) {
            const hashed h = hash(t, s.id);
            s.mine = h.key | NEWCOMER | (from + (uint32_t)i);
            s.at = h.at;
            s.pairs = 1;
            s.p = load_pair(&d.entries[h.at]);
        }
        while (out == SEARCHES)
            out = search_on(d, t, from, n, s);
        const unsigned taken = __ballot_sync(0xFFFFFFFFu, out == TOOK),
                       lower = __ballot_sync(0xFFFFFFFFu, out == LOWER);
        const uint32_t slot =
            __shfl_sync(0xFFFFFFFFu, s.at, 31 - __clz((int)(leaders & 0xFFFFFFFFu >> (31 - lane))));
        if (i < n)
            d.slot[i] = slot;
        if (lane > 0)
            continue;
        call_records(d, t, from)[i / 32] = taken | lower; /* not final */
        if (counted && taken)
            (void)atomicAdd(&d.table->met, (word)__popc(taken));
    }
}

/* Which of 32 ids are the first appearances: those that took their entry and kept it. Lane k returns those of
 * word k. */
__device__ __forceinline__ uint32_t first_ones(const dedup &d, const struct pst_dedup &t, uint32_t from,
                                               uint32_t word_0, uint32_t n, uint32_t lane)
{
    uint32_t *lost = lost_of(d, t, n);
    uint32_t bits = 0;
    if (lane < WORDS && (word_0 + lane) * 32 < n) {
        bits = (uint32_t)call_records(d, t, from)[word_0 + lane];
        const uint32_t gone = lost ? lost[word_0 + lane] : 0;
        if (gone)
            lost[word_0 + lane] = 0;
        bits &= ~gone;
    }
    for (uint32_t k = 0; !lost && k < WORDS; k++) { /* the entries tell, too */
        const uint32_t fresh = __shfl_sync(0xFFFFFFFFu, bits, k);
        const uint32_t i = (word_0 + k) * 32 + lane;
        const bool first =
            fresh >> lane & 1 && (uint32_t)pst_cu_load(&d.entries[d.slot[i]]) == (NEWCOMER | (from + i));
        const uint32_t kept = __ballot_sync(0xFFFFFFFFu, first);
        if (lane == k)
            bits = kept;
    }
    return bits;
}

/* The position of an entry's id. Waits for a record of this call. */
__device__ __forceinline__ uint32_t position_of(const dedup &d, const struct pst_dedup &t, uint32_t from,
                                                uint32_t value)
{
    if (!(value & NEWCOMER))
        return value;
    const uint32_t number = value & ~NEWCOMER;
    const word *at = number >= from ? &call_records(d, t, from)[(number - from) / 32]
                                    : &records_of(d.entries, t.last)[number / 32];
    word record;
    while (!is_final(record = pst_cu_load(at))) { /* an earlier tile's block is about to write it */
    }
    return position_in(record, number);
}

/* A fault of this kernel comes from the block of the last tile, when all tiles have their sums: then no block
 * waits for one that has none, and no block with a tile still reads the status. */
__global__ void __launch_bounds__(PST_CU_THREADS, NUMBER_BLOCKS) number_all(dedup d)
{
    PST_CU_SHARED(uint32_t, head, [2]); /* the count, and the first tile: both on their way at once */
    if (threadIdx.x == 0) {
        const uint32_t tile = (uint32_t)atomicAdd(d.tiles.taken, 1ull);
        head[0] = (uint32_t)pst_cu_value(d.n, d.status);
        head[1] = tile;
    }
    const struct pst_dedup &t = *d.table;
    const uint32_t from = t.call_from;
    __syncthreads();
    const uint32_t n = head[0];
    const uint32_t lane = threadIdx.x % PST_CU_WARP;
    if (n == 0 && pst_cu_first() == 0 && *d.status != PST_OK)
        d.table->noted = true;
    for (uint32_t tile = head[1]; (uint64_t)tile * TILE < n; tile = (uint32_t)pst_cu_next_tile(d.tiles)) {
        const uint32_t word_0 = (tile * PST_CU_THREADS + threadIdx.x) / PST_CU_WARP * WORDS;
        const uint32_t bits = first_ones(d, t, from, word_0, n, lane);
        int64_t all;
        const uint32_t in_tile = (uint32_t)pst_cu_block_before<PST_CU_THREADS>(__popc(bits), &all);
        const uint32_t sum = (uint32_t)all;
        if (threadIdx.x == 0)
            pst_cu_publish_sum(&d.tiles.sum[tile], sum);
        int64_t held[WORDS]; /* an id, or an entry; in the end, the position */
#pragma unroll
        for (uint32_t k = 0; k < WORDS; k++) { /* past the end: the last id, which does nothing */
            const uint32_t i = min((word_0 + k) * 32 + lane, n - 1);
            const bool first = __shfl_sync(0xFFFFFFFFu, bits, k) >> lane & 1;
            held[k] = first ? d.ids[i] : d.local ? d.slot[i] : 0;
        }
#pragma unroll
        for (uint32_t k = 0; k < WORDS; k++) {
            const bool first = __shfl_sync(0xFFFFFFFFu, bits, k) >> lane & 1;
            if (!first && d.local)
                held[k] = (uint32_t)pst_cu_load(&d.entries[held[k]]);
        }
        const uint32_t before = (uint32_t)pst_cu_tiles_before<PST_CU_THREADS>(d.tiles, tile, sum);
        const uint32_t mine = (uint32_t)t.call_base + before + in_tile; /* both below 2^31 */
        if (lane < WORDS && (word_0 + lane) * 32 < n)
            *static_cast<volatile word *>(&call_records(d, t, from)[word_0 + lane]) = record(bits, mine);
#pragma unroll
        for (uint32_t k = 0; k < WORDS; k++) {
            const uint32_t word_k = __shfl_sync(0xFFFFFFFFu, bits, k);
            const uint32_t position =
                __shfl_sync(0xFFFFFFFFu, mine, k) + (uint32_t)__popc(word_k & ((1u << lane) - 1));
            if (!(word_k >> lane & 1))
                continue;
            if (position < d.limit)
                d.vertices[position] = held[k];
            const uint32_t number = min(position, (uint32_t)INT32_MAX); /* past the limit, too */
            if (from == t.room)
                *static_cast<volatile word *>(&d.entries[d.slot[(word_0 + k) * 32 + lane]]) =
                    hash(t, held[k]).key | number;
            held[k] = number;
        }
        if (tile == (n - 1) / TILE && threadIdx.x == 0) {
            const int64_t used = d.table->used + before + sum, count = d.table->call_base + before + sum;
            d.table->used = used;
            d.table->met = 0;
            if (from < t.room)
                d.table->given = from + (n + 31) / 32 * 32;
            *d.count = count;
            if (count > d.limit || used > d.table->max_ids)
                pst_cu_fault(d.status, PST_E_LIMIT);
        }
        if (d.local) {
            __syncthreads(); /* a block never waits for itself */
#pragma unroll
            for (uint32_t k = 0; k < WORDS; k++) {
                const uint32_t i = (word_0 + k) * 32 + lane;
                if (i < n)
                    d.local[i] = (int32_t)position_of(d, t, from, (uint32_t)held[k]);
            }
        }
        if ((uint64_t)gridDim.x * TILE >= n) /* a tile for each block */
            break;
    }
}

/* One block. After STAMP_LAST resets old stamps would be valid again. */
__global__ void __launch_bounds__(PST_CU_THREADS) reset(struct pst_dedup *table)
{
    const uint32_t stamp = table->stamp;
    const bool noted = table->noted;
    const uint64_t places = (uint64_t)table->last + 1;
    word *entries = entries_of(table);
    uint32_t *lost = reinterpret_cast<uint32_t *>(records_of(entries, table->last) + table->room / 32);
    __syncthreads();
    for (uint64_t at = threadIdx.x; stamp == STAMP_LAST && at < places; at += blockDim.x)
        entries[at] = 0;
    for (uint64_t at = threadIdx.x; noted && at < (places + 31) / 32; at += blockDim.x)
        lost[at] = 0;
    if (threadIdx.x > 0)
        return;
    table->stamp = stamp == STAMP_LAST ? 1 : stamp + 1;
    table->noted = false;
    table->used = 0;
    table->given = 0;
    table->met = 0;
}
} // namespace

size_t pst_k_dedup_bytes(int64_t max_ids)
{
    assert(max_ids >= 0 && max_ids <= INT32_MAX);
    const int log2 = places_log2(max_ids);
    return sizeof(struct pst_dedup) + PST_CACHE_LINE + body_bytes(log2);
}

/* Waits. NULL: CUDA failed. */
struct pst_dedup *pst_k_dedup_init(void *memory, int64_t max_ids)
{
    const int log2 = places_log2(max_ids);
    struct pst_dedup table = {}, *at = static_cast<struct pst_dedup *>(memory);
    table.max_ids = max_ids;
    table.stamp = 1;
    table.shift = 64 - log2;
    table.last = (uint32_t)(((uint64_t)1 << log2) - 1);
    table.room = (uint32_t)room_of(log2);
    if (cudaMemsetAsync(entries_of(at), 0, body_bytes(log2), NULL) != cudaSuccess ||
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
    if (n.most > INT32_MAX - ROOM_MOST) {
        pst_cu_refuse(q, PST_E_LIMIT, "a call of dedup has too many ids (give it fewer at a time)",
                      (size_t)n.most, INT32_MAX - ROOM_MOST);
        return q->rc;
    }
    const int64_t words = (n.most + 31) / 32, tiles = (n.most + TILE - 1) / TILE,
                  tile_words = pst_cu_tiles_words(tiles);
    pst_cu_begin(q);
    uint32_t *slot = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *slot));
    word *more = static_cast<word *>(pst_cu_scratch(q, (size_t)words * sizeof *more));
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
                     more,
                     pst_cu_tiles_at(sums, tiles),
                     tile_words,
                     q->status};
    const unsigned most = (unsigned)q->multiprocessors * ENTER_WAVES,
                   blocks = pst_cu_grid(q, n.most, PST_CU_THREADS);
    pst_cu_on(q, blocks < most ? blocks : most)(enter_all, d);
    pst_cu_on(q, pst_cu_grid(q, n.most, TILE))(number_all, d);
    return q->rc;
}

pst_rc pst_k_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, int64_t n,
                   int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    return pst_kn_dedup(q, table, ids, {NULL, n}, vertices, count, capacity, local);
}
