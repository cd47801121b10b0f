/* presample.c: draws whole batches like a sampler, but hands none of them on. */
#include "stages/planner/presample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/sampling/fill_device.h"
#include "stages/lib/topology/topology.h"
#include "stages/planner/waves.h"

#ifndef FIRST_VERTICES
#define FIRST_VERTICES 65536 /* scratch at the beginning; it doubles when a batch does not fit */
#endif

static bool on_device(const struct pst_presample *ps)
{
    return pst_device_is_cuda(&ps->device);
}

/* ---- scratch --------------------------------------------------------------------------------------- */

static void release_scratch(struct pst_presample *ps)
{
    pst_expander_release(&ps->expander);
    pst_expander_device_release(&ps->device_expander);
    free(ps->vertices);
    free(ps->indptr);
    free(ps->indices);
    free(ps->weights);
    ps->vertices = NULL;
    ps->indptr = ps->indices = NULL;
    ps->weights = NULL;
}

static pst_rc no_scratch(const struct pst_presample *ps)
{
    return pst_fail(PST_E_NOMEM,
                    "out of memory: cannot allocate the buffers to pre-sample batches of %lld vertices",
                    (long long)ps->vertices_max);
}

static pst_rc make_cpu_scratch(struct pst_presample *ps)
{
    const pst_rc rc =
        pst_expander_init(&ps->expander, &ps->in->graph, &ps->in->algorithm, ps->vertices_max, ps->edges_max);
    if (rc != PST_OK)
        return rc;
    ps->indptr = malloc(((size_t)ps->vertices_max + 1) * sizeof *ps->indptr);
    ps->indices = malloc((size_t)ps->edges_max * sizeof *ps->indices);
    const bool weighs = pst_sampling_has(&ps->in->algorithm, PST_SAMPLING_WEIGHS);
    if (weighs)
        ps->weights = malloc((size_t)ps->edges_max * sizeof *ps->weights);
    return ps->indptr != NULL && ps->indices != NULL && (!weighs || ps->weights != NULL) ? PST_OK
                                                                                         : no_scratch(ps);
}

static pst_rc make_device_scratch(struct pst_presample *ps)
{
    struct pst_minibatch_size found = {.hops = ps->in->key.hops};
    for (int h = 0; h <= found.hops; h++)
        found.n[h] = pst_min_i64(ps->vertices_max, ps->bound.n[h]);
    for (int h = 0; h < found.hops; h++)
        found.edges[h] = ps->edges_max;
    const pst_rc rc = pst_expand_device_queue_for(&ps->device, &found);
    return rc != PST_OK ? rc
                        : pst_expander_device_init(&ps->device_expander, &ps->device, &ps->device_graph,
                                                   &ps->in->algorithm, &found);
}

/* Makes scratch for batches of at most `vertices` vertices and `edges` edges per hop. */
static pst_rc make_scratch(struct pst_presample *ps, int64_t vertices, int64_t edges)
{
    release_scratch(ps);
    ps->vertices_max = vertices;
    ps->edges_max = edges;
    ps->vertices = malloc((size_t)vertices * sizeof *ps->vertices);
    if (ps->vertices == NULL)
        return no_scratch(ps);
    return on_device(ps) ? make_device_scratch(ps) : make_cpu_scratch(ps);
}

pst_rc pst_presample_grow(struct pst_presample *ps)
{
    int64_t most_edges = 1;
    for (int h = 0; h < ps->bound.hops; h++)
        most_edges = pst_max_i64(most_edges, ps->bound.edges[h]);
    int64_t most = ps->bound.n[ps->bound.hops];
    int64_t vertices = pst_max_i64(FIRST_VERTICES, 2 * ps->vertices_max);
    int64_t edges = pst_max_i64(4 * FIRST_VERTICES, 2 * ps->edges_max);
    if (ps->vertices_max >= most && ps->edges_max >= most_edges)
        return pst_fail(PST_E_LIMIT,
                        "the sampling algorithm drew more than the %lld vertices and %lld edges per hop that "
                        "its own limits announce: correct the algorithm",
                        (long long)most, (long long)most_edges);
    return make_scratch(ps, pst_min_i64(vertices, most), pst_min_i64(edges, most_edges));
}

