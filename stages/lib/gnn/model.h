/* model.h: a graph neural network and its training step. Nothing here knows stages or files.
 *
 *   layer l < L-1:  y = dropout(activate(norm(mix(x) + b) [+ x_dst]))
 *   layer L-1:      y = mix(x) + b
 *
 * layer.h lists the kinds of layers, which differ in mix(). Layer l uses the block of hop L-1-l. With
 * aggregate off, a GraphSAGE layer does not use the graph. A normalised layer has gain and shift instead of
 * the bias. Residuals join layers 1..L-2, whose input and output are equally wide.
 *
 * Owner: pst_gnn_model_init fills what the caller owns; pst_gnn_model_release frees it. Threads: one at a
 * time; the model's team helps. Results do not depend on the number of threads. */
#ifndef PST_MODEL_H
#define PST_MODEL_H

#include "common/slots/minibatch.h"
#include "common/util/dtype.h"
#include "stages/lib/device/device.h"
#include "common/util/team.h"
#include "stages/lib/gnn/types/types.h"

#define PST_GNN_LAYERS_MAX PST_HOPS_MAX
enum { PST_GNN_HEAD_TENSORS = 4, PST_GNN_HEAD_ARRAYS = 8 };
#define PST_GNN_TENSORS_MAX (PST_GNN_LAYERS_MAX * 6)

enum pst_gnn_model_kind {
    PST_GNN_GRAPHSAGE,
    PST_GNN_GCN,
    PST_GNN_GAT,
    PST_GNN_MODEL_KINDS, /* those that do not tell relations apart */
    PST_GNN_RGCN = PST_GNN_MODEL_KINDS,
    PST_GNN_RSAGE,
    PST_GNN_RGAT,
    PST_GNN_ALL_KINDS
};
enum pst_gnn_score { PST_GNN_SCORE_NONE, PST_GNN_SCORE_DOT, PST_GNN_SCORE_MLP, PST_GNN_SCORES };
enum pst_gnn_optimizer { PST_GNN_ADAM, PST_GNN_ADAMW, PST_GNN_SGD };
enum pst_gnn_norm { PST_GNN_NORM_NONE, PST_GNN_NORM_LAYER, PST_GNN_NORM_BATCH };

struct pst_gnn_kind; /* layer.h */
struct pst_gnn_head; /* below */

struct pst_gnn_config {
    enum pst_gnn_model_kind model;
    int layers;
    int64_t in, hidden, classes;
    int64_t heads; /* of GAT and R-GAT, whose hidden layers have heads * hidden columns */
    int64_t bases; /* of R-GCN: the matrices of which each relation's weight is a sum; 0: none */
    enum pst_gnn_norm norm;
    bool residual, aggregate;
    bool multilabel; /* a vertex has any number of the classes: sigmoid, binary cross-entropy, micro-F1 */
    bool regression; /* a vertex has `classes` numbers: squared error */
    enum pst_gnn_score score; /* how pairs of seeds are scored, with `classes` columns of outputs each */
    const struct pst_gnn_head *head; /* what does that, borrowed; NULL if score is NONE */
    int64_t pairs_max;               /* with a head: no batch has more pairs */
    int64_t
        learned; /* vertices, each of which has `in` inputs that the model learns; 0: batches have features */
    double dropout, input_dropout, attention_dropout;
    struct pst_xent loss; /* classes' weights, borrowed, where steps are made; weight NULL: the plain loss */
    enum pst_gnn_optimizer optimizer;
    double momentum; /* of PST_GNN_SGD, like nesterov */
    bool nesterov;
    double clip; /* the largest norm of all gradients together; 0: no limit */
    uint64_t seed;
    int threads;
    int64_t rows_max;  /* no batch has more input rows: this sizes the activations */
    int64_t edges_max; /* no batch has more edges, over all hops; GraphSAGE does not need it */
    const struct pst_gnn_types *types; /* borrowed; only models of relations need it */
    struct pst_device *device;         /* has a queue, borrowed; NULL: the CPU's team computes */
};

