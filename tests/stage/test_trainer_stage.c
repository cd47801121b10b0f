/* The trainer as a stage: events in, reports out, with a host made up here. */
#include "../../stages/trainer/model.c"
#include "../../stages/trainer/pass.c"
#include "../../stages/trainer/backward.c"
#include "../../stages/trainer/team.c"
#include "../../stages/trainer/rows.c"
#include "../../stages/trainer/eval.c"
#include "../../stages/trainer/eval_layers.c"
#include "../../stages/trainer/state.c"
#include "../../stages/trainer/trainer.c"
#include "../../common/store/gen.h"
#include "../unit/store_fixture.h"

/* ---- the host: what stage.h promises, and no more ------------------------------------------------- */

enum { SLOT_BYTES = 1 << 18, TEXT_MAX = 4096 };

struct pst_stage {
    struct trainer *state;
    const char *dataset, *run_dir, *resume;
    const char *set[8][2]; /* parameters that differ from their defaults */
    int64_t epochs;
    char *slot; /* the only one; held while a frame with it is out */
    bool held;
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

void *pst_region(struct pst_stage *self, int index, uint64_t *bytes)
{
    *bytes = SLOT_BYTES;
    return index == 0 ? self->slot : NULL;
}

void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes)
{
    assert_true(self->held && ref.slot == 0);
    *bytes = SLOT_BYTES;
    return self->slot;
}

pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame)
{
    assert_true(frame->nrefs == 0 || self->held);
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
    mb->requests_at = mb->features_at;
    for (int64_t i = 0; i < mb->n[2]; i++)
        memcpy(slot + mb->features_at + (uint64_t)i * data.stride_bytes,
               (const char *)data.features.map + (uint64_t)ids[i] * data.stride_bytes, data.stride_bytes);
    for (int64_t i = 0; i < mb->n[0]; i++)
        ((int32_t *)pst_at(mb, mb->labels_at))[i] = ((const int32_t *)data.labels.map)[ids[i]];
    mb->bytes_used = end;
    return mb;
}

/* ---- driving it ---------------------------------------------------------------------------------- */

static void host_init(struct pst_stage *host, const char *run)
{
    memset(host, 0, sizeof *host);
    host->state = calloc(1, pst_stage.state_bytes);
    host->slot = aligned_alloc(PST_PAGE, SLOT_BYTES);
    host->dataset = data.dir;
    host->run_dir = run;
    host->epochs = 2;
    (void)mkdir(run, 0777);
}

static void host_release(struct pst_stage *host)
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

static pst_rc tell(struct pst_stage *host, enum pst_event_kind kind)
{
    const struct pst_event event = {.kind = kind};
    return pst_stage.on_event(host, &event);
}

static pst_rc send_batch(struct pst_stage *host, uint64_t batch)
{
    (void)fill(host->slot, batch, 0, SEEDS, true);
    return send_frame(host, batch, 0, PST_LAST_PART | PST_LAST_MICRO, 1);
}

static void send_half(struct pst_stage *host, uint64_t batch, uint32_t half)
{
    (void)fill(host->slot, batch, half ? SEEDS / 2 : 0, half ? SEEDS : SEEDS / 2, half);
    assert_int_equal(send_frame(host, batch, half, PST_LAST_PART | (half ? PST_LAST_MICRO : 0), 1), PST_OK);
}

/* A report without its times, which differ from run to run. */
static void strip_times(char *text)
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

static void run_straight(struct pst_stage *host, const char *run, bool halves)
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

static int setup(void **state)
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

static int teardown(void **state)
{
    pst_dataset_close(&data);
    return scratch_teardown(state);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void test_epochs(void **state)
{
    (void)state;
    struct pst_stage host, again;
    run_straight(&host, in_scratch("epochs"), false);
    run_straight(&again, in_scratch("again"), false);
    assert_string_equal(host.reports, again.reports);
    assert_int_equal(host.consumed, 2 * BATCHES);
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":0,"));
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":1,"));
    assert_non_null(strstr(host.reports, "result {\"test_accuracy\":0."));
    assert_null(strstr(host.reports, "null"));
    host_release(&host);
    host_release(&again);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* A split batch learns the same; parts that are not the last change nothing. */
static void test_halves(void **state)
{
    (void)state;
    struct pst_stage whole, halves;
    run_straight(&whole, in_scratch("whole"), false);
    run_straight(&halves, in_scratch("halves"), true);
    const double a = number_after(whole.reports, "\"loss\":"), b = number_after(halves.reports, "\"loss\":");
    assert_true(fabs(a - b) < 1e-5 * a);
    assert_int_equal(halves.consumed, 4 * BATCHES);
    host_release(&whole);
    host_release(&halves);
}

/* Stopped between the halves of batch 4, and gone on with: the same to the last bit. */
static void test_finish_and_resume(void **state)
{
    (void)state;
    struct pst_stage straight, first, second;
    char path[512];
    run_straight(&straight, in_scratch("straight"), true);
    host_init(&first, in_scratch("stopped"));
    assert_int_equal(pst_stage.open(&first), PST_OK);
    assert_int_equal(tell(&first, PST_EV_START), PST_OK);
    for (uint64_t batch = 0; batch < 4; batch++) {
        send_half(&first, batch, 0);
        send_half(&first, batch, 1);
    }
    send_half(&first, 4, 0);
    assert_int_equal(tell(&first, PST_EV_FINISH), PST_OK);
    assert_int_equal(pst_checkpoint_latest(in_scratch("stopped/checkpoints"), path, sizeof path, NULL, 0),
                     PST_OK);
    assert_non_null(strstr(path, "00000004.safetensors"));

    host_init(&second, in_scratch("resumed"));
    second.resume = path;
    assert_int_equal(pst_stage.open(&second), PST_OK);
    assert_int_equal(tell(&second, PST_EV_START), PST_OK);
    for (uint64_t batch = 4; batch < 6; batch++) {
        send_half(&second, batch, 0);
        send_half(&second, batch, 1);
    }
    assert_int_equal(tell(&second, PST_EV_END), PST_OK);
    strip_times(first.reports);
    strip_times(second.reports);
    char joined[2 * TEXT_MAX];
    snprintf(joined, sizeof joined, "%s%s", first.reports, second.reports);
    assert_string_equal(joined, straight.reports);
    host_release(&straight);
    host_release(&first);
    host_release(&second);
}

