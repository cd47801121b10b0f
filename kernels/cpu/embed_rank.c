/* embed_rank.c: exact scores, and counts of candidates for ranks. stages/lib/embed/ranks.c counts the same,
 * faster. */
#include "kernels/cpu/embed_rows.h"

#include <math.h>

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
