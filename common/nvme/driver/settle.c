/* settle.c: ends commands that another driver of the queues has left in flight: waits, aborts, resets. */
#include "common/nvme/driver/controller_impl.h"
#include "common/error.h"
#include "common/util/clock.h"

#define RESETS_MAX 3 /* attempts, one after the other */

/* False: a completion belongs to no command in flight. */
static bool take_what_came(struct pst_nvme_qp *qp)
{
    struct pst_nvme_cqe cqe;
    while (qp->taken != qp->posted && pst_nvme_poll(qp, qp->taken, &cqe)) {
        if (!pst_nvme_take(qp, qp->taken, cqe.cid))
            return false;
        pst_nvme_ring_cq(qp, 1);
    }
    return true;
}

static uint64_t in_flight(const struct pst_nvme_controller *c)
{
    uint64_t n = 0;
    for (uint32_t qid = 1; qid <= PST_NVME_QUEUES_MAX; qid++)
        n += c->io[qid] != NULL ? c->io[qid]->posted - c->io[qid]->taken : 0;
    return n;
}

/* Takes completions until nothing is in flight or the time is over. False: only a reset helps. */
static bool await(struct pst_nvme_controller *c, uint32_t ms)
{
    const int64_t deadline = pst_clock_ms() + ms;
    uint32_t waits = 0;
    do {
        for (uint32_t qid = 1; qid <= PST_NVME_QUEUES_MAX; qid++) {
            if (c->io[qid] != NULL && !take_what_came(c->io[qid]))
                return false;
        }
        if (in_flight(c) == 0)
            return true;
        if (pst_nvme_failed(c))
            return false;
        pst_nvme_relax(&waits);
    } while (pst_clock_ms() < deadline);
    return true;
}

/* False: the controller does not accept an abort, or needs too long for all of them. */
static bool abort_all(struct pst_nvme_controller *c, uint32_t ms, struct pst_nvme_settled *did)
{
    const int64_t deadline = pst_clock_ms() + ms;
    for (uint16_t qid = 1; qid <= PST_NVME_QUEUES_MAX; qid++) {
        const struct pst_nvme_qp *qp = c->io[qid];
        for (uint32_t place = 0; qp != NULL && place < qp->depth; place++) {
            bool aborted = false;
            if (qp->live[place] == PST_NVME_NOT_LIVE)
                continue;
            if (pst_clock_ms() > deadline ||
                pst_nvme_abort(c, qid, (uint16_t)qp->live[place], &aborted) != PST_OK)
                return false;
            did->aborts += aborted;
        }
    }
    return true;
}

pst_rc pst_nvme_settle(struct pst_nvme_controller *c, uint32_t timeout_ms, struct pst_nvme_settled *did)
{
    if (in_flight(c) == 0)
        return PST_OK;
    if (await(c, 0) &&
        (in_flight(c) == 0 || (abort_all(c, timeout_ms, did) && await(c, timeout_ms) && in_flight(c) == 0)))
        return PST_OK;
    pst_rc rc = PST_E_IO;
    for (int tries = 0; tries < RESETS_MAX && rc != PST_OK; tries++)
        rc = pst_nvme_reset(c);
    did->resets += rc == PST_OK;
    return rc == PST_OK ? PST_OK : pst_wrap(rc, "%s cannot be reset", c->t->what);
}
