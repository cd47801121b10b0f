/* store.c: the store stage. It owns the embeddings of all vertices (stages/lib/vectors). It adds a batch's
 * rows to the batch's edges and lends the slot to the stage that computes. When the slot comes home, it
 * updates rows with the gradients in it.
 *
 * With n slots, batch b gets the slot of batch b - n, and rows get the gradients in this slot only then. So
 * batch b is gathered with exactly the updates up to batch b - n, whatever the timing. With `consistency`
 * bounded, rows get gradients as soon as they are home, so batch b can have later updates, too. Slots come
 * home in the order of their batches.
 *
 * A partition leaves when all of its batches are home. No batch uses its rows until it comes again. So its
 * rows get all gradients that are home, though other rows get them later (settle).
 *
 * After the last edges of an epoch come `staleness` batches without edges. So every update of an epoch is
 * home before the next epoch begins. The first of these batches carries the relations home, and its return is
 * the moment of the checkpoint. */
#include <inttypes.h>
#include <stdlib.h>

#include "stages/lib/vectors/owner.h"

struct store {
    struct pst_vectors_owner owner;
    int in, out, parts;
    struct pst_row_batch *lent;          /* of each slot: what it was sent with */
    struct pst_frame *waiting;           /* batches of edges for which there was no slot yet */
    uint32_t room, first, n;             /* of waiting */
    struct pst_vectors_settled *settled; /* of each slot */
    bool *due;                           /* of each slot: it is home, but was not taken */
    struct pst_credit *free;             /* slots for the next batches */
    uint32_t slots, first_free, n_free;
    bool came; /* a slot came home since the timer was set, and more may follow */
};

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc settle(void *self, int partition);

static pst_rc size(struct pst_stage *self)
{
    struct store *s = pst_state(self);
    s->owner.settle = settle;
    s->owner.settle_arg = self;
    s->in = pst_port(self, "edges");
    s->out = pst_port(self, "batch");
    s->parts = pst_port(self, "parts");
    const pst_rc rc = pst_vectors_owner_size(&s->owner, self, s->parts);
    if (rc == PST_OK)
        pst_need(self, s->out, s->owner.slot_bytes, PST_CACHE_LINE);
    return rc;
}

static pst_rc check_staleness(const struct pst_stage *self, const struct store *s)
{
    if ((int64_t)s->slots == s->owner.staleness || !pst_overlap(self))
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "staleness is %" PRId64
                    ", but the link from the port batch has %u slots: set both to the same number, because "
                    "the embeddings of a batch lack the updates of all batches that are in slots",
                    s->owner.staleness, s->slots);
}

static pst_rc open_stage(struct pst_stage *self)
{
    struct store *s = pst_state(self);
    uint64_t total = 0;
    s->slots = pst_slots(self, s->out);
    pst_rc rc = check_staleness(self, s);
    if (rc != PST_OK)
        return rc;
    s->room = pst_slots(self, s->in);
    s->waiting = calloc(s->room, sizeof *s->waiting);
    s->lent = calloc(s->slots, sizeof *s->lent);
    s->free = calloc(s->slots, sizeof *s->free);
    s->settled = calloc(s->slots, sizeof *s->settled);
    s->due = calloc(s->slots, sizeof *s->due);
    if (!s->waiting || !s->lent || !s->free || !s->settled || !s->due)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the list of slots");
    rc = pst_vectors_owner_open(&s->owner, pst_slot_bytes(self, s->out), &total);
    if (rc == PST_OK)
        pst_total(self, s->out, total);
    if (rc == PST_OK && s->owner.first_batch >= total)
        rc = pst_vectors_owner_complete(&s->owner);
    pst_fill_many(self, s->out);
    return rc;
}

static void close_stage(struct pst_stage *self)
{
    struct store *s = pst_state(self);
    pst_vectors_owner_close(&s->owner);
    free(s->waiting);
    free(s->lent);
    free(s->free);
    free(s->settled);
    free(s->due);
}

/* ---- slots that come home -------------------------------------------------------------------------- */

