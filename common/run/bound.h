/* bound.h: which stage holds the others up. The report and `penstock top` ask this one function, so that they
 * agree. Owner: the caller. Threads: any. */
#ifndef PST_BOUND_H
#define PST_BOUND_H

#include "common/base.h"
#include "common/ipc/page.h"

/* What does a stage's work. */
enum pst_run_worker { PST_RUN_CPU, PST_RUN_GPU, PST_RUN_PROGRAM, PST_RUN_COPY };

struct pst_run_part { /* one instance of a stage */
    char stage[PST_NAME_MAX];
    enum pst_run_worker worker;
    bool streams; /* false: it works before the streams begin (a planner) */
    bool by_turn; /* each instance gets a fixed share of the batches; else whichever is free takes the next */
    double busy_s, disk_s; /* of the span that is judged: working, and waiting for its disk */
    double bus_s;          /* of busy_s: waiting for the pipeline's modelled bus */
};

/* "sampler.1" of "sampler" has this much of span_s to do: 0 to 1. */
double pst_run_share(const struct pst_run_part *part, double span_s);

/* Writes "trainer (cpu)": the stage with the largest share of span_s to do, and what does it: cpu, gpu, ssd,
 * bus, program (of a foreign stage) or copy (between devices). ssd: it waits for its disk more than it works.
 * bus: it waits for the modelled bus more than it works, or the bus holds up its disk. A stage that works
 * before the streams begin (a planner) is the bottleneck if it works twice as long as each of the others.
 * bus_s: seconds of span_s during which the bus moved bytes, of all stages; 0: there is no bus.
 * False, with an empty text: no stage did anything. */
PST_API bool pst_run_bound(const struct pst_run_part *parts, int n, double span_s, double bus_s,
                           char out[PST_NAME_MAX + 16]);

#endif
