/* ranked.cu: the entries of each list with the smallest keys: ranks of vertices, or random numbers of
 * weighted edges, in the whole list or within each relation. A warp finds the key of the last entry that is
 * kept, eight bits at a time: it counts how many entries have each value of the next bits. Keys are computed
 * anew each time, because that is faster than memory for them would be. Then the entries go out in the order
 * of the list. */
#include "kernels/cuda/samplers/lists.cuh"

namespace
{
constexpr uint64_t NEVER = ~(uint64_t)0; /* the key of an entry that is never kept */
enum { BITS = 8, BINS = 1 << BITS, WARPS = PST_CU_THREADS / PST_CU_WARP };

struct ranked {
    struct pst_csc graph;
    struct pst_k_ranks ranks;
    struct pst_k_weighted_edges edges; /* edge_weight NULL: keys are ranks of vertices */
    struct pst_cu_stream stream;       /* of the edges */
    const int64_t *vertices;
    struct pst_twin_n n;
    int fanout;
    int32_t *indptr;
    int64_t *out;
    float *weight;          /* NULL: not wanted */
    const int32_t *of;      /* the relation of each entry; NULL: there is one */
    const int32_t *fanouts; /* of each relation; NULL: fanout, of one relation */
    int relations;
    int32_t *relation; /* NULL: not wanted */
    uint32_t *counts;
    int32_t *status;
};

/* TYPED: the functions below see the entries of relation r alone. */
template <bool TYPED> __device__ __forceinline__ int fanout_of(const ranked &s, int32_t r)
{
    return TYPED ? s.fanouts[r] : s.fanout;
}

/* The weight of an entry, which must be in the list, as relation r sees it: 0 if it has another one. */
template <bool TYPED> __device__ __forceinline__ float weight_of(const ranked &s, int64_t entry, int32_t r)
{
    return TYPED && s.of && s.of[entry] != r ? 0.0f : s.edges.edge_weight[entry];
}

/* How many of a list's entries relation r can draw; weighted edges only. check: all entries are checked. */
template <bool TYPED> __device__ int64_t count_there(const ranked &s, pst_cu_list list, int32_t r, bool check)
{
    int64_t there = 0;
    for (PST_CU_ENTRIES(e, list.degree)) {
        const bool in = e < list.degree;
        if (check && in &&
            (!pst_k_rank_edge_good(s.edges.edge_weight[list.begin + e]) ||
             (TYPED && s.of && (s.of[list.begin + e] < 0 || s.of[list.begin + e] >= s.relations))))
            pst_cu_fault(s.status, PST_E_FORMAT);
        there += __popc(__ballot_sync(0xFFFFFFFFu, in && weight_of<TYPED>(s, list.begin + e, r) > 0));
    }
    return there;
}

__device__ __forceinline__ int64_t taken_of(int64_t there, int fanout)
{
    return fanout < 0 ? there : min(there, (int64_t)fanout);
}

__global__ void __launch_bounds__(PST_CU_THREADS) count(ranked s)
{
    const int64_t n = pst_cu_value(s.n, s.status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        pst_cu_list list;
        if (!pst_cu_list_of(s.graph, s.vertices[i], &list))
            pst_cu_fault(s.status, PST_E_FORMAT);
        s.counts[i] = (uint32_t)min(taken_of(list.degree, s.fanout), (int64_t)INT32_MAX + 1);
    }
}

/* The same for weighted edges: entries of weight 0 do not count. A warp for each list. */
template <bool TYPED> __global__ void __launch_bounds__(PST_CU_THREADS, 4) count_weighted(ranked s)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        int64_t taken = 0;
        if (!pst_cu_list_of(s.graph, s.vertices[i], &list))
            pst_cu_fault(s.status, PST_E_FORMAT);
#pragma unroll 1
        for (int32_t r = 0; r < (TYPED ? s.relations : 1); r++) {
            const int fanout = fanout_of<TYPED>(s, r);
            if (r == 0 || fanout != 0)
                taken += taken_of(count_there<TYPED>(s, list, r, r == 0), fanout);
        }
        if (lane == 0)
            s.counts[i] = (uint32_t)min(taken, (int64_t)INT32_MAX + 1);
    }
}

/* The entries that are kept: those with a key below `first`, and the first `ties` of those with keys from
 * `first` to `last`. */
struct bound {
    uint64_t first, last;
    int64_t ties;
};

template <bool TYPED>
__device__ __forceinline__ uint64_t key_of(const ranked &s, const pst_rng_stream &stream, int64_t i,
                                           pst_cu_list list, int64_t e, int32_t r)
{
    const float w = s.edges.edge_weight ? weight_of<TYPED>(s, list.begin + e, r) : 1;
    if (!(w > 0))
        return NEVER;
    const int64_t id = pst_cu_list_at(s.graph, list.begin + e);
    if (!pst_cu_list_knows(s.graph, id)) {
        pst_cu_fault(s.status, PST_E_FORMAT);
        return 0;
    }
    return s.edges.edge_weight ? pst_k_rank_edge(&stream, s.vertices[i], e, w) : pst_k_rank_key(&s.ranks, id);
}

