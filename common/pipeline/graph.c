#include "common/pipeline/graph.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/builtin.h"
#include "common/ipc/gpus.h"
#include "common/pipeline/place.h"

static const struct pst_port_desc *out_port(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return &pl->stages[link->from].caps.desc->ports[link->from_port];
}

static const struct pst_port_desc *in_port(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return &pl->stages[link->to].caps.desc->ports[link->to_port];
}

bool pst_link_oneshot(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return (out_port(pl, link)->flags & PST_PORT_ONESHOT) != 0;
}

static void link_error(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link,
                       const char *member, const char *fmt, ...) PST_PRINTF(5, 6);
static void link_error(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link,
                       const char *member, const char *fmt, ...)
{
    char text[900], path[64];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(path, sizeof path, "links[%d]%s", link->index, member);
    pst_json_error(&pl->doc, diag, path, "%s", text);
}

static bool same_or_any(const char *a, const char *b)
{
    return !a || !b || strcmp(a, "any") == 0 || strcmp(b, "any") == 0 || strcmp(a, b) == 0;
}

/* ---- links one by one ---------------------------------------------------------------------------- */

static void check_memory(const struct pst_pipeline *pl, struct pst_diag *diag,
                         const struct pst_link_spec *link, const char *member, int stage,
                         const struct pst_port_desc *port)
{
    if (strncmp(pl->stages[stage].device, "cpu:", 4) == 0 && !pst_place_list_has(port->memory, "cpu"))
        link_error(pl, diag, link, member, "%s.%s cannot work on cpu memory (it takes %s)",
                   pl->stages[stage].name, port->name, port->memory);
}

static void check_link(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link)
{
    const struct pst_port_desc *out = out_port(pl, link), *in = in_port(pl, link);
    if ((out->flags & PST_PORT_ONESHOT) != (in->flags & PST_PORT_ONESHOT)) {
        link_error(pl, diag, link, "", "%s is %s and %s is %s: they cannot be linked", out->name,
                   out->flags & PST_PORT_ONESHOT ? "one-shot" : "a stream", in->name,
                   in->flags & PST_PORT_ONESHOT ? "one-shot" : "a stream");
        return;
    }
    if (!same_or_any(out->type, in->type))
        link_error(pl, diag, link, "", "%s.%s carries %s, %s.%s expects %s", pl->stages[link->from].name,
                   out->name, out->type, pl->stages[link->to].name, in->name, in->type);
    else if (!same_or_any(out->dtype, in->dtype))
        link_error(pl, diag, link, "", "%s.%s carries %s elements, %s.%s expects %s",
                   pl->stages[link->from].name, out->name, out->dtype, pl->stages[link->to].name, in->name,
                   in->dtype);
    else if (out->rank >= 0 && in->rank >= 0 && out->rank != in->rank)
        link_error(pl, diag, link, "", "%s.%s carries %d dimensions, %s.%s expects %d",
                   pl->stages[link->from].name, out->name, out->rank, pl->stages[link->to].name, in->name,
                   in->rank);
    check_memory(pl, diag, link, ".from", link->from, out);
    check_memory(pl, diag, link, ".to", link->to, in);
    if (link->slots && (out->forwards || (out->flags & PST_PORT_ONESHOT)))
        link_error(pl, diag, link, ".slots", "slots are given where a route begins, and %s.%s %s",
                   pl->stages[link->from].name, out->name,
                   out->forwards ? "passes on the slots of its input" : "is one-shot");
    for (const struct pst_link_spec *other = pl->links; other < link; other++) {
        if (other->to == link->to && other->to_port == link->to_port)
            link_error(pl, diag, link, ".to", "%s.%s is already linked, by links[%d]",
                       pl->stages[link->to].name, in->name, other->index);
        if (other->slots && link->slots && other->from == link->from && other->from_port == link->from_port &&
            other->slots != link->slots)
            link_error(pl, diag, link, ".slots", "the same route was given %d slots before", other->slots);
    }
}

static void check_unlinked(const struct pst_pipeline *pl, struct pst_diag *diag, int s)
{
    const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
    for (int p = 0; desc && p < pst_desc_ports(desc); p++) {
        const struct pst_port_desc *port = &desc->ports[p];
        bool linked = (pl->stages[s].linked >> p & 1) != 0;
        if (linked || (port->flags & (PST_PORT_OPTIONAL | (port->dir == PST_OUT ? PST_PORT_ONESHOT : 0))))
            continue;
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s", pl->stages[s].name);
        pst_json_error(&pl->doc, diag, path, "its %s \"%s\" is not linked (%s)",
                       port->dir == PST_IN ? "input" : "output", port->name, port->help);
    }
}

