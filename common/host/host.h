/* host.h: runs one instance of one stage on the calling thread: talks to the supervisor, maps regions,
 * feeds the stage its events, and ends. penstock-stage calls pst_host_run once, or once per thread.
 * host_impl.h has what the files that implement it share. */
#ifndef PST_HOST_H
#define PST_HOST_H

#include <pthread.h>

#include "common/ipc/region.h"
#include "common/stage.h"

#define PST_WIRE_PROTOCOL 1
#define PST_HOST_REGIONS_MAX 128
#define PST_CONTROL_MAX_BYTES (1u << 22) /* the largest pipeline's open message is below 1 MiB */

/* What the threads of one process share: one ZeroMQ context, and each region mapped once (so that two
 * stages of a group see a slot at one address). */
struct pst_host_event_known { /* of a GPU, for hand-overs: handover.c */
    struct pst_host_event_known *next;
    void *event;
    int gpu;
    char name[];
};

struct pst_host_process {
    void *zmq;
    pthread_mutex_t lock;
    struct {
        char path[PST_REGION_PATH_MAX];
        struct pst_region region;
        int gpu;     /* whose memory it is, or for whose kernels it is pinned; -1: none */
        bool pinned; /* host memory that CUDA has registered */
    } regions[PST_HOST_REGIONS_MAX];
    int nregions;
    struct pst_host_event_known *events;
};

PST_MUST_USE pst_rc pst_host_process_init(struct pst_host_process *process);
void pst_host_process_release(struct pst_host_process *process);

/* Runs instance `name` against the supervisor at `control` until its work is done. */
pst_rc pst_host_run(struct pst_host_process *process, const char *control, const char *name);

#endif
