/* planner.c: decides before the run how large slots must be and which feature rows are cached. It samples
 * whole epochs with the sampler's algorithm, but with its own seeds: the plan is made for the graph, not
 * for one run. Counting how hot vertices are by pre-sampling is from Legion (Sun et al., ATC 2023,
 * section 4.2). */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/fill_device.h"
#include "stages/lib/sampling/input.h"
#include "stages/lib/topology/topology.h"

#define PROBES_MAX 16 /* batches for the prediction of the hit rate: within a point or two */
#ifndef FIRST_VERTICES
#define FIRST_VERTICES 65536 /* scratch at the beginning; it doubles when a batch does not fit */
#endif

struct planner {
    struct pst_sampling_input_params params;
    int64_t epochs;
    uint64_t cpu_cache;
    double cpu_cache_percent;
    const char *reuse;
    struct pst_sampling_input in;
    struct pst_plan plan;
    struct pst_minibatch_size bound;
    uint32_t *hotness; /* how often each vertex was a destination, then how often its features were needed */
    /* scratch of one batch: its seeds, its vertices, and what the CPU expands with */
    int64_t vertices_max, edges_max; /* edges: of one hop */
    int64_t *batch, *vertices;
    int32_t *indptr, *indices;
    struct pst_expander expander;
    /* the same on a GPU */
    struct pst_device device;
    struct pst_csc device_graph;
    struct pst_expander_device device_expander;
    uint32_t *device_hotness;
};

static bool on_device(const struct planner *p)
{
    return pst_device_is_cuda(&p->device);
}

/* ---- size: what the plan is for ------------------------------------------------------------------ */

static uint64_t budget_of(const struct planner *p, const struct pst_dataset *ds)
{
    if (p->cpu_cache_percent < 0)
        return p->cpu_cache;
    int64_t rows = (int64_t)((double)ds->vertices * p->cpu_cache_percent / 100 + 0.5);
    return (uint64_t)rows * ds->stride_bytes;
}

static pst_rc size(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    const struct pst_sampling_order order = {
        .seed = XXH3_64bits_withSeed("planner", strlen("planner"), pst_seed(self)), .shuffle = true};
    const pst_rc rc = pst_sampling_input_open(&p->in, self, &p->params, NULL, NULL, order);
    if (rc != PST_OK)
        return rc;
    p->plan.key = p->in.key;
    p->plan.key.cache_budget_bytes = budget_of(p, &p->in.ds);
    p->plan.seed = order.seed;
    p->plan.vertices = p->in.ds.vertices;
    p->plan.epochs = p->epochs;
    pst_sampling_input_bound(&p->in, &p->bound);
    return PST_OK;
}

/* ---- pre-sampling -------------------------------------------------------------------------------- */

static void release_scratch(struct planner *p)
{
    pst_expander_release(&p->expander);
    pst_expander_device_release(&p->device_expander);
    free(p->vertices);
    free(p->indptr);
    free(p->indices);
    p->vertices = NULL;
    p->indptr = p->indices = NULL;
}

static pst_rc no_scratch(const struct planner *p)
{
    return pst_fail(PST_E_NOMEM,
                    "out of memory: cannot allocate the buffers to pre-sample batches of %lld vertices",
                    (long long)p->vertices_max);
}

static pst_rc make_cpu_scratch(struct planner *p)
{
    const pst_rc rc =
        pst_expander_init(&p->expander, &p->in.graph, &p->in.algorithm, p->vertices_max, p->edges_max);
    if (rc != PST_OK)
        return rc;
    p->indptr = malloc(((size_t)p->vertices_max + 1) * sizeof *p->indptr);
    p->indices = malloc((size_t)p->edges_max * sizeof *p->indices);
    return p->indptr != NULL && p->indices != NULL ? PST_OK : no_scratch(p);
}

