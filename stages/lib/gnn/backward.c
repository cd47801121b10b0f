/* backward.c: the backward half of a pass (pass.c). */
#include "stages/lib/gnn/pass.h"

enum { ADD_CHUNK = 8192 }; /* elements of one task that adds up parts */

/* Goes from the gradient of a hidden layer's output to the gradient of its linear part, for a block of
 * rows. The norm's gradient overwrites the former, so a copy is kept for the residual. */
static void activate_rows_grad(const struct step *s, int l, pst_real *grad, int64_t block, int64_t at,
                               int64_t n)
{
    const struct pst_gnn_layer *layer = &s->model->layer[l];
    const int64_t out = layer->out, ld = pst_gnn_width(out);
    const struct pst_dropout drop = dropout_of(s->model, s->batch, l);
    const pst_real *y = real_at(s->model, s->pass->y[l]) + at * ld;
    pst_real *sums = sums_of(s, block);
    clear(s, sums, s->pass->sums_width);
    grad += at * ld;
    s->twin->bias_relu_dropout_grad(s->q, grad, ld, y, ld, s->batch->vertices + at, n, out, true, &drop,
                                    layer->bias >= 0 ? sums : NULL);
    if (layer->residual && layer->gain >= 0)
        s->twin->gather(s->q, grad, (uint64_t)ld * sizeof *grad, NULL,
                        real_at(s->model, s->pass->kept[l]) + at * ld, (uint64_t)ld * sizeof *grad, NULL, n,
                        (uint64_t)out * sizeof *grad);
    if (layer->gain >= 0 && !has_barrier(s->model, l))
        s->twin->layer_norm_grad(s->q, grad, ld, n, out, s->model->on.weight + layer->gain,
                                 real_at(s->model, s->pass->xhat[l]) + at * out,
                                 real_at(s->model, s->pass->rstd[l]) + at, sums, sums + out);
}

static void add_sums(const struct step *s, int64_t first, int64_t n, pst_real *to)
{
    for (int64_t b = 0; b < blocks_of(s->model, s->pass->dst[s->l]); b++)
        s->twin->add(s->q, to, n, sums_of(s, b) + first, n, 1, n);
}

/* The gradients of the layer's vectors: from the sums of its blocks, or, behind a barrier, at once. */
static void vector_grads(const struct step *s)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    pst_real *grad = s->model->on.grad;
    if (has_barrier(s->model, s->l)) {
        s->twin->batch_norm_grad(s->q, s->grad, pst_gnn_width(layer->out), s->pass->dst[s->l], layer->out,
                                 s->model->on.weight + layer->gain, real_at(s->model, s->pass->xhat[s->l]),
                                 real_at(s->model, s->pass->rstd[s->l]), grad + layer->gain,
                                 grad + layer->shift);
    } else if (layer->gain >= 0) {
        add_sums(s, 0, layer->out, grad + layer->gain);
        add_sums(s, layer->out, layer->out, grad + layer->shift);
    } else {
        add_sums(s, 0, layer->out, grad + layer->bias);
    }
}

static int64_t across(const struct pst_gnn_grain *grain, const struct pst_gnn_layer *layer)
{
    return (layer->out + grain->tile_cols - 1) / grain->tile_cols;
}

/* The number of tasks of a weight's gradient. */
static int64_t tiles_of(const struct step *s, int neigh)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const struct pst_gnn_grain *grain = &s->model->grain;
    return (layer->in + grain->tile_rows - 1) / grain->tile_rows * across(grain, layer) *
           s->pass->parts[s->l][neigh];
}

/* One part of one tile of a weight's gradient: x' grad, over `rows` rows. */
static void tile(const struct step *s, int64_t number, struct view x, const pst_real *grad, int64_t rows,
                 int neigh, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const struct pst_gnn_grain *grain = &s->model->grain;
    const int64_t parts = s->pass->parts[s->l][neigh], part = number % parts, place = number / parts;
    const int64_t i = place / across(grain, layer) * grain->tile_rows,
                  j = place % across(grain, layer) * grain->tile_cols;
    const int64_t from = rows * part / parts, to = rows * (part + 1) / parts, ld = pst_gnn_width(layer->out);
    pst_real *sum = parts > 1 ? real_at(s->model, s->pass->partial[s->l][neigh]) +
                                    part * pst_gnn_width(layer->in * layer->out)
                              : s->model->on.grad + (neigh ? layer->neigh : layer->self);
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
          s->twin->gemm(s->q, true, false, pst_min_i64(grain->tile_rows, layer->in - i),
                        pst_min_i64(grain->tile_cols, layer->out - j), to - from, 1, x.at + from * x.ld + i,
                        x.ld, grad + from * ld + j, ld, parts > 1 ? 0 : 1, sum + i * layer->out + j,
                        layer->out, 1));
}

