/* visits.c: the slots that are in the disk stage, from their first part until they go on. With an
 * accumulator, an iteration's requests wait here until they may go to the drives together with others
 * (gate.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/disk/disk.h"

#define LAUNCH_US 25       /* from the start of a kernel to its first access; GIDS, section 4.2 */
#define GATE_WAIT_US 50000 /* if no iteration comes for so long, those that wait go on */

/* ---- the gate ------------------------------------------------------------------------------------- */

/* What auto waits for: figures that are given, else those of the model, else measured ones. All times are
 * those before dilation: their product with IOPS is the same. */
static pst_rc find_accesses(struct pst_stage *self, struct disk *d)
{
    struct pst_io_driven n = {0};
    const double dilate = d->config.nvme.dilate;
    const bool driven = pst_disk_driven(d->engine, &n), peak = d->iop_peak > 0, initial = d->initial_us >= 0;
    const bool modelled = (peak || n.iops > 0) && (initial || n.latency_s > 0);
    struct pst_burst *b = &d->burst;
    *b = (struct pst_burst){.iop_peak = n.iops * dilate,
                            .ssds = driven && n.drives > 0 ? n.drives : 1,
                            .overhead_s = n.latency_s / dilate + (LAUNCH_US + d->terminal_us) * 1e-6};
    d->burst_from = peak && initial ? "given" : modelled && !d->probe ? "model" : "probe";
    if (strcmp(d->burst_from, "probe") == 0) {
        const pst_rc rc = pst_disk_stage_probe(self, d, b);
        if (rc != PST_OK)
            return rc;
        d->before = *pst_disk_stats(d->engine);
        b->iop_peak *= dilate;
        b->overhead_s /= dilate;
    }
    if (peak)
        b->iop_peak = d->iop_peak;
    if (initial)
        b->overhead_s = (d->initial_us + d->terminal_us) * 1e-6;
    d->gate.want = (uint64_t)llround(fmax(1, pst_burst_accesses(b, d->share)));
    return PST_OK;
}

pst_rc pst_disk_stage_gate_open(struct pst_stage *self, struct disk *d)
{
    bool automatic = false;
    d->burst_from = "";
    pst_rc rc = pst_gate_parse(&d->gate, d->accumulate, &automatic);
    if (rc == PST_OK && automatic)
        rc = find_accesses(self, d);
    if (rc == PST_OK && automatic)
        pst_log(self,
                "iterations are merged until they have %llu accesses: %.0f drives of %.0f IOPS, T_i + T_t "
                "%.0f us (%s)",
                (unsigned long long)d->gate.want, d->burst.ssds, d->burst.iop_peak, d->burst.overhead_s * 1e6,
                d->burst_from);
    return rc;
}

/* Whether requests of this pair wait at the gate. Those for lists never do: a sampler waits for them. */
static bool is_gated(const struct disk *d, enum pair pair)
{
    return pair == BATCHES && d->gate.kind != PST_GATE_NONE;
}

static struct visit *oldest_waiting(struct disk *d)
{
    struct visit *oldest = NULL;
    for (uint32_t i = 0; i < d->nvisits; i++) {
        struct visit *v = &d->visits[i];
        if (v->used && v->whole && !v->submitted && (oldest == NULL || v->order < oldest->order))
            oldest = v;
    }
    return oldest;
}

/* Counts what waits and what flies. Returns whether no further iteration can come before one of these ends.
 */
static bool count_iterations(struct pst_stage *self, struct disk *d)
{
    struct pst_gate *g = &d->gate;
    uint32_t here = 0;
    g->waiting = g->waiting_accesses = g->flying = g->flying_accesses = 0;
    for (uint32_t i = 0; i < d->nvisits; i++) {
        const struct visit *v = &d->visits[i];
        if (!v->used || v->pair != BATCHES)
            continue;
        here++;
        if (v->submitted) {
            g->flying++;
            g->flying_accesses += v->requests;
        } else if (v->whole) {
            g->waiting++;
            g->waiting_accesses += v->requests;
        }
    }
    return here == pst_slots(self, d->in[BATCHES]);
}

static void note_read(struct visit *v, uint32_t part)
{
    if (v->pair != BATCHES || v->nreads == PARTS_MAX)
        return;
    v->read[v->nreads].part = part;
    v->read[v->nreads++].since_s = pst_now();
}

static pst_rc submit(struct pst_stage *self, struct disk *d, struct visit *v)
{
    uint64_t bytes = 0;
    void *slot = pst_slot(self, v->frame.refs[0], &bytes);
    pst_rc rc = slot != NULL ? PST_OK : PST_E_STATE;
    for (uint32_t k = 0; k < v->parts && rc == PST_OK; k++) {
        note_read(v, k);
        rc = pst_disk_add(d->engine, &v->ticket, slot, bytes, v->part[k].at, v->part[k].n);
    }
    pst_disk_whole(d->engine, &v->ticket);
    v->submitted = true;
    return pst_wrap(rc, "batch %llu", (unsigned long long)v->frame.batch);
}

/* Once the gate opens, all that wait go together; of "off", one. */
pst_rc pst_disk_stage_submit(struct pst_stage *self, struct disk *d)
{
    pst_rc rc = PST_OK;
    if (!is_gated(d, BATCHES))
        return rc;
    const bool full = count_iterations(self, d), hurry = full || d->flush || d->ended;
    if (pst_gate_opens(&d->gate, hurry)) {
        d->bursts++;
        d->hurried += !pst_gate_opens(&d->gate, false);
        for (uint64_t n = d->gate.kind == PST_GATE_OFF ? 1 : d->gate.waiting; n > 0 && rc == PST_OK; n--)
            rc = submit(self, d, oldest_waiting(d));
        d->flush = false;
        d->gate.waiting = 0;
        pst_timer(self, -1);
    } else if (d->gate.waiting > 0 && d->gate.flying == 0) {
        pst_timer(self, GATE_WAIT_US);
    }
    return rc;
}

