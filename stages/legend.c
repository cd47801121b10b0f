/* legend.c: trains embeddings in one process: it makes batches and negatives, computes, and updates rows
 * where they lie. Partitions pass through its memory by way of the disk stage, and are exchanged while edges
 * of those that stay are trained. Legend (Zhang et al.), sections 3 to 5.
 *
 * The order of events is that of the stages edges, store and embedder with a staleness of 1, so on a CPU the
 * results are the same to the last bit. A thread of its own trains, so that the stage's thread can serve
 * partitions meanwhile, however long a batch takes.
 *
 * On a GPU, partitions and relations lie in its memory. The host tells the GPU the ends of a batch's edges;
 * negatives, gradients and updates are the GPU's. A batch is put on the queue while the one before it is
 * computed, and partitions are copied meanwhile, by a queue of their own. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/stage.h"
#include "stages/lib/device/aside.h"
#include "stages/lib/edges/source.h"
#include "stages/lib/vectors/owner.h"
#include "stages/lib/vectors/relations.h"
#include "stages/lib/vectors/resident.h"

struct legend {
    struct pst_edges_source source;
    struct pst_vectors_owner owner;
    struct pst_relations relations;
    struct pst_device device, copies; /* copies: the same GPU, for partitions */
    struct pst_vectors_resident resident;
    struct pst_device_aside aside;
    struct {
        bool any;
        struct pst_row_batch b;
        double begin, gathered, trained, end;
    } flying; /* the batch that the GPU or the thread computes */
    int parts;
    char *edges, *rows; /* a batch, without and with rows */
    char *next_edges;   /* the next batch, if the thread computes one */
    bool made;          /* next_edges has batch `next` */
    uint64_t edges_bytes, rows_bytes;
    uint64_t next, total; /* batches of the run */
};

/* ---- opening ------------------------------------------------------------------------------------- */

/* The three parts have the same parameters. */
static void share(const struct pst_stage *self, struct legend *s)
{
    struct pst_edges_source *e = &s->source;
    struct pst_vectors_owner *o = &s->owner;
    struct pst_relations *r = &s->relations;
    e->staleness = o->staleness = 1;
    e->dataset_dir = pst_dataset_dir(self);
    e->run_dir = pst_run_dir(self);
    e->seed = pst_seed(self);
    e->epochs = pst_epochs(self);
    o->batch = e->batch;
    o->chunks = e->chunks;
    o->negatives = e->negatives;
    o->negatives_from = e->negatives_from;
    o->partitions = e->partitions;
    o->buffer = e->buffer;
    o->checkpoint_swaps = e->checkpoint_swaps;
    o->order = e->sequence;
    o->between_exchanges = e->between_exchanges;
    o->buckets = e->buckets;
    r->model = o->model;
    r->init_from = o->init_from;
    r->dim = o->dim;
    r->threads = o->threads;
    r->scale = o->scale;
    r->rate = o->rate;
    r->inverse = o->inverse;
    r->optimizer = o->optimizer;
}

static pst_rc size(struct pst_stage *self)
{
    struct legend *s = pst_state(self);
    s->parts = pst_port(self, "parts");
    share(self, s);
    pst_rc rc = pst_edges_source_size(&s->source, &s->edges_bytes);
    if (rc == PST_OK)
        rc = pst_vectors_owner_size(&s->owner, self, s->parts);
    if (rc == PST_OK)
        rc = pst_relations_plan(&s->relations, s->source.relations, s->source.seed);
    if (rc == PST_OK && s->source.partitions == 1)
        rc = pst_fail(PST_E_ARG, "partitions is 1, but this stage exchanges partitions; expected at least 3 "
                                 "(if the embeddings fit in memory, use marius.json)");
    s->rows_bytes = s->owner.slot_bytes;
    if (rc == PST_OK && pst_relations_slot_bytes(&s->relations) > s->rows_bytes)
        s->rows_bytes = pst_relations_slot_bytes(&s->relations);
    return rc;
}

