/* Algorithms of the table in slots: whole and cut batches are equal, weights are shares, options are read,
 * and what one algorithm says of another in special cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "stages/lib/sampling/fill.h"
#include "stages/lib/sampling/cut.h"
#include "common/store/store.h"

enum { VERTICES = 2000, SEEDS = 150, HOPS = 2, TIMES = 1000 };

struct world {
    int64_t indptr[VERTICES + 1];
    int32_t *indices;
    struct pst_csc graph;
    int64_t seeds[SEEDS], fanout[HOPS];
    struct pst_dataset dataset; /* only edge_weights and times */
    int32_t vertex_time[VERTICES], *edge_time;
    struct pst_sampling_opened algorithm;
    struct pst_filler filler;
    void *slot;
};

/* Few vertices are in many lists. Neighbours in a list are different. */
static void world_open(struct world *w, const char *algorithm, const char *options, double share)
{
    struct pst_minibatch_size bound, size;
    memset(w, 0, sizeof *w);
    for (int64_t v = 0; v < VERTICES; v++)
        w->indptr[v + 1] = w->indptr[v] + (v % 40 == 0 ? 120 : v % 9);
    w->indices = malloc((size_t)w->indptr[VERTICES] * sizeof *w->indices);
    for (int64_t v = 0; v < VERTICES; v++)
        for (int64_t e = w->indptr[v], i = 0; e < w->indptr[v + 1]; e++, i++)
            w->indices[e] = (int32_t)(i % 2 ? (v * 7 + i * i) % VERTICES : (v + i) % 97);
    w->graph = (struct pst_csc){w->indptr, w->indices, 4, VERTICES, w->indptr[VERTICES]};
    for (int64_t i = 0; i < SEEDS; i++)
        w->seeds[i] = (i * 13 + 5) % VERTICES;
    w->fanout[0] = 6;
    w->fanout[1] = 6;
    float *weights = malloc((size_t)w->graph.edges * sizeof *weights);
    for (int64_t e = 0; e < w->graph.edges; e++)
        weights[e] = (float)(e * 7 % 11);
    w->dataset.edge_weights.map = weights;
    w->edge_time = malloc((size_t)w->graph.edges * sizeof *w->edge_time);
    for (int64_t v = 0; v < VERTICES; v++) {
        w->vertex_time[v] = (int32_t)(v * 61 % TIMES);
        for (int64_t e = w->indptr[v]; e < w->indptr[v + 1]; e++)
            w->edge_time[e] = (int32_t)((w->indices[e] * 377 + v * 59) % TIMES);
    }
    w->dataset.edge_times.map = w->edge_time;
    w->dataset.vertex_times.map = w->vertex_time;
    const struct pst_sampling_setup setup = {.dataset = &w->dataset,
                                             .graph = &w->graph,
                                             .hops = HOPS,
                                             .fanout = w->fanout,
                                             .batch = SEEDS,
                                             .batches = 10};
    if (pst_sampling_algorithm_find(&w->algorithm, algorithm) != PST_OK ||
        pst_sampling_algorithm_open(&w->algorithm, options, &setup) != PST_OK)
        fail_msg("%s", pst_error_text());
    pst_sampling_size_bound(&bound, &w->algorithm, &w->graph, w->fanout, HOPS, SEEDS);
    pst_minibatch_size_scale(&size, &bound, &bound, share);
    pst_minibatch_layout_init(&w->filler.layout, &size, 512);
    memcpy(w->filler.fanout, w->fanout, sizeof w->fanout);
    w->filler.feature_dim = 100;
    w->filler.row_bytes = 400;
    assert_int_equal(pst_filler_init(&w->filler, &w->graph, &w->algorithm), PST_OK);
    w->slot = aligned_alloc(PST_PAGE, w->filler.layout.bytes);
}

static void world_close(struct world *w)
{
    pst_filler_release(&w->filler);
    pst_sampling_algorithm_close(&w->algorithm);
    free((void *)(uintptr_t)w->dataset.edge_weights.map);
    free(w->slot);
    free(w->indices);
    free(w->edge_time);
}

static pst_rc announce(void *to, uint32_t part, uint64_t first_at, uint64_t count, bool last)
{
    (void)to, (void)part, (void)first_at, (void)count, (void)last;
    return PST_OK;
}

