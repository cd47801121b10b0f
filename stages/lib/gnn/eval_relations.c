/* eval_relations.c: evaluates models of relations (layer_relations.c), layer by layer. A layer's terms are
 * added one after the other. First come the vertices' own terms, in one pass over the layer's input. Then,
 * for each relation, one pass over the rows of its source type makes the products with the relation's weight,
 * and their means are added to the rows of its target type: range by range, if they do not fit in memory. So
 * no row is read at random. */
#include "stages/lib/gnn/eval_impl.h"
#include "stages/lib/gnn/layer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

enum { BATCH_BLOCKS = 16 }; /* tasks of each thread between two looks at the progress */

/* The rows of the layer's input. buffer: of kept rows. */
static pst_rc input_of(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, int worker,
                       pst_real *buffer, const pst_real **x, int64_t *ld)
{
    if (job->l == 0)
        return pst_gnn_eval_features(job, first, n, worker, x, ld);
    *ld = job->eval->kept.ld;
    return pst_gnn_rows_get(&job->eval->kept, first, n, buffer, x);
}

/* y = x W, or y += x W. */
static void add_product(const struct pst_gnn_eval_job *job, int k, const pst_real *x, int64_t ld_x, int64_t n,
                        bool add, pst_real *y, int64_t ld)
{
    const int64_t in = pst_gnn_in_of_term(job->model, job->l, k), out = job->model->layer[job->l].out;
    if (in > 0)
        pst_k_gemm(NULL, false, false, n, out, in, 1, x, ld_x,
                   pst_gnn_weight_of_term(job->model, job->l, k, job->model->weight, job->composed), out,
                   add ? 1 : 0, y, ld, 1);
    for (int64_t i = 0; i < n && in == 0 && !add; i++)
        memset(y + i * ld, 0, (size_t)out * sizeof *y);
}

/* Runs a job over vertices first..first+rows, in parts between which progress is shown. */
static pst_rc run_all(struct pst_gnn_eval_job *job, pst_team_task *task, int64_t first, int64_t rows)
{
    const int64_t batch = (int64_t)job->eval->threads * BATCH_BLOCKS * PST_GNN_EVAL_BLOCK;
    pst_rc rc = PST_OK;
    for (int64_t at = 0; at < rows && rc == PST_OK; at += batch) {
        job->first = first + at;
        job->rows = pst_min_i64(batch, rows - at);
        rc = pst_gnn_eval_run_job(job, task);
        if (rc == PST_OK)
            rc = pst_progress_add(job->eval->options.progress, (uint64_t)job->rows);
    }
    return rc;
}

static int64_t rows_of_type(const struct pst_gnn_model *model, int type)
{
    const struct pst_gnn_types *t = model->config.types;
    return t->first[type + 1] - t->first[type];
}

/* ---- own terms ---------------------------------------------------------------------------------- */

/* The own terms of a block of one type: job->term is the type. */
static void own_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_terms *terms = &job->model->terms;
    const int64_t out = job->model->layer[job->l].out;
    int64_t first, ld_x = 0;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    const pst_real *x = NULL;
    bool added = false;
    if (atomic_load(&eval->failure.there))
        return;
    pst_rc rc = input_of(job, first, n, worker, pst_gnn_eval_block(eval, worker, 0), &x, &ld_x);
    pst_real *y = pst_gnn_rows_make(&eval->added, first, pst_gnn_eval_block(eval, worker, 1));
    for (int k = 0; k < terms->n && rc == PST_OK; k++) {
        if (terms->term[k].relation >= 0 || terms->term[k].target != job->term)
            continue;
        add_product(job, k, x, ld_x, n, added, y, eval->added.ld);
        added = true;
    }
    for (int64_t i = 0; i < n && !added; i++)
        memset(y + i * eval->added.ld, 0, (size_t)out * sizeof *y);
    if (rc == PST_OK)
        rc = pst_gnn_rows_put(&eval->added, first, n, y);
    pst_gnn_eval_task_ends(job->eval, rc);
}

