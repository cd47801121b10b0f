/* expand.h: samples a minibatch hop by hop on the CPU: draw, check, remove duplicates, relabel. The code does
 * not depend on slots or ports. fill.h uses it to fill slots, and the planner uses it to pre-sample.
 *
 * Owner: an expander belongs to its caller. It borrows graph and algorithm. Threads: one expander, one
 * thread. */
#ifndef PST_EXPAND_H
#define PST_EXPAND_H

#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/pairs/seed_pairs.h"

PST_BEGIN_DECLS

struct pst_cut; /* cut.h */

struct pst_expander {
    const struct pst_csc *graph;
    const struct pst_sampling_opened *algorithm;
    int64_t vertices_max, edges_max; /* capacity of table and ids */
    struct pst_dedup *table;
    void *table_memory;
    int64_t *ids;                     /* edges_max drawn ids, before they are relabelled */
    int32_t *relation;                /* if not NULL: gets the relations of the next hop's edges */
    struct pst_cut *cut;              /* not NULL: takes neighbours from a batch that was sampled whole */
    struct pst_sampling_pairs *pairs; /* not NULL: the edges that it holds are left out */
    double sample_s, dedup_s;         /* time spent so far, in seconds */
};

/* vertices_max: distinct vertices of one minibatch; edges_max: edges of one hop. Allocates. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_expander_init(struct pst_expander *x, const struct pst_csc *graph,
                                              const struct pst_sampling_opened *algorithm,
                                              int64_t vertices_max, int64_t edges_max);
PST_API void pst_expander_release(struct pst_expander *x);

/* Begins a minibatch: vertices[0..*count) = the n seeds without repeats. PST_E_FORMAT: a seed is not a vertex
 * id. PST_E_LIMIT: the seeds exceed capacity. */
PST_API PST_MUST_USE pst_rc pst_expand_seeds(struct pst_expander *x, const int64_t *seeds, int64_t n,
                                             int64_t *vertices, int64_t *count, int64_t capacity);

/* The same for the ends of pairs: local[i] gets the position of ids[i] in vertices. local: NULL or n. */
PST_API PST_MUST_USE pst_rc pst_expand_ends(struct pst_expander *x, const int64_t *ids, int64_t n,
                                            int64_t *vertices, int64_t *count, int64_t capacity,
                                            int32_t *local);

/* One hop: draws for vertices[0..*count), appends the vertices that are new, and writes the block: indptr
 * (old *count + 1 numbers) and indices (at most edge_capacity). PST_E_LIMIT: the hop does not fit, and the
 * caller must begin the minibatch again. PST_E_FORMAT: the topology is damaged; the message names the vertex.
 * weights: gets each edge's share (minibatch.h), if the algorithm weighs edges; else NULL. */
PST_API PST_MUST_USE pst_rc pst_expand_hop(struct pst_expander *x, const struct pst_sample_key *key,
                                           int fanout, int64_t *vertices, int64_t *count, int64_t capacity,
                                           int32_t *indptr, int32_t *indices, float *weights,
                                           int64_t edge_capacity);

/* The second half of a hop: x->ids has the indptr[*count] drawn neighbours of vertices[0..*count), and indptr
 * is written. Appends the vertices that are new and writes indices. Errors as above. */
PST_API PST_MUST_USE pst_rc pst_expand_drawn(struct pst_expander *x, int64_t *vertices, int64_t *count,
                                             int64_t capacity, const int32_t *indptr, int32_t *indices,
                                             int64_t edge_capacity);

PST_END_DECLS
#endif
