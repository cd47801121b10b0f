/* layer_rgat.c: layers of R-GAT (layer.h): the vertices' own terms as in layer_relations.c, and attention
 * within each relation. A relation has its distinct sources as rows of its own (types.h): their input x, and
 * their products z = x W_r. The scores of destinations are x q_r. One task does all backward work of a
 * relation, so sums have a fixed order. */
#include "stages/lib/gnn/layer.h"

/* The columns of the input of a relation's destinations: 0 in the first layer if their type has no features.
 */
static int64_t in_of_target(const struct pst_gnn_model *model, int l, int k)
{
    return l == 0 ? model->config.types->dim[model->terms.term[k].target] : model->layer[l].in;
}

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    const struct pst_gat gat = pst_gnn_gat_of(model, l);
    const int64_t relations = model->config.types->relations;
    int64_t own = 0, sources = 0, targets = 0;
    for (int k = 0; k < model->terms.n; k++) {
        const bool relation = model->terms.term[k].relation >= 0;
        own += relation ? 0 : pst_gnn_in_of_term(model, l, k);
        sources += relation ? pst_gnn_in_of_term(model, l, k) : 0;
        targets += relation ? in_of_target(model, l, k) : 0;
    }
    layer->wide = gat.heads * gat.dim;
    layer->terms = pst_gnn_model_add(model, l, "weight_terms", own, layer->out);
    layer->relations = pst_gnn_model_add(model, l, "weight_relations", pst_max_i64(1, sources), layer->wide);
    model->parameter[model->parameters - 1].stacked = relations;
    layer->left = pst_gnn_model_add(model, l, "attention_left", pst_max_i64(1, targets), gat.heads);
    model->parameter[model->parameters - 1].stacked = relations;
    layer->right = pst_gnn_model_add(model, l, "attention_right", relations * gat.heads, gat.dim);
    model->parameter[model->parameters - 1].stacked = relations;
}

struct pst_gnn_attention pst_gnn_attention_of(const struct pst_gnn_model *model, int l, int k, pst_real *flat)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    const struct pst_gat gat = pst_gnn_gat_of(model, l);
    const int first = pst_gnn_first_relation(model);
    int64_t sources = 0, targets = 0;
    for (int before = first; before < k; before++) {
        sources += pst_gnn_in_of_term(model, l, before);
        targets += in_of_target(model, l, before);
    }
    return (struct pst_gnn_attention){
        .in = pst_gnn_in_of_term(model, l, k),
        .in_target = in_of_target(model, l, k),
        .weight = flat + layer->relations + sources * layer->wide,
        .left = flat + layer->left + targets * gat.heads,
        .right = flat + layer->right + (k - first) * layer->wide,
    };
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    const int64_t heads = model->config.heads, wide = pst_gnn_width(layer->wide), srcs = pass->term_srcs[l],
                  dsts = pass->term_rows[l], edges = pass->edges[l];
    pst_gnn_kind_rgcn.take(model, pass, l); /* of the own terms; and the input of a relation's destinations */
    pass->rgat[l] = (struct pst_gnn_pass_rgat){
        .x = pst_gnn_pass_take(pass, srcs, pst_gnn_width(layer->in)),
        .z = pst_gnn_pass_take(pass, srcs, wide),
        .right = pst_gnn_pass_take(pass, srcs, heads),
        .grad_z = pst_gnn_pass_take(pass, srcs, wide),
        .grad_right = pst_gnn_pass_take(pass, srcs, heads),
        .left = pst_gnn_pass_take(pass, dsts, heads),
        .grad_left = pst_gnn_pass_take(pass, dsts, heads),
        .alpha = pst_gnn_pass_take(pass, edges, heads),
        .grad_alpha = pst_gnn_pass_take(pass, edges, heads),
    };
}

/* A relation, as the tasks of a layer see it. */
struct relation {
    const struct pst_gnn_term_block *block;
    struct pst_gat gat;
    struct pst_gnn_attention weights, grads; /* and their gradients */
    int64_t ld_x, ld_z;
    pst_real *x, *x_dst; /* of its sources and destinations; then their gradients */
    pst_real *z, *right, *left, *alpha;
    pst_real *grad_z, *grad_right, *grad_left, *grad_alpha;
    pst_real *grad; /* rows of the block: gradients of what destinations get */
};

