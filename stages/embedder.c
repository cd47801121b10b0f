/* embedder.c: the stage that trains embeddings. For each batch it computes the loss and the gradients, and
 * writes the gradients of the vertices' rows to the slot, for the store. Relations are its own, or come with
 * the batch, too (stages/lib/vectors/relations.h). */
#include <inttypes.h>

#include "common/stage.h"
#include "common/store/store.h"
#include "common/util/team.h"
#include "stages/lib/vectors/relations.h"

struct embedder {
    struct pst_relations relations;
    struct pst_device device;
    int in;
};

static pst_rc size(struct pst_stage *self)
{
    struct embedder *e = pst_state(self);
    struct pst_dataset ds;
    const struct pst_array *edges;
    int64_t relations = 0;
    e->in = pst_port(self, "batch");
    pst_rc rc = pst_dataset_open(&ds, pst_dataset_dir(self));
    if (rc == PST_OK)
        rc = pst_dataset_edges(&ds, PST_TRAIN, &edges, &relations);
    pst_dataset_close(&ds);
    if (rc == PST_OK)
        rc = pst_relations_plan(&e->relations, relations, pst_seed(self));
    pst_need(self, e->in, pst_relations_slot_bytes(&e->relations), PST_CACHE_LINE);
    return rc;
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct embedder *e = pst_state(self);
    pst_rc rc = pst_device_open(&e->device, pst_device_name(self));
    if (rc == PST_OK)
        rc =
            pst_relations_open(&e->relations, pst_resume_path(self), &e->device, pst_slot_bytes(self, e->in));
    return rc == PST_OK ? pst_stream(self, e->device.twin->stream(e->device.q)) : rc;
}

static void close_stage(struct pst_stage *self)
{
    struct embedder *e = pst_state(self);
    pst_relations_close(&e->relations);
    pst_device_close(&e->device);
}

static pst_rc take(struct pst_stage *self, struct embedder *e, const struct pst_frame *frame)
{
    uint64_t bytes, used = 0;
    struct pst_row_batch b = {.bytes_used = 0};
    if (frame->nrefs != 1)
        return pst_fail(PST_E_PEER, "the batch came with %u slots; expected 1", frame->nrefs);
    char *slot = pst_slot(self, frame->refs[0], &bytes);
    if (!slot)
        return PST_E_STATE;
    const double begin = pst_now();
    pst_rc rc = pst_slot_wait(self, frame->refs[0]); /* the host reads the slot, too */
    if (rc == PST_OK)
        rc = pst_row_batch_read(slot, bytes, &b);
    if (rc == PST_OK)
        rc = pst_relations_train(&e->relations, &b, slot, &used);
    if (rc == PST_OK && used > 0)
        pst_used(self, frame->refs[0], used);
    pst_span_of(self, "T", frame->batch, -1, begin, pst_now());
    pst_count(self, 1, b.bytes_used);
    return rc == PST_OK ? pst_release(self, frame->refs[0], b.edges > 0 || pst_row_batch_carries(&b)) : rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct embedder *e = pst_state(self);
    switch (event->kind) {
    case PST_EV_FRAME:
        return event->frame->flags & PST_LAST_PART
                   ? pst_wrap(take(self, e, event->frame), "batch %" PRIu64, event->frame->batch)
                   : PST_OK;
    case PST_EV_END:
        return pst_report(self, "embedder", "{\"edges\":%" PRIu64 ",\"train_s\":%.6f}", e->relations.edges,
                          e->relations.train_s);
    default: return PST_OK;
    }
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {{.name = "batch",
                                              .dir = PST_IN,
                                              .help = "batches of edges with the rows of their vertices",
                                              .type = "rows of edges",
                                              .dtype = "float32",
                                              .rank = 2,
                                              .memory = "cpu,pinned",
                                              .flags = PST_PORT_ORDERED | PST_PORT_WRITES},
                                             {0}};

#define PARAM(...) PST_RELATIONS_PARAM(embedder, relations, __VA_ARGS__)

static const struct pst_param_desc params[] = {
    PARAM("model", ENUM, model, "\"complex\"", .choices = "dot|distmult|complex|transe-l1|transe-l2|rotate",
          .equals = "batch.model", .help = "how an edge is scored", .fixed = true),
    PARAM("dim", INT, dim, "100", .min = 1, .max = PST_ROW_BATCH_DIM_MAX, .equals = "batch.dim",
          .help = "floats of an embedding; of a complex one, both halves count", .fixed = true),
    PARAM("inverse", BOOL, inverse, "true", .equals = "batch.inverse",
          .help = "relations have a second embedding, which scores sources", .fixed = true),
    PARAM("init_from", STRING, init_from, "\"\"", .equals = "batch.init_from",
          .help = "the directory of a run: relations begin as those of its newest checkpoint", .fixed = true),
    PARAM("scale", REAL, scale, "0.001", .min = 0, .max = 1000, .equals = "batch.scale",
          .help = "relations begin uniform between -scale and scale, but those of rotate between -pi and pi",
          .fixed = true),
    PARAM("optimizer", ENUM, optimizer, "\"adagrad\"",
          .choices = "adagrad|adagrad-row|sgd|adam", /* as enum pst_k_embed_optimizer */
          .help = "how gradients change relations", .fixed = true),
    PARAM("rate", REAL, rate, "0.1", .min = 1e-9, .max = 100, .help = "learning rate of relations"),
    PARAM("relations", ENUM, way, "\"sync\"", .choices = "sync|async", .equals = "batch.relations",
          .help = "async: relations come with the batch, and their gradients go home with it", .fixed = true),
    PARAM("threads", INT, threads, "0", .max = PST_TEAM_MAX,
          .help = "threads that train; 0: one per core that the stage may use. Results do not depend on it"),
    PST_RELATIONS_PARAMS(embedder, relations),
    {0}};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "embedder",
    .help = "trains embeddings of vertices and relations on batches of edges: ComplEx, DistMult, TransE, "
            "RotatE, Dot",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* each instance would train its own relations */
    .dataset = "triples,types",
    .state_bytes = sizeof(struct embedder),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
