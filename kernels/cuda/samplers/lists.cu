/* lists.cu: offsets from counts, by a scan. */
#include "kernels/cuda/samplers/lists.cuh"

#include <cub/cub.cuh>

namespace
{
struct counted {
    using value = uint64_t;
    const uint32_t *counts;
    __device__ uint64_t operator()(int64_t i) const
    {
        return counts[i];
    }
};

struct sum {
    __host__ __device__ uint64_t operator()(uint64_t a, uint64_t b) const
    {
        return a + b;
    }
};

__global__ void __launch_bounds__(PST_CU_THREADS)
    put(struct pst_twin_n n, const uint64_t *sums, int64_t limit, int32_t *indptr, int64_t *total,
        int32_t *status)
{
    const int64_t count = pst_cu_value(n, status);
    for (int64_t i = pst_cu_first(); i < count; i += pst_cu_step()) {
        if (sums[i] > (uint64_t)limit)
            pst_cu_fault(status, PST_E_LIMIT);
        indptr[i + 1] = (int32_t)min(sums[i], (uint64_t)limit);
    }
    if (pst_cu_first() == 0) {
        indptr[0] = 0;
        *total = count > 0 ? (int64_t)min(sums[count - 1], (uint64_t)limit) : 0;
    }
}
} // namespace

pst_rc pst_cu_offsets(struct pst_queue *q, const uint32_t *counts, struct pst_twin_n n, int32_t *indptr,
                      int64_t limit, int64_t *total)
{
    const pst_cu_input<counted> in = {{counts}, 0};
    uint64_t *sums = static_cast<uint64_t *>(pst_cu_scratch(q, (size_t)n.most * sizeof *sums + 1));
    size_t bytes = 0;
    if (!sums)
        return q->rc;
    if (n.most > 0) {
        if (!pst_cu_checked(q,
                            cub::DeviceScan::InclusiveScan(NULL, bytes, in, sums, sum(), n.most, q->stream)))
            return q->rc;
        void *temp = pst_cu_scratch(q, bytes);
        if (!temp || !pst_cu_checked(
                         q, cub::DeviceScan::InclusiveScan(temp, bytes, in, sums, sum(), n.most, q->stream)))
            return q->rc;
    }
    pst_cu_on(q, pst_cu_grid(q, n.most > 0 ? n.most : 1, PST_CU_THREADS))(put, n, sums, limit, indptr, total,
                                                                          q->status);
    return q->rc;
}
