/* layer_sage.c: layers of GraphSAGE with mean aggregation, and the table of kinds (layer.h). */
#include "stages/lib/gnn/layer.h"

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    layer->self = pst_gnn_model_add(model, l, "weight_self", layer->in, layer->out);
    if (model->config.aggregate)
        layer->neigh = pst_gnn_model_add(model, l, "weight_neigh", layer->in, layer->out);
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    if (!model->config.aggregate)
        return;
    pass->self_weight[l] = pst_gnn_pass_take(pass, pass->dst[l], 1);
    pst_gnn_linear_take(model, pass, l);
}

/* A weighted mean is a weighted sum in which the own row counts 0. */
static void prepare(void *arg, int64_t l, int worker)
{
    const struct step *s = arg;
    if (!s->model->config.aggregate)
        return;
    if (s->batch->weights[block_of(s->model, (int)l)])
        clear(s, real_at(s->model, s->pass->self_weight[l]), s->pass->dst[l]);
    pst_gnn_linear_prepare(s, (int)l, worker);
}

static const pst_real *edge_weights(const struct step *s, int l)
{
    return s->batch->weights[block_of(s->model, l)];
}

const struct pst_gnn_kind pst_gnn_kind_sage = {.name = "graphsage",
                                               .reads_bf16 = true,
                                               .add_weights = add_weights,
                                               .take = take,
                                               .prepare = prepare,
                                               .forward = pst_gnn_linear_forward,
                                               .backward = pst_gnn_linear_backward,
                                               .edge_weights = edge_weights};

const struct pst_gnn_kind *pst_gnn_kind_of(enum pst_gnn_model_kind model)
{
    static const struct pst_gnn_kind *const kinds[PST_GNN_ALL_KINDS] = {
        [PST_GNN_GRAPHSAGE] = &pst_gnn_kind_sage, [PST_GNN_GCN] = &pst_gnn_kind_gcn,
        [PST_GNN_GAT] = &pst_gnn_kind_gat,        [PST_GNN_RGCN] = &pst_gnn_kind_rgcn,
        [PST_GNN_RSAGE] = &pst_gnn_kind_rsage,    [PST_GNN_RGAT] = &pst_gnn_kind_rgat};
    return kinds[model];
}
