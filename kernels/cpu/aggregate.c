/* aggregate.c: means over in-neighbours, and their gradient; gradients of sums, source by source. Rows are
 * added in the order of the edges, four in one pass over the sum, which stays in the nearest cache. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <string.h>

enum {
    AHEAD_EDGES = 16,  /* how many edges ahead rows are prefetched that are read */
    AHEAD_WRITTEN = 8, /* how many edges ahead rows are prefetched that are written */
    AHEAD_BYTES = 512, /* bytes of a row that are prefetched; the hardware follows by itself after that */
};

struct sources {
    const void *indices;
    int index_bytes;
    int64_t count;        /* number of edges: the limit of prefetching */
    const pst_real *rows; /* rows of ids from .. from + n */
    int64_t ld;
    int64_t from, n;
    const int32_t *elsewhere; /* as in struct pst_twin_view */
    const pst_real *other;
};

PST_CPU_INLINE int64_t source(const struct sources *s, int64_t edge)
{
    return s->index_bytes == 4 ? ((const int32_t *)s->indices)[edge] : ((const int64_t *)s->indices)[edge];
}

PST_CPU_INLINE const pst_real *row_of(const struct sources *s, int64_t edge)
{
    const int64_t at = source(s, edge) - s->from;
    const int64_t other = s->elsewhere != NULL ? s->elsewhere[at] : -1 - at;
    return other >= 0 ? s->other + other * s->ld : s->rows + (-1 - other) * s->ld;
}

PST_CPU_INLINE void fetch(const struct sources *s, int64_t edge, int64_t dim)
{
    if (edge >= s->count || (uint64_t)source(s, edge) - (uint64_t)s->from >= (uint64_t)s->n)
        return;
    const char *row = (const char *)row_of(s, edge);
    const int64_t bytes = pst_min_i64(dim * (int64_t)sizeof(pst_real), AHEAD_BYTES);
    for (int64_t at = 0; at < bytes; at += PST_CACHE_LINE)
        __builtin_prefetch(row + at);
}

/* out = (fresh ? 0 : out) + four rows. */
PST_CPU_INLINE void add_four(const struct sources *s, int64_t edge, pst_real *restrict out, int64_t dim,
                             bool fresh)
{
    const pst_real *a = row_of(s, edge), *b = row_of(s, edge + 1);
    const pst_real *c = row_of(s, edge + 2), *d = row_of(s, edge + 3);
    if (fresh) {
        for (int64_t j = 0; j < dim; j++)
            out[j] = ((a[j] + b[j]) + c[j]) + d[j];
    } else {
        for (int64_t j = 0; j < dim; j++)
            out[j] = (((out[j] + a[j]) + b[j]) + c[j]) + d[j];
    }
}

PST_CPU_INLINE void add_one(const struct sources *s, int64_t edge, pst_real *restrict out, int64_t dim,
                            bool fresh)
{
    const pst_real *a = row_of(s, edge);
    if (fresh) {
        for (int64_t j = 0; j < dim; j++)
            out[j] = a[j];
    } else {
        for (int64_t j = 0; j < dim; j++)
            out[j] += a[j];
    }
}

/* Adds the rows of edges begin..end to out, which already holds the sum of the rows from `first` on. */
PST_CPU_INLINE void add_edges(const struct sources *s, int64_t first, int64_t begin, int64_t end,
                              pst_real *restrict out, int64_t dim)
{
    int64_t edge = begin;
    for (; edge + 4 <= end; edge += 4) {
        for (int64_t i = 0; i < 4; i++)
            fetch(s, edge + AHEAD_EDGES + i, dim);
        add_four(s, edge, out, dim, edge == first);
    }
    for (; edge < end; edge++) {
        fetch(s, edge + AHEAD_EDGES, dim);
        add_one(s, edge, out, dim, edge == first);
    }
}

/* Turns a sum over `edges` rows into their mean. */
PST_CPU_INLINE void divide(pst_real *restrict out, int64_t edges, int64_t dim)
{
    if (edges == 0) {
        memset(out, 0, (size_t)dim * sizeof *out);
        return;
    }
    const pst_real share = (pst_real)1 / (pst_real)edges;
    for (int64_t j = 0; j < dim; j++)
        out[j] *= share;
}

