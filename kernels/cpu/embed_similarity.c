/* embed_similarity.c: scores of queries against candidates, and their gradients. Products go through oneDNN.
 * A distance is summed in column order, for many candidates at a time. */
#include "kernels/cpu/clones.h"
#include "kernels/cpu/embed_rows.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 128 }; /* candidates at a time: their columns fit into the L2 cache */
#define CLOSE 0.1     /* closer than this part of the query's length: see l2_factors */

PST_CPU_INLINE pst_real root(pst_real x)
{
    return _Generic(x, float : sqrtf, double : sqrt)(x);
}

PST_CPU_INLINE pst_real absolute(pst_real x)
{
    return x < 0 ? -x : x;
}

/* out[0 .. n-1] = scores of q against the candidates from xt; columns are ld apart; n <= BLOCK. */
PST_CPU_INLINE void distances(enum pst_k_embed_similarity kind, const pst_real *q, const pst_real *xt,
                              int64_t ld, int64_t n, int64_t d, pst_real *out)
{
    pst_real sum[BLOCK] = {0};
    const int64_t h = d / 2, columns = kind == PST_K_EMBED_MODULI ? h : d;
    for (int64_t c = 0; c < columns; c++) {
        const pst_real *x = xt + c * ld, *im = xt + (c + h) * ld;
        for (int64_t j = 0; j < n; j++) {
            const pst_real a = q[c] - x[j];
            if (kind == PST_K_EMBED_L1) {
                sum[j] += absolute(a);
            } else if (kind == PST_K_EMBED_L2) {
                sum[j] += a * a;
            } else {
                const pst_real b = q[c + h] - im[j];
                sum[j] += root(a * a + b * b);
            }
        }
    }
    for (int64_t j = 0; j < n; j++)
        out[j] = kind == PST_K_EMBED_L2 ? -root(sum[j]) : -sum[j];
}

PST_CPU_INLINE void tile_distances(enum pst_k_embed_similarity kind, const struct pst_k_embed_tile *t)
{
    for (int64_t j = 0; j < t->n; j += BLOCK)
        for (int64_t i = 0; i < t->m; i++)
            distances(kind, t->query + i * t->d, t->xt + j, t->n, t->n - j < BLOCK ? t->n - j : BLOCK, t->d,
                      t->scores + i * t->n + j);
}

PST_CPU_CLONES static void distances_l1(const struct pst_k_embed_tile *t)
{
    tile_distances(PST_K_EMBED_L1, t);
}

PST_CPU_CLONES static void distances_l2(const struct pst_k_embed_tile *t)
{
    tile_distances(PST_K_EMBED_L2, t);
}

PST_CPU_CLONES static void distances_moduli(const struct pst_k_embed_tile *t)
{
    tile_distances(PST_K_EMBED_MODULI, t);
}

void pst_k_embed_scores(struct pst_queue *q, const struct pst_k_embed_tile *t)
{
    assert(q == NULL && t->m >= 0 && t->n >= 0 && t->d >= 0);
    (void)q;
    switch (t->similarity) {
    case PST_K_EMBED_PRODUCT:
        pst_k_gemm(NULL, false, true, t->m, t->n, t->d, 1, t->query, t->d, t->x, t->d, 0, t->scores, t->n, 1);
        return;
    case PST_K_EMBED_L1: distances_l1(t); return;
    case PST_K_EMBED_L2: distances_l2(t); return;
    case PST_K_EMBED_MODULI: distances_moduli(t); return;
    }
}

