/* hotness DATASET BATCH SEED EPOCHS FANOUT...: what a static cache of the hottest rows gets, by the source of
 * hotness. It samples EPOCHS epochs as the sampler of a run with this seed would, and counts the rows that a
 * cache of 1, 5, 10 and 20 % of all rows hits: the cache that analytic hotness chooses, that one pre-sampled
 * epoch (of the planner's seed) chooses, that out-degrees choose, and the best static one. Belady's cache
 * replaces rows after each batch by what is needed soonest, and is filled so before the first. Prints JSON.
 * Before that it checks what must hold for any graph: no static cache is better than the best, Belady's is
 * not worse, and a cache of all rows always hits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/clock.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/expand.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/topology/topology.h"

#define MEMORY (1u << 30)
#define FIRST_ROOM (1 << 20)

enum ranking { ANALYTIC, PRESAMPLE, DEGREE, BEST, RANKINGS };
static const char *const names[] = {"analytic", "presample", "out_degree", "best"};
static const double shares[] = {0.01, 0.05, 0.10, 0.20, 1};
enum { SHARES = sizeof shares / sizeof shares[0], SHARES_SHOWN = SHARES - 1 };

struct bench {
    struct pst_dataset ds;
    struct pst_csc graph;
    struct pst_sampling_opened algorithm;
    int hops;
    int64_t fanout[PST_HOPS_MAX], batch, epochs;
    uint64_t seed;
    struct pst_minibatch_size bound;
    /* the rows that each batch needs: those of batch b are ids[first[b]..first[b + 1]) */
    int64_t batches, batches_in_epoch;
    int64_t *first;
    int32_t *ids, *next; /* next: the next batch that needs the row; `batches` if there is none */
    int64_t room;
    float *scores[RANKINGS]; /* one for each vertex */
    double expected;         /* rows of an epoch, by analytic hotness */
    double seconds[2];       /* ANALYTIC, PRESAMPLE */
    int64_t hits[RANKINGS][SHARES], first_hits[RANKINGS][SHARES], belady[SHARES];
};

static pst_rc no_memory(const char *what)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %s", what);
}

/* ---- sampling ------------------------------------------------------------------------------------ */

static pst_rc keep(struct bench *b, int64_t at, const int64_t *vertices, int64_t n)
{
    if (at + n > b->room) {
        b->room = pst_max_i64(2 * b->room, at + n + FIRST_ROOM);
        int32_t *more = realloc(b->ids, (size_t)b->room * sizeof *more);
        if (more == NULL)
            return no_memory("the rows of all batches");
        b->ids = more;
    }
    for (int64_t i = 0; i < n; i++)
        b->ids[at + i] = (int32_t)vertices[i];
    return PST_OK;
}

struct sampler {
    struct pst_expander expander;
    struct pst_seeds seeds;
    int64_t *batch, *vertices;
    int32_t *indptr, *indices;
};

static pst_rc open_sampler(struct sampler *s, struct bench *b, uint64_t seed)
{
    int64_t edges = 1;
    const int64_t vertices = b->bound.n[b->hops];
    for (int h = 0; h < b->hops; h++)
        edges = pst_max_i64(edges, b->bound.edges[h]);
    *s = (struct sampler){.batch = malloc((size_t)b->batch * sizeof *s->batch),
                          .vertices = malloc((size_t)vertices * sizeof *s->vertices),
                          .indptr = malloc(((size_t)vertices + 1) * sizeof *s->indptr),
                          .indices = malloc((size_t)edges * sizeof *s->indices)};
    if (s->batch == NULL || s->vertices == NULL || s->indptr == NULL || s->indices == NULL)
        return no_memory("a sampler");
    const pst_rc rc = pst_seeds_init(&s->seeds, &b->ds, "train", b->batch, seed, true);
    return rc == PST_OK ? pst_expander_init(&s->expander, &b->graph, &b->algorithm, vertices, edges) : rc;
}

static void close_sampler(struct sampler *s)
{
    pst_expander_release(&s->expander);
    pst_seeds_release(&s->seeds);
    free(s->batch);
    free(s->vertices);
    free(s->indptr);
    free(s->indices);
}

