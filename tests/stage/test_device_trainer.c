/* The trainer on a GPU against the trainer on the CPU. The GPU is the host build (kernels/cuda/host) unless
 * PENSTOCK_TWIN=cuda asks for the real one. */
#include "tests/kernel/random_batch.h"
#include "tests/gpu/host_counts.h"
#include "tests/stage/trainer_host.h"
#include "tests/stage/virtual_gpu.h"

#include <math.h>

enum { STEPS = 2, MODEL_DIM = 11, MODEL_CLASSES = 5, MODEL_ROWS = 400 };

/* Norm-wise, over both. */
static double apart(const pst_real *a, const pst_real *b, int64_t n)
{
    double off = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(off / norm) : off;
}

/* ---- the model ----------------------------------------------------------------------------------- */

static void on_gpu(struct pst_device *device)
{
    assert_int_equal(pst_device_open(device, "cuda:0"), PST_OK);
    assert_int_equal(
        pst_device_queue(device,
                         (struct pst_queue_options){.most = 1 << 15, .columns = 64, .products = true}),
        PST_OK);
}

static const void *sent(struct pst_device *device, const void *from, size_t bytes)
{
    void *to;
    assert_int_equal(pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, "a test", &to), PST_OK);
    assert_int_equal(device->twin->copy(device->q, to, from, bytes), PST_OK);
    assert_int_equal(pst_device_wait(device), PST_OK);
    return to;
}

static struct pst_gnn_batch batch_on(struct pst_device *device, const struct pst_gnn_batch *b)
{
    struct pst_gnn_batch on = *b;
    const size_t rows = (size_t)b->mb.n[b->mb.hops];
    on.vertices = sent(device, b->vertices, rows * sizeof *b->vertices);
    on.degrees = sent(device, b->degrees, rows * sizeof *b->degrees);
    on.multilabels = sent(device, b->multilabels, (size_t)b->mb.n[0] * MODEL_CLASSES);
    on.labels = sent(device, b->labels, (size_t)b->mb.n[0] * sizeof *b->labels);
    on.features = sent(device, b->features, rows * b->mb.stride_bytes);
    for (int h = 0; h < (int)b->mb.hops; h++) {
        on.indptr[h] = sent(device, b->indptr[h], ((size_t)b->mb.n[h] + 1) * sizeof(int32_t));
        on.indices[h] = sent(device, b->indices[h], (size_t)b->edges[h] * sizeof(int32_t));
    }
    return on;
}

/* The upper halves of floats are bfloat16. */
static void narrow(struct random_batch *b)
{
    uint16_t *to = (uint16_t *)(void *)b->features;
    for (int64_t i = 0; i < b->view.mb.n[b->view.mb.hops] * MODEL_DIM; i++) {
        uint32_t bits;
        memcpy(&bits, &b->features[i], sizeof bits);
        to[i] = (uint16_t)(bits >> 16); /* behind what is still to be read */
    }
    b->view.mb.stride_bytes = MODEL_DIM * sizeof *to;
}

/* A few steps of both: the same losses, hits and weights. */
static void compare_models(struct pst_gnn_config config, enum pst_dtype dtype)
{
    struct pst_gnn_model cpu, gpu;
    struct pst_device device;
    struct random_batch b;
    on_gpu(&device);
    config.in = MODEL_DIM;
    config.classes = MODEL_CLASSES;
    config.rows_max = MODEL_ROWS;
    config.heads = 2;
    config.attention_dropout = config.dropout / 2;
    config.edges_max = 4 * MODEL_ROWS;
    config.seed = 5;
    config.threads = 2;
    assert_int_equal(pst_gnn_model_init(&cpu, &config), PST_OK);
    config.device = &device;
    assert_int_equal(pst_gnn_model_init(&gpu, &config), PST_OK);
    random_batch_init(&b, config.layers, 12, MODEL_DIM, MODEL_CLASSES);
    assert_true(b.view.mb.n[config.layers] <= MODEL_ROWS);
    b.view.mb.feature_dtype = dtype;
    if (dtype == PST_BF16)
        narrow(&b);
    const struct pst_gnn_batch on = batch_on(&device, &b.view);
    for (int step = 0; step < STEPS; step++) {
        struct pst_gnn_figures want = {0}, got = {0};
        assert_int_equal(pst_gnn_model_step(&cpu, &b.view, &want, NULL), PST_OK);
        assert_int_equal(pst_gnn_model_step(&gpu, &on, &got, NULL), PST_OK);
        assert_int_equal(got.counted, want.counted);
        assert_true(llabs(got.correct - want.correct) <= 1);
        if (fabs(got.loss - want.loss) > 1e-5 * fabs(want.loss))
            fail_msg("step %d: the loss is %.9g, the CPU's %.9g", step, got.loss, want.loss);
        pst_gnn_model_update(&cpu, 0.01, 5e-4);
        pst_gnn_model_update(&gpu, 0.01, 5e-4);
    }
    assert_int_equal(pst_gnn_model_fetch(&gpu), PST_OK);
    const double weights = apart(gpu.weight, cpu.weight, cpu.size),
                 running = apart(gpu.running, cpu.running, cpu.running_size);
    if (!(weights <= 1e-4 && running <= 1e-5))
        fail_msg("weights differ by %g, running figures by %g", weights, running);
    random_batch_release(&b);
    pst_gnn_model_release(&cpu);
    pst_gnn_model_release(&gpu);
    pst_device_close(&device);
}

