/* delay.c: what comes in leaves again after a fixed time. Many slots can be on their way at once, as on a
 * link with a long latency. It stands for a link, a network or a device that this machine lacks. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/stage.h"

#define PARTS_MAX 64 /* of a slot that are on their way at once */
#define US_PER_S 1e6

struct late {
    struct pst_frame frame;
    double due_s; /* on the clock of pst_now */
};

struct state {
    int64_t delay_us;
    int out;
    struct late *queue; /* a ring of `room` frames, the oldest first */
    uint32_t room, first, n;
};

static pst_rc open_stage(struct pst_stage *self)
{
    struct state *s = pst_state(self);
    s->out = pst_port(self, "out");
    s->room = pst_slots(self, pst_port(self, "in")) * PARTS_MAX;
    s->queue = calloc(s->room, sizeof *s->queue);
    return s->queue != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the list of %u frames", s->room);
}

static void close_stage(struct pst_stage *self)
{
    free(((struct state *)pst_state(self))->queue);
}

static pst_rc keep(struct pst_stage *self, struct state *s, const struct pst_frame *frame)
{
    if (s->n == s->room)
        return pst_fail(PST_E_PEER,
                        "batch %" PRIu64 " came while %u frames were delayed, which is the limit; expected "
                        "at most %d parts of each slot at once",
                        frame->batch, s->n, PARTS_MAX);
    s->queue[(s->first + s->n++) % s->room] =
        (struct late){*frame, pst_now() + (double)s->delay_us / US_PER_S};
    pst_in_flight(self, 1); /* this stage waits, and does not work */
    return PST_OK;
}

/* Sends what is due, and asks to be called when the next frame is. */
static pst_rc send_due(struct pst_stage *self, struct state *s)
{
    pst_rc rc = PST_OK;
    const double now = pst_now();
    for (; s->n > 0 && rc == PST_OK && s->queue[s->first].due_s <= now; s->n--) {
        const struct pst_frame *frame = &s->queue[s->first].frame;
        if (frame->flags & PST_LAST_PART)
            pst_count(self, 1, 0);
        rc = pst_send(self, s->out, frame);
        pst_in_flight(self, -1);
        s->first = (s->first + 1) % s->room;
    }
    if (s->n > 0)
        pst_timer(self, (int64_t)((s->queue[s->first].due_s - now) * US_PER_S) + 1);
    return rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct state *s = pst_state(self);
    const pst_rc rc = event->kind == PST_EV_FRAME ? keep(self, s, event->frame) : PST_OK;
    return rc == PST_OK ? send_due(self, s) : rc;
}

#define ANYTHING .type = "any", .dtype = "any", .rank = -1, .memory = "cpu,cuda"
static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "anything", ANYTHING, .flags = PST_PORT_ASIDE | PST_PORT_IN_PLACE},
    {.name = "out", .dir = PST_OUT, .help = "the same slots, later", .forwards = "in", ANYTHING},
    {0}};

static const struct pst_param_desc params[] = {
    {.name = "delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct state, delay_us),
     .def = "1000",
     .max = 1e9,
     .help = "microseconds between the arrival of a frame and its departure"},
    {0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "delay",
                                         .help = "forwards its input after a fixed time",
                                         .ports = ports,
                                         .params = params,
                                         .replicas = PST_REPLICAS_EACH,
                                         .state_bytes = sizeof(struct state),
                                         .open = open_stage,
                                         .on_event = on_event,
                                         .close = close_stage};
