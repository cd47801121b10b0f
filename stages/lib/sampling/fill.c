#include "stages/lib/sampling/fill.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "stages/lib/sampling/fill_impl.h"
#include "common/slots/request.h"
#include "common/stage.h"

pst_rc pst_filler_init(struct pst_filler *f, const struct pst_csc *graph, pst_sample_fn sample, void *user)
{
    const struct pst_minibatch_size *size = &f->layout.size;
    int64_t rows = size->n[size->hops], edges = 1;
    for (int h = 0; h < size->hops; h++)
        edges = pst_max_i64(edges, size->edges[h]);
    f->hit_pos = f->hit_row = f->miss_pos = NULL;
    pst_rc rc = pst_expander_init(&f->expander, graph, sample, user, rows, edges);
    if (rc != PST_OK)
        return rc;
    f->hit_pos = malloc((size_t)rows * sizeof *f->hit_pos);
    f->hit_row = malloc((size_t)rows * sizeof *f->hit_row);
    f->miss_pos = malloc((size_t)rows * sizeof *f->miss_pos);
    if (f->hit_pos == NULL || f->hit_row == NULL || f->miss_pos == NULL) {
        pst_filler_release(f);
        return pst_fail(PST_E_NOMEM, "no memory to look up %lld rows in the cache", (long long)rows);
    }
    return PST_OK;
}

void pst_filler_release(struct pst_filler *f)
{
    pst_expander_release(&f->expander);
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
        .feature_dim = (uint32_t)f->feature_dim,
        .feature_dtype = f->feature_dtype,
    };
    pst_minibatch_place(&mb, &f->layout);
    return mb;
}

void pst_fill_requests(const struct pst_filler *f, char *slot, int64_t from, const int32_t *positions,
                       int64_t n, uint64_t asked)
{
    const struct pst_minibatch_layout *l = &f->layout;
    const int64_t *ids = (const int64_t *)(void *)(slot + l->vertices_at) + from;
    struct pst_request *table = (struct pst_request *)(void *)(slot + l->requests_at) + asked;
    int32_t *missing = (int32_t *)(void *)(slot + l->missing_at) + asked;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = positions != NULL ? positions[i] : i;
        missing[i] = (int32_t)(from + at);
        table[i] = (struct pst_request){
            .op = PST_REQUEST_READ,
            .array = PST_ARRAY_FEATURES,
            .rows = 1,
            .row = (uint64_t)ids[at],
            .offset = l->features_at + (uint64_t)(from + at) * l->stride_bytes,
            .tag = (uint64_t)ids[at],
        };
    }
}

/* Rows of vertices[from..to): the cached ones are copied, for the others the disk is asked. */
static uint64_t provide_rows(struct pst_filler *f, char *slot, int64_t from, int64_t to, uint64_t asked,
                             struct pst_fill_result *result)
{
    const struct pst_minibatch_layout *l = &f->layout;
    const int64_t *ids = (const int64_t *)(void *)(slot + l->vertices_at) + from;
    int64_t n = to - from, hits = 0, misses = n;
    if (l->stride_bytes == 0 || n == 0)
        return 0;
    const double begin = pst_now();
    char *rows = slot + l->features_at + (uint64_t)from * l->stride_bytes;
    if (f->cache != NULL) {
        pst_k_lookup(NULL, f->cache, ids, n, f->hit_pos, f->hit_row, &hits, f->miss_pos, &misses);
        pst_k_gather(NULL, f->cache_rows, l->stride_bytes, f->hit_row, rows, l->stride_bytes, f->hit_pos,
                     hits, f->row_bytes);
    }
    pst_fill_requests(f, slot, from, f->cache != NULL ? f->miss_pos : NULL, misses, asked);
    result->lookups += (uint64_t)n;
    result->hits += (uint64_t)hits;
    f->gather_s += pst_now() - begin;
    return (uint64_t)misses;
}

