/* csc_builder.h: makes a dataset's topology from edges in any order, within a bound of memory that does not
 * depend on how many edges or vertices there are: they are sorted by (target, source) beside the dataset and
 * written in one pass. Owner: the caller; init and release pair. Threads: one calls it. */
#ifndef PST_CSC_BUILDER_H
#define PST_CSC_BUILDER_H

#include "common/store/build/build.h"
#include "common/util/progress.h"
#include "common/store/sort/sorter.h"

PST_BEGIN_DECLS

#define PST_CSC_ID_MAX PST_SORTER_ID_MAX
#define PST_CSC_BUILDER_EDGE_BLOCK 16384 /* edges given at a time: they stay in the second cache */

/* Gives edges first .. first+count-1 (count <= PST_CSC_BUILDER_EDGE_BLOCK); called for all edges in order.
 * Ids that are out of range are its own error to find. */
typedef pst_rc (*pst_edges_fn)(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target);

/* ADD: every vertex has exactly one; REMOVE: none has. */
enum pst_csc_builder_self_loops { PST_LOOPS_KEEP, PST_LOOPS_ADD, PST_LOOPS_REMOVE };

struct pst_csc_builder_spec {
    struct pst_build *build;
    bool symmetrize; /* each edge in both directions (a self loop once); implies nothing about duplicates */
    bool dedupe;     /* one edge for each (source, target) */
    bool transpose;
    bool relations; /* each edge has one; edges of different relations are never duplicates */
    enum pst_csc_builder_self_loops self_loops;
    uint64_t memory_bytes;
    int threads;
    bool resumable; /* who adds the edges calls pst_csc_checkpoint, and goes on from pst_csc_builder's state,
                     */
    bool replays;   /* and adds those again that were in memory alone (pst_csc_builder's lost) */
};

/* How far a topology was when its builder was killed. */
enum pst_csc_phase { PST_CSC_READING, PST_CSC_SORTING, PST_CSC_DONE };

struct pst_csc_builder {
    struct pst_csc_builder_spec spec;
    struct pst_sorter *sorter;
    int64_t *high, *low; /* room for 2 * PST_CSC_BUILDER_EDGE_BLOCK arcs */
    int32_t *tag;
    int64_t largest; /* id that was seen; -1: none */
    int64_t arcs;    /* given to the sorter */
    int64_t edges;   /* after finish */
    int64_t duplicates_removed, loops_removed, loops_added;
    int64_t parts; /* that were on disk; 0: all was in memory */
    /* Renumbering: new id = rank of the old one, which never changes an order. NULL: ids stay. */
    const struct pst_rank *rank;
    enum pst_csc_phase phase; /* past READING no edges are added: they are known */
    json_t *state;            /* of who adds the edges, as of the last checkpoint; NULL: none */
    bool lost;                /* state is there, but no edge that was added before it */
    int64_t saved;            /* checkpoints, so that each has a file of its own */
};

/* A set of ids as bits, and how many are below each: ids without gaps, in the same order. */
struct pst_rank {
    uint64_t *bits;
    int64_t *before; /* of each word of 64, after pst_rank_ready */
    int64_t ids, members;
    uint64_t memory_bytes; /* what it may take */
};
PST_API void pst_rank_init(struct pst_rank *r, uint64_t memory_bytes);
/* PST_E_LIMIT when the largest id needs more bits than there may be: says how much memory would do. */
PST_API PST_MUST_USE pst_rc pst_rank_add(struct pst_rank *r, const int64_t *ids, int64_t n);
PST_API PST_MUST_USE pst_rc pst_rank_ready(struct pst_rank *r);
static inline int64_t pst_rank_of(const struct pst_rank *r, int64_t id)
{
    uint64_t below = r->bits[id >> 6] & ((UINT64_C(1) << (id & 63)) - 1);
    return r->before[id >> 6] + __builtin_popcountll(below);
}
PST_API void pst_rank_release(struct pst_rank *r);

PST_API PST_MUST_USE pst_rc pst_csc_builder_init(struct pst_csc_builder *c,
                                                 const struct pst_csc_builder_spec *spec);

/* Now and then, between two adds: puts what was added on the disk, with state (taken), which says where the
 * adding goes on. IF_DUE costs nothing unless enough time has passed and there is something on the disk.
 * LAST: there are no more edges; state is kept for pst_csc_builder_finish to save. */
enum pst_csc_when { PST_CSC_IF_DUE, PST_CSC_NOW, PST_CSC_LAST };
PST_API PST_MUST_USE pst_rc pst_csc_checkpoint(struct pst_csc_builder *c, json_t *state,
                                               enum pst_csc_when when);
/* Whether a checkpoint would do something: state is made only then. */
PST_API bool pst_csc_due(const struct pst_csc_builder *c);

/* n <= PST_CSC_BUILDER_EDGE_BLOCK edges; ids from 0 on (the caller has checked); relation NULL unless there
 * are some. */
PST_API PST_MUST_USE pst_rc pst_csc_builder_add(struct pst_csc_builder *c, const int64_t *source,
                                                const int64_t *target, const int32_t *relation, int64_t n);

/* Writes indptr, indices and, where there are some, relations; notes vertices and edges in the manifest.
 * vertices is more than every id (or every rank). */
PST_API PST_MUST_USE pst_rc pst_csc_builder_finish(struct pst_csc_builder *c, int64_t vertices,
                                                   struct pst_progress *progress);
PST_API void pst_csc_builder_release(struct pst_csc_builder *c);

PST_END_DECLS
#endif
