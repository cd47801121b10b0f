/* buffered.c: uniform sampling among the partitions of the vertices that a buffer holds (MariusGNN: Waleffe
 * et al., "MariusGNN: Resource-Efficient Out-of-Core Training of Graph Neural Networks", EuroSys 2023). A
 * vertex whose resident neighbours are k gets what `uniform` draws from a list of these k. */
#include <stdlib.h>

#include "common/error.h"
#include "common/store/store.h"
#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/algorithms/states.h"

struct buffered {
    int64_t partitions, buffer;
    int order, assign;
    struct pst_sampling_states states;
    int64_t vertices;
    const int64_t *of_hop; /* the fanout of each hop */
    int hops;
    bool replace;
    int64_t *scratch; /* pst_k_typed_words */
    uint8_t *device_partition;
    int32_t *device_fanout;
};

static const struct pst_sampling_option options[] = {
    {.name = "partitions",
     .type = PST_PARAM_INT,
     .def = 16,
     .min = 1,
     .max = 64 * PST_K_PARTITION_WORDS,
     .into = offsetof(struct buffered, partitions),
     .help = "parts of the vertices"},
    {.name = "buffer",
     .type = PST_PARAM_INT,
     .def = 4,
     .min = 1,
     .max = 64 * PST_K_PARTITION_WORDS,
     .into = offsetof(struct buffered, buffer),
     .help = "partitions that are in memory at a time"},
    {.name = "order",
     .type = PST_PARAM_ENUM,
     .choices = PST_SAMPLING_STATES_ORDERS,
     .def = PST_SAMPLING_STATES_ORDERED,
     .into = offsetof(struct buffered, order),
     .help = "the sequence in which partitions pass through the buffer in an epoch"},
    {.name = "assign",
     .type = PST_PARAM_ENUM,
     .choices = PST_SAMPLING_STATES_ASSIGNS,
     .def = PST_SAMPLING_STATES_RANDOM,
     .into = offsetof(struct buffered, assign),
     .help = "which vertices share a partition: random ones, or those whose ids are near each other"},
    {0},
};

static pst_rc open_buffered(void *state, const struct pst_sampling_setup *setup)
{
    struct buffered *b = state;
    if (setup->seeds == NULL)
        return pst_fail(PST_E_UNSUPPORTED,
                        "this algorithm needs seeds that are vertices, and that replicas share: set seeds to "
                        "vertices, and shuffle to global or none");
    b->vertices = setup->graph->vertices;
    b->of_hop = setup->fanout;
    b->hops = setup->hops;
    b->replace = setup->replace;
    const struct pst_sampling_states_ask ask = {.vertices = b->vertices,
                                                .seeds = setup->seeds,
                                                .nseeds = setup->nseeds,
                                                .batch = setup->batch,
                                                .partitions = b->partitions,
                                                .buffer = b->buffer,
                                                .order = b->order,
                                                .assign = b->assign,
                                                .seed = setup->seed};
    b->scratch = malloc((size_t)pst_k_typed_words(1, PST_FANOUT_MAX) * sizeof *b->scratch);
    return b->scratch != NULL ? pst_sampling_states_open(&b->states, &ask)
                              : pst_fail(PST_E_NOMEM, "out of memory: cannot draw neighbours");
}

static void close_buffered(void *state)
{
    struct buffered *b = state;
    pst_sampling_states_close(&b->states);
    free(b->scratch);
}

static struct pst_sampling_states *states(void *state)
{
    struct buffered *b = state;
    return &b->states;
}

/* How the batch of a key is drawn. */
static struct pst_k_typed kernel_of(struct buffered *b, const struct pst_sample_key *key,
                                    const uint8_t *partition, const int32_t *fanout)
{
    struct pst_k_typed how = {
        .fanout = fanout, .relations = 1, .replace = b->replace, .partition = partition};
    pst_sampling_states_go(&b->states, key->epoch);
    pst_sampling_states_resident(&b->states, pst_sampling_states_of(&b->states, (int64_t)key->batch),
                                 how.resident);
    return how;
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    struct buffered *b = state;
    const int32_t fanout = h->fanout;
    const struct pst_k_typed how = kernel_of(b, h->key, b->states.partition, &fanout);
    return pst_k_sample_typed(NULL, h->graph, &how, h->key, h->vertices, h->n, b->scratch, h->indptr, h->out,
                              NULL, h->capacity);
}

static pst_rc place(void *state, struct pst_device *device)
{
    struct buffered *b = state;
    int32_t fanout[PST_HOPS_MAX];
    void *partition = NULL, *fanouts = NULL;
    if (b->device_fanout != NULL)
        return PST_OK;
    for (int h = 0; h < b->hops; h++)
        fanout[h] = (int32_t)b->of_hop[h];
    pst_rc rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, (uint64_t)b->vertices,
                                "the partitions of vertices", &partition);
    if (rc == PST_OK)
        rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, sizeof fanout, "the fanouts", &fanouts);
    if (rc == PST_OK)
        rc = device->twin->copy(device->q, partition, b->states.partition, (uint64_t)b->vertices);
    if (rc == PST_OK)
        rc = device->twin->copy(device->q, fanouts, fanout, (uint64_t)b->hops * sizeof *fanout);
    b->device_partition = partition;
    b->device_fanout = fanouts;
    return rc == PST_OK ? pst_device_wait(device) : rc;
}

static pst_rc draw_on_device(void *state, const struct pst_sampling_device_hop *h)
{
    struct buffered *b = state;
    const struct pst_k_typed how = kernel_of(b, h->key, b->device_partition, b->device_fanout + h->key->hop);
    return h->device->twin->sample_typed_n(h->device->q, h->graph, &how, h->key, h->vertices, h->n, NULL,
                                           h->indptr, h->out, NULL, h->capacity, h->total);
}

const struct pst_sampling_algorithm pst_sampling_buffered = {
    .abi = PST_SAMPLING_ABI,
    .name = "buffered",
    .help = "draws neighbours among the partitions of the vertices that a buffer holds",
    .options = options,
    .state_bytes = sizeof(struct buffered),
    .open = open_buffered,
    .close = close_buffered,
    .states = states,
    .draw = draw,
    .place = place,
    .draw_on_device = draw_on_device,
};
