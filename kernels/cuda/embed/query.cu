/* query.cu: queries of the models with the scores of true ends, and the gradients of both. A warp does all of
 * one edge in one pass: the rows of its ends and of its relation are read once, and a query is written once.
 * A lane has a column, or, of complex rows, a real part and its imaginary part. */
#include "kernels/cuda/embed/embed.cuh"

#include <cmath>

namespace
{
struct number { /* a complex number; im is 0 if rows are real */
    float re, im;
};

template <int M> constexpr bool COMPLEX = M == PST_K_EMBED_COMPLEX || M == PST_K_EMBED_ROTATE;

template <int M> __device__ __forceinline__ number load(const float *row, int64_t h, int64_t c)
{
    return {row[c], COMPLEX<M> ? row[h + c] : 0};
}

template <int M> __device__ __forceinline__ void store(float *row, int64_t h, int64_t c, number x)
{
    row[c] = x.re;
    if (COMPLEX<M>)
        row[h + c] = x.im;
}

/* The cosine and the sine of an angle, rounded to floats. CUDA's functions keep a table on the stack for
 * angles above 10^5, which also take it when angles are small. Here such angles lose digits instead: the
 * error is |angle| 10^-16. The angle is reduced to at most pi / 4 by multiples of pi / 2, which is in two
 * parts, so that products with the first are exact; the Taylor polynomials are then within 10^-11. */
__device__ __forceinline__ number turn_by(double angle)
{
    const double n = rint(angle * 0.63661977236758134308);
    const double r = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11, rr = r * r;
    const double sine =
        r + r * rr * (-1.0 / 6 + rr * (1.0 / 120 + rr * (-1.0 / 5040 + rr * (1.0 / 362880 - rr / 39916800))));
    const double cosine =
        1 + rr * (-0.5 + rr * (1.0 / 24 + rr * (-1.0 / 720 + rr * (1.0 / 40320 +
                                                                   rr * (-1.0 / 3628800 + rr / 479001600)))));
    const double quarter = n - 4 * floor(n * 0.25);
    const bool swap = quarter == 1 || quarter == 3;
    const float re = (float)(swap ? sine : cosine), im = (float)(swap ? cosine : sine);
    return {quarter == 1 || quarter == 2 ? -re : re, quarter > 1 ? -im : im};
}

/* What an anchor is multiplied by, or TransE's summand. */
template <int M>
__device__ __forceinline__ number relation_at(const float *row, int64_t h, int64_t c, bool backwards)
{
    if (M == PST_K_EMBED_DOT)
        return {1, 0};
    if (M == PST_K_EMBED_ROTATE) {
        const number turn = turn_by((double)row[c]);
        return {turn.re, backwards ? -turn.im : turn.im};
    }
    const number r = load<M>(row, h, c);
    if (M == PST_K_EMBED_COMPLEX)
        return {r.re, backwards ? -r.im : r.im};
    return {M != PST_K_EMBED_DISTMULT && backwards ? -r.re : r.re, 0};
}

template <int M> __device__ __forceinline__ number query_of(number a, number r)
{
    if (M == PST_K_EMBED_DOT)
        return a;
    if (M == PST_K_EMBED_DISTMULT)
        return {a.re * r.re, 0};
    if (COMPLEX<M>)
        return {a.re * r.re - a.im * r.im, a.re * r.im + a.im * r.re};
    return {a.re + r.re, 0};
}

/* From dq to the gradient of the anchor. */
template <int M> __device__ __forceinline__ number anchor_grad(number dq, number r)
{
    if (M == PST_K_EMBED_DISTMULT)
        return {dq.re * r.re, 0};
    if (COMPLEX<M>)
        return {dq.re * r.re + dq.im * r.im, dq.im * r.re - dq.re * r.im};
    return dq;
}

/* From dq to the gradient of the relation. RotatE's angle has only re. */
template <int M>
__device__ __forceinline__ number relation_grad(number dq, number a, number query, bool backwards)
{
    if (M == PST_K_EMBED_DISTMULT)
        return {dq.re * a.re, 0};
    if (M == PST_K_EMBED_COMPLEX) {
        const float im = dq.im * a.re - dq.re * a.im;
        return {dq.re * a.re + dq.im * a.im, backwards ? -im : im};
    }
    if (M == PST_K_EMBED_ROTATE) {
        const float turn = dq.im * query.re - dq.re * query.im;
        return {backwards ? -turn : turn, 0};
    }
    return {backwards ? -dq.re : dq.re, 0};
}

/* A column's part of the score; L2 then takes the root. */
template <int M> __device__ __forceinline__ float score_part(number q, number x)
{
    const float a = q.re - x.re, b = q.im - x.im;
    if (M == PST_K_EMBED_TRANSE_L1)
        return -fabsf(a);
    if (M == PST_K_EMBED_TRANSE_L2)
        return a * a;
    if (M == PST_K_EMBED_ROTATE)
        return -sqrtf(a * a + b * b);
    return COMPLEX<M> ? q.re * x.re + q.im * x.im : q.re * x.re;
}

/* What a gradient g of the score gives the query; a distance gives the candidate the opposite. */
template <int M> __device__ __forceinline__ number distance_grad(number q, number x, float score, float g)
{
    const float a = q.re - x.re, b = q.im - x.im;
    if (M == PST_K_EMBED_TRANSE_L1)
        return {a > 0 ? -g : a < 0 ? g : 0, 0};
    if (M == PST_K_EMBED_TRANSE_L2)
        return {(score < 0 ? g / score : 0) * a, 0};
    const float modulus = sqrtf(a * a + b * b), by = modulus > 0 ? -g / modulus : 0;
    return {by * a, by * b};
}

/* What column c of an edge's anchor is multiplied by. */
__device__ __forceinline__ float keep_at(const pst_k_embed_side &s, uint64_t item, int64_t c)
{
    const struct pst_rng_block draw = pst_rng_draw(&s.draws, item, (uint32_t)(c / 4));
    const uint32_t part = c % 4 < 2 ? draw.word[c % 2] : draw.word[2 + c % 2];
    return pst_rng_unit(part) < s.dropout ? 0 : (float)(1 / (1 - s.dropout));
}

template <int M>
__device__ __forceinline__ number keep_of(const pst_k_embed_side &s, int64_t i, int64_t h, int64_t c)
{
    if (!(s.dropout > 0))
        return {1, 1};
    const uint64_t item = s.first + 2 * (uint64_t)i;
    return {keep_at(s, item, c), COMPLEX<M> ? keep_at(s, item, h + c) : 1};
}

struct edge { /* the rows of edge i */
    const float *anchor, *target, *relation;
    int64_t h; /* lanes' columns: all, or half of them */
};

template <int M> __device__ __forceinline__ edge edge_of(const pst_k_embed_side &s, int64_t i)
{
    const int64_t h = COMPLEX<M> ? s.d / 2 : s.d, dr = M == PST_K_EMBED_ROTATE ? h : s.d;
    return {s.nodes + s.anchor[i] * s.d, s.nodes + s.target[i] * s.d,
            M == PST_K_EMBED_DOT ? NULL : s.relations + s.relation[i] * dr, h};
}

template <int M>
__global__ void __launch_bounds__(PST_CU_THREADS) query(pst_k_embed_side s, float *out, float *score)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < s.n; i += pst_cu_step() / PST_CU_WARP) {
        const edge e = edge_of<M>(s, i);
        double sum = 0;
        for (int64_t c = lane; c < e.h; c += PST_CU_WARP) {
            number a = load<M>(e.anchor, e.h, c);
            if (s.dropout > 0) {
                const number keep = keep_of<M>(s, i, e.h, c);
                a = {a.re * keep.re, a.im * keep.im};
            }
            const number q = query_of<M>(a, relation_at<M>(e.relation, e.h, c, s.backwards));
            store<M>(out + i * s.d, e.h, c, q);
            sum += (double)score_part<M>(q, load<M>(e.target, e.h, c));
        }
        sum = pst_cu_warp_sum(sum);
        if (lane == 0)
            score[i] = M == PST_K_EMBED_TRANSE_L2 ? -sqrtf((float)sum) : (float)sum;
    }
}

