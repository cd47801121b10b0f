/* types.h: types of vertices and relations, as a model of relations sees them (layer_relations.c). The ids of
 * a type are consecutive. The dataset has its features (common/store/dataset/rows.h).
 *
 * Such a layer is a sum of terms. A term has a weight of its own, and multiplies the mean over the neighbours
 * of one relation, or the vertex's own row. If edges have weights, the mean is a weighted one.
 *
 * Owner: the caller; none of these functions allocates, but for struct pst_gnn_typed_batch. Threads: one. */
#ifndef PST_GNN_TYPES_H
#define PST_GNN_TYPES_H

#include "common/slots/minibatch.h"
#include "common/store/dataset/rows.h"
#include "kernels/kernels.h"
#include "stages/lib/device/device.h"

PST_BEGIN_DECLS

#define PST_GNN_RELATIONS_MAX 64 /* each has a weight in every layer */
#define PST_GNN_TERMS_MAX (2 * PST_GNN_RELATIONS_MAX + PST_ROWS_TYPES_MAX)

struct pst_gnn_types {
    int types;
    int64_t first[PST_ROWS_TYPES_MAX + 1]; /* of each type's ids; at the end, the number of vertices */
    int64_t dim[PST_ROWS_TYPES_MAX];       /* columns of features; 0: none */
    int relations;
    int source[PST_GNN_RELATIONS_MAX], target[PST_GNN_RELATIONS_MAX]; /* types */
};

/* From a dataset whose types are joined. One without types has one type and, if its edges have relations,
 * these. PST_E_LIMIT: too many relations. */
PST_API PST_MUST_USE pst_rc pst_gnn_types_of(struct pst_gnn_types *types, const struct pst_dataset *ds);

struct pst_gnn_term {
    int relation;       /* -1: the vertex's own row */
    int source, target; /* types; equal if relation is -1 */
};

struct pst_gnn_terms {
    int n;
    int most;      /* the largest number of terms of one vertex */
    int most_from; /* the largest number of relations that begin at one type */
    bool compact;  /* blocks of relations have src and local */
    struct pst_gnn_term term[PST_GNN_TERMS_MAX];
};

/* The vertices' own terms come first. each: a vertex has an own term for each relation that leads to its
 * type, not one for its type. */
PST_API void pst_gnn_terms_of(struct pst_gnn_terms *terms, const struct pst_gnn_types *types, bool each);

/* The edges of one term in one hop, over those destinations that have such edges: the mean over the rows
 * indices[indptr[i]..indptr[i+1]) belongs to destination dst[i]; dst ascends. An own term has one edge for
 * each destination of its type. */
struct pst_gnn_term_block {
    int64_t dsts, edges;
    const int32_t *dst, *indptr, *indices;
    /* Of a relation, if the minibatch's edges have weights: those of each edge, which sum to 1 at each
     * destination. NULL: the edges of a destination are equal. */
    const pst_real *weight;
    /* With `compact`, of a relation: its distinct sources, in the order of their first edges; and for each
     * edge the place of its source there. */
    int64_t srcs;
    const int32_t *src, *local;
};

struct pst_gnn_typed_batch {
    struct pst_device *device;
    int32_t *memory;         /* on a GPU: pinned */
    int64_t room;            /* numbers in memory */
    const int32_t *identity; /* 0, 1, 2, ...: as many as the largest block has destinations (with `compact`,
                                or sources), and one more */
    struct pst_gnn_term_block block[PST_HOPS_MAX][PST_GNN_TERMS_MAX];
};

PST_API void pst_gnn_typed_batch_init(struct pst_gnn_typed_batch *b, struct pst_device *device);
PST_API void pst_gnn_typed_batch_release(struct pst_gnn_typed_batch *b);

/* Sorts the edges of a minibatch, which is checked (pst_minibatch_read), by term. slot: its slot, on the
 * host. On a GPU, no earlier pass may be at work. PST_E_PEER: the minibatch has no relations, or one that
 * does not join the types of its ends. PST_E_NOMEM. */
PST_API PST_API PST_MUST_USE pst_rc pst_gnn_typed_batch_fill(struct pst_gnn_typed_batch *b,
                                                             const struct pst_gnn_types *types,
                                                             const struct pst_gnn_terms *terms,
                                                             const struct pst_minibatch *mb,
                                                             const void *slot);

PST_END_DECLS
#endif
