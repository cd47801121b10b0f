/* Models of relations on a GPU against the CPU. The GPU is the host build (kernels/cuda/host) unless
 * PENSTOCK_TWIN=cuda asks for the real one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/gradient/typed_batch.h"
#include "tests/stage/virtual_gpu.h"

enum { STEPS = 2 };

static const void *sent(struct pst_device *device, const void *from, size_t bytes)
{
    void *to;
    assert_int_equal(pst_device_take(device, PST_TWIN_MEMORY_DEVICE, bytes, "a test", &to), PST_OK);
    assert_int_equal(device->twin->copy(device->q, to, from, bytes), PST_OK);
    assert_int_equal(pst_device_wait(device), PST_OK);
    return to;
}

/* A few steps of both: the same losses and weights. */
static void compare(const struct pst_gnn_config *config, bool weights)
{
    struct pst_gnn_config c = *config;
    struct pst_device device;
    static struct pst_gnn_model cpu, gpu;
    static struct typed_batch b;
    static struct pst_gnn_typed_batch on_gpu;
    const struct pst_queue_options options = {.most = 1 << 15, .columns = 64, .products = true};
    assert_int_equal(pst_device_open(&device, "cuda:0"), PST_OK);
    assert_int_equal(pst_device_queue(&device, options), PST_OK);
    assert_int_equal(pst_gnn_model_init(&cpu, &c), PST_OK);
    c.device = &device;
    assert_int_equal(pst_gnn_model_init(&gpu, &c), PST_OK);
    typed_batch_init_with(&b, c.layers, NULL, weights);
    pst_gnn_typed_batch_init(&on_gpu, &device);
    struct pst_gnn_batch view = b.view;
    const size_t rows = (size_t)view.mb.n[view.mb.hops];
    view.vertices = sent(&device, view.vertices, rows * sizeof *view.vertices);
    view.labels = sent(&device, view.labels, TYPED_SEEDS * sizeof *view.labels);
    view.features = sent(&device, view.features, rows * view.mb.stride_bytes);
    view.typed = &on_gpu;
    for (int step = 0; step < STEPS; step++) {
        struct pst_gnn_figures want = {0}, got = {0};
        assert_int_equal(typed_batch_fill(&b, &cpu), PST_OK);
        assert_int_equal(pst_gnn_typed_batch_fill(&on_gpu, &typed_types, &gpu.terms, &b.view.mb, b.slot),
                         PST_OK);
        assert_int_equal(pst_gnn_model_step(&cpu, &b.view, &want, NULL), PST_OK);
        assert_int_equal(pst_gnn_model_step(&gpu, &view, &got, NULL), PST_OK);
        assert_int_equal(got.counted, want.counted);
        if (!(fabs(got.loss - want.loss) <= 1e-5 * fabs(want.loss)))
            fail_msg("step %d: the loss is %.9g, the CPU's %.9g", step, got.loss, want.loss);
        pst_gnn_model_update(&cpu, 0.01, 5e-4);
        pst_gnn_model_update(&gpu, 0.01, 5e-4);
    }
    assert_int_equal(pst_gnn_model_fetch(&gpu), PST_OK);
    double off = 0, norm = 0;
    for (int64_t i = 0; i < cpu.size; i++) {
        off += pow((double)cpu.weight[i] - (double)gpu.weight[i], 2);
        norm += pow((double)cpu.weight[i], 2);
    }
    if (!(sqrt(off / norm) <= 1e-4))
        fail_msg("weights differ by %g", sqrt(off / norm));
    pst_gnn_typed_batch_release(&on_gpu);
    typed_batch_release(&b);
    pst_gnn_model_release(&cpu);
    pst_gnn_model_release(&gpu);
    pst_device_close(&device);
}

static void test_models(void **state)
{
    (void)state;
    for (int model = PST_GNN_RGCN; model <= PST_GNN_RGAT; model++) {
        for (int variant = 0; variant < 3; variant++) {
            const struct pst_gnn_config config = {.model = (enum pst_gnn_model_kind)model,
                                                  .layers = variant > 0 ? 3 : 2,
                                                  .in = TYPED_WIDE,
                                                  .hidden = 12,
                                                  .heads = 3,
                                                  .bases = model == PST_GNN_RGCN && variant > 0 ? 3 : 0,
                                                  .classes = TYPED_CLASSES,
                                                  .norm = (enum pst_gnn_norm)variant,
                                                  .aggregate = true,
                                                  .residual = variant > 0,
                                                  .dropout = 0.3,
                                                  .input_dropout = variant == 1 ? 0.2 : 0,
                                                  .seed = 5,
                                                  .threads = 2,
                                                  .rows_max = 200,
                                                  .edges_max = 4000,
                                                  .types = &typed_types};
            compare(&config, false);
            if (variant == 1 && model != PST_GNN_RGAT) /* which ignores weights */
                compare(&config, true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    gpu_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
