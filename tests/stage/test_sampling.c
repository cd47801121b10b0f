/* Filling a slot, without a host: layout, blocks, requests, cache, splitting, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stages/lib/sampling/fill.h"
#include "stages/lib/sampling/cut.h"
#include "common/error.h"
#include "common/slots/request.h"
#include "common/store/array_id.h"

#define VERTICES 3000
#define STRIDE 512
#define ROW 400
#define SEEDS 200
#define PARTS_MAX 32

struct fixture {
    struct pst_csc graph;
    int64_t *indptr;
    int32_t *indices;
    int32_t *labels;
    bool replace;
    struct pst_sampling_opened algorithm;
    struct pst_filler filler;
    int64_t seeds[SEEDS];
    void *slot;
    /* what was announced */
    int parts;
    bool last;
    uint64_t first_at[PARTS_MAX], count[PARTS_MAX];
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Degrees from 0 to 199, most of them small. */
static void make_graph(struct fixture *f)
{
    f->indptr = calloc(VERTICES + 1, sizeof *f->indptr);
    for (int64_t v = 0; v < VERTICES; v++)
        f->indptr[v + 1] = f->indptr[v] + (v % 50 == 0 ? 199 : v % 7);
    int64_t edges = f->indptr[VERTICES];
    f->indices = malloc((size_t)edges * sizeof *f->indices);
    for (int64_t v = 0; v < VERTICES; v++) /* distinct neighbours */
        for (int64_t e = f->indptr[v]; e < f->indptr[v + 1]; e++)
            f->indices[e] = (int32_t)((mix((uint64_t)v) + (uint64_t)(e - f->indptr[v]) * 13) % VERTICES);
    f->labels = malloc(VERTICES * sizeof *f->labels);
    for (int32_t v = 0; v < VERTICES; v++)
        f->labels[v] = v % 10 - 1;
    f->graph = (struct pst_csc){f->indptr, f->indices, 4, VERTICES, edges};
    for (int64_t i = 0; i < SEEDS; i++)
        f->seeds[i] = i * 11 % VERTICES;
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct fixture *f = state;
    return pst_k_sample(NULL, h->graph, h->key, h->vertices, h->n, h->fanout, f->replace, h->indptr, h->out,
                        h->capacity);
}

static const struct pst_sampling_algorithm uniform = {.name = "uniform", .draw = draw};

static void make_slot(struct fixture *f, const int64_t *fanout, int hops, double margin)
{
    struct pst_minibatch_size bound, caps;
    f->algorithm = (struct pst_sampling_opened){.algorithm = &uniform, .state = f};
    pst_sampling_size_bound(&bound, &f->algorithm, &f->graph, fanout, hops, SEEDS);
    pst_minibatch_size_scale(&caps, &bound, &bound, margin);
    pst_minibatch_layout_init(&f->filler.layout, &caps, STRIDE);
    memcpy(f->filler.fanout, fanout, (size_t)hops * sizeof *fanout);
    f->filler.labels = f->labels;
    f->filler.feature_dim = ROW / 4;
    f->filler.row_bytes = ROW;
    assert_int_equal(pst_filler_init(&f->filler, &f->graph, &f->algorithm), PST_OK);
    f->slot = aligned_alloc(PST_PAGE, f->filler.layout.bytes);
    memset(f->slot, 0xEE, f->filler.layout.bytes);
}

static void setup(struct fixture *f, const int64_t *fanout, int hops, double margin)
{
    memset(f, 0, sizeof *f);
    make_graph(f);
    make_slot(f, fanout, hops, margin);
}

static void teardown(struct fixture *f)
{
    pst_filler_release(&f->filler);
    free(f->slot);
    free(f->indptr);
    free(f->indices);
    free(f->labels);
}

static pst_rc announce(void *to, uint32_t part, uint64_t first_at, uint64_t count, bool last)
{
    struct fixture *f = to;
    assert_int_equal(part, f->parts);
    assert_false(f->last);
    f->first_at[f->parts] = first_at;
    f->count[f->parts++] = count;
    f->last = last;
    return PST_OK;
}

