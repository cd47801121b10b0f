/* stack.h: requests of any size over the queues of several SSDs, by one of three stacks (lanes.h): cut
 * into commands, sent in waves, retried, aborted when they take too long, and survived when a controller must
 * be reset.
 *
 * Owner: the caller owns controllers (which outlive the stack) and memory; a request is copied. Its ticket is
 * the caller's and holds all of its state that is shared: many can be in flight. Threads: one; with lanes > 1
 * the stack has threads of its own that share submission and completion. Stacks of different queues of the
 * same controllers may be driven by different threads. */
#ifndef PST_STACK_H
#define PST_STACK_H

#include "common/nvme/driver/controller.h"
#include "common/nvme/lanes.h"

#define PST_NVME_SSDS_MAX 16
#define PST_NVME_LANES_MAX 1024 /* of sync: requests that wait at once */

/* PST_E_ARG: there is no way of this name. */
PST_MUST_USE pst_rc pst_nvme_way_named(const char *name, enum pst_nvme_way *way);

struct pst_nvme_stack_config {
    enum pst_nvme_way way;
    struct pst_nvme_controller **controllers; /* one an SSD */
    uint32_t ssds;
    uint32_t
        lanes; /* sync: requests at once, each with a lane that waits; else threads that share the work */
    /* A stack of some of the queue pairs, from the first_queue-th of each SSD on; 0: of all. Of some, what is
     * late or strange ends it: nothing is aborted or reset, for the controllers serve other stacks, too. */
    uint32_t first_queue, queues;
    uint32_t requests_max; /* held at once */
    uint32_t retries;      /* of a command that failed */
    uint32_t timeout_ms;   /* until a command is aborted, and again until the controller is reset */
};

/* All the state of one group of requests. Zero it before first use. */
struct pst_nvme_ticket {
    uint64_t pending, failed; /* requests */
};

struct pst_nvme_request {
    uint16_t ssd;
    uint8_t opcode;    /* PST_NVME_READ, PST_NVME_WRITE */
    uint8_t lba_shift; /* of the namespace: blocks of 1 << lba_shift bytes */
    uint32_t nsid;
    uint64_t lba;
    uint64_t bytes;                 /* whole blocks */
    uint64_t iova;                  /* contiguous for the device; a multiple of 4 */
    struct pst_nvme_ticket *ticket; /* NULL: none */
    void *user;
};

/* A request's end. */
struct pst_nvme_result {
    void *user;
    uint16_t status; /* enum pst_nvme_status: of the first command that failed for good */
    uint16_t ssd;
    uint32_t nsid;
    uint64_t lba; /* where that command began */
    uint64_t ns;  /* from pst_nvme_stack_add to now */
};

struct pst_nvme_stack_stats {
    uint64_t commands, sq_doorbells, cq_doorbells;
    uint64_t retries, timeouts, aborts, resets, strange; /* strange: completions of no command */
    uint64_t waves;
};

struct pst_nvme_stack;

PST_MUST_USE pst_rc pst_nvme_stack_new(struct pst_nvme_stack **out,
                                       const struct pst_nvme_stack_config *config);
/* What is in flight is given up: the controllers that have any of it are reset. */
void pst_nvme_stack_free(struct pst_nvme_stack *s);

/* PST_E_LIMIT: requests_max are held. PST_E_ARG: not whole blocks, or no such SSD. PST_E_IO: see
 * pst_nvme_stack_poll. */
PST_MUST_USE pst_rc pst_nvme_stack_add(struct pst_nvme_stack *s, const struct pst_nvme_request *request);

/* Sends what was added and has room. */
void pst_nvme_stack_submit(struct pst_nvme_stack *s);

/* Takes what has come, retries, looks after what takes too long, sends the next wave. Returns how many
 * requests have ended, to results. PST_E_IO only if a controller cannot be brought back; *n is valid all the
 * same. From then on nothing is taken any more, and all that was held ends with PST_NVME_INTERNAL; but drives
 * may still write to its memory, until pst_nvme_stack_free has reset them or their transports are closed. */
PST_MUST_USE pst_rc pst_nvme_stack_poll(struct pst_nvme_stack *s, struct pst_nvme_result *results,
                                        uint32_t max, uint32_t *n);

uint64_t pst_nvme_stack_in_flight(const struct pst_nvme_stack *s); /* requests held */
const struct pst_nvme_stack_stats *pst_nvme_stack_stats(struct pst_nvme_stack *s);

/* Threads (GPU threads, or lanes) that submission needs: Hyperion, equation 2, as README.md derives it. */
uint32_t pst_nvme_lanes_needed(double seconds_per_sqe, double iops);

#endif
