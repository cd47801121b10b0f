/* layer_gcn.c: layers of GCN (layer.h). The weights of all blocks are computed when a pass begins. */
#include "stages/lib/gnn/layer.h"

static void add_weights(struct pst_gnn_model *model, int l)
{
    struct pst_gnn_layer *layer = &model->layer[l];
    layer->neigh = pst_gnn_model_add(model, l, "weight", layer->in, layer->out);
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l)
{
    pass->weight[l] = pst_gnn_pass_take(pass, pass->edges[l], 1);
    pass->self_weight[l] = pst_gnn_pass_take(pass, pass->dst[l], 1);
    pst_gnn_linear_take(model, pass, l);
}

static void prepare(void *arg, int64_t l, int worker)
{
    const struct step *s = arg;
    const int h = block_of(s->model, (int)l);
    TIMED(s, worker, PST_GNN_WORK_MEANS,
          s->twin->gcn_weights(s->q, s->batch->indptr[h], s->batch->indices[h], s->pass->dst[l],
                               s->batch->degrees, s->batch->weights[h], real_at(s->model, s->pass->weight[l]),
                               real_at(s->model, s->pass->self_weight[l])));
    pst_gnn_linear_prepare(s, (int)l, worker);
}

static const pst_real *edge_weights(const struct step *s, int l)
{
    return real_at(s->model, s->pass->weight[l]);
}

const struct pst_gnn_kind pst_gnn_kind_gcn = {.name = "gcn",
                                              .needs_degrees = true,
                                              .reads_bf16 = true,
                                              .add_weights = add_weights,
                                              .take = take,
                                              .prepare = prepare,
                                              .forward = pst_gnn_linear_forward,
                                              .backward = pst_gnn_linear_backward,
                                              .edge_weights = edge_weights};