static struct pst_fill_job job_of(const struct fixture *f, int64_t begin, int64_t n)
{
    return (struct pst_fill_job){.seed = 5,
                                 .epoch = 1,
                                 .batch = 12,
                                 .batch_in_epoch = 2,
                                 .batches_in_epoch = 10,
                                 .last_micro = true,
                                 .batch_seeds = SEEDS,
                                 .whole_n = SEEDS,
                                 .seeds = f->seeds + begin,
                                 .n = n,
                                 .overlap = true,
                                 .early = true};
}

static struct pst_fill_result fill(struct fixture *f, const struct pst_fill_job *job)
{
    f->parts = 0;
    f->last = false;
    struct pst_fill_result result;
    pst_rc rc = pst_sampling_fill(&f->filler, job, f->slot, announce, f, &result);
    if (rc != PST_OK)
        print_error("%s\n", pst_error_text());
    assert_int_equal(rc, PST_OK);
    rc = result.fits || result.parts > 0 ? pst_minibatch_check(f->slot, f->filler.layout.bytes) : PST_OK;
    if (rc != PST_OK)
        print_error("%s\n", pst_error_text());
    assert_int_equal(rc, PST_OK);
    return result;
}

static bool is_edge(const struct fixture *f, int64_t to, int64_t from)
{
    for (int64_t e = f->indptr[to]; e < f->indptr[to + 1]; e++) {
        if (f->indices[e] == from)
            return true;
    }
    return false;
}

static void check_blocks(const struct fixture *f, const int64_t *fanout)
{
    const struct pst_minibatch *mb = f->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    bool seen[VERTICES] = {false};
    for (int64_t i = 0; i < mb->n[mb->hops]; i++) {
        assert_false(seen[vertices[i]]);
        seen[vertices[i]] = true;
    }
    for (uint32_t h = 0; h < mb->hops; h++) {
        const int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[h]);
        const int32_t *indices = pst_minibatch_at(mb, mb->indices_at[h]);
        int32_t highest = (int32_t)mb->n[h] - 1;
        for (int64_t d = 0; d < mb->n[h]; d++) {
            int64_t degree = f->indptr[vertices[d] + 1] - f->indptr[vertices[d]];
            int64_t want = fanout[h] < 0 ? degree
                           : f->replace  ? (degree ? fanout[h] : 0)
                                         : pst_min_i64(degree, fanout[h]);
            assert_int_equal(indptr[d + 1] - indptr[d], want);
            for (int32_t e = indptr[d]; e < indptr[d + 1]; e++) {
                assert_true(is_edge(f, vertices[d], vertices[indices[e]]));
                assert_true(indices[e] <= highest + 1); /* newcomers come in order of appearance */
                highest = indices[e] > highest ? indices[e] : highest;
            }
        }
        assert_int_equal(highest + 1, mb->n[h + 1]);
    }
}

static void check_requests(const struct fixture *f)
{
    const struct pst_minibatch *mb = f->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    const int32_t *in_place = mb->in_place_at != 0 ? pst_minibatch_at(mb, mb->in_place_at) : NULL;
    int64_t vertex_of[VERTICES] = {0}, stored = 0; /* of each row in features */
    for (int64_t i = 0; i < mb->n[mb->hops]; i++)
        if (in_place == NULL || in_place[i] < 0)
            vertex_of[in_place != NULL ? -1 - in_place[i] : i] = vertices[i], stored++;
    bool asked[VERTICES] = {false};
    uint64_t expected_at = mb->requests_at, all = 0;
    for (int p = 0; p < f->parts; p++) {
        if (f->count[p] > 0)
            assert_int_equal(f->first_at[p], expected_at);
        const struct pst_request *r = pst_minibatch_at(mb, f->first_at[p]);
        for (uint64_t i = 0; i < f->count[p]; i++) {
            uint64_t row = (r[i].offset - mb->features_at) / STRIDE;
            assert_int_equal((r[i].offset - mb->features_at) % STRIDE, 0);
            assert_in_range(row, 0, (uint64_t)stored - 1);
            assert_int_equal(vertex_of[row], r[i].row);
            assert_int_equal(((const int32_t *)pst_minibatch_at(mb, mb->missing_at))[all + i], row);
            assert_int_equal(r[i].tag, r[i].row);
            assert_int_equal(r[i].rows, 1);
            assert_int_equal(r[i].array, PST_ARRAY_FEATURES);
            assert_int_equal(r[i].op, PST_REQUEST_READ);
            assert_false(asked[row]);
            asked[row] = true;
        }
        expected_at += f->count[p] * sizeof(struct pst_request);
        all += f->count[p];
    }
    assert_true(f->last);
    assert_int_equal(all, mb->requests);
}

