/* show_machine.h: `penstock probe --topology` and `--cliques`. */
#ifndef PST_SHOW_MACHINE_H
#define PST_SHOW_MACHINE_H

#include "common/base.h"

/* Prints the machine of a machine file, or this one if file is NULL: as a machine file, or its cliques as
 * text. PST_E_FORMAT: the file is wrong, and its errors have been printed. */
PST_MUST_USE pst_rc pst_probe_machine(const char *file, bool cliques);

#endif