static void compare_kind(enum pst_gnn_model_kind model)
{
    const struct pst_gnn_config plain = {
        .model = model, .layers = 2, .hidden = 8, .aggregate = true, .dropout = 0.5};
    struct pst_gnn_config deep = {.model = model,
                                  .layers = 3,
                                  .hidden = 16,
                                  .aggregate = true,
                                  .residual = true},
                          bare = plain;
    compare_models(plain, PST_F32);
    compare_models(plain, PST_BF16);
    for (deep.norm = PST_GNN_NORM_NONE; deep.norm <= PST_GNN_NORM_BATCH; deep.norm++) {
        deep.input_dropout = deep.norm == PST_GNN_NORM_LAYER ? 0.25 : 0;
        compare_models(deep, PST_F32);
    }
    bare.multilabel = true;
    compare_models(bare, PST_F32);
    bare.multilabel = false;
    bare.hidden = 20; /* wider than its input: the product comes after the sum */
    compare_models(bare, PST_F32);
    bare.aggregate = false;
    if (model == PST_GNN_GRAPHSAGE)
        compare_models(bare, PST_F32);
}

static void test_models(void **state)
{
    (void)state;
    for (int model = 0; model < PST_GNN_MODEL_KINDS; model++)
        compare_kind((enum pst_gnn_model_kind)model);
}

/* ---- the stage ----------------------------------------------------------------------------------- */

static void begin_on(struct pst_stage *host, const char *device, const char *run, const char *resume)
{
    host_init(host, run);
    host->device = device;
    host->resume = resume;
    host->set[0][0] = "dropout";
    host->set[0][1] = "0.25";
    host->set[1][0] = "hidden"; /* fibers are slow */
    host->set[1][1] = "12";
    if (host_open(host) != PST_OK)
        fail_msg("%s", pst_error_text());
    assert_int_equal(tell(host, PST_EV_START), PST_OK);
}

static void train_batches(struct pst_stage *host, uint64_t from, uint64_t to, bool halves)
{
    for (uint64_t batch = from; batch < to; batch++) {
        if (halves) {
            send_half(host, batch, 0);
            send_half(host, batch, 1);
        } else {
            assert_int_equal(send_batch(host, batch), PST_OK);
        }
    }
}

static void same_weights(struct pst_stage *a, struct pst_stage *b)
{
    struct pst_gnn_model *x = &a->state->model, *y = &b->state->model;
    assert_int_equal(pst_gnn_model_fetch(x), PST_OK);
    assert_int_equal(pst_gnn_model_fetch(y), PST_OK);
    assert_int_equal(x->steps, y->steps);
    assert_true(x->steps > 0);
    const double weights = apart(x->weight, y->weight, x->size), moments = apart(x->m, y->m, x->size);
    if (!(weights <= 1e-4 && moments <= 1e-4))
        fail_msg("weights differ by %g, moments by %g", weights, moments);
}

