/* triple_rows.h: writes rows of head, relation, tail to the arrays of three splits, and gives those of train
 * to the topology. If heads and tails are names that do not fit in memory, the remaining rows wait on disk
 * until all rows are read. Owner: the caller; init and release pair. Release also accepts zeroed memory, and
 * a failed init. Threads: one. */
#ifndef PST_TRIPLE_ROWS_H
#define PST_TRIPLE_ROWS_H

#include "common/store/build/csc_builder.h"
#include "common/store/names/names.h"
#include "common/store/names/log_streams.h"

#define PST_TRIPLE_ENTITIES_MAX INT32_MAX /* triples are int32 */

struct pst_triple_rows {
    struct pst_csc_builder *csc;
    struct pst_build *build;
    struct pst_progress *progress;
    struct pst_names *names; /* of heads and tails; NULL: they are numbers */
    /* the block: source and target, or the mentions of both */
    int64_t n;
    int64_t *source, *target;
    int32_t *relation;
    struct pst_name *mention;
    int64_t *id;
    struct pst_log_streams kinds; /* relations of the rows that wait */
    struct pst_ids_writer kind;
    int split;        /* the present one */
    int64_t of_train; /* entities that occur in train */
    struct pst_triple_split {
        struct pst_array_writer out;
        int64_t rows, waiting;
    } splits[3];
};

/* names NULL: numbers. Fails: PST_E_NOMEM, and as pst_names_new. */
PST_MUST_USE pst_rc pst_triple_rows_init(struct pst_triple_rows *r, struct pst_csc_builder *csc,
                                         const struct pst_names_spec *names, struct pst_progress *progress);
PST_MUST_USE pst_rc pst_triple_rows_begin(struct pst_triple_rows *r, int split);

/* The block of n <= PST_CSC_BUILDER_EDGE_BLOCK rows, before what its mentions point to is gone. */
PST_MUST_USE pst_rc pst_triple_rows_flush(struct pst_triple_rows *r);
PST_MUST_USE pst_rc pst_triple_rows_end(struct pst_triple_rows *r); /* the split */

/* All splits were read, of names: writes the arrays of them, and the rows that wait. Fails also: PST_E_LIMIT
 * past PST_TRIPLE_ENTITIES_MAX. */
PST_MUST_USE pst_rc pst_triple_rows_number(struct pst_triple_rows *r, int64_t *entities);
void pst_triple_rows_release(struct pst_triple_rows *r);

#endif
