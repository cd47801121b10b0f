/* budget.h: the size of a tier, if gpu_cache or cpu_cache is "auto": the memory that the other parts of the
 * run leave (Hyperion, section IV-E, gives its caches "all the available" memory). Owner: none. Threads: any.
 */
#ifndef PST_PLANNER_BUDGET_H
#define PST_PLANNER_BUDGET_H

#include "common/stage.h"
#include "stages/lib/device/device.h"
#include "stages/lib/plan/tiers.h"
#include "stages/lib/sampling/input.h"

PST_BEGIN_DECLS

#define PST_PLANNER_SLOTS 8 /* that a reserve of "auto" leaves room for */
/* Bytes that the processes of a run take, beside slots, tiers, the graph and evaluation. Those of
 * `peers-outofcore` take 40 MiB. */
#define PST_PLANNER_PROCESSES ((uint64_t)64 << 20)

/* Which tier, and what else takes memory. */
struct pst_planner_budget_ask {
    bool gpu_tier;       /* false: the CPU tier */
    bool lists;          /* the tiers may hold lists, too */
    uint64_t held;       /* bytes of the planner itself, which ends before the tiers are filled */
    uint64_t other_tier; /* bytes of the other tier, if it is known */
    bool graph;          /* the graph must be in memory, too: topology is not ssd */
    bool trains_only;    /* a trainer gets the batches, and it evaluates nothing (eval_every 0) */
    /* Bytes. UINT64_MAX: PST_PLANNER_SLOTS slots of the largest batch, and a part of the free memory. For the
     * GPU tier, this is a quarter. For the CPU tier, it is a quarter, or PST_PLANNER_PROCESSES and an eighth,
     * whichever is more, but at most half. If `trains_only`, it is an eighth, or PST_PLANNER_PROCESSES and
     * the graph, whichever is more, but at most a quarter. */
    uint64_t reserve;
};

/* Bytes. free: of the machine or the memory cgroup, or, for the GPU tier, of the GPU, when the plan is made.
 * reserve: for slots, model, evaluation and the page cache. cache: what is free, less the reserve, and on a
 * CPU less the other tier, but at most what there is to cache and the other tier does not have. */
struct pst_planner_budget {
    uint64_t free, reserve, cache;
};

/* device: where planner and sampler are. most: the largest batch. */
struct pst_planner_budget pst_planner_budget(const struct pst_device *device,
                                             const struct pst_sampling_input *in,
                                             const struct pst_minibatch_size *most,
                                             const struct pst_planner_budget_ask *ask);
/* The same, told in the stage's log. Returns `cache`. */
uint64_t pst_planner_find_tier(struct pst_stage *self, const struct pst_device *device,
                               const struct pst_sampling_input *in, const struct pst_minibatch_size *most,
                               const struct pst_planner_budget_ask *ask);

/* Names the policy of rows alone. If the dataset is a part of a cut one and a stage remote gets the plan, the
 * rank caches rows of all parts: that stage fetches those of other parts. port: where the plan goes out.
 * PST_E_ARG: there is a GPU tier, too, which cannot hold them. */
PST_MUST_USE pst_rc pst_planner_choose_rows(struct pst_plan *plan, struct pst_stage *self, int port,
                                            const struct pst_sampling_input *in);
/* Has each replica that gets the plan its own seeds (shuffle local)? Of a part of a cut dataset, these are
 * the part's. */
bool pst_planner_has_own_seeds(const struct pst_stage *self, int port);
/* Are the cached rows those of the rank's part alone? */
bool pst_planner_own_rows(const struct pst_plan *plan, const struct pst_sampling_input *in);

/* Will the sampler that gets the plan have slots for rows that are not cached only? It must keep cached rows
 * in place, and sample batches like those that the planner samples. */
bool pst_planner_small_slots(const struct pst_stage *self, int port, const struct pst_sampling_input *in);

/* Both tiers hold rows only. A row of either tier saves more the hotter it is, and a row of the GPU tier
 * saves at least as much as one of the CPU tier. So the hottest rows go to the GPU tier, and the next to the
 * CPU tier: no other placement of rows saves more transactions. Of a part of a cut dataset, the rows of the
 * part, or with the policy PST_PLAN_ROWS_OF_ALL, those of all parts. scores: (hops + 1) x vertices. */
pst_rc pst_planner_place_rows(struct pst_plan *plan, const struct pst_sampling_input *in,
                              const float *scores);

/* Names a policy that places lists and rows, in key->policy. cls: bytes of a transaction. */
void pst_planner_name_placement(struct pst_plan_key *key, const struct pst_placement_ask *ask,
                                enum pst_placement_cost cost, int64_t cls);

/* Tells in the log what the plan caches, and reports it as "planner". reused: it is an earlier plan. */
PST_MUST_USE pst_rc pst_planner_report(struct pst_stage *self, const struct pst_plan *plan, bool reused);
/* Reports what the placement expects of a batch, as "placement". */
PST_MUST_USE pst_rc pst_planner_report_placement(struct pst_stage *self, const struct pst_plan_reads *r);

PST_END_DECLS
#endif