static pst_rc own_terms(struct pst_gnn_eval_job *job)
{
    const struct pst_gnn_types *types = job->model->config.types;
    pst_rc rc = PST_OK;
    pst_gnn_eval_begin(job->eval, "own rows", job->l, (uint64_t)job->eval->ds->vertices, false);
    for (job->term = 0; job->term < types->types && rc == PST_OK; job->term++)
        rc = run_all(job, own_task, types->first[job->term], rows_of_type(job->model, job->term));
    if (rc == PST_OK)
        pst_progress_end(job->eval->options.progress);
    return rc;
}

static bool attends(const struct pst_gnn_eval_job *job)
{
    return job->model->config.model == PST_GNN_RGAT;
}

/* The products of a block with the weight of a relation; with attention, the scores too. */
static void project(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *x,
                    int64_t ld_x, pst_real *y)
{
    const int64_t ld = job->eval->projected.ld, wide = job->model->layer[job->l].wide;
    if (!attends(job)) {
        add_product(job, job->term, x, ld_x, n, false, y, ld);
        return;
    }
    const struct pst_gnn_attention w =
        pst_gnn_attention_of(job->model, job->l, job->term, job->model->weight);
    pst_k_gemm(NULL, false, false, n, wide, w.in, 1, x, ld_x, w.weight, wide, 0, y, ld, 1);
    pst_gnn_eval_scores(job, first, n, y, ld);
}

/* ---- relations ---------------------------------------------------------------------------------- */

static void product_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    const struct pst_gnn_eval *eval = job->eval;
    int64_t first, ld_x = 0;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    const pst_real *x = NULL;
    if (atomic_load(&eval->failure.there))
        return;
    pst_rc rc = input_of(job, first, n, worker, pst_gnn_eval_block(eval, worker, 0), &x, &ld_x);
    if (rc == PST_OK) {
        pst_real *y = pst_gnn_rows_make(&eval->projected, first, pst_gnn_eval_block(eval, worker, 1));
        project(job, first, n, x, ld_x, y);
        rc = pst_gnn_rows_put(&eval->projected, first, n, y);
    }
    pst_gnn_eval_task_ends(job->eval, rc);
}

/* With attention: the scores of a block of destinations. */
static void target_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    const struct pst_gnn_eval *eval = job->eval;
    int64_t first, ld_x = 0;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    const pst_real *x = NULL;
    if (atomic_load(&eval->failure.there))
        return;
    const pst_rc rc = input_of(job, first, n, worker, pst_gnn_eval_block(eval, worker, 0), &x, &ld_x);
    if (rc == PST_OK)
        pst_gnn_eval_target_scores(job, first, n, x, ld_x);
    pst_gnn_eval_task_ends(job->eval, rc);
}

static int64_t id_at(const struct pst_csc *graph, int64_t e)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[e]
                                   : ((const int64_t *)graph->indices)[e];
}

/* Adds the neighbours job->from..to of one vertex to y: each has the same share, or with attention, what its
 * coefficients say. *cursor: how far the vertex's list is read. Sources ascend within the list. */
static pst_rc add_neighbours(const struct pst_gnn_eval_job *job, int64_t v, int64_t *cursor,
                             const pst_real *state, pst_real *y)
{
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_csc *graph = &eval->graph;
    const int32_t relation = job->model->terms.term[job->term].relation, *of = eval->ds->edge_relation.map;
    const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1], out = job->model->layer[job->l].out;
    int64_t count = 0;
    if (begin < 0 || end < begin || end > graph->edges)
        return PST_E_FORMAT;
    for (int64_t e = begin; e < end; e++)
        count += of == NULL || of[e] == relation;
    const pst_real share = count > 0 ? (pst_real)1 / (pst_real)count : 0;
    for (; *cursor < end && id_at(graph, *cursor) < job->to; ++*cursor) {
        const int64_t u = id_at(graph, *cursor);
        if (of != NULL && of[*cursor] != relation)
            continue;
        if (u < job->from)
            return PST_E_FORMAT;
        const pst_real *row = job->part + (u - job->from) * job->ld;
        if (attends(job))
            pst_gnn_eval_attend(job, v, u, state, row, y);
        for (int64_t j = 0; j < out && !attends(job); j++)
            y[j] += share * row[j];
    }
    return PST_OK;
}