static void self_tile(const struct step *s, int64_t number, int worker)
{
    tile(s, number, s->x[s->l], s->grad, s->pass->dst[s->l], 0, worker);
}

/* The gradient of projected rows is in `mixed`. The gradient of means is in `grad`, and the means are in
 * `mixed`. */
static void neigh_tile(const struct step *s, int64_t number, int worker)
{
    const pst_real *mixed = real_at(s->model, s->pass->mixed[s->l]);
    if (s->pass->project[s->l])
        tile(s, number, s->x[s->l], mixed, s->pass->src[s->l], 1, worker);
    else
        tile(s, number, (struct view){mixed, pst_gnn_width(s->model->layer[s->l].in)}, s->grad,
             s->pass->dst[s->l], 1, worker);
}

/* The number of tasks that add up the parts of one weight's gradient. */
static int64_t chunks_of(const struct step *s, int l, int neigh)
{
    const int64_t elements = s->model->layer[l].in * s->model->layer[l].out;
    return s->pass->parts[l][neigh] > 1 ? (elements + ADD_CHUNK - 1) / ADD_CHUNK : 0;
}

static void add_parts(const struct step *s, int l, int neigh, int64_t chunk)
{
    const struct pst_gnn_layer *layer = &s->model->layer[l];
    const int64_t elements = layer->in * layer->out, at = chunk * ADD_CHUNK;
    const int64_t n = pst_min_i64(ADD_CHUNK, elements - at);
    for (int64_t part = 0; part < s->pass->parts[l][neigh]; part++)
        s->twin->add(s->q, s->model->on.grad + (neigh ? layer->neigh : layer->self) + at, n,
                     real_at(s->model, s->pass->partial[l][neigh]) + part * pst_gnn_width(elements) + at, n,
                     1, n);
}

static void add_parts_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    for (int l = 0; l < s->model->config.layers; l++) {
        for (int neigh = 0; neigh < 2; neigh++) {
            const int64_t chunks = chunks_of(s, l, neigh);
            if (task < chunks) {
                TIMED(s, worker, PST_GNN_WORK_PRODUCTS, add_parts(s, l, neigh, task));
                return;
            }
            task -= chunks;
        }
    }
}

static void add_all_parts(struct step *s)
{
    int64_t chunks = 0;
    for (int l = 0; l < s->model->config.layers; l++)
        chunks += chunks_of(s, l, 0) + chunks_of(s, l, 1);
    run_tasks(s, add_parts_task, chunks);
}

/* Some columns of the gradient of what was averaged: adds those of the mean's gradient, scattered. */
static void scatter(const struct step *s, int64_t group, const pst_real *from, pst_real *to, int64_t dim,
                    int worker)
{
    const int h = block_of(s->model, s->l);
    const int64_t ld = pst_gnn_width(dim), at = group * s->model->grain.columns;
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->mean_grad_n(s->q, s->batch->indptr[h], s->batch->indices[h], s->pass->dst[s->l],
                               s->batch->edges[h], s->pass->src[s->l], from + at, ld, to + at, ld,
                               pst_min_i64(s->model->grain.columns, dim - at)));
}

static int64_t groups_of(const struct step *s, int64_t dim)
{
    return (dim + s->model->grain.columns - 1) / s->model->grain.columns;
}

/* grad_x = grad W' for a block of rows, or grad_x += grad W'. */
static void input_product(const struct step *s, const pst_real *grad, int64_t weight, bool add, pst_real *to,
                          int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t ld = pst_gnn_width(layer->out), ld_x = pst_gnn_width(layer->in);
    if (n > 0)
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm(s->q, false, true, n, layer->in, layer->out, 1, grad + at * ld, ld,
                            s->model->on.weight + weight, layer->out, add ? 1 : 0, to + at * ld_x, ld_x, 1));
}

/* Adds what the residual contributes to the gradient of the layer's input, for a block of rows, and goes
 * on to the layer below. */
static void enter_below(const struct step *s, int64_t block, int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t ld = pst_gnn_width(layer->out), ld_x = pst_gnn_width(layer->in);
    const int64_t dsts = pst_min_i64(n, s->pass->dst[s->l] - at);
    const pst_real *kept = layer->gain >= 0 ? real_at(s->model, s->pass->kept[s->l]) : s->grad;
    if (layer->residual && dsts > 0)
        TIMED(s, worker, PST_GNN_WORK_FUSED,
              s->twin->add(s->q, s->grad_x + at * ld_x, ld_x, kept + at * ld, ld, dsts, layer->out));
    TIMED(s, worker, PST_GNN_WORK_FUSED, activate_rows_grad(s, s->l - 1, s->grad_x, block, at, n));
}

