/* model.c: the model's shape, memory, initial weights and optimizer step. */
#include "stages/lib/gnn/layer.h"
#include "common/error.h"
#include "common/util/rng.h"
#include "common/util/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pst_rc check_config(const struct pst_gnn_config *c)
{
    if (c->layers < 2 || c->layers > PST_GNN_LAYERS_MAX)
        return pst_fail(PST_E_ARG, "the parameter layers is %d; expected 2 to %d", c->layers,
                        PST_GNN_LAYERS_MAX);
    if (c->in < 1 || c->hidden < 1 || c->classes < 1)
        return pst_fail(
            PST_E_ARG,
            "the model has %lld features, %lld hidden columns and %lld classes; each must be at least 1",
            (long long)c->in, (long long)c->hidden, (long long)c->classes);
    if (pst_gnn_has_heads(c->model) && (c->heads < 1 || c->heads > PST_GAT_HEADS_MAX ||
                                        !(c->attention_dropout >= 0 && c->attention_dropout < 1)))
        return pst_fail(PST_E_ARG,
                        "heads is %lld and attention_dropout is %g; expected 1 to %d heads, and an "
                        "attention_dropout of at least 0 and below 1",
                        (long long)c->heads, c->attention_dropout, PST_GAT_HEADS_MAX);
    if (c->model == PST_GNN_RGAT && c->attention_dropout > 0)
        return pst_fail(PST_E_ARG, "attention_dropout is %g, which only the model gat has: set it to 0",
                        c->attention_dropout);
    if (!c->aggregate && c->model != PST_GNN_GRAPHSAGE)
        return pst_fail(PST_E_ARG,
                        "aggregate is none, which only the model graphsage has: set aggregate to mean");
    if (pst_gnn_kind_of(c->model)->typed && c->types == NULL)
        return pst_fail(PST_E_ARG,
                        "the model %s needs the types and relations of a dataset, which were not given",
                        pst_gnn_kind_of(c->model)->name);
    if (c->bases != 0 && (c->model != PST_GNN_RGCN || c->bases < 0 || c->bases > c->types->relations))
        return pst_fail(
            PST_E_ARG,
            "the parameter bases is %lld; expected 0, or with the model rgcn at most the number of "
            "relations of the dataset, %d: more bases than relations have no use",
            (long long)c->bases, c->types ? c->types->relations : 0);
    if (c->residual && c->layers == 2)
        return pst_fail(PST_E_ARG,
                        "residual is true, but only a model with at least 3 layers has a hidden layer whose "
                        "input and output have equal width: set layers to 3 or more, or residual to false");
    if (c->learned > 0 && c->model != PST_GNN_GRAPHSAGE && c->model != PST_GNN_GCN)
        return pst_fail(PST_E_UNSUPPORTED,
                        "the model %s cannot learn its inputs: choose the model graphsage or gcn, or use the "
                        "features of the dataset",
                        pst_gnn_kind_of(c->model)->name);
    if ((c->learned > 0 || c->head != NULL) && c->device != NULL && pst_device_is_cuda(c->device))
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s runs only on CPUs, but the trainer is on %s: place the trainer on a CPU",
                        c->head != NULL ? "link prediction" : "a model with learned inputs", c->device->name);
    assert((c->score == PST_GNN_SCORE_NONE) == (c->head == NULL));
    if (!(c->dropout >= 0 && c->dropout < 1) || !(c->input_dropout >= 0 && c->input_dropout < 1))
        return pst_fail(PST_E_ARG,
                        "dropout is %g and input_dropout is %g; expected numbers of at least 0 and below 1",
                        c->dropout, c->input_dropout);
    return PST_OK;
}

/* Gives a tensor its place in the flat arrays. Each begins on a cache line. */
int64_t pst_gnn_model_add(struct pst_gnn_model *model, int layer, const char *what, int64_t rows,
                          int64_t cols)
{
    assert(model->parameters < PST_GNN_TENSORS_MAX);
    struct pst_gnn_parameter *p = &model->parameter[model->parameters++];
    *p = (struct pst_gnn_parameter){.at = model->size, .rows = rows, .cols = cols, .stacked = 1};
    if (layer < 0)
        snprintf(p->name, sizeof p->name, "%s", what);
    else
        snprintf(p->name, sizeof p->name, "layer%d.%s", layer, what);
    model->size += pst_gnn_width(rows * cols);
    return p->at;
}

