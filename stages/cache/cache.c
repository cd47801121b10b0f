/* cache.c: the stage `cache`: keeps feature rows of past batches, and looks ahead before it evicts (GIDS,
 * section 3.4). Samples come in batch order. When a batch and the W after it are known, its rows are divided
 * into hits, rows of the constant buffer, and rows to read. The slot of rows goes to a disk stage and comes
 * back by `landed`; then the hits are copied to it. So looking ahead takes memory for samples, not for rows.
 */
#include <string.h>

#include "stages/cache/cache.h"

static pst_rc size(struct pst_stage *self)
{
    return pst_cache_stage_size(self, pst_state(self));
}

static pst_rc open_stage(struct pst_stage *self)
{
    return pst_cache_stage_open(self, pst_state(self));
}

/* ---- events --------------------------------------------------------------------------------------- */

/* Shows samples to the policy, but no more than its window has: what it decides must not depend on how many
 * have come. */
static pst_rc fill_window(struct pst_stage *self, struct cache *c, uint32_t window)
{
    for (; c->entered <= window && c->entered < c->nwaiting; c->entered++) {
        const struct pst_frame *sample = &c->waiting[(c->first + c->entered) % c->nwaiting_max];
        const pst_rc rc = pst_cache_stage_enter(self, c, sample);
        if (rc != PST_OK)
            return pst_wrap(rc, "batch %llu, micro-batch %u", (unsigned long long)sample->batch,
                            sample->micro);
    }
    return PST_OK;
}

/* The window after the oldest sample is known: asks for what it needs. */
static pst_rc take_oldest(struct pst_stage *self, struct cache *c)
{
    const struct pst_frame sample = c->waiting[c->first];
    c->first = (c->first + 1) % c->nwaiting_max;
    c->nwaiting--;
    c->entered--;
    c->credited = false;
    if (sample.batch != c->credit.batch || sample.micro != c->credit.micro)
        return pst_fail(PST_E_STATE,
                        "the runtime gave a free slot for micro-batch %u of batch %llu, but the oldest "
                        "waiting sample is micro-batch %u of batch %llu: this is a fault of Penstock",
                        c->credit.micro, (unsigned long long)c->credit.batch, sample.micro,
                        (unsigned long long)sample.batch);
    const pst_rc rc = pst_cache_stage_ask(self, c, &sample);
    return pst_wrap(rc, "batch %llu, micro-batch %u", (unsigned long long)sample.batch, sample.micro);
}

/* Whether the drives have enough to do without a further batch. Of the oldest batch, which they are reading,
 * nobody knows how much is left, so it does not count. */
static bool is_busy(const struct cache *c)
{
    return c->keep_in_flight > 0 && c->asked > 0 &&
           c->in_flight - c->jobs[c->first_job].asked >= c->keep_in_flight;
}

/* Shows the policy what it may know now. */
static pst_rc look_ahead(struct pst_stage *self, struct cache *c, uint32_t window)
{
    return c->kind == PST_POLICY_BELADY ? pst_cache_stage_begin_super_batch(self, c)
                                        : fill_window(self, c, window);
}

/* Decides batches while a slot of rows is free and the window after them, or their super-batch, is known. */
static pst_rc go_on(struct pst_stage *self, struct cache *c)
{
    const uint32_t window = pst_policy_looks_ahead(c->kind) ? (uint32_t)c->window : 0;
    pst_rc rc = look_ahead(self, c, window);
    while (rc == PST_OK && c->credited && c->asked < c->njobs && c->entered > 0 && !is_busy(c) &&
           (c->entered > window || c->ended)) {
        rc = take_oldest(self, c);
        if (rc == PST_OK)
            rc = look_ahead(self, c, window);
    }
    return rc;
}

static pst_rc take_sample(struct pst_stage *self, struct cache *c, const struct pst_frame *frame)
{
    if (!(frame->flags & PST_LAST_PART))
        return PST_OK;
    if (c->nwaiting == c->nwaiting_max || frame->nrefs != 1)
        return pst_fail(PST_E_PEER,
                        "batch %llu came with %u slots while %u samples wait; expected one slot, and at most "
                        "%u waiting samples",
                        (unsigned long long)frame->batch, frame->nrefs, c->nwaiting, c->nwaiting_max);
    c->waiting[(c->first + c->nwaiting++) % c->nwaiting_max] = *frame;
    c->count.waiting_max = c->nwaiting > c->count.waiting_max ? c->nwaiting : c->count.waiting_max;
    return pst_slot_queued(self, frame->refs[0]); /* no kernel reads it */
}

