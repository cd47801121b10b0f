/* weighted.c: weighted sums of the rows of a block's sources, and their gradient: a GCN's, with one weight
 * for each edge, and a GAT's, with one for each edge and head. The own row comes first, then the edges in
 * order, four in one pass over the sum. */
#include "kernels/attention.h"
#include "kernels/cpu/clones.h"

#include <math.h>

enum { AHEAD_EDGES = 8 }; /* how many edges ahead rows are prefetched */

struct weights {
    /* heads numbers for each edge, and for each destination; self NULL: it is not a source */
    const pst_real *edge, *self;
    int64_t heads, dim; /* of one head */
    bool average;       /* the output has the mean of all heads in dim columns */
    bool drops;         /* a set sign bit means 0 */
    pst_real scale;     /* of those that count */
};

PST_CPU_INLINE pst_real factor(const struct weights *w, pst_real weight)
{
    return w->drops && signbit(weight) ? 0 : weight * w->scale;
}

/* out = (fresh ? 0 : out) + factor * row. */
PST_CPU_INLINE void add_one(const pst_real *restrict row, pst_real by, pst_real *restrict out, int64_t dim,
                            bool fresh)
{
    if (fresh) {
        for (int64_t j = 0; j < dim; j++)
            out[j] = row[j] * by;
    } else {
        for (int64_t j = 0; j < dim; j++)
            out[j] += row[j] * by;
    }
}

PST_CPU_INLINE void add_four(const pst_real *const row[4], const pst_real by[4], pst_real *restrict out,
                             int64_t dim)
{
    const pst_real *a = row[0], *b = row[1], *c = row[2], *d = row[3];
    for (int64_t j = 0; j < dim; j++)
        out[j] = (((out[j] + a[j] * by[0]) + b[j] * by[1]) + c[j] * by[2]) + d[j] * by[3];
}

/* One head of one destination. The rows begin at the head's first column. */
PST_CPU_INLINE void sum_head(const struct pst_block *b, const struct weights *w, int64_t d, int64_t head,
                             const struct pst_twin_view *in, pst_real *out, bool fresh)
{
    int64_t e = b->indptr[d];
    const int64_t end = b->indptr[d + 1], last = b->edges - 1;
    if (w->self != NULL)
        add_one(pst_twin_row(in, d), factor(w, w->self[d * w->heads + head]), out, w->dim, fresh);
    for (int64_t j = 0; j < w->dim && w->self == NULL && fresh; j++)
        out[j] = 0;
    for (; e + 4 <= end; e += 4) {
        const pst_real *row[4];
        pst_real by[4];
        for (int64_t i = 0; i < 4; i++) {
            row[i] = pst_twin_row(in, b->indices[e + i]);
            by[i] = factor(w, w->edge[(e + i) * w->heads + head]);
            __builtin_prefetch(pst_twin_row(in, b->indices[pst_min_i64(e + AHEAD_EDGES + i, last)]));
        }
        add_four(row, by, out, w->dim);
    }
    for (; e < end; e++)
        add_one(pst_twin_row(in, b->indices[e]), factor(w, w->edge[e * w->heads + head]), out, w->dim, false);
}

PST_CPU_CLONES static void sum_rows(const struct pst_block *b, const struct weights *w, int64_t first,
                                    int64_t n, const struct pst_twin_view *in, pst_real *out, int64_t ld_out)
{
    for (int64_t d = first; d < first + n; d++)
        for (int64_t h = 0; h < w->heads; h++) {
            struct pst_twin_view of_head = *in; /* several heads: no row is elsewhere */
            of_head.at += h * w->dim;
            sum_head(b, w, d, h, &of_head, out + d * ld_out + (w->average ? 0 : h * w->dim),
                     !w->average || h == 0);
        }
}

/* Columns column..column+width of to += those of the gradient `from`, weighted with `weight` of each head. */
PST_CPU_INLINE void spread(const struct weights *w, const pst_real *weight, const pst_real *from,
                           pst_real *to, int64_t column, int64_t width)
{
    for (int64_t c = column; c < column + width;) {
        const int64_t head = c / w->dim, end = pst_min_i64((head + 1) * w->dim, column + width);
        add_one(from + (w->average ? c - head * w->dim : c), factor(w, weight[head]), to + c, end - c, false);
        c = end;
    }
}

