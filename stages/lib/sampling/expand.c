#include "stages/lib/sampling/fill.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/hugepage.h"
#include "common/stage.h"

#define BLOCK_MAX PST_MINIBATCH_COUNT_MAX

static int64_t mul_bounded(int64_t a, int64_t b)
{
    int64_t out;
    if (__builtin_mul_overflow(a, b, &out) || out > BLOCK_MAX)
        return BLOCK_MAX;
    return out;
}

void pst_minibatch_size_bound(struct pst_minibatch_size *size, const struct pst_csc *graph,
                              const int64_t *fanout, int hops, int64_t batch)
{
    assert(hops >= 1 && hops <= PST_HOPS_MAX && batch >= 1);
    memset(size, 0, sizeof *size);
    size->hops = hops;
    int64_t everyone = pst_max_i64(1, pst_min_i64(graph->vertices, BLOCK_MAX));
    size->n[0] = pst_min_i64(batch, everyone);
    for (int h = 0; h < hops; h++) {
        int64_t edges =
            fanout[h] < 0 ? pst_min_i64(graph->edges, BLOCK_MAX) : mul_bounded(size->n[h], fanout[h]);
        size->edges[h] = pst_max_i64(1, edges);
        size->n[h + 1] = pst_min_i64(everyone, size->n[h] + edges);
    }
}

pst_rc pst_expander_init(struct pst_expander *x, const struct pst_csc *graph, pst_sample_fn sample,
                         void *user, int64_t vertices_max, int64_t edges_max)
{
    assert(vertices_max >= 1 && vertices_max <= BLOCK_MAX && edges_max >= 1 && edges_max <= BLOCK_MAX);
    *x = (struct pst_expander){
        .graph = graph, .sample = sample, .user = user, .vertices_max = vertices_max, .edges_max = edges_max};
    x->table_memory = pst_hugepage_alloc(pst_k_dedup_bytes(vertices_max));
    x->ids = malloc((size_t)edges_max * sizeof *x->ids);
    if (x->table_memory == NULL || x->ids == NULL) {
        pst_expander_release(x);
        return pst_fail(
            PST_E_NOMEM,
            "no memory to sample %lld vertices and %lld edges a hop; use a smaller batch or fanout",
            (long long)vertices_max, (long long)edges_max);
    }
    x->table = pst_k_dedup_init(x->table_memory, vertices_max);
    return PST_OK;
}

void pst_expander_release(struct pst_expander *x)
{
    free(x->table_memory);
    free(x->ids);
    x->table_memory = NULL;
    x->table = NULL;
    x->ids = NULL;
}

static pst_rc check_ids(const int64_t *ids, int64_t n, int64_t vertices, const char *what)
{
    uint64_t worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = (uint64_t)ids[i] > worst ? (uint64_t)ids[i] : worst;
    if (worst < (uint64_t)vertices || n == 0)
        return PST_OK;
    return pst_fail(PST_E_FORMAT,
                    "%s names vertex %lld, but the graph has %lld; `penstock verify` tells what is damaged",
                    what, (long long)worst, (long long)vertices);
}

/* The topology is mapped, and only a full verify has read it: its offsets are checked before use. */
static pst_rc check_offsets(const struct pst_csc *graph, const int64_t *vertices, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = graph->indptr[vertices[i]], end = graph->indptr[vertices[i] + 1];
        if (begin < 0 || end < begin || end > graph->edges)
            return pst_fail(PST_E_FORMAT,
                            "indptr of vertex %lld says edges %lld to %lld, but the graph has %lld; "
                            "`penstock verify` tells what is damaged",
                            (long long)vertices[i], (long long)begin, (long long)end,
                            (long long)graph->edges);
    }
    return PST_OK;
}

pst_rc pst_expand_seeds(struct pst_expander *x, const int64_t *seeds, int64_t n, int64_t *vertices,
                        int64_t *count, int64_t capacity)
{
    pst_rc rc = check_ids(seeds, n, x->graph->vertices, "a split");
    if (rc != PST_OK)
        return rc;
    pst_k_dedup_reset(NULL, x->table);
    *count = 0;
    return pst_k_dedup(NULL, x->table, seeds, n, vertices, count, pst_min_i64(capacity, x->vertices_max),
                       NULL);
}

pst_rc pst_expand_hop(struct pst_expander *x, const struct pst_sample_key *key, int fanout, int64_t *vertices,
                      int64_t *count, int64_t capacity, int32_t *indptr, int32_t *indices,
                      int64_t edge_capacity)
{
    int64_t n = *count;
    pst_rc rc = check_offsets(x->graph, vertices, n);
    if (rc != PST_OK)
        return rc;
    edge_capacity = pst_min_i64(edge_capacity, x->edges_max);
    if (fanout == 0) {
        memset(indptr, 0, ((size_t)n + 1) * sizeof *indptr);
        return PST_OK;
    }
    pst_error_clear();
    const double begin = pst_now();
    rc = x->sample(x->user, x->graph, key, vertices, n, fanout, indptr, x->ids, edge_capacity);
    if (rc == PST_E_FORMAT && pst_error_text()[0] == '\0') /* kernels have no words */
        return pst_fail(
            rc, "an edge leads to a vertex outside the graph; `penstock verify` tells what is damaged");
    if (rc != PST_OK)
        return rc;
    int64_t edges = indptr[n];
    if (indptr[0] != 0 || edges < 0 || edges > edge_capacity)
        return pst_fail(PST_E_FORMAT, "the sampling algorithm wrote indptr 0..%lld for a capacity of %lld",
                        (long long)edges, (long long)edge_capacity);
    rc = check_ids(x->ids, edges, x->graph->vertices, "an edge");
    if (rc != PST_OK)
        return rc;
    const double sampled = pst_now();
    rc = pst_k_dedup(NULL, x->table, x->ids, edges, vertices, count, pst_min_i64(capacity, x->vertices_max),
                     indices);
    x->sample_s += sampled - begin;
    x->dedup_s += pst_now() - sampled;
    return rc;
}
