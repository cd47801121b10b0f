/* tempname.h: names of files and directories that are being made or removed, beside their final place:
 * NAME.penstock-partial-PID and NAME.penstock-removed-PID.
 *
 * A process that works under one of these names holds a flock on it. If nobody holds the flock, its process
 * is dead, in this PID namespace or in another, and the file may be removed. The PID only keeps names apart:
 * nobody asks whether a process of that number lives. Where the file system has no flock, nothing is ever
 * removed.
 *
 * Owner: the caller owns the descriptors. Threads: any. */
#ifndef PST_TEMPNAME_H
#define PST_TEMPNAME_H

#include <stddef.h>
#include <sys/types.h>

#include "common/base.h"

struct stat;

PST_BEGIN_DECLS

#define PST_TEMPNAME_PARTIAL ".penstock-partial-"
#define PST_TEMPNAME_REMOVED ".penstock-removed-"
#define PST_TEMPNAME_OLD                                                                                     \
    ".penstock-old-"         /* whole, and perhaps the only copy: it is never removed unasked                \
                              */
#define PST_TEMPNAME_MORE 32 /* the most bytes that a temporary name adds */

/* Writes path, mark and this process's PID to out. PST_E_ARG: that takes more than size bytes. */
PST_API PST_MUST_USE pst_rc pst_tempname(char *out, size_t size, const char *path, const char *mark);

/* The PID at the end of a name that has the mark; 0: the name is not a temporary one. of: the name must begin
 * with this and go on with the mark; NULL: it may begin with anything. */
PST_API long pst_tempname_pid(const char *name, const char *of, const char *mark);

/* Makes an empty file of this name and holds its flock until *fd is closed. The file must not be closed
 * before it is renamed. PST_E_STATE: another process or thread is writing it. */
PST_API PST_MUST_USE pst_rc pst_tempname_open(const char *path, int *fd);
/* The same for a new directory. */
PST_API PST_MUST_USE pst_rc pst_tempname_mkdir(const char *path, mode_t mode, int *fd);

/* Takes the lock of a file or directory in dir_fd that nobody holds, by flock or by fcntl; it stays locked
 * until *fd is closed. false: somebody holds it, or it is a link or another kind of file. */
PST_API bool pst_tempname_take(int dir_fd, const char *name, int *fd);

/* Removes the regular files in dir_fd that are named ...penstock-partial-PID and that nobody holds. of: as
 * above. dry: only counts them. Returns how many there were. */
PST_API int pst_tempname_sweep(int dir_fd, const char *of, bool dry);

/* Whether an entry of a temporary directory is one that its maker puts there. */
typedef bool pst_tempname_known_fn(int dir_fd, const char *name, const struct stat *st);
/* Removes one entry, and what belongs to it elsewhere. 0, or -1 and errno. */
typedef int pst_tempname_remove_fn(int dir_fd, const char *name);

/* Removes a directory that the caller has taken, an entry of parent_fd, if all of its own entries are known.
 * remove NULL: unlinkat. path: for messages. PST_E_STATE, and nothing is removed: it holds something else,
 * which the message names. */
PST_API PST_MUST_USE pst_rc pst_tempname_remove_dir(int parent_fd, const char *name, const char *path,
                                                    pst_tempname_known_fn *known,
                                                    pst_tempname_remove_fn *remove, bool dry);

PST_END_DECLS
#endif
