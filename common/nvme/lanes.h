/* lanes.h: the inner loops of the three ways to drive queues, for host threads and for the lanes of a kernel.
 *
 * All `lanes` lanes call each function, each with its own `lane`. Between one function and the next there is
 * a barrier (or the end of a kernel). One thread alone has lanes = 1. There are no atomics: every lane writes
 * other numbers.
 *
 *   async  (Hyperion, section III-A)
 *          submission: count, scan, scatter, write, ring. Completion: arrived, match, ring.
 *   batch  (Legend, section 5)
 *          submission: write, ring; the positions are known beforehand. Completion: as async.
 *   sync   (BaM; GIDS)
 *          one command for each lane: write, ring, poll, match, ring; the lane waits in between.
 *
 * Owner: the caller owns all memory. */
#ifndef PST_LANES_H
#define PST_LANES_H

#include "common/nvme/queue.h"

/* The three ways of driving queues, and their names in this order. */
enum pst_nvme_way { PST_NVME_ASYNC, PST_NVME_SYNC, PST_NVME_BATCH };
#define PST_NVME_WAY_NAMES "async|sync|batch"

/* A command to be sent. */
struct pst_nvme_io {
    uint64_t lba, iova;
    uint32_t bytes;
    uint32_t nsid;
    uint16_t queue;
    uint8_t opcode, lba_shift;
    uint16_t status; /* of its completion, with the phase bit; set by match */
};

struct pst_nvme_queues {
    uint32_t n;
    struct pst_nvme_qp **qp;
    uint32_t **io_of; /* by queue and place: which io is in flight there */
    struct pst_nvme_io *ios;
    uint32_t page; /* the controllers' (all the same) */
};

/* Which ios are submitted, and what the lanes find out about them. */
struct pst_nvme_wave {
    const uint32_t *todo; /* n indices into ios */
    uint32_t n;
    uint32_t *count; /* lanes x queues */
    uint32_t *begin; /* queues + 1: where each queue's ios begin in order */
    uint32_t *take;  /* queues: how many of them fit now; the others are for a later wave */
    uint32_t *order; /* n */
};

static PST_HD uint32_t pst_nvme_share(uint32_t n, uint32_t lane, uint32_t lanes)
{
    return (uint32_t)((uint64_t)n * lane / lanes);
}

static PST_HD void pst_nvme_wave_count(const struct pst_nvme_queues *q, struct pst_nvme_wave *w,
                                       uint32_t lane, uint32_t lanes)
{
    uint32_t *count = w->count + (size_t)lane * q->n;
    for (uint32_t i = 0; i < q->n; i++)
        count[i] = 0;
    for (uint32_t i = pst_nvme_share(w->n, lane, lanes); i < pst_nvme_share(w->n, lane + 1, lanes); i++)
        count[q->ios[w->todo[i]].queue]++;
}

/* Called by one lane. Each lane's count becomes the place of its first io of each queue. */
static PST_HD void pst_nvme_wave_scan(const struct pst_nvme_queues *q, struct pst_nvme_wave *w,
                                      uint32_t lanes)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < q->n; i++) {
        w->begin[i] = at;
        for (uint32_t lane = 0; lane < lanes; lane++) {
            uint32_t *count = &w->count[(size_t)lane * q->n + i];
            const uint32_t n = *count;
            *count = at;
            at += n;
        }
        const uint32_t room = pst_nvme_room(q->qp[i]), n = at - w->begin[i];
        w->take[i] = n < room ? n : room;
    }
    w->begin[q->n] = at;
}

static PST_HD void pst_nvme_wave_scatter(const struct pst_nvme_queues *q, struct pst_nvme_wave *w,
                                         uint32_t lane, uint32_t lanes)
{
    uint32_t *next = w->count + (size_t)lane * q->n;
    for (uint32_t i = pst_nvme_share(w->n, lane, lanes); i < pst_nvme_share(w->n, lane + 1, lanes); i++)
        w->order[next[q->ios[w->todo[i]].queue]++] = w->todo[i];
}