static uint64_t digest_of(const struct pst_minibatch *mb, const char *slot)
{
    uint64_t d = XXH3_64bits(mb->n, (mb->hops + 1) * sizeof mb->n[0]);
    d = XXH3_64bits_withSeed(slot + mb->vertices_at, (size_t)mb->n[mb->hops] * sizeof(int64_t), d);
    for (uint32_t h = 0; h < mb->hops; h++) {
        const int32_t *indptr = (const int32_t *)(const void *)(slot + mb->indptr_at[h]);
        d = XXH3_64bits_withSeed(indptr, ((size_t)mb->n[h] + 1) * sizeof *indptr, d);
        d = XXH3_64bits_withSeed(slot + mb->indices_at[h], (size_t)indptr[mb->n[h]] * sizeof(int32_t), d);
    }
    return d;
}

void pst_fill_void(const struct pst_filler *f, const struct pst_fill_job *job, char *slot, uint64_t asked)
{
    struct pst_minibatch mb = pst_fill_begin(f, job);
    mb.requests = (uint32_t)asked;
    for (uint32_t h = 0; h < mb.hops; h++)
        memset(slot + mb.indptr_at[h], 0, sizeof(int32_t));
    mb.digest = digest_of(&mb, slot);
    memcpy(slot, &mb, sizeof mb);
}

static void write_labels(const struct pst_filler *f, char *slot, int64_t n)
{
    const int64_t *ids = (const int64_t *)(void *)(slot + f->layout.vertices_at);
    int32_t *labels = (int32_t *)(void *)(slot + f->layout.labels_at);
    for (int64_t i = 0; i < n; i++)
        labels[i] = f->labels != NULL ? f->labels[ids[i]] : -1;
}

void pst_fill_finish(struct pst_filler *f, const struct pst_fill_job *job, char *slot,
                     struct pst_minibatch *mb, uint64_t asked)
{
    write_labels(f, slot, mb->n[0]);
    mb->requests = (uint32_t)asked;
    mb->last_micro = job->last_micro;
    mb->bytes_used = mb->features_at + (uint64_t)mb->n[mb->hops] * mb->stride_bytes;
    const double begin = pst_now();
    mb->digest = digest_of(mb, slot);
    f->digest_s += pst_now() - begin;
    memcpy(slot, mb, sizeof *mb);
}

static pst_rc fill_hop(struct pst_filler *f, const struct pst_fill_job *job, char *slot, int hop,
                       int64_t *count)
{
    const struct pst_minibatch_layout *l = &f->layout;
    const struct pst_minibatch_size *size = &l->size;
    struct pst_sample_key key = {
        .seed = job->seed, .epoch = job->epoch, .hop = (uint32_t)hop, .batch = job->batch_in_epoch};
    return pst_expand_hop(&f->expander, &key, (int)f->fanout[hop], (int64_t *)(void *)(slot + l->vertices_at),
                          count, size->n[hop + 1], (int32_t *)(void *)(slot + l->indptr_at[hop]),
                          (int32_t *)(void *)(slot + l->indices_at[hop]), size->edges[hop]);
}

pst_rc pst_sampling_fill(struct pst_filler *f, const struct pst_fill_job *job, void *slot,
                         pst_announce_fn announce, void *user, struct pst_fill_result *result)
{
    const struct pst_minibatch_layout *l = &f->layout;
    const int hops = l->size.hops;
    char *base = slot;
    struct pst_minibatch mb = pst_fill_begin(f, job);
    *result = (struct pst_fill_result){.fits = true};
    int64_t count = 0, provided = 0;
    uint64_t asked = 0;
    pst_rc rc = pst_expand_seeds(&f->expander, job->seeds, job->n, (int64_t *)(void *)(base + l->vertices_at),
                                 &count, l->size.n[0]);
    mb.n[0] = count;
    for (int h = 0; h <= hops && rc == PST_OK; h++) {
        uint64_t new_requests = provide_rows(f, base, provided, count, asked, result);
        uint64_t first_at = l->requests_at + asked * sizeof(struct pst_request);
        provided = count;
        asked += new_requests;
        if (h == hops)
            pst_fill_finish(f, job, base, &mb, asked);
        if (new_requests > 0 || h == hops) {
            rc = announce(user, result->parts++, first_at, new_requests, h == hops);
            if (rc != PST_OK)
                return rc;
        }
        if (h == hops)
            break;
        rc = fill_hop(f, job, base, h, &count);
        mb.n[h + 1] = count;
    }
    result->requests = asked;
    result->bytes_used = mb.features_at + (uint64_t)provided * mb.stride_bytes;
    if (rc == PST_E_LIMIT) {
        pst_fill_void(f, job, base, asked);
        result->fits = false;
        rc = PST_OK;
    }
    return rc;
}