static bool fill(struct world *w, uint64_t batch, int64_t begin, int64_t n)
{
    const struct pst_fill_job job = {.seed = 9,
                                     .epoch = 1,
                                     .batch = 10 + batch,
                                     .batch_in_epoch = batch,
                                     .batches_in_epoch = 10,
                                     .last_micro = begin + n == SEEDS,
                                     .batch_seeds = SEEDS,
                                     .seeds = w->seeds + begin,
                                     .n = n,
                                     .whole_seeds = w->seeds,
                                     .whole_n = SEEDS};
    struct pst_fill_result result;
    if (pst_sampling_fill(&w->filler, &job, w->slot, announce, w, &result) != PST_OK)
        fail_msg("%s", pst_error_text());
    if (result.fits && pst_minibatch_check(w->slot, w->filler.layout.bytes) != PST_OK)
        fail_msg("%s", pst_error_text());
    return result.fits;
}

/* What a model computes from neighbours that are numbers: the weighted mean of the means of each seed's
 * neighbours. */
static void add_outputs(const struct world *w, double output[VERTICES])
{
    const struct pst_minibatch *mb = w->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    static double row[VERTICES], next[VERTICES];
    for (int64_t i = 0; i < mb->n[HOPS]; i++)
        row[i] = (double)vertices[i] + 1;
    for (int h = HOPS - 1; h >= 0; h--) {
        const int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[h]),
                      *indices = pst_minibatch_at(mb, mb->indices_at[h]);
        const float *weights = mb->weights_at[h] ? pst_minibatch_at(mb, mb->weights_at[h]) : NULL;
        for (int64_t d = 0; d < mb->n[h]; d++) {
            double sum = 0, shares = 0;
            for (int32_t e = indptr[d]; e < indptr[d + 1]; e++) {
                const double share = weights ? (double)weights[e] : 1.0 / (indptr[d + 1] - indptr[d]);
                sum += share * row[indices[e]];
                shares += share;
            }
            if (indptr[d + 1] > indptr[d])
                assert_true(shares > 0.99999 && shares < 1.00001);
            next[d] = sum + row[d] / 3;
        }
        memcpy(row, next, sizeof row);
    }
    for (int64_t i = 0; i < mb->n[0]; i++)
        output[vertices[i]] = row[i];
}

/* A batch in slots that are too small for it, against the batch in one slot: the outputs are equal to the
 * last bit. Between the pieces of one batch comes another batch's, as with several slots. */
static void cut_and_whole_are_equal(const char *algorithm, const char *options, double share)
{
    static double whole[VERTICES], cut[VERTICES];
    struct world w;
    memset(whole, 0, sizeof whole);
    memset(cut, 0, sizeof cut);
    world_open(&w, algorithm, options, 1);
    assert_true(fill(&w, 3, 0, SEEDS));
    add_outputs(&w, whole);
    world_close(&w);
    int64_t ends[SEEDS], begin, n, micros = 0;
    struct pst_splits pieces;
    bool last;
    world_open(&w, algorithm, options, share);
    pst_splits_init(&pieces, ends, SEEDS, w.filler.layout.size.n[0], NULL);
    for (; pst_splits_next(&pieces, &begin, &n, &last); micros++) {
        if (micros == 2)
            (void)fill(&w, 4, begin, n);
        if (fill(&w, 3, begin, n)) {
            add_outputs(&w, cut);
            pst_splits_pop(&pieces);
        } else {
            assert_true(pst_splits_split(&pieces));
        }
    }
    world_close(&w);
    assert_true(micros > 3);
    for (int v = 0; v < VERTICES; v++)
        if (whole[v] != cut[v])
            fail_msg("%s, %s: seed %d has %.9g in the whole batch, and %.9g in pieces", algorithm, options, v,
                     whole[v], cut[v]);
}

static void all_cut_and_whole_are_equal(void **state)
{
    (void)state;
    cut_and_whole_are_equal("uniform", "", 0.2);
    cut_and_whole_are_equal("labor", "", 0.2);
    cut_and_whole_are_equal("labor", "batch_dependency=64, layer_dependency=1", 0.2);
    cut_and_whole_are_equal("labor", "iterations=2", 0.2);
    cut_and_whole_are_equal("labor", "iterations=1, batch_dependency=7", 0.2);
    cut_and_whole_are_equal("weighted", "", 0.2);
    cut_and_whole_are_equal("weighted", "correct=0", 0.2);
    cut_and_whole_are_equal("ladies", "", 0.35);
    cut_and_whole_are_equal("ladies", "layer_sizes=200:100", 0.35);
    cut_and_whole_are_equal("temporal", "", 0.2);
}

