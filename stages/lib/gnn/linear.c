/* linear.c: forward and backward of layers that add up rows of neighbours and multiply by weights (layer.h:
 * graphsage, gcn). The sum and the product commute, so each layer does them in the cheaper order. */
#include "stages/lib/gnn/layer.h"

/* ---- sums over neighbours ------------------------------------------------------------------------ */

/* Are the sums of a layer rounded as they are made? Products then read them as they are. */
static bool rounds_sums(const struct step *s, int l)
{
    return s->twin->sum_rounded && !s->pass->project[l];
}

/* The sums of a layer that are made before the products. */
static struct pst_twin_view mixed_of(const struct step *s, int l)
{
    const pst_real *at = real_at(s->model, s->pass->mixed[l]);
    struct pst_twin_view mixed = view_at(at, pst_gnn_width(s->model->layer[l].in));
    if (rounds_sums(s, l)) {
        mixed.at = NULL;
        mixed.bf16 = (const uint16_t *)(const void *)at;
    }
    return mixed;
}

/* Sums over the neighbours of destinations at..at+n. out: the rows of all destinations. */
static void aggregate(const struct step *s, int64_t at, int64_t n, struct pst_twin_view in, pst_real *out,
                      int64_t ld_out, int64_t dim)
{
    const pst_real *weights = s->model->kind->edge_weights(s, s->l),
                   *self_weights = real_at(s->model, s->pass->self_weight[s->l]);
    const struct pst_block block = block_at(s, s->l);
    if (rounds_sums(s, s->l))
        s->twin->sum_rounded(&block, at, n, weights, self_weights, &in, (uint16_t *)(void *)out, ld_out, dim);
    else if (weights)
        s->twin->weighted_sum(s->q, &block, at, n, weights, self_weights, &in, out, ld_out, dim);
    else
        s->twin->mean(s->q, block.indptr + at, block.indices, n, &in, out + at * ld_out, ld_out, dim);
}

/* Is the gradient of what the layer adds up needed? */
static bool undoes_sums(const struct pst_gnn_model *model, const struct pst_gnn_pass *pass, int l)
{
    return pass->project[l] || has_input_grad(model, l);
}

void pst_gnn_linear_take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    if (model->twin->by_source && undoes_sums(model, pass, l))
        pass->by_source[l] =
            (struct pst_gnn_pass_by_source){.begin = pst_gnn_pass_take(pass, pass->src[l] + 1, 1),
                                            .dst = pst_gnn_pass_take(pass, pass->edges[l], 1),
                                            .weight = pst_gnn_pass_take(pass, pass->edges[l], 1)};
}

static struct pst_block_by_source by_source(const struct step *s, int l)
{
    const struct pst_gnn_pass_by_source *at = &s->pass->by_source[l];
    return (struct pst_block_by_source){.begin = (int32_t *)(void *)real_at(s->model, at->begin),
                                        .dst = (int32_t *)(void *)real_at(s->model, at->dst),
                                        .weight = real_at(s->model, at->weight)};
}

void pst_gnn_linear_prepare(const struct step *s, int l, int worker)
{
    struct pst_block_by_source edges = by_source(s, l);
    const struct pst_block block = block_at(s, l);
    if (s->twin->by_source && undoes_sums(s->model, s->pass, l))
        TIMED(s, worker, PST_GNN_WORK_MEANS,
              s->twin->by_source(&block, s->model->kind->edge_weights(s, l), &edges));
}

/* The gradient of aggregate on a device, for the whole block: adds to grad_in. */
static void spread_on_device(const struct step *s, const pst_real *grad_out, pst_real *grad_in, int64_t ld,
                             int64_t dim)
{
    const pst_real *weights = s->model->kind->edge_weights(s, s->l);
    const struct pst_block block = block_at(s, s->l);
    if (weights)
        s->twin->weighted_sum_grad(s->q, &block, weights, real_at(s->model, s->pass->self_weight[s->l]),
                                   grad_out, ld, grad_in, ld, dim);
    else
        s->twin->mean_grad_n(s->q, block.indptr, block.indices, block.dsts, block.edges, block.sources,
                             grad_out, ld, grad_in, ld, dim);
}

