/* twin.c: the CPU's table of kernels (twin.h). */
#include "kernels/twin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/products/products.h"

/* ---- counts are there when a call returns ------------------------------------------------------- */

static int64_t value_of(struct pst_twin_n n)
{
    assert(n.at == NULL || (*n.at >= 0 && *n.at <= n.most));
    return n.at ? *n.at : n.most;
}

pst_rc pst_kn_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                     const int64_t *vertices, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                     int64_t *out, int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc = pst_k_sample(q, graph, key, vertices, count, fanout, replace, indptr, out, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                   const int64_t *degrees, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                   int64_t *positions, int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc =
        pst_k_pick(q, key, vertices, degrees, count, fanout, replace, indptr, positions, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_dedup(struct pst_queue *q, struct pst_dedup *table, const int64_t *ids, struct pst_twin_n n,
                    int64_t *vertices, int64_t *count, int64_t capacity, int32_t *local)
{
    return pst_k_dedup(q, table, ids, value_of(n), vertices, count, capacity, local);
}

void pst_kn_count(struct pst_queue *q, const int64_t *ids, struct pst_twin_n n, uint32_t *counts)
{
    pst_k_count(q, ids, value_of(n), counts);
}

void pst_kn_lookup(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids,
                   struct pst_twin_n n, int32_t *hit_pos, int32_t *hit_row, int64_t *hits, int32_t *miss_pos,
                   int64_t *misses)
{
    pst_k_lookup(q, cache, ids, value_of(n), hit_pos, hit_row, hits, miss_pos, misses);
}

void pst_kn_gather(struct pst_queue *q, const void *src, uint64_t src_stride, const int32_t *src_row,
                   void *dst, uint64_t dst_stride, const int32_t *dst_pos, struct pst_twin_n n,
                   uint64_t row_bytes)
{
    pst_k_gather(q, src, src_stride, src_row, dst, dst_stride, dst_pos, value_of(n), row_bytes);
}

void pst_kn_requests(struct pst_queue *q, const int64_t *ids, const int32_t *positions, int64_t from,
                     struct pst_twin_n n, uint16_t array, uint64_t first, uint64_t stride,
                     struct pst_request *table, int32_t *missing)
{
    pst_k_requests(q, ids, positions, from, value_of(n), array, first, stride, table, missing);
}

void pst_kn_copy_digest(struct pst_queue *q, const void *src, void *dst, struct pst_twin_n n,
                        uint64_t item_bytes, uint64_t array, uint64_t *digest)
{
    pst_k_copy_digest(q, src, dst, value_of(n), item_bytes, array, digest);
}

void pst_kn_gather_tiers(struct pst_queue *q, const struct pst_twin_tiers *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes)
{
    assert(q == NULL && src_row != NULL);
    (void)q;
    const int64_t rows = value_of(n);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = src_row[i];
        const char *from = row < src->near_rows
                               ? (const char *)src->near + (uint64_t)row * src_stride
                               : (const char *)src->far + (uint64_t)(row - src->near_rows) * src_stride;
        memcpy((char *)dst + (uint64_t)(dst_pos ? dst_pos[i] : i) * dst_stride, from, row_bytes);
    }
}

void pst_kn_count_below(struct pst_queue *q, const int32_t *values, struct pst_twin_n n, int64_t limit,
                        int64_t *below)
{
    assert(q == NULL);
    (void)q;
    const int64_t count = value_of(n);
    *below = 0;
    for (int64_t i = 0; i < count; i++)
        *below += values[i] < limit;
}

/* ---- rows and lists of several parts (memories.h) ---------------------------------------------------- */

static int part_of(const int64_t *first, int64_t i)
{
    int k = 0;
    while (i >= first[k + 1])
        k++;
    return k;
}

void pst_kn_gather_parts(struct pst_queue *q, const struct pst_k_row_parts *src, uint64_t src_stride,
                         const int32_t *src_row, void *dst, uint64_t dst_stride, const int32_t *dst_pos,
                         struct pst_twin_n n, uint64_t row_bytes)
{
    assert(q == NULL && src_row != NULL && src->n >= 1 && src->n <= PST_K_PARTS_MAX);
    (void)q;
    const int64_t rows = value_of(n);
    for (int64_t i = 0; i < rows; i++) {
        const int k = part_of(src->first, src_row[i]);
        memcpy((char *)dst + (uint64_t)(dst_pos ? dst_pos[i] : i) * dst_stride,
               (const char *)src->rows[k] + (uint64_t)(src_row[i] - src->first[k]) * src_stride, row_bytes);
    }
}

void pst_kn_count_parts(struct pst_queue *q, const struct pst_k_row_parts *parts, const int32_t *rows,
                        struct pst_twin_n n, int64_t *counts)
{
    assert(q == NULL);
    (void)q;
    const int64_t count = value_of(n);
    for (int64_t i = 0; i < count; i++)
        counts[part_of(parts->first, rows[i])]++;
}

void pst_kn_find(struct pst_queue *q, const struct pst_cache *cache, const int64_t *ids, struct pst_twin_n n,
                 int32_t *row)
{
    const int64_t count = value_of(n);
    for (int64_t i = 0; i < count; i++) {
        int32_t at, miss;
        int64_t hits, misses;
        pst_k_lookup(q, cache, &ids[i], 1, &at, &row[i], &hits, &miss, &misses);
        row[i] = hits > 0 ? row[i] : -1;
    }
}

pst_rc pst_kn_find_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *list, struct pst_twin_n n, int32_t *source, int64_t *begin,
                         int64_t *degree)
{
    assert(q == NULL && lists->n <= PST_K_PARTS_MAX);
    (void)q;
    const struct pst_csc *graph = &lists->graph;
    const int64_t count = value_of(n);
    for (int64_t i = 0; i < count; i++) {
        const bool cached = list[i] >= 0;
        if (!cached && (vertices[i] < 0 || vertices[i] >= graph->vertices))
            return PST_E_FORMAT;
        const int k = cached ? part_of(lists->first, list[i]) : lists->n;
        const int64_t *at = cached ? lists->at[k] + (list[i] - lists->first[k]) : graph->indptr + vertices[i];
        if (at[0] < 0 || at[1] < at[0] || (!cached && at[1] > graph->edges))
            return PST_E_FORMAT;
        source[i] = k;
        begin[i] = at[0];
        degree[i] = at[1] - at[0];
    }
    return PST_OK;
}

