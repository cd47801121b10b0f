/* sampling.h: a sampler stage without its algorithm: parameters, ports, shuffled seeds, slots, cache,
 * requests, micro-batches and reports. stages/sampler.c uses it, and has only a descriptor and four callbacks
 * of one line.
 *
 * Owner: pst_sampling_size makes *out, and the stage's state keeps it. pst_sampling_close frees it and
 * accepts NULL. Threads: the stage's own. */
#ifndef PST_SAMPLING_H
#define PST_SAMPLING_H

#include "common/stage.h"
#include "stages/lib/sampling/input.h"
#include "stages/lib/sampling/pairs/seed_pairs.h"

PST_BEGIN_DECLS

/* The parts of the dataset that a stage with PST_SAMPLING_PARAMS needs. */
#define PST_SAMPLING_DATASET_OF_SEEDS                                                                        \
    "types,parts,split:split:seeds=vertices,edges:seeds=edges,relations:fanout"

/* The values of the parameters. */
struct pst_sampling_params {
    struct pst_sampling_input_params input;
    double margin;
    bool split; /* split a batch that does not fit its slot; false: fail */
    enum pst_seeds_shuffle shuffle;
    int64_t grains;
    bool edges;        /* seeds are edges */
    int64_t negatives; /* of each edge */
    bool leave_out;
    bool in_place;
    const char *plan;
    const char *trace_ids; /* "": none */
};

/* The first entries of the stage's params. Their values are stored in a member of the stage's state of type
 * struct pst_sampling_params. A stage that lets the user choose the algorithm adds
 * PST_SAMPLING_ALGORITHM_PARAMS(state_, member_.input). */
#define PST_SAMPLING_PARAMS(state_, member_)                                                                 \
    PST_SAMPLING_INPUT_PARAMS(state_, member_.input),                                                        \
        {.name = "margin",                                                                                   \
         .type = PST_PARAM_REAL,                                                                             \
         .into = PST_INTO(state_, member_.margin),                                                           \
         .def = "1.1",                                                                                       \
         .min = 0.001,                                                                                       \
         .max = 1000,                                                                                        \
         .help = "size of a slot, in units of the plan's largest batch; below 1, every batch is split"},     \
        {.name = "overflow",                                                                                 \
         .type = PST_PARAM_ENUM,                                                                             \
         .into = PST_INTO(state_, member_.split),                                                            \
         .def = "\"split\"",                                                                                 \
         .choices = "error|split",                                                                           \
         .help = "a batch that does not fit its slot: split it into micro-batches, or stop with an error"},  \
        {.name = "shuffle",                                                                                  \
         .type = PST_PARAM_ENUM,                                                                             \
         .into = PST_INTO(state_, member_.shuffle),                                                          \
         .def = "\"global\"",                                                                                \
         .choices = PST_SEEDS_SHUFFLES,                                                                      \
         .help =                                                                                             \
             "the order of the seeds: global: a new one every epoch, which replicas share; local: each "     \
             "replica has its own seeds (of its rank's part, if the dataset is cut), and a new order of "    \
             "them every epoch, and batch counts the seeds of one replica; none: that of the dataset",       \
         .fixed = true,                                                                                      \
         .counted = 1 + PST_SEEDS_LOCAL},                                                                    \
        {.name = "grains",                                                                                   \
         .type = PST_PARAM_INT,                                                                              \
         .into = PST_INTO(state_, member_.grains),                                                           \
         .def = "1",                                                                                         \
         .min = 1,                                                                                           \
         .max = PST_MINIBATCH_GRAINS_MAX,                                                                    \
         .help = "number of equal parts (grains) into which each batch is cut; each grain is a "             \
                 "micro-batch, and the "                                                                     \
                 "replicas of the stage share the grains",                                                   \
         .fixed = true,                                                                                      \
         .divided = true},                                                                                   \
        {.name = "seeds",                                                                                    \
         .type = PST_PARAM_ENUM,                                                                             \
         .into = PST_INTO(state_, member_.edges),                                                            \
         .def = "\"vertices\"",                                                                              \
         .choices = "vertices|edges",                                                                        \
         .help = "what a model learns to predict: something of the vertices of a split; or the edges of "    \
                 "edges_train, whose ends are then the first vertices of a batch (link prediction). batch "  \
                 "counts edges then",                                                                        \
         .fixed = true},                                                                                     \
        {.name = "negatives",                                                                                \
         .type = PST_PARAM_INT,                                                                              \
         .into = PST_INTO(state_, member_.negatives),                                                        \
         .def = "1",                                                                                         \
         .min = 1,                                                                                           \
         .max = PST_SAMPLING_PAIRS_NEGATIVES_MAX,                                                            \
         .only_if = "seeds=edges",                                                                           \
         .help = "random pairs of vertices that are not edges, for each edge of a batch",                    \
         .fixed = true},                                                                                     \
        {.name = "leave_out",                                                                                \
         .type = PST_PARAM_BOOL,                                                                             \
         .into = PST_INTO(state_, member_.leave_out),                                                        \
         .def = "true",                                                                                      \
         .only_if = "seeds=edges",                                                                           \
         .help = "leave a batch's edges, in both directions, out of the neighbourhoods sampled for it",      \
         .fixed = true},                                                                                     \
        {.name = "in_place",                                                                                 \
         .type = PST_PARAM_BOOL,                                                                             \
         .into = PST_INTO(state_, member_.in_place),                                                         \
         .def = "true",                                                                                      \
         .help = "leave cached rows in the cache, on a CPU, if all stages that get the slots can read them " \
                 "there; false: copy them to the slots. Results do not depend on it"},                       \
        {.name = "trace_ids",                                                                                \
         .type = PST_PARAM_STRING,                                                                           \
         .into = PST_INTO(state_, member_.trace_ids),                                                        \
         .def = "\"\"",                                                                                      \
         .help = "write the ids of each batch's vertices to this file, for `penstock replay`",               \
         .path = PST_PATH_FILE},                                                                             \
    {                                                                                                        \
        .name = "plan", .type = PST_PARAM_STRING, .into = PST_INTO(state_, member_.plan), .def = "\"\"",     \
        .help = "path of a plan.json, if the port plan is not linked", .path = PST_PATH_FILE                 \
    }