pst_rc pst_sampling_measure(const struct pst_filler *f, const struct pst_fill_job *job,
                            struct pst_minibatch_size *needed)
{
    struct pst_minibatch_size bound;
    const int hops = f->layout.size.hops;
    pst_minibatch_size_bound(&bound, f->expander.graph, f->fanout, hops, job->n);
    int64_t edges = 1;
    for (int h = 0; h < hops; h++)
        edges = pst_max_i64(edges, bound.edges[h]);
    struct pst_expander x;
    pst_rc rc =
        pst_expander_init(&x, f->expander.graph, f->expander.sample, f->expander.user, bound.n[hops], edges);
    if (rc != PST_OK)
        return rc;
    int64_t *vertices = malloc((size_t)bound.n[hops] * sizeof *vertices);
    int32_t *indptr = malloc(((size_t)bound.n[hops] + 1) * sizeof *indptr);
    int32_t *indices = malloc((size_t)edges * sizeof *indices);
    *needed = (struct pst_minibatch_size){.hops = hops};
    if (vertices == NULL || indptr == NULL || indices == NULL) {
        rc = pst_fail(PST_E_NOMEM, "no memory to measure a sample");
        goto out;
    }
    int64_t count = 0;
    rc = pst_expand_seeds(&x, job->seeds, job->n, vertices, &count, bound.n[0]);
    needed->n[0] = count;
    for (int h = 0; h < hops && rc == PST_OK; h++) {
        struct pst_sample_key key = {
            .seed = job->seed, .epoch = job->epoch, .hop = (uint32_t)h, .batch = job->batch_in_epoch};
        int64_t n = count;
        rc = pst_expand_hop(&x, &key, (int)f->fanout[h], vertices, &count, bound.n[hops], indptr, indices,
                            edges);
        needed->edges[h] = rc == PST_OK ? indptr[n] : 0;
        needed->n[h + 1] = count;
    }
out:
    free(vertices);
    free(indptr);
    free(indices);
    pst_expander_release(&x);
    return rc;
}

/* Cuts the seeds from p->done to n into equal pieces of at most `most`. */
static void cut(struct pst_splits *p, int64_t n, int64_t most)
{
    int64_t left = n - p->done, pieces = (left + most - 1) / most, end = p->done;
    p->depth = pieces;
    /* the first left % pieces pieces are one longer; the nearest end goes on top */
    for (int64_t i = 0; i < pieces; i++) {
        end += left / pieces + (i < left % pieces);
        p->ends[pieces - 1 - i] = end;
    }
}

void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most)
{
    assert(n >= 1 && most >= 1);
    *p = (struct pst_splits){.ends = ends};
    cut(p, n, most);
}

bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last)
{
    if (p->depth == 0)
        return false;
    *begin = p->done;
    *n = p->ends[p->depth - 1] - p->done;
    *last = p->depth == 1;
    return true;
}

void pst_splits_pop(struct pst_splits *p)
{
    assert(p->depth > 0);
    p->done = p->ends[--p->depth];
}

bool pst_splits_split(struct pst_splits *p)
{
    assert(p->depth > 0);
    int64_t n = p->ends[p->depth - 1] - p->done;
    if (n < 2)
        return false;
    cut(p, p->ends[0], (n + 1) / 2);
    return true;
}
