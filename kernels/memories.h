/* memories.h: kernels for feature rows and lists of neighbours that lie in several memories: a GPU's own,
 * those of other GPUs that it reaches, and the host's (Legion, Sun et al., ATC 2023, section 4.2). Each
 * memory is a part. The items of all parts have consecutive numbers, which an index of cached vertices
 * (pst_k_cache_init) gives to vertices. Everything that is read is counted by the part that it came from.
 *
 * The structs are read by the call. Their pointers are to memory that the queue's device can read. Owner: the
 * caller owns all memory. Threads: one queue, one thread. */
#ifndef PST_MEMORIES_H
#define PST_MEMORIES_H

#include "kernels/kernels.h"

PST_BEGIN_DECLS

#define PST_K_PARTS_MAX 17 /* 16 replicas, which is the most that a pipeline can have, and the host */

struct pst_k_row_parts {
    int n; /* at least 1 */
    /* Row i is row i - first[k] of rows[k], if first[k] <= i < first[k + 1]. A part may have no rows. */
    const void *rows[PST_K_PARTS_MAX];
    int64_t first[PST_K_PARTS_MAX + 1];
};

struct pst_k_list_parts {
    struct pst_csc graph; /* has the lists that no part has */
    int n;                /* may be 0 */
    /* List i is list l = i - first[k] of part k: entries at[k][l] to at[k][l + 1] - 1 of entries[k], which
     * are as wide as those of the graph. */
    const int64_t *at[PST_K_PARTS_MAX];
    const void *entries[PST_K_PARTS_MAX];
    int64_t first[PST_K_PARTS_MAX + 1];
    int64_t line_bytes; /* of a PCIe transaction: a power of two */
};

PST_END_DECLS
#endif