static void blocks_are_true(void **state)
{
    (void)state;
    static const int64_t fanouts[][4] = {
        {10, 5, 0, 0}, {3, -1, 2, 0}, {0, 0, 0, 0}, {-1, -1, 0, 0}, {40, 2, 2, 2}};
    static const int hops[] = {2, 3, 2, 2, 4};
    for (size_t i = 0; i < sizeof hops / sizeof hops[0]; i++) {
        for (int replace = 0; replace <= 1; replace++) {
            struct fixture f;
            setup(&f, fanouts[i], hops[i], 1);
            f.replace = replace != 0;
            struct pst_fill_job job = job_of(&f, 0, SEEDS);
            struct pst_fill_result result = fill(&f, &job);
            assert_true(result.fits);
            const struct pst_minibatch *mb = f.slot;
            assert_int_equal(mb->n[0], SEEDS);
            assert_memory_equal(pst_minibatch_at(mb, mb->vertices_at), f.seeds, sizeof f.seeds);
            const int32_t *labels = pst_minibatch_at(mb, mb->labels_at);
            for (int k = 0; k < SEEDS; k++)
                assert_int_equal(labels[k], f.labels[f.seeds[k]]);
            check_blocks(&f, fanouts[i]);
            check_requests(&f);
            assert_int_equal(mb->requests, mb->n[mb->hops]);
            assert_int_equal(mb->bytes_used, mb->features_at + (uint64_t)mb->n[mb->hops] * STRIDE);
            assert_int_equal(mb->last_micro, 1);
            teardown(&f);
        }
    }
}

static void arrays_lie_apart(void **state)
{
    (void)state;
    const int64_t fanout[] = {7, 3};
    struct fixture f;
    setup(&f, fanout, 2, 1);
    const struct pst_minibatch_layout *l = &f.filler.layout;
    const struct pst_minibatch_size *c = &l->size;
    uint64_t at[] = {l->vertices_at,   l->labels_at,   l->indptr_at[0], l->indices_at[0], l->indptr_at[1],
                     l->indices_at[1], l->requests_at, l->features_at,  l->bytes};
    uint64_t bytes[] = {(uint64_t)c->n[2] * 8,     (uint64_t)c->n[0] * 4,     (uint64_t)c->n[0] * 4 + 4,
                        (uint64_t)c->edges[0] * 4, (uint64_t)c->n[1] * 4 + 4, (uint64_t)c->edges[1] * 4,
                        (uint64_t)c->n[2] * 32,    (uint64_t)c->n[2] * STRIDE};
    assert_true(at[0] >= sizeof(struct pst_minibatch));
    for (int i = 0; i < 8; i++) {
        assert_true(at[i] + bytes[i] <= at[i + 1]);
        assert_int_equal(at[i] % 8, 0);
    }
    assert_int_equal(l->features_at % PST_PAGE, 0);
    teardown(&f);
}

static uint64_t digest_with(struct fixture *f, uint64_t seed, uint32_t epoch, uint64_t batch)
{
    struct pst_fill_job job = job_of(f, 0, SEEDS);
    job.seed = seed;
    job.epoch = epoch;
    job.batch_in_epoch = batch;
    assert_true(fill(f, &job).fits);
    return ((const struct pst_minibatch *)f->slot)->digest;
}

static void equal_keys_equal_samples(void **state)
{
    (void)state;
    const int64_t fanout[] = {4, 3};
    struct fixture f;
    setup(&f, fanout, 2, 1);
    uint64_t digest = digest_with(&f, 1, 0, 0);
    assert_true(digest_with(&f, 2, 0, 0) != digest);
    assert_true(digest_with(&f, 1, 1, 0) != digest);
    assert_true(digest_with(&f, 1, 0, 1) != digest);
    memset(f.slot, 0x55, f.filler.layout.bytes); /* nothing of the past shows through */
    assert_true(digest_with(&f, 1, 0, 0) == digest);
    teardown(&f);
}

