/* fit.c: mean squared error, mean absolute error, coefficient of determination. */
#include "stages/lib/learning/fit.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"

struct column {
    double mean, errors, spread; /* of the targets; sums of squares */
    bool varies;                 /* two targets differ: rounding may hide that they are equal from `spread` */
};

static void add(struct column *of, const float *output, const float *target, int64_t columns,
                double *absolute)
{
    for (int64_t c = 0; c < columns; c++) {
        const double off = (double)output[c] - (double)target[c], from = (double)target[c] - of[c].mean;
        of[c].errors += off * off;
        of[c].spread += from * from;
        *absolute += fabs(off);
    }
}

pst_rc pst_fit_of(const float *outputs, const float *targets, int64_t columns, const int64_t *ids, int64_t n,
                  struct pst_fit *fit)
{
    *fit = (struct pst_fit){PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN};
    if (n == 0)
        return PST_OK;
    struct column *of = calloc((size_t)columns, sizeof *of);
    double squared = 0, absolute = 0, shares = 0;
    int64_t spread = 0;
    if (!of)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot add up the errors of %lld columns",
                        (long long)columns);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < columns; c++) {
            of[c].mean += (double)targets[ids[i] * columns + c] / (double)n;
            of[c].varies |= targets[ids[i] * columns + c] != targets[ids[0] * columns + c];
        }
    for (int64_t i = 0; i < n; i++)
        add(of, outputs + ids[i] * columns, targets + ids[i] * columns, columns, &absolute);
    for (int64_t c = 0; c < columns; c++) {
        squared += of[c].errors;
        if (!of[c].varies)
            continue;
        shares += 1 - of[c].errors / of[c].spread;
        spread++;
    }
    const double all = (double)n * (double)columns;
    fit->mse = squared / all;
    fit->mae = absolute / all;
    if (spread > 0)
        fit->r2 = shares / (double)spread;
    free(of);
    return PST_OK;
}
