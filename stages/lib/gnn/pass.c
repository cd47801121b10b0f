/* pass.c: one forward and backward pass over a minibatch. It adds the gradients to the model's.
 *
 * The work is cut into tasks that the team's threads share: blocks of rows, for which everything is done
 * while they are in cache; tiles of weight gradients; groups of columns into which rows are scattered.
 * Sums over blocks are added in the order of the blocks. So results do not depend on how many threads
 * there are or which of them did what.
 *
 * Sums over neighbours (means, weighted sums) and the product with W_neigh commute. Each layer does them in
 * the cheaper order, which depends only on the batch's counts: with the sum first, the product is over
 * destinations, not sources; with the product first, the sum's rows may be narrower. */
#include "stages/lib/gnn/layer.h"
#include "common/error.h"

#include <string.h>

/* A product works from cache, a mean from memory: adding one element to a mean takes as long as about so
 * many multiply-adds. */
static const double MEAN_COST = 12;

/* Two readings of a thread's clock take about a microsecond, which was 3 % of a pass. So one pass in so many
 * is timed. */
enum { TIMED_EVERY = 8 };

enum {
    AHEAD_ROWS = 8,    /* how many rows ahead are prefetched that are copied */
    AHEAD_BYTES = 512, /* bytes of a row that are prefetched; the hardware follows by itself after that */
};

bool pst_gnn_projects_first(const struct pst_gnn_layer *layer, int64_t dst, int64_t src, int64_t edges)
{
    const double in = (double)layer->in, out = (double)layer->out;
    if (layer->neigh < 0)
        return false; /* a model of relations */
    if (layer->left >= 0)
        return true; /* GAT's coefficients come from the products */
    const double after = (double)edges * in * MEAN_COST + (double)dst * in * out;
    const double before = (double)edges * out * MEAN_COST + (double)src * in * out;
    return before < after;
}

/* Features in bfloat16 stay as they are if the twin multiplies in bfloat16, and only products and sums over
 * neighbours read them. */
static bool keeps_bf16(const struct pst_gnn_model *model, const struct pst_gnn_batch *batch)
{
    return batch->mb.feature_dtype == PST_BF16 && model->twin->sum_rounded && model->kind->reads_bf16;
}

/* Must the first layer have a copy of all of its inputs? Rows that stayed in the sampler's cache are read
 * there by sums, but products need them side by side. */
static bool needs_copy(const struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                       const struct pst_gnn_pass *pass)
{
    return model->inputs >= 0 || model->config.input_dropout > 0 ||
           (batch->mb.feature_dtype != PST_F32 && !keeps_bf16(model, batch)) ||
           (batch->in_place && pass->project[0]);
}

/* What the calls of a pass need of a device's queue, in the items of pst_device_reserve, which have room for
 * one edge that is sorted. The gradient of a mean over edges also has two rows of sums for each chunk of 64
 * edges, in panels of columns if they do not fit. A 128th of an item is the size of two floats for each
 * column and chunk. */
static int64_t scratch_items(const struct pst_gnn_model *model, const struct pst_gnn_pass *pass)
{
    int64_t items = 0, widest = model->config.in;
    for (int l = 0; l < model->config.layers; l++)
        widest = pst_max_i64(widest, pst_gnn_width(model->layer[l].wide));
    for (int l = 0; l < model->config.layers; l++) {
        items = pst_max_i64(items, pass->edges[l] + pass->edges[l] * widest / 128);
        items = pst_max_i64(items, pst_max_i64(pass->src[l], pass->dst[l]));
    }
    return items;
}