/* A block of the gradient of the layer's input, if nothing is scattered into it. */
static void input_rows(const struct step *s, int64_t block, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    if (s->pass->project[s->l])
        input_product(s, real_at(s->model, s->pass->mixed[s->l]), layer->neigh, false, s->grad_x, at, n,
                      worker);
    input_product(s, s->grad, layer->self, s->pass->project[s->l], s->grad_x, at,
                  pst_min_i64(n, s->pass->dst[s->l] - at), worker);
    enter_below(s, block, at, n, worker);
}

/* Product before mean, first half: the gradient of the projected rows, and of W_self. */
static void projected_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t groups = groups_of(s, layer->out);
    if (task >= groups) {
        self_tile(s, task - groups, worker);
        return;
    }
    const int64_t ld = pst_gnn_width(layer->out), at = task * s->model->grain.columns;
    pst_real *mixed = real_at(s->model, s->pass->mixed[s->l]);
    if (groups == 1)
        clear(s, mixed, s->pass->src[s->l] * ld);
    for (int64_t i = 0; groups > 1 && i < s->pass->src[s->l]; i++)
        clear(s, mixed + i * ld + at, pst_min_i64(s->model->grain.columns, layer->out - at));
    scatter(s, task, s->grad, mixed, layer->out, worker);
}

/* Second half: the gradients of W_neigh and of the input. */
static void projected_input_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t tiles = tiles_of(s, 1);
    if (task < tiles)
        neigh_tile(s, task, worker);
    else
        input_rows(s, task - tiles, worker);
}

/* There is no mean. */
static void plain_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t tiles = tiles_of(s, 0);
    if (task < tiles)
        self_tile(s, task, worker);
    else
        input_rows(s, task - tiles, worker);
}

/* Mean before product: the gradients of both weights, and the destinations' own part of the input's
 * gradient. */
static void averaged_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t selves = tiles_of(s, 0), tiles = selves + tiles_of(s, 1), ld_x = pst_gnn_width(layer->in),
                  dst = s->pass->dst[s->l];
    if (task < selves) {
        self_tile(s, task, worker);
    } else if (task < tiles) {
        neigh_tile(s, task - selves, worker);
    } else {
        int64_t at;
        const int64_t n = rows_of(s->model, task - tiles, s->pass->src[s->l], &at);
        const int64_t dsts = pst_max_i64(0, pst_min_i64(n, dst - at));
        input_product(s, s->grad, layer->self, false, s->grad_x, at, dsts, worker);
        clear(s, s->grad_x + (at + dsts) * ld_x, (n - dsts) * ld_x);
    }
}

/* Then `mixed` is replaced by its own gradient. */
static void averaged_mixed_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->dst[s->l], &at);
    input_product(s, s->grad, s->model->layer[s->l].neigh, false, real_at(s->model, s->pass->mixed[s->l]), at,
                  n, worker);
}

static void averaged_scatter_task(void *arg, int64_t group, int worker)
{
    const struct step *s = arg;
    scatter(s, group, real_at(s->model, s->pass->mixed[s->l]), s->grad_x, s->model->layer[s->l].in, worker);
}

static void enter_below_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    enter_below(s, block, at, n, worker);
}

/* Goes from the gradient of layer l's linear part to that of the layer below. Layer 0 stops there: nobody
 * needs the gradient of the features. */
static void backward_layer(struct step *s)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t selves = tiles_of(s, 0), neighs = s->model->config.aggregate ? tiles_of(s, 1) : 0,
                  inputs = s->l > 0 ? blocks_of(s->model, s->pass->src[s->l]) : 0;
    if (!s->model->config.aggregate) {
        run_tasks(s, plain_task, selves + inputs);
    } else if (s->pass->project[s->l]) {
        run_tasks(s, projected_task, groups_of(s, layer->out) + selves);
        run_tasks(s, projected_input_task, neighs + inputs);
    } else {
        run_tasks(s, averaged_task, selves + neighs + inputs);
        if (s->l == 0)
            return;
        run_tasks(s, averaged_mixed_task, blocks_of(s->model, s->pass->dst[s->l]));
        run_tasks(s, averaged_scatter_task, groups_of(s, layer->in));
        run_tasks(s, enter_below_task, inputs);
    }
}

void pst_gnn_pass_backward(struct step *s)
{
    pst_real *grad[2] = {real_at(s->model, s->pass->grad[0]), real_at(s->model, s->pass->grad[1])};
    const int layers = s->model->config.layers;
    for (s->l = layers - 1; s->l >= 0; s->l--) {
        const int from = (layers - 1 - s->l) % 2;
        s->grad = grad[from];
        s->grad_x = grad[1 - from];
        TIMED(s, 0, PST_GNN_WORK_FUSED, vector_grads(s));
        backward_layer(s);
    }
    add_all_parts(s);
}
