/* trace_write.c: a trace as a file: one event of the Trace Event Format a line. */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/host/trace.h"

/* Spans of one thread must nest. A span that overlaps another one goes to the next thread of the stage. A
 * stage has hardly more batches at a time than slots. */
#define THREADS_MAX (PST_SLOTS_MAX + 1)
#define DEPTH_MAX 32

struct thread {
    double ends_s[DEPTH_MAX]; /* of the spans that are open, the outermost first */
    int depth;
    bool used;
};

struct entry {
    const struct pst_trace_span *span;
};

static int by_begin(const void *a, const void *b)
{
    const struct pst_trace_span *x = ((const struct entry *)a)->span, *y = ((const struct entry *)b)->span;
    if (x->begin_s != y->begin_s)
        return x->begin_s < y->begin_s ? -1 : 1;
    return x->end_s > y->end_s ? -1 : x->end_s < y->end_s; /* the outer one first */
}

static bool nests(struct thread *thread, const struct pst_trace_span *span)
{
    while (thread->depth > 0 && thread->ends_s[thread->depth - 1] <= span->begin_s)
        thread->depth--;
    if (thread->depth == DEPTH_MAX || (thread->depth > 0 && thread->ends_s[thread->depth - 1] < span->end_s))
        return false;
    thread->ends_s[thread->depth++] = span->end_s;
    thread->used = true;
    return true;
}

static int thread_of(struct thread threads[THREADS_MAX], const struct pst_trace_span *span)
{
    int t = 0;
    while (t < THREADS_MAX - 1 && !nests(&threads[t], span))
        t++;
    return t;
}

static void write_span(const struct pst_trace_span *s, FILE *f, int pid, int tid)
{
    static const char ways[] = {0, 's', 't', 'f'};
    fprintf(f, "{\"ph\":\"X\",\"name\":\"%s", s->name);
    if (s->of_batch)
        fprintf(f, " %llu", (unsigned long long)s->batch);
    if (s->of_batch && s->hop >= 0)
        fprintf(f, ".%d", s->hop);
    fprintf(f, "\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f", pid, tid, s->begin_s * 1e6,
            (s->end_s - s->begin_s) * 1e6);
    if (s->of_batch)
        fprintf(f, ",\"args\":{\"batch\":%llu", (unsigned long long)s->batch);
    if (s->of_batch && s->hop >= 0)
        fprintf(f, ",\"hop\":%d", s->hop);
    fputs(s->of_batch ? "}},\n" : "},\n", f);
    if (s->way != PST_TRACE_NO_WAY)
        fprintf(f,
                "{\"ph\":\"%c\",\"cat\":\"batch\",\"name\":\"batch\",\"id\":%llu,\"pid\":%d,\"tid\":%d,"
                "\"ts\":%.3f%s},\n",
                ways[s->way], (unsigned long long)s->flow, pid, tid, s->begin_s * 1e6,
                s->way == PST_TRACE_ENDS ? ",\"bp\":\"e\"" : "");
}

static void write_counter(FILE *f, int pid, double at_s, const char *name, const char *unit, double value)
{
    fprintf(f, "{\"ph\":\"C\",\"name\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":{\"%s\":%.9g}},\n",
            name, pid, at_s * 1e6, unit, value);
}

/* A rate holds from its sample to the next. Counters that are always 0 are left out. */
static void write_samples(const struct pst_trace *trace, FILE *f, int pid)
{
    const uint64_t n = trace->nsamples < PST_TRACE_SAMPLES_MAX ? trace->nsamples : PST_TRACE_SAMPLES_MAX;
    struct pst_trace_sample any = {0};
    for (uint64_t i = 0; i < n; i++) {
        any.bytes |= trace->samples[i].bytes;
        any.in_flight |= trace->samples[i].in_flight;
        any.frames |= trace->samples[i].frames;
        any.free_slots |= trace->samples[i].free_slots;
    }
    for (uint64_t i = trace->nsamples - n; i < trace->nsamples; i++) {
        const struct pst_trace_sample *s = &trace->samples[i % PST_TRACE_SAMPLES_MAX];
        const struct pst_trace_sample *next =
            i + 1 < trace->nsamples ? &trace->samples[(i + 1) % PST_TRACE_SAMPLES_MAX] : s;
        const double seconds = next->at_s - s->at_s;
        if (any.bytes)
            write_counter(f, pid, s->at_s, "bytes a second", "bytes",
                          seconds > 0 ? (double)(next->bytes - s->bytes) / seconds : 0);
        if (any.in_flight)
            write_counter(f, pid, s->at_s, "queue depth", "requests", s->in_flight);
        if (any.frames)
            write_counter(f, pid, s->at_s, "frames that wait", "frames", s->frames);
        if (any.free_slots)
            write_counter(f, pid, s->at_s, "free slots", "slots", s->free_slots);
    }
}

static void write_name(FILE *f, const char *what, int pid, int tid, const char *name, int number)
{
    fprintf(f, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s", what, pid, tid,
            name);
    if (number > 1)
        fprintf(f, " %d", number);
    fputs("\"}},\n", f);
}

static pst_rc write_spans(const struct pst_trace *trace, FILE *f, const char *name, int pid)
{
    const uint64_t n = trace->count < PST_TRACE_SPANS_MAX ? trace->count : PST_TRACE_SPANS_MAX;
    struct entry *order = calloc(n + 1, sizeof *order);
    struct thread *threads = calloc(THREADS_MAX, sizeof *threads);
    if (order && threads) {
        for (uint64_t i = 0; i < n; i++)
            order[i].span = &trace->spans[i];
        qsort(order, n, sizeof *order, by_begin);
        for (uint64_t i = 0; i < n; i++)
            write_span(order[i].span, f, pid, thread_of(threads, order[i].span));
        for (int t = 0; t < THREADS_MAX; t++)
            if (t == 0 || threads[t].used)
                write_name(f, "thread_name", pid, t, name, t + 1);
    }
    const pst_rc rc =
        order && threads ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot write the trace");
    free(order);
    free(threads);
    return rc;
}

pst_rc pst_trace_write(const struct pst_trace *trace, const char *path, const char *name, int pid)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return pst_fail_errno("cannot write the trace %s", path);
    write_name(f, "process_name", pid, 0, name, 1);
    fprintf(
        f,
        "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}},\n",
        pid, pid);
    const pst_rc rc = write_spans(trace, f, name, pid);
    write_samples(trace, f, pid);
    const bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return pst_fail_errno("cannot write the trace %s", path);
    return rc;
}
