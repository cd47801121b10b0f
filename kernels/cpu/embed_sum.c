/* embed_sum.c: sums of the gradients of each row of a table. */
#include "kernels/embedding.h"

#include <string.h>

static void clear(pst_real *to, int64_t row, int64_t width)
{
    memset(to + row * width, 0, (size_t)width * sizeof *to);
}

/* From flags to the list of those that are set. */
static int64_t list(uint32_t *touched, int64_t rows)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++)
        if (touched[r])
            touched[n++] = (uint32_t)r;
    return n;
}

void pst_k_embed_sum(struct pst_queue *q, int64_t n, const uint32_t *row, const pst_real *from, int64_t rows,
                     int64_t width, pst_real *to, uint32_t *touched, int64_t *touched_n)
{
    assert(q == NULL && n >= 0 && n <= INT32_MAX && rows >= 0 && width >= 0);
    (void)q;
    for (int64_t r = 0; r < rows; r++) {
        if (touched)
            touched[r] = 0;
        else
            clear(to, r, width);
    }
    for (int64_t i = 0; i < n; i++) {
        assert(row[i] < rows);
        if (touched && !touched[row[i]]) {
            touched[row[i]] = 1;
            clear(to, row[i], width);
        }
        for (int64_t c = 0; c < width; c++)
            to[row[i] * width + c] += from[i * width + c];
    }
    if (touched)
        *touched_n = list(touched, rows);
}