static pst_rc make_device_scratch(struct planner *p)
{
    struct pst_minibatch_size found = {.hops = p->plan.key.hops};
    for (int h = 0; h <= found.hops; h++)
        found.n[h] = p->vertices_max;
    for (int h = 0; h < found.hops; h++)
        found.edges[h] = p->edges_max;
    const pst_rc rc = pst_expand_device_queue_for(&p->device, &found);
    return rc != PST_OK ? rc
                        : pst_expander_device_init(&p->device_expander, &p->device, &p->device_graph,
                                                   &p->in.algorithm, &found);
}

/* Makes scratch for batches of at most `vertices` vertices and `edges` edges per hop. */
static pst_rc make_scratch(struct planner *p, int64_t vertices, int64_t edges)
{
    release_scratch(p);
    p->vertices_max = vertices;
    p->edges_max = edges;
    p->vertices = malloc((size_t)vertices * sizeof *p->vertices);
    if (p->vertices == NULL)
        return no_scratch(p);
    return on_device(p) ? make_device_scratch(p) : make_cpu_scratch(p);
}

static pst_rc grow_scratch(struct planner *p)
{
    int64_t most_edges = 1;
    for (int h = 0; h < p->bound.hops; h++)
        most_edges = pst_max_i64(most_edges, p->bound.edges[h]);
    int64_t most = p->bound.n[p->bound.hops];
    int64_t vertices = pst_max_i64(FIRST_VERTICES, 2 * p->vertices_max);
    int64_t edges = pst_max_i64(4 * FIRST_VERTICES, 2 * p->edges_max);
    if (p->vertices_max >= most && p->edges_max >= most_edges)
        return pst_fail(
            PST_E_LIMIT,
            "the sampling algorithm returned more than its limit of %lld vertices and %lld edges per hop",
            (long long)most, (long long)most_edges);
    return make_scratch(p, pst_min_i64(vertices, most), pst_min_i64(edges, most_edges));
}

static struct pst_sample_key key_of(const struct planner *p, uint64_t batch)
{
    return (struct pst_sample_key){.seed = p->plan.seed,
                                   .epoch = (uint32_t)(batch / p->in.seeds.batches),
                                   .batch = batch % p->in.seeds.batches};
}

static pst_rc draw_on_cpu(struct planner *p, uint64_t batch, int64_t n, struct pst_minibatch_size *found)
{
    const struct pst_plan_key *key = &p->plan.key;
    struct pst_sample_key sample = key_of(p, batch);
    int64_t count = 0;
    *found = (struct pst_minibatch_size){.hops = key->hops};
    pst_rc rc = pst_expand_seeds(&p->expander, p->batch, n, p->vertices, &count, p->vertices_max);
    found->n[0] = count;
    for (int h = 0; h < key->hops && rc == PST_OK; h++) {
        sample.hop = (uint32_t)h;
        rc = pst_expand_hop(&p->expander, &sample, (int)key->fanout[h], p->vertices, &count, p->vertices_max,
                            p->indptr, p->indices, p->edges_max);
        if (rc == PST_OK)
            found->edges[h] = p->indptr[found->n[h]];
        found->n[h + 1] = count;
    }
    return rc;
}

/* The neighbours of each hop's destinations were read, and the features of all vertices. */
static void count_on_cpu(struct planner *p, const struct pst_minibatch_size *found)
{
    for (int h = 0; h < found->hops; h++) {
        if (p->plan.key.fanout[h] != 0)
            p->device.twin->count(p->device.q, p->vertices, found->n[h], p->hotness);
    }
    p->device.twin->count(p->device.q, p->vertices, found->n[found->hops], p->hotness + p->plan.vertices);
}

/* The same on the queue, behind the batch. Nothing is counted of a batch that does not fit. */
static void count_on_device(struct planner *p)
{
    const struct pst_expander_device *x = &p->device_expander;
    for (int h = 0; h <= x->size.hops; h++) {
        const struct pst_twin_n n = {pst_expand_device_vertices(x, h), x->size.n[h]};
        const bool last = h == x->size.hops;
        if (last || p->plan.key.fanout[h] != 0)
            p->device.twin->count_n(p->device.q, x->vertices, n,
                                    p->device_hotness + (last ? p->plan.vertices : 0));
    }
}

