/* memory.h: how much memory there is to use, and how much was used. Threads: any. */
#ifndef PST_MEMORY_H
#define PST_MEMORY_H

#include "common/base.h"

PST_BEGIN_DECLS

/* Half of what is free now, on the machine and in the memory cgroups that this process is in (version 1 or
 * 2); at least 64 MiB. */
PST_API uint64_t pst_memory_default(void);

/* All that this process and its children may use: the machine's memory, or the limit of the smallest of its
 * memory cgroups. */
PST_API uint64_t pst_memory_limit(void);

/* The most that this process had resident, in bytes. */
PST_API uint64_t pst_memory_peak(void);

PST_END_DECLS
#endif
