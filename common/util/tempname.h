/* tempname.h: how a thing is called while it is made, or removed, beside its place:
 * NAME.penstock-partial-PID, NAME.penstock-removed-PID. Nobody calls a thing of his own so: who finds one of
 * a dead process may remove it. Owner: none. Threads: any. */
#ifndef PST_TEMPNAME_H
#define PST_TEMPNAME_H

#include <stddef.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_TEMPNAME_PARTIAL ".penstock-partial-"
#define PST_TEMPNAME_REMOVED ".penstock-removed-"
#define PST_TEMPNAME_OLD ".penstock-old-" /* whole, and perhaps the only one: nothing removes it unasked */
#define PST_TEMPNAME_MORE 32              /* bytes that a name has more, at most */

/* Into out: path, mark and this process's PID. PST_E_ARG when that is more than size bytes. */
PST_API PST_MUST_USE pst_rc pst_tempname(char *out, size_t size, const char *path, const char *mark);

/* The PID in a name that has the mark, and ends there; 0: it is none. of: what comes before the mark; NULL:
 * anything. */
PST_API long pst_tempname_pid(const char *name, const char *of, const char *mark);

PST_END_DECLS
#endif
