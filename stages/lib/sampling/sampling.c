#include "stages/lib/sampling/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/dataset/rows.h"
#include "stages/lib/cache/cache_rows.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/seeds.h"

/* A batch of which some seeds are still to be sampled. */
struct pending {
    bool used;
    uint64_t batch;
    uint32_t micro; /* the next */
    int64_t n;
    int64_t *seeds;
    struct pst_splits pieces;
};

struct pst_sampling {
    struct pst_stage *self;
    int port;   /* batch */
    int cached; /* the port of cached rows; -1: they go to the batch's slots */
    bool split;
    double margin;
    struct pst_dataset ds;
    struct pst_csc graph;
    bool planned;
    struct pst_plan plan;
    struct pst_minibatch_size base; /* size at margin 1 */
    struct pst_filler filler;
    pst_sample_fn sample;
    void *user;
    struct pst_seeds seeds;
    struct pst_cache_rows cache;
    struct pst_device device;
    pst_device_sample_fn device_sample;
    struct pst_filler_device device_filler; /* on a GPU */
    bool topology_in_place;
    uint32_t npending; /* one a slot of the route */
    struct pending *pending;
    int64_t *seed_memory, *end_memory;
    struct pst_credit credit, credit_cached; /* being filled */
    bool credited, credited_cached;          /* one has come, and waits for the other port's */
    bool last_micro;
    struct {
        uint64_t batches, micro_batches, voids, hits, lookups;
        double seeds_s; /* their order */
    } count;
};

pst_rc pst_sampling_fanout(const struct pst_stage *self, int64_t *fanout, int *hops)
{
    size_t n = pst_param_ints(self, "fanout", fanout, PST_HOPS_MAX);
    if (n < 1 || n > PST_HOPS_MAX)
        return pst_fail(PST_E_ARG, "fanout has %zu hops; expected 1 to %d, for example [10, 5]", n,
                        PST_HOPS_MAX);
    *hops = (int)n;
    return PST_OK;
}

/* ---- size --------------------------------------------------------------------------------------- */

static pst_rc load_plan(struct pst_sampling *s, const struct pst_plan_key *want)
{
    int port = pst_port(s->self, "plan");
    const char *path =
        pst_linked(s->self, port) ? pst_oneshot(s->self, port) : pst_param_str(s->self, "plan");
    if (path == NULL || path[0] == '\0')
        return PST_OK;
    if (pst_linked(s->self, port) && pst_param_str(s->self, "plan")[0] != '\0')
        return pst_fail(PST_E_ARG,
                        "the parameter plan is \"%s\", but the port plan is linked too; drop one of them",
                        pst_param_str(s->self, "plan"));
    pst_rc rc = pst_plan_read(&s->plan, path);
    if (rc != PST_OK)
        return rc;
    s->planned = true;
    return pst_plan_match(&s->plan, want, 0, path);
}

static pst_rc open_dataset(struct pst_sampling *s)
{
    pst_rc rc = pst_dataset_open(&s->ds, pst_dataset_dir(s->self));
    if (rc != PST_OK)
        return rc;
    s->graph = (struct pst_csc){.indptr = s->ds.indptr.map,
                                .indices = s->ds.indices.map,
                                .index_bytes = (int)pst_dtype_bytes(s->ds.indices.dtype),
                                .vertices = s->ds.vertices,
                                .edges = s->ds.edges};
    struct pst_filler *f = &s->filler;
    f->labels = s->ds.labels.map;
    f->feature_dim = s->ds.feature_dim;
    f->feature_dtype = (uint32_t)s->ds.features.dtype;
    f->row_bytes = (uint64_t)s->ds.feature_dim * pst_dtype_bytes(s->ds.features.dtype);
    rc = pst_seeds_init(&s->seeds, &s->ds, pst_param_str(s->self, "split"), pst_param_int(s->self, "batch"),
                        pst_seed(s->self), pst_param_bool(s->self, "shuffle"));
    if (rc == PST_OK && s->seeds.repeats > 0)
        pst_warn(s->self, "the %s split names %lld vertices more than once; each is a seed once an epoch",
                 pst_param_str(s->self, "split"), (long long)s->seeds.repeats);
    return rc;
}