/* Finds the value of the next bits that the last kept entry has; *need: its number among those with it. */
__device__ uint32_t find_bin(const uint32_t *bins, int64_t *need, int lane)
{
    uint32_t mine = 0;
    for (int b = 0; b < BINS / PST_CU_WARP; b++)
        mine += bins[lane * (BINS / PST_CU_WARP) + b];
    uint32_t before = mine;
    for (int by = 1; by < PST_CU_WARP; by *= 2) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, before, by);
        before += lane >= by ? other : 0;
    }
    before -= mine; /* entries with lower values than this lane's */
    uint32_t bin = 0;
    int64_t rest = *need - (int64_t)before;
    const bool here = rest > 0 && rest <= (int64_t)mine;
    if (here)
        for (bin = (uint32_t)lane * (BINS / PST_CU_WARP); (int64_t)bins[bin] < rest; bin++)
            rest -= (int64_t)bins[bin];
    const int owner = __ffs((int)__ballot_sync(0xFFFFFFFFu, here)) - 1;
    *need = __shfl_sync(0xFFFFFFFFu, rest, owner);
    return __shfl_sync(0xFFFFFFFFu, bin, owner);
}

/* exact: first and last are the key of the `taken`-th entry. */
template <bool TYPED>
__device__ struct bound find_bound(const ranked &s, const pst_rng_stream &stream, int64_t i, pst_cu_list list,
                                   int32_t r, int64_t taken, bool exact, uint32_t *bins, int lane)
{
    struct bound b = {0, 0, taken};
    for (int shift = 64 - BITS;; shift -= BITS) {
        for (int at = lane; at < BINS; at += PST_CU_WARP)
            bins[at] = 0;
        __syncwarp();
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const uint64_t key = key_of<TYPED>(s, stream, i, list, e, r);
            if (shift == 64 - BITS || (key ^ b.first) >> (shift + BITS) == 0)
                (void)atomicAdd(&bins[key >> shift & (BINS - 1)], 1u);
        }
        __syncwarp();
        const uint32_t bin = find_bin(bins, &b.ties, lane);
        const bool all = (int64_t)bins[bin] == b.ties;
        b.first |= (uint64_t)bin << shift;
        b.last = b.first | (((uint64_t)1 << shift) - 1);
        __syncwarp();
        if ((all && !exact) || shift == 0)
            return b;
    }
}

template <bool TYPED>
__device__ void put(const ranked &s, int64_t at, int64_t entry, int32_t r, bool all, uint64_t least)
{
    const int64_t id = pst_cu_list_at(s.graph, entry);
    if (!pst_cu_list_knows(s.graph, id))
        pst_cu_fault(s.status, PST_E_FORMAT);
    s.out[at] = id;
    if (s.weight)
        s.weight[at] = all ? 1 : pst_k_rank_edge_weight(s.edges.edge_weight[entry], least);
    if (TYPED && s.relation)
        s.relation[at] = r;
}

/* Writes the kept entries of relation r from `to` on. Returns where the next go. */
template <bool TYPED>
__device__ int64_t keep_of(const ranked &s, const pst_rng_stream &stream, int64_t i, pst_cu_list list,
                           int32_t r, int64_t to, uint32_t *bins, int lane)
{
    const unsigned lower = (1u << lane) - 1;
    const bool weighs = s.edges.edge_weight != NULL;
    const int64_t there = weighs ? count_there<TYPED>(s, list, r, false) : list.degree,
                  taken = taken_of(there, fanout_of<TYPED>(s, r));
    const bool all = taken == there;
    struct bound b = {NEVER, NEVER, 0};
    int64_t ties = 0;
    if (taken > 0 && !all)
        b = find_bound<TYPED>(s, stream, i, list, r, weighs ? taken + 1 : taken, weighs, bins, lane);
    b.ties -= weighs && !all; /* the key of the first entry that is left out is known, too */
    for (PST_CU_ENTRIES(e, taken > 0 ? list.degree : 0)) {
        const bool in = e < list.degree;
        const uint64_t key = !in ? NEVER : all && !weighs ? 0 : key_of<TYPED>(s, stream, i, list, e, r);
        const bool tie = in && !all && key >= b.first && key <= b.last;
        const unsigned tied = __ballot_sync(0xFFFFFFFFu, tie);
        const bool kept = key < b.first || (tie && ties + __popc(tied & lower) < b.ties);
        const unsigned those = __ballot_sync(0xFFFFFFFFu, kept);
        if (kept)
            put<TYPED>(s, to + __popc(those & lower), list.begin + e, r, all, b.first);
        to += __popc(those);
        ties += __popc(tied);
    }
    return to;
}

