/* model.c: the model's shape, memory, initial weights and optimizer step. */
#include "model.h"
#include "../../common/error.h"
#include "../../kernels/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *pst_lazy_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: rows are read at random */
    return memory;
}

void pst_lazy_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

static pst_rc check_config(const struct pst_model_config *c)
{
    if (c->layers < 2 || c->layers > PST_LAYERS_MAX)
        return pst_fail(PST_E_ARG, "layers is %d: expected 2 to %d", c->layers, PST_LAYERS_MAX);
    if (c->in < 1 || c->hidden < 1 || c->classes < 1)
        return pst_fail(
            PST_E_ARG,
            "a model of %lld features, %lld hidden columns and %lld classes: each must be at least 1",
            (long long)c->in, (long long)c->hidden, (long long)c->classes);
    if (c->residual && c->layers == 2)
        return pst_fail(PST_E_ARG,
                        "residual joins the input and output of hidden layers of equal width; with 2 layers "
                        "there are none: set layers to 3 or more, or residual to false");
    if (!(c->dropout >= 0 && c->dropout < 1) || !(c->input_dropout >= 0 && c->input_dropout < 1))
        return pst_fail(PST_E_ARG, "dropout %g, input_dropout %g: expected 0 <= rate < 1", c->dropout,
                        c->input_dropout);
    return PST_OK;
}

/* Gives a tensor its place in the flat arrays; each begins on a cache line. */
static int64_t add_parameter(struct pst_model *model, int layer, const char *what, int64_t rows, int64_t cols)
{
    assert(model->parameters < PST_MODEL_TENSORS_MAX);
    struct pst_parameter *p = &model->parameter[model->parameters++];
    *p = (struct pst_parameter){.at = model->size, .rows = rows, .cols = cols};
    snprintf(p->name, sizeof p->name, "layer%d.%s", layer, what);
    model->size += pst_width(rows * cols);
    return p->at;
}

static void add_layer(struct pst_model *model, int l)
{
    const struct pst_model_config *c = &model->config;
    struct pst_layer *layer = &model->layer[l];
    *layer = (struct pst_layer){.neigh = -1, .bias = -1, .gain = -1, .shift = -1, .running = -1};
    layer->last = l == c->layers - 1;
    layer->in = l == 0 ? c->in : c->hidden;
    layer->out = layer->last ? c->classes : c->hidden;
    layer->residual = c->residual && l > 0 && !layer->last;
    layer->self = add_parameter(model, l, "weight_self", layer->in, layer->out);
    if (c->aggregate)
        layer->neigh = add_parameter(model, l, "weight_neigh", layer->in, layer->out);
    if (layer->last || c->norm == PST_NORM_NONE) {
        layer->bias = add_parameter(model, l, "bias", 1, layer->out);
    } else {
        layer->gain = add_parameter(model, l, "gain", 1, layer->out);
        layer->shift = add_parameter(model, l, "shift", 1, layer->out);
    }
    if (!layer->last && c->norm == PST_NORM_BATCH) {
        layer->running = model->running_size;
        model->running_size += 2 * layer->out;
    }
}

/* Glorot & Bengio 2010: uniform in +-sqrt(6 / (in + out)); element i depends on (seed, tensor, i) alone. */
static void fill_glorot(struct pst_model *model, int tensor)
{
    const struct pst_parameter *p = &model->parameter[tensor];
    const struct pst_stream stream = pst_stream_of(PST_RNG_INIT, model->config.seed, 0, 0, (uint32_t)tensor);
    const double bound = sqrt(6.0 / (double)(p->rows + p->cols));
    struct pst_philox draw = {{0}};
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        if (i % 4 == 0)
            draw = pst_draw(&stream, (uint64_t)(i / 4), 0);
        model->weight[p->at + i] = (pst_real)((2 * pst_unit(draw.word[i % 4]) - 1) * bound);
    }
}

static void fill_ones(pst_real *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = 1;
}

static void fill_weights(struct pst_model *model)
{
    for (int t = 0; t < model->parameters; t++)
        if (strstr(model->parameter[t].name, ".weight"))
            fill_glorot(model, t);
    for (int l = 0; l < model->config.layers; l++) {
        const struct pst_layer *layer = &model->layer[l];
        if (layer->gain >= 0)
            fill_ones(model->weight + layer->gain, layer->out);
        if (layer->running >= 0)
            fill_ones(model->running + layer->running + layer->out, layer->out);
    }
}

static size_t take_bytes(struct pst_pass *pass, uint64_t bytes)
{
    const size_t at = pass->bytes;
    pass->bytes += pst_align_up(bytes, PST_CACHE_LINE);
    return at;
}

static size_t take(struct pst_pass *pass, int64_t rows, int64_t cols)
{
    return take_bytes(pass, (uint64_t)rows * (uint64_t)cols * sizeof(pst_real));
}

static void take_parts(struct pst_pass *pass, const struct pst_layer *layer, int l, int neigh, int64_t rows)
{
    const int64_t tiles = ((layer->in + PST_PASS_TILE_ROWS - 1) / PST_PASS_TILE_ROWS) *
                          ((layer->out + PST_PASS_TILE_COLS - 1) / PST_PASS_TILE_COLS);
    const int64_t parts = pst_min_i64(rows / PST_PASS_PART_ROWS, PST_PASS_PARTS / tiles);
    pass->parts[l][neigh] = pst_max_i64(1, parts);
    pass->partial[l][neigh] = parts > 1 ? take(pass, parts, pst_width(layer->in * layer->out)) : 0;
}

