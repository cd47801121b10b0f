/* backward.c: the backward half of a pass (pass.c). */
#include "stages/lib/gnn/layer.h"

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
    pst_real *bias = layer->bias >= 0 ? sums : NULL;
    if (s->model->kind->elu)
        s->twin->bias_elu_dropout_grad(s->q, grad, ld, y, ld, s->batch->vertices + at, n, out, &drop, bias);
    else
        s->twin->bias_relu_dropout_grad(s->q, grad, ld, y, ld, s->batch->vertices + at, n, out, true, &drop,
                                        bias);
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

static int64_t across(const struct pst_gnn_grain *grain, int64_t cols)
{
    return (cols + grain->tile_cols - 1) / grain->tile_cols;
}

int64_t pst_gnn_weight_tiles(const struct step *s, int neigh)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    if (weight_at(layer, neigh) < 0)
        return 0;
    const struct pst_gnn_grain *grain = &s->model->grain;
    return (layer->in + grain->tile_rows - 1) / grain->tile_rows * across(grain, columns_of(layer, neigh)) *
           s->pass->parts[s->l][neigh];
}

/* A tile of a weight's gradient, or a part of it: elements (i..i+m, j..j+n), from rows from..to. */
struct tile {
    int64_t i, j, m, n, from, to, cols;
    pst_real *sum;
    pst_real beta;
};

static struct tile tile_of(const struct step *s, int64_t number, int64_t rows, int neigh)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const struct pst_gnn_grain *grain = &s->model->grain;
    const int64_t cols = columns_of(layer, neigh);
    const int64_t parts = s->pass->parts[s->l][neigh], part = number % parts, place = number / parts;
    const int64_t i = place / across(grain, cols) * grain->tile_rows,
                  j = place % across(grain, cols) * grain->tile_cols;
    pst_real *sum =
        parts > 1 ? real_at(s->model, s->pass->partial[s->l][neigh]) + part * pst_gnn_width(layer->in * cols)
                  : s->model->on.grad + weight_at(layer, neigh);
    return (struct tile){.i = i,
                         .j = j,
                         .m = pst_min_i64(grain->tile_rows, layer->in - i),
                         .n = pst_min_i64(grain->tile_cols, cols - j),
                         .from = rows * part / parts,
                         .to = rows * (part + 1) / parts,
                         .cols = cols,
                         .sum = sum + i * cols + j,
                         .beta = parts > 1 ? 0 : 1};
}

/* A tile of a' grad, for which the zeros that activations and dropout made are left out if that is faster. */
static void multiply_tile(const struct step *s, const struct tile *t, struct pst_twin_view a,
                          const pst_real *grad, int64_t ld)
{
    const int64_t rows = t->to - t->from;
    if (a.bf16)
        s->twin->gemm_sums(1, t->m, t->n, rows, &a, grad, ld, t->beta, &t->sum, t->cols);
    else if (!s->twin->gemm_zeros ||
             !s->twin->gemm_zeros(true, t->m, t->n, rows, a.at, a.ld, grad, ld, t->beta, t->sum, t->cols))
        s->twin->gemm(s->q, true, false, t->m, t->n, rows, 1, a.at, a.ld, grad, ld, t->beta, t->sum, t->cols,
                      1);
}

void pst_gnn_weight_tile(const struct step *s, int64_t number, struct pst_twin_view x, const pst_real *grad,
                         int64_t rows, int neigh, int worker)
{
    const struct tile t = tile_of(s, number, rows, neigh);
    const int64_t ld = pst_gnn_width(t.cols);
    TIMED(s, worker, PST_GNN_WORK_WEIGHTS,
          multiply_tile(s, &t, view_from(x, t.from, t.i), grad + t.from * ld + t.j, ld));
}