static void expect_refusal(uint64_t batch, const char *why, void (*spoil)(struct pst_minibatch *))
{
    struct pst_stage host;
    host_init(&host, in_scratch("refused"));
    assert_int_equal(pst_stage.open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    struct pst_minibatch *mb = fill(host.slot, batch, 0, SEEDS, true);
    if (spoil)
        spoil(mb);
    assert_int_not_equal(send_frame(&host, batch, 0, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    if (!strstr(pst_error_text(), why))
        print_message("expected \"%s\" in: %s\n", why, pst_error_text());
    assert_non_null(strstr(pst_error_text(), why));
    host_release(&host);
}

static void spoil_magic(struct pst_minibatch *mb)
{
    mb->magic++;
}
static void spoil_label(struct pst_minibatch *mb)
{
    ((int32_t *)pst_at(mb, mb->labels_at))[2] = 4;
}
static void spoil_dim(struct pst_minibatch *mb)
{
    mb->feature_dim--;
}
static void spoil_number(struct pst_minibatch *mb)
{
    mb->batch_in_epoch = 1;
}
static void spoil_feature(struct pst_minibatch *mb)
{
    ((float *)pst_at(mb, mb->features_at))[3] = NAN;
}
static void spoil_hops(struct pst_minibatch *mb)
{
    mb->hops = 1;
    mb->n[2] = mb->n[1];
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(1, "batch 1 came, expected 0", NULL);
    expect_refusal(0, "batch 0", spoil_magic);
    expect_refusal(0, "label 4", spoil_label);
    expect_refusal(0, "columns", spoil_dim);
    expect_refusal(0, "of 3 in its epoch", spoil_number);
    expect_refusal(0, "epoch 0 (its batch 0): the loss is", spoil_feature);
    expect_refusal(0, "1 hops, the model 2 layers", spoil_hops);
}

static void test_void_batches(void **state)
{
    (void)state;
    struct pst_stage host;
    host_init(&host, in_scratch("void"));
    assert_int_equal(pst_stage.open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    memset(host.slot, 0xFF, SLOT_BYTES); /* not looked at before the last part */
    assert_int_equal(send_frame(&host, 0, 0, 0, 1), PST_OK);
    assert_int_equal(host.consumed, 0);
    const int64_t steps = host.state->model.steps;
    (void)fill(host.slot, 0, 0, 0, true); /* no seeds */
    assert_int_equal(send_frame(&host, 0, 0, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    assert_int_equal(send_frame(&host, 1, 0, PST_LAST_PART | PST_LAST_MICRO, 0), PST_OK); /* no slot */
    assert_int_equal(host.state->model.steps, steps); /* nothing was learned: no step */
    send_half(&host, 2, 0);
    (void)fill(host.slot, 2, SEEDS, SEEDS, true); /* a void one ends a batch that has gradients */
    assert_int_equal(send_frame(&host, 2, 1, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    assert_int_equal(host.state->model.steps, steps + 1);
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":0,"));
    host_release(&host);
}

static void expect_no_open(const char *name, const char *value, const char *why)
{
    struct pst_stage host;
    host_init(&host, in_scratch("closed"));
    host.set[0][0] = name;
    host.set[0][1] = value;
    assert_int_not_equal(pst_stage.open(&host), PST_OK);
    assert_non_null(strstr(pst_error_text(), why));
    host_release(&host);
}

static void test_open(void **state)
{
    (void)state;
    expect_no_open("residual", "true", "layers to 3");
    struct pst_stage host;
    host_init(&host, in_scratch("closed"));
    host.resume = "/not/there";
    assert_int_equal(pst_stage.open(&host), PST_E_IO);
    host_release(&host);
    host_init(&host, in_scratch("closed"));
    host.dataset = scratch;
    assert_int_not_equal(pst_stage.open(&host), PST_OK);
    host_release(&host);
}

/* Without evaluation and checkpoints nothing is written, and what was not measured is null. */
static void test_nothing_extra(void **state)
{
    (void)state;
    struct pst_stage host;
    host_init(&host, in_scratch("bare"));
    host.set[0][0] = "eval_every";
    host.set[0][1] = "0";
    host.set[1][0] = "checkpoint_every";
    host.set[1][1] = "0";
    assert_int_equal(pst_stage.open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    for (uint64_t batch = 0; batch < 2 * BATCHES; batch++)
        assert_int_equal(send_batch(&host, batch), PST_OK);
    assert_int_equal(tell(&host, PST_EV_END), PST_OK);
    assert_non_null(strstr(host.reports, "\"val_accuracy\":null"));
    assert_non_null(strstr(host.reports, "\"test_accuracy\":null"));
    assert_int_not_equal(access(in_scratch("bare/checkpoints"), F_OK), 0);
    host_release(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_finish_and_resume),
        cmocka_unit_test(test_open),          cmocka_unit_test(test_void_batches),
        cmocka_unit_test(test_nothing_extra),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
