/* uniform.c: uniform neighbour sampling (GraphSAGE, Hamilton et al. 2017, section 3.1). */
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms.h"

struct uniform {
    bool replace;
};

static pst_rc open_uniform(void *state, const struct pst_sampling_setup *setup)
{
    struct uniform *u = state;
    u->replace = setup->replace;
    return PST_OK;
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct uniform *u = state;
    return pst_k_sample(NULL, h->graph, h->key, h->vertices, h->n, h->fanout, u->replace, h->indptr, h->out,
                        h->capacity);
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct uniform *u = state;
    return h->device->twin->sample_n(h->device->q, h->graph, h->key, h->vertices, h->n, h->fanout, u->replace,
                                     h->indptr, h->out, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_uniform = {
    .abi = PST_SAMPLING_ABI,
    .name = "uniform",
    .help = "each in-neighbour is as likely as any other",
    .state_bytes = sizeof(struct uniform),
    .open = open_uniform,
    .draw = draw,
    .draw_on_device = draw_on_device,
};
