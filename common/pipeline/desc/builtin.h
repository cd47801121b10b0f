/* builtin.h: stages that are part of Penstock itself: the copy between devices. Here are only their
 * descriptions; common/host has their callbacks. */
#ifndef PST_BUILTIN_H
#define PST_BUILTIN_H

#include "common/stage.h"

#define PST_BUILTIN_COPY "copy" /* inserted where a link crosses from one device to another */

/* The description of the built-in stage of this name; NULL: there is none. */
const struct pst_stage_desc *pst_builtin(const char *name);

#endif
