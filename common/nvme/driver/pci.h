/* pci.h: an NVMe controller as a PCI function: what sysfs says of it, which driver has it, and handing it
 * from the kernel's driver to vfio-pci and back.
 *
 * `root` is put before every path: "" on a machine, a scratch directory in tests. Owner: the caller's
 * structs; nothing is allocated. Threads: any, but not two for the same function. */
#ifndef PST_PCI_H
#define PST_PCI_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_PCI_ADDRESS_BYTES 16
#define PST_PCI_OTHERS_MAX 32     /* of one IOMMU group: a bus has no more devices */
#define PST_PCI_NVME_MAX 64       /* controllers of a machine: twice what servers have bays for */
#define PST_PCI_NAMESPACES_MAX 32 /* of one controller; drives on sale have up to 32 */

struct pst_pci {
    char address[PST_PCI_ADDRESS_BYTES]; /* "0000:01:00.0" */
    uint16_t vendor, device;
    char driver[PST_NAME_MAX]; /* "nvme", "vfio-pci", ...; "" if none */
    int iommu_group;           /* -1: there is no IOMMU, or it is off */
    int others;                /* other functions in the same group, without bridges */
    char other[PST_PCI_OTHERS_MAX][PST_PCI_ADDRESS_BYTES];
    char link_speed[PST_NAME_MAX], link_speed_max[PST_NAME_MAX]; /* "8.0 GT/s PCIe"; "" if it has no link */
    int link_width, link_width_max;
    int numa_node; /* -1: not known */
};

/* Turns "1:0.0", "01:00.0" or "0000:01:00.0" into the last form. PST_E_ARG for anything else. */
PST_API PST_MUST_USE pst_rc pst_pci_address(const char *text, char out[PST_PCI_ADDRESS_BYTES]);

/* Finds the machine's NVMe controllers, by address. Returns their number, at most PST_PCI_NVME_MAX. */
PST_API int pst_pci_nvme(const char *root, char found[PST_PCI_NVME_MAX][PST_PCI_ADDRESS_BYTES]);

/* PST_E_ARG: there is no function at this address, or it is not an NVMe controller. */
PST_API PST_MUST_USE pst_rc pst_pci_read(struct pst_pci *pci, const char *root, const char *address);

/* Finds the names of the kernel's block devices for it ("nvme0n1"). Returns their number. */
PST_API int pst_pci_blocks(const struct pst_pci *pci, const char *root,
                           char name[PST_PCI_NAMESPACES_MAX][PST_NAME_MAX]);

/* Binds the function to `driver` ("vfio-pci", "nvme") and waits for that, at most PST_PCI_HANDOVER_MS. It
 * does not check whether the drive is in use; usable.h does. Fails: PST_E_IO, PST_E_TIMEOUT. */
#define PST_PCI_HANDOVER_MS 10000 /* a controller has up to CAP.TO to reset; drives on sale take 1 to 5 s */
PST_MUST_USE pst_rc pst_pci_give(const char *root, const char *address, const char *driver);

PST_END_DECLS
#endif