static pst_rc draw_on_gpu(struct planner *p, uint64_t batch, int64_t n, bool count,
                          struct pst_minibatch_size *found)
{
    const struct pst_sample_key key = key_of(p, batch);
    bool data_fault = false;
    if (n > p->vertices_max)
        return PST_E_LIMIT;
    pst_rc rc = pst_expand_device(&p->device_expander, key, p->plan.key.fanout, p->batch, n, NULL);
    if (rc == PST_OK && count)
        count_on_device(p);
    if (rc == PST_OK) {
        pst_expand_device_record(&p->device_expander, 0);
        rc = pst_expand_device_done(&p->device_expander, found, NULL, 0, &data_fault);
    }
    if (rc != PST_E_FORMAT || !data_fault)
        return rc;
    const struct pst_fill_job job = {
        .seed = key.seed, .epoch = key.epoch, .batch_in_epoch = key.batch, .seeds = p->batch, .n = n};
    struct pst_filler f = {.layout.size.hops = p->plan.key.hops,
                           .expander = {.graph = &p->in.graph, .algorithm = &p->in.algorithm}};
    memcpy(f.fanout, p->plan.key.fanout, sizeof f.fanout);
    return pst_fill_device_explain(&p->device, &f, &job);
}

/* Draws one batch, and counts its vertices if `count` is set. *found gets its size. PST_E_LIMIT: the
 * scratch is too small. */
static pst_rc draw_batch(struct planner *p, uint64_t batch, int64_t n, bool count,
                         struct pst_minibatch_size *found)
{
    if (on_device(p))
        return draw_on_gpu(p, batch, n, count, found);
    const pst_rc rc = draw_on_cpu(p, batch, n, found);
    if (rc == PST_OK && count)
        count_on_cpu(p, found);
    return rc;
}

/* On a GPU: copies from it to the host, which makes the plan. */
static pst_rc fetch(struct planner *p, void *to, const void *from, uint64_t bytes)
{
    if (!on_device(p))
        return PST_OK;
    (void)p->device.twin->copy(p->device.q, to, from, bytes);
    return pst_device_wait(&p->device);
}

static uint64_t hotness_bytes(const struct planner *p)
{
    return (uint64_t)p->plan.vertices * 2 * sizeof *p->hotness;
}

static pst_rc presample(struct planner *p)
{
    struct pst_plan *plan = &p->plan;
    plan->batches = (int64_t)p->in.seeds.batches * plan->epochs;
    plan->max = (struct pst_minibatch_size){.hops = plan->key.hops};
    for (uint64_t b = 0; b < (uint64_t)plan->batches; b++) {
        int64_t n = pst_seeds_of(&p->in.seeds, b, p->batch);
        struct pst_minibatch_size found;
        pst_rc rc = draw_batch(p, b, n, true, &found);
        while (rc == PST_E_LIMIT) {
            rc = grow_scratch(p);
            if (rc == PST_OK)
                rc = draw_batch(p, b, n, true, &found);
        }
        if (rc != PST_OK)
            return pst_wrap(rc, "pre-sampling batch %llu", (unsigned long long)b);
        for (int h = 0; h <= plan->max.hops; h++)
            plan->max.n[h] = pst_max_i64(plan->max.n[h], found.n[h]);
        for (int h = 0; h < plan->max.hops; h++)
            plan->max.edges[h] = pst_max_i64(plan->max.edges[h], found.edges[h]);
    }
    return fetch(p, p->hotness, p->device_hotness, hotness_bytes(p));
}

/* ---- the plan ------------------------------------------------------------------------------------ */

static int64_t first_vertices(const struct planner *p)
{
    return pst_min_i64(FIRST_VERTICES, p->bound.n[p->bound.hops]);
}

