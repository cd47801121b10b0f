/* disks.h: the NVMe controllers of this machine, as libnvme and sysfs tell of them, for penstock disks.
 * Owner: the caller's array, nothing allocated. Threads: one. */
#ifndef PST_DISKS_H
#define PST_DISKS_H

#include "common/nvme/driver/usable.h"
#include "common/store/dataset/stripe.h"

#define DISKS_MAX (2 * PST_PCI_NVME_MAX) /* over PCI, and as many over a network */
#define DISK_UNKNOWN (-1)
#define DISK_NO_TEMPERATURE INT32_MIN

struct disk_namespace {
    uint32_t nsid;
    char name[PST_NAME_MAX]; /* of its block device; "" if it has none */
    uint64_t blocks;
    int lba_bytes, metadata_bytes;
    int lba_format; /* which of the drive's formats; DISK_UNKNOWN */
    bool ours;      /* it holds rows that penstock store wrote: which, stripe says */
    struct pst_stripe stripe;
};

struct disk {
    bool on_pci;
    struct pst_pci pci;
    char name[PST_NAME_MAX]; /* "nvme0"; "" if the kernel does not drive it */
    char transport[PST_NAME_MAX], model[PST_NAME_MAX], serial[PST_NAME_MAX], firmware[PST_NAME_MAX];
    int mdts;                   /* as Identify has it: a power of two of the smallest page; 0: no limit */
    int64_t transfer_bytes_max; /* that the drive and its driver agree on */
    int submission_queues, completion_queues;
    int temperature_c, percentage_used;
    char unknown[256]; /* why some of this could not be asked; "" if all could */
    int nnamespaces;
    struct disk_namespace ns[PST_PCI_NAMESPACES_MAX];
    int nobstacles; /* between it and backend nvme */
    struct pst_obstacle obstacle[PST_OBSTACLES_MAX];
};

/* All of them, over PCI first; their number. */
int disks_find(struct disk disks[DISKS_MAX]);

/* Of a namespace that the kernel has a block device of; needs the right to read it. */
void disks_read_signature(struct disk_namespace *ns);

/* Fills in what a controller that is bound to vfio-pci, and that nobody drives, says of itself. */
void disks_ask_ourselves(struct disk *d);

void disks_print(const struct disk *disks, int n);
PST_MUST_USE pst_rc disks_print_json(const struct disk *disks, int n);

#endif
