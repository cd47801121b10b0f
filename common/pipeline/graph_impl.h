/* graph_impl.h: what the files of the graph share. From the ground up: links.c, routes.c, requests.c and
 * agree.c, graph.c. */
#ifndef PST_GRAPH_IMPL_H
#define PST_GRAPH_IMPL_H

#include "common/pipeline/graph.h"

/* ---- links.c --------------------------------------------------------------------------------- */

/* The ports at the ends of a link. */
const struct pst_port_desc *pst_link_from(const struct pst_pipeline *pl, const struct pst_link_spec *link);
const struct pst_port_desc *pst_link_to(const struct pst_pipeline *pl, const struct pst_link_spec *link);

/* Adds an error at links[i], or at a member of it (".slots"). */
void pst_link_error(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link,
                    const char *member, const char *fmt, ...) PST_PRINTF(5, 6);

/* Do links lead from one stage to the other? Back links do not count. */
bool pst_link_leads(const struct pst_pipeline *pl, int from, int to);

/* Checks each link by itself, ports without links, and loops. */
void pst_link_check_all(const struct pst_pipeline *pl, struct pst_diag *diag);

/* ---- routes.c -------------------------------------------------------------------------------- */

/* Finds the routes. False, with diag filled: there are too many, or one has too many borrowers. */
bool pst_route_derive(struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag);
/* Checks each route: the number of slots, who writes, who splits batches. */
void pst_route_check_all(const struct pst_graph *graph, const struct pst_pipeline *pl, struct pst_diag *diag);
/* Does a stage on another GPU than the slots' use them? */
bool pst_route_is_reached(const struct pst_pipeline *pl, const struct pst_route *route);

/* ---- requests.c, agree.c --------------------------------------------------------------------- */

/* Requests that nobody has served must not reach a port that needs them served. */
void pst_graph_check_requests(const struct pst_pipeline *pl, struct pst_diag *diag);

/* Parameters must be equal where a description says so (struct pst_param_desc, equals). No two processes may
 * use what only one can: what a parameter with `alone` names, and the endpoint of a program. */
void pst_graph_check_values(const struct pst_pipeline *pl, struct pst_diag *diag);

#endif
