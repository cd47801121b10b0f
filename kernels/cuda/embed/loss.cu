/* loss.cu: losses of edges against their negatives, and their gradients. A warp has the row of an edge. It
 * computes each exponential once, and leaves it where the gradient reads it. One block adds the losses of the
 * rows, in an order that depends only on their number. */
#include "kernels/cuda/embed/embed.cuh"

#include <cmath>

namespace
{
enum { FACTORS = 8 }; /* of at most 2, whose product has one logarithm */

struct rows {
    pst_k_embed_loss_rows r;
    double *losses; /* of each row */
};

struct row {
    const pst_k_embed_loss_rows &r;
    int64_t i;
    int lane;

    __device__ __forceinline__ float *scores() const
    {
        return r.scores + i * r.n;
    }
    __device__ __forceinline__ float *grad() const
    {
        return r.grad + i * r.n;
    }
    /* Is negative j the true end? */
    __device__ __forceinline__ bool is_own(int64_t j) const
    {
        return (r.ids ? r.ids[j] : (uint32_t)j) == r.own[i];
    }
};

__device__ __forceinline__ float floor_score()
{
    return -INFINITY;
}

/* Puts the floor in the place of scores that do not count. Gets how many count. */
__device__ int64_t mask(const row &w)
{
    double counted = 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        if (w.is_own(j))
            w.scores()[j] = floor_score();
        else
            counted++;
    }
    return (int64_t)pst_cu_warp_sum(counted);
}

/* Masks, and gets the largest of `top` and the scores that count. */
__device__ float highest(const row &w, float top)
{
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        const float s = w.is_own(j) ? floor_score() : w.scores()[j];
        w.scores()[j] = s;
        top = s > top ? s : top;
    }
    for (int by = PST_CU_WARP / 2; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, top, by);
        top = other > top ? other : top;
    }
    return top;
}

__device__ double softmax(const row &w)
{
    const float f = w.r.score[w.i], top = highest(w, f);
    double rest = 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        const float s = w.scores()[j], e = s == floor_score() ? 0 : expf(s - top);
        w.grad()[j] = e;
        rest += (double)e;
    }
    rest = pst_cu_warp_sum(rest);
    const double sum = exp((double)(f - top)) + rest;
    const float scale = (float)(1 / sum);
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP)
        w.grad()[j] *= scale;
    if (w.lane == 0)
        w.r.d_score[w.i] = (float)(-rest / sum);
    return log(sum) + (double)(top - f);
}

__device__ double logistic(const row &w)
{
    const int64_t counted = mask(w);
    const double f = -(double)w.r.score[w.i], e = exp(-fabs(f));
    const float share = counted ? 1 / (float)counted : 0;
    double sum = 0, product = 1;
    int factors = 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        const float s = w.scores()[j], t = s == floor_score() ? 0 : expf(s > 0 ? -s : s);
        w.grad()[j] = share * (s > 0 ? 1 : t) / (1 + t);
        sum += s > 0 ? (double)s : 0;
        product *= 1 + (double)t;
        if (++factors % FACTORS == 0) {
            sum += log(product);
            product = 1;
        }
    }
    sum = pst_cu_warp_sum(sum + log(product));
    if (w.lane == 0)
        w.r.d_score[w.i] = (float)-(f > 0 ? 1 / (1 + e) : e / (1 + e));
    return fmax(f, 0.0) + log1p(e) + (counted ? sum / (double)counted : 0);
}

__device__ double hinge(const row &w)
{
    const int64_t counted = mask(w);
    const float f = w.r.score[w.i], share = counted ? 1 / (float)counted : 0;
    double sum = 0, above = 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        const float s = w.scores()[j], by = w.r.margin - f + s;
        const bool counts = s != floor_score() && by > 0;
        w.grad()[j] = counts ? share : 0;
        sum += counts ? (double)by : 0;
        above += counts;
    }
    sum = pst_cu_warp_sum(sum);
    above = pst_cu_warp_sum(above);
    if (w.lane == 0)
        w.r.d_score[w.i] = -share * (float)above;
    return sum * (double)share;
}

