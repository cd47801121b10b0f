/* embed_loss.c: the losses of edges, and penalties of rows. Exponentials are computed once, and kept for the
 * gradient. */
#include "kernels/cpu/embed_rows.h"
#include "kernels/cpu/exp.h"

#include <math.h>

enum { LANES = 8 }; /* partial sums: the same for every machine, so the bits are too */

static pst_real root(pst_real x)
{
    return _Generic(x, float : sqrtf, double : sqrt)(x);
}

PST_CPU_CLONES static double total(const pst_real *x, int64_t n)
{
    double sum[LANES] = {0}, all = 0;
    for (int64_t i = 0; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + l];
    for (int64_t i = n - n % LANES; i < n; i++)
        all += (double)x[i];
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return all;
}

/* Scores that do not count become `floor`. Returns the number of those that count. */
static int64_t mask(pst_real *scores, int64_t n, const uint32_t *ids, uint32_t own, pst_real floor)
{
    if (!ids) {
        if (own >= n)
            return n;
        scores[own] = floor;
        return n - 1;
    }
    int64_t counted = 0;
    for (int64_t j = 0; j < n; j++) {
        counted += ids[j] != own;
        scores[j] = ids[j] == own ? floor : scores[j];
    }
    return counted;
}

PST_CPU_CLONES static void exponentials(const pst_real *scores, int64_t n, pst_real top, pst_real floor,
                                        pst_real *g)
{
    for (int64_t j = 0; j < n; j++) {
        const pst_real e = PST_CPU_EXP(scores[j] - top);
        g[j] = scores[j] == floor ? 0 : e;
    }
}

/* The largest of x. LANES partial ones, which compilers vectorise. */
PST_CPU_CLONES static pst_real largest(const pst_real *x, int64_t n)
{
    pst_real most[2 * LANES], all = x[0];
    for (int l = 0; l < 2 * LANES; l++)
        most[l] = x[0];
    for (int64_t i = 0; i + 2 * LANES <= n; i += 2 * LANES)
        for (int l = 0; l < 2 * LANES; l++)
            most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
    for (int64_t i = n - n % (2 * LANES); i < n; i++)
        all = x[i] > all ? x[i] : all;
    for (int l = 0; l < 2 * LANES; l++)
        all = most[l] > all ? most[l] : all;
    return all;
}

PST_CPU_CLONES static void exponentials_in_place(pst_real *x, int64_t n, pst_real top)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = PST_CPU_EXP(x[j] - top);
}

double pst_cpu_embed_exponentials(pst_real *x, int64_t n, pst_real *top)
{
    *top = largest(x, n);
    exponentials_in_place(x, n, *top);
    return total(x, n);
}

static double softmax(pst_real f, const pst_real *scores, int64_t n, pst_real floor, pst_real *g,
                      pst_real *df)
{
    const pst_real most = n > 0 ? largest(scores, n) : f, top = most > f ? most : f;
    exponentials(scores, n, top, floor, g);
    const double own = exp((double)(f - top)), rest = total(g, n), sum = own + rest;
    const pst_real scale = (pst_real)(1 / sum);
    for (int64_t j = 0; j < n; j++)
        g[j] *= scale;
    *df = (pst_real)(-rest / sum);
    return log(sum) + (double)(top - f);
}

/* log(1 + e^x); *sigmoid = 1 / (1 + e^-x). */
static double softplus(double x, double *sigmoid)
{
    const double e = exp(-fabs(x));
    *sigmoid = x > 0 ? 1 / (1 + e) : e / (1 + e);
    return fmax(x, 0) + log1p(e);
}

/* g = exp(-|score|), or 0 for scores that do not count. */
PST_CPU_CLONES static void tails(const pst_real *scores, int64_t n, pst_real floor, pst_real *g)
{
    for (int64_t j = 0; j < n; j++) {
        const pst_real s = scores[j], e = PST_CPU_EXP(s > 0 ? -s : s);
        g[j] = s == floor ? 0 : e;
    }
}

/* From such a g: the scaled sigmoid of the score. */
PST_CPU_CLONES static void sigmoids(const pst_real *scores, int64_t n, pst_real scale, pst_real *g)
{
    for (int64_t j = 0; j < n; j++)
        g[j] = scale * (scores[j] > 0 ? 1 : g[j]) / (1 + g[j]);
}

/* The sum of log(1 + e) is the logarithm of a product, taken of LANES factors of at most 2 at a time. */
static double logistic(pst_real f, const pst_real *scores, int64_t n, int64_t counted, pst_real floor,
                       pst_real *g, pst_real *df)
{
    double sigmoid, sum = 0;
    const double own = softplus(-(double)f, &sigmoid);
    *df = (pst_real)-sigmoid;
    tails(scores, n, floor, g);
    for (int64_t j = 0; j < n; j += LANES) {
        double product = 1;
        for (int64_t i = j; i < n && i < j + LANES; i++) {
            sum += scores[i] > 0 ? (double)scores[i] : 0;
            product *= 1 + (double)g[i];
        }
        sum += log(product);
    }
    sigmoids(scores, n, counted ? 1 / (pst_real)counted : 0, g);
    return own + (counted ? sum / (double)counted : 0);
}

