/* uniform.c: uniform neighbour sampling (GraphSAGE, Hamilton et al. 2017, section 3.1). */
#include <math.h>

#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

struct uniform {
    bool replace;
};

static pst_rc open_uniform(void *state, const struct pst_sampling_setup *setup)
{
    struct uniform *u = state;
    u->replace = setup->replace;
    return PST_OK;
}

static int traits(const void *state)
{
    (void)state;
    return PST_SAMPLING_REPLAYS;
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct uniform *u = state;
    return pst_k_sample(NULL, h->graph, h->key, h->vertices, h->n, h->fanout, u->replace, h->indptr, h->out,
                        h->capacity);
}

static pst_rc pick(void *state, const struct pst_sampling_pick *h)
{
    const struct uniform *u = state;
    return pst_k_pick(NULL, h->key, h->vertices, h->degrees, h->n, h->fanout, u->replace, h->indptr,
                      h->positions, h->capacity);
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct uniform *u = state;
    return h->device->twin->sample_n(h->device->q, h->graph, h->key, h->vertices, h->n, h->fanout, u->replace,
                                     h->indptr, h->out, h->capacity, h->total);
}

static double keep_probability(const void *state, int64_t degree, int64_t copies, int64_t fanout)
{
    const struct uniform *u = state;
    double none = 1; /* the probability that no copy is drawn */
    if (fanout < 0)
        return 1;
    if (u->replace)
        return 1 - pow(1 - (double)copies / (double)degree, (double)fanout);
    for (int64_t i = 0; i < copies && none > 0; i++)
        none *= (double)pst_max_i64(0, degree - fanout - i) / (double)(degree - i);
    return 1 - none;
}

const struct pst_sampling_algorithm pst_sampling_uniform = {
    .abi = PST_SAMPLING_ABI,
    .name = "uniform",
    .help = "each in-neighbour is as likely as any other",
    .state_bytes = sizeof(struct uniform),
    .open = open_uniform,
    .traits = traits,
    .draw = draw,
    .pick = pick,
    .draw_on_device = draw_on_device,
    .keep_probability = keep_probability,
};
