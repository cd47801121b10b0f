/* passthrough.c: the smallest stage, and the one to copy. What comes in at `in` goes out at `out`
 * unchanged: the slot travels, its bytes stay. Build: cc -shared -fPIC -o passthrough.so passthrough.c
 * -lpenstock */
#include "common/stage.h"

struct state { /* one for each running instance, zeroed by the host; a stage has no globals */
    int out;
};

static pst_rc open(struct pst_stage *self)
{
    ((struct state *)pst_state(self))->out = pst_port(self, "out"); /* ports are numbers at run time */
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    if (event->kind != PST_EV_FRAME)
        return PST_OK; /* this stage ignores credits, timers and the end of the input */
    if (event->frame->flags & PST_LAST_PART)
        pst_count(self, 1, 0); /* counts an item for the report; the last part gives the slot away */
    return pst_send(self, ((struct state *)pst_state(self))->out, event->frame);
}

#define ANYTHING .type = "any", .dtype = "any", .rank = -1, .memory = "cpu,cuda"
static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "anything", ANYTHING, .flags = PST_PORT_ASIDE | PST_PORT_IN_PLACE},
    {.name = "out", .dir = PST_OUT, .help = "the same slots", .forwards = "in", ANYTHING},
    {0}}; /* the list ends with an entry without a name */
static const struct pst_param_desc params[] = {{0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "passthrough",
                                         .help = "forwards its input unchanged",
                                         .ports = ports,
                                         .params = params,
                                         .replicas = PST_REPLICAS_EACH,
                                         .state_bytes = sizeof(struct state),
                                         .open = open, /* size and close are optional */
                                         .on_event = on_event};
