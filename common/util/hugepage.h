/* hugepage.h: memory that is read at random all run long. Owner: the caller, who frees it with free(). */
#ifndef PST_HUGEPAGE_H
#define PST_HUGEPAGE_H

#include "common/base.h"

PST_BEGIN_DECLS

/* At least bytes, aligned to a page; of huge pages where it fills some and the kernel has them: random reads
 * of more small pages than the TLB holds cost a page walk each. NULL: there is none. */
PST_API void *pst_hugepage_alloc(uint64_t bytes);

PST_END_DECLS
#endif
