/* legion_fixture.h: a small graph with communities and hubs, machines, and batches that are sampled and
 * looked at in another way than stages/lib/legion does. Included once by each test program. */
#ifndef LEGION_FIXTURE_H
#define LEGION_FIXTURE_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/clique/cslp.h"
#include "stages/lib/legion/legion.h"

#define VERTICES 3000
#define DEGREE 8 /* of most vertices */
#define COMMUNITIES 8
#define TRAIN (VERTICES / 5)
#define LINE 64
#define HOPS 2

static int64_t indptr[VERTICES + 1], train[TRAIN];
static int32_t indices[VERTICES * DEGREE * 3];
static const int64_t fanout[HOPS] = {6, 4};
static struct pst_csc graph = {.indptr = indptr, .indices = indices, .index_bytes = 4, .vertices = VERTICES};
static struct pst_sampling_opened uniform;

static inline int by_id(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* An end of an edge of v: nine of ten in its community, where low ids are drawn more often. */
static inline int32_t draw_end(int64_t v)
{
    const double r = (double)rand() / ((double)RAND_MAX + 1);
    const int64_t first = rand() % 10 > 0 ? v / (VERTICES / COMMUNITIES) * (VERTICES / COMMUNITIES) : 0;
    const int64_t n = first > 0 || v < VERTICES / COMMUNITIES ? VERTICES / COMMUNITIES : VERTICES;
    return (int32_t)(first + (int64_t)((double)n * r * r * r) % n);
}

/* Lists are ascending, and have no repeats. */
static inline int make_graph(void **state)
{
    (void)state;
    int64_t out = 0;
    srand(7);
    for (int64_t v = 0; v < VERTICES; v++) {
        const int64_t first = out, degree = v % 50 == 0 ? 3 * DEGREE : v % 17 == 0 ? 0 : DEGREE;
        indptr[v] = first;
        for (int64_t k = 0; k < degree; k++)
            indices[first + k] = draw_end(v);
        qsort(indices + first, (size_t)degree, sizeof *indices, by_id);
        for (int64_t k = 0; k < degree; k++)
            if (out == first || indices[out - 1] != indices[first + k])
                indices[out++] = indices[first + k];
    }
    indptr[VERTICES] = graph.edges = out;
    for (int64_t i = 0; i < TRAIN; i++)
        train[i] = i * 5 + 2;
    const struct pst_sampling_setup setup = {
        .graph = &graph, .hops = HOPS, .fanout = fanout, .batch = TRAIN, .batches = 1};
    return pst_sampling_algorithm_find(&uniform, "uniform") == PST_OK &&
                   pst_sampling_algorithm_open(&uniform, "", &setup) == PST_OK
               ? 0
               : -1;
}

static inline int free_graph(void **state)
{
    (void)state;
    pst_sampling_algorithm_close(&uniform);
    return 0;
}

/* `devices` in cliques of `size`. */
static inline struct pst_legion_config settings(enum pst_legion_policy policy, int devices, int size)
{
    struct pst_legion_config c = {.policy = policy,
                                  .graph = &graph,
                                  .algorithm = &uniform,
                                  .hops = HOPS,
                                  .fanout = fanout,
                                  .train = train,
                                  .ntrain = TRAIN,
                                  .devices = devices,
                                  .batches = 4,
                                  .epochs = 1,
                                  .seed = 5,
                                  .cache_bytes = 150,
                                  .row_bytes = 1,
                                  .line_bytes = LINE,
                                  .entries_max = PST_LEGION_ENTRIES_MAX};
    for (int d = 0; d < devices; d++)
        for (int peer = d / size * size; peer < (d / size + 1) * size && peer < devices; peer++)
            if (peer != d)
                c.links[d] |= UINT64_C(1) << peer;
    return c;
}

/* ---- batches, sampled by pst_expand_hop, which gives ids and not positions ------------------------- */

struct sampled {
    int64_t n, vertices[VERTICES];
    uint32_t edges[VERTICES], lines[VERTICES];
};

/* The different lines that one read of v's list takes; drawn: ids, which are in the list once. */
static inline uint32_t naive_lines(int64_t v, const int32_t *drawn, const int64_t *ids, int64_t n)
{
    static uint8_t touched[sizeof indices / LINE + 1];
    uint32_t lines = 8 * v / LINE == (8 * (v + 1) + 7) / LINE ? 1 : 2;
    memset(touched, 0, sizeof touched);
    for (int64_t k = 0; k < n; k++)
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++)
            if (indices[e] == ids[drawn[k]] && !touched[e * 4 / LINE]++)
                lines++;
    return lines;
}

static inline void sample(struct pst_legion *l, int device, int64_t epoch, int64_t step, struct sampled *s)
{
    static int64_t seeds[TRAIN];
    static int32_t block_at[VERTICES + 1], block[VERTICES * DEGREE * 3];
    struct pst_expander x;
    memset(s, 0, sizeof *s);
    assert_int_equal(pst_expander_init(&x, &graph, &uniform, VERTICES, VERTICES * DEGREE * 3), PST_OK);
    const int64_t n = pst_legion_shares_batch(&l->shares, device, epoch, step, seeds);
    assert_int_equal(pst_expand_seeds(&x, seeds, n, s->vertices, &s->n, VERTICES), PST_OK);
    for (int h = 0; h < HOPS; h++) {
        const struct pst_sample_key key = {.seed = l->config.seed,
                                           .epoch = (uint32_t)epoch,
                                           .hop = (uint32_t)h,
                                           .batch = (uint64_t)(step * l->config.devices + device)};
        const int64_t before = s->n;
        assert_int_equal(pst_expand_hop(&x, &key, (int)fanout[h], s->vertices, &s->n, VERTICES, block_at,
                                        block, NULL, VERTICES * DEGREE * 3),
                         PST_OK);
        for (int64_t i = 0; i < before; i++) {
            const int64_t drawn = block_at[i + 1] - block_at[i];
            s->edges[i] += (uint32_t)drawn;
            s->lines[i] += naive_lines(s->vertices[i], block + block_at[i], s->vertices, drawn);
        }
    }
    pst_expander_release(&x);
}

#endif
