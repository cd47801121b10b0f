/* vertices.h: sorts ids of vertices.
 *
 * Owner: none. Threads: any. */
#ifndef PST_VERTICES_H
#define PST_VERTICES_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Sorts n ids in ascending order, without other memory: an American flag sort (McIlroy et al., Computing
 * Systems 6(1), 1993). For millions of ids, it takes a fraction of the time of qsort(). */
PST_API void pst_vertices_sort(int64_t *ids, int64_t n);

PST_END_DECLS
#endif