/* Sizes the slot anew: features holds this many rows, and cached rows stay in the cache. */
static void store(struct fixture *f, int64_t rows)
{
    struct pst_minibatch_size size = f->filler.layout.size;
    size.stored = rows;
    pst_minibatch_layout_init(&f->filler.layout, &size, STRIDE);
    free(f->slot);
    f->slot = aligned_alloc(PST_PAGE, f->filler.layout.bytes);
    memset(f->slot, 0xEE, f->filler.layout.bytes);
}

/* The same slot with its cached rows in place. It has room for its other rows, and not for fewer. */
static void check_rows_that_stay(struct fixture *f, const int64_t *cached, int64_t n, int64_t misses)
{
    struct pst_fill_job job = job_of(f, 0, SEEDS);
    f->filler.cache_n = n;
    store(f, pst_max_i64(1, misses));
    const struct pst_fill_result result = fill(f, &job);
    assert_true(result.fits && !result.crowded);
    check_requests(f);
    const struct pst_minibatch *mb = f->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    const int32_t *in_place = pst_minibatch_at(mb, mb->in_place_at);
    for (int64_t i = 0; i < mb->n[2]; i++)
        assert_true(in_place[i] < 0 || cached[in_place[i]] == vertices[i]);
    assert_int_equal(mb->requests, misses);
    assert_int_equal(result.in_place, mb->n[2] - misses);
    assert_int_equal(mb->bytes_used, mb->features_at + (uint64_t)misses * STRIDE);
    assert_int_equal(mb->in_place_rows, n);
    for (int early = 0; misses > 1 && early < 2; early++) {
        store(f, misses - 1);
        job.early = early != 0;
        const struct pst_fill_result full = fill(f, &job);
        assert_true(!full.fits && full.crowded);
        assert_true((full.parts > 0) == job.early); /* then the slot travels empty */
        if (full.parts > 0)
            assert_int_equal(((struct pst_minibatch *)f->slot)->n[2], 0);
    }
}

static void cached_rows_are_in_place(void **state)
{
    (void)state;
    const int64_t fanout[] = {5, 5};
    for (int step = 1; step <= 3; step++) { /* all, half, a third */
        struct fixture f;
        setup(&f, fanout, 2, 1);
        int64_t cached[VERTICES], n = 0;
        for (int64_t v = 0; v < VERTICES; v += step)
            cached[n++] = v;
        char *rows = malloc((size_t)n * STRIDE);
        for (int64_t i = 0; i < n; i++)
            memset(rows + i * STRIDE, (int)(cached[i] % 251), STRIDE);
        void *memory = aligned_alloc(64, pst_align_up(pst_k_cache_bytes(n), 64));
        f.filler.cache = pst_k_cache_init(memory, cached, n);
        f.filler.cache_rows = rows;
        struct pst_fill_job job = job_of(&f, 0, SEEDS);
        struct pst_fill_result result = fill(&f, &job);
        check_requests(&f);
        const struct pst_minibatch *mb = f.slot;
        const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
        uint64_t hits = 0;
        for (int64_t i = 0; i < mb->n[2]; i++) {
            const uint8_t *row = (const uint8_t *)pst_minibatch_at(mb, mb->features_at) + i * STRIDE;
            bool hit = vertices[i] % step == 0;
            hits += hit;
            for (int c = 0; c < ROW; c++)
                assert_int_equal(row[c], hit ? vertices[i] % 251 : 0xEE);
        }
        assert_int_equal(result.hits, hits);
        assert_int_equal(result.lookups, mb->n[2]);
        assert_int_equal(mb->requests, (uint64_t)mb->n[2] - hits);
        if (step == 1)
            assert_int_equal(f.parts, 1); /* nothing to announce but the end */
        check_rows_that_stay(&f, cached, n, mb->n[2] - (int64_t)hits);
        free(memory);
        free(rows);
        teardown(&f);
    }
}

/* ---- overflow ------------------------------------------------------------------------------------ */

/* The neighbours that each seed got in hop 0, as one number a seed. */
static void remember_seeds(const struct fixture *f, uint64_t *marks, int *times)
{
    const struct pst_minibatch *mb = f->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    const int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[0]);
    const int32_t *indices = pst_minibatch_at(mb, mb->indices_at[0]);
    for (int64_t d = 0; d < mb->n[0]; d++) {
        uint64_t mark = 1;
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++)
            mark = mix(mark + (uint64_t)vertices[indices[e]]);
        marks[vertices[d]] = mark;
        times[vertices[d]]++;
    }
}

