/* fill.c: fills a slot with a sampled minibatch, and announces its rows. */
#include "stages/lib/sampling/fill.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/slots/request.h"
#include "common/store/array_id.h"
#include "common/stage.h"
#include "common/store/dataset/rows.h"

pst_rc pst_filler_init(struct pst_filler *f, const struct pst_csc *graph,
                       const struct pst_sampling_opened *algorithm)
{
    const struct pst_minibatch_size *size = &f->layout.size;
    int64_t rows = size->n[size->hops], edges = 1;
    for (int h = 0; h < size->hops; h++)
        edges = pst_max_i64(edges, size->edges[h]);
    f->hit_pos = f->hit_row = f->miss_pos = NULL;
    pst_rc rc = pst_expander_init(&f->expander, graph, algorithm, rows, edges);
    if (rc != PST_OK)
        return rc;
    f->hit_pos = malloc((size_t)rows * sizeof *f->hit_pos);
    f->hit_row = malloc((size_t)rows * sizeof *f->hit_row);
    f->miss_pos = malloc((size_t)rows * sizeof *f->miss_pos);
    if (f->hit_pos == NULL || f->hit_row == NULL || f->miss_pos == NULL) {
        pst_filler_release(f);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot look up %lld rows in the cache", (long long)rows);
    }
    return PST_OK;
}

void pst_filler_release(struct pst_filler *f)
{
    pst_expander_release(&f->expander);
    pst_cut_release(&f->cut);
    free(f->hit_pos);
    free(f->hit_row);
    free(f->miss_pos);
    f->hit_pos = f->hit_row = f->miss_pos = NULL;
}

struct pst_minibatch pst_fill_begin(const struct pst_filler *f, const struct pst_fill_job *job)
{
    struct pst_minibatch mb = {
        .magic = PST_MINIBATCH_MAGIC,
        .seed = job->seed,
        .epoch = job->epoch,
        .batch = job->batch,
        .batch_in_epoch = job->batch_in_epoch,
        .batches_in_epoch = job->batches_in_epoch,
        .micro = job->micro,
        .batch_seeds = job->batch_seeds,
        .grain = job->grain,
        .feature_dim = (uint32_t)f->feature_dim,
        .feature_dtype = f->feature_dtype,
    };
    pst_minibatch_place(&mb, &f->layout);
    return mb;
}

bool pst_fill_request_of_type(const struct pst_dataset *types, uint64_t stride_bytes, char *row,
                              struct pst_request *r)
{
    const int type = pst_rows_type_of(types, (int64_t)r->row);
    const struct pst_vertex_type *t = &types->vertex_type[type];
    const uint64_t own = t->feature_dim > 0 ? t->stride_bytes : 0;
    memset(row + own, 0, stride_bytes - own);
    r->array = (uint16_t)PST_REQUEST_OF_TYPE(type);
    r->row -= (uint64_t)t->first;
    return own > 0;
}

/* The rows of n requests go to features side by side, from row `stored` on. */
static void move_together(const struct pst_minibatch_layout *l, char *slot, struct pst_request *table,
                          int32_t *missing, int64_t n, int64_t stored)
{
    int32_t *in_place = (int32_t *)(void *)(slot + l->in_place_at);
    for (int64_t i = 0; i < n; i++) {
        const int32_t row = (int32_t)(stored + i);
        in_place[missing[i]] = -1 - row;
        table[i].offset = l->features_at + (uint64_t)row * l->stride_bytes;
        missing[i] = row;
    }
}

int64_t pst_fill_requests(const struct pst_filler *f, char *slot, int64_t from, const int32_t *positions,
                          int64_t n, uint64_t asked, int64_t stored)
{
    const struct pst_minibatch_layout *l = &f->layout;
    const int64_t *ids = (const int64_t *)(void *)(slot + l->vertices_at);
    struct pst_request *table = (struct pst_request *)(void *)(slot + l->requests_at) + asked;
    int32_t *missing = (int32_t *)(void *)(slot + l->missing_at) + asked;
    int64_t wrote = 0;
    if (f->types == NULL) {
        pst_k_requests(NULL, ids, positions, from, n, PST_ARRAY_FEATURES, l->features_at, l->stride_bytes,
                       table, missing);
        if (l->in_place_at != 0)
            move_together(l, slot, table, missing, n, stored);
        return n;
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t at = positions != NULL ? positions[i] : (int32_t)i;
        pst_k_requests(NULL, ids, &at, from, 1, PST_ARRAY_FEATURES, l->features_at, l->stride_bytes,
                       table + wrote, missing + wrote);
        if (l->in_place_at != 0)
            move_together(l, slot, table + wrote, missing + wrote, 1, stored + i);
        wrote +=
            pst_fill_request_of_type(f->types, l->stride_bytes, slot + table[wrote].offset, &table[wrote]);
    }
    return wrote;
}

