/* embed.h: one training step of knowledge graph embeddings on a CPU: scores, loss, gradients, optimizers.
 * Marius (Mohoney et al., OSDI 2021), sections 2 and 3; Legend (section 6) for shared negatives.
 *
 * A model turns an end of an edge (the anchor) and the edge's relation into a query, a row of d floats. The
 * score of a candidate for the other end is its similarity with the query. Both ends of each edge are
 * corrupted: side 0 replaces the source (the anchor is the destination), side 1 the destination. Side 0 uses
 * the relation's inverse, which has an embedding of its own, or the same embedding backwards.
 *
 * Owner: a workspace belongs to its caller; the other structs only point. Threads: one thread at a time may
 * use a workspace, which has its own threads. Results do not depend on their number. */
#ifndef PST_EMBED_H
#define PST_EMBED_H

#include "kernels/embedding.h"

#include <stdint.h>

/* One line of the table of models. To add a model, write its two functions and fill in such a struct. Complex
 * rows have all real parts first and then all imaginary parts. The functions see rows of d floats, and of
 * d / relation_share floats for a relation. */
struct pst_embed_model {
    const char *name;
    enum pst_k_embed_similarity similarity;
    bool complex;            /* d is even, and N3 takes the moduli */
    int relation_share;      /* a relation has d / relation_share floats; 0: it has none */
    pst_real relation_scale; /* relations begin uniform in [-scale, scale); 0: like vertices */
    /* q = query of `anchor` and `rel`. backwards: the anchor is the edge's destination, and `rel` is the
     * embedding for sources. */
    void (*query)(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards);
    /* Given dq, the gradient of q: sets those of the anchor and of the relation. */
    void (*query_grad)(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                       bool backwards, pst_real *d_anchor, pst_real *d_rel);
};

/* "dot", "distmult", "complex", "transe-l1", "transe-l2" or "rotate". NULL: there is no such model. */
PST_API const struct pst_embed_model *pst_embed_model_named(const char *name);
PST_API const char *pst_embed_models(void); /* all names, for messages */
/* The model of the kernels, enum pst_k_embed_model; -1: it is the caller's own. */
PST_API int pst_embed_model_kernel(const struct pst_embed_model *model);

/* What is constant over a run. */
struct pst_embed_plan {
    const struct pst_embed_model *model;
    int64_t d;                  /* floats of a vertex */
    int64_t relations;          /* at least 1 unless the model has none */
    bool inverse;               /* relations have inverse embeddings: rows `relations` to 2 * relations - 1 */
    enum pst_k_embed_loss loss; /* the sum over edges and sides */
    pst_real margin, temperature; /* of the losses that have them */
    pst_real n3, l2; /* weight of the sum of |x|^3, or of x^2, over anchor, relation and true end of each edge
                      * and side; 0: none */
    double dropout;  /* each float of an anchor is dropped with this probability, and others grow; 0: none */
    uint64_t seed;   /* of dropout */
    int64_t tile; /* edges whose scores are kept at a time; 0: as many as 8 MiB a thread hold. It can change
                   * the last bits of results */
    bool unfused; /* for comparisons: each operation over a whole chunk, one after the other, as tensor
                   * libraries do it: queries and exponentials are computed again wherever they are needed */
};

/* Floats of a relation. */
PST_API int64_t pst_embed_relation_floats(const struct pst_embed_plan *plan);
/* PST_E_ARG: the model cannot have such rows, or a number is out of range. The message names it. */
PST_API PST_MUST_USE pst_rc pst_embed_check(const struct pst_embed_plan *plan);

/* A batch. Vertices are positions in its list of n distinct vertices; no id may be out of range. Chunk c has
 * the edges edges * c / chunks to edges * (c + 1) / chunks - 1, which share its negatives. A negative that is
 * the true end of an edge does not count for that edge. */
struct pst_embed_batch {
    int64_t edges, chunks, n;
    int64_t negatives;                 /* of a chunk and side */
    const uint32_t *src, *rel, *dst;   /* [edges] */
    const uint32_t *neg_src, *neg_dst; /* [chunks][negatives]; both NULL: all n vertices, and negatives = n */
    bool turned; /* only destinations are replaced, and rel is below 2 * relations: an edge that is turned
                  * round has the inverse relation */
    const pst_real *nodes;         /* [n][d] */
    pst_real *node_grads;          /* [n][d]: set to the gradient of the loss */
    const pst_real *relation_rows; /* [relations, or 2 * relations][pst_embed_relation_floats] */
    pst_real *relation_grads;      /* same shape: the rows in `touched` are set, others are left alone */
    uint32_t *touched; /* room for as many as there are rows: set to those in the batch, ascending */
    int64_t touched_n; /* set */
    uint32_t epoch;    /* with `batch`: the draw of dropout */
    uint64_t batch;
};

struct pst_embed_workspace;
/* threads: 1 to 64. Memory grows with the largest batch so far. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_embed_workspace_new(struct pst_embed_workspace **w, int threads);
PST_API void pst_embed_workspace_free(struct pst_embed_workspace *w); /* NULL: does nothing */

/* Sets the loss and the gradients of a batch. The bits depend only on plan, batch and machine. PST_E_NOMEM.
 */
PST_API PST_MUST_USE pst_rc pst_embed_step(const struct pst_embed_plan *plan, struct pst_embed_batch *batch,
                                           struct pst_embed_workspace *w, double *loss);

/* Updates one row. step: updates of the table with this one, from 1; only Adam reads it. */
PST_API void pst_embed_update(enum pst_k_embed_optimizer o, pst_real *x, pst_real *state,
                              const pst_real *grad, int64_t d, pst_real lr, uint64_t step);

/* Sets rows first to first + rows - 1 of a table to their initial values, uniform in [-scale, scale). A value
 * depends only on seed, table (0: vertices, 1: relations), row and column. */
PST_API void pst_embed_init(uint64_t seed, uint32_t table, pst_real scale, int64_t first, int64_t rows,
                            int64_t d, pst_real *out);

#endif
