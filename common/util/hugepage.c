#include "common/util/hugepage.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20) /* of x86-64 */

void *pst_hugepage_alloc(uint64_t bytes)
{
    const bool huge = bytes >= HUGE_PAGE_BYTES;
    const uint64_t align = huge ? HUGE_PAGE_BYTES : PST_PAGE;
    void *memory = aligned_alloc(align, pst_align_up(bytes > 0 ? bytes : 1, align));
    if (memory != NULL && huge)
        (void)madvise(memory, pst_align_up(bytes, align), MADV_HUGEPAGE); /* a wish: without, only slower */
    return memory;
}
