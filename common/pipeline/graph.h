/* graph.h: what the links of a pipeline mean: routes, order of starting, what cannot work.
 * A route is one region's way: the output that originates its slots, the inputs that borrow them, and home.
 */
#ifndef PST_GRAPH_H
#define PST_GRAPH_H

#include <stdio.h>

#include "common/pipeline/pipeline.h"

#define PST_GRAPH_ROUTES_MAX 64
#define PST_ROUTE_BORROWERS_MAX 32
#define PST_ROUTE_EVENT_SLOTS_MAX                                                                            \
    64 /* routes with more wait on the host: so many batches are not in flight on GPUs */

/* What the slots of a route lie in: shared memory; the same, registered with CUDA by each process on a GPU;
 * or one GPU's own memory, opened by each process, there or on a GPU that reaches it. */
enum pst_route_memory { PST_ROUTE_HOST, PST_ROUTE_PINNED, PST_ROUTE_GPU };

struct pst_route {
    int stage, port; /* the originator */
    int slots;
    int borrower_stage[PST_ROUTE_BORROWERS_MAX];
    int borrower_port[PST_ROUTE_BORROWERS_MAX];
    int borrowers;
    int copy_of; /* route whose slots the runtime copies into this one; -1: none */
    enum pst_route_memory memory;
    char device[32]; /* whose memory host has it */
    bool events;     /* slots change hands in streams: no stage on a CPU touches what kernels may be at */
    bool aside;      /* one writes to its slots that does not wait for kernels: PST_PORT_ASIDE */
};

struct pst_graph {
    struct pst_route routes[PST_GRAPH_ROUTES_MAX];
    int nroutes;
};

/* Checks links, types, routes, loops, splitting, capacity; errors go to diag. Part of pst_pipeline_load. */
void pst_graph_check(struct pst_pipeline *pl, struct pst_diag *diag);

/* Of a checked pipeline: inserts the runtime's copies where links cross devices (changes pl), then derives
 * the routes. False, with diag filled, if a crossing cannot be had. */
bool pst_graph_build(struct pst_graph *graph, struct pst_pipeline *pl, struct pst_diag *diag);

/* Can the stage's kernels use memory of the GPU that home is on? On the same GPU; on one that reaches it, in
 * a process of its own, since a process opens another's memory on one GPU. */
bool pst_place_gpu_memory(const struct pst_pipeline_stage_spec *stage,
                          const struct pst_pipeline_stage_spec *home);

/* Does link carry slots of route? */
bool pst_link_carries(const struct pst_graph *graph, int route, const struct pst_pipeline *pl,
                      const struct pst_link_spec *link);
bool pst_link_oneshot(const struct pst_pipeline *pl, const struct pst_link_spec *link);

/* Mermaid: stages, places, routes, slots, copies. */
void pst_graph_mermaid(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out);

#endif
