/* queue.h: one NVMe queue pair, driven from the host or from a device. Posting, ringing and polling are
 * separate; the lanes of a CUDA kernel, or threads, share a pair without atomics, because each works on
 * numbers of its own:
 *
 *   submission k (k = 0, 1, ... over the pair's life) is written to entry k mod depth and takes its command
 * id from ids[k mod depth]; completion k is read from entry k mod depth and puts its id back into ids[k mod
 * depth]. So id k is there when k - depth completions have been taken, which is when there is room for it.
 *
 *   Who submits reserves n <= pst_nvme_room submissions from `posted` on; lanes post them in any order, each
 * its own; after a barrier (a kernel's end, pthread_barrier) one lane rings. Who completes polls completions
 * from `taken` on, each lane its own; pst_nvme_take each that has come; completions come without gaps, so
 * after a barrier one lane rings with how many. Submission and completion may run at the same time on two
 * threads.
 *
 * An id is its place in `live` plus depth times a generation, so that an id that comes late or twice is
 * known. Owner: the controller (controller.h) makes pairs; the memory is its transport's. */
#ifndef PST_QUEUE_H
#define PST_QUEUE_H

#include "common/nvme/spec.h"

#include <string.h>

#define PST_NVME_DEPTH_MIN 2
#define PST_NVME_DEPTH_MAX 32768 /* a power of two that leaves an id at least two generations */
#define PST_NVME_NOT_LIVE 0xffffffffu

