/* part_rows.h: the feature rows of other ranks, for the evaluation of a trainer that has only a part of them.
 * The first replica of the first rank evaluates, and the first replica of each other rank sends it the rows
 * of its part (MPI_Alltoallv).
 *
 * Owner: the trainer, which lends the dataset and the collective. Threads: one. */
#ifndef PST_TRAINER_PART_ROWS_H
#define PST_TRAINER_PART_ROWS_H

#include "common/collective/collective.h"
#include "common/store/dataset/rows.h"

struct pst_trainer_part_rows {
    const struct pst_dataset *ds; /* NULL: it has all features, and this is not used */
    struct pst_collective *collective;
    int rank, ranks;
    struct pst_row_files files; /* of the own part */
    char *rows, *words;         /* that came from other ranks, or go there */
    uint64_t rows_bytes, words_bytes;
};

/* Does nothing for a whole dataset. collective: of all trainers. PST_E_STATE: this is not the rank of the
 * part. PST_E_IO. */
PST_MUST_USE pst_rc pst_trainer_part_rows_open(struct pst_trainer_part_rows *r, const struct pst_dataset *ds,
                                               struct pst_collective *collective);
void pst_trainer_part_rows_close(struct pst_trainer_part_rows *r);

/* On the first rank: rows of vertices first to first + n - 1 to out. ctx: a struct pst_trainer_part_rows.
 * PST_E_INTERRUPTED: another rank's replica has left. PST_E_IO, PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_trainer_part_rows_get(void *ctx, int64_t first, int64_t n, void *out);
/* There: the evaluation is done. */
PST_MUST_USE pst_rc pst_trainer_part_rows_end(struct pst_trainer_part_rows *r);
/* On other ranks: sends rows until the evaluation is done. Replicas that have no part in it return at once.
 */
PST_MUST_USE pst_rc pst_trainer_part_rows_serve(struct pst_trainer_part_rows *r);

#endif
