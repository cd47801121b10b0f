/* ahead.c: a sampler on a GPU. While the host waits for one batch, the next one is on the GPU's queue.
 * Batches are sent in the order of their numbers, as if there were one at a time. */
#include <string.h>

#include "common/error.h"
#include "stages/lib/sampling/sampling_impl.h"

/* A cache stage keeps the samples of its window, which can be all slots but one. If the sampler had taken
 * that one for the next batch, a batch that is split would wait for ever for a slot for its next piece. */
void pst_sampling_ahead_open(struct pst_sampling *s)
{
    s->ahead.depth = pst_overlap(s->self) && !(s->bare && s->params->split) ? PST_EXPAND_DEVICE_LANES : 1;
    if (s->ahead.depth == 1)
        return;
    pst_fill_ahead(s->self, s->port, (uint32_t)s->ahead.depth);
    if (s->cached >= 0)
        pst_fill_ahead(s->self, s->cached, (uint32_t)s->ahead.depth);
}

/* ---- credits -------------------------------------------------------------------------------------- */

static bool is_same(const struct pst_credit *a, const struct pst_credit *b)
{
    return a->batch == b->batch && a->micro == b->micro;
}

static pst_rc keep(struct pst_credit *credits, int *n, const struct pst_credit *credit)
{
    if (*n == PST_EXPAND_DEVICE_LANES)
        return pst_fail(
            PST_E_STATE,
            "the runtime gave a free slot for micro-batch %u of batch %llu on one of the ports for "
            "batches and cached rows, but not on the other: this is a fault of Penstock",
            credits[0].micro, (unsigned long long)credits[0].batch);
    credits[(*n)++] = *credit;
    return PST_OK;
}

/* A batch needs a slot of both ports, if cached rows have one. With a batch that is split, the ports may
 * grant theirs in different orders. */
static pst_rc note_credit(struct pst_sampling *s, const struct pst_event *event,
                          struct pst_sampling_filled *filled, bool *both)
{
    struct pst_sampling_ahead *a = &s->ahead;
    const bool cached = event->port == s->cached;
    struct pst_credit *others = cached ? a->credit : a->credit_cached;
    int *nothers = cached ? &a->ncredits : &a->ncredits_cached;
    *filled = (struct pst_sampling_filled){.sampling = s};
    *(cached ? &filled->credit_cached : &filled->credit) = event->credit;
    *both = s->cached < 0;
    for (int i = 0; i < *nothers && !*both; i++) {
        if (!is_same(&others[i], &event->credit))
            continue;
        *(cached ? &filled->credit : &filled->credit_cached) = others[i];
        others[i] = others[--*nothers];
        *both = true;
    }
    return *both    ? PST_OK
           : cached ? keep(a->credit_cached, &a->ncredits_cached, &event->credit)
                    : keep(a->credit, &a->ncredits, &event->credit);
}

/* ---- batches -------------------------------------------------------------------------------------- */

/* Puts the next piece of the flight's batch on the queue. */
static pst_rc begin_piece(struct pst_sampling *s, struct pst_sampling_flight *f)
{
    void *slot = NULL, *cached = NULL;
    const struct pst_fill_job job = pst_sampling_next_job(s, f->of);
    pst_rc rc = pst_sampling_slot_of(s, &f->filled.credit, s->filler.layout.bytes, &slot);
    if (rc == PST_OK && s->cached >= 0)
        rc = pst_sampling_slot_of(s, &f->filled.credit_cached, s->filler.layout.features_bytes, &cached);
    f->filled.last_micro = job.last_micro;
    if (rc == PST_OK)
        rc = pst_fill_device_begin(&s->device_filler, &job, slot, cached, &f->work);
    if (rc == PST_OK && s->ahead.depth > 1)
        rc = pst_slot_queued(s->self, f->filled.credit.ref);
    if (rc == PST_OK && s->ahead.depth > 1 && s->cached >= 0)
        rc = pst_slot_queued(s->self, f->filled.credit_cached.ref);
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot sample batch %llu", (unsigned long long)f->of->batch);
}

