/* trainer_host.h: the trainer as a stage under a host made up here, which keeps what stage.h promises and no
 * more, and minibatches for it. */
#ifndef TRAINER_HOST_H
#define TRAINER_HOST_H

#include "../../stages/trainer/model.c"
#include "../../stages/trainer/pass.c"
#include "../../stages/trainer/backward.c"
#include "../../stages/trainer/team.c"
#include "../../stages/trainer/rows.c"
#include "../../stages/trainer/eval.c"
#include "../../stages/trainer/eval_layers.c"
#include "../../stages/trainer/state.c"
#include "../../stages/trainer/inputs.c"
#include "../../stages/trainer/trainer.c"
#include "../../common/store/gen.h"
#include "../unit/store_fixture.h"
#include "virtual_gpu.h"

/* ---- the host ------------------------------------------------------------------------------------ */

enum { SLOT_BYTES = 1 << 18, TEXT_MAX = 4096 };

struct pst_stage {
    struct trainer *state;
    const char *dataset, *run_dir, *resume, *device;
    const char *set[8][2]; /* parameters that differ from their defaults */
    int64_t epochs;
    char *slot; /* the only one; held while a frame with it is out */
    bool held;
    void *stream;           /* of pst_stream */
    char reports[TEXT_MAX]; /* a line each */
    int consumed;
};

static const char *param_text(const struct pst_stage *self, const char *name)
{
    for (int i = 0; self->set[i][0]; i++)
        if (strcmp(self->set[i][0], name) == 0)
            return self->set[i][1];
    for (const struct pst_param_desc *p = pst_stage.params; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p->def;
    fail_msg("no parameter %s", name);
    return NULL;
}

void *pst_state(struct pst_stage *self)
{
    return self->state;
}

bool pst_param_bool(const struct pst_stage *self, const char *name)
{
    return strcmp(param_text(self, name), "true") == 0;
}

int64_t pst_param_int(const struct pst_stage *self, const char *name)
{
    return strcmp(name, "eval_memory") == 0 ? 1 << 30 : strtoll(param_text(self, name), NULL, 10);
}

double pst_param_real(const struct pst_stage *self, const char *name)
{
    return strtod(param_text(self, name), NULL);
}

const char *pst_param_str(const struct pst_stage *self, const char *name)
{
    static char text[64];
    snprintf(text, sizeof text, "%s", param_text(self, name) + 1); /* without the quotes */
    text[strcspn(text, "\"")] = '\0';
    return text;
}

const char *pst_dataset_dir(const struct pst_stage *self)
{
    return self->dataset;
}

const char *pst_run_dir(const struct pst_stage *self)
{
    return self->run_dir;
}

const char *pst_resume_path(const struct pst_stage *self)
{
    return self->resume;
}

uint64_t pst_seed(const struct pst_stage *self)
{
    (void)self;
    return 42;
}

const char *pst_device(const struct pst_stage *self)
{
    return self->device ? self->device : "cpu:0";
}

int pst_port(const struct pst_stage *self, const char *name)
{
    (void)self;
    assert_true(strcmp(name, "batch") == 0 || strcmp(name, "cached") == 0);
    return strcmp(name, "cached") == 0;
}

bool pst_linked(const struct pst_stage *self, int port)
{
    (void)self;
    return port == 0;
}

uint32_t pst_slots(const struct pst_stage *self, int port)
{
    (void)self;
    assert_int_equal(port, 0);
    return 1;
}

int64_t pst_epochs(const struct pst_stage *self)
{
    return self->epochs;
}

int pst_instance(const struct pst_stage *self, int *instances)
{
    (void)self;
    *instances = 1;
    return 0;
}

uint64_t pst_slot_bytes(const struct pst_stage *self, int port)
{
    (void)self;
    assert_int_equal(port, 0);
    return SLOT_BYTES;
}

void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes)
{
    assert_true(self->held && ref.slot == 0);
    *bytes = SLOT_BYTES;
    return self->slot;
}

pst_rc pst_stream(struct pst_stage *self, void *stream)
{
    self->stream = stream;
    return PST_OK;
}

pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame)
{
    assert_true(frame->nrefs == 0 || self->held);
    if (self->held && self->stream)
        assert_true(gpu_stream_done(self->device, self->stream));
    if (self->held) /* by its next user */
        memset(self->slot, 0xEE, SLOT_BYTES);
    self->held = false;
    self->consumed++;
    return PST_OK;
}

void pst_span(struct pst_stage *self, const char *name, double begin_s, double end_s)
{
    (void)self;
    (void)name;
    assert_true(begin_s <= end_s);
}

pst_rc pst_report(struct pst_stage *self, const char *section, const char *fmt, ...)
{
    const size_t used = strlen(self->reports);
    if (strcmp(section, "trainer") == 0) /* times, and rows of this process alone */
        return PST_OK;
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(self->reports + used, TEXT_MAX - used, "%s ", section);
    n += vsnprintf(self->reports + used + n, TEXT_MAX - used - (size_t)n, fmt, ap);
    snprintf(self->reports + used + n, TEXT_MAX - used - (size_t)n, "\n");
    va_end(ap);
    return PST_OK;
}

void pst_log(struct pst_stage *self, const char *fmt, ...)
{
    (void)self;
    (void)fmt;
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
    int64_t *ids = pst_at(mb, mb->vertices_at);
    for (int64_t i = from; i < to; i++)
        ids[mb->n[0]++] = (int64_t)((uint64_t)(i * 23) + batch * 5) % vertices;
    for (int h = 0; h < 2; h++) {
        mb->indptr_at[h] = put(slot, &end, 4, 4 * ((uint64_t)mb->n[h] + 1));
        mb->indices_at[h] = put(slot, &end, 4, 4 * 2 * (uint64_t)mb->n[h]);
        int32_t *indptr = pst_at(mb, mb->indptr_at[h]), *indices = pst_at(mb, mb->indices_at[h]);
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
        ((int32_t *)pst_at(mb, mb->labels_at))[i] = ((const int32_t *)data.labels.map)[ids[i]];
    mb->bytes_used = end;
    return mb;
}

/* ---- driving it ---------------------------------------------------------------------------------- */

static inline void host_init(struct pst_stage *host, const char *run)
{
    memset(host, 0, sizeof *host);
    host->state = calloc(1, pst_stage.state_bytes);
    host->slot = aligned_alloc(PST_PAGE, SLOT_BYTES);
    host->dataset = data.dir;
    host->run_dir = run;
    host->epochs = 2;
    (void)mkdir(run, 0777);
}

static inline void host_release(struct pst_stage *host)
{
    pst_stage.close(host);
    free(host->state);
    free(host->slot);
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
    assert_int_equal(pst_stage.open(host), PST_OK);
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
    struct pst_community_spec spec;
    struct pst_build build;
    if (scratch_setup(state) != 0)
        return -1;
    pst_community_defaults(&spec);
    spec.vertices = VERTICES;
    spec.classes = 4;
    spec.feature_dim = 24;
    const char *dir = in_scratch("data");
    pst_rc rc = pst_build_begin(&build, dir, false);
    if (rc == PST_OK)
        rc = pst_gen_community(&spec, &build, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&build);
    pst_build_release(&build);
    if (rc == PST_OK)
        rc = pst_dataset_open(&data, dir);
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
