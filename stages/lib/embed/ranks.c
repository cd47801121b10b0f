/* ranks.c: a tile of queries against a block of candidates, by one product or the distances' loops. */
#include "common/error.h"
#include "stages/lib/embed/ranks.h"
#include "stages/lib/embed/workspace.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    TILE_QUERIES = 64,
    ROUNDINGS = 8, /* of one term, beside the d of the sum */
};

struct ranking {
    enum pst_embed_similarity similarity;
    const pst_real *q;
    int64_t m, d;
    const struct pst_embed_candidates *c;
    struct pst_embed_workspace *w;
    struct pst_embed_count *counts;
    const pst_real *xt;
    const double *norms; /* of the candidates */
};

double pst_embed_exact_score(enum pst_embed_similarity similarity, const pst_real *q, const pst_real *x,
                             int64_t d)
{
    double sum = 0;
    const int64_t h = d / 2;
    switch (similarity) {
    case PST_EMBED_PRODUCT:
        for (int64_t c = 0; c < d; c++)
            sum += (double)q[c] * (double)x[c];
        return sum;
    case PST_EMBED_L1:
        for (int64_t c = 0; c < d; c++)
            sum += fabs((double)q[c] - (double)x[c]);
        return -sum;
    case PST_EMBED_L2:
        for (int64_t c = 0; c < d; c++)
            sum += ((double)q[c] - (double)x[c]) * ((double)q[c] - (double)x[c]);
        return -sqrt(sum);
    case PST_EMBED_MODULI:
        for (int64_t c = 0; c < h; c++) {
            const double a = (double)q[c] - (double)x[c], b = (double)q[c + h] - (double)x[c + h];
            sum += sqrt(a * a + b * b);
        }
        return -sum;
    }
    return sum;
}