/* Adds the gradient of g times the distance's score to dq, and takes it from dx. At distance 0 it is 0. */
PST_CPU_CLONES static void distance_grad(enum pst_k_embed_similarity kind, const pst_real *restrict q,
                                         const pst_real *restrict x, int64_t d, pst_real score, pst_real g,
                                         pst_real *restrict dq, pst_real *restrict dx)
{
    if (kind == PST_K_EMBED_MODULI) {
        const int64_t h = d / 2;
        for (int64_t c = 0; c < h; c++) {
            const pst_real a = q[c] - x[c], b = q[c + h] - x[c + h], modulus = root(a * a + b * b);
            const pst_real by = modulus > 0 ? -g / modulus : 0;
            dq[c] += by * a;
            dq[c + h] += by * b;
            dx[c] -= by * a;
            dx[c + h] -= by * b;
        }
        return;
    }
    const pst_real by = score < 0 ? g / score : 0;
    for (int64_t c = 0; c < d; c++) {
        const pst_real a = q[c] - x[c], sign = a > 0 ? -g : a < 0 ? g : 0;
        const pst_real change = kind == PST_K_EMBED_L1 ? sign : by * a;
        dq[c] += change;
        dx[c] -= change;
    }
}

/* Adds sums[i] times row i of x to row i of `to`. */
PST_CPU_CLONES static void add_scaled_rows(int64_t n, int64_t d, const pst_real *sums, const pst_real *x,
                                           pst_real *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < d; c++)
            to[i * d + c] += sums[i] * x[i * d + c];
}

/* Turns the gradient of each score into the factor of q - x in the gradient of q. If q and x are close to
 * each other, a difference of sums would lose their difference. Such a pair's gradient is added here, and its
 * factor is 0. */
static void l2_factors(const struct pst_k_embed_tile *t, pst_real *dq, pst_real *dx)
{
    const int64_t n = t->n, d = t->d;
    for (int64_t i = 0; i < t->m; i++) {
        const pst_real *q = t->query + i * d;
        const pst_real close = -(pst_real)CLOSE * (pst_real)pst_cpu_embed_norm(q, d);
        for (int64_t j = 0; j < n; j++) {
            pst_real *g = &t->grad[i * n + j];
            const pst_real score = t->scores[i * n + j];
            if (score > close && *g != 0)
                distance_grad(t->similarity, q, t->x + j * d, d, score, *g, dq + i * d, dx + j * d);
            *g = score > close || score >= 0 ? 0 : *g / score;
        }
    }
}

/* The gradient of the L2 distance's score of q and x is (q - x) / score. So the gradients of all queries are
 * sums over candidates, which are products of matrices, and so are those of candidates. */
static void l2_grads(const struct pst_k_embed_tile *t, pst_real *dq, pst_real *dx)
{
    const int64_t m = t->m, n = t->n, d = t->d;
    pst_real columns[BLOCK];
    memset(dq, 0, (size_t)(m * d) * sizeof *dq);
    l2_factors(t, dq, dx);
    pst_k_gemm(NULL, false, false, m, d, n, -1, t->grad, n, t->x, d, 1, dq, d, 1);
    pst_k_gemm(NULL, true, false, n, d, m, -1, t->grad, n, t->query, d, 1, dx, d, 1);
    for (int64_t i = 0; i < m; i++) {
        pst_real row = 0;
        for (int64_t j = 0; j < n; j++)
            row += t->grad[i * n + j];
        add_scaled_rows(1, d, &row, t->query + i * d, dq + i * d);
    }
    for (int64_t from = 0; from < n; from += BLOCK) {
        const int64_t count = pst_min_i64(BLOCK, n - from);
        memset(columns, 0, sizeof columns);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < count; j++)
                columns[j] += t->grad[i * n + from + j];
        add_scaled_rows(count, d, columns, t->x + from * d, dx + from * d);
    }
}

void pst_k_embed_scores_grad(struct pst_queue *q, const struct pst_k_embed_tile *t, pst_real *dq,
                             pst_real *dx)
{
    assert(q == NULL);
    (void)q;
    const int64_t m = t->m, n = t->n, d = t->d;
    if (t->similarity == PST_K_EMBED_PRODUCT) {
        pst_k_gemm(NULL, false, false, m, d, n, 1, t->grad, n, t->x, d, 0, dq, d, 1);
        pst_k_gemm(NULL, true, false, n, d, m, 1, t->grad, n, t->query, d, 1, dx, d, 1);
        return;
    }
    if (t->similarity == PST_K_EMBED_L2) {
        l2_grads(t, dq, dx);
        return;
    }
    memset(dq, 0, (size_t)(m * d) * sizeof *dq);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if (t->grad[i * n + j] != 0)
                distance_grad(t->similarity, t->query + i * d, t->x + j * d, d, t->scores[i * n + j],
                              t->grad[i * n + j], dq + i * d, dx + j * d);
}

