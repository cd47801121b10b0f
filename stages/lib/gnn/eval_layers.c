/* eval_layers.c: computes the layers of an evaluation, in tasks of one block of rows each. */
#include "common/error.h"
#include "common/util/file.h"
#include "stages/lib/gnn/eval_impl.h"
#include "stages/lib/gnn/layer.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- tasks --------------------------------------------------------------------------------------- */

int64_t pst_gnn_eval_rows_of_task(const struct pst_gnn_eval_job *job, int64_t task, int64_t *first)
{
    *first = job->first + task * PST_GNN_EVAL_BLOCK;
    return pst_min_i64(PST_GNN_EVAL_BLOCK, job->rows - task * PST_GNN_EVAL_BLOCK);
}

/* Error messages belong to a thread. The first one is kept for the thread that runs the job. */
void pst_gnn_eval_task_ends(struct pst_gnn_eval *eval, pst_rc rc)
{
    if (rc == PST_OK)
        return;
    struct pst_gnn_eval_failure *f = &eval->failure;
    (void)pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->there)) {
        f->rc = rc;
        snprintf(f->text, sizeof f->text, "%s", pst_error_text());
        atomic_store(&f->there, true);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

pst_rc pst_gnn_eval_run_job(struct pst_gnn_eval_job *job, pst_team_task *task)
{
    struct pst_gnn_eval_failure *f = &job->eval->failure;
    atomic_store(&f->there, false);
    pst_team_run(job->model->team, task, job, (job->rows + PST_GNN_EVAL_BLOCK - 1) / PST_GNN_EVAL_BLOCK);
    return atomic_load(&f->there) ? pst_fail(f->rc, "%s", f->text) : PST_OK;
}

void pst_gnn_eval_begin(struct pst_gnn_eval *eval, const char *what, int layer, uint64_t total, bool bytes)
{
    if (layer < 0)
        snprintf(eval->what, sizeof eval->what, "%s", what);
    else
        snprintf(eval->what, sizeof eval->what, "layer %d: %s", layer + 1, what);
    pst_progress_begin(eval->options.progress, eval->what, total, bytes);
}

/* ---- one block ---------------------------------------------------------------------------------- */

/* Batch norm with fixed statistics is y * scale + offset. */
static void fold_norms(struct pst_gnn_eval *eval, const struct pst_gnn_model *model)
{
    const int64_t columns = pst_gnn_columns(&model->config);
    for (int l = 0; l < model->config.layers; l++) {
        const struct pst_gnn_layer *layer = &model->layer[l];
        if (layer->running < 0)
            continue;
        const pst_real *gain = model->weight + layer->gain, *shift = model->weight + layer->shift;
        const pst_real *mean = model->running + layer->running, *variance = mean + layer->out;
        for (int64_t j = 0; j < layer->out; j++) {
            const double scale = (double)gain[j] / sqrt((double)variance[j] + PST_NORM_EPS);
            eval->scale[l * columns + j] = (pst_real)scale;
            eval->offset[l * columns + j] = (pst_real)((double)shift[j] - (double)mean[j] * scale);
        }
    }
}

static void normalise(const struct pst_gnn_eval *eval, const struct pst_gnn_model *model, int l, pst_real *y,
                      int64_t ld, int64_t n)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    const int64_t at = l * pst_gnn_columns(&model->config);
    if (model->config.norm == PST_GNN_NORM_LAYER)
        pst_k_layer_norm(NULL, y, ld, n, layer->out, model->weight + layer->gain,
                         model->weight + layer->shift, NULL, NULL);
    else
        pst_k_affine(NULL, y, ld, n, layer->out, eval->scale + at, eval->offset + at);
}

