/* nvme.cuh: a drive as kernels see it (queues.cu), and as the host keeps it (drive.cu). */
#ifndef PST_NVME_CUH
#define PST_NVME_CUH

#include "kernels/nvme.h"
#include "kernels/cuda/queue.cuh"

#ifdef PST_HOST_BUILD
#include "common/util/clock.h"
#include <sched.h>
#endif

enum { PST_CU_NVME_SUBMIT_THREADS_MAX = 1024 };

struct pst_cu_nvme_tally { /* of a batch */
    uint32_t n, failed, first_failed;
};

/* Of a batch that was made of a table; zeroes before. */
struct pst_cu_nvme_aimed {
    int64_t n;
    uint32_t left;
    uint32_t bad; /* the largest of ~index of what is wrong; 0: none */
    unsigned long long rows, wanted, bytes, copied, merged;
};

/* How a request's rows come to their place. */
struct pst_cu_nvme_landing {
    char *to, *from; /* of the staging; to is NULL: they land where they belong */
    uint32_t bytes, rows;
    uint64_t wanted;
    uint32_t lead; /* the request whose command brings them: itself, or another; PST_NVME_NOBODY: none */
};
constexpr uint32_t PST_NVME_NOBODY = ~0u;
constexpr uint16_t PST_NVME_NO_QUEUE = 0xffff; /* of what is no command */

/* Requests of one batch that are to be staged, in the order of where their blocks lie (merge.cu). */
struct pst_cu_nvme_reach {
    uint64_t window, end; /* where reads are cut; of the window's blocks so far, the one behind the last */
};
struct pst_cu_nvme_run {
    uint32_t count, first; /* reads so far; where, in this order, the last of them begins */
};
struct pst_cu_nvme_merge {
    uint64_t *key, *sorted;   /* file, SSD and first block; beyond all of these: not staged. NULL: none is */
    uint32_t *number, *order; /* whose key it is: counted up, and as sorted */
    struct pst_cu_nvme_reach *reach;
    struct pst_cu_nvme_run *runs;
    /* of a key: its file and SSD, and below them its block; of the block, its place in a window */
    uint32_t place_bits, block_bits, window_bits;
    char *temp; /* CUB's */
    size_t temp_bytes;
};

/* All in the GPU's memory but queues, lists and doorbells, which are where the host has them. Several
 * batches' arrays lie one after the other: `most` each for commands, a number for each queue else. */
struct pst_cu_nvme_view {
    struct pst_nvme_queues q;
    uint32_t most;
    uint64_t timeout_ns;
    uint32_t *todo, *order;          /* commands: as they are, and by queue */
    uint32_t *begin;                 /* queues + 1: where each queue's begin in order */
    uint32_t *next, *left;           /* of the queue's commands: sent; not ended */
    uint32_t *count;                 /* async: lanes x queues */
    uint32_t *take, *broken, *locks; /* queues */
    struct pst_cu_nvme_tally *tally;
    uint32_t *strange;
    const uint32_t *stop; /* may be the host's */
    int32_t *status;      /* of the twin's queue */
    /* of tables: by request */
    const struct pst_k_nvme_layout *layout;
    struct pst_cu_nvme_aimed *aimed;
    struct pst_nvme_io *raw; /* of one batch: between two kernels */
    uint32_t *cursor;        /* queues: where the next command goes */
    struct pst_cu_nvme_landing *landings;
    uint32_t *sent, *remains; /* of a request that leads, its command; the requests that are the host's */
    struct pst_cu_nvme_merge merge;
};

/* The key of what is not staged. */
static __device__ __forceinline__ uint64_t pst_cu_nvme_not_staged(const struct pst_cu_nvme_merge &m)
{
    return (uint64_t)1 << (m.block_bits + m.place_bits);
}

/* A clock that does not stop. */
static __device__ __forceinline__ uint64_t pst_cu_now_ns()
{
#ifdef PST_HOST_BUILD
    (void)sched_yield(); /* the controller is another process, and needs the processor that waits here */
    return pst_clock_ns();
#else
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#endif
}

struct pst_k_nvme_drive {
    struct pst_k_nvme_drive_options o; /* pairs and shared: our own copies */
    struct pst_k_nvme_layout layout;   /* o.layout is this, or NULL */
    struct pst_cu_nvme_view view;
    struct pst_nvme_qp **pairs;
    struct pst_nvme_qp *images; /* what the GPU's pairs are to be, on the host */
    struct pst_k_nvme_shared *shared;
    bool *registered;                           /* by us */
    struct pst_nvme_qp *device_pairs, **places; /* the GPU's, and where each is */
    uint32_t **io_of;                           /* on the GPU, of each pair */
    uint32_t *asked;                            /* of each batch: requests of the table it was made of */
    char *memory;
};

pst_rc pst_cu_nvme_drive_new(const struct pst_k_nvme_drive_options *options, struct pst_k_nvme_drive **drive,
                             char *why);
void pst_cu_nvme_drive_free(struct pst_k_nvme_drive *d);
pst_rc pst_cu_nvme_drive_give_back(struct pst_k_nvme_drive *d, char *why);
pst_rc pst_cu_nvme_drive_take_over(struct pst_k_nvme_drive *d, char *why);
/* merge.cu: what is needed for batches of `most` requests, known from a drive's layout */
pst_rc pst_cu_nvme_merge_plan(struct pst_queue *q, const struct pst_k_nvme_layout *l, uint32_t ssds,
                              int64_t most, struct pst_cu_nvme_merge *m);
/* Makes commands of those of n requests that are to be staged; first: of their batch. */
void pst_cu_nvme_merge(struct pst_k_nvme_drive *d, uint32_t first, uint32_t n);
/* table.cu */
pst_rc pst_cu_nvme_aim_table(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_table *table,
                             struct pst_twin_n *n);
/* After completion, before the record: NULL for a batch that was not made of a table. */
const struct pst_cu_nvme_aimed *pst_cu_nvme_land(struct pst_k_nvme_drive *d, uint32_t batch);

#endif
