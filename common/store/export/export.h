/* export.h: writes a dataset as arrays or as text, for other programs and for `penstock import`.
 * Owner: the caller. Threads: one. */
#ifndef PST_EXPORT_H
#define PST_EXPORT_H

#include "common/store/store.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

enum pst_export_format { PST_EXPORT_NPY, PST_EXPORT_CSV };
/* Writes a new directory that appears whole or not at all. npy: what penstock import npy reads, to the same
 * dataset; csv: edges.csv, labels.csv and one file a split, with names or ids where the source had some.
 * rows_path (csv; NULL: none): an array of one row a vertex, of floats or integers: rows.csv alone, with the
 * same names. */
PST_API PST_MUST_USE pst_rc pst_export(struct pst_dataset *ds, const char *dir, enum pst_export_format format,
                                       const char *rows_path, struct pst_progress *progress);

PST_END_DECLS
#endif
