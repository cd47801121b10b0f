/* remove.h: a dataset is removed: what its manifest names, and its stripes in other directories; nothing
 * else. Owner: none. Threads: one; of several processes at the same dataset one does the work. */
#ifndef PST_REMOVE_H
#define PST_REMOVE_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Told of each file that is removed, before it is: bytes are 0 for a link. */
typedef void (*pst_remove_fn)(void *ctx, const char *path, uint64_t bytes);

/* Looks at everything first; then DIR becomes DIR.penstock-removed-PID, which is emptied, the manifest last.
 * What was killed meanwhile is finished by the next call for DIR. dry: only tells. Fails, and removes
 * nothing: PST_E_STATE when DIR is no dataset, is a link, holds something else, or a stripe is not its own;
 * PST_E_FORMAT when the manifest is bad. */
PST_API PST_MUST_USE pst_rc pst_remove_dataset(const char *dir, bool dry, pst_remove_fn tell, void *ctx);

/* Removes what a killed gen, import, convert or rm left: the entry `name` of parent_fd, which the caller has
 * taken (pst_tempname_take), if it holds nothing but a dataset's files; and its stripes elsewhere. path: for
 * messages. PST_E_STATE: it holds something else; nothing is removed. */
PST_API PST_MUST_USE pst_rc pst_remove_leftover(int parent_fd, const char *name, const char *path, bool dry);

PST_END_DECLS
#endif
