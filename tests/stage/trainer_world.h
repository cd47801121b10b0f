/* trainer_world.h: a random graph as a dataset, minibatches sampled from it, and the forward pass as one
 * would write it down, for tests of the trainer's parts without a pipeline. */
#ifndef TRAINER_WORLD_H
#define TRAINER_WORLD_H

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/checkpoint.h"
#include "stages/lib/gnn/eval.h"
#include "stages/lib/gnn/model.h"
#include "stages/lib/gnn/pass.h"
#include "stages/lib/gnn/spill/spill_rows.h"
#include "stages/lib/gnn/state.h"
#include "common/util/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum {
    VERTICES = 1300,
    EDGES_MAX = VERTICES * 12,
    DIM = 37,
    CLASSES = 5,
    SEEDS = 64,
    ROWS_MAX = 4000,
    HIDDEN_MAX = 24,
    COLUMNS_MAX = 3 * HIDDEN_MAX
};

/* A random graph with features and labels, as a dataset whose features are in a file. */
struct world {
    struct pst_dataset ds;
    char dir[64];
    int64_t indptr[VERTICES + 1], split[3][VERTICES];
    int32_t indices[EDGES_MAX], labels[VERTICES];
    int64_t wide_indices[EDGES_MAX];
    float features[VERTICES * DIM]; /* what the file holds, as floats */
    uint64_t random;
};

static inline uint64_t below(struct world *w, uint64_t bound)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (w->random >> 33) % bound;
}

static inline double unit(struct world *w)
{
    return (double)below(w, 1u << 24) / (double)(1u << 23) - 1;
}

static inline int compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Rows ascend, as a dataset's do. */
static inline void make_graph(struct world *w)
{
    int64_t edges = 0;
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t degree = v == 7 ? 0 : (int64_t)below(w, 12);
        for (int64_t e = 0; e < degree; e++)
            w->indices[edges + e] = (int32_t)below(w, VERTICES);
        qsort(w->indices + edges, (size_t)degree, sizeof *w->indices, compare_ids);
        for (const int64_t end = edges + degree; edges < end; edges++)
            w->wide_indices[edges] = w->indices[edges];
        w->indptr[v + 1] = edges;
        w->labels[v] = v % 11 == 0 ? -1 : (int32_t)below(w, CLASSES);
        w->split[v % 3][v / 3] = v;
    }
    w->ds.edges = edges;
}

/* Rounds features to what the dtype can hold, and writes them as the dataset's file. */
static inline void write_features(struct world *w, enum pst_dtype dtype)
{
    const size_t size = dtype == PST_F32 ? 4 : 2;
    w->ds.stride_bytes = DIM * size + 8;
    w->ds.features.dtype = dtype;
    w->ds.features.data_at = PST_PAGE;
    w->ds.features.data_bytes = VERTICES * w->ds.stride_bytes;
    snprintf(w->ds.features.path, sizeof w->ds.features.path, "%s/features", w->dir);
    char *bytes = calloc(1, PST_PAGE + w->ds.features.data_bytes);
    for (int64_t v = 0; v < VERTICES; v++) {
        for (int64_t j = 0; j < DIM; j++) {
            char *to = bytes + PST_PAGE + (uint64_t)v * w->ds.stride_bytes + (uint64_t)j * size;
            float *f = &w->features[v * DIM + j];
            *f = (float)unit(w);
            uint32_t bits;
            memcpy(&bits, f, 4);
            if (dtype == PST_F32) {
                memcpy(to, f, 4);
            } else if (dtype == PST_BF16) {
                const uint16_t top = (uint16_t)(bits >> 16);
                memcpy(to, &top, 2);
            } else { /* exact in float16: eighths below 1 */
                *f = (float)((double)(int)(below(w, 15)) / 8 - 0.875);
                memcpy(&bits, f, 4);
                const int32_t exponent = (int32_t)(bits >> 23 & 255) - 127 + 15;
                const uint16_t half =
                    (uint16_t)(*f == 0 ? 0
                                       : (bits >> 16 & 0x8000) | ((uint32_t)exponent << 10) |
                                             (bits >> 13 & 0x3FF));
                memcpy(to, &half, 2);
            }
            if (dtype == PST_BF16) {
                bits &= 0xFFFF0000u;
                memcpy(f, &bits, 4);
            }
        }
    }
    FILE *file = fopen(w->ds.features.path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, PST_PAGE + w->ds.features.data_bytes, file),
                     PST_PAGE + w->ds.features.data_bytes);
    fclose(file);
    free(bytes);
}

static inline struct world *world_new(enum pst_dtype dtype, bool wide)
{
    struct world *w = calloc(1, sizeof *w);
    w->random = 99;
    snprintf(w->dir, sizeof w->dir, "/tmp/pst-trainer-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    make_graph(w);
    w->ds.vertices = VERTICES;
    w->ds.feature_dim = DIM;
    w->ds.classes = CLASSES;
    w->ds.indptr.map = w->indptr;
    w->ds.indices.map = wide ? (const void *)w->wide_indices : (const void *)w->indices;
    w->ds.indices.dtype = wide ? PST_I64 : PST_I32;
    w->ds.labels.map = w->labels;
    for (int s = 0; s < 3; s++) {
        w->ds.split[s].map = w->split[s];
        w->ds.split[s].shape[0] = VERTICES / 3;
    }
    write_features(w, dtype);
    return w;
}

static inline void world_free(struct world *w)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
}

