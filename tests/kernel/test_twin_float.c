/* The twins of the trainer's kernels, but for those of test_twin_linear.c: relative error, norm-wise, of at
 * most 1e-5; 2e-3 in TensorFloat-32, 1.6e-2 in bfloat16. */
#include "tests/kernel/twin_matrix.h"

static const double LIMIT_TF32 = 2e-3, LIMIT_BF16 = 1.6e-2;

/* ---- products ------------------------------------------------------------------------------------ */

static void check_gemm(double limit)
{
    FOR_SHAPES
    {
        const bool ta = rnd(2), tb = rnd(2);
        const int64_t m = size_below(70), n = size_below(70), k = size_below(90);
        struct matrix a = ta ? matrix_new(k, m) : matrix_new(m, k),
                      b = tb ? matrix_new(n, k) : matrix_new(k, n);
        struct matrix c = matrix_new(m, n);
        const float alpha = rnd(2) ? 1 : 0.5f, beta = rnd(2) ? 0 : rnd(2) ? 1 : -0.25f;
        for (int64_t i = 0; beta == 0 && i < m * n; i++)
            host(&c)[i / n * c.ld + i % n] = NAN; /* what was there does not matter */
        send(&c.all);
        cpu->gemm(NULL, ta, tb, m, n, k, alpha, host(&a), a.ld, host(&b), b.ld, beta, host(&c), c.ld, 1);
        cuda->gemm(queue, ta, tb, m, n, k, alpha, device(&a), a.ld, device(&b), b.ld, beta, device(&c), c.ld,
                   1);
        close_floats(&c.all, limit, "product");
        matrix_free(&a);
        matrix_free(&b);
        matrix_free(&c);
    }
}

static void test_gemm(void **state)
{
    (void)state;
    check_gemm(LIMIT);
}

static void check_rounded(enum pst_twin_precision precision, double limit)
{
    struct pst_queue *exact = queue;
    const struct pst_queue_options options = {
        .most = 1, .columns = 128, .products = true, .precision = precision};
    assert_int_equal(cuda->queue_new(&options, &queue, why), PST_OK);
    check_gemm(limit);
    cuda->queue_free(queue);
    queue = exact;
}

static void test_gemm_tf32(void **state)
{
    (void)state;
    check_rounded(PST_TWIN_TF32, LIMIT_TF32);
}

static void test_gemm_bf16(void **state)
{
    (void)state;
    check_rounded(PST_TWIN_BF16, LIMIT_BF16);
}

/* A queue that makes none has no workspace for them, and says so. */
static void test_no_products(void **state)
{
    (void)state;
    enum { WORKSPACE = 32 << 20 };
    const struct pst_queue_options options = {.most = 1, .columns = 1};
    struct both x = floats_new(1);
    struct pst_queue *plain;
    uint64_t before, after, all;
    assert_int_equal(cuda->room(0, &before, &all, why), PST_OK);
    assert_int_equal(cuda->queue_new(&options, &plain, why), PST_OK);
    assert_int_equal(cuda->room(0, &after, &all, why), PST_OK);
    if (strcmp(cuda->name, "cuda on the host") == 0) /* a real one has other users */
        assert_true(after > before - WORKSPACE);
    cuda->gemm(plain, false, false, 1, 1, 1, 1, x.device, 1, x.device, 1, 0, x.device, 1, 1);
    assert_int_equal(cuda->wait(plain, why), PST_E_LIMIT);
    assert_non_null(strstr(why, "too little workspace for a matrix product (create the queue with"));
    cuda->queue_free(plain);
    both_free(&x);
}

/* ---- rows ---------------------------------------------------------------------------------------- */

static void test_add(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(200), dim = size_below(300);
        struct matrix x = matrix_new(n, dim), y = matrix_new(n, dim);
        cpu->add(NULL, host(&x), x.ld, host(&y), y.ld, n, dim);
        cuda->add(queue, device(&x), x.ld, device(&y), y.ld, n, dim);
        close_floats(&x.all, LIMIT, "sums");
        matrix_free(&x);
        matrix_free(&y);
    }
}