/* Takes what stays while the scratch grows. */
static pst_rc open_on_gpu(struct pst_stage *self, struct planner *p)
{
    bool in_place;
    void *hotness;
    pst_rc rc =
        pst_device_queue(&p->device, (struct pst_queue_options){.most = first_vertices(p), .first = true});
    if (rc == PST_OK)
        rc = pst_topology_on_device(&p->device, &p->in.graph, p->params.gpu_topology_bytes, &p->device_graph,
                                    &in_place);
    if (rc == PST_OK)
        rc = pst_device_take(&p->device, PST_TWIN_MEMORY_DEVICE, hotness_bytes(p),
                             "the counts of how often vertices are sampled", &hotness);
    if (rc != PST_OK)
        return rc;
    p->device_hotness = hotness;
    (void)p->device.twin->fill(p->device.q, hotness, 0, hotness_bytes(p));
    pst_log(self, "on %s: %llu bytes of device memory besides scratch; the topology is %s", p->device.name,
            (unsigned long long)p->device.device_bytes, in_place ? "read in pinned memory" : "there");
    return pst_device_wait(&p->device);
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    if (p->reuse[0] != '\0')
        return PST_OK;
    p->hotness = calloc((size_t)p->plan.vertices * 2, sizeof *p->hotness);
    p->batch = malloc((size_t)p->in.seeds.batch * sizeof *p->batch);
    if (p->hotness == NULL || p->batch == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count how often %lld vertices are sampled",
                        (long long)p->plan.vertices);
    pst_rc rc = pst_device_open(&p->device, pst_device_name(self));
    if (rc == PST_OK && on_device(p))
        rc = open_on_gpu(self, p);
    return rc != PST_OK ? rc : make_scratch(p, first_vertices(p), 4 * FIRST_VERTICES);
}

/* Predicts the hit rate of the cache, from some batches over all epochs. */
static pst_rc predict(struct planner *p)
{
    struct pst_plan *plan = &p->plan;
    double hits = 0, lookups = 0;
    int64_t probes = plan->cached > 0 ? pst_min_i64(plan->batches, PROBES_MAX) : 0;
    for (int64_t i = 0; i < probes; i++) {
        uint64_t b = (uint64_t)(i * plan->batches / probes);
        int64_t n = pst_seeds_of(&p->in.seeds, b, p->batch);
        struct pst_minibatch_size found;
        double hit;
        pst_rc rc = draw_batch(p, b, n, false, &found);
        if (rc == PST_OK)
            rc = fetch(p, p->vertices, p->device_expander.vertices,
                       (uint64_t)found.n[found.hops] * sizeof *p->vertices);
        if (rc == PST_OK)
            rc = pst_plan_predict(p->hotness + plan->vertices, plan->vertices, plan->cached, p->vertices,
                                  found.n[found.hops], &hit);
        if (rc != PST_OK)
            return pst_wrap(rc, "predicting the cache's hit rate");
        hits += hit;
        lookups += (double)found.n[found.hops];
    }
    plan->predicted_hit_rate = lookups > 0 ? fmin(1, hits / lookups) : 0;
    return PST_OK;
}

static pst_rc make_plan(struct pst_stage *self, struct planner *p, char *path, size_t path_bytes)
{
    struct pst_plan *plan = &p->plan;
    double begin = pst_now();
    pst_rc rc = presample(p);
    if (rc != PST_OK)
        return rc;
    pst_span(self, "presample", begin, pst_now());
    int64_t rows =
        p->in.ds.feature_dim > 0 ? (int64_t)(plan->key.cache_budget_bytes / p->in.ds.stride_bytes) : 0;
    const uint32_t *features = p->hotness + plan->vertices;
    rc = pst_plan_choose(features, plan->vertices, rows, &plan->cache, &plan->cached);
    if (rc != PST_OK)
        return rc;
    rc = predict(p);
    if (rc != PST_OK)
        return rc;
    char dir[PATH_MAX];
    if (snprintf(dir, sizeof dir, "%s/plan", pst_run_dir(self)) >= (int)sizeof dir)
        return pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", pst_run_dir(self));
    return pst_plan_write(plan, p->hotness, dir, path, path_bytes);
}

