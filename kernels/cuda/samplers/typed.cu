/* typed.cu: uniform sampling within each relation of a vertex. A warp reads a list twice: first it counts the
 * entries of each relation and draws positions among them; then lanes that have entries at these positions
 * write them. Until then, `out` has the complement of a draw's position, which no id equals. */
#include "kernels/cuda/samplers/lists.cuh"

namespace
{
enum {
    ARRAYS = 3, /* of numbers of relations, in shared memory: degree, start, seen */
    MANY = 128, /* with more relations, a block has one warp */
    WARPS = PST_CU_THREADS / PST_CU_WARP
};
constexpr unsigned ALL_LANES = 0xFFFFFFFFu;

struct typed {
    struct pst_csc graph;
    struct pst_k_typed how;
    struct pst_cu_stream stream;
    const int64_t *vertices;
    struct pst_twin_n n;
    int32_t *indptr;
    int64_t *out;
    int32_t *relation;
    uint32_t *counts;
    int32_t *status;
};

/* Of each relation: its entries in the list; where its draws go; how many of its entries were met. */
struct numbers {
    int64_t *degree, *start, *seen;
};

__device__ __forceinline__ numbers numbers_of(const typed &s, int64_t *shared)
{
    const int r = s.how.relations, warp = (int)threadIdx.x / PST_CU_WARP;
    int64_t *mine = shared + (int64_t)warp * ARRAYS * r;
    return {mine, mine + r, mine + 2 * r};
}

/* Is the vertex of an entry in a resident partition? A wrong id is, so that it is found when it is drawn.
 * BUFFERED: there are partitions. */
template <bool BUFFERED> __device__ __forceinline__ bool is_resident(const typed &s, int64_t entry)
{
    if (!BUFFERED)
        return true;
    const int64_t id = pst_cu_list_at(s.graph, entry);
    return !pst_cu_list_knows(s.graph, id) || pst_k_is_resident(&s.how, id);
}

/* The relation of a lane's entry; -1: it has none, or the entry is too late or not resident. until: of the
 * vertex. */
template <bool BUFFERED>
__device__ __forceinline__ int32_t relation_of(const typed &s, pst_cu_list list, int64_t e, int32_t until)
{
    if (e >= list.degree)
        return -1;
    const int32_t r = s.how.relation ? s.how.relation[list.begin + e] : 0;
    if (r < 0 || r >= s.how.relations) {
        pst_cu_fault(s.status, PST_E_FORMAT);
        return -1;
    }
    if (s.how.time && s.how.time[list.begin + e] > until)
        return -1;
    return is_resident<BUFFERED>(s, list.begin + e) ? r : -1;
}

__device__ __forceinline__ int32_t until_of(const typed &s, int64_t i)
{
    return s.how.until ? s.how.until[i] : 0;
}

/* Is nothing drawn, because all entries are taken, or none? */
__device__ __forceinline__ bool is_whole(const typed &s, int64_t degree, int32_t fanout)
{
    return fanout <= 0 || degree == 0 || (!s.how.replace && degree <= fanout);
}

__device__ __forceinline__ int64_t taken_of(const typed &s, int64_t degree, int32_t fanout)
{
    return fanout == 0 ? 0 : is_whole(s, degree, fanout) ? degree : fanout;
}

/* Counts the entries of each relation, by all lanes of a warp. */
template <bool BUFFERED>
__device__ void count_entries(const typed &s, pst_cu_list list, int32_t until, int64_t *degree, int lane)
{
    for (int r = lane; r < s.how.relations; r += PST_CU_WARP)
        degree[r] = 0;
    __syncwarp();
    for (PST_CU_ENTRIES(e, list.degree)) {
        const int32_t r = relation_of<BUFFERED>(s, list, e, until);
        const unsigned same = __match_any_sync(ALL_LANES, r);
        if (r >= 0 && lane == __ffs((int)same) - 1)
            degree[r] += __popc(same);
        __syncwarp();
    }
}

template <bool BUFFERED> __global__ void __launch_bounds__(PST_CU_THREADS, 4) count(typed s)
{
    PST_CU_SHARED_DYNAMIC(int64_t, shared);
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    const numbers of = numbers_of(s, shared);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        if (!pst_cu_list_of(s.graph, s.vertices[i], &list))
            pst_cu_fault(s.status, PST_E_FORMAT);
        count_entries<BUFFERED>(s, list, until_of(s, i), of.degree, lane);
        int64_t total = 0;
        for (int r = lane; r < s.how.relations; r += PST_CU_WARP)
            total += taken_of(s, of.degree[r], s.how.fanout[r]);
        for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
            total += __shfl_xor_sync(ALL_LANES, total, by);
        if (lane == 0)
            s.counts[i] = (uint32_t)min(total, (int64_t)INT32_MAX + 1);
        __syncwarp();
    }
}

/* Where the draws of each relation go: a scan, 32 relations at a time. */
__device__ void find_starts(const typed &s, const numbers &of, int lane)
{
    int64_t before = 0;
    for (int first = 0; first < s.how.relations; first += PST_CU_WARP) {
        const int r = first + lane;
        const bool in = r < s.how.relations;
        const int64_t mine = in ? taken_of(s, of.degree[r], s.how.fanout[r]) : 0;
        int64_t sum = mine;
        for (int by = 1; by < PST_CU_WARP; by *= 2) {
            const int64_t other = __shfl_up_sync(ALL_LANES, sum, by);
            sum += lane >= by ? other : 0;
        }
        if (in) {
            of.start[r] = before + sum - mine;
            of.seen[r] = 0;
        }
        before += __shfl_sync(ALL_LANES, sum, PST_CU_WARP - 1);
    }
    __syncwarp();
}

