/* ports.c: frames in and out, slots held and given back, credits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "common/host/handover.h"

#define FULL_RING_NAP_NS 100000 /* a ring is full only while its reader does something long */
#define PENDING_MAX 8192        /* early frames of one ordered input: far above slots x parts */

struct pst_host_route_end *pst_host_route_end_find(struct pst_stage *self, uint32_t route)
{
    for (int i = 0; i < self->nroutes; i++)
        if (self->routes[i].id == route)
            return &self->routes[i];
    return NULL;
}

static struct pst_host_route_end *held_at_port(const struct pst_stage *self, int port)
{
    for (int i = 0; i < self->nroutes; i++)
        if (self->routes[i].via_port == port)
            return (struct pst_host_route_end *)(uintptr_t)&self->routes[i];
    return NULL;
}

static void wake(const struct pst_host_peer *peer)
{
    /* If this exchange comes after the sleeper's, it finds the flag set. If it comes before, the sleeper
     * looks once more afterwards, and sees what was just handed over. */
    if (atomic_exchange_explicit(&peer->page->sleeping, 0, memory_order_acq_rel))
        (void)zmq_send(peer->push, "", 0, ZMQ_DONTWAIT);
}

/* ---- giving and taking slots --------------------------------------------------------------------- */

/* The route of a slot that this stage holds, or (if announced is set) knows from an early part. NULL, with
 * the reason: it has no such slot. */
static struct pst_host_route_end *want_held(struct pst_stage *self, struct pst_ref ref, const char *what,
                                            bool announced)
{
    struct pst_host_route_end *route = pst_host_route_end_find(self, ref.route);
    if (!route || ref.slot >= route->slots) {
        (void)pst_fail(PST_E_ARG,
                       "the stage %s slot %u of route %u, but the slots of this route do not pass through "
                       "the stage (`penstock graph` shows the routes)",
                       what, ref.slot, ref.route);
        return NULL;
    }
    if (!route->held[ref.slot] && !(announced && route->announced[ref.slot])) {
        (void)pst_fail(PST_E_ARG,
                       "the stage %s slot %u of route %u, but does not hold this slot: a stage must not use "
                       "a slot after it has sent or released it",
                       what, ref.slot, ref.route);
        return NULL;
    }
    return route;
}

static void hold(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    route->held[slot]++;
    route->held_count++;
    atomic_fetch_add_explicit(&self->page->held[route->id], 1, memory_order_relaxed);
}

static void let_go(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    pst_trace_back(self, route, slot);
    route->held[slot]--;
    route->held_count--;
    atomic_fetch_sub_explicit(&self->page->held[route->id], 1, memory_order_relaxed);
    route->open -= route->granted[slot];
    route->granted[slot] = false;
}

void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes)
{
    struct pst_host_route_end *route = want_held(self, ref, "asked for", true);
    if (!route)
        return NULL;
    if (bytes)
        *bytes = route->slot_bytes;
    return route->base + ref.slot * route->slot_bytes;
}

void pst_used(struct pst_stage *self, struct pst_ref ref, uint64_t bytes)
{
    struct pst_host_route_end *route = pst_host_route_end_find(self, ref.route);
    if (route && ref.slot < route->slots && route->held[ref.slot])
        route->pool->slot[ref.slot].used_bytes = bytes;
}

uint32_t pst_slots(const struct pst_stage *self, int port)
{
    const struct pst_host_route_end *route = held_at_port(self, port);
    return route ? route->slots : 0;
}

uint64_t pst_slot_bytes(const struct pst_stage *self, int port)
{
    const struct pst_host_route_end *route = held_at_port(self, port);
    return route ? route->slot_bytes : 0;
}

bool pst_on_host(const struct pst_stage *self, int port)
{
    const struct pst_host_route_end *route = held_at_port(self, port);
    return !route || !route->on_gpu;
}

void *pst_slot_region(struct pst_stage *self, int index, uint64_t *bytes)
{
    if (index < 0 || index >= self->nregions)
        return NULL;
    if (bytes)
        *bytes = self->regions[index].bytes;
    return self->regions[index].base;
}

