/* pairs.h: writes pairs of vertices, or triples, to one of a dataset's arrays of edges to predict.
 * Owner: the caller; begin and release pair. Threads: one. */
#ifndef PST_PAIRS_H
#define PST_PAIRS_H

#include "common/store/import/importing.h"

struct pst_pairs {
    struct pst_build *build;
    enum pst_array_id id;
    struct pst_array_writer w;
    bool narrow, begun;
    int columns; /* 2, or 3: source, relation, target */
    int64_t rows;
};

/* Triples where id is one of theirs. The array begins with its first row: one without any is left out. */
void pst_pairs_begin(struct pst_pairs *p, struct pst_build *b, enum pst_array_id id, int64_t vertices);

/* A pst_import_edge_block_fn of a struct pst_pairs. */
PST_MUST_USE pst_rc pst_pairs_add(void *pairs, const int64_t *source, const int64_t *target,
                                  const int32_t *relation, int64_t n);
PST_MUST_USE pst_rc pst_pairs_end(struct pst_pairs *p);
void pst_pairs_release(struct pst_pairs *p);

/* All of an edge array. */
PST_MUST_USE pst_rc pst_pairs_from(struct pst_build *b, enum pst_array_id id, int64_t vertices,
                                   const struct pst_import_edge_array *e, struct pst_progress *progress);

#endif
