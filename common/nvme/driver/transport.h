/* transport.h: how a driver reaches a controller's registers and gives it memory: over VFIO (vfio.h), or in
 * shared memory with an emulated controller (emulated.h). So one driver serves both.
 *
 * Owner: the caller that opens a transport closes it, after its controller. Threads: one at a time for
 * dma_map and dma_unmap. */
#ifndef PST_TRANSPORT_H
#define PST_TRANSPORT_H

#include "common/base.h"

struct pst_nvme_transport;

struct pst_nvme_transport_ops {
    const char *name; /* "vfio", "emulated" */
    /* Lets the device access [addr, addr + bytes), which is page-aligned, at *iova. An emulated controller
     * can be given only memory of dma.h or of ipc/region.h. */
    pst_rc (*dma_map)(struct pst_nvme_transport *t, void *addr, uint64_t bytes, uint64_t *iova);
    /* After it returns, the device cannot access that memory any more. */
    pst_rc (*dma_unmap)(struct pst_nvme_transport *t, uint64_t iova);
    /* Whether the device is gone and accesses nothing. NULL: only its registers show this. */
    bool (*gone)(const struct pst_nvme_transport *t);
    /* Unmaps everything and releases the device. The controller was shut down or reset before, if possible.
     */
    void (*close)(struct pst_nvme_transport *t);
};

struct pst_nvme_transport {
    const struct pst_nvme_transport_ops *ops;
    volatile void *regs; /* BAR 0; accessed in aligned 32-bit and 64-bit words */
    size_t regs_bytes;
    char what[128]; /* for messages: "0000:01:00.0", "emulated SSD 3" */
    void *impl;
};

#endif
