/* memory.h: how much memory this process may use, and how much it used. Threads: any. */
#ifndef PST_MEMORY_H
#define PST_MEMORY_H

#include "common/base.h"

PST_BEGIN_DECLS

/* The memory that is free now, on the machine, and at most the limits of the memory cgroups (version 1 or 2)
 * of this process, in bytes. */
PST_API uint64_t pst_memory_free(void);

/* Half of the memory that is free now, on the machine and in the memory cgroups (version 1 or 2) of this
 * process, in bytes; at least 64 MiB. */
PST_API uint64_t pst_memory_default(void);

/* The most that this process and its children may use, in bytes: the machine's memory, or the smallest limit
 * of its memory cgroups. */
uint64_t pst_memory_limit(void);

/* The largest resident size that this process ever had, in bytes. */
PST_API uint64_t pst_memory_peak(void);

PST_END_DECLS
#endif
