/* initial.h: embeddings of another run as initial values. Vertex v of this run begins with the embedding of
 * vertex v in the other run's newest checkpoint, if it has one; relations likewise. The state of the
 * optimizer begins at 0.
 *
 * The other run's dataset may be smaller: its vertices and relations must be the first ones of this run's
 * dataset, with the same names.
 *
 * Owner: open fills what the caller owns; close releases it. Threads: one. */
#ifndef PST_VECTORS_INITIAL_H
#define PST_VECTORS_INITIAL_H

#include "common/store/store.h"
#include "stages/lib/vectors/reader.h"
#include "stages/lib/vectors/vectors.h"

struct pst_vectors_initial {
    bool open; /* else close does nothing */
    struct pst_vectors_reader reader;
};

/* run: the other run's directory. ds: this run's dataset. PST_E_ARG: the embeddings do not fit. PST_E_STATE:
 * there is no checkpoint. */
PST_API PST_MUST_USE pst_rc pst_vectors_initial_open(struct pst_vectors_initial *o, const char *run,
                                                     const struct pst_dataset *ds, int64_t dim);
PST_API void pst_vectors_initial_close(struct pst_vectors_initial *o);

/* A run that went on from a checkpoint still needs the initial values: are they those of then? PST_E_STATE:
 * the other run has another newest checkpoint now. */
PST_API PST_MUST_USE pst_rc pst_vectors_initial_same(const struct pst_vectors_initial *o,
                                                     const char *checkpoint);

/* Reads everything once, with its checksums. Rows go to v, whose block 0 has all vertices; NULL: nowhere. */
PST_API PST_MUST_USE pst_rc pst_vectors_initial_all(const struct pst_vectors_initial *o,
                                                    struct pst_vectors *v);
/* Sets the rows of a partition in a block's image. Call pst_vectors_initial_all before: it verifies. */
PST_API PST_MUST_USE pst_rc pst_vectors_initial_part(const struct pst_vectors_initial *o,
                                                     struct pst_vectors *v, int block, int partition);

/* Sets rows of relations: plan->relations, or twice as many with inverse ones, of row_dim floats. PST_E_ARG:
 * the other run has another model, or more relations. */
PST_API PST_MUST_USE pst_rc pst_vectors_initial_relations(const char *run, const struct pst_embed_plan *plan,
                                                          pst_real *rows);

#endif
