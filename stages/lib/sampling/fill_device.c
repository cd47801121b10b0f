/* fill_device.c: a slot filled by kernels on a GPU's queue. */
#include "stages/lib/sampling/fill_device.h"

#include <string.h>

#include "common/error.h"
#include "common/slots/request.h"
#include "common/stage.h"
#include "common/store/array_id.h"

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
    d->filler = f;
    d->device_s = 0;
    const enum pst_twin_memory missed =
        requests_on_device(f) ? PST_TWIN_MEMORY_DEVICE : PST_TWIN_MEMORY_PINNED;
    void *hit_pos = NULL, *hit_row = NULL, *miss_pos = NULL, *local = NULL;
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
    if (rc == PST_OK && d->cache)
        rc = pst_device_take(device, missed, rows * sizeof *d->miss_pos, "a batch's misses", &miss_pos);
    d->hit_pos = hit_pos;
    d->hit_row = hit_row;
    d->miss_pos = miss_pos;
    d->local = local;
    return rc;
}

void pst_filler_device_release(struct pst_filler_device *d)
{
    struct pst_device *device = d->expander.device;
    if (device == NULL)
        return;
    pst_device_give(device, d->hit_pos);
    pst_device_give(device, d->hit_row);
    pst_device_give(device, d->miss_pos);
    pst_device_give(device, d->local);
    pst_expander_device_release(&d->expander);
    *d = (struct pst_filler_device){0};
}

/* Finds which rows are cached, for the gather, and which are not, for the host. */
static void find_rows(struct pst_filler_device *d)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const struct pst_twin_n rows = {pst_expand_device_vertices(x, l->size.hops), l->size.n[l->size.hops]};
    x->device->twin->lookup_n(x->device->q, d->cache, x->vertices, rows, d->hit_pos, d->hit_row,
                              pst_expand_device_own(x, HITS), d->miss_pos, pst_expand_device_own(x, MISSES));
    x->device->twin->count_below_n(x->device->q, d->hit_row,
                                   (struct pst_twin_n){pst_expand_device_own(x, HITS), rows.most},
                                   d->tiers.near_rows, pst_expand_device_own(x, GPU_HITS));
}

/* Requests the rows that are not cached: all rows if there is no cache. */
static void request_rows(struct pst_filler_device *d, char *slot)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const int64_t *n =
        d->cache ? pst_expand_device_own(x, MISSES) : pst_expand_device_vertices(x, l->size.hops);
    x->device->twin->requests_n(
        x->device->q, x->vertices, d->cache ? d->miss_pos : NULL, 0,
        (struct pst_twin_n){n, l->size.n[l->size.hops]}, PST_ARRAY_FEATURES, l->features_at, l->stride_bytes,
        (struct pst_request *)(void *)(slot + l->requests_at), (int32_t *)(void *)(slot + l->missing_at));
}

/* Gathers the cached rows of both tiers. There are none if the batch did not fit. */
static void bring_rows(struct pst_filler_device *d, char *rows)
{
    const struct pst_expander_device *x = &d->expander;
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const struct pst_twin_n hits = {pst_expand_device_own(x, HITS), l->size.n[l->size.hops]};
    x->device->twin->gather_tiers_n(x->device->q, &d->tiers, l->stride_bytes, d->hit_row, rows,
                                    l->stride_bytes, d->hit_pos, hits, d->filler->row_bytes);
}

/* Puts everything that the device does for a batch on the queue. The vertices are copied to the slot at
 * the end, because kernels read them at random; indices are only written. What the host needs comes before
 * the record, the cached rows after it. */
