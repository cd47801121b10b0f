/* heads.c: the dot product as a score, the loss of pairs, and the gradients of their ends. */
#include "stages/lib/links/heads_impl.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/clones.h"

enum { LANES = 16, COLUMNS = 32 };

PST_CPU_CLONES pst_real pst_links_dot(const pst_real *a, const pst_real *b, int64_t n)
{
    pst_real sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[i % LANES] += a[i] * b[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sum[k] += sum[k + half];
    return sum[0];
}

const pst_real *pst_links_outputs(const struct step *s, int64_t *dim, int64_t *ld)
{
    const int last = s->model->config.layers - 1;
    *dim = s->model->layer[last].out;
    *ld = pst_gnn_width(*dim);
    return real_at(s->model, s->pass->y[last]);
}

void pst_links_loss(const struct step *s, int64_t at, int64_t n, pst_real *score,
                    struct pst_gnn_block_figures *f)
{
    const struct pst_minibatch *mb = &s->batch->mb;
    const double negatives = mb->positives > 0 ? (double)(mb->pairs - mb->positives) / mb->positives : 1;
    const double of_edge = 1.0 / mb->batch_seeds, of_negative = of_edge / negatives;
    for (int64_t i = 0; i < n; i++) {
        const bool edge = at + i < mb->positives;
        const double x = edge ? -(double)score[i] : (double)score[i], scale = edge ? of_edge : of_negative;
        /* log(1 + exp(x)), and its derivative */
        f->loss += scale * (x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
        const double slope = scale / (1 + exp(-x));
        f->counts[0] += x < 0;
        f->counts[1]++;
        score[i] = (pst_real)(edge ? -slope : slope);
    }
}

/* ---- the gradients of the ends --------------------------------------------------------------------- */

struct scatter {
    const struct step *s;
    const pst_real *g, *dz, *y;
    int64_t dim, ld;
};

PST_CPU_CLONES static void scatter_pair(const pst_real *restrict dz, pst_real g, const pst_real *restrict a,
                                        const pst_real *restrict b, pst_real *to_a, pst_real *to_b, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const pst_real d = dz ? dz[j] : g;
        const pst_real of_a = d * b[j], of_b = d * a[j];
        to_a[j] += of_a;
        to_b[j] += of_b;
    }
}

/* Some columns: no other task writes to them. */
static void scatter_task(void *arg, int64_t group, int worker)
{
    const struct scatter *c = arg;
    const struct step *s = c->s;
    const int64_t at = group * COLUMNS, n = pst_min_i64(COLUMNS, c->dim - at), ld = c->ld;
    const int32_t *pair = s->batch->pairs;
    const double before = pst_clock_thread_s();
    for (int64_t i = 0; i < s->batch->mb.n[0]; i++)
        memset(s->grad + i * ld + at, 0, (size_t)n * sizeof *s->grad);
    for (int64_t p = 0; p < s->batch->mb.pairs; p++) {
        const int64_t a = pair[2 * p] * ld + at, b = pair[2 * p + 1] * ld + at;
        scatter_pair(c->dz ? c->dz + p * ld + at : NULL, c->dz ? 0 : c->g[p], c->y + a, c->y + b, s->grad + a,
                     s->grad + b, n);
    }
    pst_gnn_spend(s, worker, PST_GNN_WORK_LOSS, before);
}

void pst_links_scatter(struct step *s, const pst_real *g, const pst_real *dz)
{
    struct scatter c = {.s = s, .g = g, .dz = dz};
    c.y = pst_links_outputs(s, &c.dim, &c.ld);
    pst_gnn_model_tasks(s->model, scatter_task, &c, (c.dim + COLUMNS - 1) / COLUMNS);
}

/* ---- dot --------------------------------------------------------------------------------------------- */

enum { SCORES, FIGURES }; /* the arrays of pass->head */

static void dot_weights(struct pst_gnn_model *model)
{
    (void)model;
}

static void dot_take(const struct pst_gnn_model *model, struct pst_gnn_pass *pass)
{
    const int64_t blocks = (pass->pairs + PST_LINKS_BLOCK - 1) / PST_LINKS_BLOCK;
    (void)model;
    pass->head[SCORES] = pst_gnn_pass_take(pass, pass->pairs, 1);
    pass->head[FIGURES] = pst_gnn_pass_take(
        pass, blocks * (int64_t)(sizeof(struct pst_gnn_block_figures) / sizeof(pst_real)), 1);
}

static struct pst_gnn_block_figures *figures_at(const struct step *s)
{
    return (struct pst_gnn_block_figures *)(void *)(s->model->work + s->pass->head[FIGURES]);
}

static void dot_task(void *arg, int64_t block, int worker)
{
    const struct step *s = arg;
    const int64_t at = block * PST_LINKS_BLOCK, n = pst_min_i64(PST_LINKS_BLOCK, s->batch->mb.pairs - at);
    struct pst_gnn_block_figures *f = figures_at(s) + block;
    pst_real *score = real_at(s->model, s->pass->head[SCORES]) + at;
    int64_t dim, ld;
    const pst_real *y = pst_links_outputs(s, &dim, &ld);
    const int32_t *pair = s->batch->pairs + 2 * at;
    const double before = pst_clock_thread_s();
    *f = (struct pst_gnn_block_figures){.loss = 0};
    for (int64_t i = 0; i < n; i++)
        score[i] = pst_links_dot(y + pair[2 * i] * ld, y + pair[2 * i + 1] * ld, dim);
    pst_links_loss(s, at, n, score, f);
    pst_gnn_spend(s, worker, PST_GNN_WORK_LOSS, before);
}

static void dot_pairs(struct step *s, struct pst_gnn_block_figures *sum)
{
    const int64_t blocks = (s->batch->mb.pairs + PST_LINKS_BLOCK - 1) / PST_LINKS_BLOCK;
    run_tasks(s, dot_task, blocks);
    for (int64_t b = 0; b < blocks; b++) {
        sum->loss += figures_at(s)[b].loss;
        sum->counts[0] += figures_at(s)[b].counts[0];
        sum->counts[1] += figures_at(s)[b].counts[1];
    }
    pst_links_scatter(s, real_at(s->model, s->pass->head[SCORES]), NULL);
}

static void dot_score(const struct pst_gnn_model *model, const pst_real *outputs, int64_t ld,
                      const int64_t *u, const int64_t *v, int64_t n, pst_real *score, pst_real *scratch)
{
    (void)scratch;
    for (int64_t i = 0; i < n; i++)
        score[i] = pst_links_dot(outputs + u[i] * ld, outputs + v[i] * ld, model->config.classes);
}

static int64_t dot_scratch(const struct pst_gnn_model *model, int64_t n)
{
    (void)model;
    (void)n;
    return 0;
}

const struct pst_gnn_head pst_links_head_dot = {.score = PST_GNN_SCORE_DOT,
                                                .name = "dot",
                                                .add_weights = dot_weights,
                                                .take = dot_take,
                                                .pairs = dot_pairs,
                                                .score_rows = dot_score,
                                                .scratch = dot_scratch};

const struct pst_gnn_head *pst_links_head(enum pst_gnn_score score)
{
    static const struct pst_gnn_head *const heads[PST_GNN_SCORES] = {
        [PST_GNN_SCORE_DOT] = &pst_links_head_dot, [PST_GNN_SCORE_MLP] = &pst_links_head_mlp};
    return heads[score];
}