static double norm(const pst_real *x, int64_t d)
{
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

static void count(struct pst_embed_count *to, double score, int kind, int64_t by)
{
    if (score == to->score)
        to->equal[kind] += by;
    else if (!(score < to->score))
        to->above[kind] += by;
}

/* Counts candidate scores in single precision, and sums again those within their error of the true end's. The
 * error of a product is at most d eps |q| |x|, that of a distance (d + ROUNDINGS) eps times itself; eps is
 * twice the unit roundoff, which leaves room for the float64 sum's. */
static void count_row(const struct ranking *r, int64_t i, const pst_real *scores)
{
    const bool product = r->similarity == PST_EMBED_PRODUCT;
    const double eps = (double)FLT_EPSILON * (double)(r->d + ROUNDINGS), tiny = product ? 1e-36 : 1e-15;
    const pst_real *q = r->q + i * r->d;
    const double scale = eps * norm(q, r->d), least = tiny * (double)r->d;
    struct pst_embed_count *to = &r->counts[i];
    int64_t above = 0;
    for (int64_t k = 0; k < r->c->n; k++) {
        const double score = (double)scores[k], by = score - to->score;
        const double bound = (product ? scale * r->norms[k] : eps * fabs(score)) + least;
        if (k == r->c->own[i])
            continue;
        const bool finite = fabs(score) <= (double)FLT_MAX; /* else a partial sum may have overflowed */
        if (finite && by > bound)
            above++;
        else if (!(finite && by < -bound))
            count(to, pst_embed_exact_score(r->similarity, q, r->c->x + k * r->d, r->d), 0, 1);
    }
    to->above[0] += above;
}

/* What is new in the raw counts is filtered too, but for the known ends. */
static void count_query(const struct ranking *r, int64_t i, const pst_real *scores)
{
    struct pst_embed_count *to = &r->counts[i];
    const int64_t above = to->above[0], equal = to->equal[0];
    count_row(r, i, scores);
    to->above[1] += to->above[0] - above;
    to->equal[1] += to->equal[0] - equal;
    for (int64_t k = r->c->known_start[i]; k < r->c->known_start[i + 1]; k++) {
        const int64_t row = r->c->known[k];
        if (row != r->c->own[i])
            count(to, pst_embed_exact_score(r->similarity, r->q + i * r->d, r->c->x + row * r->d, r->d), 1,
                  -1);
    }
}

static void count_tile(void *arg, int64_t task, int worker)
{
    const struct ranking *r = arg;
    const int64_t from = task * TILE_QUERIES, m = pst_min_i64(TILE_QUERIES, r->m - from);
    pst_real *scores = r->w->scratch[worker].scores.at;
    const struct pst_embed_tile tile = {.similarity = r->similarity,
                                        .m = m,
                                        .n = r->c->n,
                                        .d = r->d,
                                        .q = r->q + from * r->d,
                                        .x = r->c->x,
                                        .xt = r->xt,
                                        .scores = scores};
    pst_embed_scores(&tile);
    for (int64_t i = 0; i < m; i++)
        count_query(r, from + i, scores + i * r->c->n);
}

static bool prepare(struct ranking *r)
{
    struct pst_embed_workspace *w = r->w;
    const int64_t n = r->c->n, d = r->d;
    const bool product = r->similarity == PST_EMBED_PRODUCT;
    struct scratch *first = &w->scratch[0];
    bool ok = pst_embed_grow(&w->losses, n, sizeof(double)) &&
              pst_embed_grow(&first->xt, product ? 0 : n * d, sizeof(pst_real));
    for (int i = 0; ok && i < w->team->threads; i++)
        ok = pst_embed_grow(&w->scratch[i].scores, TILE_QUERIES * n, sizeof(pst_real));
    if (!ok)
        return false;
    double *norms = w->losses.at;
    pst_real *xt = first->xt.at;
    for (int64_t k = 0; product && k < n; k++)
        norms[k] = norm(r->c->x + k * d, d);
    for (int64_t k = 0; !product && k < n; k++)
        for (int64_t c = 0; c < d; c++)
            xt[c * n + k] = r->c->x[k * d + c];
    r->norms = norms;
    r->xt = xt;
    return true;
}

void pst_embed_count_begin(enum pst_embed_similarity similarity, const pst_real *q, const pst_real *own,
                           int64_t m, int64_t d, struct pst_embed_count *counts)
{
    for (int64_t i = 0; i < m; i++)
        counts[i] =
            (struct pst_embed_count){.score = pst_embed_exact_score(similarity, q + i * d, own + i * d, d)};
}

pst_rc pst_embed_count_block(enum pst_embed_similarity similarity, const pst_real *q, int64_t m, int64_t d,
                             const struct pst_embed_candidates *c, struct pst_embed_workspace *w,
                             struct pst_embed_count *counts)
{
    struct ranking r = {.similarity = similarity, .q = q, .m = m, .d = d, .c = c, .w = w, .counts = counts};
    if (!prepare(&r))
        return pst_fail(PST_E_NOMEM, "out of memory: cannot rank among %lld candidates (use more partitions)",
                        (long long)c->n);
    pst_gnn_team_run(w->team, count_tile, &r, (m + TILE_QUERIES - 1) / TILE_QUERIES);
    return PST_OK;
}

double pst_embed_rank(const struct pst_embed_count *c, bool filtered, enum pst_embed_tie tie)
{
    const double above = (double)c->above[filtered], equal = (double)c->equal[filtered];
    switch (tie) {
    case PST_EMBED_TIE_MEAN: return 1 + above + equal / 2;
    case PST_EMBED_TIE_OPTIMISTIC: return 1 + above;
    case PST_EMBED_TIE_PESSIMISTIC: return 1 + above + equal;
    }
    return 0;
}

void pst_embed_ranks_add(struct pst_embed_ranks *sum, double rank)
{
    static const int AT_MOST[] = {1, 3, 10};
    sum->n++;
    sum->reciprocal += 1 / rank;
    sum->rank += rank;
    for (int i = 0; i < 3; i++)
        sum->hits[i] += rank <= AT_MOST[i];
}
