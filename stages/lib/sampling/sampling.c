/* sampling.c: a sampler stage except for its algorithm. */
#include "stages/lib/sampling/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "stages/lib/policy/policy_trace.h"
#include "stages/lib/sampling/sampling_impl.h"
#include "stages/lib/topology/topology.h"

/* The user is warned if more than one sample in so many does not fit. */
#define OVERFLOWS_ONE_IN 20
#define SAMPLES_MIN 20        /* before a running stage warns; a stage that ends warns in any case */
#define HEADROOM 1.05         /* of an advised margin, since later batches may be larger */
#define MEASURED_MAX 8        /* batches that are measured, to advise a margin */
#define TRACED_SHARE_SHIFT 24 /* of a traced micro-batch's number: above it, the replica's first grain */
#define MEASURED_SLOTS_MAX 16 /* but only if their worst case takes at most so many slots' memory */

/* ---- size --------------------------------------------------------------------------------------- */

/* The replicas divide the grains of each batch. `penstock check` has compared the numbers. If each replica
 * has its own seeds, its grains are all of its seeds; else they are a share of those that all have. */
static struct pst_sampling_order choose_share(struct pst_sampling *s)
{
    int replicas;
    const int replica = pst_replica(s->self, &replicas);
    const int64_t own = s->params->grains / replicas;
    const bool local = s->params->shuffle == PST_SEEDS_LOCAL;
    s->grain = replica * own;
    s->share = (struct pst_splits_share){
        .grains = local ? own : s->params->grains, .first = local ? 0 : s->grain, .count = own};
    return (struct pst_sampling_order){.seed = pst_seed(s->self),
                                       .edges = s->params->edges,
                                       .shuffle = s->params->shuffle != PST_SEEDS_FILE,
                                       .replica = replica,
                                       .replicas = local ? replicas : 0,
                                       .owner = s->plan.caches.owner,
                                       .vertices = s->plan.vertices};
}

/* Rows go with the batches, unless a cache stage adds them. gpu_ports: the stage has those for GPUs. */
static pst_rc choose_ports(struct pst_sampling *s, bool gpu_ports)
{
    const int sample = gpu_ports ? pst_port(s->self, "sample") : -1;
    s->port = pst_port(s->self, "batch");
    s->cached = gpu_ports ? pst_port(s->self, "cached") : -1;
    if (s->cached >= 0 && !pst_linked(s->self, s->cached))
        s->cached = -1;
    s->bare = sample >= 0 && pst_linked(s->self, sample);
    if (s->bare == pst_linked(s->self, s->port) || (s->bare && s->cached >= 0))
        return pst_fail(
            PST_E_ARG,
            "link either the output batch, whose minibatches have feature rows, or the output sample, whose "
            "minibatches have none (for a cache stage): the output cached can be linked only with batch");
    s->port = s->bare ? sample : s->port;
    return PST_OK;
}

