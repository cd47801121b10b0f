/* typed.c: sampling for each relation: a vertex gets `fanout` in-neighbours of each of its relations. A
 * relation and a vertex together are drawn for as one vertex of a graph without types, so a graph of one
 * relation gets the sample that `uniform` draws; or, by the weights of edges, that `weighted` draws. */
#include <float.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/store/store.h"
#include "kernels/samplers.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

struct typed {
    bool by_weight, correct;
    struct pst_ints fanouts;    /* of each relation; none: the fanout of the hop */
    const int64_t *by_relation; /* (relations, hops), or NULL: as in pst_sampling_setup */
    const int64_t *of_hop;      /* the fanout of each hop */
    int hops;
    const struct pst_dataset *dataset;
    int64_t edges;
    const int32_t *relation; /* of each entry of the graph's lists; NULL: there is one relation */
    int relations;
    bool replace;
    int32_t *fanout;  /* of each relation, in the hop that is drawn */
    int64_t *scratch; /* pst_k_typed_words */
    int64_t words;
    const float *edge_weight, *device_edge_weight; /* if by_weight */
    const int32_t *device_relation;
    int32_t *device_fanout; /* (hops, relations) */
};

static const struct pst_sampling_option options[] = {
    {.name = "fanouts",
     .type = PST_PARAM_INTS,
     .min = -1,
     .max = PST_FANOUT_MAX,
     .into = offsetof(struct typed, fanouts),
     .help =
         "number of neighbours of each relation in every hop, in the order of the dataset's relations, for "
         "example 10:5:0; replaces fanout"},
    {.name = "by_weight",
     .type = PST_PARAM_BOOL,
     .max = 1,
     .into = offsetof(struct typed, by_weight),
     .help = "1: neighbours are drawn by the weights of their edges, without replacement"},
    {.name = "correct",
     .type = PST_PARAM_BOOL,
     .def = 1,
     .max = 1,
     .into = offsetof(struct typed, correct),
     .help =
         "with by_weight: 1: a drawn edge counts 1 over its chance to be drawn, so that means estimate those "
         "of all neighbours of a relation; 0: drawn edges count alike, so that means favour heavy edges"},
    {0},
};

/* The fanout of a relation. fanout: of the hop. */
static int64_t fanout_of(const struct typed *t, int relation, int hop, int64_t fanout)
{
    if (t->by_relation != NULL)
        return t->by_relation[(int64_t)relation * t->hops + hop];
    return t->fanouts.count > 0 ? t->fanouts.value[relation] : fanout;
}

/* How many neighbours a vertex of this type can get; -1: all. type: -1: all relations can lead to the vertex.
 */
static int64_t most_of_type(const struct typed *t, int type, int hop, int64_t fanout)
{
    int64_t most = 0;
    for (int r = 0; r < t->relations; r++) {
        const int64_t more = fanout_of(t, r, hop, fanout);
        if (type >= 0 && t->dataset->edge_type[r].target != type)
            continue;
        if (more < 0)
            return -1;
        most += more;
    }
    return most;
}

/* The same of any vertex. */
static int64_t most_of_any(const struct typed *t, int hop, int64_t fanout)
{
    const int types = t->relation != NULL ? t->dataset->vertex_types : 0;
    int64_t most = types == 0 ? most_of_type(t, -1, hop, fanout) : 0;
    for (int type = 0; type < types && most >= 0; type++) {
        const int64_t of = most_of_type(t, type, hop, fanout);
        most = of < 0 ? of : pst_max_i64(most, of);
    }
    return most;
}

