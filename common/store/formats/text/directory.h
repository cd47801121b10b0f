/* directory.h: a directory of text tables, as `penstock export --format csv` writes it, or a part of it.
 * Owner: none. Threads: one. */
#ifndef PST_CSV_DIRECTORY_H
#define PST_CSV_DIRECTORY_H

#include "common/store/import/job.h"

PST_MUST_USE pst_rc pst_csv_import_directory(struct pst_import_job *job);

#endif
