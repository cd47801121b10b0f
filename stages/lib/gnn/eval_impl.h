/* eval_impl.h: constants and functions that eval.c (sizes, scores), eval_layers.c (layers) and eval_kinds.c
 * and eval_gat.c (how kinds of layers differ) share. */
#ifndef PST_EVAL_IMPL_H
#define PST_EVAL_IMPL_H

#include "stages/lib/gnn/eval.h"

enum {
    PST_GNN_EVAL_BLOCK =
        128,                 /* rows of one task and product: fixed, so that results depend on nothing else */
    PST_GNN_EVAL_RANGE = 32, /* blocks per thread in a range of destinations, if everything is in memory */
    PST_GNN_EVAL_SHARE =
        4, /* 1/4 of a mean's memory is for sources, the rest for destinations: larger ranges of destinations
              reduce reads, more memory for sources only reduces the number of reads */
};

/* Tasks of each thread between two looks at the progress. */
enum { PST_GNN_EVAL_BATCH_BLOCKS = 16 };

/* Rounds rows down to whole blocks, at least one. */
static inline int64_t pst_gnn_eval_blocks(uint64_t rows)
{
    return pst_max_i64(1, (int64_t)(rows / PST_GNN_EVAL_BLOCK)) * PST_GNN_EVAL_BLOCK;
}

/* The memory of one destination of a range: its sum, the state of its heads, and a cursor in its
 * neighbours. */
static inline size_t pst_gnn_eval_sum_bytes(const struct pst_gnn_eval *eval, int64_t ld)
{
    return (size_t)(ld + eval->state_reals) * sizeof(pst_real) + sizeof(int64_t);
}

/* What the tasks of one job share. */
struct pst_gnn_eval_job {
    struct pst_gnn_eval *eval;
    const struct pst_gnn_model *model;
    const struct pst_gnn_eval_kind *kind;
    int l;
    int64_t first, rows;    /* the job's vertices */
    int64_t ld;             /* of sums and projected rows */
    pst_real *sums, *state; /* state: of GAT's heads */
    int64_t *cursor;
    const pst_real *part; /* projected rows of vertices from..to */
    int64_t from, to;
    int term;           /* of a model of relations */
    int64_t ld_sum;     /* the same: of sums; ld is that of projected rows */
    pst_real *composed; /* the weights of its relations, if they have bases */
};

/* How kinds of layers (layer.h) differ, for a block of vertices first..first+n. */
struct pst_gnn_eval_kind {
    /* What follows the product with the weight for neighbours, in place. NULL: nothing. */
    void (*projected)(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, pst_real *rows);
    /* Adds the neighbours job->from..to to y. The block begins at `at` of the job's arrays. PST_E_FORMAT:
     * the graph is damaged. */
    pst_rc (*sum)(const struct pst_gnn_eval_job *job, int64_t at, int64_t first, int64_t n, pst_real *y,
                  int worker);
    /* Makes the layer's linear part from the sums, y. kept: rows of the layer's input (in the first layer of
     * GraphSAGE, their product with W_self); NULL if the layer has neither W_self nor residual. */
    pst_rc (*combine)(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *kept,
                      pst_real *y, int worker);
};
extern const struct pst_gnn_eval_kind pst_gnn_eval_kind_gat; /* eval_gat.c */
const struct pst_gnn_eval_kind *pst_gnn_eval_kind_of(const struct pst_gnn_model *model);

/* One of a worker's two blocks of activations. */
static inline pst_real *pst_gnn_eval_block(const struct pst_gnn_eval *eval, int worker, int which)
{
    return (pst_real *)(void *)(eval->buffers + (size_t)worker * eval->worker_bytes + eval->block_at[which]);
}

/* y = x W */
static inline void pst_gnn_eval_product(const struct pst_gnn_model *model, const pst_real *x, int64_t ld_x,
                                        int64_t n, const struct pst_gnn_layer *layer, int64_t weight,
                                        pst_real *y, int64_t ld_y)
{
    const int64_t cols = weight == layer->neigh ? layer->wide : layer->out;
    pst_k_gemm(NULL, false, false, n, cols, layer->in, 1, x, ld_x, model->weight + weight, cols, 0, y, ld_y,
               1);
}

/* For jobs. The vertices of a task: the first, and how many. */
int64_t pst_gnn_eval_rows_of_task(const struct pst_gnn_eval_job *job, int64_t task, int64_t *first);
/* Keeps the first failure of a job's tasks for the thread that runs the job. */
void pst_gnn_eval_task_ends(struct pst_gnn_eval *eval, pst_rc rc);
/* Runs a task for each block of the job's vertices. Fails as the first task that failed. */
PST_MUST_USE pst_rc pst_gnn_eval_run_job(struct pst_gnn_eval_job *job, pst_team_task *task);
/* Begins to show the progress of a layer; layer -1: of no layer. */
void pst_gnn_eval_begin(struct pst_gnn_eval *eval, const char *what, int layer, uint64_t total, bool bytes);
/* Reads a block of features. */
PST_MUST_USE pst_rc pst_gnn_eval_features(const struct pst_gnn_eval_job *job, int64_t first, int64_t n,
                                          int worker, const pst_real **x, int64_t *ld_x);
/* What follows the linear part of a layer, and the sink. input: of the residual. */
PST_MUST_USE pst_rc pst_gnn_eval_finish_layer(struct pst_gnn_eval *eval, const struct pst_gnn_model *model,
                                              int l, int64_t first, int64_t n, pst_real *y, int64_t ld,
                                              const pst_real *input, int64_t ld_input);
/* Brings the projected rows of job->from..to into memory, for sums. room: of so many rows of job->ld. */
PST_MUST_USE pst_rc pst_gnn_eval_fetch_part(struct pst_gnn_eval_job *job, pst_real *room);

/* eval_rgat.c, for the relation of job->term. The scores of sources, from their products z; those of
 * destinations, from their input. */
void pst_gnn_eval_scores(const struct pst_gnn_eval_job *job, int64_t first, int64_t n, const pst_real *z,
                         int64_t ld);
void pst_gnn_eval_target_scores(const struct pst_gnn_eval_job *job, int64_t first, int64_t n,
                                const pst_real *x, int64_t ld_x);
/* What the coefficients of vertex v need besides its scores: state, 2 x heads. PST_E_FORMAT: its neighbours
 * are out of range. */
PST_MUST_USE pst_rc pst_gnn_eval_attention(const struct pst_gnn_eval_job *job, int64_t v, pst_real *state);
/* Adds the product z of the neighbour u, by its coefficients. */
void pst_gnn_eval_attend(const struct pst_gnn_eval_job *job, int64_t v, int64_t u, const pst_real *state,
                         const pst_real *z, pst_real *y);

/* eval_relations.c: all layers of a model of relations. */
PST_MUST_USE pst_rc pst_gnn_eval_relations(struct pst_gnn_eval *eval, const struct pst_gnn_model *model);

/* Computes all layers for all vertices: the predictions, and what the sink gets. */
PST_MUST_USE pst_rc pst_gnn_eval_layers(struct pst_gnn_eval *eval, const struct pst_gnn_model *model);

#endif