static void test_affine(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(200), dim = size_below(300);
        struct matrix x = matrix_new(n, dim);
        struct both scale = floats_new(dim), offset = floats_new(dim);
        cpu->affine(NULL, host(&x), x.ld, n, dim, scale.host, offset.host);
        cuda->affine(queue, device(&x), x.ld, n, dim, scale.device, offset.device);
        close_floats(&x.all, LIMIT, "scaled rows");
        matrix_free(&x);
        both_free(&scale);
        both_free(&offset);
    }
}

/* 16-bit patterns of all kinds but NaNs: infinities, subnormals, zeros of both signs. */
static void test_widen(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(200), dim = 1 + size_below(300), stride = 2 * (dim + (int64_t)rnd(9));
        const bool bfloat = rnd(2);
        struct both src = both_new((size_t)(n * stride));
        for (size_t i = 0; i < src.bytes / 2; i++) {
            uint16_t bits = (uint16_t)rnd(65536);
            if ((bits & (bfloat ? 0x7F80 : 0x7C00)) == (bfloat ? 0x7F80 : 0x7C00))
                bits &= bfloat ? 0xFF80 : 0xFC00;
            ((uint16_t *)src.host)[i] = bits;
        }
        send(&src);
        struct matrix out = matrix_new(n, dim);
        cpu->widen(NULL, src.host, (uint64_t)stride, bfloat, host(&out), out.ld, n, dim);
        cuda->widen(queue, src.device, (uint64_t)stride, bfloat, device(&out), out.ld, n, dim);
        same_bytes(&out.all, out.all.bytes, "widened rows");
        both_free(&src);
        matrix_free(&out);
    }
}

static struct both vertices_new(int64_t n)
{
    struct both b = both_new((size_t)n * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)b.host)[i] = (int64_t)rnd((uint64_t)1 << 40);
    send(&b);
    return b;
}

static struct pst_dropout random_dropout(void)
{
    const struct pst_dropout drop = {rnd(UINT64_MAX), (uint32_t)rnd(50), (uint32_t)rnd(4), rnd(1u << 20),
                                     rnd(3) ? (float)rnd(1000) / 1001.0f : 0};
    return drop;
}

static void test_bias_relu_dropout(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(150), dim = size_below(400);
        struct matrix x = matrix_new(n, dim);
        struct both bias = floats_new(dim), vertices = vertices_new(n);
        const struct pst_dropout drop = random_dropout();
        const bool relu = rnd(2), biased = rnd(2);
        cpu->bias_relu_dropout(NULL, host(&x), x.ld, biased ? bias.host : NULL, vertices.host, n, dim, relu,
                               &drop);
        cuda->bias_relu_dropout(queue, device(&x), x.ld, biased ? bias.device : NULL, vertices.device, n, dim,
                                relu, &drop);
        close_floats(&x.all, LIMIT, "activations");
        matrix_free(&x);
        both_free(&bias);
        both_free(&vertices);
    }
}

static void test_bias_relu_dropout_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(rnd(8) ? 150 : 5000), dim = size_below(n > 500 ? 40 : 400);
        struct matrix grad = matrix_new(n, dim), y = matrix_new(n, dim);
        struct both sums = floats_new(dim), vertices = vertices_new(n);
        const struct pst_dropout drop = random_dropout();
        const bool relu = rnd(2), wanted = rnd(3);
        for (int64_t i = 0; i < n * y.ld; i += 3)
            host(&y)[i] = 0; /* what was dropped or clipped */
        send(&y.all);
        cpu->bias_relu_dropout_grad(NULL, host(&grad), grad.ld, host(&y), y.ld, vertices.host, n, dim, relu,
                                    &drop, wanted ? sums.host : NULL);
        cuda->bias_relu_dropout_grad(queue, device(&grad), grad.ld, device(&y), y.ld, vertices.device, n, dim,
                                     relu, &drop, wanted ? sums.device : NULL);
        close_floats(&grad.all, LIMIT, "gradient of activations");
        close_floats(&sums, LIMIT, "gradient of the bias");
        matrix_free(&grad);
        matrix_free(&y);
        both_free(&sums);
        both_free(&vertices);
    }
}

