/* eval.c: sizes the memory of an evaluation, runs it and scores it. */
#include "stages/lib/gnn/eval_impl.h"
#include "stages/lib/gnn/layer.h"
#include "common/error.h"
#include "stages/lib/topology/topology.h"
#include "common/util/memory.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ------------------------------------------------------------------------------------ */

static pst_rc check_dtype(const struct pst_array *features)
{
    const enum pst_dtype dtype = features->dtype;
    return dtype == PST_F32 || dtype == PST_F16 || dtype == PST_BF16
               ? PST_OK
               : pst_fail(PST_E_UNSUPPORTED, "%s holds %s; expected float32, float16 or bfloat16",
                          features->path, pst_dtype_name(dtype));
}

static pst_rc open_features(struct pst_gnn_eval *eval)
{
    const struct pst_dataset *ds = eval->ds;
    if (eval->learned)
        return PST_OK;
    eval->drop = ds->features.data_bytes > eval->options.memory_bytes;
    if (eval->options.rows != NULL) {
        const uint64_t bytes =
            (uint64_t)eval->threads * PST_GNN_EVAL_BATCH_BLOCKS * PST_GNN_EVAL_BLOCK * ds->stride_bytes;
        eval->fetched = pst_hugepage_map(bytes);
        eval->fetched_bytes = bytes;
        eval->memory_bytes += bytes;
        return eval->fetched != NULL
                   ? PST_OK
                   : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %llu bytes of feature rows",
                              (unsigned long long)bytes);
    }
    pst_rc rc =
        pst_row_files_open(&eval->features, pst_feature_file(ds, 0), pst_feature_files(ds), ds->stride_bytes);
    for (int k = 0; k < eval->features.files; k++)
        if (eval->features.fd[k] >= 0)
            (void)posix_fadvise(eval->features.fd[k], 0, 0, POSIX_FADV_SEQUENTIAL);
    return rc;
}

/* Of one score for each vertex and head: always in memory. */
static size_t scores_bytes(const struct pst_gnn_eval *eval)
{
    return (size_t)eval->ds->vertices * (size_t)eval->state_reals / 2 * sizeof(pst_real);
}

/* ---- the metric ----------------------------------------------------------------------------------- */

/* Before memory is planned: the vertices whose scores will be kept. */
static pst_rc open_metric(struct pst_gnn_eval *eval, const struct pst_gnn_config *c)
{
    const struct pst_dataset *ds = eval->ds;
    const struct pst_metric_labels labels = {.one = c->multilabel || c->regression ? NULL : ds->labels.map,
                                             .several = c->multilabel ? ds->multilabels.map : NULL,
                                             .classes = c->classes};
    pst_rc rc = PST_OK;
    for (int s = PST_TRAIN; s <= PST_TEST; s++) {
        eval->metric_of[s] = PST_METRIC_UNKNOWN;
        eval->fit[s] = (struct pst_fit){PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN, PST_METRIC_UNKNOWN};
    }
    if (!labels.one && !labels.several)
        return PST_OK;
    for (int s = PST_VAL; eval->options.metric != PST_METRIC_NONE && s <= PST_TEST && rc == PST_OK; s++) {
        const struct pst_array *split = &ds->split[s];
        rc = pst_metric_open(&eval->metric[s], eval->options.metric, &labels, split->map,
                             split->map ? split->shape[0] : 0);
        const struct pst_metric *m = &eval->metric[s];
        if (rc == PST_OK && m->n > 0 && (m->ids[0] < 0 || m->ids[m->n - 1] >= ds->vertices))
            rc = pst_fail(PST_E_FORMAT,
                          "%s has an id that is not a vertex of the graph: expected ids from 0 to %lld",
                          split->path, (long long)ds->vertices - 1);
        if (rc != PST_OK)
            continue;
        const size_t bytes = pst_metric_scratch_bytes(m);
        eval->rank_bytes = bytes > eval->rank_bytes ? bytes : eval->rank_bytes;
        eval->score_bytes += pst_metric_score_bytes(m);
    }
    if (pst_metric_ranks(eval->options.metric))
        eval->ranking_bytes = (size_t)eval->threads * eval->rank_bytes + (size_t)c->classes * sizeof(double);
    eval->memory_bytes += eval->ranking_bytes;
    return rc;
}

static pst_rc map_metric(struct pst_gnn_eval *eval, const char *dir)
{
    for (int s = PST_VAL; s <= PST_TEST; s++) {
        const size_t bytes = pst_metric_score_bytes(&eval->metric[s]);
        if (bytes == 0)
            continue;
        eval->metric[s].score = dir ? pst_gnn_file_map(dir, bytes) : pst_hugepage_map(bytes);
        if (!eval->metric[s].score)
            return dir ? PST_E_IO
                       : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes of scores", bytes);
    }
    eval->ranking = pst_hugepage_map(eval->ranking_bytes);
    return eval->ranking ? PST_OK
                         : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes to sort scores",
                                    eval->ranking_bytes);
}

