/* memory.h: how much memory this process may use, and how much it used; memory in huge pages; memory that
 * grows. Threads: any; a buffer belongs to one. */
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
PST_API uint64_t pst_memory_limit(void);

/* The largest resident size that this process ever had, in bytes. */
PST_API uint64_t pst_memory_peak(void);

/* Huge pages: for memory that is read or written at random, if it is large enough and the kernel has them.
 * Otherwise each random access to more small pages than the TLB holds costs a page walk. */

/* At least `bytes` bytes, aligned to a page, not cleared. The caller frees it with free(). NULL: no memory.
 */
PST_API void *pst_hugepage_alloc(uint64_t bytes);

/* Address space for `bytes` bytes, which read as zero; a page takes memory when it is first written. The
 * caller unmaps it. NULL: no address space. */
PST_API void *pst_hugepage_map(uint64_t bytes);
PST_API void pst_hugepage_unmap(void *memory, uint64_t bytes); /* NULL: does nothing */

/* Memory that grows when more is needed; what was in it is lost then. All zeros: empty. The caller frees
 * `at`. */
struct pst_memory_buffer {
    char *at;       /* a multiple of a page */
    uint64_t bytes; /* that it has */
};

/* Makes sure that a buffer has so many bytes. use: what they are for, as an error says it ("send rows").
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_memory_need(struct pst_memory_buffer *buffer, uint64_t bytes,
                                            const char *use);

PST_END_DECLS
#endif
