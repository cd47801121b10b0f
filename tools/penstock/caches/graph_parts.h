/* graph_parts.h: divides the vertices of a dataset into parts with few edges between them (METIS). Owner:
 * none. Threads: one. */
#ifndef PST_GRAPH_PARTS_H
#define PST_GRAPH_PARTS_H

#include "common/base.h"

struct graph_parts {
    const char *dataset, *out; /* out: an .npy file, int8, the part of each vertex */
    int64_t parts, seed;       /* parts: 1 to PST_CLIQUES_MAX (64) */
    uint64_t memory_bytes;     /* if METIS needs more for all edges, it gets a sample of them */
};

/* Prints the sizes of the parts and the cut. PST_E_ARG: the memory is too small for the vertices. */
PST_MUST_USE pst_rc graph_parts_write(const struct graph_parts *args);

#endif
