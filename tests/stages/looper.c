/* looper: fills batches only after an answer over a back link: it keeps several unfinished batches, asks
 * for each, and finishes them in the reverse of the order in which it got them. What a sampler does that
 * waits for topology from disk. */
#include "common/stage.h"

#define KEEP_MAX 16

struct looper {
    int out, ask, answer;
    uint32_t keep, nopen, nfree, nanswered;
    uint64_t total, begun, out_of_order, most;
    struct pst_credit open[KEEP_MAX]; /* batches in the making */
    bool answered[KEEP_MAX];
    struct pst_credit asks[KEEP_MAX]; /* slots to ask with */
};

static pst_rc size(struct pst_stage *self)
{
    pst_need(self, pst_port(self, "out"), 64, 8);
    pst_need(self, pst_port(self, "ask"), 64, 8);
    return PST_OK;
}

static pst_rc open_(struct pst_stage *self)
{
    struct looper *s = pst_state(self);
    s->out = pst_port(self, "out");
    s->ask = pst_port(self, "ask");
    s->answer = pst_port(self, "answer");
    pst_total(self, s->out, s->total);
    return PST_OK;
}

static pst_rc ask(struct pst_stage *self)
{
    struct looper *s = pst_state(self);
    pst_rc rc = PST_OK;
    /* each unfinished batch that has not been asked for gets a slot of the other route */
    for (uint32_t i = s->begun < s->nopen ? (uint32_t)s->begun : s->nopen;
         i < s->nopen && s->nfree > 0 && rc == PST_OK; i++) {
        struct pst_credit slot = s->asks[--s->nfree];
        uint64_t *word = pst_slot(self, slot.ref, NULL);
        if (!word)
            return PST_E_STATE;
        word[0] = s->open[i].batch;
        struct pst_frame frame = {
            .batch = slot.batch, .flags = PST_LAST_PART | PST_LAST_MICRO, .nrefs = 1, .refs = {slot.ref}};
        rc = pst_send(self, s->ask, &frame);
        s->begun++;
    }
    return rc;
}

/* All in hand are answered: finishes them, the youngest first. */
static pst_rc finish(struct pst_stage *self)
{
    struct looper *s = pst_state(self);
    pst_rc rc = PST_OK;
    s->most = s->nopen > s->most ? s->nopen : s->most;
    for (uint32_t i = s->nopen; i-- > 0 && rc == PST_OK;) {
        uint64_t *word = pst_slot(self, s->open[i].ref, NULL);
        if (!word)
            return PST_E_STATE;
        for (uint64_t k = 0; k < 8; k++)
            word[k] = pst_seed(self) * 1000003 + s->open[i].batch * 8191 + k;
        struct pst_frame frame = {.batch = s->open[i].batch,
                                  .flags = PST_LAST_PART | PST_LAST_MICRO,
                                  .nrefs = 1,
                                  .refs = {s->open[i].ref}};
        rc = pst_send(self, s->out, &frame);
        s->out_of_order += i > 0;
    }
    s->nopen = s->nanswered = 0;
    s->begun = 0;
    return rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct looper *s = pst_state(self);
    pst_rc rc = PST_OK;
    if (ev->kind == PST_EV_CREDIT && ev->port == s->out)
        s->open[s->nopen++] = ev->credit;
    else if (ev->kind == PST_EV_CREDIT)
        s->asks[s->nfree++] = ev->credit;
    else if (ev->kind == PST_EV_FRAME) {
        s->nanswered++;
        rc = pst_consume(self, ev->frame);
    } else
        return PST_OK;
    if (rc == PST_OK)
        rc = ask(self);
    bool last = s->nopen > 0 && s->open[s->nopen - 1].batch == s->total - 1;
    if (rc == PST_OK && s->nopen > 0 && s->nanswered == s->nopen && (s->nopen == s->keep || last))
        rc = finish(self);
    return rc;
}

static void close_(struct pst_stage *self)
{
    struct looper *s = pst_state(self);
    if (pst_report(self, "looper", "{\"most_unfinished\": %llu, \"out_of_order\": %llu}",
                   (unsigned long long)s->most, (unsigned long long)s->out_of_order) != PST_OK)
        pst_log(self, "%s", pst_error_text());
}

static const struct pst_port_desc ports[] = {
    {.name = "out",
     .dir = PST_OUT,
     .help = "finished batches",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu",
     .hold_param = "keep"},
    {.name = "ask",
     .dir = PST_OUT,
     .help = "questions",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu",
     .hold_param = "keep"},
    {.name = "answer",
     .dir = PST_IN,
     .help = "answers",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "batches",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct looper, total),
     .def = "102",
     .min = 0,
     .max = 1e12,
     .help = "how many batches"},
    {.name = "keep",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct looper, keep),
     .def = "4",
     .min = 1,
     .max = KEEP_MAX,
     .help = "unfinished batches"},
    {0},
};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "looper",
                                         .help = "asks before it fills",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct looper),
                                         .size = size,
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
