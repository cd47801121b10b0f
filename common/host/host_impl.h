/* host_impl.h: one running stage, as host.c (its life), ports.c and ports_open.c (frames and slots), sdk.c
 * (the rest of stage.h) and the bridge to foreign stages see it. Private to this room. Owner: pst_host_run.
 * Threads: the stage's own. */
#ifndef PST_HOST_IMPL_H
#define PST_HOST_IMPL_H

#include <jansson.h>
#include <stdarg.h>

#include "common/collective/collective.h"
#include "common/ipc/board.h"
#include "common/pipeline/desc/caps.h"
#include "common/pipeline/desc/desc.h"
#include "common/host/host.h"
#include "common/host/trace.h"
#include "common/util/clock.h"

#define PST_HOST_FDS_MAX 8

struct pst_host_peer {
    struct pst_page *page;
    void *push; /* PUSH socket to its inbox; shared by every link to that peer */
    char name[PST_NAME_MAX];
};

struct pst_host_input { /* one link that ends here */
    int port;
    bool back, ordered, ended;
    int nrings;
    struct pst_lane rings[PST_INSTANCES_MAX];
    struct pst_host_peer *producers[PST_INSTANCES_MAX];
    bool ring_ended[PST_INSTANCES_MAX];
    uint64_t next_batch; /* ordered: what must come next */
    uint32_t next_micro, next_part;
    struct pst_frame *pending; /* ordered: frames that came too early */
    uint32_t npending, pending_cap;
};

struct pst_host_output { /* one link that begins here */
    int port;
    int nrings;
    struct pst_lane rings[PST_INSTANCES_MAX];
    struct pst_host_peer *consumers[PST_INSTANCES_MAX];
};

struct pst_host_route_end { /* a route that passes through here */
    uint32_t id;
    char *base;
    uint32_t slots;
    uint64_t slot_bytes;
    struct pst_pool *pool;
    int origin_port; /* -1: borrowed */
    int via_port;    /* the port of this stage that it passes */
    bool on_gpu;     /* its slots lie in a GPU's own memory, which the host cannot touch */
    /* handover.c: one event for each slot that this stage records, and those of ntheirs other stages. NULL:
     * there are none, and the stage waits on the host. */
    void **mine, **theirs;
    uint32_t ntheirs;
    bool aside; /* a stage that does not wait for kernels writes to its slots */
    /* pst_slot_queued: the slot's event has been recorded; the event, if `mine` has none. */
    bool queued[PST_SLOTS_MAX];
    void *behind[PST_SLOTS_MAX];
    bool total_told, ended;
    uint32_t held_count; /* slots that were borrowed or granted, and not yet sent on or released */
    uint32_t open;       /* slots that were granted, and not yet sent or released */
    uint32_t hold;       /* how many may be open */
    uint8_t held[PST_SLOTS_MAX];
    bool announced[PST_SLOTS_MAX]; /* an early part named it; its last part has not come */
    bool granted[PST_SLOTS_MAX];   /* it is open, and did not come back by an input */
    double given_s[PST_SLOTS_MAX]; /* in a trace of a foreign stage: when its program got the slot; or 0 */
    struct pst_host_peer *origins[PST_INSTANCES_MAX];
    int norigins;
};

struct pst_stage {
    struct pst_host_process *process;
    char name[PST_NAME_MAX]; /* of the instance */
    struct pst_caps caps;
    struct pst_stage_desc desc; /* of what runs: the stage itself, or the bridge to a foreign one */
    void *state;
    json_t *config; /* the supervisor's "configure" message; strings point into it */
    json_t *params;
    int instance, instances;
    int replica, replicas;
    uint64_t seed, start_batch;
    uint64_t stop_batch; /* outputs that originate slots end before this batch; 0: at their total */
    int64_t epochs;
    bool overlap; /* the pipeline's */
    bool stops;   /* the pipeline has `stop`: after an epoch, the supervisor says whether to go on */
    double bus_bytes_per_s; /* of the pipeline's bus, dilated; 0: it has none */
    char board_path[PST_PATH_MAX];
    json_t *oneshots; /* port name -> path */

    void *control, *inbox;
    char control_endpoint[128];
    struct pst_region board_map;
    struct pst_region shared;                     /* with the other instances of the stage */
    struct pst_region resident[PST_REPLICAS_MAX]; /* what other replicas on this machine share, by number */
    struct pst_region shared_gpu, resident_gpu[PST_REPLICAS_MAX]; /* the same, in memory of GPUs */
    struct pst_region lent[PST_PORTS_MAX];       /* what the stage shares that fills the slots of an input */
    struct pst_collective *collective;           /* NULL: not open */
    const char *replica_names[PST_REPLICAS_MAX]; /* point into config */
    struct pst_board *board;
    struct pst_page *page;
    struct pst_host_peer peers[PST_STAGES_MAX];
    int npeers;
    struct pst_host_input inputs[PST_PORTS_MAX];
    int ninputs;
    struct pst_host_output outputs[PST_PORTS_MAX * 4];
    int noutputs;
    struct pst_host_route_end routes[PST_PORTS_MAX * 4];
    int nroutes;
    struct pst_region regions[PST_PORTS_MAX * 4];
    bool region_on_gpu[PST_PORTS_MAX * 4]; /* in a GPU's own memory */
    int nregions;

