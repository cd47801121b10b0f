/* temporal.cu: sampling by edges that are early enough. Limits are made and spread by kernels around the
 * draws of typed.cu. The largest entry of the table wins, whatever the order. */
#include "kernels/cuda/samplers/lists.cuh"

namespace
{
struct limiting {
    struct pst_csc graph;
    struct pst_k_limits limits;
    const int64_t *vertices;
    struct pst_twin_n n;
    int32_t *until;
    const int32_t *indptr;
    const int64_t *out;
    int32_t *status;
};

__global__ void __launch_bounds__(PST_CU_THREADS) find_limits(limiting s)
{
    const int64_t n = pst_cu_value(s.n, s.status);
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step()) {
        const int64_t v = s.vertices[i];
        s.until[i] = -1;
        if (!pst_cu_list_knows(s.graph, v)) {
            pst_cu_fault(s.status, PST_E_FORMAT);
            continue;
        }
        if (s.limits.first)
            s.limits.table[v] = pst_k_limit_entry(s.limits.batch, s.limits.vertex_time[v]);
        s.until[i] = pst_k_limit_of(s.limits.table[v], s.limits.batch);
    }
}

/* A warp for each vertex. */
__global__ void __launch_bounds__(PST_CU_THREADS) spread_limits(limiting s)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    for (PST_CU_LISTS(i, n)) {
        const uint64_t entry = pst_k_limit_entry(s.limits.batch, s.until[i]);
        for (int32_t e = s.indptr[i] + lane; e < s.indptr[i + 1]; e += PST_CU_WARP)
            (void)atomicMax(reinterpret_cast<unsigned long long *>(&s.limits.table[s.out[e]]),
                            (unsigned long long)entry);
    }
}
} // namespace

pst_rc pst_kn_sample_temporal(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                              const struct pst_k_limits *limits, const struct pst_sample_key *key,
                              const int64_t *vertices, struct pst_twin_n n, int32_t *until, int64_t *scratch,
                              int32_t *indptr, int64_t *out, int64_t capacity, int64_t *total)
{
    assert(how->time && limits->batch > 0);
    const limiting s = {*graph, *limits, vertices, n, until, indptr, out, q->status};
    struct pst_k_typed early = *how;
    early.until = until;
    pst_cu_on(q, pst_cu_grid(q, n.most > 0 ? n.most : 1, PST_CU_THREADS))(find_limits, s);
    if (pst_kn_sample_typed(q, graph, &early, key, vertices, n, scratch, indptr, out, NULL, capacity,
                            total) == PST_OK)
        pst_cu_on(q, pst_cu_lists_grid(q, n))(spread_limits, s);
    return q->rc;
}

pst_rc pst_k_sample_temporal(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                             const struct pst_k_limits *limits, const struct pst_sample_key *key,
                             const int64_t *vertices, int64_t n, int32_t *until, int64_t *scratch,
                             int32_t *indptr, int64_t *out, int64_t capacity)
{
    return pst_kn_sample_temporal(q, graph, how, limits, key, vertices, {NULL, n}, until, scratch, indptr,
                                  out, capacity, q->unused);
}
