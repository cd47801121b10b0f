/* gcn.c: degrees of vertices, the weights of edges that follow from them, and rows times a number each. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>

pst_rc pst_k_degrees(struct pst_queue *q, const struct pst_csc *graph, const int64_t *vertices, int64_t n,
                     int64_t *degree)
{
    assert(q == NULL && n >= 0);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        if (vertices[i] < 0 || vertices[i] >= graph->vertices)
            return PST_E_FORMAT;
        const int64_t begin = graph->indptr[vertices[i]], end = graph->indptr[vertices[i] + 1];
        if (begin < 0 || begin > end || end > graph->edges)
            return PST_E_FORMAT;
        degree[i] = end - begin;
    }
    return PST_OK;
}

void pst_k_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                       const int64_t *degree, const pst_real *share, pst_real *weight, pst_real *self_weight)
{
    assert(q == NULL && dsts >= 0);
    (void)q;
    for (int64_t d = 0; d < dsts; d++) {
        const double own = (double)degree[d] + 1;
        const double equal = (double)degree[d] / (double)(indptr[d + 1] - indptr[d]);
        self_weight[d] = (pst_real)(1 / own);
        for (int64_t e = indptr[d]; e < indptr[d + 1]; e++)
            weight[e] = (pst_real)((share ? (double)degree[d] * (double)share[e] : equal) /
                                   sqrt(own * ((double)degree[indices[e]] + 1)));
    }
}

PST_CPU_CLONES static void scale_rows(pst_real *x, int64_t ld, int64_t n, int64_t dim, const pst_real *scale)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict row = x + i * ld;
        const pst_real by = scale[i];
        for (int64_t j = 0; j < dim; j++)
            row[j] *= by;
    }
}

void pst_k_scale_rows(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                      const pst_real *scale)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim);
    (void)q;
    scale_rows(x, ld, n, dim, scale);
}