static pst_rc plan_pass(const struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                        struct pst_gnn_pass *pass)
{
    const struct pst_gnn_config *c = &model->config;
    if (c->aggregate && (int)batch->mb.hops != c->layers)
        return pst_fail(PST_E_ARG,
                        "the minibatch has %u hops, but the model has %d layers: both numbers must be equal",
                        batch->mb.hops, c->layers);
    for (int l = 0; l < c->layers; l++) {
        const int h = block_of(model, l);
        pass->dst[l] = c->aggregate ? batch->mb.n[h] : batch->mb.n[0];
        pass->src[l] = c->aggregate ? batch->mb.n[h + 1] : batch->mb.n[0];
        pass->edges[l] = c->aggregate ? batch->edges[h] : 0;
        for (int k = 0; k < model->terms.n; k++) {
            pass->term_rows[l] += batch->typed->block[h][k].dsts;
            pass->term_srcs[l] += model->terms.compact ? batch->typed->block[h][k].srcs : 0;
        }
        if (c->aggregate)
            pass->project[l] =
                pst_gnn_projects_first(&model->layer[l], pass->dst[l], pass->src[l], batch->edges[h]);
    }
    assert(batch->typed || !model->kind->typed);
    pass->pairs = c->head ? batch->mb.pairs : 0;
    pst_gnn_pass_layout(model, pass,
                        needs_copy(model, batch, pass) ? pass->src[0]
                        : batch->in_place              ? pass->dst[0]
                                                       : 0);
    if (pass->bytes > model->work_limit)
        return pst_fail(PST_E_LIMIT,
                        "a minibatch of %lld input rows needs %zu bytes for activations, but the model has "
                        "only %zu, for at most %lld rows and %lld edges",
                        (long long)pass->src[0], pass->bytes, model->work_limit, (long long)c->rows_max,
                        (long long)c->edges_max);
    return PST_OK;
}

bool pst_gnn_model_has_room(const struct pst_gnn_model *model, const struct pst_gnn_batch *batch)
{
    struct pst_gnn_pass pass = {0};
    return plan_pass(model, batch, &pass) != PST_OK ||
           (pass.bytes <= model->work_bytes && scratch_items(model, &pass) <= model->most);
}

static pst_rc begin_pass(struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                         struct pst_gnn_pass *pass)
{
    pst_rc rc = plan_pass(model, batch, pass);
    if (rc == PST_OK && pst_gnn_model_on_device(model))
        rc = pst_gnn_model_grow(model, pass->bytes, scratch_items(model, pass));
    assert(rc != PST_OK || batch->pairs || !model->config.head);
    assert(rc != PST_OK || batch->degrees || !model->kind->needs_degrees);
    assert(rc != PST_OK || batch->multilabels || !model->config.multilabel);
    assert(rc != PST_OK || batch->targets || !model->config.regression);
    return rc;
}

/* ---- products with weights ----------------------------------------------------------------------- */

static void factor_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    struct pst_gnn_model *model = s->model;
    const int l = (int)(task / PST_GNN_FACTORS), which = (int)(task % PST_GNN_FACTORS);
    const struct pst_gnn_layer *layer = &model->layer[l];
    const pst_real *from[PST_TWIN_FACTOR_MAX];
    int count = 0;
    for (int neigh = 0; neigh < 2; neigh++)
        if ((which == PST_GNN_FACTOR_BOTH || which == neigh) && weight_at(layer, neigh) >= 0)
            from[count++] = model->on.weight + weight_at(layer, neigh);
    if (count > 0 && (which != PST_GNN_FACTOR_BOTH || makes_pairs(s, l)))
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->factor_set(&model->factor[l][which], from, count, layer->in,
                                  columns_of(layer, which == PST_GNN_FACTOR_NEIGH)));
}

/* The weights change between passes only, so each pass begins with their present values. */
static void set_factors(struct step *s)
{
    if (s->twin->factor_set)
        run_tasks(s, factor_task, (int64_t)PST_GNN_FACTORS * s->model->config.layers);
}

void pst_gnn_pair_product(const struct step *s, int64_t n, struct pst_twin_view a, struct pst_twin_view b,
                          pst_real *c, int64_t ldc, int worker)
{
    const struct pst_twin_view both[] = {a, b};
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
          s->twin->gemm_factor(false, n, both, s->model->factor[s->l][PST_GNN_FACTOR_BOTH], 0, c, ldc));
}

