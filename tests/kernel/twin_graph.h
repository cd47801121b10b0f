/* twin_graph.h: what the twin tests of the sampler's kernels share: random graphs, draws and dedup tables. */
#ifndef TWIN_GRAPH_H
#define TWIN_GRAPH_H

#include "tests/kernel/twin_fixture.h"

static const size_t I32 = sizeof(int32_t), I64 = sizeof(int64_t);

struct graph {
    struct both indptr, indices;
    struct pst_csc host, device;
};

/* Degrees are small, with a few large ones: some vertices have all taken, some are drawn from. */
static inline struct graph graph_new(int64_t vertices, int index_bytes, int64_t degree_most)
{
    struct graph g = {.indptr = both_new((size_t)(vertices + 1) * I64)};
    int64_t *indptr = g.indptr.host;
    for (int64_t v = 0; v < vertices; v++)
        indptr[v + 1] = indptr[v] + (int64_t)rnd(rnd(8) ? 40 : (uint64_t)degree_most + 1);
    send(&g.indptr);
    const int64_t edges = indptr[vertices];
    g.indices = both_new((size_t)(edges * index_bytes));
    for (int64_t e = 0; e < edges; e++) {
        const int64_t u = (int64_t)rnd((uint64_t)vertices);
        if (index_bytes == 4)
            ((int32_t *)g.indices.host)[e] = (int32_t)u;
        else
            ((int64_t *)g.indices.host)[e] = u;
    }
    send(&g.indices);
    g.host = (struct pst_csc){g.indptr.host, g.indices.host, index_bytes, vertices, edges};
    g.device = g.host;
    g.device.indptr = g.indptr.device;
    g.device.indices = g.indices.device;
    return g;
}

static inline void graph_free(struct graph *g)
{
    both_free(&g->indptr);
    both_free(&g->indices);
}

static inline int random_fanout(void)
{
    static const int fanouts[] = {-1, 0,  1,  2,  4,  5,  8,  9,   16,   17,
                                  25, 31, 32, 33, 63, 64, 65, 300, 1000, PST_FANOUT_MAX};
    return rnd(2) ? (int)rnd(33) : fanouts[rnd(sizeof fanouts / sizeof *fanouts)];
}

/* Every other time, what CUDA's twin is asked to do becomes a graph, which runs twice and finds the random
 * numbers in the device's memory. The call then gets another stream or key. */
static inline bool replay_begin(struct pst_rng_stream stream)
{
    static struct both draws;
    if (rnd(2))
        return false;
    if (!draws.host)
        draws = both_new(sizeof stream);
    memcpy(draws.host, &stream, sizeof stream);
    send(&draws);
    assert_int_equal(cuda->graph_begin(queue), PST_OK);
    cuda->draws_at(queue, draws.device);
    return true;
}

static inline struct pst_sample_key replay_key(bool replays, struct pst_sample_key key)
{
    key.batch += replays;
    return key;
}

static inline void replay_end(bool replays)
{
    struct pst_twin_graph *graph;
    if (!replays)
        return;
    cuda->draws_at(queue, NULL);
    if (cuda->graph_end(queue, &graph, why) != PST_OK)
        fail_msg("%s", why);
    for (int run = 0; run < 2; run++)
        assert_int_equal(cuda->graph_run(queue, graph), PST_OK);
    cuda->graph_free(graph);
}

static inline struct pst_rng_stream stream_of(const struct pst_sample_key *key)
{
    return pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop);
}

struct draw {
    struct pst_sample_key key;
    struct both vertices, indptr, out, numbers; /* numbers: n, total */
    int64_t n, capacity;
    int fanout;
    bool replace;
};

