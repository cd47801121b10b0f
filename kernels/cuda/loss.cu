/* loss.cu: cross-entropy: softmax over one label a vertex, sigmoids over several; squared error. One warp for
 * each row. One block adds the losses of the rows, in an order that depends only on their number. */
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

/* With weights of classes and smoothed labels: the CPU's weighted_loss_of_row. */
__global__ void __launch_bounds__(PST_CU_THREADS) weighted_xent(rows f, pst_xent how)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const double spread = how.smoothing / (double)f.classes / f.normaliser;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        const float *row = f.logits + i * f.ld;
        float *grad = f.grad ? f.grad + i * f.ld_grad : NULL;
        const int32_t label = f.labels[i];
        const bool counted = label >= 0 && label < f.classes;
        if (label >= f.classes)
            pst_cu_fault(f.status, PST_E_ARG);
        const double hit = counted ? (1 - how.smoothing) * (double)how.weight[label] / f.normaliser : 0;
        const double all = hit + spread * how.total;
        const float largest = largest_of(row, f.classes, lane);
        double sum = 0, weighted = 0;
        for (int64_t c = lane; c < f.classes; c += PST_CU_WARP) {
            sum += (double)expf(row[c] - largest);
            weighted += spread > 0 ? (double)how.weight[c] * (double)(row[c] - largest) : 0;
        }
        sum = pst_cu_warp_sum(sum);
        weighted = pst_cu_warp_sum(weighted);
        const float share = (float)(all / sum), even = (float)spread, one = (float)hit;
        for (int64_t c = lane; grad && c < f.classes; c += PST_CU_WARP)
            grad[c] =
                counted ? expf(row[c] - largest) * share - even * how.weight[c] - (c == label ? one : 0) : 0;
        const int64_t place = place_of(row, f.classes, largest, lane);
        if (lane > 0)
            continue;
        f.counts[i] = counted ? 1 + (place == label) : 0;
        f.losses[i] = counted ? all * log(sum) - hit * (double)(row[label] - largest) - spread * weighted : 0;
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

/* ---- several labels a vertex --------------------------------------------------------------------- */

struct label_rows {
    const float *logits;
    int64_t ld;
    const uint8_t *labels;
    int64_t ld_labels, n, classes;
    double normaliser;
    float *grad;
    int64_t ld_grad;
    double *losses;  /* of each row */
    int32_t *counts; /* PST_LABEL_COUNTS for each row */
    int32_t *status;
};

__device__ __forceinline__ int warp_count(bool here)
{
    return __popc(__ballot_sync(0xFFFFFFFFu, here));
}

/* One element: its loss, and its gradient if that is wanted. t = exp(-|x|). */
__device__ __forceinline__ double sigmoid_element(const label_rows &f, int64_t i, int64_t c, float x,
                                                  int label)
{
    const bool counts = label != PST_LABEL_IGNORED;
    const float t = expf(x > 0 ? -x : x), sigmoid = (x < 0 ? t : 1) / (1 + t);
    if (f.grad)
        f.grad[i * f.ld_grad + c] = counts ? (sigmoid - (float)label) * (float)(1 / f.normaliser) : 0;
    return counts ? (double)((x < 0 ? 0 : x) - (label ? x : 0)) + log1p((double)t) : 0;
}

__global__ void __launch_bounds__(PST_CU_THREADS) sigmoid_xent(label_rows f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        double loss = 0;
        int counts[PST_LABEL_COUNTS] = {};
        for (int64_t at = 0; at < f.classes; at += PST_CU_WARP) {
            const int64_t c = at + lane;
            const bool in = c < f.classes;
            const float x = in ? f.logits[i * f.ld + c] : 0;
            const int label = in ? f.labels[i * f.ld_labels + c] : PST_LABEL_IGNORED;
            if (label > 1 && label != PST_LABEL_IGNORED)
                pst_cu_fault(f.status, PST_E_ARG);
            if (in)
                loss += sigmoid_element(f, i, c, x, label);
            counts[PST_LABEL_TRUE_POSITIVES] += warp_count(label == 1 && x > 0);
            counts[PST_LABEL_FALSE_POSITIVES] += warp_count(label == 0 && x > 0);
            counts[PST_LABEL_FALSE_NEGATIVES] += warp_count(label == 1 && !(x > 0));
            counts[PST_LABELS_COUNTED] += warp_count(label != PST_LABEL_IGNORED);
        }
        loss = pst_cu_warp_sum(loss);
        if (lane > 0)
            continue;
        f.losses[i] = loss / f.normaliser;
#pragma unroll
        for (int k = 0; k < PST_LABEL_COUNTS; k++)
            f.counts[i * PST_LABEL_COUNTS + k] = counts[k];
    }
}

/* One block. */
__global__ void __launch_bounds__(PST_CU_THREADS) add_up_labels(label_rows f, double *total, int64_t *totals)
{
    PST_CU_SHARED(double, loss, [PST_CU_THREADS]);
    PST_CU_SHARED(int64_t, counts, [PST_CU_THREADS][PST_LABEL_COUNTS]);
    const int me = (int)threadIdx.x;
    loss[me] = 0;
    for (int k = 0; k < PST_LABEL_COUNTS; k++)
        counts[me][k] = 0;
    for (int64_t i = me; i < f.n; i += PST_CU_THREADS) {
        loss[me] += f.losses[i];
        for (int k = 0; k < PST_LABEL_COUNTS; k++)
            counts[me][k] += f.counts[i * PST_LABEL_COUNTS + k];
    }
    for (int half = PST_CU_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            loss[me] += loss[me + half];
            for (int k = 0; k < PST_LABEL_COUNTS; k++)
                counts[me][k] += counts[me + half][k];
        }
    }
    if (me > 0)
        return;
    *total += loss[0];
    for (int k = 0; k < PST_LABEL_COUNTS; k++)
        totals[k] += counts[0][k];
}

