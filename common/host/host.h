/* host.h: runs one instance of one stage on the calling thread: talks to the supervisor, maps regions, gives
 * the stage its events, and ends. penstock-stage calls pst_host_run once, or once in each thread. Owner: the
 * caller owns the process. Threads: pst_host_run may run in several threads of one process. */
#ifndef PST_HOST_H
#define PST_HOST_H

#include <pthread.h>

#include "common/ipc/region.h"
#include "common/stage.h"

#define PST_WIRE_PROTOCOL 1
#define PST_HOST_REGIONS_MAX 128
#define PST_CONTROL_MAX_BYTES (1u << 22) /* the "open" message of the largest pipeline is below 1 MiB */

struct pst_host_event_known { /* an event of a GPU, for hand-overs: handover.c */
    struct pst_host_event_known *next;
    void *event;
    int gpu;
    char name[];
};

/* What the threads of one process share. Each region is mapped once, so that two stages of a group see a slot
 * at the same address. */
struct pst_host_process {
    void *zmq;
    pthread_mutex_t lock;
    struct {
        char path[PST_REGION_PATH_MAX];
        struct pst_region region;
        int gpu;     /* the GPU whose memory it is, or whose kernels use it; -1: none */
        bool pinned; /* host memory that CUDA has registered */
    } regions[PST_HOST_REGIONS_MAX];
    int nregions;
    struct pst_host_event_known *events;
};

PST_API PST_MUST_USE pst_rc pst_host_process_init(struct pst_host_process *process);
PST_API void pst_host_process_release(struct pst_host_process *process);

/* Runs instance `name` for the supervisor at the endpoint `control` until its work is done. */
PST_API pst_rc pst_host_run(struct pst_host_process *process, const char *control, const char *name);

#endif
