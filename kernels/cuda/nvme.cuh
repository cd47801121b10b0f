/* nvme.cuh: a drive as kernels see it (nvme.cu), and as the host keeps it (nvme_drive.cu). */
#ifndef PST_NVME_CUH
#define PST_NVME_CUH

#include "../nvme.h"
#include "queue.cuh"

#ifdef PST_HOST_BUILD
#include <ctime>
#include <sched.h>
#endif

enum { PST_NVME_SUBMIT_THREADS_MAX = 1024 };

struct pst_nvme_tally { /* of a batch */
    uint32_t n, failed, first_failed;
};

/* Of a batch that was made of a table; zeroes before. */
struct pst_nvme_aimed {
    int64_t n;
    uint32_t left;
    uint32_t bad; /* the largest of ~index of what is wrong; 0: none */
    unsigned long long rows, wanted, bytes, copied;
};

/* How a request's rows come to their place. */
struct pst_nvme_landing {
    char *to; /* from the staging, `skip` bytes on; NULL: they land where they belong */
    uint32_t skip, bytes;
    uint32_t rows;
    uint64_t wanted;
};

/* All in the GPU's memory but queues, lists and doorbells, which are where the host has them. Several
 * batches' arrays lie one after the other: `most` each for commands, a number for each queue else. */
struct pst_nvme_view {
    struct pst_nvme_queues q;
    uint32_t most;
    uint64_t timeout_ns;
    uint32_t *todo, *order;          /* commands: as they are, and by queue */
    uint32_t *begin;                 /* queues + 1: where each queue's begin in order */
    uint32_t *next, *left;           /* of the queue's commands: sent; not ended */
    uint32_t *count;                 /* async: lanes x queues */
    uint32_t *take, *broken, *locks; /* queues */
    struct pst_nvme_tally *tally;
    uint32_t *strange;
    const uint32_t *stop; /* may be the host's */
    int32_t *status;      /* of the twin's queue */
    /* of tables: by request, and, `asked`, by command */
    const struct pst_nvme_layout *layout;
    struct pst_nvme_aimed *aimed;
    struct pst_nvme_io *raw; /* of one batch: between two kernels */
    uint32_t *cursor;        /* queues: where the next command goes */
    struct pst_nvme_landing *landings;
    uint32_t *asked, *remains; /* of a command, its request; the requests that are the host's */
};

/* A clock that does not stop. */
static __device__ __forceinline__ uint64_t pst_now_ns()
{
#ifdef PST_HOST_BUILD
    struct timespec ts;
    (void)sched_yield(); /* who waits is in the way of a controller that is another process */
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#else
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#endif
}

struct pst_nvme_drive {
    struct pst_nvme_drive_options o; /* pairs and shared: our own copies */
    struct pst_nvme_layout layout;   /* o.layout is this, or NULL */
    struct pst_nvme_view view;
    struct pst_nvme_qp **pairs;
    struct pst_nvme_qp *images; /* what the GPU's pairs are to be, on the host */
    struct pst_nvme_shared *shared;
    bool *registered;                           /* by us */
    struct pst_nvme_qp *device_pairs, **places; /* the GPU's, and where each is */
    uint32_t **io_of;                           /* on the GPU, of each pair */
    uint32_t *asked;                            /* of each batch: requests of the table it was made of */
    char *memory;
};

pst_rc pst_nvme_drive_new(const struct pst_nvme_drive_options *options, struct pst_nvme_drive **drive,
                          char *why);
void pst_nvme_drive_free(struct pst_nvme_drive *d);
pst_rc pst_nvme_drive_give_back(struct pst_nvme_drive *d, char *why);
pst_rc pst_nvme_drive_take_over(struct pst_nvme_drive *d, char *why);
/* nvme_table.cu */
pst_rc pst_nvme_aim_table(struct pst_nvme_drive *d, uint32_t batch, const struct pst_nvme_table *table,
                          struct pst_n *n);
/* After completion, before the record: NULL for a batch that was not made of a table. */
const struct pst_nvme_aimed *pst_nvme_land(struct pst_nvme_drive *d, uint32_t batch);

#endif
