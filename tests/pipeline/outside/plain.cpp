// plain: the shipped sampler as a stage in C++20: the macros of the SDK compile there, too.
#include <penstock/stages/lib/sampling/sampling.h>

namespace
{
enum class kind { plain, other };

struct state {
    pst_sampling_params params;
    pst_sampling *sampling;
    kind chosen;
};

state *of(struct pst_stage *self)
{
    return static_cast<state *>(pst_state(self));
}

pst_rc size(struct pst_stage *self)
{
    if (of(self)->chosen != kind::plain)
        return pst_fail(PST_E_ARG, "kind: found another than the default");
    return pst_sampling_size(self, &of(self)->params, &of(self)->sampling, nullptr, nullptr);
}

pst_rc open(struct pst_stage *self)
{
    return pst_sampling_open(of(self)->sampling);
}

pst_rc on_event(struct pst_stage *self, const pst_event *event)
{
    return pst_sampling_on_event(of(self)->sampling, event);
}

void close(struct pst_stage *self)
{
    pst_sampling_close(of(self)->sampling);
}

const pst_port_desc ports[] = {PST_SAMPLING_PORTS_GPU, {}};
const pst_param_desc params[] = {PST_SAMPLING_PARAMS(state, params),
                                 PST_SAMPLING_ALGORITHM_PARAMS(state, params.input),
                                 {.name = "kind",
                                  .type = PST_PARAM_ENUM,
                                  .into = PST_INTO(state, chosen),
                                  .def = "\"plain\"",
                                  .choices = "plain|other",
                                  .help = "out of memory: cannot allocate the test"},
                                 {}};
} // namespace

const pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                  .name = "plain",
                                  .help = "samples as the shipped sampler does",
                                  .ports = ports,
                                  .params = params,
                                  .dataset = PST_SAMPLING_DATASET,
                                  .state_bytes = sizeof(state),
                                  .size = size,
                                  .open = open,
                                  .on_event = on_event,
                                  .close = close};