static int64_t entry_at(const struct pst_k_list_parts *lists, int source, int64_t at)
{
    const void *entries = source < lists->n ? lists->entries[source] : lists->graph.indices;
    return lists->graph.index_bytes == 4 ? ((const int32_t *)entries)[at] : ((const int64_t *)entries)[at];
}

/* The lines of the entries at begin + position[0..n), each once, and of the two offsets of vertex v. */
static int64_t lines_of(const struct pst_k_list_parts *lists, int64_t v, int64_t begin,
                        const int64_t *position, int64_t n)
{
    const int64_t line = lists->line_bytes, bytes = lists->graph.index_bytes,
                  offset = (int64_t)sizeof *lists->graph.indptr;
    int64_t lines = (v + 1) * offset / line - v * offset / line + 1;
    for (int64_t e = 0; e < n; e++) {
        bool seen = false;
        for (int64_t before = 0; before < e && !seen; before++)
            seen = (begin + position[before]) * bytes / line == (begin + position[e]) * bytes / line;
        lines += !seen;
    }
    return lines;
}

pst_rc pst_kn_read_lists(struct pst_queue *q, const struct pst_k_list_parts *lists, const int64_t *vertices,
                         const int32_t *source, const int64_t *begin, const int64_t *degree,
                         struct pst_twin_n n, int fanout, bool replace, const int32_t *indptr, int64_t *ids,
                         int64_t *counts)
{
    assert(q == NULL);
    (void)q;
    (void)degree;
    (void)fanout;
    (void)replace;
    const int64_t count = value_of(n);
    for (int64_t i = 0; i < count; i++) {
        int64_t *const id = ids + indptr[i];
        const int64_t drawn = indptr[i + 1] - indptr[i];
        if (source[i] == lists->n)
            counts[lists->n + 1] += lines_of(lists, vertices[i], begin[i], id, drawn);
        counts[source[i]] += drawn;
        for (int64_t e = 0; e < drawn; e++) {
            id[e] = entry_at(lists, source[i], begin[i] + id[e]);
            if (id[e] < 0 || id[e] >= lists->graph.vertices)
                return PST_E_FORMAT;
        }
    }
    return PST_OK;
}

pst_rc pst_kn_degrees(struct pst_queue *q, const struct pst_csc *graph, const int64_t *vertices,
                      struct pst_twin_n n, int64_t *degree)
{
    return pst_k_degrees(q, graph, vertices, value_of(n), degree);
}