static pst_rc open_copies(struct pst_stage *self, struct legend *s)
{
    const pst_rc rc = pst_device_open(&s->copies, pst_device_name(self));
    s->owner.vectors.device = &s->copies;
    s->owner.gpu = &s->relations.on.step;
    s->source.no_negatives = true;
    return rc == PST_OK ? pst_device_queue(&s->copies, (struct pst_queue_options){.most = 0}) : rc;
}

static pst_rc open_resident(struct pst_stage *self, struct legend *s)
{
    const struct pst_edges_source *e = &s->source;
    const pst_rc rc = pst_vectors_resident_open(&s->resident, &s->owner.vectors, &s->device, e->batch,
                                                e->chunks * e->negatives);
    if (rc == PST_OK)
        pst_log(self,
                "on %s: %" PRIu64 " bytes of device memory for partitions, %" PRIu64
                " for relations and batches, which grows; products in %s",
                s->device.name, s->copies.device_bytes, s->device.device_bytes,
                s->relations.tf32 ? "TensorFloat-32" : "float32");
    return rc;
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct legend *s = pst_state(self);
    s->edges = aligned_alloc(PST_PAGE, pst_align_up(s->edges_bytes, PST_PAGE));
    s->next_edges = aligned_alloc(PST_PAGE, pst_align_up(s->edges_bytes, PST_PAGE));
    s->rows = aligned_alloc(PST_PAGE, pst_align_up(s->rows_bytes, PST_PAGE));
    if (!s->edges || !s->next_edges || !s->rows)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a batch of %" PRIu64 " bytes",
                        2 * s->edges_bytes + s->rows_bytes);
    pst_rc rc = pst_device_open(&s->device, pst_device_name(self));
    if (rc == PST_OK)
        rc = pst_edges_source_open(&s->source, &s->total);
    if (rc == PST_OK && pst_device_is_cuda(&s->device))
        rc = open_copies(self, s);
    if (rc == PST_OK)
        rc = pst_vectors_owner_open(&s->owner, s->rows_bytes, &s->total);
    if (rc == PST_OK)
        rc = pst_relations_open(&s->relations, pst_resume_path(self), &s->device, 0);
    if (rc == PST_OK && pst_device_is_cuda(&s->device))
        rc = open_resident(self, s);
    s->owner.vectors.aside = !pst_device_is_cuda(&s->device) && pst_overlap(self);
    if (rc == PST_OK && s->owner.vectors.aside)
        rc = pst_device_aside_open(&s->aside, self);
    s->next = s->owner.first_batch;
    return rc == PST_OK && s->next >= s->total ? pst_vectors_owner_complete(&s->owner) : rc;
}

static void close_stage(struct pst_stage *self)
{
    struct legend *s = pst_state(self);
    pst_device_aside_close(&s->aside);
    pst_relations_close(&s->relations);
    s->copies.left_alone = s->copies.left_alone || s->device.left_alone;
    pst_device_close(&s->device); /* waits for kernels that use partitions */
    pst_vectors_owner_close(&s->owner);
    pst_device_close(&s->copies);
    pst_edges_source_close(&s->source);
    free(s->edges);
    free(s->next_edges);
    free(s->rows);
}

/* ---- training ------------------------------------------------------------------------------------ */

/* Without overlap; or if the batch has no edges. s->edges has the batch. */
static pst_rc train_here(struct pst_stage *self, struct legend *s, uint64_t batch)
{
    struct pst_row_batch b;
    uint64_t used;
    pst_rc rc = pst_vectors_owner_gather(&s->owner, s->edges, s->edges_bytes, s->rows, s->rows_bytes, &b);
    const double gathered = pst_now();
    if (rc == PST_OK)
        rc = pst_relations_train(&s->relations, &b, s->rows, &used);
    pst_span_of(self, "T", batch, -1, gathered, pst_now());
    if (rc == PST_OK)
        rc = pst_vectors_owner_take(&s->owner, &b, s->rows, s->rows_bytes, NULL);
    pst_count(self, 1, b.bytes_used);
    return rc == PST_OK ? pst_vectors_owner_home(&s->owner, batch) : rc;
}