static void pieces_make_the_same_batch(void **state)
{
    (void)state;
    static uint64_t whole[VERTICES], split[VERTICES];
    static int whole_times[VERTICES], split_times[VERTICES];
    const int64_t fanout[] = {10, 5};
    struct fixture f;
    setup(&f, fanout, 2, 1);
    struct pst_fill_job job = job_of(&f, 0, SEEDS);
    assert_true(fill(&f, &job).fits);
    remember_seeds(&f, whole, whole_times);
    teardown(&f);

    setup(&f, fanout, 2, 0.05);
    int64_t ends[SEEDS];
    struct pst_splits pieces;
    pst_splits_init(&pieces, ends, SEEDS, f.filler.layout.size.n[0], NULL);
    int voids = 0, micro = 0, lasts = 0;
    bool last;
    for (int64_t begin, n; pst_splits_next(&pieces, &begin, &n, &last); micro++) {
        job = job_of(&f, begin, n);
        job.micro = (uint32_t)micro;
        job.last_micro = last;
        struct pst_fill_result result = fill(&f, &job);
        const struct pst_minibatch *mb = f.slot;
        assert_int_equal(mb->micro, micro);
        if (result.fits) {
            check_blocks(&f, fanout);
            remember_seeds(&f, split, split_times);
            pst_splits_pop(&pieces);
            lasts += (int)mb->last_micro;
        } else {
            assert_int_equal(mb->n[0], 0);
            assert_int_equal(mb->n[2], 0);
            assert_int_equal(mb->last_micro, 0);
            assert_false(f.last); /* the caller ends a void micro-batch */
            assert_true(pst_splits_split(&pieces));
            voids++;
        }
    }
    assert_true(voids > 0);
    assert_int_equal(lasts, 1);
    assert_memory_equal(whole_times, split_times, sizeof whole_times);
    assert_memory_equal(whole, split, sizeof whole);
    teardown(&f);
}

/* Without `early`, the same slot's requests are announced in one piece, and a sample that does not fit
 * announces nothing. Without `overlap`, the only part is the last. */
static void late_rows_are_announced_at_once(void **state)
{
    (void)state;
    const int64_t fanout[] = {10, 5};
    struct fixture f;
    setup(&f, fanout, 2, 1);
    struct pst_fill_job job = job_of(&f, 0, SEEDS);
    assert_true(fill(&f, &job).parts > 1);
    const uint64_t digest = ((const struct pst_minibatch *)f.slot)->digest;
    job.early = false;
    for (int overlap = 0; overlap < 2; overlap++) {
        job.overlap = overlap;
        const struct pst_fill_result result = fill(&f, &job);
        assert_int_equal(result.parts, overlap ? 2 : 1);
        assert_int_equal(f.count[0], result.requests);
        assert_true(((const struct pst_minibatch *)f.slot)->digest == digest);
        check_requests(&f);
    }
    teardown(&f);

    setup(&f, fanout, 2, 0.05);
    struct pst_fill_result none = {0};
    job = job_of(&f, 0, f.filler.layout.size.n[0]);
    job.early = false;
    assert_int_equal(pst_sampling_fill(&f.filler, &job, f.slot, announce, &f, &none), PST_OK);
    assert_false(none.fits);
    assert_int_equal(none.parts, 0);
    assert_int_equal(none.requests, 0);
    assert_int_equal(f.parts, 0);
    teardown(&f);
}