/* ---- normalisation ------------------------------------------------------------------------------- */

struct norm {
    struct matrix x;
    struct both gain, shift, xhat, rstd, mean, var;
};

static struct norm norm_new(int64_t n, int64_t dim, int64_t scales)
{
    struct norm f = {.x = matrix_new(n, dim),
                     .gain = floats_new(dim),
                     .shift = floats_new(dim),
                     .xhat = floats_new(n * dim),
                     .rstd = floats_new(scales),
                     .mean = floats_new(dim),
                     .var = floats_new(dim)};
    return f;
}

static void norm_free(struct norm *f)
{
    matrix_free(&f->x);
    struct both *all[] = {&f->gain, &f->shift, &f->xhat, &f->rstd, &f->mean, &f->var};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        both_free(all[i]);
}

static void test_layer_norm(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(150), dim = 2 + size_below(300); /* one column is all noise */
        struct norm f = norm_new(n, dim, n);
        const bool kept = rnd(2);
        cpu->layer_norm(NULL, host(&f.x), f.x.ld, n, dim, f.gain.host, f.shift.host,
                        kept ? f.xhat.host : NULL, kept ? f.rstd.host : NULL);
        cuda->layer_norm(queue, device(&f.x), f.x.ld, n, dim, f.gain.device, f.shift.device,
                         kept ? f.xhat.device : NULL, kept ? f.rstd.device : NULL);
        close_floats(&f.x.all, LIMIT, "layer norm");
        close_floats(&f.xhat, LIMIT, "its xhat");
        close_floats(&f.rstd, LIMIT, "its rstd");
        norm_free(&f);
    }
}

static void test_layer_norm_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(150), dim = 2 + size_below(300);
        struct norm f = norm_new(n, dim, n);
        cpu->layer_norm_grad(NULL, host(&f.x), f.x.ld, n, dim, f.gain.host, f.xhat.host, f.rstd.host,
                             f.mean.host, f.var.host);
        cuda->layer_norm_grad(queue, device(&f.x), f.x.ld, n, dim, f.gain.device, f.xhat.device,
                              f.rstd.device, f.mean.device, f.var.device);
        close_floats(&f.x.all, LIMIT, "gradient of layer norm");
        close_floats(&f.mean, LIMIT, "gradient of its gain");
        close_floats(&f.var, LIMIT, "gradient of its shift");
        norm_free(&f);
    }
}

static void test_batch_norm(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(rnd(8) ? 150 : 6000), dim = 1 + size_below(n > 500 ? 30 : 300);
        struct norm f = norm_new(n, dim, dim);
        cpu->batch_norm(NULL, host(&f.x), f.x.ld, n, dim, f.gain.host, f.shift.host, f.xhat.host, f.rstd.host,
                        f.mean.host, f.var.host, 0.1f);
        cuda->batch_norm(queue, device(&f.x), f.x.ld, n, dim, f.gain.device, f.shift.device, f.xhat.device,
                         f.rstd.device, f.mean.device, f.var.device, 0.1f);
        close_floats(&f.x.all, LIMIT, "batch norm");
        close_floats(&f.xhat, LIMIT, "its xhat");
        close_floats(&f.rstd, LIMIT, "its rstd");
        close_floats(&f.mean, LIMIT, "its running mean");
        close_floats(&f.var, LIMIT, "its running variance");
        norm_free(&f);
    }
}

static void test_batch_norm_grad(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(rnd(8) ? 150 : 6000), dim = 1 + size_below(n > 500 ? 30 : 300);
        struct norm f = norm_new(n, dim, dim);
        cpu->batch_norm_grad(NULL, host(&f.x), f.x.ld, n, dim, f.gain.host, f.xhat.host, f.rstd.host,
                             f.mean.host, f.var.host);
        cuda->batch_norm_grad(queue, device(&f.x), f.x.ld, n, dim, f.gain.device, f.xhat.device,
                              f.rstd.device, f.mean.device, f.var.device);
        close_floats(&f.x.all, LIMIT, "gradient of batch norm");
        close_floats(&f.mean, LIMIT, "gradient of its gain");
        close_floats(&f.var, LIMIT, "gradient of its shift");
        norm_free(&f);
    }
}

