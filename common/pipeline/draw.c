/* draw.c: a pipeline as a Mermaid flowchart. */
#include <string.h>

#include "common/pipeline/graph_impl.h"

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
            fprintf(out, "    %%%% not used: links[%zu], %s to %s (when: %s)\n", i,
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
                pst_link_from(pl, link)->name);
        for (int r = 0; r < graph->nroutes; r++)
            if (pst_link_carries(graph, r, pl, link))
                fprintf(out, " (route %d, %d slots%s%s%s%s%s)", r, graph->routes[r].slots,
                        graph->routes[r].memory == PST_ROUTE_PINNED ? ", pinned"
                        : graph->routes[r].memory == PST_ROUTE_GPU  ? ", in "
                                                                    : "",
                        graph->routes[r].memory == PST_ROUTE_GPU ? graph->routes[r].device : "",
                        pst_route_is_reached(pl, &graph->routes[r]) ? " by peer access" : "",
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
