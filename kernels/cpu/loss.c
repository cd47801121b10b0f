/* loss.c: softmax cross-entropy (kernels.h). Exponentials in double precision: classes are few. */
#include "../kernels.h"

#include <math.h>
#include <string.h>

/* The position of the largest logit; the first of equals. */
static int64_t argmax(const pst_real *row, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

/* A NaN logit must make the loss a NaN, so the sum runs over all of them, the largest included. */
static double exp_sum(const pst_real *row, int64_t classes, double largest)
{
    double sum = 0;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)row[c] - largest);
    return sum;
}

void pst_k_softmax_xent(struct pst_queue *q, const pst_real *logits, int64_t ld, const int32_t *labels,
                        int64_t n, int64_t classes, double normaliser, pst_real *grad, int64_t ld_grad,
                        double *loss, int64_t *correct, int64_t *counted)
{
    assert(q == NULL && n >= 0 && classes > 0 && ld >= classes && normaliser > 0);
    assert(grad == NULL || ld_grad >= classes);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        const pst_real *row = logits + i * ld;
        pst_real *out = grad ? grad + i * ld_grad : NULL;
        assert(labels[i] < classes);
        if (labels[i] < 0) {
            if (out)
                memset(out, 0, (size_t)classes * sizeof *out);
            continue;
        }
        const int64_t best = argmax(row, classes);
        const double largest = (double)row[best], sum = exp_sum(row, classes, largest);
        *loss += (log(sum) + largest - (double)row[labels[i]]) / normaliser;
        *correct += best == labels[i];
        ++*counted;
        for (int64_t c = 0; out && c < classes; c++) {
            const double p = exp((double)row[c] - largest) / sum;
            out[c] = (pst_real)((p - (c == labels[i] ? 1.0 : 0.0)) / normaliser);
        }
    }
}
