/* pass.c: one forward and backward pass over a minibatch, gradients added to the model's.
 *
 * The mean and the product with W_neigh commute. Each layer does them in the order that costs less, which
 * depends on the batch's counts alone: the mean first makes the product smaller (destinations, not
 * sources); the product first makes the mean's rows narrower. */
#include "model.h"
#include "../../common/error.h"

#include <string.h>
#include <time.h>

/* A product runs from cache, a mean from memory: one element added to a mean takes the time of about so
 * many multiply-adds. */
static const double MEAN_COST = 12;

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Adds what a kernel took to its kind's account. */
#define TIMED(model, kind, call)                                                                             \
    do {                                                                                                     \
        const double before_s = seconds();                                                                   \
        call;                                                                                                \
        (model)->spent_s[kind] += seconds() - before_s;                                                      \
    } while (0)

struct view { /* a matrix: a layer's input */
    const pst_real *at;
    int64_t ld;
};

static pst_real *real_at(const struct pst_model *model, size_t offset)
{
    return (pst_real *)(void *)(model->work + offset);
}

static int block_of(const struct pst_model *model, int layer)
{
    return model->config.layers - 1 - layer;
}

static bool project_first(const struct pst_layer *layer, int64_t dst, int64_t src, int64_t edges)
{
    const double in = (double)layer->in, out = (double)layer->out;
    const double after = (double)edges * in * MEAN_COST + (double)dst * in * out;
    const double before = (double)edges * out * MEAN_COST + (double)src * in * out;
    return before < after;
}

static bool needs_copy(const struct pst_model *model, const struct pst_batch *batch)
{
    return batch->kind != PST_FEATURE_REAL || model->config.input_dropout > 0;
}

static pst_rc plan_pass(const struct pst_model *model, const struct pst_batch *batch, struct pst_pass *pass)
{
    const struct pst_model_config *c = &model->config;
    if (c->aggregate && batch->hops != c->layers)
        return pst_fail(PST_E_ARG, "the minibatch has %d hops, the model %d layers: they must be as many",
                        batch->hops, c->layers);
    for (int l = 0; l < c->layers; l++) {
        const int h = block_of(model, l);
        pass->dst[l] = c->aggregate ? batch->n[h] : batch->n[0];
        pass->src[l] = c->aggregate ? batch->n[h + 1] : batch->n[0];
        if (c->aggregate)
            pass->project[l] =
                project_first(&model->layer[l], pass->dst[l], pass->src[l], batch->indptr[h][batch->n[h]]);
    }
    pst_pass_layout(model, pass, needs_copy(model, batch));
    if (pass->bytes > model->work_bytes)
        return pst_fail(
            PST_E_LIMIT,
            "a minibatch of %lld input rows needs %zu bytes of activations, more than the %zu that were "
            "set aside for %lld rows",
            (long long)pass->src[0], pass->bytes, model->work_bytes, (long long)c->rows_max);
    return PST_OK;
}

static struct pst_dropout dropout_of(const struct pst_model *model, const struct pst_batch *batch, int layer)
{
    const struct pst_model_config *c = &model->config;
    const bool last = layer == c->layers - 1;
    return (struct pst_dropout){.seed = c->seed,
                                .epoch = batch->epoch,
                                .batch = batch->number,
                                .layer = (uint32_t)(layer + 1), /* 0 is the input's */
                                .rate = layer < 0 ? (float)c->input_dropout
                                        : last    ? 0
                                                  : (float)c->dropout};
}

