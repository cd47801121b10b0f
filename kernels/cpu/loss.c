/* loss.c: softmax cross-entropy. A row is worked on in lanes of 16 columns, so each sum has the same order
 * on all instruction sets. */
#include "kernels/kernels.h"
#include "kernels/cpu/clones.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 16,
    KEPT = 256, /* columns whose exponentials are kept for the gradient */
};

/* exp(x) for x <= 0, within 2 units in the last place: 2^n * exp(r), |r| <= ln 2 / 2, with exp(r) by its
 * Taylor polynomial. An x whose result would be below the smallest normal number counts as -87, which
 * changes no sum. A NaN stays a NaN. */
PST_CPU_INLINE float exp_f32(float x)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits */
    const float y = x < -87.0f ? -87.0f : x;
    const float shifted = y * 1.44269504f + shift, n = shifted - shift;
    const float r =
        (y - n * 0.693359375f) - n * -2.12194440e-4f; /* ln 2 in two parts: the first product is exact */
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return (1.0f + p) * scale;
}

PST_CPU_INLINE double exp_f64(double x)
{
    return exp(x);
}

#define EXP(x) _Generic((x), float : exp_f32, double : exp_f64)(x)

/* The largest logit. NaN if the first one is NaN. */
PST_CPU_INLINE pst_real largest_of(const pst_real *restrict row, int64_t classes)
{
    pst_real most[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        most[i] = row[0];
    int64_t c = 0;
    for (; c + COLUMNS <= classes; c += COLUMNS)
        for (int i = 0; i < COLUMNS; i++)
            most[i] = row[c + i] > most[i] ? row[c + i] : most[i];
    for (int i = 0; c + i < classes; i++)
        most[i] = row[c + i] > most[i] ? row[c + i] : most[i];
    for (int half = COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            most[i] = most[i + half] > most[i] ? most[i + half] : most[i];
    return most[0];
}

/* The position of the largest logit, the first one if several are equal. */
PST_CPU_INLINE int64_t place_of(const pst_real *restrict row, int64_t classes, pst_real largest)
{
    for (int64_t c = 0; c < classes; c++)
        if (row[c] == largest)
            return c;
    return 0;
}

/* kept[c] = exp(row[c] - largest), and their sum. A NaN logit makes the sum NaN. */
PST_CPU_INLINE double exponentials(const pst_real *restrict row, int64_t n, pst_real largest,
                                   pst_real *restrict kept)
{
    double sum[COLUMNS] = {0};
    for (int64_t c = 0; c < n; c++)
        kept[c] = EXP(row[c] - largest);
    int64_t c = 0;
    for (; c + COLUMNS <= n; c += COLUMNS)
        for (int i = 0; i < COLUMNS; i++)
            sum[i] += (double)kept[c + i];
    for (int i = 0; c + i < n; i++)
        sum[i] += (double)kept[c + i];
    for (int half = COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

struct row_loss {
    double loss;
    bool correct;
};

PST_CPU_CLONES static struct row_loss loss_of_row(const pst_real *row, int32_t label, int64_t classes,
                                                  double normaliser, pst_real *grad)
{
    pst_real kept[KEPT];
    const pst_real largest = largest_of(row, classes);
    double sum = 0;
    for (int64_t at = 0; at < classes; at += KEPT)
        sum += exponentials(row + at, pst_min_i64(KEPT, classes - at), largest, kept);
    for (int64_t at = 0; grad && at < classes; at += KEPT) {
        const int64_t n = pst_min_i64(KEPT, classes - at);
        if (classes > KEPT)
            (void)exponentials(row + at, n, largest, kept);
        const pst_real share = (pst_real)(1 / (sum * normaliser));
        for (int64_t c = 0; c < n; c++)
            grad[at + c] = kept[c] * share;
    }
    if (grad)
        grad[label] -= (pst_real)(1 / normaliser);
    const double loss = (log(sum) + (double)largest - (double)row[label]) / normaliser;
    return (struct row_loss){loss, place_of(row, classes, largest) == label};
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
        const struct row_loss r = loss_of_row(row, labels[i], classes, normaliser, out);
        *loss += r.loss;
        *correct += r.correct;
        ++*counted;
    }
}
