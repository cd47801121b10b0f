/* temporal.c: sampling by edges that are early enough: limits of vertices, draws, and the limits of those
 * that were drawn. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/samplers.h"

static pst_rc find_limits(const struct pst_csc *graph, const struct pst_k_limits *l, const int64_t *vertices,
                          int64_t n, int32_t *until)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = vertices[i];
        if (!pst_cpu_list_knows(graph, v))
            return PST_E_FORMAT;
        if (l->first)
            l->table[v] = pst_k_limit_entry(l->batch, l->vertex_time[v]);
        until[i] = pst_k_limit_of(l->table[v], l->batch);
    }
    return PST_OK;
}

pst_rc pst_k_sample_temporal(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                             const struct pst_k_limits *limits, const struct pst_sample_key *key,
                             const int64_t *vertices, int64_t n, int32_t *until, int64_t *scratch,
                             int32_t *indptr, int64_t *out, int64_t capacity)
{
    assert(how->time != NULL && limits->batch > 0);
    struct pst_k_typed early = *how;
    early.until = until;
    pst_rc rc = find_limits(graph, limits, vertices, n, until);
    if (rc == PST_OK)
        rc = pst_k_sample_typed(q, graph, &early, key, vertices, n, scratch, indptr, out, NULL, capacity);
    for (int64_t i = 0; i < n && rc == PST_OK; i++) {
        const uint64_t entry = pst_k_limit_entry(limits->batch, until[i]);
        for (int32_t e = indptr[i]; e < indptr[i + 1]; e++)
            if (limits->table[out[e]] < entry)
                limits->table[out[e]] = entry;
    }
    return rc;
}
