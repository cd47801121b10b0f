/* embed_query.c: queries of the models, scores of true ends, and the gradients of both. */
#include "kernels/cpu/embed_rows.h"

#include <math.h>
#include <string.h>

void pst_cpu_embed_dot(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    (void)rel;
    (void)backwards;
    memcpy(q, anchor, (size_t)d * sizeof *q);
}

void pst_cpu_embed_dot_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                            bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    (void)anchor;
    (void)rel;
    (void)backwards;
    (void)d_rel;
    memcpy(d_anchor, dq, (size_t)d * sizeof *dq);
}

void pst_cpu_embed_distmult(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d,
                            bool backwards)
{
    (void)backwards;
    for (int64_t i = 0; i < d; i++)
        q[i] = anchor[i] * rel[i];
}

void pst_cpu_embed_distmult_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                                 bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    (void)backwards;
    for (int64_t i = 0; i < d; i++) {
        d_anchor[i] = dq[i] * rel[i];
        d_rel[i] = dq[i] * anchor[i];
    }
}

/* Re(sum of s r conj(o)) is the product of s r with o, and of conj(r) o with s. */
void pst_cpu_embed_complex(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d,
                           bool backwards)
{
    const int64_t h = d / 2;
    const pst_real sign = backwards ? -1 : 1;
    for (int64_t i = 0; i < h; i++) {
        const pst_real re = rel[i], im = sign * rel[h + i];
        q[i] = anchor[i] * re - anchor[h + i] * im;
        q[h + i] = anchor[i] * im + anchor[h + i] * re;
    }
}

void pst_cpu_embed_complex_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                                bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    const int64_t h = d / 2;
    const pst_real sign = backwards ? -1 : 1;
    for (int64_t i = 0; i < h; i++) {
        const pst_real re = rel[i], im = sign * rel[h + i];
        d_anchor[i] = dq[i] * re + dq[h + i] * im;
        d_anchor[h + i] = dq[h + i] * re - dq[i] * im;
        d_rel[i] = dq[i] * anchor[i] + dq[h + i] * anchor[h + i];
        d_rel[h + i] = sign * (dq[h + i] * anchor[i] - dq[i] * anchor[h + i]);
    }
}

void pst_cpu_embed_transe(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    for (int64_t i = 0; i < d; i++)
        q[i] = backwards ? anchor[i] - rel[i] : anchor[i] + rel[i];
}

void pst_cpu_embed_transe_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                               bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    (void)anchor;
    (void)rel;
    for (int64_t i = 0; i < d; i++) {
        d_anchor[i] = dq[i];
        d_rel[i] = backwards ? -dq[i] : dq[i];
    }
}

static pst_real cosine(pst_real x)
{
    return (pst_real)cos((double)x);
}

static pst_real sine(pst_real x)
{
    return (pst_real)sin((double)x);
}

/* A rotation of each complex number by the relation's angle. */
void pst_cpu_embed_rotate(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    const int64_t h = d / 2;
    for (int64_t i = 0; i < h; i++) {
        const pst_real c = cosine(rel[i]), s = backwards ? -sine(rel[i]) : sine(rel[i]);
        q[i] = anchor[i] * c - anchor[h + i] * s;
        q[h + i] = anchor[i] * s + anchor[h + i] * c;
    }
}

void pst_cpu_embed_rotate_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                               bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    const int64_t h = d / 2;
    for (int64_t i = 0; i < h; i++) {
        const pst_real c = cosine(rel[i]), s = backwards ? -sine(rel[i]) : sine(rel[i]);
        const pst_real re = anchor[i] * c - anchor[h + i] * s, im = anchor[i] * s + anchor[h + i] * c;
        d_anchor[i] = dq[i] * c + dq[h + i] * s;
        d_anchor[h + i] = dq[h + i] * c - dq[i] * s;
        d_rel[i] = (backwards ? -1 : 1) * (dq[h + i] * re - dq[i] * im);
    }
}

struct pst_cpu_embed_model pst_cpu_embed_model_of(enum pst_k_embed_model model)
{
    static const struct pst_cpu_embed_model MODELS[PST_K_EMBED_MODELS] = {
        [PST_K_EMBED_DOT] = {pst_cpu_embed_dot, pst_cpu_embed_dot_grad},
        [PST_K_EMBED_DISTMULT] = {pst_cpu_embed_distmult, pst_cpu_embed_distmult_grad},
        [PST_K_EMBED_COMPLEX] = {pst_cpu_embed_complex, pst_cpu_embed_complex_grad},
        [PST_K_EMBED_TRANSE_L1] = {pst_cpu_embed_transe, pst_cpu_embed_transe_grad},
        [PST_K_EMBED_TRANSE_L2] = {pst_cpu_embed_transe, pst_cpu_embed_transe_grad},
        [PST_K_EMBED_ROTATE] = {pst_cpu_embed_rotate, pst_cpu_embed_rotate_grad},
    };
    assert(model < PST_K_EMBED_MODELS);
    return MODELS[model];
}

