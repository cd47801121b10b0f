/* hand.c: compares what a foreign program sends and gives back with what it was given. */
#include "common/host/hand.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"

#define BATCHES_MAX 65536 /* far above the slots of all routes: batches without slots count, too */
#define PIECES_MAX                                                                                           \
    65536 /* parts of a micro-batch, micro-batches of a batch: a program that never ends one                 \
           */

struct pst_host_batch {
    uint64_t batch;
    uint32_t micro;
    int port;
    bool credit;                  /* the program fills the slot; else it came as a frame */
    bool complete, last_micro;    /* of a frame: its last part has come; and what that said */
    uint32_t given;               /* parts that came */
    uint32_t sent[PST_PORTS_MAX]; /* parts that left, by output */
    uint32_t outputs;             /* through which it must leave, one bit each */
    uint32_t left;                /* those of them that it has still to leave through */
    uint32_t nrefs, nheld;        /* its slots; how many of them the program still has */
    struct pst_ref refs[PST_REFS_MAX];
    bool held[PST_REFS_MAX];
};

static bool linked(const struct pst_stage *self, int port)
{
    for (int i = 0; i < self->noutputs; i++)
        if (self->outputs[i].port == port)
            return true;
    return false;
}

/* The linked outputs that forward the input. */
static uint32_t outputs_of(const struct pst_stage *self, int input)
{
    uint32_t outputs = 0;
    const struct pst_port_desc *ports = self->desc.ports;
    for (int p = 0; ports[p].name; p++)
        if (ports[p].dir == PST_OUT && ports[p].forwards && linked(self, p) &&
            pst_desc_list_has(ports[p].forwards, ',', ports[input].name))
            outputs |= 1u << p;
    return outputs;
}

static struct pst_host_batch *find(struct pst_host_hand *hand, int port, uint64_t batch, uint32_t micro)
{
    for (uint32_t i = 0; i < hand->n; i++)
        if (hand->batches[i].port == port && hand->batches[i].batch == batch &&
            hand->batches[i].micro == micro)
            return &hand->batches[i];
    return NULL;
}

static struct pst_host_batch *add(struct pst_host_hand *hand)
{
    if (hand->n == hand->room) {
        const uint32_t room = hand->room ? 2 * hand->room : 16;
        struct pst_host_batch *more =
            room <= BATCHES_MAX ? realloc(hand->batches, room * sizeof *more) : NULL;
        if (!more)
            return NULL;
        hand->batches = more;
        hand->room = room;
    }
    struct pst_host_batch *b = &hand->batches[hand->n++];
    memset(b, 0, sizeof *b);
    return b;
}

/* Nothing more is to be done with it. */
static bool settled(const struct pst_host_batch *b)
{
    return b->complete && b->nheld == 0 && b->left == 0;
}

static void drop_settled(struct pst_host_hand *hand)
{
    for (uint32_t i = 0; i < hand->n;)
        if (settled(&hand->batches[i]))
            hand->batches[i] = hand->batches[--hand->n];
        else
            i++;
}

void pst_host_hand_free(struct pst_host_hand *hand)
{
    free(hand->batches);
    memset(hand, 0, sizeof *hand);
}

/* ---- what the program is given ------------------------------------------------------------------- */

pst_rc pst_host_hand_frame(struct pst_stage *self, struct pst_host_hand *hand, int port,
                           const struct pst_frame *frame)
{
    const bool last = (frame->flags & PST_LAST_PART) != 0;
    struct pst_host_batch *b = find(hand, port, frame->batch, frame->micro);
    if (!b) {
        b = add(hand);
        if (!b)
            return pst_fail(PST_E_LIMIT,
                            "external program %s has received more than %d batches and not finished them: it "
                            "must send a batch on, or release its slots",
                            self->caps.file, BATCHES_MAX);
        b->batch = frame->batch;
        b->micro = frame->micro;
        b->port = port;
        b->outputs = b->left = outputs_of(self, port);
    }
    b->given++;
    b->complete = last;
    b->last_micro = (frame->flags & PST_LAST_MICRO) != 0;
    b->nrefs = frame->nrefs;
    b->nheld = last ? frame->nrefs : 0;
    memcpy(b->refs, frame->refs, frame->nrefs * sizeof *b->refs);
    for (uint32_t i = 0; i < b->nrefs; i++)
        b->held[i] = last;
    drop_settled(hand); /* without slots, and with nowhere to go */
    return PST_OK;
}