__device__ double adversarial(const row &w)
{
    const float margin = w.r.margin, top = highest(w, floor_score());
    double all = 0, sum = 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP) {
        const float s = w.scores()[j], x = margin + s;
        const float share = s == floor_score() ? 0 : expf(w.r.temperature * (s - top));
        const float e = expf(x > 0 ? -x : x);
        w.grad()[j] = share * (x > 0 ? 1 : e) / (1 + e);
        all += (double)share;
        sum += share > 0 ? (double)share * (fmax((double)x, 0.0) + log1p((double)e)) : 0;
    }
    all = pst_cu_warp_sum(all);
    sum = pst_cu_warp_sum(sum);
    sum = all > 0 ? sum / all : 0;
    const float scale = all > 0 ? (float)(1 / all) : 0;
    for (int64_t j = w.lane; j < w.r.n; j += PST_CU_WARP)
        w.grad()[j] *= scale;
    const double f = -(double)(margin + w.r.score[w.i]), e = exp(-fabs(f));
    if (w.lane == 0)
        w.r.d_score[w.i] = (float)-(f > 0 ? 1 / (1 + e) : e / (1 + e));
    return fmax(f, 0.0) + log1p(e) + sum;
}

template <int LOSS> __global__ void __launch_bounds__(PST_CU_THREADS) losses_of(rows f)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < f.r.m; i += pst_cu_step() / PST_CU_WARP) {
        const row w = {f.r, i, lane};
        const double loss = LOSS == PST_K_EMBED_SOFTMAX    ? softmax(w)
                            : LOSS == PST_K_EMBED_LOGISTIC ? logistic(w)
                            : LOSS == PST_K_EMBED_MARGIN   ? hinge(w)
                                                           : adversarial(w);
        if (lane == 0)
            f.losses[i] = loss;
    }
}

/* One block. */
__global__ void __launch_bounds__(PST_CU_THREADS) add_up(const double *losses, int64_t n, double *total)
{
    PST_CU_SHARED(double, kept, [PST_CU_THREADS]);
    const int me = (int)threadIdx.x;
    double sum = 0;
    for (int64_t i = me; i < n; i += PST_CU_THREADS)
        sum += losses[i];
    kept[me] = sum;
    for (int half = PST_CU_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            kept[me] += kept[me + half];
    }
    if (me == 0)
        *total += kept[0];
}
} // namespace

void pst_cu_embed_add_up(struct pst_queue *q, const double *losses, int64_t n, double *total)
{
    if (n > 0)
        pst_cu_on(q, 1)(add_up, losses, n, total);
}

void pst_k_embed_loss(struct pst_queue *q, const struct pst_k_embed_loss_rows *r, double *loss)
{
    assert(r->m >= 0 && r->n >= 0);
    pst_cu_begin(q);
    const rows f = {*r, static_cast<double *>(pst_cu_scratch(q, (size_t)r->m * sizeof(double)))};
    if (!f.losses)
        return;
    const struct pst_cu_launch on = pst_cu_on(q, pst_cu_embed_warps(q, r->m));
    switch (r->loss) {
    case PST_K_EMBED_SOFTMAX: on(losses_of<PST_K_EMBED_SOFTMAX>, f); break;
    case PST_K_EMBED_LOGISTIC: on(losses_of<PST_K_EMBED_LOGISTIC>, f); break;
    case PST_K_EMBED_MARGIN: on(losses_of<PST_K_EMBED_MARGIN>, f); break;
    case PST_K_EMBED_ADVERSARIAL: on(losses_of<PST_K_EMBED_ADVERSARIAL>, f); break;
    }
    pst_cu_embed_add_up(q, f.losses, r->m, loss);
}
