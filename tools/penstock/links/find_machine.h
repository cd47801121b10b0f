/* find_machine.h: finds the devices of this machine, and how they are linked. */
#ifndef PST_FIND_MACHINE_H
#define PST_FIND_MACHINE_H

#include "common/machine/machine.h"

/* Sockets and their memory from hwloc; GPUs, their memory and their links from NVML, if its library is
 * installed. why_no_gpus gets the reason if no GPU was found. PST_E_UNSUPPORTED: hwloc cannot read this
 * machine. PST_E_LIMIT: it has more sockets or GPUs than a machine file can describe. */
#define PST_LINKS_WHY_BYTES 256
PST_MUST_USE pst_rc pst_probe_topology(struct pst_machine *machine, char why_no_gpus[PST_LINKS_WHY_BYTES]);

/* Reads a machine file. PST_E_FORMAT: the file is wrong, and its errors have been printed. */
PST_MUST_USE pst_rc pst_probe_load(const char *file, struct pst_machine *machine);

#endif
