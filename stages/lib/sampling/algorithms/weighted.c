/* weighted.c: in-neighbours are drawn by the weights of their edges, an array of the dataset, without
 * replacement. */
#include "common/error.h"
#include "common/store/store.h"
#include "kernels/samplers.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

struct weighted {
    bool correct;
    int64_t edges;
    const float *edge_weight, *device_edge_weight;
};

static const struct pst_sampling_option options[] = {
    {.name = "correct",
     .type = PST_PARAM_BOOL,
     .def = 1,
     .max = 1,
     .into = offsetof(struct weighted, correct),
     .help = "1: a drawn edge counts 1 over its chance to be drawn, so that means estimate those of all "
             "neighbours; 0: drawn edges count alike, so that means favour heavy edges"},
    {0},
};

static pst_rc open_weighted(void *state, const struct pst_sampling_setup *setup)
{
    struct weighted *w = state;
    if (setup->replace)
        return pst_fail(PST_E_ARG, "this algorithm draws without replacement, but the parameter replace is "
                                   "true: set replace to false");
    if (setup->dataset == NULL || setup->dataset->edge_weights.map == NULL)
        return pst_fail(
            PST_E_ARG,
            "the dataset %s has no weights of edges (array edge_weights): `penstock import` reads "
            "them with --edge-weights or --weight-column, and `penstock gen --edge-weights` makes "
            "random ones",
            setup->dataset != NULL ? setup->dataset->dir : "");
    w->edge_weight = setup->dataset->edge_weights.map;
    w->edges = setup->graph->edges;
    return PST_OK;
}

static int traits(const void *state)
{
    const struct weighted *w = state;
    return (w->correct ? PST_SAMPLING_WEIGHS : 0) | PST_SAMPLING_REPLAYS;
}

static struct pst_k_weighted_edges edges_of(const float *edge_weight, const struct pst_sample_key *key)
{
    return (struct pst_k_weighted_edges){
        edge_weight, pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop)};
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct weighted *w = state;
    const struct pst_k_weighted_edges edges = edges_of(w->edge_weight, h->key);
    return pst_k_sample_weighted(NULL, h->graph, &edges, h->vertices, h->n, h->fanout, h->indptr, h->out,
                                 h->weight, h->capacity);
}

static pst_rc place(void *state, struct pst_device *device)
{
    struct weighted *w = state;
    const uint64_t bytes = (uint64_t)w->edges * sizeof *w->edge_weight;
    void *at = NULL;
    if (w->device_edge_weight != NULL)
        return PST_OK;
    pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, "the weights of edges", &at);
    if (rc == PST_OK)
        rc = device->twin->copy(device->q, at, w->edge_weight, bytes);
    w->device_edge_weight = at;
    return rc == PST_OK ? pst_device_wait(device) : rc;
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct weighted *w = state;
    const struct pst_k_weighted_edges edges = edges_of(w->device_edge_weight, h->key);
    return h->device->twin->sample_weighted_n(h->device->q, h->graph, &edges, h->vertices, h->n, h->fanout,
                                              h->indptr, h->out, h->weight, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_weighted = {
    .abi = PST_SAMPLING_ABI,
    .name = "weighted",
    .help = "neighbours are drawn by the weights of their edges",
    .options = options,
    .state_bytes = sizeof(struct weighted),
    .open = open_weighted,
    .traits = traits,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