/* ---- batches --------------------------------------------------------------------------------------- */

struct pst_sample_key pst_presample_key(const struct pst_presample *ps, uint64_t batch, int hop)
{
    return (struct pst_sample_key){.seed = ps->in->seeds.seed,
                                   .epoch = (uint32_t)(batch / ps->in->seeds.batches),
                                   .batch = batch % ps->in->seeds.batches,
                                   .hop = (uint32_t)hop};
}

static pst_rc draw_on_cpu(struct pst_presample *ps, uint64_t batch, int64_t n,
                          struct pst_minibatch_size *found)
{
    const struct pst_plan_key *key = &ps->in->key;
    int64_t count = 0;
    *found = (struct pst_minibatch_size){.hops = key->hops};
    pst_rc rc = pst_expand_seeds(&ps->expander, ps->batch, n, ps->vertices, &count, ps->vertices_max);
    found->n[0] = count;
    for (int h = 0; h < key->hops && rc == PST_OK; h++) {
        const struct pst_sample_key sample = pst_presample_key(ps, batch, h);
        rc = pst_expand_hop(&ps->expander, &sample, (int)key->fanout[h], ps->vertices, &count,
                            ps->vertices_max, ps->indptr, ps->indices, ps->weights, ps->edges_max);
        if (rc == PST_OK)
            found->edges[h] = ps->indptr[found->n[h]];
        found->n[h + 1] = count;
    }
    return rc;
}

/* The lists of each hop's destinations were read if the hop drew, and the features of all vertices. */
static bool counts_row(const struct pst_presample *ps, int hop)
{
    return hop == ps->in->key.hops || ps->in->key.fanout[hop] != 0;
}

static void count_on_cpu(struct pst_presample *ps, const struct pst_minibatch_size *found,
                         const int64_t *vertices)
{
    for (int h = 0; h <= found->hops; h++) {
        if (counts_row(ps, h))
            ps->device.twin->count(ps->device.q, vertices, found->n[h],
                                   ps->counts + h * ps->in->graph.vertices);
    }
}

/* The same on the queue, behind the batch. Nothing is counted of a batch that does not fit. */
static void count_on_device(struct pst_presample *ps)
{
    const struct pst_expander_device *x = &ps->device_expander;
    for (int h = 0; h <= x->size.hops; h++) {
        const struct pst_twin_n n = {pst_expand_device_vertices(x, h), x->size.n[h]};
        if (counts_row(ps, h))
            ps->device.twin->count_n(ps->device.q, x->vertices, n,
                                     ps->device_counts + h * ps->in->graph.vertices);
    }
}

static pst_rc draw_on_gpu(struct pst_presample *ps, uint64_t batch, int64_t n, bool count,
                          struct pst_minibatch_size *found)
{
    const struct pst_sample_key key = pst_presample_key(ps, batch, 0);
    bool data_fault = false;
    if (n > ps->vertices_max)
        return PST_E_LIMIT;
    pst_expand_device_stage(&ps->device_expander, 0, &key, ps->batch, n);
    pst_expand_device(&ps->device_expander, 0, key, ps->in->key.fanout, NULL);
    if (count)
        count_on_device(ps);
    pst_expand_device_record(&ps->device_expander, 0, 0);
    const pst_rc rc = pst_expand_device_done(&ps->device_expander, 0, found, NULL, 0, &data_fault);
    if (rc != PST_E_FORMAT || !data_fault)
        return rc;
    const struct pst_fill_job job = {
        .seed = key.seed, .epoch = key.epoch, .batch_in_epoch = key.batch, .seeds = ps->batch, .n = n};
    struct pst_filler f = {.layout.size.hops = ps->in->key.hops,
                           .expander = {.graph = &ps->in->graph, .algorithm = &ps->in->algorithm}};
    memcpy(f.fanout, ps->in->key.fanout, sizeof f.fanout);
    return pst_fill_device_explain(&ps->device, &f, &job);
}

