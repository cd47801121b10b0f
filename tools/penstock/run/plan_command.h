/* plan_command.h: what the files of `penstock plan` share. Owner: the caller. Threads: one. */
#ifndef PST_PLAN_COMMAND_H
#define PST_PLAN_COMMAND_H

#include <jansson.h>

#include "common/store/store.h"
#include "stages/lib/placement/placement.h"
#include "stages/lib/plan/tiers.h"
#include "tools/penstock/run/pipeline_options.h"

/* Options that stand in for parameters of the planner. */
enum plan_option { PLAN_TOPOLOGY, PLAN_POLICY, PLAN_SHARE, PLAN_COST, PLAN_CLS, PLAN_OPTIONS };

struct plan_args {
    struct pipeline_options pipeline;
    char run_dir[PST_PATH_MAX];
    struct pst_placement_input in; /* caches, cost, units; the rest comes from the planner */
    bool cache_given[PST_PLACEMENT_TIERS], given[PLAN_OPTIONS];
    struct pst_placement_ask ask;
    double ssd_bytes_per_s, pcie_bytes_per_s; /* 0: not given */
    struct pst_placement_machine machine;     /* lookup_s and train_s as given; rates from the above */
    const char *count_with;                   /* another hotness.npy; NULL: the plan's own */
    bool json;
};

/* What the planner made, and the placements by every policy. */
struct plan_result {
    struct pst_dataset ds;
    struct pst_plan plan;
    float *scores; /* (hops + 1) x vertices */
    struct pst_placement placement;
    struct pst_placement_plan policy[PST_PLACEMENT_POLICIES];
    struct pst_placement_plan printed; /* the policy paper with the cost paper, counted by the asked cost */
};

/* Runs the pipeline's planner, and no other stage, in args->run_dir (empty: a new one, whose name it gets).
 * Returns the exit code: 0, or that of the run, which has printed what is wrong. */
int plan_run_planner(const struct pst_pipeline *pl, struct plan_args *args);

/* The stage that is the pipeline's planner; -1: it has none. */
int plan_planner_of(const struct pst_pipeline *pl);

extern const char *const plan_costs[3]; /* names, in the order of enum pst_placement_cost */
void plan_print(const struct plan_args *args, const struct plan_result *r);
/* A new reference; NULL: no memory. */
json_t *plan_to_json(const struct plan_args *args, const struct plan_result *r);

#endif