pst_real pst_cpu_embed_score(enum pst_k_embed_similarity kind, const pst_real *q, const pst_real *x,
                             int64_t d)
{
    pst_real score = 0;
    if (kind != PST_K_EMBED_PRODUCT)
        distances(kind, q, x, 1, 1, d, &score);
    else
        for (int64_t c = 0; c < d; c++)
            score += q[c] * x[c];
    return score;
}

void pst_cpu_embed_score_grad(enum pst_k_embed_similarity kind, const pst_real *q, const pst_real *x,
                              int64_t d, pst_real score, pst_real g, pst_real *dq, pst_real *dx)
{
    for (int64_t c = 0; c < d; c++)
        dx[c] = kind == PST_K_EMBED_PRODUCT ? g * q[c] : 0;
    if (kind != PST_K_EMBED_PRODUCT)
        distance_grad(kind, q, x, d, score, g, dq, dx);
    else
        for (int64_t c = 0; c < d; c++)
            dq[c] += g * x[c];
}

/* ---- exact scores, and counts for ranks (stages/lib/embed/ranks.c counts the same, faster) ---- */

double pst_cpu_embed_exact_score(enum pst_k_embed_similarity similarity, const pst_real *q, const pst_real *x,
                                 int64_t d)
{
    double sum = 0;
    const int64_t h = d / 2;
    switch (similarity) {
    case PST_K_EMBED_PRODUCT:
        for (int64_t c = 0; c < d; c++)
            sum += (double)q[c] * (double)x[c];
        return sum;
    case PST_K_EMBED_L1:
        for (int64_t c = 0; c < d; c++)
            sum += fabs((double)q[c] - (double)x[c]);
        return -sum;
    case PST_K_EMBED_L2:
        for (int64_t c = 0; c < d; c++)
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

double pst_cpu_embed_norm(const pst_real *x, int64_t d)
{
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

void pst_k_embed_norms(struct pst_queue *q, int64_t n, int64_t d, const pst_real *x, double *norm)
{
    assert(q == NULL && n >= 0 && d >= 1);
    (void)q;
    for (int64_t i = 0; i < n; i++)
        norm[i] = pst_cpu_embed_norm(x + i * d, d);
}

/* Adds `by` for candidate `number` of query i. */
static void count(const struct pst_k_embed_ranking *r, int64_t i, int64_t number, int64_t by, int64_t *above,
                  int64_t *equal)
{
    const double score = pst_cpu_embed_exact_score(r->similarity, r->query + i * r->d,
                                                   r->x + (number - r->first) * r->d, r->d);
    if (score == r->score[i])
        *equal += by;
    else if (!(score < r->score[i]))
        *above += by;
}

void pst_k_embed_rank(struct pst_queue *q, const struct pst_k_embed_ranking *r, int64_t *above,
                      int64_t *equal)
{
    assert(q == NULL && r->m >= 0 && r->n >= 0 && r->d >= 1);
    (void)q;
    for (int64_t i = 0; i < r->m; i++) {
        for (int64_t j = r->first; j < r->first + r->n; j++)
            for (int kind = 0; kind < 2 && j != r->own[i]; kind++)
                count(r, i, j, 1, &above[2 * i + kind], &equal[2 * i + kind]);
        for (int64_t k = r->known_start[i]; k < r->known_start[i + 1]; k++)
            if (r->known[k] != r->own[i] && r->known[k] >= r->first && r->known[k] < r->first + r->n)
                count(r, i, r->known[k], -1, &above[2 * i + 1], &equal[2 * i + 1]);
    }
}
