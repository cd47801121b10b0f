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

static struct pst_trace_span *add(struct pst_trace *trace, const char *name, double begin_s, double end_s)
{
    struct pst_trace_span *span = &trace->spans[trace->count++ % PST_TRACE_SPANS_MAX];
    size_t n = strnlen(name, sizeof span->name - 1);
    memcpy(span->name, name, n);
    span->name[n] = '\0';
    span->of_batch = false;
    span->begin_s = begin_s;
    span->end_s = end_s;
    return span;
}

void pst_trace_add(struct pst_trace *trace, const char *name, double begin_s, double end_s)
{
    if (trace->spans)
        (void)add(trace, name, begin_s, end_s);
}

void pst_trace_add_of(struct pst_trace *trace, const char *name, uint64_t batch, int hop, double begin_s,
                      double end_s)
{
    if (!trace->spans)
        return;
    struct pst_trace_span *span = add(trace, name, begin_s, end_s);
    span->of_batch = true;
    span->batch = batch;
    span->hop = hop;
}

static void write_span(const struct pst_trace_span *s, FILE *f, int pid)
{
    fprintf(f, "{\"ph\":\"X\",\"name\":\"%s", s->name);
    if (s->of_batch)
        fprintf(f, " %llu", (unsigned long long)s->batch);
    if (s->of_batch && s->hop >= 0)
        fprintf(f, ".%d", s->hop);
    fprintf(f, "\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f", pid, s->begin_s * 1e6,
            (s->end_s - s->begin_s) * 1e6);
    if (s->of_batch)
        fprintf(f, ",\"args\":{\"batch\":%llu", (unsigned long long)s->batch);
    if (s->of_batch && s->hop >= 0)
        fprintf(f, ",\"hop\":%d", s->hop);
    fputs(s->of_batch ? "}},\n" : "},\n", f);
}

pst_rc pst_trace_write(const struct pst_trace *trace, const char *path, const char *name, int pid)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return pst_fail_errno("cannot write the trace %s", path);
    fprintf(f, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}},\n",
            pid, name);
    uint64_t n = trace->count < PST_TRACE_SPANS_MAX ? trace->count : PST_TRACE_SPANS_MAX;
    for (uint64_t i = trace->count - n; i < trace->count; i++)
        write_span(&trace->spans[i % PST_TRACE_SPANS_MAX], f, pid);
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