pst_rc pst_sampling_size(struct pst_stage *self, const struct pst_sampling_params *params,
                         struct pst_sampling **out, const struct pst_sampling_algorithm *own, void *own_state)
{
    struct pst_sampling *s = calloc(1, sizeof *s);
    *out = s;
    if (s == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a sampler");
    s->self = self;
    s->params = params;
    s->now.sampling = s;
    s->early = params->margin >= 1;
    s->trace = -1;
    const char *plan = NULL;
    pst_rc rc = choose_ports(s, own == NULL || own->draw_on_device != NULL);
    if (rc == PST_OK)
        rc = pst_sampling_read_plan(s, &plan);
    if (rc == PST_OK)
        rc = pst_sampling_input_open(&s->in, self, &params->input, own, own_state, choose_share(s));
    if (rc == PST_OK)
        rc = pst_sampling_check_plan(s, plan);
    if (rc != PST_OK)
        return rc;
    if (s->in.seeds.repeats > 0)
        pst_warn(self, "the %s split contains %lld vertices more than once; each is a seed once per epoch",
                 s->in.key.split, (long long)s->in.seeds.repeats);
    if (params->edges)
        rc = pst_sampling_open_pairs(s);
    if (rc != PST_OK)
        return rc;
    pst_sampling_size_slots(s);
    if (params->trace_ids[0] != '\0' && pst_instance(self, NULL) == 0 &&
        pst_replica(self, NULL) == 0) /* the others open it later */
        rc = pst_policy_trace_open(params->trace_ids, true, &s->trace);
    if (rc == PST_OK)
        rc = pst_sampling_tiers_share(s);
    return rc == PST_OK && params->input.topology == PST_TOPOLOGY_SSD ? pst_sampling_lists_size(s) : rc;
}

/* ---- open --------------------------------------------------------------------------------------- */

static pst_rc make_pending(struct pst_sampling *s)
{
    s->npending = pst_slots(s->self, s->port);
    size_t seeds = (size_t)s->npending * (size_t)s->in.seeds.batch;
    s->pending = calloc(s->npending, sizeof *s->pending);
    s->seed_memory = malloc(seeds * sizeof *s->seed_memory);
    s->end_memory = malloc(seeds * sizeof *s->end_memory);
    if (s->pending == NULL || s->seed_memory == NULL || s->end_memory == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the seeds of %u batches", s->npending);
    for (uint32_t i = 0; i < s->npending; i++)
        s->pending[i].seeds = s->seed_memory + (size_t)i * (size_t)s->in.seeds.batch;
    return PST_OK;
}

/* The CPU's expander only measures, for messages. */
static pst_rc open_on_device(struct pst_sampling *s)
{
    struct pst_csc graph = s->in.graph; /* with the caches of a clique, the expander does not read it */
    const bool resident = s->plan.caches.replicas > 0;
    s->filler.expander = (struct pst_expander){.graph = &s->in.graph, .algorithm = &s->in.algorithm};
    pst_rc rc = s->filler.pairs != NULL
                    ? pst_fail(PST_E_UNSUPPORTED,
                               "seeds is edges, which a sampler on %s cannot sample: place the sampler on a "
                               "CPU",
                               s->device.name)
                    : pst_expand_device_queue_for(&s->device, &s->filler.layout.size);
    s->topology_in_place = resident;
    if (rc == PST_OK && !resident)
        rc = pst_topology_on_device(&s->device, &s->in.graph, s->params->input.gpu_topology_bytes, &graph,
                                    &s->topology_in_place);
    if (rc == PST_OK)
        rc = pst_sampling_tiers_load(s);
    if (rc == PST_OK)
        rc = pst_filler_device_init(&s->device_filler, &s->filler, &s->device, &graph, &s->in.algorithm);
    if (rc == PST_OK)
        rc = pst_stream(s->self, s->device.twin->stream(s->device.q));
    if (rc == PST_OK)
        pst_log(s->self, "on %s: %llu bytes of device memory; the topology is %s", s->device.name,
                (unsigned long long)s->device.device_bytes,
                resident               ? "read there, on peers, and in pinned memory"
                : s->topology_in_place ? "read in pinned memory"
                                       : "there");
    return rc;
}

static pst_rc open_on_cpu(struct pst_sampling *s)
{
    pst_rc rc = pst_sampling_tiers_load(s);
    if (rc == PST_OK && s->params->input.topology == PST_TOPOLOGY_MEMORY)
        rc = pst_topology_load(&s->in.graph, &s->topology_memory);
    if (rc == PST_OK)
        rc = pst_filler_init(&s->filler, &s->in.graph, &s->in.algorithm);
    if (rc == PST_OK)
        rc = pst_sampling_clique_open(s);
    return rc == PST_OK && s->lists != NULL ? pst_sampling_lists_open(s) : rc;
}

pst_rc pst_sampling_open(struct pst_sampling *s)
{
    const uint64_t batches = s->in.seeds.batches * (uint64_t)pst_epochs(s->self);
    pst_rc rc = pst_device_open(&s->device, pst_device_name(s->self));
    if (rc == PST_OK)
        rc = pst_device_is_cuda(&s->device) ? open_on_device(s) : open_on_cpu(s);
    if (rc == PST_OK)
        rc = make_pending(s);
    if (rc == PST_OK && s->params->trace_ids[0] != '\0' && s->trace < 0)
        rc = pst_policy_trace_open(s->params->trace_ids, false, &s->trace);
    if (rc != PST_OK)
        return rc;
    pst_total(s->self, s->port, batches);
    if (s->lists != NULL) /* each draft waits for its own lists */
        pst_fill_many(s->self, s->port);
    if (s->cached >= 0)
        pst_total(s->self, s->cached, batches);
    if (pst_device_is_cuda(&s->device))
        pst_sampling_ahead_open(s);
    return PST_OK;
}

/* ---- run ---------------------------------------------------------------------------------------- */

/* Writes the ids of a slot that is complete. An empty slot has none. */
static pst_rc trace_ids(const struct pst_sampling *s, const struct pst_credit *credit)
{
    const struct pst_minibatch *mb = pst_slot(s->self, credit->ref, NULL);
    if (mb == NULL)
        return PST_E_STATE;
    const int64_t n = mb->n[s->filler.layout.size.hops];
    return n == 0 ? PST_OK
                  : pst_policy_trace_append(s->trace, credit->batch,
                                            (uint32_t)s->grain << TRACED_SHARE_SHIFT | credit->micro,
                                            pst_minibatch_at(mb, s->filler.layout.vertices_at), n);
}

pst_rc pst_sampling_send_part(void *to, uint32_t part, uint64_t first_at, uint64_t count, bool last)
{
    const struct pst_sampling_filled *filled = to;
    const struct pst_sampling *s = filled->sampling;
    struct pst_frame frame = {.batch = filled->credit.batch,
                              .micro = filled->credit.micro,
                              .part = part,
                              .nrefs = 1,
                              .arg = {first_at, count},
                              .refs = {filled->credit.ref}};
    if (last)
        frame.flags = PST_LAST_PART | (filled->last_micro ? (unsigned)PST_LAST_MICRO : 0u);
    const pst_rc traced = last && s->trace >= 0 ? trace_ids(s, &filled->credit) : PST_OK;
    if (traced != PST_OK)
        return traced;
    const pst_rc rc = pst_send(s->self, s->port, &frame);
    if (rc != PST_OK || !last || s->cached < 0)
        return rc;
    frame.part = 0;
    frame.arg[0] = frame.arg[1] = 0;
    frame.refs[0] = filled->credit_cached.ref;
    return pst_send(s->self, s->cached, &frame);
}

static struct pst_sampling_pending *find_pending(struct pst_sampling *s, uint64_t batch)
{
    for (uint32_t i = 0; i < s->npending; i++) {
        if (s->pending[i].used && s->pending[i].batch == batch)
            return &s->pending[i];
    }
    return NULL;
}

static pst_rc begin_batch(struct pst_sampling *s, uint64_t batch, struct pst_sampling_pending **out)
{
    struct pst_sampling_pending *p = NULL;
    for (uint32_t i = 0; i < s->npending && p == NULL; i++) {
        if (!s->pending[i].used)
            p = &s->pending[i];
    }
    if (p == NULL)
        return pst_fail(PST_E_STATE,
                        "the runtime gave a free slot for batch %llu while %u batches wait for more slots, "
                        "which is the limit: this is a fault of Penstock",
                        (unsigned long long)batch, s->npending);
    size_t index = (size_t)(p - s->pending);
    p->used = true;
    p->overflowed = false;
    p->batch = batch;
    p->micro = 0;
    const double begin = pst_now();
    p->n = pst_seeds_of(&s->in.seeds, batch, p->seeds);
    p->n_of_all = pst_seeds_of_all(&s->in.seeds, batch);
    s->count.seeds_s += pst_now() - begin;
    pst_splits_init(&p->pieces, s->end_memory + index * (size_t)s->in.seeds.batch, p->n,
                    s->params->split && !s->params->edges ? s->filler.layout.size.n[0] : pst_max_i64(1, p->n),
                    &s->share);
    *out = p;
    return PST_OK;
}

/* ---- overflow ------------------------------------------------------------------------------------- */

/* The margin with which a slot would hold a sample that is `headroom` times as large as this. */
static double margin_for(const struct pst_sampling *s, const struct pst_minibatch_size *need, double headroom)
{
    double margin = 0;
    for (int h = 0; h <= need->hops; h++)
        margin = fmax(margin, (double)need->n[h] / (double)s->base.n[h]);
    for (int h = 0; h < need->hops; h++)
        margin = fmax(margin, (double)need->edges[h] / (double)pst_max_i64(1, s->base.edges[h]));
    return ceil(margin * headroom * 100) / 100;
}

/* Says what the batch would need, and which margin would do. */
static pst_rc too_large(struct pst_sampling *s, const struct pst_fill_job *job)
{
    struct pst_minibatch_size need;
    int hop = 0;
    pst_rc rc = pst_sampling_measure(&s->filler, job, &need);
    if (rc != PST_OK)
        return rc;
    const struct pst_minibatch_size *have = &s->filler.layout.size;
    while (hop + 1 < need.hops && need.n[hop + 1] <= have->n[hop + 1] && need.edges[hop] <= have->edges[hop])
        hop++;
    char what[96];
    if (job->n == 1)
        (void)snprintf(what, sizeof what, "seed %lld alone", (long long)job->seeds[0]);
    else
        (void)snprintf(what, sizeof what, "its %lld seeds", (long long)job->n);
    return pst_fail(PST_E_LIMIT,
                    "batch %llu does not fit a slot: in hop %d, %s would need %lld vertices and %lld edges, "
                    "but a slot holds only %lld and %lld; set margin to %.2f or more (it is %g)%s",
                    (unsigned long long)job->batch, hop, what, (long long)need.n[hop + 1],
                    (long long)need.edges[hop], (long long)have->n[hop + 1], (long long)have->edges[hop],
                    margin_for(s, &need, 1), s->params->margin,
                    s->params->split ? "" : ", or overflow to \"split\"");
}

/* Measures a batch that did not fit, so that the warning can say which margin would do. */
static void note_margin(struct pst_sampling *s, const struct pst_fill_job *job)
{
    const struct pst_minibatch_size *have = &s->filler.layout.size;
    struct pst_minibatch_size bound, need;
    pst_sampling_size_bound(&bound, &s->in.algorithm, &s->in.graph, s->filler.fanout, have->hops,
                            s->params->edges ? 2 * pst_sampling_pairs_of(&s->pairs, job->n) : job->n);
    if (s->measured < MEASURED_MAX && bound.n[bound.hops] <= MEASURED_SLOTS_MAX * have->n[have->hops] &&
        pst_sampling_measure(&s->filler, job, &need) == PST_OK)
        s->margin_needed = fmax(s->margin_needed, margin_for(s, &need, HEADROOM));
    s->measured++;
}

/* Warns once, if too many samples did not fit. */
static void warn_of_overflows(struct pst_sampling *s)
{
    char margin[64], plan[256] = "";
    if (s->warned || !s->params->split || s->count.overflows * OVERFLOWS_ONE_IN <= s->count.samples)
        return;
    s->warned = true;
    if (s->margin_needed > s->params->margin)
        (void)snprintf(margin, sizeof margin, "to %.2f or more", s->margin_needed);
    else
        (void)snprintf(margin, sizeof margin, "higher");
    if (s->other_plan)
        (void)snprintf(plan, sizeof plan,
                       "; the plan was made for the algorithm %s, but this stage uses %s: use the same "
                       "algorithm for the planner",
                       s->plan.key.algorithm, s->in.key.algorithm);
    pst_warn(s->self,
             "%llu of %llu samples (%.0f %%) did not fit a slot and were sampled again in smaller pieces: "
             "set the parameter margin of stage \"%s\" %s (it is %g)%s",
             (unsigned long long)s->count.overflows, (unsigned long long)s->count.samples,
             100 * (double)s->count.overflows / (double)s->count.samples, pst_stage_name(s->self), margin,
             s->params->margin, plan);
}

static pst_rc crowded(const struct pst_sampling *s, const struct pst_fill_job *job)
{
    return pst_fail(
        PST_E_LIMIT,
        "batch %llu does not fit a slot: more than %lld of its rows are not cached, and a slot has "
        "room for only so many; set margin to more than %g, or in_place to false%s",
        (unsigned long long)job->batch, (long long)s->filler.layout.size.stored, s->params->margin,
        s->params->split ? "" : ", or overflow to \"split\"");
}

/* The next piece of the batch did not fit. */
static pst_rc cut_piece(struct pst_sampling *s, struct pst_sampling_pending *p,
                        const struct pst_fill_job *job, const struct pst_fill_result *result)
{
    s->count.overflows++;
    s->early = false;
    if (!s->params->split || !pst_splits_split(&p->pieces))
        return result->crowded ? crowded(s, job) : too_large(s, job);
    if (!p->overflowed && !result->crowded)
        note_margin(s, job);
    p->overflowed = true;
    if (s->count.samples >= SAMPLES_MIN)
        warn_of_overflows(s);
    return PST_OK;
}

/* ---- filling -------------------------------------------------------------------------------------- */

/* A job of the batch, without its seeds. */
static struct pst_fill_job job_of(const struct pst_sampling *s, const struct pst_sampling_pending *p)
{
    return (struct pst_fill_job){.seed = pst_seed(s->self),
                                 .epoch = (uint32_t)(p->batch / s->in.seeds.batches),
                                 .batch = p->batch,
                                 .batch_in_epoch = p->batch % s->in.seeds.batches,
                                 .batches_in_epoch = s->in.seeds.batches,
                                 .micro = p->micro,
                                 .batch_seeds = (uint32_t)p->n_of_all,
                                 .whole_seeds = p->seeds,
                                 .whole_n = p->n,
                                 .overlap = pst_overlap(s->self),
                                 .early = s->early};
}

struct pst_fill_job pst_sampling_next_job(const struct pst_sampling *s, const struct pst_sampling_pending *p)
{
    struct pst_fill_job job = job_of(s, p);
    int64_t begin = 0;
    bool more = pst_splits_next(&p->pieces, &begin, &job.n, &job.last_micro);
    assert(more);
    (void)more;
    job.seeds = p->seeds + begin;
    job.grain = (uint32_t)(s->grain - s->share.first + pst_splits_grain(&p->pieces));
    return job;
}

static void count_result(struct pst_sampling *s, const struct pst_fill_result *result)
{
    s->count.micro_batches += result->fits;
    s->count.empty += !result->fits;
    s->count.hits += result->hits;
    s->count.gpu_hits += result->gpu_hits;
    s->count.in_place += result->in_place;
    s->count.lookups += result->lookups;
    pst_count(s->self, 1, result->bytes_used);
    pst_count_lookups(s->self, result->lookups, result->hits);
}

/* The spans of Hyperion's Figure 6. */
static void trace_spans(struct pst_sampling *s, uint64_t batch, const struct pst_fill_result *result)
{
    static const char *const names[] = {"N", "S", "L"};
    const struct pst_fill_span *const spans[] = {result->sample, result->submit, result->lookup};
    for (int i = 0; i < 3; i++)
        for (int h = 0; h <= s->filler.layout.size.hops; h++)
            if (spans[i][h].end_s > 0)
                pst_span_of(s->self, names[i], batch, h, spans[i][h].begin_s, spans[i][h].end_s);
}

pst_rc pst_sampling_slot_of(struct pst_sampling *s, const struct pst_credit *credit, uint64_t want,
                            void **slot)
{
    uint64_t bytes = 0;
    *slot = pst_slot(s->self, credit->ref, &bytes);
    if (*slot == NULL)
        return PST_E_STATE;
    return bytes >= want
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "a slot has %llu bytes, but this stage requested %llu: this is a fault of Penstock",
                          (unsigned long long)bytes, (unsigned long long)want);
}

pst_rc pst_sampling_end_piece(struct pst_sampling *s, struct pst_sampling_pending *p,
                              const struct pst_fill_job *job, struct pst_sampling_filled *filled,
                              const struct pst_fill_result *result, bool *again)
{
    s->count.samples++;
    trace_spans(s, filled->credit.batch, result);
    *again = !result->fits && result->parts == 0;
    pst_rc rc = result->fits ? PST_OK : cut_piece(s, p, job, result);
    if (rc != PST_OK || *again)
        return rc;
    count_result(s, result);
    if (result->fits) {
        pst_splits_pop(&p->pieces);
    } else {
        filled->last_micro = false;
        rc = pst_sampling_send_part(filled, result->parts, s->filler.layout.requests_at, 0, true);
        if (rc != PST_OK)
            return rc;
    }
    p->micro++;
    if (p->pieces.depth > 0)
        return PST_OK; /* a credit for the next micro-batch will come */
    p->used = false;
    s->early = !p->overflowed;
    s->count.batches++;
    return PST_OK;
}

/* Fills the slot with the batch's next piece. A piece that does not fit is cut and tried again in the same
 * slot, until one fits or the slot must travel empty. */
static pst_rc fill_slot(struct pst_sampling *s, struct pst_sampling_pending *p, void *slot)
{
    bool again = true;
    while (again) {
        struct pst_fill_result result;
        const struct pst_fill_job job = pst_sampling_next_job(s, p);
        s->now.last_micro = job.last_micro;
        pst_rc rc = s->resident.members > 0
                        ? pst_sampling_clique_fill(s, &job, slot, &result)
                        : pst_sampling_fill(&s->filler, &job, slot, pst_sampling_send_part, &s->now, &result);
        if (rc != PST_OK)
            return pst_wrap(rc, "cannot sample batch %llu", (unsigned long long)p->batch);
        rc = pst_sampling_end_piece(s, p, &job, &s->now, &result, &again);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* Fills the credited slot. */
static pst_rc fill_credit(struct pst_sampling *s, struct pst_sampling_pending *p)
{
    void *slot = NULL;
    const pst_rc rc = pst_sampling_slot_of(s, &s->now.credit, s->filler.layout.bytes, &slot);
    if (rc != PST_OK)
        return rc;
    return s->lists != NULL ? pst_sampling_lists_fill(s, p, &s->now.credit, slot) : fill_slot(s, p, slot);
}

pst_rc pst_sampling_send_empty(struct pst_sampling *s, struct pst_sampling_pending *p,
                               struct pst_sampling_filled *filled)
{
    struct pst_fill_job job = job_of(s, p);
    job.last_micro = true;
    job.grain = (uint32_t)s->grain;
    void *slot = NULL;
    const pst_rc rc = pst_sampling_slot_of(s, &filled->credit, s->filler.layout.bytes, &slot);
    if (rc != PST_OK)
        return rc;
    pst_fill_empty(&s->filler, &job, slot, 0);
    filled->last_micro = true;
    p->used = false;
    s->count.batches++;
    s->count.empty++;
    pst_count(s->self, 1, s->filler.layout.features_at);
    return pst_sampling_send_part(filled, 0, s->filler.layout.requests_at, 0, true);
}

pst_rc pst_sampling_batch_of(struct pst_sampling *s, const struct pst_credit *credit,
                             struct pst_sampling_pending **of)
{
    *of = find_pending(s, credit->batch);
    if (*of == NULL && credit->micro == 0) {
        pst_rc rc = begin_batch(s, credit->batch, of);
        if (rc != PST_OK)
            return rc;
    }
    return *of != NULL && (*of)->micro == credit->micro
               ? PST_OK
               : pst_fail(
                     PST_E_STATE,
                     "the runtime gave a free slot for micro-batch %u of batch %llu, which this stage did "
                     "not request: this is a fault of Penstock",
                     credit->micro, (unsigned long long)credit->batch);
}

pst_rc pst_sampling_on_event(struct pst_sampling *s, const struct pst_event *event)
{
    struct pst_sampling_pending *p;
    if (s->lists != NULL && pst_sampling_lists_has_port(s, event->port))
        return pst_sampling_lists_event(s, event);
    if (pst_device_is_cuda(&s->device))
        return pst_sampling_ahead_event(s, event);
    if (event->kind != PST_EV_CREDIT || event->port != s->port)
        return PST_OK; /* a stage may have more ports */
    s->now.credit = event->credit;
    const pst_rc rc = pst_sampling_batch_of(s, &event->credit, &p);
    if (rc != PST_OK)
        return rc;
    return p->pieces.depth > 0 ? fill_credit(s, p) : pst_sampling_send_empty(s, p, &s->now);
}

bool pst_sampling_between_batches(const struct pst_sampling *s)
{
    for (uint32_t i = 0; i < s->npending; i++)
        if (s->pending[i].used)
            return false;
    return true;
}

/* ---- close -------------------------------------------------------------------------------------- */

void pst_sampling_close(struct pst_sampling *s)
{
    if (s == NULL)
        return;
    warn_of_overflows(s);
    pst_sampling_report(s);
    pst_sampling_lists_close(s);
    pst_filler_release(&s->filler);
    pst_filler_device_release(&s->device_filler);
    pst_sampling_resident_device_release(&s->resident_device);
    pst_cache_rows_release(&s->cache);
    pst_topology_lists_release(&s->cached_lists);
    if (s->resident_draft != NULL)
        pst_sampling_draft_release(s->resident_draft);
    free(s->resident_draft);
    pst_sampling_resident_release(&s->resident);
    pst_device_close(&s->device);
    pst_plan_release(&s->plan);
    free(s->pending);
    free(s->seed_memory);
    free(s->end_memory);
    pst_sampling_pairs_release(&s->pairs);
    pst_sampling_input_close(&s->in);
    if (s->trace >= 0)
        (void)close(s->trace);
    free(s->topology_memory);
    free(s);
}
