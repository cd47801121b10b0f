/* passthrough: the smallest stage, and the one to copy. What comes in by `in` leaves by `out`, untouched: the
 * slot travels, its bytes stay. Build: cc -shared -fPIC -o passthrough.so passthrough.c -lpenstock */
#include "common/stage.h"

struct state { /* one per running instance, zeroed by the host; a stage has no globals */
    int out;
};

static pst_rc open(struct pst_stage *self)
{
    ((struct state *)pst_state(self))->out = pst_port(self, "out"); /* ports have numbers at run time */
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    if (event->kind != PST_EV_FRAME)
        return PST_OK; /* credits, timers and the end of the input do not concern this stage */
    if (event->frame->flags & PST_LAST_PART)
        pst_count(self, 1, 0); /* one more item, for the report; this part gives the slot away */
    return pst_send(self, ((struct state *)pst_state(self))->out, event->frame);
}

#define ANYTHING .type = "any", .dtype = "any", .rank = -1, .memory = "cpu,cuda"
static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "anything", ANYTHING, .flags = PST_PORT_ASIDE},
    {.name = "out", .dir = PST_OUT, .help = "the same slots", .forwards = "in", ANYTHING},
    {0}}; /* a list ends with an entry without a name */
static const struct pst_param_desc params[] = {{0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "passthrough",
                                         .help = "forwards what it gets",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct state),
                                         .open = open, /* size and close are left out */
                                         .on_event = on_event};