static pst_rc size_slots(struct pst_sampling *s)
{
    struct pst_plan_key want = {.batch = s->seeds.batch};
    memcpy(want.dataset, s->ds.digest, sizeof want.dataset);
    (void)snprintf(want.split, sizeof want.split, "%s", pst_param_str(s->self, "split"));
    pst_rc rc = pst_sampling_fanout(s->self, want.fanout, &want.hops);
    if (rc != PST_OK)
        return rc;
    rc = load_plan(s, &want);
    if (rc != PST_OK)
        return rc;
    memcpy(s->filler.fanout, want.fanout, sizeof want.fanout);
    struct pst_minibatch_size bound, size;
    pst_minibatch_size_bound(&bound, &s->graph, want.fanout, want.hops, s->seeds.batch);
    s->base = s->planned ? s->plan.max : bound;
    s->base.n[0] = bound.n[0];
    pst_minibatch_size_scale(&size, &s->base, &bound, s->margin);
    pst_minibatch_layout_init(&s->filler.layout, &size, s->ds.feature_dim > 0 ? s->ds.stride_bytes : 0);
    pst_need(s->self, s->port, s->filler.layout.bytes, PST_PAGE);
    pst_log(s->self, "slots of %llu bytes: %lld seeds, %lld vertices after %d hops; %s, margin %g",
            (unsigned long long)s->filler.layout.bytes, (long long)size.n[0], (long long)size.n[size.hops],
            size.hops, s->planned ? "sized by the plan" : "no plan: sized for the worst case", s->margin);
    return PST_OK;
}

