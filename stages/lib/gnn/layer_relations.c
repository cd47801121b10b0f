/* layer_relations.c: layers of R-GCN and R-SAGE (layer.h): sums of terms (types.h). Each term takes the mean
 * of rows, multiplies it by the term's weight, and adds the product to its destinations. With an indptr of 0,
 * 1, 2, ..., the kernels of the mean copy rows from positions (mean), and add rows to positions (mean_grad).
 *
 * With bases, the weights W of all relations are one product before each pass, W = c V, where a row of W or V
 * is a whole matrix. The gradients of c and V are products with that of W. */
#include "stages/lib/gnn/layer.h"

/* The columns of a term's input. */
static int64_t in_of(const struct pst_gnn_model *model, int l, int k)
{
    return l == 0 ? model->config.types->dim[model->terms.term[k].source] : model->layer[l].in;
}

int pst_gnn_first_relation(const struct pst_gnn_model *model)
{
    return model->terms.n - model->config.types->relations;
}

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    const int64_t bases = model->config.bases;
    int64_t rows = 0;
    for (int k = 0; k < (bases > 0 ? pst_gnn_first_relation(model) : model->terms.n); k++)
        rows += in_of(model, l, k);
    layer->terms = pst_gnn_model_add(model, l, "weight_terms", rows, layer->out);
    if (bases == 0)
        return;
    layer->bases = pst_gnn_model_add(model, l, "weight_bases", bases * layer->in, layer->out);
    model->parameter[model->parameters - 1].stacked = bases;
    layer->coefficients = pst_gnn_model_add(model, l, "coefficients", model->config.types->relations, bases);
}

/* ---- bases -------------------------------------------------------------------------------------- */

/* From the weight of one relation to the next, in reals. */
static int64_t composed_ld(const struct pst_gnn_model *model, int l)
{
    return pst_gnn_width(model->layer[l].in * model->layer[l].out);
}

int64_t pst_gnn_composed_size(const struct pst_gnn_model *model, int l)
{
    return model->config.bases > 0 ? model->config.types->relations * composed_ld(model, l) : 0;
}

void pst_gnn_compose(const struct pst_gnn_model *model, const struct pst_twin *twin, struct pst_queue *q,
                     int l, const pst_real *flat, pst_real *composed)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    const int64_t bases = model->config.bases, size = layer->in * layer->out;
    if (bases > 0)
        twin->gemm(q, false, false, model->config.types->relations, size, bases, 1,
                   flat + layer->coefficients, bases, flat + layer->bases, size, 0, composed,
                   composed_ld(model, l), 1);
}

/* Task l of a pass. */
static void compose_task(void *arg, int64_t l, int worker)
{
    const struct step *s = arg;
    const int64_t n = pst_gnn_composed_size(s->model, (int)l);
    if (n == 0)
        return;
    TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
          pst_gnn_compose(s->model, s->twin, s->q, (int)l, s->model->on.weight,
                          real_at(s->model, s->pass->composed[l])));
    clear(s, real_at(s->model, s->pass->composed_grad[l]), n);
}

/* From the gradients of the relations' weights: task 0: those of the coefficients, task 1: of the bases. */
static void bases_task(void *arg, int64_t task, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t bases = s->model->config.bases, relations = s->model->config.types->relations,
                  size = layer->in * layer->out, ld = composed_ld(s->model, s->l);
    const pst_real *weight = s->model->on.weight, *from = real_at(s->model, s->pass->composed_grad[s->l]);
    pst_real *grad = s->model->on.grad;
    if (task == 0)
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm(s->q, false, true, relations, bases, size, 1, from, ld, weight + layer->bases,
                            size, 1, grad + layer->coefficients, bases, 1));
    else
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm(s->q, true, false, bases, size, relations, 1, weight + layer->coefficients, bases,
                            from, ld, 1, grad + layer->bases, size, 1));
}

/* ---- terms -------------------------------------------------------------------------------------- */

pst_real *pst_gnn_weight_of_term(const struct pst_gnn_model *model, int l, int k, pst_real *flat,
                                 pst_real *composed)
{
    const int relation = model->terms.term[k].relation;
    if (model->config.bases > 0 && relation >= 0)
        return composed + relation * composed_ld(model, l);
    int64_t at = model->layer[l].terms;
    for (int before = 0; before < k; before++)
        at += in_of(model, l, before) * model->layer[l].out;
    return flat + at;
}

