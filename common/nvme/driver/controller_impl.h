/* controller_impl.h: what controller.c (states), pair.c (queue pairs) and admin.c (commands) share. Private
 * to this room. */
#ifndef PST_CONTROLLER_IMPL_H
#define PST_CONTROLLER_IMPL_H

#include "common/nvme/driver/controller.h"

#define PST_NVME_ADMIN_DEPTH 16 /* room for one command, and for some that were never answered */
#define PST_NVME_ADMIN_QID 0

struct pst_nvme_pair {
    struct pst_nvme_qp qp;      /* first: a pointer to it is a pointer to this */
    struct pst_nvme_dma device; /* queues and PRP lists */
    struct pst_nvme_dma host;   /* ids and live: the device cannot write to them */
};

struct pst_nvme_bringup {
    struct pst_nvme_dma page; /* for the data of admin commands */
    uint32_t shutdown_ms;     /* RTD3E */
    uint16_t qids;            /* IO queue ids 1 to this are granted and have doorbells */
    bool enabled;
};

static inline struct pst_nvme_bringup *pst_nvme_impl(const struct pst_nvme_controller *c)
{
    return c->impl;
}

/* pair.c. Makes a pair's memory; pst_nvme_pair_create then tells the controller. */
PST_MUST_USE pst_rc pst_nvme_pair_new(struct pst_nvme_controller *c, uint16_t qid, uint32_t depth,
                                      struct pst_nvme_qp **out);
void pst_nvme_pair_free(struct pst_nvme_qp *qp);
/* Empties a pair, as it is after its creation. */
void pst_nvme_pair_clear(struct pst_nvme_qp *qp);
PST_MUST_USE pst_rc pst_nvme_pair_create(struct pst_nvme_controller *c, struct pst_nvme_qp *qp);
uint64_t pst_nvme_sq_iova(const struct pst_nvme_qp *qp);
uint64_t pst_nvme_cq_iova(const struct pst_nvme_qp *qp);

/* controller.c. Whether the controller is gone and cannot answer. */
bool pst_nvme_gone(const struct pst_nvme_controller *c);

/* admin.c. Posts the command and waits for its completion. */
PST_MUST_USE pst_rc pst_nvme_command(struct pst_nvme_controller *c, struct pst_nvme_qp *qp,
                                     struct pst_nvme_sqe *sqe, struct pst_nvme_cqe *cqe);
PST_MUST_USE pst_rc pst_nvme_identify(struct pst_nvme_controller *c);
/* Asks for n IO queue pairs; *granted: 1 to n. */
PST_MUST_USE pst_rc pst_nvme_ask_queues(struct pst_nvme_controller *c, uint32_t n, uint32_t *granted);

/* Gives the processor away after some calls. *waits counts them; it begins at 0. */
void pst_nvme_relax(uint32_t *waits);

#endif