    json_t *needs; /* built during size */
    int fds[PST_HOST_FDS_MAX];
    int nfds;
    void *sockets[2]; /* ZeroMQ sockets that wake the stage like a descriptor (the bridge's) */
    double timer_at;  /* 0: none */
    int64_t in_flight, working;
    int64_t keep_alive; /* reasons not to end that are not IO */
    void *stream;       /* on a GPU: slots change hands in it, if in_stream is set */
    void *behind;       /* an event of it */
    bool in_stream;
    bool opened, started, sized, stopping, finishing;
    bool enough;       /* the supervisor ends the run after this epoch: no frame follows */
    bool debug;        /* nothing that stands still is an error */
    bool debug_wait;   /* it waits for a debugger before it opens */
    bool program_died; /* of a foreign stage: its log says why */
    struct pst_trace trace;
    double program_free_s; /* in a trace of a foreign stage: when its program last gave a slot back */
};

/* memory.c: maps a region, once in a process. For a stage on a GPU (gpu >= 0) its kernels can use it. */
pst_rc pst_host_map(struct pst_host_process *process, const char *path, uint64_t bytes, int gpu,
                    struct pst_region *out);
/* Maps all that the "open" message says stages share, but for other replicas' memory of GPUs. */
pst_rc pst_host_map_shared(struct pst_stage *self, const json_t *message);
/* From the start on, what is shared in the host's memory can only be read. */
pst_rc pst_host_seal(struct pst_stage *self);
/* Opens memory of another replica's GPU, if the "open" message has named it. */
pst_rc pst_host_map_resident_gpu(struct pst_stage *self, int replica);

/* ports.c */
/* Delivers frames, credits and ends that are there. True: there was something. */
bool pst_ports_step(struct pst_stage *self, pst_rc *rc);
bool pst_ports_finished(struct pst_stage *self);
pst_rc pst_ports_end(struct pst_stage *self); /* sends the end on every output */
pst_rc pst_ports_open(struct pst_stage *self, const json_t *message);
void pst_ports_close(struct pst_stage *self);
bool pst_ports_starved(struct pst_stage *self); /* waits for a credit */
/* It holds a slot of an input, if it has inputs, and a slot to fill, if it fills any: it can work. */
bool pst_ports_have_work(const struct pst_stage *self);
pst_rc pst_host_deliver(struct pst_stage *self, const struct pst_event *event);
struct pst_host_route_end *pst_host_route_end_find(struct pst_stage *self, uint32_t route);

/* A description with the callbacks of the copy between devices (copy.c), or of the bridge to an external
 * program (foreign.c). Ports and parameters are those of `described`. */
struct pst_stage_desc pst_host_copy_desc(const struct pst_stage_desc *described);
struct pst_stage_desc pst_host_foreign_desc(const struct pst_stage_desc *described);

/* trace_stage.c. Without a trace they do nothing. */
void pst_trace_event(struct pst_stage *self, const struct pst_event *event, uint64_t begin_ns,
                     uint64_t end_ns);
void pst_trace_sleep(struct pst_stage *self); /* the stage is about to sleep, or to end */
/* A foreign stage's program gets a slot, and gives it back. */
void pst_trace_given(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot);
void pst_trace_back(struct pst_stage *self, struct pst_host_route_end *route, uint32_t slot);

/* control.c */
pst_rc pst_control_send(struct pst_stage *self, json_t *message); /* takes the reference */
/* NULL, with errno EAGAIN: none came in time. */
json_t *pst_control_recv(struct pst_stage *self, int timeout_ms);
const char *pst_control_type(const json_t *message);
/* Waits for a message of this type. "stop" ends the wait, too. */
pst_rc pst_control_expect(struct pst_stage *self, const char *type, json_t **out);
/* Waits until a debugger is attached to the process, at most an hour. PST_E_INTERRUPTED: the run ends first.
 * A process that ends is not waited for. */
pst_rc pst_control_await_debugger(struct pst_stage *self, pid_t pid);
/* After an epoch was reported: waits until the supervisor says whether the run goes on. */
pst_rc pst_control_epoch(struct pst_stage *self);

#endif
