/* trace.h: what one stage did over time, in rings of bounded size, written as events that Chrome and Perfetto
 * read: spans, the way of each batch through the stages (a flow), and counters.
 * Owner: the caller. Threads: one. Times are seconds of the monotonic clock, which all processes of a machine
 * share. Every function but pst_trace_open does nothing if the trace is not open. */
#ifndef PST_TRACE_H
#define PST_TRACE_H

#include "common/base.h"

#define PST_TRACE_SPANS_MAX 32768   /* the last ones are kept */
#define PST_TRACE_SAMPLES_MAX 32768 /* the same */
#define PST_TRACE_SAMPLE_S 0.001    /* the shortest time between two samples while the stage works */

/* Where a span is in the way of its slot. */
enum pst_trace_way { PST_TRACE_NO_WAY, PST_TRACE_STARTS, PST_TRACE_PASSES, PST_TRACE_ENDS };

struct pst_trace_span {
    char name[40];
    bool of_batch; /* batch is set */
    int hop;       /* of the batch; negative: of none */
    uint64_t batch;
    double begin_s, end_s;
    enum pst_trace_way way;
    uint64_t flow; /* with a way: its number, see pst_trace_flow */
};

/* The counters at one time. What a stage does not have stays 0, and is not written. */
struct pst_trace_sample {
    double at_s;
    uint64_t bytes;      /* since the start */
    uint32_t in_flight;  /* requests */
    uint32_t frames;     /* that wait at its inputs */
    uint32_t free_slots; /* of the routes that begin here */
};

struct pst_trace {
    struct pst_trace_span *spans; /* NULL: tracing is off */
    struct pst_trace_sample *samples;
    uint64_t count, nsamples;
};

PST_API_TEST PST_MUST_USE pst_rc pst_trace_open(struct pst_trace *trace);
PST_API_TEST void pst_trace_add(struct pst_trace *trace, const char *name, double begin_s, double end_s);
/* The span is part of a batch and, if hop is not negative, of a hop. */
PST_API_TEST void pst_trace_add_of(struct pst_trace *trace, const char *name, uint64_t batch, int hop,
                                   double begin_s, double end_s);
/* The span is where a slot comes by. */
PST_API_TEST void pst_trace_add_way(struct pst_trace *trace, const char *name, double begin_s, double end_s,
                                    enum pst_trace_way way, uint64_t flow);
/* The number of the flow of a micro-batch: the same in every stage of its route. It fits a double. */
PST_API_TEST uint64_t pst_trace_flow(uint32_t route, uint64_t batch, uint32_t micro);
/* Adds a sample if none was added for PST_TRACE_SAMPLE_S, or, with `now`, if a counter has changed. */
PST_API_TEST void pst_trace_add_sample(struct pst_trace *trace, const struct pst_trace_sample *sample,
                                       bool now);
/* Writes "{...},\n" lines for process `pid` named `name` to path. Spans that do not nest get threads of their
 * own. */
PST_API_TEST PST_MUST_USE pst_rc pst_trace_write(const struct pst_trace *trace, const char *path,
                                                 const char *name, int pid);
PST_API_TEST void pst_trace_close(struct pst_trace *trace);

#endif