/* Updates rows with what a slot brought home, unless that is done. */
static pst_rc take(struct pst_stage *self, struct store *s, struct pst_ref ref)
{
    uint64_t bytes;
    const char *slot = pst_slot(self, ref, &bytes);
    if (!s->due[ref.slot])
        return PST_OK;
    if (!slot)
        return PST_E_STATE;
    s->due[ref.slot] = false;
    const pst_rc rc =
        pst_vectors_owner_take(&s->owner, &s->lent[ref.slot], slot, bytes, &s->settled[ref.slot]);
    s->settled[ref.slot] = (struct pst_vectors_settled){{0}};
    return rc;
}

/* The slots for the next batches, which came home in this order. */
static const struct pst_credit *free_slot(const struct store *s, uint32_t i)
{
    return &s->free[(s->first_free + i) % s->slots];
}

/* Updates the rows of a partition with all that is home. */
static pst_rc settle(void *self, int partition)
{
    struct store *s = pst_state(self);
    uint64_t after = 0;
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < s->n_free && rc == PST_OK; i++) {
        const struct pst_ref ref = free_slot(s, i)->ref;
        const struct pst_row_batch *b = &s->lent[ref.slot];
        if (!s->due[ref.slot] || b->edges == 0)
            continue;
        const char *slot = pst_slot(self, ref, NULL);
        rc = slot ? pst_vectors_settle(&s->owner.vectors, b, slot, partition, after++, &s->settled[ref.slot])
                  : PST_E_STATE;
    }
    return rc;
}

/* dirty: false if no stage computed gradients, for example because the slots go to `discard`. */
static pst_rc come_home(struct store *s, const struct pst_credit *credit)
{
    if (credit->previous_batch == UINT64_MAX)
        return PST_OK;
    const struct pst_row_batch *b = &s->lent[credit->ref.slot];
    if (!credit->dirty && (b->edges > 0 || pst_row_batch_carries(b)) && s->owner.partitions > 1)
        return pst_fail(
            PST_E_PEER,
            "batch %" PRIu64
            " came back without gradients: link the port batch to a stage that trains, for example embedder",
            b->batch);
    s->due[credit->ref.slot] = credit->dirty;
    return PST_OK;
}

/* No batch follows in this slot, so none with edges follows at all. */
static pst_rc come_home_last(struct pst_stage *self, struct store *s, const struct pst_credit *credit)
{
    pst_rc rc = come_home(s, credit);
    for (uint32_t i = 0; i < s->n_free && rc == PST_OK; i++)
        rc = take(self, s, free_slot(s, i)->ref);
    if (rc == PST_OK)
        rc = take(self, s, credit->ref);
    return rc == PST_OK ? pst_vectors_owner_home(&s->owner, credit->previous_batch) : rc;
}

/* ---- batches ------------------------------------------------------------------------------------- */

static pst_rc fill(struct pst_stage *self, struct store *s, const struct pst_frame *frame)
{
    uint64_t from_bytes, bytes;
    const struct pst_credit *credit = &s->free[s->first_free];
    const struct pst_ref ref = credit->ref;
    const void *from = pst_slot(self, frame->refs[0], &from_bytes);
    char *slot = pst_slot(self, ref, &bytes);
    if (!from || !slot)
        return PST_E_STATE;
    if (frame->batch != credit->batch)
        return pst_fail(PST_E_PEER,
                        "batch %" PRIu64 " of edges arrived; expected batch %" PRIu64
                        ", for which there is a free slot",
                        frame->batch, credit->batch);
    struct pst_row_batch *b = &s->lent[ref.slot];
    pst_rc rc = pst_vectors_owner_gather(&s->owner, from, from_bytes, slot, bytes, b);
    if (rc == PST_OK)
        rc = pst_release(self, frame->refs[0], false);
    if (rc != PST_OK)
        return rc;
    pst_used(self, ref, b->bytes_used);
    pst_count(self, 1, b->bytes_used);
    const struct pst_frame lend = {
        .batch = frame->batch, .flags = PST_LAST_PART | PST_LAST_MICRO, .nrefs = 1, .refs = {ref}};
    s->first_free = (s->first_free + 1) % s->slots;
    s->n_free--;
    return pst_send(self, s->out, &lend);
}

/* A batch needs its edges and a slot, which come in any order, and its partitions. What its slot brought home
 * is taken first. */
