/* routes.c: routes: who borrows their slots, where the slots lie, how they change hands, how many are enough.
 */
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/builtin.h"
#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph_impl.h"
#include "common/pipeline/place.h"

/* ---- deriving -------------------------------------------------------------------------------- */

/* Adds everything that borrows slots that leave a stage by a port. False: a route cannot have so many
 * borrowers. */
static bool follow(const struct pst_pipeline *pl, struct pst_route *route, int stage, int port)
{
    bool fits = true;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->from != stage || link->from_port != port)
            continue;
        bool seen = false;
        for (int b = 0; b < route->borrowers; b++)
            seen = seen || (route->borrower_stage[b] == link->to && route->borrower_port[b] == link->to_port);
        if (seen)
            continue;
        if (route->borrowers == PST_ROUTE_BORROWERS_MAX)
            return false;
        route->borrower_stage[route->borrowers] = link->to;
        route->borrower_port[route->borrowers++] = link->to_port;
        const struct pst_stage_desc *desc = pl->stages[link->to].caps.desc;
        for (int p = 0; p < pst_desc_ports(desc); p++)
            if (desc->ports[p].dir == PST_OUT &&
                pst_desc_forwards(&desc->ports[p], desc->ports[link->to_port].name))
                fits = follow(pl, route, link->to, p) && fits;
    }
    return fits;
}

/* The number of slots that the file gives, or the default. One without overlap: then a batch is sampled when
 * the slot of the one before it has come home. */
static int route_slots(const struct pst_pipeline *pl, int stage, int port)
{
    int slots = 0;
    if (!pl->overlap)
        return 1;
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].from == stage && pl->links[l].from_port == port && pl->links[l].slots)
            slots = pl->links[l].slots;
    return slots ? slots : PST_PIPELINE_SLOTS_DEFAULT;
}

/* The stage of a borrower, or of the originator (-1), and its port. */
static const struct pst_pipeline_stage_spec *who(const struct pst_pipeline *pl, const struct pst_route *r,
                                                 int b, const struct pst_port_desc **port)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[b < 0 ? r->stage : r->borrower_stage[b]];
    *port = &stage->caps.desc->ports[b < 0 ? r->port : r->borrower_port[b]];
    return stage;
}

/* Can the slots lie in the memory of the GPU that `home` is on? Only if every stage that uses them can use
 * it. */
static bool can_live(const struct pst_pipeline *pl, const struct pst_route *route,
                     const struct pst_pipeline_stage_spec *home)
{
    const struct pst_port_desc *port;
    bool can = true;
    for (int b = -1; b < route->borrowers && can; b++) {
        const struct pst_pipeline_stage_spec *stage = who(pl, route, b, &port);
        can = pst_desc_list_has(port->memory, ',', "cuda") && pst_place_gpu_memory(stage, home);
    }
    return can;
}

/* Decides where the slots lie: in the memory of the GPU that uses them last, or of the GPU that fills them,
 * if possible. Else in host memory, of the first stage that is on a CPU. */
static void place(const struct pst_pipeline *pl, struct pst_route *route)
{
    const struct pst_port_desc *port;
    const struct pst_pipeline_stage_spec *cpu = NULL, *gpu = NULL,
                                         *last = who(pl, route, route->borrowers - 1, &port),
                                         *origin = who(pl, route, -1, &port);
    for (int b = route->borrowers - 1; b >= -1; b--) {
        const struct pst_pipeline_stage_spec *stage = who(pl, route, b, &port);
        const bool on_cpu = strncmp(stage->device, "cpu:", 4) == 0;
        cpu = on_cpu ? stage : cpu;
        gpu = on_cpu ? gpu : stage;
    }
    const struct pst_pipeline_stage_spec *home = can_live(pl, route, last)     ? last
                                                 : can_live(pl, route, origin) ? origin
                                                                               : NULL;
    route->memory = home ? PST_ROUTE_GPU : gpu ? PST_ROUTE_PINNED : PST_ROUTE_HOST;
    (void)snprintf(route->device, sizeof route->device, "%s",
                   home  ? home->device
                   : cpu ? cpu->device
                         : "cpu:0");
}

bool pst_route_is_reached(const struct pst_pipeline *pl, const struct pst_route *route)
{
    const struct pst_port_desc *port;
    bool reached = false;
    for (int b = -1; b < route->borrowers && route->memory == PST_ROUTE_GPU; b++)
        reached = reached || strcmp(who(pl, route, b, &port)->device, route->device) != 0;
    return reached;
}

