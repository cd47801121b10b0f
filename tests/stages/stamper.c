/* stamper: the host writes the last word of each slot, and touches nothing else of it: what a disk does. */
#include "tests/stages/streams.h"

struct stamper {
    uint64_t bytes; /* of a slot */
};

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    uint64_t bytes;
    if (ev->kind != PST_EV_FRAME)
        return PST_OK;
    uint64_t *slot = pst_slot(self, ev->frame->refs[0], &bytes);
    if (!slot)
        return PST_E_STATE;
    slot[((struct stamper *)pst_state(self))->bytes / sizeof *slot - 1] = streams_word(ev->frame->batch);
    return pst_send(self, 1, ev->frame);
}

static const struct pst_port_desc ports[] = {{.name = "in",
                                              .dir = PST_IN,
                                              .help = "slots",
                                              .type = "words",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu,pinned",
                                              .flags = PST_PORT_WRITES | PST_PORT_ASIDE},
                                             {.name = "out",
                                              .dir = PST_OUT,
                                              .help = "the same slots",
                                              .type = "words",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu,pinned",
                                              .forwards = "in"},
                                             {0}};

static const struct pst_param_desc params[] = {{.name = "bytes",
                                                .type = PST_PARAM_BYTES,
                                                .into = PST_INTO(struct stamper, bytes),
                                                .def = "4096",
                                                .min = 16,
                                                .max = 1e12,
                                                .help = "size of a slot"},
                                               {0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "stamper",
                                         .help = "writes the last word of slots",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct stamper),
                                         .on_event = on_event};