/* The time of the edge from u into v. */
static int32_t time_of(const struct world *w, int64_t u, int64_t v)
{
    for (int64_t e = w->indptr[v]; e < w->indptr[v + 1]; e++)
        if (w->indices[e] == u)
            return w->edge_time[e];
    fail_msg("there is no edge from %lld into %lld", (long long)u, (long long)v);
    return 0;
}

/* The latest time of the edges on paths to destination d of hop h. */
static int32_t latest(const struct world *w, int h, int32_t d)
{
    const struct pst_minibatch *mb = w->slot;
    const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
    int32_t most = -1;
    for (int hop = h; hop < HOPS; hop++) { /* d is also a destination of later hops */
        const int32_t *indptr = pst_minibatch_at(mb, mb->indptr_at[hop]),
                      *indices = pst_minibatch_at(mb, mb->indices_at[hop]);
        for (int32_t e = indptr[d]; e < indptr[d + 1]; e++) {
            const int32_t time = time_of(w, vertices[indices[e]], vertices[d]),
                          below = hop + 1 < HOPS ? latest(w, hop + 1, indices[e]) : -1;
            most = time > most ? time : most;
            most = below > most ? below : most;
        }
    }
    return most;
}

/* No path of edges to a seed has an edge that is later, in batches of many seeds that share neighbours. */
static void a_seed_sees_nothing_that_is_later(void **state)
{
    (void)state;
    struct world w;
    int64_t edges = 0;
    world_open(&w, "temporal", "", 1);
    for (uint64_t batch = 0; batch < 10; batch++) {
        assert_true(fill(&w, batch, 0, SEEDS));
        const struct pst_minibatch *mb = w.slot;
        const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
        for (int32_t s = 0; s < mb->n[0]; s++)
            if (latest(&w, 0, s) > w.vertex_time[vertices[s]])
                fail_msg("seed %lld of time %d sees an edge of time %d", (long long)vertices[s],
                         w.vertex_time[vertices[s]], latest(&w, 0, s));
        edges += ((const int32_t *)pst_minibatch_at(mb, mb->indptr_at[0]))[mb->n[0]];
    }
    assert_true(edges > 1000);
    world_close(&w);
}

/* Of a vertex that is the only seed, each edge that is early enough is as likely to be drawn. */
static void early_edges_are_as_likely(void **state)
{
    (void)state;
    enum { HUB = 40, DRAWS = 20000 };
    struct world w;
    int64_t count[120] = {0}, copies[120] = {0}, early = 0;
    int32_t indptr[2];
    int64_t out[6];
    const int64_t vertex = HUB;
    world_open(&w, "temporal", "", 1);
    w.vertex_time[HUB] = TIMES / 3;
    for (int64_t e = w.indptr[HUB]; e < w.indptr[HUB + 1]; e++) {
        early += w.edge_time[e] <= TIMES / 3;
        for (int64_t other = w.indptr[HUB]; other < w.indptr[HUB + 1]; other++)
            copies[e - w.indptr[HUB]] += w.indices[e] == w.indices[other];
    }
    for (uint64_t batch = 0; batch < DRAWS; batch++) {
        const struct pst_sample_key key = {.seed = 3, .batch = batch};
        const struct pst_sampling_hop hop = {.graph = &w.graph,
                                             .key = &key,
                                             .fanout = 6,
                                             .vertices = &vertex,
                                             .n = 1,
                                             .indptr = indptr,
                                             .out = out,
                                             .capacity = 6};
        assert_int_equal(w.algorithm.algorithm->draw(w.algorithm.state, &hop), PST_OK);
        assert_int_equal(indptr[1], 6);
        for (int i = 0; i < 6; i++)
            for (int64_t e = w.indptr[HUB]; e < w.indptr[HUB + 1]; e++)
                count[e - w.indptr[HUB]] += w.indices[e] == out[i];
    }
    assert_true(early > 20 && early < 60);
    const double p = 6.0 / (double)early;
    for (int64_t e = 0; e < 120; e++) {
        const bool there = w.edge_time[w.indptr[HUB] + e] <= TIMES / 3;
        const double off = (double)count[e] - (there ? DRAWS * p : 0);
        if (copies[e] == 1 || !there) /* a neighbour that comes several times is drawn more often */
            assert_true(off * off <= (there ? 4.5 * 4.5 * DRAWS * p * (1 - p) : 0));
    }
    world_close(&w);
}