/* Each batch's loss, what the epochs report, and the weights after them. */
static void test_epochs_agree(void **state)
{
    (void)state;
    struct pst_stage cpu, gpu;
    begin_on(&cpu, "cpu:0", in_scratch("cpu"), NULL);
    begin_on(&gpu, "cuda:0", in_scratch("gpu"), NULL);
    for (uint64_t batch = 0; batch < 2 * BATCHES; batch++) {
        const double before[2] = {cpu.state->now.loss, gpu.state->now.loss};
        train_batches(&cpu, batch, batch + 1, false);
        train_batches(&gpu, batch, batch + 1, false);
        be_idle(&gpu);
        if (batch % BATCHES == BATCHES - 1)
            continue; /* the epoch's end has set them to zero */
        const double want = cpu.state->now.loss - before[0], got = gpu.state->now.loss - before[1];
        if (fabs(got - want) > 1e-5 * want)
            fail_msg("batch %llu: the loss is %.9g, the CPU's %.9g", (unsigned long long)batch, got, want);
    }
    same_weights(&gpu, &cpu);
    assert_int_equal(gpu.state->now.digest, cpu.state->now.digest);
    if (gpu_is_virtual())
        assert_int_equal(virtual_gpu_priority(gpu.stream), 0); /* others go before it */
    assert_true(fabs(gpu.state->now.best_val - cpu.state->now.best_val) < 0.02);
    assert_int_equal(tell(&gpu, PST_EV_END), PST_OK);
    assert_non_null(strstr(gpu.reports, "\"weights_digest\""));
    host_end(&cpu);
    host_end(&gpu);
}

static void test_halves_agree(void **state)
{
    (void)state;
    struct pst_stage cpu, gpu;
    begin_on(&cpu, "cpu:0", in_scratch("cpu"), NULL);
    begin_on(&gpu, "cuda:0", in_scratch("gpu"), NULL);
    train_batches(&cpu, 0, BATCHES, true);
    train_batches(&gpu, 0, BATCHES, true);
    same_weights(&gpu, &cpu);
    host_end(&cpu);
    host_end(&gpu);
}

/* What one device has begun the other goes on with, as if it had been there from the start. */
static void exchange(const char *first, const char *second)
{
    struct pst_stage straight, begun, resumed;
    char path[512];
    begin_on(&straight, "cpu:0", in_scratch("straight"), NULL);
    train_batches(&straight, 0, 2 * BATCHES, false);
    begin_on(&begun, first, in_scratch("begun"), NULL);
    train_batches(&begun, 0, 4, false);
    send_half(&begun, 4, 0); /* is left out */
    assert_int_equal(tell(&begun, PST_EV_FINISH), PST_OK);
    assert_int_equal(pst_checkpoint_latest(in_scratch("begun/checkpoints"), path, sizeof path, NULL, 0),
                     PST_OK);
    begin_on(&resumed, second, in_scratch("resumed"), path);
    train_batches(&resumed, 4, 2 * BATCHES, false);
    same_weights(&resumed, &straight);
    assert_int_equal(resumed.state->now.digest, straight.state->now.digest);
    host_end(&straight);
    host_end(&begun);
    host_end(&resumed);
}

static void test_checkpoints(void **state)
{
    (void)state;
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    int count = 0;
    assert_int_equal(pst_gpus_open(&gpus), PST_OK);
    assert_int_equal(gpus->count(&count, why), PST_OK);
    exchange("cpu:0", count > 1 ? "cuda:1" : "cuda:0");
    exchange("cuda:0", "cpu:0");
}

/* What a batch costs: the table in kernels/cuda/README.md. */
static void test_counts(void **state)
{
    (void)state;
    struct pst_stage gpu;
    uint64_t spent[PST_HOST_COUNTS];
    if (!gpu_is_virtual())
        skip();
    begin_on(&gpu, "cuda:0", in_scratch("counts"), NULL);
    for (uint64_t batch = 0; batch < 2; batch++) { /* the first also has what opening put on the queue */
        gpu_own_waits = 0;
        train_batches(&gpu, batch, batch + 1, false);
        be_idle(&gpu);
        assert_true(gpu_stream_done(gpu.device, gpu.stream));
        assert_true(host_counts(spent));
    }
    assert_int_equal(spent[PST_HOST_LAUNCHES], 18);
    assert_int_equal(spent[PST_HOST_LIBRARY], 11);
    assert_int_equal(spent[PST_HOST_COPIES], 6);
    assert_in_range(spent[PST_HOST_CALLS], 1, 45);
    assert_int_equal(spent[PST_HOST_PAGEABLE], 0);
    assert_int_equal(spent[PST_HOST_QUESTIONS], 0);
    assert_int_equal(spent[PST_HOST_BUS], 167);
    assert_int_equal(spent[PST_HOST_WAITS] - (uint64_t)gpu_own_waits, 1);
    host_end(&gpu);
}