static void close_metric(struct pst_gnn_eval *eval)
{
    for (int s = PST_VAL; s <= PST_TEST; s++) {
        pst_hugepage_unmap(eval->metric[s].score, pst_metric_score_bytes(&eval->metric[s]));
        pst_metric_close(&eval->metric[s]);
    }
    pst_hugepage_unmap(eval->ranking, eval->ranking_bytes);
}

struct ranking {
    const struct pst_gnn_eval *eval;
    const struct pst_metric *metric;
    double *figures; /* of each column */
};

static void rank_task(void *arg, int64_t column, int worker)
{
    const struct ranking *r = arg;
    pst_metric_rank(r->metric, column, r->eval->ranking + (size_t)worker * r->eval->rank_bytes,
                    &r->figures[column]);
}

static double known(double figure)
{
    return figure < 0 ? PST_METRIC_UNKNOWN : figure;
}

static double fit_of(const struct pst_gnn_eval *eval, int split)
{
    const struct pst_fit *fit = &eval->fit[split];
    const enum pst_metric_kind kind = eval->options.metric;
    return kind == PST_METRIC_MAE ? fit->mae : kind == PST_METRIC_R2 ? fit->r2 : fit->mse;
}

/* accuracy: of the split; with multilabel, micro-F1. */
static pst_rc measure(struct pst_gnn_eval *eval, const struct pst_gnn_model *model, int split,
                      double accuracy)
{
    const struct pst_metric *m = &eval->metric[split];
    if (eval->fitted)
        eval->metric_of[split] = fit_of(eval, split);
    else if (m->kind == PST_METRIC_NONE || m->kind == PST_METRIC_MICRO_F1)
        eval->metric_of[split] = known(accuracy);
    if (eval->fitted || m->kind == PST_METRIC_NONE || m->kind == PST_METRIC_MICRO_F1)
        return PST_OK;
    if (!pst_metric_ranks(m->kind)) {
        double f1;
        const pst_rc rc = pst_metric_macro_f1(m, eval->predicted, eval->labels, &f1);
        eval->metric_of[split] = rc == PST_OK ? known(f1) : PST_METRIC_UNKNOWN;
        return rc;
    }
    struct ranking r = {eval, m,
                        (double *)(void *)(eval->ranking + (size_t)eval->threads * eval->rank_bytes)};
    pst_team_run(model->team, rank_task, &r, m->columns);
    eval->metric_of[split] = known(pst_metric_mean(r.figures, m->columns));
    return PST_OK;
}

/* ---- memory --------------------------------------------------------------------------------------- */

/* Decides what is kept in memory and how much each part gets. */
static void plan_memory(struct pst_gnn_eval *eval, const struct pst_gnn_config *c)
{
    const int64_t vertices = eval->ds->vertices;
    const uint64_t limit = eval->options.memory_bytes,
                   block = (uint64_t)(PST_GNN_EVAL_BLOCK * eval->ld) * sizeof(pst_real);
    eval->wide_at = pst_align_up(PST_GNN_EVAL_BLOCK * eval->ds->stride_bytes, PST_CACHE_LINE);
    eval->block_at[0] = eval->wide_at;
    if (eval->dtype != PST_F32)
        eval->block_at[0] += (size_t)(PST_GNN_EVAL_BLOCK * pst_gnn_width(c->in)) * sizeof(pst_real);
    eval->block_at[1] = eval->block_at[0] + block;
    eval->worker_bytes = pst_align_up(eval->block_at[1] + block, PST_PAGE);
    eval->memory_bytes += (uint64_t)eval->threads * eval->worker_bytes;
    eval->memory_bytes += 2 * scores_bytes(eval);
    const uint64_t predicted = eval->predicted_bytes + eval->score_bytes;
    if (!c->aggregate) {
        eval->memory_bytes += predicted;
        return;
    }
    const int64_t wide = pst_gnn_kind_of(c->model)->typed ? 2 * eval->ld : eval->ld; /* projected, added */
    const uint64_t stored =
        (uint64_t)vertices * (uint64_t)(pst_gnn_width(pst_gnn_columns(c)) + wide) * sizeof(pst_real);
    const int64_t range = pst_min_i64((int64_t)eval->threads * PST_GNN_EVAL_RANGE * PST_GNN_EVAL_BLOCK,
                                      pst_gnn_eval_blocks((uint64_t)vertices) + PST_GNN_EVAL_BLOCK);
    eval->work_bytes = (size_t)range * pst_gnn_eval_sum_bytes(eval, eval->ld);
    eval->spilled = eval->memory_bytes + predicted + stored + eval->work_bytes > limit;
    if (eval->spilled) {
        const uint64_t least =
            PST_GNN_EVAL_BLOCK * PST_GNN_EVAL_SHARE * pst_gnn_eval_sum_bytes(eval, eval->ld);
        eval->work_bytes =
            limit > eval->memory_bytes + least ? (size_t)(limit - eval->memory_bytes) : (size_t)least;
    }
    eval->memory_bytes += eval->work_bytes + (eval->spilled ? 0 : predicted + stored);
}

