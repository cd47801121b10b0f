/* temporal.c: uniform sampling of edges that are not later than the seeds for which they are drawn
 * (kernels/samplers.h). Whatever a seed sees was there at its time, so a model cannot learn from the future.
 * If two seeds reach a vertex, the earlier one decides for both: a minibatch has each vertex once. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/store.h"
#include "kernels/samplers.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

/* The arrays that kernels read and write, in one kind of memory. */
struct arrays {
    const int32_t *edge_time, *vertex_time;
    uint64_t *table; /* the limits of vertices */
    int32_t *until;  /* those of a hop's vertices, each of which comes once */
    int32_t *fanout;
};

struct temporal {
    int64_t vertices, edges;
    bool replace;
    struct arrays host, device;
    const int64_t *of_hop; /* the fanout of each hop */
    int hops;
    int64_t *scratch; /* pst_k_typed_words */
    int64_t words;
    struct pst_sample_key key; /* of the last draw */
    uint32_t batch;            /* the number of the batch; 0: none was drawn */
};

static pst_rc open_temporal(void *state, const struct pst_sampling_setup *setup)
{
    struct temporal *t = state;
    const struct pst_dataset *ds = setup->dataset;
    if (ds == NULL || ds->edge_times.map == NULL || ds->vertex_times.map == NULL)
        return pst_fail(
            PST_E_ARG,
            "the dataset %s lacks times (the arrays edge_times and vertex_times): `penstock import "
            "npy` reads them from edge_times.npy and vertex_times.npy, and `penstock gen --times` "
            "makes random ones",
            ds != NULL ? ds->dir : "");
    if (ds->vertex_types > 0)
        return pst_fail(PST_E_UNSUPPORTED,
                        "the dataset %s has several types of vertices, which the algorithm temporal does not "
                        "tell apart: set algorithm to typed or uniform",
                        ds->dir);
    t->vertices = setup->graph->vertices;
    t->edges = setup->graph->edges;
    t->replace = setup->replace;
    t->of_hop = setup->fanout;
    t->hops = setup->hops;
    t->host.edge_time = ds->edge_times.map;
    t->host.vertex_time = ds->vertex_times.map;
    t->host.table = calloc((size_t)t->vertices, sizeof *t->host.table);
    t->host.until = malloc((size_t)t->vertices * sizeof *t->host.until);
    t->host.fanout = calloc(1, sizeof *t->host.fanout);
    return t->host.table != NULL && t->host.until != NULL && t->host.fanout != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot keep the limits of %lld vertices",
                          (long long)t->vertices);
}

static void close_temporal(void *state)
{
    struct temporal *t = state;
    free(t->host.table);
    free(t->host.until);
    free(t->host.fanout);
    free(t->scratch);
}

static int traits(const void *state)
{
    (void)state;
    return PST_SAMPLING_WHOLE; /* a vertex's limit depends on all seeds that reach it */
}

/* The hops of a batch come one after the other; another batch, or an earlier hop, is a new beginning. */
static pst_rc limits_of(struct temporal *t, const struct arrays *a, const struct pst_sample_key *key,
                        struct pst_k_limits *limits)
{
    const bool first = t->batch == 0 || key->hop <= t->key.hop || key->seed != t->key.seed ||
                       key->epoch != t->key.epoch || key->batch != t->key.batch;
    if (first && t->batch == UINT32_MAX)
        return pst_fail(PST_E_LIMIT,
                        "the algorithm temporal can sample %u batches in a run, which is the limit: resume "
                        "the run to go on",
                        UINT32_MAX);
    t->batch += first;
    t->key = *key;
    *limits = (struct pst_k_limits){
        .vertex_time = a->vertex_time, .table = a->table, .batch = t->batch, .first = first};
    return PST_OK;
}

static struct pst_k_typed kernel_of(const struct temporal *t, const struct arrays *a, const int32_t *fanout)
{
    return (struct pst_k_typed){
        .fanout = fanout, .relations = 1, .replace = t->replace, .time = a->edge_time};
}

static pst_rc grow(struct temporal *t, int64_t most)
{
    const int64_t words = pst_k_typed_words(1, pst_max_i64(0, most));
    if (words <= t->words)
        return PST_OK;
    free(t->scratch);
    t->scratch = malloc((size_t)words * sizeof *t->scratch);
    t->words = t->scratch != NULL ? words : 0;
    return t->scratch != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot draw %lld neighbours of a vertex",
                          (long long)most);
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    struct temporal *t = state;
    struct pst_k_limits limits;
    pst_rc rc = grow(t, h->fanout);
    if (rc == PST_OK)
        rc = limits_of(t, &t->host, h->key, &limits);
    if (rc != PST_OK)
        return rc;
    *t->host.fanout = h->fanout;
    const struct pst_k_typed how = kernel_of(t, &t->host, t->host.fanout);
    return pst_k_sample_temporal(NULL, h->graph, &how, &limits, h->key, h->vertices, h->n, t->host.until,
                                 t->scratch, h->indptr, h->out, h->capacity);
}

static pst_rc send(struct pst_device *device, const void *from, int64_t n, size_t item, const char *what,
                   void **at)
{
    const uint64_t bytes = (uint64_t)n * item;
    const pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, what, at);
    return rc != PST_OK   ? rc
           : from != NULL ? device->twin->copy(device->q, *at, from, bytes)
                          : device->twin->fill(device->q, *at, 0, bytes);
}

static pst_rc place(void *state, struct pst_device *device)
{
    struct temporal *t = state;
    int32_t fanout[PST_HOPS_MAX];
    void *at[5] = {NULL};
    if (t->device.fanout != NULL)
        return PST_OK;
    for (int h = 0; h < t->hops; h++)
        fanout[h] = (int32_t)t->of_hop[h];
    pst_rc rc = send(device, t->host.edge_time, t->edges, sizeof(int32_t), "the times of edges", &at[0]);
    if (rc == PST_OK)
        rc = send(device, t->host.vertex_time, t->vertices, sizeof(int32_t), "the times of vertices", &at[1]);
    if (rc == PST_OK)
        rc = send(device, NULL, t->vertices, sizeof(uint64_t), "the limits of vertices", &at[2]);
    if (rc == PST_OK)
        rc = send(device, NULL, t->vertices, sizeof(int32_t), "the limits of a hop's vertices", &at[3]);
    if (rc == PST_OK)
        rc = send(device, fanout, t->hops, sizeof *fanout, "the fanouts", &at[4]);
    t->device = (struct arrays){at[0], at[1], at[2], at[3], at[4]};
    return rc == PST_OK ? pst_device_wait(device) : rc;
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    struct temporal *t = state;
    struct pst_k_limits limits;
    const pst_rc rc = limits_of(t, &t->device, h->key, &limits);
    if (rc != PST_OK)
        return rc;
    const struct pst_k_typed how = kernel_of(t, &t->device, t->device.fanout + h->key->hop);
    return h->device->twin->sample_temporal_n(h->device->q, h->graph, &how, &limits, h->key, h->vertices,
                                              h->n, t->device.until, NULL, h->indptr, h->out, h->capacity,
                                              h->total);
}

const struct pst_sampling_algorithm pst_sampling_temporal = {
    .abi = PST_SAMPLING_ABI,
    .name = "temporal",
    .help = "draws neighbours by edges that are not later than the seed",
    .state_bytes = sizeof(struct temporal),
    .open = open_temporal,
    .close = close_temporal,
    .traits = traits,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
