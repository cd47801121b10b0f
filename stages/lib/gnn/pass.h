/* pass.h: what the forward (pass.c) and the backward (backward.c) half of a pass share. */
#ifndef PST_PASS_H
#define PST_PASS_H

#include "stages/lib/gnn/model.h"
#include "common/util/clock.h"

/* Adds what a kernel took to its kind's account. */
#define TIMED(step, worker, kind, call)                                                                      \
    do {                                                                                                     \
        const double before_s = pst_clock_s();                                                               \
        call;                                                                                                \
        (step)->model->spent[worker].s[kind] += pst_clock_s() - before_s;                                    \
    } while (0)

struct view { /* a matrix: a layer's input */
    const pst_real *at;
    int64_t ld;
};

/* What all tasks of a pass look at. */
struct step {
    struct pst_gnn_model *model;
    const struct pst_twin *twin; /* the model's, as is q */
    struct pst_queue *q;
    const struct pst_gnn_batch *batch;
    const struct pst_gnn_pass *pass;
    struct view x[PST_GNN_LAYERS_MAX]; /* each layer's input */
    int l;                             /* the layer that the running tasks belong to */
    pst_real *grad, *grad_x;           /* of its output and of its input */
};

static inline pst_real *real_at(const struct pst_gnn_model *model, size_t offset)
{
    return (pst_real *)(void *)(model->work + offset);
}

static inline int block_of(const struct pst_gnn_model *model, int layer)
{
    return model->config.layers - 1 - layer;
}

static inline int64_t blocks_of(const struct pst_gnn_model *model, int64_t rows)
{
    return (rows + model->grain.rows - 1) / model->grain.rows;
}

/* The rows of a block: from `at`, returns how many. */
static inline int64_t rows_of(const struct pst_gnn_model *model, int64_t block, int64_t rows, int64_t *at)
{
    *at = block * model->grain.rows;
    return pst_min_i64(model->grain.rows, rows - *at);
}

static inline void run_tasks(struct step *s, pst_gnn_task_fn *task, int64_t tasks)
{
    pst_gnn_model_tasks(s->model, task, s, tasks);
}

/* All bytes 0, in the order of the work. What fails, the end of the pass tells. */
static inline void clear(const struct step *s, void *at, int64_t reals)
{
    (void)s->twin->fill(s->q, at, 0, (size_t)reals * sizeof(pst_real));
}

/* Batch normalisation needs all rows at once: a barrier in the middle of a layer. */
static inline bool has_barrier(const struct pst_gnn_model *model, int l)
{
    return model->config.norm == PST_GNN_NORM_BATCH && model->layer[l].gain >= 0;
}

static inline struct pst_dropout dropout_of(const struct pst_gnn_model *model,
                                            const struct pst_gnn_batch *batch, int layer)
{
    const struct pst_gnn_config *c = &model->config;
    const bool last = layer == c->layers - 1;
    return (struct pst_dropout){.seed = c->seed,
                                .epoch = batch->mb.epoch,
                                .batch = batch->mb.batch,
                                .layer = (uint32_t)(layer + 1), /* 0 is the input's */
                                .rate = layer < 0 ? (float)c->input_dropout
                                        : last    ? 0
                                                  : (float)c->dropout};
}

static inline pst_real *sums_of(const struct step *s, int64_t block)
{
    return real_at(s->model, s->pass->sums) + block * s->pass->sums_width;
}

/* From the gradient of the loss by the logits, in pass->grad[0], to those of all weights. */
void pst_gnn_pass_backward(struct step *s);

/* Is it cheaper to multiply a layer's inputs by its weights before their mean is taken, than after? dst, src
 * and edges are the block's. The two orders give the same result but for rounding. */
bool pst_gnn_projects_first(const struct pst_gnn_layer *layer, int64_t dst, int64_t src, int64_t edges);

#endif