PST_CPU_INLINE void mean_row(const struct sources *s, int64_t begin, int64_t end, pst_real *restrict out,
                             int64_t dim)
{
    add_edges(s, begin, begin, end, out, dim);
    divide(out, end - begin, dim);
}

PST_CPU_CLONES static void mean_block(const struct sources *s, const int32_t *indptr, int64_t dsts,
                                      pst_real *out, int64_t ld_out, int64_t dim)
{
    for (int64_t d = 0; d < dsts; d++)
        mean_row(s, indptr[d], indptr[d + 1], out + d * ld_out, dim);
}

void pst_k_mean(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                const struct pst_twin_view *in, pst_real *out, int64_t ld_out, int64_t dim)
{
    assert(q == NULL && dsts >= 0 && dim >= 0 && in->bf16 == NULL && in->ld >= dim && ld_out >= dim);
    (void)q;
    const struct sources s = {indices, 4,         indptr[dsts],  in->at,   in->ld,
                              0,       INT64_MAX, in->elsewhere, in->other};
    mean_block(&s, indptr, dsts, out, ld_out, dim);
}

/* Finds where the edges from `begin` on with ids below s->from + s->n end. -1: an id is below s->from. */
PST_CPU_INLINE int64_t part_end(const struct sources *s, int64_t begin, int64_t end)
{
    for (; begin < end; begin++) {
        if (source(s, begin) < s->from)
            return -1;
        if (source(s, begin) >= s->from + s->n)
            break;
    }
    return begin;
}

/* False: an id is out of range or out of order. */
PST_CPU_CLONES static bool add_part(const struct sources *s, const int64_t *indptr, int64_t dsts, bool last,
                                    int64_t *cursor, pst_real *out, int64_t ld_out, int64_t dim)
{
    for (int64_t d = 0; d < dsts; d++) {
        const int64_t end = part_end(s, cursor[d], indptr[d + 1]);
        if (end < 0 || (last && end < indptr[d + 1]))
            return false;
        add_edges(s, indptr[d], cursor[d], end, out + d * ld_out, dim);
        cursor[d] = end;
        if (last)
            divide(out + d * ld_out, end - indptr[d], dim);
    }
    return true;
}

static bool rows_in_range(const struct pst_csc *graph, int64_t first, int64_t n)
{
    const int64_t *indptr = graph->indptr + first;
    if (indptr[0] < 0 || indptr[n] > graph->edges)
        return false;
    for (int64_t d = 0; d < n; d++)
        if (indptr[d] > indptr[d + 1])
            return false;
    return true;
}

pst_rc pst_k_mean_csc(struct pst_queue *q, const struct pst_csc *graph, int64_t first, int64_t n,
                      int64_t from, int64_t to, const pst_real *in, int64_t ld_in, int64_t *cursor,
                      pst_real *out, int64_t ld_out, int64_t dim)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= graph->vertices);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    assert(from >= 0 && from <= to && to <= graph->vertices && ld_in >= dim && ld_out >= dim);
    (void)q;
    if (from == 0 && !rows_in_range(graph, first, n))
        return PST_E_FORMAT;
    const int64_t *indptr = graph->indptr + first;
    for (int64_t d = 0; from == 0 && d < n; d++)
        cursor[d] = indptr[d];
    const struct sources s = {graph->indices, graph->index_bytes, indptr[n], in,  ld_in,
                              from,           to - from,          NULL,      NULL};
    return add_part(&s, indptr, n, to == graph->vertices, cursor, out, ld_out, dim) ? PST_OK : PST_E_FORMAT;
}

