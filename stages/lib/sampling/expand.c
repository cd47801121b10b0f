/* expand.c: one hop of a minibatch on the CPU: draw, check, remove duplicates, relabel. */
#include "stages/lib/sampling/expand.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/memory.h"
#include "common/stage.h"
#include "stages/lib/sampling/cut.h"

pst_rc pst_expander_init(struct pst_expander *x, const struct pst_csc *graph,
                         const struct pst_sampling_opened *algorithm, int64_t vertices_max, int64_t edges_max)
{
    assert(vertices_max >= 1 && vertices_max <= PST_MINIBATCH_COUNT_MAX && edges_max >= 1 &&
           edges_max <= PST_MINIBATCH_COUNT_MAX);
    *x = (struct pst_expander){
        .graph = graph, .algorithm = algorithm, .vertices_max = vertices_max, .edges_max = edges_max};
    x->table_memory = pst_hugepage_alloc(pst_k_dedup_bytes(vertices_max));
    x->ids = malloc((size_t)edges_max * sizeof *x->ids);
    if (x->table_memory == NULL || x->ids == NULL) {
        pst_expander_release(x);
        return pst_fail(PST_E_NOMEM,
                        "out of memory: cannot sample %lld vertices and %lld edges per hop; use a smaller "
                        "batch or fanout",
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
    return pst_fail(
        PST_E_FORMAT,
        "%s contains vertex %lld, but the graph has only %lld vertices; `penstock verify` shows details",
        what, (long long)worst, (long long)vertices);
}

/* The topology is mapped, and nothing but a full verify has read it, so its offsets are checked before use.
 */
static pst_rc check_offsets(const struct pst_csc *graph, const int64_t *vertices, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = graph->indptr[vertices[i]], end = graph->indptr[vertices[i] + 1];
        if (begin < 0 || end < begin || end > graph->edges)
            return pst_fail(PST_E_FORMAT,
                            "indptr gives vertex %lld the edges %lld to %lld, but the graph has only %lld "
                            "edges; `penstock verify` shows details",
                            (long long)vertices[i], (long long)begin, (long long)end,
                            (long long)graph->edges);
    }
    return PST_OK;
}

pst_rc pst_expand_ends(struct pst_expander *x, const int64_t *ids, int64_t n, int64_t *vertices,
                       int64_t *count, int64_t capacity, int32_t *local)
{
    pst_rc rc = check_ids(ids, n, x->graph->vertices, "a split");
    if (rc != PST_OK)
        return rc;
    pst_k_dedup_reset(NULL, x->table);
    *count = 0;
    return pst_k_dedup(NULL, x->table, ids, n, vertices, count, pst_min_i64(capacity, x->vertices_max),
                       local);
}

pst_rc pst_expand_seeds(struct pst_expander *x, const int64_t *seeds, int64_t n, int64_t *vertices,
                        int64_t *count, int64_t capacity)
{
    return pst_expand_ends(x, seeds, n, vertices, count, capacity, NULL);
}

pst_rc pst_expand_hop(struct pst_expander *x, const struct pst_sample_key *key, int fanout, int64_t *vertices,
                      int64_t *count, int64_t capacity, int32_t *indptr, int32_t *indices, float *weights,
                      int64_t edge_capacity)
{
    const int64_t n = *count;
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
    const struct pst_sampling_hop hop = {.graph = x->graph,
                                         .key = key,
                                         .fanout = fanout,
                                         .vertices = vertices,
                                         .n = n,
                                         .indptr = indptr,
                                         .out = x->ids,
                                         .capacity = edge_capacity,
                                         .weight = weights,
                                         .relation = x->relation};
    rc = x->cut != NULL ? pst_cut_draw(x->cut, &hop)
                        : x->algorithm->algorithm->draw(x->algorithm->state, &hop);
    if (rc == PST_E_FORMAT && pst_error_text()[0] == '\0') /* kernels set no message */
        return pst_fail(rc, "an edge leads to a vertex that the graph does not have: the topology is damaged "
                            "(`penstock verify` shows details)");
    if (rc == PST_OK && x->pairs != NULL && indptr[n] <= edge_capacity)
        pst_sampling_pairs_leave_out(x->pairs, vertices, n, indptr, x->ids, weights, x->relation);
    x->sample_s += pst_now() - begin;
    if (rc == PST_OK)
        rc = pst_expand_drawn(x, vertices, count, capacity, indptr, indices, edge_capacity);
    if (rc == PST_OK && weights != NULL && x->cut == NULL)
        pst_k_edge_shares(NULL, indptr, n, weights);
    return rc;
}

pst_rc pst_expand_drawn(struct pst_expander *x, int64_t *vertices, int64_t *count, int64_t capacity,
                        const int32_t *indptr, int32_t *indices, int64_t edge_capacity)
{
    const int64_t n = *count, edges = indptr[n];
    edge_capacity = pst_min_i64(edge_capacity, x->edges_max);
    if (indptr[0] != 0 || edges < 0 || edges > edge_capacity)
        return pst_fail(PST_E_FORMAT,
                        "the sampling algorithm %s returned offsets (indptr) from %lld to %lld; expected "
                        "offsets from 0 to at most %lld: correct the algorithm",
                        x->algorithm->algorithm->name, (long long)indptr[0], (long long)edges,
                        (long long)edge_capacity);
    pst_rc rc = check_ids(x->ids, edges, x->graph->vertices, "an edge");
    if (rc != PST_OK)
        return rc;
    const double begin = pst_now();
    rc = pst_k_dedup(NULL, x->table, x->ids, edges, vertices, count, pst_min_i64(capacity, x->vertices_max),
                     indices);
    x->dedup_s += pst_now() - begin;
    return rc;
}