static void add_layer(struct pst_gnn_model *model, int l)
{
    const struct pst_gnn_config *c = &model->config;
    struct pst_gnn_layer *layer = &model->layer[l];
    *layer = (struct pst_gnn_layer){.self = -1,
                                    .neigh = -1,
                                    .left = -1,
                                    .right = -1,
                                    .terms = -1,
                                    .relations = -1,
                                    .bases = -1,
                                    .coefficients = -1,
                                    .bias = -1,
                                    .gain = -1,
                                    .shift = -1,
                                    .running = -1};
    layer->last = l == c->layers - 1;
    layer->in = l == 0 ? c->in : pst_gnn_columns(c);
    layer->out = layer->wide = layer->last ? c->classes : pst_gnn_columns(c);
    layer->residual = c->residual && l > 0 && !layer->last;
    model->kind->add_weights(model, l);
    if (layer->last || c->norm == PST_GNN_NORM_NONE) {
        layer->bias = pst_gnn_model_add(model, l, "bias", 1, layer->out);
    } else {
        layer->gain = pst_gnn_model_add(model, l, "gain", 1, layer->out);
        layer->shift = pst_gnn_model_add(model, l, "shift", 1, layer->out);
    }
    if (!layer->last && c->norm == PST_GNN_NORM_BATCH) {
        layer->running = model->running_size;
        model->running_size += 2 * layer->out;
    }
}

/* Glorot & Bengio 2010: uniform in +-sqrt(6 / (in + out)). Element i depends only on (seed, tensor, i). */
static void fill_glorot(struct pst_gnn_model *model, int tensor)
{
    const struct pst_gnn_parameter *p = &model->parameter[tensor];
    const struct pst_rng_stream stream =
        pst_rng_stream_of(PST_RNG_INIT, model->config.seed, 0, 0, (uint32_t)tensor);
    const int64_t in = p->rows / p->stacked;
    const double bound = sqrt(6.0 / (double)(in + p->cols));
    struct pst_rng_block draw = {{0}};
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        if (i % 4 == 0)
            draw = pst_rng_draw(&stream, (uint64_t)(i / 4), 0);
        model->weight[p->at + i] = (pst_real)((2 * pst_rng_unit(draw.word[i % 4]) - 1) * bound);
    }
}

static void fill_ones(pst_real *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = 1;
}

static void fill_weights(struct pst_gnn_model *model)
{
    for (int t = 0; t < model->parameters; t++)
        if (strstr(model->parameter[t].name, ".weight") || strstr(model->parameter[t].name, ".attention") ||
            strstr(model->parameter[t].name, ".coefficients"))
            fill_glorot(model, t);
    for (int l = 0; l < model->config.layers; l++) {
        const struct pst_gnn_layer *layer = &model->layer[l];
        if (layer->gain >= 0)
            fill_ones(model->weight + layer->gain, layer->out);
        if (layer->running >= 0)
            fill_ones(model->running + layer->running + layer->out, layer->out);
    }
}

static int64_t update_tasks(const struct pst_gnn_model *model)
{
    return (model->size + model->grain.update - 1) / model->grain.update;
}

static size_t take_bytes(struct pst_gnn_pass *pass, uint64_t bytes)
{
    const size_t at = pass->bytes;
    pass->bytes += pst_align_up(bytes, PST_CACHE_LINE);
    return at;
}

size_t pst_gnn_pass_take(struct pst_gnn_pass *pass, int64_t rows, int64_t cols)
{
    return take_bytes(pass, (uint64_t)rows * (uint64_t)cols * sizeof(pst_real));
}

/* neigh: of W_neigh, else of W_self. */
static void take_parts(const struct pst_gnn_grain *g, struct pst_gnn_pass *pass,
                       const struct pst_gnn_layer *layer, int l, int neigh, int64_t rows)
{
    const int64_t cols = neigh ? layer->wide : layer->out;
    const int64_t tiles =
        ((layer->in + g->tile_rows - 1) / g->tile_rows) * ((cols + g->tile_cols - 1) / g->tile_cols);
    const int64_t parts = pst_min_i64(rows / g->part_rows, g->parts / tiles);
    pass->parts[l][neigh] = pst_max_i64(1, parts);
    pass->partial[l][neigh] = parts > 1 ? pst_gnn_pass_take(pass, parts, pst_gnn_width(layer->in * cols)) : 0;
}