static pst_rc map_all(struct pst_gnn_eval *eval, const struct pst_gnn_config *c)
{
    const size_t norms = (size_t)c->layers * (size_t)pst_gnn_columns(c), predicted = eval->predicted_bytes;
    const char *dir = eval->spilled ? eval->options.spill_dir : NULL;
    eval->buffers = pst_hugepage_map((size_t)eval->threads * eval->worker_bytes);
    eval->scale = calloc(norms, sizeof *eval->scale);
    eval->offset = calloc(norms, sizeof *eval->offset);
    eval->work = pst_hugepage_map(eval->work_bytes);
    if (scores_bytes(eval) > 0) {
        eval->left = pst_hugepage_map(scores_bytes(eval));
        eval->right = pst_hugepage_map(scores_bytes(eval));
    }
    if (!eval->buffers || !eval->scale || !eval->offset || !eval->work ||
        (scores_bytes(eval) > 0 && (!eval->left || !eval->right)))
        return pst_fail(PST_E_NOMEM,
                        "out of memory: cannot allocate the buffers of the evaluation: %zu bytes for each of "
                        "%d threads, and %zu more",
                        eval->worker_bytes, eval->threads, eval->work_bytes);
    void *at = dir ? pst_gnn_file_map(dir, predicted) : pst_hugepage_map(predicted);
    eval->predicted = c->multilabel || c->regression ? NULL : at;
    eval->fitted = c->regression ? at : NULL;
    eval->labels = c->multilabel ? at : NULL;
    if (!at)
        return dir ? PST_E_IO
                   : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %zu bytes of predictions",
                              predicted);
    pst_rc rc = map_metric(eval, dir);
    if (rc != PST_OK || !c->aggregate)
        return rc;
    rc = pst_gnn_rows_open(&eval->kept, eval->ds->vertices, pst_gnn_width(pst_gnn_columns(c)), dir);
    if (rc == PST_OK && pst_gnn_kind_of(c->model)->typed)
        rc = pst_gnn_rows_open(&eval->added, eval->ds->vertices, eval->ld, dir);
    return rc == PST_OK ? pst_gnn_rows_open(&eval->projected, eval->ds->vertices, eval->ld, dir) : rc;
}

pst_rc pst_gnn_eval_open(struct pst_gnn_eval *eval, const struct pst_gnn_config *config,
                         const struct pst_dataset *ds, const struct pst_gnn_eval_options *options)
{
    assert(ds->indptr.map && ds->indices.map);
    assert(config->learned > 0 ? config->learned == ds->vertices : config->in == ds->feature_dim);
    memset(eval, 0, sizeof *eval);
    eval->learned = config->learned > 0;
    eval->kept.fd = eval->projected.fd = eval->added.fd = -1;
    eval->ds = ds;
    eval->options = *options;
    eval->threads = config->threads;
    eval->graph = pst_topology_mapped(ds);
    const uint64_t classes = (uint64_t)config->classes;
    eval->predicted_bytes = (uint64_t)ds->vertices * (config->regression   ? classes * sizeof *eval->fitted
                                                      : config->multilabel ? classes * sizeof *eval->labels
                                                                           : sizeof *eval->predicted);
    const int64_t heads = pst_gnn_has_heads(config->model) ? config->heads : 1;
    eval->ld = pst_gnn_width(heads * pst_max_i64(config->hidden, config->classes));
    eval->state_reals = pst_gnn_has_heads(config->model) ? 2 * heads : 0;
    (void)pthread_mutex_init(&eval->failure.lock, NULL);
    eval->dtype = eval->learned ? PST_F32 : ds->features.dtype;
    pst_rc rc = eval->learned ? PST_OK : check_dtype(&ds->features);
    if (rc == PST_OK)
        rc = open_features(eval);
    if (rc == PST_OK)
        rc = open_metric(eval, config);
    if (rc == PST_OK) {
        plan_memory(eval, config);
        rc = map_all(eval, config);
    }
    if (rc != PST_OK)
        pst_gnn_eval_close(eval);
    return rc;
}

