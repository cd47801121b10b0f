/* sampler.c: the sampler stage. Its algorithm is a parameter (stages/lib/sampling/algorithms/algorithms.h);
 * everything else is in stages/lib/sampling. */
#include "stages/lib/sampling/sampling.h"

struct sampler {
    struct pst_sampling_params params;
    struct pst_sampling *sampling;
};

static struct sampler *state(struct pst_stage *self)
{
    return pst_state(self);
}

static pst_rc size(struct pst_stage *self)
{
    return pst_sampling_size(self, &state(self)->params, &state(self)->sampling, NULL, NULL);
}

static pst_rc open_stage(struct pst_stage *self)
{
    return pst_sampling_open(state(self)->sampling);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return pst_sampling_on_event(state(self)->sampling, event);
}

static void close_stage(struct pst_stage *self)
{
    pst_sampling_close(state(self)->sampling);
}

static const struct pst_port_desc ports[] = {PST_SAMPLING_PORTS_GPU, {0}};
static const struct pst_param_desc params[] = {
    PST_SAMPLING_PARAMS(struct sampler, params),
    PST_SAMPLING_ALGORITHM_PARAMS(struct sampler, params.input),
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "sampler",
    .help = "samples neighbourhoods of shuffled seeds into minibatches",
    .ports = ports,
    .params = params,
    .replicas = PST_REPLICAS_EACH,
    .dataset = PST_SAMPLING_DATASET_OF_SEEDS,
    .state_bytes = sizeof(struct sampler),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