/* Both twins; CUDA's n is in device memory every other time. Returns the CPU's result. */
static inline pst_rc draw_both(const struct graph *g, const struct draw *d)
{
    const pst_rc rc = cpu->sample(NULL, &g->host, &d->key, d->vertices.host, d->n, d->fanout, d->replace,
                                  d->indptr.host, d->out.host, d->capacity);
    int64_t *numbers = d->numbers.host;
    numbers[0] = d->n;
    send(&d->numbers);
    const bool there = rnd(2);
    const struct pst_twin_n n = {there ? d->numbers.device : NULL, d->n + (there ? (int64_t)rnd(50) : 0)};
    if (rnd(4) > 0) {
        const bool replays = replay_begin(stream_of(&d->key));
        const struct pst_sample_key key = replay_key(replays, d->key);
        assert_int_equal(cuda->sample_n(queue, &g->device, &key, d->vertices.device, n, d->fanout, d->replace,
                                        d->indptr.device, d->out.device, d->capacity,
                                        (int64_t *)d->numbers.device + 1),
                         PST_OK);
        replay_end(replays);
    } else
        assert_int_equal(cuda->sample(queue, &g->device, &d->key, d->vertices.device, d->n, d->fanout,
                                      d->replace, d->indptr.device, d->out.device, d->capacity),
                         PST_OK);
    return rc;
}

static inline struct draw draw_new(const struct graph *g, int64_t n, int fanout, bool replace)
{
    struct draw d = {.key = {rnd(UINT64_MAX), (uint32_t)rnd(9), (uint32_t)rnd(8), rnd(1u << 20)},
                     .n = n,
                     .fanout = fanout,
                     .replace = replace,
                     .vertices = both_new((size_t)n * I64),
                     .indptr = both_new((size_t)(n + 1) * I32),
                     .numbers = both_new(2 * I64)};
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)d.vertices.host)[i] = (int64_t)rnd((uint64_t)g->host.vertices);
    send(&d.vertices);
    d.capacity = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = ((int64_t *)d.vertices.host)[i], degree = g->host.indptr[v + 1] - g->host.indptr[v];
        const bool all = fanout < 0 || degree == 0 || (!replace && degree <= fanout);
        d.capacity += all ? degree : fanout;
    }
    d.out = both_new((size_t)d.capacity * I64);
    return d;
}

static inline void draw_free(struct draw *d)
{
    both_free(&d->vertices);
    both_free(&d->indptr);
    both_free(&d->out);
    both_free(&d->numbers);
}

struct table {
    void *host_memory, *device_memory;
    struct pst_dedup *host, *device;
};

static inline struct table table_new(int64_t max_ids)
{
    struct table t = {.host_memory = malloc(cpu->dedup_bytes(max_ids))};
    assert_non_null(t.host_memory);
    t.host = cpu->dedup_init(t.host_memory, max_ids);
    assert_int_equal(
        cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, cuda->dedup_bytes(max_ids), &t.device_memory, why), PST_OK);
    t.device = cuda->dedup_init(t.device_memory, max_ids);
    assert_non_null(t.device);
    return t;
}

static inline void table_free(struct table *t)
{
    free(t->host_memory);
    cuda->release(PST_TWIN_MEMORY_DEVICE, t->device_memory);
}

/* One call of dedup by both twins; false if both refused it. */
static inline bool dedup_both(struct table *t, const struct both *ids, int64_t n, struct both *vertices,
                              struct both *count, int64_t capacity, struct both *local)
{
    const pst_rc rc = cpu->dedup(NULL, t->host, ids->host, n, vertices->host, count->host, capacity,
                                 local ? local->host : NULL);
    assert_int_equal(cuda->dedup(queue, t->device, ids->device, n, vertices->device, count->device, capacity,
                                 local ? local->device : NULL),
                     PST_OK);
    settled(rc);
    if (rc != PST_OK)
        return false;
    same_bytes(count, I64, "number of vertices");
    same_bytes(vertices, *(size_t *)count->host * I64, "vertices in order of first appearance");
    if (local)
        same_bytes(local, (size_t)n * I32, "local positions");
    return true;
}

#endif