/* The sum of the hashes of all arrays (minibatch.h). */
static uint64_t hash_arrays(const struct pst_minibatch *mb, const char *slot)
{
    uint64_t sum = 0;
    pst_k_copy_digest(NULL, slot + mb->vertices_at, NULL, mb->n[mb->hops], sizeof(int64_t),
                      PST_MINIBATCH_DIGEST_VERTICES, &sum);
    for (uint32_t h = 0; h < mb->hops; h++) {
        const int32_t *indptr = (const int32_t *)(const void *)(slot + mb->indptr_at[h]);
        const uint64_t of_edges[] = {mb->indices_at[h], mb->weights_at[h], mb->relations_at[h]};
        pst_k_copy_digest(NULL, indptr + 1, NULL, mb->n[h], sizeof *indptr,
                          PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_INDPTR), &sum);
        for (int i = 0; i < 3; i++)
            if (of_edges[i] != 0)
                pst_k_copy_digest(NULL, slot + of_edges[i], NULL, indptr[mb->n[h]], sizeof(int32_t),
                                  PST_MINIBATCH_DIGEST_OF(h, PST_MINIBATCH_INDICES + i), &sum);
    }
    if (mb->pairs_at != 0)
        pst_k_copy_digest(NULL, slot + mb->pairs_at, NULL, (int64_t)mb->pairs * 2, sizeof(int32_t),
                          PST_MINIBATCH_DIGEST_PAIRS, &sum);
    return sum;
}

static uint64_t digest_of(const struct pst_minibatch *mb, uint64_t hashes)
{
    return XXH3_64bits_withSeed(mb->n, (mb->hops + 1) * sizeof mb->n[0], hashes);
}

static void write_labels(const struct pst_filler *f, char *slot, int64_t n)
{
    const int64_t *ids = (const int64_t *)(void *)(slot + f->layout.vertices_at);
    int32_t *labels = (int32_t *)(void *)(slot + f->layout.labels_at);
    for (int64_t i = 0; i < n; i++)
        labels[i] = f->labels != NULL ? f->labels[ids[i]] : -1;
}

void pst_fill_finish(struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                     struct pst_minibatch *mb, uint64_t asked, int64_t stored, const uint64_t *hashes)
{
    write_labels(f, slot, mb->n[0]);
    mb->requests = (uint32_t)asked;
    mb->last_micro = job->last_micro;
    mb->bytes_used = mb->features_at + (uint64_t)stored * mb->stride_bytes;
    const double begin = pst_now();
    mb->digest = digest_of(mb, hashes != NULL ? *hashes : hash_arrays(mb, slot));
    f->digest_s += pst_now() - begin;
    memcpy(slot, mb, sizeof *mb);
}

/* ---- one micro-batch ------------------------------------------------------------------------------ */

struct pst_sample_key pst_fill_key(const struct pst_fill_job *job, int hop)
{
    return (struct pst_sample_key){
        .seed = job->seed, .epoch = job->epoch, .hop = (uint32_t)hop, .batch = job->batch_in_epoch};
}

static uint64_t gpu_hits(const struct pst_filler *f, const int32_t *hit_row, int64_t hits)
{
    uint64_t n = 0;
    for (int64_t i = 0; f->cache_gpu_rows > 0 && i < hits; i++)
        n += hit_row[i] < f->cache_gpu_rows;
    return n;
}

/* Splits the rows of the vertices that have no rows yet: the cached ones are copied later, or stay in the
 * cache (take_hits), and the others are requested. */