/* ---- loops --------------------------------------------------------------------------------------- */

/* Depth-first: state 0 unseen, 1 on the way, 2 done. Back links do not count. */
static void visit(const struct pst_pipeline *pl, struct pst_diag *diag, int s, char *state)
{
    state[s] = 1;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->from != s || link->back)
            continue;
        if (state[link->to] == 1)
            link_error(
                pl, diag, link, "",
                "closes a loop from %s back to %s: mark it \"back\": true if %s can go on without its answer",
                pl->stages[s].name, pl->stages[link->to].name, pl->stages[link->to].name);
        else if (state[link->to] == 0)
            visit(pl, diag, link->to, state);
    }
    state[s] = 2;
}

/* Is there a way over links that are not back links? Every stage is looked at once. */
static bool reaches(const struct pst_pipeline *pl, int from, int to)
{
    bool seen[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX] = {false};
    int queue[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX], n = 0;
    queue[n++] = from;
    seen[from] = true;
    for (int i = 0; i < n; i++) {
        if (queue[i] == to)
            return true;
        for (int l = 0; l < pl->nlinks; l++) {
            const struct pst_link_spec *link = &pl->links[l];
            if (link->from != queue[i] || link->back || seen[link->to])
                continue;
            seen[link->to] = true;
            queue[n++] = link->to;
        }
    }
    return false;
}

static void check_loops(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    char state[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX] = {0};
    size_t before = diag->count;
    for (int s = 0; s < pl->nstages; s++)
        if (state[s] == 0)
            visit(pl, diag, s, state);
    if (diag->count > before)
        return;
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].back && !reaches(pl, pl->links[l].to, pl->links[l].from))
            link_error(pl, diag, &pl->links[l], ".back", "is marked back but closes no loop");
}

/* ---- routes -------------------------------------------------------------------------------------- */

/* False: more borrowers than a route may have. */
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
                pst_caps_port_forwards(&desc->ports[p], desc->ports[link->to_port].name))
                fits = follow(pl, route, link->to, p) && fits;
    }
    return fits;
}

/* A copy has its original's number of slots, so that neither side waits on the other's size. */
static int route_slots(const struct pst_pipeline *pl, int stage, int port)
{
    int slots = 0;
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].from == stage && pl->links[l].from_port == port && pl->links[l].slots)
            slots = pl->links[l].slots;
    return slots ? slots : PST_PIPELINE_SLOTS_DEFAULT;
}

/* -1 of r->borrowers is its originator. */
static const struct pst_pipeline_stage_spec *who(const struct pst_pipeline *pl, const struct pst_route *r,
                                                 int b, const struct pst_port_desc **port)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[b < 0 ? r->stage : r->borrower_stage[b]];
    *port = &stage->caps.desc->ports[b < 0 ? r->port : r->borrower_port[b]];
    return stage;
}

bool pst_place_gpu_memory(const struct pst_pipeline_stage_spec *stage,
                          const struct pst_pipeline_stage_spec *home)
{
    const bool one = strcmp(stage->device, home->device) == 0;
    return strncmp(home->device, "cuda:", 5) == 0 &&
           (one || pst_gpus_reach(pst_gpu_number(stage->device), pst_gpu_number(home->device))) &&
           (one || !stage->group[0] || strcmp(stage->group, home->group) != 0);
}

/* Can the slots lie in this GPU's own memory? If all who see them take it, and are there or reach it. */
static bool can_live(const struct pst_pipeline *pl, const struct pst_route *route,
                     const struct pst_pipeline_stage_spec *home)
{
    const struct pst_port_desc *port;
    bool can = true;
    for (int b = -1; b < route->borrowers && can; b++) {
        const struct pst_pipeline_stage_spec *stage = who(pl, route, b, &port);
        can = pst_place_list_has(port->memory, "cuda") && pst_place_gpu_memory(stage, home);
    }
    return can;
}

/* Where slots lie: in the memory of the GPU that has them last, or of the one that fills them, if that can
 * be. Else in host memory: of the first on a CPU, from the originator on. */
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

/* Does a stage on another GPU see the slots? */
static bool is_reached(const struct pst_pipeline *pl, const struct pst_route *route)
{
    const struct pst_port_desc *port;
    bool reached = false;
    for (int b = -1; b < route->borrowers && route->memory == PST_ROUTE_GPU; b++)
        reached = reached || strcmp(who(pl, route, b, &port)->device, route->device) != 0;
    return reached;
}

