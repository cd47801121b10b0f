/* gcn.cu: degrees of vertices, the weights of edges that follow from them, and rows times a number each.
 * Weights are computed in double precision with correctly rounded operations, so they equal the CPU's. */
#include "kernels/cuda/rows.cuh"

namespace
{
enum { SPAN = 8 }; /* lanes that go through the edges of a destination */

__global__ void __launch_bounds__(PST_CU_THREADS)
    degrees(struct pst_csc graph, const int64_t *vertices, struct pst_twin_n n, int64_t *degree,
            int32_t *status)
{
    const int64_t count = pst_cu_value(n, status);
    for (int64_t i = pst_cu_first(); i < count; i += pst_cu_step()) {
        const int64_t v = vertices[i];
        const bool there = v >= 0 && v < graph.vertices;
        const int64_t begin = there ? graph.indptr[v] : 0, end = there ? graph.indptr[v + 1] : 0;
        const bool good = there && begin >= 0 && begin <= end && end <= graph.edges;
        if (!good)
            pst_cu_fault(status, PST_E_FORMAT);
        degree[i] = good ? end - begin : 0;
    }
}

struct weighing {
    const int32_t *indptr, *indices;
    struct pst_twin_n dsts;
    const int64_t *degree;
    const float *share;
    float *weight, *self_weight;
    int32_t *status;
};

__global__ void __launch_bounds__(PST_CU_THREADS) weigh(weighing f)
{
    const int lane = (int)threadIdx.x % SPAN;
    const int64_t dsts = pst_cu_value(f.dsts, f.status);
    for (int64_t d = pst_cu_first() / SPAN; d < dsts; d += pst_cu_step() / SPAN) {
        const double own = (double)f.degree[d] + 1;
        const double equal = (double)f.degree[d] / (double)(f.indptr[d + 1] - f.indptr[d]);
        if (lane == 0)
            f.self_weight[d] = (float)(1 / own);
        for (int64_t e = f.indptr[d] + lane; e < f.indptr[d + 1]; e += SPAN)
            f.weight[e] = (float)((f.share ? (double)f.degree[d] * (double)f.share[e] : equal) /
                                  sqrt(own * ((double)f.degree[f.indices[e]] + 1)));
    }
}

struct scale_element {
    float *x;
    int64_t ld;
    const float *scale;
    using value = float;
    __device__ float get(int64_t i, int64_t j) const
    {
        return x[i * ld + j] * scale[i];
    }
    __device__ void put(int64_t i, int64_t j, float scaled) const
    {
        x[i * ld + j] = scaled;
    }
};
} // namespace

pst_rc pst_kn_degrees(struct pst_queue *q, const struct pst_csc *graph, const int64_t *vertices,
                      struct pst_twin_n n, int64_t *degree)
{
    assert(n.most >= 0);
    pst_cu_on(q, pst_cu_grid(q, n.most, PST_CU_THREADS))(degrees, *graph, vertices, n, degree, q->status);
    return q->rc;
}

pst_rc pst_k_degrees(struct pst_queue *q, const struct pst_csc *graph, const int64_t *vertices, int64_t n,
                     int64_t *degree)
{
    return pst_kn_degrees(q, graph, vertices, {NULL, n}, degree);
}

void pst_kn_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices,
                        struct pst_twin_n dsts, const int64_t *degree, const float *share, float *weight,
                        float *self_weight)
{
    assert(dsts.most >= 0);
    const weighing f = {indptr, indices, dsts, degree, share, weight, self_weight, q->status};
    pst_cu_on(q, pst_cu_grid(q, dsts.most, PST_CU_THREADS / SPAN))(weigh, f);
}

void pst_k_gcn_weights(struct pst_queue *q, const int32_t *indptr, const int32_t *indices, int64_t dsts,
                       const int64_t *degree, const float *share, float *weight, float *self_weight)
{
    pst_kn_gcn_weights(q, indptr, indices, {NULL, dsts}, degree, share, weight, self_weight);
}

void pst_k_scale_rows(struct pst_queue *q, float *x, int64_t ld, int64_t n, int64_t dim, const float *scale)
{
    assert(n >= 0 && dim >= 0 && ld >= dim);
    pst_cu_each(q, scale_element{x, ld, scale}, n, dim);
}