static pst_rc split_rows(struct pst_fill_work *w, int hop)
{
    struct pst_filler *f = w->f;
    const int64_t from = w->provided, n = w->count - from;
    int64_t hits = 0, misses = n;
    w->provided = w->count;
    if (f->layout.stride_bytes == 0 || n == 0)
        return PST_OK;
    const double begin = pst_now();
    if (f->cache != NULL) {
        const int64_t *ids = (const int64_t *)(void *)(w->slot + f->layout.vertices_at) + from;
        pst_k_lookup(NULL, f->cache, ids, n, w->hit_pos + w->hits, w->hit_row + w->hits, &hits, f->miss_pos,
                     &misses);
        w->result->gpu_hits += gpu_hits(f, w->hit_row + w->hits, hits);
        w->rows[w->nrows++] = (struct pst_fill_hop_rows){hop, from, hits};
        w->hits += hits;
    }
    const int64_t first = w->stored;
    w->stored += f->layout.in_place_at != 0 ? misses : n;
    w->result->crowded = f->layout.in_place_at != 0 && w->stored > f->layout.size.stored;
    if (w->result->crowded)
        return PST_E_LIMIT;
    misses = pst_fill_requests(f, w->slot, from, f->cache != NULL ? f->miss_pos : NULL, misses,
                               w->result->requests, first);
    w->result->lookups += (uint64_t)n;
    w->result->hits += (uint64_t)hits;
    w->result->requests += (uint64_t)misses;
    const double took = pst_now() - begin;
    f->gather_s += took;
    f->lookup_s += took;
    return PST_OK;
}

/* Announces the requests that were not announced yet, and with `last` that the slot is complete. */
static pst_rc announce_rows(struct pst_fill_work *w, bool last)
{
    const uint64_t added = w->result->requests - w->announced,
                   first_at = w->mb.requests_at + w->announced * sizeof(struct pst_request);
    w->announced = w->result->requests;
    return added > 0 || last ? w->announce(w->to, w->result->parts++, first_at, added, last) : PST_OK;
}

pst_rc pst_fill_submit(struct pst_fill_work *w, int hop)
{
    struct pst_fill_span *span = &w->result->submit[hop];
    span->begin_s = pst_now();
    pst_rc rc = split_rows(w, hop);
    if (rc == PST_OK && w->job->overlap)
        rc = announce_rows(w, false);
    span->end_s = pst_now();
    return rc;
}

/* Copies the cached rows of a hop to the slot. */
static void copy_rows(const struct pst_fill_work *w, const struct pst_fill_hop_rows *r, const int32_t *pos,
                      const int32_t *row)
{
    const struct pst_filler *f = w->f;
    const uint64_t stride = f->layout.stride_bytes;
    char *to = w->slot + f->layout.features_at + (uint64_t)r->from * stride;
    if (f->resident != NULL)
        pst_sampling_resident_gather(f->resident, row, pos, r->hits, to, stride, f->row_bytes);
    else
        pst_k_gather(NULL, f->cache_rows, stride, row, to, stride, pos, r->hits, f->row_bytes);
}

/* Says where the cached rows of a hop are, which stay there. */
static void keep_rows(const struct pst_fill_work *w, const struct pst_fill_hop_rows *r, const int32_t *pos,
                      const int32_t *row)
{
    int32_t *in_place = (int32_t *)(void *)(w->slot + w->mb.in_place_at) + r->from;
    for (int64_t i = 0; i < r->hits; i++)
        in_place[pos[i]] = row[i];
    w->result->in_place += (uint64_t)r->hits;
}

/* L: the cached rows of all hops. This is done last, because the disk can already work on all misses
 * meanwhile. */
static void take_hits(struct pst_fill_work *w)
{
    const struct pst_filler *f = w->f;
    const int32_t *pos = w->hit_pos, *row = w->hit_row;
    const bool in_place = w->mb.in_place_at != 0;
    w->mb.in_place_rows = in_place ? (uint64_t)f->cache_n : 0;
    for (int i = 0; i < w->nrows; i++) {
        const struct pst_fill_hop_rows *r = &w->rows[i];
        struct pst_fill_span *span = &w->result->lookup[r->hop];
        span->begin_s = pst_now();
        if (f->pass_bus != NULL)
            f->pass_bus(f->stage, ((uint64_t)r->hits - gpu_hits(f, row, r->hits)) * f->row_bytes);
        if (in_place)
            keep_rows(w, r, pos, row);
        else
            copy_rows(w, r, pos, row);
        span->end_s = pst_now();
        w->f->gather_s += span->end_s - span->begin_s;
        pos += r->hits;
        row += r->hits;
    }
}

/* Every hop is sampled: the rest of the slot. */
static pst_rc end_slot(struct pst_fill_work *w)
{
    const pst_rc rc = pst_fill_submit(w, w->f->layout.size.hops);
    if (rc != PST_OK)
        return rc;
    take_hits(w);
    pst_fill_finish(w->f, w->job, w->slot, &w->mb, w->result->requests, w->stored, NULL);
    return announce_rows(w, true);
}

