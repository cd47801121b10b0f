/* trace.c: spans and samples in memory. */
#include "common/host/trace.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { FLOW_BATCH_BITS = 35, FLOW_MICRO_BITS = 12 }; /* with 6 bits of the route 53, as a double has */

pst_rc pst_trace_open(struct pst_trace *trace)
{
    trace->count = trace->nsamples = 0;
    trace->spans = calloc(PST_TRACE_SPANS_MAX, sizeof *trace->spans);
    trace->samples = calloc(PST_TRACE_SAMPLES_MAX, sizeof *trace->samples);
    if (trace->spans && trace->samples)
        return PST_OK;
    pst_trace_close(trace);
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the trace");
}

static struct pst_trace_span *add(struct pst_trace *trace, const char *name, double begin_s, double end_s)
{
    struct pst_trace_span *span = &trace->spans[trace->count++ % PST_TRACE_SPANS_MAX];
    *span = (struct pst_trace_span){.begin_s = begin_s, .end_s = end_s};
    for (size_t i = 0; name[i] && i < sizeof span->name - 1; i++) /* a stage's text becomes a JSON string */
        span->name[i] = name[i] >= ' ' && name[i] < 127 && name[i] != '"' && name[i] != '\\' ? name[i] : '?';
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

void pst_trace_add_way(struct pst_trace *trace, const char *name, double begin_s, double end_s,
                       enum pst_trace_way way, uint64_t flow)
{
    if (!trace->spans)
        return;
    struct pst_trace_span *span = add(trace, name, begin_s, end_s);
    span->way = way;
    span->flow = flow;
}

uint64_t pst_trace_flow(uint32_t route, uint64_t batch, uint32_t micro)
{
    const uint64_t batches = (uint64_t)1 << FLOW_BATCH_BITS, micros = 1u << FLOW_MICRO_BITS;
    return ((route % 64) * micros + micro % micros) * batches + batch % batches;
}

static bool differs(const struct pst_trace_sample *a, const struct pst_trace_sample *b)
{
    return a->bytes != b->bytes || a->in_flight != b->in_flight || a->frames != b->frames ||
           a->free_slots != b->free_slots;
}

void pst_trace_add_sample(struct pst_trace *trace, const struct pst_trace_sample *sample, bool now)
{
    if (!trace->spans)
        return;
    if (trace->nsamples > 0) {
        const struct pst_trace_sample *last = &trace->samples[(trace->nsamples - 1) % PST_TRACE_SAMPLES_MAX];
        if (sample->at_s - last->at_s < PST_TRACE_SAMPLE_S && !(now && differs(sample, last)))
            return;
    }
    trace->samples[trace->nsamples++ % PST_TRACE_SAMPLES_MAX] = *sample;
}

void pst_trace_close(struct pst_trace *trace)
{
    free(trace->spans);
    free(trace->samples);
    memset(trace, 0, sizeof *trace);
}
