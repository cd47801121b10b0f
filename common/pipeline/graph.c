/* graph.c: inserts copies where links cross devices, and derives the routes. */
#include "common/pipeline/graph.h"

#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/builtin.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph_impl.h"

/* ---- checking -------------------------------------------------------------------------------- */

static bool check_instances(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    int total = 0;
    for (int s = 0; s < pl->nstages; s++)
        total += pl->stages[s].instances;
    if (total > PST_STAGES_MAX)
        pst_json_error(&pl->doc, diag, "stages",
                       "the pipeline needs %d instances of stages (including copies between devices), but at "
                       "most %d are allowed",
                       total, PST_STAGES_MAX);
    return total <= PST_STAGES_MAX;
}

void pst_graph_check(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    (void)check_instances(pl, diag);
    for (int s = 0; s < pl->nstages; s++)
        if (!pl->stages[s].caps.desc)
            return; /* an unknown stage was reported; what follows would only repeat that */
    pst_link_check_all(pl, diag);
    struct pst_graph *graph = malloc(sizeof *graph);
    if (!graph)
        pst_json_error(&pl->doc, diag, "links", "out of memory");
    if (graph && pst_route_derive(graph, pl, diag))
        pst_route_check_all(graph, pl, diag);
    free(graph);
    pst_graph_check_requests(pl, diag);
    pst_graph_check_values(pl, diag);
}

/* ---- copies between devices ------------------------------------------------------------------ */

/* Is it the name of a stage or of a group? */
static bool is_taken(const struct pst_pipeline *pl, const char *name)
{
    bool taken = pst_pipeline_stage(pl, name) >= 0;
    for (int s = 0; s < pl->nstages; s++)
        taken = taken || strcmp(pl->stages[s].group, name) == 0;
    return taken;
}

/* Link l becomes two, with a copy in between that is on the receiver's device. */
static bool insert_copy(struct pst_pipeline *pl, int l, struct pst_diag *diag)
{
    struct pst_link_spec *link = &pl->links[l];
    if (pl->nstages >= PST_STAGES_MAX || pl->nlinks >= 2 * PST_PIPELINE_LINKS_MAX) {
        pst_link_error(pl, diag, link, "",
                       "too many links connect different devices: each needs a copy stage, and at most %d "
                       "stages and copies are allowed",
                       PST_STAGES_MAX);
        return false;
    }
    struct pst_pipeline_stage_spec *copy = &pl->stages[pl->nstages];
    memset(copy, 0, sizeof *copy);
    if (pst_caps_load(&copy->caps, PST_BUILTIN_COPY, NULL) != PST_OK) {
        pst_link_error(pl, diag, link, "", "%s", pst_error_text());
        return false;
    }
    (void)snprintf(copy->name, sizeof copy->name, "copy-%d", link->index);
    for (int k = 2; is_taken(pl, copy->name); k++)
        (void)snprintf(copy->name, sizeof copy->name, "copy-%d-%d", link->index, k);
    (void)snprintf(copy->device, sizeof copy->device, "%s", pl->stages[link->to].device);
    if (strcmp(pl->stages[link->from].group, pl->stages[link->to].group) == 0)
        (void)snprintf(copy->group, sizeof copy->group, "%s", pl->stages[link->to].group);
    (void)memcpy(copy->origin, copy->name, sizeof copy->origin);
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
    link->back = false; /* only the second of the two links closes the loop */
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

/* Does the link need a copy? A stage on a CPU works on the memory of that CPU. A stage on a GPU works on any
 * host memory, which is pinned for it. */
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
    if (!pst_route_derive(graph, pl, diag))
        return false;
    int given = pl->nlinks;
    for (int l = 0; l < given; l++) {
        struct pst_link_spec *link = &pl->links[l];
        const char *from = NULL;
        if (!crosses(graph, pl, link, &from))
            continue;
        if (!carries_one_route(graph, pl, link)) {
            pst_link_error(pl, diag, link, "",
                           "this link carries slots of several outputs, which cannot be copied between "
                           "devices, but it connects %s to %s: place both stages on one device",
                           from, pl->stages[link->to].device);
            return false;
        }
        if (!insert_copy(pl, l, diag) || !pst_route_derive(graph, pl, diag))
            return false;
        l = -1; /* the slots behind the copy are on another device now: look at all links again */
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
