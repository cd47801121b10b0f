/* tiers.h: which lists of neighbours and which feature rows a plan puts into the tiers, by the policies of
 * stages/lib/placement. It is for lists that are on drives: lists that are in memory anyway leave both tiers
 * to rows.
 *
 * Owner: the caller. Threads: any; pst_plan_place starts threads of its own and joins them. */
#ifndef PST_PLAN_TIERS_H
#define PST_PLAN_TIERS_H

#include "stages/lib/placement/placement.h"
#include "stages/lib/plan/plan.h"

PST_BEGIN_DECLS

struct pst_dataset;

/* What a batch is expected to read. */
struct pst_plan_reads {
    double lists[PST_PLACEMENT_TIERS], rows[PST_PLACEMENT_TIERS]; /* how many, from each tier */
    double ssd, cpu; /* transactions from the SSD and from the CPU tier */
};

/* Sets the members of `in` that the plan's settings, its dataset and its scores ((hops + 1) x vertices) give:
 * all but lists_in_memory, line_bytes, sector_bytes, chunk_bytes and cost. Borrows ds and scores. */
PST_API void pst_plan_placement_input(const struct pst_plan *plan, const struct pst_dataset *ds,
                                      const float *scores, struct pst_placement_input *in);

/* Places lists and rows in the tiers of plan->key: plan->rows and plan->lists get their ids. line_bytes: of a
 * PCIe transaction. PST_E_ARG, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_plan_place(struct pst_plan *plan, const struct pst_dataset *ds,
                                           const float *scores, const struct pst_placement_ask *ask,
                                           enum pst_placement_cost cost, uint32_t line_bytes,
                                           struct pst_plan_reads *reads);

PST_END_DECLS
#endif
