/* pair.c: the memory of queue pairs, and the commands that create and delete them. */
#include <stdlib.h>
#include <string.h>

#include "common/nvme/driver/controller_impl.h"
#include "common/error.h"

#define QUEUE_CONTIGUOUS 1u /* PC in create commands; interrupts stay off, because we poll */

static uint64_t page_up(uint64_t bytes)
{
    return pst_align_up(bytes, PST_PAGE);
}

/* Entries of one command's PRP list, in whole pages. Data that begin within a page touch one page more than
 * they fill. */
static uint32_t list_entries(const struct pst_nvme_controller *c)
{
    const uint64_t count = c->transfer_bytes / c->page, per_page = c->page / sizeof(uint64_t);
    if (count <= 1)
        return 0; /* PRP1 and PRP2 are enough */
    /* the last entry of each page but the last is a link */
    const uint64_t pages = count <= per_page ? 1 : (count - 2) / (per_page - 1) + 1;
    return (uint32_t)(pages * per_page);
}

static pst_rc make_memory(struct pst_nvme_controller *c, struct pst_nvme_pair *pair)
{
    struct pst_nvme_qp *qp = &pair->qp;
    const uint64_t sq = page_up((uint64_t)qp->depth * sizeof *qp->sq);
    const uint64_t cq = page_up((uint64_t)qp->depth * sizeof *qp->cq);
    const uint64_t lists = (uint64_t)qp->depth * qp->prp_entries * sizeof *qp->prp;
    const uint64_t ids = page_up((uint64_t)qp->depth * sizeof *qp->ids);
    pst_rc rc = pst_nvme_dma_new(&pair->device, c->t, sq + cq + lists);
    if (rc == PST_OK)
        rc = pst_nvme_dma_new(&pair->host, NULL, ids + (uint64_t)qp->depth * sizeof *qp->live);
    if (rc != PST_OK)
        return rc;
    char *device = pair->device.base, *host = pair->host.base;
    qp->sq = (void *)device;
    qp->cq = (void *)(device + sq);
    qp->prp = lists > 0 ? (void *)(device + sq + cq) : NULL;
    qp->prp_iova = pair->device.iova + sq + cq;
    qp->ids = (void *)host;
    qp->live = (void *)(host + ids);
    return PST_OK;
}