/* Sources at..at+n of the gradient of aggregate: adds to the first `kept` rows, and sets the others. */
static void spread(const struct step *s, int64_t at, int64_t n, const pst_real *grad_out, pst_real *grad_in,
                   int64_t kept, int64_t dim)
{
    const struct pst_block_by_source edges = by_source(s, s->l);
    const int64_t ld = pst_gnn_width(dim);
    const pst_real *self_weights =
        s->model->kind->edge_weights(s, s->l) ? real_at(s->model, s->pass->self_weight[s->l]) : NULL;
    if (s->twin->sum_by_source) {
        s->twin->sum_by_source(&edges, self_weights, s->pass->dst[s->l], at, n, kept, grad_out, ld, grad_in,
                               ld, dim);
        return;
    }
    assert(at == 0 && n == s->pass->src[s->l]);
    clear(s, grad_in + kept * ld, (n - kept) * ld);
    spread_on_device(s, grad_out, grad_in, ld, dim);
}

/* ---- forward ------------------------------------------------------------------------------------ */

static void aggregate_rows(const struct step *s, int64_t at, int64_t n, pst_real *y, int64_t ld, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t in = layer->in, out = layer->out;
    pst_real *mixed = real_at(s->model, s->pass->mixed[s->l]);
    if (s->pass->project[s->l]) {
        TIMED(s, worker, PST_GNN_WORK_MEANS, aggregate(s, at, n, view_at(mixed, ld), y, ld, out));
        return;
    }
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          aggregate(s, at, n, s->l == 0 ? s->features : s->x[s->l], mixed, pst_gnn_width(in), in));
    if (!makes_pairs(s, s->l))
        pst_gnn_product(s, s->l, 1, false, n, view_from(mixed_of(s, s->l), at, 0), false, y + at * ld, ld,
                        worker);
}

void pst_gnn_linear_forward(const struct step *s, int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t ld = pst_gnn_width(layer->out);
    const struct pst_twin_view x = view_from(s->x[s->l], at, 0);
    pst_real *y = real_at(s->model, s->pass->y[s->l]);
    if (layer->neigh >= 0)
        aggregate_rows(s, at, n, y, ld, worker);
    if (s->l == 0 && s->features.elsewhere && (layer->self >= 0 || layer->residual))
        TIMED(s, worker, PST_GNN_WORK_FUSED, pst_gnn_gather_rows(s, at, n));
    if (makes_pairs(s, s->l))
        pst_gnn_pair_product(s, n, x, view_from(mixed_of(s, s->l), at, 0), y + at * ld, ld, worker);
    else if (layer->self >= 0)
        pst_gnn_product(s, s->l, 0, false, n, x, layer->neigh >= 0, y + at * ld, ld, worker);
}

/* ---- backward ----------------------------------------------------------------------------------- */

static void self_tile(const struct step *s, int64_t number, int worker)
{
    pst_gnn_weight_tile(s, number, s->x[s->l], s->grad, s->pass->dst[s->l], 0, worker);
}

/* The gradient of projected rows is in `mixed`. The gradient of sums is in `grad`, and the sums are in
 * `mixed`. */
static void neigh_tile(const struct step *s, int64_t number, int worker)
{
    if (s->pass->project[s->l])
        pst_gnn_weight_tile(s, number, s->x[s->l], real_at(s->model, s->pass->mixed[s->l]),
                            s->pass->src[s->l], 1, worker);
    else
        pst_gnn_weight_tile(s, number, mixed_of(s, s->l), s->grad, s->pass->dst[s->l], 1, worker);
}

/* What W_self contributes to the gradient of input rows at..at+n. Only destinations have such a part. */
static void self_input(const struct step *s, bool add, int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t dsts = pst_max_i64(0, pst_min_i64(n, s->pass->dst[s->l] - at));
    if (layer->self >= 0)
        pst_gnn_input_product(s, s->grad, layer->self, add, s->grad_x, at, dsts, worker);
}