/* ---- minibatches sampled from it ----------------------------------------------------------------- */

struct sampled {
    struct pst_gnn_batch view;
    int64_t vertices[ROWS_MAX], degrees[ROWS_MAX];
    int32_t labels[SEEDS];
    int32_t indptr[PST_HOPS_MAX][ROWS_MAX], indices[PST_HOPS_MAX][EDGES_MAX];
    float features[ROWS_MAX * DIM];
};

static inline struct sampled *sample(const struct world *w, int hops, int fanout, const int64_t *seeds,
                                     int64_t n)
{
    struct sampled *s = calloc(1, sizeof *s);
    const struct pst_csc graph = {w->indptr, w->indices, 4, VERTICES, w->ds.edges};
    void *memory = malloc(pst_k_dedup_bytes(ROWS_MAX));
    int64_t *ids = malloc(EDGES_MAX * sizeof *ids), count = 0;
    struct pst_dedup *table = pst_k_dedup_init(memory, ROWS_MAX);
    assert_int_equal(pst_k_dedup(NULL, table, seeds, n, s->vertices, &count, ROWS_MAX, NULL), PST_OK);
    s->view = (struct pst_gnn_batch){.mb = {.hops = (uint32_t)hops,
                                            .n = {count},
                                            .stride_bytes = DIM * sizeof(float),
                                            .epoch = 1,
                                            .batch = 4,
                                            .batch_seeds = SEEDS},
                                     .vertices = s->vertices,
                                     .degrees = s->degrees,
                                     .labels = s->labels,
                                     .features = s->features};
    for (int h = 0; h < hops; h++) {
        const struct pst_sample_key key = {11, 1, (uint32_t)h, 4};
        assert_int_equal(pst_k_sample(NULL, &graph, &key, s->vertices, s->view.mb.n[h], fanout, false,
                                      s->indptr[h], ids, EDGES_MAX),
                         PST_OK);
        assert_int_equal(pst_k_dedup(NULL, table, ids, s->indptr[h][s->view.mb.n[h]], s->vertices, &count,
                                     ROWS_MAX, s->indices[h]),
                         PST_OK);
        s->view.mb.n[h + 1] = count;
        s->view.indptr[h] = s->indptr[h];
        s->view.indices[h] = s->indices[h];
        s->view.edges[h] = s->indptr[h][s->view.mb.n[h]];
    }
    for (int64_t i = 0; i < n; i++)
        s->labels[i] = w->labels[s->vertices[i]];
    for (int64_t i = 0; i < count; i++)
        s->degrees[i] = w->indptr[s->vertices[i] + 1] - w->indptr[s->vertices[i]];
    for (int64_t i = 0; i < count; i++)
        memcpy(s->features + i * DIM, w->features + s->vertices[i] * DIM, DIM * sizeof(float));
    free(memory);
    free(ids);
    return s;
}

static inline struct pst_gnn_config config_of(int layers, enum pst_gnn_norm norm, bool residual,
                                              double dropout)
{
    return (struct pst_gnn_config){.layers = layers,
                                   .in = DIM,
                                   .hidden = HIDDEN_MAX,
                                   .classes = CLASSES,
                                   .heads = 3,
                                   .attention_dropout = dropout / 2,
                                   .norm = norm,
                                   .residual = residual,
                                   .aggregate = true,
                                   .dropout = dropout,
                                   .input_dropout = dropout / 2,
                                   .seed = 77,
                                   .threads = 1,
                                   .rows_max = ROWS_MAX,
                                   .edges_max = EDGES_MAX};
}

static inline const int64_t *some_seeds(struct world *w, int64_t *seeds)
{
    for (int64_t i = 0; i < SEEDS; i++)
        seeds[i] = (int64_t)below(w, VERTICES / SEEDS) + i * (VERTICES / SEEDS);
    return seeds;
}

/* ---- the forward pass ---------------------------------------------------------------------------- */

static inline double degree_of(const struct world *w, int64_t v)
{
    return (double)(w->indptr[v + 1] - w->indptr[v]);
}

static inline double naive_dot(const double *x, const float *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * (double)a[i];
    return sum;
}

