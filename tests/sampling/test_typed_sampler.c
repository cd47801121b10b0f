/* The algorithm typed: one relation is what uniform draws; each relation has a sample of its own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/error.h"
#include "common/store/store.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/expand.h"

enum { VERTICES = 40, DEGREE = 12, EDGES = VERTICES * DEGREE, RELATIONS = 3, DRAWS = 20000 };

static struct world {
    int64_t indptr[VERTICES + 1];
    int32_t indices[EDGES], relation[EDGES];
    float weight[EDGES];
    struct pst_csc graph;
    struct pst_dataset ds;
} w;

/* Vertex v has entries v, v + 1, ...; the relation of the e-th is 0, 1, 2, 0, 0, 1, 2, 0, ... */
static int setup(void **state)
{
    static const int32_t relations[4] = {0, 1, 2, 0};
    (void)state;
    for (int64_t v = 0; v < VERTICES; v++) {
        w.indptr[v + 1] = (v + 1) * DEGREE;
        for (int64_t e = 0; e < DEGREE; e++) {
            w.indices[v * DEGREE + e] = (int32_t)((v + e) % VERTICES);
            w.relation[v * DEGREE + e] = relations[e % 4];
            w.weight[v * DEGREE + e] = (float)((v + 3 * e) % 5);
        }
    }
    w.graph = (struct pst_csc){w.indptr, w.indices, 4, VERTICES, EDGES};
    w.ds.vertices = VERTICES;
    w.ds.relations = RELATIONS;
    w.ds.edge_relation.map = w.relation;
    w.ds.edge_weights.map = w.weight;
    return 0;
}

static void open_with(struct pst_sampling_opened *a, const char *name, const struct pst_dataset *ds,
                      bool replace, const char *options)
{
    const struct pst_sampling_setup set = {.dataset = ds, .graph = &w.graph, .hops = 1, .replace = replace};
    assert_int_equal(pst_sampling_algorithm_find(a, name), PST_OK);
    if (pst_sampling_algorithm_open(a, options, &set) != PST_OK)
        fail_msg("%s", pst_error_text());
}

static void open_algorithm(struct pst_sampling_opened *a, const char *name, const struct pst_dataset *ds,
                           bool replace)
{
    open_with(a, name, ds, replace, "");
}

struct drawn {
    int32_t indptr[VERTICES + 1], relation[EDGES];
    int64_t out[EDGES];
    float weight[EDGES];
};

static pst_rc draw(const struct pst_sampling_opened *a, uint64_t batch, int fanout, const int64_t *vertices,
                   int64_t n, int64_t capacity, struct drawn *d)
{
    const struct pst_sample_key key = {.seed = 7, .epoch = 1, .hop = 1, .batch = batch};
    const struct pst_sampling_hop hop = {.graph = &w.graph,
                                         .key = &key,
                                         .fanout = fanout,
                                         .vertices = vertices,
                                         .n = n,
                                         .indptr = d->indptr,
                                         .out = d->out,
                                         .capacity = capacity,
                                         .weight = d->weight,
                                         .relation = d->relation};
    return a->algorithm->draw(a->state, &hop);
}

static void one_relation_is_uniform(void **state)
{
    (void)state;
    static const int fanouts[] = {1, 3, 11, 12, 30, -1};
    struct pst_dataset plain = {.vertices = VERTICES};
    struct pst_sampling_opened typed, uniform;
    int64_t vertices[VERTICES];
    for (int64_t v = 0; v < VERTICES; v++)
        vertices[v] = (v * 7) % VERTICES;
    for (int replace = 0; replace < 2; replace++) {
        open_algorithm(&typed, "typed", &plain, replace == 1);
        open_algorithm(&uniform, "uniform", &plain, replace == 1);
        for (int k = 0; k < 6; k++) {
            static struct drawn a, b;
            if (replace == 1 && fanouts[k] > DEGREE)
                continue;
            assert_int_equal(draw(&typed, 3, fanouts[k], vertices, VERTICES, EDGES, &a), PST_OK);
            assert_int_equal(draw(&uniform, 3, fanouts[k], vertices, VERTICES, EDGES, &b), PST_OK);
            assert_memory_equal(a.indptr, b.indptr, sizeof a.indptr);
            assert_memory_equal(a.out, b.out, (size_t)a.indptr[VERTICES] * sizeof *a.out);
        }
        pst_sampling_algorithm_close(&typed);
        pst_sampling_algorithm_close(&uniform);
    }
}

/* Of six entries of relation 0 and three of each other one, two are drawn: each is as likely. A draw depends
 * on the vertex, not on the others of the hop. */