/* The job of the thread: the batch in s->edges. Only vectors and relations are its own meanwhile. */
static pst_rc compute(void *arg)
{
    struct legend *s = arg;
    struct pst_vectors *v = &s->owner.vectors;
    struct pst_row_batch *b = &s->flying.b;
    uint64_t used;
    s->flying.begin = pst_now();
    pst_rc rc = pst_vectors_gather(v, (const struct pst_edge_batch *)(const void *)s->edges, s->edges,
                                   s->rows, s->rows_bytes, b);
    s->flying.gathered = pst_now();
    if (rc == PST_OK)
        rc = pst_relations_train(&s->relations, b, s->rows, &used);
    s->flying.trained = pst_now();
    if (rc == PST_OK)
        rc = pst_vectors_update_gathered(v, b, s->rows);
    s->flying.end = pst_now();
    return rc;
}

/* The thread's batch. */
static pst_rc land_aside(struct pst_stage *self, struct legend *s)
{
    const struct pst_row_batch *b = &s->flying.b;
    const pst_rc rc = pst_device_aside_end(&s->aside);
    if (rc != PST_OK)
        return rc;
    pst_span_of(self, "G", b->batch, -1, s->flying.begin, s->flying.gathered);
    pst_span_of(self, "T", b->batch, -1, s->flying.gathered, s->flying.trained);
    pst_span_of(self, "U", b->batch, -1, s->flying.trained, s->flying.end);
    pst_count(self, 1, b->bytes_used);
    s->owner.gather_s += s->flying.gathered - s->flying.begin;
    s->owner.update_s += s->flying.end - s->flying.trained;
    s->owner.edges += b->edges;
    s->owner.gathered++;
    return pst_vectors_owner_ended(&s->owner, b->batch, b->nodes);
}

/* Waits for the batch that is computed. */
static pst_rc land(struct pst_stage *self, struct legend *s)
{
    const struct pst_row_batch *b = &s->flying.b;
    int64_t nodes = 0;
    if (!s->flying.any)
        return PST_OK;
    s->flying.any = false;
    if (s->aside.started)
        return land_aside(self, s);
    const pst_rc rc = pst_relations_end(&s->relations, b, &nodes);
    pst_span_of(self, "T", b->batch, -1, s->flying.begin, pst_now());
    return rc == PST_OK ? pst_vectors_owner_ended(&s->owner, b->batch, nodes) : rc;
}

/* What of a batch matters when its arrays are on a GPU. */
static struct pst_row_batch header_of(const struct legend *s, const struct pst_edge_batch *e)
{
    return (struct pst_row_batch){.batch = e->batch,
                                  .batch_in_epoch = e->batch_in_epoch,
                                  .epoch = e->epoch,
                                  .edges = e->edges,
                                  .rate = s->owner.vectors.scale};
}

/* On a GPU: puts a batch on the queue, and waits for the one before it. */
static pst_rc fly(struct pst_stage *self, struct legend *s, const struct pst_edge_batch *e)
{
    const struct pst_edges_groups *g = &s->source.groups;
    const struct pst_vectors_ranges ranges = {g->partition, g->resident, g->rows_before};
    const struct pst_k_embed_draws draw = {
        .seed = s->source.seed, .drawn = s->source.drawn, .all = s->source.negatives_from == PST_PARTS_ALL};
    const struct pst_row_batch b = header_of(s, e);
    const double begin = pst_now();
    struct pst_embed_batch batch;
    pst_rc rc = pst_vectors_resident_bring(&s->resident, e, s->edges, &ranges, draw, &batch);
    if (rc != PST_OK)
        return rc;
    pst_vectors_owner_began(&s->owner, &b);
    rc = pst_relations_begin(&s->relations, &b, &batch, s->resident.node_list);
    if (rc != PST_OK)
        return rc;
    pst_vectors_resident_update(&s->resident, &batch, &s->relations.on.step);
    rc = land(self, s);
    pst_embed_device_end(&s->relations.on.step);
    s->flying.any = true;
    s->flying.b = b;
    s->flying.begin = begin;
    pst_count(self, 1, e->bytes_used);
    return rc;
}

