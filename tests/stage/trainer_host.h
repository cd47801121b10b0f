/* trainer_host.h: the trainer as a stage under a host made up here, which keeps what stage.h promises and no
 * more, and minibatches for it. */
#ifndef TRAINER_HOST_H
#define TRAINER_HOST_H

#include "common/store/checkpoint.h"
#include "stages/trainer/trainer.c"

#define HOST_STATE struct trainer
#include "tests/stage/stage_host.h"

enum { SLOT_BYTES = 1 << 18 };

const char *pst_resume_path(const struct pst_stage *self)
{
    return self->resume;
}

const char *pst_run_identity(const struct pst_stage *self)
{
    (void)self;
    return NULL;
}

uint64_t pst_slot_bytes(const struct pst_stage *self, int port)
{
    assert_int_equal(port, 0);
    return self->need;
}

/* The next user of the slot leaves nothing as it was. It may begin when what the stage had put in its stream
 * is done: until now, or until pst_slot_queued. */
pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame)
{
    assert_true(frame->nrefs == 0 || self->held);
    if (self->held && self->mark)
        assert_true(gpu_passed(self->device, self->mark));
    else if (self->held && self->stream)
        assert_true(gpu_stream_done(self->device, self->stream));
    self->mark = NULL;
    if (self->held)
        memset(self->slot, 0xEE, SLOT_BYTES);
    self->held = false;
    self->consumed++;
    return PST_OK;
}

/* ---- minibatches --------------------------------------------------------------------------------- */

enum { VERTICES = 600, BATCHES = 3, SEEDS = 24, N2 = 9 * SEEDS };

static struct pst_dataset data;

static uint64_t put(char *slot, uint64_t *end, uint64_t align, uint64_t bytes)
{
    const uint64_t at = pst_align_up(*end, align);
    *end = at + bytes;
    assert_true(*end <= SLOT_BYTES);
    memset(slot + at, 0, bytes);
    return at;
}

/* Seeds [from, to) of a batch with both hops; samples depend on the vertex and the batch alone, so that parts
 * of a batch see the same neighbours. */
static struct pst_minibatch *fill(char *slot, uint64_t batch, int64_t from, int64_t to, bool last)
{
    struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot;
    uint64_t end = sizeof *mb;
    const int64_t vertices = data.vertices;
    *mb = (struct pst_minibatch){.magic = PST_MINIBATCH_MAGIC,
                                 .epoch = (uint32_t)(batch / BATCHES),
                                 .hops = 2,
                                 .batch = batch,
                                 .batch_in_epoch = batch % BATCHES,
                                 .batches_in_epoch = BATCHES,
                                 .micro = from > 0,
                                 .last_micro = last,
                                 .batch_seeds = SEEDS,
                                 .feature_dim = (uint32_t)data.feature_dim,
                                 .feature_dtype = data.features.dtype,
                                 .stride_bytes = data.stride_bytes,
                                 .digest = batch + 1};
    mb->vertices_at = put(slot, &end, 8, 8 * N2);
    mb->labels_at = put(slot, &end, 4, 4 * SEEDS);
    int64_t *ids = pst_minibatch_at(mb, mb->vertices_at);
    for (int64_t i = from; i < to; i++)
        ids[mb->n[0]++] = (int64_t)((uint64_t)(i * 23) + batch * 5) % vertices;
    for (int h = 0; h < 2; h++) {
        mb->indptr_at[h] = put(slot, &end, 4, 4 * ((uint64_t)mb->n[h] + 1));
        mb->indices_at[h] = put(slot, &end, 4, 4 * 2 * (uint64_t)mb->n[h]);
        int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[h]),
                *indices = pst_minibatch_at(mb, mb->indices_at[h]);
        mb->n[h + 1] = mb->n[h];
        for (int64_t d = 0; d < mb->n[h]; d++) {
            for (int e = 0; e < 2; e++) {
                const int64_t id = (ids[d] * 7 + 13 * e + h + 1) % vertices;
                int64_t at = 0;
                while (at < mb->n[h + 1] && ids[at] != id)
                    at++;
                if (at == mb->n[h + 1])
                    ids[mb->n[h + 1]++] = id;
                indices[2 * d + e] = (int32_t)at;
            }
            indptr[d + 1] = (int32_t)(2 * d + 2);
        }
    }
    mb->features_at = put(slot, &end, PST_PAGE, (uint64_t)mb->n[2] * data.stride_bytes);
    mb->requests_at = mb->missing_at = mb->features_at;
    for (int64_t i = 0; i < mb->n[2]; i++)
        memcpy(slot + mb->features_at + (uint64_t)i * data.stride_bytes,
               (const char *)data.features.map + (uint64_t)ids[i] * data.stride_bytes, data.stride_bytes);
    for (int64_t i = 0; i < mb->n[0]; i++)
        ((int32_t *)pst_minibatch_at(mb, mb->labels_at))[i] = ((const int32_t *)data.labels.map)[ids[i]];
    mb->bytes_used = end;
    return mb;
}

