/* labor.c: layer-neighbour sampling (Balin & Catalyurek, "Layer-neighbor sampling: defusing neighborhood
 * explosion in GNNs", NeurIPS 2023). All destinations of a hop rank their neighbours by the same random
 * numbers, so they choose the same vertices where they can, and a batch has fewer of them. Without
 * iterations, a destination keeps the `fanout` neighbours of the smallest ranks: each subset of them is as
 * likely as any other, so the plain mean is right. Between batches, ranks may change slowly, so that a cache
 * of rows helps more. */
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "kernels/samplers.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/algorithms/scratch.h"

struct labor {
    int64_t iterations, batch_dependency;
    bool layer_dependency;
    uint64_t batches;
    int64_t vertices;                   /* of the graph */
    uint64_t *scratch, *device_scratch; /* with iterations */
};

static const struct pst_sampling_option options[] = {
    {.name = "iterations",
     .type = PST_PARAM_INT,
     .max = 100,
     .into = offsetof(struct labor, iterations),
     .help = "steps that make useful neighbours likelier: fewer vertices, edges with weights"},
    {.name = "layer_dependency",
     .type = PST_PARAM_BOOL,
     .max = 1,
     .into = offsetof(struct labor, layer_dependency),
     .help = "1: all hops of a batch use the same ranks"},
    {.name = "batch_dependency",
     .type = PST_PARAM_INT,
     .def = 1,
     .min = 1,
     .max = 1e6,
     .into = offsetof(struct labor, batch_dependency),
     .help = "batches until the ranks are new; 1: each batch has its own"},
    {0},
};

static pst_rc open_labor(void *state, const struct pst_sampling_setup *setup)
{
    struct labor *l = state;
    if (setup->replace)
        return pst_fail(PST_E_ARG, "this algorithm draws without replacement, but the parameter replace is "
                                   "true: set replace to false");
    l->batches = setup->batches;
    l->vertices = setup->graph->vertices;
    if (l->iterations == 0)
        return PST_OK;
    return pst_sampling_new_scratch(l->vertices, &l->scratch);
}

static void close_labor(void *state)
{
    struct labor *l = state;
    free(l->scratch);
}

static int traits(const void *state)
{
    const struct labor *l = state;
    return l->iterations > 0 ? PST_SAMPLING_WEIGHS | PST_SAMPLING_WHOLE : 0;
}

/* With iterations, the number of neighbours is random. */
static struct pst_sampling_bound bound(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n)
{
    const struct labor *l = state;
    const int64_t edges = fanout < 0 || (l->iterations > 0 && fanout > 0) ? graph->edges : n * fanout;
    (void)hop;
    return (struct pst_sampling_bound){.edges = edges, .vertices = n + edges};
}

/* The ranks of a hop. With a dependency of K batches, those of batch b are between the normal numbers of
 * groups b / K and b / K + 1, counted over the run. */
static struct pst_k_ranks ranks_of(const struct labor *l, const struct pst_sample_key *key)
{
    const uint32_t hop = l->layer_dependency ? 0 : key->hop;
    const uint64_t batch = (uint64_t)key->epoch * l->batches + key->batch, k = (uint64_t)l->batch_dependency,
                   group = batch / k;
    const double angle = acos(-1) / 2 * (double)(batch % k) / (double)k;
    if (k == 1)
        return (struct pst_k_ranks){
            .stream = {pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, hop)}};
    return (struct pst_k_ranks){.stream = {pst_rng_stream_of(PST_RNG_GROUP, key->seed, 0, group, hop),
                                           pst_rng_stream_of(PST_RNG_GROUP, key->seed, 0, group + 1, hop)},
                                .mixed = true,
                                .near = cos(angle),
                                .far = sin(angle)};
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct labor *l = state;
    const struct pst_k_ranks ranks = ranks_of(l, h->key);
    if (l->iterations == 0)
        return pst_k_sample_ranked(NULL, h->graph, &ranks, h->vertices, h->n, h->fanout, h->indptr, h->out,
                                   h->capacity);
    const int fanout = h->fanout < 0 ? INT32_MAX : h->fanout;
    return pst_k_sample_labor(NULL, h->graph, &ranks, (int)l->iterations, h->vertices, h->n, fanout,
                              l->scratch, h->indptr, h->out, h->weight, h->capacity);
}

static pst_rc place(void *state, struct pst_device *device)
{
    struct labor *l = state;
    return l->iterations == 0 || l->device_scratch != NULL
               ? PST_OK
               : pst_sampling_take_scratch(device, l->vertices, &l->device_scratch);
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct labor *l = state;
    const struct pst_k_ranks ranks = ranks_of(l, h->key);
    const struct pst_twin *twin = h->device->twin;
    if (l->iterations == 0)
        return twin->sample_ranked_n(h->device->q, h->graph, &ranks, h->vertices, h->n, h->fanout, h->indptr,
                                     h->out, h->capacity, h->total);
    const int fanout = h->fanout < 0 ? INT32_MAX : h->fanout;
    return twin->sample_labor_n(h->device->q, h->graph, &ranks, (int)l->iterations, h->vertices, h->n, fanout,
                                l->device_scratch, h->indptr, h->out, h->weight, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_labor = {
    .abi = PST_SAMPLING_ABI,
    .name = "labor",
    .help = "the destinations of a hop choose the same neighbours where they can",
    .options = options,
    .state_bytes = sizeof(struct labor),
    .open = open_labor,
    .close = close_labor,
    .traits = traits,
    .bound = bound,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
