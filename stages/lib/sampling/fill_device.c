/* fill_device.c: a slot filled by kernels on a GPU's queue. */
#include "stages/lib/sampling/fill_device.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/slots/request.h"
#include "common/stage.h"
#include "common/store/array_id.h"

_Static_assert(PST_SAMPLING_RESIDENT_LANES == PST_EXPAND_DEVICE_LANES, "counts of each lane");

enum { HITS, MISSES, GPU_HITS, HASHES, OWN }; /* the filler's own numbers */

/* Kernels make the requests, unless vertices have types. Then the rows of types without features are not
 * requested, and the host decides. */
static bool requests_on_device(const struct pst_filler *f)
{
    return f->types == NULL;
}

pst_rc pst_filler_device_init(struct pst_filler_device *d, struct pst_filler *f, struct pst_device *device,
                              const struct pst_csc *device_graph, const struct pst_sampling_opened *algorithm)
{
    const uint64_t rows = (uint64_t)f->layout.size.n[f->layout.size.hops];
    const char *graphs = getenv("PENSTOCK_GPU_GRAPHS");
    d->filler = f;
    d->device_s = d->done_s = 0;
    d->replays = d->resident == NULL && pst_sampling_has(algorithm, PST_SAMPLING_REPLAYS) &&
                 (graphs == NULL || strcmp(graphs, "0") != 0);
    const enum pst_twin_memory missed =
        requests_on_device(f) ? PST_TWIN_MEMORY_DEVICE : PST_TWIN_MEMORY_PINNED;
    void *hit_pos = NULL, *hit_row = NULL, *miss_pos[PST_EXPAND_DEVICE_LANES] = {NULL}, *local = NULL;
    int64_t edges = 1;
    for (int h = 0; h < f->layout.size.hops; h++)
        edges = pst_max_i64(edges, f->layout.size.edges[h]);
    pst_rc rc = pst_expander_device_init(&d->expander, device, device_graph, algorithm, &f->layout.size);
    if (rc == PST_OK)
        rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, (uint64_t)edges * sizeof *d->local,
                             "a hop's indices", &local);
    if (rc == PST_OK && d->cache)
        rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, rows * sizeof *d->hit_pos, "a batch's hits",
                             &hit_pos);
    if (rc == PST_OK && d->cache)
        rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, rows * sizeof *d->hit_row, "a batch's hits",
                             &hit_row);
    for (int lane = 0; lane < PST_EXPAND_DEVICE_LANES && rc == PST_OK && d->cache; lane++) {
        if (lane == 0 || !requests_on_device(f))
            rc = pst_device_take(device, missed, rows * sizeof **d->miss_pos, "a batch's misses",
                                 &miss_pos[lane]);
    }
    d->hit_pos = hit_pos;
    d->hit_row = hit_row;
    for (int lane = 0; lane < PST_EXPAND_DEVICE_LANES; lane++)
        d->miss_pos[lane] = miss_pos[lane];
    d->local = local;
    d->expander.resident = d->resident;
    return rc;
}

void pst_filler_device_release(struct pst_filler_device *d)
{
    struct pst_device *device = d->expander.device;
    if (device == NULL)
        return;
    pst_device_give(device, d->hit_pos);
    pst_device_give(device, d->hit_row);
    for (int lane = 0; lane < PST_EXPAND_DEVICE_LANES; lane++)
        pst_device_give(device, d->miss_pos[lane]);
    for (int i = 0; i < d->ngraphs && !device->left_alone; i++)
        device->twin->graph_free(d->graphs[i].graph);
    pst_device_give(device, d->local);
    pst_expander_device_release(&d->expander);
    *d = (struct pst_filler_device){0};
}

static int32_t *misses_of(const struct pst_filler_device *d, int lane)
{
    return d->miss_pos[requests_on_device(d->filler) ? 0 : lane];
}

