/* dma.h: shared memory that controllers can access, emulated ones included: queues, PRP lists, staging.
 * Owner: the caller. Threads: any, each with its own. */
#ifndef PST_DMA_H
#define PST_DMA_H

#include "common/nvme/driver/transport.h"

struct pst_nvme_dma {
    void *base; /* zeroed, page-aligned */
    uint64_t bytes;
    uint64_t iova;                /* its address for the device; 0 until it is mapped */
    struct pst_nvme_transport *t; /* for which it is mapped; NULL: none */
};

/* Allocates bytes (rounded up to pages) and, unless t is NULL, maps them for it. */
PST_API PST_MUST_USE pst_rc pst_nvme_dma_new(struct pst_nvme_dma *dma, struct pst_nvme_transport *t,
                                             uint64_t bytes);
/* Unmaps and frees. If it cannot be unmapped, the memory stays allocated. Does nothing for a zeroed struct.
 */
PST_API void pst_nvme_dma_free(struct pst_nvme_dma *dma);

#endif
