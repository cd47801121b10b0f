/* disks_find.c: finds controllers: libnvme asks those that the kernel drives, and sysfs knows the others. */
#include <ctype.h>
#include <errno.h>
#include <libnvme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "tools/penstock/machine/disks.h"

#define KELVIN 273 /* temperatures are in kelvin */

/* Copies text of Identify, which is padded with spaces. */
static void copy_text(char out[PST_NAME_MAX], const char *text)
{
    (void)snprintf(out, PST_NAME_MAX, "%s", text != NULL ? text : "");
    for (size_t n = strlen(out); n > 0 && isspace((unsigned char)out[n - 1]); n--)
        out[n - 1] = '\0';
}

static void not_told(struct disk *d, const char *what, int rc)
{
    char reason[64];
    if (rc > 0)
        (void)snprintf(reason, sizeof reason, "status 0x%x", (unsigned)rc);
    else
        (void)snprintf(reason, sizeof reason, "%s", strerror(errno));
    if (d->unknown[0] == '\0')
        (void)snprintf(d->unknown, sizeof d->unknown, "%s: /dev/%s: %s", what, d->name, reason);
}

static int64_t transfer_bytes_max(const struct disk *d)
{
    char path[256];
    long kib = -1;
    for (int i = 0; i < d->nnamespaces && kib < 0; i++) {
        (void)snprintf(path, sizeof path, "/sys/class/block/%s/queue/max_hw_sectors_kb", d->ns[i].name);
        FILE *file = fopen(path, "re");
        if (file != NULL && fscanf(file, "%ld", &kib) != 1)
            kib = -1;
        if (file != NULL)
            (void)fclose(file);
    }
    return kib < 0 ? DISK_UNKNOWN : (int64_t)kib * 1024;
}

/* Asks the controller for details. Without the right to open its device they stay unknown, and `unknown` says
 * why. */
static void ask(struct disk *d, nvme_ctrl_t c)
{
    struct nvme_id_ctrl id;
    struct nvme_smart_log smart;
    uint32_t queues;
    int rc = nvme_ctrl_identify(c, &id), fd = nvme_ctrl_get_fd(c);
    if (rc != 0) {
        not_told(d, "Identify", rc);
        return;
    }
    d->mdts = id.mdts;
    rc = nvme_get_features_num_queues(fd, NVME_GET_FEATURES_SEL_CURRENT, &queues);
    if (rc == 0) {
        d->submission_queues = (int)(queues & 0xffff) + 1;
        d->completion_queues = (int)(queues >> 16) + 1;
    } else {
        not_told(d, "number of queues", rc);
    }
    rc = nvme_get_log_smart(fd, NVME_NSID_ALL, true, &smart);
    if (rc == 0) {
        d->temperature_c = (smart.temperature[1] << 8 | smart.temperature[0]) - KELVIN;
        d->percentage_used = smart.percent_used;
    } else {
        not_told(d, "health", rc);
    }
}

static void add_namespace(struct disk *d, nvme_ns_t n)
{
    if (d->nnamespaces == PST_PCI_NAMESPACES_MAX)
        return;
    struct disk_namespace *ns = &d->ns[d->nnamespaces++];
    struct nvme_id_ns id;
    *ns = (struct disk_namespace){.nsid = (uint32_t)nvme_ns_get_nsid(n),
                                  .blocks = nvme_ns_get_lba_count(n),
                                  .lba_bytes = nvme_ns_get_lba_size(n),
                                  .metadata_bytes = nvme_ns_get_meta_size(n),
                                  .lba_format = DISK_UNKNOWN};
    copy_text(ns->name, nvme_ns_get_name(n));
    int rc = nvme_ns_identify(n, &id);
    if (rc == 0)
        ns->lba_format = (id.flbas & NVME_NS_FLBAS_LOWER_MASK) | (id.flbas & NVME_NS_FLBAS_HIGHER_MASK) >> 1;
    else
        not_told(d, "LBA format", rc);
    disks_read_signature(ns);
}

static int by_nsid(const void *a, const void *b)
{
    const struct disk_namespace *x = a, *y = b;
    return (x->nsid > y->nsid) - (x->nsid < y->nsid);
}

static struct disk *disk_of(struct disk *disks, int *n, nvme_ctrl_t c)
{
    const char *address = nvme_ctrl_get_address(c);
    for (int i = 0; i < *n && address != NULL; i++)
        if (disks[i].on_pci && strcmp(disks[i].pci.address, address) == 0)
            return &disks[i];
    return *n < DISKS_MAX ? &disks[(*n)++] : NULL;
}

static void add_controller(struct disk *disks, int *n, nvme_subsystem_t s, nvme_ctrl_t c)
{
    nvme_ns_t ns;
    struct disk *d = disk_of(disks, n, c);
    if (d == NULL)
        return;
    copy_text(d->name, nvme_ctrl_get_name(c));
    copy_text(d->transport, nvme_ctrl_get_transport(c));
    copy_text(d->model, nvme_ctrl_get_model(c));
    copy_text(d->serial, nvme_ctrl_get_serial(c));
    copy_text(d->firmware, nvme_ctrl_get_firmware(c));
    ask(d, c);
    /* for a drive with several controllers, libnvme lists the namespaces under their subsystem */
    nvme_ctrl_for_each_ns(c, ns) add_namespace(d, ns);
    if (d->nnamespaces == 0)
        nvme_subsystem_for_each_ns(s, ns) add_namespace(d, ns);
    qsort(d->ns, (size_t)d->nnamespaces, sizeof d->ns[0], by_nsid);
    d->transfer_bytes_max = transfer_bytes_max(d);
}

static void ask_libnvme(struct disk *disks, int *n)
{
    nvme_host_t host;
    nvme_subsystem_t subsystem;
    nvme_ctrl_t controller;
    nvme_root_t root = nvme_create_root(NULL, LOG_CRIT); /* errors show as missing details */
    if (root == NULL)
        return;
    /* fails if the kernel has no NVMe; then there are no drives */
    (void)nvme_scan_topology(root, NULL, NULL);
    nvme_for_each_host(root, host) nvme_for_each_subsystem(host, subsystem)
        nvme_subsystem_for_each_ctrl(subsystem, controller) add_controller(disks, n, subsystem, controller);
    nvme_free_tree(root);
}

int disks_find(struct disk disks[DISKS_MAX])
{
    char address[PST_PCI_NVME_MAX][PST_PCI_ADDRESS_BYTES];
    int n = 0, found = pst_pci_nvme("", address);
    for (int i = 0; i < DISKS_MAX; i++)
        disks[i] = (struct disk){.mdts = DISK_UNKNOWN,
                                 .transfer_bytes_max = DISK_UNKNOWN,
                                 .submission_queues = DISK_UNKNOWN,
                                 .completion_queues = DISK_UNKNOWN,
                                 .temperature_c = DISK_NO_TEMPERATURE,
                                 .percentage_used = DISK_UNKNOWN};
    for (int i = 0; i < found; i++) {
        if (pst_pci_read(&disks[n].pci, "", address[i]) != PST_OK)
            continue; /* removed since it was listed */
        disks[n].on_pci = true;
        (void)snprintf(disks[n].transport, PST_NAME_MAX, "pcie");
        n++;
    }
    ask_libnvme(disks, &n);
    for (int i = 0; i < n; i++) {
        if (!disks[i].on_pci)
            continue;
        disks[i].nobstacles = pst_obstacles_to_open(&disks[i].pci, "", disks[i].obstacle);
        if (disks[i].nobstacles == 0)
            disks_ask_ourselves(&disks[i]);
    }
    return n;
}
