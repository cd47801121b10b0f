/* layer.h: the kinds of layers, as a table. A model's layers are all of one kind.
 *
 *   graphsage  mix(x)_v = x_v W_self + mean(x_u) W_neigh           (Hamilton, Ying, Leskovec, "Inductive
 *              representation learning on large graphs", NeurIPS 2017, sections 3.1 and 3.3)
 *   gcn        mix(x)_v = (x_v / (d_v + 1) + sum of w_vu x_u) W    (Kipf & Welling, "Semi-supervised
 *              classification with graph convolutional networks", ICLR 2017, equation 2)
 *   gat        mix(x)_v = sum over u and v itself of alpha_vu x_u W, for each head: its own W and alpha
 *              (Velickovic et al., "Graph attention networks", ICLR 2018, equations 1 to 6)
 *
 *   rgcn       mix(x)_v = x_v W_t(v) + sum over r of mean(x_u over N_r(v)) W_r   (Schlichtkrull et al.,
 *              "Modeling relational data with graph convolutional networks", ESWC 2018, equation 2, with the
 *              number of neighbours as c; W_0 is one for each type of vertices, because types differ in
 *              width). With bases (equation 3), W_r = sum over b of c_rb V_b; where a type has fewer
 *              features than the widest, the first rows of V_b count
 *   rsage      mix(x)_v = sum over r of x_v W_self_r + mean(x_u over N_r(v)) W_r, r: the relations that lead
 * to v's type, whether or not v has such neighbours
 *
 *   rgat       mix(x)_v = x_v W_t(v) + sum over r of the sum over u in N_r(v) of alpha_rvu x_u W_r, for each
 * head: its own W_r; alpha_rv: the softmax over N_r(v) of LeakyReLU(x_v q_r + a_r . x_u W_r). That is GAT for
 * each relation, as in DGL's examples for OGB-LSC's MAG240M (Hu et al. 2021) and for heterogeneous graphs.
 * The ends of r may differ in width, so q_r stands for W'_r a'_r
 *
 * u: the sampled neighbours of v. d: the number of in-neighbours in the whole graph. w_vu = d_v / s_v /
 * sqrt((d_v + 1)(d_u + 1)), where s_v neighbours of v were sampled: the expected sum is that of all d_v
 * neighbours. alpha_v: the softmax of LeakyReLU(a_l . x_v W + a_r . x_u W). Hidden layers of GAT have the
 * heads' outputs side by side; the last layer has their average. GAT activates with ELU, the others with
 * ReLU.
 *
 * Threads: a table is constant. Its functions run in tasks of the model's team. */
#ifndef PST_LAYER_H
#define PST_LAYER_H

#include "stages/lib/gnn/pass.h"

struct pst_gnn_kind {
    const char *name;   /* in the trainer's parameter `model`, and in checkpoints */
    bool needs_degrees; /* batches must have `degrees` */
    bool elu;           /* activates with ELU, not ReLU */
    bool typed;         /* tells relations apart: needs config.types, and `typed` of batches */
    bool reads_bf16;    /* reads its input in products and in sums of linear.c only */
    bool each_relation; /* typed: own terms for each relation, not one for each type (types.h) */
    void (*add_weights)(struct pst_gnn_model *model, int l);
    /* Takes what a layer needs besides what all layers need. NULL: nothing. */
    void (*take)(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l);
    /* Task l of a pass, before the first layer. NULL: nothing. */
    pst_team_task *prepare;
    /* What follows the product of rows at..at+n with the layer's weight for neighbours. NULL: nothing. */
    void (*projected)(const struct step *s, int l, int64_t at, int64_t n);
    /* Before the tasks of a layer. NULL: nothing. */
    void (*enter)(struct step *s);
    /* Destinations at..at+n of the layer s->l: y = mix(x). */
    void (*forward)(const struct step *s, int64_t at, int64_t n, int worker);
    /* Goes from the gradient of mix(x), s->grad, to those of the layer's weights and of its input. */
    void (*backward)(struct step *s);
    /* For linear.c: the weights of the edges of layer l, whose sums then also have the own row, with the
     * weights pass->self_weight[l]. NULL: the plain mean. */
    const pst_real *(*edge_weights)(const struct step *s, int l);
};

