/* inputs.c: pairs the frames of both inputs, and brings slots to the GPU. */
#include "stages/trainer/inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/store.h"

enum {
    ARRAYS_MAX = 4 + 3 * PST_HOPS_MAX, /* of a minibatch that a step reads */
    GAP_MOST = 64 << 10, /* bytes: they cross PCIe in the time in which the host starts one more copy */
};

/* ---- frames -------------------------------------------------------------------------------------- */

pst_rc pst_inputs_open(struct pst_inputs *in, struct pst_stage *self, struct pst_device *device)
{
    *in = (struct pst_inputs){
        .self = self, .device = device, .port = {pst_port(self, "batch"), pst_port(self, "cached")}};
    in->cached = pst_linked(self, in->port[PST_INPUTS_CACHED]);
    in->cache = pst_shared_from(self, in->port[PST_INPUTS_BATCH], &in->cache_bytes);
    for (int i = 0; i < PST_INPUTS && in->cached; i++) {
        struct pst_inputs_waiting *w = &in->waiting[i];
        w->room = pst_slots(self, in->port[i]);
        w->frame = calloc(w->room, sizeof *w->frame);
        if (!w->frame)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the queue of %u frames", w->room);
    }
    return PST_OK;
}

void pst_inputs_close(struct pst_inputs *in)
{
    for (int i = 0; i < PST_INPUTS; i++)
        free(in->waiting[i].frame);
    memset(in->waiting, 0, sizeof in->waiting);
}

static struct pst_inputs_waiting *queue_of(struct pst_inputs *in, int port)
{
    return &in->waiting[in->cached && port == in->port[PST_INPUTS_CACHED] ? PST_INPUTS_CACHED
                                                                          : PST_INPUTS_BATCH];
}

pst_rc pst_inputs_note(struct pst_inputs *in, const struct pst_event *event)
{
    struct pst_inputs_waiting *w = queue_of(in, event->port);
    if (w->n == w->room)
        return pst_fail(PST_E_PEER,
                        "batch %" PRIu64 ": %u frames of this input wait for frames of the other input, "
                        "which is the limit: link both inputs to the same sampler or cache",
                        event->frame->batch, w->n);
    w->frame[(w->first + w->n++) % w->room] = *event->frame;
    return PST_OK;
}

static struct pst_frame pop(struct pst_inputs_waiting *w)
{
    const struct pst_frame frame = w->frame[w->first];
    w->first = (w->first + 1) % w->room;
    w->n--;
    return frame;
}

pst_rc pst_inputs_next(struct pst_inputs *in, struct pst_inputs_given *given, bool *any)
{
    *given = (struct pst_inputs_given){.rows = NULL};
    *any = in->waiting[PST_INPUTS_BATCH].n > 0 && in->waiting[PST_INPUTS_CACHED].n > 0;
    if (!*any)
        return PST_OK;
    given->frame = pop(&in->waiting[PST_INPUTS_BATCH]);
    given->cached = pop(&in->waiting[PST_INPUTS_CACHED]);
    return given->frame.batch == given->cached.batch && given->frame.micro == given->cached.micro
               ? PST_OK
               : pst_fail(PST_E_PEER,
                          "batch %" PRIu64
                          ", micro-batch %u, arrived together with the cached rows of batch %" PRIu64
                          ", micro-batch %u: link both inputs to the same sampler or cache",
                          given->frame.batch, given->frame.micro, given->cached.batch, given->cached.micro);
}

pst_rc pst_inputs_let_go(struct pst_inputs *in, const struct pst_inputs_given *given)
{
    const struct pst_frame *frame = &given->frame;
    pst_rc rc = pst_overlap(in->self) && frame->nrefs > 0 ? PST_OK : pst_consume(in->self, frame);
    for (uint32_t i = 0; i < given->cached.nrefs && rc == PST_OK; i++)
        rc = pst_release(in->self, given->cached.refs[i], false);
    return rc;
}