void pst_cpu_embed_drop(const struct pst_rng_stream *draws, uint64_t item, double dropout, int64_t d,
                        pst_real *x)
{
    for (int64_t c = 0; c < d; c += 4) {
        const struct pst_rng_block draw = pst_rng_draw(draws, item, (uint32_t)(c / 4));
        for (int64_t i = c; i < d && i < c + 4; i++)
            x[i] *= pst_rng_unit(draw.word[i - c]) < dropout ? 0 : (pst_real)(1 / (1 - dropout));
    }
}

/* ---- a side ---------------------------------------------------------------------------------------- */

static uint64_t item_of(const struct pst_k_embed_side *s, int64_t i)
{
    return s->first + 2 * (uint64_t)i;
}

/* The anchor of edge i, without what is dropped. */
static const pst_real *anchor_of(const struct pst_k_embed_side *s, int64_t i)
{
    return s->dropout > 0 ? s->anchors + i * s->d : s->nodes + (int64_t)s->anchor[i] * s->d;
}

static const pst_real *relation_of(const struct pst_k_embed_side *s, int64_t i)
{
    const int64_t dr = pst_k_embed_floats_of_relation(s->model, s->d);
    return dr ? s->relations + (int64_t)s->relation[i] * dr : NULL;
}

static const pst_real *target_of(const struct pst_k_embed_side *s, int64_t i)
{
    return s->nodes + (int64_t)s->target[i] * s->d;
}

void pst_k_embed_query(struct pst_queue *q, const struct pst_k_embed_side *s, pst_real *query,
                       pst_real *score)
{
    const struct pst_cpu_embed_model model = pst_cpu_embed_model_of(s->model);
    const enum pst_k_embed_similarity similarity = pst_k_embed_similarity_of(s->model);
    assert(q == NULL && s->n >= 0 && s->d >= 1 && (s->anchors || s->dropout <= 0));
    (void)q;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->dropout > 0) {
            pst_real *to = s->anchors + i * s->d;
            memcpy(to, s->nodes + (int64_t)s->anchor[i] * s->d, (size_t)s->d * sizeof *to);
            pst_cpu_embed_drop(&s->draws, item_of(s, i), s->dropout, s->d, to);
        }
        model.query(query + i * s->d, anchor_of(s, i), relation_of(s, i), s->d, s->backwards);
        score[i] = pst_cpu_embed_score(similarity, query + i * s->d, target_of(s, i), s->d);
    }
}

void pst_k_embed_query_grad(struct pst_queue *q, const struct pst_k_embed_side *s,
                            const struct pst_k_embed_penalty *penalty, const pst_real *query,
                            const pst_real *score, const pst_real *d_score, pst_real *d_query,
                            pst_real *d_anchor, pst_real *d_target, pst_real *d_relation, double *loss)
{
    const struct pst_cpu_embed_model model = pst_cpu_embed_model_of(s->model);
    const enum pst_k_embed_similarity similarity = pst_k_embed_similarity_of(s->model);
    const int64_t d = s->d, dr = pst_k_embed_floats_of_relation(s->model, d);
    const bool complex = pst_k_embed_is_complex(s->model);
    assert(q == NULL && s->n >= 0 && s->d >= 1);
    (void)q;
    for (int64_t i = 0; i < s->n; i++) {
        const pst_real *relation = relation_of(s, i), *target = target_of(s, i);
        pst_real *dq = d_query + i * d, *da = d_anchor + i * d, *dt = d_target + i * d;
        pst_real *to = dr ? d_relation + i * dr : NULL;
        pst_cpu_embed_score_grad(similarity, query + i * d, target, d, score[i], d_score[i], dq, dt);
        model.query_grad(dq, anchor_of(s, i), relation, d, s->backwards, da, to);
        if (s->dropout > 0)
            pst_cpu_embed_drop(&s->draws, item_of(s, i), s->dropout, d, da);
        *loss += pst_cpu_embed_penalty(penalty, s->nodes + (int64_t)s->anchor[i] * d, d, complex, da);
        *loss += pst_cpu_embed_penalty(penalty, target, d, complex, dt);
        if (dr)
            *loss += pst_cpu_embed_penalty(penalty, relation, dr, complex && dr == d, to);
    }
}