/* A block of the gradient of the layer's input, if nothing is scattered into it. */
static void input_rows(const struct step *s, int64_t block, int worker)
{
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    if (s->pass->project[s->l])
        pst_gnn_input_product(s, real_at(s->model, s->pass->mixed[s->l]), s->model->layer[s->l].neigh, false,
                              s->grad_x, at, n, worker);
    self_input(s, s->pass->project[s->l], at, n, worker);
    pst_gnn_enter_below(s, block, at, n, worker);
}

/* Product before sum, first half: the gradient of the projected rows, and of W_self. */
static void projected_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t blocks = blocks_of(s->model, s->pass->src[s->l]);
    if (task >= blocks) {
        self_tile(s, task - blocks, worker);
        return;
    }
    int64_t at;
    const int64_t n = rows_of(s->model, task, s->pass->src[s->l], &at);
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          spread(s, at, n, s->grad, real_at(s->model, s->pass->mixed[s->l]), 0, s->model->layer[s->l].out));
}

/* Second half: the gradients of W_neigh and of the input. */
static void projected_input_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t tiles = pst_gnn_weight_tiles(s, 1);
    if (task < tiles)
        neigh_tile(s, task, worker);
    else
        input_rows(s, task - tiles, worker);
}

/* There is no sum. */
static void plain_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t tiles = pst_gnn_weight_tiles(s, 0);
    if (task < tiles)
        self_tile(s, task, worker);
    else
        input_rows(s, task - tiles, worker);
}

/* The gradient of W_neigh comes with that of W_self if makes_pairs. */
static int64_t neigh_tiles(const struct step *s)
{
    return makes_pairs(s, s->l) ? 0 : pst_gnn_weight_tiles(s, 1);
}

static void pair_tile(const struct step *s, int64_t number, int worker)
{
    pst_gnn_weight_tile_pair(s, number, s->x[s->l], mixed_of(s, s->l), s->grad, s->pass->dst[s->l], worker);
}

/* Sum before product: the gradients of both weights, and what W_self contributes to the input's gradient. */
static void summed_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const int64_t selves = pst_gnn_weight_tiles(s, 0), tiles = selves + neigh_tiles(s);
    if (task < selves && makes_pairs(s, s->l)) {
        pair_tile(s, task, worker);
    } else if (task < selves) {
        self_tile(s, task, worker);
    } else if (task < tiles) {
        neigh_tile(s, task - selves, worker);
    } else {
        int64_t at;
        const int64_t n = rows_of(s->model, task - tiles, s->pass->dst[s->l], &at);
        self_input(s, false, at, n, worker);
    }
}

/* Then `mixed` is replaced by its own gradient. */
static void summed_mixed_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->dst[s->l], &at);
    pst_gnn_input_product(s, s->grad, s->model->layer[s->l].neigh, false,
                          real_at(s->model, s->pass->mixed[s->l]), at, n, worker);
}

/* Then sums are undone, for a block of sources. */
static void summed_sources_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          spread(s, at, n, real_at(s->model, s->pass->mixed[s->l]), s->grad_x,
                 layer->self >= 0 ? s->pass->dst[s->l] : 0, layer->in));
    pst_gnn_enter_below(s, block, at, n, worker);
}

void pst_gnn_linear_backward(struct step *s)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t selves = pst_gnn_weight_tiles(s, 0), neighs = pst_gnn_weight_tiles(s, 1),
                  sources = blocks_of(s->model, s->pass->src[s->l]),
                  dsts = blocks_of(s->model, s->pass->dst[s->l]);
    const bool inputs = needs_input_grad(s);
    if (layer->neigh < 0) {
        run_tasks(s, plain_task, selves + (inputs ? sources : 0));
    } else if (s->pass->project[s->l]) {
        run_tasks(s, projected_task, sources + selves);
        run_tasks(s, projected_input_task, neighs + (inputs ? sources : 0));
    } else {
        run_tasks(s, summed_task, selves + neigh_tiles(s) + (inputs ? dsts : 0));
        if (!inputs)
            return;
        run_tasks(s, summed_mixed_task, dsts);
        run_tasks(s, summed_sources_task, sources);
    }
}
