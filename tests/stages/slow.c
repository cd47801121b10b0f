/* slow: forwards slots after a while, in which it works, or waits for a disk (`waits`). */
#include <string.h>
#include <time.h>

#include "common/stage.h"

#define KEPT_MAX 64

struct slow {
    struct pst_frame kept[KEPT_MAX]; /* in the disk's hands, the oldest first */
    uint32_t nkept;
    int64_t delay_us, others_delay_us;
    int64_t keep; /* only for the port's hold_param */
    bool waits;
    int out;
};

static pst_rc open_(struct pst_stage *self)
{
    struct slow *s = pst_state(self);
    s->out = pst_port(self, "out");
    int instances;
    if (pst_instance(self, &instances) > 0 && s->others_delay_us >= 0)
        s->delay_us = s->others_delay_us;
    return PST_OK;
}

static pst_rc forward(struct pst_stage *self, const struct pst_frame *frame)
{
    if (frame->flags & PST_LAST_PART)
        pst_count(self, 1, 0);
    return pst_send(self, ((struct slow *)pst_state(self))->out, frame);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct slow *s = pst_state(self);
    pst_rc rc = PST_OK;
    if (ev->kind == PST_EV_FRAME && !s->waits) {
        struct timespec nap = {.tv_sec = s->delay_us / 1000000, .tv_nsec = s->delay_us % 1000000 * 1000};
        (void)nanosleep(&nap, NULL);
        return forward(self, ev->frame);
    }
    if (ev->kind == PST_EV_FRAME) {
        if (s->nkept == KEPT_MAX)
            return pst_fail(PST_E_LIMIT, "more than %d frames at once", KEPT_MAX);
        s->kept[s->nkept++] = *ev->frame;
        pst_in_flight(self, 1);
        if (s->nkept == 1)
            pst_timer(self, s->delay_us);
    }
    if (ev->kind == PST_EV_TIMER && s->nkept > 0) {
        rc = forward(self, &s->kept[0]);
        memmove(&s->kept[0], &s->kept[1], --s->nkept * sizeof s->kept[0]);
        pst_in_flight(self, -1);
        if (s->nkept > 0)
            pst_timer(self, s->delay_us);
    }
    return rc;
}

#define WORDS .type = "words", .dtype = "int64", .rank = 1, .memory = "cpu"
static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "slots", WORDS, .hold_param = "keep"},
    {.name = "out", .dir = PST_OUT, .help = "the same", .forwards = "in", WORDS},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct slow, delay_us),
     .def = "1000",
     .min = 0,
     .max = 1e9,
     .help = "time that each slot takes"},
    {.name = "others_delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct slow, others_delay_us),
     .def = "-1",
     .min = -1,
     .max = 1e9,
     .help = "the same for all instances but the first; -1: the same"},
    {.name = "keep",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct slow, keep),
     .def = "1",
     .min = 1,
     .max = KEPT_MAX,
     .help = "slots that it waits for at once"},
    {.name = "waits",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct slow, waits),
     .def = "false",
     .help = "it waits, as for a disk, instead of working"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "slow",
                                         .help = "forwards slots after a while",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct slow),
                                         .open = open_,
                                         .on_event = on_event};