/* Draws one batch; on a GPU, counts its vertices if `count` is set. *found gets its size. PST_E_LIMIT: the
 * scratch is too small. */
static pst_rc draw_batch(struct pst_presample *ps, uint64_t batch, int64_t n, bool count,
                         struct pst_minibatch_size *found)
{
    return on_device(ps) ? draw_on_gpu(ps, batch, n, count, found) : draw_on_cpu(ps, batch, n, found);
}

/* Draws `number` of `of` batches, evenly spread, and calls `each` for each. count: on a GPU, they
 * are counted. */
static pst_rc draw_batches(struct pst_presample *ps, uint64_t number, uint64_t of, bool count,
                           pst_presample_each_fn each, void *to)
{
    if (ps->waves != NULL)
        return pst_presample_waves_run(ps, number, of, each, to);
    for (uint64_t i = 0; i < number; i++) {
        const uint64_t b = ps->skipped + i * of / number;
        const int64_t n = pst_seeds_of(&ps->in->seeds, b, ps->batch);
        struct pst_minibatch_size found;
        pst_rc rc = draw_batch(ps, b, n, count, &found);
        while (rc == PST_E_LIMIT) {
            rc = pst_presample_grow(ps);
            if (rc == PST_OK)
                rc = draw_batch(ps, b, n, count, &found);
        }
        if (rc == PST_OK)
            rc = each(ps, &found, ps->vertices, to);
        if (rc != PST_OK)
            return pst_wrap(rc, "cannot pre-sample batch %llu", (unsigned long long)b);
    }
    return PST_OK;
}

/* On a GPU: copies from it to the host, which makes the plan. */
static pst_rc fetch(struct pst_presample *ps, void *to, const void *from, uint64_t bytes)
{
    if (!on_device(ps))
        return PST_OK;
    (void)ps->device.twin->copy(ps->device.q, to, from, bytes);
    return pst_device_wait(&ps->device);
}

static uint64_t counts_bytes(const struct pst_presample *ps)
{
    return (uint64_t)ps->in->graph.vertices * (uint64_t)(ps->in->key.hops + 1) * sizeof *ps->counts;
}