static void take_layer(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    const struct pst_gnn_config *c = &model->config;
    const struct pst_gnn_layer *layer = &model->layer[l];
    const int64_t in = pst_gnn_width(layer->in), out = pst_gnn_width(layer->out), dst = pass->dst[l],
                  src = pass->src[l];
    const bool project = pass->project[l];
    pass->y[l] = pst_gnn_pass_take(pass, dst, out);
    if (layer->neigh >= 0)
        pass->mixed[l] = project ? pst_gnn_pass_take(pass, src, pst_gnn_width(layer->wide))
                                 : pst_gnn_pass_take(pass, dst, in);
    if (layer->gain >= 0) {
        pass->xhat[l] = pst_gnn_pass_take(pass, dst, layer->out);
        pass->rstd[l] = pst_gnn_pass_take(pass, c->norm == PST_GNN_NORM_BATCH ? layer->out : dst, 1);
    }
    if (layer->gain >= 0 && layer->residual)
        pass->kept[l] = pst_gnn_pass_take(pass, dst, out);
    if (layer->self >= 0)
        take_parts(&model->grain, pass, layer, l, 0, dst);
    if (layer->neigh >= 0)
        take_parts(&model->grain, pass, layer, l, 1, project ? src : dst);
    if (model->kind->take)
        model->kind->take(model, pass, l);
}

void pst_gnn_pass_layout(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int64_t copied_rows)
{
    const struct pst_gnn_config *c = &model->config;
    int64_t grad_rows_cols = 0, rows_most = 0, widest = 0;
    pass->bytes = 0;
    pass->input = copied_rows > 0 ? pst_gnn_pass_take(pass, copied_rows, pst_gnn_width(c->in)) : 0;
    for (int l = 0; l < c->layers; l++) {
        const struct pst_gnn_layer *layer = &model->layer[l];
        take_layer(model, pass, l);
        rows_most = pst_max_i64(rows_most, layer->left >= 0 ? pass->src[l] : pass->dst[l]);
        widest = pst_max_i64(widest, layer->wide);
        grad_rows_cols = pst_max_i64(grad_rows_cols, pass->dst[l] * pst_gnn_width(layer->out));
        if (l > 0 || model->inputs >= 0)
            grad_rows_cols = pst_max_i64(grad_rows_cols, pass->src[l] * pst_gnn_width(layer->in));
    }
    if (c->head)
        c->head->take(model, pass);
    pass->grad[0] = pst_gnn_pass_take(pass, 1, grad_rows_cols);
    pass->grad[1] = pst_gnn_pass_take(pass, 1, grad_rows_cols);
    const int64_t blocks = (rows_most + model->grain.rows - 1) / model->grain.rows;
    pass->sums_width = 2 * pst_gnn_width(widest);
    pass->sums = pst_gnn_pass_take(pass, blocks, pass->sums_width);
    pass->figures = take_bytes(pass, (uint64_t)blocks * sizeof(struct pst_gnn_block_figures));
}

/* The memory in `work` that an update needs: the sum of squares of each task's gradients. */
static size_t update_bytes(const struct pst_gnn_model *model)
{
    return pst_align_up((uint64_t)update_tasks(model) * sizeof(double), PST_CACHE_LINE);
}

/* The memory that any batch of at most rows_max input rows and edges_max edges can need. All edges may be of
 * one layer; those of the others then take at most a cache line each. */
