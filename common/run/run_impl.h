/* run_impl.h: the supervisor's state, which all files of this room share. Private to them. Owner: pst_run.
 * Threads: one. */
#ifndef PST_RUN_IMPL_H
#define PST_RUN_IMPL_H

#include "common/ipc/board.h"
#include "common/run/mps.h"
#include "common/ipc/proc.h"
#include "common/ipc/pulse.h"
#include "common/ipc/region.h"
#include "common/run/report.h"
#include "common/run/run.h"

enum pst_run_life {
    PST_RUN_BORN,
    PST_RUN_GREETED,
    PST_RUN_SIZING,
    PST_RUN_SIZED,
    PST_RUN_OPENING,
    PST_RUN_READY,
    PST_RUN_RUNNING,
    PST_RUN_DONE
};

struct pst_run_instance {
    int stage, number; /* in the pipeline; among its instances */
    char name[PST_NAME_MAX];
    char inbox[128];
    char endpoint[128]; /* of a foreign stage: where its program connects */
    int proc;
    int pid;
    enum pst_run_life life;
    bool early; /* it has no streams: it runs and ends before the others are sized (a planner) */
};

#define PST_RUN_MEMORY_HOSTS_MAX (2 * PST_PIPELINE_DEVICES_MAX) /* one for each cpu:N and each cuda:N */

struct pst_run_memory_host { /* the memory host of one device */
    char device[32], name[PST_NAME_MAX];
    int proc;
    bool greeted;
};

struct pst_run_block { /* one region of a memory host */
    int host;
    uint64_t bytes;
    char path[PST_REGION_PATH_MAX];
};

struct pst_run_events { /* of one stage on a GPU, one for each slot of a route: handover.h */
    int route, stage;
    int host;      /* the memory host that makes them; -1: the stage's process makes them */
    json_t *names; /* NULL: not yet known; null: there are none, and the route's stages wait on the host */
};

struct pst_run_stop { /* of the pipeline's `stop` */
    double best;
    json_int_t best_epoch, waited; /* -1: none; epochs since then */
    json_t *epochs;                /* [epoch, value] of each; NULL: no epoch has ended */
    bool told;                     /* that an epoch had no such metric */
};

struct pst_run_ranks { /* the process that talks to the other ranks */
    int proc;          /* -1: there is one rank */
    bool greeted, joined, done;
};

struct pst_supervisor {
    struct pst_pipeline *pl;
    const struct pst_graph *graph;
    const struct pst_run_options *opt;
    char id[20], control_endpoint[64];
    void *zmq, *control;
    int signals;
    struct pst_proc *procs;
    int nprocs, stage_procs; /* of which so many have stages */
    struct pst_pulse pulse;  /* one counter for each of procs */
    double looked_at;        /* when it was last looked at */
    bool stranger_told;
    struct pst_run_instance instances[PST_STAGES_MAX];
    int ninstances;
    struct pst_mps mps;
    struct pst_run_ranks ranks;
    struct pst_run_memory_host hosts[PST_RUN_MEMORY_HOSTS_MAX];
    int nhosts;
    /* [0] is the board, [1 + r] route r, [1 + nroutes + s] what the instances of stage s share (0 bytes:
     * nothing), [1 + nroutes + nstages + s] the same in memory of the stage's GPU */
    struct pst_run_block blocks[1 + PST_GRAPH_ROUTES_MAX + 2 * PST_STAGES_MAX];
    struct pst_run_events *events;
    int nevents;
    uint64_t slot_bytes[PST_GRAPH_ROUTES_MAX], align[PST_GRAPH_ROUTES_MAX];
    int asked_by[PST_GRAPH_ROUTES_MAX]; /* the stage that needs slots of slot_bytes */
    uint64_t pages_at, pools_at[PST_GRAPH_ROUTES_MAX];
    uint64_t
        rings_at[2 * PST_PIPELINE_LINKS_MAX]; /* of each link: producers x consumers rings from here on */
    uint32_t ring_refs[2 * PST_PIPELINE_LINKS_MAX], ring_capacity[2 * PST_PIPELINE_LINKS_MAX];
    uint64_t start_batch[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX]; /* of each stage */
    uint64_t meet_at[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX]; /* of a stage whose replicas meet; else 0 */
    struct pst_region board_map;
    struct pst_board *board;
    json_t *oneshots[PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX]; /* by stage: port -> path */
    json_t *report;
    bool allocated, opened, started, stopping;
    bool hurried;     /* the user asked to stop twice */
    bool enough;      /* the pipeline's `stop` ends the run */
    bool epochs_told; /* that epochs.jsonl could not be written */
    struct pst_run_stop stop;
    enum pst_run_end end;
    int signal;
    double since, progress_at, files_at;
    uint64_t progress_bytes; /* from disks, until progress_at */
    uint64_t moved;          /* of pst_watch_movement, and when it changed */
    double moved_at;
    int still_told;                             /* warnings since then */
    double launched_at, planned_at, started_at; /* 0: not yet. The streams begin after planned_at */
};

