/* disks.h: the NVMe controllers of this machine, from libnvme and sysfs, for `penstock disks`. Owner: the
 * caller's array; nothing is allocated. Threads: one. */
#ifndef PST_DISKS_H
#define PST_DISKS_H

#include "common/nvme/driver/usable.h"
#include "common/store/dataset/stripe.h"

#define DISKS_MAX (2 * PST_PCI_NVME_MAX) /* over PCI, and the same number over a network */
#define DISK_UNKNOWN (-1)
#define DISK_NO_TEMPERATURE INT32_MIN

struct disk_namespace {
    uint32_t nsid;
    char name[PST_NAME_MAX]; /* the name of its block device; "" if it has none */
    uint64_t blocks;
    int lba_bytes, metadata_bytes;
    int lba_format; /* the number of the drive's LBA format, or DISK_UNKNOWN */
    bool ours;      /* it holds rows that `penstock store` wrote; stripe describes them */
    struct pst_stripe stripe;
};

struct disk {
    bool on_pci;
    struct pst_pci pci;
    char name[PST_NAME_MAX]; /* "nvme0"; "" if the kernel has no driver for it */
    char transport[PST_NAME_MAX], model[PST_NAME_MAX], serial[PST_NAME_MAX], firmware[PST_NAME_MAX];
    int mdts;                   /* MDTS: a power of two of the smallest page; 0: no limit */
    int64_t transfer_bytes_max; /* the limit of the drive and its driver */
    int submission_queues, completion_queues;
    int temperature_c, percentage_used;
    char unknown[256]; /* why some details are missing; "" if none is */
    int nnamespaces;
    struct disk_namespace ns[PST_PCI_NAMESPACES_MAX];
    int nobstacles; /* why backend nvme cannot use it */
    struct pst_obstacle obstacle[PST_OBSTACLES_MAX];
};

/* Finds all controllers, those over PCI first. Returns their number. */
int disks_find(struct disk disks[DISKS_MAX]);

/* Reads what a namespace with a block device holds. Needs the right to read it. */
void disks_read_signature(struct disk_namespace *ns);

/* Asks a controller that is bound to vfio-pci and not in use, and fills in its answers. */
void disks_ask_ourselves(struct disk *d);

void disks_print(const struct disk *disks, int n);
PST_MUST_USE pst_rc disks_print_json(const struct disk *disks, int n);

#endif
