/* cost.h: how a clique's cache memory is best shared between lists of neighbours (topology) and feature rows
 * (Legion, section 4.3). A share alpha of B bytes goes to lists; the model predicts the PCIe transactions of
 * an epoch, N = N_T + N_F (equation 2), for alpha = 0, 0.01, ... 1.
 *
 * As printed, N errs: hot lists take fewer or more lines of memory for an edge than cold ones, and batches
 * that were sampled ahead find too much, because the cache was chosen by them. So the second prediction
 * counts the lines of each vertex, and no batch takes part in its own prediction: those of a rehearsal, one
 * more epoch, are predicted with the caches that the others chose. (To leave each batch out of the hotness,
 * as pst_plan_predict does, also leaves out its seeds, which every epoch has. That predicts 9 % too much on
 * ogbn_arxiv after one epoch.)
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_LEGION_COST_H
#define PST_LEGION_COST_H

#include "stages/lib/legion/policies.h"

PST_BEGIN_DECLS

#define PST_LEGION_ALPHAS 101 /* 0 to 1 in hundredths */

struct pst_legion_cost {
    /* input */
    const struct pst_csc *graph;
    uint32_t line_bytes;                       /* CLS: batches.h */
    uint64_t devices;                          /* of the clique, as bits */
    uint64_t bytes;                            /* B: of all its devices together */
    uint64_t row_bytes;                        /* from one feature row to the next */
    int64_t epochs;                            /* sampled ahead */
    const struct pst_legion_counts *counts;    /* of them: they choose */
    const struct pst_legion_counts *rehearsal; /* of one other epoch: it predicts */
    /* results; all N are of one epoch */
    uint64_t *edges, *rows;                 /* A_T, A_F of each vertex */
    int64_t *lists_order, *rows_order;      /* Q_T, Q_F */
    int64_t lists[PST_LEGION_ALPHAS];       /* V_T: so many of Q_T are cached (equation 3) */
    int64_t cached_rows[PST_LEGION_ALPHAS]; /* V_F: so many of Q_F (equation 6) */
    double printed_t[PST_LEGION_ALPHAS], printed_f[PST_LEGION_ALPHAS]; /* N_T, N_F by equations 4, 5, 7, 8 */
    double n_t[PST_LEGION_ALPHAS], n_f[PST_LEGION_ALPHAS];             /* the same, corrected */
    int best_printed, best; /* the least N, and of equal ones the least alpha; in hundredths */
};

/* Bytes of a cached list: its entries, and one of indptr (equation 3). */
PST_API uint64_t pst_legion_list_bytes(const void *graph, int64_t v);

/* Fills the results. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_legion_cost_predict(struct pst_legion_cost *c);
PST_API void pst_legion_cost_release(struct pst_legion_cost *c);

/* What batches with these counts need from the host, if the caches are those of the prediction: t[i] and f[i]
 * become transactions for lists and for rows with alpha i. */
PST_API void pst_legion_cost_count(const struct pst_legion_cost *c, const struct pst_legion_counts *counts,
                                   double t[PST_LEGION_ALPHAS], double f[PST_LEGION_ALPHAS]);

PST_END_DECLS
#endif