static struct relation relation_at(const struct step *s, int k)
{
    const struct pst_gnn_model *m = s->model;
    const struct pst_gnn_layer *layer = &m->layer[s->l];
    const struct pst_gnn_term_block *blocks = s->batch->typed->block[block_of(m, s->l)];
    const struct pst_gnn_pass_rgat *at = &s->pass->rgat[s->l];
    const int64_t heads = m->config.heads, ld_x = pst_gnn_width(layer->in), ld_z = pst_gnn_width(layer->wide);
    int64_t srcs = 0, dsts = 0, edges = 0;
    for (int before = 0; before < k; before++) {
        const bool relation = m->terms.term[before].relation >= 0;
        srcs += relation ? blocks[before].srcs : 0;
        edges += relation ? blocks[before].edges : 0;
        dsts += blocks[before].dsts;
    }
    return (struct relation){
        .block = &blocks[k],
        .gat = pst_gnn_gat_of(m, s->l),
        .weights = pst_gnn_attention_of(m, s->l, k, m->on.weight),
        .grads = pst_gnn_attention_of(m, s->l, k, m->on.grad),
        .ld_x = ld_x,
        .ld_z = ld_z,
        .x = real_at(m, at->x) + srcs * ld_x,
        .x_dst = real_at(m, s->pass->mixed[s->l]) + dsts * ld_x,
        .z = real_at(m, at->z) + srcs * ld_z,
        .right = real_at(m, at->right) + srcs * heads,
        .left = real_at(m, at->left) + dsts * heads,
        .alpha = real_at(m, at->alpha) + edges * heads,
        .grad_z = real_at(m, at->grad_z) + srcs * ld_z,
        .grad_right = real_at(m, at->grad_right) + srcs * heads,
        .grad_left = real_at(m, at->grad_left) + dsts * heads,
        .grad_alpha = real_at(m, at->grad_alpha) + edges * heads,
        .grad = real_at(m, s->pass->term_grad[s->l]) + dsts * pst_gnn_width(layer->out),
    };
}

/* Without features of its sources, a relation adds nothing. */
static bool is_empty(const struct relation *r)
{
    return r->block->edges == 0 || r->weights.in == 0;
}

/* ---- forward ------------------------------------------------------------------------------------ */

static void gather_input(const struct step *s, const int32_t *rows, int64_t n, int64_t columns, pst_real *to,
                         int64_t ld)
{
    const struct pst_twin_view x = s->x[s->l];
    s->twin->gather(s->q, x.at, (uint64_t)x.ld * sizeof *x.at, rows, to, (uint64_t)ld * sizeof *to, NULL, n,
                    (uint64_t)columns * sizeof *to);
}

/* The products and scores of a relation. */
static void products_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct relation r = relation_at(s, pst_gnn_first_relation(s->model) + (int)task);
    const int64_t heads = r.gat.heads, wide = heads * r.gat.dim;
    if (is_empty(&r))
        return;
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          gather_input(s, r.block->src, r.block->srcs, r.weights.in, r.x, r.ld_x));
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          gather_input(s, r.block->dst, r.block->dsts, r.weights.in_target, r.x_dst, r.ld_x));
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
          s->twin->gemm(s->q, false, false, r.block->srcs, wide, r.weights.in, 1, r.x, r.ld_x,
                        r.weights.weight, wide, 0, r.z, r.ld_z, 1));
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
          s->twin->gemm(s->q, false, false, r.block->dsts, heads, r.weights.in_target, 1, r.x_dst, r.ld_x,
                        r.weights.left, heads, 0, r.left, heads, 1));
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gat_scores(s->q, &r.gat, r.z, r.ld_z, r.block->srcs, r.weights.right, r.right));
}

static void enter(struct step *s)
{
    run_tasks(s, products_task, s->model->config.types->relations);
}

/* The relation's edges between its own rows, for the kernels of attention. */
static struct pst_block block_of_relation(const struct relation *r)
{
    return (struct pst_block){.indptr = r->block->indptr,
                              .indices = r->block->local,
                              .dsts = r->block->dsts,
                              .edges = r->block->edges,
                              .sources = r->block->srcs};
}

static const struct pst_dropout no_dropout = {.rate = 0};

/* Adds what rows at..at+n of the output get from their neighbours. Their entries in the block begin at
 * `first`, which is at most `at`, so each task writes its own rows of `product`. */
static void attend_rows(const struct step *s, const struct relation *r, int64_t at, int64_t n)
{
    const struct pst_block block = block_of_relation(r);
    const int64_t out = s->model->layer[s->l].out, ld = pst_gnn_width(out),
                  first = pst_gnn_entry_of(r->block, at), rows = pst_gnn_entry_of(r->block, at + n) - first;
    pst_real *y = real_at(s->model, s->pass->y[s->l]),
             *product = real_at(s->model, s->pass->product[s->l]) + at * ld;
    if (rows == 0)
        return;
    s->twin->gat_softmax(s->q, &block, &r->gat, first, rows, r->left, r->right, NULL, &no_dropout, r->alpha,
                         NULL);
    s->twin->gat_sum(s->q, &block, &r->gat, first, rows, r->alpha, NULL, &no_dropout, r->z, r->ld_z,
                     product - first * ld, ld);
    s->twin->mean_grad_n(s->q, s->batch->typed->identity, r->block->dst + first, rows, rows,
                         s->pass->dst[s->l], product, ld, y, ld, out);
}