/* One parameter tensor: a part of the model's flat arrays. */
struct pst_gnn_parameter {
    char name[PST_NAME_MAX];
    int64_t at, rows, cols; /* rows is 1 for vectors */
    int64_t stacked;        /* matrices of equal size, one below the other, that begin as one each; else 1 */
};

/* A layer's widths, and where its parameters begin; -1: it has none of that kind. `neigh` (in, wide)
 * multiplies the neighbours' rows; in GCN and GAT, the vertex's own row too. */
struct pst_gnn_layer {
    int64_t in, out;
    int64_t wide; /* in the last layer of GAT and R-GAT, out of each head; else out */
    int64_t self, neigh, bias, gain, shift;
    int64_t left, right; /* GAT, R-GAT: a_l, a_r (layer.h) */
    int64_t relations;   /* R-GAT: the weights of all relations, one after the other */
    int64_t terms;       /* models of relations: the weights of all terms, one after the other; with bases,
                            only of the vertices' own terms */
    int64_t bases, coefficients; /* R-GCN with bases: all V_b (bases x in, out); c (relations, bases) */
    int64_t running;             /* the running mean; the running variance is `out` further on */
    bool residual, last;
};

/* What a step's time is spent on. */
enum pst_gnn_work {
    PST_GNN_WORK_PRODUCTS,
    PST_GNN_WORK_WEIGHTS, /* products that make the gradients of weights */
    PST_GNN_WORK_MEANS,
    PST_GNN_WORK_FUSED,
    PST_GNN_WORK_LOSS,
    PST_GNN_WORK_UPDATE,
    PST_GNN_WORK_KINDS
};

struct pst_gnn_work_time {
    _Alignas(PST_CACHE_LINE) double s[2][PST_GNN_WORK_KINDS]; /* forward; backward, and the update */
};

/* The model's flat arrays. */
struct pst_gnn_arrays {
    pst_real *weight, *grad, *m, *v; /* m, v: Adam's moments; m: SGD's momentum */
    pst_real *running;               /* batch norm's running means and variances */
};

/* How large a task is. On a device there is one task for all rows, columns and weights, which the kernels
 * divide. */
struct pst_gnn_grain {
    int64_t rows; /* of a block: at usual widths, it stays in the nearest caches */
    /* A weight's gradient is made in tiles, which are large so that its factors are read seldom. If there
     * are fewer tiles than threads could do, each is made in parts of the rows, which are added up in
     * order. */
    int64_t tile_rows, tile_cols;
    int64_t parts;     /* parts times tiles of a weight that has few tiles */
    int64_t part_rows; /* the smallest part */
    int64_t columns;   /* columns that one task scatters rows into */
    int64_t update;    /* parameters that one task updates */
};

/* On a device: the figures of steps that were put on the queue, and are not taken yet. */
enum { PST_GNN_OPEN_MAX = 2 };
struct pst_gnn_open {
    struct pst_twin_record *record; /* PST_GNN_OPEN_MAX of them, in pinned memory; the device's */
    uint64_t put, taken;            /* steps so far; a step's record has its number, from 1 on, as sequence */
};

/* The factors (twin.h) of a layer: W_self, W_neigh, and W_self above W_neigh. */
enum { PST_GNN_FACTOR_SELF, PST_GNN_FACTOR_NEIGH, PST_GNN_FACTOR_BOTH, PST_GNN_FACTORS };