static pst_rc fill_hop(struct pst_fill_work *w, int hop)
{
    const struct pst_minibatch_layout *l = &w->f->layout;
    const struct pst_sample_key key = pst_fill_key(w->job, hop);
    float *weights = l->size.weights ? (float *)(void *)(w->slot + l->weights_at[hop]) : NULL;
    struct pst_fill_span *span = &w->result->sample[hop + 1];
    w->x->relation = l->size.relations ? (int32_t *)(void *)(w->slot + l->relations_at[hop]) : NULL;
    span->begin_s = pst_now();
    const pst_rc rc =
        pst_expand_hop(w->x, &key, (int)w->f->fanout[hop], (int64_t *)(void *)(w->slot + l->vertices_at),
                       &w->count, l->size.n[hop + 1], (int32_t *)(void *)(w->slot + l->indptr_at[hop]),
                       (int32_t *)(void *)(w->slot + l->indices_at[hop]), weights, l->size.edges[hop]);
    span->end_s = pst_now();
    w->mb.n[hop + 1] = w->count;
    return rc;
}

void pst_fill_empty(const struct pst_filler *f, const struct pst_fill_job *job, char *slot, uint64_t requests)
{
    struct pst_minibatch mb = pst_fill_begin(f, job);
    mb.requests = (uint32_t)requests;
    for (uint32_t h = 0; h < mb.hops; h++)
        memset(slot + mb.indptr_at[h], 0, sizeof(int32_t));
    mb.digest = digest_of(&mb, hash_arrays(&mb, slot));
    memcpy(slot, &mb, sizeof mb);
}

/* The ends of the edges and of their negatives are the vertices of hop 0. */
static pst_rc start_pairs(struct pst_fill_work *w, int64_t *vertices)
{
    const struct pst_minibatch_layout *l = &w->f->layout;
    struct pst_sampling_pairs *p = w->f->pairs;
    const int64_t n = pst_sampling_pairs_of(p, w->job->n);
    const pst_rc rc = pst_sampling_pairs_fill(p, w->job->seed, w->job->epoch, w->job->seeds, w->job->n);
    assert(n <= l->size.pairs);
    w->mb.pairs = (uint32_t)n;
    w->mb.positives = (uint32_t)w->job->n;
    return rc == PST_OK ? pst_expand_ends(w->x, p->ends, 2 * n, vertices, &w->count, l->size.n[0],
                                          (int32_t *)(void *)(w->slot + l->pairs_at))
                        : rc;
}

pst_rc pst_fill_start(struct pst_fill_work *w)
{
    const struct pst_minibatch_layout *l = &w->f->layout;
    w->mb = pst_fill_begin(w->f, w->job);
    w->count = w->provided = w->hits = w->stored = 0;
    w->announced = 0;
    w->nrows = 0;
    *w->result = (struct pst_fill_result){.fits = true};
    w->result->sample[0].begin_s = pst_now();
    int64_t *vertices = (int64_t *)(void *)(w->slot + l->vertices_at);
    const pst_rc rc = w->f->pairs != NULL ? start_pairs(w, vertices)
                                          : pst_expand_seeds(w->x, w->job->seeds, w->job->n, vertices,
                                                             &w->count, l->size.n[0]);
    w->result->sample[0].end_s = pst_now();
    w->mb.n[0] = w->count;
    return rc;
}

pst_rc pst_fill_end(struct pst_fill_work *w, pst_rc rc)
{
    const struct pst_minibatch_layout *l = &w->f->layout;
    bool fits = rc != PST_E_LIMIT;
    if (rc == PST_OK) {
        rc = end_slot(w);
        fits = !w->result->crowded;
    }
    if (!fits) {
        w->result->fits = false;
        if (w->result->parts > 0) /* the disk stage has been told of some rows, so the slot must travel */
            pst_fill_empty(w->f, w->job, w->slot, w->announced);
        rc = PST_OK;
    }
    if (w->f->resident != NULL) {
        w->f->resident->open.rows_disk = w->result->lookups - w->result->hits;
        pst_sampling_resident_end(w->f->resident, rc == PST_OK && w->result->fits);
    }
    w->result->bytes_used = l->features_at + (uint64_t)w->stored * l->stride_bytes;
    return rc;
}

/* Of a piece of a batch whose neighbours depend on the whole batch: samples that, for the expander. If seeds
 * are edges, the whole batch's are left out. */