static pst_rc open_typed(void *state, const struct pst_sampling_setup *setup)
{
    struct typed *t = state;
    const struct pst_dataset *ds = setup->dataset;
    if (ds->relations > PST_K_RELATIONS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "the dataset %s has %lld relations; the algorithm typed supports at most %d", ds->dir,
                        (long long)ds->relations, PST_K_RELATIONS_MAX);
    if (t->fanouts.count > 0 && t->fanouts.count != (uint32_t)pst_max_i64(1, ds->relations))
        return pst_fail(PST_E_ARG,
                        "options: fanouts has %u numbers, but the dataset %s has %lld relations: give one "
                        "number for each relation (`penstock inspect` lists the relations)",
                        (unsigned)t->fanouts.count, ds->dir, (long long)pst_max_i64(1, ds->relations));
    if (t->fanouts.count > 0 && setup->fanout_by_relation != NULL)
        return pst_fail(PST_E_ARG,
                        "options: fanouts cannot be set, because the parameter fanout has numbers for "
                        "each edge type already: remove one of them");
    if (t->by_weight && setup->replace)
        return pst_fail(PST_E_ARG,
                        "options: by_weight draws without replacement, but the parameter replace is "
                        "true: set replace to false");
    if (t->by_weight && ds->edge_weights.map == NULL)
        return pst_fail(PST_E_ARG,
                        "options: by_weight is 1, but the dataset %s has no weights of edges (array "
                        "edge_weights): `penstock "
                        "import` reads them with --edge-weights or --weight-column, and `penstock gen "
                        "--edge-weights` makes "
                        "random ones",
                        ds->dir);
    t->edge_weight = t->by_weight ? ds->edge_weights.map : NULL;
    t->by_relation = setup->fanout_by_relation;
    t->of_hop = setup->fanout;
    t->hops = setup->hops;
    t->dataset = ds;
    t->edges = setup->graph->edges;
    t->relation = ds->edge_relation.map;
    t->relations = t->relation != NULL ? (int)ds->relations : 1;
    t->replace = setup->replace;
    t->fanout = calloc((size_t)t->relations, sizeof *t->fanout);
    return t->fanout != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot sample %d relations", t->relations);
}

static void close_typed(void *state)
{
    struct typed *t = state;
    free(t->fanout);
    free(t->scratch);
}

static int traits(const void *state)
{
    const struct typed *t = state;
    return PST_SAMPLING_TYPED | PST_SAMPLING_REPLAYS | (t->by_weight && t->correct ? PST_SAMPLING_WEIGHS : 0);
}

static struct pst_sampling_bound bound(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n)
{
    const struct typed *t = state;
    if (fanout == 0) /* nothing is drawn in such a hop */
        return (struct pst_sampling_bound){.edges = 0, .vertices = n};
    const int64_t most = most_of_any(t, hop, fanout);
    const int64_t edges = most < 0 ? graph->edges : pst_min_i64(PST_MINIBATCH_COUNT_MAX, n * most);
    return (struct pst_sampling_bound){.edges = edges, .vertices = n + edges};
}

static struct pst_k_typed kernel_of(const struct typed *t, const int32_t *relation, const int32_t *fanout)
{
    return (struct pst_k_typed){
        .relation = relation, .fanout = fanout, .relations = t->relations, .replace = t->replace};
}

/* Writes the fanouts of a hop. Returns the sum of those above 0. */
static int64_t put_fanouts(const struct typed *t, int hop, int64_t fanout, int32_t *to)
{
    int64_t most = 0;
    for (int r = 0; r < t->relations; r++) {
        to[r] = (int32_t)fanout_of(t, r, hop, fanout);
        most += pst_max_i64(0, to[r]);
    }
    return most;
}

/* Makes room for draws of at most `most` neighbours of a vertex. */
static pst_rc grow(struct typed *t, int64_t most)
{
    const int64_t words =
        t->by_weight ? pst_k_weighted_typed_words(t->relations, most) : pst_k_typed_words(t->relations, most);
    if (words <= t->words)
        return PST_OK;
    free(t->scratch);
    t->words = 0;
    t->scratch = malloc((size_t)words * sizeof *t->scratch);
    if (t->scratch == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot draw %lld neighbours of a vertex by relation",
                        (long long)most);
    t->words = words;
    return PST_OK;
}

/* Says what is wrong with an edge of a vertex, if something is. */
static pst_rc check_edge(const struct typed *t, int64_t vertex, int64_t edge)
{
    if (t->relation != NULL && (t->relation[edge] < 0 || t->relation[edge] >= t->relations))
        return pst_fail(
            PST_E_FORMAT,
            "%s: an edge of vertex %lld has relation %d, but there are only %d relations; `penstock "
            "verify` shows details",
            t->dataset->edge_relation.path, (long long)vertex, t->relation[edge], t->relations);
    if (t->by_weight && !(t->edge_weight[edge] >= 0 && t->edge_weight[edge] <= FLT_MAX))
        return pst_fail(
            PST_E_FORMAT,
            "%s: an edge of vertex %lld has the weight %g; expected finite numbers of at least 0; "
            "`penstock verify` shows details",
            t->dataset->edge_weights.path, (long long)vertex, (double)t->edge_weight[edge]);
    return PST_OK;
}

