/* random_batch.h: minibatches made up for the tests of the trainer, in the test's own precision. */
#ifndef RANDOM_BATCH_H
#define RANDOM_BATCH_H

#include "stages/lib/gnn/model.h"

#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 0x2545F4914F6CDD1Dull;

static uint64_t random_below(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return bound ? (random_state >> 11) % bound : 0;
}

static double random_unit(void) /* in (-1, 1) */
{
    return (double)random_below(1u << 30) / (double)(1u << 29) - 1.0;
}

/* A batch that owns its arrays. */
struct random_batch {
    struct pst_gnn_batch view;
    int64_t *vertices, *degrees;
    int32_t *labels;
    uint8_t *multilabels;
    int32_t *indptr[PST_HOPS_MAX], *indices[PST_HOPS_MAX];
    pst_real *features;
};

/* Seeds, then 0..2 newcomers a vertex and hop; up to 4 neighbours each (some have none). */
static inline void random_batch_init(struct random_batch *b, int hops, int64_t seeds, int64_t dim,
                                     int64_t classes)
{
    memset(b, 0, sizeof *b);
    struct pst_gnn_batch *v = &b->view;
    v->mb.hops = (uint32_t)hops;
    v->mb.n[0] = seeds;
    for (int h = 0; h < hops; h++) {
        v->mb.n[h + 1] = v->mb.n[h] + (int64_t)random_below(2 * (uint64_t)v->mb.n[h] + 1);
        b->indptr[h] = calloc((size_t)v->mb.n[h] + 1, sizeof(int32_t));
        b->indices[h] = calloc((size_t)v->mb.n[h] * 4 + 1, sizeof(int32_t));
        for (int64_t d = 0; d < v->mb.n[h]; d++) {
            const int32_t degree = (int32_t)random_below(5);
            for (int32_t e = 0; e < degree; e++)
                b->indices[h][b->indptr[h][d] + e] = (int32_t)random_below((uint64_t)v->mb.n[h + 1]);
            b->indptr[h][d + 1] = b->indptr[h][d] + degree;
        }
        v->indptr[h] = b->indptr[h];
        v->indices[h] = b->indices[h];
        v->edges[h] = b->indptr[h][v->mb.n[h]];
    }
    const int64_t rows = v->mb.n[hops];
    b->vertices = calloc((size_t)rows + 1, sizeof *b->vertices);
    b->degrees = calloc((size_t)rows + 1, sizeof *b->degrees);
    b->labels = calloc((size_t)seeds + 1, sizeof *b->labels);
    b->features = calloc((size_t)(rows * dim) + 1, sizeof *b->features);
    for (int64_t i = 0; i < rows; i++)
        b->vertices[i] = i * 7919 + (int64_t)random_below(7919);
    for (int64_t i = 0; i < rows; i++) /* at least as many as a block has */
        b->degrees[i] = 4 + i * 13 % 31;
    for (int64_t i = 0; i < seeds; i++)
        b->labels[i] = (int32_t)random_below((uint64_t)classes + 1) - (i > 0);
    for (int64_t i = 0; i < seeds; i++)
        if (b->labels[i] >= classes)
            b->labels[i] = 0;
    for (int64_t i = 0; i < rows * dim; i++)
        b->features[i] = (pst_real)random_unit();
    v->vertices = b->vertices;
    b->multilabels = malloc((size_t)(seeds * classes) + 1);
    for (int64_t i = 0; i < seeds * classes; i++)
        b->multilabels[i] = (uint8_t)(i % 7 == 3 ? PST_LABEL_IGNORED : i * i / 5 % 2);
    v->multilabels = b->multilabels;
    v->degrees = b->degrees;
    v->labels = b->labels;
    v->features = b->features;
    v->mb.stride_bytes = (uint64_t)dim * sizeof(pst_real);
    v->mb.batch_seeds = seeds > 0 ? (uint32_t)seeds : 1;
    v->mb.epoch = 3;
    v->mb.batch = 17;
}

static inline void random_batch_release(struct random_batch *b)
{
    for (int h = 0; h < PST_HOPS_MAX; h++) {
        free(b->indptr[h]);
        free(b->indices[h]);
    }
    free(b->vertices);
    free(b->degrees);
    free(b->multilabels);
    free(b->labels);
    free(b->features);
}

#endif