static size_t work_bound(const struct pst_gnn_model *model)
{
    struct pst_gnn_pass pass = {0};
    for (int l = 0; l < model->config.layers; l++) {
        pass.edges[l] = l == 0 ? model->config.edges_max : 1;
        pass.dst[l] = pass.src[l] = model->config.rows_max;
        pass.term_rows[l] = model->config.rows_max * model->terms.most;
        pass.term_srcs[l] = model->config.rows_max * model->terms.most_from;
        pass.project[l] = model->layer[l].left >= 0 || model->layer[l].out > model->layer[l].in;
    }
    pass.pairs = model->config.pairs_max;
    pst_gnn_pass_layout(model, &pass, pass.src[0]);
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

/* The arrays on the host; on the CPU, activations too. */
static pst_rc take_host(struct pst_gnn_model *model)
{
    const bool cpu = !pst_gnn_model_on_device(model);
    const size_t spent_bytes = (size_t)model->config.threads * sizeof *model->spent;
    model->weight = zeroed(model->size);
    model->grad = cpu ? zeroed(model->size) : NULL;
    model->m = zeroed(model->size);
    model->v = zeroed(model->size);
    model->running = zeroed(model->running_size);
    model->spent = aligned_alloc(PST_CACHE_LINE, spent_bytes);
    if (model->spent)
        memset(model->spent, 0, spent_bytes);
    model->work = cpu ? pst_hugepage_map(model->work_bytes) : NULL;
    model->on = (struct pst_gnn_arrays){model->weight, model->grad, model->m, model->v, model->running};
    if (model->weight && model->m && model->v && model->running && model->spent &&
        (!cpu || (model->grad && model->work)))
        return PST_OK;
    return pst_fail(PST_E_NOMEM,
                    "out of memory: cannot allocate a model of %lld parameters and %zu bytes of address "
                    "space for its activations (%lld rows)",
                    (long long)model->size, cpu ? model->work_bytes : 0, (long long)model->config.rows_max);
}

/* The arrays on the device, in one piece, the gradient first. */
static pst_rc take_device(struct pst_gnn_model *model)
{
    struct pst_device *device = model->config.device;
    const int64_t all = 4 * model->size + pst_gnn_width(model->running_size);
    char what[64];
    void *at;
    (void)snprintf(what, sizeof what, "a model of %lld parameters", (long long)model->size);
    const pst_rc rc =
        pst_device_take(device, PST_TWIN_MEMORY_DEVICE, (uint64_t)all * sizeof(pst_real), what, &at);
    if (rc != PST_OK)
        return rc;
    void *records;
    const pst_rc pinned =
        pst_device_take(device, PST_TWIN_MEMORY_PINNED, PST_GNN_OPEN_MAX * sizeof *model->open.record,
                        "the figures of batches", &records);
    if (pinned != PST_OK)
        return pinned;
    model->open.record = memset(records, 0, PST_GNN_OPEN_MAX * sizeof *model->open.record);
    pst_real *reals = at;
    model->on = (struct pst_gnn_arrays){.grad = reals,
                                        .weight = reals + model->size,
                                        .m = reals + 2 * model->size,
                                        .v = reals + 3 * model->size,
                                        .running = reals + 4 * model->size};
    return pst_gnn_model_grow(model, update_bytes(model), 0);
}

/* More than what is needed now: batches differ a little, and a growth waits for the queue. */
static uint64_t with_margin(uint64_t needed)
{
    return needed + needed / 8;
}

pst_rc pst_gnn_model_grow(struct pst_gnn_model *model, size_t work_bytes, int64_t most)
{
    struct pst_device *device = model->config.device;
    pst_rc rc = PST_OK;
    if (work_bytes > model->work_bytes) {
        char what[160];
        void *at = NULL;
        const uint64_t wanted =
            with_margin(work_bytes) < model->work_limit ? with_margin(work_bytes) : model->work_limit;
        (void)snprintf(what, sizeof what,
                       "the activations of a batch, %zu bytes (a smaller batch or fanout of the sampler "
                       "needs fewer)",
                       work_bytes);
        pst_device_give(device, model->work);
        model->work = NULL;
        model->work_bytes = 0;
        rc = pst_device_take(device, PST_TWIN_MEMORY_DEVICE, wanted, what, &at);
        model->work = at;
        model->work_bytes = rc == PST_OK ? wanted : 0;
    }
    if (rc == PST_OK && most > model->most) {
        int64_t columns = model->config.in;
        for (int l = 0; l < model->config.layers; l++)
            columns = pst_max_i64(columns, 2 * pst_gnn_width(model->layer[l].wide));
        const int64_t wanted = (int64_t)with_margin((uint64_t)most);
        rc = pst_device_reserve(device, wanted, columns);
        model->most = rc == PST_OK ? wanted : 0;
    }
    return rc;
}

static pst_rc take_all(struct pst_gnn_model *model)
{
    pst_rc rc = take_host(model);
    if (rc == PST_OK && pst_gnn_model_on_device(model))
        rc = take_device(model);
    if (rc == PST_OK)
        rc = pst_team_new(&model->team, model->config.threads);
    if (rc != PST_OK)
        return rc;
    fill_weights(model);
    if (pst_gnn_model_on_device(model))
        pst_gnn_model_forget(model); /* the gradients begin as zeros */
    return pst_gnn_model_send(model);
}

/* One thread's task should stay in its caches. A device has one task, which its kernels divide. */
static const struct pst_gnn_grain of_threads = {.rows = 128,
                                                .tile_rows = 128,
                                                .tile_cols = 256,
                                                .parts = 4,
                                                .part_rows = 256,
                                                .columns = 32, /* two cache lines */
                                                .update = 8192};
/* Products in bfloat16 are faster, but the parts of their sums take as long to be written and added up. With
 * three times as many rows in a part, an epoch of the bench bf16 took 4 % less time. */
enum { PART_ROWS_SUMS = 3 };
#define ALL ((int64_t)1 << 40)
static const struct pst_gnn_grain of_devices = {ALL, ALL, ALL, 1, ALL, ALL, ALL};

pst_rc pst_gnn_model_init(struct pst_gnn_model *model, const struct pst_gnn_config *config)
{
    memset(model, 0, sizeof *model);
    pst_rc rc = check_config(config);
    if (rc != PST_OK)
        return rc;
    model->config = *config;
    model->kind = pst_gnn_kind_of(config->model);
    model->twin = config->device ? config->device->twin : pst_twin_cpu();
    model->q = config->device ? config->device->q : NULL;
    model->grain = pst_gnn_model_on_device(model) ? of_devices : of_threads;
    if (model->twin->gemm_sums) {
        model->grain.parts *= 2; /* of two weights at once */
        model->grain.part_rows *= PART_ROWS_SUMS;
    }
    if (model->kind->typed)
        pst_gnn_terms_of(&model->terms, config->types, model->kind->each_relation);
    model->terms.compact = config->model == PST_GNN_RGAT;
    for (int l = 0; l < config->layers; l++)
        add_layer(model, l);
    if (config->head)
        config->head->add_weights(model);
    model->inputs =
        config->learned > 0 ? pst_gnn_model_add(model, -1, "inputs.weight", config->learned, config->in) : -1;
    model->work_limit = (size_t)pst_max_i64((int64_t)work_bound(model), (int64_t)update_bytes(model));
    model->work_bytes = pst_gnn_model_on_device(model) ? 0 : model->work_limit;
    rc = take_all(model);
    if (rc != PST_OK)
        pst_gnn_model_release(model);
    return rc;
}

void pst_gnn_model_release(struct pst_gnn_model *model)
{
    pst_team_free(model->team);
    for (int i = 0; i < PST_GNN_FACTORS * PST_GNN_LAYERS_MAX; i++)
        if (model->factor[i / PST_GNN_FACTORS][i % PST_GNN_FACTORS])
            model->twin->factor_free(model->factor[i / PST_GNN_FACTORS][i % PST_GNN_FACTORS]);
    free(model->spent);
    free(model->weight);
    free(model->grad);
    free(model->m);
    free(model->v);
    free(model->running);
    if (!pst_gnn_model_on_device(model)) /* the device releases its own memory */
        pst_hugepage_unmap(model->work, model->work_bytes);
    memset(model, 0, sizeof *model);
}

struct update {
    struct pst_gnn_model *model;
    struct pst_adam adam;
    struct pst_sgd sgd;
    double *squares; /* of each task's gradients; then the first is that of all */
};

/* The parameters of a task: they begin at *at; returns how many there are. */
static int64_t parameters_of(const struct pst_gnn_model *m, int64_t task, int64_t *at)
{
    *at = task * m->grain.update;
    return pst_min_i64(m->grain.update, m->size - *at);
}

static void square_task(void *arg, int64_t task, int worker)
{
    const struct update *u = arg;
    int64_t at;
    const int64_t n = parameters_of(u->model, task, &at);
    const double before = pst_clock_thread_s();
    u->model->twin->square_sum(u->model->q, u->model->on.grad + at, n, &u->squares[task]);
    u->model->spent[worker].s[1][PST_GNN_WORK_UPDATE] += pst_clock_thread_s() - before;
}

/* The squared norm of all gradients. The order of its sum depends only on the model. On a device there is one
 * task. */
static void sum_squares(struct update *u)
{
    const int64_t tasks = update_tasks(u->model);
    pst_gnn_model_tasks(u->model, square_task, u, tasks);
    for (int64_t i = 1; i < tasks; i++)
        u->squares[0] += u->squares[i];
}

static void update_task(void *arg, int64_t task, int worker)
{
    const struct update *u = arg;
    struct pst_gnn_model *m = u->model;
    int64_t at;
    const int64_t n = parameters_of(m, task, &at);
    pst_real *w = m->on.weight + at, *grad = m->on.grad + at, *moment = m->on.m + at;
    const double before = pst_clock_thread_s();
    if (m->config.clip > 0)
        m->twin->clip(m->q, grad, n, u->squares, m->config.clip);
    if (m->config.optimizer == PST_GNN_SGD)
        m->twin->sgd(m->q, &u->sgd, w, grad, moment, n);
    else
        m->twin->adam(m->q, &u->adam, w, grad, moment, m->on.v + at, n);
    (void)m->twin->fill(m->q, grad, 0, (size_t)n * sizeof *m->grad);
    m->spent[worker].s[1][PST_GNN_WORK_UPDATE] += pst_clock_thread_s() - before;
}

void pst_gnn_model_update(struct pst_gnn_model *model, double rate, double weight_decay)
{
    model->steps++;
    struct update u = {.model = model,
                       .adam = {.rate = rate,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = weight_decay,
                                .step = model->steps,
                                .decoupled = model->config.optimizer == PST_GNN_ADAMW},
                       .sgd = {.rate = rate,
                               .momentum = model->config.momentum,
                               .weight_decay = weight_decay,
                               .nesterov = model->config.nesterov},
                       .squares = (double *)(void *)model->work}; /* no pass is running */
    if (model->config.clip > 0)
        sum_squares(&u);
    pst_gnn_model_tasks(model, update_task, &u, update_tasks(model));
}

int64_t pst_gnn_model_parameters(const struct pst_gnn_model *model)
{
    int64_t n = 0;
    for (int p = 0; p < model->parameters; p++)
        n += model->parameter[p].rows * model->parameter[p].cols;
    return n;
}

void pst_gnn_model_forget(struct pst_gnn_model *model)
{
    (void)model->twin->fill(model->q, model->on.grad, 0, (size_t)model->size * sizeof *model->grad);
}

void pst_gnn_model_tasks(struct pst_gnn_model *model, pst_team_task *task, void *job, int64_t tasks)
{
    if (!pst_gnn_model_on_device(model)) {
        pst_team_run(model->team, task, job, tasks);
        return;
    }
    for (int64_t i = 0; i < tasks; i++)
        task(job, i, 0);
}

/* ---- between host and device --------------------------------------------------------------------- */

enum { MOVED = 4 }; /* all arrays but the gradient */

static pst_rc move_arrays(struct pst_gnn_model *model, bool to_device)
{
    pst_real *const host[MOVED] = {model->weight, model->m, model->v, model->running};
    pst_real *const on[MOVED] = {model->on.weight, model->on.m, model->on.v, model->on.running};
    if (!pst_gnn_model_on_device(model))
        return PST_OK;
    for (int i = 0; i < MOVED; i++) {
        const int64_t n = host[i] == model->running ? model->running_size : model->size;
        (void)model->twin->copy(model->q, to_device ? on[i] : host[i], to_device ? host[i] : on[i],
                                (size_t)n * sizeof(pst_real));
    }
    return pst_device_wait(model->config.device);
}

pst_rc pst_gnn_model_fetch(struct pst_gnn_model *model)
{
    return move_arrays(model, false);
}

pst_rc pst_gnn_model_send(struct pst_gnn_model *model)
{
    return move_arrays(model, true);
}
