/* partition.h: divides a graph's vertices into parts with few edges between them, by METIS' multilevel k-way
 * partitioning (Karypis and Kumar 1998). Legion gives each clique of devices one part (section 4.1, S2).
 *
 * Owner: the caller. Threads: one at a time, because METIS draws from the C library's rand(). */
#ifndef PST_LEGION_PARTITION_H
#define PST_LEGION_PARTITION_H

#include "kernels/kernels.h"
#include "stages/lib/clique/cliques.h"

PST_BEGIN_DECLS

/* METIS of Debian counts entries of adjacency with 32 bits. */
#define PST_LEGION_ENTRIES_MAX ((int64_t)INT32_MAX)
/* Peaks of METIS 5.1 with two constraints and four parts, with what this file allocates, on R-MAT graphs,
 * which coarsen badly: 60 bytes of an entry of adjacency (the list, its weights, the coarser graphs, the
 * refinement) and 153 of a vertex, with 13 and 35 million entries of 2 million vertices. A tenth is left
 * over. */
#define PST_LEGION_ENTRY_BYTES 64
#define PST_LEGION_VERTEX_BYTES 200
#define PST_LEGION_OTHER_BYTES ((uint64_t)32 << 20) /* of the process */

struct pst_legion_partition {
    const struct pst_csc *graph;
    const int64_t *train; /* training vertices, each once */
    int64_t ntrain;
    int parts;                   /* 1 to PST_CLIQUES_MAX; 1: METIS is not called */
    int weight[PST_CLIQUES_MAX]; /* of each part: its share of the vertices is this over the sum */
    uint64_t seed;
    /* An edge of the graph takes up to two entries of adjacency, each 4 bytes and as much again in METIS. If
     * all edges take more entries than this, METIS gets a sample of edges, with all vertices (section 6.6).
     * At most PST_LEGION_ENTRIES_MAX. */
    int64_t entries_max;
    /* results: */
    double sampled;    /* the share of the graph's edges that METIS got; 1: all, or none were needed */
    int64_t cut_edges; /* of all edges of the graph, those between two parts */
};

/* Reads the whole topology. PST_E_FORMAT: it is damaged; the message names the vertex. The other functions of
 * this room expect a graph that was checked. */
PST_API PST_MUST_USE pst_rc pst_legion_check(const struct pst_csc *graph);

/* part[v] becomes the part of vertex v, 0 to parts - 1. Both the vertices and the training vertices of all
 * parts are balanced (METIS allows 3 %). Equal input gives equal parts. PST_E_LIMIT: METIS cannot count the
 * vertices. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_legion_partition(struct pst_legion_partition *p, int8_t *part);

/* How many edges of a checked graph lie between two parts. */
PST_API int64_t pst_legion_cut_edges(const struct pst_csc *graph, const int8_t *part);

PST_END_DECLS
#endif