/* The same for GAT. z: the products of all vertices. */
static inline void naive_attend(const struct world *w, const struct pst_gnn_model *m, int l, const double *z,
                                int64_t v, double *y)
{
    const struct pst_gnn_layer *layer = &m->layer[l];
    const int64_t heads = m->config.heads, wide = layer->wide, dim = wide / heads, begin = w->indptr[v],
                  end = w->indptr[v + 1];
    memset(y, 0, (size_t)layer->out * sizeof *y);
    for (int64_t h = 0; h < heads; h++) {
        const float *a_l = m->weight + layer->left + h * dim, *a_r = m->weight + layer->right + h * dim;
        double sum = 0, most = -1e300;
        for (int pass = 0; pass < 3; pass++) { /* the largest score, their sum, the output */
            for (int64_t e = begin; e <= end; e++) {
                const int64_t u = e < end ? w->indices[e] : v;
                double score =
                    naive_dot(z + v * wide + h * dim, a_l, dim) + naive_dot(z + u * wide + h * dim, a_r, dim);
                score = score > 0 ? score : 0.2 * score;
                most = pass == 0 ? fmax(most, score) : most;
                sum += pass == 1 ? exp(score - most) : 0;
                for (int64_t j = 0; j < dim && pass == 2; j++)
                    y[layer->last ? j : h * dim + j] += exp(score - most) / sum * z[u * wide + h * dim + j] /
                                                        (layer->last ? (double)heads : 1);
            }
        }
    }
}

/* The linear part of a layer without its bias, as layer.h writes it, for vertex v. */
static inline void naive_mix(const struct world *w, const struct pst_gnn_model *m, int l, const double *x,
                             int64_t v, double *y)
{
    const struct pst_gnn_layer *layer = &m->layer[l];
    const int64_t in = layer->in, out = layer->out, begin = w->indptr[v], end = w->indptr[v + 1];
    const bool gcn = m->config.model == PST_GNN_GCN;
    const float *p = m->weight;
    memset(y, 0, (size_t)out * sizeof *y);
    for (int64_t i = 0; i < in; i++) {
        double sum = gcn ? x[v * in + i] / (degree_of(w, v) + 1) : 0;
        for (int64_t e = begin; e < end; e++)
            sum += x[w->indices[e] * in + i] /
                   (gcn ? sqrt((degree_of(w, v) + 1) * (degree_of(w, w->indices[e]) + 1))
                        : (double)(end - begin));
        for (int64_t j = 0; j < out; j++)
            y[j] += (layer->self >= 0 ? x[v * in + i] * (double)p[layer->self + i * out + j] : 0) +
                    (layer->neigh >= 0 ? sum * (double)p[layer->neigh + i * out + j] : 0);
    }
}

/* A layer of the naive forward pass, in double, over all vertices and all neighbours. */
static inline void naive_layer(const struct world *w, const struct pst_gnn_model *m, int l, const double *x,
                               double *y)
{
    const struct pst_gnn_layer *layer = &m->layer[l];
    const int64_t in = layer->in, out = layer->out;
    const float *p = m->weight;
    const bool gat = m->config.model == PST_GNN_GAT;
    double *z = gat ? calloc((size_t)(VERTICES * layer->wide), sizeof *z) : NULL;
    for (int64_t i = 0; gat && i < VERTICES * in; i++)
        for (int64_t j = 0; j < layer->wide; j++)
            z[i / in * layer->wide + j] += x[i] * (double)p[layer->neigh + i % in * layer->wide + j];
    for (int64_t v = 0; v < VERTICES; v++) {
        double average = 0, variance = 0;
        if (gat)
            naive_attend(w, m, l, z, v, y + v * out);
        else
            naive_mix(w, m, l, x, v, y + v * out);
        for (int64_t j = 0; j < out; j++) {
            y[v * out + j] += layer->bias >= 0 ? (double)p[layer->bias + j] : 0;
            average += y[v * out + j] / (double)out;
        }
        for (int64_t j = 0; j < out; j++)
            variance += pow(y[v * out + j] - average, 2) / (double)out;
        for (int64_t j = 0; j < out && !layer->last; j++) {
            double *at = &y[v * out + j];
            if (layer->running >= 0) {
                const float *running = m->running + layer->running;
                *at = (*at - (double)running[j]) / sqrt((double)running[out + j] + 1e-5);
            } else if (layer->gain >= 0) {
                *at = (*at - average) / sqrt(variance + 1e-5);
            }
            if (layer->gain >= 0)
                *at = *at * (double)p[layer->gain + j] + (double)p[layer->shift + j];
            *at += layer->residual ? x[v * in + j] : 0;
            *at = *at > 0 ? *at : gat ? expm1(*at) : 0;
        }
    }
    free(z);
}

static inline double *naive_forward(const struct world *w, const struct pst_gnn_model *m)
{
    double *x = malloc(VERTICES * 128 * sizeof *x), *y = malloc(VERTICES * 128 * sizeof *y);
    for (int64_t i = 0; i < VERTICES * DIM; i++)
        x[i] = (double)w->features[i];
    for (int l = 0; l < m->config.layers; l++) {
        naive_layer(w, m, l, x, y);
        double *swap = x;
        x = y;
        y = swap;
    }
    free(y);
    return x;
}

/* Weights away from their simple beginnings. */
static inline void stir(struct world *w, struct pst_gnn_model *m)
{
    for (int64_t i = 0; i < m->size; i++)
        m->weight[i] += (float)(0.2 * unit(w));
    for (int64_t i = 0; i < m->running_size; i++)
        m->running[i] += (float)(0.4 * unit(w));
}

#endif
