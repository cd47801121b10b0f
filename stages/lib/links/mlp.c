/* mlp.c: a perceptron with one hidden layer that scores the elementwise product of both ends' outputs. The
 * pairs are cut into parts. Each part goes through its pairs block by block and adds up its own gradients of
 * the weights; then the parts are added in order. */
#include "stages/lib/links/heads_impl.h"

#include <string.h>

#include "kernels/cpu/clones.h"

enum { PARTS_MAX = 16, PART_PAIRS = 1024, DROP_LAYER = 100 }; /* DROP_LAYER: of no layer of a model */
enum { WEIGHT, BIAS, OUT, OUT_BIAS };                         /* the parameters in model->head */
enum { SCORES, PRODUCTS, PART };                              /* the arrays of pass->head */

static void add_weights(struct pst_gnn_model *model)
{
    const int64_t d = model->config.classes;
    model->head[WEIGHT] = pst_gnn_model_add(model, -1, "score.weight", d, d);
    model->head[BIAS] = pst_gnn_model_add(model, -1, "score.bias", 1, d);
    model->head[OUT] = pst_gnn_model_add(model, -1, "score.weight_out", d, 1);
    model->head[OUT_BIAS] = pst_gnn_model_add(model, -1, "score.bias_out", 1, 1);
}

/* What a part needs, in reals: its gradients of W, b, w and c, and three blocks. */
struct part {
    struct pst_gnn_block_figures figures;
    pst_real *weight, *bias, *out, *out_bias;
    pst_real *z, *h, *dh; /* of a block of pairs */
};

static int64_t parts_of(int64_t pairs)
{
    return pst_max_i64(1, pst_min_i64(PARTS_MAX, pairs / PART_PAIRS));
}

static int64_t gradient_reals(int64_t d)
{
    return pst_gnn_width(d * d) + 2 * pst_gnn_width(d) + pst_gnn_width(1);
}

static int64_t figures_reals(void)
{
    return pst_gnn_width((int64_t)(sizeof(struct pst_gnn_block_figures) / sizeof(pst_real)) + 1);
}

static int64_t part_reals(int64_t d)
{
    return figures_reals() + gradient_reals(d) + 3 * PST_LINKS_BLOCK * pst_gnn_width(d);
}

static void take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass)
{
    const int64_t d = model->config.classes;
    pass->head[SCORES] = pst_gnn_pass_take(pass, pass->pairs, 1);
    pass->head[PRODUCTS] = pst_gnn_pass_take(pass, pass->pairs, pst_gnn_width(d));
    pass->head[PART] = pst_gnn_pass_take(pass, parts_of(pass->pairs), part_reals(d));
}

static pst_real *memory_of(const struct step *s, int64_t number)
{
    return real_at(s->model, s->pass->head[PART]) + number * part_reals(s->model->config.classes);
}

static struct pst_gnn_block_figures *figures_of(const struct step *s, int64_t number)
{
    return (struct pst_gnn_block_figures *)(void *)memory_of(s, number);
}

static struct part part_of(const struct step *s, int64_t number)
{
    const int64_t d = s->model->config.classes, block = PST_LINKS_BLOCK * pst_gnn_width(d);
    struct part p = {.weight = memory_of(s, number) + figures_reals()};
    p.bias = p.weight + pst_gnn_width(d * d);
    p.out = p.bias + pst_gnn_width(d);
    p.out_bias = p.out + pst_gnn_width(d);
    p.z = p.out_bias + pst_gnn_width(1);
    p.h = p.z + block;
    p.dh = p.h + block;
    return p;
}

PST_CPU_CLONES static void multiply(const pst_real *restrict a, const pst_real *restrict b,
                                    pst_real *restrict to, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = a[j] * b[j];
}

/* dh = g w, and the gradient of w += g h. */
PST_CPU_CLONES static void through_out(pst_real g, const pst_real *restrict w, const pst_real *restrict h,
                                       pst_real *restrict dh, pst_real *restrict grad, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        dh[j] = g * w[j];
        grad[j] += g * h[j];
    }
}

/* The hidden layer of n pairs, from their products z. */
static void hidden(const struct pst_gnn_model *model, const pst_real *z, int64_t n, pst_real *h,
                   const int64_t *ids, const struct pst_dropout *drop)
{
    const int64_t d = model->config.classes, ld = pst_gnn_width(d);
    const pst_real *w = model->weight;
    pst_k_gemm(NULL, false, false, n, d, d, 1, z, ld, w + model->head[WEIGHT], d, 0, h, ld, 1);
    pst_k_bias_relu_dropout(NULL, h, ld, w + model->head[BIAS], ids, n, d, true, drop);
}

/* A number of each pair for dropout: it does not depend on how a batch is split. */
static int64_t id_of(int64_t u, int64_t v)
{
    return (int64_t)((uint64_t)u * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)v);
}