pst_rc pst_nvme_pair_new(struct pst_nvme_controller *c, uint16_t qid, uint32_t depth,
                         struct pst_nvme_qp **out)
{
    struct pst_nvme_pair *pair = calloc(1, sizeof *pair);
    *out = NULL;
    if (pair == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate a queue pair", c->t->what);
    struct pst_nvme_qp *qp = &pair->qp;
    volatile char *doorbells = (volatile char *)c->t->regs + PST_NVME_DOORBELLS;
    const size_t stride = c->doorbell_stride;
    qp->depth = depth;
    qp->qid = qid;
    qp->prp_entries = qid == PST_NVME_ADMIN_QID ? 0 : list_entries(c);
    qp->sq_doorbell = (volatile uint32_t *)(volatile void *)(doorbells + stride * (2 * (size_t)qid));
    qp->cq_doorbell = (volatile uint32_t *)(volatile void *)(doorbells + stride * (2 * (size_t)qid + 1));
    pst_rc rc = make_memory(c, pair);
    if (rc != PST_OK) {
        pst_nvme_pair_free(qp);
        (void)pst_wrap(rc, "%s: cannot create queue pair %u of depth %u", c->t->what, qid, depth);
        return rc;
    }
    pst_nvme_pair_clear(qp);
    *out = qp;
    return PST_OK;
}

void pst_nvme_pair_free(struct pst_nvme_qp *qp)
{
    struct pst_nvme_pair *pair = (struct pst_nvme_pair *)qp;
    if (pair == NULL)
        return;
    pst_nvme_dma_free(&pair->device);
    pst_nvme_dma_free(&pair->host);
    free(pair);
}

void pst_nvme_pair_clear(struct pst_nvme_qp *qp)
{
    memset(qp->sq, 0, (size_t)qp->depth * sizeof *qp->sq);
    memset(qp->cq, 0, (size_t)qp->depth * sizeof *qp->cq);
    pst_nvme_qp_reset(qp);
}

uint64_t pst_nvme_sq_iova(const struct pst_nvme_qp *qp)
{
    return ((const struct pst_nvme_pair *)qp)->device.iova;
}

uint64_t pst_nvme_cq_iova(const struct pst_nvme_qp *qp)
{
    return pst_nvme_sq_iova(qp) + (uint64_t)((const char *)qp->cq - (const char *)qp->sq);
}

/* Creates the completion queue first (sections 5.5 and 5.6). */
pst_rc pst_nvme_pair_create(struct pst_nvme_controller *c, struct pst_nvme_qp *qp)
{
    const uint32_t size = (uint32_t)qp->qid | (qp->depth - 1) << 16;
    struct pst_nvme_sqe cq = {
        .opcode = PST_NVME_CREATE_CQ, .prp1 = pst_nvme_cq_iova(qp), .cdw10 = size, .cdw11 = QUEUE_CONTIGUOUS};
    struct pst_nvme_sqe sq = {.opcode = PST_NVME_CREATE_SQ,
                              .prp1 = pst_nvme_sq_iova(qp),
                              .cdw10 = size,
                              .cdw11 = QUEUE_CONTIGUOUS | (uint32_t)qp->qid << 16};
    struct pst_nvme_sqe undo = {.opcode = PST_NVME_DELETE_CQ, .cdw10 = qp->qid};
    pst_rc rc = pst_nvme_admin(c, &cq, NULL, 0, false, NULL);
    if (rc != PST_OK)
        return rc;
    rc = pst_nvme_admin(c, &sq, NULL, 0, false, NULL);
    if (rc != PST_OK) {
        char why[512];
        (void)strncpy(why, pst_error_text(), sizeof why - 1);
        why[sizeof why - 1] = '\0';
        (void)!pst_nvme_admin(c, &undo, NULL, 0, false, NULL);
        return pst_fail(rc, "%s", why);
    }
    return PST_OK;
}

pst_rc pst_nvme_queue_new(struct pst_nvme_controller *c, uint16_t qid, uint32_t depth,
                          struct pst_nvme_qp **qp)
{
    *qp = NULL;
    if (qid < 1 || qid > pst_nvme_impl(c)->qids || c->io[qid] != NULL)
        return pst_fail(PST_E_ARG, "%s: expected a queue id from 1 to %u that is not in use, found %u",
                        c->t->what, pst_nvme_impl(c)->qids, qid);
    if (depth < PST_NVME_DEPTH_MIN || depth > PST_NVME_DEPTH_MAX || depth > c->entries_max ||
        (depth & (depth - 1)) != 0)
        return pst_fail(PST_E_ARG, "%s: queue depth: expected a power of two from %d to %u, found %u",
                        c->t->what, PST_NVME_DEPTH_MIN, c->entries_max, depth);
    pst_rc rc = pst_nvme_pair_new(c, qid, depth, qp);
    if (rc == PST_OK)
        rc = pst_nvme_pair_create(c, *qp);
    if (rc != PST_OK) {
        pst_nvme_pair_free(*qp);
        *qp = NULL;
        return rc;
    }
    c->io[qid] = *qp;
    return PST_OK;
}

void pst_nvme_queue_memory(const struct pst_nvme_qp *qp, void **at, uint64_t *bytes)
{
    const struct pst_nvme_pair *pair = (const struct pst_nvme_pair *)qp;
    *at = pair->device.base;
    *bytes = pair->device.bytes;
}

/* Deletes the submission queue first; then none of its commands is in flight (sections 5.7 and 5.8). */
pst_rc pst_nvme_queue_delete(struct pst_nvme_controller *c, uint16_t qid)
{
    if (qid < 1 || qid > PST_NVME_QUEUES_MAX || c->io[qid] == NULL)
        return pst_fail(PST_E_ARG, "%s has no queue with id %u", c->t->what, qid);
    struct pst_nvme_sqe sq = {.opcode = PST_NVME_DELETE_SQ, .cdw10 = qid};
    struct pst_nvme_sqe cq = {.opcode = PST_NVME_DELETE_CQ, .cdw10 = qid};
    pst_rc rc = pst_nvme_admin(c, &sq, NULL, 0, false, NULL);
    if (rc == PST_OK)
        rc = pst_nvme_admin(c, &cq, NULL, 0, false, NULL);
    if (rc != PST_OK)
        return rc;
    pst_nvme_pair_free(c->io[qid]);
    c->io[qid] = NULL;
    return PST_OK;
}