template <bool TYPED> __global__ void __launch_bounds__(PST_CU_THREADS, TYPED ? 3 : 1) keep(ranked s)
{
    PST_CU_SHARED(uint32_t, bins, [WARPS][BINS]);
    const int lane = (int)threadIdx.x % PST_CU_WARP, warp = (int)threadIdx.x / PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    const struct pst_rng_stream stream = pst_cu_stream_now(s.stream);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        int64_t to = s.indptr[i];
        if (s.indptr[i + 1] == to)
            continue;
        (void)pst_cu_list_of(s.graph, s.vertices[i], &list);
#pragma unroll 1
        for (int32_t r = 0; r < (TYPED ? s.relations : 1); r++)
            to = fanout_of<TYPED>(s, r) != 0 ? keep_of<TYPED>(s, stream, i, list, r, to, bins[warp], lane)
                                             : to;
    }
}

pst_rc sample(struct pst_queue *q, ranked s, int64_t capacity, int64_t *total)
{
    assert(s.n.most >= 0 && capacity >= 0 && s.fanout >= -1 && s.fanout <= PST_FANOUT_MAX);
    pst_cu_begin(q);
    s.counts = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)s.n.most * sizeof *s.counts + 1));
    if (!s.counts)
        return q->rc;
    if (s.edges.edge_weight)
        pst_cu_on(q, pst_cu_lists_grid(q, s.n))(s.fanouts ? count_weighted<true> : count_weighted<false>, s);
    else
        pst_cu_on(q, pst_cu_grid(q, s.n.most, PST_CU_THREADS))(count, s);
    if (pst_cu_offsets(q, s.counts, s.n, s.indptr, pst_min_i64(capacity, INT32_MAX), total) == PST_OK)
        pst_cu_on(q, pst_cu_lists_grid(q, s.n))(s.fanouts ? keep<true> : keep<false>, s);
    return q->rc;
}
} // namespace

pst_rc pst_kn_sample_ranked(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                            const int64_t *vertices, struct pst_twin_n n, int fanout, int32_t *indptr,
                            int64_t *out, int64_t capacity, int64_t *total)
{
    return sample(q,
                  {*graph,
                   *ranks,
                   {},
                   {},
                   vertices,
                   n,
                   fanout,
                   indptr,
                   out,
                   NULL,
                   NULL,
                   NULL,
                   1,
                   NULL,
                   NULL,
                   q->status},
                  capacity, total);
}

pst_rc pst_k_sample_ranked(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                           const int64_t *vertices, int64_t n, int fanout, int32_t *indptr, int64_t *out,
                           int64_t capacity)
{
    return pst_kn_sample_ranked(q, graph, ranks, vertices, {NULL, n}, fanout, indptr, out, capacity,
                                q->unused);
}

pst_rc pst_kn_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                              const struct pst_k_weighted_edges *edges, const int64_t *vertices,
                              struct pst_twin_n n, int fanout, int32_t *indptr, int64_t *out, float *weight,
                              int64_t capacity, int64_t *total)
{
    return sample(q,
                  {*graph,
                   {},
                   *edges,
                   pst_cu_stream_of(q, edges->stream),
                   vertices,
                   n,
                   fanout,
                   indptr,
                   out,
                   weight,
                   NULL,
                   NULL,
                   1,
                   NULL,
                   NULL,
                   q->status},
                  capacity, total);
}

pst_rc pst_k_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                             const struct pst_k_weighted_edges *edges, const int64_t *vertices, int64_t n,
                             int fanout, int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    return pst_kn_sample_weighted(q, graph, edges, vertices, {NULL, n}, fanout, indptr, out, weight, capacity,
                                  q->unused);
}

pst_rc pst_kn_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                    const struct pst_k_weighted_edges *edges, const struct pst_k_typed *how,
                                    const int64_t *vertices, struct pst_twin_n n, int64_t *scratch,
                                    int32_t *indptr, int64_t *out, float *weight, int32_t *relation,
                                    int64_t capacity, int64_t *total)
{
    assert(how->relations >= 1 && how->relations <= PST_K_RELATIONS_MAX);
    assert(!how->replace && !how->time && !how->partition);
    (void)scratch;
    return sample(q,
                  {*graph,
                   {},
                   *edges,
                   pst_cu_stream_of(q, edges->stream),
                   vertices,
                   n,
                   0,
                   indptr,
                   out,
                   weight,
                   how->relation,
                   how->fanout,
                   how->relations,
                   relation,
                   NULL,
                   q->status},
                  capacity, total);
}

pst_rc pst_k_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                   const struct pst_k_weighted_edges *edges, const struct pst_k_typed *how,
                                   const int64_t *vertices, int64_t n, int64_t *scratch, int32_t *indptr,
                                   int64_t *out, float *weight, int32_t *relation, int64_t capacity)
{
    return pst_kn_sample_weighted_typed(q, graph, edges, how, vertices, {NULL, n}, scratch, indptr, out,
                                        weight, relation, capacity, q->unused);
}