/* Features and outputs of layers can have many zeros. The products with W' are of gradients, of which those
 * of the last layer have none. */
static void multiply(const struct step *s, bool transposed, int64_t n, int64_t m, int64_t k,
                     struct pst_twin_view a, const pst_real *weight, int64_t ld, pst_real beta, pst_real *c,
                     int64_t ldc)
{
    if (transposed || !s->twin->gemm_zeros ||
        !s->twin->gemm_zeros(false, n, m, k, a.at, a.ld, weight, ld, beta, c, ldc))
        s->twin->gemm(s->q, false, transposed, n, m, k, 1, a.at, a.ld, weight, ld, beta, c, ldc, 1);
}

void pst_gnn_product(const struct step *s, int l, int neigh, bool transposed, int64_t n,
                     struct pst_twin_view a, bool adds, pst_real *c, int64_t ldc, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[l];
    const struct pst_twin_factor *factor = s->model->factor[l][neigh];
    const int64_t in = layer->in, cols = columns_of(layer, neigh);
    const pst_real beta = adds ? 1 : 0;
    if (factor)
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm_factor(transposed, n, &a, factor, beta, c, ldc));
    else
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              multiply(s, transposed, n, transposed ? in : cols, transposed ? cols : in, a,
                       s->model->on.weight + weight_at(layer, neigh), cols, beta, c, ldc));
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* Where the features of a vertex are: in the slot, or in the sampler's cache. */
static const void *row_of_batch(const struct pst_gnn_batch *batch, int64_t i)
{
    const int64_t other = batch->in_place ? batch->in_place[i] : -1 - i;
    return other >= 0 ? (const char *)batch->cache + (uint64_t)other * batch->mb.stride_bytes
                      : (const char *)batch->features + (uint64_t)(-1 - other) * batch->mb.stride_bytes;
}

/* The learned inputs of a block's vertices. */
static void copy_learned(const struct step *s, int64_t at, int64_t n, pst_real *x, int64_t ld)
{
    const int64_t in = s->model->config.in;
    for (int64_t i = 0; i < n; i++)
        memcpy(x + i * ld, s->model->on.weight + s->model->inputs + s->batch->vertices[at + i] * in,
               (size_t)in * sizeof *x);
}

/* The same for features. Where some rows are not in the slot, each is copied by itself. */
static void copy_features(const struct step *s, int64_t at, int64_t n, pst_real *x, int64_t ld)
{
    const struct pst_gnn_batch *batch = s->batch;
    const uint64_t stride = batch->mb.stride_bytes;
    const int64_t dim = s->model->config.in, rows = batch->in_place ? 1 : n;
    for (int64_t i = 0; i < n; i += rows) {
        const void *from = row_of_batch(batch, at + i);
        if (batch->mb.feature_dtype == PST_F32)
            s->twin->gather(s->q, from, stride, NULL, x + i * ld, (uint64_t)ld * sizeof *x, NULL, rows,
                            (uint64_t)dim * sizeof *x);
        else
            s->twin->widen(s->q, from, stride, batch->mb.feature_dtype == PST_BF16, x + i * ld, ld, rows,
                           dim);
    }
}

void pst_gnn_gather_rows(const struct step *s, int64_t at, int64_t n)
{
    const struct pst_gnn_batch *batch = s->batch;
    const struct pst_twin_view x = view_from(s->x[0], at, 0);
    const size_t item = x.bf16 ? sizeof *x.bf16 : sizeof *x.at, bytes = (size_t)s->model->config.in * item;
    char *to = x.bf16 ? (char *)(uintptr_t)x.bf16 : (char *)(uintptr_t)x.at;
    assert(to);
    for (int64_t i = 0; i < n; i++) {
        const char *next = row_of_batch(batch, at + pst_min_i64(i + AHEAD_ROWS, n - 1));
        for (size_t b = 0; b < bytes && b < AHEAD_BYTES; b += PST_CACHE_LINE)
            __builtin_prefetch(next + b);
        memcpy(to + (size_t)(i * x.ld) * item, row_of_batch(batch, at + i), bytes);
    }
}

