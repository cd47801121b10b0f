/* graph.h: what the links of a pipeline mean: its routes, and what cannot work. A route is the way of a set
 * of slots: from the output that fills them (its originator), through the inputs that borrow them, and back.
 * Owner: the caller, of all structures. Threads: any, one at a time for each pipeline. */
#ifndef PST_GRAPH_H
#define PST_GRAPH_H

#include <stdio.h>

#include "common/pipeline/pipeline.h"

#define PST_GRAPH_ROUTES_MAX 64
#define PST_ROUTE_BORROWERS_MAX 32
#define PST_ROUTE_EVENT_SLOTS_MAX                                                                            \
    64 /* a route with more slots is handed over by the host: GPUs do not have as many                       \
          batches in flight */

enum pst_route_memory {
    PST_ROUTE_HOST,   /* shared memory */
    PST_ROUTE_PINNED, /* shared memory that each process on a GPU registers with CUDA */
    PST_ROUTE_GPU     /* one GPU's own memory, which processes on it, or on a GPU that reaches it, open */
};

struct pst_route {
    int stage, port; /* the originator */
    int slots;
    int borrower_stage[PST_ROUTE_BORROWERS_MAX];
    int borrower_port[PST_ROUTE_BORROWERS_MAX];
    int borrowers;
    int copy_of; /* the route that these slots are copies of; -1: none */
    enum pst_route_memory memory;
    char device[PST_PIPELINE_DEVICE_MAX]; /* the device whose memory host has the slots */
    bool events;   /* CUDA events hand slots over, not the host: only kernels touch them */
    bool aside;    /* a borrower with PST_PORT_ASIDE writes to the slots without waiting for kernels */
    bool in_place; /* the originator may keep data in memory that it shares with all borrowers */
};

struct pst_graph {
    struct pst_route routes[PST_GRAPH_ROUTES_MAX];
    int nroutes;
};

/* Checks everything about links. Errors go to diag. Part of pst_pipeline_load. */
void pst_graph_check(const struct pst_pipeline *pl, struct pst_diag *diag);

/* Derives the routes of a checked pipeline. Where links cross devices, it first inserts copies (which changes
 * pl). False, with diag filled, if a copy is not possible. */
PST_API bool pst_graph_build(struct pst_graph *graph, struct pst_pipeline *pl, struct pst_diag *diag);

/* Does the link carry slots of this route? */
PST_API_TEST bool pst_link_carries(const struct pst_graph *graph, int route, const struct pst_pipeline *pl,
                                   const struct pst_link_spec *link);
PST_API_TEST bool pst_link_oneshot(const struct pst_pipeline *pl, const struct pst_link_spec *link);

/* What `penstock graph` writes: lines of text, a flowchart for Mermaid or for Graphviz (dot), or a picture.
 */
enum pst_graph_format { PST_GRAPH_MERMAID, PST_GRAPH_TEXT, PST_GRAPH_DOT, PST_GRAPH_SVG };

/* Draws the pipeline: stages, places, routes, slots, copies. */
PST_API void pst_graph_draw(const struct pst_graph *graph, const struct pst_pipeline *pl,
                            enum pst_graph_format format, FILE *out);

#endif
