/* similarity.cu: scores of queries against candidates, and their gradients. Products are cuBLAS's. Distances
 * have a kernel that is tiled like a product: rows of both sides pass through shared memory. Each sum has one
 * thread, which adds in the order of columns, of candidates or of queries, as the CPU does. */
#include "kernels/cuda/embed/embed.cuh"

#include <cmath>

namespace
{
enum {
    TILE = 64,          /* queries, and candidates, whose scores a block computes at a time */
    SIDE = 16,          /* threads of a block in a row and in a column of the tile */
    EACH = TILE / SIDE, /* rows, and columns, of a thread */
    DEPTH = 16,         /* columns of the rows that are in shared memory at a time */
    ROWS = 32,          /* whose gradients a block computes at a time */
    ROWS_EACH = ROWS / (PST_CU_THREADS / PST_CU_WARP), /* of a thread */
    PARTNERS = PST_CU_WARP,                            /* rows that are in shared memory at a time */
    DISTANCES_AT_ONCE = 3, /* blocks of a multiprocessor that registers must suffice for */
    GRADIENTS_AT_ONCE = 4,
};
static_assert(SIDE * SIDE == PST_CU_THREADS, "a thread for each part of a tile");

template <int S> constexpr int PARTS = S == PST_K_EMBED_MODULI ? 2 : 1; /* of a number: real, imaginary */

/* Columns c to c + DEPTH - 1 of rows first to first + TILE - 1, 0 where there are none. */
template <int S>
__device__ __forceinline__ void load_rows(const float *x, int64_t first, int64_t rows, int64_t d, int64_t h,
                                          int64_t c, float (*to)[DEPTH][TILE + 1])
{
    for (int at = (int)threadIdx.x; at < TILE * DEPTH; at += PST_CU_THREADS) {
        const int64_t row = first + at / DEPTH, column = c + at % DEPTH;
        const bool in = row < rows && column < h;
#pragma unroll
        for (int p = 0; p < PARTS<S>; p++)
            to[p][at % DEPTH][at / DEPTH] = in ? x[row * d + p * h + column] : 0;
    }
}

template <int S>
__global__ void __launch_bounds__(PST_CU_THREADS, DISTANCES_AT_ONCE) distances(pst_k_embed_tile t)
{
    PST_CU_SHARED(float, queries, [PARTS<S>][DEPTH][TILE + 1]);
    PST_CU_SHARED(float, candidates, [PARTS<S>][DEPTH][TILE + 1]);
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    const int64_t across = (t.n + TILE - 1) / TILE, tiles = (t.m + TILE - 1) / TILE * across;
    const int64_t h = t.d / PARTS<S>;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t first_q = tile / across * TILE, first_x = tile % across * TILE;
        float sum[EACH][EACH] = {};
        for (int64_t c = 0; c < h; c += DEPTH) {
            load_rows<S>(t.query, first_q, t.m, t.d, h, c, queries);
            load_rows<S>(t.x, first_x, t.n, t.d, h, c, candidates);
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < DEPTH; k++) {
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) {
                        const float a = queries[0][k][ty * EACH + i] - candidates[0][k][tx + SIDE * j];
                        if (S == PST_K_EMBED_L1) {
                            sum[i][j] += fabsf(a);
                        } else if (S == PST_K_EMBED_L2) {
                            sum[i][j] += a * a;
                        } else {
                            constexpr int IM = PARTS<S> - 1;
                            const float b = queries[IM][k][ty * EACH + i] - candidates[IM][k][tx + SIDE * j];
                            sum[i][j] += sqrtf(a * a + b * b);
                        }
                    }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int64_t row = first_q + ty * EACH + i, column = first_x + tx + SIDE * j;
                if (row < t.m && column < t.n)
                    t.scores[row * t.n + column] = -(S == PST_K_EMBED_L2 ? sqrtf(sum[i][j]) : sum[i][j]);
            }
    }
}

/* ---- gradients ------------------------------------------------------------------------------------- */

/* What both gradients need of query i and candidate j: L2's is divided by the score. */
template <int S> __device__ __forceinline__ float weight_of(const pst_k_embed_tile &t, int64_t i, int64_t j)
{
    if (i >= t.m || j >= t.n)
        return 0;
    const float g = t.grad[i * t.n + j];
    if (S != PST_K_EMBED_L2)
        return g;
    const float score = t.scores[i * t.n + j];
    return score < 0 && g != 0 ? g / score : 0;
}

struct sums { /* of a thread: one column of some rows */
    float own[2][ROWS_EACH], sum[2][ROWS_EACH];
};

/* Adds what one partner gives to a row of the queries; a candidate gets the opposite. */
template <int S, bool QUERIES>
__device__ __forceinline__ void add_partner(sums *s, int r, float weight, float re, float im)
{
    const float sign = QUERIES ? 1.0f : -1.0f, a = QUERIES ? s->own[0][r] - re : re - s->own[0][r];
    if (S == PST_K_EMBED_L1) {
        s->sum[0][r] += sign * (a > 0 ? -weight : a < 0 ? weight : 0);
    } else if (S == PST_K_EMBED_L2) {
        s->sum[0][r] += sign * (weight * a);
    } else {
        const float b = QUERIES ? s->own[1][r] - im : im - s->own[1][r];
        const float modulus = sqrtf(a * a + b * b), by = modulus > 0 ? -weight / modulus : 0;
        s->sum[0][r] += sign * (by * a);
        s->sum[1][r] += sign * (by * b);
    }
}

/* A block has some rows and a warp of columns. It goes through all partners: a query's are the candidates, a
 * candidate's the queries. to(rows,d): set for queries, added to for candidates. */
