/* vfio.h: a real controller, bound to vfio-pci (penstock disks --bind), as a transport: its registers are
 * mapped, and it reaches what is mapped for it, and nothing else, through the IOMMU.
 *
 * When the process ends, however it ends, the kernel stops the controller's DMA and resets it before the
 * memory that was mapped for it is anybody else's. */
#ifndef PST_VFIO_H
#define PST_VFIO_H

#include "common/nvme/driver/transport.h"
#include "common/nvme/driver/usable.h"

PST_BEGIN_DECLS

/* Fails: PST_E_STATE with every obstacle (usable.h), PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_nvme_vfio_connect(struct pst_nvme_transport *t, const char *address);

/* The place of GPU memory in the mapper: `bytes` of a dma-buf, as CUDA exports device memory
 * (cuMemGetHandleForAddressRange), made reachable for the drive, peer to peer. VFIO's type 1 mapper takes
 * memory of the calling process alone, so this fails with PST_E_UNSUPPORTED and says what is missing on this
 * machine. */
PST_API PST_MUST_USE pst_rc pst_nvme_vfio_map_gpu(struct pst_nvme_transport *t, int dmabuf, uint64_t bytes,
                                                  uint64_t *iova);

/* What is missing for that, between this drive and any GPU here; never 0 as yet. */
PST_API int pst_obstacles_to_gpu(const struct pst_pci *pci, const char *root,
                                 struct pst_obstacle found[PST_OBSTACLES_MAX]);

PST_END_DECLS

#endif
