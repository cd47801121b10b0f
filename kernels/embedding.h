/* embedding.h: the kernels of a training step of graph embeddings: scores of edges and of their negatives,
 * losses, gradients, optimizers. Marius (Mohoney et al., OSDI 2021), sections 2 and 3; Legend, section 6: the
 * product of an end and the relation (the query) is computed once, for all scores and all gradients.
 *
 * Both ends of an edge are corrupted. A side replaces one of them. The other end, the anchor, and the
 * relation make a query, a row of d floats. The score of a candidate is its similarity with the query. A step
 * of one side of the edges that share their negatives: embed_query; gather for the negatives' rows;
 * embed_scores; embed_loss; embed_scores_grad; embed_query_grad. Then embed_sum adds the gradients of each
 * vertex and of each relation, and embed_update updates them.
 *
 * Matrices are contiguous. Rows of tables are given by uint32. Ids that are out of range are programmer
 * errors, which CUDA's kernels do not detect. Kernels, owner and threads: kernels.h. */
#ifndef PST_EMBEDDING_H
#define PST_EMBEDDING_H

#include "common/util/rng.h"
#include "kernels/kernels.h"

PST_BEGIN_DECLS

/* DistMult: Yang et al., ICLR 2015; ComplEx: Trouillon et al., ICML 2016; TransE: Bordes et al., NIPS 2013;
 * RotatE: Sun et al., ICLR 2019. Rows of ComplEx and RotatE have all real parts first and then all imaginary
 * parts, so d is even. */
enum pst_k_embed_model {
    PST_K_EMBED_DOT,
    PST_K_EMBED_DISTMULT,
    PST_K_EMBED_COMPLEX,
    PST_K_EMBED_TRANSE_L1,
    PST_K_EMBED_TRANSE_L2,
    PST_K_EMBED_ROTATE,
    PST_K_EMBED_MODELS
};

enum pst_k_embed_similarity {                      /* of query q and candidate x; higher is better */
                              PST_K_EMBED_PRODUCT, /* sum of q x */
                              PST_K_EMBED_L1,      /* -sum of |q - x| */
                              PST_K_EMBED_L2,      /* -sqrt(sum of (q - x)^2) */
                              PST_K_EMBED_MODULI,  /* -sum of |q - x|, where q and x are complex */
};

static inline enum pst_k_embed_similarity pst_k_embed_similarity_of(enum pst_k_embed_model model)
{
    return model == PST_K_EMBED_TRANSE_L1   ? PST_K_EMBED_L1
           : model == PST_K_EMBED_TRANSE_L2 ? PST_K_EMBED_L2
           : model == PST_K_EMBED_ROTATE    ? PST_K_EMBED_MODULI
                                            : PST_K_EMBED_PRODUCT;
}

/* Are rows of vertices complex? */
static inline bool pst_k_embed_is_complex(enum pst_k_embed_model model)
{
    return model == PST_K_EMBED_COMPLEX || model == PST_K_EMBED_ROTATE;
}

/* Floats of a relation: RotatE has an angle for each complex number. 0: the model has no relations. */
static inline int64_t pst_k_embed_floats_of_relation(enum pst_k_embed_model model, int64_t d)
{
    return model == PST_K_EMBED_DOT ? 0 : model == PST_K_EMBED_ROTATE ? d / 2 : d;
}

/* One side of n edges. */
struct pst_k_embed_side {
    enum pst_k_embed_model model;
    int64_t n, d;
    bool backwards; /* the anchor is the edge's destination, and the relation's embedding is that for sources
                     */
    const pst_real *nodes;           /* (vertices,d) */
    const uint32_t *anchor, *target; /* (n): rows of nodes: the end that stays, and the true other end */
    const pst_real *relations;       /* (relations, pst_k_embed_floats_of_relation); NULL if there are none */
    const uint32_t *relation;        /* (n): rows of relations */
    double dropout; /* each float of an anchor is dropped with this probability, and others grow; 0: none */
    struct pst_rng_stream draws;
    uint64_t first; /* edge i drops what pst_rng_draw(draws, first + 2 i, column / 4) says */
    pst_real
        *anchors; /* (n,d): where the CPU keeps anchors with dropout; NULL: not for the CPU, or no dropout */
};

/* query(n,d), and score(n): the scores of the true ends. */
PST_API void pst_k_embed_query(struct pst_queue *q, const struct pst_k_embed_side *side, pst_real *query,
                               pst_real *score);