/* Copies a block of features, if they must be widened or some are dropped. */
static void copy_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_batch *batch = s->batch;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[0], &at), dim = s->model->config.in,
                  ld = s->x[0].ld;
    pst_real *x = real_at(s->model, s->pass->input) + at * ld;
    if (s->model->inputs >= 0)
        TIMED(s, worker, PST_GNN_WORK_FUSED, copy_learned(s, at, n, x, ld));
    else
        TIMED(s, worker, PST_GNN_WORK_FUSED, copy_features(s, at, n, x, ld));
    const struct pst_dropout drop = dropout_of(s->model, batch, -1);
    TIMED(s, worker, PST_GNN_WORK_FUSED,
          s->twin->bias_relu_dropout(s->q, x, ld, NULL, batch->vertices + at, n, dim, false, &drop));
}

/* A block of a layer's input times W_neigh, before the mean. */
static void project_rows(const struct step *s, int l, int64_t at, int64_t n, int worker)
{
    const int64_t ld = pst_gnn_width(s->model->layer[l].wide);
    pst_gnn_product(s, l, 1, false, n, view_from(s->x[l], at, 0), false,
                    real_at(s->model, s->pass->mixed[l]) + at * ld, ld, worker);
    if (s->model->kind->projected)
        TIMED(s, worker, PST_GNN_WORK_MEANS, s->model->kind->projected(s, l, at, n));
}

static void project_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    project_rows(s, s->l, at, n, worker);
}

static void layer_norm_rows(const struct step *s, int64_t at, int64_t n)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t ld = pst_gnn_width(layer->out);
    const pst_real *gain = s->model->on.weight + layer->gain, *shift = s->model->on.weight + layer->shift;
    s->twin->layer_norm(s->q, real_at(s->model, s->pass->y[s->l]) + at * ld, ld, n, layer->out, gain, shift,
                        real_at(s->model, s->pass->xhat[s->l]) + at * layer->out,
                        real_at(s->model, s->pass->rstd[s->l]) + at);
}

static void activate_rows(const struct step *s, int64_t at, int64_t n)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const struct pst_twin_view x = s->x[s->l];
    const int64_t out = layer->out, ld = pst_gnn_width(out), *vertices = s->batch->vertices + at;
    pst_real *y = real_at(s->model, s->pass->y[s->l]) + at * ld;
    const pst_real *bias = layer->bias >= 0 ? s->model->on.weight + layer->bias : NULL;
    const struct pst_dropout drop = dropout_of(s->model, s->batch, s->l), none = {0};
    if (layer->residual) {
        s->twin->bias_relu_dropout(s->q, y, ld, bias, vertices, n, out, false, &none);
        s->twin->add(s->q, y, ld, x.at + at * x.ld, x.ld, n, out);
        bias = NULL;
    }
    if (s->model->kind->elu && !layer->last)
        s->twin->bias_elu_dropout(s->q, y, ld, bias, vertices, n, out, &drop);
    else
        s->twin->bias_relu_dropout(s->q, y, ld, bias, vertices, n, out, !layer->last, &drop);
}

static struct pst_gnn_block_figures *figures_of(const struct step *s)
{
    return (struct pst_gnn_block_figures *)(void *)(s->model->work + s->pass->figures);
}

