/* copy.c: the stage that copies slots between devices. It copies a slot's used bytes from the route that it
 * borrows to the route that it originates, whose credits come in the same batch order. Slots that come back
 * changed are copied back. It counts and reports what it copied. */
#include <string.h>

#include "common/host/host_impl.h"

struct copy {
    struct pst_frame frames[PST_SLOTS_MAX]; /* ring of frames that wait for a slot on the other side */
    struct pst_credit credits[PST_SLOTS_MAX];
    uint32_t first_frame, nframes, first_credit, ncredits;
    uint32_t complete;                    /* micro-batches whose last part has come */
    bool moved;                           /* the first micro-batch has been copied */
    struct pst_ref source[PST_SLOTS_MAX]; /* by slot of the copy: where to copy it back to */
    bool pending[PST_SLOTS_MAX];
    int in, out;
    bool returns, total_told;
    uint64_t bytes, batches;
};

static pst_rc copy_open(struct pst_stage *self)
{
    struct copy *c = pst_state(self);
    c->in = pst_port(self, "in");
    c->out = pst_port(self, "out");
    c->returns = json_is_true(json_object_get(self->config, "returns"));
    return PST_OK;
}

static pst_rc move(struct pst_stage *self, struct pst_ref from, struct pst_ref to)
{
    struct copy *c = pst_state(self);
    uint64_t from_bytes, to_bytes;
    void *src = pst_slot(self, from, &from_bytes), *dst = pst_slot(self, to, &to_bytes);
    if (!src || !dst)
        return PST_E_STATE;
    uint64_t used = pst_host_route_end_find(self, from.route)->pool->slot[from.slot].used_bytes;
    uint64_t n = used < from_bytes ? used : from_bytes;
    n = n < to_bytes ? n : to_bytes;
    memcpy(dst, src, n);
    pst_used(self, to, n);
    c->bytes += n;
    atomic_fetch_add_explicit(&self->page->copied_bytes, n, memory_order_relaxed);
    return PST_OK;
}

/* Frames go on in order. A micro-batch waits for its last part: otherwise the other side would hear of
 * requests in a slot that is not copied yet. */
static pst_rc forward(struct pst_stage *self)
{
    struct copy *c = pst_state(self);
    pst_rc rc = PST_OK;
    while (rc == PST_OK && c->complete > 0) {
        struct pst_frame frame = c->frames[c->first_frame];
        bool gives = (frame.flags & PST_LAST_PART) != 0;
        if (frame.nrefs > 0) {
            if (c->ncredits == 0)
                break;
            struct pst_ref from = frame.refs[0], to = c->credits[c->first_credit].ref;
            if (!c->moved)
                rc = move(self, from, to);
            c->moved = !gives;
            frame.refs[0] = to;
            if (gives) {
                c->first_credit = (c->first_credit + 1) % PST_SLOTS_MAX;
                c->ncredits--;
                c->source[to.slot] = from;
                c->pending[to.slot] = c->returns;
                if (rc == PST_OK && !c->returns)
                    rc = pst_release(self, from, false);
            }
        }
        if (rc == PST_OK)
            rc = pst_send(self, c->out, &frame);
        c->complete -= gives;
        c->batches += gives;
        pst_count(self, gives, 0);
        c->first_frame = (c->first_frame + 1) % PST_SLOTS_MAX;
        c->nframes--;
    }
    return rc;
}

/* The copies that are out after the last batch must come home, too. So this route must know the total of the
 * one that it borrows. Slots that were granted for batches after it are given back. */
static pst_rc tell_total(struct pst_stage *self, struct pst_ref from)
{
    struct copy *c = pst_state(self);
    const uint64_t total = pst_pool_total_of(pst_host_route_end_find(self, from.route)->pool);
    if (c->total_told || total == UINT64_MAX)
        return PST_OK;
    c->total_told = true;
    pst_total(self, c->out, total);
    pst_rc rc = PST_OK;
    while (c->ncredits > 0 && rc == PST_OK) {
        const struct pst_credit *last = &c->credits[(c->first_credit + c->ncredits - 1) % PST_SLOTS_MAX];
        if (last->batch < total)
            break;
        rc = pst_release(self, last->ref, false);
        c->ncredits--;
    }
    return rc;
}

/* The copy is free again: if it was changed, its bytes are copied back. */
static pst_rc come_home(struct pst_stage *self, const struct pst_credit *credit)
{
    struct copy *c = pst_state(self);
    uint32_t s = credit->ref.slot;
    if (!c->pending[s])
        return PST_OK;
    c->pending[s] = false;
    pst_rc rc = credit->dirty ? move(self, credit->ref, c->source[s]) : PST_OK;
    return rc == PST_OK ? pst_release(self, c->source[s], credit->dirty) : rc;
}

static pst_rc copy_event(struct pst_stage *self, const struct pst_event *ev)
{
    struct copy *c = pst_state(self);
    pst_rc rc = PST_OK;
    if (ev->kind == PST_EV_FRAME) {
        if (c->nframes == PST_SLOTS_MAX)
            return pst_fail(PST_E_LIMIT,
                            "the copy between two devices got more than %d frames that it has not copied "
                            "yet: use fewer slots",
                            PST_SLOTS_MAX);
        if (ev->frame->nrefs > 1)
            return pst_fail(PST_E_UNSUPPORTED,
                            "a frame with %u slots cannot be copied between devices: expected at most 1 "
                            "slot, or all stages of the link on one device",
                            ev->frame->nrefs);
        if (c->returns && ev->frame->nrefs > 0)
            rc = tell_total(self, ev->frame->refs[0]);
        c->frames[(c->first_frame + c->nframes++) % PST_SLOTS_MAX] = *ev->frame;
        c->complete += (ev->frame->flags & PST_LAST_PART) != 0;
    } else if (ev->kind == PST_EV_RETURN) {
        rc = come_home(self, &ev->credit);
    } else if (ev->kind == PST_EV_CREDIT) {
        rc = come_home(self, &ev->credit);
        c->credits[(c->first_credit + c->ncredits++) % PST_SLOTS_MAX] = ev->credit;
    }
    return rc == PST_OK ? forward(self) : rc;
}

static void copy_close(struct pst_stage *self)
{
    struct copy *c = pst_state(self);
    if (pst_report(self, "copies", "{\"bytes\": %llu, \"batches\": %llu}", (unsigned long long)c->bytes,
                   (unsigned long long)c->batches) != PST_OK)
        pst_log(self, "%s", pst_error_text());
}

struct pst_stage_desc pst_host_copy_desc(const struct pst_stage_desc *described)
{
    struct pst_stage_desc desc = *described;
    desc.state_bytes = sizeof(struct copy);
    desc.open = copy_open;
    desc.on_event = copy_event;
    desc.close = copy_close;
    return desc;
}
