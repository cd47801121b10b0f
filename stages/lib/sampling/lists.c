/* lists.c: fills slots whose neighbour lists are read from drives (Hyperion, section III-B: topology may lie
 * on SSDs). The sampler keeps one draft for each slot of its route `batch`. A draft that wants entries waits
 * for a slot of the route `lists`, sends it to a disk stage, and goes on when the slot comes back by
 * `listed`. Meanwhile other drafts do the same, so the drives have several batches' requests at a time. The
 * oldest draft that waits gets the next slot. */
#include <stdlib.h>

#include "common/error.h"
#include "stages/lib/sampling/draft.h"
#include "stages/lib/sampling/sampling_impl.h"

#define LISTS_SECTORS_MAX 16384 /* of a slot: 8 MiB; a hop that wants more takes several rounds */

/* A draft, and the slot that it fills. */
struct filling {
    bool used, waits; /* waits: for a slot for lists */
    struct pst_sampling_draft draft;
    struct pst_sampling_filled filled;
    struct pst_sampling_pending *batch;
    void *slot;
};

struct pst_sampling_lists {
    int out, in; /* ports lists and listed */
    uint64_t slot_bytes;
    uint32_t nfilling, nslots, nfree;
    struct filling *filling;
    struct pst_credit *free; /* slots for lists that nobody uses */
    uint32_t *user;          /* of each slot for lists: the number of its filling */
    struct pst_sampling_draft_counts counts;
};

/* ---- size and open -------------------------------------------------------------------------------- */

static pst_rc check(const struct pst_sampling *s, int out, int in)
{
    if (out < 0 || in < 0 || !pst_linked(s->self, out) || !pst_linked(s->self, in))
        return pst_fail(
            PST_E_ARG,
            "topology is \"ssd\", but the ports lists and listed are not both linked; link %s.lists to "
            "the lists of a disk stage, and the listed of that stage back to %s.listed "
            "(\"back\": true)",
            pst_stage_name(s->self), pst_stage_name(s->self));
    if (s->in.algorithm.algorithm->pick == NULL)
        return pst_fail(
            PST_E_ARG,
            "topology is \"ssd\", but the sampling algorithm %s needs the graph in memory; set topology "
            "to \"mmap\"",
            s->in.algorithm.algorithm->name);
    return PST_OK;
}

/* Sectors that a hop can want: one for each edge, or two for each new vertex. */
static int64_t sectors_of(const struct pst_minibatch_size *size)
{
    int64_t most = 1;
    for (int h = 0; h < size->hops; h++)
        most = pst_max_i64(most, pst_max_i64(size->edges[h], 2 * size->n[h]));
    return pst_min_i64(most, LISTS_SECTORS_MAX);
}