/* Finds which rows are cached, for the gather, and which are not, for the host. */
static void find_rows(struct pst_filler_device *d, int lane)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const struct pst_twin_n rows = {pst_expand_device_vertices(x, l->size.hops), l->size.n[l->size.hops]};
    x->device->twin->lookup_n(x->device->q, d->cache, x->vertices, rows, d->hit_pos, d->hit_row,
                              pst_expand_device_own(x, HITS), misses_of(d, lane),
                              pst_expand_device_own(x, MISSES));
    const struct pst_twin_n hits = {pst_expand_device_own(x, HITS), rows.most};
    x->device->twin->count_below_n(x->device->q, d->hit_row, hits, d->filler->cache_gpu_rows,
                                   pst_expand_device_own(x, GPU_HITS));
    if (d->resident != NULL)
        pst_sampling_resident_device_count(d->resident, lane, d->hit_row, hits);
}

/* Requests the rows that are not cached: all rows if there is no cache. */
static void request_rows(struct pst_filler_device *d, char *slot)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const int64_t *n =
        d->cache ? pst_expand_device_own(x, MISSES) : pst_expand_device_vertices(x, l->size.hops);
    x->device->twin->requests_n(
        x->device->q, x->vertices, d->cache ? misses_of(d, 0) : NULL, 0,
        (struct pst_twin_n){n, l->size.n[l->size.hops]}, PST_ARRAY_FEATURES, l->features_at, l->stride_bytes,
        (struct pst_request *)(void *)(slot + l->requests_at), (int32_t *)(void *)(slot + l->missing_at));
}

/* Gathers the cached rows of both tiers, or of the clique. There are none if the batch did not fit. */
static void bring_rows(struct pst_filler_device *d, char *rows)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const struct pst_twin_n hits = {pst_expand_device_own(x, HITS), l->size.n[l->size.hops]};
    if (d->resident != NULL)
        pst_sampling_resident_device_gather(d->resident, d->hit_row, d->hit_pos, hits, rows, l->stride_bytes,
                                            d->filler->row_bytes);
    else
        x->device->twin->gather_tiers_n(x->device->q, &d->tiers, l->stride_bytes, d->hit_row, rows,
                                        l->stride_bytes, d->hit_pos, hits, d->filler->row_bytes);
}

struct work {
    struct pst_filler_device *d;
    const struct pst_fill_device_flight *flight;
};

/* Puts everything that the device does for a batch on the queue. The vertices are copied to the slot at
 * the end, because kernels read them at random; indices are only written. What the host needs comes before
 * the record, the cached rows after it. Of the job, a graph depends on the staged seeds and key alone. */
static void put_work(void *arg)
{
    const struct work *w = arg;
    struct pst_filler_device *d = w->d;
    const struct pst_fill_job *job = &w->flight->job;
    char *slot = w->flight->slot, *cached = w->flight->rows;
    const int lane = w->flight->lane;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    struct pst_expander_device *x = &d->expander;
    const int hops = l->size.hops;
    const struct pst_twin_n rows = {pst_expand_device_vertices(x, hops), l->size.n[hops]};
    struct pst_expand_device_block blocks[PST_HOPS_MAX];
    uint64_t *hashes = (uint64_t *)(void *)pst_expand_device_own(x, HASHES);
    for (int h = 0; h < hops; h++)
        blocks[h] = (struct pst_expand_device_block){
            (int32_t *)(void *)(slot + l->indptr_at[h]),
            (int32_t *)(void *)(slot + l->indices_at[h]),
            l->size.weights ? (float *)(void *)(slot + l->weights_at[h]) : NULL,
            l->size.relations ? (int32_t *)(void *)(slot + l->relations_at[h]) : NULL,
            d->local,
            hashes};
    if (d->resident != NULL)
        pst_sampling_resident_device_begin(d->resident);
    pst_expand_device(x, lane, pst_fill_key(job, 0), d->filler->fanout, blocks);
    x->device->twin->copy_digest_n(x->device->q, x->vertices, slot + l->vertices_at, rows,
                                   sizeof *x->vertices, PST_MINIBATCH_DIGEST_VERTICES, hashes);
    if (d->cache)
        find_rows(d, lane);
    if (l->stride_bytes > 0 && requests_on_device(d->filler))
        request_rows(d, slot);
    pst_expand_device_record(x, lane, OWN);
    if (d->filler->types != NULL && cached != NULL) /* rows without features are not requested */
        (void)x->device->twin->fill(x->device->q, cached, 0, l->features_bytes);
    if (d->cache)
        bring_rows(d, cached != NULL ? cached : slot + l->features_at);
}

