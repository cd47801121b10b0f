/* reader: reads slots by its stream and, unless it is plain, lets them go before that is done; then, after
 * some time, it checks what it has read. It tells how often a frame came before the bytes of its slot, which
 * only events allow. */
#include <time.h>

#include "tests/stages/streams.h"

struct reader {
    struct pst_device device;
    uint64_t bytes, *copy; /* of a slot */
    int64_t delay_us;
    bool plain, looks, stamped;
    uint64_t batches, early;
};

static pst_rc open_(struct pst_stage *self)
{
    struct reader *s = pst_state(self);
    void *at = NULL;
    pst_rc rc = streams_open(&s->device, self, s->plain);
    if (rc == PST_OK)
        rc = pst_device_take(&s->device, PST_TWIN_MEMORY_PINNED, s->bytes, "a slot", &at);
    s->copy = at;
    return rc;
}

static pst_rc check(const struct reader *s, const struct pst_frame *f, const uint64_t *at)
{
    const uint64_t words = s->bytes / sizeof *at, want = streams_word(f->batch);
    for (uint64_t i = 0; i < (s->stamped ? words : words - 1); i++)
        if (at[i] != want)
            return pst_fail(PST_E_FORMAT, "batch %llu, word %llu: found %llx, expected %llx",
                            (unsigned long long)f->batch, (unsigned long long)i, (unsigned long long)at[i],
                            (unsigned long long)want);
    return PST_OK;
}

/* Out of turn, on purpose: ThreadSanitizer need not tell. */
__attribute__((no_sanitize("thread"))) static uint64_t peek(const volatile uint64_t *at)
{
    return *at;
}

static pst_rc look(struct pst_stage *self, const struct pst_frame *f, const uint64_t *slot)
{
    struct reader *s = pst_state(self);
    if (!pst_on_host(self, 0))
        return PST_OK;
    s->early += peek(slot) != streams_word(f->batch);
    if (!s->looks)
        return PST_OK;
    const pst_rc rc = pst_slot_wait(self, f->refs[0]);
    return rc == PST_OK ? check(s, f, slot) : rc;
}

static pst_rc read_slot(struct pst_stage *self, const struct pst_frame *f)
{
    struct reader *s = pst_state(self);
    const uint64_t *slot = pst_slot(self, f->refs[0], NULL);
    if (!slot)
        return PST_E_STATE;
    pst_rc rc = look(self, f, slot);
    if (rc == PST_OK)
        rc = s->device.twin->copy(s->device.q, s->copy, slot, s->bytes);
    if (rc == PST_OK && s->plain)
        rc = pst_device_wait(&s->device);
    if (rc == PST_OK)
        rc = pst_consume(self, f);
    const struct timespec nap = {.tv_sec = s->delay_us / 1000000, .tv_nsec = s->delay_us % 1000000 * 1000};
    (void)nanosleep(&nap, NULL);
    if (rc == PST_OK)
        rc = pst_device_wait(&s->device);
    s->batches++;
    return rc == PST_OK ? check(s, f, s->copy) : rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    const struct reader *s = pst_state(self);
    if (ev->kind == PST_EV_FRAME && (ev->frame->flags & PST_LAST_PART))
        return read_slot(self, ev->frame);
    return ev->kind == PST_EV_END
               ? pst_report(self, pst_stage_name(self), "{\"batches\": %llu, \"early\": %llu}",
                            (unsigned long long)s->batches, (unsigned long long)s->early)
               : PST_OK;
}

static void close_(struct pst_stage *self)
{
    pst_device_close(&((struct reader *)pst_state(self))->device);
}

static const struct pst_port_desc ports[] = {{.name = "in",
                                              .dir = PST_IN,
                                              .help = "slots with a pattern",
                                              .type = "words",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu,cuda"},
                                             {0}};

static const struct pst_param_desc params[] = {
    {.name = "bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct reader, bytes),
     .def = "4096",
     .min = 16,
     .max = 1e12,
     .help = "size of a slot"},
    {.name = "delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct reader, delay_us),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "time between a slot's release and the end of its reading"},
    {.name = "plain",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct reader, plain),
     .def = "false",
     .help = "knows no streams"},
    {.name = "looks",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct reader, looks),
     .def = "false",
     .help = "reads the slot on the host, too, having waited for it"},
    {.name = "stamped",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct reader, stamped),
     .def = "false",
     .help = "the last word has been written, too"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "reader",
                                         .help = "reads slots by a stream",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct reader),
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
