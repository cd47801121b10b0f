/* hugepage.h: memory that is read or written at random. It consists of huge pages if it is large enough and
 * the kernel has them; otherwise each random access to more small pages than the TLB holds costs a page walk.
 * Threads: any. */
#ifndef PST_HUGEPAGE_H
#define PST_HUGEPAGE_H

#include "common/base.h"

PST_BEGIN_DECLS

/* At least `bytes` bytes, aligned to a page, not cleared. The caller frees it with free(). NULL: no memory.
 */
PST_API void *pst_hugepage_alloc(uint64_t bytes);

/* Address space for `bytes` bytes, which read as zero; a page takes memory when it is first written. The
 * caller unmaps it. NULL: no address space. */
PST_API void *pst_hugepage_map(uint64_t bytes);
PST_API void pst_hugepage_unmap(void *memory, uint64_t bytes); /* NULL: does nothing */

PST_END_DECLS
#endif
