/* file.h: all of what is asked for, from and to a place in a file. Owner: none. Threads: any; different
 * places of one file may be written at a time. */
#ifndef PST_FILE_H
#define PST_FILE_H

#include "common/base.h"

struct iovec;

PST_BEGIN_DECLS

/* Opens a file for reading; what is none, a pipe say, is PST_E_FORMAT and not waited for. */
PST_API PST_MUST_USE pst_rc pst_file_open(const char *path, int *fd, uint64_t *bytes);

/* There must be room for so many more bytes where path is, a file or a directory: so that a count which is a
 * mistake does not fill the disk first. Fails: PST_E_IO, with what is needed and what is free. */
PST_API PST_MUST_USE pst_rc pst_file_room_for(const char *path, uint64_t bytes, const char *what);

/* PST_E_IO; PST_E_FORMAT: the file ends before. path is for the message. */
PST_API PST_MUST_USE pst_rc pst_file_read_at(int fd, void *to, uint64_t bytes, uint64_t at, const char *path);
/* The same into pieces of memory (at most IOV_MAX, none of them empty), which it changes. */
PST_API PST_MUST_USE pst_rc pst_file_readv_at(int fd, struct iovec *piece, int pieces, uint64_t at,
                                              const char *path);
PST_API PST_MUST_USE pst_rc pst_file_write_at(int fd, const void *from, uint64_t bytes, uint64_t at,
                                              const char *path);

PST_END_DECLS
#endif