static void predict(struct pst_gnn_eval *eval, const pst_real *logits, int64_t ld, int64_t first, int64_t n,
                    int64_t classes)
{
    for (int s = PST_VAL; s <= PST_TEST; s++)
        if (eval->metric[s].score)
            pst_metric_note(&eval->metric[s], logits, ld, first, n);
    for (int64_t i = 0; i < n; i++) {
        const pst_real *row = logits + i * ld;
        for (int64_t c = 0; eval->labels && c < classes; c++)
            eval->labels[(first + i) * classes + c] = row[c] > 0;
        for (int64_t c = 0; eval->fitted && c < classes; c++)
            eval->fitted[(first + i) * classes + c] = (float)row[c];
        if (eval->labels || eval->fitted)
            continue;
        int32_t best = 0;
        for (int32_t c = 1; c < classes; c++)
            if (row[c] > row[best])
                best = c;
        eval->predicted[first + i] = best;
    }
}

pst_rc pst_gnn_eval_finish_layer(struct pst_gnn_eval *eval, const struct pst_gnn_model *model, int l,
                                 int64_t first, int64_t n, pst_real *y, int64_t ld, const pst_real *input,
                                 int64_t ld_input)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    const struct pst_dropout none = {0};
    if (layer->gain >= 0)
        normalise(eval, model, l, y, ld, n);
    if (layer->bias >= 0)
        pst_k_bias_relu_dropout(NULL, y, ld, model->weight + layer->bias, NULL, n, layer->out, false, &none);
    if (layer->residual)
        pst_k_add(NULL, y, ld, input, ld_input, n, layer->out);
    if (layer->last)
        predict(eval, y, ld, first, n, layer->out);
    else if (model->kind->elu)
        pst_k_bias_elu_dropout(NULL, y, ld, NULL, NULL, n, layer->out, &none);
    else
        pst_k_bias_relu_dropout(NULL, y, ld, NULL, NULL, n, layer->out, true, &none);
    return eval->options.sink ? eval->options.sink(eval->options.sink_ctx, l, first, n, y, ld) : PST_OK;
}

/* ---- the first layer, while features stream by --------------------------------------------------- */

/* All layers of a block, for a model that does not use the graph. */
static pst_rc plain_block(const struct pst_gnn_eval_job *job, const pst_real *x, int64_t ld_x, int64_t first,
                          int64_t n, int worker)
{
    struct pst_gnn_eval *eval = job->eval;
    pst_rc rc = PST_OK;
    for (int l = 0; l < job->model->config.layers && rc == PST_OK; l++) {
        const struct pst_gnn_layer *layer = &job->model->layer[l];
        pst_real *y = pst_gnn_eval_block(eval, worker, l % 2);
        pst_gnn_eval_product(job->model, x, ld_x, n, layer, layer->self, y, eval->ld);
        rc = pst_gnn_eval_finish_layer(eval, job->model, l, first, n, y, eval->ld, x, ld_x);
        x = y;
        ld_x = eval->ld;
    }
    return rc;
}

/* The products of a block of rows x with the layer's weight for neighbours. */
static pst_rc make_projected(const struct pst_gnn_eval_job *job, const pst_real *x, int64_t ld_x,
                             int64_t first, int64_t n, int worker)
{
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[job->l];
    pst_real *y = pst_gnn_rows_make(&eval->projected, first, pst_gnn_eval_block(eval, worker, 1));
    pst_gnn_eval_product(job->model, x, ld_x, n, layer, layer->neigh, y, eval->projected.ld);
    if (job->kind->projected)
        job->kind->projected(job, first, n, y);
    return pst_gnn_rows_put(&eval->projected, first, n, y);
}

static pst_rc first_products(const struct pst_gnn_eval_job *job, const pst_real *x, int64_t ld_x,
                             int64_t first, int64_t n, int worker)
{
    const struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[0];
    pst_rc rc = PST_OK;
    if (layer->self >= 0) {
        pst_real *self = pst_gnn_rows_make(&eval->kept, first, pst_gnn_eval_block(eval, worker, 0));
        pst_gnn_eval_product(job->model, x, ld_x, n, layer, layer->self, self, eval->kept.ld);
        rc = pst_gnn_rows_put(&eval->kept, first, n, self);
    }
    return rc == PST_OK ? make_projected(job, x, ld_x, first, n, worker) : rc;
}