static pst_rc draw(struct sampler *s, const struct bench *b, uint64_t batch, int64_t *count)
{
    const int64_t n = pst_seeds_of(&s->seeds, batch, s->batch), most = b->bound.n[b->hops];
    struct pst_sample_key key = {.seed = s->seeds.seed,
                                 .epoch = (uint32_t)(batch / s->seeds.batches),
                                 .batch = batch % s->seeds.batches};
    *count = 0;
    pst_rc rc = pst_expand_seeds(&s->expander, s->batch, n, s->vertices, count, most);
    for (int h = 0; h < b->hops && rc == PST_OK; h++) {
        key.hop = (uint32_t)h;
        rc = pst_expand_hop(&s->expander, &key, (int)b->fanout[h], s->vertices, count, most, s->indptr,
                            s->indices, NULL, b->bound.edges[h]);
    }
    return rc;
}

/* The run's batches: all rows are kept, and counted as the best static cache would. */
static pst_rc sample_run(struct bench *b)
{
    struct sampler s;
    pst_rc rc = open_sampler(&s, b, b->seed);
    b->batches_in_epoch = (int64_t)s.seeds.batches;
    b->batches = b->batches_in_epoch * b->epochs;
    b->first = calloc((size_t)b->batches + 1, sizeof *b->first);
    if (rc == PST_OK && b->first == NULL)
        rc = no_memory("the places of all batches");
    for (int64_t i = 0; i < b->batches && rc == PST_OK; i++) {
        int64_t count;
        rc = draw(&s, b, (uint64_t)i, &count);
        if (rc == PST_OK)
            rc = keep(b, b->first[i], s.vertices, count);
        for (int64_t k = 0; k < count && rc == PST_OK; k++)
            b->scores[BEST][s.vertices[k]]++;
        b->first[i + 1] = b->first[i] + count;
    }
    close_sampler(&s);
    return rc;
}

/* ---- rankings ------------------------------------------------------------------------------------ */

static pst_rc presample(struct bench *b)
{
    struct sampler s;
    const double begin = pst_now();
    pst_rc rc = open_sampler(&s, b, XXH3_64bits_withSeed("planner", strlen("planner"), b->seed));
    for (uint64_t i = 0; rc == PST_OK && i < s.seeds.batches; i++) {
        int64_t count;
        rc = draw(&s, b, i, &count);
        for (int64_t k = 0; k < count && rc == PST_OK; k++)
            b->scores[PRESAMPLE][s.vertices[k]]++;
    }
    close_sampler(&s);
    b->seconds[PRESAMPLE] = pst_now() - begin;
    return rc;
}

static pst_rc compute(struct bench *b)
{
    struct pst_seeds seeds;
    pst_rc rc = pst_seeds_init(&seeds, &b->ds, "train", b->batch, b->seed, true);
    if (rc != PST_OK)
        return rc;
    const int64_t vertices = b->graph.vertices;
    float *all = malloc((size_t)(b->hops + 1) * (size_t)vertices * sizeof *all);
    const struct pst_hotness_input in = {.graph = &b->graph,
                                         .seeds = seeds.ids,
                                         .nseeds = seeds.n,
                                         .batches = seeds.batches,
                                         .hops = b->hops,
                                         .fanout = b->fanout,
                                         .keep = b->algorithm.algorithm->keep_probability,
                                         .state = b->algorithm.state,
                                         .memory_bytes = MEMORY,
                                         .threads = 1};
    const double begin = pst_now();
    rc = all != NULL ? pst_hotness_analytic(&in, all) : no_memory("hotness");
    b->seconds[ANALYTIC] = pst_now() - begin;
    for (int64_t v = 0; v < vertices && rc == PST_OK; v++) {
        b->scores[ANALYTIC][v] = all[b->hops * vertices + v];
        b->expected += (double)b->scores[ANALYTIC][v];
    }
    free(all);
    pst_seeds_release(&seeds);
    return rc;
}

static void count_degrees(struct bench *b)
{
    for (int64_t e = 0; e < b->graph.edges; e++)
        b->scores[DEGREE][pst_dtype_int_at(b->ds.indices.map, b->ds.indices.dtype, e)]++;
}

/* ---- caches -------------------------------------------------------------------------------------- */

static int64_t rows_of(const struct bench *b, int share)
{
    return (int64_t)((double)b->graph.vertices * shares[share] + 0.5);
}

