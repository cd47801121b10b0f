/* layer_sage.c: layers of GraphSAGE with mean aggregation, and the table of kinds (layer.h). */
#include "stages/lib/gnn/layer.h"

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    layer->self = pst_gnn_model_add(model, l, "weight_self", layer->in, layer->out);
    if (model->config.aggregate)
        layer->neigh = pst_gnn_model_add(model, l, "weight_neigh", layer->in, layer->out);
}

static void aggregate(const struct step *s, int64_t at, int64_t n, struct view in, pst_real *out,
                      int64_t ld_out, int64_t dim)
{
    const int h = block_of(s->model, s->l);
    s->twin->mean(s->q, s->batch->indptr[h] + at, s->batch->indices[h], n, in.at, in.ld, out + at * ld_out,
                  ld_out, dim);
}

static void scatter(const struct step *s, const pst_real *grad_out, pst_real *grad_in, int64_t ld,
                    int64_t dim)
{
    const int h = block_of(s->model, s->l);
    s->twin->mean_grad_n(s->q, s->batch->indptr[h], s->batch->indices[h], s->pass->dst[s->l],
                         s->batch->edges[h], s->pass->src[s->l], grad_out, ld, grad_in, ld, dim);
}

const struct pst_gnn_kind pst_gnn_kind_sage = {.name = "graphsage",
                                               .add_weights = add_weights,
                                               .forward = pst_gnn_linear_forward,
                                               .backward = pst_gnn_linear_backward,
                                               .aggregate = aggregate,
                                               .scatter = scatter};

const struct pst_gnn_kind *pst_gnn_kind_of(enum pst_gnn_model_kind model)
{
    static const struct pst_gnn_kind *const kinds[PST_GNN_MODEL_KINDS] = {[PST_GNN_GRAPHSAGE] =
                                                                              &pst_gnn_kind_sage,
                                                                          [PST_GNN_GCN] = &pst_gnn_kind_gcn,
                                                                          [PST_GNN_GAT] = &pst_gnn_kind_gat};
    return kinds[model];
}
