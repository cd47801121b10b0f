/* input.h: the inputs of sampling: dataset, graph, seeds and algorithm, from the parameters that the planner
 * and the samplers share.
 *
 * Owner: the caller owns struct pst_sampling_input. pst_sampling_input_open fills it.
 * pst_sampling_input_close releases it, and accepts a zeroed struct. It must not be moved between the two
 * calls, because the algorithm has a pointer to its graph. Threads: the stage's thread. */
#ifndef PST_SAMPLING_INPUT_H
#define PST_SAMPLING_INPUT_H

#include "common/stage.h"
#include "common/store/store.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/topology/topology.h"

PST_BEGIN_DECLS

/* The values of the parameters. */
struct pst_sampling_input_params {
    enum pst_topology_from topology;
    struct pst_named_ints fanout; /* by edge type, or a list */
    int64_t batch;
    const char *split;
    uint64_t gpu_topology_bytes;
    const char *algorithm, *options; /* NULL: the stage brings its own algorithm */
    bool replace;
};

/* The parts of the dataset that every sampling stage needs. */
#define PST_SAMPLING_DATASET "types,parts,split:split,relations:fanout"

/* Parameters of every sampling stage. Their values are stored in a member of the stage's state of type struct
 * pst_sampling_input_params. The values of a sampler must be equal to those of the planner that its input
 * `plan` is linked to. */
#define PST_SAMPLING_INPUT_PARAMS(state_, member_)                                                           \
    {.name = "fanout",                                                                                       \
     .type = PST_PARAM_NAMED_INTS,                                                                           \
     .into = PST_INTO(state_, member_.fanout),                                                               \
     .def = "[10, 5]",                                                                                       \
     .min = -1,                                                                                              \
     .max = PST_FANOUT_MAX,                                                                                  \
     .count_min = 1,                                                                                         \
     .count_max = PST_HOPS_MAX,                                                                              \
     .equals = "plan.fanout",                                                                                \
     .only_if = "algorithm=typed",                                                                           \
     .help = "neighbours drawn per vertex in each hop, counted from the seeds; -1: all, 0: none. With "      \
             "algorithm typed, it can be an object that has such a list for each edge type: "                \
             "{\"author:writes:paper\": [10, 5], \"*\": [5, 5]}; \"*\" stands for all other types",          \
     .fixed = true},                                                                                         \
        {.name = "batch",                                                                                    \
         .type = PST_PARAM_INT,                                                                              \
         .into = PST_INTO(state_, member_.batch),                                                            \
         .def = "1024",                                                                                      \
         .min = 1,                                                                                           \
         .max = 16777216,                                                                                    \
         .equals = "plan.batch",                                                                             \
         .help = "seeds in a batch",                                                                         \
         .fixed = true},                                                                                     \
        {.name = "split",                                                                                    \
         .type = PST_PARAM_STRING,                                                                           \
         .into = PST_INTO(state_, member_.split),                                                            \
         .def = "\"train\"",                                                                                 \
         .equals = "plan.split",                                                                             \
         .help = "the seeds: train, val or test; or a split of the dataset by its name: NAME, NAME:val, "    \
                 "NAME:test",                                                                                \
         .fixed = true},                                                                                     \
        {.name = "topology",                                                                                 \
         .type = PST_PARAM_ENUM,                                                                             \
         .into = PST_INTO(state_, member_.topology),                                                         \
         .def = "\"mmap\"",                                                                                  \
         .choices = "mmap|memory|ssd",                                                                       \
         .choice_if = "ssd if algorithm=uniform",                                                            \
         .help = "where the edges are: mmap: in mapped files, of which the system keeps parts in memory; "   \
                 "memory: all in memory; ssd: a disk stage reads the sectors with the drawn neighbours"},    \
    {                                                                                                        \
        .name = "gpu_topology", .type = PST_PARAM_BYTES,                                                     \
        .into = PST_INTO(state_, member_.gpu_topology_bytes), .def = "\"8GiB\"", .min = 0, .max = 1e15,      \
        .help = "on a GPU: copy the topology there if it is at most this large; else read it in host "       \
                "memory; with shared caches it is not used"                                                  \
    }

/* The same for stages whose algorithm the user chooses. */
#define PST_SAMPLING_ALGORITHM_PARAMS(state_, member_)                                                       \
    {.name = "algorithm",                                                                                    \
     .type = PST_PARAM_STRING,                                                                               \
     .into = PST_INTO(state_, member_.algorithm),                                                            \
     .def = "\"uniform\"",                                                                                   \
     .equals = "plan.algorithm",                                                                             \
     .help = "the sampling algorithm: uniform, labor, ladies, weighted, typed, temporal, buffered, or the "  \
             "path of a shared object, for example "                                                         \
             "./mine.so; README.md of stages/lib/sampling/algorithms describes them",                        \
     .fixed = true,                                                                                          \
     .path = PST_PATH_OR_NAME},                                                                              \
        {.name = "options",                                                                                  \
         .type = PST_PARAM_STRING,                                                                           \
         .into = PST_INTO(state_, member_.options),                                                          \
         .def = "\"\"",                                                                                      \
         .equals = "plan.options",                                                                           \
         .help = "the algorithm's own parameters: \"NAME=VALUE, NAME=VALUE\"",                               \
         .fixed = true},                                                                                     \
    {                                                                                                        \
        .name = "replace", .type = PST_PARAM_BOOL, .into = PST_INTO(state_, member_.replace),                \
        .def = "false", .equals = "plan.replace", .help = "may draw the same neighbour more than once",      \
        .fixed = true                                                                                        \
    }

/* How seeds are ordered, and whether they are divided (pst_seeds_divide). */
struct pst_sampling_order {
    uint64_t seed;
    bool shuffle;
    int replica, replicas; /* replicas 0: they are not divided */
    const int8_t *owner; /* with replicas: the replica that has each of `vertices` vertices; NULL: by hash */
    int64_t vertices;
    bool own_part; /* if the dataset is a part of a cut one: only the seeds of the part; replicas must be 0 */
    bool edges;    /* seeds are the rows of edges_train, not vertices of the split */
};

struct pst_sampling_input {
    struct pst_dataset ds;
    struct pst_csc graph; /* the mapped files */
    struct pst_seeds seeds;
    struct pst_plan_key key;     /* all but cache_budget_bytes */
    int64_t *fanout_by_relation; /* as in pst_sampling_setup */
    struct pst_sampling_opened algorithm;
};

/* own: the stage's built-in algorithm; own_state: its state, or NULL. If own is NULL, the parameters
 * PST_SAMPLING_ALGORITHM_PARAMS of the stage choose the algorithm. PST_E_ARG: a parameter is wrong. */
PST_API PST_MUST_USE pst_rc pst_sampling_input_open(struct pst_sampling_input *in, struct pst_stage *self,
                                                    const struct pst_sampling_input_params *params,
                                                    const struct pst_sampling_algorithm *own, void *own_state,
                                                    struct pst_sampling_order order);
PST_API void pst_sampling_input_close(struct pst_sampling_input *in);

/* Computes an upper bound of the size of any batch. */
PST_API void pst_sampling_input_bound(const struct pst_sampling_input *in, struct pst_minibatch_size *bound);

PST_END_DECLS
#endif