static void forward(const struct step *s, int64_t at, int64_t n, int worker)
{
    const int first = pst_gnn_first_relation(s->model);
    pst_gnn_sum_terms(s, first, at, n, worker);
    for (int k = first; k < s->model->terms.n; k++) {
        const struct relation r = relation_at(s, k);
        if (!is_empty(&r))
            TIMED(s, worker, PST_GNN_WORK_MEANS, attend_rows(s, &r, at, n));
    }
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* From the gradient of the output to those of the scores and of z. */
static void attend_grads(const struct step *s, const struct relation *r)
{
    const struct pst_block block = block_of_relation(r);
    const int64_t heads = r->gat.heads, out = s->model->layer[s->l].out, ld = pst_gnn_width(out);
    const uint64_t row = (uint64_t)ld * sizeof(pst_real);
    clear(s, r->grad_z, r->block->srcs * r->ld_z);
    clear(s, r->grad_right, r->block->srcs * heads);
    s->twin->gather(s->q, s->grad, row, r->block->dst, r->grad, row, NULL, r->block->dsts,
                    (uint64_t)out * sizeof(pst_real));
    s->twin->gat_softmax_grad(s->q, &block, &r->gat, 0, r->block->dsts, r->left, r->right, r->alpha, NULL,
                              &no_dropout, r->z, r->ld_z, r->grad, ld, r->grad_alpha, NULL, r->grad_left);
    s->twin->gat_sum_grad(s->q, &block, &r->gat, 0, heads * r->gat.dim, r->alpha, NULL, &no_dropout, r->grad,
                          ld, r->grad_z, r->ld_z, r->grad_alpha, NULL, r->grad_right);
    s->twin->gat_scores_grad(s->q, &r->gat, r->z, r->ld_z, r->block->srcs, r->weights.right, r->grad_right,
                             r->grad_z, r->ld_z, r->grads.right);
}

/* The gradients of a relation's weights, and then of its inputs. */
static void relation_products(const struct step *s, const struct relation *r)
{
    const int64_t heads = r->gat.heads, wide = heads * r->gat.dim, srcs = r->block->srcs,
                  dsts = r->block->dsts, in = r->weights.in, in_target = r->weights.in_target;
    s->twin->gemm(s->q, true, false, in, wide, srcs, 1, r->x, r->ld_x, r->grad_z, r->ld_z, 1, r->grads.weight,
                  wide, 1);
    s->twin->gemm(s->q, true, false, in_target, heads, dsts, 1, r->x_dst, r->ld_x, r->grad_left, heads, 1,
                  r->grads.left, heads, 1);
    if (s->l == 0)
        return;
    s->twin->gemm(s->q, false, true, srcs, in, wide, 1, r->grad_z, r->ld_z, r->weights.weight, wide, 0, r->x,
                  r->ld_x, 1);
    s->twin->gemm(s->q, false, true, dsts, in_target, heads, 1, r->grad_left, heads, r->weights.left, heads,
                  0, r->x_dst, r->ld_x, 1);
}

/* First the vertices' own terms, then the relations. */
static void term_task(void *arg, int64_t k, int worker)
{
    const struct step *s = arg;
    if (k < pst_gnn_first_relation(s->model)) {
        pst_gnn_weigh_term_task(arg, k, worker);
        return;
    }
    const struct relation r = relation_at(s, (int)k);
    if (is_empty(&r))
        return;
    TIMED(s, worker, PST_GNN_WORK_MEANS, attend_grads(s, &r));
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS, relation_products(s, &r));
}

/* Adds rows of some columns to the gradient of the input. */
static void scatter_rows(const struct step *s, const int32_t *rows, int64_t n, const pst_real *grad,
                         int64_t at, int64_t columns)
{
    const int64_t ld = pst_gnn_width(s->model->layer[s->l].in);
    s->twin->mean_grad_n(s->q, s->batch->typed->identity, rows, n, n, s->pass->src[s->l], grad + at, ld,
                         s->grad_x + at, ld, columns);
}

static void scatter_task(void *arg, int64_t group, int worker)
{
    const struct step *s = arg;
    const int64_t at = group * s->model->grain.columns,
                  columns = pst_min_i64(s->model->grain.columns, s->model->layer[s->l].in - at);
    const int first = pst_gnn_first_relation(s->model);
    pst_gnn_scatter_terms(s, first, at, columns, worker);
    for (int k = first; k < s->model->terms.n; k++) {
        const struct relation r = relation_at(s, k);
        if (is_empty(&r))
            continue;
        TIMED(s, worker, PST_GNN_WORK_MEANS, scatter_rows(s, r.block->src, r.block->srcs, r.x, at, columns));
        TIMED(s, worker, PST_GNN_WORK_MEANS,
              scatter_rows(s, r.block->dst, r.block->dsts, r.x_dst, at, columns));
    }
}

static void backward(struct step *s)
{
    run_tasks(s, term_task, s->model->terms.n);
    if (s->l > 0)
        pst_gnn_input_of_terms(s, scatter_task);
}

const struct pst_gnn_kind pst_gnn_kind_rgat = {.name = "rgat",
                                               .elu = true,
                                               .typed = true,
                                               .add_weights = add_weights,
                                               .take = take,
                                               .enter = enter,
                                               .forward = forward,
                                               .backward = backward};
