/* csc_builder.h: makes a dataset's topology from edges in any order. Memory is bounded whatever the number of
 * edges and vertices: edges are sorted by (target, source) beside the dataset and written in one pass. Owner:
 * the caller; new and free pair. Threads: one calls it. */
#ifndef PST_CSC_BUILDER_H
#define PST_CSC_BUILDER_H

#include <float.h>
#include <string.h>

#include "common/store/build/build.h"
#include "common/store/build/rank.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_CSC_BUILDER_ID_MAX ((INT64_C(1) << 48) - 2) /* what the sorter's keys hold */
#define PST_CSC_BUILDER_EDGE_BLOCK 16384         /* edges given at a time: they stay in the second cache */
#define PST_CSC_BUILDER_MEMORY_MIN (1728u << 10) /* of memory_bytes: blocks, and the least that sorts */

/* ADD: every vertex gets exactly one; REMOVE: all are removed. */
enum pst_csc_builder_self_loops { PST_LOOPS_KEEP, PST_LOOPS_ADD, PST_LOOPS_REMOVE };

struct pst_csc_builder_spec {
    struct pst_build *build;
    bool symmetrize; /* each edge in both directions (a self loop once); duplicates stay */
    bool dedupe;     /* one edge for each (source, target) */
    bool transpose;
    bool relations; /* each edge has one; edges of different relations are not duplicates */
    bool weights;   /* each edge has one (pst_csc_builder_weight); not with relations. A deduplicated edge has
                       the sum of its duplicates' weights, smallest first, in double precision */
    bool times;     /* each edge has one, at least 0; without relations and weights. Edges of different times
                       are not duplicates */
    float loop_weight; /* of loops that are added; 0 or more */
    enum pst_csc_builder_self_loops self_loops;
    uint64_t memory_bytes;
    int threads;
    bool resumable; /* the feed calls pst_csc_builder_checkpoint, and goes on from pst_csc_builder_state */
    bool replays;   /* the feed can also add edges again that were only in memory (pst_csc_builder_lost) */
};

/* What became of the edges: all are known after finish. */
struct pst_csc_builder_counts {
    int64_t edges;
    int64_t duplicates_removed, loops_removed, loops_added;
    int64_t parts; /* sorted on disk; 0: all were in memory */
};

/* How far a topology was when its builder was killed. After READING no edges are added: they are known. */
enum pst_csc_builder_phase { PST_CSC_BUILDER_READING, PST_CSC_BUILDER_SORTING, PST_CSC_BUILDER_DONE };

struct pst_csc_builder;

/* Fails: PST_E_LIMIT below PST_CSC_BUILDER_MEMORY_MIN, PST_E_NOMEM, PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_csc_builder_new(struct pst_csc_builder **out,
                                                const struct pst_csc_builder_spec *spec);

/* The bits of x, rounded to float32: the tag of an edge of this weight. False: x is negative, not finite, or
 * larger than a float32 can be. */
static inline bool pst_csc_builder_weight(double x, int32_t *bits)
{
    const float weight = (float)x + 0.0F; /* -0 becomes 0: bits then rise with the weights */
    memcpy(bits, &weight, sizeof *bits);
    return x >= 0 && weight <= FLT_MAX;
}

/* How many edges a sample of all `edges` should have, which helps to sort them; 0: none is needed. */
PST_API int64_t pst_csc_builder_sample(const struct pst_csc_builder *c, int64_t edges);

/* Before the first edge: gives n edges of a sample. May be called several times. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_csc_builder_expect(struct pst_csc_builder *c, const int64_t *source,
                                                   const int64_t *target, int64_t n);

/* Adds n <= PST_CSC_BUILDER_EDGE_BLOCK edges. The caller has checked that ids are 0 or more. tag: relations,
 * weights or times, as the spec says; NULL if edges have none of them. Equal edges of any order give equal
 * sums. */
PST_API PST_MUST_USE pst_rc pst_csc_builder_add(struct pst_csc_builder *c, const int64_t *source,
                                                const int64_t *target, const int32_t *tag, int64_t n);

/* Writes indptr, indices and, if edges have them, relations, edge_weights or edge_times; notes vertices and
 * edges in the manifest. vertices is more than every id (or every rank). Fails: PST_E_FORMAT if a sum of
 * weights is larger than a float32 can be. */
PST_API PST_MUST_USE pst_rc pst_csc_builder_finish(struct pst_csc_builder *c, int64_t vertices,
                                                   struct pst_progress *progress);
PST_API void pst_csc_builder_free(struct pst_csc_builder *c);

const struct pst_csc_builder_spec *pst_csc_builder_spec_of(const struct pst_csc_builder *c);
PST_API const struct pst_csc_builder_counts *pst_csc_builder_counts(const struct pst_csc_builder *c);
int64_t pst_csc_builder_largest(const struct pst_csc_builder *c); /* id that was added; -1: none */
/* Every id becomes its rank when it is written, which changes no order. rank must live until finish returns.
 */
void pst_csc_builder_renumber(struct pst_csc_builder *c, const struct pst_rank *rank);

/* ---- to be resumed ---- */

enum pst_csc_builder_phase pst_csc_builder_phase(const struct pst_csc_builder *c);
/* What the feed said of itself at the last checkpoint; NULL: there was none. */
const json_t *pst_csc_builder_state(const struct pst_csc_builder *c);
/* There is a state, but the edges that were added before it were only in memory. */
bool pst_csc_builder_lost(const struct pst_csc_builder *c);
bool pst_csc_builder_on_disk(const struct pst_csc_builder *c); /* some edges are */
bool pst_csc_builder_has_journal(const struct pst_csc_builder *c);

/* Call now and then, between two adds: puts what was added on the disk, with state (taken), which says where
 * the feed goes on. IF_DUE costs nothing unless enough time has passed and something is on the disk. LAST:
 * there are no more edges; state is kept for pst_csc_builder_finish to save. */
enum pst_csc_builder_when { PST_CSC_BUILDER_IF_DUE, PST_CSC_BUILDER_NOW, PST_CSC_BUILDER_LAST };
PST_MUST_USE pst_rc pst_csc_builder_checkpoint(struct pst_csc_builder *c, json_t *state,
                                               enum pst_csc_builder_when when);
/* Whether a checkpoint IF_DUE would do something: make the state only then. */
bool pst_csc_builder_due(const struct pst_csc_builder *c);

PST_END_DECLS
#endif
