/* topology.h: makes CSC (in-neighbours of each target, ascending) from edges in any order, in memory.
 * Owner: the caller owns the struct; build fills, release frees. Threads: one. */
#ifndef PST_STORE_TOPOLOGY_H
#define PST_STORE_TOPOLOGY_H

#include "build.h"
#include "progress.h"

PST_BEGIN_DECLS

/* What building may allocate unless the user says otherwise: a small machine's memory. */
#define PST_TOPOLOGY_BYTES_DEFAULT (8ull << 30)
#define PST_EDGE_BLOCK 65536 /* edges asked for at a time: 1 MiB of buffers */

/* Gives edges first .. first+count-1 (count <= PST_EDGE_BLOCK). Called for all edges in order, twice, and
 * must give the same both times. Ids that are out of range are its own error to find. */
typedef pst_rc (*pst_edges_fn)(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target);

enum pst_self_loops { PST_LOOPS_KEEP, PST_LOOPS_ADD, PST_LOOPS_REMOVE };

struct pst_topology_spec {
    int64_t vertices, edges; /* edges that the function gives */
    pst_edges_fn fn;
    void *ctx;
    bool symmetrize; /* each edge in both directions (a self loop once); implies nothing about duplicates */
    bool dedupe;     /* one edge for each (source, target) */
    enum pst_self_loops self_loops; /* ADD: every vertex has exactly one; REMOVE: none has */
    uint64_t memory_bytes;          /* PST_E_LIMIT beyond it */
};

struct pst_topology {
    int64_t vertices, edges;
    int64_t *indptr; /* vertices + 1 */
    enum pst_dtype dtype;
    union {
        int32_t *i32;
        int64_t *i64;
        void *any;
    } indices;
    int64_t duplicates_removed, loops_removed, loops_added;
};

PST_API PST_MUST_USE pst_rc pst_topology_build(struct pst_topology *t, const struct pst_topology_spec *spec,
                                               struct pst_progress *progress);
PST_API void pst_topology_release(struct pst_topology *t);

/* Writes indptr and indices, and notes vertices and edges in the manifest. */
PST_API PST_MUST_USE pst_rc pst_topology_write(const struct pst_topology *t, struct pst_build *b);

PST_END_DECLS
#endif
