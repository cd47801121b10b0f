/* embed_sum.c: sums of the gradients of each row of a table. */
#include "kernels/embedding.h"

#include <string.h>

/* Inserts a row into an ascending list of *n, unless it is there. */
static void insert(uint32_t *touched, int64_t *n, uint32_t row)
{
    int64_t at = *n;
    while (at > 0 && touched[at - 1] > row)
        at--;
    if (at > 0 && touched[at - 1] == row)
        return;
    memmove(touched + at + 1, touched + at, (size_t)(*n - at) * sizeof *touched);
    touched[at] = row;
    ++*n;
}

/* Where the sum of a row is. */
static int64_t place_of(const uint32_t *touched, int64_t n, uint32_t row)
{
    int64_t low = 0;
    while (touched && n > 1) {
        const int64_t half = n / 2;
        low += touched[low + half] <= row ? half : 0;
        n -= half;
    }
    return touched ? low : row;
}

void pst_k_embed_sum(struct pst_queue *q, int64_t n, const uint32_t *row, const pst_real *from, int64_t rows,
                     int64_t width, pst_real *to, uint32_t *touched, int64_t *touched_n)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX && rows >= 0 && width >= 0);
    (void)q;
    int64_t sums = touched ? 0 : rows;
    for (int64_t i = 0; i < n && touched; i++)
        insert(touched, &sums, row[i]);
    if (touched)
        *touched_n = sums;
    memset(to, 0, (size_t)(sums * width) * sizeof *to);
    for (int64_t i = 0; i < n; i++) {
        assert(row[i] < rows);
        const int64_t at = place_of(touched, sums, row[i]);
        for (int64_t c = 0; c < width; c++)
            to[at * width + c] += from[i * width + c];
    }
}