/* run.c: fails the run, and shows the end of the log of proc, unless it is NULL. */
void pst_run_fail(struct pst_supervisor *sv, const char *name, const struct pst_proc *proc, const char *fmt,
                  ...) PST_PRINTF(4, 5);

/* run.c: tells all stages to stop. Those that do not end within the deadline are killed. */
void pst_run_begin_stop(struct pst_supervisor *sv, const char *how, double deadline_s);

/* start.c. A message goes to the stage or memory host of this name; pst_run_tell takes the reference. */
void pst_run_tell(struct pst_supervisor *sv, const char *name, json_t *message);
void pst_run_tell_type(struct pst_supervisor *sv, const char *name, const char *type);
void pst_run_ask_block(struct pst_supervisor *sv, int block); /* of its memory host */
void pst_run_advance(
    struct pst_supervisor *sv); /* takes the steps of the start-up that have become possible */
/* Fills start_batch. A stage with several inputs of batches, such as a trainer that also validates, has a
 * number for each input, and so for the stages before this input. PST_E_ARG: the checkpoint's do not suit the
 * links. */
pst_rc pst_run_starts(struct pst_supervisor *sv);

/* say.c */
enum pst_run_log { PST_RUN_LOG_PATH, PST_RUN_LOG_TAIL };
/* Shows a warning, and keeps it in the report. */
void pst_run_warn(const struct pst_supervisor *sv, const char *name, const char *text);
/* proc: the process whose log is shown or named; NULL: none */
void pst_run_show_error(const struct pst_supervisor *sv, const char *name, const struct pst_proc *proc,
                        enum pst_run_log log, const char *text);
void pst_run_show_epoch(const struct pst_supervisor *sv, const json_t *data);
void pst_run_show_debug(const struct pst_supervisor *sv); /* how to attach a debugger to each process */
void pst_run_show_progress(struct pst_supervisor *sv, double now);
void pst_run_clear_line(const struct pst_supervisor *sv); /* before anything else is printed */

/* stuck.c: warns if no slot, frame or item has moved for a while, and says who holds what. paused: this
 * process or the machine stood still itself. */
void pst_watch_movement(struct pst_supervisor *sv, double now, bool paused);

/* stop.c. An epoch has ended with this row of the report: does the run end here? */
bool pst_run_stop_after(struct pst_supervisor *sv, const json_t *row);
/* If no stage has told the best epoch, it is that of the best metric: of `stop`, or val_accuracy. */
void pst_run_tell_best(struct pst_supervisor *sv);
void pst_run_stop_release(struct pst_supervisor *sv);

/* watch.c */
void pst_watch_procs(struct pst_supervisor *sv, double now); /* fails the run if one shows no sign of life */
void pst_watch_files(struct pst_supervisor *sv, double now); /* fails the run if one has changed */
/* Once the board is mapped. */
struct pst_page *pst_run_page_of(const struct pst_supervisor *sv, int instance);
const struct pst_pool *pst_run_pool_of(const struct pst_supervisor *sv, int route);

