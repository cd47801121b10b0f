/* handover.c: on GPUs slots change hands in streams. Each stage on a GPU that a route passes has one event
 * for each slot, which says when its kernels are done with the slot. A stage that gets a slot waits for the
 * events of all other stages: in its stream, or on the host if it has named no stream. An event is recorded
 * before the frame or the release that hands the slot on. So no wait can come before its record. An event of
 * an earlier turn has passed already.
 *
 * If a stage on a CPU touches the slots there are no events. Then the sender waits for its stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/host/handover.h"

/* ---- events of a process ------------------------------------------------------------------------- */

/* "cuda:N HANDLE" is an event that the memory host shares, "cuda:N #NAME" one of this process. */
static pst_rc open_event(const char *name, int gpu, void **event)
{
    const struct pst_gpus *gpus;
    struct pst_ipc handle;
    char why[PST_GPUS_WHY_BYTES];
    const char *text = strchr(name, ' ');
    pst_rc rc = pst_gpus_open(&gpus);
    if (rc != PST_OK)
        return rc;
    if (text && text[1] == '#')
        rc = gpus->event_new(gpu, false, event, why);
    else if (text && pst_ipc_parse(text + 1, &handle))
        rc = gpus->event_open(gpu, &handle, event, why);
    else
        return pst_fail(PST_E_PEER, "the process that owns the GPU memory sent an event without a handle: "
                                    "install penstock-memory and penstock-stage from the same build");
    return rc == PST_OK ? rc : pst_fail(rc, "cannot create or open a GPU event that stages share: %s", why);
}

/* Each event is opened once in a process. Its threads share it by its name. */
static pst_rc find_event(struct pst_host_process *process, const char *name, void **event)
{
    pst_rc rc = PST_OK;
    (void)pthread_mutex_lock(&process->lock);
    struct pst_host_event_known *known = process->events;
    while (known && strcmp(known->name, name) != 0)
        known = known->next;
    if (!known && (known = calloc(1, sizeof *known + strlen(name) + 1))) {
        known->gpu = pst_gpu_number(name);
        (void)memcpy(known->name, name, strlen(name) + 1);
        rc = open_event(name, known->gpu, &known->event);
        known->next = process->events;
        if (rc == PST_OK)
            process->events = known;
    }
    if (rc == PST_OK && known)
        *event = known->event;
    (void)pthread_mutex_unlock(&process->lock);
    if (rc != PST_OK)
        free(known);
    return rc != PST_OK || known ? rc : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate an event");
}

void pst_handover_free_events(struct pst_host_process *process)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    for (struct pst_host_event_known *known = process->events, *next; known; known = next) {
        next = known->next;
        if (pst_gpus_open(&gpus) == PST_OK && gpus->event_free(known->gpu, known->event, why) != PST_OK)
            fprintf(stderr, "%s\n", why);
        free(known);
    }
    process->events = NULL;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc find_events(struct pst_stage *self, const json_t *names, uint32_t slots, void **out)
{
    pst_rc rc = PST_OK;
    if (json_array_size(names) != slots)
        return pst_fail(PST_E_PEER,
                        "the supervisor sent %zu GPU events for a route of %u slots; expected one event for "
                        "each slot: install penstock and penstock-stage from the same build",
                        json_array_size(names), slots);
    for (uint32_t s = 0; s < slots && rc == PST_OK; s++) {
        const char *name = json_string_value(json_array_get(names, s));
        rc = find_event(self->process, name ? name : "", &out[s]);
    }
    return rc;
}

pst_rc pst_handover_open(struct pst_stage *self, struct pst_host_route_end *route, const json_t *j)
{
    const json_t *mine = json_object_get(j, "mine"), *theirs = json_object_get(j, "theirs");
    route->aside = json_is_true(json_object_get(j, "aside"));
    if (!mine)
        return PST_OK;
    const size_t n = json_array_size(theirs);
    route->ntheirs = (uint32_t)n;
    route->mine = calloc(route->slots, sizeof *route->mine);
    route->theirs = calloc((n + 1) * route->slots, sizeof *route->theirs);
    if (!route->mine || !route->theirs)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the events of %u slots", route->slots);
    pst_rc rc = find_events(self, mine, route->slots, route->mine);
    for (size_t i = 0; i < n && rc == PST_OK; i++)
        rc = find_events(self, json_array_get(theirs, i), route->slots, &route->theirs[i * route->slots]);
    return rc;
}

void pst_handover_close(struct pst_stage *self)
{
    for (int i = 0; i < self->nroutes; i++) {
        free(self->routes[i].mine);
        free(self->routes[i].theirs);
    }
}