/* A block of destinations: their sums are read before the first part of the sources is added, and written
 * after the last one. job->state has the place of the end of the sources. */
static void mean_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_types *types = job->model->config.types;
    const int source = job->model->terms.term[job->term].source;
    const int64_t at = task * PST_GNN_EVAL_BLOCK, ld = job->ld_sum;
    int64_t first;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    pst_real *state = job->state + at * eval->state_reals, *sums = job->sums + at * ld;
    const pst_real *before;
    pst_rc rc = PST_OK;
    (void)worker;
    if (atomic_load(&eval->failure.there))
        return;
    if (job->from == types->first[source]) {
        rc = pst_gnn_rows_get(&eval->added, first, n, sums, &before);
        if (rc == PST_OK && before != sums)
            memcpy(sums, before, (size_t)(n * ld) * sizeof *sums);
        for (int64_t i = 0; i < n; i++)
            job->cursor[at + i] = eval->graph.indptr[first + i];
        for (int64_t i = 0; i < n && rc == PST_OK && attends(job); i++)
            rc = pst_gnn_eval_attention(job, first + i, state + i * eval->state_reals);
    }
    for (int64_t i = 0; i < n && rc == PST_OK; i++)
        rc = add_neighbours(job, first + i, &job->cursor[at + i], state + i * eval->state_reals,
                            sums + i * ld);
    if (rc == PST_E_FORMAT)
        rc = pst_fail(rc,
                      "%s or %s: the neighbours of vertices %" PRId64 " to %" PRId64
                      " are out of range or not in order; `penstock verify` shows details",
                      eval->ds->indptr.path, eval->ds->indices.path, first, first + n - 1);
    if (rc == PST_OK && job->to == types->first[source + 1]) {
        pst_real *y = pst_gnn_rows_make(&eval->added, first, sums);
        if (y != sums)
            memcpy(y, sums, (size_t)(n * ld) * sizeof *y);
        rc = pst_gnn_rows_put(&eval->added, first, n, y);
    }
    pst_gnn_eval_task_ends(eval, rc);
}

/* The means of one relation, for all vertices of its target type. */
static pst_rc add_means(struct pst_gnn_eval_job *job)
{
    struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_types *types = job->model->config.types;
    const struct pst_gnn_term *term = &job->model->terms.term[job->term];
    const int64_t sources = types->first[term->source + 1], end = types->first[term->target + 1],
                  ld = job->ld;
    const size_t share = eval->spilled ? eval->work_bytes / PST_GNN_EVAL_SHARE : 0;
    const int64_t part = eval->spilled ? pst_gnn_eval_blocks(share / ((size_t)ld * sizeof(pst_real)))
                                       : pst_max_i64(1, rows_of_type(job->model, term->source));
    const int64_t range =
        pst_gnn_eval_blocks((eval->work_bytes - share) / pst_gnn_eval_sum_bytes(eval, eval->ld));
    pst_real *room = (pst_real *)(void *)eval->work;
    pst_rc rc = PST_OK;
    job->sums = eval->spilled ? room + part * ld : room;
    job->state = job->sums + range * job->ld_sum;
    job->cursor = (int64_t *)(void *)(job->state + range * eval->state_reals);
    for (int64_t at = types->first[term->target]; at < end && rc == PST_OK; at += range) {
        for (job->from = types->first[term->source]; job->from < sources && rc == PST_OK;
             job->from = job->to) {
            job->to = pst_min_i64(sources, job->from + part);
            rc = pst_gnn_eval_fetch_part(job, room);
            job->first = at;
            job->rows = pst_min_i64(range, end - at);
            if (rc == PST_OK)
                rc = pst_gnn_eval_run_job(job, mean_task);
        }
        if (rc == PST_OK)
            rc = pst_progress_add(eval->options.progress, (uint64_t)pst_min_i64(range, end - at));
    }
    return rc;
}

