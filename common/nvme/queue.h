/* queue.h: one NVMe queue pair, driven from the host or from a GPU.
 *
 * Posting, ringing and polling are separate functions. Several threads, or the lanes of a kernel, share a
 * pair without atomics, because each works on other entries:
 *
 *   - Submission k (k counts from 0 over the pair's life) goes to entry k mod depth. Its command id is ids[k
 * mod depth].
 *   - Completion k comes from entry k mod depth. It puts its id back into ids[k mod depth]. So the id for
 * submission k is there when k - depth completions were taken, which is also when there is room for the
 * submission.
 *
 * To submit, a thread reserves n <= pst_nvme_room submissions from `posted` on. Lanes post them in any order.
 * After a barrier (the end of a kernel, or pthread_barrier), one lane rings. To complete, lanes poll
 * completions from `taken` on, each lane its own, and call pst_nvme_take for each that has come. Completions
 * come without gaps. After a barrier, one lane rings and says how many were taken. One thread may submit
 * while another completes.
 *
 * An id is its place in `live` plus depth times a generation. So an id that comes late, or twice, is noticed.
 *
 * Owner: the controller (controller.h) makes pairs; their memory belongs to its transport. */
#ifndef PST_QUEUE_H
#define PST_QUEUE_H

#include "common/nvme/spec.h"

#include <string.h>

#define PST_NVME_DEPTH_MIN 2
#define PST_NVME_DEPTH_MAX 32768 /* a power of two; it leaves two generations for each id */
#define PST_NVME_NOT_LIVE 0xffffffffu

/* The accesses that the controller sees. A model checker (tests/nvme/test_nvme_model.c) replaces them. */
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
#ifdef __CUDACC__
/* Four stores of 16 bytes, as each store of a lane may cross the bus by itself. */
static PST_HD void pst_nvme_store_sqe(struct pst_nvme_sqe *to, const struct pst_nvme_sqe *sqe)
{
    uint4 part[sizeof *sqe / sizeof(uint4)];
    memcpy(part, sqe, sizeof part);
    for (unsigned i = 0; i < sizeof part / sizeof *part; i++)
        ((uint4 *)(void *)to)[i] = part[i];
}
#define PST_NVME_STORE_SQE(to, sqe) pst_nvme_store_sqe(to, sqe)
#else
#define PST_NVME_STORE_SQE(to, sqe) (*(to) = *(sqe))
#endif
#define PST_NVME_LOAD_CQE(from) (*(from))
#endif

struct pst_nvme_qp {
    struct pst_nvme_sqe *sq;
    struct pst_nvme_cqe *cq;
    volatile uint32_t *sq_doorbell, *cq_doorbell;
    uint16_t *ids;  /* depth of them: submissions take ids here, completions put them back */
    uint32_t *live; /* depth of them: the id in flight at each place, or PST_NVME_NOT_LIVE */
    uint64_t *prp;  /* a list of prp_entries for each place; NULL: none */
    uint64_t prp_iova;
    uint32_t prp_entries; /* a multiple of the entries of a page */
    uint32_t depth;       /* entries of each of both queues: a power of two */
    uint16_t qid;
    /* of submissions */
    uint64_t posted;   /* reserved so far */
    uint64_t sq_rings; /* doorbells */
    /* of completions */
    uint64_t taken;
    uint64_t cq_rings;
};

/* Makes the pair as it is after a reset. The caller has set the other fields, and zeroes sq and cq. */
static PST_HD void pst_nvme_qp_reset(struct pst_nvme_qp *qp)
{
    for (uint32_t i = 0; i < qp->depth; i++) {
        qp->ids[i] = (uint16_t)i;
        qp->live[i] = PST_NVME_NOT_LIVE;
    }
    qp->posted = qp->taken = 0;
}

/* How many submissions may be reserved; a queue holds depth - 1. */
static PST_HD uint32_t pst_nvme_room(const struct pst_nvme_qp *qp)
{
    return qp->depth - 1 - (uint32_t)(qp->posted - qp->taken);
}

static PST_HD uint32_t pst_nvme_place(const struct pst_nvme_qp *qp, uint16_t cid)
{
    return cid & (qp->depth - 1);
}

/* The id that submission k gets. Its completion carries the same id. */
static PST_HD uint16_t pst_nvme_cid(const struct pst_nvme_qp *qp, uint64_t k)
{
    return qp->ids[k & (qp->depth - 1)];
}

/* Writes submission k. The controller does not know of it before the doorbell. */
static PST_HD void pst_nvme_post(struct pst_nvme_qp *qp, uint64_t k, struct pst_nvme_sqe *sqe)
{
    sqe->cid = pst_nvme_cid(qp, k);
    qp->live[pst_nvme_place(qp, sqe->cid)] = sqe->cid;
    PST_NVME_STORE_SQE(&qp->sq[k & (qp->depth - 1)], sqe);
}

/* Rings once: the controller may take all submissions before qp->posted. */
static PST_HD void pst_nvme_ring_sq(struct pst_nvme_qp *qp)
{
    PST_NVME_STORE_RELEASE(qp->sq_doorbell, (uint32_t)(qp->posted & (qp->depth - 1)));
    qp->sq_rings++;
}

/* Whether completion k has come, from one load: its status has the phase bit, and stands beside its id. A
 * load by a GPU of memory that the controller writes takes a microsecond. */
static PST_HD bool pst_nvme_poll_id(const struct pst_nvme_qp *qp, uint64_t k, uint16_t *cid, uint16_t *status)
{
    const struct pst_nvme_cqe *at = &qp->cq[k & (qp->depth - 1)];
    const uint32_t last = PST_NVME_LOAD_ACQUIRE((const volatile uint32_t *)at + 3);
    *cid = (uint16_t)(last & 0xffff);
    *status = (uint16_t)(last >> 16);
    return (*status & 1) == ((k & qp->depth) == 0);
}

/* Whether completion k has come. It reads the phase bit first, and the rest after it. */
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

/* Takes the id of completion k back. False: no command with that id is in flight. Then the controller cannot
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

/* Rings once: the next n completions were taken, and the controller may write their entries again. */
static PST_HD void pst_nvme_ring_cq(struct pst_nvme_qp *qp, uint64_t n)
{
    qp->taken += n;
    PST_NVME_STORE_RELEASE(qp->cq_doorbell, (uint32_t)(qp->taken & (qp->depth - 1)));
    qp->cq_rings++;
}

/* ---- commands ------------------------------------------------------------------------------------ */

/* How many entries of a PRP list a transfer of so many bytes at iova needs besides PRP1. Links between the
 * pages of a long list are not counted. */
static PST_HD uint64_t pst_nvme_prp_count(uint64_t iova, uint64_t bytes, uint32_t page)
{
    const uint64_t first = page - iova % page;
    return bytes <= first ? 0 : (bytes - first + page - 1) / page;
}

/* Sets PRP1 and PRP2 for bytes at iova, which are contiguous for the device (section 4.1.1). If the transfer
 * touches more than two pages, it writes `list`, which is page-aligned and lies at list_iova. If the list
 * fills a page, the page's last entry links to the next page. False: the list would need more than
 * list_entries. */
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

/* Makes a read or write of 1 to PST_NVME_LBAS_MAX blocks from lba on. */
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