pst_rc pst_gnn_eval_features(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, int worker,
                             const pst_real **x, int64_t *ld_x)
{
    struct pst_gnn_eval *eval = job->eval;
    const uint64_t stride = eval->ds->stride_bytes;
    const int64_t in = job->model->config.in;
    char *own = eval->buffers + (size_t)worker * eval->worker_bytes;
    char *raw = eval->fetched != NULL ? eval->fetched + (uint64_t)(first - job->first) * stride : own;
    if (eval->learned) {
        *ld_x = in;
        *x = job->model->weight + job->model->inputs + first * in;
        return PST_OK;
    }
    *ld_x = (int64_t)(stride / sizeof(pst_real));
    *x = (const pst_real *)(const void *)raw;
    const pst_rc rc = eval->fetched != NULL ? PST_OK : pst_row_files_read(&eval->features, first, n, raw);
    if (rc == PST_OK && eval->dtype != PST_F32) {
        pst_real *wide = (pst_real *)(void *)(own + eval->wide_at);
        *ld_x = pst_gnn_width(in);
        pst_k_widen(NULL, raw, stride, eval->dtype == PST_BF16, wide, *ld_x, n, in);
        *x = wide;
    }
    return rc;
}

static void feature_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    int64_t first, ld_x;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    const pst_real *x;
    if (atomic_load(&job->eval->failure.there))
        return;
    pst_rc rc = pst_gnn_eval_features(job, first, n, worker, &x, &ld_x);
    if (rc == PST_OK)
        rc = job->model->config.aggregate ? first_products(job, x, ld_x, first, n, worker)
                                          : plain_block(job, x, ld_x, first, n, worker);
    pst_gnn_eval_task_ends(job->eval, rc);
}

static void advise_features(const struct pst_gnn_eval *eval, int64_t first, int64_t rows, int advice)
{
    if (rows > 0 && !eval->learned && eval->fetched == NULL)
        pst_row_files_advise(&eval->features, first, rows, advice);
}

static pst_rc stream_features(struct pst_gnn_eval *eval, const struct pst_gnn_model *model)
{
    const int64_t vertices = eval->ds->vertices,
                  batch = (int64_t)eval->threads * PST_GNN_EVAL_BATCH_BLOCKS * PST_GNN_EVAL_BLOCK;
    pst_rc rc = PST_OK;
    eval->projected.ld = pst_gnn_width(model->layer[0].wide);
    pst_gnn_eval_begin(eval, "features", -1, (uint64_t)vertices * eval->ds->stride_bytes, true);
    for (int64_t first = 0; first < vertices && rc == PST_OK; first += batch) {
        struct pst_gnn_eval_job job = {.eval = eval,
                                       .model = model,
                                       .kind = pst_gnn_eval_kind_of(model),
                                       .first = first,
                                       .rows = pst_min_i64(batch, vertices - first)};
        advise_features(eval, first + batch, pst_min_i64(batch, vertices - first - batch),
                        POSIX_FADV_WILLNEED);
        if (eval->fetched != NULL)
            rc = eval->options.rows(eval->options.rows_ctx, first, job.rows, eval->fetched);
        if (rc == PST_OK)
            rc = pst_gnn_eval_run_job(&job, feature_task);
        if (eval->drop)
            advise_features(eval, first, job.rows, POSIX_FADV_DONTNEED);
        if (rc == PST_OK && model->config.aggregate) {
            pst_gnn_rows_drop(&eval->kept, first, job.rows);
            pst_gnn_rows_drop(&eval->projected, first, job.rows);
        }
        if (rc == PST_OK)
            rc = pst_progress_add(eval->options.progress, (uint64_t)job.rows * eval->ds->stride_bytes);
    }
    if (rc == PST_OK)
        pst_progress_end(eval->options.progress);
    return rc;
}

/* ---- layers over the whole graph ----------------------------------------------------------------- */

static void neigh_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    struct pst_gnn_eval *eval = job->eval;
    int64_t first;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    const pst_real *x;
    if (atomic_load(&eval->failure.there))
        return;
    pst_rc rc = pst_gnn_rows_get(&eval->kept, first, n, pst_gnn_eval_block(eval, worker, 0), &x);
    if (rc == PST_OK)
        rc = make_projected(job, x, eval->kept.ld, first, n, worker);
    pst_gnn_eval_task_ends(eval, rc);
}