static void each_relation_has_its_sample(void **state)
{
    (void)state;
    struct pst_sampling_opened a;
    int64_t count[DEGREE] = {0};
    static struct drawn d, alone;
    const int64_t vertices[3] = {5, 9, 5}, last[1] = {9};
    open_algorithm(&a, "typed", &w.ds, false);
    for (uint64_t batch = 0; batch < DRAWS; batch++) {
        assert_int_equal(draw(&a, batch, 2, vertices, 3, EDGES, &d), PST_OK);
        assert_int_equal(d.indptr[1], 2 * RELATIONS);
        assert_int_equal(d.indptr[3], 6 * RELATIONS);
        for (int32_t e = 0; e < d.indptr[1]; e++) {
            const int64_t place = d.out[e] - 5;
            assert_in_range(place, 0, DEGREE - 1);
            assert_int_equal(d.relation[e], w.relation[place]);
            assert_int_equal(d.relation[e], e / 2);
            count[place]++;
        }
        assert_memory_equal(d.out, d.out + d.indptr[2], (size_t)d.indptr[1] * sizeof *d.out);
        assert_int_equal(draw(&a, batch, 2, last, 1, EDGES, &alone), PST_OK);
        assert_memory_equal(alone.out, d.out + d.indptr[1], (size_t)alone.indptr[1] * sizeof *d.out);
    }
    for (int e = 0; e < DEGREE; e++) {
        const double p = w.relation[e] == 0 ? 2.0 / 6 : 2.0 / 3;
        assert_true(fabs((double)count[e] - DRAWS * p) < 4.5 * sqrt(DRAWS * p * (1 - p)));
    }
    pst_sampling_algorithm_close(&a);
}

/* Relations have fanouts of their own, and the draws of those with equal numbers stay what they are. */
static void each_relation_has_its_fanout(void **state)
{
    (void)state;
    struct pst_sampling_opened a, equal;
    static struct drawn d, e;
    const int64_t vertices[2] = {3, 8}, fanout[1] = {9};
    struct pst_minibatch_size size;
    open_with(&a, "typed", &w.ds, false, "fanouts=4:0:-1");
    open_with(&equal, "typed", &w.ds, false, "fanouts=4:4:4");
    assert_int_equal(draw(&a, 0, 9, vertices, 2, EDGES, &d), PST_OK);
    assert_int_equal(d.indptr[1], 4 + 0 + 3);
    assert_int_equal(d.indptr[2], 2 * d.indptr[1]);
    for (int i = 0; i < 7; i++)
        assert_int_equal(d.relation[i], i < 4 ? 0 : 2);
    assert_int_equal(draw(&equal, 0, 9, vertices, 2, EDGES, &e), PST_OK);
    assert_memory_equal(d.out, e.out, 4 * sizeof *d.out);
    pst_sampling_size_bound(&size, &equal, &w.graph, fanout, 1, 2);
    assert_int_equal(size.edges[0], 2 * 4 * RELATIONS);
    pst_sampling_size_bound(&size, &a, &w.graph, fanout, 1, 2);
    assert_int_equal(size.edges[0], EDGES);
    pst_sampling_algorithm_close(&a);
    pst_sampling_algorithm_close(&equal);
    const struct pst_sampling_setup set = {.dataset = &w.ds, .graph = &w.graph, .hops = 1};
    assert_int_equal(pst_sampling_algorithm_find(&a, "typed"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&a, "fanouts=4:4", &set), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "fanouts has 2 numbers"));
    pst_sampling_algorithm_close(&a);
}

/* As `fanouts`, but for each hop. The second hop of a batch that is drawn here is hop 1. */
static void each_relation_has_its_fanout_in_each_hop(void **state)
{
    (void)state;
    static const int64_t by_relation[RELATIONS * 2] = {9, 4, 1, 0, 1, -1}, fanout[2] = {9, -1};
    const struct pst_sampling_setup set = {
        .dataset = &w.ds, .graph = &w.graph, .hops = 2, .fanout = fanout, .fanout_by_relation = by_relation};
    struct pst_sampling_opened a, option;
    static struct drawn d, e;
    const int64_t vertices[2] = {3, 8};
    struct pst_minibatch_size size;
    assert_int_equal(pst_sampling_algorithm_find(&a, "typed"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&a, "", &set), PST_OK);
    open_with(&option, "typed", &w.ds, false, "fanouts=4:0:-1");
    assert_int_equal(draw(&a, 0, -1, vertices, 2, EDGES, &d), PST_OK);
    assert_int_equal(draw(&option, 0, 9, vertices, 2, EDGES, &e), PST_OK);
    assert_int_equal(d.indptr[2], 2 * (4 + 0 + 3));
    assert_memory_equal(d.indptr, e.indptr, 3 * sizeof *d.indptr);
    assert_memory_equal(d.out, e.out, (size_t)d.indptr[2] * sizeof *d.out);
    pst_sampling_size_bound(&size, &a, &w.graph, fanout, 2, 2);
    assert_int_equal(size.edges[0], 2 * (9 + 1 + 1));
    assert_int_equal(size.edges[1], EDGES);
    pst_sampling_algorithm_close(&a);
    pst_sampling_algorithm_close(&option);
    assert_int_equal(pst_sampling_algorithm_find(&a, "typed"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&a, "fanouts=4:4:4", &set), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "has numbers for each edge type already"));
    pst_sampling_algorithm_close(&a);
}

