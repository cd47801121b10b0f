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
    int32_t *dst = numbers(q, edges), *number = value == PST_CU_EDGE_NUMBER ? numbers(q, edges) : NULL;
    int32_t *out = numbers(q, edges), *in = number ? number : dst;
    uint32_t *source_out = reinterpret_cast<uint32_t *>(numbers(q, edges));
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
    return temp && pst_cu_checked(q, cub::DeviceRadixSort::SortPairs(temp, more, source, source_out, in, out,
                                                                     edges, 0, bits, q->stream));
}
