/* metric.h: figures of a classifier's predictions for a list of vertices, which are exact and do not depend
 * on the number of threads.
 *
 *   micro F1: 2 TP / (2 TP + FP + FN) over all classes. With one label a vertex, it is the accuracy. The
 * caller counts it. macro F1: the mean of the classes' F1 = 2 TP / (2 TP + FP + FN). With one label a vertex,
 * only classes count that are a vertex's label or prediction; with several, every class does, and one without
 * TP, FP and FN has F1 0. ROC AUC: the chance that a vertex of the class has a higher score than a vertex of
 * another class, where equal scores count half (Fawcett 2006, section 8, algorithm 2; Mann & Whitney).
 * average precision: the sum over the thresholds, from high to low, of (recall - recall before) * precision,
 * without interpolation. Equal scores are one threshold.
 *
 * The last two are means over the classes that have vertices in and out of the class. If each vertex has one
 * of two classes, they are those of class 1. scikit-learn's roc_auc_score (multi_class="ovr"),
 * average_precision_score and f1_score (average="macro") have the same definitions.
 *
 * Scores are float32: the logarithm of the softmax, the difference of the two logits if there are two
 * classes, and the logit if a vertex has several labels. They are kept for all vertices of the list: 4 bytes
 * for each vertex and class.
 *
 * Owner: the caller; pst_metric_open borrows its list. Threads: notes of different vertices may be made at
 * once. */
#ifndef PST_METRIC_H
#define PST_METRIC_H

#include <float.h>

#include "kernels/kernels.h"

enum pst_metric_kind {
    PST_METRIC_NONE, /* nothing beside what is always measured: the accuracy; with several labels, micro-F1;
                        of a regression, mse, mae and r2, and mse decides */
    PST_METRIC_ACCURACY,
    PST_METRIC_MICRO_F1,
    PST_METRIC_MACRO_F1,
    PST_METRIC_ROC_AUC,
    PST_METRIC_AVERAGE_PRECISION,
    PST_METRIC_MSE, /* these three are of a regression (fit.h) */
    PST_METRIC_MAE,
    PST_METRIC_R2,
    PST_METRIC_KINDS
};

/* No metric has this value: it was not measured, or is not defined. */
#define PST_METRIC_UNKNOWN (-DBL_MAX)

PST_API const char *pst_metric_name(enum pst_metric_kind kind); /* as in reports: "macro_f1" */
static inline bool pst_metric_ranks(enum pst_metric_kind kind)  /* it needs scores */
{
    return kind == PST_METRIC_ROC_AUC || kind == PST_METRIC_AVERAGE_PRECISION;
}

static inline bool pst_metric_fits(enum pst_metric_kind kind) /* it is of a regression */
{
    return kind >= PST_METRIC_MSE && kind <= PST_METRIC_R2;
}

/* What is known of all vertices of the graph. */
struct pst_metric_labels {
    const int32_t *one;     /* the class of each vertex, negative: unknown; NULL: vertices have several */
    const uint8_t *several; /* classes of each: 0, 1 or PST_LABEL_IGNORED */
    int64_t classes;
};

/* What the labels of a list of vertices let a metric measure. */
struct pst_metric_support {
    int64_t labelled;  /* vertices with a known label */
    int64_t undefined; /* classes of which the list has no vertex in, or none out of the class: they have no
                          ROC AUC and no average precision */
    int64_t first;     /* the first of them; -1: none */
};
/* ids outside 0..vertices are passed over. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_metric_supported(const struct pst_metric_labels *labels, int64_t vertices,
                                                 const int64_t *ids, int64_t n,
                                                 struct pst_metric_support *support);

struct pst_metric {
    enum pst_metric_kind kind;
    struct pst_metric_labels labels;
    int64_t *ids; /* of the list, ascending */
    int64_t n;
    int64_t columns; /* of scores: classes, or 1 if there are two and a vertex has one */
    float *score;    /* (columns, n), the caller's; NULL if the kind needs none */
};

/* Sorts a copy of ids(n). PST_E_NOMEM. The caller then sets metric->score to pst_metric_score_bytes bytes. */
PST_API PST_MUST_USE pst_rc pst_metric_open(struct pst_metric *metric, enum pst_metric_kind kind,
                                            const struct pst_metric_labels *labels, const int64_t *ids,
                                            int64_t n);
PST_API void pst_metric_close(struct pst_metric *metric);
PST_API size_t pst_metric_score_bytes(const struct pst_metric *metric);
/* Of the scratch memory of one thread in pst_metric_rank. */
PST_API size_t pst_metric_scratch_bytes(const struct pst_metric *metric);

/* Keeps the scores of those of the vertices first..first+n that are in the list. logits: n rows, ld apart. */
PST_API void pst_metric_note(struct pst_metric *metric, const pst_real *logits, int64_t ld, int64_t first,
                             int64_t n);
/* The figure of one column of scores, in sum[column]; -1: the class has no vertices, or all. Columns can be
 * ranked at once, each thread with its own scratch. */
PST_API void pst_metric_rank(const struct pst_metric *metric, int64_t column, void *scratch, double *figure);
/* The mean of figures(n) that are not negative; -1: there are none. */
PST_API double pst_metric_mean(const double *figures, int64_t n);

/* Macro F1, from the predictions of all vertices of the graph: the class of each, or classes of each, 0 or 1.
 * -1: no vertex has a known label. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_metric_macro_f1(const struct pst_metric *metric, const int32_t *one,
                                                const uint8_t *several, double *figure);

#endif