pst_rc pst_release(struct pst_stage *self, struct pst_ref ref, bool dirty)
{
    struct pst_host_route_end *route = want_held(self, ref, "released", false);
    if (!route)
        return PST_E_ARG;
    const pst_rc rc = pst_handover_give(self, route, ref.slot);
    if (rc != PST_OK)
        return rc;
    let_go(self, route, ref.slot);
    if (pst_pool_release(route->pool, ref.slot, dirty))
        for (int i = 0; i < route->norigins; i++)
            if (route->origins[i]->page != self->page)
                wake(route->origins[i]);
    return PST_OK;
}

pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame)
{
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < frame->nrefs && rc == PST_OK; i++)
        rc = pst_release(self, frame->refs[i], false);
    if (rc == PST_OK && (frame->flags & PST_LAST_MICRO))
        pst_count(self, 1, 0);
    return rc;
}

void pst_total(struct pst_stage *self, int port, uint64_t batches)
{
    struct pst_host_route_end *route = held_at_port(self, port);
    if (!route)
        return; /* the port is not linked */
    assert(route->origin_port == port && "pst_total is only for outputs that originate slots");
    if (self->stop_batch > 0 && batches > self->stop_batch)
        batches = self->stop_batch;
    route->total_told = true;
    pst_pool_total(route->pool, batches);
}

void pst_fill_many(struct pst_stage *self, int port)
{
    pst_fill_ahead(self, port, UINT32_MAX);
}

void pst_fill_ahead(struct pst_stage *self, int port, uint32_t slots)
{
    struct pst_host_route_end *route = held_at_port(self, port);
    if (!route)
        return; /* the port is not linked */
    assert(route->origin_port == port && "pst_fill_ahead is only for outputs that originate slots");
    route->hold = slots < route->slots ? slots : route->slots;
}

/* ---- sending ------------------------------------------------------------------------------------- */

static pst_rc push_when_there_is_room(struct pst_stage *self, const struct pst_host_output *out, int to,
                                      const struct pst_frame *frame)
{
    while (!pst_lane_push(&out->rings[to], frame)) {
        if (atomic_load_explicit(&self->board->stop, memory_order_relaxed))
            return pst_fail(PST_E_INTERRUPTED, "the run is stopping, so the stage cannot send another frame");
        wake(out->consumers[to]);
        (void)nanosleep(&(struct timespec){.tv_nsec = FULL_RING_NAP_NS}, NULL);
    }
    return PST_OK;
}

static pst_rc push(struct pst_stage *self, struct pst_host_output *out, int to, const struct pst_frame *frame)
{
    if (frame->nrefs > out->rings[to].refs)
        return pst_fail(
            PST_E_LIMIT,
            "the stage sent a frame with %u slots, but its link carries at most %u slots in a frame",
            frame->nrefs, out->rings[to].refs);
    if (!pst_lane_push(&out->rings[to], frame)) {
        const enum pst_page_state before = pst_page_enter(self->page, PST_PAGE_WAITS_CREDIT);
        const pst_rc rc = push_when_there_is_room(self, out, to, frame);
        (void)pst_page_enter(self->page, before);
        if (rc != PST_OK)
            return rc;
    }
    wake(out->consumers[to]);
    return PST_OK;
}