pst_rc pst_sampling_lists_size(struct pst_sampling *s)
{
    const int out = pst_port(s->self, "lists"), in = pst_port(s->self, "listed");
    const pst_rc rc = check(s, out, in);
    if (rc != PST_OK)
        return rc;
    s->lists = calloc(1, sizeof *s->lists);
    if (s->lists == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of slots for lists");
    s->lists->out = out;
    s->lists->in = in;
    s->lists->slot_bytes = pst_topology_reads_slot_bytes(sectors_of(&s->filler.layout.size));
    pst_need(s->self, out, s->lists->slot_bytes, PST_PAGE);
    return PST_OK;
}

pst_rc pst_sampling_lists_open(struct pst_sampling *s)
{
    struct pst_sampling_lists *l = s->lists;
    struct pst_topology_array indptr, indices;
    pst_topology_arrays(&s->in.ds, &indptr, &indices);
    l->nslots = pst_slots(s->self, l->out);
    l->nfilling = pst_slots(s->self, s->port);
    l->filling = calloc(l->nfilling, sizeof *l->filling);
    l->free = calloc(l->nslots, sizeof *l->free);
    l->user = calloc(l->nslots, sizeof *l->user);
    if (l->filling == NULL || l->free == NULL || l->user == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of %u slots", l->nfilling);
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < l->nfilling && rc == PST_OK; i++) {
        l->filling[i].filled.sampling = s;
        rc = pst_sampling_draft_init(&l->filling[i].draft, &s->filler, &indptr, &indices, &s->cached_lists,
                                     l->slot_bytes, &l->counts);
    }
    return rc;
}

/* ---- run ------------------------------------------------------------------------------------------ */

static pst_rc begin(struct pst_sampling *s, struct filling *f);

/* After each step: the draft is whole, or it waits for a slot for lists. */
static pst_rc after(struct pst_sampling *s, struct filling *f, pst_rc rc, bool done)
{
    bool again = false;
    if (rc != PST_OK)
        return pst_wrap(rc, "cannot sample batch %llu", (unsigned long long)f->batch->batch);
    f->waits = !done;
    if (!done)
        return PST_OK;
    rc = pst_sampling_end_piece(s, f->batch, &f->draft.job, &f->filled, &f->draft.result, &again);
    if (rc == PST_OK && again)
        return begin(s, f);
    f->used = false;
    return rc;
}

static pst_rc begin(struct pst_sampling *s, struct filling *f)
{
    bool done = false;
    const struct pst_fill_job job = pst_sampling_next_job(s, f->batch);
    f->filled.last_micro = job.last_micro;
    const pst_rc rc =
        pst_sampling_draft_begin(&f->draft, &job, f->slot, pst_sampling_send_part, &f->filled, &done);
    return after(s, f, rc, done);
}

static bool is_older(const struct filling *a, const struct filling *b)
{
    return a->filled.credit.batch < b->filled.credit.batch ||
           (a->filled.credit.batch == b->filled.credit.batch &&
            a->filled.credit.micro < b->filled.credit.micro);
}

static struct filling *oldest_waiting(struct pst_sampling_lists *l)
{
    struct filling *found = NULL;
    for (uint32_t i = 0; i < l->nfilling; i++) {
        struct filling *f = &l->filling[i];
        if (f->used && f->waits && (found == NULL || is_older(f, found)))
            found = f;
    }
    return found;
}

/* Sends the free slots to the disk stage with requests of the drafts that wait. */
static pst_rc ask(struct pst_sampling *s)
{
    struct pst_sampling_lists *l = s->lists;
    struct filling *f;
    while (l->nfree > 0 && (f = oldest_waiting(l)) != NULL) {
        const struct pst_credit credit = l->free[--l->nfree];
        uint64_t bytes = 0;
        void *slot = pst_slot(s->self, credit.ref, &bytes);
        if (slot == NULL || bytes < l->slot_bytes || credit.ref.slot >= l->nslots)
            return pst_fail(PST_E_STATE,
                            "a slot for lists of neighbours has %llu bytes, but this stage requested %llu: "
                            "this is a fault of Penstock",
                            (unsigned long long)bytes, (unsigned long long)l->slot_bytes);
        l->user[credit.ref.slot] = (uint32_t)(f - l->filling);
        f->waits = false;
        const struct pst_frame frame = {.batch = credit.batch,
                                        .micro = credit.micro,
                                        .flags = PST_LAST_PART | PST_LAST_MICRO,
                                        .nrefs = 1,
                                        .arg = {0, pst_sampling_draft_ask(&f->draft, slot)},
                                        .refs = {credit.ref}};
        const pst_rc rc = pst_send(s->self, l->out, &frame);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

pst_rc pst_sampling_lists_fill(struct pst_sampling *s, struct pst_sampling_pending *p,
                               const struct pst_credit *credit, void *slot)
{
    struct pst_sampling_lists *l = s->lists;
    struct filling *f = NULL;
    for (uint32_t i = 0; i < l->nfilling && f == NULL; i++) {
        if (!l->filling[i].used)
            f = &l->filling[i];
    }
    if (f == NULL)
        return pst_fail(PST_E_STATE,
                        "the runtime gave a free slot for batch %llu while this stage fills %u slots, which "
                        "is its limit: this is a fault of Penstock",
                        (unsigned long long)credit->batch, l->nfilling);
    f->used = true;
    f->filled.credit = *credit;
    f->batch = p;
    f->slot = slot;
    const pst_rc rc = begin(s, f);
    return rc == PST_OK ? ask(s) : rc;
}

/* A slot came back with its sectors. */
static pst_rc take(struct pst_sampling *s, const struct pst_frame *frame)
{
    struct pst_sampling_lists *l = s->lists;
    const void *slot = frame->nrefs == 1 ? pst_slot(s->self, frame->refs[0], NULL) : NULL;
    if (slot == NULL || frame->refs[0].slot >= l->nslots)
        return pst_fail(PST_E_PEER, "the port listed got a frame without a slot of the port lists: link the "
                                    "port lists to a disk stage, and the disk stage to the port listed");
    struct filling *f = &l->filling[l->user[frame->refs[0].slot]];
    bool done = false;
    pst_rc rc = pst_sampling_draft_take(&f->draft, slot, &done);
    rc = after(s, f, rc, done);
    return rc == PST_OK ? pst_consume(s->self, frame) : rc;
}

pst_rc pst_sampling_lists_event(struct pst_sampling *s, const struct pst_event *event)
{
    pst_rc rc = PST_OK;
    if (event->kind == PST_EV_CREDIT)
        s->lists->free[s->lists->nfree++] = event->credit;
    else if (event->kind == PST_EV_FRAME)
        rc = take(s, event->frame);
    return rc == PST_OK ? ask(s) : rc;
}

bool pst_sampling_lists_has_port(const struct pst_sampling *s, int port)
{
    return port == s->lists->out || port == s->lists->in;
}

/* ---- close ---------------------------------------------------------------------------------------- */

/* The drafts' expanders did the work. */
static void sum_times(const struct pst_sampling *s, double *sample_s, double *dedup_s)
{
    *sample_s = *dedup_s = 0;
    for (uint32_t i = 0; i < s->lists->nfilling; i++) {
        *sample_s += s->lists->filling[i].draft.expander.sample_s;
        *dedup_s += s->lists->filling[i].draft.expander.dedup_s;
    }
}

pst_rc pst_sampling_lists_report(const struct pst_sampling *s)
{
    double sample_s, dedup_s;
    if (s->lists->filling == NULL)
        return PST_OK;
    sum_times(s, &sample_s, &dedup_s);
    const struct pst_sampling_draft_counts *c = &s->lists->counts;
    return pst_report(s->self, "topology",
                      "{\"from\": \"ssd\", \"rounds\": %lld, \"sectors\": %lld, \"sector_bytes\": %d, "
                      "\"cached_lists\": %lld, \"list_reads\": %lld, \"gpu_list_reads\": %lld, "
                      "\"cpu_list_reads\": %lld, \"cpu_lines\": %lld, \"sample_s\": %.6f, \"dedup_s\": %.6f}",
                      (long long)c->rounds, (long long)c->sectors, PST_TOPOLOGY_SECTOR,
                      (long long)(s->cache_owner ? s->cached_lists.n : 0), (long long)c->lists,
                      (long long)c->gpu_lists, (long long)c->cpu_lists, (long long)c->cpu_lines, sample_s,
                      dedup_s);
}

void pst_sampling_lists_close(struct pst_sampling *s)
{
    struct pst_sampling_lists *l = s->lists;
    if (l == NULL)
        return;
    for (uint32_t i = 0; l->filling != NULL && i < l->nfilling; i++)
        pst_sampling_draft_release(&l->filling[i].draft);
    free(l->filling);
    free(l->free);
    free(l->user);
    free(l);
    s->lists = NULL;
}