static pst_rc enqueue(struct pst_filler_device *d, const struct pst_fill_job *job, char *slot, char *cached)
{
    const struct pst_minibatch_layout *l = &d->filler->layout;
    const struct pst_expander_device *x = &d->expander;
    const int hops = l->size.hops;
    const struct pst_twin_n rows = {pst_expand_device_vertices(x, hops), l->size.n[hops]};
    const struct pst_sample_key key = {.seed = job->seed, .epoch = job->epoch, .batch = job->batch_in_epoch};
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
    const pst_rc rc = pst_expand_device(&d->expander, key, d->filler->fanout, job->seeds, job->n, blocks);
    if (rc != PST_OK)
        return rc;
    x->device->twin->copy_digest_n(x->device->q, x->vertices, slot + l->vertices_at, rows,
                                   sizeof *x->vertices, PST_MINIBATCH_DIGEST_VERTICES, hashes);
    if (d->cache)
        find_rows(d);
    if (l->stride_bytes > 0 && requests_on_device(d->filler))
        request_rows(d, slot);
    pst_expand_device_record(&d->expander, OWN);
    if (d->filler->types != NULL && cached != NULL) /* rows without features are not requested */
        (void)x->device->twin->fill(x->device->q, cached, 0, l->features_bytes);
    if (d->cache)
        bring_rows(d, cached != NULL ? cached : slot + l->features_at);
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

static pst_rc complete(struct pst_filler_device *d, const struct pst_fill_job *job, char *slot,
                       const struct pst_minibatch_size *found, int64_t misses, uint64_t hashes,
                       struct pst_fill_result *result)
{
    struct pst_filler *f = d->filler;
    struct pst_minibatch mb = pst_fill_begin(f, job);
    memcpy(mb.n, found->n, sizeof mb.n);
    for (int h = 0; h < found->hops; h++)
        *(int32_t *)(void *)(slot + mb.indptr_at[h]) = 0;
    if (!requests_on_device(f))
        misses = pst_fill_requests(f, slot, 0, d->cache ? d->miss_pos : NULL, misses, 0);
    pst_fill_finish(f, job, slot, &mb, (uint64_t)misses, &hashes);
    result->requests = (uint64_t)misses;
    result->bytes_used = mb.bytes_used;
    return PST_OK;
}

pst_rc pst_fill_device(struct pst_filler_device *d, const struct pst_fill_job *job, void *slot, void *rows,
                       pst_fill_announce_fn announce, void *to, struct pst_fill_result *result)
{
    struct pst_filler *f = d->filler;
    const struct pst_minibatch_layout *l = &f->layout;
    struct pst_minibatch_size found;
    int64_t own[OWN];
    bool data_fault = false;
    const double begin = pst_now();
    if (job->n != job->whole_n && pst_sampling_has(f->expander.algorithm, PST_SAMPLING_WHOLE))
        return pst_fail(PST_E_LIMIT,
                        "the algorithm %s on %s can only sample a batch that is not split, but this batch "
                        "does not fit its slot, or is cut into grains: set the parameter margin to a higher "
                        "value and grains to 1, or place the sampler on a CPU",
                        f->expander.algorithm->algorithm->name, d->expander.device->name);
    *result = (struct pst_fill_result){.fits = job->n <= l->size.n[0]};
    pst_rc rc = result->fits ? enqueue(d, job, slot, rows) : PST_OK;
    if (rc == PST_OK && result->fits)
        rc = pst_expand_device_done(&d->expander, &found, own, OWN, &data_fault);
    result->sample[l->size.hops] = (struct pst_fill_span){begin, pst_now()};
    if (rc == PST_OK && result->fits && !job->overlap) {
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
    if (rc != PST_OK)
        return rc;
    if (!result->fits)
        return PST_OK;
    const int64_t n = l->stride_bytes ? found.n[found.hops] : 0, hits = d->cache ? own[HITS] : 0;
    result->lookups = (uint64_t)n;
    result->hits = (uint64_t)hits;
    result->gpu_hits = hits > 0 ? (uint64_t)own[GPU_HITS] : 0;
    struct pst_fill_span *submit = &result->submit[l->size.hops];
    submit->begin_s = pst_now();
    rc = complete(d, job, slot, &found, n - hits, (uint64_t)own[HASHES], result);
    submit->end_s = pst_now();
    return rc == PST_OK ? announce(to, result->parts++, l->requests_at, result->requests, true) : rc;
}