/* The accesses that the other side sees. A model check puts itself in their place (tests/unit). */
#ifndef PST_NVME_LOAD_ACQUIRE
#ifdef __CUDA_ARCH__
static PST_HD uint32_t pst_nvme_load_acquire(const volatile uint32_t *from)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
static PST_HD void pst_nvme_store_release(volatile uint32_t *to, uint32_t value)
{
    __threadfence_system();
    *to = value;
}
#else
static PST_HD uint32_t pst_nvme_load_acquire(const volatile uint32_t *from)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
static PST_HD void pst_nvme_store_release(volatile uint32_t *to, uint32_t value)
{
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
#endif
#define PST_NVME_LOAD_ACQUIRE(from) pst_nvme_load_acquire(from)
#define PST_NVME_STORE_RELEASE(to, value) pst_nvme_store_release(to, value)
#define PST_NVME_STORE_SQE(to, sqe) (*(to) = *(sqe))
#define PST_NVME_LOAD_CQE(from) (*(from))
#endif

struct pst_nvme_qp {
    struct pst_nvme_sqe *sq;
    struct pst_nvme_cqe *cq;
    volatile uint32_t *sq_doorbell, *cq_doorbell;
    uint16_t *ids;  /* depth: where submissions take their ids and completions put them back */
    uint32_t *live; /* depth: the id in flight at its place, or PST_NVME_NOT_LIVE */
    uint64_t *prp;  /* depth lists of prp_entries, one a place; NULL: none */
    uint64_t prp_iova;
    uint32_t prp_entries; /* a multiple of a page's */
    uint32_t depth;       /* a power of two, of both queues */
    uint16_t qid;
    /* submission's own */
    uint64_t posted;   /* submissions reserved so far */
    uint64_t sq_rings; /* doorbells */
    /* completion's own */
    uint64_t taken;
    uint64_t cq_rings;
};

/* Everything as after a reset. The other fields are set; sq and cq are zeroed by the caller. */
static PST_HD void pst_nvme_qp_reset(struct pst_nvme_qp *qp)
{
    for (uint32_t i = 0; i < qp->depth; i++) {
        qp->ids[i] = (uint16_t)i;
        qp->live[i] = PST_NVME_NOT_LIVE;
    }
    qp->posted = qp->taken = 0;
}

/* How many submissions may be reserved: a queue holds depth - 1. */
static PST_HD uint32_t pst_nvme_room(const struct pst_nvme_qp *qp)
{
    return qp->depth - 1 - (uint32_t)(qp->posted - qp->taken);
}

static PST_HD uint32_t pst_nvme_place(const struct pst_nvme_qp *qp, uint16_t cid)
{
    return cid & (qp->depth - 1);
}

/* The id that submission k will have: what a completion is matched by. */
static PST_HD uint16_t pst_nvme_cid(const struct pst_nvme_qp *qp, uint64_t k)
{
    return qp->ids[k & (qp->depth - 1)];
}

/* Writes submission k; nothing is told to the controller. */
static PST_HD void pst_nvme_post(struct pst_nvme_qp *qp, uint64_t k, struct pst_nvme_sqe *sqe)
{
    sqe->cid = pst_nvme_cid(qp, k);
    qp->live[pst_nvme_place(qp, sqe->cid)] = sqe->cid;
    PST_NVME_STORE_SQE(&qp->sq[k & (qp->depth - 1)], sqe);
}

/* One doorbell: submissions up to qp->posted are the controller's. */
static PST_HD void pst_nvme_ring_sq(struct pst_nvme_qp *qp)
{
    PST_NVME_STORE_RELEASE(qp->sq_doorbell, (uint32_t)(qp->posted & (qp->depth - 1)));
    qp->sq_rings++;
}

/* Whether completion k has come. The phase bit is read first, the rest after it. */
static PST_HD bool pst_nvme_poll(const struct pst_nvme_qp *qp, uint64_t k, struct pst_nvme_cqe *cqe)
{
    const struct pst_nvme_cqe *at = &qp->cq[k & (qp->depth - 1)];
    const uint32_t last = PST_NVME_LOAD_ACQUIRE((const volatile uint32_t *)at + 3);
    const uint32_t phase = (k & qp->depth) == 0;
    if ((last >> 16 & 1) != phase)
        return false;
    *cqe = PST_NVME_LOAD_CQE(at);
    return true;
}

/* Takes the id of completion k back. False: no command of that id is in flight, so the controller is not to
 * be trusted and must be reset. */
static PST_HD bool pst_nvme_take(struct pst_nvme_qp *qp, uint64_t k, uint16_t cid)
{
    uint32_t *live = &qp->live[pst_nvme_place(qp, cid)];
    if (*live != cid)
        return false;
    *live = PST_NVME_NOT_LIVE;
    qp->ids[k & (qp->depth - 1)] = (uint16_t)(cid + qp->depth);
    return true;
}

/* One doorbell: the next n completions have been taken, and their entries may be written again. */
static PST_HD void pst_nvme_ring_cq(struct pst_nvme_qp *qp, uint64_t n)
{
    qp->taken += n;
    PST_NVME_STORE_RELEASE(qp->cq_doorbell, (uint32_t)(qp->taken & (qp->depth - 1)));
    qp->cq_rings++;
}

/* ---- commands ------------------------------------------------------------------------------------ */

/* Entries of the list that a transfer of so many bytes from iova needs beside PRP1; links between pages of a
 * long list not counted. */
static PST_HD uint64_t pst_nvme_prp_count(uint64_t iova, uint64_t bytes, uint32_t page)
{
    const uint64_t first = page - iova % page;
    return bytes <= first ? 0 : (bytes - first + page - 1) / page;
}

/* Sets PRP1 and PRP2 for bytes at iova, which are contiguous for the device. list, of list_iova and
 * page-aligned, is written if more than two pages are touched; where it fills a page, that page's last entry
 * links to the next. Section 4.1.1. False: more than list_entries would be needed. */
static PST_HD bool pst_nvme_prp(struct pst_nvme_sqe *sqe, uint64_t iova, uint64_t bytes, uint32_t page,
                                uint64_t *list, uint64_t list_iova, uint32_t list_entries)
{
    uint64_t count = pst_nvme_prp_count(iova, bytes, page);
    uint64_t at = iova - iova % page + page;
    sqe->prp1 = iova;
    sqe->prp2 = count == 1 ? at : count > 1 ? list_iova : 0;
    if (count <= 1)
        return true;
    const uint32_t per_page = page / (uint32_t)sizeof *list;
    for (uint32_t i = 0; count > 0; i++) {
        if (i == list_entries)
            return false;
        if (i % per_page == per_page - 1 && count > 1) {
            list[i] = list_iova + (uint64_t)(i + 1) * sizeof *list;
            continue;
        }
        list[i] = at;
        at += page;
        count--;
    }
    return true;
}

/* Read or write of blocks (1 to PST_NVME_LBAS_MAX) from lba on. */
static PST_HD void pst_nvme_rw(struct pst_nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t lba,
                               uint32_t blocks)
{
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = opcode;
    sqe->nsid = nsid;
    sqe->cdw10 = (uint32_t)lba;
    sqe->cdw11 = (uint32_t)(lba >> 32);
    sqe->cdw12 = blocks - 1;
}

#endif