static pst_rc hold_whole(struct pst_filler *f, const struct pst_fill_job *job)
{
    f->expander.cut = NULL;
    f->expander.pairs = f->pairs;
    if (f->pairs != NULL) {
        const pst_rc rc = pst_sampling_pairs_hold(f->pairs, job->batch, job->whole_seeds, job->whole_n);
        if (rc != PST_OK)
            return rc;
    }
    if (job->n == job->whole_n || !pst_sampling_has(f->expander.algorithm, PST_SAMPLING_WHOLE))
        return PST_OK;
    const struct pst_sample_key key = pst_fill_key(job, 0);
    assert(job->whole_seeds != NULL);
    f->expander.cut = &f->cut;
    f->cut.graph = f->expander.graph;
    f->cut.algorithm = f->expander.algorithm;
    f->cut.fanout = f->fanout;
    f->cut.hops = f->layout.size.hops;
    return pst_cut_hold(&f->cut, &key, job->whole_seeds, job->whole_n);
}

pst_rc pst_sampling_fill(struct pst_filler *f, const struct pst_fill_job *job, void *slot,
                         pst_fill_announce_fn announce, void *to, struct pst_fill_result *result)
{
    struct pst_fill_work w = {.f = f,
                              .x = &f->expander,
                              .hit_pos = f->hit_pos,
                              .hit_row = f->hit_row,
                              .job = job,
                              .slot = slot,
                              .announce = announce,
                              .to = to,
                              .result = result};
    pst_rc rc = hold_whole(f, job);
    if (rc != PST_OK)
        return rc;
    rc = pst_fill_start(&w);
    for (int h = 0; h < f->layout.size.hops && rc == PST_OK; h++) {
        rc = job->early && job->overlap ? pst_fill_submit(&w, h) : PST_OK;
        if (rc != PST_OK && !result->crowded)
            return rc;
        if (rc == PST_OK)
            rc = fill_hop(&w, h);
    }
    return pst_fill_end(&w, rc);
}

pst_rc pst_sampling_measure(const struct pst_filler *f, const struct pst_fill_job *job,
                            struct pst_minibatch_size *needed)
{
    struct pst_minibatch_size bound;
    const int hops = f->layout.size.hops;
    const int64_t seeds = f->pairs != NULL ? 2 * pst_sampling_pairs_of(f->pairs, job->n) : job->n;
    pst_sampling_size_bound(&bound, f->expander.algorithm, f->expander.graph, f->fanout, hops, seeds);
    int64_t edges = 1;
    for (int h = 0; h < hops; h++)
        edges = pst_max_i64(edges, bound.edges[h]);
    struct pst_expander x;
    pst_rc rc = pst_expander_init(&x, f->expander.graph, f->expander.algorithm, bound.n[hops], edges);
    if (rc != PST_OK)
        return rc;
    x.cut = f->expander.cut;
    x.pairs = f->pairs;
    int64_t *vertices = malloc((size_t)bound.n[hops] * sizeof *vertices);
    float *weights = bound.weights ? malloc((size_t)edges * sizeof *weights) : NULL;
    int32_t *indptr = malloc(((size_t)bound.n[hops] + 1) * sizeof *indptr);
    int32_t *indices = malloc((size_t)edges * sizeof *indices);
    *needed = (struct pst_minibatch_size){.hops = hops};
    if (vertices == NULL || indptr == NULL || indices == NULL || (bound.weights && weights == NULL)) {
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot allocate memory to measure the size of samples");
        goto out;
    }
    int64_t count = 0;
    if (f->pairs != NULL)
        rc = pst_sampling_pairs_fill(f->pairs, job->seed, job->epoch, job->seeds, job->n);
    if (rc == PST_OK)
        rc = pst_expand_seeds(&x, f->pairs != NULL ? f->pairs->ends : job->seeds, seeds, vertices, &count,
                              bound.n[0]);
    needed->n[0] = count;
    for (int h = 0; h < hops && rc == PST_OK; h++) {
        const struct pst_sample_key key = pst_fill_key(job, h);
        int64_t n = count;
        rc = pst_expand_hop(&x, &key, (int)f->fanout[h], vertices, &count, bound.n[hops], indptr, indices,
                            weights, edges);
        needed->edges[h] = rc == PST_OK ? indptr[n] : 0;
        needed->n[h + 1] = count;
    }
out:
    free(vertices);
    free(indptr);
    free(indices);
    free(weights);
    pst_expander_release(&x);
    return rc;
}