static pst_rc take_landed(struct pst_stage *self, struct cache *c, const struct pst_frame *frame)
{
    if (!pst_cache_stage_on_gpu(c))
        return pst_cache_stage_land(self, c, frame);
    if (c->nback == c->njobs)
        return pst_fail(
            PST_E_PEER,
            "batch %llu came back from the disk stage, but all %u slots of this route are already "
            "here: link only a disk stage between these two ports",
            (unsigned long long)frame->batch, c->njobs);
    c->back[(c->first_back + c->nback++) % c->njobs] = *frame;
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct cache *c = pst_state(self);
    pst_rc rc = PST_OK;
    if (event->kind == PST_EV_CREDIT && event->port == c->cached) {
        c->credit_cached = event->credit;
        c->credited_cached = true;
    }
    if (event->kind == PST_EV_FRAME && event->port == c->landed && (event->frame->flags & PST_LAST_PART))
        rc = take_landed(self, c, event->frame);
    if (rc == PST_OK && pst_cache_stage_on_gpu(c))
        rc = pst_cache_stage_gpu_land(self, c);
    if (rc == PST_OK)
        rc = pst_cache_stage_end_super_batch(self, c);
    if (rc != PST_OK)
        return rc;
    if (event->kind == PST_EV_FRAME && event->port == c->sample)
        rc = take_sample(self, c, event->frame);
    if (event->kind == PST_EV_CREDIT && event->port == c->rows) {
        c->credit = event->credit;
        c->credited = true;
    }
    if (event->kind == PST_EV_END && event->port == c->sample)
        c->ended = true;
    return rc == PST_OK ? go_on(self, c) : rc;
}

/* ---- close ---------------------------------------------------------------------------------------- */

static void report(struct pst_stage *self, const struct cache *c)
{
    const uint64_t found = c->count.hits + c->count.buffer_hits;
    const int64_t rows = c->nlines + c->buffer.n, gpu_rows = c->nlines + c->buffer.gpu_n;
    const uint64_t gpu_hits = c->count.hits + c->count.buffer_gpu_hits;
    const uint64_t sample = pst_slot_bytes(self, c->sample);
    pst_rc rc = pst_report(self, "cache",
                           "{\"hits\": %llu, \"gpu_hits\": %llu, \"lookups\": %llu, \"rows\": %lld, "
                           "\"gpu_rows\": %lld}",
                           (unsigned long long)found, (unsigned long long)gpu_hits,
                           (unsigned long long)c->count.lookups, (long long)rows, (long long)gpu_rows);
    if (rc == PST_OK)
        rc = pst_report(
            self, "lines",
            "{\"policy\": \"%s\", \"memory\": \"%s\", \"device_bytes\": %llu, "
            "\"window\": %lld, \"lines\": %lld, \"batches\": %llu, \"hits\": %llu, "
            "\"buffer_hits\": %llu, \"misses\": %llu, \"kept\": %llu, \"policy_bytes\": %llu, "
            "\"samples_held\": %u, \"sample_slots\": %u, \"sample_bytes\": %llu, \"window_bytes\": %llu, "
            "\"decide_s\": %.6f, \"copy_s\": %.6f}",
            pst_policy_name(c->kind), pst_cache_stage_on_gpu(c) ? "gpu" : "host",
            (unsigned long long)c->device.device_bytes, (long long)c->window, (long long)c->nlines,
            (unsigned long long)c->count.batches, (unsigned long long)c->count.hits,
            (unsigned long long)c->count.buffer_hits, (unsigned long long)(c->count.lookups - found),
            (unsigned long long)c->count.kept, (unsigned long long)pst_policy_bytes(c->policy),
            c->count.waiting_max, pst_slots(self, c->sample), (unsigned long long)sample,
            (unsigned long long)(sample * pst_slots(self, c->sample)), c->count.decide_s, c->count.copy_s);
    if (rc == PST_OK)
        rc = pst_cache_stage_report_super_batches(self, c);
    if (rc == PST_OK && c->page_bytes > 0)
        rc =
            pst_report(self, "mapping",
                       "{\"page_bytes\": %llu, \"line_rows\": %lld, \"lines\": %lld, \"touched\": %llu, "
                       "\"faults\": %llu, \"evictions\": %llu}",
                       (unsigned long long)c->page_bytes, (long long)c->line_rows, (long long)c->nlines,
                       (unsigned long long)c->count.units * c->row_pages, (unsigned long long)c->count.faults,
                       (unsigned long long)pst_policy_evictions(c->policy) * c->row_pages);
    if (rc == PST_OK)
        rc = pst_report(self, "governor", "{\"keep_in_flight\": %lld, \"slots\": %u, \"slots_used\": %u}",
                        (long long)c->keep_in_flight, c->njobs, c->count.asked_max);
    if (rc != PST_OK)
        pst_log(self, "cannot report the counts of this cache: %s", pst_error_text());
}

static void close_stage(struct pst_stage *self)
{
    struct cache *c = pst_state(self);
    if (c->policy != NULL)
        report(self, c);
    pst_cache_stage_release(c);
}

