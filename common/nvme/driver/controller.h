/* controller.h: opens and closes an NVMe controller over any transport: reset, admin queue, Identify, number
 * of queues, IO queues, abort, flush, shutdown. It assumes nothing about the device, and uses what the device
 * reports.
 *
 * Owner: pst_nvme_open fills what the caller owns; pst_nvme_close releases it, but not the transport. Queue
 * pairs belong to the controller; their addresses hold until they are deleted. Threads: one at a time for
 * every function here; each queue pair belongs to its user (queue.h). Every wait has a deadline: the device's
 * own, or the one in the config. */
#ifndef PST_CONTROLLER_H
#define PST_CONTROLLER_H

#include "common/nvme/driver/dma.h"
#include "common/nvme/queue.h"

#define PST_NVME_QUEUES_MAX 128 /* IO queue pairs of one controller: drives offer no more */

struct pst_nvme_config {
    uint32_t queues;             /* IO queue pairs wanted; 0: one */
    uint32_t depth;              /* of each; rounded down to a power of two that the device supports */
    uint64_t transfer_bytes_max; /* limit for one command besides MDTS; 0: 2 MiB, one page of a PRP list */
    uint32_t admin_timeout_ms;   /* 0: 30000, as Linux' driver; resets have CAP.TO */
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
    /* reported by the device */
    uint64_t cap;
    uint32_t version;
    uint32_t entries_max;     /* MQES + 1 */
    uint32_t doorbell_stride; /* bytes */
    uint32_t page;            /* bytes of a memory page in PRPs (CC.MPS) */
    uint64_t transfer_bytes;  /* most of one command: MDTS, PRP list and config */
    uint32_t ready_ms;        /* CAP.TO */
    uint32_t namespaces;      /* NN: namespace ids are 1 to this */
    uint32_t queues;          /* IO queue pairs that it grants */
    bool volatile_cache;      /* a flush has an effect */
    char serial[21], model[41], firmware[9];
    uint64_t resets; /* by pst_nvme_reset */
    /* ours */
    struct pst_nvme_qp *admin;
    struct pst_nvme_qp *io[PST_NVME_QUEUES_MAX + 1]; /* by qid; NULL: none */
    void *impl;
};

/* Resets the controller, enables it and identifies it. Then creates config->queues pairs, or as many as it
 * grants; their ids begin at 1, and all have the same depth. PST_E_UNSUPPORTED: the message names what the
 * controller lacks. */
PST_API PST_MUST_USE pst_rc pst_nvme_open(struct pst_nvme_controller *c, struct pst_nvme_transport *t,
                                          const struct pst_nvme_config *config);

/* Deletes the queues, shuts the controller down (or disables it if that fails), and frees. After this the
 * controller never accesses our memory. */
PST_API void pst_nvme_close(struct pst_nvme_controller *c);

/* PST_E_ARG: no such active namespace; PST_E_UNSUPPORTED: its blocks carry metadata. */
PST_API PST_MUST_USE pst_rc pst_nvme_namespace(struct pst_nvme_controller *c, uint32_t nsid,
                                               struct pst_nvme_namespace *ns);

/* Creates or deletes one pair. Commands in flight on a deleted pair never complete. */
PST_API_TEST PST_MUST_USE pst_rc pst_nvme_queue_new(struct pst_nvme_controller *c, uint16_t qid,
                                                    uint32_t depth, struct pst_nvme_qp **qp);
PST_API_TEST PST_MUST_USE pst_rc pst_nvme_queue_delete(struct pst_nvme_controller *c, uint16_t qid);

/* The memory of a pair that the controller accesses: queues and lists. For sharing it with a GPU. It consists
 * of whole pages, and lives as long as the pair. */
PST_API void pst_nvme_queue_memory(const struct pst_nvme_qp *qp, void **at, uint64_t *bytes);

/* How many bytes of BAR 0, in whole pages from its start, have the registers and the doorbells of the pairs 0
 * to queues. Reads a word of each of these pages: VFIO maps a page when it is first used, and a GPU can only
 * be given pages that are mapped. */
PST_API uint64_t pst_nvme_registers_touch(const struct pst_nvme_controller *c, uint32_t queues);

/* Asks the controller to abort one command. *aborted true: the command completes, with PST_NVME_ABORTED
 * unless it was done before. False: the controller does not know the command. */
PST_API_TEST PST_MUST_USE pst_rc pst_nvme_abort(struct pst_nvme_controller *c, uint16_t qid, uint16_t cid,
                                                bool *aborted);

/* Disables the controller, enables it again and creates the same pairs, empty (pst_nvme_qp_reset), at the
 * same addresses. What was in flight is lost: it never completes and never accesses memory after this. */
PST_API_TEST PST_MUST_USE pst_rc pst_nvme_reset(struct pst_nvme_controller *c);

/* Whether the controller reports a fatal error (CSTS.CFS), which only a reset cures, or is gone (all ones in
 * its registers, or its transport says so). */
PST_API_TEST bool pst_nvme_failed(const struct pst_nvme_controller *c);

/* pst_nvme_settle adds to these. */
struct pst_nvme_settled {
    uint64_t aborts, resets;
};

/* Waits until nothing is in flight on the IO queues, no matter who sent it. It takes what has completed and
 * aborts the rest. It resets the controller if aborting takes longer than timeout_ms, if commands have not
 * completed after the same time again, or if a completion cannot be trusted. Commands in flight may or may
 * not have been carried out. PST_E_IO: the controller cannot be reset. */
PST_API PST_MUST_USE pst_rc pst_nvme_settle(struct pst_nvme_controller *c, uint32_t timeout_ms,
                                            struct pst_nvme_settled *did);

PST_API_TEST PST_MUST_USE pst_rc pst_nvme_flush(struct pst_nvme_controller *c, uint32_t nsid);

/* Sends any admin command and waits for it. data, if not NULL, is at most a page; it is copied to the device
 * (write) or from it. *result gets dw0. PST_E_IO: the message names the status. For tests and `penstock
 * disks`. */
PST_MUST_USE pst_rc pst_nvme_admin(struct pst_nvme_controller *c, struct pst_nvme_sqe *sqe, void *data,
                                   uint32_t data_bytes, bool write, uint32_t *result);

/* A completion's status in words: "LBA out of range (0x80)". */
PST_API const char *pst_nvme_status_text(uint16_t status, char text[64]);

#endif
