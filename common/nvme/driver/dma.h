/* dma.h: shared memory that controllers can be given, of the emulated kind too: queues, lists, staging.
 * Owner: the caller. Threads: any, each its own. */
#ifndef PST_DMA_H
#define PST_DMA_H

#include "common/nvme/driver/transport.h"

struct pst_nvme_dma {
    void *base; /* zeroed, page-aligned */
    uint64_t bytes;
    uint64_t iova;                /* contiguous; 0 until it is mapped */
    struct pst_nvme_transport *t; /* that it is mapped for; NULL: none */
};

/* Allocates bytes (rounded up to pages) and, unless t is NULL, maps them for it. */
PST_MUST_USE pst_rc pst_nvme_dma_new(struct pst_nvme_dma *dma, struct pst_nvme_transport *t, uint64_t bytes);
/* Unmaps and frees. If the device cannot be made to let go, the memory is kept for good. Nothing for zeroes.
 */
void pst_nvme_dma_free(struct pst_nvme_dma *dma);

#endif
