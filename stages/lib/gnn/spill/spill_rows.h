/* spill_rows.h: a row of reals for each vertex, in memory, or in an unlinked file if they exceed the memory
 * limit.
 *
 * Owner: pst_gnn_rows_open fills what the caller owns; pst_gnn_rows_close releases it. Threads: any, for
 * different rows. */
#ifndef PST_SPILL_ROWS_H
#define PST_SPILL_ROWS_H

#include "kernels/kernels.h"

struct pst_gnn_rows {
    pst_real *memory; /* NULL: they are in the file */
    size_t bytes;
    int fd;
    int64_t ld; /* from one row to the next; the user may set less than it was opened for */
    char dir[PST_PATH_MAX];
};

/* spill_dir: where the file is made, and its space taken; NULL: in memory. PST_E_IO, PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_gnn_rows_open(struct pst_gnn_rows *rows, int64_t n, int64_t ld,
                                      const char *spill_dir);
void pst_gnn_rows_close(struct pst_gnn_rows *rows);

/* Returns where rows first.. can be made: in place, or in `buffer`, which pst_gnn_rows_put then writes. */
pst_real *pst_gnn_rows_make(const struct pst_gnn_rows *rows, int64_t first, pst_real *buffer);
PST_MUST_USE pst_rc pst_gnn_rows_put(const struct pst_gnn_rows *rows, int64_t first, int64_t n,
                                     const pst_real *made);
/* *at gets rows first..first+n: in place, or read into `buffer`. */
PST_MUST_USE pst_rc pst_gnn_rows_get(const struct pst_gnn_rows *rows, int64_t first, int64_t n,
                                     pst_real *buffer, const pst_real **at);
/* Tells the kernel which rows will be read soon, and which will not be read again soon. */
void pst_gnn_rows_expect(const struct pst_gnn_rows *rows, int64_t first, int64_t n);
void pst_gnn_rows_drop(const struct pst_gnn_rows *rows, int64_t first, int64_t n);

/* Maps an unlinked file of this size in dir, whose space is taken. NULL: it failed, with pst_fail. */
void *pst_gnn_file_map(const char *dir, size_t bytes);

#endif
