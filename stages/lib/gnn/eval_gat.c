/* eval_gat.c: layers of GAT in an evaluation. The scores of all vertices are in memory, so the largest score
 * and the sum of the exponentials of each destination and head come from the graph alone, before the first
 * row is read. Then rows are added up with their final coefficients, in the order of the edges, so the result
 * does not depend on the ranges of sources. */
#include <math.h>

#include "common/error.h"
#include "stages/lib/gnn/eval_impl.h"
#include "stages/lib/gnn/layer.h"

static void gat_projected(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, pst_real *rows)
{
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[job->l];
    const struct pst_gat gat = pst_gnn_gat_of(job->model, job->l);
    const int64_t ld = eval->projected.ld, at = first * gat.heads;
    pst_k_gat_scores(NULL, &gat, rows, ld, n, job->model->weight + layer->left, eval->left + at);
    pst_k_gat_scores(NULL, &gat, rows, ld, n, job->model->weight + layer->right, eval->right + at);
}

/* What a range of sources is added to. */
struct sums {
    const struct pst_gnn_eval_job *job;
    struct pst_gat gat;
    pst_real *state; /* of a destination: the largest score of each head, then 1 / sum of exponentials */
    pst_real *y;
    int64_t v; /* the destination */
};

static int64_t neighbour(const struct pst_csc *graph, int64_t edge)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[edge]
                                   : ((const int64_t *)graph->indices)[edge];
}

static pst_real score(const struct sums *s, int64_t u, int64_t h)
{
    const struct pst_gnn_eval *eval = s->job->eval;
    const pst_real sum = eval->left[s->v * s->gat.heads + h] + eval->right[u * s->gat.heads + h];
    return sum > 0 ? sum : (pst_real)PST_GAT_SLOPE * sum;
}

static pst_real larger(pst_real a, pst_real b)
{
    return a > b ? a : b;
}

/* Sets the state and y of a destination. PST_E_FORMAT: its neighbours are out of range. */
static pst_rc begin_vertex(const struct sums *s)
{
    const struct pst_csc *graph = &s->job->eval->graph;
    const int64_t begin = graph->indptr[s->v], end = graph->indptr[s->v + 1], heads = s->gat.heads;
    if (begin < 0 || begin > end || end > graph->edges)
        return PST_E_FORMAT;
    for (int64_t edge = begin; edge < end; edge++)
        if (neighbour(graph, edge) < 0 || neighbour(graph, edge) >= graph->vertices)
            return PST_E_FORMAT;
    for (int64_t h = 0; h < heads; h++) {
        pst_real most = score(s, s->v, h);
        for (int64_t edge = begin; edge < end; edge++)
            most = larger(most, score(s, neighbour(graph, edge), h));
        double sum = exp((double)(score(s, s->v, h) - most));
        for (int64_t edge = begin; edge < end; edge++)
            sum += exp((double)(score(s, neighbour(graph, edge), h) - most));
        s->state[h] = most;
        s->state[heads + h] = (pst_real)(1 / sum);
    }
    for (int64_t j = 0; j < heads * s->gat.dim; j++)
        s->y[j] = 0;
    return PST_OK;
}

/* Adds the row z of vertex u. */
static void add_row(const struct sums *s, int64_t u, const pst_real *z)
{
    const int64_t dim = s->gat.dim;
    for (int64_t h = 0; h < s->gat.heads; h++) {
        const pst_real alpha =
            (pst_real)exp((double)(score(s, u, h) - s->state[h])) * s->state[s->gat.heads + h];
        pst_real *restrict y = s->y + h * dim;
        const pst_real *restrict row = z + h * dim;
        for (int64_t j = 0; j < dim; j++)
            y[j] += alpha * row[j];
    }
}

/* Adds the vertex's own row, and averages the heads in the last layer. */
static void end_vertex(const struct sums *s, const pst_real *own)
{
    const int64_t dim = s->gat.dim, heads = s->gat.heads;
    add_row(s, s->v, own);
    for (int64_t j = 0; s->gat.average && j < dim; j++) {
        for (int64_t h = 1; h < heads; h++)
            s->y[j] += s->y[h * dim + j];
        s->y[j] /= (pst_real)heads;
    }
}

/* Adds the rows of the sources job->from..to. PST_E_FORMAT: the neighbours do not ascend. */
static pst_rc add_range(const struct sums *s, int64_t *cursor)
{
    const struct pst_gnn_eval_job *job = s->job;
    const struct pst_csc *graph = &job->eval->graph;
    const int64_t end = graph->indptr[s->v + 1];
    for (; *cursor < end; ++*cursor) {
        const int64_t u = neighbour(graph, *cursor);
        if (u < job->from)
            return PST_E_FORMAT;
        if (u >= job->to)
            break;
        add_row(s, u, job->part + (u - job->from) * job->ld);
    }
    return job->to == graph->vertices && *cursor < end ? PST_E_FORMAT : PST_OK;
}

static pst_rc gat_sum(const struct pst_gnn_eval_job *job, int64_t at, int64_t first, int64_t n, pst_real *y,
                      int worker)
{
    const struct pst_gnn_eval *eval = job->eval;
    const bool last = job->to == eval->ds->vertices;
    const pst_real *own = NULL;
    pst_rc rc = PST_OK;
    if (last)
        rc = pst_gnn_rows_get(&eval->projected, first, n, pst_gnn_eval_block(eval, worker, 0), &own);
    for (int64_t i = 0; i < n && rc == PST_OK; i++) {
        const struct sums s = {.job = job,
                               .gat = pst_gnn_gat_of(job->model, job->l),
                               .state = job->state + (at + i) * eval->state_reals,
                               .y = y + i * job->ld,
                               .v = first + i};
        if (job->from == 0) {
            job->cursor[at + i] = eval->graph.indptr[s.v];
            rc = begin_vertex(&s);
        }
        if (rc == PST_OK)
            rc = add_range(&s, &job->cursor[at + i]);
        if (rc == PST_OK && last)
            end_vertex(&s, own + i * job->ld);
    }
    return rc;
}

/* The sums have the vertex's own row. */
static pst_rc gat_combine(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *kept,
                          pst_real *y, int worker)
{
    (void)job;
    (void)first;
    (void)n;
    (void)kept;
    (void)y;
    (void)worker;
    return PST_OK;
}

const struct pst_gnn_eval_kind pst_gnn_eval_kind_gat = {
    .projected = gat_projected, .sum = gat_sum, .combine = gat_combine};
