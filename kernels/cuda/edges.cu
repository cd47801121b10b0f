/* edges.cu: sorts the edges of a block by source (edges.cuh). */
#include "kernels/cuda/edges.cuh"

#include <cub/cub.cuh>

namespace
{
enum { SPAN = 8 }; /* lanes that go through the edges of a destination */

/* dst[e], and number[e] if it is not NULL. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    put_edges(const int32_t *indptr, int64_t dsts, int64_t edges, int32_t *dst, int32_t *number)
{
    const int lane = (int)threadIdx.x % SPAN;
    for (int64_t d = pst_cu_first() / SPAN; d < dsts; d += pst_cu_step() / SPAN)
        for (int64_t e = indptr[d] + lane; e < indptr[d + 1] && e < edges; e += SPAN) {
            dst[e] = (int32_t)d;
            if (number)
                number[e] = (int32_t)e;
        }
}

int bits_of(int64_t sources)
{
    int bits = 1;
    while (bits < 32 && (int64_t)1 << bits < sources)
        bits++;
    return bits;
}

int32_t *numbers(struct pst_queue *q, int64_t edges)
{
    return static_cast<int32_t *>(pst_cu_scratch(q, (size_t)edges * sizeof(int32_t)));
}
} // namespace

bool pst_cu_sort_edges(struct pst_queue *q, const struct pst_block *block, enum pst_cu_edge_value value,
                       struct pst_cu_sorted *sorted)
{
    const int64_t edges = block->edges;
    int32_t *dst = numbers(q, edges), *out = numbers(q, edges);
    uint32_t *source_out = reinterpret_cast<uint32_t *>(numbers(q, edges));
    const size_t kept = q->scratch_used; /* what comes after it is free again when all is sorted */
    int32_t *number = value == PST_CU_EDGE_NUMBER ? numbers(q, edges) : NULL, *in = number ? number : dst;
    const uint32_t *source = reinterpret_cast<const uint32_t *>(block->indices);
    *sorted = {source_out, out, dst, edges};
    size_t more = 0;
    const int bits = bits_of(block->sources);
    if (!pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(NULL, more, source, source_out, in, out, edges, 0,
                                                           bits, q->stream)))
        return false;
    void *temp = pst_cu_scratch(q, more);
    pst_cu_on(q, pst_cu_grid(q, block->dsts, PST_CU_THREADS / SPAN))(put_edges, block->indptr, block->dsts,
                                                                     edges, dst, number);
    q->scratch_used = kept;
    return temp && pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(temp, more, source, source_out, in, out,
                                                                     edges, 0, bits, q->stream));
}

bool pst_cu_take_partials(struct pst_queue *q, int64_t n, int64_t width, pst_cu_partials *out)
{
    const int64_t step = PST_CU_WARP * (int64_t)(sizeof(float4) / sizeof(float)); /* columns of a warp */
    int64_t entries = 0, columns = width;
    for (int64_t left = n; left > PST_CU_CHUNK; entries += left)
        left = 2 * pst_cu_chunks(left);
    *out = {NULL, NULL, width};
    if (entries == 0)
        return q->rc == PST_OK;
    out->source = static_cast<uint32_t *>(pst_cu_scratch(q, (size_t)entries * sizeof *out->source));
    const int64_t room =
        (int64_t)(q->scratch_bytes - pst_align_up(q->scratch_used, 256)) / (int64_t)sizeof(float);
    if (columns > room / entries)
        columns = pst_max_i64(room / entries / step, 1) * step;
    out->row = static_cast<float *>(pst_cu_scratch(q, (size_t)(entries * columns) * sizeof *out->row));
    out->width = columns;
    return out->source && out->row;
}
