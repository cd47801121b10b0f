/* shared_caches.h: caches that the replicas of the sampler have for one another, by the policies of Legion
 * (stages/lib/legion): cliques, parts of the graph, hotness sampled ahead, and what each replica keeps.
 *
 * Owner: the planner, which lends input and plan. pst_planner_shared_release accepts a zeroed struct.
 * Threads: the stage's own. */
#ifndef PST_PLANNER_SHARED_CACHES_H
#define PST_PLANNER_SHARED_CACHES_H

#include "common/stage.h"
#include "stages/lib/legion/legion.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/input.h"

PST_BEGIN_DECLS

struct pst_planner_shared {
    /* parameters */
    const char *machine; /* the file; "": every replica reaches every other */
    double alpha;        /* negative: searched */
    bool cslp_as_printed;
    int64_t partition_entries;
    enum pst_legion_policy policy;
    uint32_t line_bytes;
    /* the replicas that get the plan */
    int replicas;
    uint64_t links[PST_CLIQUES_MAX];
    int64_t grains;
    bool local, in_order;
    /* results */
    struct pst_legion legion;
    struct pst_legion_traffic traffic[PST_CLIQUES_MAX]; /* predicted, of an epoch; of each replica */
    double epochs;                                      /* that traffic counts together */
    uint64_t rows, rows_cached; /* predicted: all reads, and those that find a cached row */
};

#define PST_PLANNER_SHARED_PARAMS(state_, member_)                                                           \
    {.name = "machine",                                                                                      \
     .type = PST_PARAM_STRING,                                                                               \
     .into = PST_INTO(state_, member_.machine),                                                              \
     .def = "\"\"",                                                                                          \
     .fixed = true,                                                                                          \
     .path = PST_PATH_MACHINE,                                                                               \
     .help = "policy legion and those after it: the machine file that says which replicas can read each "    \
             "other's memory (pipelines/machines has some); cpu:1 or cuda:0 is its device 0; without a "     \
             "file, all replicas on CPUs can, and those on GPUs if CUDA says so"},                           \
        {.name = "alpha",                                                                                    \
         .type = PST_PARAM_REAL,                                                                             \
         .into = PST_INTO(state_, member_.alpha),                                                            \
         .def = "-1",                                                                                        \
         .min = -1,                                                                                          \
         .max = 1,                                                                                           \
         .help = "policy legion: the part of gpu_cache that lists of neighbours get; negative: the part "    \
                 "with the fewest predicted transactions"},                                                  \
        {.name = "cslp",                                                                                     \
         .type = PST_PARAM_ENUM,                                                                             \
         .into = PST_INTO(state_, member_.cslp_as_printed),                                                  \
         .def = "\"room\"",                                                                                  \
         .choices = "room|paper",                                                                            \
         .help =                                                                                             \
             "policy legion: which replica of a clique keeps a vertex: room: the hottest that has room; "    \
             "paper: Legion's Algorithm 1 as printed"},                                                      \
    {                                                                                                        \
        .name = "partition_entries", .type = PST_PARAM_INT,                                                  \
        .into = PST_INTO(state_, member_.partition_entries), .def = "2147483647", .min = 1,                  \
        .max = 2147483647, .fixed = true,                                                                    \
        .help = "policy legion: if the graph has more entries of adjacency, METIS gets a sample of its "     \
                "edges; an entry takes 8 bytes while METIS runs"                                             \
    }

/* In `size`: who gets the plan, and which of them reach each other. Names the policy in plan->key. port: the
 * output that publishes the plan. PST_E_ARG, PST_E_UNSUPPORTED: the policy cannot be had with these settings;
 * the message says why. */
pst_rc pst_planner_shared_size(struct pst_planner_shared *s, struct pst_stage *self, int port,
                               const struct pst_sampling_input *in, enum pst_topology_from topology,
                               struct pst_plan *plan);

/* Chooses all caches: plan->caches, and the rows of the CPU tier. own_batches: the batches that are sampled
 * ahead are the run's own. Predicts what an epoch reads, and plan->predicted_hit_rate. */
pst_rc pst_planner_shared_place(struct pst_planner_shared *s, const struct pst_sampling_input *in,
                                bool own_batches, struct pst_plan *plan);

/* Adds the prediction to the report. */
pst_rc pst_planner_shared_report(const struct pst_planner_shared *s, struct pst_stage *self,
                                 uint64_t row_bytes);
void pst_planner_shared_release(struct pst_planner_shared *s);

PST_END_DECLS
#endif