/* Decides how slots change hands: by CUDA events if only kernels touch them, else by the host. */
static void choose_handover(const struct pst_pipeline *pl, struct pst_route *route)
{
    route->events = strncmp(pl->stages[route->stage].device, "cuda:", 5) == 0 &&
                    route->slots <= PST_ROUTE_EVENT_SLOTS_MAX;
    route->aside = false;
    for (int b = 0; b < route->borrowers; b++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[route->borrower_stage[b]];
        const unsigned flags = stage->caps.desc->ports[route->borrower_port[b]].flags;
        const bool cpu = strncmp(stage->device, "cpu:", 4) == 0;
        route->events = route->events && (!cpu || (flags & PST_PORT_ASIDE));
        route->aside = route->aside || ((flags & PST_PORT_ASIDE) && (flags & PST_PORT_WRITES));
    }
}

/* Decides whether data may stay in memory that the originator shares: all that get the slots must know it. A
 * program maps no such memory. */
static bool in_place(const struct pst_pipeline *pl, const struct pst_route *route)
{
    const struct pst_port_desc *port;
    bool can = route->borrowers > 0;
    for (int b = -1; b < route->borrowers && can; b++) {
        const struct pst_pipeline_stage_spec *stage = who(pl, route, b, &port);
        can = strncmp(stage->device, "cpu:", 4) == 0 && !stage->caps.foreign;
        if (b >= 0 && can)
            can = (port->flags & PST_PORT_IN_PLACE) &&
                  (!port->in_place_if || pst_condition_holds(port->in_place_if, stage->params));
    }
    return can;
}

/* Which route a copy's slots are copies of; -1: the route's originator is no copy. */
static int original_of(const struct pst_graph *graph, const struct pst_pipeline *pl,
                       const struct pst_route *route)
{
    int original = -1;
    if (pl->stages[route->stage].caps.desc != pst_builtin(PST_BUILTIN_COPY))
        return original;
    for (int q = 0; q < graph->nroutes; q++)
        for (int b = 0; b < graph->routes[q].borrowers; b++)
            if (graph->routes[q].borrower_stage[b] == route->stage)
                original = q;
    return original;
}

/* Adds the route that begins at an output. False: a limit is exceeded. */
static bool add_route(struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag, int s,
                      int p)
{
    if (graph->nroutes == PST_GRAPH_ROUTES_MAX) {
        pst_json_error(&pl->doc, diag, "links",
                       "the pipeline has too many outputs that make slots, copies between devices included: "
                       "at most %d are allowed",
                       PST_GRAPH_ROUTES_MAX);
        return false;
    }
    struct pst_route *route = &graph->routes[graph->nroutes];
    *route = (struct pst_route){.stage = s, .port = p, .copy_of = -1, .slots = route_slots(pl, s, p)};
    if (!follow(pl, route, s, p)) {
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s", pl->stages[s].name);
        pst_json_error(&pl->doc, diag, path,
                       "the slots of output %s pass through more than %d inputs, which is the limit",
                       pl->stages[s].caps.desc->ports[p].name, PST_ROUTE_BORROWERS_MAX);
        return false;
    }
    place(pl, route);
    choose_handover(pl, route);
    route->in_place = in_place(pl, route);
    graph->nroutes += route->borrowers > 0;
    return true;
}

bool pst_route_derive(struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag)
{
    memset(graph, 0, sizeof *graph);
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
        for (int p = 0; p < pst_desc_ports(desc); p++) {
            const struct pst_port_desc *port = &desc->ports[p];
            if (port->dir == PST_OUT && !port->forwards && !(port->flags & PST_PORT_ONESHOT) &&
                !add_route(graph, pl, diag, s, p))
                return false;
        }
    }
    for (int r = 0; r < graph->nroutes; r++)
        graph->routes[r].copy_of = original_of(graph, pl, &graph->routes[r]);
    return true;
}

bool pst_link_carries(const struct pst_graph *graph, int r, const struct pst_pipeline *pl,
                      const struct pst_link_spec *link)
{
    const struct pst_route *route = &graph->routes[r];
    if (route->stage == link->from && route->port == link->from_port)
        return true;
    const struct pst_stage_desc *desc = pl->stages[link->from].caps.desc;
    for (int b = 0; b < route->borrowers; b++)
        if (route->borrower_stage[b] == link->from &&
            pst_desc_forwards(&desc->ports[link->from_port], desc->ports[route->borrower_port[b]].name))
            return true;
    return false;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* A stage that keeps h slots before it lets one go can hold h - 1 of them for ever. So the route needs one
 * slot more than the sum of h - 1 over all of its stages. */
static void check_capacity(const struct pst_pipeline *pl, struct pst_diag *diag,
                           const struct pst_route *route)
{
    const struct pst_port_desc *port;
    int need = 1;
    char keepers[256] = "", path[PST_JSON_PATH_MAX];
    for (int b = -1; b < route->borrowers; b++) {
        const struct pst_pipeline_stage_spec *stage = who(pl, route, b, &port);
        int hold = pst_pipeline_port_hold(stage, port);
        need += (hold - 1) * stage->instances;
        if (hold > 1)
            (void)snprintf(keepers + strlen(keepers), sizeof keepers - strlen(keepers), "%s%s keeps up to %d",
                           keepers[0] ? ", " : "", stage->name, hold * stage->instances);
    }
    if (route->slots >= need)
        return;
    (void)snprintf(path, sizeof path, "stages.%s", pl->stages[route->stage].name);
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].from == route->stage && pl->links[l].from_port == route->port &&
            pl->links[l].index >= 0)
            (void)snprintf(path, sizeof path, "links[%d].slots", pl->links[l].index);
    if (pl->overlap)
        pst_json_error(&pl->doc, diag, path,
                       "a link with only %d slots can deadlock (%s): set slots to at least %d", route->slots,
                       keepers, need);
    else
        pst_json_error(&pl->doc, diag, "overlap",
                       "overlap is false, so the link has one slot, which can deadlock (%s): remove overlap "
                       "or set it to true",
                       keepers);
}

