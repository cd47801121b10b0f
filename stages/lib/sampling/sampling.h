/* sampling.h: a sampler but for its algorithm: parameters, ports, shuffled seeds, blocks, cache, requests,
 * parts, micro-batches and reports. A sampler's author writes a pst_sample_fn (fill.h), a descriptor and four
 * callbacks of one line; stages/sampler.c is the example, and builds the same out of tree.
 *
 * Owner: pst_sampling_size makes *out, which the stage's state keeps; pst_sampling_close frees it and accepts
 * NULL. Threads: the stage's own. */
#ifndef PST_SAMPLING_H
#define PST_SAMPLING_H

#include "stages/lib/sampling/fill_device.h"
#include "common/stage.h"

PST_BEGIN_DECLS

/* The first entries of the stage's params. */
#define PST_SAMPLING_PARAMS                                                                                  \
    {.name = "fanout",                                                                                       \
     .type = PST_PARAM_INTS,                                                                                 \
     .def = "[10, 5]",                                                                                       \
     .min = -1,                                                                                              \
     .max = PST_FANOUT_MAX,                                                                                  \
     .help = "neighbours drawn per vertex in each hop, counted from the seeds; -1: all, 0: none"},           \
        {.name = "batch",                                                                                    \
         .type = PST_PARAM_INT,                                                                              \
         .def = "1024",                                                                                      \
         .min = 1,                                                                                           \
         .max = 16777216,                                                                                    \
         .help = "seeds in a batch"},                                                                        \
        {.name = "margin",                                                                                   \
         .type = PST_PARAM_REAL,                                                                             \
         .def = "1.1",                                                                                       \
         .min = 0.001,                                                                                       \
         .max = 1000,                                                                                        \
         .help = "a slot's size over the plan's largest batch; below 1, every batch is split"},              \
        {.name = "overflow",                                                                                 \
         .type = PST_PARAM_ENUM,                                                                             \
         .def = "\"split\"",                                                                                 \
         .choices = "split|error",                                                                           \
         .help = "what becomes of a batch that does not fit its slot"},                                      \
        {.name = "shuffle",                                                                                  \
         .type = PST_PARAM_BOOL,                                                                             \
         .def = "true",                                                                                      \
         .help = "a new order of the seeds every epoch"},                                                    \
        {.name = "gpu_topology",                                                                             \
         .type = PST_PARAM_BYTES,                                                                            \
         .def = "\"8GiB\"",                                                                                  \
         .min = 0,                                                                                           \
         .max = 1e15,                                                                                        \
         .help = "on a GPU: a topology up to this is copied there, a larger one read in pinned memory"},     \
        {.name = "plan",                                                                                     \
         .type = PST_PARAM_STRING,                                                                           \
         .def = "\"\"",                                                                                      \
         .help = "path of a plan.json, where the port plan is not linked"},                                  \
    {                                                                                                        \
        .name = "split", .type = PST_PARAM_ENUM, .def = "\"train\"", .choices = "train|val|test",            \
        .help = "whose vertices are the seeds"                                                               \
    }

/* The first entries of the stage's ports. */
#define PST_SAMPLING_PORTS_IN(memory_)                                                                       \
    {.name = "plan",                                                                                         \
     .dir = PST_IN,                                                                                          \
     .type = "plan",                                                                                         \
     .dtype = "any",                                                                                         \
     .rank = -1,                                                                                             \
     .memory = memory_,                                                                                      \
     .flags = PST_PORT_ONESHOT | PST_PORT_OPTIONAL,                                                          \
     .help = "the planner's plan: slot sizes and cached rows; without it slots have the worst case's size"}, \
    {                                                                                                        \
        .name = "batch", .dir = PST_OUT, .type = "minibatch", .dtype = "any", .rank = -1, .memory = memory_, \
        .splits_if = "overflow=split",                                                                       \
        .help = "minibatches; each part announces rows that the disk must bring"                             \
    }

#define PST_SAMPLING_PORTS PST_SAMPLING_PORTS_IN("cpu")

/* Of a sampler that pst_sampling_on_device has told how to sample on a GPU. */
#define PST_SAMPLING_PORTS_GPU                                                                               \
    PST_SAMPLING_PORTS_IN("cpu,pinned"),                                                                     \
    {                                                                                                        \
        .name = "cached", .dir = PST_OUT, .type = "rows", .dtype = "any", .rank = 2, .memory = "cuda",       \
        .flags = PST_PORT_OPTIONAL, .splits_if = "overflow=split",                                           \
        .help = "a batch's cached rows, where they need not leave the GPU; missing ones are left out"        \
    }

struct pst_sampling; /* one sampler's state */

PST_API PST_MUST_USE pst_rc pst_sampling_size(struct pst_stage *self, struct pst_sampling **out,
                                              pst_sample_fn sample, void *user);
/* Before open: how to sample where the stage is placed on a GPU. Without it that is refused. The stage's
 * ports are PST_SAMPLING_PORTS_GPU. */
PST_API void pst_sampling_on_device(struct pst_sampling *s, pst_device_sample_fn sample);
PST_API PST_MUST_USE pst_rc pst_sampling_open(struct pst_sampling *s);
PST_API PST_MUST_USE pst_rc pst_sampling_on_event(struct pst_sampling *s, const struct pst_event *event);
/* Reports, then frees. */
PST_API void pst_sampling_close(struct pst_sampling *s);

/* Reads the parameter `fanout`; PST_E_ARG unless it has 1 to PST_HOPS_MAX entries. */
PST_API PST_MUST_USE pst_rc pst_sampling_fanout(const struct pst_stage *self, int64_t *fanout, int *hops);

PST_END_DECLS
#endif
