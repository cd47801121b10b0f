/* transport.h: how a controller's registers are reached and memory is made known to it: over VFIO (vfio.h) or
 * in shared memory with the emulated controller (emulated.h). All that the bring-up (controller.h) needs, so
 * that one driver serves both.
 *
 * Owner: whoever opened the transport closes it, after the controller. Threads: dma_map and dma_unmap from
 * one at a time. */
#ifndef PST_TRANSPORT_H
#define PST_TRANSPORT_H

#include "common/base.h"

struct pst_nvme_transport;

struct pst_nvme_transport_ops {
    const char *name; /* "vfio", "emulated" */
    /* Makes [addr, addr + bytes), page-aligned, reachable for the device, contiguously from *iova on (aligned
     * like addr to the page). The emulated controller can only be given memory of dma.h or region.h. */
    pst_rc (*dma_map)(struct pst_nvme_transport *t, void *addr, uint64_t bytes, uint64_t *iova);
    /* After it returns, the device does not touch that memory any more: what it still tries is refused. */
    pst_rc (*dma_unmap)(struct pst_nvme_transport *t, uint64_t iova);
    /* Whether the device is no more, and touches nothing; NULL: only its registers tell. */
    bool (*gone)(const struct pst_nvme_transport *t);
    /* Unmaps all and lets go of the device. The controller was shut down or reset before, if it could be. */
    void (*close)(struct pst_nvme_transport *t);
};

struct pst_nvme_transport {
    const struct pst_nvme_transport_ops *ops;
    volatile void *regs; /* BAR 0; 32-bit and 64-bit aligned accesses */
    size_t regs_bytes;
    char what[128]; /* for messages: "0000:01:00.0", "emulated SSD 3" */
    void *impl;
};

#endif
