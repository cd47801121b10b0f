/* remove.h: removes a dataset: the files that its manifest lists, its stripes in other directories, and
 * nothing else. Owner: none. Threads: one. If several processes remove the same dataset, one does the work.
 */
#ifndef PST_REMOVE_H
#define PST_REMOVE_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Called before each file is removed. bytes is 0 for a link. */
typedef void (*pst_remove_fn)(void *ctx, const char *path, uint64_t bytes);

/* Checks everything first. Then renames DIR to DIR.penstock-removed-PID and empties that, the manifest last.
 * If it is killed, the next call for DIR finishes the work. dry: removes nothing, only calls tell. Fails, and
 * removes nothing: PST_E_STATE when DIR is no dataset, is a link, holds something else, or a stripe is not
 * its own; PST_E_FORMAT when the manifest is bad. */
PST_API PST_MUST_USE pst_rc pst_remove_dataset(const char *dir, bool dry, pst_remove_fn tell, void *ctx);

/* Removes what a killed gen, import, convert or rm left: the entry `name` of parent_fd, which the caller has
 * taken (pst_tempname_take), if it holds nothing but a dataset's files; and its stripes elsewhere. path: for
 * messages. PST_E_STATE: it holds something else; nothing is removed. */
PST_API PST_MUST_USE pst_rc pst_remove_leftover(int parent_fd, const char *name, const char *path, bool dry);

PST_END_DECLS
#endif
