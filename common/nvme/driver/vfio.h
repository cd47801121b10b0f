/* vfio.h: a real controller that is bound to vfio-pci (`penstock disks --bind`), as a transport. Its
 * registers are mapped. It accesses memory through the IOMMU, and only what is mapped for it.
 *
 * When the process ends, also by a signal, the kernel stops the controller's DMA and resets it before the
 * memory that was mapped for it is used for anything else.
 *
 * Owner and threads: as transport.h says. */
#ifndef PST_VFIO_H
#define PST_VFIO_H

#include "common/nvme/driver/transport.h"
#include "common/nvme/driver/usable.h"

PST_BEGIN_DECLS

/* Fails: PST_E_STATE with every obstacle (usable.h), PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_nvme_vfio_connect(struct pst_nvme_transport *t, const char *address);

/* Would let the drive access GPU memory: `bytes` of a dma-buf, as CUDA exports it
 * (cuMemGetHandleForAddressRange). VFIO's type 1 mapper maps only memory of this process, so this fails with
 * PST_E_UNSUPPORTED and says what is missing. */
PST_API_TEST PST_MUST_USE pst_rc pst_nvme_vfio_map_gpu(struct pst_nvme_transport *t, int dmabuf,
                                                       uint64_t bytes, uint64_t *iova);

/* Finds what is missing for that. Returns the number of obstacles; so far it is never 0. */
PST_API int pst_obstacles_to_gpu(const struct pst_pci *pci, const char *root,
                                 struct pst_obstacle found[PST_OBSTACLES_MAX]);

PST_END_DECLS

#endif