pst_rc pst_sampling_size(struct pst_stage *self, struct pst_sampling **out, pst_sample_fn sample, void *user)
{
    struct pst_sampling *s = calloc(1, sizeof *s);
    *out = s;
    if (s == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for a sampler");
    s->self = self;
    s->sample = sample;
    s->user = user;
    s->port = pst_port(self, "batch");
    s->cached = -1;
    s->margin = pst_param_real(self, "margin");
    s->split = strcmp(pst_param_str(self, "overflow"), "split") == 0;
    pst_rc rc = open_dataset(s);
    return rc == PST_OK ? size_slots(s) : rc;
}

/* ---- open --------------------------------------------------------------------------------------- */

void pst_sampling_on_device(struct pst_sampling *s, pst_device_sample_fn sample)
{
    const int cached = pst_port(s->self, "cached");
    s->device_sample = sample;
    if (!pst_linked(s->self, cached))
        return;
    s->cached = cached;
    pst_need(s->self, cached, s->filler.layout.features_bytes, PST_PAGE);
}

static pst_rc open_device(struct pst_sampling *s)
{
    const pst_rc rc = pst_device_open(&s->device, pst_device(s->self));
    if (rc == PST_OK && pst_device_is_cuda(&s->device) && s->device_sample == NULL)
        return pst_fail(PST_E_UNSUPPORTED, "this sampler's algorithm is for CPUs, and it is placed on %s",
                        s->device.name);
    return rc;
}

static pst_rc load_cache(struct pst_sampling *s)
{
    if (!s->planned || s->plan.cached == 0 || s->ds.feature_dim == 0)
        return PST_OK;
    double begin = pst_now();
    pst_rc rc =
        pst_cache_rows_load(&s->cache, &s->device, pst_feature_file(&s->ds, 0), pst_feature_files(&s->ds),
                            s->ds.vertices, s->ds.stride_bytes, s->plan.cache, s->plan.cached);
    if (rc != PST_OK)
        return rc;
    s->filler.cache = s->device_filler.cache = s->cache.index;
    s->filler.cache_rows = s->device_filler.cache_rows = s->cache.rows;
    pst_log(s->self, "cached %lld rows in %.3f s; the plan predicts a hit rate of %.3f",
            (long long)s->cache.n, pst_now() - begin, s->plan.predicted_hit_rate);
    pst_plan_release(&s->plan);
    return PST_OK;
}

static pst_rc make_pending(struct pst_sampling *s)
{
    s->npending = pst_slots(s->self, s->port);
    size_t seeds = (size_t)s->npending * (size_t)s->seeds.batch;
    s->pending = calloc(s->npending, sizeof *s->pending);
    s->seed_memory = malloc(seeds * sizeof *s->seed_memory);
    s->end_memory = malloc(seeds * sizeof *s->end_memory);
    if (s->pending == NULL || s->seed_memory == NULL || s->end_memory == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for the seeds of %u batches", s->npending);
    for (uint32_t i = 0; i < s->npending; i++)
        s->pending[i].seeds = s->seed_memory + (size_t)i * (size_t)s->seeds.batch;
    return PST_OK;
}

/* The CPU's expander only measures, for messages. */
static pst_rc open_on_device(struct pst_sampling *s)
{
    const uint64_t budget = (uint64_t)pst_param_int(s->self, "gpu_topology");
    struct pst_expander *measure = &s->filler.expander;
    struct pst_csc graph;
    *measure = (struct pst_expander){.graph = &s->graph, .sample = s->sample, .user = s->user};
    pst_rc rc = pst_expand_device_queue_for(&s->device, &s->filler.layout.size);
    if (rc == PST_OK)
        rc = pst_expand_device_topology(&s->device, &s->graph, budget, &graph, &s->topology_in_place);
    if (rc == PST_OK)
        rc = load_cache(s);
    if (rc == PST_OK)
        rc = pst_filler_device_init(&s->device_filler, &s->filler, &s->device, &graph, s->device_sample,
                                    s->user);
    if (rc == PST_OK)
        rc = pst_stream(s->self, s->device.twin->stream(s->device.q));
    if (rc == PST_OK)
        pst_log(s->self, "on %s: %llu bytes of its memory; the topology is %s", s->device.name,
                (unsigned long long)s->device.device_bytes,
                s->topology_in_place ? "read in pinned memory" : "there");
    return rc;
}

static pst_rc open_on_cpu(struct pst_sampling *s)
{
    const pst_rc rc = load_cache(s);
    return rc == PST_OK ? pst_filler_init(&s->filler, &s->graph, s->sample, s->user) : rc;
}

pst_rc pst_sampling_open(struct pst_sampling *s)
{
    pst_rc rc = open_device(s);
    if (rc == PST_OK)
        rc = pst_device_is_cuda(&s->device) ? open_on_device(s) : open_on_cpu(s);
    if (rc == PST_OK)
        rc = make_pending(s);
    if (rc != PST_OK)
        return rc;
    pst_total(s->self, s->port, s->seeds.batches * (uint64_t)pst_epochs(s->self));
    if (s->cached >= 0)
        pst_total(s->self, s->cached, s->seeds.batches * (uint64_t)pst_epochs(s->self));
    return PST_OK;
}

/* ---- run ---------------------------------------------------------------------------------------- */

static pst_rc send_part(void *user, uint32_t part, uint64_t first_at, uint64_t count, bool last)
{
    struct pst_sampling *s = user;
    struct pst_frame frame = {.batch = s->credit.batch,
                              .micro = s->credit.micro,
                              .part = part,
                              .nrefs = 1,
                              .arg = {first_at, count},
                              .refs = {s->credit.ref}};
    if (last)
        frame.flags = PST_LAST_PART | (s->last_micro ? (unsigned)PST_LAST_MICRO : 0u);
    const pst_rc rc = pst_send(s->self, s->port, &frame);
    if (rc != PST_OK || !last || s->cached < 0)
        return rc;
    frame.part = 0;
    frame.arg[0] = frame.arg[1] = 0;
    frame.refs[0] = s->credit_cached.ref;
    return pst_send(s->self, s->cached, &frame);
}

static struct pending *find_pending(struct pst_sampling *s, uint64_t batch)
{
    for (uint32_t i = 0; i < s->npending; i++) {
        if (s->pending[i].used && s->pending[i].batch == batch)
            return &s->pending[i];
    }
    return NULL;
}

static pst_rc begin_batch(struct pst_sampling *s, uint64_t batch, struct pending **out)
{
    struct pending *p = NULL;
    for (uint32_t i = 0; i < s->npending && p == NULL; i++) {
        if (!s->pending[i].used)
            p = &s->pending[i];
    }
    if (p == NULL)
        return pst_fail(PST_E_STATE, "batch %llu was credited while %u batches wait for further slots",
                        (unsigned long long)batch, s->npending);
    size_t index = (size_t)(p - s->pending);
    p->used = true;
    p->batch = batch;
    p->micro = 0;
    const double begin = pst_now();
    p->n = pst_seeds_of(&s->seeds, batch, p->seeds);
    s->count.seeds_s += pst_now() - begin;
    pst_splits_init(&p->pieces, s->end_memory + index * (size_t)s->seeds.batch, p->n,
                    s->split ? s->filler.layout.size.n[0] : p->n);
    *out = p;
    return PST_OK;
}

/* Says what the batch would need, and which margin gives it. */
static pst_rc too_large(struct pst_sampling *s, const struct pst_fill_job *job)
{
    struct pst_minibatch_size need;
    int hop = 0;
    pst_rc rc = pst_sampling_measure(&s->filler, job, &need);
    if (rc != PST_OK)
        return rc;
    const struct pst_minibatch_size *have = &s->filler.layout.size;
    double margin = 0;
    while (hop + 1 < need.hops && need.n[hop + 1] <= have->n[hop + 1] && need.edges[hop] <= have->edges[hop])
        hop++;
    for (int h = 0; h <= need.hops; h++)
        margin = fmax(margin, (double)need.n[h] / (double)s->base.n[h]);
    for (int h = 0; h < need.hops; h++)
        margin = fmax(margin, (double)need.edges[h] / (double)pst_max_i64(1, s->base.edges[h]));
    char what[96];
    if (job->n == 1)
        (void)snprintf(what, sizeof what, "seed %lld alone", (long long)job->seeds[0]);
    else
        (void)snprintf(what, sizeof what, "its %lld seeds", (long long)job->n);
    return pst_fail(
        PST_E_LIMIT,
        "batch %llu does not fit a slot: in hop %d, %s would take %lld vertices and %lld edges, and a slot "
        "holds %lld and %lld; set margin to %.2f or more (it is %g)%s",
        (unsigned long long)job->batch, hop, what, (long long)need.n[hop + 1], (long long)need.edges[hop],
        (long long)have->n[hop + 1], (long long)have->edges[hop], ceil(margin * 100) / 100, s->margin,
        s->split ? "" : ", or overflow to \"split\"");
}

static struct pst_fill_job next_job(const struct pst_sampling *s, const struct pending *p)
{
    struct pst_fill_job job = {.seed = pst_seed(s->self),
                               .epoch = (uint32_t)(p->batch / s->seeds.batches),
                               .batch = p->batch,
                               .batch_in_epoch = p->batch % s->seeds.batches,
                               .batches_in_epoch = s->seeds.batches,
                               .micro = p->micro,
                               .batch_seeds = (uint32_t)p->n};
    int64_t begin = 0;
    bool more = pst_splits_next(&p->pieces, &begin, &job.n, &job.last_micro);
    assert(more);
    (void)more;
    job.seeds = p->seeds + begin;
    return job;
}

static void count_result(struct pst_sampling *s, const struct pst_fill_result *result)
{
    s->count.micro_batches++;
    s->count.voids += !result->fits;
    s->count.hits += result->hits;
    s->count.lookups += result->lookups;
    pst_count(s->self, 1, result->bytes_used);
}

static pst_rc slot_of(struct pst_sampling *s, const struct pst_credit *credit, uint64_t want, void **slot)
{
    uint64_t bytes = 0;
    *slot = pst_slot(s->self, credit->ref, &bytes);
    if (*slot == NULL)
        return PST_E_STATE;
    return bytes >= want ? PST_OK
                         : pst_fail(PST_E_STATE, "a slot has %llu bytes, but %llu were asked for",
                                    (unsigned long long)bytes, (unsigned long long)want);
}

/* Fills the credited slot with the batch's next piece; asks for a further slot while pieces remain. */
static pst_rc fill_credit(struct pst_sampling *s, struct pending *p)
{
    struct pst_fill_job job = next_job(s, p);
    void *slot = NULL, *cached = NULL;
    pst_rc rc = slot_of(s, &s->credit, s->filler.layout.bytes, &slot);
    if (rc == PST_OK && s->cached >= 0)
        rc = slot_of(s, &s->credit_cached, 1, &cached);
    if (rc != PST_OK)
        return rc;
    s->last_micro = job.last_micro;
    struct pst_fill_result result;
    rc = pst_device_is_cuda(&s->device)
             ? pst_fill_device(&s->device_filler, &job, slot, cached, send_part, s, &result)
             : pst_sampling_fill(&s->filler, &job, slot, send_part, s, &result);
    if (rc != PST_OK)
        return pst_wrap(rc, "sampling batch %llu", (unsigned long long)job.batch);
    count_result(s, &result);
    if (result.fits) {
        pst_splits_pop(&p->pieces);
    } else {
        if (!s->split || !pst_splits_split(&p->pieces))
            return too_large(s, &job);
        s->last_micro = false;
        rc = send_part(s, result.parts, s->filler.layout.requests_at, 0, true);
        if (rc != PST_OK)
            return rc;
    }
    p->micro++;
    if (p->pieces.depth > 0)
        return PST_OK; /* a credit for the next micro-batch will come */
    p->used = false;
    s->count.batches++;
    return PST_OK;
}

/* Both ports are credited in the same order: the runtime's promise (stage.h). */
static pst_rc note_credit(struct pst_sampling *s, const struct pst_event *event, bool *both)
{
    const bool cached = event->port == s->cached;
    *(cached ? &s->credit_cached : &s->credit) = event->credit;
    *(cached ? &s->credited_cached : &s->credited) = true;
    *both = s->cached < 0 || (s->credited && s->credited_cached);
    if (s->cached < 0 || !*both)
        return PST_OK;
    s->credited = s->credited_cached = false;
    return s->credit.batch == s->credit_cached.batch && s->credit.micro == s->credit_cached.micro
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "a credit came for micro-batch %u of batch %llu, and one for cached rows of "
                          "micro-batch %u of batch %llu",
                          s->credit.micro, (unsigned long long)s->credit.batch, s->credit_cached.micro,
                          (unsigned long long)s->credit_cached.batch);
}

pst_rc pst_sampling_on_event(struct pst_sampling *s, const struct pst_event *event)
{
    bool both = false;
    if (event->kind != PST_EV_CREDIT || (event->port != s->port && event->port != s->cached))
        return PST_OK; /* a sampler may have further ports of its own */
    const pst_rc noted = note_credit(s, event, &both);
    if (noted != PST_OK || !both)
        return noted;
    const struct pst_credit *credit = &s->credit;
    struct pending *p = find_pending(s, credit->batch);
    if (p == NULL && credit->micro == 0) {
        pst_rc rc = begin_batch(s, credit->batch, &p);
        if (rc != PST_OK)
            return rc;
    }
    if (p == NULL || p->micro != credit->micro)
        return pst_fail(PST_E_STATE,
                        "a credit came for micro-batch %u of batch %llu, which was not asked for",
                        credit->micro, (unsigned long long)credit->batch);
    return fill_credit(s, p);
}

/* ---- close -------------------------------------------------------------------------------------- */

/* Kernels take no times of their own: all that the device did is one. */
static pst_rc report_device(struct pst_sampling *s)
{
    return pst_report(s->self, "sampler",
                      "{\"batches\": %llu, \"micro_batches\": %llu, \"void\": %llu, \"slot_bytes\": %llu, "
                      "\"seeds_s\": %.6f, \"device_s\": %.6f, \"digest_s\": %.6f, \"device\": \"%s\", "
                      "\"device_bytes\": %llu, \"topology\": \"%s\"}",
                      (unsigned long long)s->count.batches, (unsigned long long)s->count.micro_batches,
                      (unsigned long long)s->count.voids, (unsigned long long)s->filler.layout.bytes,
                      s->count.seeds_s, s->device_filler.device_s, s->filler.digest_s, s->device.name,
                      (unsigned long long)s->device.device_bytes, s->topology_in_place ? "pinned" : "device");
}

static void report(struct pst_sampling *s)
{
    pst_rc rc = pst_report(s->self, "cache", "{\"hits\": %llu, \"lookups\": %llu, \"rows\": %lld}",
                           (unsigned long long)s->count.hits, (unsigned long long)s->count.lookups,
                           (long long)s->cache.n);
    if (rc == PST_OK && pst_device_is_cuda(&s->device))
        rc = report_device(s);
    else if (rc == PST_OK)
        rc = pst_report(s->self, "sampler",
                        "{\"batches\": %llu, \"micro_batches\": %llu, \"void\": %llu, \"slot_bytes\": %llu, "
                        "\"seeds_s\": %.6f, \"sample_s\": %.6f, \"dedup_s\": %.6f, \"gather_s\": %.6f, "
                        "\"digest_s\": %.6f}",
                        (unsigned long long)s->count.batches, (unsigned long long)s->count.micro_batches,
                        (unsigned long long)s->count.voids, (unsigned long long)s->filler.layout.bytes,
                        s->count.seeds_s, s->filler.expander.sample_s, s->filler.expander.dedup_s,
                        s->filler.gather_s, s->filler.digest_s);
    if (rc != PST_OK)
        pst_log(s->self, "the sampler's counts are not in the report: %s", pst_error_text());
}

void pst_sampling_close(struct pst_sampling *s)
{
    if (s == NULL)
        return;
    report(s);
    pst_filler_release(&s->filler);
    pst_filler_device_release(&s->device_filler);
    pst_cache_rows_release(&s->cache);
    pst_device_close(&s->device);
    pst_plan_release(&s->plan);
    pst_seeds_release(&s->seeds);
    free(s->pending);
    free(s->seed_memory);
    free(s->end_memory);
    pst_dataset_close(&s->ds);
    free(s);
}
