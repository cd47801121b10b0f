/* array.h: writes an array file from a stream of bytes and computes its checksum.
 * Owner: the caller owns the writer; init and release pair, and release after a failed or unfinished write
 * leaves the file for the dataset's builder to remove. Threads: one per writer. */
#ifndef PST_ARRAY_H
#define PST_ARRAY_H

#include "common/store/store.h"

PST_BEGIN_DECLS

struct pst_array_writer {
    char path[4096];
    int fd;
    enum pst_dtype dtype;
    int rank;
    int64_t shape[2];
    uint64_t expected, written; /* bytes of data */
    uint64_t flushed, started;  /* bytes of the file: written, and handed to the disk */
    unsigned char *buffer;
    size_t fill;
    bool shrunk;
    void *hash; /* XXH3_state_t */
};

/* Creates path (which must not exist) with a header for shape; rank 1 or 2. Fails: PST_E_IO, PST_E_NOMEM,
 * PST_E_LIMIT when the size does not fit 63 bits. */
PST_API PST_MUST_USE pst_rc pst_array_writer_init(struct pst_array_writer *w, const char *path,
                                                  enum pst_dtype dtype, int rank, const int64_t shape[2]);

/* Goes on with a file of which `written` bytes of data are known to be there; what is after them is cut off.
 * Reads them for the checksum. Fails also: PST_E_FORMAT when the file is shorter. */
PST_API PST_MUST_USE pst_rc pst_array_writer_reopen(struct pst_array_writer *w, const char *path,
                                                    enum pst_dtype dtype, int rank, const int64_t shape[2],
                                                    uint64_t written);

/* All that was written is on the disk: a later reopen can go on from there. */
PST_API PST_MUST_USE pst_rc pst_array_writer_sync(struct pst_array_writer *w);

/* Appends bytes of data. Fails: PST_E_IO (a full disk says so), PST_E_STATE past the shape's size. */
PST_API PST_MUST_USE pst_rc pst_array_write(struct pst_array_writer *w, const void *data, size_t bytes);

/* Says that there are only `rows` rows, as many as were written: for an array whose size was not known when
 * it began. Its checksum then costs finish one more reading of the file. */
PST_API PST_MUST_USE pst_rc pst_array_writer_shrink(struct pst_array_writer *w, int64_t rows);

/* Checks that all of the shape was written, syncs, and gives the XXH3-64 of the whole file. */
PST_API PST_MUST_USE pst_rc pst_array_writer_finish(struct pst_array_writer *w, uint64_t *checksum);
PST_API void pst_array_writer_release(struct pst_array_writer *w);

PST_END_DECLS
#endif