/* The features where they lie, or, if they must be widened or dropped from, a copy. */
static struct view first_input(struct pst_model *model, const struct pst_batch *batch,
                               const struct pst_pass *pass)
{
    if (!needs_copy(model, batch))
        return (struct view){batch->features, (int64_t)(batch->stride_bytes / sizeof(pst_real))};
    const int64_t dim = model->config.in, ld = pst_width(dim), n = pass->src[0];
    pst_real *x = real_at(model, pass->input);
    if (batch->kind == PST_FEATURE_REAL)
        TIMED(model, PST_WORK_FUSED,
              pst_k_gather(NULL, batch->features, batch->stride_bytes, NULL, x, (uint64_t)ld * sizeof *x,
                           NULL, n, (uint64_t)dim * sizeof *x));
    else
        TIMED(model, PST_WORK_FUSED,
              pst_k_widen(NULL, batch->features, batch->stride_bytes, batch->kind == PST_FEATURE_BFLOAT, x,
                          ld, n, dim));
    const struct pst_dropout drop = dropout_of(model, batch, -1);
    TIMED(model, PST_WORK_FUSED,
          pst_k_bias_relu_dropout(NULL, x, ld, NULL, batch->vertices, n, dim, false, &drop));
    return (struct view){x, ld};
}

static struct view input_of(const struct pst_model *model, const struct pst_pass *pass, struct view first,
                            int l)
{
    if (l == 0)
        return first;
    return (struct view){real_at(model, pass->y[l - 1]), pst_width(model->layer[l].in)};
}

/* y = x_dst W_self + mean(x_src) W_neigh */
static void forward_linear(struct pst_model *model, const struct pst_batch *batch,
                           const struct pst_pass *pass, struct view x, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const int64_t in = layer->in, out = layer->out, ld = pst_width(out);
    const int h = block_of(model, l), threads = model->config.threads;
    pst_real *y = real_at(model, pass->y[l]), *mixed = real_at(model, pass->mixed[l]);
    if (model->config.aggregate && pass->project[l]) {
        TIMED(model, PST_WORK_PRODUCTS,
              pst_k_gemm(NULL, false, false, pass->src[l], out, in, 1, x.at, x.ld,
                         model->weight + layer->neigh, out, 0, mixed, ld, threads));
        TIMED(model, PST_WORK_MEANS,
              pst_k_mean(NULL, batch->indptr[h], batch->indices[h], pass->dst[l], mixed, ld, y, ld, out));
    } else if (model->config.aggregate) {
        TIMED(model, PST_WORK_MEANS,
              pst_k_mean(NULL, batch->indptr[h], batch->indices[h], pass->dst[l], x.at, x.ld, mixed,
                         pst_width(in), in));
        TIMED(model, PST_WORK_PRODUCTS,
              pst_k_gemm(NULL, false, false, pass->dst[l], out, in, 1, mixed, pst_width(in),
                         model->weight + layer->neigh, out, 0, y, ld, threads));
    }
    TIMED(model, PST_WORK_PRODUCTS,
          pst_k_gemm(NULL, false, false, pass->dst[l], out, in, 1, x.at, x.ld, model->weight + layer->self,
                     out, model->config.aggregate ? 1 : 0, y, ld, threads));
}

static void forward_norm(struct pst_model *model, const struct pst_pass *pass, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const pst_real momentum = (pst_real)0.1; /* of the running figures; the usual choice */
    pst_real *y = real_at(model, pass->y[l]);
    pst_real *xhat = real_at(model, pass->xhat[l]), *rstd = real_at(model, pass->rstd[l]);
    const pst_real *gain = model->weight + layer->gain, *shift = model->weight + layer->shift;
    if (model->config.norm == PST_NORM_LAYER) {
        TIMED(model, PST_WORK_FUSED,
              pst_k_layer_norm(NULL, y, pst_width(layer->out), pass->dst[l], layer->out, gain, shift, xhat,
                               rstd));
    } else {
        pst_real *mean = model->running + layer->running;
        TIMED(model, PST_WORK_FUSED,
              pst_k_batch_norm(NULL, y, pst_width(layer->out), pass->dst[l], layer->out, gain, shift, xhat,
                               rstd, mean, mean + layer->out, momentum));
    }
}