struct pst_k_embed_penalty { /* weights of the sum of |x|^3 (N3: Lacroix et al., ICML 2018) and of x^2 */
    pst_real n3, l2;
};
/* From the gradients of the queries and of the true ends' scores to those of all rows of the side: sets
 * d_anchor(n,d), d_target(n,d) and d_relation(n, floats of a relation). query and score are those of
 * embed_query. d_score(n) is the gradient of score. d_query(n,d) is what the negatives give the queries; what
 * it has afterwards is undefined. The penalty is over anchor, true end and relation of each edge; *loss +=
 * its sum. */
PST_API void pst_k_embed_query_grad(struct pst_queue *q, const struct pst_k_embed_side *side,
                                    const struct pst_k_embed_penalty *penalty, const pst_real *query,
                                    const pst_real *score, const pst_real *d_score, pst_real *d_query,
                                    pst_real *d_anchor, pst_real *d_target, pst_real *d_relation,
                                    double *loss);

/* m queries(m,d) against n candidates x(n,d). xt(d,n) is the transpose of x: the CPU's distances read it in
 * place of x. CUDA does not read it, and neither do products; it may then be NULL. */
struct pst_k_embed_tile {
    enum pst_k_embed_similarity similarity;
    int64_t m, n, d;
    const pst_real *query, *x, *xt;
    pst_real *scores; /* (m,n) */
    pst_real *grad;   /* (m,n): gradient of the loss with respect to the scores */
};
/* Sets scores. */
PST_API void pst_k_embed_scores(struct pst_queue *q, const struct pst_k_embed_tile *tile);
/* Sets d_query(m,d), and adds to d_x(n,d). The gradient of a distance of 0 is 0. What tile->grad has
 * afterwards is undefined. */
PST_API void pst_k_embed_scores_grad(struct pst_queue *q, const struct pst_k_embed_tile *tile,
                                     pst_real *d_query, pst_real *d_x);

/* f: the score of an edge; f_k: of its corruptions. */
enum pst_k_embed_loss {
    PST_K_EMBED_SOFTMAX,  /* -f + log(e^f + sum of e^f_k) */
    PST_K_EMBED_LOGISTIC, /* log(1 + e^-f) + mean of log(1 + e^f_k) */
    PST_K_EMBED_MARGIN,   /* mean of max(0, margin - f + f_k) */
    /* log(1 + e^-(margin + f)) + sum of w_k log(1 + e^(margin + f_k)), where w_k = e^(temperature f_k) / sum
     * of e^(temperature f_k). The gradient takes w_k as constant (Sun et al., RotatE, ICLR 2019,
     * "Optimization"). */
    PST_K_EMBED_ADVERSARIAL,
};

/* The loss of m edges on one side, with n negatives. */
struct pst_k_embed_loss_rows {
    enum pst_k_embed_loss loss;
    pst_real margin, temperature;
    int64_t m, n;
    const pst_real *score; /* (m): of the true ends */
    pst_real *scores;      /* (m,n): of the negatives; those that do not count become -infinity */
    const uint32_t *ids;   /* (n): the negatives; NULL: they are 0 to n - 1 */
    const uint32_t *own;   /* (m): the true ends. A negative that is the true end does not count. */
    pst_real *grad;        /* (m,n): set to the gradient with respect to scores */
    pst_real *d_score;     /* (m): set to the gradient with respect to score */
};
/* *loss += the sum over the edges. An exponential is computed once, for loss and gradient. */
PST_API void pst_k_embed_loss(struct pst_queue *q, const struct pst_k_embed_loss_rows *rows, double *loss);

/* The sum of from[i] over all i with row[i] = r, in the order of i, for each r below `rows`. from(n,width).
 * touched NULL: to(rows,width), and rows that nothing is added to become 0. Else touched gets the rows that
 * something is added to, ascending, *touched_n their number, and row k of to(*touched_n,width) is that of
 * touched[k]. touched and `to` need room for as many as n and `rows` allow. */
PST_API void pst_k_embed_sum(struct pst_queue *q, int64_t n, const uint32_t *row, const pst_real *from,
                             int64_t rows, int64_t width, pst_real *to, uint32_t *touched,
                             int64_t *touched_n);

