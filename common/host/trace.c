/* trace.c: spans in memory, and the file that they become. */
#include "common/host/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

pst_rc pst_trace_open(struct pst_trace *trace)
{
    trace->count = 0;
    trace->spans = calloc(PST_TRACE_SPANS_MAX, sizeof *trace->spans);
    return trace->spans ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the trace");
}

void pst_trace_add(struct pst_trace *trace, const char *name, double begin_s, double end_s)
{
    if (!trace->spans)
        return;
    struct pst_trace_span *span = &trace->spans[trace->count++ % PST_TRACE_SPANS_MAX];
    (void)snprintf(span->name, sizeof span->name, "%s", name);
    span->begin_s = begin_s;
    span->end_s = end_s;
}

pst_rc pst_trace_write(const struct pst_trace *trace, const char *path, const char *name, int pid)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return pst_fail_errno("cannot write the trace %s", path);
    fprintf(f, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}},\n",
            pid, name);
    uint64_t n = trace->count < PST_TRACE_SPANS_MAX ? trace->count : PST_TRACE_SPANS_MAX;
    for (uint64_t i = trace->count - n; i < trace->count; i++) {
        const struct pst_trace_span *s = &trace->spans[i % PST_TRACE_SPANS_MAX];
        fprintf(f, "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f},\n", s->name,
                pid, s->begin_s * 1e6, (s->end_s - s->begin_s) * 1e6);
    }
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return pst_fail_errno("cannot write the trace %s", path);
    return PST_OK;
}

void pst_trace_close(struct pst_trace *trace)
{
    free(trace->spans);
    memset(trace, 0, sizeof *trace);
}