static pst_rc count_static(struct bench *b, int ranking, int share)
{
    int64_t *cache, cached;
    uint8_t *in = calloc((size_t)b->graph.vertices, 1);
    pst_rc rc = in != NULL ? pst_plan_choose(b->scores[ranking], b->graph.vertices, rows_of(b, share), &cache,
                                             &cached)
                           : no_memory("a cache");
    for (int64_t i = 0; rc == PST_OK && i < cached; i++)
        in[cache[i]] = 1;
    for (int64_t i = 0; rc == PST_OK && i < b->first[b->batches]; i++) {
        b->hits[ranking][share] += in[b->ids[i]];
        b->first_hits[ranking][share] += i < b->first[b->batches_in_epoch] && in[b->ids[i]];
    }
    if (rc == PST_OK)
        free(cache);
    free(in);
    return rc;
}

/* Writes next[], and to *soonest the first batch that needs each vertex. */
static pst_rc look_ahead(struct bench *b, int32_t *soonest)
{
    b->next = malloc((size_t)b->first[b->batches] * sizeof *b->next);
    if (b->next == NULL)
        return no_memory("the next use of each row");
    for (int64_t v = 0; v < b->graph.vertices; v++)
        soonest[v] = (int32_t)b->batches;
    for (int64_t batch = b->batches - 1; batch >= 0; batch--) {
        for (int64_t i = b->first[batch]; i < b->first[batch + 1]; i++) {
            b->next[i] = soonest[b->ids[i]];
            soonest[b->ids[i]] = (int32_t)batch;
        }
    }
    return PST_OK;
}

/* Cached rows by the batch that needs them next: lists, -1 at the end. */
struct belady {
    int32_t *head, *link;
    int64_t cached, room, latest; /* latest: no list after this one has rows */
};

static void add(struct belady *c, int32_t v, int64_t batch)
{
    c->link[v] = c->head[batch];
    c->head[batch] = v;
    c->cached++;
    c->latest = pst_max_i64(c->latest, batch);
    if (c->cached <= c->room)
        return;
    while (c->head[c->latest] < 0)
        c->latest--;
    c->head[c->latest] = c->link[c->head[c->latest]];
    c->cached--;
}

static int64_t run_belady(const struct bench *b, struct belady *c, const int32_t *soonest)
{
    int64_t hits = 0;
    for (int64_t v = 0; v < b->graph.vertices; v++) {
        if (soonest[v] < b->batches)
            add(c, (int32_t)v, soonest[v]);
    }
    for (int64_t batch = 0; batch < b->batches; batch++) {
        for (int32_t v = c->head[batch]; v >= 0; v = c->link[v], c->cached--)
            hits++;
        c->head[batch] = -1;
        for (int64_t i = b->first[batch]; i < b->first[batch + 1]; i++) {
            if (b->next[i] < b->batches)
                add(c, b->ids[i], b->next[i]);
        }
    }
    return hits;
}

static pst_rc count_belady(struct bench *b)
{
    const size_t vertices = (size_t)b->graph.vertices;
    int32_t *soonest = malloc(vertices * sizeof *soonest);
    struct belady c = {malloc(((size_t)b->batches + 1) * sizeof *c.head), malloc(vertices * sizeof *c.link),
                       0, 0, 0};
    pst_rc rc = soonest != NULL && c.head != NULL && c.link != NULL ? look_ahead(b, soonest)
                                                                    : no_memory("Belady's cache");
    for (int share = 0; share < SHARES && rc == PST_OK; share++) {
        for (int64_t i = 0; i <= b->batches; i++)
            c.head[i] = -1;
        c.cached = c.latest = 0;
        c.room = rows_of(b, share);
        b->belady[share] = run_belady(b, &c, soonest);
    }
    free(soonest);
    free(c.head);
    free(c.link);
    return rc;
}

