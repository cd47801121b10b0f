/* writer: fills slots by its stream, but for the last word; it does not wait before it sends, unless it is
 * eager, or knows no streams. */
#include "tests/stages/streams.h"

struct writer {
    struct pst_device device;
    uint64_t bytes; /* of a slot */
    void *made;     /* on the device: what goes to a slot */
    bool plain, eager, waits, busy;
    uint64_t batches;
    struct pst_frame before; /* busy: it waits for the work of the next slot */
};

static pst_rc size(struct pst_stage *self)
{
    pst_need(self, 0, ((struct writer *)pst_state(self))->bytes, 8);
    return PST_OK;
}

static pst_rc open_(struct pst_stage *self)
{
    struct writer *s = pst_state(self);
    s->waits = s->plain || s->eager;
    pst_total(self, 0, s->batches);
    if (s->busy)
        pst_fill_ahead(self, 0, 2);
    pst_rc rc = streams_open(&s->device, self, s->plain);
    if (rc == PST_OK)
        rc = pst_device_take(&s->device, PST_TWIN_MEMORY_DEVICE, s->bytes, "a slot", &s->made);
    return rc;
}

/* A record behind it is a launch: what a test may let hang. */
static pst_rc put(struct writer *s, void *slot, uint64_t batch)
{
    const struct pst_twin *twin = s->device.twin;
    const uint64_t bytes = s->bytes - sizeof(uint64_t);
    pst_rc rc = twin->fill(s->device.q, s->made, streams_byte(batch), bytes);
    if (rc == PST_OK)
        rc = twin->copy(s->device.q, slot, s->made, bytes);
    if (pst_device_is_cuda(&s->device))
        pst_device_record(&s->device, NULL, 0);
    return rc;
}

/* Sends a slot when the work of the next one is queued. Behind the work of the last one comes what a test
 * lets hang. */
static pst_rc send_before(struct pst_stage *self, struct writer *s, const struct pst_frame *frame)
{
    const bool last = frame->batch + 1 == s->batches;
    pst_rc rc = pst_slot_queued(self, frame->refs[0]);
    if (rc == PST_OK && s->before.nrefs > 0)
        rc = pst_send(self, 0, &s->before);
    s->before = *frame;
    if (rc != PST_OK || !last)
        return rc;
    s->device.twin->square_sum(s->device.q, s->made, 1, s->made);
    return pst_send(self, 0, frame);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct writer *s = pst_state(self);
    if (ev->kind != PST_EV_CREDIT)
        return PST_OK;
    const struct pst_frame frame = {.batch = ev->credit.batch,
                                    .flags = PST_LAST_PART | PST_LAST_MICRO,
                                    .nrefs = 1,
                                    .refs = {ev->credit.ref}};
    void *slot = pst_slot(self, ev->credit.ref, NULL);
    if (!slot)
        return PST_E_STATE;
    pst_rc rc = put(s, slot, frame.batch);
    if (rc == PST_OK && s->waits)
        rc = pst_device_wait(&s->device);
    pst_count(self, 1, s->bytes);
    return rc != PST_OK ? rc : s->busy ? send_before(self, s, &frame) : pst_send(self, 0, &frame);
}

static void close_(struct pst_stage *self)
{
    struct writer *s = pst_state(self);
    if (s->busy)
        (void)unsetenv("PENSTOCK_VIRTUAL_HANG"); /* what hung ends, so that the queue can be freed */
    pst_device_close(&s->device);
}

static const struct pst_port_desc ports[] = {{.name = "out",
                                              .dir = PST_OUT,
                                              .help = "slots with a pattern",
                                              .type = "words",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu,cuda"},
                                             {0}};

static const struct pst_param_desc params[] = {
    {.name = "batches",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct writer, batches),
     .def = "100",
     .min = 0,
     .max = 1e12,
     .help = "how many batches"},
    {.name = "bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct writer, bytes),
     .def = "4096",
     .min = 16,
     .max = 1e12,
     .help = "size of a slot"},
    {.name = "plain",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct writer, plain),
     .def = "false",
     .help = "knows no streams"},
    {.name = "eager",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct writer, eager),
     .def = "false",
     .help = "waits for its stream before it sends"},
    {.name = "busy",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct writer, busy),
     .def = "false",
     .help = "fills two slots at a time, and queues more work before it sends a slot"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "writer",
                                         .help = "fills slots by a stream",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct writer),
                                         .size = size,
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