/* launch.c */
pst_rc pst_run_check_limits(const struct pst_supervisor *sv);
pst_rc pst_run_launch(struct pst_supervisor *sv);        /* starts the processes; with several ranks, only the
                                                            one that joins the others */
pst_rc pst_run_launch_stages(struct pst_supervisor *sv); /* then all others */
int pst_run_new_proc(struct pst_supervisor *sv, const char *name);
void pst_run_layout_board(struct pst_supervisor *sv); /* fills the offsets and blocks[0].bytes */
pst_rc pst_run_init_board(struct pst_supervisor *sv); /* call once there is memory for it */
/* Names and kinds of all instances, in the order of their pages; without the times. */
void pst_run_parts(const struct pst_supervisor *sv, const char **names, struct pst_run_part *parts);
json_t *pst_run_configure_message(const struct pst_supervisor *sv, int instance);
json_t *pst_run_open_message(const struct pst_supervisor *sv, int instance);
void pst_run_add_needs(struct pst_supervisor *sv, int instance, const json_t *needs);
pst_rc pst_run_size_routes(struct pst_supervisor *sv); /* fills blocks[1..]; all needs are known */
int pst_run_plan_host(struct pst_supervisor *sv, const char *device); /* the memory host of that device */

/* launch_meet.c. The first takes room on the board from `at` on, and returns the end of it. The second adds
 * the place, and the replicas' names by number, to a stage's "open" message, if the stage's replicas meet. */
uint64_t pst_run_layout_meetings(struct pst_supervisor *sv, uint64_t at);
json_t *pst_run_meeting(const struct pst_supervisor *sv, int stage); /* that place and those names */
void pst_run_add_meeting(const struct pst_supervisor *sv, json_t *message, int stage);

/* launch_meet.c: memory that the instances of a stage share, and that its replicas read from one another.
 * The first counts all blocks of such memory and of slots. The second plans the memory hosts of GPUs for it.
 * The third takes what a stage needs of it, and the fourth refuses what CUDA cannot share. The fifth adds its
 * place, and those of the other replicas, to the "open" message. The last adds the stages that get what a
 * one-shot output publishes to the "configure" message. */
int pst_run_blocks(const struct pst_supervisor *sv);
void pst_run_plan_shared(struct pst_supervisor *sv);
void pst_run_need_shared(struct pst_supervisor *sv, int stage, const json_t *need);
PST_MUST_USE pst_rc pst_run_check_shared(const struct pst_supervisor *sv);
void pst_run_add_in_place(const struct pst_supervisor *sv, json_t *message, int stage);
void pst_run_add_shared(const struct pst_supervisor *sv, json_t *message, int stage);
void pst_run_add_receivers(const struct pst_supervisor *sv, json_t *message, int stage);

/* launch_meet.c, with several ranks. */
pst_rc pst_run_launch_ranks(struct pst_supervisor *sv);
void pst_run_tell_ranks(struct pst_supervisor *sv); /* once the board is there: where the replicas meet */
void pst_run_hear_ranks(struct pst_supervisor *sv, const char *type, const json_t *message);
/* The number of the stage among the replicas of all ranks, and theirs, to its "configure" message. */
void pst_run_add_replica(const struct pst_supervisor *sv, json_t *message,
                         const struct pst_pipeline_stage_spec *stage);

/* launch_events.c */
pst_rc pst_run_plan_events(struct pst_supervisor *sv); /* who makes which events */
void pst_run_hear_events(struct pst_supervisor *sv, const char *who, const json_t *message);
bool pst_run_events_ready(const struct pst_supervisor *sv);
void pst_run_add_events(const struct pst_supervisor *sv, json_t *route, int r,
                        int stage); /* adds them to the stage's "open" message */
void pst_run_release_events(struct pst_supervisor *sv);

#endif