/* Who hands its slots over: kernels, where all who touch them are on GPUs, or else the host. */
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

static bool derive(struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag)
{
    memset(graph, 0, sizeof *graph);
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
        for (int p = 0; desc && p < pst_desc_ports(desc); p++) {
            const struct pst_port_desc *port = &desc->ports[p];
            if (port->dir != PST_OUT || port->forwards || (port->flags & PST_PORT_ONESHOT))
                continue;
            if (graph->nroutes == PST_GRAPH_ROUTES_MAX) {
                pst_json_error(&pl->doc, diag, "links", "more than %d routes", PST_GRAPH_ROUTES_MAX);
                return false;
            }
            struct pst_route *route = &graph->routes[graph->nroutes];
            *route = (struct pst_route){.stage = s, .port = p, .copy_of = -1, .slots = route_slots(pl, s, p)};
            if (!follow(pl, route, s, p)) {
                char path[PST_JSON_PATH_MAX];
                (void)snprintf(path, sizeof path, "stages.%s", pl->stages[s].name);
                pst_json_error(&pl->doc, diag, path, "more than %d inputs take the slots of its output %s",
                               PST_ROUTE_BORROWERS_MAX, port->name);
                return false;
            }
            place(pl, route);
            choose_handover(pl, route);
            if (route->borrowers > 0)
                graph->nroutes++;
        }
    }
    for (int r = 0; r < graph->nroutes; r++) {
        struct pst_route *route = &graph->routes[r];
        if (pl->stages[route->stage].caps.desc != pst_builtin(PST_BUILTIN_COPY))
            continue;
        for (int q = 0; q < graph->nroutes; q++)
            for (int b = 0; b < graph->routes[q].borrowers; b++)
                if (graph->routes[q].borrower_stage[b] == route->stage)
                    route->copy_of = q;
    }
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
            pst_caps_port_forwards(&desc->ports[link->from_port], desc->ports[route->borrower_port[b]].name))
            return true;
    return false;
}

/* A stage that may keep h slots before it lets one go blocks at most h - 1 of them for ever; one more
 * than the sum over all such stages is enough for something to move. */
static void check_capacity(const struct pst_pipeline *pl, struct pst_diag *diag,
                           const struct pst_route *route)
{
    int need = 1;
    char who[256] = "";
    for (int b = -1; b < route->borrowers; b++) {
        int s = b < 0 ? route->stage : route->borrower_stage[b],
            p = b < 0 ? route->port : route->borrower_port[b];
        int hold = pst_pipeline_port_hold(&pl->stages[s], &pl->stages[s].caps.desc->ports[p]);
        need += (hold - 1) * pl->stages[s].instances;
        if (hold > 1)
            (void)snprintf(who + strlen(who), sizeof who - strlen(who), "%s%s keeps up to %d",
                           who[0] ? ", " : "", pl->stages[s].name, hold * pl->stages[s].instances);
    }
    if (route->slots >= need)
        return;
    char path[PST_JSON_PATH_MAX];
    (void)snprintf(path, sizeof path, "stages.%s", pl->stages[route->stage].name);
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].from == route->stage && pl->links[l].from_port == route->port &&
            pl->links[l].index >= 0)
            (void)snprintf(path, sizeof path, "links[%d].slots", pl->links[l].index);
    pst_json_error(&pl->doc, diag, path, "%d slots would deadlock: %s; give at least %d", route->slots, who,
                   need);
}

/* Two stages that both change a slot must not hold it at the same time, that is, on parallel branches. */
static void check_writers(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_route *route)
{
    for (int a = 0; a < route->borrowers; a++)
        for (int b = a + 1; b < route->borrowers; b++) {
            int sa = route->borrower_stage[a], sb = route->borrower_stage[b];
            const struct pst_port_desc *pa = &pl->stages[sa].caps.desc->ports[route->borrower_port[a]];
            const struct pst_port_desc *pb = &pl->stages[sb].caps.desc->ports[route->borrower_port[b]];
            bool one_writes = (pa->flags | pb->flags) & PST_PORT_WRITES;
            if (!one_writes || sa == sb || reaches(pl, sa, sb) || reaches(pl, sb, sa))
                continue;
            char path[PST_JSON_PATH_MAX];
            int writer = pa->flags & PST_PORT_WRITES ? sa : sb;
            (void)snprintf(path, sizeof path, "stages.%s", pl->stages[writer].name);
            pst_json_error(&pl->doc, diag, path,
                           "changes slots that %s holds at the same time: put it before the fan-out",
                           pl->stages[writer == sa ? sb : sa].name);
        }
}