void pst_gnn_eval_close(struct pst_gnn_eval *eval)
{
    if (!eval->ds)
        return;
    pst_row_files_close(&eval->features);
    pst_hugepage_unmap(eval->fetched, eval->fetched_bytes);
    pst_gnn_rows_close(&eval->added);
    pst_gnn_rows_close(&eval->kept);
    pst_gnn_rows_close(&eval->projected);
    pst_hugepage_unmap(eval->buffers, (size_t)eval->threads * eval->worker_bytes);
    pst_hugepage_unmap(eval->work, eval->work_bytes);
    pst_hugepage_unmap(eval->predicted, eval->predicted_bytes);
    pst_hugepage_unmap(eval->labels, eval->predicted_bytes);
    pst_hugepage_unmap(eval->fitted, eval->predicted_bytes);
    pst_hugepage_unmap(eval->left, scores_bytes(eval));
    pst_hugepage_unmap(eval->right, scores_bytes(eval));
    close_metric(eval);
    free(eval->scale);
    free(eval->offset);
    (void)pthread_mutex_destroy(&eval->failure.lock);
    memset(eval, 0, sizeof *eval);
}

/* ---- running -------------------------------------------------------------------------------------- */

/* What one vertex adds to an accuracy. */
static void score_class(const struct pst_gnn_eval *eval, int64_t v, int64_t *correct, int64_t *counted)
{
    const int32_t *labels = eval->ds->labels.map;
    if (!labels || labels[v] < 0)
        return;
    *correct += eval->predicted[v] == labels[v];
    ++*counted;
}

/* What one vertex adds to micro-F1. */
static void score_labels(const struct pst_gnn_eval *eval, int64_t v, int64_t *correct, int64_t *counted)
{
    const uint8_t *known = eval->ds->multilabels.map;
    if (!known)
        return;
    const int64_t classes = eval->ds->multilabels.shape[1];
    for (int64_t at = v * classes; at < (v + 1) * classes; at++) {
        if (known[at] == PST_LABEL_IGNORED)
            continue;
        *correct += known[at] && eval->labels[at] ? 2 : 0;
        *counted += known[at] + eval->labels[at];
    }
}

/* The figures of a split, whose ids were checked. */
static pst_rc score_fit(struct pst_gnn_eval *eval, int split)
{
    const struct pst_array *targets = &eval->ds->targets, *ids = &eval->ds->split[split];
    struct pst_fit *fit = &eval->fit[split];
    if (!targets->map || !ids->map)
        return PST_OK;
    const pst_rc rc = pst_fit_of(eval->fitted, targets->map, targets->rank == 2 ? targets->shape[1] : 1,
                                 ids->map, ids->shape[0], fit);
    return rc != PST_OK || isfinite(fit->mse)
               ? rc
               : pst_fail(PST_E_ARG,
                          "the model's outputs or the targets are not finite for a vertex of %s: if the "
                          "targets are finite (`penstock verify`), lower the learning rate, or set clip",
                          ids->path);
}

static pst_rc score(const struct pst_gnn_eval *eval, const struct pst_array *split, double *accuracy)
{
    const int64_t *ids = split->map;
    int64_t correct = 0, counted = 0;
    for (int64_t i = 0; ids && i < split->shape[0]; i++) {
        if (ids[i] < 0 || ids[i] >= eval->ds->vertices)
            return pst_fail(PST_E_FORMAT,
                            "%s: entry %lld is vertex %lld, but the graph has only %lld vertices",
                            split->path, (long long)i, (long long)ids[i], (long long)eval->ds->vertices);
        if (eval->fitted)
            continue;
        if (eval->labels)
            score_labels(eval, ids[i], &correct, &counted);
        else
            score_class(eval, ids[i], &correct, &counted);
    }
    *accuracy = counted ? (double)correct / (double)counted : -1;
    return PST_OK;
}

pst_rc pst_gnn_eval_run(struct pst_gnn_eval *eval, const struct pst_gnn_model *model, double accuracy[3])
{
    assert(model->config.threads == eval->threads);
    pst_rc rc = pst_gnn_eval_layers(eval, model);
    for (int s = PST_TRAIN; s <= PST_TEST && rc == PST_OK; s++) {
        rc = score(eval, &eval->ds->split[s], &accuracy[s]);
        if (rc == PST_OK && eval->fitted)
            rc = score_fit(eval, s);
    }
    for (int s = PST_VAL; s <= PST_TEST && rc == PST_OK; s++)
        rc = measure(eval, model, s, accuracy[s]);
    return rc;
}
