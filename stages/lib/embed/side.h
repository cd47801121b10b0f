/* side.h: one side of the edges of a batch, for step.c and queries.c: from an edge's known end and relation
 * to a query, and from the query's gradient to theirs.
 *
 * Owner: step.c makes a job; a side only points. Threads: those of the job's workspace; tasks write the
 * gradients of different edges. */
#ifndef PST_EMBED_SIDE_H
#define PST_EMBED_SIDE_H

#include "common/util/rng.h"
#include "stages/lib/embed/workspace.h"

struct job {
    const struct pst_embed_plan *plan;
    struct pst_embed_batch *b;
    struct pst_embed_workspace *w;
    int64_t tile, dr; /* edges, or queries, of a tile; floats of a relation */
    struct pst_rng_stream dropout;
    pst_real *entries, *relation_entries; /* of vertices, of relations: [][d], [2 * edges][dr] */
    double *losses;                       /* [tasks], or [queries of a tile] */
    /* of a sum */
    const uint32_t *start, *entry;
    const uint32_t *rows; /* which rows; NULL: all */
    const pst_real *from;
    pst_real *to;
    int64_t count, width;
    bool adds; /* to what the rows have */
};

struct side {
    struct job *j;
    struct scratch *s;
    int64_t task, side, from, to; /* edges */
    const uint32_t *anchor, *target, *ids;
    const pst_real *x; /* the negatives' rows */
};

/* Sides of a batch. */
int64_t pst_embed_sides(const struct pst_embed_batch *b);
/* The relation's row that makes the query. */
int64_t pst_embed_relation_row(const struct job *j, int64_t side, int64_t edge);
/* Row i of the scratch memory gets the anchor of an edge, without what is dropped, and the query. */
void pst_embed_make_anchor(const struct side *t, int64_t edge, int64_t i);
void pst_embed_make_query(const struct side *t, int64_t edge, int64_t i);
/* From the gradient of query i, in the scratch memory, to those of its anchor and relation. */
void pst_embed_finish_query(const struct side *t, int64_t edge, int64_t i);
/* The penalty of an edge; adds its gradient. */
double pst_embed_penalise(const struct side *t, int64_t edge);
/* Where the gradients of an edge's ends and of its relation go. */
pst_real *pst_embed_entry_of(const struct side *t, bool target, int64_t edge);
pst_real *pst_embed_relation_entry_of(const struct side *t, int64_t edge);

/* Whether pst_embed_train_queries trains the batch: every vertex is a negative, and the loss needs the scores
 * of a query only as their sum. */
bool pst_embed_has_queries(const struct job *j);
/* Memory for it; false: there is not enough. */
bool pst_embed_grow_queries(struct job *j);
/* Sets the entries of the edges, and node_grads to the gradients as negatives. Returns the loss. */
double pst_embed_train_queries(struct job *j);

#endif
