/* sampler: uniform neighbour sampling. All but the algorithm is in lib/sampling.h. */
#include "stages/lib/sampling/sampling.h"

struct sampler {
    struct pst_sampling *sampling;
    bool replace;
};

static pst_rc draw(void *user, const struct pst_csc *graph, const struct pst_sample_key *key,
                   const int64_t *vertices, int64_t n, int fanout, int32_t *indptr, int64_t *out,
                   int64_t capacity)
{
    const struct sampler *s = user;
    return pst_k_sample(NULL, graph, key, vertices, n, fanout, s->replace, indptr, out, capacity);
}

static pst_rc draw_on_device(void *user, const struct pst_device *device, const struct pst_csc *graph,
                             const struct pst_sample_key *key, const int64_t *vertices, struct pst_twin_n n,
                             int fanout, int32_t *indptr, int64_t *out, int64_t capacity, int64_t *total)
{
    const struct sampler *s = user;
    return device->twin->sample_n(device->q, graph, key, vertices, n, fanout, s->replace, indptr, out,
                                  capacity, total);
}

static pst_rc size(struct pst_stage *self)
{
    struct sampler *s = pst_state(self);
    s->replace = pst_param_bool(self, "replace");
    const pst_rc rc = pst_sampling_size(self, &s->sampling, draw, s);
    if (rc == PST_OK)
        pst_sampling_on_device(s->sampling, draw_on_device);
    return rc;
}

static pst_rc open_stage(struct pst_stage *self)
{
    return pst_sampling_open(((struct sampler *)pst_state(self))->sampling);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return pst_sampling_on_event(((struct sampler *)pst_state(self))->sampling, event);
}

static void close_stage(struct pst_stage *self)
{
    pst_sampling_close(((struct sampler *)pst_state(self))->sampling);
}

static const struct pst_port_desc ports[] = {PST_SAMPLING_PORTS_GPU, {0}};

static const struct pst_param_desc params[] = {
    PST_SAMPLING_PARAMS,
    {.name = "replace",
     .type = PST_PARAM_BOOL,
     .def = "false",
     .help = "may draw a neighbour more than once"},
    {0},
};

PST_API extern const struct pst_stage_desc pst_stage;
const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "sampler",
    .help = "samples neighbourhoods of shuffled seeds, uniformly, into minibatches",
    .ports = ports,
    .params = params,
    .state_bytes = sizeof(struct sampler),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
