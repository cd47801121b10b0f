/* vfio.c: a controller behind VFIO: group, container, registers, and a map of IO virtual addresses. */
#include "common/nvme/driver/vfio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/spec.h"

#define RANGES_MAX 16           /* ranges of IO virtual addresses; an IOMMU leaves out one or two windows */
#define MAPS_MAX 1024           /* a pipeline has tens of regions, and each queue a few */
#define IOVA_FIRST (1ull << 20) /* 0 means "not mapped" */
/* a region with the same offset in both address spaces gets large IOMMU pages */
#define HUGE_PAGE (2ull << 20)
#define INFO_BYTES_MAX (64 << 10) /* VFIO's answer with its capabilities has a few hundred bytes */

struct map {
    uint64_t iova, bytes;
};

struct vfio {
    int container, group, device;
    size_t bar_bytes;
    uint64_t config_at; /* offset of the configuration space in the device's file */
    struct vfio_iova_range range[RANGES_MAX];
    int nranges;
    struct map map[MAPS_MAX]; /* by iova, ascending */
    int nmaps;
};

/* ---- IO virtual addresses --------------------------------------------------------------------------- */

/* An ioctl with an answer of variable length: asks for the length, then for everything. NULL: it failed. */
static void *ask(int fd, unsigned long request, size_t least)
{
    uint32_t *info = calloc(1, least);
    for (int tries = 0; info != NULL && tries < 2; tries++) {
        const size_t have = tries == 0 ? least : info[0];
        info[0] = (uint32_t)have; /* argsz is the first field of each answer */
        if (ioctl(fd, request, info) != 0 || info[0] > INFO_BYTES_MAX)
            break;
        if (info[0] <= have)
            return info;
        const size_t more = info[0];
        uint32_t *larger = realloc(info, more);
        if (larger == NULL)
            break;
        info = larger;
        memset((char *)info + sizeof *info, 0, more - sizeof *info);
    }
    free(info);
    return NULL;
}

/* Reads the address ranges that the IOMMU allows; kernels before 5.4 do not report them. */
static pst_rc read_ranges(struct vfio *v)
{
    struct vfio_iommu_type1_info *info = ask(v->container, VFIO_IOMMU_GET_INFO, sizeof *info);
    if (info == NULL)
        return pst_fail_errno("cannot get the IOMMU's address ranges from VFIO");
    uint32_t at = info->flags & VFIO_IOMMU_INFO_CAPS ? info->cap_offset : 0;
    while (at >= sizeof *info && at + sizeof(struct vfio_info_cap_header) <= info->argsz) {
        const struct vfio_info_cap_header *cap = (const void *)((const char *)info + at);
        if (cap->id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
            const struct vfio_iommu_type1_info_cap_iova_range *ranges = (const void *)cap;
            for (uint32_t i = 0; i < ranges->nr_iovas && v->nranges < RANGES_MAX; i++)
                v->range[v->nranges++] = ranges->iova_ranges[i];
        }
        at = cap->next;
    }
    free(info);
    return v->nranges > 0 ? PST_OK
                          : pst_fail(PST_E_UNSUPPORTED, "this kernel does not report which addresses the "
                                                        "IOMMU allows; expected Linux 5.4 or later");
}

/* The first address of the range, from `from` on, with room and with the same offset in a huge page as addr;
 * 0: none. */
static uint64_t place_in(const struct vfio_iova_range *range, uint64_t from, uint64_t bytes, uint64_t addr)
{
    uint64_t least = range->start > from ? range->start : from;
    least = least > IOVA_FIRST ? least : IOVA_FIRST;
    uint64_t at = least - least % HUGE_PAGE + addr % HUGE_PAGE;
    at += at < least ? HUGE_PAGE : 0;
    return at >= least && at <= range->end && bytes - 1 <= range->end - at ? at : 0;
}

/* First fit; 0: there is no room. *slot: its place in the list. */
static uint64_t find_iova(const struct vfio *v, uint64_t bytes, uint64_t addr, int *slot)
{
    for (int r = 0; r < v->nranges; r++) {
        uint64_t at = place_in(&v->range[r], 0, bytes, addr);
        int i = 0;
        for (; i < v->nmaps && at != 0; i++) {
            const struct map *m = &v->map[i];
            if (m->iova + m->bytes <= at)
                continue;
            if (m->iova >= at + bytes)
                break;
            at = place_in(&v->range[r], m->iova + m->bytes, bytes, addr);
        }
        *slot = i;
        if (at != 0)
            return at;
    }
    return 0;
}

static pst_rc map_failed(const struct pst_nvme_transport *t, uint64_t bytes)
{
    const char *what = t->what;
    if (errno == ENOMEM)
        return pst_fail(PST_E_NOMEM,
                        "%s: cannot lock %.1f MiB in memory for the drive; raise the limit: `ulimit -l "
                        "unlimited` as root, or LimitMEMLOCK=infinity for a service",
                        what, (double)bytes / 1048576.0);
    return pst_fail_errno("%s: cannot map %.1f MiB for the drive", what, (double)bytes / 1048576.0);
}