/* ---- gradients ------------------------------------------------------------------------------------- */

struct gradients {
    pst_k_embed_side s;
    pst_k_embed_penalty penalty;
    const float *query, *score, *d_score, *d_query;
    float *d_anchor, *d_target, *d_relation;
    double *losses; /* of each edge; NULL: there is no penalty */
};

struct penalty_sums {
    double cubes, squares;
};

/* Adds the gradient of the penalty of x, one number or a complex one. */
__device__ __forceinline__ void penalise(const pst_k_embed_penalty &p, number x, number *grad,
                                         penalty_sums *sums)
{
    if (p.n3 > 0) {
        const float modulus = sqrtf(x.re * x.re + x.im * x.im);
        sums->cubes += (double)(modulus * modulus * modulus);
        grad->re += 3 * p.n3 * modulus * x.re;
        grad->im += 3 * p.n3 * modulus * x.im;
    }
    if (p.l2 > 0) {
        sums->squares += (double)(p.l2 * x.re * x.re) + (double)(p.l2 * x.im * x.im);
        grad->re += 2 * p.l2 * x.re;
        grad->im += 2 * p.l2 * x.im;
    }
}

template <int M>
__device__ __forceinline__ void column_grad(const gradients &g, const edge &e, int64_t i, int64_t c,
                                            penalty_sums *sums)
{
    const pst_k_embed_side &s = g.s;
    const number keep = keep_of<M>(s, i, e.h, c), whole = load<M>(e.anchor, e.h, c);
    const number a = {whole.re * keep.re, whole.im * keep.im}, x = load<M>(e.target, e.h, c);
    const number q = load<M>(g.query + i * s.d, e.h, c);
    const float by = g.d_score[i];
    number dq = load<M>(g.d_query + i * s.d, e.h, c), dx;
    if (M == PST_K_EMBED_DOT || M == PST_K_EMBED_DISTMULT || M == PST_K_EMBED_COMPLEX) {
        dx = {by * q.re, by * q.im};
        dq = {dq.re + by * x.re, dq.im + by * x.im};
    } else {
        const number change = distance_grad<M>(q, x, g.score[i], by);
        dx = {-change.re, -change.im};
        dq = {dq.re + change.re, dq.im + change.im};
    }
    number da = anchor_grad<M>(dq, relation_at<M>(e.relation, e.h, c, s.backwards));
    da = {da.re * keep.re, da.im * keep.im};
    penalise(g.penalty, whole, &da, sums);
    penalise(g.penalty, x, &dx, sums);
    store<M>(g.d_anchor + i * s.d, e.h, c, da);
    store<M>(g.d_target + i * s.d, e.h, c, dx);
    if (M == PST_K_EMBED_DOT)
        return;
    number dr = relation_grad<M>(dq, a, q, s.backwards);
    if (M == PST_K_EMBED_ROTATE) { /* an angle */
        penalise(g.penalty, {e.relation[c], 0}, &dr, sums);
        g.d_relation[i * e.h + c] = dr.re;
        return;
    }
    penalise(g.penalty, load<M>(e.relation, e.h, c), &dr, sums);
    store<M>(g.d_relation + i * s.d, e.h, c, dr);
}