pst_rc pst_stream(struct pst_stage *self, void *stream)
{
    static unsigned counter;
    char name[64];
    const int gpu = pst_gpu_number(pst_device_name(self));
    if (gpu < 0)
        return PST_OK;
    const unsigned number = __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    (void)snprintf(name, sizeof name, "cuda:%d #stream %u", gpu, number);
    pst_rc rc = find_event(self->process, name, &self->behind);
    self->stream = stream;
    self->in_stream = rc == PST_OK;
    return rc;
}

/* ---- while it runs ------------------------------------------------------------------------------- */

/* Makes the stream, or the host, wait until the others' kernels are done with the slot. */
static pst_rc wait_for_others(struct pst_stage *self, const struct pst_host_route_end *route, uint32_t slot,
                              bool host)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    pst_rc rc = PST_OK;
    if (route->ntheirs > 0)
        rc = pst_gpus_open(&gpus);
    for (uint32_t i = 0; i < route->ntheirs && rc == PST_OK; i++) {
        rc = gpus->event_wait(pst_gpu_number(pst_device_name(self)), route->theirs[i * route->slots + slot],
                              self->stream, host, why);
        if (rc != PST_OK)
            return pst_fail(rc, "cannot wait for the GPU work of another stage on slot %u of route %u: %s",
                            slot, route->id, why);
    }
    return rc;
}

pst_rc pst_handover_take(struct pst_stage *self, const struct pst_host_route_end *route, uint32_t slot)
{
    if (route->ntheirs == 0 ||
        (!self->in_stream && (self->desc.ports[route->via_port].flags & PST_PORT_ASIDE)))
        return PST_OK;
    return wait_for_others(self, route, slot, !self->in_stream);
}

pst_rc pst_handover_announce(struct pst_stage *self, const struct pst_host_route_end *route, uint32_t slot)
{
    return self->in_stream && route->aside ? wait_for_others(self, route, slot, true) : PST_OK;
}

pst_rc pst_handover_give(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    if (!self->in_stream)
        return PST_OK; /* it has waited */
    const int gpu = pst_gpu_number(pst_device_name(self));
    void *event = route->mine ? route->mine[slot] : route->queued[slot] ? route->behind[slot] : self->behind;
    pst_rc rc = pst_gpus_open(&gpus);
    if (rc != PST_OK)
        return rc;
    if (!route->queued[slot])
        rc = gpus->event_record(gpu, event, self->stream, why);
    if (rc == PST_OK && !route->mine)
        rc = gpus->event_wait(gpu, event, NULL, true, why);
    route->queued[slot] = false;
    return rc == PST_OK ? rc : pst_fail(rc, "cannot pass on slot %u of route %u: %s", slot, route->id, why);
}

/* An event of this slot alone, for a route that has none. */
static pst_rc own_event(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot)
{
    char name[96];
    if (route->behind[slot])
        return PST_OK;
    (void)snprintf(name, sizeof name, "%s #slot %u of %u of %p", pst_device_name(self), slot, route->id,
                   (const void *)self);
    return find_event(self->process, name, &route->behind[slot]);
}

pst_rc pst_slot_queued(struct pst_stage *self, struct pst_ref ref)
{
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    struct pst_host_route_end *route = pst_host_route_end_find(self, ref.route);
    if (!route || ref.slot >= route->slots || !route->held[ref.slot])
        return pst_fail(PST_E_ARG,
                        "the stage says that it has queued its work on slot %u of route %u, but it does not "
                        "hold this slot: it must say so before it sends the slot",
                        ref.slot, ref.route);
    if (!self->in_stream)
        return PST_OK; /* it waits on the host before it sends */
    pst_rc rc = route->mine ? PST_OK : own_event(self, route, ref.slot);
    if (rc == PST_OK)
        rc = pst_gpus_open(&gpus);
    if (rc != PST_OK)
        return rc;
    rc = gpus->event_record(pst_gpu_number(pst_device_name(self)),
                            route->mine ? route->mine[ref.slot] : route->behind[ref.slot], self->stream, why);
    route->queued[ref.slot] = rc == PST_OK;
    return rc == PST_OK
               ? rc
               : pst_fail(rc, "cannot note the work on slot %u of route %u: %s", ref.slot, route->id, why);
}

pst_rc pst_slot_wait(struct pst_stage *self, struct pst_ref ref)
{
    const struct pst_host_route_end *route = pst_host_route_end_find(self, ref.route);
    return route && ref.slot < route->slots
               ? wait_for_others(self, route, ref.slot, true)
               : pst_fail(PST_E_ARG,
                          "the stage waits for slot %u of route %u, but the slots of this route do not pass "
                          "through the stage (`penstock graph` shows the routes)",
                          ref.slot, ref.route);
}