int64_t pst_gnn_in_of_term(const struct pst_gnn_model *model, int l, int k)
{
    return in_of(model, l, k);
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    pass->mixed[l] = pst_gnn_pass_take(pass, pass->term_rows[l], pst_gnn_width(layer->in));
    pass->term_grad[l] = pst_gnn_pass_take(pass, pass->term_rows[l], pst_gnn_width(layer->out));
    pass->product[l] = pst_gnn_pass_take(pass, pass->dst[l], pst_gnn_width(layer->out));
    pass->composed[l] = pst_gnn_pass_take(pass, 1, pst_gnn_composed_size(model, l));
    pass->composed_grad[l] = pst_gnn_pass_take(pass, 1, pst_gnn_composed_size(model, l));
}

struct pst_gnn_view_of_term pst_gnn_view_term(const struct step *s, int k)
{
    const struct pst_gnn_model *m = s->model;
    const struct pst_gnn_layer *layer = &m->layer[s->l];
    const struct pst_gnn_term_block *blocks = s->batch->typed->block[block_of(m, s->l)];
    int64_t before = 0;
    for (int i = 0; i < k; i++)
        before += blocks[i].dsts;
    return (struct pst_gnn_view_of_term){
        .block = &blocks[k],
        .in = in_of(m, s->l, k),
        .weight = pst_gnn_weight_of_term(m, s->l, k, m->on.weight, real_at(m, s->pass->composed[s->l])),
        .weight_grad =
            pst_gnn_weight_of_term(m, s->l, k, m->on.grad, real_at(m, s->pass->composed_grad[s->l])),
        .mixed = real_at(m, s->pass->mixed[s->l]) + before * pst_gnn_width(layer->in),
        .grad = real_at(m, s->pass->term_grad[s->l]) + before * pst_gnn_width(layer->out),
    };
}

int64_t pst_gnn_entry_of(const struct pst_gnn_term_block *block, int64_t row)
{
    int64_t from = 0, to = block->dsts;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        if (block->dst[middle] < row)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* A block whose edges have weights, as the kernels of weighted sums see it. */
static struct pst_block weighted_block(const struct step *s, const struct pst_gnn_term_block *block)
{
    return (struct pst_block){.indptr = block->indptr,
                              .indices = block->indices,
                              .dsts = block->dsts,
                              .edges = block->edges,
                              .sources = s->pass->src[s->l]};
}

/* The means of a term, from its entry `first` on. */
static void mean_of_term(const struct step *s, const struct pst_gnn_view_of_term *t, int64_t first,
                         int64_t rows)
{
    const struct pst_twin_view x = s->x[s->l];
    const int64_t ld = pst_gnn_width(s->model->layer[s->l].in);
    if (t->block->weight == NULL) {
        s->twin->mean(s->q, t->block->indptr + first, t->block->indices, rows, &x, t->mixed + first * ld, ld,
                      t->in);
        return;
    }
    const struct pst_block block = weighted_block(s, t->block);
    s->twin->weighted_sum(s->q, &block, first, rows, t->block->weight, NULL, &x, t->mixed, ld, t->in);
}

/* ---- forward ------------------------------------------------------------------------------------ */

void pst_gnn_sum_terms(const struct step *s, int terms, int64_t at, int64_t n, int worker)
{
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int32_t *identity = s->batch->typed->identity;
    const int64_t ld = pst_gnn_width(layer->out), ld_in = pst_gnn_width(layer->in);
    pst_real *y = real_at(s->model, s->pass->y[s->l]),
             *product = real_at(s->model, s->pass->product[s->l]) + at * ld;
    clear(s, y + at * ld, n * ld);
    for (int k = 0; k < terms; k++) {
        const struct pst_gnn_view_of_term t = pst_gnn_view_term(s, k);
        const int64_t first = pst_gnn_entry_of(t.block, at), rows = pst_gnn_entry_of(t.block, at + n) - first;
        pst_real *mixed = t.mixed + first * ld_in;
        if (rows == 0 || t.in == 0)
            continue;
        TIMED(s, worker, PST_GNN_WORK_MEANS, mean_of_term(s, &t, first, rows));
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm(s->q, false, false, rows, layer->out, t.in, 1, mixed, ld_in, t.weight, layer->out,
                            0, product, ld, 1));
        TIMED(s, worker, PST_GNN_WORK_MEANS,
              s->twin->mean_grad_n(s->q, identity, t.block->dst + first, rows, rows, s->pass->dst[s->l],
                                   product, ld, y, ld, layer->out));
    }
}

