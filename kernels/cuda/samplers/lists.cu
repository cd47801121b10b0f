/* lists.cu: offsets from counts, by a scan that stops growing at the limit. */
#include "kernels/cuda/samplers/lists.cuh"

#include <cub/cub.cuh>

namespace
{
struct counted {
    using value = uint32_t;
    const uint32_t *counts;
    struct pst_twin_n n;
    uint32_t most;
    const int32_t *status;
    __device__ uint32_t operator()(int64_t i) const
    {
        return i < pst_cu_value(n, status) ? min(counts[i], most) : 0;
    }
};

struct sum_to { /* most means "too many" */
    uint32_t most;
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const
    {
        const uint64_t sum = (uint64_t)a + b;
        return sum < most ? (uint32_t)sum : most;
    }
};

struct put_offset {
    struct pst_twin_n n;
    int32_t *indptr;
    int64_t limit;
    int32_t *status;
    __device__ void operator()(int64_t i, uint32_t sum) const
    {
        if (i >= pst_cu_value(n))
            return;
        if (sum > limit)
            pst_cu_fault(status, PST_E_LIMIT);
        indptr[i + 1] = (int32_t)min((int64_t)sum, limit);
    }
};

__global__ void ends(struct pst_twin_n n, int32_t *indptr, int64_t *total, const int32_t *status)
{
    const int64_t count = pst_cu_value(n, status);
    indptr[0] = 0;
    *total = count > 0 ? indptr[count] : 0;
}
} // namespace

pst_rc pst_cu_offsets(struct pst_queue *q, const uint32_t *counts, struct pst_twin_n n, int32_t *indptr,
                      int64_t limit, int64_t *total)
{
    const sum_to op = {(uint32_t)limit + 1};
    const pst_cu_input<counted> in = {{counts, n, op.most, q->status}, 0};
    const pst_cu_output<put_offset> out = {{n, indptr, limit, q->status}, 0};
    size_t bytes = 0;
    if (n.most > 0) {
        if (!pst_cu_checked(q, cub::DeviceScan::InclusiveScan(NULL, bytes, in, out, op, n.most, q->stream)))
            return q->rc;
        void *temp = pst_cu_scratch(q, bytes);
        if (!temp ||
            !pst_cu_checked(q, cub::DeviceScan::InclusiveScan(temp, bytes, in, out, op, n.most, q->stream)))
            return q->rc;
    }
    pst_cu_on(q, 1, 1)(ends, n, indptr, total, q->status);
    return q->rc;
}