static pst_rc begin(struct pst_sampling *s, const struct pst_sampling_filled *filled)
{
    struct pst_sampling_flight *f = s->ahead.flight;
    while (f->of != NULL)
        f++;
    assert(f < s->ahead.flight + s->ahead.depth); /* the runtime gives no more credits at a time */
    f->filled = *filled;
    const pst_rc rc = pst_sampling_batch_of(s, &filled->credit, &f->of);
    if (rc != PST_OK)
        return rc;
    f->empty = f->of->pieces.depth == 0;
    return f->empty ? PST_OK : begin_piece(s, f);
}

/* Waits for the flight's piece and sends it. A piece that does not fit is cut and tried again in the same
 * slots. */
static pst_rc end(struct pst_sampling *s, struct pst_sampling_flight *f)
{
    struct pst_sampling_pending *p = f->of;
    bool again = true;
    pst_rc rc = PST_OK;
    if (f->empty) {
        f->of = NULL;
        return pst_sampling_send_empty(s, p, &f->filled);
    }
    while (again && rc == PST_OK) {
        struct pst_fill_result result;
        rc = pst_fill_device_end(&s->device_filler, &f->work, pst_sampling_send_part, &f->filled, &result);
        if (rc == PST_OK)
            rc = pst_sampling_end_piece(s, p, &f->work.job, &f->filled, &result, &again);
        else
            rc = pst_wrap(rc, "cannot sample batch %llu", (unsigned long long)p->batch);
        if (rc == PST_OK && again)
            rc = begin_piece(s, f);
    }
    f->of = NULL;
    return rc;
}

/* The flight whose batch is to be sent next. NULL: there is none; the batch may wait for a slot for its next
 * piece. */
static struct pst_sampling_flight *next(struct pst_sampling *s, int *flights)
{
    struct pst_sampling_flight *first = NULL;
    const struct pst_sampling_pending *oldest = NULL;
    for (uint32_t i = 0; i < s->npending; i++) {
        if (s->pending[i].used && (oldest == NULL || s->pending[i].batch < oldest->batch))
            oldest = &s->pending[i];
    }
    *flights = 0;
    for (int i = 0; i < s->ahead.depth; i++) {
        struct pst_sampling_flight *f = &s->ahead.flight[i];
        *flights += f->of != NULL;
        first = f->of != NULL && f->of == oldest ? f : first;
    }
    return first;
}

/* Ends batches until fewer than `most` are left, or the next one is not there. If one is left, the timer ends
 * it, unless a credit comes before. */
static pst_rc end_down_to(struct pst_sampling *s, int most)
{
    int flights;
    pst_rc rc = PST_OK;
    struct pst_sampling_flight *f;
    while ((f = next(s, &flights)) != NULL && flights > most && rc == PST_OK)
        rc = end(s, f);
    if (f != NULL)
        pst_timer(s->self, 0);
    return rc;
}

/* The timer fires once before the runtime has looked for credits. */
static pst_rc on_timer(struct pst_sampling *s)
{
    int flights;
    const bool idle = s->ahead.idle;
    (void)next(s, &flights);
    s->ahead.idle = true;
    return end_down_to(s, idle ? flights - 1 : flights);
}

pst_rc pst_sampling_ahead_event(struct pst_sampling *s, const struct pst_event *event)
{
    struct pst_sampling_filled filled;
    bool both = false;
    if (event->kind == PST_EV_TIMER)
        return on_timer(s);
    if (event->kind != PST_EV_CREDIT || (event->port != s->port && event->port != s->cached))
        return PST_OK; /* a stage may have more ports */
    s->ahead.idle = false;
    pst_rc rc = note_credit(s, event, &filled, &both);
    if (rc == PST_OK && both)
        rc = begin(s, &filled);
    return rc == PST_OK && both ? end_down_to(s, s->ahead.depth - 1) : rc;
}
