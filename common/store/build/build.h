/* build.h: makes a dataset's directory, which appears whole or not at all. Everything is written to
 * DIR.penstock-partial-PID beside it, synced and renamed. Owner: the caller owns the builder; begin and
 * release pair. Release without commit removes what was written and leaves DIR as it was. The next builder
 * for the same DIR removes what a killed one left. A lock shows which builders are alive. Threads: one. */
#ifndef PST_BUILD_H
#define PST_BUILD_H

#include "common/store/dataset/array.h"
#include "common/store/build/journal.h"
#include "common/store/dataset/manifest.h"

PST_BEGIN_DECLS

#define PST_BUILD_PATH_MAX 3900 /* leaves room for ".penstock-partial-PID" and a file's name within 4096 */

struct pst_build {
    char dir[PST_BUILD_PATH_MAX + 1];
    char partial[4096];
    int lock_fd;
    bool force;   /* a dataset at dir may be replaced */
    bool replace; /* there is one */
    bool committed, resumed;
    struct pst_journal journal; /* what --resume goes on from; records nothing unless it was begun */
    int stripes;                /* files that features are written to; 0: one. The caller sets it */
    const char *stripe_dirs;    /* where they lie, with commas between, in turn; NULL: in dir itself */
    struct pst_manifest
        manifest; /* the caller fills name, counts, stride, provenance; arrays fill themselves */
};

/* Fails: PST_E_STATE when dir is a dataset and force is false, or holds anything that is not a dataset's. */
PST_API PST_MUST_USE pst_rc pst_build_begin(struct pst_build *b, const char *dir, bool force);

/* The same, for a build that can go on after a kill. key is an object {"command", "sources": {path:
 * identity}} that says what the dataset is made from. The function takes ownership of key. With resume, it
 * goes on with what a killed builder of the same key left, if anything (b->resumed). Fails also: PST_E_STATE
 * if the key differs; the message says what changed. */
PST_API PST_MUST_USE pst_rc pst_build_resume(struct pst_build *b, const char *dir, bool force, json_t *key,
                                             bool resume);

/* As pst_build_array, but goes on where the journal says: w->written bytes
 * are there already; all of them: it is finished and has only to be ended. */
PST_MUST_USE pst_rc pst_build_go_on(struct pst_build *b, enum pst_array_id id, enum pst_dtype dtype, int rank,
                                    const int64_t shape[2], struct pst_array_writer *w);
/* Syncs what was written of it and notes that in the journal, which the caller saves. */
PST_MUST_USE pst_rc pst_build_note(struct pst_build *b, enum pst_array_id id, struct pst_array_writer *w);
/* The entry of an array that was finished before; false: it was not. */
bool pst_build_had(struct pst_build *b, enum pst_array_id id);

/* Begins one array of the dataset; pst_build_array_end finishes it and notes it in the manifest. */
PST_API PST_MUST_USE pst_rc pst_build_array(struct pst_build *b, enum pst_array_id id, enum pst_dtype dtype,
                                            int rank, const int64_t shape[2], struct pst_array_writer *w);
PST_API PST_MUST_USE pst_rc pst_build_array_end(struct pst_build *b, enum pst_array_id id,
                                                struct pst_array_writer *w);

/* Feature rows on their way to one file, or to b->stripes of them: row v to file v mod stripes. */
struct pst_build_row_writer {
    int files;
    int64_t next; /* the row that is put next */
    uint64_t row_bytes;
    struct pst_array_writer file[PST_DATASET_FEATURE_FILES_MAX];
};
/* Begins features of shape (rows, columns), of one type of vertices or, type -1, of all; or goes on with them
 * where the journal says. note is pst_build_note of them, end pst_build_array_end. Fails also: PST_E_ARG for
 * stripes of one type's, PST_E_IO where a directory of stripes cannot be written to. */
PST_MUST_USE pst_rc pst_build_rows(struct pst_build *b, int type, enum pst_dtype dtype,
                                   const int64_t shape[2], struct pst_build_row_writer *w);
PST_MUST_USE pst_rc pst_build_row_writer_put(struct pst_build_row_writer *w, const void *rows, int64_t n);
PST_MUST_USE pst_rc pst_build_rows_note(struct pst_build *b, int type, struct pst_build_row_writer *w);
PST_MUST_USE pst_rc pst_build_rows_end(struct pst_build *b, int type, struct pst_build_row_writer *w);
void pst_build_row_writer_release(struct pst_build_row_writer *w);
/* Notes in the manifest how wide the rows are. */
void pst_build_note_features(struct pst_build *b, int type, int64_t dim, uint64_t stride_bytes);

/* The name of one type's file, of stripe k; room: PST_NAME_MAX. */
PST_API void pst_build_features_name(int type, char name[PST_NAME_MAX]);
PST_API void pst_build_stripe_name(int k, char name[PST_NAME_MAX]);

/* If `source` is a link to a stripe in another directory, gives that file a second name beside it, and makes
 * path a link to that. *far: whether it is. k: which stripe. */
PST_MUST_USE pst_rc pst_build_stripe_link_adopt(const struct pst_build *b, int k, const char *source,
                                                const char *path, bool *far);

/* Part (0 to 2: train, val, test) of the k-th split, which has `rows` ids: of the first, and only one, where
 * k is 0; else of a named one, whose room the manifest has (pst_manifest_splits). As pst_build_array and its
 * end. */
PST_MUST_USE pst_rc pst_build_split(struct pst_build *b, int k, int part, int64_t rows,
                                    struct pst_array_writer *w);
PST_MUST_USE pst_rc pst_build_split_end(struct pst_build *b, int k, int part, struct pst_array_writer *w);
void pst_build_split_name(int k, int part, char name[PST_NAME_MAX]); /* of its file */

/* Both, and the data between them, for an array that is in memory. */
PST_API PST_MUST_USE pst_rc pst_build_array_from(struct pst_build *b, enum pst_array_id id,
                                                 enum pst_dtype dtype, int64_t rows, const void *data);

/* A path for a file that is needed only while the dataset is made: temp-NAME.npy in the directory being made;
 * commit and release remove it. */
void pst_build_temp(const struct pst_build *b, const char *name, char path[4096]);

/* Writes dataset.json, syncs, renames. */
PST_API PST_MUST_USE pst_rc pst_build_commit(struct pst_build *b);
PST_API void pst_build_release(struct pst_build *b);

PST_END_DECLS
#endif