/* Takes an earlier plan, if it was made for the same. */
static pst_rc reuse_plan(struct planner *p, const char *path)
{
    struct pst_plan earlier;
    pst_rc rc = pst_plan_read(&earlier, path);
    if (rc != PST_OK)
        return rc;
    rc = pst_plan_match(&earlier, &p->plan.key, PST_PLAN_ALGORITHM | PST_PLAN_BUDGET, path);
    if (rc != PST_OK) {
        pst_plan_release(&earlier);
        return rc;
    }
    p->plan = earlier;
    return PST_OK;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct planner *p = pst_state(self);
    if (event->kind != PST_EV_START)
        return PST_OK;
    const char *reuse = p->reuse;
    char path[PATH_MAX];
    pst_rc rc;
    if (reuse[0] != '\0') {
        if (realpath(reuse, path) == NULL)
            return pst_fail_errno("reuse: cannot find the plan %s", reuse);
        rc = reuse_plan(p, path);
    } else {
        rc = make_plan(self, p, path, sizeof path);
    }
    if (rc != PST_OK)
        return rc;
    pst_count(self, (uint64_t)p->plan.batches, 0);
    const struct pst_plan *plan = &p->plan;
    pst_log(self, "%s: largest batch %lld vertices, %lld rows cached, predicted hit rate %.3f",
            reuse[0] != '\0' ? "reused" : "planned", (long long)plan->max.n[plan->max.hops],
            (long long)plan->cached, plan->predicted_hit_rate);
    rc = pst_report(self, "planner",
                    "{\"batches\": %lld, \"vertices_max\": %lld, \"cached_rows\": %lld, "
                    "\"predicted_hit_rate\": %.6f, \"reused\": \"%s\"}",
                    (long long)plan->batches, (long long)plan->max.n[plan->max.hops], (long long)plan->cached,
                    plan->predicted_hit_rate, reuse[0] != '\0' ? "yes" : "no");
    return rc == PST_OK ? pst_publish(self, pst_port(self, "plan"), path) : rc;
}

static void close_stage(struct pst_stage *self)
{
    struct planner *p = pst_state(self);
    release_scratch(p);
    pst_device_close(&p->device);
    free(p->hotness);
    free(p->batch);
    pst_plan_release(&p->plan);
    pst_sampling_input_close(&p->in);
}

static const struct pst_port_desc ports[] = {
    {.name = "plan",
     .dir = PST_OUT,
     .type = "plan",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu,pinned",
     .flags = PST_PORT_ONESHOT,
     .help = "the path of plan.json"},
    {0},
};

static const struct pst_param_desc params[] = {
    PST_SAMPLING_INPUT_PARAMS(struct planner, params),
    PST_SAMPLING_ALGORITHM_PARAMS(struct planner, params),
    {.name = "epochs",
     .type = PST_PARAM_INT,
     .into = PST_INTO(struct planner, epochs),
     .def = "1",
     .min = 1,
     .max = 1000,
     .help = "epochs to pre-sample; more make the prediction better"},
    {.name = "cpu_cache",
     .type = PST_PARAM_BYTES,
     .into = PST_INTO(struct planner, cpu_cache),
     .def = "\"64MiB\"",
     .min = 0,
     .max = 1e15,
     .help = "memory for cached feature rows, hottest first; 0: no cache"},
    {.name = "cpu_cache_percent",
     .type = PST_PARAM_REAL,
     .into = PST_INTO(struct planner, cpu_cache_percent),
     .def = "-1",
     .min = -1,
     .max = 100,
     .help = "size of the cache in percent of all feature rows; negative: cpu_cache is used instead"},
    {.name = "reuse",
     .type = PST_PARAM_STRING,
     .into = PST_INTO(struct planner, reuse),
     .def = "\"\"",
     .help = "path of an earlier plan.json to use instead of making a plan"},
    {0},
};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "planner",
    .help = "pre-samples, to size the slots and to choose the feature rows that are cached",
    .ports = ports,
    .params = params,
    .dataset = PST_SAMPLING_DATASET,
    .state_bytes = sizeof(struct planner),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