static pst_rc dma_map(struct pst_nvme_transport *t, void *addr, uint64_t bytes, uint64_t *iova)
{
    struct vfio *v = t->impl;
    int slot = 0;
    assert((uintptr_t)addr % PST_PAGE == 0 && bytes % PST_PAGE == 0 && bytes > 0);
    if (v->nmaps == MAPS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "%s: cannot map more memory for the drive: %d regions are mapped, which is the "
                        "limit: use fewer links",
                        t->what, MAPS_MAX);
    const uint64_t at = find_iova(v, bytes, (uintptr_t)addr, &slot);
    if (at == 0)
        return pst_fail(PST_E_LIMIT,
                        "%s: the IOMMU has no free address range for another %.1f MiB: use fewer slots or "
                        "smaller batches",
                        t->what, (double)bytes / 1048576.0);
    struct vfio_iommu_type1_dma_map map = {.argsz = sizeof map,
                                           .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
                                           .vaddr = (uintptr_t)addr,
                                           .iova = at,
                                           .size = bytes};
    if (ioctl(v->container, VFIO_IOMMU_MAP_DMA, &map) != 0)
        return map_failed(t, bytes);
    memmove(&v->map[slot + 1], &v->map[slot], (size_t)(v->nmaps - slot) * sizeof v->map[0]);
    v->map[slot] = (struct map){at, bytes};
    v->nmaps++;
    *iova = at;
    return PST_OK;
}

static pst_rc dma_unmap(struct pst_nvme_transport *t, uint64_t iova)
{
    struct vfio *v = t->impl;
    int i = 0;
    while (i < v->nmaps && v->map[i].iova != iova)
        i++;
    assert(i < v->nmaps);
    struct vfio_iommu_type1_dma_unmap unmap = {.argsz = sizeof unmap, .iova = iova, .size = v->map[i].bytes};
    if (ioctl(v->container, VFIO_IOMMU_UNMAP_DMA, &unmap) != 0)
        return pst_fail_errno("%s: cannot unmap memory", t->what);
    v->nmaps--;
    memmove(&v->map[i], &v->map[i + 1], (size_t)(v->nmaps - i) * sizeof v->map[0]);
    return PST_OK;
}

/* ---- the device ------------------------------------------------------------------------------------------
 */

static pst_rc open_group(struct vfio *v, const struct pst_pci *pci)
{
    char node[64];
    struct vfio_group_status status = {.argsz = sizeof status};
    (void)snprintf(node, sizeof node, "/dev/vfio/%d", pci->iommu_group);
    v->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
    if (v->container < 0)
        return pst_fail_errno("cannot open /dev/vfio/vfio");
    if (ioctl(v->container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
        ioctl(v->container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) <= 0)
        return pst_fail(PST_E_UNSUPPORTED,
                        "this kernel's VFIO has no type 1 IOMMU (try modprobe vfio_iommu_type1)");
    v->group = open(node, O_RDWR | O_CLOEXEC);
    if (v->group < 0 && errno == EBUSY)
        return pst_fail(PST_E_STATE, "another process is using this drive (`fuser -v %s` shows which)", node);
    if (v->group < 0)
        return pst_fail_errno("opening %s", node);
    if (ioctl(v->group, VFIO_GROUP_GET_STATUS, &status) != 0)
        return pst_fail_errno("cannot get the state of %s", node);
    if (!(status.flags & VFIO_GROUP_FLAGS_VIABLE))
        return pst_fail(PST_E_STATE,
                        "a kernel driver uses another device of IOMMU group %d: bind all devices of the "
                        "group to vfio-pci",
                        pci->iommu_group);
    if (ioctl(v->group, VFIO_GROUP_SET_CONTAINER, &v->container) != 0 ||
        ioctl(v->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0)
        return pst_fail_errno("cannot put %s behind the IOMMU", node);
    v->device = ioctl(v->group, VFIO_GROUP_GET_DEVICE_FD, pci->address);
    return v->device < 0 ? pst_fail_errno("cannot open the controller in %s", node) : read_ranges(v);
}

static pst_rc set_bus_master(const struct vfio *v, bool on)
{
    uint16_t command;
    const off_t at = (off_t)(v->config_at + PCI_COMMAND);
    if (pread(v->device, &command, sizeof command, at) != sizeof command)
        return pst_fail_errno("cannot read its PCI command register");
    command =
        (uint16_t)(on ? command | PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY : command & ~PCI_COMMAND_MASTER);
    if (pwrite(v->device, &command, sizeof command, at) != sizeof command)
        return pst_fail_errno("cannot write its PCI command register");
    return PST_OK;
}

static pst_rc open_regions(struct pst_nvme_transport *t, struct vfio *v)
{
    struct vfio_region_info config = {.argsz = sizeof config, .index = VFIO_PCI_CONFIG_REGION_INDEX};
    struct vfio_region_info bar = {.argsz = sizeof bar, .index = VFIO_PCI_BAR0_REGION_INDEX};
    if (ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, &config) != 0 ||
        ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, &bar) != 0)
        return pst_fail_errno("cannot get the size of its registers");
    v->config_at = config.offset;
    if (bar.size < PST_NVME_DOORBELLS + PST_PAGE || bar.size > SIZE_MAX / 2)
        return pst_fail(PST_E_UNSUPPORTED, "BAR 0 has %llu bytes; registers and doorbells need at least %u",
                        (unsigned long long)bar.size, PST_NVME_DOORBELLS + PST_PAGE);
    if (!(bar.flags & VFIO_REGION_INFO_FLAG_MMAP))
        return pst_fail(PST_E_UNSUPPORTED,
                        "VFIO does not allow the controller's registers (BAR 0) to be mapped");
    void *regs = mmap(NULL, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED, v->device, (off_t)bar.offset);
    if (regs == MAP_FAILED)
        return pst_fail_errno("cannot map its registers");
    t->regs = regs;
    t->regs_bytes = v->bar_bytes = bar.size;
    return set_bus_master(v, true);
}