/* ---- loss and optimizer -------------------------------------------------------------------------- */

struct sums {
    double loss;
    int64_t correct, counted;
};

static void test_softmax_xent(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(400), classes = 1 + size_below(rnd(4) ? 60 : 700);
        struct matrix logits = matrix_new(n, classes), grad = matrix_new(n, classes);
        struct both labels = both_new((size_t)n * sizeof(int32_t)), sums = both_new(sizeof(struct sums));
        for (int64_t i = 0; i < n * logits.ld; i++)
            host(&logits)[i] = (float)(rnd(3) ? rnd(7) : rnd(100)) * 0.25f; /* with ties */
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)labels.host)[i] = (int32_t)rnd((uint64_t)classes + 1) - 1;
        send(&logits.all);
        send(&labels);
        const bool wanted = rnd(4);
        struct sums *h = sums.host, *d = sums.device;
        cpu->softmax_xent(NULL, host(&logits), logits.ld, labels.host, n, classes, (double)n + 1,
                          wanted ? host(&grad) : NULL, grad.ld, &h->loss, &h->correct, &h->counted);
        cuda->softmax_xent(queue, device(&logits), logits.ld, labels.device, n, classes, (double)n + 1,
                           wanted ? device(&grad) : NULL, grad.ld, &d->loss, &d->correct, &d->counted);
        close_floats(&grad.all, LIMIT, "gradient of the loss");
        struct sums *got = fetched(&sums);
        assert_int_equal(got->correct, h->correct);
        assert_int_equal(got->counted, h->counted);
        assert_true(fabs(got->loss - h->loss) <= LIMIT * fabs(h->loss));
        free(got);
        matrix_free(&logits);
        matrix_free(&grad);
        both_free(&labels);
        both_free(&sums);
    }
}

static void test_softmax_xent_weighted(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(400), classes = 1 + size_below(rnd(4) ? 60 : 700);
        struct matrix logits = matrix_new(n, classes), grad = matrix_new(n, classes);
        struct both labels = both_new((size_t)n * sizeof(int32_t)), sums = both_new(sizeof(struct sums));
        struct both weight = floats_new(classes);
        struct pst_xent how = {.weight = weight.host, .smoothing = rnd(3) ? 0.1 : 0};
        for (int64_t i = 0; i < n * logits.ld; i++)
            host(&logits)[i] = (float)rnd(100) * 0.1f;
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)labels.host)[i] = (int32_t)rnd((uint64_t)classes + 1) - 1;
        for (int64_t c = 0; c < classes; c++) {
            ((float *)weight.host)[c] = (float)rnd(16) * 0.25f;
            how.total += (double)((float *)weight.host)[c];
        }
        send(&logits.all);
        send(&labels);
        send(&weight);
        const bool wanted = rnd(4);
        struct sums *h = sums.host, *d = sums.device;
        cpu->softmax_xent_weighted(NULL, &how, host(&logits), logits.ld, labels.host, n, classes,
                                   (double)n + 1, wanted ? host(&grad) : NULL, grad.ld, &h->loss, &h->correct,
                                   &h->counted);
        how.weight = weight.device;
        cuda->softmax_xent_weighted(queue, &how, device(&logits), logits.ld, labels.device, n, classes,
                                    (double)n + 1, wanted ? device(&grad) : NULL, grad.ld, &d->loss,
                                    &d->correct, &d->counted);
        close_floats(&grad.all, LIMIT, "gradient of the weighted loss");
        struct sums *got = fetched(&sums);
        assert_int_equal(got->correct, h->correct);
        assert_int_equal(got->counted, h->counted);
        assert_true(fabs(got->loss - h->loss) <= LIMIT * fabs(h->loss));
        free(got);
        matrix_free(&logits);
        matrix_free(&grad);
        both_free(&labels);
        both_free(&sums);
        both_free(&weight);
    }
}