/* Puts batch `next` into next_edges. */
static void make_next(struct pst_stage *self, struct legend *s)
{
    const double begin = pst_now();
    if (!s->made)
        (void)pst_edges_source_fill(&s->source, s->next, s->next_edges);
    if (!s->made)
        pst_span_of(self, "E", s->next, -1, begin, pst_now());
    s->made = true;
}

static pst_rc train(struct pst_stage *self, struct legend *s)
{
    make_next(self, s);
    char *made = s->next_edges;
    s->next_edges = s->edges;
    s->edges = made;
    s->made = false;
    const uint64_t batch = s->next++;
    const struct pst_edge_batch e = *(const struct pst_edge_batch *)(const void *)s->edges;
    if (e.edges > 0 && pst_device_is_cuda(&s->device))
        return fly(self, s, &e);
    if (e.edges > 0 && s->aside.started) {
        s->flying.any = true;
        pst_device_aside_begin(&s->aside, compute, s);
        if (s->next < s->total)
            make_next(self, s);
        return PST_OK;
    }
    const pst_rc rc = land(self, s);
    return rc == PST_OK ? train_here(self, s, batch) : rc;
}

static pst_rc look(struct legend *s, bool *ready)
{
    return pst_vectors_owner_ready(&s->owner, s->next < s->total ? s->next : UINT64_MAX, ready);
}

/* Trains a batch if it can be trained, but lets the disk stage's slots come home before the next one. The
 * thread's batch comes before the next one. If the next batch needs partitions, they may wait for the one
 * that a GPU computes. */
static pst_rc advance(struct pst_stage *self, struct legend *s)
{
    bool ready;
    if (s->aside.busy)
        return PST_OK;
    pst_rc rc = look(s, &ready);
    if (rc == PST_OK && !ready && s->flying.any) {
        rc = land(self, s);
        rc = rc == PST_OK ? look(s, &ready) : rc;
    }
    if (rc == PST_OK && ready)
        rc = train(self, s);
    if (ready && !s->aside.busy)
        pst_timer(self, 0);
    return rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct legend *s = pst_state(self);
    pst_rc rc = PST_OK;
    switch (event->kind) {
    case PST_EV_START:
    case PST_EV_TIMER: return advance(self, s);
    case PST_EV_CREDIT:
    case PST_EV_RETURN:
        rc = pst_vectors_owner_part(&s->owner, event);
        return rc == PST_OK ? advance(self, s) : rc;
    case PST_EV_FD: /* the thread's batch is done */
        rc = s->aside.busy ? land(self, s) : PST_OK;
        return rc == PST_OK ? advance(self, s) : rc;
    case PST_EV_FINISH:
        rc = pst_device_aside_end(&s->aside);
        if (rc != PST_OK)
            return rc;
        pst_log(
            self,
            "stopped: a resumed run goes on from the last checkpoint (checkpoint_every, checkpoint_swaps)");
        return pst_vectors_owner_report(&s->owner);
    default: return PST_OK;
    }
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {PST_VECTORS_OWNER_PORT, {0}};

static const struct pst_param_desc params[] = {PST_EDGES_SOURCE_PARAMS(legend, source),
                                               PST_VECTORS_OWNER_PARAMS(legend, owner),
                                               PST_RELATIONS_PARAMS(legend, relations),
                                               {0}};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "legend",
    .help = "trains partitioned embeddings in one process, while partitions are exchanged",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* each instance would own other embeddings */
    .dataset = "triples,types,vertices:partitions",
    .state_bytes = sizeof(struct legend),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