static pst_rc gather_next(struct pst_stage *self, struct store *s)
{
    bool ready;
    const bool there = s->n_free > 0 && s->n > 0;
    pst_rc rc = s->n_free > 0 ? take(self, s, free_slot(s, 0)->ref) : PST_OK;
    if (rc == PST_OK)
        rc = pst_vectors_owner_ready(&s->owner, there ? s->waiting[s->first].batch : UINT64_MAX, &ready);
    if (rc != PST_OK || !there || !ready)
        return rc;
    const struct pst_frame frame = s->waiting[s->first];
    s->first = (s->first + 1) % s->room;
    s->n--;
    return pst_wrap(fill(self, s, &frame), "batch %" PRIu64, frame.batch);
}

/* Gathers a batch, and lets events come before the next one. If consistency is bounded, all slots that came
 * home are looked at before. */
static pst_rc advance(struct pst_stage *self, struct store *s)
{
    const uint32_t waiting = s->n;
    if (s->owner.consistency == PST_VECTORS_BOUNDED) {
        pst_timer(self, 0);
        return PST_OK;
    }
    const pst_rc rc = gather_next(self, s);
    if (s->n < waiting)
        pst_timer(self, 0);
    return rc;
}

/* If consistency is bounded: gathers a batch when no slot has come home since the last look. */
static pst_rc on_timer(struct pst_stage *self, struct store *s)
{
    const bool came = s->came;
    const uint32_t waiting = s->n;
    if (s->owner.consistency == PST_VECTORS_EXACT)
        return advance(self, s);
    s->came = false;
    const pst_rc rc = came ? PST_OK : gather_next(self, s);
    if (came || (s->n < waiting && s->n > 0)) /* if partitions are missing, the next one sets the timer */
        pst_timer(self, 0);
    return rc;
}

static pst_rc on_frame(struct pst_stage *self, struct store *s, const struct pst_frame *frame)
{
    if (!(frame->flags & PST_LAST_PART))
        return PST_OK;
    if (frame->nrefs != 1 || s->n == s->room)
        return pst_fail(
            PST_E_PEER,
            "batch %" PRIu64
            " arrived with %u slots while %u batches wait; expected one slot, and at most %u waiting batches",
            frame->batch, frame->nrefs, s->n, s->room);
    s->waiting[(s->first + s->n++) % s->room] = *frame;
    return advance(self, s);
}

static pst_rc on_credit(struct pst_stage *self, struct store *s, const struct pst_credit *credit)
{
    pst_rc rc = come_home(s, credit);
    s->free[(s->first_free + s->n_free++) % s->slots] = *credit;
    s->came = true;
    if (rc == PST_OK && s->owner.consistency == PST_VECTORS_BOUNDED)
        rc = take(self, s, credit->ref);
    if (rc == PST_OK && credit->previous_batch != UINT64_MAX)
        rc = pst_vectors_owner_home(&s->owner, credit->previous_batch);
    return rc == PST_OK ? advance(self, s) : rc;
}

static pst_rc on_part(struct pst_stage *self, struct store *s, const struct pst_event *event)
{
    const pst_rc rc = pst_vectors_owner_part(&s->owner, event);
    return rc == PST_OK ? advance(self, s) : rc;
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    struct store *s = pst_state(self);
    if ((event->kind == PST_EV_CREDIT || event->kind == PST_EV_RETURN) && event->port == s->parts)
        return on_part(self, s, event);
    switch (event->kind) {
    case PST_EV_FRAME: return on_frame(self, s, event->frame);
    case PST_EV_CREDIT: return on_credit(self, s, &event->credit);
    case PST_EV_RETURN: return come_home_last(self, s, &event->credit);
    case PST_EV_TIMER: return on_timer(self, s);
    case PST_EV_FINISH:
        pst_log(
            self,
            "stopped: a resumed run goes on from the last checkpoint (checkpoint_every, checkpoint_swaps)");
        return pst_vectors_owner_report(&s->owner);
    default: return PST_OK;
    }
}

/* ---- what it says of itself ---------------------------------------------------------------------- */

static const struct pst_port_desc ports[] = {{.name = "edges",
                                              .dir = PST_IN,
                                              .help = "batches of edges with their negatives",
                                              .type = "edges",
                                              .dtype = "int64",
                                              .rank = 1,
                                              .memory = "cpu",
                                              .flags = PST_PORT_ORDERED},
                                             {.name = "batch",
                                              .dir = PST_OUT,
                                              .help =
                                                  "the same batches with the rows of their vertices; slots "
                                                  "come home with gradients",
                                              .type = "rows of edges",
                                              .dtype = "float32",
                                              .rank = 2,
                                              .memory = "cpu",
                                              .flags = PST_PORT_RETURNS},
                                             PST_VECTORS_OWNER_PORT,
                                             {0}};

