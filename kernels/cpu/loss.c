/* loss.c: cross-entropy: softmax over one label a vertex, sigmoids over several; squared error. A row is
 * worked on in lanes of 16 columns, so each sum has the same order on all instruction sets. */
#include "kernels/cpu/exp.h"

enum {
    COLUMNS = 16,
    KEPT = 256, /* columns whose exponentials are kept for the gradient */
};

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
        kept[c] = PST_CPU_EXP(row[c] - largest);
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

/* ---- weights of classes, smoothed labels --------------------------------------------------------- */

/* The sum of weight[c] * (row[c] - largest). */
PST_CPU_INLINE double weighted_sum(const pst_real *restrict weight, const pst_real *restrict row,
                                   int64_t classes, pst_real largest)
{
    double sum[COLUMNS] = {0};
    int64_t c = 0;
    for (; c + COLUMNS <= classes; c += COLUMNS)
        for (int i = 0; i < COLUMNS; i++)
            sum[i] += (double)weight[c + i] * (double)(row[c + i] - largest);
    for (int i = 0; c + i < classes; i++)
        sum[i] += (double)weight[c + i] * (double)(row[c + i] - largest);
    for (int half = COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

/* The loss is all * log(sum of exponentials) - hit * logit of the label - spread * weighted sum of the
 * logits, where `largest` is subtracted from each logit. */
PST_CPU_CLONES static struct row_loss weighted_loss_of_row(const struct pst_xent *how, const pst_real *row,
                                                           int32_t label, int64_t classes, double normaliser,
                                                           pst_real *grad)
{
    pst_real kept[KEPT];
    const double hit = (1 - how->smoothing) * (double)how->weight[label] / normaliser,
                 spread = how->smoothing / (double)classes / normaliser, all = hit + spread * how->total;
    const pst_real largest = largest_of(row, classes);
    double sum = 0;
    for (int64_t at = 0; at < classes; at += KEPT)
        sum += exponentials(row + at, pst_min_i64(KEPT, classes - at), largest, kept);
    for (int64_t at = 0; grad && at < classes; at += KEPT) {
        const int64_t n = pst_min_i64(KEPT, classes - at);
        if (classes > KEPT)
            (void)exponentials(row + at, n, largest, kept);
        const pst_real share = (pst_real)(all / sum), even = (pst_real)spread;
        for (int64_t c = 0; c < n; c++)
            grad[at + c] = kept[c] * share - even * how->weight[at + c];
    }
    if (grad)
        grad[label] -= (pst_real)hit;
    double loss = all * log(sum) - hit * (double)(row[label] - largest);
    if (spread > 0)
        loss -= spread * weighted_sum(how->weight, row, classes, largest);
    return (struct row_loss){loss, place_of(row, classes, largest) == label};
}

void pst_k_softmax_xent_weighted(struct pst_queue *q, const struct pst_xent *how, const pst_real *logits,
                                 int64_t ld, const int32_t *labels, int64_t n, int64_t classes,
                                 double normaliser, pst_real *grad, int64_t ld_grad, double *loss,
                                 int64_t *correct, int64_t *counted)
{
    assert(q == NULL && n >= 0 && classes > 0 && ld >= classes && normaliser > 0);
    assert((grad == NULL || ld_grad >= classes) && how->smoothing >= 0 && how->smoothing < 1);
    (void)q;
    for (int64_t i = 0; i < n; i++) {
        pst_real *out = grad ? grad + i * ld_grad : NULL;
        assert(labels[i] < classes);
        if (labels[i] < 0) {
            if (out)
                memset(out, 0, (size_t)classes * sizeof *out);
            continue;
        }
        const struct row_loss r =
            weighted_loss_of_row(how, logits + i * ld, labels[i], classes, normaliser, out);
        *loss += r.loss;
        *correct += r.correct;
        ++*counted;
    }
}

/* ---- several labels a vertex --------------------------------------------------------------------- */

/* The losses of n <= KEPT columns: max(x, 0) - x * label + log(1 + t) each, with t = exp(-|x|). The
 * logarithms are taken at once, of the product, which is at most 2^KEPT. A NaN logit makes the sum NaN. */
PST_CPU_INLINE double sigmoid_losses(const pst_real *restrict x, const uint8_t *restrict label, int64_t n,
                                     pst_real *restrict t)
{
    double product[COLUMNS], sum[COLUMNS] = {0};
    for (int i = 0; i < COLUMNS; i++)
        product[i] = 1;
    for (int64_t c = 0; c < n; c++)
        t[c] = PST_CPU_EXP(x[c] > 0 ? -x[c] : x[c]);
    for (int64_t c = 0; c < n; c += COLUMNS)
        for (int i = 0; i < COLUMNS && c + i < n; i++) {
            const bool counts = label[c + i] != PST_LABEL_IGNORED;
            const pst_real rest = (x[c + i] < 0 ? 0 : x[c + i]) - (label[c + i] ? x[c + i] : 0);
            sum[i] += counts ? (double)rest : 0;
            product[i] *= counts ? 1 + (double)t[c + i] : 1;
        }
    for (int half = COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) {
            sum[i] += sum[i + half];
            product[i] *= product[i + half];
        }
    return sum[0] + log(product[0]);
}

/* Adds to the counts. False: there is a label that is neither 0, 1 nor ignored. */
PST_CPU_INLINE bool count_labels(const pst_real *restrict x, const uint8_t *restrict label, int64_t n,
                                 int64_t counts[PST_LABEL_COUNTS])
{
    int true_positives = 0, false_positives = 0, false_negatives = 0, counted = 0, bad = 0;
    for (int64_t c = 0; c < n; c++) {
        true_positives += label[c] == 1 && x[c] > 0;
        false_positives += label[c] == 0 && x[c] > 0;
        false_negatives += label[c] == 1 && !(x[c] > 0);
        counted += label[c] != PST_LABEL_IGNORED;
        bad += label[c] > 1 && label[c] != PST_LABEL_IGNORED;
    }
    counts[PST_LABEL_TRUE_POSITIVES] += true_positives;
    counts[PST_LABEL_FALSE_POSITIVES] += false_positives;
    counts[PST_LABEL_FALSE_NEGATIVES] += false_negatives;
    counts[PST_LABELS_COUNTED] += counted;
    return bad == 0;
}

/* The sigmoid is 1 / (1 + t), or t / (1 + t) if x is negative. */
PST_CPU_INLINE void sigmoid_grads(const pst_real *restrict x, const uint8_t *restrict label,
                                  const pst_real *restrict t, int64_t n, pst_real share,
                                  pst_real *restrict grad)
{
    for (int64_t c = 0; c < n; c++) {
        const pst_real sigmoid = (x[c] < 0 ? t[c] : 1) / (1 + t[c]);
        grad[c] = label[c] == PST_LABEL_IGNORED ? 0 : (sigmoid - (pst_real)label[c]) * share;
    }
}

PST_CPU_CLONES static double sigmoid_row(const pst_real *x, const uint8_t *label, int64_t classes,
                                         pst_real share, pst_real *grad, int64_t counts[PST_LABEL_COUNTS])
{
    pst_real t[KEPT];
    double loss = 0;
    for (int64_t at = 0; at < classes; at += KEPT) {
        const int64_t n = pst_min_i64(KEPT, classes - at);
        const bool good = count_labels(x + at, label + at, n, counts);
        assert(good);
        (void)good;
        loss += sigmoid_losses(x + at, label + at, n, t);
        if (grad)
            sigmoid_grads(x + at, label + at, t, n, share, grad + at);
    }
    return loss;
}

void pst_k_sigmoid_xent(struct pst_queue *q, const pst_real *logits, int64_t ld, const uint8_t *labels,
                        int64_t ld_labels, int64_t n, int64_t classes, double normaliser, pst_real *grad,
                        int64_t ld_grad, double *loss, int64_t *counts)
{
    assert(q == NULL && n >= 0 && classes > 0 && ld >= classes && ld_labels >= classes && normaliser > 0);
    assert(grad == NULL || ld_grad >= classes);
    (void)q;
    const pst_real share = (pst_real)(1 / normaliser);
    for (int64_t i = 0; i < n; i++)
        *loss += sigmoid_row(logits + i * ld, labels + i * ld_labels, classes, share,
                             grad ? grad + i * ld_grad : NULL, counts) /
                 normaliser;
}

/* ---- numbers ------------------------------------------------------------------------------------- */

PST_CPU_CLONES static double squared_error_row(const pst_real *restrict y, const float *restrict target,
                                               int64_t columns, double twice, pst_real *restrict grad)
{
    double sum[COLUMNS] = {0};
    for (int64_t c = 0; grad && c < columns; c++)
        grad[c] = (pst_real)(twice * ((double)y[c] - (double)target[c]));
    for (int64_t c = 0; c < columns; c += COLUMNS)
        for (int i = 0; i < COLUMNS && c + i < columns; i++) {
            const double off = (double)y[c + i] - (double)target[c + i];
            sum[i] += off * off;
        }
    for (int half = COLUMNS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sum[0];
}

void pst_k_squared_error(struct pst_queue *q, const pst_real *outputs, int64_t ld, const float *targets,
                         int64_t ld_targets, int64_t n, int64_t columns, double normaliser, pst_real *grad,
                         int64_t ld_grad, double *loss)
{
    assert(q == NULL && n >= 0 && columns > 0 && ld >= columns && ld_targets >= columns && normaliser > 0);
    assert(grad == NULL || ld_grad >= columns);
    (void)q;
    for (int64_t i = 0; i < n; i++)
        *loss += squared_error_row(outputs + i * ld, targets + i * ld_targets, columns, 2 / normaliser,
                                   grad ? grad + i * ld_grad : NULL) /
                 normaliser;
}
