/* disks_show.c: prints what `penstock disks` found. File backends need a drive that the kernel drives;
 * backend nvme needs one that it does not. */
#include <inttypes.h>
#include <jansson.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "stages/lib/io/backend.h"
#include "tools/penstock/machine/disks.h"

/* The backends for real drives. */
enum { FILE_BACKEND, PREAD_BACKEND, MMAP_BACKEND, NVME_BACKEND, BACKENDS };
static const struct pst_io_backend_ops *const backend_of[BACKENDS] = {&pst_io_uring_ops, &pst_io_pread_ops,
                                                                      &pst_io_mmap_ops, &pst_io_nvme_ops};

/* Finds why a backend cannot use the drive now. Returns the number of obstacles. */
static int obstacles(const struct disk *d, int backend, struct pst_obstacle out[PST_OBSTACLES_MAX])
{
    if (backend == NVME_BACKEND && d->on_pci) {
        memcpy(out, d->obstacle, sizeof d->obstacle);
        return d->nobstacles;
    }
    if (backend == NVME_BACKEND) {
        out[0] = (struct pst_obstacle){.why = "the controller is not on this machine's PCI bus",
                                       .mend = "use backend file, on a file system or block device of it"};
        return 1;
    }
    int blocks = 0;
    for (int i = 0; i < d->nnamespaces; i++)
        blocks += d->ns[i].name[0] != '\0';
    if (blocks == 0) {
        (void)snprintf(out[0].why, sizeof out[0].why, "the kernel has no block device for it (driver: %s)",
                       d->pci.driver[0] != '\0' ? d->pci.driver : "none");
        (void)snprintf(out[0].mend, sizeof out[0].mend, "penstock disks --release %s", d->pci.address);
        return 1;
    }
    struct io_uring ring;
    int rc = backend == FILE_BACKEND ? io_uring_queue_init(1, &ring, 0) : -1;
    if (rc == 0)
        io_uring_queue_exit(&ring);
    if (backend != FILE_BACKEND || rc == 0)
        return 0;
    (void)snprintf(out[0].why, sizeof out[0].why, "io_uring cannot be used here: %s", strerror(-rc));
    (void)snprintf(out[0].mend, sizeof out[0].mend,
                   "sysctl kernel.io_uring_disabled=0, or allow io_uring in the container");
    return 1;
}

/* ---- for people ------------------------------------------------------------------------------------- */

static void print_place(const struct disk *d)
{
    if (!d->on_pci)
        return;
    (void)printf("  driver %s, ", d->pci.driver[0] != '\0' ? d->pci.driver : "none");
    if (d->pci.iommu_group >= 0)
        (void)printf("IOMMU group %d", d->pci.iommu_group);
    else
        (void)printf("no IOMMU");
    if (d->pci.link_speed[0] != '\0')
        (void)printf(", link %s x%d of %s x%d", d->pci.link_speed, d->pci.link_width, d->pci.link_speed_max,
                     d->pci.link_width_max);
    if (d->pci.numa_node >= 0)
        (void)printf(", NUMA node %d", d->pci.numa_node);
    (void)printf("\n");
}

static void print_limits(const struct disk *d)
{
    char text[32];
    const char *comma = "  ";
    if (d->transfer_bytes_max >= 0) {
        (void)printf("%stransfers up to %s", comma, pst_bytes_text((double)d->transfer_bytes_max, text));
        comma = ", ";
    }
    if (d->mdts >= 0) {
        (void)printf("%sMDTS %d", comma, d->mdts);
        comma = ", ";
    }
    if (d->submission_queues >= 0) {
        (void)printf("%s%d submission and %d completion queues", comma, d->submission_queues,
                     d->completion_queues);
        comma = ", ";
    }
    if (d->temperature_c != DISK_NO_TEMPERATURE) {
        (void)printf("%s%d C, %d %% worn", comma, d->temperature_c, d->percentage_used);
        comma = ", ";
    }
    if (comma[0] == ',')
        (void)printf("\n");
    if (d->unknown[0] != '\0')
        (void)printf("  some details are missing (%s)\n", d->unknown);
}

static void print_backends(const struct disk *d)
{
    (void)printf("  usable by backend");
    for (int k = 0; k < BACKENDS; k++) {
        struct pst_obstacle why[PST_OBSTACLES_MAX];
        if (obstacles(d, k, why) == 0)
            (void)printf(" %s", backend_of[k]->name);
    }
    (void)printf("\n");
    for (int k = 0; k < BACKENDS; k++) {
        struct pst_obstacle why[PST_OBSTACLES_MAX];
        int n = obstacles(d, k, why);
        for (int i = 0; i < n; i++)
            (void)printf("  not usable by %s: %s\n    to fix it: %s\n", backend_of[k]->name, why[i].why,
                         why[i].mend);
    }
}

static void print_namespace(const struct disk_namespace *ns)
{
    char bytes[32];
    (void)printf("  namespace %" PRIu32 "%s%s: %s, %" PRIu64 " blocks of %d bytes", ns->nsid,
                 ns->name[0] != '\0' ? " " : "", ns->name,
                 pst_bytes_text((double)ns->blocks * ns->lba_bytes, bytes), ns->blocks, ns->lba_bytes);
    if (ns->metadata_bytes > 0)
        (void)printf(" and %d of metadata", ns->metadata_bytes);
    if (ns->lba_format >= 0)
        (void)printf(", LBA format %d", ns->lba_format);
    (void)printf("\n");
    if (ns->ours)
        (void)printf("    holds stripe %" PRIu32 " of %" PRIu32 " of %s, digest %s%s\n", ns->stripe.stripe,
                     ns->stripe.stripes, ns->stripe.name, ns->stripe.digest,
                     ns->stripe.unit > 0 ? ", with its topology" : "");
}