void pst_gnn_weight_tile_pair(const struct step *s, int64_t number, struct pst_twin_view x,
                              struct pst_twin_view mixed, const pst_real *grad, int64_t rows, int worker)
{
    const struct tile t = tile_of(s, number, rows, 0), u = tile_of(s, number, rows, 1);
    const int64_t ld = pst_gnn_width(t.cols);
    const struct pst_twin_view a[] = {view_from(x, t.from, t.i), view_from(mixed, t.from, t.i)};
    pst_real *const sum[] = {t.sum, u.sum};
    TIMED(
        s, worker, PST_GNN_WORK_WEIGHTS,
        s->twin->gemm_sums(2, t.m, t.n, t.to - t.from, a, grad + t.from * ld + t.j, ld, t.beta, sum, t.cols));
}

/* The number of tasks that add up the parts of one weight's gradient. */
static int64_t chunks_of(const struct step *s, int l, int neigh)
{
    const int64_t elements = s->model->layer[l].in * columns_of(&s->model->layer[l], neigh);
    return weight_at(&s->model->layer[l], neigh) >= 0 && s->pass->parts[l][neigh] > 1
               ? (elements + ADD_CHUNK - 1) / ADD_CHUNK
               : 0;
}

static void add_parts(const struct step *s, int l, int neigh, int64_t chunk)
{
    const struct pst_gnn_layer *layer = &s->model->layer[l];
    const int64_t elements = layer->in * columns_of(layer, neigh), at = chunk * ADD_CHUNK;
    const int64_t n = pst_min_i64(ADD_CHUNK, elements - at);
    for (int64_t part = 0; part < s->pass->parts[l][neigh]; part++)
        s->twin->add(s->q, s->model->on.grad + weight_at(layer, neigh) + at, n,
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
                TIMED(s, worker, PST_GNN_WORK_WEIGHTS, add_parts(s, l, neigh, task));
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

void pst_gnn_input_product(const struct step *s, const pst_real *grad, int64_t weight, bool add, pst_real *to,
                           int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int neigh = weight == layer->neigh;
    const int64_t ld = pst_gnn_width(columns_of(layer, neigh)), ld_x = pst_gnn_width(layer->in);
    if (n > 0)
        pst_gnn_product(s, s->l, neigh, true, n, view_at(grad + at * ld, ld), add, to + at * ld_x, ld_x,
                        worker);
}

/* Adds the gradients of inputs to those of the learned table. A minibatch has each vertex once, so blocks add
 * to different rows. */
static void learn_inputs(const struct step *s, int64_t at, int64_t n)
{
    const int64_t in = s->model->config.in, ld = pst_gnn_width(in), *vertices = s->batch->vertices + at;
    const struct pst_dropout drop = dropout_of(s->model, s->batch, -1);
    pst_real *grad = s->grad_x + at * ld;
    s->twin->bias_relu_dropout_grad(s->q, grad, ld, s->x[0].at + at * s->x[0].ld, s->x[0].ld, vertices, n, in,
                                    false, &drop, NULL);
    for (int64_t i = 0; i < n; i++)
        s->twin->add(s->q, s->model->on.grad + s->model->inputs + vertices[i] * in, in, grad + i * ld, ld, 1,
                     in);
}

void pst_gnn_enter_below(const struct step *s, int64_t block, int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t ld = pst_gnn_width(layer->out), ld_x = pst_gnn_width(layer->in);
    const int64_t dsts = pst_min_i64(n, s->pass->dst[s->l] - at);
    const pst_real *kept = layer->gain >= 0 ? real_at(s->model, s->pass->kept[s->l]) : s->grad;
    if (s->l == 0) {
        TIMED(s, worker, PST_GNN_WORK_FUSED, learn_inputs(s, at, n));
        return;
    }
    if (layer->residual && dsts > 0)
        TIMED(s, worker, PST_GNN_WORK_FUSED,
              s->twin->add(s->q, s->grad_x + at * ld_x, ld_x, kept + at * ld, ld, dsts, layer->out));
    TIMED(s, worker, PST_GNN_WORK_FUSED, activate_rows_grad(s, s->l - 1, s->grad_x, block, at, n));
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
        s->model->kind->backward(s);
    }
    add_all_parts(s);
}