static void check_route(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_route *route)
{
    const struct pst_pipeline_stage_spec *origin = &pl->stages[route->stage];
    const struct pst_port_desc *port = &origin->caps.desc->ports[route->port];
    check_capacity(pl, diag, route);
    check_writers(pl, diag, route);
    for (int b = 0; b < route->borrowers && pst_pipeline_condition(origin, port->splits_if); b++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[route->borrower_stage[b]];
        const struct pst_port_desc *in = &stage->caps.desc->ports[route->borrower_port[b]];
        if (!pst_pipeline_condition(stage, in->whole_if))
            continue;
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s.params", stage->name);
        pst_json_error(&pl->doc, diag, path,
                       "with %s it needs whole batches, but %s may split them (%s): change one of the two",
                       in->whole_if, origin->name, port->splits_if);
    }
}

static bool check_instances(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    int total = 0;
    for (int s = 0; s < pl->nstages; s++)
        total += pl->stages[s].instances;
    if (total > PST_STAGES_MAX)
        pst_json_error(&pl->doc, diag, "stages",
                       "%d instances in all (with the copies between devices), at most %d are allowed", total,
                       PST_STAGES_MAX);
    return total <= PST_STAGES_MAX;
}

void pst_graph_check(struct pst_pipeline *pl, struct pst_diag *diag)
{
    (void)check_instances(pl, diag);
    for (int s = 0; s < pl->nstages; s++)
        if (!pl->stages[s].caps.desc)
            return; /* a stage is unknown: what follows would only echo that */
    for (int l = 0; l < pl->nlinks; l++)
        check_link(pl, diag, &pl->links[l]);
    for (int s = 0; s < pl->nstages; s++)
        check_unlinked(pl, diag, s);
    check_loops(pl, diag);
    struct pst_graph *graph = malloc(sizeof *graph);
    if (!graph)
        pst_json_error(&pl->doc, diag, "links", "out of memory");
    if (graph && derive(graph, pl, diag))
        for (int r = 0; r < graph->nroutes; r++)
            check_route(pl, diag, &graph->routes[r]);
    free(graph);
}

/* ---- devices ------------------------------------------------------------------------------------- */

/* from -> to becomes from -> copy -> to, the copy on to's device. */
static bool insert_copy(struct pst_pipeline *pl, int l, struct pst_diag *diag)
{
    struct pst_link_spec *link = &pl->links[l];
    if (pl->nstages >= PST_STAGES_MAX || pl->nlinks >= 2 * PST_PIPELINE_LINKS_MAX) {
        link_error(pl, diag, link, "", "too many links cross devices");
        return false;
    }
    struct pst_pipeline_stage_spec *copy = &pl->stages[pl->nstages];
    memset(copy, 0, sizeof *copy);
    if (pst_caps_load(&copy->caps, PST_BUILTIN_COPY, NULL) != PST_OK) {
        link_error(pl, diag, link, "", "%s", pst_error_text());
        return false;
    }
    (void)snprintf(copy->name, sizeof copy->name, "copy-%d", link->index);
    for (int k = 2; pst_pipeline_stage(pl, copy->name) >= 0; k++) /* the user has a stage of this name */
        (void)snprintf(copy->name, sizeof copy->name, "copy-%d-%d", link->index, k);
    (void)snprintf(copy->device, sizeof copy->device, "%s", pl->stages[link->to].device);
    if (strcmp(pl->stages[link->from].group, pl->stages[link->to].group) == 0)
        (void)snprintf(copy->group, sizeof copy->group, "%s", pl->stages[link->to].group);
    copy->params = json_object();
    copy->instances = 1;
    pl->links[pl->nlinks++] = (struct pst_link_spec){.from = pl->nstages,
                                                     .from_port = pst_desc_port(copy->caps.desc, "out"),
                                                     .to = link->to,
                                                     .to_port = link->to_port,
                                                     .slots = 0,
                                                     .back = link->back,
                                                     .index = link->index};
    link->to = pl->nstages++;
    link->to_port = pst_desc_port(copy->caps.desc, "in");
    return true;
}

static bool carries_one_route(const struct pst_graph *graph, const struct pst_pipeline *pl,
                              const struct pst_link_spec *link)
{
    int routes = 0;
    for (int r = 0; r < graph->nroutes; r++)
        routes += pst_link_carries(graph, r, pl, link);
    return routes <= 1;
}