enum pst_k_embed_optimizer {
    PST_K_EMBED_ADAGRAD,     /* G += g^2; x -= rate g / (sqrt(G) + 1e-10) (Duchi et al., JMLR 2011) */
    PST_K_EMBED_ADAGRAD_ROW, /* the same with one G for a row, which grows by the mean of g^2 */
    PST_K_EMBED_SGD,
    PST_K_EMBED_ADAM, /* beta 0.9 and 0.999, epsilon 1e-8 (Kingma and Ba, ICLR 2015) */
};
#define PST_K_EMBED_ADAGRAD_EPS 1e-10
#define PST_K_EMBED_ADAM_BETA1 0.9
#define PST_K_EMBED_ADAM_BETA2 0.999
#define PST_K_EMBED_ADAM_EPS 1e-8

/* Floats of state of a row of d. They begin as 0. */
static inline int64_t pst_k_embed_state_floats(enum pst_k_embed_optimizer optimizer, int64_t d)
{
    return optimizer == PST_K_EMBED_ADAGRAD       ? d
           : optimizer == PST_K_EMBED_ADAGRAD_ROW ? 1
           : optimizer == PST_K_EMBED_ADAM        ? 2 * d
                                                  : 0;
}

/* A table of embeddings with the state of its optimizer. */
struct pst_k_embed_table {
    enum pst_k_embed_optimizer optimizer;
    pst_real rate;
    uint64_t step;   /* updates of the table with this one, from 1; only Adam reads it */
    int64_t d;       /* at least 1 */
    pst_real *x;     /* (rows,d) */
    pst_real *state; /* (rows, pst_k_embed_state_floats) */
};
/* Updates n different rows in place: those of the list rows(n), or rows 0 to n - 1 if it is NULL. The
 * gradient of the i-th of them is row i of grad if `packed`, else the row of grad with the number of the
 * table's row. */
PST_API void pst_k_embed_update(struct pst_queue *q, const struct pst_k_embed_table *table,
                                const uint32_t *rows, int64_t n, const pst_real *grad, bool packed);

/* Draws the negatives of a batch as rows of a table whose vertices lie in ranges of rows, one for each
 * partition in memory (Legend, section 3). Of each chunk and side, the first `drawn` are the same end of
 * random edges of the batch, and the others uniform over the ranges. */
struct pst_k_embed_draws {
    uint64_t seed;
    uint32_t epoch;
    uint64_t batch; /* of the epoch */
    int64_t chunks, negatives, drawn;
    bool all; /* negative k is vertex k of the ranges; chunks is 1, and the rest above has no effect */
    int64_t edges;
    const uint32_t *end[2]; /* (edges): rows of sources, of destinations */
    int64_t ranges;
    const int64_t *before; /* (ranges + 1): vertices before a range */
    const uint32_t *first; /* (ranges): the row of its first vertex */
};
/* Sets to[side](chunks,negatives): side 0 replaces sources. */
PST_API void pst_k_embed_negatives(struct pst_queue *q, const struct pst_k_embed_draws *draw,
                                   uint32_t *const to[2]);

/* norm(n): the Euclidean norms of the rows x(n,d), in double precision. */
PST_API void pst_k_embed_norms(struct pst_queue *q, int64_t n, int64_t d, const pst_real *x, double *norm);

/* Counts for exact ranks: how many of n candidates score above a query's true end, or equally. A score is a
 * sum in double precision, in the order of columns; -sqrt of it for L2. A NaN counts as above. The true end
 * itself does not count. */
struct pst_k_embed_ranking {
    enum pst_k_embed_similarity similarity;
    int64_t m, n, d;
    const pst_real *query, *x; /* (m,d), (n,d) */
    const pst_real *scores;    /* (m,n), of embed_scores: they decide what their error allows */
    const double *query_norm,
        *x_norm;                /* (m), (n); NULL for distances. The CPU reads neither norms nor scores */
    const double *score;        /* (m): of the true ends */
    int64_t first;              /* the number of the first candidate; the next three have numbers */
    const int64_t *own;         /* (m): the true end, which need not be among the candidates */
    const int64_t *known_start; /* (m + 1): query i has known[known_start[i]] and so on */
    const uint32_t *known;      /* known ends, each once a query */
};
/* Adds to above(m,2) and equal(m,2): 0: all candidates; 1: without known ends. */
PST_API void pst_k_embed_rank(struct pst_queue *q, const struct pst_k_embed_ranking *ranking, int64_t *above,
                              int64_t *equal);

PST_END_DECLS
#endif