/* ---- driving it ---------------------------------------------------------------------------------- */

static inline void host_init(struct pst_stage *host, const char *run)
{
    host_begin(host, data.dir, "cpu:0", run);
    host->held = false;
    host->need = SLOT_BYTES;
    host->marks = true;
    host->slot = aligned_alloc(PST_PAGE, SLOT_BYTES);
}

static pst_rc send_frame(struct pst_stage *host, uint64_t batch, uint32_t micro, uint32_t flags,
                         uint32_t nrefs)
{
    const struct pst_frame frame = {.batch = batch, .micro = micro, .flags = flags, .nrefs = nrefs};
    const struct pst_event event = {.kind = PST_EV_FRAME, .frame = &frame};
    host->held = nrefs > 0 && (flags & PST_LAST_PART);
    return pst_stage.on_event(host, &event);
}

static inline pst_rc tell(struct pst_stage *host, enum pst_event_kind kind)
{
    const struct pst_event event = {.kind = kind};
    return pst_stage.on_event(host, &event);
}

/* As the runtime does it if no frame comes. */
static inline void be_idle(struct pst_stage *host)
{
    for (int i = 0; i < 3 && host->timer; i++) {
        host->timer = false;
        assert_int_equal(tell(host, PST_EV_TIMER), PST_OK);
    }
    assert_false(host->timer);
}

static inline pst_rc send_batch(struct pst_stage *host, uint64_t batch)
{
    (void)fill(host->slot, batch, 0, SEEDS, true);
    return send_frame(host, batch, 0, PST_LAST_PART | PST_LAST_MICRO, 1);
}

static inline void send_half(struct pst_stage *host, uint64_t batch, uint32_t half)
{
    (void)fill(host->slot, batch, half ? SEEDS / 2 : 0, half ? SEEDS : SEEDS / 2, half);
    assert_int_equal(send_frame(host, batch, half, PST_LAST_PART | (half ? PST_LAST_MICRO : 0), 1), PST_OK);
}

/* A report without its times, which differ from run to run. */
static inline void strip_times(char *text)
{
    static const char *const keys[] = {"\"seconds\":", "\"seeds_per_second\":"};
    for (int k = 0; k < 2; k++)
        for (char *at = text; (at = strstr(at, keys[k]));)
            for (at += strlen(keys[k]); (*at >= '0' && *at <= '9') || *at == '.'; at++)
                *at = '#';
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != '#')
            *to++ = *from;
    *to = '\0';
}

static inline void run_straight(struct pst_stage *host, const char *run, bool halves)
{
    host_init(host, run);
    assert_int_equal(host_open(host), PST_OK);
    assert_int_equal(tell(host, PST_EV_START), PST_OK);
    for (uint64_t batch = 0; batch < 2 * BATCHES; batch++) {
        if (halves) {
            send_half(host, batch, 0);
            send_half(host, batch, 1);
        } else {
            assert_int_equal(send_batch(host, batch), PST_OK);
        }
    }
    assert_int_equal(tell(host, PST_EV_END), PST_OK);
    strip_times(host->reports);
}

static inline int setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    pst_rc rc = pst_dataset_open(&data, host_dataset("data", VERTICES));
    if (rc == PST_OK)
        rc = pst_array_map(&data.features);
    if (rc != PST_OK)
        print_message("%s\n", pst_error_text());
    return rc == PST_OK ? 0 : -1;
}

static inline int teardown(void **state)
{
    pst_dataset_close(&data);
    return scratch_teardown(state);
}

#endif
