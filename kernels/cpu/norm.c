/* norm.c: layer and batch normalisation. Sums over a row have fixed lanes, sums over rows go down a panel
 * of columns, and both are in double precision. So the order of additions never depends on the instruction
 * set. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>

enum {
    SUM_LANES = 8,  /* partial sums of a row */
    SUM_PANEL = 64, /* columns whose sums are kept at once */
};

PST_CPU_INLINE double fold(const double *lanes)
{
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* The sum of a row, by lanes. */
PST_CPU_INLINE double row_sum(const pst_real *restrict x, int64_t dim)
{
    double lanes[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= dim; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lanes[l] += (double)x[j + l];
    for (; j < dim; j++)
        lanes[0] += (double)x[j];
    return fold(lanes);
}

PST_CPU_INLINE double row_squares(const pst_real *restrict x, double mean, int64_t dim)
{
    double lanes[SUM_LANES] = {0};
    int64_t j = 0;
    for (; j + SUM_LANES <= dim; j += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lanes[l] += ((double)x[j + l] - mean) * ((double)x[j + l] - mean);
    for (; j < dim; j++)
        lanes[0] += ((double)x[j] - mean) * ((double)x[j] - mean);
    return fold(lanes);
}

PST_CPU_CLONES static void layer_norm(pst_real *x, int64_t ld, int64_t n, int64_t dim,
                                      const pst_real *restrict gain, const pst_real *restrict shift,
                                      pst_real *xhat, pst_real *rstd)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict row = x + i * ld;
        const double mean = row_sum(row, dim) / (double)dim;
        const double variance = row_squares(row, mean, dim) / (double)dim;
        const double inverse = 1.0 / sqrt(variance + PST_NORM_EPS);
        for (int64_t j = 0; j < dim; j++)
            row[j] = (pst_real)(((double)row[j] - mean) * inverse);
        if (xhat) {
            pst_real *restrict keep = xhat + i * dim;
            for (int64_t j = 0; j < dim; j++)
                keep[j] = row[j];
            rstd[i] = (pst_real)inverse;
        }
        for (int64_t j = 0; j < dim; j++)
            row[j] = row[j] * gain[j] + shift[j];
    }
}

void pst_k_layer_norm(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                      const pst_real *gain, const pst_real *shift, pst_real *xhat, pst_real *rstd)
{
    assert(q == NULL && n >= 0 && dim > 0 && ld >= dim && (xhat == NULL) == (rstd == NULL));
    (void)q;
    layer_norm(x, ld, n, dim, gain, shift, xhat, rstd);
}

/* Column sums of grad and of grad * xhat, over a panel. */
PST_CPU_INLINE void panel_sums(const pst_real *grad, int64_t ld, int64_t n, const pst_real *xhat, int64_t dim,
                               int64_t width, double *restrict sum, double *restrict dot)
{
    for (int64_t j = 0; j < width; j++)
        sum[j] = dot[j] = 0;
    for (int64_t i = 0; i < n; i++) {
        const pst_real *restrict g = grad + i * ld, *restrict h = xhat + i * dim;
        for (int64_t j = 0; j < width; j++) {
            sum[j] += (double)g[j];
            dot[j] += (double)g[j] * (double)h[j];
        }
    }
}

PST_CPU_CLONES static void affine_grad(const pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                                       const pst_real *xhat, pst_real *grad_gain, pst_real *grad_shift)
{
    double sum[SUM_PANEL], dot[SUM_PANEL];
    for (int64_t at = 0; at < dim; at += SUM_PANEL) {
        const int64_t width = pst_min_i64(SUM_PANEL, dim - at);
        panel_sums(grad + at, ld, n, xhat + at, dim, width, sum, dot);
        for (int64_t j = 0; j < width; j++) {
            grad_gain[at + j] += (pst_real)dot[j];
            grad_shift[at + j] += (pst_real)sum[j];
        }
    }
}

/* dx = rstd * (g' - mean(g') - xhat * mean(g' * xhat)), g' = g * gain. */
PST_CPU_CLONES static void layer_norm_grad(pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                                           const pst_real *restrict gain, const pst_real *xhat,
                                           const pst_real *rstd)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict g = grad + i * ld;
        const pst_real *restrict h = xhat + i * dim;
        double sums[SUM_LANES] = {0}, dots[SUM_LANES] = {0};
        for (int64_t j = 0; j < dim; j++)
            g[j] *= gain[j];
        int64_t j = 0;
        for (; j + SUM_LANES <= dim; j += SUM_LANES) {
            for (int l = 0; l < SUM_LANES; l++) {
                sums[l] += (double)g[j + l];
                dots[l] += (double)g[j + l] * (double)h[j + l];
            }
        }
        for (; j < dim; j++) {
            sums[0] += (double)g[j];
            dots[0] += (double)g[j] * (double)h[j];
        }
        const pst_real mean = (pst_real)(fold(sums) / (double)dim),
                       dot = (pst_real)(fold(dots) / (double)dim);
        for (j = 0; j < dim; j++)
            g[j] = rstd[i] * (g[j] - mean - h[j] * dot);
    }
}

void pst_k_layer_norm_grad(struct pst_queue *q, pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                           const pst_real *gain, const pst_real *xhat, const pst_real *rstd,
                           pst_real *grad_gain, pst_real *grad_shift)
{
    assert(q == NULL && n >= 0 && dim > 0 && ld >= dim);
    (void)q;
    affine_grad(grad, ld, n, dim, xhat, grad_gain, grad_shift);
    layer_norm_grad(grad, ld, n, dim, gain, xhat, rstd);
}