/* Writes io as submission k of its queue. */
static PST_HD void pst_nvme_io_post(const struct pst_nvme_queues *q, uint32_t index, uint64_t k)
{
    const struct pst_nvme_io *io = &q->ios[index];
    struct pst_nvme_qp *qp = q->qp[io->queue];
    const uint32_t place = pst_nvme_place(qp, pst_nvme_cid(qp, k));
    struct pst_nvme_sqe sqe;
    pst_nvme_rw(&sqe, io->opcode, io->nsid, io->lba, io->bytes >> io->lba_shift);
    const uint64_t list = (uint64_t)place * qp->prp_entries;
    const bool fits = pst_nvme_prp(&sqe, io->iova, io->bytes, q->page, qp->prp + list,
                                   qp->prp_iova + list * sizeof *qp->prp, qp->prp_entries);
    assert(fits); /* commands are cut so that a list has room */
    (void)fits;
    q->io_of[io->queue][place] = index;
    pst_nvme_post(qp, k, &sqe);
}

/* Each of P_s lanes writes N_s / P_s entries of each queue. */
static PST_HD void pst_nvme_wave_write(const struct pst_nvme_queues *q, const struct pst_nvme_wave *w,
                                       uint32_t lane, uint32_t lanes)
{
    for (uint32_t i = 0; i < q->n; i++) {
        const uint64_t posted = q->qp[i]->posted;
        const uint32_t end = pst_nvme_share(w->take[i], lane + 1, lanes);
        for (uint32_t j = pst_nvme_share(w->take[i], lane, lanes); j < end; j++)
            pst_nvme_io_post(q, w->order[w->begin[i] + j], posted + j);
    }
}

/* Rings one doorbell for each queue. */
static PST_HD void pst_nvme_wave_ring(const struct pst_nvme_queues *q, const struct pst_nvme_wave *w,
                                      uint32_t lane, uint32_t lanes)
{
    for (uint32_t i = lane; i < q->n; i += lanes) {
        if (w->take[i] == 0)
            continue;
        q->qp[i]->posted += w->take[i];
        pst_nvme_ring_sq(q->qp[i]);
    }
}

/* ---- completion ----------------------------------------------------------------------------------- */

/* How many completions of the queue have come; called by one lane. Completions come without gaps, so it
 * doubles its step until it finds one that has not come, and then halves it. */
static PST_HD uint32_t pst_nvme_arrived(const struct pst_nvme_qp *qp)
{
    const uint32_t most = (uint32_t)(qp->posted - qp->taken);
    struct pst_nvme_cqe cqe;
    uint32_t there = 0, step = 1; /* all completions before `there` have come */
    while (there + step <= most && pst_nvme_poll(qp, qp->taken + there + step - 1, &cqe)) {
        there += step;
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        if (there + step <= most && pst_nvme_poll(qp, qp->taken + there + step - 1, &cqe))
            there += step;
    }
    return there;
}

/* Each of P_c lanes matches a run of the n completions that have come; done[0..n) gets the ios. Returns how
 * many of the lane's completions belong to no command in flight. If there is one, the controller must be
 * reset. */
static PST_HD uint32_t pst_nvme_match(const struct pst_nvme_queues *q, uint32_t queue, uint32_t n,
                                      uint32_t *done, uint32_t lane, uint32_t lanes)
{
    struct pst_nvme_qp *qp = q->qp[queue];
    uint32_t strange = 0;
    const uint32_t end = pst_nvme_share(n, lane + 1, lanes);
    for (uint32_t j = pst_nvme_share(n, lane, lanes); j < end; j++) {
        struct pst_nvme_cqe cqe;
        const bool there = pst_nvme_poll(qp, qp->taken + j, &cqe);
        if (!there || !pst_nvme_take(qp, qp->taken + j, cqe.cid)) {
            done[j] = PST_NVME_NOT_LIVE;
            strange++;
            continue;
        }
        done[j] = q->io_of[queue][pst_nvme_place(qp, cqe.cid)];
        q->ios[done[j]].status = cqe.status;
    }
    return strange;
}

#endif
