/* ladies.cu: layer-dependent importance sampling. Sums of pi are whole numbers, so atomics may add them in
 * any order. The candidates are in no fixed order; what is drawn depends on the last key alone, which is
 * found eight bits at a time. */
#include "kernels/cuda/samplers/lists.cuh"

namespace
{
enum { BITS = 8, BINS = 1 << BITS };
typedef unsigned long long word;

/* Of the search for the last key. */
struct search {
    word candidates, first;
    int64_t need;
    bool all; /* there are no more candidates than are drawn */
    word bins[BINS];
};

struct ladies {
    struct pst_csc graph;
    struct pst_cu_stream stream;
    const int64_t *vertices;
    struct pst_twin_n n;
    int64_t size;
    word *units, *candidate, *key;
    search *found;
    uint32_t *counts;
    int32_t *indptr;
    int64_t *out;
    float *weight;
    int32_t *status;
};

__global__ void begin(ladies l)
{
    for (int b = (int)threadIdx.x; b < BINS; b += (int)blockDim.x)
        l.found->bins[b] = 0;
    if (threadIdx.x == 0) {
        l.found->candidates = l.found->first = 0;
        l.found->need = l.size;
        l.found->all = true;
    }
}

/* Checks all lists and adds up pi. */
__global__ void __launch_bounds__(PST_CU_THREADS) add_up(ladies l)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(l.n, l.status);
    const int shift = pst_k_rank_shift(n);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        if (!pst_cu_list_of(l.graph, l.vertices[i], &list))
            pst_cu_fault(l.status, PST_E_FORMAT);
        const word units = list.degree > 0 ? pst_k_rank_units(list.degree, shift) : 0;
#pragma unroll 1 /* more at a time would spill registers */
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const int64_t u = pst_cu_list_at(l.graph, list.begin + e);
            if (!pst_cu_list_knows(l.graph, u))
                pst_cu_fault(l.status, PST_E_FORMAT);
            else if (atomicAdd(&l.units[u], units) == 0)
                l.candidate[atomicAdd(&l.found->candidates, (word)1)] = (word)u;
        }
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS) make_keys(ladies l)
{
    const int64_t n = (int64_t)l.found->candidates;
    const struct pst_rng_stream stream = pst_cu_stream_now(l.stream);
    for (int64_t c = pst_cu_first(); c < n; c += pst_cu_step())
        l.key[c] = pst_k_rank_exponential(&stream, (int64_t)l.candidate[c], l.units[l.candidate[c]]);
}

__global__ void __launch_bounds__(PST_CU_THREADS) count_bins(ladies l, int shift)
{
    PST_CU_SHARED(uint32_t, bins, [BINS]);
    const int64_t n = (int64_t)l.found->candidates;
    const word first = l.found->first;
    for (int b = (int)threadIdx.x; b < BINS; b += PST_CU_THREADS)
        bins[b] = 0;
    __syncthreads();
    for (int64_t c = pst_cu_first(); c < n; c += pst_cu_step())
        if (shift == 64 - BITS || (l.key[c] ^ first) >> (shift + BITS) == 0)
            (void)atomicAdd(&bins[l.key[c] >> shift & (BINS - 1)], 1u);
    __syncthreads();
    for (int b = (int)threadIdx.x; b < BINS; b += PST_CU_THREADS)
        if (bins[b] > 0)
            (void)atomicAdd(&l.found->bins[b], (word)bins[b]);
}

__global__ void choose_bin(ladies l, int shift)
{
    search *f = l.found;
    word bin = 0;
    f->all = (int64_t)f->candidates <= l.size;
    for (; !f->all && (int64_t)f->bins[bin] < f->need; bin++)
        f->need -= (int64_t)f->bins[bin];
    f->first |= bin << shift;
    for (int b = 0; b < BINS; b++)
        f->bins[b] = 0;
}

