/* aggregate.c: means over in-neighbours and their gradient (kernels.h). Rows are added in the order of the
 * edges, four to a pass over the sum, which stays in the nearest cache. */
#include "../kernels.h"
#include "clones.h"

#include <string.h>

enum {
    AHEAD_EDGES = 8,   /* edges ahead whose row is fetched */
    AHEAD_BYTES = 256, /* of each: past that the hardware's own prefetcher has caught on */
};

struct sources {
    const void *indices;
    int index_bytes;
    int64_t count; /* of edges: how far may be looked ahead */
    const pst_real *rows;
    int64_t ld;
};

PST_INLINE int64_t source(const struct sources *s, int64_t edge)
{
    return s->index_bytes == 4 ? ((const int32_t *)s->indices)[edge] : ((const int64_t *)s->indices)[edge];
}

PST_INLINE const pst_real *row_of(const struct sources *s, int64_t edge)
{
    return s->rows + source(s, edge) * s->ld;
}

PST_INLINE void fetch(const struct sources *s, int64_t edge, int64_t dim)
{
    if (edge >= s->count)
        return;
    const char *row = (const char *)row_of(s, edge);
    const int64_t bytes = pst_min_i64(dim * (int64_t)sizeof(pst_real), AHEAD_BYTES);
    for (int64_t at = 0; at < bytes; at += PST_CACHE_LINE)
        __builtin_prefetch(row + at);
}

/* out = (fresh ? 0 : out) + four rows. */
PST_INLINE void add_four(const struct sources *s, int64_t edge, pst_real *restrict out, int64_t dim,
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

PST_INLINE void add_one(const struct sources *s, int64_t edge, pst_real *restrict out, int64_t dim,
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

PST_INLINE void mean_row(const struct sources *s, int64_t begin, int64_t end, pst_real *restrict out,
                         int64_t dim)
{
    if (begin == end) {
        memset(out, 0, (size_t)dim * sizeof *out);
        return;
    }
    int64_t edge = begin;
    for (; edge + 4 <= end; edge += 4) {
        for (int64_t i = 0; i < 4; i++)
            fetch(s, edge + AHEAD_EDGES + i, dim);
        add_four(s, edge, out, dim, edge == begin);
    }
    for (; edge < end; edge++) {
        fetch(s, edge + AHEAD_EDGES, dim);
        add_one(s, edge, out, dim, edge == begin);
    }
    const pst_real share = (pst_real)1 / (pst_real)(end - begin);
    for (int64_t j = 0; j < dim; j++)
        out[j] *= share;
}

PST_CLONES static void mean_block(const struct sources *s, const int32_t *indptr, int64_t dsts, pst_real *out,
                                  int64_t ld_out, int64_t dim)
{
    for (int64_t d = 0; d < dsts; d++)
        mean_row(s, indptr[d], indptr[d + 1], out + d * ld_out, dim);
}

void pst_k_mean(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                const pst_real *in, int64_t ld_in, pst_real *out, int64_t ld_out, int64_t dim)
{
    assert(q == NULL && dsts >= 0 && dim >= 0 && ld_in >= dim && ld_out >= dim);
    (void)q;
    const struct sources s = {indices, 4, indptr[dsts], in, ld_in};
    mean_block(&s, indptr, dsts, out, ld_out, dim);
}

PST_CLONES static void mean_rows(const struct sources *s, const int64_t *indptr, int64_t n, pst_real *out,
                                 int64_t ld_out, int64_t dim)
{
    for (int64_t d = 0; d < n; d++)
        mean_row(s, indptr[d], indptr[d + 1], out + d * ld_out, dim);
}

/* True if rows first..first+n of the graph and their edges are in range. */
static bool in_range(const struct pst_csc *graph, int64_t first, int64_t n)
{
    const int64_t *indptr = graph->indptr + first;
    if (indptr[0] < 0 || indptr[n] > graph->edges)
        return false;
    for (int64_t d = 0; d < n; d++)
        if (indptr[d] > indptr[d + 1])
            return false;
    const struct sources s = {graph->indices, graph->index_bytes, graph->edges, NULL, 0};
    for (int64_t edge = indptr[0]; edge < indptr[n]; edge++)
        if (source(&s, edge) < 0 || source(&s, edge) >= graph->vertices)
            return false;
    return true;
}

pst_rc pst_k_mean_csc(struct pst_queue *q, const struct pst_csc *graph, int64_t first, int64_t n,
                      const pst_real *in, int64_t ld_in, pst_real *out, int64_t ld_out, int64_t dim)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= graph->vertices);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    (void)q;
    if (!in_range(graph, first, n))
        return PST_E_FORMAT;
    const struct sources s = {graph->indices, graph->index_bytes, graph->indptr[first + n], in, ld_in};
    mean_rows(&s, graph->indptr + first, n, out, ld_out, dim);
    return PST_OK;
}

PST_CLONES static void mean_grad(const int32_t *indptr, const int32_t *indices, int64_t dsts,
                                 const pst_real *grad_out, int64_t ld_out, pst_real *grad_in, int64_t ld_in,
                                 int64_t dim)
{
    for (int64_t d = 0; d < dsts; d++) {
        const pst_real *restrict from = grad_out + d * ld_out;
        const pst_real share = (pst_real)1 / (pst_real)(indptr[d + 1] - indptr[d]);
        for (int64_t edge = indptr[d]; edge < indptr[d + 1]; edge++) {
            pst_real *restrict to = grad_in + indices[edge] * ld_in;
            if (edge + AHEAD_EDGES < indptr[dsts])
                __builtin_prefetch(grad_in + indices[edge + AHEAD_EDGES] * ld_in, 1);
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
