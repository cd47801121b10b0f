/* stack_impl.h: the state of a stack, which stack.c and recover.c share.
 * Owner: pst_nvme_stack_new makes it, pst_nvme_stack_free frees it. Threads: the one that
 * uses the stack; its lanes carry out the wave while that thread waits for them. */
#ifndef PST_STACK_IMPL_H
#define PST_STACK_IMPL_H

#include "common/nvme/stack/stack.h"
#include "common/nvme/stack/lane_team.h"

#define PST_NVME_NONE 0xffffffffu

/* A request that has not ended. It is cut into commands when there is room. */
struct held {
    struct pst_nvme_request r;
    bool live;          /* added and not ended */
    uint64_t next_byte; /* the part from here on has no commands yet */
    uint32_t commands;  /* that have not ended */
    uint16_t status;
    uint64_t failed_lba, begun_ns;
    uint32_t next; /* free, or waiting to be cut */
};

/* What the host knows of a command, besides its io. */
struct slot {
    uint32_t held;
    uint32_t tries; /* how often it failed */
    uint32_t moved; /* how many resets it survived */
    bool aborting;
    uint64_t posted_ns;
};

struct pst_nvme_stack {
    struct pst_nvme_stack_config config;
    struct pst_nvme_queues q;
    struct pst_nvme_qp *qp[PST_NVME_SSDS_MAX * PST_NVME_QUEUES_MAX];
    uint32_t *io_of[PST_NVME_SSDS_MAX * PST_NVME_QUEUES_MAX];
    uint32_t first_queue[PST_NVME_SSDS_MAX + 1], turn[PST_NVME_SSDS_MAX];
    struct held *held;
    uint32_t free_held, waiting, waiting_end, nheld;
    struct slot *slots; /* beside q.ios */
    uint32_t nslots, in_flight;
    uint32_t *free_slots, nfree;
    uint32_t *todo, ntodo; /* commands that are not posted yet */
    uint32_t *done;
    struct pst_nvme_wave wave;
    struct pst_nvme_result *ended; /* ring of requests_max */
    uint32_t ended_first, nended;
    uint64_t counted_ns;         /* up to when lane_s is counted */
    uint64_t looked_ns, look_ns; /* when timeouts were last looked for; how often they are */
    struct pst_nvme_team *team;
    struct pst_nvme_stack_stats stats;
    pst_rc failed;
    char failure[512];
};

/* Ends a request; the next poll returns its result. */
void pst_nvme_end_request(struct pst_nvme_stack *s, uint32_t held);
/* A command has completed: it is retried, or its request gets the status. */
void pst_nvme_command_ended(struct pst_nvme_stack *s, uint32_t index, uint16_t cqe_status);
/* Takes all completions of a queue that have come. False: one belongs to no command in flight. */
bool pst_nvme_take_queue(struct pst_nvme_stack *s, uint32_t queue);

/* recover.c */
void pst_nvme_look_after(struct pst_nvme_stack *s, uint64_t now);
void pst_nvme_recover(struct pst_nvme_stack *s, uint32_t ssd);

#endif