template <int M> __global__ void __launch_bounds__(PST_CU_THREADS) query_grad(gradients g)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < g.s.n; i += pst_cu_step() / PST_CU_WARP) {
        const edge e = edge_of<M>(g.s, i);
        penalty_sums sums = {0, 0};
        for (int64_t c = lane; c < e.h; c += PST_CU_WARP)
            column_grad<M>(g, e, i, c, &sums);
        if (!g.losses)
            continue;
        const double loss = pst_cu_warp_sum((double)g.penalty.n3 * sums.cubes + sums.squares);
        if (lane == 0)
            g.losses[i] = loss;
    }
}

template <int M> void launch_query(struct pst_queue *q, const pst_k_embed_side &s, float *out, float *score)
{
    pst_cu_on(q, pst_cu_embed_warps(q, s.n))(query<M>, s, out, score);
}

template <int M> void launch_grad(struct pst_queue *q, const gradients &g)
{
    pst_cu_on(q, pst_cu_embed_warps(q, g.s.n))(query_grad<M>, g);
}

void check(const struct pst_k_embed_side *s)
{
    assert(s->n >= 0 && s->d >= 1 && (!pst_k_embed_is_complex(s->model) || s->d % 2 == 0));
    assert(s->dropout >= 0 && s->dropout < 1);
    (void)s;
}
} // namespace