static double hinge(pst_real margin, pst_real f, const pst_real *scores, int64_t n, int64_t counted,
                    pst_real floor, pst_real *g, pst_real *df)
{
    const pst_real share = counted ? 1 / (pst_real)counted : 0;
    double sum = 0;
    int64_t above = 0;
    for (int64_t j = 0; j < n; j++) {
        const pst_real by = margin - f + scores[j];
        const bool counts = scores[j] != floor && by > 0;
        g[j] = counts ? share : 0;
        sum += counts ? (double)by : 0;
        above += counts;
    }
    *df = -share * (pst_real)above;
    return sum * (double)share;
}

/* g = e^(temperature (score - top)), or 0 for scores that do not count. */
PST_CPU_CLONES static void shares(const pst_real *scores, int64_t n, pst_real temperature, pst_real top,
                                  pst_real floor, pst_real *g)
{
    for (int64_t j = 0; j < n; j++) {
        const bool counts = scores[j] != floor;
        const pst_real e = PST_CPU_EXP(counts ? temperature * (scores[j] - top) : 0);
        g[j] = counts ? e : 0;
    }
}

/* From such a g: the share of each sigmoid. */
PST_CPU_CLONES static void weighted_sigmoids(const pst_real *scores, int64_t n, pst_real margin,
                                             pst_real scale, pst_real floor, pst_real *g)
{
    for (int64_t j = 0; j < n; j++) {
        const pst_real x = scores[j] != floor ? margin + scores[j] : 0;
        const pst_real e = PST_CPU_EXP(x > 0 ? -x : x);
        g[j] *= scale * (x > 0 ? 1 : e) / (1 + e);
    }
}

static double adversarial(const struct pst_k_embed_loss_rows *r, pst_real f, const pst_real *scores,
                          pst_real floor, pst_real *g, pst_real *df)
{
    double sigmoid, sum = 0;
    const double own = softplus(-(double)(r->margin + f), &sigmoid);
    *df = (pst_real)-sigmoid;
    shares(scores, r->n, r->temperature, r->n > 0 ? largest(scores, r->n) : 0, floor, g);
    const double all = total(g, r->n);
    for (int64_t j = 0; j < r->n; j++)
        if (g[j] > 0)
            sum += (double)g[j] * softplus((double)(r->margin + scores[j]), &sigmoid);
    weighted_sigmoids(scores, r->n, r->margin, all > 0 ? (pst_real)(1 / all) : 0, floor, g);
    return own + (all > 0 ? sum / all : 0);
}

static double row_loss(const struct pst_k_embed_loss_rows *r, int64_t i)
{
    const pst_real floor = -(pst_real)INFINITY, f = r->score[i];
    pst_real *scores = r->scores + i * r->n, *g = r->grad + i * r->n, *df = &r->d_score[i];
    const int64_t counted = mask(scores, r->n, r->ids, r->own[i], floor);
    switch (r->loss) {
    case PST_K_EMBED_SOFTMAX: return softmax(f, scores, r->n, floor, g, df);
    case PST_K_EMBED_LOGISTIC: return logistic(f, scores, r->n, counted, floor, g, df);
    case PST_K_EMBED_MARGIN: return hinge(r->margin, f, scores, r->n, counted, floor, g, df);
    case PST_K_EMBED_ADVERSARIAL: return adversarial(r, f, scores, floor, g, df);
    }
    return 0;
}

void pst_k_embed_loss(struct pst_queue *q, const struct pst_k_embed_loss_rows *rows, double *loss)
{
    assert(q == NULL && rows->m >= 0 && rows->n >= 0);
    (void)q;
    for (int64_t i = 0; i < rows->m; i++)
        *loss += row_loss(rows, i);
}

/* |x|^3 of h numbers, with imaginary parts im or without (NULL). Adds the gradients. */
PST_CPU_CLONES static double cubes(const pst_real *restrict x, const pst_real *restrict im, int64_t h,
                                   pst_real weight, pst_real *restrict grad, pst_real *restrict im_grad)
{
    double sum[LANES] = {0}, all = 0;
    assert(h == 0 || (x != NULL && grad != NULL));
    for (int64_t i = 0; i < h; i += LANES) {
        const int64_t lanes = h - i < LANES ? h - i : LANES;
        for (int64_t l = 0; l < lanes; l++) {
            const pst_real b = im ? im[i + l] : 0, modulus = root(x[i + l] * x[i + l] + b * b);
            sum[l] += (double)(modulus * modulus * modulus);
            grad[i + l] += 3 * weight * modulus * x[i + l];
            if (im)
                im_grad[i + l] += 3 * weight * modulus * b;
        }
    }
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return (double)weight * all;
}

double pst_cpu_embed_penalty(const struct pst_k_embed_penalty *penalty, const pst_real *x, int64_t d,
                             bool complex, pst_real *grad)
{
    const int64_t h = complex ? d / 2 : d;
    double loss = penalty->n3 > 0
                      ? cubes(x, complex ? x + h : NULL, h, penalty->n3, grad, complex ? grad + h : NULL)
                      : 0;
    if (penalty->l2 > 0)
        for (int64_t i = 0; i < d; i++) {
            loss += (double)(penalty->l2 * x[i] * x[i]);
            grad[i] += 2 * penalty->l2 * x[i];
        }
    return loss;
}
