/* eval_kinds.c: how the kinds of layers differ in an evaluation. */
#include <math.h>

#include "stages/lib/gnn/eval_impl.h"

/* ---- graphsage ---------------------------------------------------------------------------------- */

static pst_rc mean_sum(const struct pst_gnn_eval_job *job, int64_t at, int64_t first, int64_t n, pst_real *y,
                       int worker)
{
    (void)worker;
    return pst_k_mean_csc(NULL, &job->eval->graph, first, n, job->from, job->to, job->part, job->ld,
                          job->cursor + at, y, job->ld, job->model->layer[job->l].out);
}

static pst_rc sage_combine(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *kept,
                           pst_real *y, int worker)
{
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[job->l];
    (void)first;
    if (job->l == 0) {
        pst_k_add(NULL, y, job->ld, kept, eval->kept.ld, n, layer->out);
        return PST_OK;
    }
    pst_real *self = pst_gnn_eval_block(eval, worker, 0);
    pst_gnn_eval_product(job->model, kept, eval->kept.ld, n, layer, layer->self, self, eval->ld);
    pst_k_add(NULL, y, job->ld, self, eval->ld, n, layer->out);
    return PST_OK;
}

/* ---- gcn ---------------------------------------------------------------------------------------- */

/* With all neighbours, y_v = r_v (d_v mean(x'_u) + x'_v), where r_v = 1 / sqrt(d_v + 1), and x'_u = r_u x_u W
 * is what is stored. */
struct degrees {
    pst_real own[PST_GNN_EVAL_BLOCK], root[PST_GNN_EVAL_BLOCK]; /* d, r */
};

static void degrees_of(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, struct degrees *d)
{
    const int64_t *indptr = job->eval->graph.indptr + first;
    assert(n <= PST_GNN_EVAL_BLOCK);
    for (int64_t i = 0; i < n; i++) {
        const double degree = (double)(indptr[i + 1] - indptr[i]);
        d->own[i] = (pst_real)degree;
        d->root[i] = (pst_real)(1 / sqrt(degree + 1));
    }
}

static void gcn_projected(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, pst_real *rows)
{
    struct degrees d;
    degrees_of(job, first, n, &d);
    pst_k_scale_rows(NULL, rows, job->eval->projected.ld, n, job->model->layer[job->l].out, d.root);
}

static pst_rc gcn_combine(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *kept,
                          pst_real *y, int worker)
{
    const struct pst_gnn_eval *eval = job->eval;
    const int64_t out = job->model->layer[job->l].out;
    const pst_real *own;
    struct degrees d;
    (void)kept;
    const pst_rc rc = pst_gnn_rows_get(&eval->projected, first, n, pst_gnn_eval_block(eval, worker, 0), &own);
    if (rc != PST_OK)
        return rc;
    degrees_of(job, first, n, &d);
    pst_k_scale_rows(NULL, y, job->ld, n, out, d.own);
    pst_k_add(NULL, y, job->ld, own, eval->projected.ld, n, out);
    pst_k_scale_rows(NULL, y, job->ld, n, out, d.root);
    return PST_OK;
}

/* ---- the table ------------------------------------------------------------------------------------ */

const struct pst_gnn_eval_kind *pst_gnn_eval_kind_of(const struct pst_gnn_model *model)
{
    static const struct pst_gnn_eval_kind sage = {.sum = mean_sum, .combine = sage_combine},
                                          gcn = {.projected = gcn_projected,
                                                 .sum = mean_sum,
                                                 .combine = gcn_combine};
    static const struct pst_gnn_eval_kind *const kinds[PST_GNN_MODEL_KINDS] = {
        [PST_GNN_GRAPHSAGE] = &sage, [PST_GNN_GCN] = &gcn, [PST_GNN_GAT] = &pst_gnn_eval_kind_gat};
    return kinds[model->config.model];
}