/* A CPU's stage works on its own memory; one on a GPU on any host memory, which is pinned for it. */
static bool crosses(const struct pst_graph *graph, const struct pst_pipeline *pl,
                    const struct pst_link_spec *link, const char **from)
{
    const struct pst_pipeline_stage_spec *to = &pl->stages[link->to];
    if (pst_link_oneshot(pl, link) || strncmp(to->device, "cpu:", 4) != 0 ||
        to->caps.desc == pst_builtin(PST_BUILTIN_COPY))
        return false;
    for (int r = 0; r < graph->nroutes; r++) {
        *from = graph->routes[r].device;
        if (pst_link_carries(graph, r, pl, link) && strcmp(*from, to->device) != 0)
            return true;
    }
    return false;
}

bool pst_graph_build(struct pst_graph *graph, struct pst_pipeline *pl, struct pst_diag *diag)
{
    if (!derive(graph, pl, diag))
        return false;
    int given = pl->nlinks;
    for (int l = 0; l < given; l++) { /* in the file's order is along the routes or not: until none is left */
        struct pst_link_spec *link = &pl->links[l];
        const char *from = NULL;
        if (!crosses(graph, pl, link, &from))
            continue;
        if (!carries_one_route(graph, pl, link)) {
            link_error(pl, diag, link, "",
                       "carries several routes and so cannot cross from %s to %s: place both on one", from,
                       pl->stages[link->to].device);
            return false;
        }
        if (!insert_copy(pl, l, diag) || !derive(graph, pl, diag))
            return false;
        l = -1; /* what comes after the copy is on another device now: look again */
    }
    if (pl->nlinks == given)
        return true;
    if (!check_instances(pl, diag))
        return false;
    for (int pass = 0; pass < graph->nroutes; pass++) /* a copy may be of a copy */
        for (int r = 0; r < graph->nroutes; r++)
            if (graph->routes[r].copy_of >= 0)
                graph->routes[r].slots = graph->routes[graph->routes[r].copy_of].slots;
    return true;
}

/* ---- drawing ------------------------------------------------------------------------------------- */

/* Links of the file that this placement does without. */
static void draw_left_out(const struct pst_pipeline *pl, FILE *out)
{
    const json_t *links = json_object_get(pl->doc.root, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        bool there = false;
        for (int l = 0; l < pl->nlinks; l++)
            there = there || pl->links[l].index == (int)i;
        if (!there)
            fprintf(out, "    %%%% left out: links[%zu], %s to %s (when: %s)\n", i,
                    json_string_value(json_object_get(link, "from")),
                    json_string_value(json_object_get(link, "to")),
                    json_string_value(json_object_get(link, "when")));
    }
}

void pst_graph_mermaid(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out)
{
    fprintf(out, "flowchart LR\n");
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        fprintf(out, "    s%d[\"%s<br/>%s on %s%s%s%s", s, stage->name, stage->caps.run, stage->device,
                stage->chosen[0] ? " (auto: " : "", stage->chosen, stage->chosen[0] ? ")" : "");
        if (stage->instances > 1)
            fprintf(out, " x%d", stage->instances);
        if (stage->group[0])
            fprintf(out, "<br/>group %s", stage->group);
        fprintf(out, "\"]\n");
    }
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        fprintf(out, "    s%d %s|\"%s", link->from,
                pst_link_oneshot(pl, link) ? "-.->"
                : link->back               ? "==>"
                                           : "-->",
                out_port(pl, link)->name);
        for (int r = 0; r < graph->nroutes; r++)
            if (pst_link_carries(graph, r, pl, link))
                fprintf(out, " (route %d, %d slots%s%s%s%s%s)", r, graph->routes[r].slots,
                        graph->routes[r].memory == PST_ROUTE_PINNED ? ", pinned"
                        : graph->routes[r].memory == PST_ROUTE_GPU  ? ", in "
                                                                    : "",
                        graph->routes[r].memory == PST_ROUTE_GPU ? graph->routes[r].device : "",
                        is_reached(pl, &graph->routes[r]) ? " by peer access" : "",
                        graph->routes[r].events ? ", by events" : "",
                        graph->routes[r].copy_of >= 0 ? ", copied" : "");
        fprintf(out, "%s\"| s%d\n", link->back ? ", back" : "", link->to);
    }
    draw_left_out(pl, out);
    for (int r = 0; r < graph->nroutes; r++) {
        const struct pst_route *route = &graph->routes[r];
        fprintf(out, "    s%d -. \"route %d home\" .-> s%d\n", route->borrower_stage[route->borrowers - 1], r,
                route->stage);
    }
}
