/* layer_gat.c: layers of GAT (layer.h). A layer always multiplies first, because its coefficients depend on
 * the products z = x W, which are in `mixed`. */
#include "stages/lib/gnn/layer.h"

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    const struct pst_gat gat = pst_gnn_gat_of(model, l);
    layer->wide = gat.heads * gat.dim;
    layer->neigh = pst_gnn_model_add(model, l, "weight", layer->in, layer->wide);
    layer->left = pst_gnn_model_add(model, l, "attention_left", gat.heads, gat.dim);
    layer->right = pst_gnn_model_add(model, l, "attention_right", gat.heads, gat.dim);
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    const int64_t heads = model->config.heads, dst = pass->dst[l], src = pass->src[l], edges = pass->edges[l];
    pass->gat[l] =
        (struct pst_gnn_pass_gat){.left = pst_gnn_pass_take(pass, dst, heads),
                                  .right = pst_gnn_pass_take(pass, src, heads),
                                  .alpha = pst_gnn_pass_take(pass, edges, heads),
                                  .alpha_self = pst_gnn_pass_take(pass, dst, heads),
                                  .grad_z = pst_gnn_pass_take(pass, src, pst_gnn_width(model->layer[l].wide)),
                                  .grad_score = pst_gnn_pass_take(pass, edges, heads),
                                  .grad_self = pst_gnn_pass_take(pass, dst, heads),
                                  .grad_left = pst_gnn_pass_take(pass, dst, heads),
                                  .grad_right = pst_gnn_pass_take(pass, src, heads)};
}

/* What a layer's tasks work on. */
struct view_of_layer {
    struct pst_block block;
    struct pst_gat gat;
    struct pst_dropout drop;
    const struct pst_gnn_layer *layer;
    const pst_real *a_l, *a_r;
    pst_real *z, *left, *right, *alpha, *alpha_self;
    pst_real *grad_z, *grad_score, *grad_self, *grad_left, *grad_right;
    int64_t ld_z, ld; /* of z, of the output */
};

static struct view_of_layer view_of(const struct step *s, int l)
{
    const struct pst_gnn_model *m = s->model;
    const struct pst_gnn_layer *layer = &m->layer[l];
    const struct pst_gnn_pass_gat *at = &s->pass->gat[l];
    return (struct view_of_layer){.block = block_at(s, l),
                                  .gat = pst_gnn_gat_of(m, l),
                                  .drop = {.seed = m->config.seed,
                                           .epoch = s->batch->mb.epoch,
                                           .batch = s->batch->mb.batch,
                                           .layer = (uint32_t)l,
                                           .rate = (float)m->config.attention_dropout},
                                  .layer = layer,
                                  .a_l = m->on.weight + layer->left,
                                  .a_r = m->on.weight + layer->right,
                                  .z = real_at(m, s->pass->mixed[l]),
                                  .left = real_at(m, at->left),
                                  .right = real_at(m, at->right),
                                  .alpha = real_at(m, at->alpha),
                                  .alpha_self = real_at(m, at->alpha_self),
                                  .grad_z = real_at(m, at->grad_z),
                                  .grad_score = real_at(m, at->grad_score),
                                  .grad_self = real_at(m, at->grad_self),
                                  .grad_left = real_at(m, at->grad_left),
                                  .grad_right = real_at(m, at->grad_right),
                                  .ld_z = pst_gnn_width(layer->wide),
                                  .ld = pst_gnn_width(layer->out)};
}

/* ---- forward ------------------------------------------------------------------------------------ */

static void projected(const struct step *s, int l, int64_t at, int64_t n)
{
    const struct view_of_layer v = view_of(s, l);
    const int64_t dsts = pst_max_i64(0, pst_min_i64(n, v.block.dsts - at)), score = at * v.gat.heads;
    const pst_real *z = v.z + at * v.ld_z;
    s->twin->gat_scores(s->q, &v.gat, z, v.ld_z, n, v.a_r, v.right + score);
    if (dsts > 0)
        s->twin->gat_scores(s->q, &v.gat, z, v.ld_z, dsts, v.a_l, v.left + score);
}