/* The first entries of the stage's ports. */
#define PST_SAMPLING_PORTS_IN(memory_, lists_memory_, flags_)                                                \
    {.name = "plan",                                                                                         \
     .dir = PST_IN,                                                                                          \
     .help = "the planner's plan: slot sizes and cached rows; without it, slots fit the worst case",         \
     .type = "plan",                                                                                         \
     .dtype = "any",                                                                                         \
     .rank = -1,                                                                                             \
     .memory = memory_,                                                                                      \
     .flags = PST_PORT_ONESHOT | PST_PORT_OPTIONAL},                                                         \
        {.name = "listed",                                                                                   \
         .dir = PST_IN,                                                                                      \
         .help = "topology ssd: the slots of lists, with what they asked for",                               \
         .type = "lists",                                                                                    \
         .dtype = "any",                                                                                     \
         .rank = -1,                                                                                         \
         .memory = lists_memory_,                                                                            \
         .flags = PST_PORT_OPTIONAL},                                                                        \
        {.name = "lists",                                                                                    \
         .dir = PST_OUT,                                                                                     \
         .help = "topology ssd: slots that ask a disk stage for parts of the topology",                      \
         .type = "lists",                                                                                    \
         .dtype = "any",                                                                                     \
         .rank = -1,                                                                                         \
         .memory = lists_memory_,                                                                            \
         .requests = PST_REQUESTS_MAKES,                                                                     \
         .flags = PST_PORT_OPTIONAL},                                                                        \
    {                                                                                                        \
        .name = "batch", .dir = PST_OUT, .help = "minibatches; each part requests feature rows",             \
        .type = "minibatch", .dtype = "any", .rank = -1, .memory = memory_, .requests = PST_REQUESTS_MAKES,  \
        .flags = flags_, .splits_if = "overflow=split"                                                       \
    }

/* Ports of a stage whose algorithm runs only on CPUs. */
#define PST_SAMPLING_PORTS PST_SAMPLING_PORTS_IN("cpu", "cpu", 0)

/* Ports of a stage that can be placed on a GPU. */
#define PST_SAMPLING_PORTS_GPU                                                                               \
    PST_SAMPLING_PORTS_IN("cpu,pinned if seeds=vertices", "cpu,pinned if topology=mmap|memory",              \
                          PST_PORT_OPTIONAL),                                                                \
        {.name = "sample",                                                                                   \
         .dir = PST_OUT,                                                                                     \
         .help = "minibatches without rows, for a cache stage; then batch is not linked",                    \
         .type = "sample",                                                                                   \
         .dtype = "any",                                                                                     \
         .rank = -1,                                                                                         \
         .memory = "cpu,pinned",                                                                             \
         .flags = PST_PORT_OPTIONAL,                                                                         \
         .splits_if = "overflow=split"},                                                                     \
    {                                                                                                        \
        .name = "cached", .dir = PST_OUT,                                                                    \
        .help = "the cached rows of a batch, which can stay in GPU memory; missing rows are left out",       \
        .type = "rows", .dtype = "any", .rank = 2, .memory = "cuda", .flags = PST_PORT_OPTIONAL,             \
        .splits_if = "overflow=split"                                                                        \
    }

struct pst_sampling; /* one sampler's state */

/* params: must live as long as *out. own: the stage's own algorithm, and its state (NULL: the library makes
 * one). If own is NULL, the stage has PST_SAMPLING_ALGORITHM_PARAMS. If own is NULL or has draw_on_device,
 * its ports are PST_SAMPLING_PORTS_GPU.
 */
PST_API PST_MUST_USE pst_rc pst_sampling_size(struct pst_stage *self,
                                              const struct pst_sampling_params *params,
                                              struct pst_sampling **out,
                                              const struct pst_sampling_algorithm *own, void *own_state);
PST_API PST_MUST_USE pst_rc pst_sampling_open(struct pst_sampling *s);
PST_API PST_MUST_USE pst_rc pst_sampling_on_event(struct pst_sampling *s, const struct pst_event *event);
/* Reports, then frees. */
PST_API void pst_sampling_close(struct pst_sampling *s);

/* Are all batches complete that the stage has begun? On a CPU, without topology ssd. */
PST_API bool pst_sampling_between_batches(const struct pst_sampling *s);

PST_END_DECLS
#endif
