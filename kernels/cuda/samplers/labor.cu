/* labor.cu: LABOR with importance. A warp solves the equation of a list. Maxima over lists are atomic: the
 * bits of positive numbers have the order of the numbers. */
#include "kernels/cuda/samplers/lists.cuh"

namespace
{
enum { STEPS_MAX = 1000 }; /* of Newton's method, which needs a few */
typedef unsigned long long word;

struct labor {
    struct pst_csc graph;
    struct pst_k_ranks ranks;
    const int64_t *vertices;
    struct pst_twin_n n;
    int fanout;
    double *pi, *next;
    uint32_t *counts;
    int32_t *indptr;
    int64_t *out;
    float *weight;
    int32_t *status;
};

__device__ __forceinline__ double pi_at(const labor &l, int64_t entry)
{
    return l.pi[pst_cu_list_at(l.graph, entry)];
}

/* Checks all lists, and begins with pi = 1. */
__global__ void __launch_bounds__(PST_CU_THREADS) begin(labor l)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(l.n, l.status);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        if (!pst_cu_list_of(l.graph, l.vertices[i], &list))
            pst_cu_fault(l.status, PST_E_FORMAT);
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const int64_t u = pst_cu_list_at(l.graph, list.begin + e);
            if (pst_cu_list_knows(l.graph, u))
                l.pi[u] = 1;
            else
                pst_cu_fault(l.status, PST_E_FORMAT);
        }
    }
}

/* After a failure, too: some lists may be wrong. */
__global__ void __launch_bounds__(PST_CU_THREADS) clear(labor l, double *of)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_value(l.n);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        (void)pst_cu_list_of(l.graph, l.vertices[i], &list);
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const int64_t u = pst_cu_list_at(l.graph, list.begin + e);
            if (pst_cu_list_knows(l.graph, u))
                of[u] = 0;
        }
    }
}

/* 1 / c_v, the same for all lanes. */
__device__ double solve(const labor &l, pst_cu_list list, int lane)
{
    const double degree = (double)list.degree, target = degree * degree / l.fanout;
    double x = INFINITY;
    if (list.degree <= l.fanout) {
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP)
            x = fmin(x, pi_at(l, list.begin + e));
        for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
            x = fmin(x, __shfl_xor_sync(0xFFFFFFFFu, x, by));
        return x;
    }
    int64_t before = -1;
    for (int step = 0; step < STEPS_MAX; step++) {
        double inverse = 0;
        int64_t ones = 0;
#pragma unroll 1
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const double pi = pi_at(l, list.begin + e);
            inverse += pi < x ? 1 / pi : 0;
            ones += !(pi < x);
        }
        for (int by = PST_CU_WARP / 2; by > 0; by /= 2) {
            inverse += __shfl_xor_sync(0xFFFFFFFFu, inverse, by);
            ones += __shfl_xor_sync(0xFFFFFFFFu, ones, by);
        }
        if (ones == before || !(inverse > 0))
            break;
        x = pst_k_rank_newton(target, ones, inverse);
        before = ones;
    }
    return x;
}

/* next(u) becomes pi(u) times the largest c_v. */
__global__ void __launch_bounds__(PST_CU_THREADS) iterate(labor l)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(l.n, l.status);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        (void)pst_cu_list_of(l.graph, l.vertices[i], &list);
        const double x = solve(l, list, lane);
#pragma unroll 1
        for (int64_t e = lane; e < list.degree; e += PST_CU_WARP) {
            const int64_t u = pst_cu_list_at(l.graph, list.begin + e);
            const double pi = l.pi[u] / x;
            word bits;
            memcpy(&bits, &pi, sizeof bits);
            (void)atomicMax(reinterpret_cast<word *>(&l.next[u]), bits);
        }
    }
}

/* Is the entry kept? *share: with what probability. */
__device__ __forceinline__ bool keeps(const labor &l, int64_t u, double x, double *share)
{
    *share = pst_k_rank_share(l.pi[u], x);
    return *share >= 1 || pst_k_rank_of(&l.ranks, u) < *share;
}

/* WRITE: to where indptr says; else counts. */
template <bool WRITE> __global__ void __launch_bounds__(PST_CU_THREADS) keep(labor l)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(l.n, l.status);
    for (PST_CU_LISTS(i, n)) {
        pst_cu_list list;
        (void)pst_cu_list_of(l.graph, l.vertices[i], &list);
        const double x = solve(l, list, lane);
        int64_t to = WRITE ? l.indptr[i] : 0;
#pragma unroll 1 /* more at a time would spill registers */
        for (PST_CU_ENTRIES(e, list.degree)) {
            double share = 1;
            const int64_t u = e < list.degree ? pst_cu_list_at(l.graph, list.begin + e) : 0;
            const bool kept = e < list.degree && keeps(l, u, x, &share);
            const unsigned those = __ballot_sync(0xFFFFFFFFu, kept);
            if (WRITE && kept) {
                const int64_t at = to + __popc(those & ((1u << lane) - 1));
                l.out[at] = u;
                l.weight[at] = (float)(1 / share);
            }
            to += __popc(those);
        }
        if (!WRITE && lane == 0)
            l.counts[i] = (uint32_t)min(to, (int64_t)INT32_MAX + 1);
    }
}
} // namespace

pst_rc pst_kn_sample_labor(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                           int iterations, const int64_t *vertices, struct pst_twin_n n, int fanout,
                           uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight, int64_t capacity,
                           int64_t *total)
{
    assert(n.most >= 0 && capacity >= 0 && fanout >= 1 && iterations >= 0);
    pst_cu_begin(q);
    uint32_t *counts = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *counts + 1));
    if (!counts)
        return q->rc;
    double *const words = reinterpret_cast<double *>(scratch);
    const unsigned grid = pst_cu_lists_grid(q, n);
    labor l = {*graph, *ranks, vertices, n,      fanout,   words, words + graph->vertices,
               counts, indptr, out,      weight, q->status};
    pst_cu_on(q, grid)(begin, l);
    for (int i = 0; i < iterations; i++) {
        pst_cu_on(q, grid)(iterate, l);
        double *const pi = l.next;
        l.next = l.pi;
        l.pi = pi;
        pst_cu_on(q, grid)(clear, l, l.next);
    }
    pst_cu_on(q, grid)(keep<false>, l);
    if (pst_cu_offsets(q, counts, n, indptr, pst_min_i64(capacity, INT32_MAX), total) == PST_OK)
        pst_cu_on(q, grid)(keep<true>, l);
    pst_cu_on(q, grid)(clear, l, l.pi);
    return q->rc;
}

pst_rc pst_k_sample_labor(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                          int iterations, const int64_t *vertices, int64_t n, int fanout, uint64_t *scratch,
                          int32_t *indptr, int64_t *out, float *weight, int64_t capacity)
{
    return pst_kn_sample_labor(q, graph, ranks, iterations, vertices, {NULL, n}, fanout, scratch, indptr, out,
                               weight, capacity, q->unused);
}