PST_CPU_CLONES static void mean_grad(const int32_t *indptr, const int32_t *indices, int64_t dsts,
                                     const pst_real *grad_out, int64_t ld_out, pst_real *grad_in,
                                     int64_t ld_in, int64_t dim)
{
    for (int64_t d = 0; d < dsts; d++) {
        const pst_real *restrict from = grad_out + d * ld_out;
        const pst_real share = (pst_real)1 / (pst_real)(indptr[d + 1] - indptr[d]);
        for (int64_t edge = indptr[d]; edge < indptr[d + 1]; edge++) {
            pst_real *restrict to = grad_in + indices[edge] * ld_in;
            if (edge + AHEAD_WRITTEN < indptr[dsts])
                __builtin_prefetch(grad_in + indices[edge + AHEAD_WRITTEN] * ld_in, 1);
            for (int64_t j = 0; j < dim; j++)
                to[j] += from[j] * share;
        }
    }
}

void pst_k_mean_grad(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                     const pst_real *grad_out, int64_t ld_out, pst_real *grad_in, int64_t ld_in, int64_t dim)
{
    assert(q == NULL && dsts >= 0 && dim >= 0 && ld_in >= dim && ld_out >= dim);
    (void)q;
    mean_grad(indptr, indices, dsts, grad_out, ld_out, grad_in, ld_in, dim);
}

/* ---- by source ---------------------------------------------------------------------------------- */

/* Counts, then places from behind, so that begin[s] moves from the end of a source's edges to their begin. */
void pst_k_by_source(const struct pst_block *block, const pst_real *weight, struct pst_block_by_source *to)
{
    int32_t *begin = to->begin, sum = 0;
    memset(begin, 0, ((size_t)block->sources + 1) * sizeof *begin);
    for (int64_t e = 0; e < block->edges; e++)
        begin[block->indices[e]]++;
    for (int64_t s = 0; s <= block->sources; s++)
        begin[s] = sum += begin[s];
    for (int64_t d = block->dsts - 1; d >= 0; d--) {
        const int32_t first = block->indptr[d], end = block->indptr[d + 1];
        const pst_real share = (pst_real)1 / (pst_real)(end - first);
        for (int32_t e = end - 1; e >= first; e--) {
            const int32_t at = --begin[block->indices[e]];
            to->dst[at] = (int32_t)d;
            to->weight[at] = weight != NULL ? weight[e] : share;
        }
    }
}

/* to = (fresh ? 0 : to) + row * by. The sum begins with 0, so that no -0 is left of it. */
PST_CPU_INLINE void add_times(const pst_real *restrict row, pst_real by, pst_real *restrict to, int64_t dim,
                              bool fresh)
{
    if (fresh) {
        for (int64_t j = 0; j < dim; j++)
            to[j] = (pst_real)0 + row[j] * by;
    } else {
        for (int64_t j = 0; j < dim; j++)
            to[j] += row[j] * by;
    }
}

PST_CPU_CLONES static void sum_by_source(const struct pst_block_by_source *edges, const pst_real *self_weight,
                                         int64_t selves, int64_t first, int64_t end, int64_t kept,
                                         const pst_real *from, int64_t ld_from, pst_real *to, int64_t ld_to,
                                         int64_t dim)
{
    for (int64_t i = first; i < end; i++) {
        pst_real *row = to + i * ld_to;
        bool fresh = i >= kept;
        if (self_weight != NULL && i < selves) {
            add_times(from + i * ld_from, self_weight[i], row, dim, fresh);
            fresh = false;
        }
        for (int32_t e = edges->begin[i]; e < edges->begin[i + 1]; e++) {
            add_times(from + edges->dst[e] * ld_from, edges->weight[e], row, dim, fresh);
            fresh = false;
        }
        if (fresh)
            memset(row, 0, (size_t)dim * sizeof *row);
    }
}

void pst_k_sum_by_source(const struct pst_block_by_source *edges, const pst_real *self_weight, int64_t dsts,
                         int64_t first, int64_t n, int64_t kept, const pst_real *grad_out, int64_t ld_out,
                         pst_real *grad_in, int64_t ld_in, int64_t dim)
{
    assert(first >= 0 && n >= 0 && dsts >= 0 && dim >= 0 && ld_in >= dim && ld_out >= dim);
    sum_by_source(edges, self_weight, dsts, first, first + n, kept, grad_out, ld_out, grad_in, ld_in, dim);
}