PST_CPU_CLONES static void spread_rows(const struct pst_block *b, const struct weights *w, int64_t column,
                                       int64_t width, const pst_real *grad_out, int64_t ld_out,
                                       pst_real *grad_in, int64_t ld_in)
{
    for (int64_t d = 0; d < b->dsts && w->self != NULL; d++)
        spread(w, w->self + d * w->heads, grad_out + d * ld_out, grad_in + d * ld_in, column, width);
    for (int64_t d = 0; d < b->dsts; d++)
        for (int64_t e = b->indptr[d]; e < b->indptr[d + 1]; e++) {
            const int64_t ahead = pst_min_i64(e + AHEAD_EDGES, b->edges - 1);
            __builtin_prefetch(grad_in + b->indices[ahead] * ld_in + column, 1);
            spread(w, w->edge + e * w->heads, grad_out + d * ld_out, grad_in + b->indices[e] * ld_in, column,
                   width);
        }
}

void pst_k_weighted_sum(struct pst_queue *q, const struct pst_block *block, int64_t first, int64_t n,
                        const pst_real *weight, const pst_real *self_weight, const struct pst_twin_view *in,
                        pst_real *out, int64_t ld_out, int64_t dim)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= block->dsts && dim >= 0);
    assert(in->bf16 == NULL && in->ld >= dim && ld_out >= dim);
    (void)q;
    const struct weights w = {.edge = weight, .self = self_weight, .heads = 1, .dim = dim, .scale = 1};
    sum_rows(block, &w, first, n, in, out, ld_out);
}

void pst_k_weighted_sum_grad(struct pst_queue *q, const struct pst_block *block, const pst_real *weight,
                             const pst_real *self_weight, const pst_real *grad_out, int64_t ld_out,
                             pst_real *grad_in, int64_t ld_in, int64_t dim)
{
    assert(q == NULL && dim >= 0 && ld_in >= dim && ld_out >= dim);
    (void)q;
    const struct weights w = {.edge = weight, .self = self_weight, .heads = 1, .dim = dim, .scale = 1};
    spread_rows(block, &w, 0, dim, grad_out, ld_out, grad_in, ld_in);
}

static struct weights attention(const struct pst_gat *gat, const pst_real *alpha, const pst_real *alpha_self,
                                const struct pst_dropout *drop)
{
    assert(gat->heads > 0 && gat->heads <= PST_GAT_HEADS_MAX && gat->dim >= 0);
    return (struct weights){.edge = alpha,
                            .self = alpha_self,
                            .heads = gat->heads,
                            .dim = gat->dim,
                            .average = gat->average,
                            .drops = true,
                            .scale =
                                (pst_real)(pst_gat_scale(drop) / (gat->average ? (double)gat->heads : 1.0))};
}

void pst_k_gat_sum(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                   int64_t first, int64_t n, const pst_real *alpha, const pst_real *alpha_self,
                   const struct pst_dropout *drop, const pst_real *z, int64_t ld_z, pst_real *out,
                   int64_t ld_out)
{
    assert(q == NULL && first >= 0 && n >= 0 && first + n <= block->dsts);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    (void)q;
    const struct weights w = attention(gat, alpha, alpha_self, drop);
    sum_rows(block, &w, first, n, &(struct pst_twin_view){.at = z, .ld = ld_z}, out, ld_out);
}

void pst_k_gat_sum_grad(struct pst_queue *q, const struct pst_block *block, const struct pst_gat *gat,
                        int64_t column, int64_t width, const pst_real *alpha, const pst_real *alpha_self,
                        const struct pst_dropout *drop, const pst_real *grad_out, int64_t ld_out,
                        pst_real *grad_z, int64_t ld_z, const pst_real *grad_score, const pst_real *grad_self,
                        pst_real *grad_right)
{
    assert(q == NULL && column >= 0 && width >= 0 && column + width <= gat->heads * gat->dim);
    assert(ld_z >= gat->heads * gat->dim && ld_out >= pst_gat_width(gat));
    (void)q;
    const struct weights w = attention(gat, alpha, alpha_self, drop);
    spread_rows(block, &w, column, width, grad_out, ld_out, grad_z, ld_z);
    const int64_t heads = gat->heads;
    for (int64_t i = 0; grad_right && alpha_self && i < block->dsts * heads; i++)
        grad_right[i] += grad_self[i];
    for (int64_t e = 0; grad_right && e < block->edges; e++)
        add_one(grad_score + e * heads, 1, grad_right + block->indices[e] * heads, heads, false);
}
