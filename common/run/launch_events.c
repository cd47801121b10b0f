/* launch_events.c: the supervisor's half of handover.h: who makes the events of a route's slots, and which
 * stages get them. If several processes use them, the memory host of their GPU makes them: it outlives all
 * stages, and it uses no event itself, because CUDA does not let a process open what it made. If all stages
 * of a route that are on GPUs are threads of one process, that process makes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/run/run_impl.h"

/* The k-th stage of the route (0 is its originator), if it is on a GPU and did not come before; else -1. */
static int user(const struct pst_supervisor *sv, const struct pst_route *route, int k)
{
    const int stage = k == 0 ? route->stage : route->borrower_stage[k - 1];
    for (int i = 0; i < k; i++)
        if (stage == (i == 0 ? route->stage : route->borrower_stage[i - 1]))
            return -1;
    return pst_gpu_number(sv->pl->stages[stage].device) >= 0 ? stage : -1;
}

static bool in_one_process(const struct pst_supervisor *sv, const struct pst_route *route)
{
    int proc = -1;
    for (int k = 0; k <= route->borrowers; k++)
        for (int i = 0, stage = user(sv, route, k); i < sv->ninstances; i++) {
            if (sv->instances[i].stage != stage)
                continue;
            if (proc >= 0 && sv->instances[i].proc != proc)
                return false;
            proc = sv->instances[i].proc;
        }
    return true;
}

static json_t *own_names(const char *device, int id, int slots)
{
    char name[64];
    json_t *names = json_array();
    for (int s = 0; s < slots; s++) {
        (void)snprintf(name, sizeof name, "%s #%d-%d", device, id, s);
        (void)json_array_append_new(names, json_string(name));
    }
    return names;
}

pst_rc pst_run_plan_events(struct pst_supervisor *sv)
{
    int most = 0;
    for (int r = 0; r < sv->graph->nroutes; r++)
        most += sv->graph->routes[r].events ? 1 + sv->graph->routes[r].borrowers : 0;
    if (most == 0)
        return PST_OK;
    sv->events = calloc((size_t)most, sizeof *sv->events);
    if (!sv->events)
        return pst_fail(PST_E_NOMEM, "out of memory");
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        const bool own = in_one_process(sv, route);
        for (int k = 0; route->events && k <= route->borrowers; k++) {
            const int stage = user(sv, route, k);
            if (stage < 0)
                continue;
            const char *device = sv->pl->stages[stage].device;
            sv->events[sv->nevents] =
                (struct pst_run_events){.route = r,
                                        .stage = stage,
                                        .host = own ? -1 : pst_run_plan_host(sv, device),
                                        .names = own ? own_names(device, sv->nevents, route->slots) : NULL};
            sv->nevents++;
        }
    }
    return PST_OK;
}

void pst_run_hear_events(struct pst_supervisor *sv, const char *who, const json_t *message)
{
    const json_int_t id = json_integer_value(json_object_get(message, "id"));
    const char *why = json_string_value(json_object_get(message, "why"));
    if (id < 0 || id >= sv->nevents || sv->events[id].names)
        return;
    sv->events[id].names = why ? json_null() : json_incref(json_object_get(message, "names"));
    if (!why || json_object_get(json_object_get(sv->report, "gpus"), "no_events"))
        return;
    pst_report_no_events(sv->report, why);
    pst_run_clear_line(sv);
    fprintf(stderr,
            "warning: %s: stages wait on the CPU for each other's GPU work, because this GPU cannot share "
            "events between processes: %s\n",
            who, why);
}

/* Either all of the route's stages have events, or none has. */
static bool route_has(const struct pst_supervisor *sv, int r)
{
    bool has = false;
    for (int e = 0; e < sv->nevents; e++) {
        if (sv->events[e].route != r)
            continue;
        if (json_is_null(sv->events[e].names))
            return false;
        has = true;
    }
    return has;
}

bool pst_run_events_ready(const struct pst_supervisor *sv)
{
    for (int e = 0; e < sv->nevents; e++)
        if (!sv->events[e].names)
            return false;
    return true;
}

void pst_run_add_events(const struct pst_supervisor *sv, json_t *route, int r, int stage)
{
    if (!route_has(sv, r))
        return;
    json_t *theirs = json_array();
    for (int e = 0; e < sv->nevents; e++) {
        const struct pst_run_events *set = &sv->events[e];
        if (set->route != r)
            continue;
        if (set->stage == stage)
            (void)json_object_set(route, "mine", set->names);
        /* another instance may have filled the slot before */
        if (set->stage != stage ||
            (stage == sv->graph->routes[r].stage && sv->pl->stages[stage].instances > 1))
            (void)json_array_append(theirs, set->names);
    }
    (void)json_object_set_new(route, "theirs", theirs);
    (void)json_object_set_new(route, "aside", json_boolean(sv->graph->routes[r].aside));
}

void pst_run_release_events(struct pst_supervisor *sv)
{
    for (int e = 0; e < sv->nevents; e++)
        json_decref(sv->events[e].names);
    free(sv->events);
}
