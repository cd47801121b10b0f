/* raiser: adds one to the first word of every slot whose batch is even, and returns it changed. */
#include "common/stage.h"

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    if (ev->kind != PST_EV_FRAME || !(ev->frame->flags & PST_LAST_PART))
        return PST_OK;
    uint64_t *word = pst_slot(self, ev->frame->refs[0], NULL);
    if (!word)
        return PST_E_STATE;
    bool change = ev->frame->batch % 2 == 0;
    word[0] += change;
    pst_count(self, 1, 0);
    return pst_release(self, ev->frame->refs[0], change);
}

static const struct pst_port_desc ports[] = {
    {.name = "in",
     .dir = PST_IN,
     .help = "slots on loan",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu",
     .flags = PST_PORT_WRITES},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "raiser",
                                         .help = "changes what it borrows",
                                         .ports = ports,
                                         .on_event = on_event};