/* The graph of the batch's slot, rows and lane. It is made when they meet for the first time. NULL: there are
 * too many. */
static pst_rc graph_of(struct pst_filler_device *d, struct work *w, struct pst_twin_graph **graph)
{
    const struct pst_fill_device_flight *f = w->flight;
    struct pst_fill_device_graph *g = d->graphs, *end = d->graphs + d->ngraphs;
    while (g < end && !(g->slot == f->slot && g->rows == f->rows && g->lane == f->lane))
        g++;
    *graph = g < end ? g->graph : NULL;
    if (g < end || d->ngraphs == PST_FILL_DEVICE_GRAPHS)
        return PST_OK;
    const pst_rc rc = pst_device_graph(d->expander.device, put_work, w, graph);
    if (rc == PST_OK)
        d->graphs[d->ngraphs++] = (struct pst_fill_device_graph){f->slot, f->rows, f->lane, *graph};
    return rc;
}

/* CUDA loads kernels when they are first used, which it need not do while a graph is made. So the first batch
 * is no graph. */
static pst_rc enqueue(struct pst_filler_device *d, const struct pst_fill_device_flight *flight)
{
    struct pst_expander_device *x = &d->expander;
    const struct pst_sample_key key = pst_fill_key(&flight->job, 0);
    struct work work = {d, flight};
    struct pst_twin_graph *graph = NULL;
    pst_expand_device_stage(x, flight->lane, &key, flight->job.seeds, flight->job.n);
    const pst_rc rc = d->replays && d->warm ? graph_of(d, &work, &graph) : PST_OK;
    d->warm = true;
    if (rc != PST_OK)
        return rc;
    if (graph != NULL)
        (void)x->device->twin->graph_run(x->device->q, graph); /* the wait reports a failure */
    else
        put_work(&work);
    return PST_OK;
}

pst_rc pst_fill_device_explain(const struct pst_device *device, const struct pst_filler *f,
                               const struct pst_fill_job *job)
{
    struct pst_minibatch_size size;
    const pst_rc rc = pst_sampling_measure(f, job, &size);
    return rc != PST_OK ? rc
                        : pst_fail(PST_E_FORMAT,
                                   "%s found a vertex that is out of range in a batch, but the CPU did not: "
                                   "the copy of the topology in the device's memory is damaged",
                                   device->name);
}

static pst_rc complete(struct pst_filler_device *d, const struct pst_fill_device_flight *flight,
                       const struct pst_minibatch_size *found, int64_t misses, uint64_t hashes,
                       struct pst_fill_result *result)
{
    const struct pst_fill_job *job = &flight->job;
    char *slot = flight->slot;
    struct pst_filler *f = d->filler;
    struct pst_minibatch mb = pst_fill_begin(f, job);
    memcpy(mb.n, found->n, sizeof mb.n);
    for (int h = 0; h < found->hops; h++)
        *(int32_t *)(void *)(slot + mb.indptr_at[h]) = 0;
    if (!requests_on_device(f))
        misses = pst_fill_requests(f, slot, 0, d->cache ? misses_of(d, flight->lane) : NULL, misses, 0, 0);
    pst_fill_finish(f, job, slot, &mb, (uint64_t)misses, found->n[found->hops], &hashes);
    result->requests = (uint64_t)misses;
    result->bytes_used = mb.bytes_used;
    return PST_OK;
}