/* A label that is no class is told; NaNs stay. */
static void test_softmax_xent_faults(void **state)
{
    (void)state;
    struct both logits = floats_new(20), grad = floats_new(20), labels = both_new(4 * sizeof(int32_t));
    struct both sums = both_new(sizeof(struct sums));
    struct sums *d = sums.device;
    ((float *)logits.host)[7] = NAN;
    send(&logits);
    cuda->softmax_xent(queue, logits.device, 5, labels.device, 4, 5, 4, grad.device, 5, &d->loss, &d->correct,
                       &d->counted);
    settled(PST_OK);
    struct sums *got = fetched(&sums);
    float *gradient = fetched(&grad);
    assert_true(isnan(got->loss) && isnan(gradient[5]) && !isnan(gradient[0]) && !isnan(gradient[10]));
    ((int32_t *)labels.host)[2] = 5;
    send(&labels);
    cuda->softmax_xent(queue, logits.device, 5, labels.device, 4, 5, 4, grad.device, 5, &d->loss, &d->correct,
                       &d->counted);
    settled(PST_E_ARG);
    free(got);
    free(gradient);
    both_free(&logits);
    both_free(&grad);
    both_free(&labels);
    both_free(&sums);
}

struct label_sums {
    double loss;
    int64_t counts[PST_LABEL_COUNTS];
};

static struct both labels_new(int64_t n, int64_t classes, int64_t ld)
{
    struct both b = both_new((size_t)(n * ld));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < classes; c++)
            ((uint8_t *)b.host)[i * ld + c] = rnd(5) ? (uint8_t)rnd(2) : PST_LABEL_IGNORED;
    send(&b);
    return b;
}

static void test_sigmoid_xent(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(400), classes = 1 + size_below(rnd(4) ? 60 : 700),
                      ld = classes + (int64_t)rnd(9);
        struct matrix logits = matrix_new(n, classes), grad = matrix_new(n, classes);
        struct both labels = labels_new(n, classes, ld), sums = both_new(sizeof(struct label_sums));
        for (int64_t i = 0; i < n * logits.ld; i++)
            host(&logits)[i] *= rnd(3) ? 4 : rnd(20) ? 0 : 200;
        send(&logits.all);
        const bool wanted = rnd(4);
        struct label_sums *h = sums.host, *d = sums.device;
        cpu->sigmoid_xent(NULL, host(&logits), logits.ld, labels.host, ld, n, classes, (double)n + 1,
                          wanted ? host(&grad) : NULL, grad.ld, &h->loss, h->counts);
        cuda->sigmoid_xent(queue, device(&logits), logits.ld, labels.device, ld, n, classes, (double)n + 1,
                           wanted ? device(&grad) : NULL, grad.ld, &d->loss, d->counts);
        close_floats(&grad.all, LIMIT, "gradient of the loss of several labels");
        struct label_sums *got = fetched(&sums);
        assert_memory_equal(got->counts, h->counts, sizeof h->counts);
        assert_true(fabs(got->loss - h->loss) <= LIMIT * fabs(h->loss));
        free(got);
        matrix_free(&logits);
        matrix_free(&grad);
        both_free(&labels);
        both_free(&sums);
    }
}

/* A label that is neither 0, 1 nor ignored is told; NaNs stay in their place. */
static void test_sigmoid_xent_faults(void **state)
{
    (void)state;
    struct both logits = floats_new(20), grad = floats_new(20), labels = labels_new(4, 5, 5);
    struct both sums = both_new(sizeof(struct label_sums));
    struct label_sums *d = sums.device;
    ((float *)logits.host)[7] = NAN;
    ((uint8_t *)labels.host)[7] = 1;
    send(&logits);
    send(&labels);
    cuda->sigmoid_xent(queue, logits.device, 5, labels.device, 5, 4, 5, 4, grad.device, 5, &d->loss,
                       d->counts);
    settled(PST_OK);
    struct label_sums *got = fetched(&sums);
    float *gradient = fetched(&grad);
    assert_true(isnan(got->loss) && isnan(gradient[7]) && !isnan(gradient[6]) && !isnan(gradient[12]));
    ((uint8_t *)labels.host)[12] = 2;
    send(&labels);
    cuda->sigmoid_xent(queue, logits.device, 5, labels.device, 5, 4, 5, 4, grad.device, 5, &d->loss,
                       d->counts);
    settled(PST_E_ARG);
    free(got);
    free(gradient);
    both_free(&logits);
    both_free(&grad);
    both_free(&labels);
    both_free(&sums);
}

