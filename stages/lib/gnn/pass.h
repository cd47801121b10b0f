/* pass.h: structures and functions that the forward half (pass.c) and the backward half (backward.c) of a
 * pass share. Owner: the model; a pass ends before the next begins. Threads: one starts a task, and the team
 * carries it out. */
#ifndef PST_PASS_H
#define PST_PASS_H

#include "stages/lib/gnn/model.h"
#include "common/util/clock.h"

/* Calls, and adds the thread's processor time to the account of this kind of work if the pass is timed. */
#define TIMED(step, worker, kind, call)                                                                      \
    do {                                                                                                     \
        const bool timing = (step)->model->timing;                                                           \
        const double before_s = timing ? pst_clock_thread_s() : 0;                                           \
        call;                                                                                                \
        if (timing)                                                                                          \
            pst_gnn_spend(step, worker, kind, before_s);                                                     \
    } while (0)

/* What all tasks of a pass share. */
struct step {
    struct pst_gnn_model *model;
    const struct pst_twin *twin; /* of the model, like q */
    struct pst_queue *q;
    const struct pst_gnn_batch *batch;
    const struct pst_gnn_pass *pass;
    struct pst_twin_view x[PST_GNN_LAYERS_MAX]; /* the input of each layer */
    struct pst_twin_view features; /* of the first layer, for sums: some rows may be elsewhere. Then x[0] has
                                      those of destinations, which pst_gnn_gather_rows copies */
    int l;                         /* the layer that tasks work on */
    bool backward;                 /* the half of the pass */
    pst_real *grad, *grad_x;       /* of its output, of its input */
};

/* Adds the thread's processor time since `before_s`. */
static inline void pst_gnn_spend(const struct step *s, int worker, enum pst_gnn_work kind, double before_s)
{
    s->model->spent[worker].s[s->backward][kind] += pst_clock_thread_s() - before_s;
}

static inline struct pst_twin_view view_at(const pst_real *at, int64_t ld)
{
    return (struct pst_twin_view){.at = at, .ld = ld};
}

/* The matrix from a row and a column on. */
static inline struct pst_twin_view view_from(struct pst_twin_view m, int64_t row, int64_t column)
{
    const int64_t at = (m.elsewhere ? 0 : row * m.ld) + column; /* elsewhere has numbers of rows from `at` */
    return (struct pst_twin_view){.at = m.at ? m.at + at : NULL,
                                  .bf16 = m.bf16 ? m.bf16 + at : NULL,
                                  .ld = m.ld,
                                  .elsewhere = m.elsewhere ? m.elsewhere + row : NULL,
                                  .other = m.other};
}

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

/* The rows of a block: they begin at *at; returns how many there are. */
static inline int64_t rows_of(const struct pst_gnn_model *model, int64_t block, int64_t rows, int64_t *at)
{
    *at = block * model->grain.rows;
    return pst_min_i64(model->grain.rows, rows - *at);
}

static inline void run_tasks(struct step *s, pst_team_task *task, int64_t tasks)
{
    pst_gnn_model_tasks(s->model, task, s, tasks);
}

/* Sets all bytes to 0, in the queue's order. A failure is reported at the end of the pass. */
static inline void clear(const struct step *s, void *at, int64_t reals)
{
    (void)s->twin->fill(s->q, at, 0, (size_t)reals * sizeof(pst_real));
}

/* The gradient of a layer's input is needed: there is a layer below, or the inputs are learned. */
static inline bool has_input_grad(const struct pst_gnn_model *model, int l)
{
    return l > 0 || model->inputs >= 0;
}

static inline bool needs_input_grad(const struct step *s)
{
    return has_input_grad(s->model, s->l);
}

/* Batch normalisation needs all rows at once: a barrier in the middle of the layer. */
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

/* The block of a layer. */
static inline struct pst_block block_at(const struct step *s, int l)
{
    const int h = block_of(s->model, l);
    return (struct pst_block){.indptr = s->batch->indptr[h],
                              .indices = s->batch->indices[h],
                              .dsts = s->pass->dst[l],
                              .edges = s->batch->edges[h],
                              .sources = s->pass->src[l]};
}

/* The columns of a layer's weight, and where it begins in a flat array (-1: the layer does not have it).
 * neigh: of W_neigh, else of W_self. */
static inline int64_t columns_of(const struct pst_gnn_layer *layer, int neigh)
{
    return neigh ? layer->wide : layer->out;
}

static inline int64_t weight_at(const struct pst_gnn_layer *layer, int neigh)
{
    return neigh ? layer->neigh : layer->self;
}

/* Are the products with W_self and with W_neigh made together? The twin must gain by it, and the sum over
 * neighbours must come first. */
static inline bool makes_pairs(const struct step *s, int l)
{
    const struct pst_gnn_layer *layer = &s->model->layer[l];
    return s->twin->gemm_sums && layer->self >= 0 && layer->neigh >= 0 && layer->wide == layer->out &&
           !s->pass->project[l];
}

/* C = A W_self + B W_neigh for n rows of layer s->l, if makes_pairs. */
void pst_gnn_pair_product(const struct step *s, int64_t n, struct pst_twin_view a, struct pst_twin_view b,
                          pst_real *c, int64_t ldc, int worker);
/* C = A W, or A W' if transposed, or C += the same if it adds, for n rows, where W is a weight of layer l. */
void pst_gnn_product(const struct step *s, int l, int neigh, bool transposed, int64_t n,
                     struct pst_twin_view a, bool adds, pst_real *c, int64_t ldc, int worker);

/* Copies destinations at..at+n of the first layer from s->features to s->x[0]. */
void pst_gnn_gather_rows(const struct step *s, int64_t at, int64_t n);

/* For the functions of a kind (layer.h), in the backward pass of layer s->l. neigh: of the weight
 * layer->neigh, else of layer->self. */

/* The number of tasks of a weight's gradient; 0: the layer does not have this weight. */
int64_t pst_gnn_weight_tiles(const struct step *s, int neigh);
/* One such task: one part of one tile of x' grad, over `rows` rows. */
void pst_gnn_weight_tile(const struct step *s, int64_t number, struct pst_twin_view x, const pst_real *grad,
                         int64_t rows, int neigh, int worker);
/* Tile `number` of the gradients of both weights, if makes_pairs. x, mixed: what W_self and W_neigh multiply.
 */
void pst_gnn_weight_tile_pair(const struct step *s, int64_t number, struct pst_twin_view x,
                              struct pst_twin_view mixed, const pst_real *grad, int64_t rows, int worker);
/* to = grad W', or to += grad W', for rows at..at+n. weight: where W begins. */
void pst_gnn_input_product(const struct step *s, const pst_real *grad, int64_t weight, bool add, pst_real *to,
                           int64_t at, int64_t n, int worker);
/* Adds what the residual contributes to s->grad_x, for a block of rows, and goes on to the layer below. */
void pst_gnn_enter_below(const struct step *s, int64_t block, int64_t at, int64_t n, int worker);

/* Goes from the gradient of the logits, in pass->grad[0], to those of all weights. */
void pst_gnn_pass_backward(struct step *s);

/* Is it cheaper to multiply a layer's inputs by its weights before their mean than after? dst, src and
 * edges are the block's. Both orders give the same result, but for rounding. */
bool pst_gnn_projects_first(const struct pst_gnn_layer *layer, int64_t dst, int64_t src, int64_t edges);

#endif
