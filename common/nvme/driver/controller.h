/* controller.h: bringing an NVMe controller up and down over any transport: reset, admin queue, Identify,
 * number of queues, IO queues, abort, flush, shutdown. What the device says is used; nothing about it is
 * assumed.
 *
 * Owner: pst_nvme_open fills what the caller owns, pst_nvme_close releases it (not the transport). Queue
 * pairs are the controller's; their addresses hold until they are deleted. Threads: one at a time for every
 * function here; queue pairs are their users' (queue.h). Every wait has a deadline of the device's own or of
 * config's. */
#ifndef PST_CONTROLLER_H
#define PST_CONTROLLER_H

#include "common/nvme/driver/dma.h"
#include "common/nvme/queue.h"

#define PST_NVME_QUEUES_MAX 128 /* IO queue pairs of one controller: the most that drives offer */

struct pst_nvme_config {
    uint32_t queues; /* IO queue pairs wanted; 0: one */
    uint32_t depth;  /* of each; rounded down to a power of two and to what the device has */
    uint64_t
        transfer_bytes_max;    /* of one command, besides MDTS; 0: 2 MiB, what one page of a PRP list says */
    uint32_t admin_timeout_ms; /* 0: 30000, what Linux' driver gives a command (besides CAP.TO for resets) */
};

struct pst_nvme_namespace {
    uint32_t nsid;
    uint32_t lba_bytes;
    uint64_t blocks;
    bool read_only;
};

struct pst_nvme_controller {
    struct pst_nvme_transport *t;
    struct pst_nvme_config config;
    /* what the device says */
    uint64_t cap;
    uint32_t version;
    uint32_t entries_max;     /* MQES + 1 */
    uint32_t doorbell_stride; /* bytes */
    uint32_t page;            /* bytes: memory pages as PRPs count them (CC.MPS) */
    uint64_t transfer_bytes;  /* of one command at most: MDTS, PRP list and config */
    uint32_t ready_ms;        /* CAP.TO */
    uint32_t namespaces;      /* NN: nsids are 1 to this */
    uint32_t queues;          /* IO queue pairs it grants */
    bool volatile_cache;      /* flush means something */
    char serial[21], model[41], firmware[9];
    uint64_t resets; /* done by pst_nvme_reset */
    /* ours */
    struct pst_nvme_qp *admin;
    struct pst_nvme_qp *io[PST_NVME_QUEUES_MAX + 1]; /* by qid; NULL: none */
    void *impl;
};

/* Resets the controller, enables it and asks it who it is; then makes config->queues pairs (as many as it
 * grants; qids from 1 on, the same depth each). PST_E_UNSUPPORTED: it lacks what we need, and which. */
PST_MUST_USE pst_rc pst_nvme_open(struct pst_nvme_controller *c, struct pst_nvme_transport *t,
                                  const struct pst_nvme_config *config);

/* Deletes the queues, shuts the controller down (or disables it, when that fails), frees. Whatever happens,
 * the controller does not touch our memory after this. */
void pst_nvme_close(struct pst_nvme_controller *c);

/* PST_E_ARG: no such active namespace; PST_E_UNSUPPORTED: its blocks carry metadata. */
PST_MUST_USE pst_rc pst_nvme_namespace(struct pst_nvme_controller *c, uint32_t nsid,
                                       struct pst_nvme_namespace *ns);

/* Makes one more pair / deletes one. Commands in flight on a deleted pair are lost to their owner. */
PST_MUST_USE pst_rc pst_nvme_queue_new(struct pst_nvme_controller *c, uint16_t qid, uint32_t depth,
                                       struct pst_nvme_qp **qp);
PST_MUST_USE pst_rc pst_nvme_queue_delete(struct pst_nvme_controller *c, uint16_t qid);

/* The memory of a pair that the controller reaches too, queues and lists: for who shares it with a GPU. Whole
 * pages, and the pair's for as long as it is. */
void pst_nvme_queue_memory(const struct pst_nvme_qp *qp, void **at, uint64_t *bytes);

/* Asks for one command to be given up. *aborted: it will complete (with PST_NVME_ABORTED, if it had not
 * already); else the controller knows of no such command. */
PST_MUST_USE pst_rc pst_nvme_abort(struct pst_nvme_controller *c, uint16_t qid, uint16_t cid, bool *aborted);

/* Disables the controller, enables it anew and makes the same pairs again, empty (pst_nvme_qp_reset), at the
 * same addresses. All that was in flight is gone: after this nothing of it completes or touches memory. */
PST_MUST_USE pst_rc pst_nvme_reset(struct pst_nvme_controller *c);

/* Whether the controller says that it has failed (CSTS.CFS): only a reset helps; or is gone (all ones, or by
 * what its transport says): then nothing does. */
bool pst_nvme_failed(const struct pst_nvme_controller *c);

/* Counted on, not set. */
struct pst_nvme_settled {
    uint64_t aborts, resets;
};

/* Until nothing is in flight on its IO queues, whoever sent it: takes what has come, aborts the rest, and
 * resets if aborting takes longer than timeout_ms, if some of it has not come after as long again, or if what
 * comes is not to be believed. What was in flight may have been carried out or not. PST_E_IO: it cannot be
 * reset. */
PST_MUST_USE pst_rc pst_nvme_settle(struct pst_nvme_controller *c, uint32_t timeout_ms,
                                    struct pst_nvme_settled *did);

PST_MUST_USE pst_rc pst_nvme_flush(struct pst_nvme_controller *c, uint32_t nsid);

/* Sends any admin command and waits for it. data, if not NULL, is a page that is copied in (write) or out
 * after it. *result gets dw0. PST_E_IO names the status. For tests and `penstock disks`. */
PST_MUST_USE pst_rc pst_nvme_admin(struct pst_nvme_controller *c, struct pst_nvme_sqe *sqe, void *data,
                                   uint32_t data_bytes, bool write, uint32_t *result);

/* "LBA out of range (0x80)": what a completion's status says. */
const char *pst_nvme_status_text(uint16_t status, char text[64]);

#endif