void pst_kn_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices,
                        struct pst_twin_n dsts, const int64_t *degree, const pst_real *share,
                        pst_real *weight, pst_real *self_weight)
{
    pst_k_gcn_weights(q, indptr, indices, value_of(dsts), degree, share, weight, self_weight);
}

void pst_kn_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                      int64_t edges, int64_t sources, const pst_real *grad_out, int64_t ld_out,
                      pst_real *grad_in, int64_t ld_in, int64_t dim)
{
    assert(indptr[dsts] == edges && sources >= 0);
    (void)edges;
    (void)sources;
    pst_k_mean_grad(q, indptr, indices, dsts, grad_out, ld_out, grad_in, ld_in, dim);
}

void pst_kn_embed_update(struct pst_queue *q, const struct pst_k_embed_table *table, const uint32_t *rows,
                         struct pst_twin_n n, const pst_real *grad, bool packed)
{
    pst_k_embed_update(q, table, rows, value_of(n), grad, packed);
}

void pst_kn_edge_shares(struct pst_queue *q, const int32_t *indptr, struct pst_twin_n dsts, float *weight)
{
    pst_k_edge_shares(q, indptr, value_of(dsts), weight);
}

pst_rc pst_kn_sample_ranked(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                            const int64_t *vertices, struct pst_twin_n n, int fanout, int32_t *indptr,
                            int64_t *out, int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc = pst_k_sample_ranked(q, graph, ranks, vertices, count, fanout, indptr, out, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_labor(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_ranks *ranks,
                           int iterations, const int64_t *vertices, struct pst_twin_n n, int fanout,
                           uint64_t *scratch, int32_t *indptr, int64_t *out, float *weight, int64_t capacity,
                           int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc = pst_k_sample_labor(q, graph, ranks, iterations, vertices, count, fanout, scratch,
                                         indptr, out, weight, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_ladies(struct pst_queue *q, const struct pst_csc *graph,
                            const struct pst_rng_stream *stream, int64_t size, const int64_t *vertices,
                            struct pst_twin_n n, uint64_t *scratch, int32_t *indptr, int64_t *out,
                            float *weight, int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc =
        pst_k_sample_ladies(q, graph, stream, size, vertices, count, scratch, indptr, out, weight, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_weighted(struct pst_queue *q, const struct pst_csc *graph,
                              const struct pst_k_weighted_edges *edges, const int64_t *vertices,
                              struct pst_twin_n n, int fanout, int32_t *indptr, int64_t *out, float *weight,
                              int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc =
        pst_k_sample_weighted(q, graph, edges, vertices, count, fanout, indptr, out, weight, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_typed(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                           const struct pst_sample_key *key, const int64_t *vertices, struct pst_twin_n n,
                           int64_t *scratch, int32_t *indptr, int64_t *out, int32_t *relation,
                           int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc =
        pst_k_sample_typed(q, graph, how, key, vertices, count, scratch, indptr, out, relation, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_weighted_typed(struct pst_queue *q, const struct pst_csc *graph,
                                    const struct pst_k_weighted_edges *edges, const struct pst_k_typed *how,
                                    const int64_t *vertices, struct pst_twin_n n, int64_t *scratch,
                                    int32_t *indptr, int64_t *out, float *weight, int32_t *relation,
                                    int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc = pst_k_sample_weighted_typed(q, graph, edges, how, vertices, count, scratch, indptr, out,
                                                  weight, relation, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

pst_rc pst_kn_sample_temporal(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                              const struct pst_k_limits *limits, const struct pst_sample_key *key,
                              const int64_t *vertices, struct pst_twin_n n, int32_t *until, int64_t *scratch,
                              int32_t *indptr, int64_t *out, int64_t capacity, int64_t *total)
{
    const int64_t count = value_of(n);
    const pst_rc rc = pst_k_sample_temporal(q, graph, how, limits, key, vertices, count, until, scratch,
                                            indptr, out, capacity);
    *total = rc == PST_OK ? indptr[count] : 0;
    return rc;
}

static pst_rc queue_new(const struct pst_queue_options *options, struct pst_queue **q, char *why)
{
    (void)options;
    (void)why;
    *q = NULL;
    return PST_OK;
}

static void queue_free(struct pst_queue *q)
{
    assert(q == NULL);
    (void)q;
}

static pst_rc reserve(struct pst_queue *q, int64_t most, int64_t columns, char *why)
{
    (void)q;
    (void)most;
    (void)columns;
    (void)why;
    return PST_OK;
}

static pst_rc alloc(int device, enum pst_twin_memory kind, size_t bytes, void **at, char *why)
{
    (void)device;
    (void)kind;
    *at = malloc(bytes ? bytes : 1);
    if (*at)
        return PST_OK;
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "cannot allocate %zu bytes", bytes);
    return PST_E_NOMEM;
}

static void release(enum pst_twin_memory kind, void *at)
{
    (void)kind;
    free(at);
}

static pst_rc room(int device, uint64_t *free_bytes, uint64_t *total_bytes, char *why)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    (void)device;
    (void)why;
    *free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
    *total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    return PST_OK;
}

static pst_rc copy(struct pst_queue *q, void *to, const void *from, size_t bytes)
{
    (void)q;
    memcpy(to, from, bytes);
    return PST_OK;
}

static pst_rc fill(struct pst_queue *q, void *at, int byte, size_t bytes)
{
    (void)q;
    memset(at, byte, bytes);
    return PST_OK;
}

static pst_rc record(struct pst_queue *q, struct pst_twin_record *to, uint64_t sequence,
                     const int64_t *const *counts, int n)
{
    assert(q == NULL && n >= 0 && n <= PST_TWIN_RECORD_COUNTS);
    (void)q;
    to->rc = PST_OK; /* errors were returned at once */
    to->n = n;
    for (int i = 0; i < n; i++)
        to->counts[i] = *counts[i];
    __atomic_store_n(&to->sequence, sequence, __ATOMIC_RELEASE);
    return PST_OK;
}

static void *stream(struct pst_queue *q)
{
    (void)q;
    return NULL;
}

static pst_rc recorded(struct pst_queue *q, const struct pst_twin_record *of, uint64_t sequence, char *why)
{
    (void)q;
    (void)why;
    assert(of->sequence == sequence); /* record wrote it at once */
    (void)of;
    (void)sequence;
    return PST_OK;
}

static pst_rc wait(struct pst_queue *q, char *why)
{
    (void)q;
    (void)why;
    return PST_OK;
}

static const struct pst_twin *plain_twin(void)
{
    static const struct pst_twin cpu = {
        .bytes = sizeof(struct pst_twin),
        .name = "cpu",
#define MEMBER(kernel) .kernel = pst_k_##kernel,
        PST_TWIN_KERNELS(MEMBER)
#undef MEMBER
#define MEMBER(kernel) .kernel##_n = pst_kn_##kernel,
            PST_TWIN_KERNELS_N(MEMBER)
#undef MEMBER

                .queue_new = queue_new,
        .queue_free = queue_free,
        .reserve = reserve,
        .alloc = alloc,
        .release = release,
        .room = room,
        .copy = copy,
        .fill = fill,
        .stream = stream,
        .record = record,
        .recorded = recorded,
        .wait = wait,
        .by_source = pst_k_by_source,
        .sum_by_source = pst_k_sum_by_source,
    };
    return &cpu;
}

/* The double-precision build of the tests rounds nothing, and multiplies by zeros. */
#ifdef PST_REAL_IS_FLOAT
static struct pst_twin zeros, bf16;

static void make_zeros(void)
{
    zeros = *plain_twin();
    if (pst_products_can_zeros())
        zeros.gemm_zeros = pst_products_zeros;
}

const struct pst_twin *pst_twin_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_zeros);
    return &zeros;
}

static void make_bf16(void)
{
    bf16 = *plain_twin();
    bf16.gemm = pst_products_bf16;
    bf16.factor_set = pst_products_factor_set;
    bf16.factor_free = pst_products_factor_free;
    bf16.gemm_factor = pst_products_by_factor;
    bf16.gemm_sums = pst_products_sums;
    bf16.sum_rounded = pst_products_sum_rounded;
}

const struct pst_twin *pst_twin_cpu_bf16(char *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!pst_products_can_bf16()) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "this CPU has no AVX512_BF16");
        return NULL;
    }
    (void)pthread_once(&once, make_bf16);
    return &bf16;
}
#else
const struct pst_twin *pst_twin_cpu(void)
{
    return plain_twin();
}

const struct pst_twin *pst_twin_cpu_bf16(char *why)
{
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "this build computes in double precision");
    return NULL;
}
#endif