pst_rc pst_send(struct pst_stage *self, int port, const struct pst_frame *frame)
{
    bool gives = (frame->flags & PST_LAST_PART) != 0;
    uint32_t links = 0;
    for (int i = 0; i < self->noutputs; i++)
        links += self->outputs[i].port == port;
    if (frame->nrefs > PST_REFS_MAX || (frame->flags & PST_END))
        return pst_fail(PST_E_ARG,
                        "the stage sent a frame with %u slots and flags %u; expected at most %d slots, and "
                        "flags without PST_END, which only the runtime sets",
                        frame->nrefs, frame->flags, PST_REFS_MAX);
    for (uint32_t r = 0; r < frame->nrefs; r++) {
        struct pst_host_route_end *route = want_held(self, frame->refs[r], "sent", !gives);
        if (!route)
            return PST_E_ARG;
        pst_rc rc = links > 0 ? pst_handover_announce(self, route, frame->refs[r].slot) : PST_OK;
        if (rc == PST_OK && gives && links > 0)
            rc = pst_handover_give(self, route, frame->refs[r].slot);
        if (rc != PST_OK)
            return rc;
        /* Asks for it before the slot can be free again: a later batch must not get it first. */
        if (gives && links > 0 && route->origin_port == port && !(frame->flags & PST_LAST_MICRO)) {
            if (route->pool->returns)
                return pst_fail(
                    PST_E_UNSUPPORTED,
                    "the stage sent micro-batch %u of batch %llu without the flag PST_LAST_MICRO, but output "
                    "%s has the flag PST_PORT_RETURNS, which allows only one slot for each batch",
                    frame->micro, (unsigned long long)frame->batch, self->desc.ports[port].name);
            rc = pst_pool_want(route->pool, (uint32_t)self->instance, frame->batch, frame->micro + 1);
            if (rc != PST_OK)
                return rc;
        }
        if (gives && links > 1)
            pst_pool_share(route->pool, frame->refs[r].slot, links - 1);
        if (gives && links > 0)
            let_go(self, route, frame->refs[r].slot);
    }
    if (links == 0) { /* an optional output that is not linked: the slots go home */
        pst_rc rc = PST_OK;
        for (uint32_t r = 0; gives && r < frame->nrefs && rc == PST_OK; r++)
            rc = pst_release(self, frame->refs[r], false);
        return rc;
    }
    pst_rc rc = PST_OK;
    for (int i = 0; i < self->noutputs && rc == PST_OK; i++)
        if (self->outputs[i].port == port)
            rc =
                push(self, &self->outputs[i], (int)(frame->batch % (uint64_t)self->outputs[i].nrings), frame);
    atomic_fetch_add_explicit(&self->page->frames, 1, memory_order_relaxed);
    return rc;
}

