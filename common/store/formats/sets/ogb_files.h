/* ogb_files.h: files of OGB's layouts, and the layout of graphs of several types. Owner: none. Threads: one.
 */
#ifndef PST_OGB_FILES_H
#define PST_OGB_FILES_H

#include "common/store/import/job.h"
#include "common/store/text/text_array.h"

/* NAME.csv.gz, or unpacked, or as zstd. False: there is none; out is then the usual name. */
bool pst_ogb_find(const char *dir, const char *name, char out[4096]);

/* The count in dir/NAME, a file of one line; *out -1: there is no file. Fails: PST_E_UNSUPPORTED if it has
 * several lines (several graphs). */
PST_MUST_USE pst_rc pst_ogb_count(const char *dir, const char *name, int64_t *out);

/* The text at path becomes a source of the import, unless the user gave another. */
PST_MUST_USE pst_rc pst_ogb_array(struct pst_import_job *job, enum pst_import_source_id id, const char *path,
                                  struct pst_text_array_spec spec);

/* The only directory in split/, or the one that the user named; out "": there is none. */
PST_MUST_USE pst_rc pst_ogb_find_split(const struct pst_import_job *job, char out[4096]);

/* dir/{train,valid,test}.csv.gz: ids below vertices. */
PST_MUST_USE pst_rc pst_ogb_take_splits(struct pst_import_job *job, const char *dir, int64_t vertices);

/* A graph of several types (ogbn-mag). raw: its directory. */
PST_MUST_USE pst_rc pst_ogb_import_types(struct pst_import_job *job, const char *raw);

#endif
