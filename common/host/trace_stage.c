/* trace_stage.c: what the host itself puts into a stage's trace: events, the way of each slot, counters, and
 * how long the program of a foreign stage had each slot. */
#include <stdio.h>

#include "common/host/host_impl.h"

#define SHORTEST_NS 2000 /* a shorter event that is on no slot's way gets no span */

/* Whether the slots of an input go on from here. */
static bool goes_on(const struct pst_stage *self, int port)
{
    const struct pst_port_desc *ports = self->desc.ports;
    for (int i = 0; i < pst_desc_ports(&self->desc); i++)
        if (ports[i].forwards && pst_desc_forwards(&ports[i], ports[port].name) && pst_linked(self, i))
            return true;
    return false;
}

static enum pst_trace_way way_of(const struct pst_stage *self, const struct pst_event *event, uint64_t *flow)
{
    if (event->kind == PST_EV_CREDIT) {
        *flow = pst_trace_flow(event->credit.ref.route, event->credit.batch, event->credit.micro);
        return PST_TRACE_STARTS;
    }
    const struct pst_frame *frame = event->kind == PST_EV_FRAME ? event->frame : NULL;
    if (!frame || !(frame->flags & PST_LAST_PART) || frame->nrefs == 0)
        return PST_TRACE_NO_WAY;
    *flow = pst_trace_flow(frame->refs[0].route, frame->batch, frame->micro);
    return goes_on(self, event->port) ? PST_TRACE_PASSES : PST_TRACE_ENDS;
}

static void take_sample(struct pst_stage *self, uint64_t now_ns, bool now)
{
    struct pst_trace_sample s = {.at_s = (double)now_ns * 1e-9, .in_flight = (uint32_t)self->in_flight};
    s.bytes = atomic_load_explicit(&self->page->bytes, memory_order_relaxed);
    for (int i = 0; i < self->ninputs; i++) {
        s.frames += self->inputs[i].npending;
        for (int r = 0; r < self->inputs[i].nrings; r++)
            s.frames += pst_lane_waiting(&self->inputs[i].rings[r]);
    }
    for (int i = 0; i < self->nroutes; i++)
        if (self->routes[i].origin_port >= 0)
            s.free_slots += pst_pool_free(self->routes[i].pool);
    pst_trace_add_sample(&self->trace, &s, now);
}

void pst_trace_event(struct pst_stage *self, const struct pst_event *event, uint64_t begin_ns,
                     uint64_t end_ns)
{
    static const char *const kinds[] = {"start", "frame", "fill", "end", "io", "timer", "finish", "return"};
    if (!self->trace.spans)
        return;
    uint64_t flow = 0;
    const enum pst_trace_way way = way_of(self, event, &flow);
    const uint64_t batch = event->kind == PST_EV_FRAME    ? event->frame->batch
                           : event->kind == PST_EV_CREDIT ? event->credit.batch
                                                          : 0;
    char name[40];
    (void)snprintf(name, sizeof name, "%s %llu", kinds[event->kind], (unsigned long long)batch);
    if (way != PST_TRACE_NO_WAY || end_ns - begin_ns > SHORTEST_NS)
        pst_trace_add_way(&self->trace, name, (double)begin_ns * 1e-9, (double)end_ns * 1e-9, way, flow);
    take_sample(self, end_ns, false);
}

void pst_trace_sleep(struct pst_stage *self)
{
    if (self->trace.spans)
        take_sample(self, pst_clock_ns(), true);
}

void pst_trace_given(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    if (self->trace.spans && self->caps.foreign)
        route->given_s[slot] = pst_now();
}

/* A program is taken to work on one slot at a time, on the one that it gives back first. */
void pst_trace_back(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    const double given = route->given_s[slot], now = given > 0 ? pst_now() : 0;
    if (given <= 0)
        return;
    route->given_s[slot] = 0;
    const double begin = given > self->program_free_s ? given : self->program_free_s;
    pst_trace_add_of(&self->trace, "P", route->pool->slot[slot].batch, -1, begin, now);
    self->program_free_s = now;
}