bool pst_inputs_end(struct pst_inputs *in)
{
    return ++in->ended == (in->cached ? PST_INPUTS : 1);
}

/* ---- slots --------------------------------------------------------------------------------------- */

uint64_t pst_inputs_staged(const struct pst_inputs *in)
{
    const uint64_t cached = in->cached ? pst_slot_bytes(in->self, in->port[PST_INPUTS_CACHED]) : 0;
    return pst_minibatch_features_at(pst_slot_bytes(in->self, in->port[PST_INPUTS_BATCH]), cached);
}

pst_rc pst_inputs_stage(struct pst_inputs *in)
{
    void *at = NULL;
    in->staging_bytes = pst_inputs_staged(in);
    const pst_rc rc =
        pst_device_take(in->device, PST_TWIN_MEMORY_DEVICE, in->staging_bytes, "a minibatch", &at);
    in->staging = at;
    return rc;
}

/* Arrays of the slot that are to be copied to the staging. */
struct wanted {
    struct {
        uint64_t at, end; /* bytes of the slot */
    } array[ARRAYS_MAX];
    int n;
};

/* Returns where an array will be. NULL: it has no room there. Keeps the arrays in the slot's order. */
static const void *want(const struct pst_inputs *in, struct wanted *w, uint64_t at, uint64_t bytes)
{
    if (at > in->staging_bytes || bytes > in->staging_bytes - at)
        return NULL;
    if (bytes == 0)
        return in->staging + at;
    assert(w->n < ARRAYS_MAX);
    int i = w->n++;
    for (; i > 0 && w->array[i - 1].at > at; i--)
        w->array[i] = w->array[i - 1];
    w->array[i].at = at;
    w->array[i].end = at + bytes;
    return in->staging + at;
}

/* Copies them. Arrays that lie close together are one copy, with what is between them. The step reports a
 * failure. */
static void bring(struct pst_inputs *in, const struct pst_inputs_given *g, const struct wanted *w)
{
    for (int i = 0; i < w->n;) {
        const uint64_t at = w->array[i].at;
        uint64_t end = w->array[i++].end;
        for (; i < w->n && w->array[i].at <= end + GAP_MOST; i++)
            end = w->array[i].end > end ? w->array[i].end : end;
        (void)in->device->twin->copy(in->device->q, in->staging + at, pst_minibatch_at(g->slot, at),
                                     end - at);
    }
}

/* What is copied for the rows that are not cached: all rows if none is cached. */
static const void *want_rows(struct pst_inputs *in, const struct pst_inputs_given *g, struct wanted *w)
{
    const struct pst_minibatch *mb = &g->batch.mb;
    const uint64_t rows = (uint64_t)mb->n[mb->hops];
    in->rows_brought += g->rows ? mb->requests : rows;
    if (!g->rows)
        return want(in, w, mb->features_at, rows * mb->stride_bytes);
    if (rows * mb->stride_bytes > g->rows_bytes || mb->requests > rows)
        return NULL;
    in->rows_cached += rows - mb->requests;
    const bool some = mb->requests < rows;
    return !some || want(in, w, mb->missing_at, mb->requests * sizeof(int32_t)) ? g->rows : NULL;
}

/* Brings the missing rows to the cached ones. Their positions have been brought. */
static void bring_rows(struct pst_inputs *in, const struct pst_inputs_given *g)
{
    const struct pst_minibatch *mb = &g->batch.mb;
    const uint64_t rows = (uint64_t)mb->n[mb->hops], stride = mb->stride_bytes;
    const char *from = pst_minibatch_at(g->slot, mb->features_at);
    const int32_t *missing = (const int32_t *)(const void *)(in->staging + mb->missing_at);
    if (mb->requests == rows)
        (void)in->device->twin->copy(in->device->q, g->rows, from, rows * stride);
    else
        in->device->twin->gather(in->device->q, from, stride, missing, g->rows, stride, missing, mb->requests,
                                 mb->feature_dim * pst_dtype_bytes((enum pst_dtype)mb->feature_dtype));
}

