/* ranks.c: a tile of queries against a block of candidates, by one product or the distances' loops. */
#include "common/error.h"
#include "kernels/cpu/embed_rows.h"
#include "stages/lib/embed/ranks.h"
#include "stages/lib/embed/workspace.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    TILE_QUERIES = 64,
    ROUNDINGS = 8, /* of one term, beside the d of the sum */
    RUN = 256,     /* scores that are counted before those left open are looked at */
};

/* Errors of terms so small that they lose digits, for each column. */
static const double TINY_PRODUCT = 1e-36, TINY_DISTANCE = 1e-15;

struct ranking {
    enum pst_k_embed_similarity similarity;
    const pst_real *q;
    int64_t m, d;
    const struct pst_embed_candidates *c;
    struct pst_embed_workspace *w;
    struct pst_embed_count *counts;
    const pst_real *xt;
    const double *norms; /* of the candidates */
    double norm_max;
};

double pst_embed_exact_score(enum pst_k_embed_similarity similarity, const pst_real *q, const pst_real *x,
                             int64_t d)
{
    return pst_cpu_embed_exact_score(similarity, q, x, d);
}

static void count(struct pst_embed_count *to, double score, int kind, int64_t by)
{
    if (score == to->score)
        to->equal[kind] += by;
    else if (!(score < to->score))
        to->above[kind] += by;
}

/* Scores in single precision above `above`, or below `below`, are so in a float64 sum too. */
struct limits {
    pst_real above, below;
};

/* x as a pst_real, rounded towards infinity or minus infinity. */
static pst_real rounded(double x, double towards)
{
    const pst_real to = (pst_real)x;
    const bool is_outward = towards > 0 ? (double)to >= x : (double)to <= x;
    return is_outward ? to : (pst_real)nextafterf((float)to, (float)towards);
}

/* The error of a product is at most d eps |q| |x|, that of a distance (d + ROUNDINGS) eps times itself; eps
 * is twice the unit roundoff, which leaves room for the float64 sum's. `norm`: at least |x|. */
static struct limits limits_of(const struct ranking *r, double own, double q_norm, double x_norm)
{
    const double eps = (double)FLT_EPSILON * (double)(r->d + ROUNDINGS);
    if (r->similarity == PST_K_EMBED_PRODUCT) {
        const double bound = eps * q_norm * x_norm + TINY_PRODUCT * (double)r->d;
        return (struct limits){rounded(own + bound, INFINITY), rounded(own - bound, -INFINITY)};
    }
    const double least = TINY_DISTANCE * (double)r->d; /* s > own + eps |s| + least, where s is negative */
    return (struct limits){rounded((own + least) / (1 + eps), INFINITY),
                           rounded((own - least) / (1 - eps), -INFINITY)};
}

/* A sum that is not finite is left open: only a part of it may have overflowed. */
static bool is_above(struct limits l, pst_real score)
{
    return score > l.above && score <= (pst_real)FLT_MAX;
}

static bool is_below(struct limits l, pst_real score)
{
    return score < l.below && score >= -(pst_real)FLT_MAX;
}

/* Adds the scores above to *above if the limits decide all n of them. One comparison a sum and no branch: so
 * the compiler vectorises it. */
static bool all_decided(struct limits l, const pst_real *scores, int64_t n, int64_t *above)
{
    int32_t higher = 0, lower = 0, finite = 0;
    for (int64_t k = 0; k < n; k++) {
        higher += scores[k] > l.above;
        lower += scores[k] < l.below;
        finite += scores[k] - scores[k] == 0;
    }
    const bool all = finite == n && higher + lower == n;
    *above += all ? higher : 0;
    return all;
}

/* Counts candidate k of query i, whose own norm may decide it; else its float64 sum does. 1 if it is above
 * for sure. */
static int count_open(const struct ranking *r, int64_t i, int64_t k, struct limits mine, pst_real score)
{
    if (is_above(mine, score))
        return 1;
    if (!is_below(mine, score))
        count(&r->counts[i], pst_embed_exact_score(r->similarity, r->q + i * r->d, r->c->x + k * r->d, r->d),
              0, 1);
    return 0;
}