/* Draws the positions of a relation's edges, 32 at a time, as Floyd's algorithm does: a position that was
 * drawn before becomes the last one that this draw can have. */
__device__ void draw_positions(const typed &s, int64_t vertex, int32_t r, int64_t degree, int fanout,
                               int64_t *out, int lane)
{
    const struct pst_rng_stream stream = pst_cu_stream_now(s.stream);
    const int64_t id = vertex * s.how.relations + r;
    for (int slot = lane; slot - lane < fanout; slot += PST_CU_WARP) {
        const bool in = slot < fanout;
        const int64_t pick = in ? pst_cu_pick(stream, id, degree, fanout, s.how.replace, slot) : -1,
                      last = degree - fanout + slot;
        int64_t position = pick;
        if (!s.how.replace) {
            for (int j = 0; in && j < slot - lane; j++)
                position = out[j] == ~pick ? last : position;
            position = pst_cu_settle(pick, position, last, PST_CU_WARP, lane, PST_CU_WARP);
        }
        if (in)
            out[slot] = ~position;
        __syncwarp();
    }
}

__device__ __forceinline__ void emit(const typed &s, int64_t to, int64_t entry)
{
    const int64_t id = pst_cu_list_at(s.graph, entry);
    if (!pst_cu_list_knows(s.graph, id))
        pst_cu_fault(s.status, PST_E_FORMAT);
    s.out[to] = id;
}

/* Writes the entry e, which is entry `position` of its relation, where it was drawn. */
__device__ __forceinline__ void put(const typed &s, const numbers &of, int64_t to, int32_t r,
                                    int64_t position, int64_t entry)
{
    const int32_t fanout = s.how.fanout[r];
    to += of.start[r];
    if (is_whole(s, of.degree[r], fanout)) {
        if (fanout != 0)
            emit(s, to + position, entry);
        return;
    }
    for (int64_t j = 0; j < fanout; j++) /* other lanes may be writing ids there */
        if (pst_cu_load(&s.out[to + j]) == ~position)
            emit(s, to + j, entry);
}

template <bool BUFFERED> __global__ void __launch_bounds__(PST_CU_THREADS) draw(typed s)
{
    PST_CU_SHARED_DYNAMIC(int64_t, shared);
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const unsigned lower = (1u << lane) - 1;
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    const numbers of = numbers_of(s, shared);
    for (PST_CU_LISTS(i, n)) {
        const int64_t to = s.indptr[i], vertex = s.vertices[i];
        pst_cu_list list;
        if (s.indptr[i + 1] == to)
            continue;
        (void)pst_cu_list_of(s.graph, vertex, &list);
        count_entries<BUFFERED>(s, list, until_of(s, i), of.degree, lane);
        find_starts(s, of, lane);
        for (int32_t r = 0; r < s.how.relations; r++) {
            const int64_t degree = of.degree[r], at = to + of.start[r];
            const int32_t fanout = s.how.fanout[r];
            if (!is_whole(s, degree, fanout))
                draw_positions(s, vertex, r, degree, fanout, s.out + at, lane);
            for (int64_t j = lane; s.relation && j < taken_of(s, degree, fanout); j += PST_CU_WARP)
                s.relation[at + j] = r;
        }
        __syncwarp();
        for (PST_CU_ENTRIES(e, list.degree)) {
            const int32_t r = relation_of<BUFFERED>(s, list, e, until_of(s, i));
            const unsigned same = __match_any_sync(ALL_LANES, r);
            const int64_t position = r >= 0 ? of.seen[r] + __popc(same & lower) : 0;
            __syncwarp();
            if (r >= 0 && lane == __ffs((int)same) - 1)
                of.seen[r] += __popc(same);
            if (r >= 0)
                put(s, of, to, r, position, list.begin + e);
            __syncwarp();
        }
    }
}
} // namespace

pst_rc pst_kn_sample_typed(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                           const struct pst_sample_key *key, const int64_t *vertices, struct pst_twin_n n,
                           int64_t *scratch, int32_t *indptr, int64_t *out, int32_t *relation,
                           int64_t capacity, int64_t *total)
{
    assert(n.most >= 0 && capacity >= 0 && how->relations >= 1 && how->relations <= PST_K_RELATIONS_MAX);
    (void)scratch;
    typed s = {
        *graph,
        *how,
        pst_cu_stream_of(q, pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop)),
        vertices,
        n,
        indptr,
        out,
        relation,
        NULL,
        q->status};
    const int warps = how->relations > MANY ? 1 : WARPS;
    const size_t bytes = (size_t)warps * ARRAYS * (size_t)how->relations * sizeof(int64_t);
    pst_cu_begin(q);
    s.counts = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *s.counts + 1));
    if (!s.counts)
        return q->rc;
    const unsigned blocks = pst_cu_grid(q, n.most > 0 ? n.most : 1, warps);
    pst_cu_on(q, blocks, (unsigned)warps * PST_CU_WARP, bytes)(s.how.partition ? count<true> : count<false>,
                                                               s);
    if (pst_cu_offsets(q, s.counts, n, indptr, pst_min_i64(capacity, INT32_MAX), total) == PST_OK)
        pst_cu_on(q, blocks, (unsigned)warps * PST_CU_WARP, bytes)(s.how.partition ? draw<true> : draw<false>,
                                                                   s);
    return q->rc;
}

pst_rc pst_k_sample_typed(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                          const struct pst_sample_key *key, const int64_t *vertices, int64_t n,
                          int64_t *scratch, int32_t *indptr, int64_t *out, int32_t *relation,
                          int64_t capacity)
{
    return pst_kn_sample_typed(q, graph, how, key, vertices, {NULL, n}, scratch, indptr, out, relation,
                               capacity, q->unused);
}
