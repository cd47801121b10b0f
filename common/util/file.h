/* file.h: whole reads and writes at a place in a file, and files that are replaced whole or not at all.
 * Owner: the caller. Threads: any; different places of one file may be written at the same time. */
#ifndef PST_FILE_H
#define PST_FILE_H

#include "common/base.h"

struct iovec;

PST_BEGIN_DECLS

/* Opens a regular file for reading. Anything else (a pipe, for example) fails at once with PST_E_FORMAT. */
PST_API PST_MUST_USE pst_rc pst_file_open(const char *path, int *fd, uint64_t *bytes);

/* Checks that the file system of path (a file or a directory) has room for so many more bytes, so that a
 * wrong count cannot fill the disk. PST_E_IO: it has not; the message says how much is needed and how much is
 * free. */
PST_API PST_MUST_USE pst_rc pst_file_room_for(const char *path, uint64_t bytes, const char *what);

/* Reads all `bytes` bytes. PST_E_FORMAT: the file is too short. path is for the message. */
PST_API PST_MUST_USE pst_rc pst_file_read_at(int fd, void *to, uint64_t bytes, uint64_t at, const char *path);
/* The same into several pieces of memory (at most IOV_MAX, none empty). It changes the array `piece`. */
PST_API PST_MUST_USE pst_rc pst_file_readv_at(int fd, struct iovec *piece, int pieces, uint64_t at,
                                              const char *path);
PST_API PST_MUST_USE pst_rc pst_file_write_at(int fd, const void *from, uint64_t bytes, uint64_t at,
                                              const char *path);

/* A file that is written beside its place, under a temporary name (tempname.h), and takes its place when it
 * is whole: PATH is the old file or the new one, never half of one. */
struct pst_file_new {
    int fd; /* write here, with any of the functions above */
    char path[PST_PATH_MAX], partial[PST_PATH_MAX];
};

PST_API PST_MUST_USE pst_rc pst_file_new_begin(struct pst_file_new *f, const char *path);
/* Syncs the file, closes it, renames it to its path and syncs the directory. If that fails, the temporary
 * file is removed and the old file stays. */
PST_API PST_MUST_USE pst_rc pst_file_new_commit(struct pst_file_new *f);
/* Closes and removes the temporary file. Does nothing after a commit. */
PST_API void pst_file_new_abandon(struct pst_file_new *f);

/* All of the above for `bytes` bytes of memory. */
PST_API PST_MUST_USE pst_rc pst_file_replace(const char *path, const void *data, size_t bytes);

/* Reads a whole file of at most bytes_max bytes; the caller frees *data, which ends with a zero byte that
 * *bytes does not count. PST_E_LIMIT: the file is larger. */
PST_API PST_MUST_USE pst_rc pst_file_read(const char *path, size_t bytes_max, char **data, size_t *bytes);

/* Makes the directories that path is to lie in, as far as they do not exist. */
PST_API PST_MUST_USE pst_rc pst_file_make_parents(const char *path);

/* Opens /dev/null as standard input, output and error where one of them is closed. Every program calls it
 * first: otherwise the next file that it opens gets that number, and messages are written into it. */
PST_API void pst_file_open_std(void);

/* Makes what was renamed or created in a directory survive a power failure. */
PST_API PST_MUST_USE pst_rc pst_file_sync_dir(const char *dir);

/* Text that changes when the file does: its size, time of modification and inode; "" if there is no file. */
#define PST_FILE_IDENTITY_BYTES 96
PST_API void pst_file_identity(const char *path, char out[PST_FILE_IDENTITY_BYTES]);

/* XXH3 of a regular file's bytes, 64 bits, as 16 hexadecimal digits. PST_E_IO: it cannot be read. */
#define PST_FILE_DIGEST_BYTES 17
PST_API PST_MUST_USE pst_rc pst_file_digest(const char *path, char out[PST_FILE_DIGEST_BYTES]);

/* The path of a file in the user's cache: $XDG_CACHE_HOME/penstock/NAME, or ~/.cache/penstock/NAME. Makes the
 * folder. If it cannot be made, opening the file fails. */
PST_API void pst_file_cached(const char *name, char out[PST_PATH_MAX]);

PST_END_DECLS
#endif