/* Means and variances of the columns of a panel, in two passes. */
PST_CPU_INLINE void panel_moments(const pst_real *x, int64_t ld, int64_t n, int64_t width,
                                  double *restrict mean, double *restrict variance)
{
    for (int64_t j = 0; j < width; j++)
        mean[j] = variance[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            mean[j] += (double)x[i * ld + j];
    for (int64_t j = 0; j < width; j++)
        mean[j] /= (double)n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            variance[j] += ((double)x[i * ld + j] - mean[j]) * ((double)x[i * ld + j] - mean[j]);
    for (int64_t j = 0; j < width; j++)
        variance[j] /= (double)n;
}

PST_CPU_INLINE void follow(pst_real *running, double value, pst_real momentum)
{
    *running = (pst_real)((1.0 - (double)momentum) * (double)*running + (double)momentum * value);
}

PST_CPU_CLONES static void batch_norm(pst_real *x, int64_t ld, int64_t n, int64_t dim, const pst_real *gain,
                                      const pst_real *shift, pst_real *xhat, pst_real *rstd,
                                      pst_real *running_mean, pst_real *running_var, pst_real momentum)
{
    double mean[SUM_PANEL], variance[SUM_PANEL], inverse[SUM_PANEL];
    for (int64_t at = 0; at < dim; at += SUM_PANEL) {
        const int64_t width = pst_min_i64(SUM_PANEL, dim - at);
        panel_moments(x + at, ld, n, width, mean, variance);
        for (int64_t j = 0; j < width; j++) {
            inverse[j] = 1.0 / sqrt(variance[j] + PST_NORM_EPS);
            rstd[at + j] = (pst_real)inverse[j];
            if (n > 1) {
                follow(&running_mean[at + j], mean[j], momentum);
                follow(&running_var[at + j], variance[j] * (double)n / (double)(n - 1), momentum);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            pst_real *restrict row = x + i * ld + at, *restrict keep = xhat + i * dim + at;
            for (int64_t j = 0; j < width; j++) {
                keep[j] = (pst_real)(((double)row[j] - mean[j]) * inverse[j]);
                row[j] = keep[j] * gain[at + j] + shift[at + j];
            }
        }
    }
}

void pst_k_batch_norm(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim,
                      const pst_real *gain, const pst_real *shift, pst_real *xhat, pst_real *rstd,
                      pst_real *running_mean, pst_real *running_var, pst_real momentum)
{
    assert(q == NULL && n >= 0 && dim > 0 && ld >= dim);
    (void)q;
    if (n > 0)
        batch_norm(x, ld, n, dim, gain, shift, xhat, rstd, running_mean, running_var, momentum);
}

/* dx = gain * rstd * (g - mean(g) - xhat * mean(g * xhat)), means over rows. */
PST_CPU_CLONES static void batch_norm_grad(pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                                           const pst_real *gain, const pst_real *xhat, const pst_real *rstd,
                                           pst_real *grad_gain, pst_real *grad_shift)
{
    double sum[SUM_PANEL], dot[SUM_PANEL];
    pst_real factor[SUM_PANEL], mean_sum[SUM_PANEL], mean_dot[SUM_PANEL];
    for (int64_t at = 0; at < dim; at += SUM_PANEL) {
        const int64_t width = pst_min_i64(SUM_PANEL, dim - at);
        panel_sums(grad + at, ld, n, xhat + at, dim, width, sum, dot);
        for (int64_t j = 0; j < width; j++) {
            grad_gain[at + j] += (pst_real)dot[j];
            grad_shift[at + j] += (pst_real)sum[j];
            factor[j] = gain[at + j] * rstd[at + j];
            mean_sum[j] = (pst_real)(sum[j] / (double)n);
            mean_dot[j] = (pst_real)(dot[j] / (double)n);
        }
        for (int64_t i = 0; i < n; i++) {
            pst_real *restrict g = grad + i * ld + at;
            const pst_real *restrict h = xhat + i * dim + at;
            for (int64_t j = 0; j < width; j++)
                g[j] = factor[j] * (g[j] - mean_sum[j] - h[j] * mean_dot[j]);
        }
    }
}

void pst_k_batch_norm_grad(struct pst_queue *q, pst_real *grad, int64_t ld, int64_t n, int64_t dim,
                           const pst_real *gain, const pst_real *xhat, const pst_real *rstd,
                           pst_real *grad_gain, pst_real *grad_shift)
{
    assert(q == NULL && n >= 0 && dim > 0 && ld >= dim);
    (void)q;
    if (n > 0)
        batch_norm_grad(grad, ld, n, dim, gain, xhat, rstd, grad_gain, grad_shift);
}

PST_CPU_CLONES static void affine(pst_real *x, int64_t ld, int64_t n, int64_t dim,
                                  const pst_real *restrict scale, const pst_real *restrict offset)
{
    for (int64_t i = 0; i < n; i++) {
        pst_real *restrict row = x + i * ld;
        for (int64_t j = 0; j < dim; j++)
            row[j] = row[j] * scale[j] + offset[j];
    }
}

void pst_k_affine(struct pst_queue *q, pst_real *x, int64_t ld, int64_t n, int64_t dim, const pst_real *scale,
                  const pst_real *offset)
{
    assert(q == NULL && n >= 0 && dim >= 0 && ld >= dim);
    (void)q;
    affine(x, ld, n, dim, scale, offset);
}