struct pst_gnn_model {
    struct pst_gnn_config config;
    const struct pst_gnn_kind *kind;
    const struct pst_twin *twin; /* what computes, with this queue */
    struct pst_queue *q;
    struct pst_gnn_grain grain;
    struct pst_gnn_terms terms; /* of every layer, if the model tells relations apart */
    struct pst_gnn_layer layer[PST_GNN_LAYERS_MAX];
    struct pst_gnn_parameter parameter[PST_GNN_TENSORS_MAX];
    int parameters;
    int64_t inputs;                     /* the learned inputs (learned, in); -1: there are none */
    int64_t head[PST_GNN_HEAD_TENSORS]; /* the parameters of the head */
    int64_t size;                       /* elements of each flat array */
    int64_t running_size;
    /* On the host: for checkpoints and evaluation. If the model is on a device, grad is NULL, and the
     * others are what pst_gnn_model_fetch brought last. */
    pst_real *weight, *grad, *m, *v, *running;
    struct pst_gnn_arrays on; /* where steps are made: the arrays above, or the device's */
    int64_t steps;            /* of the optimizer */
    char *work; /* activations; on the host, only the part that batches use takes memory; on a device, it
                   grows */
    size_t work_bytes, work_limit; /* now; of the largest batch that the configuration allows */
    int64_t most;                  /* what the device's queue has scratch memory for: pst_device_reserve */
    struct pst_gnn_open open;
    /* The weights in the form in which the twin multiplies, during a pass; NULL if it has no such form. */
    struct pst_twin_factor *factor[PST_GNN_LAYERS_MAX][PST_GNN_FACTORS];
    struct pst_team *team;
    struct pst_gnn_work_time *spent; /* by each thread of the team, in the passes that are timed */
    int64_t passes, timed;           /* so far: all passes; those whose times are in `spent` */
    bool timing;                     /* the present pass is timed; updates always are */
    /* Of each layer, over all steps: destinations, sources and edges. FLOPs and bytes are counted from them.
     */
    int64_t rows[PST_GNN_LAYERS_MAX], sources[PST_GNN_LAYERS_MAX], edges[PST_GNN_LAYERS_MAX];
};

/* A minibatch as one step reads it: the header (common/slots/minibatch.h), and where its arrays are. They
 * are borrowed and lie where the model computes; do not use the header's offsets. Features of type PST_F32
 * are pst_reals. */
struct pst_gnn_batch {
    struct pst_minibatch mb;
    const int64_t *vertices;
    const int32_t *labels;
    const uint8_t *multilabels; /* n[0] x classes: 0, 1 or PST_LABEL_IGNORED; only multilabel needs them */
    const float *targets;       /* n[0] x classes; only regression needs them */
    const int64_t *degrees;     /* of all vertices, in the whole graph; GCN alone needs it */
    const int32_t *pairs;       /* mb.pairs x 2: positions of seeds; only a head needs them */
    const int32_t *indptr[PST_HOPS_MAX], *indices[PST_HOPS_MAX];
    const pst_real *weights[PST_HOPS_MAX]; /* shares of edges (minibatch.h); NULL: they are equal */
    int64_t edges[PST_HOPS_MAX];           /* indptr[h][n[h]]: on a GPU, the host cannot read it from there */
    const void *features;
    /* If mb.in_place_at is set, where row i is: see in_place in minibatch.h. Else NULL. */
    const int32_t *in_place;
    const void *cache;
    const struct pst_gnn_typed_batch *typed; /* only models of relations need it */
};

/* correct / counted: accuracy over the rows that have a label; with multilabel, micro-F1 (2 TP out of 2 TP +
 * FP + FN); with regression, both stay 0; with a head, the share of pairs on the right side of 0. */
struct pst_gnn_figures {
    double loss; /* sum over the rows, divided by batch_seeds; with multilabel and regression, by batch_seeds
                  * classes */
    int64_t correct, counted;
};

/* What a pass counts in one block of seeds: correct and counted, or with multilabel PST_LABEL_COUNTS. */
struct pst_gnn_block_figures {
    double loss;
    int64_t counts[PST_LABEL_COUNTS];
};

static inline bool pst_gnn_has_heads(enum pst_gnn_model_kind model)
{
    return model == PST_GNN_GAT || model == PST_GNN_RGAT;
}

/* Columns of the hidden layers' outputs. */
static inline int64_t pst_gnn_columns(const struct pst_gnn_config *c)
{
    return pst_gnn_has_heads(c->model) ? c->heads * c->hidden : c->hidden;
}