pst_rc pst_host_hand_credit(struct pst_stage *self, struct pst_host_hand *hand, int port,
                            const struct pst_credit *credit)
{
    struct pst_host_batch *b = add(hand);
    if (!b)
        return pst_fail(PST_E_LIMIT,
                        "external program %s has received more than %d batches and not finished them: it "
                        "must send a batch on, or release its slots",
                        self->caps.file, BATCHES_MAX);
    b->batch = credit->batch;
    b->micro = credit->micro;
    b->port = port;
    b->credit = b->complete = true;
    b->outputs = b->left = linked(self, port) ? 1u << port : 0;
    b->nrefs = b->nheld = 1;
    b->refs[0] = credit->ref;
    b->held[0] = true;
    return PST_OK;
}

/* ---- what it does with it ------------------------------------------------------------------------ */

static PST_PRINTF(4, 5) pst_rc
    refuse(const struct pst_stage *self, uint64_t batch, uint32_t micro, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pst_fail(PST_E_PEER,
                    "external program %s sent an invalid frame for batch %" PRIu64 ", micro-batch %u: %s",
                    self->caps.file, batch, micro, text);
}

static int ref_at(const struct pst_host_batch *b, struct pst_ref ref)
{
    for (uint32_t i = 0; i < b->nrefs; i++)
        if (b->refs[i].route == ref.route && b->refs[i].slot == ref.slot)
            return (int)i;
    return -1;
}

static bool has_ref(const struct pst_frame *frame, struct pst_ref ref)
{
    for (uint32_t i = 0; i < frame->nrefs; i++)
        if (frame->refs[i].route == ref.route && frame->refs[i].slot == ref.slot)
            return true;
    return false;
}

/* A frame with slots is about the batches that these came with; one without, about those whose slots the
 * program has given back, or that had none. */
static bool is_about(const struct pst_host_batch *b, const struct pst_frame *frame)
{
    for (uint32_t i = 0; i < frame->nrefs; i++)
        if (ref_at(b, frame->refs[i]) >= 0)
            return true;
    return frame->nrefs == 0 && b->nheld == 0;
}

/* Its slots went back, and it has not been sent on: the stage after this one would wait for it for ever. */
static const struct pst_host_batch *find_owed(const struct pst_host_hand *hand, uint64_t batch,
                                              uint32_t micro)
{
    for (uint32_t i = 0; i < hand->n; i++) {
        const struct pst_host_batch *b = &hand->batches[i];
        if (b->complete && b->nrefs > 0 && b->nheld == 0 && b->left != 0 &&
            (b->batch != batch || b->micro != micro))
            return b;
    }
    return NULL;
}

static const char *output_left(const struct pst_stage *self, const struct pst_host_batch *b)
{
    int p = 0;
    while (!(b->left & 1u << p))
        p++;
    return self->desc.ports[p].name;
}

static pst_rc check_owed(const struct pst_stage *self, const struct pst_host_hand *hand, uint64_t batch,
                         uint32_t micro)
{
    const struct pst_host_batch *b = find_owed(hand, batch, micro);
    if (!b)
        return PST_OK;
    return pst_fail(
        PST_E_PEER,
        "external program %s released the slots of batch %" PRIu64
        ", micro-batch %u, but has not sent the batch through %s: first send a frame without slots there",
        self->caps.file, b->batch, b->micro, output_left(self, b));
}

