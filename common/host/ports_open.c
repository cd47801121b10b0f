/* ports_open.c: a stage's inputs, outputs and routes, as the supervisor's "open" message describes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/host/handover.h"

static struct pst_host_peer *find_peer(struct pst_stage *self, const json_t *j, const char *pages)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *inbox = json_string_value(json_object_get(j, "inbox"));
    json_int_t page = json_integer_value(json_object_get(j, "page"));
    for (int i = 0; i < self->npeers; i++)
        if (name && strcmp(self->peers[i].name, name) == 0)
            return &self->peers[i];
    if (!name || !inbox || page < 0 || page >= PST_STAGES_MAX || self->npeers == PST_STAGES_MAX)
        return NULL;
    struct pst_host_peer *peer = &self->peers[self->npeers++];
    (void)snprintf(peer->name, sizeof peer->name, "%s", name);
    peer->page = (struct pst_page *)(uintptr_t)(pages + page * PST_PAGE);
    peer->push = zmq_socket(self->process->zmq, ZMQ_PUSH);
    int zero = 0;
    if (!peer->push || zmq_setsockopt(peer->push, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_connect(peer->push, inbox) != 0)
        return NULL;
    return peer;
}

static int find_peers(struct pst_stage *self, const json_t *list, const char *pages,
                      struct pst_host_peer **out)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n && i < PST_INSTANCES_MAX; i++)
        if (!(out[i] = find_peer(self, json_array_get(list, (size_t)i), pages)))
            return -1;
    return n <= PST_INSTANCES_MAX ? n : -1;
}

static int find_rings(struct pst_stage *self, const json_t *list, struct pst_lane *out)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n && i < PST_INSTANCES_MAX; i++) {
        json_int_t at = json_integer_value(json_array_get(list, (size_t)i));
        uint64_t bytes = self->board_map.bytes;
        if (at <= 0 || (uint64_t)at > bytes ||
            !pst_lane_open(&out[i], (struct pst_ring *)(void *)((char *)self->board_map.base + at),
                           bytes - (uint64_t)at))
            return -1;
    }
    return n <= PST_INSTANCES_MAX ? n : -1;
}

static int int_of(const json_t *j, const char *key)
{
    return (int)json_integer_value(json_object_get(j, key));
}

static bool open_input(struct pst_stage *self, const json_t *j, const char *pages)
{
    struct pst_host_input *in = &self->inputs[self->ninputs++];
    in->port = int_of(j, "port");
    in->back = json_is_true(json_object_get(j, "back"));
    in->ordered = (self->desc.ports[in->port].flags & PST_PORT_ORDERED) != 0;
    in->nrings = find_rings(self, json_object_get(j, "rings"), in->rings);
    uint64_t n = (uint64_t)self->instances,
             start = (uint64_t)json_integer_value(json_object_get(j, "start_batch"));
    in->next_batch = start + ((uint64_t)self->instance + n - start % n) % n;
    in->pending_cap = 64;
    in->pending = calloc(in->pending_cap, sizeof *in->pending);
    return in->pending && in->nrings > 0 &&
           find_peers(self, json_object_get(j, "producers"), pages, in->producers) == in->nrings;
}

static bool open_output(struct pst_stage *self, const json_t *j, const char *pages)
{
    struct pst_host_output *out = &self->outputs[self->noutputs++];
    out->port = int_of(j, "port");
    out->nrings = find_rings(self, json_object_get(j, "rings"), out->rings);
    return out->nrings > 0 &&
           find_peers(self, json_object_get(j, "consumers"), pages, out->consumers) == out->nrings;
}

static pst_rc open_route(struct pst_stage *self, const json_t *j, const char *pages)
{
    struct pst_host_route_end *route = &self->routes[self->nroutes++];
    int region = int_of(j, "region");
    uint64_t pool_at = (uint64_t)json_integer_value(json_object_get(j, "pool"));
    route->id = (uint32_t)int_of(j, "id");
    route->slots = (uint32_t)int_of(j, "slots");
    route->slot_bytes = (uint64_t)json_integer_value(json_object_get(j, "slot_bytes"));
    route->origin_port = int_of(j, "origin_port");
    route->via_port = int_of(j, "via_port");
    route->hold = (uint32_t)int_of(j, "hold");
    route->norigins = find_peers(self, json_object_get(j, "origins"), pages, route->origins);
    if (region < 0 || region >= self->nregions || route->id >= PST_PAGE_ROUTES_MAX ||
        route->slots > PST_SLOTS_MAX || route->norigins < 1 ||
        route->slots * route->slot_bytes > self->regions[region].bytes ||
        pool_at + sizeof(struct pst_pool) > self->board_map.bytes)
        return pst_fail(PST_E_PEER, "the supervisor's \"open\" message describes an invalid route: install "
                                    "penstock and penstock-stage from the same build");
    route->base = self->regions[region].base;
    route->on_gpu = self->region_on_gpu[region];
    route->pool = (struct pst_pool *)(void *)((char *)self->board_map.base + pool_at);
    return pst_handover_open(self, route, j);
}

pst_rc pst_ports_open(struct pst_stage *self, const json_t *message)
{
    const char *pages =
        (const char *)self->board_map.base + json_integer_value(json_object_get(message, "pages_at"));
    size_t i;
    json_t *j;
    bool ok = json_array_size(json_object_get(message, "routes")) <= PST_PORTS_MAX * 4;
    pst_rc rc = PST_OK;
    json_array_foreach(json_object_get(message, "routes"), i, j) rc =
        ok && rc == PST_OK ? open_route(self, j, pages) : rc;
    if (rc != PST_OK)
        return rc;
    json_array_foreach(json_object_get(message, "inputs"), i, j) ok =
        ok && i < PST_PORTS_MAX && open_input(self, j, pages);
    json_array_foreach(json_object_get(message, "outputs"), i, j) ok =
        ok && i < PST_PORTS_MAX * 4 && open_output(self, j, pages);
    return ok ? PST_OK
              : pst_fail(PST_E_PEER, "the supervisor's \"open\" message describes invalid inputs or outputs: "
                                     "install penstock and penstock-stage from the same build");
}

void pst_ports_close(struct pst_stage *self)
{
    pst_handover_close(self);
    for (int i = 0; i < self->ninputs; i++)
        free(self->inputs[i].pending);
    for (int i = 0; i < self->npeers; i++)
        if (self->peers[i].push)
            (void)zmq_close(self->peers[i].push);
}