/* A layer's input times W_neigh, for all vertices. */
static pst_rc project(struct pst_gnn_eval *eval, const struct pst_gnn_model *model, int l)
{
    const int64_t vertices = eval->ds->vertices,
                  batch = (int64_t)eval->threads * PST_GNN_EVAL_BATCH_BLOCKS * PST_GNN_EVAL_BLOCK;
    pst_rc rc = PST_OK;
    eval->projected.ld = pst_gnn_width(model->layer[l].wide);
    pst_gnn_eval_begin(eval, "products", l, (uint64_t)vertices, false);
    for (int64_t first = 0; first < vertices && rc == PST_OK; first += batch) {
        struct pst_gnn_eval_job job = {.eval = eval,
                                       .model = model,
                                       .kind = pst_gnn_eval_kind_of(model),
                                       .l = l,
                                       .first = first,
                                       .rows = pst_min_i64(batch, vertices - first)};
        pst_gnn_rows_expect(&eval->kept, first + batch, pst_min_i64(batch, vertices - first - batch));
        rc = pst_gnn_eval_run_job(&job, neigh_task);
        pst_gnn_rows_drop(&eval->projected, first, job.rows);
        if (rc == PST_OK)
            rc = pst_progress_add(eval->options.progress, (uint64_t)job.rows);
    }
    if (rc == PST_OK)
        pst_progress_end(eval->options.progress);
    return rc;
}

/* One layer's output for a block of vertices, from the sums over their neighbours and their own rows. */
static pst_rc combine(const struct pst_gnn_eval_job *job, pst_real *y, int64_t first, int64_t n, int worker)
{
    struct pst_gnn_eval *eval = job->eval;
    const struct pst_gnn_layer *layer = &job->model->layer[job->l];
    const pst_real *kept = NULL;
    pst_rc rc = PST_OK;
    if (layer->self >= 0 || layer->residual)
        rc = pst_gnn_rows_get(&eval->kept, first, n, pst_gnn_eval_block(eval, worker, 1), &kept);
    if (rc == PST_OK)
        rc = job->kind->combine(job, first, n, kept, y, worker);
    if (rc == PST_OK)
        rc = pst_gnn_eval_finish_layer(eval, job->model, job->l, first, n, y, job->ld, kept, eval->kept.ld);
    return rc == PST_OK && !layer->last ? pst_gnn_rows_put(&eval->kept, first, n, y) : rc;
}

static void sum_task(void *arg, int64_t task, int worker)
{
    const struct pst_gnn_eval_job *job = arg;
    struct pst_gnn_eval *eval = job->eval;
    int64_t first;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first), at = task * PST_GNN_EVAL_BLOCK;
    pst_real *y = job->sums + at * job->ld;
    if (atomic_load(&eval->failure.there))
        return;
    pst_rc rc = job->kind->sum(job, at, first, n, y, worker);
    if (rc == PST_E_FORMAT)
        rc = pst_fail(rc,
                      "%s or %s: the neighbours of vertices %lld to %lld are out of range or not in order; "
                      "`penstock verify` shows details",
                      eval->ds->indptr.path, eval->ds->indices.path, (long long)first,
                      (long long)(first + n - 1));
    if (rc == PST_OK && job->to == eval->ds->vertices)
        rc = combine(job, y, first, n, worker);
    pst_gnn_eval_task_ends(eval, rc);
}

struct part { /* rows of `projected` to be read */
    struct pst_gnn_eval_job job;
    pst_real *to;
};

static void read_task(void *arg, int64_t task, int worker)
{
    const struct part *part = arg;
    const struct pst_gnn_eval_job *job = &part->job;
    const pst_real *at;
    int64_t first;
    (void)worker;
    const int64_t n = pst_gnn_eval_rows_of_task(job, task, &first);
    if (!atomic_load(&job->eval->failure.there))
        pst_gnn_eval_task_ends(job->eval,
                               pst_gnn_rows_get(&job->eval->projected, first, n,
                                                part->to + task * PST_GNN_EVAL_BLOCK * job->ld, &at));
}

