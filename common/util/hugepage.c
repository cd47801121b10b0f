/* hugepage.c: madvise is a request: without huge pages everything works, only slower. */
#include "common/util/hugepage.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20) /* of x86-64 */

void *pst_hugepage_alloc(uint64_t bytes)
{
    const bool huge = bytes >= HUGE_PAGE_BYTES;
    const uint64_t align = huge ? HUGE_PAGE_BYTES : PST_PAGE;
    const uint64_t room = pst_align_up(bytes > 0 ? bytes : 1, align);
    void *memory = aligned_alloc(align, room);
    if (memory != NULL && huge)
        (void)madvise(memory, room, MADV_HUGEPAGE);
    return memory;
}

void *pst_hugepage_map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE_BYTES)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

void pst_hugepage_unmap(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        (void)munmap(memory, bytes > 0 ? bytes : 1);
}