/* ---- what it says of itself ------------------------------------------------------------------------ */

/* A mapping's pages are in host memory. */
#define MEMORY "cpu,pinned if page_bytes=0"

static const struct pst_port_desc ports[] = {
    {.name = "plan",
     .dir = PST_IN,
     .help = "the planner's plan: slot sizes, hotness, and the rows of the constant buffer",
     .type = "plan",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .flags = PST_PORT_ONESHOT},
    {.name = "sample",
     .dir = PST_IN,
     .help = "minibatches without rows, of the next window + 1 batches",
     .type = "sample",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .flags = PST_PORT_ORDERED,
     .hold = 1,
     .hold_param = "window"},
    {.name = "rows",
     .dir = PST_OUT,
     .help = "minibatches that request the rows that are neither cached nor in the constant buffer",
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .requests = PST_REQUESTS_MAKES,
     .splits_if = "overflow=split"},
    {.name = "landed",
     .dir = PST_IN,
     .help = "the same slots, once their rows are read; a link with \"back\"",
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .flags = PST_PORT_ORDERED | PST_PORT_WRITES},
    {.name = "batch",
     .dir = PST_OUT,
     .help = "the same slots, complete",
     .type = "minibatch",
     .dtype = "any",
     .rank = -1,
     .memory = MEMORY,
     .forwards = "landed"},
    {.name = "cached",
     .dir = PST_OUT,
     .help = "on a GPU: the rows of a batch that need not be read, in slots in GPU memory",
     .type = "rows",
     .dtype = "any",
     .rank = 2,
     .memory = "cuda",
     .flags = PST_PORT_OPTIONAL | PST_PORT_NEEDED_ON_GPU,
     .splits_if = "overflow=split"},
    {0},
};

static const struct pst_param_desc params[] = {
    {.name = "shuffle",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct cache, shuffle),
     .def = "\"global\"",
     .choices = PST_SEEDS_SHUFFLES,
     .equals = "sample.shuffle",
     .help = "that of the sampler, which says how many batches an epoch has"},
    {.name = "cache_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct cache, cache_bytes),
     .def = "\"64MiB\"",
     .min = 0,
     .max = 1e15,
     .help = "memory for lines, each of which holds a feature row: of the GPU, if the stage is on one"},
    {.name = "policy",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct cache, kind),
     .def = "\"window\"",
     .choices = PST_POLICY_CHOICES,
     .help = "which rows stay: random (BaM); window: random, but none that the window uses (GIDS); sieve, "
             "s3fifo; static: the plan's hottest; lookahead: those that the window uses soonest, then the "
             "hottest; lru; belady: those that the super-batch, of window + 1 batches, uses soonest (Ginex)"},
    {.name = "page_bytes",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct cache, page_bytes),
     .def = "0",
     .min = 0,
     .max = 1 << 30,
     .help = "the model of a memory mapping, on a CPU: lines are pages of so many bytes, which are read "
             "whole; 0: lines are rows"},
    {.name = "window",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct cache, window),
     .def = "8",
     .min = 0,
     .max = PST_POLICY_SUPER_MAX - 1,
     .help = "batches that window and lookahead see ahead, at most 63; belady: batches of a super-batch "
             "after its "
             "first; the link to sample needs window + 1 slots"},
    {.name = "keep_in_flight",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct cache, keep_in_flight),
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help =
         "governor: a further batch is read only while the batches after the oldest have fewer requests, so "
         "that so many are in flight in the fewest slots; `penstock bench io --accesses 0.95` prints how "
         "many "
         "a drive needs; 0: as many batches as there are slots"},
    {.name = "fanout",
     .type = PST_PARAM_NAMED_INTS,
     .into = PST_INTO(struct cache, fanout),
     .def = "[10, 5]",
     .min = -1,
     .max = PST_FANOUT_MAX,
     .count_min = 1,
     .count_max = PST_HOPS_MAX,
     .equals = "sample.fanout",
     .help = "the sampler's",
     .fixed = true},
    {.name = "margin",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct cache, margin),
     .def = "1.1",
     .min = 0.001,
     .max = 1000,
     .equals = "sample.margin",
     .help = "the sampler's: size of a slot, in units of the plan's largest batch"},
    {.name = "overflow",
     .type = PST_PARAM_ENUM,
     .into = PST_INTO(struct cache, split),
     .def = "\"split\"",
     .choices = "error|split",
     .equals = "sample.overflow",
     .help = "the sampler's: what happens to a batch that does not fit its slot"},
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "cache",
    .help = "keeps feature rows of past batches, looks ahead before it evicts, and asks a disk stage for the "
            "rest",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* every batch passes the same lines */
    .replicas = PST_REPLICAS_EACH,
    .dataset = "types,features",
    .state_bytes = sizeof(struct cache),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
