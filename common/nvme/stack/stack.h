/* stack.h: requests of any size over the queues of several SSDs, driven in one of three ways (lanes.h).
 * Requests are cut into commands and sent in waves. Failed commands are retried, late ones aborted; a failed
 * controller is reset.
 *
 * Owner: the caller owns controllers (which outlive the stack) and memory. A request is copied. Its ticket is
 * the caller's and holds all shared state of its group; many groups can be in flight. Threads: one calls.
 * With lanes > 1 the stack has its own threads, which share submission and completion. Stacks over different
 * queues of the same controllers may be driven by different threads. */
#ifndef PST_STACK_H
#define PST_STACK_H

#include "common/nvme/driver/controller.h"
#include "common/nvme/lanes.h"

#define PST_NVME_SSDS_MAX 16
#define PST_NVME_LANES_MAX 65536 /* way sync: requests that wait at once */

/* PST_E_ARG: there is no way of this name. */
PST_API PST_MUST_USE pst_rc pst_nvme_way_named(const char *name, enum pst_nvme_way *way);

struct pst_nvme_stack_config {
    enum pst_nvme_way way;
    struct pst_nvme_controller **controllers; /* one for each SSD */
    uint32_t ssds;
    uint32_t lanes; /* sync: requests at once, each with a lane that waits; otherwise threads that share the
                       work */
    /* Uses `queues` queue pairs of each SSD, from the first_queue-th on; 0: all. If it does not have all, a
     * late command or an unknown completion ends the stack: it aborts and resets nothing, because other
     * stacks use the controllers too. */
    uint32_t first_queue, queues;
    uint32_t requests_max; /* held at once */
    uint32_t depth;        /* ways async and batch: most commands in flight; 0: as many as the queues hold */
    uint32_t retries;      /* of a command that failed */
    uint32_t timeout_ms;   /* until a command is aborted; after the same time again the controller is reset */
};

/* All the state of one group of requests. Zero it before first use. */
struct pst_nvme_ticket {
    uint64_t pending, failed; /* requests */
};

struct pst_nvme_request {
    uint16_t ssd;
    uint8_t opcode;    /* PST_NVME_READ, PST_NVME_WRITE */
    uint8_t lba_shift; /* the namespace has blocks of 1 << lba_shift bytes */
    uint32_t nsid;
    uint64_t lba;
    uint64_t bytes;                 /* whole blocks */
    uint64_t iova;                  /* of memory that is contiguous for the device; a multiple of 4 */
    struct pst_nvme_ticket *ticket; /* NULL: none */
    void *user;
};

/* The end of a request. */
struct pst_nvme_result {
    void *user;
    uint16_t status; /* enum pst_nvme_status, of the first command that could not be retried with success */
    uint16_t ssd;
    uint32_t nsid;
    uint64_t lba; /* the first block of that command */
    uint64_t ns;  /* from pst_nvme_stack_add to now */
};

struct pst_nvme_stack_stats {
    uint64_t commands, sq_doorbells, cq_doorbells;
    uint64_t retries, timeouts, aborts, resets, strange; /* strange: completions that belong to no command */
    uint64_t waves;  /* submissions; each rings a doorbell of a queue at most once, except in the way sync */
    uint64_t queues; /* queue pairs of this stack */
    double lane_s;   /* way sync: the time that lanes held requests, summed over lanes */
};

struct pst_nvme_stack;

PST_API PST_MUST_USE pst_rc pst_nvme_stack_new(struct pst_nvme_stack **out,
                                               const struct pst_nvme_stack_config *config);
/* Commands in flight are abandoned: their controllers are reset. */
PST_API void pst_nvme_stack_free(struct pst_nvme_stack *s);

/* PST_E_LIMIT: requests_max requests are held. PST_E_ARG: not whole blocks, or there is no such SSD.
 * PST_E_IO: see pst_nvme_stack_poll. */
PST_API PST_MUST_USE pst_rc pst_nvme_stack_add(struct pst_nvme_stack *s,
                                               const struct pst_nvme_request *request);

/* Sends added requests, as far as there is room. */
PST_API void pst_nvme_stack_submit(struct pst_nvme_stack *s);

/* Takes completions, retries failed commands, aborts late ones and sends the next wave. Ended requests go to
 * results, and their number to *n. PST_E_IO: a controller cannot be reset; *n is valid all the same. After
 * that nothing is taken any more, and all requests that were held end with PST_NVME_INTERNAL. Drives may
 * still write to their memory until pst_nvme_stack_free has reset them or their transports are closed. */
PST_API PST_MUST_USE pst_rc pst_nvme_stack_poll(struct pst_nvme_stack *s, struct pst_nvme_result *results,
                                                uint32_t max, uint32_t *n);

PST_API_TEST uint64_t pst_nvme_stack_in_flight(const struct pst_nvme_stack *s); /* requests held */
PST_API const struct pst_nvme_stack_stats *pst_nvme_stack_stats(struct pst_nvme_stack *s);

/* Drives, and the bus between them and the memory that they write. */
struct pst_nvme_supply {
    uint32_t ssds;          /* Q */
    double iops;            /* M: most commands a second of one SSD, for reads of `bytes` */
    double bytes;           /* K: of a command */
    double bus_bytes_per_s; /* B: what the bus carries; 0: no limit */
};

/* P_s: how many threads (lanes, or threads of a GPU) keep the drives busy if a thread takes seconds_per_entry
 * (T) for an entry of a submission queue. At least 1. Hyperion, section II-C, equation 2: Q M T if Q M K < B,
 * else (B / K) T, rounded up. */
PST_API uint32_t pst_nvme_lanes_needed(const struct pst_nvme_supply *supply, double seconds_per_entry);

#endif