static void forward(const struct step *s, int64_t at, int64_t n, int worker)
{
    pst_gnn_sum_terms(s, s->model->terms.n, at, n, worker);
}

/* ---- backward ----------------------------------------------------------------------------------- */

void pst_gnn_weigh_term_task(void *arg, int64_t k, int worker)
{
    const struct step *s = arg;
    const struct pst_gnn_layer *layer = &s->model->layer[s->l];
    const int64_t out = layer->out, ld = pst_gnn_width(out), ld_in = pst_gnn_width(layer->in);
    const struct pst_gnn_view_of_term t = pst_gnn_view_term(s, (int)k);
    const uint64_t row = (uint64_t)ld * sizeof(pst_real);
    if (t.block->dsts == 0 || t.in == 0)
        return;
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gather(s->q, s->grad, row, t.block->dst, t.grad, row, NULL, t.block->dsts,
                          (uint64_t)out * sizeof(pst_real)));
    TIMED(s, worker, PST_GNN_WORK_WEIGHTS,
          s->twin->gemm(s->q, true, false, t.in, out, t.block->dsts, 1, t.mixed, ld_in, t.grad, ld, 1,
                        t.weight_grad, out, 1));
    if (s->l > 0)
        TIMED(s, worker, PST_GNN_WORK_PRODUCTS,
              s->twin->gemm(s->q, false, true, t.block->dsts, t.in, out, 1, t.grad, ld, t.weight, out, 0,
                            t.mixed, ld_in, 1));
}

static void clear_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const int64_t ld = pst_gnn_width(s->model->layer[s->l].in);
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    (void)worker;
    clear(s, s->grad_x + at * ld, n * ld);
}

/* The gradient of the means of a term, for some columns of the input. */
static void spread_term(const struct step *s, const struct pst_gnn_view_of_term *t, int64_t at,
                        int64_t columns)
{
    const int64_t ld = pst_gnn_width(s->model->layer[s->l].in);
    if (t->block->weight == NULL) {
        s->twin->mean_grad_n(s->q, t->block->indptr, t->block->indices, t->block->dsts, t->block->edges,
                             s->pass->src[s->l], t->mixed + at, ld, s->grad_x + at, ld, columns);
        return;
    }
    const struct pst_block block = weighted_block(s, t->block);
    s->twin->weighted_sum_grad(s->q, &block, t->block->weight, NULL, t->mixed + at, ld, s->grad_x + at, ld,
                               columns);
}

void pst_gnn_scatter_terms(const struct step *s, int terms, int64_t at, int64_t columns, int worker)
{
    for (int k = 0; k < terms; k++) {
        const struct pst_gnn_view_of_term t = pst_gnn_view_term(s, k);
        if (t.block->dsts > 0)
            TIMED(s, worker, PST_GNN_WORK_MEANS, spread_term(s, &t, at, columns));
    }
}

static void scatter_task(void *arg, int64_t group, int worker)
{
    const struct step *s = arg;
    const int64_t at = group * s->model->grain.columns;
    pst_gnn_scatter_terms(s, s->model->terms.n, at,
                          pst_min_i64(s->model->grain.columns, s->model->layer[s->l].in - at), worker);
}

static void enter_below_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    int64_t at;
    const int64_t n = rows_of(s->model, block, s->pass->src[s->l], &at);
    pst_gnn_enter_below(s, block, at, n, worker);
}

void pst_gnn_input_of_terms(struct step *s, pst_team_task *scatter)
{
    const int64_t blocks = blocks_of(s->model, s->pass->src[s->l]), columns = s->model->grain.columns;
    run_tasks(s, clear_task, blocks);
    run_tasks(s, scatter, (s->model->layer[s->l].in + columns - 1) / columns);
    run_tasks(s, enter_below_task, blocks);
}

static void backward(struct step *s)
{
    run_tasks(s, pst_gnn_weigh_term_task, s->model->terms.n);
    if (s->model->config.bases > 0)
        run_tasks(s, bases_task, 2);
    if (s->l > 0)
        pst_gnn_input_of_terms(s, scatter_task);
}

#define KIND(name_, each_)                                                                                   \
    {                                                                                                        \
        .name = name_, .typed = true, .each_relation = each_, .add_weights = add_weights, .take = take,      \
        .prepare = compose_task, .forward = forward, .backward = backward                                    \
    }
const struct pst_gnn_kind pst_gnn_kind_rgcn = KIND("rgcn", false), pst_gnn_kind_rsage = KIND("rsage", true);
