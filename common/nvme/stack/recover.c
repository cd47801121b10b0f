/* recover.c: late commands and controllers that must be reset. A late command is aborted. If it has not
 * completed after the same time again, or if the controller reports a fatal error or completes a command that
 * nobody sent, the controller is reset. After the reset no command in flight completes or accesses memory;
 * all of them are sent again. */
#include <stdio.h>

#include "common/error.h"
#include "common/nvme/stack/stack_impl.h"

#define MOVES_MAX 1000 /* how many resets a command may survive; a drive that needs more is broken */
#define RESETS_MAX 3   /* attempts, one after the other */

static void carry_over(struct pst_nvme_stack *s, uint32_t index)
{
    struct slot *slot = &s->slots[index];
    slot->aborting = false;
    s->in_flight--;
    if (++slot->moved > MOVES_MAX)
        pst_nvme_command_ended(s, index, PST_NVME_INTERNAL << 1 | 1u << 15);
    else
        s->todo[s->ntodo++] = index;
}

/* Ends every request that is held, once. Nothing is sent or taken any more. */
static void give_up(struct pst_nvme_stack *s, uint32_t ssd)
{
    s->failed = PST_E_IO;
    (void)snprintf(s->failure, sizeof s->failure, "%s cannot be reset: %.300s",
                   s->config.controllers[ssd]->t->what, pst_error_text());
    s->waiting = PST_NVME_NONE;
    s->ntodo = s->in_flight = 0;
    for (uint32_t i = 0; i < s->config.requests_max; i++) {
        struct held *h = &s->held[i];
        if (!h->live)
            continue;
        if (h->status == PST_NVME_OK)
            h->failed_lba = h->r.lba;
        h->status = PST_NVME_INTERNAL;
        pst_nvme_end_request(s, i);
    }
}

void pst_nvme_recover(struct pst_nvme_stack *s, uint32_t ssd)
{
    /* find the commands in flight before the reset empties the queues */
    uint32_t n = 0;
    for (uint32_t i = s->first_queue[ssd]; i < s->first_queue[ssd + 1]; i++) {
        for (uint32_t place = 0; place < s->qp[i]->depth; place++) {
            if (s->qp[i]->live[place] != PST_NVME_NOT_LIVE)
                s->done[n++] = s->io_of[i][place];
        }
    }
    pst_rc rc = s->config.queues == 0
                    ? PST_E_IO
                    : pst_fail(PST_E_STATE,
                               "other stacks use this controller too, and a reset would fail their requests");
    for (int tries = 0; tries < RESETS_MAX && rc != PST_OK && s->config.queues == 0; tries++)
        rc = pst_nvme_reset(s->config.controllers[ssd]);
    if (rc != PST_OK) {
        give_up(s, ssd);
        return;
    }
    s->stats.resets++;
    for (uint32_t i = 0; i < n; i++)
        carry_over(s, s->done[i]);
}

/* True: the controller must be reset because of it. */
static bool give_command_up(struct pst_nvme_stack *s, uint32_t ssd, uint32_t queue, uint32_t place,
                            uint64_t now)
{
    struct slot *slot = &s->slots[s->io_of[queue][place]];
    s->stats.timeouts++;
    if (slot->aborting || s->config.queues > 0)
        return true;
    bool aborted = false;
    const uint16_t cid = (uint16_t)s->qp[queue]->live[place];
    pst_rc rc = pst_nvme_abort(s->config.controllers[ssd], s->qp[queue]->qid, cid, &aborted);
    if (rc != PST_OK)
        return true;
    /* not aborted: either it has completed, and the next poll finds it, or it is lost */
    s->stats.aborts += aborted;
    slot->aborting = true;
    slot->posted_ns = now;
    return false;
}

static bool is_late(struct pst_nvme_stack *s, uint32_t ssd, uint64_t now)
{
    const uint64_t timeout = (uint64_t)s->config.timeout_ms * 1000000u;
    for (uint32_t i = s->first_queue[ssd]; i < s->first_queue[ssd + 1]; i++) {
        const struct pst_nvme_qp *qp = s->qp[i];
        if (qp->posted == qp->taken)
            continue;
        for (uint32_t place = 0; place < qp->depth; place++) {
            if (qp->live[place] != PST_NVME_NOT_LIVE &&
                s->slots[s->io_of[i][place]].posted_ns + timeout < now &&
                give_command_up(s, ssd, i, place, now))
                return true;
        }
    }
    return false;
}

void pst_nvme_look_after(struct pst_nvme_stack *s, uint64_t now)
{
    s->looked_ns = now;
    for (uint32_t ssd = 0; ssd < s->config.ssds && s->failed == PST_OK; ssd++) {
        bool busy = false;
        for (uint32_t i = s->first_queue[ssd]; i < s->first_queue[ssd + 1]; i++)
            busy = busy || s->qp[i]->posted != s->qp[i]->taken;
        if (busy && (pst_nvme_failed(s->config.controllers[ssd]) || is_late(s, ssd, now)))
            pst_nvme_recover(s, ssd);
    }
}