/* Counts the scores of a query in single precision, and sums again those that their error leaves open. */
static void count_row(const struct ranking *r, int64_t i, const pst_real *scores)
{
    const pst_real *q = r->q + i * r->d;
    struct pst_embed_count *to = &r->counts[i];
    const double q_norm = pst_cpu_embed_norm(q, r->d);
    const struct limits all = limits_of(r, to->score, q_norm, r->norm_max);
    const int64_t own = r->c->own[i];
    int64_t above = own >= 0 && is_above(all, scores[own]) ? -1 : 0;
    for (int64_t from = 0; from < r->c->n; from += RUN) {
        const int64_t end = pst_min_i64(from + RUN, r->c->n);
        if (all_decided(all, scores + from, end - from, &above))
            continue;
        for (int64_t k = from; k < end; k++)
            if (is_above(all, scores[k]))
                above++;
            else if (!is_below(all, scores[k]) && k != own)
                above += count_open(r, i, k, limits_of(r, to->score, q_norm, r->norms[k]), scores[k]);
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
    const struct pst_k_embed_tile tile = {.similarity = r->similarity,
                                          .m = m,
                                          .n = r->c->n,
                                          .d = r->d,
                                          .query = r->q + from * r->d,
                                          .x = r->c->x,
                                          .xt = r->xt,
                                          .scores = scores};
    pst_k_embed_scores(NULL, &tile);
    for (int64_t i = 0; i < m; i++)
        count_query(r, from + i, scores + i * r->c->n);
}

static bool prepare(struct ranking *r)
{
    struct pst_embed_workspace *w = r->w;
    const int64_t n = r->c->n, d = r->d;
    const bool product = r->similarity == PST_K_EMBED_PRODUCT;
    struct scratch *first = &w->scratch[0];
    bool ok = pst_embed_grow(&w->losses, n, sizeof(double)) &&
              pst_embed_grow(&first->xt, product ? 0 : n * d, sizeof(pst_real));
    for (int i = 0; ok && i < w->team->threads; i++)
        ok = pst_embed_grow(&w->scratch[i].scores, TILE_QUERIES * n, sizeof(pst_real));
    if (!ok)
        return false;
    double *norms = w->losses.at;
    pst_real *xt = first->xt.at;
    for (int64_t k = 0; k < n; k++) {
        norms[k] = product ? pst_cpu_embed_norm(r->c->x + k * d, d) : 0;
        r->norm_max = norms[k] > r->norm_max || isnan(norms[k]) ? norms[k] : r->norm_max;
    }
    for (int64_t k = 0; !product && k < n; k++)
        for (int64_t c = 0; c < d; c++)
            xt[c * n + k] = r->c->x[k * d + c];
    r->norms = norms;
    r->xt = xt;
    return true;
}

void pst_embed_count_begin(enum pst_k_embed_similarity similarity, const pst_real *q, const pst_real *own,
                           int64_t m, int64_t d, struct pst_embed_count *counts)
{
    for (int64_t i = 0; i < m; i++)
        counts[i] =
            (struct pst_embed_count){.score = pst_embed_exact_score(similarity, q + i * d, own + i * d, d)};
}

pst_rc pst_embed_count_block(enum pst_k_embed_similarity similarity, const pst_real *q, int64_t m, int64_t d,
                             const struct pst_embed_candidates *c, struct pst_embed_workspace *w,
                             struct pst_embed_count *counts)
{
    struct ranking r = {.similarity = similarity, .q = q, .m = m, .d = d, .c = c, .w = w, .counts = counts};
    if (!prepare(&r))
        return pst_fail(PST_E_NOMEM, "out of memory: cannot rank among %lld candidates (use more partitions)",
                        (long long)c->n);
    pst_team_run(w->team, count_tile, &r, (m + TILE_QUERIES - 1) / TILE_QUERIES);
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