#define PARAM(...) PST_VECTORS_OWNER_PARAM(store, owner, __VA_ARGS__)

static const struct pst_param_desc params[] = {
    PARAM("batch", INT, batch, "10000", .min = 1, .max = PST_EDGE_BATCH_EDGES_MAX, .equals = "edges.batch",
          .help = "edges of a batch", .fixed = true),
    PARAM("chunks", INT, chunks, "10", .min = 1, .max = 65536, .equals = "edges.chunks",
          .help = "chunks of a batch", .fixed = true),
    PARAM("negatives", INT, negatives, "1000", .min = 1, .max = PST_EDGE_BATCH_NEGATIVES_MAX,
          .equals = "edges.negatives", .help = "negatives of each chunk and side", .fixed = true),
    PARAM("negatives_from", ENUM, negatives_from, "\"sampled\"", .choices = PST_PARTS_NEGATIVES_FROM,
          .equals = "edges.negatives_from", .help = "sampled; or all: every vertex in memory is a negative",
          .fixed = true),
    PARAM(
        "staleness", INT, staleness, "16", .min = 1, .max = 65536, .equals = "edges.staleness",
        .help =
            "batch b is gathered with exactly the updates up to batch b - staleness; the link from the port "
            "batch must have as many slots",
        .fixed = true),
    PARAM("together", INT, together, "0", .max = PST_EDGE_BATCH_EDGES_MAX, .equals = "edges.together",
          .help = "above 0: edges of the same query come together, and each edge comes twice in an epoch",
          .fixed = true),
    PARAM("consistency", ENUM, consistency, "\"exact\"", .choices = "exact|bounded",
          .help = "bounded: batch b is gathered with all updates that are home, at least those up to batch "
                  "b - staleness, so results depend on timing",
          .fixed = true),
    PARAM("relations", ENUM, relations_way, "\"sync\"", .choices = "sync|async",
          .help =
              "sync: the borrower of a batch owns the relations, and updates them after each batch; async: "
              "a batch brings the rows of its relations, too, and takes their gradients home",
          .fixed = true),
    PARAM("partitions", INT, partitions, "1", .min = 1, .max = PST_PARTS_MAX, .equals = "edges.partitions",
          .help = "partitions of the vertices; 1: all embeddings are in memory", .fixed = true),
    PARAM("buffer", INT, buffer, "2", .min = 2, .max = PST_PARTS_MAX, .equals = "edges.buffer",
          .below = "partitions", .help = "with several partitions: how many of them are in memory",
          .fixed = true),
    PARAM("checkpoint_swaps", INT, checkpoint_swaps, "0", .max = 1000000, .equals = "edges.checkpoint_swaps",
          .help =
              "with several partitions: exchanges of partitions from one checkpoint within an epoch to the "
              "next; 0: checkpoints are only at the ends of epochs. Results depend on it",
          .fixed = true),
    PARAM("order", ENUM, order, "\"beta\"", .choices = PST_PARTS_ORDERS, .choice_if = PST_PARTS_ORDER_IF,
          .equals = "edges.order",
          .help = "with several partitions: the order in which they pass through memory", .fixed = true),
    PARAM("between_exchanges", BOOL, between_exchanges, "false", .equals = "edges.between_exchanges",
          .help = "with several partitions: no edges are trained while partitions are exchanged",
          .fixed = true),
    PARAM("buckets", STRING, buckets, "\"\"", .equals = "edges.buckets",
          .help = "with several partitions: a file that `penstock partition` made; empty: the run's own"),
    PST_VECTORS_OWNER_PARAMS(store, owner),
    {0}};

const struct pst_stage_desc pst_stage = {
    .abi = PST_STAGE_ABI,
    .name = "store",
    .help = "owns embeddings: adds rows to batches of edges, applies the gradients that come home",
    .ports = ports,
    .params = params,
    .instances_max = 1, /* each instance would own other embeddings */
    .dataset = "triples,types",
    .state_bytes = sizeof(struct store),
    .size = size,
    .open = open_stage,
    .on_event = on_event,
    .close = close_stage,
};