static void test_adam(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(5000), skip = rnd(2) ? (int64_t)rnd(4) : 0;
        struct both w = floats_new(n + skip), g = floats_new(n + skip), m = floats_new(n + skip),
                    v = floats_new(n + skip);
        for (int64_t i = 0; i < n + skip; i++)
            ((float *)v.host)[i] *= ((float *)v.host)[i];
        send(&v);
        const struct pst_adam opt = {0.01,  0.9, 0.999, 1e-8, rnd(2) ? 0 : 5e-4, 1 + (int64_t)rnd(100),
                                     rnd(2)};
        cpu->adam(NULL, &opt, (float *)w.host + skip, (float *)g.host + skip, (float *)m.host + skip,
                  (float *)v.host + skip, n);
        cuda->adam(queue, &opt, (float *)w.device + skip, (float *)g.device + skip, (float *)m.device + skip,
                   (float *)v.device + skip, n);
        close_floats(&w, LIMIT, "weights");
        close_floats(&m, LIMIT, "first moments");
        close_floats(&v, LIMIT, "second moments");
        both_free(&w);
        both_free(&g);
        both_free(&m);
        both_free(&v);
    }
}

static void test_sgd(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(5000);
        struct both w = floats_new(n), g = floats_new(n), m = floats_new(n);
        const struct pst_sgd opt = {0.1, rnd(3) ? 0.9 : 0, rnd(2) ? 0 : 5e-4, rnd(2)};
        cpu->sgd(NULL, &opt, w.host, g.host, m.host, n);
        cuda->sgd(queue, &opt, w.device, g.device, m.device, n);
        same_bytes(&w, w.bytes, "weights");
        same_bytes(&m, m.bytes, "momentum");
        both_free(&w);
        both_free(&g);
        both_free(&m);
    }
}

/* Norms at, below and above the limit; and one that is not finite. */
static void test_clip(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(rnd(9) ? 9000 : TWIN_MOST);
        struct both x = floats_new(n), sum = both_new(sizeof(double));
        const double most = rnd(2) ? 1e-3 * (double)(1 + rnd(100)) : 1e3;
        if (n > 0 && rnd(8) == 0)
            ((float *)x.host)[rnd((uint64_t)n)] = rnd(2) ? INFINITY : NAN;
        send(&x);
        cpu->square_sum(NULL, x.host, n, sum.host);
        cuda->square_sum(queue, x.device, n, sum.device);
        const double *host_sum = sum.host;
        double *got = fetched(&sum);
        assert_true(fabs(*got - *host_sum) <= 1e-12 * *host_sum || !isfinite(*host_sum));
        assert_int_equal(isnan(*got), isnan(*host_sum));
        send(&sum); /* the last bit may differ */
        cpu->clip(NULL, x.host, n, sum.host, most);
        cuda->clip(queue, x.device, n, sum.device, most);
        if (isfinite(*host_sum))
            same_bytes(&x, x.bytes, "clipped");
        else
            free(fetched(&x)); /* the kernel has ended before its memory is freed */
        free(got);
        both_free(&x);
        both_free(&sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemm_tf32),
        cmocka_unit_test(test_gemm_bf16),
        cmocka_unit_test(test_no_products),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_widen),
        cmocka_unit_test(test_bias_relu_dropout),
        cmocka_unit_test(test_bias_relu_dropout_grad),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_layer_norm_grad),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_batch_norm_grad),
        cmocka_unit_test(test_softmax_xent),
        cmocka_unit_test(test_softmax_xent_faults),
        cmocka_unit_test(test_softmax_xent_weighted),
        cmocka_unit_test(test_sigmoid_xent),
        cmocka_unit_test(test_sigmoid_xent_faults),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_clip),
    };
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