void pst_k_embed_query(struct pst_queue *q, const struct pst_k_embed_side *side, float *query, float *score)
{
    check(side);
    switch (side->model) {
    case PST_K_EMBED_DOT: launch_query<PST_K_EMBED_DOT>(q, *side, query, score); return;
    case PST_K_EMBED_DISTMULT: launch_query<PST_K_EMBED_DISTMULT>(q, *side, query, score); return;
    case PST_K_EMBED_COMPLEX: launch_query<PST_K_EMBED_COMPLEX>(q, *side, query, score); return;
    case PST_K_EMBED_TRANSE_L1: launch_query<PST_K_EMBED_TRANSE_L1>(q, *side, query, score); return;
    case PST_K_EMBED_TRANSE_L2: launch_query<PST_K_EMBED_TRANSE_L2>(q, *side, query, score); return;
    case PST_K_EMBED_ROTATE: launch_query<PST_K_EMBED_ROTATE>(q, *side, query, score); return;
    case PST_K_EMBED_MODELS: break;
    }
    assert(!"a model");
}

void pst_k_embed_query_grad(struct pst_queue *q, const struct pst_k_embed_side *side,
                            const struct pst_k_embed_penalty *penalty, const float *query, const float *score,
                            const float *d_score, float *d_query, float *d_anchor, float *d_target,
                            float *d_relation, double *loss)
{
    check(side);
    pst_cu_begin(q);
    gradients g = {*side, *penalty, query, score, d_score, d_query, d_anchor, d_target, d_relation, NULL};
    if (penalty->n3 > 0 || penalty->l2 > 0) {
        g.losses = static_cast<double *>(pst_cu_scratch(q, (size_t)side->n * sizeof(double)));
        if (!g.losses)
            return;
    }
    switch (side->model) {
    case PST_K_EMBED_DOT: launch_grad<PST_K_EMBED_DOT>(q, g); break;
    case PST_K_EMBED_DISTMULT: launch_grad<PST_K_EMBED_DISTMULT>(q, g); break;
    case PST_K_EMBED_COMPLEX: launch_grad<PST_K_EMBED_COMPLEX>(q, g); break;
    case PST_K_EMBED_TRANSE_L1: launch_grad<PST_K_EMBED_TRANSE_L1>(q, g); break;
    case PST_K_EMBED_TRANSE_L2: launch_grad<PST_K_EMBED_TRANSE_L2>(q, g); break;
    case PST_K_EMBED_ROTATE: launch_grad<PST_K_EMBED_ROTATE>(q, g); break;
    case PST_K_EMBED_MODELS: assert(!"a model");
    }
    if (g.losses)
        pst_cu_embed_add_up(q, g.losses, side->n, loss);
}
