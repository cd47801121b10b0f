/* rank.cu: counts candidates for exact ranks. A warp compares a query with RUN candidates. The float32 scores
 * decide what their error bound allows (stages/lib/embed/ranks.c has the reasons). A lane sums the others
 * again in double precision, in the CPU's order, so the counts are the CPU's. */
#include "kernels/cuda/embed/embed.cuh"

#include <cfloat>
#include <cmath>

namespace
{
enum {
    RUN = 2048, /* 64 a lane: few atomics, and enough warps for 256 queries */
    ROUNDINGS = 8,
};

struct ranking {
    pst_k_embed_ranking r;
    unsigned long long *above, *equal;
};

__device__ __forceinline__ double sum_of(const pst_k_embed_ranking &r, const float *q, const float *x)
{
    const int64_t h = r.d / 2;
    double sum = 0;
    switch (r.similarity) {
    case PST_K_EMBED_PRODUCT:
        for (int64_t c = 0; c < r.d; c++)
            sum += (double)q[c] * (double)x[c];
        return sum;
    case PST_K_EMBED_L1:
        for (int64_t c = 0; c < r.d; c++)
            sum += fabs((double)q[c] - (double)x[c]);
        return -sum;
    case PST_K_EMBED_L2:
        for (int64_t c = 0; c < r.d; c++)
            sum += ((double)q[c] - (double)x[c]) * ((double)q[c] - (double)x[c]);
        return -sqrt(sum);
    case PST_K_EMBED_MODULI:
        for (int64_t c = 0; c < h; c++) {
            const double a = (double)q[c] - (double)x[c], b = (double)q[c + h] - (double)x[c + h];
            sum += sqrt(a * a + b * b);
        }
        return -sum;
    }
    return sum;
}

struct verdict {
    int above, equal;
};

__device__ __forceinline__ verdict exactly(const pst_k_embed_ranking &r, int64_t i, int64_t j)
{
    const double score = sum_of(r, r.query + i * r.d, r.x + j * r.d), own = r.score[i];
    return {score == own || score < own ? 0 : 1, score == own};
}

/* Candidate j of query i. A sum that is not finite is left open: only a part of it may have overflowed. */
__device__ __forceinline__ verdict compare(const pst_k_embed_ranking &r, int64_t i, int64_t j)
{
    const double eps = (double)FLT_EPSILON * (double)(r.d + ROUNDINGS), own = r.score[i];
    const float score = r.scores[i * r.n + j];
    const double s = (double)score;
    const double bound = r.similarity == PST_K_EMBED_PRODUCT
                             ? eps * r.query_norm[i] * r.x_norm[j] + 1e-36 * (double)r.d
                             : eps * fabs(s) + 1e-15 * (double)r.d;
    if (!(fabsf(score) <= FLT_MAX))
        return exactly(r, i, j);
    if (s > own + bound)
        return {1, 0};
    return s < own - bound ? verdict{0, 0} : exactly(r, i, j);
}

__device__ void add(unsigned long long *to, int64_t value, int lane)
{
    const double sum = pst_cu_warp_sum((double)value);
    if (lane == 0 && sum != 0)
        (void)atomicAdd(to, (unsigned long long)(int64_t)sum);
}

__global__ void __launch_bounds__(PST_CU_THREADS) count_all(ranking f)
{
    const pst_k_embed_ranking &r = f.r;
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t runs = (r.n + RUN - 1) / RUN;
    for (int64_t at = pst_cu_first() / PST_CU_WARP; at < r.m * runs; at += pst_cu_step() / PST_CU_WARP) {
        const int64_t i = at / runs, from = at % runs * RUN, end = min(from + RUN, r.n);
        int64_t above = 0, equal = 0;
        for (int64_t j = from + lane; j < end; j += PST_CU_WARP) {
            if (r.first + j == r.own[i])
                continue;
            const verdict v = compare(r, i, j);
            above += v.above;
            equal += v.equal;
        }
        for (int kind = 0; kind < 2; kind++) {
            add(&f.above[2 * i + kind], above, lane);
            add(&f.equal[2 * i + kind], equal, lane);
        }
    }
}

/* Takes the known ends out again. A warp has a query. */
__global__ void __launch_bounds__(PST_CU_THREADS) filter(ranking f)
{
    const pst_k_embed_ranking &r = f.r;
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < r.m; i += pst_cu_step() / PST_CU_WARP) {
        int64_t above = 0, equal = 0;
        for (int64_t k = r.known_start[i] + lane; k < r.known_start[i + 1]; k += PST_CU_WARP) {
            const int64_t number = r.known[k], j = number - r.first;
            if (number == r.own[i] || j < 0 || j >= r.n)
                continue;
            const verdict v = exactly(r, i, j);
            above -= v.above;
            equal -= v.equal;
        }
        add(&f.above[2 * i + 1], above, lane);
        add(&f.equal[2 * i + 1], equal, lane);
    }
}

/* A warp has a row. Lanes add in another order than the CPU: the norms only bound errors. */
__global__ void __launch_bounds__(PST_CU_THREADS) norms(int64_t n, int64_t d, const float *x, double *norm)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        double sum = 0;
        for (int64_t c = lane; c < d; c += PST_CU_WARP)
            sum += (double)x[i * d + c] * (double)x[i * d + c];
        sum = pst_cu_warp_sum(sum);
        if (lane == 0)
            norm[i] = sqrt(sum);
    }
}
} // namespace

void pst_k_embed_norms(struct pst_queue *q, int64_t n, int64_t d, const float *x, double *norm)
{
    assert(n >= 0 && d >= 1);
    pst_cu_on(q, pst_cu_embed_warps(q, n))(norms, n, d, x, norm);
}

void pst_k_embed_rank(struct pst_queue *q, const struct pst_k_embed_ranking *r, int64_t *above,
                      int64_t *equal)
{
    assert(r->m >= 0 && r->n >= 0 && r->d >= 1);
    const ranking f = {*r, reinterpret_cast<unsigned long long *>(above),
                       reinterpret_cast<unsigned long long *>(equal)};
    const int64_t runs = (r->n + RUN - 1) / RUN;
    pst_cu_on(q, pst_cu_embed_warps(q, r->m * runs))(count_all, f);
    pst_cu_on(q, pst_cu_embed_warps(q, r->m))(filter, f);
}