/* Names an edge that is wrong, if that is what the kernel found. */
static pst_rc explain(const struct typed *t, const struct pst_sampling_hop *h)
{
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < h->n && rc == PST_OK; i++) {
        const int64_t v = h->vertices[i];
        if (v < 0 || v >= h->graph->vertices)
            return PST_E_FORMAT;
        for (int64_t e = pst_max_i64(0, h->graph->indptr[v]);
             e < pst_min_i64(h->graph->edges, h->graph->indptr[v + 1]) && rc == PST_OK; e++)
            rc = check_edge(t, v, e);
    }
    return PST_E_FORMAT;
}

static struct pst_k_weighted_edges edges_of(const float *edge_weight, const struct pst_sample_key *key)
{
    return (struct pst_k_weighted_edges){
        edge_weight, pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop)};
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    struct typed *t = state;
    pst_rc rc = grow(t, put_fanouts(t, (int)h->key->hop, h->fanout, t->fanout));
    if (rc != PST_OK)
        return rc;
    const struct pst_k_typed how = kernel_of(t, t->relation, t->fanout);
    const struct pst_k_weighted_edges edges = edges_of(t->edge_weight, h->key);
    rc = t->by_weight
             ? pst_k_sample_weighted_typed(NULL, h->graph, &edges, &how, h->vertices, h->n, t->scratch,
                                           h->indptr, h->out, h->weight, h->relation, h->capacity)
             : pst_k_sample_typed(NULL, h->graph, &how, h->key, h->vertices, h->n, t->scratch, h->indptr,
                                  h->out, h->relation, h->capacity);
    return rc == PST_E_FORMAT ? explain(t, h) : rc;
}

/* Copies an array with a value of 4 bytes for each edge to the device; NULL: there is none. */
static pst_rc place_edges(const struct typed *t, struct pst_device *device, const void *from,
                          const char *what, void **at)
{
    const uint64_t bytes = (uint64_t)t->edges * 4;
    if (from == NULL)
        return PST_OK;
    const pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, what, at);
    return rc == PST_OK ? device->twin->copy(device->q, *at, from, bytes) : rc;
}

/* The relations and weights of the edges, and the fanouts of all hops, in the device's memory. */
static pst_rc place(void *state, struct pst_device *device)
{
    struct typed *t = state;
    const uint64_t row = (uint64_t)t->relations * sizeof *t->fanout;
    void *relation = NULL, *weight = NULL, *fanout = NULL;
    if (t->device_fanout != NULL)
        return PST_OK;
    pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, (uint64_t)t->hops * row,
                                "the fanouts of relations", &fanout);
    if (rc == PST_OK)
        rc = place_edges(t, device, t->relation, "the relations of edges", &relation);
    if (rc == PST_OK)
        rc = place_edges(t, device, t->edge_weight, "the weights of edges", &weight);
    for (int h = 0; h < t->hops && rc == PST_OK; h++) {
        (void)put_fanouts(t, h, t->of_hop[h], t->fanout);
        rc = device->twin->copy(device->q, (char *)fanout + (uint64_t)h * row, t->fanout, row);
        if (rc == PST_OK)
            rc = pst_device_wait(device); /* t->fanout changes */
    }
    t->device_relation = relation;
    t->device_edge_weight = weight;
    t->device_fanout = fanout;
    return rc;
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    const struct typed *t = state;
    const struct pst_k_typed how =
        kernel_of(t, t->device_relation, t->device_fanout + (int64_t)h->key->hop * t->relations);
    const struct pst_k_weighted_edges edges = edges_of(t->device_edge_weight, h->key);
    if (t->by_weight)
        return h->device->twin->sample_weighted_typed_n(h->device->q, h->graph, &edges, &how, h->vertices,
                                                        h->n, NULL, h->indptr, h->out, h->weight, h->relation,
                                                        h->capacity, h->total);
    return h->device->twin->sample_typed_n(h->device->q, h->graph, &how, h->key, h->vertices, h->n, NULL,
                                           h->indptr, h->out, h->relation, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_typed = {
    .abi = PST_SAMPLING_ABI,
    .name = "typed",
    .help = "draws neighbours separately for each relation of a vertex",
    .options = options,
    .state_bytes = sizeof(struct typed),
    .open = open_typed,
    .close = close_typed,
    .traits = traits,
    .bound = bound,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
