/* source: fills slots with a pattern that a sink can check. */
#include <time.h>

#include "tests/stages/slots.h"

struct source {
    int out;
    uint64_t batches;
    uint32_t micros, parts;
    uint64_t bytes;
    int64_t delay_us;
    bool split; /* only for the port's splits_if */
    struct slots slots;
};

static pst_rc size(struct pst_stage *self)
{
    pst_need(self, pst_port(self, "out"), ((struct source *)pst_state(self))->bytes, 8);
    return PST_OK;
}

static pst_rc open_(struct pst_stage *self)
{
    struct source *s = pst_state(self);
    s->out = pst_port(self, "out");
    pst_total(self, s->out, s->batches);
    return slots_open(&s->slots, self);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct source *s = pst_state(self);
    if (ev->kind != PST_EV_CREDIT)
        return PST_OK;
    uint64_t *word = slots_get(&s->slots, self, ev->credit.ref, NULL);
    if (!word)
        return PST_E_STATE;
    struct pst_frame frame = {
        .batch = ev->credit.batch, .micro = ev->credit.micro, .nrefs = 1, .refs = {ev->credit.ref}};
    pst_rc rc = PST_OK;
    for (uint32_t part = 0; part < s->parts && rc == PST_OK; part++) {
        bool last = part == s->parts - 1, last_micro = frame.micro == s->micros - 1;
        for (uint64_t i = part; i < s->bytes / 8; i += s->parts)
            word[i] = pst_seed(self) * 1000003 + frame.batch * 8191 + frame.micro * 127 + i;
        frame.part = part;
        frame.flags = (last ? PST_LAST_PART : 0u) | (last && last_micro ? PST_LAST_MICRO : 0u);
        rc = slots_put(&s->slots, self, ev->credit.ref);
        if (rc == PST_OK)
            rc = pst_send(self, s->out, &frame);
    }
    if (s->delay_us > 0) { /* even a sleep of 0 takes some 50 us */
        struct timespec nap = {.tv_sec = s->delay_us / 1000000, .tv_nsec = s->delay_us % 1000000 * 1000};
        (void)nanosleep(&nap, NULL);
    }
    pst_count(self, 1, s->bytes);
    return rc;
}

static void close_(struct pst_stage *self)
{
    slots_close(&((struct source *)pst_state(self))->slots);
}

static const struct pst_port_desc ports[] = {
    {.name = "out",
     .dir = PST_OUT,
     .help = "slots with a pattern",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu,cuda",
     .splits_if = "split=true"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "batches",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct source, batches),
     .def = "100",
     .min = 0,
     .max = 1e12,
     .help = "how many batches"},
    {.name = "micros",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct source, micros),
     .def = "1",
     .min = 1,
     .max = 16,
     .help = "micro-batches of each batch"},
    {.name = "parts",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct source, parts),
     .def = "1",
     .min = 1,
     .max = 16,
     .help = "parts of each micro-batch"},
    {.name = "bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct source, bytes),
     .def = "4096",
     .min = 8,
     .max = 1e12,
     .help = "size of a slot"},
    {.name = "delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct source, delay_us),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "time that each slot takes"},
    {.name = "split",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct source, split),
     .def = "false",
     .help = "declares that batches may be split"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "source",
                                         .help = "fills slots with a pattern",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct source),
                                         .size = size,
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