static pst_rc check_part(const struct pst_stage *self, const struct pst_host_batch *b, int port,
                         const struct pst_frame *frame)
{
    const bool last = (frame->flags & PST_LAST_PART) != 0;
    const uint32_t expected = b->sent[port];
    if (frame->part != expected || expected == PIECES_MAX)
        return refuse(self, b->batch, b->micro, "the frame has part %u of the micro-batch; expected part %u",
                      frame->part, expected);
    if (!last && !b->credit && b->complete && frame->part + 1 >= b->given)
        return refuse(self, b->batch, b->micro,
                      "flag 1 (last part) is missing, although the batch has no further part");
    if (!last && !b->credit && frame->part >= b->given)
        return refuse(self, b->batch, b->micro, "the stage has not received part %u of the micro-batch yet",
                      frame->part);
    if (last && !b->complete)
        return refuse(self, b->batch, b->micro,
                      "flag 1 (last part) is set, but the stage has not received the last part yet");
    return PST_OK;
}

static pst_rc check_last(const struct pst_stage *self, const struct pst_host_batch *b,
                         const struct pst_frame *frame)
{
    const bool last_micro = (frame->flags & PST_LAST_MICRO) != 0;
    if (!b->credit && last_micro != b->last_micro)
        return refuse(self, b->batch, b->micro,
                      "flag 2 (last micro-batch) is %d; expected %d, as in the received frame", last_micro,
                      b->last_micro);
    if (b->credit && !last_micro && (frame->nrefs == 0 || frame->micro + 1 == PIECES_MAX))
        return refuse(self, b->batch, b->micro, "flag 2 (last micro-batch) is missing");
    for (uint32_t i = 0; i < b->nrefs; i++)
        if (b->held[i] && !has_ref(frame, b->refs[i]))
            return refuse(self, b->batch, b->micro,
                          "slot %u of route %u, which was received with the batch, is missing: send it in "
                          "this frame, or release it before",
                          b->refs[i].slot, b->refs[i].route);
    return PST_OK;
}

/* Each slot came with one of the batches that the frame is about. */
static pst_rc check_refs(const struct pst_stage *self, const struct pst_host_hand *hand, int port,
                         const struct pst_frame *frame)
{
    for (uint32_t r = 0; r < frame->nrefs; r++) {
        bool found = false;
        for (uint32_t i = 0; i < hand->n && !found; i++) {
            const struct pst_host_batch *b = &hand->batches[i];
            found = b->batch == frame->batch && b->micro == frame->micro && (b->outputs & 1u << port) &&
                    ref_at(b, frame->refs[r]) >= 0;
        }
        if (!found)
            return refuse(self, frame->batch, frame->micro,
                          "slot %u of route %u was not received with this batch", frame->refs[r].slot,
                          frame->refs[r].route);
    }
    return PST_OK;
}

static void note_sent(struct pst_host_batch *b, int port, const struct pst_frame *frame)
{
    b->sent[port]++;
    if (!(frame->flags & PST_LAST_PART))
        return;
    b->left &= ~(1u << port);
    b->nheld = 0;
    memset(b->held, 0, sizeof b->held);
}