static pst_rc relation_terms(struct pst_gnn_eval_job *job)
{
    const struct pst_gnn_model *model = job->model;
    const struct pst_gnn_types *types = model->config.types;
    pst_rc rc = PST_OK;
    for (job->term = 0; job->term < model->terms.n && rc == PST_OK; job->term++) {
        const struct pst_gnn_term *t = &model->terms.term[job->term];
        if (t->relation < 0 || pst_gnn_in_of_term(model, job->l, job->term) == 0)
            continue;
        const int64_t sources = rows_of_type(model, t->source), targets = rows_of_type(model, t->target);
        pst_gnn_eval_begin(job->eval, "relation", job->l,
                           (uint64_t)(sources + (attends(job) ? 2 : 1) * targets), false);
        rc = run_all(job, product_task, types->first[t->source], sources);
        if (rc == PST_OK && attends(job))
            rc = run_all(job, target_task, types->first[t->target], targets);
        if (rc == PST_OK)
            rc = add_means(job);
        if (rc == PST_OK)
            pst_progress_end(job->eval->options.progress);
    }
    return rc;
}

/* ---- the layers --------------------------------------------------------------------------------- */

static void finish_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[job->l];
    const int64_t ld = job->ld_sum;
    int64_t first;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    pst_real *y = pst_gnn_eval_block(eval, worker, 0);
    const pst_real *added, *kept = NULL;
    if (atomic_load(&eval->failure.there))
        return;
    pst_rc rc = pst_gnn_rows_get(&eval->added, first, n, y, &added);
    if (rc == PST_OK && added != y)
        memcpy(y, added, (size_t)(n * ld) * sizeof *y);
    if (rc == PST_OK && layer->residual)
        rc = pst_gnn_rows_get(&eval->kept, first, n, pst_gnn_eval_block(eval, worker, 1), &kept);
    if (rc == PST_OK)
        rc = pst_gnn_eval_finish_layer(eval, job->model, job->l, first, n, y, ld, kept, eval->kept.ld);
    if (rc == PST_OK && !layer->last) {
        pst_real *to = pst_gnn_rows_make(&eval->kept, first, y);
        if (to != y)
            memcpy(to, y, (size_t)(n * ld) * sizeof *y);
        rc = pst_gnn_rows_put(&eval->kept, first, n, to);
    }
    pst_gnn_eval_task_ends(eval, rc);
}

/* With bases: memory for the weights of the relations of any layer. */
static pst_rc take_composed(const struct pst_gnn_model *model, pst_real **composed)
{
    int64_t most = 0;
    for (int l = 0; l < model->config.layers; l++)
        most = pst_max_i64(most, pst_gnn_composed_size(model, l));
    *composed = most > 0 ? malloc((size_t)most * sizeof **composed) : NULL;
    return most == 0 || *composed != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot compute the weights of %d relations",
                          model->config.types->relations);
}

pst_rc pst_gnn_eval_relations(struct pst_gnn_eval *eval, const struct pst_gnn_model *model)
{
    struct pst_gnn_eval_job job = {.eval = eval, .model = model};
    pst_rc rc = take_composed(model, &job.composed);
    for (job.l = 0; job.l < model->config.layers && rc == PST_OK; job.l++) {
        job.ld = eval->projected.ld = pst_gnn_width(model->layer[job.l].wide);
        job.ld_sum = eval->added.ld = pst_gnn_width(model->layer[job.l].out);
        pst_gnn_compose(model, pst_twin_cpu(), NULL, job.l, model->weight, job.composed);
        rc = own_terms(&job);
        if (rc == PST_OK)
            rc = relation_terms(&job);
        if (rc == PST_OK) {
            pst_gnn_eval_begin(eval, "output", job.l, (uint64_t)eval->ds->vertices, false);
            rc = run_all(&job, finish_task, 0, eval->ds->vertices);
        }
        if (rc == PST_OK)
            pst_progress_end(eval->options.progress);
    }
    free(job.composed);
    return rc;
}