/* ---- the figures of a batch, when the next one is on the queue ----------------------------------------- */

static struct {
    struct pst_stage *host;
    const struct pst_twin *twin;
    uint64_t waits, open, batch, launches; /* the last three: at the first wait */
} seen;

/* What is on the queue when the host begins to wait. */
static pst_rc see_wait(struct pst_queue *q, const struct pst_twin_record *record, uint64_t sequence,
                       char *why)
{
    const struct pst_gnn_open *open = &seen.host->state->model.open;
    uint64_t spent[PST_HOST_COUNTS];
    if (seen.waits++ > 0)
        return seen.twin->recorded(q, record, sequence, why);
    seen.open = open->put - sequence + 1; /* with the one that it waits for */
    seen.batch = seen.host->state->open[(sequence - 1) % PST_GNN_OPEN_MAX].batch;
    seen.launches = host_counts(spent) ? spent[PST_HOST_LAUNCHES] : 0;
    return seen.twin->recorded(q, record, sequence, why);
}

static void watch(struct pst_stage *gpu, struct pst_twin *watched)
{
    struct pst_device *device = &gpu->state->device;
    *watched = *device->twin;
    watched->recorded = see_wait;
    seen.host = gpu;
    seen.twin = device->twin;
    seen.waits = 0;
    device->twin = watched;
}

/* While the host waits for a batch, the next one's step and update are on the queue, and they are not
 * awaited.
 */
static void test_next_is_queued(void **state)
{
    (void)state;
    struct pst_stage gpu;
    struct pst_twin watched;
    uint64_t spent[PST_HOST_COUNTS];
    if (!gpu_is_virtual())
        skip();
    begin_on(&gpu, "cuda:0", in_scratch("queued"), NULL);
    train_batches(&gpu, 0, 4, false);
    struct trainer *t = gpu.state;
    const struct pst_gnn_open *open = &t->model.open;
    assert_int_equal(open->put - open->taken, 1);
    assert_true(t->now.loss == 0 && t->now.seeds == SEEDS);
    watch(&gpu, &watched);
    (void)host_counts(spent);
    train_batches(&gpu, 4, 5, false);
    assert_int_equal(seen.waits, 1); /* a batch */
    assert_int_equal(seen.batch, 3);
    assert_int_equal(seen.open, 2);
    assert_int_equal(seen.launches, 18); /* test_counts: all of a batch */
    assert_int_equal(open->put - open->taken, 1);
    assert_true(open->record[open->taken % PST_GNN_OPEN_MAX].sequence != open->put);
    const double one = t->now.loss;
    assert_true(one > 0 && t->done.loss == one);
    be_idle(&gpu);
    assert_int_equal(seen.waits, 2);
    assert_int_equal(open->put, open->taken);
    assert_true(t->now.loss > one && t->done.loss == t->now.loss);
    t->device.twin = seen.twin;
    host_end(&gpu);
}

/* Memory that grows is freed first, so nothing is open then. */
static void test_growth_settles(void **state)
{
    (void)state;
    struct pst_stage gpu;
    struct pst_twin watched;
    if (!gpu_is_virtual())
        skip();
    begin_on(&gpu, "cuda:0", in_scratch("growth"), NULL);
    train_batches(&gpu, 0, 2, true);
    const size_t before = gpu.state->model.work_bytes;
    watch(&gpu, &watched);
    train_batches(&gpu, 2, 3, false);
    assert_true(gpu.state->model.work_bytes > before);
    assert_int_equal(seen.waits, 2);
    assert_int_equal(seen.batch, 1);
    assert_int_equal(seen.open, 1);
    gpu.state->device.twin = seen.twin;
    host_end(&gpu);
}

