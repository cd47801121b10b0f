/* cliques.h: divides the devices of a machine into cliques: groups in which each device is linked with each
 * other one. The caches of a clique's devices act as one cache (Legion, section 4.1, S1).
 *
 * Owner: none. Threads: any; the functions have no state. */
#ifndef PST_CLIQUES_H
#define PST_CLIQUES_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_CLIQUES_MAX 64 /* devices, and so cliques */

/* Repeatedly takes the largest clique of the devices that are left; of several, the one with the smallest
 * numbers (compared in ascending order). links[i] bit j: devices i and j are linked; the matrix must be
 * symmetric and have no self-loops. n: 1 to PST_CLIQUES_MAX. clique[k] gets the devices of clique k as bits.
 * Returns the number of cliques (K_c in the paper). */
PST_API int pst_cliques_find(const uint64_t *links, int n, uint64_t clique[PST_CLIQUES_MAX]);

PST_END_DECLS
#endif
