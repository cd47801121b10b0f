/* disks_drive.c: what the kernel cannot report: details of controllers that are bound to vfio-pci, asked by
 * our own driver; and which dataset's rows a namespace holds, which its first block says. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/driver/controller.h"
#include "common/nvme/driver/vfio.h"
#include "tools/penstock/machine/disks.h"

#define READ_MS_MAX 5000 /* a working flash drive is faster */

static void decode(struct disk_namespace *ns, const unsigned char block[PST_STRIPE_BLOCK])
{
    if (pst_stripe_decode(&ns->stripe, block, ns->name, &ns->ours) != PST_OK)
        ns->ours = false; /* damaged: `penstock store` reports that */
    for (char *at = ns->stripe.name; *at != '\0'; at++)
        *at = *at >= ' ' && *at <= '~' ? *at : '?'; /* the text goes to terminals and JSON */
}

void disks_read_signature(struct disk_namespace *ns)
{
    unsigned char block[PST_STRIPE_BLOCK];
    char path[PST_NAME_MAX + 8];
    (void)snprintf(path, sizeof path, "/dev/%s", ns->name);
    int fd = ns->name[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && pread(fd, block, sizeof block, 0) == sizeof block)
        decode(ns, block);
    if (fd >= 0)
        (void)close(fd);
}

/* Reads the first PST_STRIPE_BLOCK bytes, or one larger block, to dma. False: it cannot. */
static bool read_first(struct pst_nvme_controller *c, const struct pst_nvme_namespace *space,
                       const struct pst_nvme_dma *dma)
{
    struct pst_nvme_qp *qp = c->io[1];
    struct pst_nvme_sqe sqe;
    struct pst_nvme_cqe cqe;
    const uint32_t bytes = space->lba_bytes < PST_STRIPE_BLOCK ? PST_STRIPE_BLOCK : space->lba_bytes;
    if (bytes > dma->bytes || bytes > c->transfer_bytes || space->blocks < bytes / space->lba_bytes)
        return false;
    pst_nvme_rw(&sqe, PST_NVME_READ, space->nsid, 0, bytes / space->lba_bytes);
    if (!pst_nvme_prp(&sqe, dma->iova, bytes, c->page, qp->prp, qp->prp_iova, qp->prp_entries))
        return false;
    pst_nvme_post(qp, qp->posted++, &sqe);
    pst_nvme_ring_sq(qp);
    for (int ms = 0; !pst_nvme_poll(qp, qp->taken, &cqe); ms++) {
        if (ms == READ_MS_MAX)
            return false;
        (void)usleep(1000);
    }
    if (!pst_nvme_take(qp, qp->taken, cqe.cid))
        return false;
    pst_nvme_ring_cq(qp, 1);
    return PST_NVME_STATUS(cqe.status) == PST_NVME_OK;
}

static void add_namespaces(struct disk *d, struct pst_nvme_controller *c, const struct pst_nvme_dma *dma)
{
    struct pst_nvme_namespace space;
    bool readable = true; /* no further reads after one that did not end */
    for (uint32_t nsid = 1; nsid <= c->namespaces && nsid <= PST_PCI_NAMESPACES_MAX; nsid++) {
        if (pst_nvme_namespace(c, nsid, &space) != PST_OK)
            continue;
        struct disk_namespace *ns = &d->ns[d->nnamespaces++];
        *ns = (struct disk_namespace){.nsid = nsid,
                                      .blocks = space.blocks,
                                      .lba_bytes = (int)space.lba_bytes,
                                      .lba_format = DISK_UNKNOWN};
        readable = readable && read_first(c, &space, dma);
        if (readable)
            decode(ns, dma->base);
    }
}

void disks_ask_ourselves(struct disk *d)
{
    struct pst_nvme_transport t;
    struct pst_nvme_controller c;
    struct pst_nvme_dma dma = {.base = NULL};
    const struct pst_nvme_config config = {.queues = PST_NVME_QUEUES_MAX, .depth = PST_NVME_DEPTH_MIN};
    pst_rc rc = pst_nvme_vfio_connect(&t, d->pci.address);
    if (rc == PST_OK) {
        rc = pst_nvme_open(&c, &t, &config);
        if (rc == PST_OK) {
            (void)snprintf(d->model, sizeof d->model, "%s", c.model);
            (void)snprintf(d->serial, sizeof d->serial, "%s", c.serial);
            (void)snprintf(d->firmware, sizeof d->firmware, "%s", c.firmware);
            d->transfer_bytes_max = (int64_t)c.transfer_bytes;
            d->submission_queues = d->completion_queues = (int)c.queues;
            rc = pst_nvme_dma_new(&dma, &t, PST_STRIPE_BLOCK);
            if (rc == PST_OK)
                add_namespaces(d, &c, &dma);
            pst_nvme_close(&c);
            pst_nvme_dma_free(&dma); /* the controller is closed now */
        }
        t.ops->close(&t);
    }
    if (rc != PST_OK)
        (void)snprintf(d->unknown, sizeof d->unknown, "%s", pst_error_text());
}