pst_rc pst_ports_end(struct pst_stage *self)
{
    pst_rc rc = PST_OK;
    struct pst_frame end = {.flags = PST_END};
    for (int i = 0; i < self->noutputs; i++)
        for (int c = 0; c < self->outputs[i].nrings && rc == PST_OK; c++)
            rc = push(self, &self->outputs[i], c, &end);
    return rc;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

static pst_rc deliver_frame(struct pst_stage *self, struct pst_host_input *in, const struct pst_frame *frame)
{
    for (uint32_t r = 0; r < frame->nrefs; r++) {
        struct pst_host_route_end *route = pst_host_route_end_find(self, frame->refs[r].route);
        if (!route || frame->refs[r].slot >= route->slots)
            return pst_fail(
                PST_E_PEER,
                "%s, or another instance of its stage, sent slot %u of route %u, but the slots of this route "
                "do not pass through this stage (`penstock graph` shows the routes)",
                in->producers[0]->name, frame->refs[r].slot, frame->refs[r].route);
        const pst_rc rc = pst_handover_take(self, route, frame->refs[r].slot);
        if (rc != PST_OK)
            return rc;
        route->announced[frame->refs[r].slot] = !(frame->flags & PST_LAST_PART);
        if (frame->flags & PST_LAST_PART) {
            hold(self, route, frame->refs[r].slot);
            pst_trace_given(self, route, frame->refs[r].slot);
        }
    }
    atomic_store_explicit(&self->page->batch, frame->batch, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->page->taken, 1, memory_order_relaxed);
    struct pst_event event = {.kind = PST_EV_FRAME, .port = in->port, .frame = frame};
    return pst_host_deliver(self, &event);
}

static bool is_next(const struct pst_host_input *in, const struct pst_frame *f)
{
    return f->batch == in->next_batch && f->micro == in->next_micro && f->part == in->next_part;
}

static void advance(const struct pst_stage *self, struct pst_host_input *in, const struct pst_frame *f)
{
    if (!(f->flags & PST_LAST_PART)) {
        in->next_part++;
        return;
    }
    in->next_part = 0;
    in->next_micro++;
    if (f->flags & PST_LAST_MICRO) {
        in->next_micro = 0;
        in->next_batch += (uint64_t)self->instances;
    }
}

static bool keep(struct pst_host_input *in, const struct pst_frame *frame)
{
    if (in->npending == in->pending_cap) {
        uint32_t cap = in->pending_cap * 2;
        struct pst_frame *pending = cap <= PENDING_MAX ? realloc(in->pending, cap * sizeof *pending) : NULL;
        if (!pending)
            return false;
        in->pending = pending;
        in->pending_cap = cap;
    }
    in->pending[in->npending++] = *frame;
    return true;
}

/* The supervisor shows it if nothing moves. */
static void tell_early(const struct pst_stage *self)
{
    uint32_t early = 0;
    for (int i = 0; i < self->ninputs; i++) {
        early += self->inputs[i].npending;
        if (self->inputs[i].npending > 0)
            atomic_store_explicit(&self->page->missing, self->inputs[i].next_batch, memory_order_relaxed);
    }
    atomic_store_explicit(&self->page->early, early, memory_order_relaxed);
}

/* Delivers kept frames whose turn has come. */
static bool deliver_pending(struct pst_stage *self, struct pst_host_input *in, pst_rc *rc)
{
    bool any = false;
    for (uint32_t i = 0; i < in->npending && *rc == PST_OK;) {
        if (!is_next(in, &in->pending[i])) {
            i++;
            continue;
        }
        struct pst_frame frame = in->pending[i];
        in->pending[i] = in->pending[--in->npending];
        advance(self, in, &frame);
        *rc = deliver_frame(self, in, &frame);
        any = true;
        i = 0;
    }
    return any;
}

static pst_rc take(struct pst_stage *self, struct pst_host_input *in, int ring, const struct pst_frame *frame)
{
    if (frame->flags & PST_END) {
        in->ring_ended[ring] = true;
        return PST_OK;
    }
    if (!in->ordered)
        return deliver_frame(self, in, frame);
    if (is_next(in, frame)) {
        advance(self, in, frame);
        return deliver_frame(self, in, frame);
    }
    if (frame->batch < in->next_batch || !keep(in, frame))
        return pst_fail(
            PST_E_PEER,
            "%s sent batch %llu, micro-batch %u, part %u; expected batch %llu, micro-batch %u, part %u",
            in->producers[ring]->name, (unsigned long long)frame->batch, frame->micro, frame->part,
            (unsigned long long)in->next_batch, in->next_micro, in->next_part);
    return PST_OK;
}

static bool step_input(struct pst_stage *self, struct pst_host_input *in, pst_rc *rc)
{
    if (in->ended)
        return false;
    bool any = false, all_ended = true;
    const uint32_t early = in->npending;
    struct pst_frame frame;
    for (int r = 0; r < in->nrings && *rc == PST_OK; r++) {
        int got = in->ring_ended[r] ? 0 : pst_lane_pop(&in->rings[r], &frame);
        if (got < 0)
            *rc = pst_fail(PST_E_PEER,
                           "%s sent a frame that is not valid: it overwrote shared memory, or its version of "
                           "Penstock is another one",
                           in->producers[r]->name);
        if (got > 0) {
            any = true;
            *rc = take(self, in, r, &frame);
        }
        all_ended = all_ended && in->ring_ended[r];
    }
    if (*rc == PST_OK && in->npending > 0)
        any = deliver_pending(self, in, rc) || any;
    if (in->npending > 0 || early > 0)
        tell_early(self);
    if (*rc == PST_OK && all_ended) {
        in->ended = true;
        any = true;
        if (in->npending > 0)
            *rc =
                pst_fail(PST_E_PEER,
                         "input %s ended, but batch %llu never arrived: a stage before this one left it out",
                         self->desc.ports[in->port].name, (unsigned long long)in->next_batch);
        struct pst_event event = {.kind = PST_EV_END, .port = in->port};
        if (*rc == PST_OK)
            *rc = pst_host_deliver(self, &event);
    }
    return any;
}

/* The slot has come home for the last time. */
static pst_rc keep_home(struct pst_stage *self, struct pst_host_route_end *route, struct pst_ref ref)
{
    if (!route->held[ref.slot])
        return pst_fail(PST_E_STATE,
                        "the stage sent or released slot %u, which came back after the last batch: a stage "
                        "must keep this slot",
                        ref.slot);
    let_go(self, route, ref.slot);
    return PST_OK;
}

static bool step_credit(struct pst_stage *self, struct pst_host_route_end *route, pst_rc *rc)
{
    struct pst_event event = {.kind = PST_EV_CREDIT, .port = route->origin_port};
    if (route->origin_port < 0 || route->ended || route->open >= route->hold ||
        !pst_pool_grant(route->pool, (uint32_t)self->instance, &event.credit))
        return false;
    event.credit.ref.route = route->id;
    hold(self, route, event.credit.ref.slot);
    route->granted[event.credit.ref.slot] = true;
    route->open++;
    const bool home = event.credit.batch == UINT64_MAX;
    if (!home) {
        atomic_store_explicit(&self->page->batch, event.credit.batch, memory_order_relaxed);
        pst_trace_given(self, route, event.credit.ref.slot);
    }
    atomic_fetch_add_explicit(&self->page->taken, 1, memory_order_relaxed);
    for (int i = 0; i < route->norigins; i++) /* the next slot may belong to another instance */
        if (route->origins[i]->page != self->page)
            wake(route->origins[i]);
    *rc = pst_handover_take(self, route, event.credit.ref.slot);
    if (home)
        event.kind = PST_EV_RETURN;
    if (*rc == PST_OK)
        *rc = pst_host_deliver(self, &event);
    if (home && *rc == PST_OK)
        *rc = keep_home(self, route, event.credit.ref);
    return true;
}

/* A program cannot see how many batches the other instances took: it is told when there is none left. */
static bool step_end(struct pst_stage *self, struct pst_host_route_end *route, pst_rc *rc)
{
    if (route->origin_port < 0 || route->ended || !route->total_told || route->open > 0 ||
        !pst_pool_exhausted(route->pool, (uint32_t)self->instance))
        return false;
    route->ended = true;
    struct pst_event event = {.kind = PST_EV_END, .port = route->origin_port};
    *rc = pst_host_deliver(self, &event);
    return true;
}

bool pst_ports_step(struct pst_stage *self, pst_rc *rc)
{
    bool any = false;
    for (int i = 0; i < self->ninputs && *rc == PST_OK; i++)
        any = step_input(self, &self->inputs[i], rc) || any;
    for (int i = 0; i < self->nroutes && *rc == PST_OK; i++)
        any = step_credit(self, &self->routes[i], rc) || any;
    for (int i = 0; i < self->nroutes && *rc == PST_OK && self->caps.foreign; i++)
        any = step_end(self, &self->routes[i], rc) || any;
    return any;
}

bool pst_ports_starved(struct pst_stage *self)
{
    for (int i = 0; i < self->nroutes; i++) {
        const struct pst_host_route_end *r = &self->routes[i];
        if (r->origin_port >= 0 && r->open == 0 && !pst_pool_exhausted(r->pool, (uint32_t)self->instance))
            return true;
    }
    return false;
}

bool pst_ports_have_work(const struct pst_stage *self)
{
    bool borrows = false, borrowed = false, originates = false, granted = false;
    for (int i = 0; i < self->nroutes; i++) {
        const struct pst_host_route_end *r = &self->routes[i];
        bool *has = r->origin_port < 0 ? &borrowed : &granted;
        *(r->origin_port < 0 ? &borrows : &originates) = true;
        *has = *has || r->held_count > 0;
    }
    return (borrowed || granted) && borrows == borrowed && originates == granted;
}

bool pst_ports_finished(struct pst_stage *self)
{
    bool fed = false, originates = false, told = false;
    for (int i = 0; i < self->ninputs; i++) {
        fed = fed || !self->inputs[i].back;
        if (!self->inputs[i].back && !self->inputs[i].ended)
            return false;
    }
    for (int i = 0; i < self->nroutes; i++) {
        originates = originates || self->routes[i].origin_port >= 0;
        told = told || self->routes[i].total_told;
    }
    if (!fed && originates && !told)
        return false; /* a source that has not said how many batches there are */
    for (int i = 0; i < self->nroutes; i++) {
        struct pst_host_route_end *r = &self->routes[i];
        if (r->origin_port < 0
                ? r->held_count > 0
                : r->total_told && (r->open > 0 || !pst_pool_exhausted(r->pool, (uint32_t)self->instance)))
            return false;
    }
    return true;
}
