/* controller_impl.h: what the parts of the bring-up share: controller.c (states), pair.c (queue
 * pairs) and admin.c (commands and what they answer). Not for others. */
#ifndef PST_CONTROLLER_IMPL_H
#define PST_CONTROLLER_IMPL_H

#include "common/nvme/driver/controller.h"

#define PST_NVME_ADMIN_DEPTH 16 /* one command at a time, and some that were never answered */
#define PST_NVME_ADMIN_QID 0

struct pst_nvme_pair {
    struct pst_nvme_qp qp;      /* first: who has the pair has this */
    struct pst_nvme_dma device; /* queues and PRP lists */
    struct pst_nvme_dma host;   /* ids and live: nothing that the device could write to */
};

struct pst_nvme_bringup {
    struct pst_nvme_dma page; /* of data, for admin commands */
    uint32_t shutdown_ms;     /* RTD3E */
    uint16_t qids;            /* IO queue ids 1 to this have doorbells and were granted */
    bool enabled;
};

static inline struct pst_nvme_bringup *pst_nvme_impl(const struct pst_nvme_controller *c)
{
    return c->impl;
}

/* pair.c. A pair's memory and addresses; the controller is told nothing yet. */
PST_MUST_USE pst_rc pst_nvme_pair_new(struct pst_nvme_controller *c, uint16_t qid, uint32_t depth,
                                      struct pst_nvme_qp **out);
void pst_nvme_pair_free(struct pst_nvme_qp *qp);
/* Empty, as the controller thinks of a queue that was just made. */
void pst_nvme_pair_clear(struct pst_nvme_qp *qp);
PST_MUST_USE pst_rc pst_nvme_pair_create(struct pst_nvme_controller *c, struct pst_nvme_qp *qp);
uint64_t pst_nvme_sq_iova(const struct pst_nvme_qp *qp);
uint64_t pst_nvme_cq_iova(const struct pst_nvme_qp *qp);

/* controller.c. Whether there is nobody who could answer. */
bool pst_nvme_gone(const struct pst_nvme_controller *c);

/* admin.c. Posts the command and waits for its completion. */
PST_MUST_USE pst_rc pst_nvme_command(struct pst_nvme_controller *c, struct pst_nvme_qp *qp,
                                     struct pst_nvme_sqe *sqe, struct pst_nvme_cqe *cqe);
PST_MUST_USE pst_rc pst_nvme_identify(struct pst_nvme_controller *c);
/* Asks for n IO queue pairs; *granted: 1 to n. */
PST_MUST_USE pst_rc pst_nvme_ask_queues(struct pst_nvme_controller *c, uint32_t n, uint32_t *granted);

/* Milliseconds since some moment. */
/* Lets go of the processor for longer the longer *waits says it has been. */
void pst_nvme_relax(uint32_t *waits);

#endif
