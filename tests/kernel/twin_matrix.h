/* twin_matrix.h: matrices of random rows for both twins, and how far the twins' results may differ. */
#ifndef TWIN_MATRIX_H
#define TWIN_MATRIX_H

#include "tests/kernel/twin_fixture.h"

static const double LIMIT = 1e-5; /* relative error, norm-wise */

/* Rows with something between them, at an address that 16 does not divide every other time. */
struct matrix {
    struct both all;
    int64_t skip, n, dim, ld;
};

static inline struct matrix matrix_new(int64_t n, int64_t dim)
{
    struct matrix m = {.skip = rnd(2) ? (int64_t)rnd(4) : 0, .n = n, .dim = dim};
    m.ld = rnd(2) ? dim + (int64_t)rnd(5) : (dim + 3) / 4 * 4;
    m.all = floats_new(m.skip + n * m.ld + 4);
    return m;
}

static inline float *host(const struct matrix *m)
{
    return (float *)m->all.host + m->skip;
}

static inline float *device(const struct matrix *m)
{
    return (float *)m->all.device + m->skip;
}

static inline void matrix_free(struct matrix *m)
{
    both_free(&m->all);
}

#endif
