/* eval_rgat.c: attention within a relation in an evaluation (eval_relations.c). The scores of all vertices
 * are in memory, so the largest score and the sum of the exponentials of each destination and head come from
 * the graph alone, before the first row is added. */
#include <math.h>

#include "stages/lib/gnn/eval_impl.h"
#include "stages/lib/gnn/layer.h"

static int64_t id_at(const struct pst_csc *graph, int64_t e)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[e]
                                   : ((const int64_t *)graph->indices)[e];
}

static pst_real score_of(const struct pst_gnn_eval_job *job, int64_t v, int64_t u, int64_t h)
{
    const struct pst_gnn_eval *eval = job->eval;
    const int64_t heads = job->model->config.heads;
    const pst_real sum = eval->left[v * heads + h] + eval->right[u * heads + h];
    return sum > 0 ? sum : (pst_real)PST_GAT_SLOPE * sum;
}

void pst_gnn_eval_scores(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *z,
                         int64_t ld)
{
    const struct pst_gat gat = pst_gnn_gat_of(job->model, job->l);
    const struct pst_gnn_attention w =
        pst_gnn_attention_of(job->model, job->l, job->term, job->model->weight);
    pst_k_gat_scores(NULL, &gat, z, ld, n, w.right, job->eval->right + first * gat.heads);
}

void pst_gnn_eval_target_scores(const struct pst_gnn_eval_job *job, int64_t first, int64_t n,
                                const pst_real *x, int64_t ld_x)
{
    const int64_t heads = job->model->config.heads;
    const struct pst_gnn_attention w =
        pst_gnn_attention_of(job->model, job->l, job->term, job->model->weight);
    pst_k_gemm(NULL, false, false, n, heads, w.in_target, 1, x, ld_x, w.left, heads, 0,
               job->eval->left + first * heads, heads, 1);
}

pst_rc pst_gnn_eval_attention(const struct pst_gnn_eval_job *job, int64_t v, pst_real *state)
{
    const struct pst_csc *graph = &job->eval->graph;
    const struct pst_gnn_term *term = &job->model->terms.term[job->term];
    const int64_t *ids = job->model->config.types->first, heads = job->model->config.heads,
                  begin = graph->indptr[v], end = graph->indptr[v + 1];
    const int32_t *of = job->eval->ds->edge_relation.map;
    if (begin < 0 || end < begin || end > graph->edges)
        return PST_E_FORMAT;
    for (int64_t h = 0; h < heads; h++) {
        pst_real most = -(pst_real)INFINITY;
        double sum = 0;
        for (int64_t e = begin; e < end; e++) {
            const int64_t u = id_at(graph, e);
            if (of != NULL && of[e] != term->relation)
                continue;
            if (u < ids[term->source] || u >= ids[term->source + 1])
                return PST_E_FORMAT;
            const pst_real score = score_of(job, v, u, h);
            most = score > most ? score : most;
        }
        for (int64_t e = begin; e < end; e++)
            if (of == NULL || of[e] == term->relation)
                sum += exp((double)(score_of(job, v, id_at(graph, e), h) - most));
        state[h] = most;
        state[heads + h] = sum > 0 ? (pst_real)(1 / sum) : 0;
    }
    return PST_OK;
}

void pst_gnn_eval_attend(const struct pst_gnn_eval_job *job, int64_t v, int64_t u, const pst_real *state,
                         const pst_real *z, pst_real *y)
{
    const struct pst_gat gat = pst_gnn_gat_of(job->model, job->l);
    const pst_real share = gat.average ? (pst_real)1 / (pst_real)gat.heads : 1;
    for (int64_t h = 0; h < gat.heads; h++) {
        const pst_real alpha = share * state[gat.heads + h] *
                               (pst_real)exp((double)(score_of(job, v, u, h) - state[h])),
                       *restrict row = z + h * gat.dim;
        pst_real *restrict out = y + (gat.average ? 0 : h * gat.dim);
        for (int64_t j = 0; j < gat.dim; j++)
            out[j] += alpha * row[j];
    }
}