/* Allocates and fills everything, and starts the team. PST_E_ARG: an impossible configuration.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_gnn_model_init(struct pst_gnn_model *model,
                                               const struct pst_gnn_config *config);
PST_API void pst_gnn_model_release(struct pst_gnn_model *model);

/* Adds the gradients of one micro-batch to the model's, and its figures to *figures. logits, if not NULL,
 * gets the address of the logits (n[0] x classes, rows pst_gnn_width(classes) apart), valid until the next
 * call. PST_E_LIMIT: more rows than rows_max. */
PST_API PST_MUST_USE pst_rc pst_gnn_model_step(struct pst_gnn_model *model, const struct pst_gnn_batch *batch,
                                               struct pst_gnn_figures *figures, const pst_real **logits);

/* The same in two halves, on a device and without a head. The first puts the step on the queue, and does not
 * wait unless memory has to grow. At most PST_GNN_OPEN_MAX steps may be put whose figures are not taken. */
PST_API PST_MUST_USE pst_rc pst_gnn_model_put(struct pst_gnn_model *model, const struct pst_gnn_batch *batch);
/* Sleeps until the oldest of these steps is done, and adds its figures to *figures. It does not wait for work
 * that was put on the queue behind the step. After an error, the step counts as taken, too. */
PST_API PST_MUST_USE pst_rc pst_gnn_model_take(struct pst_gnn_model *model, struct pst_gnn_figures *figures);
/* On a device: a step on this batch needs no more memory than there is. Also true of a batch that the step
 * refuses. */
PST_API bool pst_gnn_model_has_room(const struct pst_gnn_model *model, const struct pst_gnn_batch *batch);

/* One step of the optimizer on the gradients that were added up, which are clipped before; then they are zero
 * again. */
PST_API void pst_gnn_model_update(struct pst_gnn_model *model, double rate, double weight_decay);
/* The number of weights that training changes. */
PST_API int64_t pst_gnn_model_parameters(const struct pst_gnn_model *model);
/* Forgets the gradients that were added up. */
PST_API void pst_gnn_model_forget(struct pst_gnn_model *model);

/* Copies weights, moments and running figures from the device to the host's arrays, or back. Does nothing
 * on the CPU. */
PST_API PST_MUST_USE pst_rc pst_gnn_model_fetch(struct pst_gnn_model *model);
PST_API PST_MUST_USE pst_rc pst_gnn_model_send(struct pst_gnn_model *model);

static inline bool pst_gnn_model_on_device(const struct pst_gnn_model *model)
{
    return model->config.device != NULL && pst_device_is_cuda(model->config.device);
}

/* On a device: makes `work` at least so large, at most work_limit (what is in it is lost), and has the queue
 * reserve scratch memory for so many items (pst_device_reserve). It waits for the queue if either has to
 * grow. PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_gnn_model_grow(struct pst_gnn_model *model, size_t work_bytes, int64_t most);

/* Adds a tensor to the model, for layer.h's functions; returns where it begins in the flat arrays. */
int64_t pst_gnn_model_add(struct pst_gnn_model *model, int layer, const char *what, int64_t rows,
                          int64_t cols);

/* Runs a job's tasks: by the team, or, on a device, one after the other, because a queue belongs to one
 * thread. */
PST_API void pst_gnn_model_tasks(struct pst_gnn_model *model, pst_team_task *task, void *job, int64_t tasks);

/* From one row of this width to the next, in elements: rows begin on a cache line. */
static inline int64_t pst_gnn_width(int64_t dim)
{
    return (int64_t)pst_align_up((uint64_t)dim, PST_CACHE_LINE / sizeof(float));
}