static int64_t vertices_of(struct world *w, uint64_t batch)
{
    assert_true(fill(w, batch, 0, SEEDS));
    return ((const struct pst_minibatch *)w->slot)->n[HOPS];
}

static int64_t vertices_with(const char *algorithm, const char *options)
{
    struct world w;
    int64_t sum = 0;
    world_open(&w, algorithm, options, 1);
    for (uint64_t batch = 0; batch < 8; batch++)
        sum += vertices_of(&w, batch);
    world_close(&w);
    return sum;
}

/* What each option is for. */
static void options_save_vertices(void **state)
{
    (void)state;
    const int64_t uniform = vertices_with("uniform", ""), labor = vertices_with("labor", ""),
                  layers = vertices_with("labor", "layer_dependency=1"),
                  iterated = vertices_with("labor", "iterations=1"),
                  ladies = vertices_with("ladies", "layer_sizes=30:20");
    assert_true(labor < uniform);

    assert_true(layers < labor);
    assert_true(iterated < labor);
    assert_true(ladies <= 8 * (SEEDS + 30 + 20));
}

/* With a batch dependency, neighbouring batches of equal seeds share more vertices than distant ones. */
static void batches_depend_on_each_other(void **state)
{
    (void)state;
    struct world w;
    static bool in[10][VERTICES];
    int64_t near = 0, far = 0;
    memset(in, 0, sizeof in);
    world_open(&w, "labor", "batch_dependency=8", 1);
    for (uint64_t batch = 0; batch < 10; batch++) {
        const int64_t n = vertices_of(&w, batch);
        const struct pst_minibatch *mb = w.slot;
        const int64_t *vertices = pst_minibatch_at(mb, mb->vertices_at);
        for (int64_t i = 0; i < n; i++)
            in[batch][vertices[i]] = true;
    }
    world_close(&w);
    for (int v = 0; v < VERTICES; v++) {
        near += in[0][v] != in[1][v];
        far += in[0][v] != in[9][v];
    }
    assert_true(near > 0 && near < far);
}

static void refused(const char *algorithm, const char *options, bool replace, const char *words)
{
    static const int64_t fanout[] = {3, 3}, indptr[] = {0, 0};
    const struct pst_csc graph = {.indptr = indptr, .index_bytes = 4, .vertices = 1};
    const struct pst_sampling_setup setup = {
        .graph = &graph, .hops = 2, .fanout = fanout, .replace = replace, .batches = 1};
    struct pst_sampling_opened opened;
    assert_int_equal(pst_sampling_algorithm_find(&opened, algorithm), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&opened, options, &setup), PST_E_ARG);
    if (strstr(pst_error_text(), words) == NULL)
        fail_msg("%s", pst_error_text());
    pst_sampling_algorithm_close(&opened);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    refused("labor", "", true, "draws without replacement");
    refused("labor", "iterations=-1", false, "\"iterations=-1\" is not a valid value");
    refused("labor", "batch_dependency=0", false, "not a valid value of batch_dependency");
    refused("labor", "layers=1", false, "has no option \"layers\"; its options are: iterations");
    refused("weighted", "", true, "draws without replacement");
    refused("weighted", "", false, "has no weights of edges");
    refused("temporal", "", false, "lacks times");
    refused("ladies", "", true, "draws without replacement");
    refused("ladies", "layer_sizes=5", false, "layer_sizes has 1 numbers, but fanout has 2");
    refused("ladies", "layer_sizes=5:", false, "not a valid value of layer_sizes");
    refused("ladies", "layer_sizes=5:0", false, "not a valid value of layer_sizes");
    refused("ladies", "layer_sizes=5;6", false, "not a valid value of layer_sizes");
    refused("ladies", "layer_sizes=1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1", false, "not a valid value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cut_and_whole_are_equal),  cmocka_unit_test(a_seed_sees_nothing_that_is_later),
        cmocka_unit_test(early_edges_are_as_likely),    cmocka_unit_test(options_save_vertices),
        cmocka_unit_test(batches_depend_on_each_other), cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
