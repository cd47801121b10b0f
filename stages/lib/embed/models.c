/* models.c: the queries of the models and their gradients. DistMult: Yang et al., ICLR 2015; ComplEx:
 * Trouillon et al., ICML 2016; TransE: Bordes et al., NIPS 2013; RotatE: Sun et al., ICLR 2019. */
#include "stages/lib/embed/embed.h"

#include <math.h>
#include <string.h>

static void dot(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    (void)rel;
    (void)backwards;
    memcpy(q, anchor, (size_t)d * sizeof *q);
}

static void dot_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                     bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    (void)anchor;
    (void)rel;
    (void)backwards;
    (void)d_rel;
    memcpy(d_anchor, dq, (size_t)d * sizeof *dq);
}

static void distmult(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    (void)backwards;
    for (int64_t i = 0; i < d; i++)
        q[i] = anchor[i] * rel[i];
}

static void distmult_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
                          bool backwards, pst_real *d_anchor, pst_real *d_rel)
{
    (void)backwards;
    for (int64_t i = 0; i < d; i++) {
        d_anchor[i] = dq[i] * rel[i];
        d_rel[i] = dq[i] * anchor[i];
    }
}

/* Re(sum of s r conj(o)) is the product of s r with o, and of conj(r) o with s. */
static void complex(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    const int64_t h = d / 2;
    const pst_real sign = backwards ? -1 : 1;
    for (int64_t i = 0; i < h; i++) {
        const pst_real re = rel[i], im = sign * rel[h + i];
        q[i] = anchor[i] * re - anchor[h + i] * im;
        q[h + i] = anchor[i] * im + anchor[h + i] * re;
    }
}

static void complex_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
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

static void transe(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    for (int64_t i = 0; i < d; i++)
        q[i] = backwards ? anchor[i] - rel[i] : anchor[i] + rel[i];
}

static void transe_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
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
static void rotate(pst_real *q, const pst_real *anchor, const pst_real *rel, int64_t d, bool backwards)
{
    const int64_t h = d / 2;
    for (int64_t i = 0; i < h; i++) {
        const pst_real c = cosine(rel[i]), s = backwards ? -sine(rel[i]) : sine(rel[i]);
        q[i] = anchor[i] * c - anchor[h + i] * s;
        q[h + i] = anchor[i] * s + anchor[h + i] * c;
    }
}

static void rotate_grad(const pst_real *dq, const pst_real *anchor, const pst_real *rel, int64_t d,
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

static const struct pst_embed_model MODELS[] = {
    {"dot", PST_EMBED_PRODUCT, false, 0, 0, dot, dot_grad},
    {"distmult", PST_EMBED_PRODUCT, false, 1, 0, distmult, distmult_grad},
    {"complex", PST_EMBED_PRODUCT, true, 1, 0, complex, complex_grad},
    {"transe-l1", PST_EMBED_L1, false, 1, 0, transe, transe_grad},
    {"transe-l2", PST_EMBED_L2, false, 1, 0, transe, transe_grad},
    {"rotate", PST_EMBED_MODULI, true, 2, (pst_real)3.14159265358979323846, rotate, rotate_grad},
};

const struct pst_embed_model *pst_embed_model_named(const char *name)
{
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].name, name) == 0)
            return &MODELS[i];
    return NULL;
}

const char *pst_embed_models(void)
{
    return "dot, distmult, complex, transe-l1, transe-l2 or rotate";
}
