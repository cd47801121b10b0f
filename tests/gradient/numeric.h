/* numeric.h: for tests compiled with -DPST_REAL=double: random blocks, and gradients against central
 * differences. */
#ifndef NUMERIC_H
#define NUMERIC_H

#include "kernels/kernels.h"
#include "tests/kernel/random_batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

_Static_assert(sizeof(pst_real) == 8, "these tests are compiled with -DPST_REAL=double");

static inline pst_real *reals(int64_t n)
{
    pst_real *at = malloc((size_t)(n + 1) * sizeof *at);
    assert_non_null(at);
    for (int64_t i = 0; i <= n; i++)
        at[i] = random_unit();
    return at;
}

static inline pst_real *zeros(int64_t n)
{
    pst_real *at = calloc((size_t)n + 1, sizeof *at);
    assert_non_null(at);
    return at;
}

/* Every fifth destination has no edges; sources repeat. */
static inline struct pst_block numeric_block(int64_t dsts, int64_t sources)
{
    int32_t *indptr = calloc((size_t)dsts + 1, sizeof *indptr), *indices = calloc((size_t)dsts * 9 + 1, 4);
    for (int64_t d = 0; d < dsts; d++) {
        indptr[d + 1] = indptr[d] + (d % 5 == 4 ? 0 : (int32_t)random_below(10));
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            indices[e] = (int32_t)random_below((uint64_t)sources);
    }
    return (struct pst_block){indptr, indices, dsts, indptr[dsts], sources};
}

static inline void numeric_block_free(struct pst_block *b)
{
    free((void *)(uintptr_t)b->indptr);
    free((void *)(uintptr_t)b->indices);
}

/* A scalar function of everything that a test varies. */
typedef double numeric_fn(void *ctx);

/* The relative error, norm-wise, of grad(n) against central differences in x(n) is below 1e-6. */
static inline void check_numeric(numeric_fn *f, void *ctx, pst_real *x, int64_t n, const pst_real *grad,
                                 const char *what)
{
    const double h = 1e-5;
    const int64_t stride = 1 + n / 80;
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i += stride) {
        const double was = x[i];
        x[i] = was + h;
        const double above = f(ctx);
        x[i] = was - h;
        const double below = f(ctx), numeric = (above - below) / (2 * h);
        x[i] = was;
        error += (numeric - grad[i]) * (numeric - grad[i]);
        size += numeric * numeric + grad[i] * grad[i];
    }
    if (!(sqrt(error) <= 1e-6 * fmax(sqrt(size), 1e-3)))
        fail_msg("gradient of %s: error %.3g of %.3g", what, sqrt(error), sqrt(size));
}

static inline void check_near(double found, double wanted, const char *what)
{
    if (!(fabs(found - wanted) <= 1e-12 * (1 + fabs(wanted))))
        fail_msg("%s: found %.17g, expected %.17g", what, found, wanted);
}

#endif
