/* sink: checks the pattern of source in batch order, and reports what it saw. It may keep `keep` slots
 * before it lets the oldest go. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "tests/stages/slots.h"

#define KEEP_MAX 64

struct sink {
    uint64_t frames, batches, checksum, next;
    struct pst_frame kept[KEEP_MAX];
    uint32_t nkept, keep;
    int64_t delay_us;
    uint64_t factor, words;
    const char *section;
    bool crash;
    bool whole; /* only for the port's whole_if */
    struct slots slots;
};

/* Every stage computes without denormal numbers (common/util/signals.h). */
static pst_rc check_denormals(void)
{
#ifdef __SSE__
    const volatile float small = 1e-30f;
    const float product = small * 1e-10f;
    if (product != 0)
        return pst_fail(PST_E_STATE, "a denormal number counts: %g; expected 0", (double)product);
#endif
    return PST_OK;
}

static pst_rc open_(struct pst_stage *self)
{
    struct sink *s = pst_state(self);
    int instances;
    const pst_rc rc = check_denormals();
    if (rc != PST_OK)
        return rc;
    s->next = (uint64_t)pst_instance(self, &instances);
    return slots_open(&s->slots, self);
}

static pst_rc check(struct pst_stage *self, const struct pst_frame *f)
{
    struct sink *s = pst_state(self);
    int instances;
    (void)pst_instance(self, &instances);
    if (f->micro == 0 && f->batch != s->next)
        return pst_fail(PST_E_STATE, "batch %llu came, expected %llu", (unsigned long long)f->batch,
                        (unsigned long long)s->next);
    s->next = f->flags & PST_LAST_MICRO ? f->batch + (uint64_t)instances : f->batch;
    uint64_t bytes;
    const uint64_t *word = slots_get(&s->slots, self, f->refs[0], &bytes);
    if (!word)
        return PST_E_STATE;
    uint64_t want = pst_seed(self) * 1000003 + f->batch * 8191 + f->micro * 127;
    uint64_t words = s->words;
    for (uint64_t i = 0; i < (words ? words : bytes / 8); i++)
        if (word[i] != (want + i) * s->factor)
            return pst_fail(PST_E_FORMAT, "batch %llu, micro %u, word %llu: found %llu, expected %llu",
                            (unsigned long long)f->batch, f->micro, (unsigned long long)i,
                            (unsigned long long)word[i], (unsigned long long)((want + i) * s->factor));
    s->checksum = s->checksum * 31 + word[0];
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct sink *s = pst_state(self);
    pst_rc rc = PST_OK;
    if (ev->kind == PST_EV_FRAME) {
        s->frames++;
        if (!(ev->frame->flags & PST_LAST_PART))
            return PST_OK;
        rc = check(self, ev->frame);
        if (s->crash)
            (void)raise(SIGSEGV);
        s->batches += (ev->frame->flags & PST_LAST_MICRO) != 0;
        if (s->delay_us > 0) {
            struct timespec nap = {.tv_sec = s->delay_us / 1000000, .tv_nsec = s->delay_us % 1000000 * 1000};
            (void)nanosleep(&nap, NULL);
        }
        s->kept[s->nkept++] = *ev->frame;
    }
    /* lets all go once `keep` are in hand, or nothing more will come */
    while (rc == PST_OK && s->nkept > 0 && (s->nkept >= s->keep || ev->kind == PST_EV_END))
        for (; s->nkept > 0 && rc == PST_OK; s->nkept--)
            rc = pst_consume(self, &s->kept[s->nkept - 1]);
    if (rc == PST_OK && ev->kind == PST_EV_END)
        rc = pst_report(self, s->section, "{\"frames\": %llu, \"batches\": %llu, \"checksum\": %llu}",
                        (unsigned long long)s->frames, (unsigned long long)s->batches,
                        (unsigned long long)(s->checksum >> 2));
    return rc;
}

static void close_(struct pst_stage *self)
{
    slots_close(&((struct sink *)pst_state(self))->slots);
}

static const struct pst_port_desc ports[] = {
    {.name = "in",
     .dir = PST_IN,
     .help = "slots with a pattern",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu,cuda",
     .flags = PST_PORT_ORDERED,
     .hold_param = "keep",
     .whole_if = "whole=true"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "keep",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct sink, keep),
     .def = "1",
     .min = 1,
     .max = KEEP_MAX,
     .help = "slots kept before any is let go"},
    {.name = "crash",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct sink, crash),
     .def = "false",
     .help = "dies of SIGSEGV at the first slot"},
    {.name = "delay_us",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct sink, delay_us),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "time that each slot takes"},
    {.name = "factor",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct sink, factor),
     .def = "1",
     .min = 1,
     .max = 100,
     .help = "what the stages in between multiplied the words by"},
    {.name = "words",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct sink, words),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "words to check; 0: the whole slot"},
    {.name = "section",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct sink, section),
     .def = "\"sink\"",
     .help = "section of the report"},
    {.name = "whole",
     .type = PST_PARAM_BOOL,
     .into = PST_INTO(struct sink, whole),
     .def = "false",
     .help = "cannot take split batches"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "sink",
                                         .help = "checks a pattern",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct sink),
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