static void send_spoiled(struct pst_stage *gpu, uint64_t batch)
{
    struct pst_minibatch *mb = fill(gpu->slot, batch, 0, SEEDS, true);
    ((float *)pst_minibatch_at(mb, mb->features_at))[3] = NAN;
    assert_int_equal(send_frame(gpu, batch, 0, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
}

/* The loss of batch 1 is not a number, which is seen later. */
static void test_error_names_its_batch(void **state)
{
    (void)state;
    static const char want[] = "batch 1, micro-batch 0: epoch 0 (its batch 1): the loss is ";
    struct pst_stage gpu;
    char path[512];
    for (int way = 0; way < 4; way++) {
        pst_rc rc;
        begin_on(&gpu, "cuda:0", in_scratch(way == 1 ? "stopped" : "spoiled"), NULL);
        train_batches(&gpu, 0, 1, false);
        send_spoiled(&gpu, 1);
        if (way == 0) { /* by the next batch */
            rc = send_batch(&gpu, 2);
        } else if (way == 1) { /* by a stop */
            rc = tell(&gpu, PST_EV_FINISH);
        } else if (way == 2) { /* by the next batch, which has an error of its own */
            fill(gpu.slot, 2, 0, SEEDS, true)->feature_dim++;
            rc = send_frame(&gpu, 2, 0, PST_LAST_PART | PST_LAST_MICRO, 1);
        } else {
            (void)tell(&gpu, PST_EV_TIMER);
            rc = tell(&gpu, PST_EV_TIMER);
        }
        assert_int_equal(rc, PST_E_ARG);
        if (strncmp(pst_error_text(), want, strlen(want)) != 0)
            fail_msg("%d: expected \"%s\" in front of: %s", way, want, pst_error_text());
        host_end(&gpu);
    }
    assert_int_equal(pst_checkpoint_latest(in_scratch("stopped/checkpoints"), path, sizeof path, NULL, 0),
                     PST_E_STATE);
}

/* The first row of the report's epochs. */
static void first_epoch(struct pst_stage *host, char out[HOST_TEXT_MAX])
{
    strip_times(host->reports);
    const char *at = strstr(host->reports, "epochs ");
    assert_non_null(at);
    (void)snprintf(out, HOST_TEXT_MAX, "%.*s", (int)strcspn(at, "\n"), at);
    assert_non_null(strstr(out, "\"loss\":"));
}

/* The checkpoint of a stop has the figures that were open. */
static void test_stop_within_epoch(void **state)
{
    (void)state;
    struct pst_stage straight, begun, resumed;
    char path[512], want[HOST_TEXT_MAX], got[HOST_TEXT_MAX];
    begin_on(&straight, "cuda:0", in_scratch("whole"), NULL);
    train_batches(&straight, 0, BATCHES, false);
    begin_on(&begun, "cuda:0", in_scratch("half"), NULL);
    train_batches(&begun, 0, 2, false);
    assert_true(begun.state->model.open.put != begun.state->model.open.taken);
    assert_int_equal(tell(&begun, PST_EV_FINISH), PST_OK);
    assert_int_equal(pst_checkpoint_latest(in_scratch("half/checkpoints"), path, sizeof path, NULL, 0),
                     PST_OK);
    begin_on(&resumed, "cuda:0", in_scratch("rest"), path);
    train_batches(&resumed, 2, BATCHES, false);
    first_epoch(&straight, want);
    first_epoch(&resumed, got);
    assert_string_equal(got, want);
    host_end(&straight);
    host_end(&begun);
    host_end(&resumed);
}

/* Batches of several micro-batches, and an unfinished one: what it adds is not in the checkpoint. */
static void test_open_micro_batches(void **state)
{
    (void)state;
    struct pst_stage cpu, gpu;
    begin_on(&cpu, "cpu:0", in_scratch("cpu"), NULL);
    begin_on(&gpu, "cuda:0", in_scratch("gpu"), NULL);
    for (int i = 0; i < 2; i++) {
        struct pst_stage *host = i ? &gpu : &cpu;
        train_batches(host, 0, 2, true);
        send_half(host, 2, 0);
        assert_int_equal(tell(host, PST_EV_FINISH), PST_OK);
    }
    const struct pst_gnn_training *want = &cpu.state->done, *got = &gpu.state->done;
    assert_true(fabs(got->loss - want->loss) <= 1e-5 * want->loss);
    assert_int_equal(got->counted, want->counted);
    assert_int_equal(got->seeds, want->seeds);
    assert_int_equal(got->digest, want->digest);
    assert_true(gpu.state->now.loss > got->loss);
    host_end(&cpu);
    host_end(&gpu);
}

/* CUDA may wait for the stream before it copies much from pageable memory. */
static void test_degrees_are_pinned(void **state)
{
    (void)state;
    struct pst_stage gpu;
    host_init(&gpu, in_scratch("pinned"));
    gpu.device = "cuda:0";
    gpu.set[0][0] = "model";
    gpu.set[0][1] = "\"gcn\"";
    assert_int_equal(host_open(&gpu), PST_OK);
    const uint64_t bytes = (uint64_t)gpu.state->config.rows_max * sizeof(int64_t);
    assert_in_range(gpu.state->device.pinned_bytes, bytes, bytes + PST_PAGE);
    host_end(&gpu);
}

static void expect_no_start(const char *device, const char *why)
{
    struct pst_stage host;
    host_init(&host, in_scratch("refused"));
    host.device = device;
    assert_int_not_equal(host_open(&host), PST_OK);
    if (!strstr(pst_error_text(), why))
        fail_msg("expected \"%s\" in: %s", why, pst_error_text());
    host_end(&host);
}

static void test_refusals(void **state)
{
    (void)state;
    if (!gpu_is_virtual())
        skip();
    setenv("PENSTOCK_HOST_GPU_BYTES", "37000000", 1);
    expect_no_start("cuda:0", "bytes of device memory; 37000000 of its 37000000 bytes are free");
    unsetenv("PENSTOCK_HOST_GPU_BYTES");
    expect_no_start("cuda:7", "cannot use cuda:7");
    expect_no_start("cuda:x", "expected cpu:N or cuda:N");
    assert_int_equal(virtual_gpu_left(), 0); /* all that was taken was given back */
}

/* Memory is for the batches that come, not for the largest that a slot could hold. */
static void test_memory_grows(void **state)
{
    (void)state;
    enum { SLOT = 64 << 20 };
    struct pst_stage gpu;
    if (!gpu_is_virtual())
        skip();
    setenv("PENSTOCK_HOST_GPU_BYTES", "110000000", 1); /* the slot, the workspace of products, and 9 MB */
    host_init(&gpu, in_scratch("memory"));
    gpu.device = "cuda:0";
    gpu.need = SLOT;
    assert_int_equal(host_open(&gpu), PST_OK);
    assert_int_equal(tell(&gpu, PST_EV_START), PST_OK);
    const struct pst_gnn_model *model = &gpu.state->model;
    send_half(&gpu, 0, 0);
    const size_t half = model->work_bytes;
    const int64_t half_most = model->most;
    send_half(&gpu, 0, 1);
    assert_int_equal(send_batch(&gpu, 1), PST_OK);
    assert_true(half > 0 && half < model->work_bytes && 0 < half_most && half_most < model->most);
    assert_true(model->work_bytes < model->work_limit / 50);
    unsetenv("PENSTOCK_HOST_GPU_BYTES");
    host_end(&gpu);
    host_init(&gpu, in_scratch("no-memory"));
    gpu.device = "cuda:0";
    assert_int_equal(host_open(&gpu), PST_OK);
    assert_int_equal(tell(&gpu, PST_EV_START), PST_OK);
    setenv("PENSTOCK_HOST_GPU_BYTES", "1000", 1);
    assert_int_equal(send_batch(&gpu, 0), PST_E_NOMEM);
    unsetenv("PENSTOCK_HOST_GPU_BYTES");
    if (!strstr(pst_error_text(), "the activations of a batch"))
        fail_msg("%s", pst_error_text());
    host_end(&gpu);
}

static int setup_all(void **state)
{
    gpu_setup();
    return setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_epochs_agree),
        cmocka_unit_test(test_halves_agree),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_next_is_queued),
        cmocka_unit_test(test_growth_settles),
        cmocka_unit_test(test_error_names_its_batch),
        cmocka_unit_test(test_stop_within_epoch),
        cmocka_unit_test(test_open_micro_batches),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_degrees_are_pinned),
        cmocka_unit_test(test_memory_grows),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup_all, teardown);
}
