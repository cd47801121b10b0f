/* disk.h: the state of the disk stage, for its parts: disk.c (ports, parameters, events), visits.c (slots
 * that are here), gap.c, probe.c and report.c.
 *
 * Owner: the runtime, which allocates it. Threads: one. */
#ifndef PST_DISK_STAGE_H
#define PST_DISK_STAGE_H

#include <sys/resource.h>

#include "common/slots/minibatch.h"
#include "common/stage.h"
#include "common/store/store.h"
#include "stages/lib/accumulate/gate.h"
#include "stages/lib/io/engine.h"

#define ARRAYS_MAX (PST_REQUEST_ARRAYS_MAX - PST_ARRAY_COUNT) /* of the run */
#define PARTS_MAX (PST_HOPS_MAX + 2)                          /* of a slot that announce requests */

/* The pairs of ports: slots come in by one and leave by the other. */
enum pair { BATCHES, LISTS, PAIRS };

/* A slot that is in this stage. */
struct visit {
    bool used, whole; /* whole: its last part has come */
    bool submitted;   /* its requests went to the engine */
    enum pair pair;
    struct pst_frame frame;
    struct pst_disk_ticket ticket;
    uint64_t requests; /* in all parts that have come */
    uint64_t order;    /* counts the visits */
    struct {
        uint64_t at, n;
    } part[PARTS_MAX]; /* if an accumulator holds them back: the tables */
    uint32_t parts;
    double whole_s; /* when the last part came */
    struct {        /* for the trace: parts whose requests went to the engine, until all of them are served */
        uint32_t part;
        double since_s;
    } read[PARTS_MAX];
    uint32_t nreads;
    double served_s; /* for the trace: when all requests that had come were served; 0: there were none */
};

struct disk {
    struct pst_disk_config config; /* most of it is filled from the parameters */
    int64_t fault_row;
    const char *arrays; /* names of arrays of the run, separated by commas */
    uint64_t piece;     /* bytes of their rows */
    char array_name[ARRAYS_MAX][PST_NAME_MAX], array_path[ARRAYS_MAX][PST_PATH_MAX];
    int in[PAIRS], out[PAIRS]; /* -1: not linked */
    struct pst_dataset ds;
    struct pst_disk *engine;
    struct visit *visits; /* one for each slot of the route */
    uint32_t nvisits, active;
    uint64_t order; /* of the next visit */
    const char *accumulate;
    double iop_peak, initial_us, terminal_us, share;
    bool probe; /* auto measures the drives, even if their speed is known */
    struct pst_gate gate;
    struct pst_burst burst;               /* auto: what the gate goes by */
    const char *burst_from;               /* "given", "model", "probe", or "" */
    double probe_s;                       /* how long the probe took; 0: there was none */
    struct pst_disk_stats before;         /* what the probe did, which the report leaves out */
    bool gap_auto;                        /* gap_bytes is "auto" */
    char gap_from[256];                   /* where the gap comes from */
    double drive_iops, drive_bytes_per_s; /* gap_auto: reads of a row, and large reads; 0: not known */
    double gap_measured_s;                /* how long that took; 0: it was not measured in this run */
    bool flush;                           /* no iteration came for a while: those that wait go on */
    bool ended;                           /* no more will come */
    uint64_t bursts, hurried;             /* times that the gate opened; of these, because no more came */
    int in_flight;                        /* the number last reported to the host */
    struct rusage faults;                 /* when the stage opened; page faults are counted from there */
};

/* probe.c: measures the drives, in `open`. found: with ssds set; gets the rest. PST_E_ARG: there are too few
 * rows. PST_E_STATE: the times fit no model. */
PST_MUST_USE pst_rc pst_disk_stage_probe(struct pst_stage *self, struct disk *d, struct pst_burst *found);

/* gap.c: the array whose rows are read most: its number in the configuration. */
int pst_disk_stage_array(const struct pst_disk_config *c);
/* gap.c: if gap_bytes is "auto", chooses it and tells the engine, in `open`. PST_E_IO: the drive does not
 * answer. */
PST_MUST_USE pst_rc pst_disk_stage_gap(struct pst_stage *self, struct disk *d);

/* visits.c. The first sets the gate by the parameters, in `open`. PST_E_ARG. */
PST_MUST_USE pst_rc pst_disk_stage_gate_open(struct pst_stage *self, struct disk *d);
/* A part of a slot came. */
PST_MUST_USE pst_rc pst_disk_stage_accept(struct pst_stage *self, struct disk *d, enum pair pair,
                                          const struct pst_frame *frame);
/* Submits the iterations that may go to the drives now. */
PST_MUST_USE pst_rc pst_disk_stage_submit(struct pst_stage *self, struct disk *d);
/* Puts what was read since the last call into the trace. */
void pst_disk_stage_trace(struct pst_stage *self, struct disk *d);
/* Sends every slot on that is complete. *any: there was one. */
PST_MUST_USE pst_rc pst_disk_stage_send_whole(struct pst_stage *self, struct disk *d, bool *any);

/* report.c */
void pst_disk_stage_report(struct pst_stage *self, const struct disk *d);

#endif
