/* typed_batch.h: random minibatches of a graph with three types of vertices, one without features, and seven
 * relations, in a slot. Columns that a vertex's type does not have are NaN: no model may read them. */
#ifndef TYPED_BATCH_H
#define TYPED_BATCH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/slots/minibatch.h"
#include "stages/lib/gnn/model.h"
#include "tests/kernel/random_batch.h"

enum { TYPED_WIDE = 7, TYPED_CLASSES = 4, TYPED_SEEDS = 9, TYPED_VERTICES = 240 };

static const struct pst_gnn_types typed_types = {.types = 3,
                                                 .first = {0, 120, 200, TYPED_VERTICES},
                                                 .dim = {TYPED_WIDE, 4, 0},
                                                 .relations = 7,
                                                 .source = {0, 1, 1, 0, 2, 0, 1},
                                                 .target = {0, 0, 0, 1, 0, 2, 1}};

struct typed_batch {
    char *slot;
    struct pst_minibatch_layout layout;
    struct pst_gnn_typed_batch typed;
    struct pst_gnn_batch view;
};

static inline int typed_type_of(int64_t v)
{
    return v < typed_types.first[1] ? 0 : v < typed_types.first[2] ? 1 : 2;
}

/* A vertex of the type among the first n; -1: there is none. */
static inline int32_t typed_source(const int64_t *vertices, int64_t n, int type)
{
    const int64_t from = (int64_t)random_below((uint64_t)n);
    for (int64_t i = 0; i < n; i++)
        if (typed_type_of(vertices[(from + i) % n]) == type)
            return (int32_t)((from + i) % n);
    return -1;
}

/* Up to three edges of each relation that leads to the vertex's type. They are not in the order of relations.
 */
static inline void typed_edges(struct typed_batch *b, int h)
{
    const struct pst_minibatch *mb = &b->view.mb;
    int32_t *indptr = (int32_t *)(void *)(b->slot + mb->indptr_at[h]), edges = 0,
            *indices = (int32_t *)(void *)(b->slot + mb->indices_at[h]),
            *relations = (int32_t *)(void *)(b->slot + mb->relations_at[h]);
    for (int64_t d = 0; d < mb->n[h]; d++) {
        indptr[d] = edges;
        for (int i = 0; i < 3 * typed_types.relations && d % 5 != 4; i++) {
            const int r = i % typed_types.relations;
            const int32_t u = typed_source(b->view.vertices, mb->n[h + 1], typed_types.source[r]);
            if (typed_types.target[r] != typed_type_of(b->view.vertices[d]) || u < 0 || random_below(2) == 0)
                continue;
            relations[edges] = r;
            indices[edges++] = u;
        }
    }
    indptr[mb->n[h]] = edges;
    b->view.indptr[h] = indptr;
    b->view.indices[h] = indices;
    b->view.edges[h] = edges;
}

/* Weights of any scale; sometimes those of all edges of a relation and destination are 0. Reals can be twice
 * as wide as the slot's floats, and have room, because there are fewer than half as many edges as can be. */
static inline void typed_weights(const struct typed_batch *b, int h)
{
    pst_real *weights = (pst_real *)(void *)(b->slot + b->view.mb.weights_at[h]);
    const int32_t *relations = (const int32_t *)(const void *)(b->slot + b->view.mb.relations_at[h]);
    assert(2 * b->view.edges[h] <= b->layout.size.edges[h]);
    for (int64_t d = 0; d < b->view.mb.n[h]; d++)
        for (int32_t e = b->view.indptr[h][d]; e < b->view.indptr[h][d + 1]; e++)
            weights[e] = d % 4 == 3 && relations[e] == 1 ? 0 : (pst_real)(0.1 + fabs(random_unit()));
}

static inline void typed_batch_init_with(struct typed_batch *b, int hops, struct pst_device *device,
                                         bool weights)
{
    struct pst_minibatch_size size = {
        .hops = hops, .relations = true, .weights = weights, .n = {TYPED_SEEDS}};
    for (int h = 0; h < hops; h++) {
        size.n[h + 1] = size.n[h] + 20 * (h + 1);
        size.edges[h] = size.n[h] * 3 * typed_types.relations;
    }
    memset(b, 0, sizeof *b);
    pst_minibatch_layout_init(&b->layout, &size, 8 * sizeof(pst_real));
    b->slot = aligned_alloc(PST_PAGE, b->layout.bytes);
    memset(b->slot, 0, b->layout.bytes);
    struct pst_minibatch *mb = &b->view.mb;
    *mb = (struct pst_minibatch){.magic = PST_MINIBATCH_MAGIC,
                                 .batches_in_epoch = 1,
                                 .last_micro = 1,
                                 .batch_seeds = TYPED_SEEDS,
                                 .feature_dim = TYPED_WIDE,
                                 .feature_dtype = PST_F32};
    pst_minibatch_place(mb, &b->layout);
    memcpy(mb->n, size.n, sizeof mb->n);
    int64_t *vertices = (int64_t *)(void *)(b->slot + mb->vertices_at);
    int32_t *labels = (int32_t *)(void *)(b->slot + mb->labels_at);
    pst_real *features = (pst_real *)(void *)(b->slot + mb->features_at);
    for (int64_t i = 0; i < mb->n[hops]; i++) {
        vertices[i] = i < TYPED_SEEDS ? 3 * i : (31 * i) % TYPED_VERTICES; /* 31 has no divisor of 240 */
        for (int64_t j = 0; j < 8; j++)
            features[i * 8 + j] =
                j < typed_types.dim[typed_type_of(vertices[i])] ? (pst_real)random_unit() : (pst_real)NAN;
    }
    for (int64_t i = 0; i < TYPED_SEEDS; i++)
        labels[i] = (int32_t)random_below(TYPED_CLASSES + 1) - 1;
    b->view.vertices = vertices;
    b->view.labels = labels;
    b->view.features = features;
    for (int h = 0; h < hops; h++) {
        typed_edges(b, h);
        if (weights)
            typed_weights(b, h);
    }
    b->view.typed = &b->typed;
    pst_gnn_typed_batch_init(&b->typed, device);
}

static inline void typed_batch_init(struct typed_batch *b, int hops, struct pst_device *device)
{
    typed_batch_init_with(b, hops, device, false);
}

static inline pst_rc typed_batch_fill(struct typed_batch *b, const struct pst_gnn_model *model)
{
    return pst_gnn_typed_batch_fill(&b->typed, &typed_types, &model->terms, &b->view.mb, b->slot);
}

static inline void typed_batch_release(struct typed_batch *b)
{
    pst_gnn_typed_batch_release(&b->typed);
    free(b->slot);
}

#endif