/* Where a pass keeps its data: offsets into `work`. For pass.c. */
struct pst_gnn_pass {
    int64_t dst[PST_GNN_LAYERS_MAX], src[PST_GNN_LAYERS_MAX], edges[PST_GNN_LAYERS_MAX];
    bool project[PST_GNN_LAYERS_MAX]; /* multiply by W_neigh before the mean, not after */
    size_t y[PST_GNN_LAYERS_MAX];     /* a layer's output */
    size_t mixed[PST_GNN_LAYERS_MAX]; /* the mean, or the projected rows */
    size_t xhat[PST_GNN_LAYERS_MAX], rstd[PST_GNN_LAYERS_MAX];
    size_t weight[PST_GNN_LAYERS_MAX], self_weight[PST_GNN_LAYERS_MAX]; /* GCN: of the block's edges; of
                                                                           its destinations. GraphSAGE: the
                                                                           second, zeros */
    struct pst_gnn_pass_by_source {
        size_t begin, dst, weight;
    } by_source[PST_GNN_LAYERS_MAX]; /* linear.c, on a CPU: struct pst_block_by_source */
    struct pst_gnn_pass_gat {
        size_t left, right;       /* scores of destinations, of sources */
        size_t alpha, alpha_self; /* of edges, of destinations */
        size_t grad_z, grad_score, grad_self, grad_left, grad_right;
    } gat[PST_GNN_LAYERS_MAX];
    int64_t term_rows[PST_GNN_LAYERS_MAX];                                  /* destinations of all terms */
    size_t term_grad[PST_GNN_LAYERS_MAX], product[PST_GNN_LAYERS_MAX];      /* layer_relations.c */
    size_t composed[PST_GNN_LAYERS_MAX], composed_grad[PST_GNN_LAYERS_MAX]; /* bases: all W_r */
    int64_t term_srcs[PST_GNN_LAYERS_MAX];      /* R-GAT: distinct sources of all relations */
    struct pst_gnn_pass_rgat {                  /* layer_rgat.c: of all relations, one after the other */
        size_t x, z, right, grad_z, grad_right; /* of sources */
        size_t left, grad_left;                 /* of destinations of all terms */
        size_t alpha, grad_alpha;               /* of edges */
    } rgat[PST_GNN_LAYERS_MAX];
    size_t input; /* a copy of the features, if they cannot be used in place; or only of destinations */
    size_t kept[PST_GNN_LAYERS_MAX]; /* the gradient of a normalised layer's output, kept for its residual */
    size_t grad[2];
    int64_t pairs;
    size_t head[PST_GNN_HEAD_ARRAYS]; /* what the head takes */
    size_t sums, figures; /* of each block: gradients of vectors (sums_width reals), loss and hits */
    int64_t sums_width;
    int64_t parts[PST_GNN_LAYERS_MAX][2];  /* of the gradients of W_self and W_neigh */
    size_t partial[PST_GNN_LAYERS_MAX][2]; /* parts x pst_gnn_width(in * out), if there are several parts */
    size_t bytes;
};
/* What follows the last layer if pairs of seeds are scored (stages/lib/links has heads). */
struct step; /* pass.h */
struct pst_gnn_head {
    enum pst_gnn_score score;
    const char *name; /* in the trainer's parameter `score`, and in checkpoints */
    /* Adds the head's parameters to the model, with pst_gnn_model_add; where they begin goes to model->head.
     */
    void (*add_weights)(struct pst_gnn_model *model);
    /* Takes the memory of a pass over pass->pairs pairs of pass->dst[last] rows. */
    void (*take)(const struct pst_gnn_model *model, struct pst_gnn_pass *pass);
    /* After the last layer: makes the gradient of its output, in s->grad, adds those of the head's own
     * parameters, and adds to *sum: loss, counts[0] correct, counts[1] counted. */
    void (*pairs)(struct step *s, struct pst_gnn_block_figures *sum);
    /* score[i]: of the pair whose ends are rows u[i] and v[i] of outputs, ld apart. For any thread. */
    void (*score_rows)(const struct pst_gnn_model *model, const pst_real *outputs, int64_t ld,
                       const int64_t *u, const int64_t *v, int64_t n, pst_real *score, pst_real *scratch);
    /* Reals of scratch that score_rows needs for n pairs. */
    int64_t (*scratch)(const struct pst_gnn_model *model, int64_t n);
};

/* Takes rows x cols reals. */
size_t pst_gnn_pass_take(struct pst_gnn_pass *pass, int64_t rows, int64_t cols);
void pst_gnn_pass_layout(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int64_t copied_rows);

#endif