/* The loss of a block of logits, and the gradient of the last layer's bias. */
static void loss_rows(const struct step *s, int64_t block, int64_t at, int64_t n)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t out = layer->out, ld = pst_gnn_width(out);
    struct pst_gnn_block_figures *f = figures_of(s) + block;
    const double seeds = s->batch->mb.batch_seeds;
    const pst_real *logits = real_at(s->model, s->pass->y[s->l]) + at * ld;
    pst_real *sums = sums_of(s, block), *grad = s->grad + at * ld;
    const struct pst_dropout none = {0};
    (void)s->twin->fill(s->q, f, 0, sizeof *f);
    clear(s, sums, out);
    if (s->model->config.regression)
        s->twin->squared_error(s->q, logits, ld, s->batch->targets + at * out, out, n, out,
                               seeds * (double)out, grad, ld, &f->loss);
    else if (s->model->config.multilabel)
        s->twin->sigmoid_xent(s->q, logits, ld, s->batch->multilabels + at * out, out, n, out,
                              seeds * (double)out, grad, ld, &f->loss, f->counts);
    else if (s->model->config.loss.weight)
        s->twin->softmax_xent_weighted(s->q, &s->model->config.loss, logits, ld, s->batch->labels + at, n,
                                       out, seeds, grad, ld, &f->loss, &f->counts[0], &f->counts[1]);
    else
        s->twin->softmax_xent(s->q, logits, ld, s->batch->labels + at, n, out, seeds, grad, ld, &f->loss,
                              &f->counts[0], &f->counts[1]);
    s->twin->bias_relu_dropout_grad(s->q, grad, ld, NULL, 0, NULL, n, out, false, &none, sums);
}

/* What follows the linear part for a block of rows, and what the next layer does with it first. */
static void finish_rows(const struct step *s, int64_t block, int64_t at, int64_t n, int worker)
{
    if (s->model->config.norm == PST_GNN_NORM_LAYER && s->model->layer[s->l].gain >= 0)
        TIMED(s, worker, PST_GNN_WORK_FUSED, layer_norm_rows(s, at, n));
    TIMED(s, worker, PST_GNN_WORK_FUSED, activate_rows(s, at, n));
    if (s->model->layer[s->l].last && s->model->config.head)
        return; /* pairs need all rows */
    if (s->model->layer[s->l].last)
        TIMED(s, worker, PST_GNN_WORK_LOSS, loss_rows(s, block, at, n));
    else if (s->pass->project[s->l + 1])
        project_rows(s, s->l + 1, at, n, worker);
}

static void forward_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->dst[s->l], &at);
    s->model->kind->forward(s, at, n, worker);
    if (!has_barrier(s->model, s->l))
        finish_rows(s, block, at, n, worker);
}

static void finish_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->dst[s->l], &at);
    finish_rows(s, block, at, n, worker);
}

static void batch_norm_rows(const struct step *s)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const pst_real momentum = (pst_real)0.1; /* of the running figures: the usual value */
    pst_real *mean = s->model->on.running + layer->running;
    s->twin->batch_norm(s->q, real_at(s->model, s->pass->y[s->l]), pst_gnn_width(layer->out),
                        s->pass->dst[s->l], layer->out, s->model->on.weight + layer->gain,
                        s->model->on.weight + layer->shift, real_at(s->model, s->pass->xhat[s->l]),
                        real_at(s->model, s->pass->rstd[s->l]), mean, mean + layer->out, momentum);
}

static void forward_all(struct step *s)
{
    if (needs_copy(s->model, s->batch, s->pass))
        run_tasks(s, copy_task, blocks_of(s->model, s->pass->src[0]));
    if (s->model->kind->prepare)
        run_tasks(s, s->model->kind->prepare, s->model->config.layers);
    for (s->l = 0; s->l < s->model->config.layers; s->l++) {
        const int64_t blocks = blocks_of(s->model, s->pass->dst[s->l]);
        if (s->l == 0 && s->pass->project[0])
            run_tasks(s, project_task, blocks_of(s->model, s->pass->src[0]));
        if (s->model->kind->enter)
            s->model->kind->enter(s);
        run_tasks(s, forward_task, blocks);
        if (has_barrier(s->model, s->l)) {
            TIMED(s, 0, PST_GNN_WORK_FUSED, batch_norm_rows(s));
            run_tasks(s, finish_task, blocks);
        }
    }
}