/* Whether slots that come to one input are forwarded to another, over back links too. */
static bool passes_on(const struct pst_pipeline *pl, int stage, int port, int to, int to_port, int depth)
{
    const struct pst_stage_desc *desc = pl->stages[stage].caps.desc;
    bool found = false;
    for (int l = 0; l < pl->nlinks && depth > 0 && !found; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->from == stage && pst_desc_forwards(&desc->ports[link->from_port], desc->ports[port].name))
            found = (link->to == to && link->to_port == to_port) ||
                    passes_on(pl, link->to, link->to_port, to, to_port, depth - 1);
    }
    return found;
}

static bool comes_before(const struct pst_pipeline *pl, const struct pst_route *route, int a, int b)
{
    return pst_link_leads(pl, route->borrower_stage[a], route->borrower_stage[b]) ||
           passes_on(pl, route->borrower_stage[a], route->borrower_port[a], route->borrower_stage[b],
                     route->borrower_port[b], route->borrowers);
}

/* A stage that changes slots must not hold them at the same time as another stage: that is so on parallel
 * branches. */
static void check_writers(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_route *route)
{
    for (int a = 0; a < route->borrowers; a++)
        for (int b = a + 1; b < route->borrowers; b++) {
            const struct pst_port_desc *port_a, *port_b;
            const struct pst_pipeline_stage_spec *one = who(pl, route, a, &port_a),
                                                 *two = who(pl, route, b, &port_b);
            const int sa = route->borrower_stage[a], sb = route->borrower_stage[b];
            if (!((port_a->flags | port_b->flags) & PST_PORT_WRITES) || sa == sb ||
                comes_before(pl, route, a, b) || comes_before(pl, route, b, a))
                continue;
            const bool first = (port_a->flags & PST_PORT_WRITES) != 0;
            char path[PST_JSON_PATH_MAX];
            (void)snprintf(path, sizeof path, "stages.%s", first ? one->name : two->name);
            pst_json_error(&pl->doc, diag, path,
                           "this stage changes slots, and %s holds the same slots at the same time: put this "
                           "stage before the output that several stages are linked to",
                           first ? two->name : one->name);
        }
}

/* Why a stage may split the batches of an output; NULL: it does not. Grains are split in any case. */
static const char *why_split(const struct pst_pipeline_stage_spec *stage, const struct pst_port_desc *port,
                             char text[2 * PST_NAME_MAX])
{
    if (!port->splits_if || pst_condition_holds(port->splits_if, stage->params))
        return port->splits_if;
    for (const struct pst_param_desc *p = stage->caps.desc->params; p && p->name; p++) {
        const json_int_t value = json_integer_value(json_object_get(stage->params, p->name));
        (void)snprintf(text, 2 * (size_t)PST_NAME_MAX, "%.64s=%lld", p->name, (long long)value);
        if (p->divided && value > 1)
            return text;
    }
    return NULL;
}

static void check_route(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_route *route)
{
    const struct pst_pipeline_stage_spec *origin = &pl->stages[route->stage];
    const struct pst_port_desc *port = &origin->caps.desc->ports[route->port];
    check_capacity(pl, diag, route);
    check_writers(pl, diag, route);
    char text[2 * PST_NAME_MAX];
    const char *why = why_split(origin, port, text);
    for (int b = 0; b < route->borrowers && why; b++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[route->borrower_stage[b]];
        const struct pst_port_desc *in = &stage->caps.desc->ports[route->borrower_port[b]];
        if (!pst_condition_holds(in->whole_if, stage->params))
            continue;
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s.params", stage->name);
        pst_json_error(&pl->doc, diag, path,
                       "%s requires whole batches, but %s can split a batch because of %s: change a "
                       "parameter of one of these two stages",
                       in->whole_if, origin->name, why);
    }
}

void pst_route_check_all(const struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag)
{
    for (int r = 0; r < graph->nroutes; r++)
        check_route(pl, diag, &graph->routes[r]);
}