static void what_is_measured_fits(void **state)
{
    (void)state;
    const int64_t fanout[] = {-1, -1};
    struct fixture f;
    setup(&f, fanout, 2, 0.01);
    struct pst_fill_job job = job_of(&f, 0, 1);
    f.seeds[0] = 50; /* 199 neighbours */
    assert_false(fill(&f, &job).fits);
    struct pst_minibatch_size need;
    assert_int_equal(pst_sampling_measure(&f.filler, &job, &need), PST_OK);
    assert_int_equal(need.n[0], 1);
    assert_int_equal(need.edges[0], 199);
    assert_true(need.n[1] > 190 && need.n[2] >= need.n[1]);
    pst_filler_release(&f.filler);
    free(f.slot);
    pst_minibatch_layout_init(&f.filler.layout, &need, STRIDE);
    assert_int_equal(pst_filler_init(&f.filler, &f.graph, &f.algorithm), PST_OK);
    f.slot = aligned_alloc(PST_PAGE, f.filler.layout.bytes);
    assert_true(fill(&f, &job).fits);
    for (int h = 0; h < 3; h++) { /* and one less does not */
        struct pst_minibatch_size less = need;
        less.n[2] -= h == 0;
        less.edges[0] -= h == 1;
        less.edges[1] -= h == 2;
        pst_filler_release(&f.filler);
        free(f.slot);
        pst_minibatch_layout_init(&f.filler.layout, &less, STRIDE);
        assert_int_equal(pst_filler_init(&f.filler, &f.graph, &f.algorithm), PST_OK);
        f.slot = aligned_alloc(PST_PAGE, f.filler.layout.bytes);
        assert_false(fill(&f, &job).fits);
    }
    teardown(&f);
}

static void bounds_are_counts_that_fit(void **state)
{
    (void)state;
    struct pst_minibatch_size size;
    const struct pst_sampling_opened opened = {.algorithm = &uniform};
    const struct pst_csc huge = {.vertices = INT64_MAX / 2, .edges = INT64_MAX / 2};
    const int64_t fanout[] = {4096, 4096, -1};
    pst_sampling_size_bound(&size, &opened, &huge, fanout, 3, 1 << 20);
    for (int h = 0; h < 3; h++)
        assert_in_range(size.edges[h], 1, INT32_MAX);
    assert_in_range(size.n[3], 1, INT32_MAX);
}

/* ---- damage -------------------------------------------------------------------------------------- */

static void must_refuse(struct fixture *f, const char *words)
{
    struct pst_fill_job job = job_of(f, 0, SEEDS);
    struct pst_fill_result result;
    f->parts = 0;
    f->last = false;
    assert_int_equal(pst_sampling_fill(&f->filler, &job, f->slot, announce, f, &result), PST_E_FORMAT);
    if (strstr(pst_error_text(), words) == NULL)
        fail_msg("%s", pst_error_text());
}

static pst_rc draw_nonsense(void *state, const struct pst_sampling_hop *h)
{
    memset(h->indptr, 0, ((size_t)h->n + 1) * sizeof *h->indptr);
    h->indptr[h->n] = 1;
    h->out[0] = *(const int64_t *)state;
    return PST_OK;
}

static void damage_is_an_error(void **state)
{
    (void)state;
    const int64_t fanout[] = {-1, 5};
    struct fixture f;
    setup(&f, fanout, 2, 1);
    const int64_t good = f.indptr[12];
    f.indptr[12] = INT64_MAX;
    must_refuse(&f, "indptr gives vertex 11");
    f.indptr[12] = -1;
    must_refuse(&f, "indptr gives vertex 11");
    f.indptr[12] = good;
    f.indices[f.indptr[11]] = VERTICES;
    must_refuse(&f, "edge");
    f.indices[f.indptr[11]] = -1;
    must_refuse(&f, "edge");
    f.indices[f.indptr[11]] = 0;
    f.seeds[7] = VERTICES;
    must_refuse(&f, "split");
    f.seeds[7] = 7;
    const int64_t bad_ids[] = {-1, VERTICES, INT64_MIN};
    const struct pst_sampling_algorithm nonsense = {.name = "nonsense", .draw = draw_nonsense};
    f.algorithm.algorithm = &nonsense;
    for (int i = 0; i < 3; i++) {
        f.algorithm.state = (void *)(uintptr_t)&bad_ids[i];
        must_refuse(&f, "edge");
    }
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_true),
        cmocka_unit_test(arrays_lie_apart),
        cmocka_unit_test(equal_keys_equal_samples),
        cmocka_unit_test(cached_rows_are_in_place),
        cmocka_unit_test(pieces_make_the_same_batch),
        cmocka_unit_test(late_rows_are_announced_at_once),
        cmocka_unit_test(what_is_measured_fits),
        cmocka_unit_test(bounds_are_counts_that_fit),
        cmocka_unit_test(damage_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
