/* ladies.c: layer-dependent importance sampling (Zou et al., "Layer-dependent importance sampling for
 * training deep and large graph convolutional networks", NeurIPS 2019; GIDS, section 4.7). A hop draws a
 * number of vertices for all destinations together, so a batch grows by that number, not by a factor. */
#include <stdlib.h>

#include "common/error.h"
#include "kernels/samplers.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/algorithms/scratch.h"

struct ladies {
    struct pst_ints layer_sizes;
    int64_t vertices; /* of the graph */
    uint64_t *scratch, *device_scratch;
};

static const struct pst_sampling_option options[] = {
    {.name = "layer_sizes",
     .type = PST_PARAM_INTS,
     .min = 1,
     .max = PST_MINIBATCH_COUNT_MAX,
     .into = offsetof(struct ladies, layer_sizes),
     .help = "vertices that each hop draws, for example 512:512; default: the numbers of fanout"},
    {0},
};

static pst_rc open_ladies(void *state, const struct pst_sampling_setup *setup)
{
    struct ladies *l = state;
    if (setup->replace)
        return pst_fail(PST_E_ARG, "this algorithm draws without replacement, but the parameter replace is "
                                   "true: set replace to false");
    if (l->layer_sizes.count != 0 && l->layer_sizes.count != (size_t)setup->hops)
        return pst_fail(PST_E_ARG,
                        "layer_sizes has %zu numbers, but fanout has %d: expected one for each hop",
                        l->layer_sizes.count, setup->hops);
    l->vertices = setup->graph->vertices;
    return pst_sampling_new_scratch(l->vertices, &l->scratch);
}

static void close_ladies(void *state)
{
    struct ladies *l = state;
    free(l->scratch);
}

static int traits(const void *state)
{
    (void)state;
    return PST_SAMPLING_WEIGHS | PST_SAMPLING_WHOLE | PST_SAMPLING_REPLAYS;
}

/* Vertices that a hop draws. With fanout -1: all. */
static int64_t size_of(const struct ladies *l, int64_t hop, int64_t fanout)
{
    return fanout < 0 ? l->vertices : l->layer_sizes.count > 0 ? l->layer_sizes.value[hop] : fanout;
}

static struct pst_sampling_bound bound(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n)
{
    const int64_t size = fanout == 0 ? 0 : pst_min_i64(size_of(state, hop, fanout), graph->vertices);
    return (struct pst_sampling_bound){.edges = fanout == 0 ? 0 : graph->edges, .vertices = n + size};
}

static struct pst_rng_stream stream_of(const struct pst_sample_key *key)
{
    return pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop);
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct ladies *l = state;
    const struct pst_rng_stream stream = stream_of(h->key);
    return pst_k_sample_ladies(NULL, h->graph, &stream, size_of(l, h->key->hop, h->fanout), h->vertices, h->n,
                               l->scratch, h->indptr, h->out, h->weight, h->capacity);
}

static pst_rc place(void *state, struct pst_device *device)
{
    struct ladies *l = state;
    return l->device_scratch != NULL ? PST_OK
                                     : pst_sampling_take_scratch(device, l->vertices, &l->device_scratch);
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct ladies *l = state;
    const struct pst_rng_stream stream = stream_of(h->key);
    return h->device->twin->sample_ladies_n(
        h->device->q, h->graph, &stream, size_of(l, h->key->hop, h->fanout), h->vertices, h->n,
        l->device_scratch, h->indptr, h->out, h->weight, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_ladies = {
    .abi = PST_SAMPLING_ABI,
    .name = "ladies",
    .help = "each hop draws a number of vertices for all destinations together",
    .options = options,
    .state_bytes = sizeof(struct ladies),
    .open = open_ladies,
    .close = close_ladies,
    .traits = traits,
    .bound = bound,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