static void forward_layer(struct pst_model *model, const struct pst_batch *batch, const struct pst_pass *pass,
                          struct view x, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    pst_real *y = real_at(model, pass->y[l]);
    forward_linear(model, batch, pass, x, l);
    if (layer->gain >= 0)
        forward_norm(model, pass, l);
    const pst_real *bias = layer->bias >= 0 ? model->weight + layer->bias : NULL;
    const struct pst_dropout drop = dropout_of(model, batch, l), none = {0};
    if (layer->residual) {
        TIMED(model, PST_WORK_FUSED,
              pst_k_bias_relu_dropout(NULL, y, pst_width(layer->out), bias, batch->vertices, pass->dst[l],
                                      layer->out, false, &none));
        TIMED(model, PST_WORK_FUSED,
              pst_k_add(NULL, y, pst_width(layer->out), x.at, x.ld, pass->dst[l], layer->out));
        bias = NULL;
    }
    TIMED(model, PST_WORK_FUSED,
          pst_k_bias_relu_dropout(NULL, y, pst_width(layer->out), bias, batch->vertices, pass->dst[l],
                                  layer->out, !layer->last, &drop));
}

static void backward_norm(struct pst_model *model, const struct pst_pass *pass, pst_real *grad, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const pst_real *xhat = real_at(model, pass->xhat[l]), *rstd = real_at(model, pass->rstd[l]);
    (model->config.norm == PST_NORM_LAYER ? pst_k_layer_norm_grad : pst_k_batch_norm_grad)(
        NULL, grad, pst_width(layer->out), pass->dst[l], layer->out, model->weight + layer->gain, xhat, rstd,
        model->grad + layer->gain, model->grad + layer->shift);
}

/* Gradients of both weights from that of y; `mixed` is turned into its own gradient. */
static void backward_weights(struct pst_model *model, const struct pst_batch *batch,
                             const struct pst_pass *pass, struct view x, const pst_real *grad, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const int64_t in = layer->in, out = layer->out, ld = pst_width(out), dst = pass->dst[l],
                  src = pass->src[l];
    const int h = block_of(model, l), threads = model->config.threads;
    pst_real *mixed = real_at(model, pass->mixed[l]);
    TIMED(model, PST_WORK_PRODUCTS,
          pst_k_gemm(NULL, true, false, in, out, dst, 1, x.at, x.ld, grad, ld, 1, model->grad + layer->self,
                     out, threads));
    if (!model->config.aggregate)
        return;
    pst_real *grad_neigh = model->grad + layer->neigh;
    if (pass->project[l]) {
        memset(mixed, 0, (size_t)(src * ld) * sizeof *mixed);
        TIMED(model, PST_WORK_MEANS,
              pst_k_mean_grad(NULL, batch->indptr[h], batch->indices[h], dst, grad, ld, mixed, ld, out));
        TIMED(model, PST_WORK_PRODUCTS,
              pst_k_gemm(NULL, true, false, in, out, src, 1, x.at, x.ld, mixed, ld, 1, grad_neigh, out,
                         threads));
    } else {
        TIMED(model, PST_WORK_PRODUCTS,
              pst_k_gemm(NULL, true, false, in, out, dst, 1, mixed, pst_width(in), grad, ld, 1, grad_neigh,
                         out, threads));
    }
}

/* Gradient of the layer's input, after backward_weights. */
static void backward_input(struct pst_model *model, const struct pst_batch *batch,
                           const struct pst_pass *pass, const pst_real *grad, pst_real *grad_x, int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const int64_t in = layer->in, out = layer->out, dst = pass->dst[l], src = pass->src[l];
    const int64_t ld = pst_width(out), ld_x = pst_width(in);
    const int h = block_of(model, l), threads = model->config.threads;
    const pst_real *self = model->weight + layer->self;
    TIMED(model, PST_WORK_PRODUCTS,
          pst_k_gemm(NULL, false, true, dst, in, out, 1, grad, ld, self, out, 0, grad_x, ld_x, threads));
    memset(grad_x + dst * ld_x, 0, (size_t)((src - dst) * ld_x) * sizeof *grad_x);
    if (!model->config.aggregate)
        return;
    const pst_real *neigh = model->weight + layer->neigh;
    pst_real *mixed = real_at(model, pass->mixed[l]);
    if (pass->project[l]) {
        TIMED(
            model, PST_WORK_PRODUCTS,
            pst_k_gemm(NULL, false, true, src, in, out, 1, mixed, ld, neigh, out, 1, grad_x, ld_x, threads));
    } else {
        TIMED(model, PST_WORK_PRODUCTS,
              pst_k_gemm(NULL, false, true, dst, in, out, 1, grad, ld, neigh, out, 0, mixed, ld_x, threads));
        TIMED(model, PST_WORK_MEANS,
              pst_k_mean_grad(NULL, batch->indptr[h], batch->indices[h], dst, mixed, ld_x, grad_x, ld_x, in));
    }
}