template <int S, bool QUERIES>
__global__ void __launch_bounds__(PST_CU_THREADS, GRADIENTS_AT_ONCE)
    distances_grad(pst_k_embed_tile t, float *to)
{
    PST_CU_SHARED(float, partner, [PARTS<S>][PARTNERS][PST_CU_WARP]);
    PST_CU_SHARED(float, weight, [ROWS][PARTNERS + 1]);
    const int tx = (int)threadIdx.x % PST_CU_WARP, ty = (int)threadIdx.x / PST_CU_WARP;
    const int warps = PST_CU_THREADS / PST_CU_WARP;
    const float *mine = QUERIES ? t.query : t.x, *theirs = QUERIES ? t.x : t.query;
    const int64_t rows = QUERIES ? t.m : t.n, others = QUERIES ? t.n : t.m, h = t.d / PARTS<S>;
    const int64_t across = (h + PST_CU_WARP - 1) / PST_CU_WARP, tiles = (rows + ROWS - 1) / ROWS * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t first = tile / across * ROWS, c = tile % across * PST_CU_WARP + tx;
        sums s = {};
#pragma unroll
        for (int r = 0; r < ROWS_EACH; r++) {
            const int64_t row = first + ty * ROWS_EACH + r;
            const bool in = row < rows && c < h;
#pragma unroll
            for (int p = 0; p < PARTS<S>; p++) {
                s.own[p][r] = in ? mine[row * t.d + p * h + c] : 0;
                s.sum[p][r] = in && !QUERIES ? to[row * t.d + p * h + c] : 0;
            }
        }
        for (int64_t other = 0; other < others; other += PARTNERS) {
            for (int k = ty; k < PARTNERS; k += warps)
#pragma unroll
                for (int p = 0; p < PARTS<S>; p++)
                    partner[p][k][tx] =
                        other + k < others && c < h ? theirs[(other + k) * t.d + p * h + c] : 0;
            for (int k = ty; k < ROWS; k += warps) { /* lanes go along a row of the weights */
                if (QUERIES)
                    weight[k][tx] = weight_of<S>(t, first + k, other + tx);
                else
                    weight[tx][k] = weight_of<S>(t, other + k, first + tx);
            }
            __syncthreads();
            const int count = (int)min((int64_t)PARTNERS, others - other);
            for (int k = 0; k < count; k++)
#pragma unroll
                for (int r = 0; r < ROWS_EACH; r++)
                    add_partner<S, QUERIES>(&s, r, weight[ty * ROWS_EACH + r][k], partner[0][k][tx],
                                            partner[PARTS<S> - 1][k][tx]);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < ROWS_EACH; r++) {
            const int64_t row = first + ty * ROWS_EACH + r;
#pragma unroll
            for (int p = 0; p < PARTS<S>; p++)
                if (row < rows && c < h)
                    to[row * t.d + p * h + c] = s.sum[p][r];
        }
    }
}
static_assert((int)ROWS == (int)PARTNERS && (int)PARTNERS == (int)PST_CU_WARP,
              "weights are loaded as a square");

template <int S> void launch_scores(struct pst_queue *q, const pst_k_embed_tile &t)
{
    const int64_t tiles = (t.m + TILE - 1) / TILE * ((t.n + TILE - 1) / TILE);
    pst_cu_on(q, pst_cu_grid(q, tiles, 1))(distances<S>, t);
}

template <int S> void launch_grad(struct pst_queue *q, const pst_k_embed_tile &t, float *d_query, float *d_x)
{
    const int64_t across = (t.d / PARTS<S> + PST_CU_WARP - 1) / PST_CU_WARP;
    pst_cu_on(q, pst_cu_grid(q, (t.m + ROWS - 1) / ROWS * across, 1))(distances_grad<S, true>, t, d_query);
    pst_cu_on(q, pst_cu_grid(q, (t.n + ROWS - 1) / ROWS * across, 1))(distances_grad<S, false>, t, d_x);
}
} // namespace

void pst_k_embed_scores(struct pst_queue *q, const struct pst_k_embed_tile *t)
{
    assert(t->m >= 0 && t->n >= 0 && t->d >= 1);
    switch (t->similarity) {
    case PST_K_EMBED_PRODUCT:
        pst_k_gemm(q, false, true, t->m, t->n, t->d, 1, t->query, t->d, t->x, t->d, 0, t->scores, t->n, 1);
        return;
    case PST_K_EMBED_L1: launch_scores<PST_K_EMBED_L1>(q, *t); return;
    case PST_K_EMBED_L2: launch_scores<PST_K_EMBED_L2>(q, *t); return;
    case PST_K_EMBED_MODULI: launch_scores<PST_K_EMBED_MODULI>(q, *t); return;
    }
}

void pst_k_embed_scores_grad(struct pst_queue *q, const struct pst_k_embed_tile *t, float *d_query,
                             float *d_x)
{
    const int64_t m = t->m, n = t->n, d = t->d;
    assert(m >= 0 && n >= 0 && d >= 1);
    switch (t->similarity) {
    case PST_K_EMBED_PRODUCT:
        pst_k_gemm(q, false, false, m, d, n, 1, t->grad, n, t->x, d, 0, d_query, d, 1);
        pst_k_gemm(q, true, false, n, d, m, 1, t->grad, n, t->query, d, 1, d_x, d, 1);
        return;
    case PST_K_EMBED_L1: launch_grad<PST_K_EMBED_L1>(q, *t, d_query, d_x); return;
    case PST_K_EMBED_L2: launch_grad<PST_K_EMBED_L2>(q, *t, d_query, d_x); return;
    case PST_K_EMBED_MODULI: launch_grad<PST_K_EMBED_MODULI>(q, *t, d_query, d_x); return;
    }
}