static void forward(const struct step *s, int64_t at, int64_t n, int worker)
{
    const struct view_of_layer v = view_of(s, s->l);
    pst_real *y = real_at(s->model, s->pass->y[s->l]);
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gat_softmax(s->q, &v.block, &v.gat, at, n, v.left, v.right, s->batch->vertices, &v.drop,
                               v.alpha, v.alpha_self));
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gat_sum(s->q, &v.block, &v.gat, at, n, v.alpha, v.alpha_self, &v.drop, v.z, v.ld_z, y,
                           v.ld));
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* Blocks of destinations: the gradients of scores. Blocks of sources: clears what is added to next. */
static void scores_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct view_of_layer v = view_of(s, s->l);
    const int64_t blocks = blocks_of(s->model, v.block.dsts);
    int64_t at, n;
    if (task < blocks) {
        n = rows_of(s->model, task, v.block.dsts, &at);
        TIMED(s, worker, PST_GNN_WORK_MEANS,
              s->twin->gat_softmax_grad(s->q, &v.block, &v.gat, at, n, v.left, v.right, v.alpha, v.alpha_self,
                                        &v.drop, v.z, v.ld_z, s->grad, v.ld, v.grad_score, v.grad_self,
                                        v.grad_left));
        return;
    }
    n = rows_of(s->model, task - blocks, v.block.sources, &at);
    clear(s, v.grad_z + at * v.ld_z, n * v.ld_z);
    clear(s, v.grad_right + at * v.gat.heads, n * v.gat.heads);
}

/* Groups of columns of z: what sources get from sums. The first one also adds up the sources' scores. */
static void sources_task(void *arg, int64_t group, int worker)
{
    const struct step *s = arg;
    const struct view_of_layer v = view_of(s, s->l);
    const int64_t column = group * s->model->grain.columns;
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gat_sum_grad(s->q, &v.block, &v.gat, column,
                                pst_min_i64(s->model->grain.columns, v.layer->wide - column), v.alpha,
                                v.alpha_self, &v.drop, s->grad, v.ld, v.grad_z, v.ld_z, v.grad_score,
                                v.grad_self, group == 0 ? v.grad_right : NULL));
}

/* Blocks of sources: what z gets from scores; the block's part of the gradients of a_r and a_l. */
static void attention_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const struct view_of_layer v = view_of(s, s->l);
    int64_t at;
    const int64_t n = rows_of(s->model, block, v.block.sources, &at), score = at * v.gat.heads;
    const int64_t dsts = pst_max_i64(0, pst_min_i64(n, v.block.dsts - at));
    pst_real *sums = sums_of(s, block), *grad_z = v.grad_z + at * v.ld_z;
    const pst_real *z = v.z + at * v.ld_z;
    clear(s, sums, 2 * v.layer->wide);
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gat_scores_grad(s->q, &v.gat, z, v.ld_z, n, v.a_r, v.grad_right + score, grad_z, v.ld_z,
                                   sums));
    if (dsts > 0)
        TIMED(s, worker, PST_GNN_WORK_MEANS,
              s->twin->gat_scores_grad(s->q, &v.gat, z, v.ld_z, dsts, v.a_l, v.grad_left + score, grad_z,
                                       v.ld_z, sums + v.layer->wide));
}

static void add_attention(const struct step *s)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t n = layer->wide;
    for (int64_t b = 0; b < blocks_of(s->model, s->pass->src[s->l]); b++) {
        s->twin->add(s->q, s->model->on.grad + layer->right, n, sums_of(s, b), n, 1, n);
        s->twin->add(s->q, s->model->on.grad + layer->left, n, sums_of(s, b) + n, n, 1, n);
    }
}

static void products_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct view_of_layer v = view_of(s, s->l);
    const int64_t tiles = pst_gnn_weight_tiles(s, 1);
    int64_t at;
    if (task < tiles) {
        pst_gnn_weight_tile(s, task, s->x[s->l], v.grad_z, v.block.sources, 1, worker);
        return;
    }
    const int64_t n = rows_of(s->model, task - tiles, v.block.sources, &at);
    pst_gnn_input_product(s, v.grad_z, v.layer->neigh, false, s->grad_x, at, n, worker);
    pst_gnn_enter_below(s, task - tiles, at, n, worker);
}

static void backward(struct step *s)
{
    const int64_t sources = blocks_of(s->model, s->pass->src[s->l]), columns = s->model->grain.columns;
    run_tasks(s, scores_task, blocks_of(s->model, s->pass->dst[s->l]) + sources);
    run_tasks(s, sources_task, (s->model->layer[s->l].wide + columns - 1) / columns);
    run_tasks(s, attention_task, sources);
    TIMED(s, 0, PST_GNN_WORK_MEANS, add_attention(s));
    run_tasks(s, products_task, pst_gnn_weight_tiles(s, 1) + (s->l > 0 ? sources : 0));
}

const struct pst_gnn_kind pst_gnn_kind_gat = {.name = "gat",
                                              .elu = true,
                                              .reads_bf16 = true,
                                              .add_weights = add_weights,
                                              .take = take,
                                              .projected = projected,
                                              .forward = forward,
                                              .backward = backward};
