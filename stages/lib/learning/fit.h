/* fit.h: figures of a regression's outputs for a list of vertices. They are means over the vertices and the
 * columns, and do not depend on the number of threads.
 *
 *   mse: the mean of (output - target)^2. mae: the mean of |output - target|. r2: the mean over the columns
 * of 1 - sum of (output - target)^2 / sum of (target - mean of the targets)^2 (the coefficient of
 * determination). A column whose targets are all equal has no r2 and is left out. scikit-learn's
 * mean_squared_error, mean_absolute_error and r2_score have the same definitions, except that r2_score counts
 * such a column as 0 or 1.
 *
 * Owner: the caller. Threads: any. */
#ifndef PST_FIT_H
#define PST_FIT_H

#include "stages/lib/learning/metric.h"

struct pst_fit {
    double mse, mae, r2; /* PST_METRIC_UNKNOWN: it is not defined */
};

/* outputs, targets: rows of all vertices, `columns` numbers each. ids(n): of the list, which must be
 * vertices. An output or target that is not finite makes figures that are not finite. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_fit_of(const float *outputs, const float *targets, int64_t columns,
                                       const int64_t *ids, int64_t n, struct pst_fit *fit);

#endif
