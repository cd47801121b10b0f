/* loss.cu: softmax cross-entropy, one warp for each row. One block adds the losses of the rows, in an
 * order that depends only on their number. */
#include "kernels/cuda/rows.cuh"

namespace
{
struct rows {
    const float *logits;
    int64_t ld;
    const int32_t *labels;
    int64_t n, classes;
    double normaliser;
    float *grad;
    int64_t ld_grad;
    double *losses;  /* of each row */
    int32_t *counts; /* for each row: 0 not counted, 1 wrong, 2 right */
    int32_t *status;
};

struct totals {
    double *loss;
    int64_t *correct, *counted;
};

/* The largest logit. NaN if the first one is NaN. */
__device__ float largest_of(const float *row, int64_t classes, int lane)
{
    float most = row[0];
    for (int64_t c = lane; c < classes; c += PST_CU_WARP)
        most = row[c] > most ? row[c] : most;
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, most, by);
        most = other > most ? other : most;
    }
    return most;
}

/* The position of the largest logit, the first one if several are equal, 0 if there is none. */
__device__ int64_t place_of(const float *row, int64_t classes, float largest, int lane)
{
    int64_t place = classes;
    for (int64_t c = lane; c < classes && place == classes; c += PST_CU_WARP)
        place = row[c] == largest ? c : place;
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2)
        place = min(place, __shfl_xor_sync(0xFFFFFFFFu, place, by));
    return place == classes ? 0 : place;
}

__global__ void __launch_bounds__(PST_CU_THREADS) xent(rows f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        const float *row = f.logits + i * f.ld;
        float *grad = f.grad ? f.grad + i * f.ld_grad : NULL;
        const int32_t label = f.labels[i];
        const bool counted = label >= 0 && label < f.classes;
        if (label >= f.classes)
            pst_cu_fault(f.status, PST_E_ARG);
        const float largest = largest_of(row, f.classes, lane);
        double sum = 0;
        for (int64_t c = lane; c < f.classes; c += PST_CU_WARP)
            sum += (double)expf(row[c] - largest);
        sum = pst_cu_warp_sum(sum);
        const float share = (float)(1 / (sum * f.normaliser)), one = (float)(1 / f.normaliser);
        for (int64_t c = lane; grad && c < f.classes; c += PST_CU_WARP)
            grad[c] = counted ? expf(row[c] - largest) * share - (c == label ? one : 0) : 0;
        const int64_t place = place_of(row, f.classes, largest, lane);
        if (lane > 0)
            continue;
        f.counts[i] = counted ? 1 + (place == label) : 0;
        f.losses[i] = counted ? (log(sum) + (double)largest - (double)row[label]) / f.normaliser : 0;
    }
}

/* One block. */
__global__ void __launch_bounds__(PST_CU_THREADS) add_up(rows f, totals t)
{
    PST_CU_SHARED(double, loss, [PST_CU_THREADS]);
    PST_CU_SHARED(int, counted, [PST_CU_THREADS]);
    PST_CU_SHARED(int, correct, [PST_CU_THREADS]);
    const int me = (int)threadIdx.x;
    loss[me] = counted[me] = correct[me] = 0;
    for (int64_t i = me; i < f.n; i += PST_CU_THREADS) {
        loss[me] += f.losses[i];
        counted[me] += f.counts[i] > 0;
        correct[me] += f.counts[i] > 1;
    }
    for (int half = PST_CU_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            loss[me] += loss[me + half];
            counted[me] += counted[me + half];
            correct[me] += correct[me + half];
        }
    }
    if (me > 0)
        return;
    *t.loss += loss[0];
    *t.correct += correct[0];
    *t.counted += counted[0];
}
} // namespace

void pst_k_softmax_xent(struct pst_queue *q, const float *logits, int64_t ld, const int32_t *labels,
                        int64_t n, int64_t classes, double normaliser, float *grad, int64_t ld_grad,
                        double *loss, int64_t *correct, int64_t *counted)
{
    assert(n >= 0 && n <= INT32_MAX && classes > 0 && ld >= classes && normaliser > 0);
    assert(grad == NULL || ld_grad >= classes);
    pst_cu_begin(q);
    double *losses = static_cast<double *>(pst_cu_scratch(q, (size_t)n * sizeof *losses));
    int32_t *counts = static_cast<int32_t *>(pst_cu_scratch(q, (size_t)n * sizeof *counts));
    const rows f = {logits, ld, labels, n, classes, normaliser, grad, ld_grad, losses, counts, q->status};
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(xent, f);
    if (n > 0)
        pst_cu_on(q, 1)(add_up, f, totals{loss, correct, counted});
}
