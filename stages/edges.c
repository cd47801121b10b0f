/* edges.c: the stage that makes batches of training edges (stages/lib/edges). */
#include "common/stage.h"
#include "stages/lib/edges/source.h"

struct edges {
    struct pst_edges_source source;
    int out;
};

static pst_rc size(struct pst_stage *self)
{
    struct edges *s = pst_state(self);
    uint64_t bytes;
    s->out = pst_port(self, "out");
    s->source.dataset_dir = pst_dataset_dir(self);
    s->source.run_dir = pst_run_dir(self);
    s->source.seed = pst_seed(self);
    s->source.epochs = pst_epochs(self);
    const pst_rc rc = pst_edges_source_size(&s->source, &bytes);
    if (rc == PST_OK)
        pst_need(self, s->out, bytes, PST_CACHE_LINE);
    return rc;
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct edges *s = pst_state(self);
    uint64_t total = 0;
    const pst_rc rc = pst_edges_source_open(&s->source, &total);
    if (rc == PST_OK)
        pst_total(self, s->out, total);
    return rc;
}

static void close_stage(struct pst_stage *self)
{
    struct edges *s = pst_state(self);
    pst_edges_source_close(&s->source);
}

static pst_rc fill(struct pst_stage *self, const struct pst_credit *credit)
{
    struct edges *s = pst_state(self);
    char *slot = pst_slot(self, credit->ref, NULL);
    if (!slot)
        return PST_E_STATE;
    const double begin = pst_now();
    const struct pst_edge_batch b = pst_edges_source_fill(&s->source, credit->batch, slot);
    pst_used(self, credit->ref, b.bytes_used);
    pst_span_of(self, "E", credit->batch, -1, begin, pst_now());
    pst_count(self, 1, b.bytes_used);
    const struct pst_frame frame = {
        .batch = credit->batch, .flags = PST_LAST_PART | PST_LAST_MICRO, .nrefs = 1, .refs = {credit->ref}};
    return pst_send(self, s->out, &frame);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return event->kind == PST_EV_CREDIT ? fill(self, &event->credit) : PST_OK;
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {{.name = "out",
                                              .dir = PST_OUT,
                                              .help = "batches of edges with their negatives",
                                              .type = "edges",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu"},
                                             {0}};

static const struct pst_param_desc params[] = {
    PST_EDGES_SOURCE_PARAMS(edges, source),
    PST_EDGES_SOURCE_PARAM(
        edges, source, "staleness", INT, staleness, "16", .min = 1, .max = 65536,
        .help = "batches without edges after each epoch: as many as the store's route has slots, so that "
                "all updates come home before the next epoch"),
    PST_EDGES_SOURCE_PARAM(
        edges, source, "together", INT, together, "0", .max = PST_EDGE_BATCH_EDGES_MAX,
        .help = "above 0: each edge comes twice in an epoch, once for each end; and up to so many edges with "
                "the same relation and other end follow each other, so that all are compared with the "
                "vertices at once. Needs the loss softmax, negatives_from all, and one partition"),
    {0}};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "edges",
    .help = "batches of training edges, shuffled every epoch, with negatives, to train embeddings",
    .ports = ports,
    .params = params,
    .dataset = "triples,types,vertices:partitions",
    .state_bytes = sizeof(struct edges),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