/* ---- slots ---------------------------------------------------------------------------------------- */

/* The visit of this frame's slot. The first part of a slot begins a new visit. */
static struct visit *visit_of(struct disk *d, enum pair pair, const struct pst_frame *frame)
{
    struct visit *unused = NULL;
    for (uint32_t i = 0; i < d->nvisits; i++) {
        struct visit *v = &d->visits[i];
        if (!v->used)
            unused = unused != NULL ? unused : v;
        else if (v->frame.refs[0].route == frame->refs[0].route &&
                 v->frame.refs[0].slot == frame->refs[0].slot)
            return v;
    }
    if (unused != NULL) {
        *unused = (struct visit){.used = true, .pair = pair, .frame = *frame, .order = d->order++};
        d->active++;
    }
    return unused;
}

/* A part announces requests: they go to the engine, or wait at the gate. */
static pst_rc take_part(struct pst_stage *self, struct disk *d, struct visit *v,
                        const struct pst_frame *frame)
{
    uint64_t bytes = 0;
    void *slot = pst_slot(self, frame->refs[0], &bytes);
    if (slot == NULL)
        return PST_E_STATE;
    v->requests += frame->arg[1];
    if (!is_gated(d, v->pair)) {
        note_read(v, frame->part);
        return pst_disk_add(d->engine, &v->ticket, slot, bytes, frame->arg[0], frame->arg[1]);
    }
    if (v->parts == PARTS_MAX)
        return pst_fail(PST_E_PEER,
                        "a batch has more than %d parts with disk requests: a stage must send its requests "
                        "in fewer parts",
                        PARTS_MAX);
    v->part[v->parts].at = frame->arg[0];
    v->part[v->parts++].n = frame->arg[1];
    return PST_OK;
}

pst_rc pst_disk_stage_accept(struct pst_stage *self, struct disk *d, enum pair pair,
                             const struct pst_frame *frame)
{
    if (frame->nrefs == 0)
        return pst_send(self, d->out[pair], frame);
    struct visit *v = visit_of(d, pair, frame);
    if (v == NULL || v->whole || v->frame.batch != frame->batch || v->frame.micro != frame->micro)
        return pst_fail(PST_E_PEER,
                        "slot %u arrived with batch %llu, micro-batch %u, part %u, but this stage has not "
                        "sent on the batch that came before in that slot",
                        frame->refs[0].slot, (unsigned long long)frame->batch, frame->micro, frame->part);
    const pst_rc rc = frame->arg[1] > 0 ? take_part(self, d, v, frame) : PST_OK;
    if (frame->flags & PST_LAST_PART) {
        v->whole = true;
        v->whole_s = pst_now();
        v->frame = *frame;
        v->frame.part = 0; /* the slot goes on as one part, which announces no requests */
        v->frame.arg[0] = v->frame.arg[1] = 0;
        if (!is_gated(d, pair)) {
            v->submitted = true;
            pst_disk_whole(d->engine, &v->ticket);
        }
    }
    return pst_wrap(rc, "batch %llu, part %u", (unsigned long long)frame->batch, frame->part);
}

void pst_disk_stage_trace(struct pst_stage *self, struct disk *d)
{
    for (uint32_t i = 0; i < d->nvisits && d->active > 0; i++) {
        struct visit *v = &d->visits[i];
        if (!v->used || v->nreads == 0 || !pst_disk_idle(&v->ticket))
            continue;
        v->served_s = pst_now();
        for (uint32_t k = 0; k < v->nreads; k++)
            pst_span_of(self, "R", v->frame.batch, (int)v->read[k].part, v->read[k].since_s, v->served_s);
        v->nreads = 0;
    }
}

/* Notes in the slot that its requests are served, and sends it on. */
static pst_rc send_visit(struct pst_stage *self, struct disk *d, struct visit *v)
{
    uint64_t bytes = 0;
    void *slot = v->requests > 0 ? pst_slot(self, v->frame.refs[0], &bytes) : NULL;
    if (v->requests > 0 && slot == NULL)
        return PST_E_STATE;
    if (v->pair == BATCHES)
        pst_minibatch_serve(slot, bytes, v->requests);
    v->used = false;
    d->active--;
    pst_count(self, 1, 0);
    if (v->pair == BATCHES)
        pst_span_of(self, "C", v->frame.batch, -1, v->whole_s,
                    v->served_s > v->whole_s ? v->served_s : pst_now());
    /* nobody waits for these slots: they go home, changed by the reads */
    return pst_linked(self, d->out[v->pair]) ? pst_send(self, d->out[v->pair], &v->frame)
                                             : pst_release(self, v->frame.refs[0], true);
}

pst_rc pst_disk_stage_send_whole(struct pst_stage *self, struct disk *d, bool *any)
{
    for (uint32_t i = 0; i < d->nvisits && d->active > 0; i++) {
        struct visit *v = &d->visits[i];
        if (!v->used || !v->submitted || !pst_disk_idle(&v->ticket))
            continue;
        *any = true;
        const pst_rc rc = send_visit(self, d, v);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}