static void point_at_slot(const void *slot, struct pst_gnn_batch *b)
{
    const struct pst_minibatch *mb = &b->mb;
    b->vertices = pst_minibatch_at(slot, mb->vertices_at);
    b->labels = pst_minibatch_at(slot, mb->labels_at);
    b->features = pst_minibatch_at(slot, mb->features_at);
    b->pairs = mb->pairs_at != 0 ? pst_minibatch_at(slot, mb->pairs_at) : NULL;
    for (uint32_t h = 0; h < mb->hops; h++) {
        b->indptr[h] = pst_minibatch_at(slot, mb->indptr_at[h]);
        b->indices[h] = pst_minibatch_at(slot, mb->indices_at[h]);
        b->edges[h] = b->indptr[h][mb->n[h]];
        b->weights[h] = mb->weights_at[h] != 0 ? pst_minibatch_at(slot, mb->weights_at[h]) : NULL;
    }
}

/* Points at rows that have stayed in the sampler's cache. The header's check has compared them with
 * in_place_rows. */
static pst_rc point_at_cache(const struct pst_inputs *in, const void *slot, struct pst_gnn_batch *b)
{
    const struct pst_minibatch *mb = &b->mb;
    const uint64_t rows = mb->stride_bytes > 0 && !in->staging ? in->cache_bytes / mb->stride_bytes : 0;
    if (mb->in_place_at == 0)
        return PST_OK;
    b->in_place = pst_minibatch_at(slot, mb->in_place_at);
    b->cache = in->cache;
    return mb->in_place_rows <= rows
               ? PST_OK
               : pst_fail(PST_E_PEER,
                          "the minibatch says that rows have stayed in a cache of %" PRIu64
                          " rows, but the stage that made it shares memory for %" PRIu64
                          ": link batch to a sampler through stages that do not copy slots",
                          mb->in_place_rows, rows);
}

pst_rc pst_inputs_bring(struct pst_inputs *in, struct pst_inputs_given *g)
{
    struct pst_gnn_batch *b = &g->batch;
    const struct pst_minibatch *mb = &b->mb;
    point_at_slot(g->slot, b);
    if (!in->staging)
        return point_at_cache(in, g->slot, b);
    struct wanted w = {.n = 0};
    b->features = want_rows(in, g, &w);
    b->vertices = want(in, &w, mb->vertices_at, (uint64_t)mb->n[mb->hops] * sizeof *b->vertices);
    b->labels = want(in, &w, mb->labels_at, (uint64_t)mb->n[0] * sizeof *b->labels);
    bool all = b->features && b->vertices && b->labels;
    for (uint32_t h = 0; h < mb->hops; h++) {
        b->indptr[h] = want(in, &w, mb->indptr_at[h], ((uint64_t)mb->n[h] + 1) * sizeof *b->indptr[h]);
        b->indices[h] = want(in, &w, mb->indices_at[h], (uint64_t)b->edges[h] * sizeof *b->indices[h]);
        const bool weighs = b->weights[h];
        if (weighs)
            b->weights[h] = want(in, &w, mb->weights_at[h], (uint64_t)b->edges[h] * sizeof *b->weights[h]);
        all = all && b->indptr[h] && b->indices[h] && (!weighs || b->weights[h]);
    }
    if (all)
        bring(in, g, &w);
    if (all && g->rows)
        bring_rows(in, g);
    return all ? PST_OK
               : pst_fail(PST_E_PEER,
                          "an array of the batch overlaps the features, or the batch has more cached rows "
                          "than its slot for them holds (%" PRIu64
                          " bytes): link the input cached to the sampler or cache of these batches",
                          g->rows_bytes);
}