void pst_pass_layout(const struct pst_model *model, struct pst_pass *pass, bool copy_input)
{
    const struct pst_model_config *c = &model->config;
    int64_t grad_rows_cols = 0, rows_most = 0;
    pass->bytes = 0;
    pass->input = copy_input ? take(pass, pass->src[0], pst_width(c->in)) : 0;
    for (int l = 0; l < c->layers; l++) {
        const struct pst_layer *layer = &model->layer[l];
        const int64_t in = pst_width(layer->in), out = pst_width(layer->out);
        pass->y[l] = take(pass, pass->dst[l], out);
        if (c->aggregate)
            pass->mixed[l] = pass->project[l] ? take(pass, pass->src[l], out) : take(pass, pass->dst[l], in);
        if (layer->gain >= 0) {
            pass->xhat[l] = take(pass, pass->dst[l], layer->out);
            pass->rstd[l] = take(pass, c->norm == PST_NORM_BATCH ? layer->out : pass->dst[l], 1);
        }
        if (layer->gain >= 0 && layer->residual)
            pass->kept[l] = take(pass, pass->dst[l], out);
        rows_most = pst_max_i64(rows_most, pass->dst[l]);
        take_parts(pass, layer, l, 0, pass->dst[l]);
        if (c->aggregate)
            take_parts(pass, layer, l, 1, pass->project[l] ? pass->src[l] : pass->dst[l]);
        grad_rows_cols = pst_max_i64(grad_rows_cols, pass->dst[l] * out);
        if (l > 0)
            grad_rows_cols = pst_max_i64(grad_rows_cols, pass->src[l] * in);
    }
    pass->grad[0] = take(pass, 1, grad_rows_cols);
    pass->grad[1] = take(pass, 1, grad_rows_cols);
    const int64_t blocks = (rows_most + PST_PASS_BLOCK - 1) / PST_PASS_BLOCK;
    pass->sums_width = pst_width(2 * pst_max_i64(c->hidden, c->classes));
    pass->sums = take(pass, blocks, pass->sums_width);
    pass->figures = take_bytes(pass, (uint64_t)blocks * sizeof(struct pst_figures));
}

/* The most that any batch of at most rows_max input rows can need. */
static size_t work_bound(const struct pst_model *model)
{
    struct pst_pass pass = {0};
    for (int l = 0; l < model->config.layers; l++) {
        pass.dst[l] = pass.src[l] = model->config.rows_max;
        pass.project[l] = model->layer[l].out > model->layer[l].in;
    }
    pst_pass_layout(model, &pass, true);
    return pass.bytes;
}

static pst_real *zeroed(int64_t n)
{
    const size_t bytes = pst_align_up((uint64_t)(n > 0 ? n : 1) * sizeof(pst_real), PST_CACHE_LINE);
    pst_real *memory = aligned_alloc(PST_CACHE_LINE, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

pst_rc pst_model_init(struct pst_model *model, const struct pst_model_config *config)
{
    memset(model, 0, sizeof *model);
    pst_rc rc = check_config(config);
    if (rc != PST_OK)
        return rc;
    model->config = *config;
    for (int l = 0; l < config->layers; l++)
        add_layer(model, l);
    model->weight = zeroed(model->size);
    model->grad = zeroed(model->size);
    model->m = zeroed(model->size);
    model->v = zeroed(model->size);
    model->running = zeroed(model->running_size);
    const size_t spent_bytes = (size_t)config->threads * sizeof *model->spent;
    model->spent = aligned_alloc(PST_CACHE_LINE, spent_bytes);
    if (model->spent)
        memset(model->spent, 0, spent_bytes);
    model->work_bytes = work_bound(model);
    model->work = pst_lazy_map(model->work_bytes);
    if (!model->weight || !model->grad || !model->m || !model->v || !model->running || !model->spent ||
        !model->work) {
        rc = pst_fail(
            PST_E_NOMEM,
            "no memory for a model of %lld parameters and %zu bytes of address space for its activations "
            "(%lld rows)",
            (long long)model->size, model->work_bytes, (long long)config->rows_max);
        pst_model_release(model);
        return rc;
    }
    rc = pst_team_new(&model->team, config->threads);
    if (rc != PST_OK) {
        pst_model_release(model);
        return rc;
    }
    fill_weights(model);
    return PST_OK;
}

void pst_model_release(struct pst_model *model)
{
    pst_team_free(model->team);
    free(model->spent);
    free(model->weight);
    free(model->grad);
    free(model->m);
    free(model->v);
    free(model->running);
    pst_lazy_unmap(model->work, model->work_bytes);
    memset(model, 0, sizeof *model);
}

enum { UPDATE_CHUNK = 8192 }; /* parameters of one task: what the four arrays have of them stays in cache */

struct update {
    struct pst_model *model;
    struct pst_adam opt;
};

static void update_task(void *arg, int64_t chunk, int worker)
{
    const struct update *u = arg;
    struct pst_model *m = u->model;
    const int64_t at = chunk * UPDATE_CHUNK, n = pst_min_i64(UPDATE_CHUNK, m->size - at);
    (void)worker;
    pst_k_adam(NULL, &u->opt, m->weight + at, m->grad + at, m->m + at, m->v + at, n);
    memset(m->grad + at, 0, (size_t)n * sizeof *m->grad);
}

void pst_model_update(struct pst_model *model, double rate, double weight_decay)
{
    model->steps++;
    struct update u = {.model = model,
                       .opt = {.rate = rate,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = weight_decay,
                               .step = model->steps}};
    pst_team_run(model->team, update_task, &u, (model->size + UPDATE_CHUNK - 1) / UPDATE_CHUNK);
}

void pst_model_forget(struct pst_model *model)
{
    memset(model->grad, 0, (size_t)model->size * sizeof *model->grad);
}