static pst_rc check(const struct bench *b)
{
    const int64_t lookups = b->first[b->batches];
    for (int share = 0; share < SHARES; share++) {
        for (int r = 0; r < RANKINGS; r++) {
            if (b->hits[r][share] > b->hits[BEST][share] ||
                (shares[share] == 1 && b->hits[r][share] != lookups))
                return pst_fail(PST_E_STATE,
                                "wrong result: %s has %lld hits in %lld lookups with a cache of %g of all "
                                "rows; expected at most those of the best static cache",
                                names[r], (long long)b->hits[r][share], (long long)lookups, shares[share]);
        }
        if (b->belady[share] < b->hits[BEST][share] || (shares[share] == 1 && b->belady[share] != lookups))
            return pst_fail(PST_E_STATE,
                            "wrong result: Belady's cache has %lld hits, but the best static cache has %lld; "
                            "expected Belady's to have at least as many",
                            (long long)b->belady[share], (long long)b->hits[BEST][share]);
    }
    return PST_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static pst_rc open_bench(struct bench *b, int argc, char **argv)
{
    b->batch = strtoll(argv[2], NULL, 10);
    b->seed = strtoull(argv[3], NULL, 10);
    b->epochs = strtoll(argv[4], NULL, 10);
    for (b->hops = 0; b->hops < argc - 5; b->hops++)
        b->fanout[b->hops] = strtoll(argv[5 + b->hops], NULL, 10);
    pst_rc rc = pst_dataset_open(&b->ds, argv[1]);
    if (rc == PST_OK)
        rc = pst_sampling_algorithm_find(&b->algorithm, "uniform");
    if (rc != PST_OK)
        return rc;
    b->graph = pst_topology_mapped(&b->ds);
    const struct pst_sampling_setup setup = {
        .dataset = &b->ds, .graph = &b->graph, .hops = b->hops, .fanout = b->fanout};
    pst_sampling_size_bound(&b->bound, &b->algorithm, &b->graph, b->fanout, b->hops, b->batch);
    for (int r = 0; r < RANKINGS; r++) {
        b->scores[r] = calloc((size_t)b->graph.vertices, sizeof *b->scores[r]);
        if (b->scores[r] == NULL)
            return no_memory("a ranking");
    }
    return pst_sampling_algorithm_open(&b->algorithm, "", &setup);
}

static void print(const struct bench *b)
{
    printf("{\"batches\": %lld, \"lookups\": %lld, \"expected\": %.0f, \"analytic_s\": %.3f, "
           "\"presample_s\": %.3f, "
           "\"first_epoch\": {\"lookups\": %lld",
           (long long)b->batches, (long long)b->first[b->batches], b->expected * (double)b->epochs,
           b->seconds[ANALYTIC], b->seconds[PRESAMPLE], (long long)b->first[b->batches_in_epoch]);
    for (int r = 0; r < BEST; r++)
        printf(", \"%s\": %lld", names[r], (long long)b->first_hits[r][2]);
    printf("}, \"hits\": {");
    for (int share = 0; share < SHARES_SHOWN; share++) {
        printf("%s\"%g\": {", share ? ", " : "", shares[share]);
        for (int r = 0; r < RANKINGS; r++)
            printf("\"%s\": %lld, ", names[r], (long long)b->hits[r][share]);
        printf("\"belady\": %lld}", (long long)b->belady[share]);
    }
    printf("}}\n");
}

static pst_rc measure(struct bench *b)
{
    pst_rc rc = compute(b);
    if (rc == PST_OK)
        rc = presample(b);
    if (rc == PST_OK)
        rc = sample_run(b);
    if (rc != PST_OK)
        return rc;
    count_degrees(b);
    for (int r = 0; r < RANKINGS; r++)
        for (int share = 0; share < SHARES && rc == PST_OK; share++)
            rc = count_static(b, r, share);
    if (rc == PST_OK)
        rc = count_belady(b);
    return rc == PST_OK ? check(b) : rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.batch = 0};
    if (argc < 6 || argc > 5 + PST_HOPS_MAX) {
        (void)fprintf(stderr, "usage: hotness DATASET BATCH SEED EPOCHS FANOUT...\n");
        return 2;
    }
    pst_rc rc = open_bench(&b, argc, argv);
    if (rc == PST_OK)
        rc = measure(&b);
    if (rc == PST_OK)
        print(&b);
    else
        (void)fprintf(stderr, "hotness: %s\n", pst_error_text());
    pst_sampling_algorithm_close(&b.algorithm);
    pst_dataset_close(&b.ds);
    for (int r = 0; r < RANKINGS; r++)
        free(b.scores[r]);
    free(b.first);
    free(b.ids);
    free(b.next);
    return rc != PST_OK;
}