pst_rc pst_gnn_eval_fetch_part(struct pst_gnn_eval_job *job, pst_real *room)
{
    struct pst_gnn_eval *eval = job->eval;
    if (!eval->spilled) {
        job->part = eval->projected.memory + job->from * job->ld;
        return PST_OK;
    }
    struct part part = {.job = *job, .to = room};
    part.job.first = job->from;
    part.job.rows = job->to - job->from;
    job->part = room;
    const pst_rc rc = pst_gnn_eval_run_job(&part.job, read_task);
    const int64_t next = job->to < eval->ds->vertices ? job->to : 0; /* read while this one is used */
    pst_gnn_rows_expect(&eval->projected, next, pst_min_i64(part.job.rows, eval->ds->vertices - next));
    return rc;
}

/* A range of destinations: computes their sums, part by part, and then the layer's output. */
static pst_rc sum_range(struct pst_gnn_eval_job *job, int64_t part_rows, pst_real *room)
{
    const int64_t vertices = job->eval->ds->vertices;
    pst_rc rc = PST_OK;
    for (job->from = 0; job->from < vertices && rc == PST_OK; job->from = job->to) {
        job->to = pst_min_i64(vertices, job->from + part_rows);
        rc = pst_gnn_eval_fetch_part(job, room);
        if (rc == PST_OK)
            rc = pst_gnn_eval_run_job(job, sum_task);
        const double before = (double)job->from / (double)vertices,
                     after = (double)job->to / (double)vertices;
        const int64_t done = (int64_t)(after * (double)job->rows) - (int64_t)(before * (double)job->rows);
        if (rc == PST_OK)
            rc = pst_progress_add(job->eval->options.progress, (uint64_t)done);
    }
    return rc;
}

static pst_rc sum_layer(struct pst_gnn_eval *eval, const struct pst_gnn_model *model, int l)
{
    const int64_t vertices = eval->ds->vertices, ld = eval->projected.ld;
    const size_t row = (size_t)ld * sizeof(pst_real),
                 share = eval->spilled ? eval->work_bytes / PST_GNN_EVAL_SHARE : 0;
    const int64_t part_rows = eval->spilled ? pst_gnn_eval_blocks(share / row) : vertices;
    const int64_t range_rows =
        pst_gnn_eval_blocks((eval->work_bytes - share) / pst_gnn_eval_sum_bytes(eval, ld));
    struct pst_gnn_eval_job job = {
        .eval = eval, .model = model, .kind = pst_gnn_eval_kind_of(model), .l = l, .ld = ld};
    pst_real *room = (pst_real *)(void *)eval->work;
    pst_rc rc = PST_OK;
    job.sums = eval->spilled ? room + part_rows * ld : room;
    job.state = job.sums + range_rows * ld;
    job.cursor = (int64_t *)(void *)(job.state + range_rows * eval->state_reals);
    pst_gnn_eval_begin(eval, "neighbours", l, (uint64_t)vertices, false);
    for (job.first = 0; job.first < vertices && rc == PST_OK; job.first += range_rows) {
        job.rows = pst_min_i64(range_rows, vertices - job.first);
        rc = sum_range(&job, part_rows, room);
        pst_gnn_rows_drop(&eval->kept, job.first, job.rows);
    }
    if (rc == PST_OK)
        pst_progress_end(eval->options.progress);
    return rc;
}

pst_rc pst_gnn_eval_layers(struct pst_gnn_eval *eval, const struct pst_gnn_model *model)
{
    fold_norms(eval, model);
    if (model->kind->typed)
        return pst_gnn_eval_relations(eval, model);
    pst_rc rc = stream_features(eval, model);
    for (int l = 0; model->config.aggregate && l < model->config.layers && rc == PST_OK; l++) {
        if (l > 0)
            rc = project(eval, model, l);
        if (rc == PST_OK)
            rc = sum_layer(eval, model, l);
    }
    return rc;
}
