/* trace.h: spans of time of one stage, in a ring of bounded size, written as Chrome/Perfetto trace events.
 * Owner: the caller. Threads: one. */
#ifndef PST_TRACE_H
#define PST_TRACE_H

#include "common/base.h"

#define PST_TRACE_SPANS_MAX 32768 /* the last ones are kept */

struct pst_trace_span {
    char name[40];
    bool of_batch; /* batch is set */
    int hop;       /* of the batch; negative: of none */
    uint64_t batch;
    double begin_s, end_s; /* monotonic clock, shared by all processes of a machine */
};

struct pst_trace {
    struct pst_trace_span *spans; /* NULL: tracing is off */
    uint64_t count;
};

PST_MUST_USE pst_rc pst_trace_open(struct pst_trace *trace);
void pst_trace_add(struct pst_trace *trace, const char *name, double begin_s, double end_s);
/* The span is part of a batch and, if hop is not negative, of a hop. */
void pst_trace_add_of(struct pst_trace *trace, const char *name, uint64_t batch, int hop, double begin_s,
                      double end_s);
/* Writes "{...},\n" lines for process `pid` named `name` to path. */
PST_MUST_USE pst_rc pst_trace_write(const struct pst_trace *trace, const char *path, const char *name,
                                    int pid);
void pst_trace_close(struct pst_trace *trace);

#endif
