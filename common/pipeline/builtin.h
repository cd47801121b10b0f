/* builtin.h: stages that the runtime itself brings. */
#ifndef PST_BUILTIN_H
#define PST_BUILTIN_H

#include "common/stage.h"

#define PST_BUILTIN_COPY "copy" /* between devices: inserted where a link crosses from one to another */

const struct pst_stage_desc *pst_builtin(const char *name); /* NULL: none of this name */
/* The callbacks of the bridge that hosts a foreign stage; ports and params are the foreign stage's own. */
struct pst_stage_desc pst_foreign_desc(const struct pst_stage_desc *described);

#endif