/* With by_weight, a relation gets what `weighted` draws if the other relations' edges have weight 0. */
static void weights_count_within_a_relation(void **state)
{
    (void)state;
    static const int fanouts[] = {1, 2, 3, -1};
    static float masked[EDGES];
    static struct drawn d, alone;
    struct pst_dataset one = w.ds;
    struct pst_sampling_opened typed, weighted;
    int64_t vertices[VERTICES];
    for (int64_t v = 0; v < VERTICES; v++)
        vertices[v] = (v * 7) % VERTICES;
    one.relations = 0;
    one.edge_relation.map = NULL;
    one.edge_weights.map = masked;
    open_with(&typed, "typed", &w.ds, false, "by_weight=1");
    assert_true(pst_sampling_has(&typed, PST_SAMPLING_WEIGHS) &&
                pst_sampling_has(&typed, PST_SAMPLING_TYPED));
    for (int k = 0; k < 4; k++) {
        int32_t at[VERTICES]; /* of each vertex: where the next relation's edges are */
        assert_int_equal(draw(&typed, 3, fanouts[k], vertices, VERTICES, EDGES, &d), PST_OK);
        memcpy(at, d.indptr, sizeof at);
        for (int r = 0; r < RELATIONS; r++) {
            for (int e = 0; e < EDGES; e++)
                masked[e] = w.relation[e] == r ? w.weight[e] : 0;
            open_with(&weighted, "weighted", &one, false, "");
            assert_int_equal(draw(&weighted, 3, fanouts[k], vertices, VERTICES, EDGES, &alone), PST_OK);
            for (int i = 0; i < VERTICES; i++) {
                const int32_t from = alone.indptr[i], n = alone.indptr[i + 1] - from;
                assert_memory_equal(d.out + at[i], alone.out + from, (size_t)n * sizeof *d.out);
                assert_memory_equal(d.weight + at[i], alone.weight + from, (size_t)n * sizeof *d.weight);
                for (int32_t e = at[i]; e < at[i] + n; e++)
                    assert_int_equal(d.relation[e], r);
                at[i] += n;
            }
            pst_sampling_algorithm_close(&weighted);
        }
        for (int i = 0; i < VERTICES; i++)
            assert_int_equal(at[i], d.indptr[i + 1]);
    }
    w.weight[DEGREE + 1] = -2;
    assert_int_equal(draw(&typed, 3, 2, vertices, VERTICES, EDGES, &d), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "an edge of vertex 1 has the weight -2"));
    w.weight[DEGREE + 1] = 4;
    pst_sampling_algorithm_close(&typed);
    open_with(&typed, "typed", &w.ds, false, "by_weight=1, correct=0");
    assert_false(pst_sampling_has(&typed, PST_SAMPLING_WEIGHS));
    pst_sampling_algorithm_close(&typed);
    one.edge_weights.map = NULL;
    const struct pst_sampling_setup none = {.dataset = &one, .graph = &w.graph, .hops = 1},
                                    again = {.dataset = &w.ds, .graph = &w.graph, .hops = 1, .replace = true};
    assert_int_equal(pst_sampling_algorithm_find(&typed, "typed"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&typed, "by_weight=1", &none), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "has no weights of edges"));
    pst_sampling_algorithm_close(&typed);
    assert_int_equal(pst_sampling_algorithm_find(&typed, "typed"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&typed, "by_weight=1", &again), PST_E_ARG);
    assert_non_null(strstr(pst_error_text(), "set replace to false"));
    pst_sampling_algorithm_close(&typed);
}

static void limits_and_damage(void **state)
{
    (void)state;
    struct pst_sampling_opened a;
    static struct drawn d;
    const int64_t vertices[2] = {0, 1};
    struct pst_minibatch_size size;
    const int64_t fanout[1] = {2};
    open_algorithm(&a, "typed", &w.ds, false);
    pst_sampling_size_bound(&size, &a, &w.graph, fanout, 1, 2);
    assert_true(size.relations && !size.weights);
    assert_int_equal(size.edges[0], 2 * 2 * RELATIONS);
    assert_int_equal(draw(&a, 0, 2, vertices, 2, 2 * 2 * RELATIONS - 1, &d), PST_E_LIMIT);
    assert_int_equal(draw(&a, 0, -1, vertices, 2, EDGES, &d), PST_OK);
    assert_int_equal(d.indptr[2], 2 * DEGREE);
    w.relation[DEGREE + 2] = RELATIONS;
    assert_int_equal(draw(&a, 0, 2, vertices, 2, EDGES, &d), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "an edge of vertex 1 has relation 3"));
    w.relation[DEGREE + 2] = 2;
    pst_sampling_algorithm_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_relation_is_uniform),
        cmocka_unit_test(each_relation_has_its_sample),
        cmocka_unit_test(each_relation_has_its_fanout),
        cmocka_unit_test(each_relation_has_its_fanout_in_each_hop),
        cmocka_unit_test(weights_count_within_a_relation),
        cmocka_unit_test(limits_and_damage),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