static int free_lane(const struct pst_filler_device *d)
{
    int lane = 0;
    while (lane + 1 < PST_EXPAND_DEVICE_LANES && d->lane_taken[lane])
        lane++;
    assert(!d->lane_taken[lane]);
    return lane;
}

pst_rc pst_fill_device_begin(struct pst_filler_device *d, const struct pst_fill_job *job, void *slot,
                             void *rows, struct pst_fill_device_flight *flight)
{
    const struct pst_filler *f = d->filler;
    if (job->n != job->whole_n && pst_sampling_has(f->expander.algorithm, PST_SAMPLING_WHOLE))
        return pst_fail(PST_E_LIMIT,
                        "the algorithm %s on %s can only sample a batch that is not split, but this batch "
                        "does not fit its slot, or is cut into grains: set the parameter margin to a higher "
                        "value and grains to 1, or place the sampler on a CPU",
                        f->expander.algorithm->algorithm->name, d->expander.device->name);
    *flight = (struct pst_fill_device_flight){.job = *job,
                                              .slot = slot,
                                              .rows = rows,
                                              .queued = job->n <= f->layout.size.n[0],
                                              .begin_s = pst_now()};
    if (!flight->queued)
        return PST_OK;
    flight->lane = free_lane(d);
    d->lane_taken[flight->lane] = true;
    const pst_rc rc = enqueue(d, flight);
    d->device_s += pst_now() - flight->begin_s;
    return rc;
}

pst_rc pst_fill_device_end(struct pst_filler_device *d, const struct pst_fill_device_flight *flight,
                           pst_fill_announce_fn announce, void *to, struct pst_fill_result *result)
{
    struct pst_filler *f = d->filler;
    const struct pst_fill_job *job = &flight->job;
    const struct pst_minibatch_layout *l = &f->layout;
    struct pst_minibatch_size found;
    int64_t own[OWN];
    bool data_fault = false;
    const double begin = pst_now(), since = flight->begin_s > d->done_s ? flight->begin_s : d->done_s;
    *result = (struct pst_fill_result){.fits = flight->queued};
    if (!flight->queued)
        return PST_OK;
    d->lane_taken[flight->lane] = false;
    pst_rc rc = pst_expand_device_done(&d->expander, flight->lane, &found, own, OWN, &data_fault);
    d->done_s = pst_now();
    result->sample[l->size.hops] = (struct pst_fill_span){since, d->done_s};
    if (rc == PST_OK && !job->overlap) {
        rc = pst_device_wait(d->expander.device);
        result->lookup[l->size.hops] = (struct pst_fill_span){result->sample[l->size.hops].end_s, pst_now()};
    }
    d->device_s += pst_now() - begin;
    if (data_fault && rc == PST_E_FORMAT)
        return pst_fill_device_explain(d->expander.device, f, job);
    if (data_fault && rc == PST_E_LIMIT) {
        result->fits = false;
        rc = PST_OK;
    }
    if (rc != PST_OK || !result->fits)
        return rc;
    const int64_t n = l->stride_bytes ? found.n[found.hops] : 0, hits = d->cache ? own[HITS] : 0;
    result->lookups = (uint64_t)n;
    result->hits = (uint64_t)hits;
    result->gpu_hits = hits > 0 ? (uint64_t)own[GPU_HITS] : 0;
    if (d->resident != NULL)
        pst_sampling_resident_device_end(d->resident, flight->lane, (uint64_t)(n - hits));
    struct pst_fill_span *submit = &result->submit[l->size.hops];
    submit->begin_s = pst_now();
    rc = complete(d, flight, &found, n - hits, (uint64_t)own[HASHES], result);
    submit->end_s = pst_now();
    return rc == PST_OK ? announce(to, result->parts++, l->requests_at, result->requests, true) : rc;
}