/* linear.c: what sums rows of neighbours. `take` and `prepare` of such a kind call the first two functions,
 * which take the memory that gradients of sums need, and fill it when the edges have their weights. */
void pst_gnn_linear_take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass, int l);
void pst_gnn_linear_prepare(const struct step *s, int l, int worker);
void pst_gnn_linear_forward(const struct step *s, int64_t at, int64_t n, int worker);
void pst_gnn_linear_backward(struct step *s);

const struct pst_gnn_kind *pst_gnn_kind_of(enum pst_gnn_model_kind model);

extern const struct pst_gnn_kind pst_gnn_kind_sage, pst_gnn_kind_gcn, pst_gnn_kind_gat, pst_gnn_kind_rgcn,
    pst_gnn_kind_rsage, pst_gnn_kind_rgat;

/* layer_relations.c: the weight of a layer's k-th term, (pst_gnn_in_of_term, out); and the columns of its
 * input: 0 in the first layer if the type of its sources has no features. flat: one of the model's flat
 * arrays (its weights, or their gradients). composed: what pst_gnn_compose wrote; without bases, NULL. */
pst_real *pst_gnn_weight_of_term(const struct pst_gnn_model *model, int l, int k, pst_real *flat,
                                 pst_real *composed);
int64_t pst_gnn_in_of_term(const struct pst_gnn_model *model, int l, int k);

/* One term, as the tasks of a layer see it. */
struct pst_gnn_view_of_term {
    const struct pst_gnn_term_block *block;
    int64_t in;
    pst_real *weight, *weight_grad;
    pst_real *mixed, *grad; /* rows of the block: means (then their gradients); gradients of the products */
};
struct pst_gnn_view_of_term pst_gnn_view_term(const struct step *s, int k);
int pst_gnn_first_relation(const struct pst_gnn_model *model); /* the term of relation 0 */
/* The first entry of a block's destinations that is at least `row`. */
int64_t pst_gnn_entry_of(const struct pst_gnn_term_block *block, int64_t row);
/* Sets rows at..at+n of the output to the sum of the first `terms` terms. */
void pst_gnn_sum_terms(const struct step *s, int terms, int64_t at, int64_t n, int worker);
/* Task k, backward: the gradients of a term's products, weight and means. */
void pst_gnn_weigh_term_task(void *step, int64_t k, int worker);
/* Adds some columns of the gradients of the means of the first `terms` terms to that of the input. */
void pst_gnn_scatter_terms(const struct step *s, int terms, int64_t at, int64_t columns, int worker);
/* The gradient of the input: clears it, runs a task for each group of columns, and enters the layer below. */
void pst_gnn_input_of_terms(struct step *s, pst_team_task *scatter);

/* layer_rgat.c: the weights of R-GAT's relation of the k-th term, in one of the model's flat arrays. */
struct pst_gnn_attention {
    int64_t in, in_target; /* columns of the input of sources and of destinations; 0: no features */
    pst_real *weight;      /* W_r, (in, heads x dim) */
    pst_real *left;        /* q_r, (in_target, heads) */
    pst_real *right;       /* a_r, (heads, dim) */
};
struct pst_gnn_attention pst_gnn_attention_of(const struct pst_gnn_model *model, int l, int k,
                                              pst_real *flat);

/* With bases: the weights of a layer's relations, from flat, the model's weights. Without bases: nothing.
 * composed: of pst_gnn_composed_size reals, where flat is; the twin and its queue compute there. */
int64_t pst_gnn_composed_size(const struct pst_gnn_model *model, int l);
void pst_gnn_compose(const struct pst_gnn_model *model, const struct pst_twin *twin, struct pst_queue *q,
                     int l, const pst_real *flat, pst_real *composed);

/* The shape of a layer's heads. */
static inline struct pst_gat pst_gnn_gat_of(const struct pst_gnn_model *model, int l)
{
    const struct pst_gnn_layer *layer = &model->layer[l];
    return (struct pst_gat){.heads = model->config.heads,
                            .dim = layer->last ? layer->out : model->config.hidden,
                            .average = layer->last};
}

#endif