static void block_of_part(const struct step *s, struct part *p, struct pst_gnn_block_figures *f, int64_t at,
                          int64_t n)
{
    const struct pst_gnn_model *m = s->model;
    const int32_t *pair = s->batch->pairs + 2 * at;
    const struct pst_dropout drop = {.seed = m->config.seed,
                                     .epoch = s->batch->mb.epoch,
                                     .batch = s->batch->mb.batch,
                                     .layer = DROP_LAYER,
                                     .rate = (float)m->config.dropout};
    pst_real *score = real_at(m, s->pass->head[SCORES]) + at, total = 0;
    int64_t d, ld, ids[PST_LINKS_BLOCK];
    const pst_real *y = pst_links_outputs(s, &d, &ld), *out = m->weight + m->head[OUT];
    for (int64_t i = 0; i < n; i++) {
        multiply(y + pair[2 * i] * ld, y + pair[2 * i + 1] * ld, p->z + i * ld, d);
        ids[i] = id_of(s->batch->vertices[pair[2 * i]], s->batch->vertices[pair[2 * i + 1]]);
    }
    hidden(m, p->z, n, p->h, ids, &drop);
    for (int64_t i = 0; i < n; i++)
        score[i] = pst_links_dot(p->h + i * ld, out, d) + m->weight[m->head[OUT_BIAS]];
    pst_links_loss(s, at, n, score, f);
    for (int64_t i = 0; i < n; i++) {
        through_out(score[i], out, p->h + i * ld, p->dh + i * ld, p->out, d);
        total += score[i];
    }
    *p->out_bias += total;
    pst_k_bias_relu_dropout_grad(NULL, p->dh, ld, p->h, ld, ids, n, d, true, &drop, p->bias);
    pst_k_gemm(NULL, true, false, d, d, n, 1, p->z, ld, p->dh, ld, 1, p->weight, d, 1);
    pst_k_gemm(NULL, false, true, n, d, d, 1, p->dh, ld, m->weight + m->head[WEIGHT], d, 0,
               real_at(m, s->pass->head[PRODUCTS]) + at * ld, ld, 1);
}

static void part_task(void *arg, int64_t number, int worker)
{
    const struct step *s = arg;
    const int64_t pairs = s->batch->mb.pairs, parts = parts_of(pairs), end = (number + 1) * pairs / parts;
    struct part p = part_of(s, number);
    struct pst_gnn_block_figures *f = figures_of(s, number);
    const double before = pst_clock_thread_s();
    memset(p.weight, 0, (size_t)gradient_reals(s->model->config.classes) * sizeof *p.weight);
    *f = (struct pst_gnn_block_figures){.loss = 0};
    for (int64_t at = number * pairs / parts; at < end; at += PST_LINKS_BLOCK)
        block_of_part(s, &p, f, at, pst_min_i64(PST_LINKS_BLOCK, end - at));
    pst_gnn_spend(s, worker, PST_GNN_WORK_PRODUCTS, before);
}

static void add_up(const struct step *s, int64_t parameter, const pst_real *from, int64_t n)
{
    pst_k_add(NULL, s->model->grad + s->model->head[parameter], n, from, n, 1, n);
}

static void mlp_pairs(struct step *s, struct pst_gnn_block_figures *sum)
{
    const int64_t parts = parts_of(s->batch->mb.pairs), d = s->model->config.classes;
    run_tasks(s, part_task, parts);
    for (int64_t k = 0; k < parts; k++) {
        const struct part p = part_of(s, k);
        add_up(s, WEIGHT, p.weight, d * d);
        add_up(s, BIAS, p.bias, d);
        add_up(s, OUT, p.out, d);
        add_up(s, OUT_BIAS, p.out_bias, 1);
        sum->loss += figures_of(s, k)->loss;
        sum->counts[0] += figures_of(s, k)->counts[0];
        sum->counts[1] += figures_of(s, k)->counts[1];
    }
    pst_links_scatter(s, NULL, real_at(s->model, s->pass->head[PRODUCTS]));
}

static void mlp_score(const struct pst_gnn_model *model, const pst_real *outputs, int64_t ld,
                      const int64_t *u, const int64_t *v, int64_t n, pst_real *score, pst_real *scratch)
{
    const int64_t d = model->config.classes, width = pst_gnn_width(d);
    const struct pst_dropout none = {0};
    pst_real *z = scratch, *h = scratch + n * width;
    for (int64_t i = 0; i < n; i++)
        multiply(outputs + u[i] * ld, outputs + v[i] * ld, z + i * width, d);
    hidden(model, z, n, h, NULL, &none);
    for (int64_t i = 0; i < n; i++)
        score[i] = pst_links_dot(h + i * width, model->weight + model->head[OUT], d) +
                   model->weight[model->head[OUT_BIAS]];
}

static int64_t mlp_scratch(const struct pst_gnn_model *model, int64_t n)
{
    return 2 * n * pst_gnn_width(model->config.classes);
}

const struct pst_gnn_head pst_links_head_mlp = {.score = PST_GNN_SCORE_MLP,
                                                .name = "mlp",
                                                .add_weights = add_weights,
                                                .take = take,
                                                .pairs = mlp_pairs,
                                                .score_rows = mlp_score,
                                                .scratch = mlp_scratch};