void disks_print(const struct disk *disks, int n)
{
    if (n == 0)
        (void)printf("none: this machine shows no NVMe controller\n");
    for (int i = 0; i < n; i++) {
        const struct disk *d = &disks[i];
        (void)printf("%s%s%s", d->on_pci ? d->pci.address : "", d->on_pci && d->name[0] != '\0' ? " " : "",
                     d->name);
        if (d->model[0] != '\0')
            (void)printf("  %s, firmware %s, serial %s", d->model, d->firmware, d->serial);
        else
            (void)printf("  vendor %04x, device %04x", d->pci.vendor, d->pci.device);
        (void)printf("\n");
        print_place(d);
        print_limits(d);
        for (int k = 0; k < d->nnamespaces; k++)
            print_namespace(&d->ns[k]);
        print_backends(d);
    }
}

/* ---- for programs ----------------------------------------------------------------------------------- */

static json_t *known(int64_t value, int64_t unknown)
{
    return value == unknown ? json_null() : json_integer(value);
}

static json_t *namespace_json(const struct disk_namespace *ns)
{
    json_t *stripe = ns->ours ? json_pack("{s:s, s:s, s:i, s:i, s:b}", "dataset", ns->stripe.name, "digest",
                                          ns->stripe.digest, "stripe", (int)ns->stripe.stripe, "stripes",
                                          (int)ns->stripe.stripes, "topology", ns->stripe.unit > 0)
                              : json_null();
    return json_pack("{s:i, s:s, s:I, s:I, s:i, s:i, s:o, s:o}", "nsid", (int)ns->nsid, "name", ns->name,
                     "bytes", (json_int_t)ns->blocks * ns->lba_bytes, "blocks", (json_int_t)ns->blocks,
                     "lba_bytes", ns->lba_bytes, "metadata_bytes", ns->metadata_bytes, "lba_format",
                     known(ns->lba_format, DISK_UNKNOWN), "stripe", stripe);
}

static json_t *backends_json(const struct disk *d)
{
    json_t *all = json_object();
    for (int k = 0; k < BACKENDS; k++) {
        struct pst_obstacle why[PST_OBSTACLES_MAX];
        int n = obstacles(d, k, why);
        json_t *list = json_array();
        for (int i = 0; i < n; i++)
            (void)json_array_append_new(list,
                                        json_pack("{s:s, s:s}", "why", why[i].why, "mend", why[i].mend));
        (void)json_object_set_new(all, backend_of[k]->name,
                                  json_pack("{s:b, s:o}", "usable", n == 0, "obstacles", list));
    }
    return all;
}

static json_t *pci_json(const struct pst_pci *p)
{
    json_t *others = json_array();
    for (int i = 0; i < p->others; i++)
        (void)json_array_append_new(others, json_string(p->other[i]));
    return json_pack("{s:s, s:i, s:i, s:s, s:o, s:o, s:s, s:i, s:s, s:i, s:o}", "address", p->address,
                     "vendor", (int)p->vendor, "device", (int)p->device, "driver", p->driver, "iommu_group",
                     known(p->iommu_group, -1), "group_others", others, "link_speed", p->link_speed,
                     "link_width", p->link_width, "link_speed_max", p->link_speed_max, "link_width_max",
                     p->link_width_max, "numa_node", known(p->numa_node, -1));
}

static json_t *disk_json(const struct disk *d)
{
    json_t *spaces = json_array();
    for (int i = 0; i < d->nnamespaces; i++)
        (void)json_array_append_new(spaces, namespace_json(&d->ns[i]));
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "name",
                     d->name, "transport", d->transport, "pci", d->on_pci ? pci_json(&d->pci) : json_null(),
                     "model", d->model, "serial", d->serial, "firmware", d->firmware, "mdts",
                     known(d->mdts, DISK_UNKNOWN), "transfer_bytes_max",
                     known(d->transfer_bytes_max, DISK_UNKNOWN), "submission_queues",
                     known(d->submission_queues, DISK_UNKNOWN), "completion_queues",
                     known(d->completion_queues, DISK_UNKNOWN), "temperature_c",
                     known(d->temperature_c, DISK_NO_TEMPERATURE), "percentage_used",
                     known(d->percentage_used, DISK_UNKNOWN), "unknown", d->unknown, "namespaces", spaces,
                     "backends", backends_json(d));
}

pst_rc disks_print_json(const struct disk *disks, int n)
{
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        /* NULL is refused; the count below notices that */
        (void)json_array_append_new(all, disk_json(&disks[i]));
    pst_rc rc =
        all != NULL && json_array_size(all) == (size_t)n
            ? PST_OK
            : pst_fail(
                  PST_E_FORMAT,
                  "cannot write JSON: a drive's model, serial number or firmware version is not valid UTF-8");
    if (rc == PST_OK && (json_dumpf(all, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF))
        rc = pst_fail_errno("cannot write the list");
    json_decref(all);
    return rc;
}
