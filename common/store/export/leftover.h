/* leftover.h: finds and removes directories that a killed export left. Owner: none. Threads: one. */
#ifndef PST_EXPORT_LEFTOVER_H
#define PST_EXPORT_LEFTOVER_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Removes the entry `name` of parent_fd, which the caller has taken (pst_tempname_take), if it holds nothing
 * but files that exports write. path: for messages. PST_E_STATE: it holds something else; nothing is removed.
 */
PST_API PST_MUST_USE pst_rc pst_export_remove_leftover(int parent_fd, const char *name, const char *path,
                                                       bool dry);

/* Removes what killed exports to DIR left beside it, as far as nobody holds it. */
void pst_export_remove_leftovers(const char *dir);

PST_END_DECLS
#endif