/* Keeps the vertices of a batch, if there is room for another one. */
static pst_rc keep_batch(struct pst_presample *ps, const struct pst_minibatch_size *found, int64_t *vertices)
{
    const int64_t n = found->n[found->hops];
    if (!ps->keep || ps->nkept == PST_PRESAMPLE_PROBES)
        return PST_OK;
    struct pst_presample_kept *kept = &ps->kept[ps->nkept];
    kept->vertices = malloc((size_t)n * sizeof *vertices);
    if (kept->vertices == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot keep the %lld vertices of a batch", (long long)n);
    kept->n = n;
    ps->nkept++;
    const pst_rc rc = fetch(ps, vertices, ps->device_expander.vertices, (uint64_t)n * sizeof *vertices);
    if (rc == PST_OK)
        memcpy(kept->vertices, vertices, (size_t)n * sizeof *vertices);
    return rc;
}

static pst_rc note_batch(struct pst_presample *ps, const struct pst_minibatch_size *found, int64_t *vertices,
                         void *to)
{
    struct pst_minibatch_size *most = to;
    for (int h = 0; h <= most->hops; h++) {
        most->n[h] = pst_max_i64(most->n[h], found->n[h]);
        ps->drawn[h] += found->n[h];
    }
    for (int h = 0; h < most->hops; h++)
        most->edges[h] = pst_max_i64(most->edges[h], found->edges[h]);
    if (ps->counts != NULL && !on_device(ps))
        count_on_cpu(ps, found, vertices);
    pst_doing(ps->stage, PST_DOES_PLANNING, ++ps->noted, ps->number);
    return keep_batch(ps, found, vertices);
}

pst_rc pst_presample_run(struct pst_presample *ps, uint64_t number, uint64_t batches,
                         struct pst_minibatch_size *most)
{
    const bool count = ps->counts != NULL;
    *most = (struct pst_minibatch_size){
        .hops = ps->in->key.hops, .weights = ps->bound.weights, .relations = ps->bound.relations};
    ps->noted = 0;
    ps->number = number;
    const pst_rc rc = draw_batches(ps, number, batches, count, note_batch, most);
    return rc == PST_OK && count ? fetch(ps, ps->counts, ps->device_counts, counts_bytes(ps)) : rc;
}

static uint64_t probes_of(uint64_t batches)
{
    return batches < PST_PRESAMPLE_PROBES ? batches : PST_PRESAMPLE_PROBES;
}

struct prediction {
    int64_t cached;
    double hits, lookups;
};

static pst_rc predict_batch(struct pst_presample *ps, const struct pst_minibatch_size *found,
                            int64_t *vertices, void *to)
{
    const int64_t all = ps->in->graph.vertices, n = found->n[found->hops];
    struct prediction *p = to;
    double hit = 0;
    pst_rc rc = fetch(ps, vertices, ps->device_expander.vertices, (uint64_t)n * sizeof *vertices);
    if (rc == PST_OK)
        rc = pst_plan_predict(ps->counts + ps->in->key.hops * all, all, p->cached, vertices, n, &hit);
    p->hits += hit;
    p->lookups += (double)n;
    return rc;
}

pst_rc pst_presample_predict(struct pst_presample *ps, uint64_t batches, int64_t cached, double *hit_rate)
{
    const uint64_t probes = cached == 0 ? 0 : probes_of(batches);
    struct prediction p = {.cached = cached};
    const pst_rc rc = draw_batches(ps, probes, batches, false, predict_batch, &p);
    *hit_rate = p.lookups > 0 ? fmin(1, p.hits / p.lookups) : 0;
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot predict the cache's hit rate");
}

struct misses {
    uint8_t *cached; /* a bit for each vertex */
    int64_t most;
};

static void add_misses(struct misses *m, const int64_t *vertices, int64_t n)
{
    int64_t misses = 0;
    for (int64_t i = 0; i < n; i++)
        misses += !(m->cached[vertices[i] / 8] >> (vertices[i] % 8) & 1);
    m->most = pst_max_i64(m->most, misses);
}

static pst_rc count_misses(struct pst_presample *ps, const struct pst_minibatch_size *found,
                           int64_t *vertices, void *to)
{
    const int64_t n = found->n[found->hops];
    const pst_rc rc = fetch(ps, vertices, ps->device_expander.vertices, (uint64_t)n * sizeof *vertices);
    if (rc == PST_OK)
        add_misses(to, vertices, n);
    return rc;
}

pst_rc pst_presample_misses(struct pst_presample *ps, uint64_t batches, const struct pst_plan_tiers *cached,
                            int64_t *most)
{
    struct misses m = {.cached = calloc(1, (size_t)ps->in->graph.vertices / 8 + 1)};
    if (m.cached == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the misses of a cache of %lld rows",
                        (long long)cached->n);
    for (int64_t i = 0; i < cached->n; i++)
        m.cached[cached->ids[i] / 8] |= (uint8_t)(1u << (cached->ids[i] % 8));
    pst_rc rc = PST_OK;
    for (int i = 0; i < ps->nkept; i++)
        add_misses(&m, ps->kept[i].vertices, ps->kept[i].n);
    if (ps->nkept == 0) {
        ps->skipped = batches;
        rc = draw_batches(ps, probes_of(batches), batches, false, count_misses, &m);
        ps->skipped = 0;
    }
    free(m.cached);
    *most = m.most;
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot count the cache's misses");
}

pst_rc pst_presample_report(const struct pst_presample *ps, struct pst_stage *self)
{
    if (ps->waves == NULL)
        return PST_OK;
    const struct pst_presample_waves_counts n = pst_presample_waves_counts(ps->waves);
    return pst_report(self, "presample",
                      "{\"from\": \"ssd\", \"waves\": %lld, \"rounds\": %lld, \"sectors\": %lld, "
                      "\"sector_bytes\": %d, \"bytes\": %llu}",
                      (long long)n.waves, (long long)n.rounds, (long long)n.sectors, PST_TOPOLOGY_SECTOR,
                      (unsigned long long)n.bytes);
}

/* ---- opening -------------------------------------------------------------------------------------- */

static int64_t first_vertices(const struct pst_presample *ps)
{
    return pst_min_i64(FIRST_VERTICES, ps->bound.n[ps->bound.hops]);
}

static pst_rc take_device_counts(struct pst_presample *ps)
{
    void *counts = NULL;
    const pst_rc rc = pst_device_take(&ps->device, PST_TWIN_MEMORY_DEVICE, counts_bytes(ps),
                                      "the counts of how often vertices are sampled", &counts);
    if (rc != PST_OK)
        return rc;
    ps->device_counts = counts;
    (void)ps->device.twin->fill(ps->device.q, counts, 0, counts_bytes(ps));
    return PST_OK;
}

/* Takes what stays while the scratch grows. */
static pst_rc open_on_gpu(struct pst_presample *ps, struct pst_stage *self, uint64_t gpu_topology_bytes)
{
    bool in_place;
    pst_rc rc =
        pst_device_queue(&ps->device, (struct pst_queue_options){.most = first_vertices(ps), .first = true});
    if (rc == PST_OK)
        rc = pst_topology_on_device(&ps->device, &ps->in->graph, gpu_topology_bytes, &ps->device_graph,
                                    &in_place);
    if (rc == PST_OK && ps->counts != NULL)
        rc = take_device_counts(ps);
    if (rc != PST_OK)
        return rc;
    pst_log(self, "on %s: %llu bytes of device memory besides scratch; the topology is %s", ps->device.name,
            (unsigned long long)ps->device.device_bytes, in_place ? "read in pinned memory" : "there");
    return pst_device_wait(&ps->device);
}

static pst_rc open_on_drives(struct pst_presample *ps, struct pst_stage *self,
                             const struct pst_presample_options *options)
{
    if (on_device(ps))
        return pst_fail(PST_E_ARG,
                        "%s cannot run on %s with topology \"ssd\"; place it on a CPU, or set topology to "
                        "\"mmap\"",
                        pst_stage_name(self), ps->device.name);
    return pst_presample_waves_open(&ps->waves, ps->in, options->memory_bytes, options->gap_bytes);
}

pst_rc pst_presample_open(struct pst_presample *ps, struct pst_stage *self, struct pst_sampling_input *in,
                          const struct pst_presample_options *options)
{
    const bool count = options->count;
    ps->stage = self;
    ps->keep = options->keep;
    ps->in = in;
    pst_sampling_input_bound(in, &ps->bound);
    ps->counts = count ? calloc(1, counts_bytes(ps)) : NULL;
    ps->batch = malloc((size_t)in->seeds.batch * sizeof *ps->batch);
    if ((count && ps->counts == NULL) || ps->batch == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count how often %lld vertices are sampled",
                        (long long)in->graph.vertices);
    pst_rc rc = pst_device_open(&ps->device, pst_device_name(self));
    if (rc == PST_OK && options->topology == PST_TOPOLOGY_SSD)
        rc = open_on_drives(ps, self, options);
    if (rc == PST_OK && on_device(ps))
        rc = open_on_gpu(ps, self, options->gpu_topology_bytes);
    return rc != PST_OK ? rc : make_scratch(ps, first_vertices(ps), 4 * FIRST_VERTICES);
}

void pst_presample_close(struct pst_presample *ps)
{
    release_scratch(ps);
    pst_presample_waves_close(ps->waves);
    ps->waves = NULL;
    pst_device_close(&ps->device);
    for (int i = 0; i < ps->nkept; i++)
        free(ps->kept[i].vertices);
    ps->nkept = 0;
    free(ps->counts);
    free(ps->batch);
    ps->counts = NULL;
    ps->batch = NULL;
}
