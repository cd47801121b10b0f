/* passthrough: the smallest stage, and the one to copy. What comes in by `in` leaves by `out`, untouched: the
 * slot travels, its bytes stay. Build: cc -shared -fPIC -o passthrough.so passthrough.c -lpenstock */
#include "stage.h"

struct state { /* one per running instance; zeroed by the host; a stage has no globals */
    int out;
};

static pst_rc open(struct pst_stage *self)
{
    struct state *s = pst_state(self);
    s->out = pst_port(self, "out"); /* ports are numbers at run time */
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct state *s = pst_state(self);
    if (event->kind != PST_EV_FRAME)
        return PST_OK; /* credits, timers and the end of the input do not concern this stage */
    if (event->frame->flags & PST_LAST_PART)
        pst_count(self, 1, 0);                   /* for the report and `penstock top` */
    return pst_send(self, s->out, event->frame); /* every part; the last one gives the slot away */
}

static const struct pst_port_desc ports[] = {{.name = "in",
                                              .dir = PST_IN,
                                              .type = "any",
                                              .dtype = "any",
                                              .rank = -1,
                                              .memory = "cpu,cuda",
                                              .help = "anything"},
                                             {.name = "out",
                                              .dir = PST_OUT,
                                              .type = "any",
                                              .dtype = "any",
                                              .rank = -1,
                                              .memory = "cpu,cuda",
                                              .forwards = "in",
                                              .help = "the same slots"},
                                             {0}}; /* a list ends with an entry without a name */

PST_API extern const struct pst_stage_desc pst_stage;
const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "passthrough",
                                         .help = "forwards what it gets",
                                         .ports = ports,
                                         .params = (const struct pst_param_desc[]){{0}},
                                         .state_bytes = sizeof(struct state),
                                         .open = open,
                                         .on_event = on_event}; /* size and close may be left out */
