/* owner: lends out slots that come home changed: each slot has a number that borrowers raise, and the
 * owner checks at every return that all changes are there (what a parameter store does with partitions). */
#include "common/stage.h"

#define SLOTS_MAX 64

struct owner {
    int out;
    uint64_t expected[SLOTS_MAX], returns, batches;
    uint64_t next_home; /* slots must come home in the order of their batches */
};

static pst_rc size(struct pst_stage *self)
{
    pst_need(self, pst_port(self, "out"), 4096, 8);
    return PST_OK;
}

static pst_rc open_(struct pst_stage *self)
{
    struct owner *s = pst_state(self);
    s->out = pst_port(self, "out");
    pst_total(self, s->out, s->batches);
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct owner *s = pst_state(self);
    if (ev->kind != PST_EV_CREDIT && ev->kind != PST_EV_RETURN)
        return PST_OK;
    uint64_t *word = pst_slot(self, ev->credit.ref, NULL);
    uint32_t slot = ev->credit.ref.slot;
    if (!word || slot >= SLOTS_MAX)
        return PST_E_STATE;
    bool first = ev->credit.previous_batch == UINT64_MAX;
    /* a borrower changes every slot whose batch is even (see raiser.c) */
    bool changed = !first && ev->credit.previous_batch % 2 == 0;
    s->expected[slot] += changed;
    s->returns += !first;
    if (!first && ev->credit.previous_batch != s->next_home++)
        return pst_fail(PST_E_FORMAT, "batch %llu came home; expected batch %llu",
                        (unsigned long long)ev->credit.previous_batch, (unsigned long long)s->next_home - 1);
    if (word[0] != s->expected[slot] || ev->credit.version != s->expected[slot] ||
        (ev->credit.dirty != 0) != changed)
        return pst_fail(PST_E_FORMAT, "slot %u came home with %llu, version %llu, dirty %u; expected %llu",
                        slot, (unsigned long long)word[0], (unsigned long long)ev->credit.version,
                        ev->credit.dirty, (unsigned long long)s->expected[slot]);
    if (ev->kind == PST_EV_RETURN)
        return PST_OK;
    struct pst_frame frame = {.batch = ev->credit.batch,
                              .flags = PST_LAST_PART | PST_LAST_MICRO,
                              .nrefs = 1,
                              .refs = {ev->credit.ref}};
    return pst_send(self, s->out, &frame);
}

static void close_(struct pst_stage *self)
{
    struct owner *s = pst_state(self);
    if (pst_report(self, "owner", "{\"returns\": %llu}", (unsigned long long)s->returns) != PST_OK)
        pst_log(self, "%s", pst_error_text());
}

static const struct pst_port_desc ports[] = {
    {.name = "out",
     .dir = PST_OUT,
     .help = "slots on loan",
     .type = "words",
     .dtype = "int64",
     .rank = 1,
     .memory = "cpu",
     .flags = PST_PORT_RETURNS},
    {0},
};

static const struct pst_param_desc params[] = {{.name = "batches",
                                                .type = PST_PARAM_INT,
                                                .into = PST_INTO(struct owner, batches),
                                                .def = "100",
                                                .min = 1,
                                                .max = 1e9,
                                                .help = "how many loans"},
                                               {0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "owner",
                                         .help = "lends slots, checks returns",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(struct owner),
                                         .size = size,
                                         .open = open_,
                                         .on_event = on_event,
                                         .close = close_};