/* ---- numbers ------------------------------------------------------------------------------------- */

struct error_rows {
    const float *outputs;
    int64_t ld;
    const float *targets;
    int64_t ld_targets, n, columns;
    double normaliser;
    float *grad;
    int64_t ld_grad;
    double *losses; /* of each row */
};

__global__ void __launch_bounds__(PST_CU_THREADS) squared_error(error_rows f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const double twice = 2 / f.normaliser;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.n; i += pst_cu_step() / PST_CU_WARP) {
        double sum = 0;
        for (int64_t c = lane; c < f.columns; c += PST_CU_WARP) {
            const double off = (double)f.outputs[i * f.ld + c] - (double)f.targets[i * f.ld_targets + c];
            sum += off * off;
            if (f.grad)
                f.grad[i * f.ld_grad + c] = (float)(twice * off);
        }
        sum = pst_cu_warp_sum(sum);
        if (lane == 0)
            f.losses[i] = sum / f.normaliser;
    }
}

/* One block. */
__global__ void __launch_bounds__(PST_CU_THREADS)
    add_up_errors(const double *losses, int64_t n, double *total)
{
    PST_CU_SHARED(double, loss, [PST_CU_THREADS]);
    const int me = (int)threadIdx.x;
    loss[me] = 0;
    for (int64_t i = me; i < n; i += PST_CU_THREADS)
        loss[me] += losses[i];
    for (int half = PST_CU_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            loss[me] += loss[me + half];
    }
    if (me == 0)
        *total += loss[0];
}
} // namespace

/* how: NULL: plain. */
static void softmax(struct pst_queue *q, const struct pst_xent *how, const float *logits, int64_t ld,
                    const int32_t *labels, int64_t n, int64_t classes, double normaliser, float *grad,
                    int64_t ld_grad, const totals &t)
{
    assert(n >= 0 && n <= INT32_MAX && classes > 0 && ld >= classes && normaliser > 0);
    assert(grad == NULL || ld_grad >= classes);
    pst_cu_begin(q);
    double *losses = static_cast<double *>(pst_cu_scratch(q, (size_t)n * sizeof *losses));
    int32_t *counts = static_cast<int32_t *>(pst_cu_scratch(q, (size_t)n * sizeof *counts));
    const rows f = {logits, ld, labels, n, classes, normaliser, grad, ld_grad, losses, counts, q->status};
    const struct pst_cu_launch all = pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP));
    if (how)
        all(weighted_xent, f, *how);
    else
        all(xent, f);
    if (n > 0)
        pst_cu_on(q, 1)(add_up, f, t);
}

void pst_k_softmax_xent(struct pst_queue *q, const float *logits, int64_t ld, const int32_t *labels,
                        int64_t n, int64_t classes, double normaliser, float *grad, int64_t ld_grad,
                        double *loss, int64_t *correct, int64_t *counted)
{
    softmax(q, NULL, logits, ld, labels, n, classes, normaliser, grad, ld_grad, {loss, correct, counted});
}

void pst_k_softmax_xent_weighted(struct pst_queue *q, const struct pst_xent *how, const float *logits,
                                 int64_t ld, const int32_t *labels, int64_t n, int64_t classes,
                                 double normaliser, float *grad, int64_t ld_grad, double *loss,
                                 int64_t *correct, int64_t *counted)
{
    assert(how->smoothing >= 0 && how->smoothing < 1);
    softmax(q, how, logits, ld, labels, n, classes, normaliser, grad, ld_grad, {loss, correct, counted});
}

void pst_k_sigmoid_xent(struct pst_queue *q, const float *logits, int64_t ld, const uint8_t *labels,
                        int64_t ld_labels, int64_t n, int64_t classes, double normaliser, float *grad,
                        int64_t ld_grad, double *loss, int64_t *counts)
{
    assert(n >= 0 && n <= INT32_MAX && classes > 0 && ld >= classes && ld_labels >= classes &&
           normaliser > 0);
    assert(grad == NULL || ld_grad >= classes);
    pst_cu_begin(q);
    double *losses = static_cast<double *>(pst_cu_scratch(q, (size_t)n * sizeof *losses));
    int32_t *each = static_cast<int32_t *>(pst_cu_scratch(q, (size_t)n * PST_LABEL_COUNTS * sizeof *each));
    const label_rows f = {logits,     ld,   labels,  ld_labels, n,    classes,
                          normaliser, grad, ld_grad, losses,    each, q->status};
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(sigmoid_xent, f);
    if (n > 0)
        pst_cu_on(q, 1)(add_up_labels, f, loss, counts);
}

void pst_k_squared_error(struct pst_queue *q, const float *outputs, int64_t ld, const float *targets,
                         int64_t ld_targets, int64_t n, int64_t columns, double normaliser, float *grad,
                         int64_t ld_grad, double *loss)
{
    assert(n >= 0 && n <= INT32_MAX && columns > 0 && ld >= columns && ld_targets >= columns &&
           normaliser > 0);
    assert(grad == NULL || ld_grad >= columns);
    pst_cu_begin(q);
    double *losses = static_cast<double *>(pst_cu_scratch(q, (size_t)n * sizeof *losses));
    const error_rows f = {outputs, ld, targets, ld_targets, n, columns, normaliser, grad, ld_grad, losses};
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(squared_error, f);
    if (n > 0)
        pst_cu_on(q, 1)(add_up_errors, static_cast<const double *>(losses), n, loss);
}
