/* caps_impl.h: what caps.c and caps_foreign.c share. */
#ifndef PST_CAPS_IMPL_H
#define PST_CAPS_IMPL_H

#include "common/pipeline/desc/caps.h"

/* Fills caps, whose run and file are set, by asking the program. */
PST_MUST_USE pst_rc pst_caps_load_foreign(struct pst_caps *caps);

#endif