pst_rc pst_host_hand_send(struct pst_stage *self, struct pst_host_hand *hand, int port,
                          const struct pst_frame *frame)
{
    const uint32_t bit = 1u << port;
    const struct pst_host_batch *other = NULL; /* of these numbers, but not what the frame is about */
    bool any = false;
    if (!linked(self, port)) { /* the slots go home */
        pst_rc rc = PST_OK;
        for (uint32_t r = 0; (frame->flags & PST_LAST_PART) && r < frame->nrefs && rc == PST_OK; r++)
            rc = pst_host_hand_give_back(self, hand, frame->refs[r]);
        return rc;
    }
    if ((frame->flags & ~(unsigned)(PST_LAST_PART | PST_LAST_MICRO)) ||
        (frame->flags & (PST_LAST_PART | PST_LAST_MICRO)) == PST_LAST_MICRO)
        return refuse(self, frame->batch, frame->micro,
                      "flags are %u; expected 0, 1 (last part) or 3 (last part of the last micro-batch)",
                      frame->flags);
    pst_rc rc = check_owed(self, hand, frame->batch, frame->micro);
    if (rc == PST_OK)
        rc = check_refs(self, hand, port, frame);
    for (uint32_t i = 0; i < hand->n && rc == PST_OK; i++) {
        struct pst_host_batch *b = &hand->batches[i];
        if (b->batch != frame->batch || b->micro != frame->micro || !(b->outputs & bit))
            continue;
        if (!(b->left & bit) || !is_about(b, frame)) {
            other = b;
            continue;
        }
        any = true;
        rc = check_part(self, b, port, frame);
        if (rc == PST_OK && (frame->flags & PST_LAST_PART))
            rc = check_last(self, b, frame);
        if (rc == PST_OK)
            note_sent(b, port, frame);
    }
    if (rc != PST_OK || any) {
        drop_settled(hand);
        return rc;
    }
    if (!other)
        return refuse(self, frame->batch, frame->micro,
                      "the program has not received a batch with these numbers, or has already finished it");
    if (!(other->left & bit))
        return refuse(self, frame->batch, frame->micro, "the last part was already sent through %s",
                      self->desc.ports[port].name);
    return refuse(self, frame->batch, frame->micro,
                  "the frame has no slots, but the program still holds slots of this batch: send them in the "
                  "frame, or release them before");
}

pst_rc pst_host_hand_give_back(struct pst_stage *self, struct pst_host_hand *hand, struct pst_ref ref)
{
    for (uint32_t i = 0; i < hand->n; i++) {
        struct pst_host_batch *b = &hand->batches[i];
        const int at = ref_at(b, ref);
        if (at < 0 || !b->held[at])
            continue;
        const pst_rc rc = check_owed(self, hand, b->batch, b->micro);
        b->held[at] = false;
        b->nheld--;
        drop_settled(hand);
        return rc;
    }
    return pst_fail(PST_E_PEER, "external program %s released slot %u of route %u, which it does not hold",
                    self->caps.file, ref.slot, ref.route);
}

pst_rc pst_host_hand_done(struct pst_stage *self, const struct pst_host_hand *hand)
{
    for (int i = 0; i < self->ninputs; i++)
        if (!self->inputs[i].back && !self->inputs[i].ended)
            return pst_fail(PST_E_PEER, "external program %s sent \"done\", but input %s has not ended",
                            self->caps.file, self->desc.ports[self->inputs[i].port].name);
    for (uint32_t i = 0; i < hand->n; i++) {
        const struct pst_host_batch *b = &hand->batches[i];
        const char *left = b->nheld > 0 ? "released all slots of" : "sent on";
        if (!b->credit || b->nheld == 0)
            return pst_fail(PST_E_PEER,
                            "external program %s sent \"done\", but has not %s batch %" PRIu64
                            ", micro-batch %u, which it received through %s",
                            self->caps.file, left, b->batch, b->micro, self->desc.ports[b->port].name);
    }
    for (int i = 0; i < self->nroutes; i++) {
        const struct pst_host_route_end *r = &self->routes[i];
        const char *name = self->desc.ports[r->via_port].name;
        if (r->origin_port >= 0 && self->ninputs == 0 && !r->total_told)
            return pst_fail(PST_E_PEER,
                            "external program %s sent \"done\", but never sent \"total\" with the number of "
                            "batches of %s",
                            self->caps.file, name);
        if (r->origin_port >= 0 && r->total_told &&
            (r->open > 0 || !pst_pool_exhausted(r->pool, (uint32_t)self->instance)))
            return pst_fail(PST_E_PEER,
                            "external program %s sent \"done\", but has sent fewer or more batches through "
                            "%s than its message \"total\" announced",
                            self->caps.file, name);
    }
    return PST_OK;
}
