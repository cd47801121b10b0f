/* nvme.cuh: a drive as kernels see it (queues.cu) and as the host has it (drive.cu). */
#ifndef PST_NVME_CUH
#define PST_NVME_CUH

#include "kernels/nvme.h"
#include "kernels/cuda/queue.cuh"

#ifdef PST_HOST_BUILD
#include "common/util/clock.h"
#include <sched.h>
#endif

enum { PST_CU_NVME_SUBMIT_THREADS_MAX = 1024 };

struct pst_cu_nvme_tally { /* counts of a batch */
    uint32_t n, failed, first_failed;
};

/* Counts of a batch that was made from a table; zeroed before. */
struct pst_cu_nvme_aimed {
    int64_t n;
    uint32_t left;
    uint32_t bad; /* the largest ~number of a wrong request; 0: none is wrong */
    unsigned long long rows, wanted, bytes, copied, merged;
};

/* Where the rows of a request land, and where they belong. */
struct pst_cu_nvme_landing {
    char *to, *from; /* from: in the staging; to NULL: they land where they belong */
    uint32_t bytes, rows;
    uint64_t wanted;
    uint32_t lead; /* the request whose command reads them, possibly itself; PST_NVME_NOBODY: none */
};
constexpr uint32_t PST_NVME_NOBODY = ~0u;
constexpr uint16_t PST_NVME_NO_QUEUE = 0xffff; /* for requests without a command */

/* Staged requests of a batch, in the order of their blocks (merge.cu). */
struct pst_cu_nvme_reach {
    uint64_t window, end; /* the window; the block behind the last one of this window so far */
};
struct pst_cu_nvme_run {
    uint32_t count, first; /* reads so far; the first request, in this order, of the last read */
};
struct pst_cu_nvme_merge {
    uint64_t *key, *sorted; /* file, SSD and first block; a larger key: not staged. NULL: nothing is staged */
    uint32_t *number, *order; /* the requests of the keys, before and after sorting */
    struct pst_cu_nvme_reach *reach;
    struct pst_cu_nvme_run *runs;
    /* bits of a key for file and SSD, and below them for the block; bits of a block's place in its window */
    uint32_t place_bits, block_bits, window_bits;
    char *temp; /* memory for CUB */
    size_t temp_bytes;
};

/* Everything is in the GPU's memory, except queues, PRP lists and doorbells, which are where the host has
 * them. The arrays of several batches follow each other: `most` elements for each batch of arrays by command,
 * otherwise one element for each queue. */
struct pst_cu_nvme_view {
    struct pst_nvme_queues q;
    uint32_t most;
    uint64_t timeout_ns;
    uint32_t *todo, *order;          /* commands in their own order, and by queue */
    uint32_t *begin;                 /* queues + 1: where each queue's commands begin in order */
    uint32_t *next, *left;           /* commands of each queue that were sent; that have not ended */
    uint32_t *count;                 /* async: lanes x queues */
    uint32_t *take, *broken, *locks; /* one for each queue */
    struct pst_cu_nvme_tally *tally;
    uint32_t *strange;
    const uint32_t *stop; /* may be memory of the host */
    int32_t *status;      /* the status of the twin's queue */
    /* for tables, by request */
    const struct pst_k_nvme_layout *layout;
    struct pst_cu_nvme_aimed *aimed;
    struct pst_nvme_io *raw; /* of one batch, between two kernels */
    uint32_t *cursor;        /* for each queue, where its next command goes */
    struct pst_cu_nvme_landing *landings;
    /* the command of a request that leads; the requests that are left to the host */
    uint32_t *sent, *remains;
    struct pst_cu_nvme_merge merge;
};

/* The key of a request that is not staged. */
static __device__ __forceinline__ uint64_t pst_cu_nvme_not_staged(const struct pst_cu_nvme_merge &m)
{
    return (uint64_t)1 << (m.block_bits + m.place_bits);
}

/* A clock that runs on while kernels wait. */
static __device__ __forceinline__ uint64_t pst_cu_now_ns()
{
#ifdef PST_HOST_BUILD
    (void)sched_yield(); /* let the controller run, which is another process */
    return pst_clock_ns();
#else
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#endif
}

/* Leaves the multiprocessor to other warps. */
static __device__ __forceinline__ void pst_cu_nap(uint32_t ns)
{
#ifdef PST_HOST_BUILD
    (void)ns; /* pst_cu_now_ns does that */
#else
    __nanosleep(ns);
#endif
}

struct pst_k_nvme_drive {
    struct pst_k_nvme_drive_options o; /* pairs and shared are our own copies */
    struct pst_k_nvme_layout layout;   /* o.layout is this, or NULL */
    struct pst_cu_nvme_view view;
    struct pst_nvme_qp **pairs;
    struct pst_nvme_qp *images; /* the GPU's pairs, as the host prepares them */
    struct pst_k_nvme_shared *shared;
    bool *registered;                           /* whether we registered it */
    struct pst_nvme_qp *device_pairs, **places; /* the GPU's pairs, and pointers to them */
    uint32_t **io_of;                           /* of each pair, on the GPU */
    uint32_t *asked;                            /* of each batch: how many requests its table had */
    char *memory;
};

pst_rc pst_cu_nvme_drive_new(const struct pst_k_nvme_drive_options *options, struct pst_k_nvme_drive **drive,
                             char *why);
void pst_cu_nvme_drive_free(struct pst_k_nvme_drive *d);
pst_rc pst_cu_nvme_drive_give_back(struct pst_k_nvme_drive *d, char *why);
pst_rc pst_cu_nvme_drive_take_over(struct pst_k_nvme_drive *d, char *why);
/* merge.cu: finds, from a layout, what merging batches of `most` requests needs */
pst_rc pst_cu_nvme_merge_plan(struct pst_queue *q, const struct pst_k_nvme_layout *l, uint32_t ssds,
                              int64_t most, struct pst_cu_nvme_merge *m);
/* Makes the commands of the staged ones among n requests; first: the first request of their batch. */
void pst_cu_nvme_merge(struct pst_k_nvme_drive *d, uint32_t first, uint32_t n);
/* table.cu */
pst_rc pst_cu_nvme_aim_table(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_table *table,
                             struct pst_twin_n *n);
/* Called by a warp: begin[i] = count(0) + ... + count(i - 1), for i from 0 to n. Returns begin[n]. */
template <class F>
static __device__ __forceinline__ uint32_t pst_cu_nvme_begins(uint32_t n, uint32_t *begin, F count)
{
    const uint32_t lane = threadIdx.x % PST_CU_WARP;
    uint32_t before = 0;
    for (uint32_t first = 0; first < n; first += PST_CU_WARP) {
        const uint32_t i = first + lane, mine = i < n ? count(i) : 0;
        uint32_t sum = mine;
        for (int by = 1; by < PST_CU_WARP; by *= 2) {
            const uint32_t from = __shfl_up_sync(0xFFFFFFFFu, sum, by);
            sum += (int)lane >= by ? from : 0;
        }
        if (i < n)
            begin[i] = before + sum - mine;
        before += __shfl_sync(0xFFFFFFFFu, sum, PST_CU_WARP - 1);
    }
    if (lane == 0)
        begin[n] = before;
    return before;
}

/* Lands the rows, after completion and before the record. NULL: the batch was not made from a table. */
const struct pst_cu_nvme_aimed *pst_cu_nvme_land(struct pst_k_nvme_drive *d, uint32_t batch);

#endif
