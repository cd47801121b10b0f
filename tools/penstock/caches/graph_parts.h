/* graph_parts.h: divides the vertices of a dataset into parts: with few edges between them (METIS), by hash,
 * or by number. Owner: the caller. Threads: one. */
#ifndef PST_GRAPH_PARTS_H
#define PST_GRAPH_PARTS_H

#include "common/store/store.h"

enum graph_parts_by { GRAPH_PARTS_RANGE, GRAPH_PARTS_HASH, GRAPH_PARTS_METIS, GRAPH_PARTS_KINDS };
#define GRAPH_PARTS_CHOICES "range, hash or metis"
extern const char *const graph_parts_names[GRAPH_PARTS_KINDS];
/* -1: there is no such name. */
int graph_parts_by_of(const char *name);

struct graph_parts {
    enum graph_parts_by by;
    int64_t parts, seed;   /* parts: 1 to PST_CLIQUES_MAX (64) */
    uint64_t memory_bytes; /* METIS: if it needs more for all edges, it gets a sample of them */
};

/* part[v] becomes the part of vertex v. METIS balances vertices and training vertices, the others only
 * vertices. Prints the sizes of the parts, and how many edges lie between them; what: the line's first word.
 * PST_E_ARG: the memory is too small for the vertices. PST_E_FORMAT: the topology is damaged. PST_E_LIMIT,
 * PST_E_NOMEM. */
PST_MUST_USE pst_rc graph_parts_find(const struct pst_dataset *ds, const struct graph_parts *args,
                                     const char *what, int8_t *part);

/* The same, written to an .npy file: int8, the part of each vertex. */
PST_MUST_USE pst_rc graph_parts_write(const char *dataset, const struct graph_parts *args, const char *path);

#endif