/* From the gradient of layer l's output (changed) to that of its input. */
static void backward_layer(struct pst_model *model, const struct pst_batch *batch,
                           const struct pst_pass *pass, struct view x, pst_real *grad, pst_real *grad_x,
                           int l)
{
    const struct pst_layer *layer = &model->layer[l];
    const int64_t ld = pst_width(layer->out);
    const struct pst_dropout drop = dropout_of(model, batch, l);
    TIMED(model, PST_WORK_FUSED,
          pst_k_bias_relu_dropout_grad(NULL, grad, ld, real_at(model, pass->y[l]), ld, batch->vertices,
                                       pass->dst[l], layer->out, !layer->last, &drop,
                                       layer->bias >= 0 ? model->grad + layer->bias : NULL));
    /* The norm changes grad in place: what the residual needs is kept where y was, which is done with. */
    if (layer->residual && layer->gain >= 0)
        TIMED(model, PST_WORK_FUSED,
              pst_k_gather(NULL, grad, (uint64_t)ld * sizeof *grad, NULL, real_at(model, pass->y[l]),
                           (uint64_t)ld * sizeof *grad, NULL, pass->dst[l],
                           (uint64_t)layer->out * sizeof *grad));
    if (layer->gain >= 0)
        backward_norm(model, pass, grad, l);
    backward_weights(model, batch, pass, x, grad, l);
    if (l == 0)
        return; /* nothing wants the gradient of the features */
    backward_input(model, batch, pass, grad, grad_x, l);
    if (layer->residual)
        TIMED(model, PST_WORK_FUSED,
              pst_k_add(NULL, grad_x, pst_width(layer->in),
                        layer->gain >= 0 ? real_at(model, pass->y[l]) : grad, ld, pass->dst[l], layer->out));
}

pst_rc pst_model_step(struct pst_model *model, const struct pst_batch *batch, struct pst_figures *figures,
                      const pst_real **logits)
{
    const int layers = model->config.layers;
    struct pst_pass pass = {0};
    const pst_rc rc = plan_pass(model, batch, &pass);
    if (rc != PST_OK)
        return rc;
    const struct view first = first_input(model, batch, &pass);
    for (int l = 0; l < layers; l++)
        model->rows[l] += pass.dst[l];
    for (int l = 0; l < layers; l++)
        forward_layer(model, batch, &pass, input_of(model, &pass, first, l), l);
    const int64_t ld = pst_width(model->config.classes);
    const pst_real *out = real_at(model, pass.y[layers - 1]);
    pst_real *grad[2] = {real_at(model, pass.grad[0]), real_at(model, pass.grad[1])};
    TIMED(model, PST_WORK_LOSS,
          pst_k_softmax_xent(NULL, out, ld, batch->labels, batch->n[0], model->config.classes,
                             batch->normaliser, grad[0], ld, &figures->loss, &figures->correct,
                             &figures->counted));
    for (int l = layers - 1; l >= 0; l--) {
        const int from = (layers - 1 - l) % 2;
        backward_layer(model, batch, &pass, input_of(model, &pass, first, l), grad[from], grad[1 - from], l);
    }
    if (logits)
        *logits = out;
    return PST_OK;
}
