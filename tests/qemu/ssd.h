/* ssd.h: a QEMU controller with memory, for the guest's programs, and one command at a time. A program ends
 * with a TAP line at its first error. Included once by each program. */
#ifndef SSD_H
#define SSD_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/driver/controller.h"
#include "common/nvme/driver/vfio.h"

#define DEADLINE_MS 60000 /* longest wait for anything here */
#define MIB (1u << 20)
#define CANARY 0xee

static uint64_t seed = 0x9e3779b97f4a7c15u;
static inline uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static inline void need(bool ok, const char *what)
{
    if (ok)
        return;
    printf("not ok - %s\n# %s\n", what, pst_error_text());
    exit(1);
}
#define NEED(call) need((call) == PST_OK, #call)

struct ssd {
    struct pst_nvme_transport t;
    struct pst_nvme_controller c;
    struct pst_nvme_namespace ns;
    struct pst_nvme_dma memory;
};

static inline void start(struct ssd *ssd, const char *address, uint32_t queues, uint32_t depth,
                         uint64_t memory)
{
    const struct pst_nvme_config config = {.queues = queues, .depth = depth};
    NEED(pst_nvme_vfio_connect(&ssd->t, address));
    NEED(pst_nvme_open(&ssd->c, &ssd->t, &config));
    NEED(pst_nvme_namespace(&ssd->c, 1, &ssd->ns));
    NEED(pst_nvme_dma_new(&ssd->memory, &ssd->t, memory));
}

static inline void finish(struct ssd *ssd)
{
    struct pst_nvme_transport *t = &ssd->t;
    const pst_rc rc = t->ops->dma_unmap(t, ssd->memory.iova);
    need(rc == PST_OK, "unmapping");
    ssd->memory.t = NULL;
    pst_nvme_dma_free(&ssd->memory);
    pst_nvme_close(&ssd->c);
    t->ops->close(t);
}

/* Posts one command on queue `qid`, for byte `at` of the SSD's memory. */
static inline uint16_t post(struct ssd *ssd, uint16_t qid, uint8_t opcode, uint64_t lba, uint32_t blocks,
                            uint64_t at)
{
    struct pst_nvme_qp *qp = ssd->c.io[qid];
    struct pst_nvme_sqe sqe;
    const uint32_t place = pst_nvme_place(qp, pst_nvme_cid(qp, qp->posted));
    const uint64_t list = (uint64_t)place * qp->prp_entries;
    pst_nvme_rw(&sqe, opcode, ssd->ns.nsid, lba, blocks);
    need(pst_nvme_room(qp) > 0, "room in the queue");
    need(pst_nvme_prp(&sqe, ssd->memory.iova + at, (uint64_t)blocks * ssd->ns.lba_bytes, ssd->c.page,
                      qp->prp + list, qp->prp_iova + list * sizeof *qp->prp, qp->prp_entries),
         "a PRP list long enough");
    pst_nvme_post(qp, qp->posted++, &sqe);
    return sqe.cid;
}

/* Takes the next completion of the queue. Returns its status. */
static inline uint16_t next(struct ssd *ssd, uint16_t qid, uint16_t *cid)
{
    struct pst_nvme_qp *qp = ssd->c.io[qid];
    struct pst_nvme_cqe cqe;
    for (int ms = 0; !pst_nvme_poll(qp, qp->taken, &cqe); ms++) {
        need(ms < DEADLINE_MS * 10, "a completion in time");
        (void)usleep(100);
    }
    need(pst_nvme_take(qp, qp->taken, cqe.cid), "a completion of a command that is in flight");
    pst_nvme_ring_cq(qp, 1);
    if (cid != NULL)
        *cid = cqe.cid;
    return PST_NVME_STATUS(cqe.status);
}

static inline uint16_t one(struct ssd *ssd, uint8_t opcode, uint64_t lba, uint32_t blocks, uint64_t at)
{
    (void)post(ssd, 1, opcode, lba, blocks, at);
    pst_nvme_ring_sq(ssd->c.io[1]);
    return next(ssd, 1, NULL);
}

static inline void *at(struct ssd *ssd, uint64_t offset)
{
    return (char *)ssd->memory.base + offset;
}

#endif