/* The order matters: first no more DMA, then no more mappings, then the kernel resets the device when the
 * last file is closed. */
static void vfio_close(struct pst_nvme_transport *t)
{
    struct vfio *v = t->impl;
    if (v == NULL)
        return;
    if (t->regs != NULL) {
        (void)set_bus_master(v, false); /* a removed drive cannot be told, and does no DMA */
        (void)munmap((void *)(uintptr_t)t->regs, v->bar_bytes);
    }
    while (v->nmaps > 0 && dma_unmap(t, v->map[v->nmaps - 1].iova) == PST_OK)
        continue; /* what cannot be unmapped is released with the container */
    if (v->device >= 0)
        (void)close(v->device);
    if (v->group >= 0)
        (void)close(v->group);
    if (v->container >= 0)
        (void)close(v->container);
    free(v);
    *t = (struct pst_nvme_transport){.ops = NULL};
}

static const struct pst_nvme_transport_ops ops = {
    .name = "vfio", .dma_map = dma_map, .dma_unmap = dma_unmap, .close = vfio_close};

pst_rc pst_nvme_vfio_connect(struct pst_nvme_transport *t, const char *address)
{
    struct pst_pci pci;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    *t = (struct pst_nvme_transport){.ops = &ops};
    pst_rc rc = pst_pci_read(&pci, "", address);
    if (rc == PST_OK)
        rc = pst_obstacles_result(pci.address, found, pst_obstacles_to_open(&pci, "", found));
    if (rc != PST_OK)
        return rc;
    struct vfio *v = calloc(1, sizeof *v);
    if (v == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the VFIO state");
    v->container = v->group = v->device = -1;
    t->impl = v;
    (void)snprintf(t->what, sizeof t->what, "%s", pci.address);
    rc = open_group(v, &pci);
    if (rc == PST_OK)
        rc = open_regions(t, v);
    if (rc != PST_OK)
        vfio_close(t);
    return pst_wrap(rc, "%s", pci.address);
}

/* ---- GPU memory ------------------------------------------------------------------------------------- */

int pst_obstacles_to_gpu(const struct pst_pci *pci, const char *root,
                         struct pst_obstacle found[PST_OBSTACLES_MAX])
{
    char path[256];
    int n = pst_obstacles_to_open(pci, root, found);
    (void)snprintf(path, sizeof path, "%s/sys/module/nvidia", root);
    if (access(path, F_OK) != 0 && n < PST_OBSTACLES_MAX)
        found[n++] =
            (struct pst_obstacle){.why = "no GPU driver that exports its memory as a dma-buf is loaded",
                                  .mend = "install NVIDIA's open kernel modules, version 515 or later"};
    if (n < PST_OBSTACLES_MAX)
        found[n++] = (struct pst_obstacle){
            .why = "VFIO's type 1 mapper maps only memory of this process, not a dma-buf, so the drive "
                   "cannot access GPU memory on this kernel",
            .mend = "place the disk stage on a cpu: device; the runtime then copies the rows to the GPU"};
    return n;
}

pst_rc pst_nvme_vfio_map_gpu(struct pst_nvme_transport *t, int dmabuf, uint64_t bytes, uint64_t *iova)
{
    struct pst_pci pci;
    struct pst_obstacle found[PST_OBSTACLES_MAX];
    (void)dmabuf;
    (void)bytes;
    *iova = 0;
    pst_rc rc = pst_pci_read(&pci, "", t->what);
    if (rc == PST_OK)
        rc = pst_obstacles_result(t->what, found, pst_obstacles_to_gpu(&pci, "", found));
    assert(rc != PST_OK);
    return PST_E_UNSUPPORTED;
}
