/* caps_impl.h: what caps.c and caps_foreign.c share. */
#ifndef PST_CAPS_IMPL_H
#define PST_CAPS_IMPL_H

#include "common/pipeline/caps.h"

#define PST_CAPS_RANK_MAX 8 /* dimensions of a port: more than any tensor here has */

/* Is this description one that the runtime can use? `file` is for the message. */
PST_MUST_USE pst_rc pst_caps_check(const struct pst_stage_desc *desc, const char *file);
/* Fills caps, whose run and file are set, by asking the program. */
PST_MUST_USE pst_rc pst_caps_load_foreign(struct pst_caps *caps);

#endif