/* With a head: the gradient of the last layer's bias, from that of its output. */
static void bias_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const int64_t last = s->model->config.layers - 1, out = s->model->layer[last].out,
                  ld = pst_gnn_width(out);
    const struct pst_dropout none = {0};
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->dst[last], &at);
    clear(s, sums_of(s, block), out);
    TIMED(s, worker, PST_GNN_WORK_LOSS,
          s->twin->bias_relu_dropout_grad(s->q, s->grad + at * ld, ld, NULL, 0, NULL, n, out, false, &none,
                                          sums_of(s, block)));
}

static void sum_figures(const struct step *s, struct pst_gnn_block_figures *sum)
{
    const struct pst_gnn_block_figures *f = figures_of(s);
    for (int64_t b = 0; b < blocks_of(s->model, s->batch->mb.n[0]); b++) {
        sum->loss += f[b].loss;
        for (int i = 0; i < PST_LABEL_COUNTS; i++)
            sum->counts[i] += f[b].counts[i];
    }
}

static void add_figures(const struct pst_gnn_model *model, const struct pst_gnn_block_figures *sum,
                        struct pst_gnn_figures *figures)
{
    const int64_t twice = 2 * sum->counts[PST_LABEL_TRUE_POSITIVES];
    const bool several = model->config.multilabel;
    figures->loss += sum->loss;
    figures->correct += several ? twice : sum->counts[0];
    figures->counted +=
        several ? twice + sum->counts[PST_LABEL_FALSE_POSITIVES] + sum->counts[PST_LABEL_FALSE_NEGATIVES]
                : sum->counts[1];
}

/* Features as they are in the slot and in the cache. */
static struct pst_twin_view features_of(const struct pst_gnn_batch *batch)
{
    const int64_t stride = (int64_t)batch->mb.stride_bytes;
    const bool narrow = batch->mb.feature_dtype == PST_BF16;
    return (struct pst_twin_view){.at = narrow ? NULL : batch->features,
                                  .bf16 = narrow ? batch->features : NULL,
                                  .ld = stride / (int64_t)(narrow ? sizeof(uint16_t) : sizeof(pst_real)),
                                  .elsewhere = batch->in_place,
                                  .other = batch->cache};
}

/* Finds the inputs of all layers. */
static void find_inputs(struct step *s)
{
    const struct pst_gnn_model *model = s->model;
    const struct pst_twin_view copy =
        view_at(real_at(model, s->pass->input), pst_gnn_width(model->config.in));
    const bool copied = needs_copy(model, s->batch, s->pass);
    s->features = copied ? copy : features_of(s->batch);
    s->x[0] = s->features;
    if (!copied && s->batch->in_place) {
        s->x[0] = copy;
        if (s->features.bf16)
            s->x[0] = (struct pst_twin_view){.bf16 = (const uint16_t *)(const void *)copy.at, .ld = copy.ld};
    }
    for (int l = 1; l < model->config.layers; l++)
        s->x[l] = view_at(real_at(model, s->pass->y[l - 1]), pst_gnn_width(model->layer[l].in));
}

/* The first pass warms up. It counts only if it is the only one. */
static void begin_timing(struct pst_gnn_model *model)
{
    const int64_t pass = model->passes++;
    model->timing = pass == 0 || pass % TIMED_EVERY == 1;
    if (pass == 1) {
        memset(model->spent, 0, (size_t)model->config.threads * sizeof *model->spent);
        model->timed = 0;
    }
    model->timed += model->timing;
}

/* Both halves of a pass. sum: of a head; and on the CPU, of the blocks. On a device the figures without a
 * head are left where figures_of says: there is one block. */
