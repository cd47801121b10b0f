/* build_impl.h: functions shared by the files of this room. Owner: none. Threads: one. */
#ifndef PST_BUILD_IMPL_H
#define PST_BUILD_IMPL_H

#include "common/store/build/build.h"

/* arrays.c: one file of the directory that is made, by its name. far: where it really is, "" for there.
 */
PST_MUST_USE pst_rc pst_build_file_go_on(struct pst_build *b, const char *name, const char *far,
                                         enum pst_dtype dtype, int rank, const int64_t shape[2],
                                         struct pst_array_writer *w);
PST_MUST_USE pst_rc pst_build_file_note(struct pst_build *b, const char *name, struct pst_array_writer *w);
PST_MUST_USE pst_rc pst_build_file_end(struct pst_build *b, struct pst_array_entry *e, const char *name,
                                       struct pst_array_writer *w);

#define PST_BUILD_REPLACED_FILE                                                                              \
    PST_MANIFEST_FILE ".replaced" /* of a dataset that is replaced file by file                              \
                                   */

/* build.c */
/* Looks at what is at dir: nothing or an empty directory, a dataset (*replace), or something that is not ours
 * to touch (PST_E_STATE, as a dataset is without force). */
PST_MUST_USE pst_rc pst_build_look_at(const char *dir, bool force, bool *replace);
/* Removes a dataset's directory: the files that datasets have, then the directory, if nothing else is in it.
 * temps: it was never whole, and files called temp-... are ours, too. */
pst_rc pst_build_remove_dir(const char *path, bool temps);
void pst_build_empty_arrays(const char *path); /* removes the arrays in it */
/* Removes files that are needed only while a dataset is made; all false: those that a resumed build goes on
 * from stay.
 */
void pst_build_remove_temps(const struct pst_build *b, bool all);
/* Whether a file is the manifest, or one that it names. */
bool pst_build_names(const struct pst_manifest *m, const char *name);
bool pst_build_is_array_file(const char *name); /* a name that a dataset's arrays have */
/* dir without slashes at its end, for a dataset: PST_E_ARG for "", "/", ".", ".." and what is too long. */
PST_MUST_USE pst_rc pst_build_dir(const char *dir, char out[PST_BUILD_PATH_MAX + 1]);
void pst_build_parent(const char *path, char out[4096]);

/* stripe_links.c: stripes in other directories: a link in the dataset's, and there a file whose name no other
 * dataset has, so that removing the dataset may remove it too. */
bool pst_build_is_stripe(const char *name); /* features.NUMBER.npy */
/* The file in the k-th, in turn, of b->stripe_dirs, "" when there are none. */
PST_MUST_USE pst_rc pst_build_stripe_link_name(const struct pst_build *b, int k, char path[4096]);
/* Reads the target of a link to a stripe. False: this is not a link to a stripe. */
bool pst_build_stripe_link_target(int dir_fd, const char *link, char target[4096]);
/* Removes the target of a link, if it is a stripe. */
void pst_build_stripe_link_remove(int dir_fd, const char *link);

#endif