__global__ void __launch_bounds__(PST_CU_THREADS) mark(ladies l)
{
    const int64_t n = (int64_t)l.found->candidates;
    for (int64_t c = pst_cu_first(); c < n; c += pst_cu_step())
        if (l.found->all || l.key[c] <= l.found->first)
            l.units[l.candidate[c]] |= PST_K_RANK_DRAWN;
}

/* WRITE: to where indptr says; else counts. */
template <bool WRITE> __global__ void __launch_bounds__(PST_CU_THREADS) keep(ladies l)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(l.n, l.status);
    const int shift = pst_k_rank_shift(n);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        (void)pst_cu_list_of(l.graph, l.vertices[i], &list);
        int64_t to = WRITE ? l.indptr[i] : 0;
        for (PST_CU_ENTRIES(e, list.degree)) {
            const int64_t u = e < list.degree ? pst_cu_list_at(l.graph, list.begin + e) : 0;
            const word units = e < list.degree ? l.units[u] : 0;
            const bool kept = (units & PST_K_RANK_DRAWN) != 0;
            const unsigned those = __ballot_sync(0xFFFFFFFFu, kept);
            if (WRITE && kept) {
                const int64_t at = to + __popc(those & ((1u << lane) - 1));
                l.out[at] = u;
                l.weight[at] = pst_k_rank_weight(list.degree, units & ~PST_K_RANK_DRAWN, shift);
            }
            to += __popc(those);
        }
        if (!WRITE && lane == 0)
            l.counts[i] = (uint32_t)min(to, (int64_t)INT32_MAX + 1);
    }
}

__global__ void __launch_bounds__(PST_CU_THREADS) clear(ladies l)
{
    const int64_t n = (int64_t)l.found->candidates;
    for (int64_t c = pst_cu_first(); c < n; c += pst_cu_step()) {
        l.units[l.candidate[c]] = 0;
        l.candidate[c] = l.key[c] = 0;
    }
}
} // namespace

pst_rc pst_kn_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                            const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                            struct pst_twin_n n, uint64_t *scratch, int32_t *indptr, int64_t *out,
                            float *weight, int64_t capacity, int64_t *total)
{
    assert(n.most >= 0 && capacity >= 0 && size >= 1);
    pst_cu_begin(q);
    search *found = static_cast<search *>(pst_cu_scratch(q, sizeof *found));
    uint32_t *counts = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *counts + 1));
    if (!found || !counts)
        return q->rc;
    word *const words = reinterpret_cast<word *>(scratch);
    const unsigned grid = pst_cu_lists_grid(q, n), all = pst_cu_grid(q, graph->vertices, PST_CU_THREADS);
    const ladies l = {*graph,
                      pst_cu_stream_of(q, *stream),
                      vertices,
                      n,
                      size,
                      words,
                      words + graph->vertices,
                      words + 2 * graph->vertices,
                      found,
                      counts,
                      indptr,
                      out,
                      weight,
                      q->status};
    pst_cu_on(q, 1)(begin, l);
    pst_cu_on(q, grid)(add_up, l);
    pst_cu_on(q, all)(make_keys, l);
    for (int shift = 64 - BITS; shift >= 0; shift -= BITS) {
        pst_cu_on(q, all)(count_bins, l, shift);
        pst_cu_on(q, 1, 1)(choose_bin, l, shift);
    }
    pst_cu_on(q, all)(mark, l);
    pst_cu_on(q, grid)(keep<false>, l);
    if (pst_cu_offsets(q, counts, n, indptr, pst_min_i64(capacity, INT32_MAX), total) == PST_OK)
        pst_cu_on(q, grid)(keep<true>, l);
    pst_cu_on(q, all)(clear, l);
    return q->rc;
}

pst_rc pst_k_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                           const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                           int64_t n, uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight,
                           int64_t capacity)
{
    return pst_kn_sample_ladies(q, graph, stream, size, vertices, {NULL, n}, scratch, indptr, out, weight,
                                capacity, q->unused);
}