static void run_pass(struct step *s, struct pst_gnn_block_figures *sum)
{
    struct pst_gnn_model *model = s->model;
    const struct pst_gnn_pass *pass = s->pass;
    const int layers = model->config.layers;
    begin_timing(model);
    s->twin = model->twin;
    s->q = model->q;
    s->grad = real_at(model, pass->grad[0]);
    find_inputs(s);
    for (int l = 0; l < layers; l++) {
        model->rows[l] += pass->dst[l];
        model->sources[l] += pass->src[l];
        model->edges[l] += pass->edges[l];
    }
    set_factors(s);
    forward_all(s);
    if (model->config.head) {
        model->config.head->pairs(s, sum);
        run_tasks(s, bias_task, blocks_of(model, pass->dst[layers - 1]));
    }
    s->backward = true;
    pst_gnn_pass_backward(s);
    if (!model->config.head && !pst_gnn_model_on_device(model))
        sum_figures(s, sum);
}

/* ---- on a device --------------------------------------------------------------------------------- */

/* Puts a record of the pass's figures on the queue, behind the pass. */
static void record_figures(const struct step *s)
{
    struct pst_gnn_open *open = &s->model->open;
    const struct pst_gnn_block_figures *f = figures_of(s);
    const int64_t *at[1 + PST_LABEL_COUNTS] = {(const int64_t *)(const void *)&f->loss};
    for (int i = 0; i < PST_LABEL_COUNTS; i++)
        at[1 + i] = &f->counts[i];
    assert(open->put - open->taken < PST_GNN_OPEN_MAX);
    struct pst_twin_record *record = &open->record[open->put++ % PST_GNN_OPEN_MAX];
    (void)s->twin->record(s->q, record, open->put, at, 1 + PST_LABEL_COUNTS); /* the wait reports a failure */
}

pst_rc pst_gnn_model_put(struct pst_gnn_model *model, const struct pst_gnn_batch *batch)
{
    struct pst_gnn_pass pass = {0};
    struct pst_gnn_block_figures none = {0};
    assert(pst_gnn_model_on_device(model) && !model->config.head);
    const pst_rc rc = begin_pass(model, batch, &pass);
    if (rc != PST_OK)
        return rc;
    struct step s = {.model = model, .batch = batch, .pass = &pass};
    run_pass(&s, &none);
    record_figures(&s);
    return PST_OK;
}

pst_rc pst_gnn_model_take(struct pst_gnn_model *model, struct pst_gnn_figures *figures)
{
    struct pst_gnn_open *open = &model->open;
    struct pst_gnn_block_figures sum = {0};
    bool data_fault = false;
    assert(open->taken < open->put);
    const struct pst_twin_record *record = &open->record[open->taken++ % PST_GNN_OPEN_MAX];
    const pst_rc rc = pst_device_recorded_in(model->config.device, record, open->taken, &data_fault);
    if (data_fault)
        return pst_fail(
            rc, "a kernel on %s found an index, a label or a degree that is out of range in the minibatch",
            model->config.device->name);
    if (rc != PST_OK) /* the queue does not say which work failed */
        return open->taken < open->put ? pst_wrap(rc, "in this step, or in the next one, which was already "
                                                      "on the queue")
                                       : rc;
    memcpy(&sum.loss, &record->counts[0], sizeof sum.loss); /* the bits of a double */
    memcpy(sum.counts, &record->counts[1], sizeof sum.counts);
    add_figures(model, &sum, figures);
    return PST_OK;
}

/* ---- a whole step -------------------------------------------------------------------------------- */

pst_rc pst_gnn_model_step(struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                          struct pst_gnn_figures *figures, const pst_real **logits)
{
    struct pst_gnn_pass pass = {0};
    pst_rc rc = begin_pass(model, batch, &pass);
    if (rc != PST_OK)
        return rc;
    struct step s = {.model = model, .batch = batch, .pass = &pass};
    struct pst_gnn_block_figures sum = {0};
    run_pass(&s, &sum);
    if (pst_gnn_model_on_device(model) && !model->config.head) {
        assert(model->open.put == model->open.taken);
        record_figures(&s);
        rc = pst_gnn_model_take(model, figures);
    } else {
        add_figures(model, &sum, figures);
    }
    if (logits)
        *logits = real_at(model, pass.y[model->config.layers - 1]);
    return rc;
}
