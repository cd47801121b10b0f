/* Samplers: inclusion frequencies against enumeration of small cases, unbiased sums, exact functions.
 * Frequencies and means are held to PST_SIGMAS standard errors. */
#include "kernels/vertex_rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { DRAWS = 100000, LISTS = 4, VERTICES = 12, EDGES_MAX = 64 };
#define SIGMAS                                                                                               \
    4.5 /* of a frequency; there are some hundreds, so one in 1,000 runs would fail with other keys */
#define SUM_SIGMAS 3.0

/* Vertices 0 to LISTS - 1 have lists. */
struct lists {
    int64_t indptr[VERTICES + 1];
    int32_t indices[EDGES_MAX];
    struct pst_csc graph;
};

static void lists_make(struct lists *l, const int *degrees, const int32_t *ids)
{
    memset(l, 0, sizeof *l);
    for (int v = 0; v < VERTICES; v++)
        l->indptr[v + 1] = l->indptr[v] + (v < LISTS ? degrees[v] : 0);
    memcpy(l->indices, ids, (size_t)l->indptr[VERTICES] * sizeof *ids);
    l->graph = (struct pst_csc){l->indptr, l->indices, 4, VERTICES, l->indptr[VERTICES]};
}

/* Lists that overlap, of 8, 5, 3 and 2 entries. */
static void lists_usual(struct lists *l)
{
    static const int degrees[LISTS] = {8, 5, 3, 2};
    static const int32_t ids[] = {4, 5, 6, 7, 8, 9, 10, 11, 4, 5, 6, 7, 8, 4, 9, 3, 10, 0};
    lists_make(l, degrees, ids);
}

static void is_frequency(int64_t count, double probability, const char *what, int64_t which)
{
    const double mean = DRAWS * probability, error = sqrt(DRAWS * probability * (1 - probability));
    if (fabs((double)count - mean) > SIGMAS * error + 1e-9)
        fail_msg("%s %lld: %lld of %d draws, expected %.1f +- %.1f", what, (long long)which, (long long)count,
                 DRAWS, mean, error);
}

/* ---- functions that both twins share -------------------------------------------------------------- */

static void close_to(double found, double expected, double relative)
{
    if (fabs(found - expected) > relative * fmax(fabs(expected), 1e-300))
        fail_msg("found %.17g, expected %.17g", found, expected);
}

static void functions_are_exact(void **state)
{
    (void)state;
    for (int i = 1; i < 20000; i++) {
        const double p = i / 20000.0, x = i / 20.0;
        assert_true(fabs(pst_k_normal_log(p) - log(p)) <= 5e-16 * fmax(1, fabs(log(p))));
        close_to(pst_k_normal_log(x * 1e30), log(x * 1e30), 5e-16);
        if (x < 700)
            close_to(pst_k_normal_exp(x), exp(-x), 2e-15);
        close_to(pst_k_normal_below(p), -expm1(-p), 1e-15);
        close_to(pst_k_normal_below(p * 1e-9), -expm1(-p * 1e-9), 1e-15);
        const double z = pst_k_normal_quantile(p), tail = pst_k_normal_quantile(p * 1e-6);
        assert_true(fabs(pst_k_normal_share(z) - p) < 2e-15);
        close_to(erfc(-z / sqrt(2)) / 2, p, 1e-13);
        close_to(erfc(-tail / sqrt(2)) / 2, p * 1e-6, 1e-12);
        assert_true(fabs(pst_k_normal_share(tail) - p * 1e-6) < 2e-15);
    }
    assert_true(pst_k_normal_quantile(0.5) == 0 && pst_k_normal_share(0) == 0.5);
    assert_true(pst_k_normal_share(-9) == 0 && pst_k_normal_share(9) == 1 && pst_k_normal_exp(1e9) == 0);
}

/* Ranks of a group of batches go over from one stream to the other, and are uniform on the way. */
static void mixed_ranks_are_uniform(void **state)
{
    (void)state;
    enum { BINS = 20 };
    const double angles[] = {0, 0.3, 0.785398, 1.2};
    for (size_t a = 0; a < sizeof angles / sizeof *angles; a++) {
        int64_t bins[BINS] = {0};
        const struct pst_k_ranks r = {.stream = {pst_rng_stream_of(PST_RNG_GROUP, 5, 0, 3, 1),
                                                 pst_rng_stream_of(PST_RNG_GROUP, 5, 0, 4, 1)},
                                      .mixed = true,
                                      .near = cos(angles[a]),
                                      .far = sin(angles[a])};
        double first = 0, second = 0;
        for (int64_t u = 0; u < DRAWS; u++) {
            const double rank = pst_k_rank_of(&r, u);
            assert_true(rank > 0 && rank < 1);
            bins[(int)(rank * BINS)]++;
            first = fmax(first, fabs(rank - pst_k_rank_unit(&r.stream[0], u)));
            second += rank * pst_k_rank_unit(&r.stream[1], u);
            if (u > 0) /* the key has the same order */
                assert_int_equal(pst_k_rank_key(&r, u) < pst_k_rank_key(&r, u - 1),
                                 rank < pst_k_rank_of(&r, u - 1));
        }
        for (int b = 0; b < BINS; b++)
            is_frequency(bins[b], 1.0 / BINS, "bin of ranks", b);
        if (angles[a] == 0)
            assert_true(first < 1e-14);
        /* far is the correlation of the normal numbers; that of the ranks is 6 asin(far / 2) / pi */
        const double expected = 0.25 + 6 * asin(r.far / 2) / acos(-1) / 12;
        assert_true(fabs(second / DRAWS - expected) < 4 * 0.22 / sqrt(DRAWS));
    }
}

/* ---- the smallest ranks --------------------------------------------------------------------------- */

struct sample {
    int32_t indptr[LISTS + 1];
    int64_t out[EDGES_MAX];
    float weight[EDGES_MAX];
};

static const int64_t every_list[LISTS] = {0, 1, 2, 3};

static struct pst_k_ranks ranks_of(int64_t draw)
{
    return (struct pst_k_ranks){.stream = {pst_rng_stream_of(PST_RNG_SAMPLE, 7, 1, (uint64_t)draw, 0)}};
}

static int of_list(const struct sample *s, int list, int64_t id)
{
    int found = 0;
    for (int32_t e = s->indptr[list]; e < s->indptr[list + 1]; e++)
        found += s->out[e] == id;
    return found;
}

/* Each subset of a list is as likely as any other: fanout of degree choose. Of two lists, the one in the
 * other, the choices are the same where they can be. */
static void each_subset_is_as_likely(void **state)
{
    (void)state;
    static struct lists l;
    static int64_t subsets[256];
    int64_t both = 0;
    lists_usual(&l);
    memset(subsets, 0, sizeof subsets);
    for (int64_t draw = 0; draw < DRAWS; draw++) {
        struct sample s;
        const struct pst_k_ranks ranks = ranks_of(draw);
        assert_int_equal(
            pst_k_sample_ranked(NULL, &l.graph, &ranks, every_list, LISTS, 3, s.indptr, s.out, EDGES_MAX),
            PST_OK);
        assert_int_equal(s.indptr[1], 3);
        assert_int_equal(s.indptr[2], 6);
        assert_int_equal(s.indptr[4], 11); /* lists 2 and 3 are taken whole */
        int subset = 0;
        for (int e = 0; e < 3; e++)
            subset |= 1 << (s.out[e] - 4);
        subsets[subset]++;
        for (int64_t id = 4; id < 9; id++) {
            if (of_list(&s, 0, id)) /* what the longer list keeps of the shorter one, that keeps too */
                assert_int_equal(of_list(&s, 1, id), 1);
            both += of_list(&s, 0, id) && of_list(&s, 1, id);
        }
    }
    for (int subset = 0; subset < 256; subset++)
        if (__builtin_popcount((unsigned)subset) == 3)
            is_frequency(subsets[subset], 1.0 / 56, "subset", subset);
        else
            assert_int_equal(subsets[subset], 0);
    /* 3 * 5 / 8 shared neighbours, where independent draws would share 3 * 5 / 8 * 3 / 5 */
    assert_true(fabs((double)both / DRAWS - 15.0 / 8) < 4 * 1.0 / sqrt(DRAWS));
}

/* ---- LABOR with importance ------------------------------------------------------------------------ */

/* What the definition says, by bisection. */
static void naive_shares(const struct lists *l, int fanout, int iterations, double pi[VERTICES],
                         double share[EDGES_MAX])
{
    double c[LISTS];
    for (int u = 0; u < VERTICES; u++)
        pi[u] = 1;
    for (int round = 0; round <= iterations; round++) {
        for (int v = 0; v < LISTS; v++) {
            const int32_t *ids = l->indices + l->indptr[v];
            const int64_t degree = l->indptr[v + 1] - l->indptr[v];
            double low = 1e-9, high = 1e9;
            for (int step = 0; step < 200; step++) {
                double sum = 0;
                c[v] = sqrt(low * high);
                for (int64_t e = 0; e < degree; e++)
                    sum += 1 / fmin(1, c[v] * pi[ids[e]]);
                const double most =
                    degree <= fanout ? (double)degree * (1 + 1e-15) : (double)(degree * degree) / fanout;
                *(sum > most ? &low : &high) = c[v];
            }
            for (int64_t e = 0; e < degree; e++)
                share[l->indptr[v] + e] = fmin(1, c[v] * pi[ids[e]]);
        }
        double best[VERTICES] = {0};
        for (int v = 0; v < LISTS; v++)
            for (int64_t e = l->indptr[v]; e < l->indptr[v + 1]; e++)
                best[l->indices[e]] = fmax(best[l->indices[e]], c[v]);
        for (int u = 0; u < VERTICES; u++)
            pi[u] *= best[u];
    }
}

static void labor_case(const struct lists *l, int fanout, int iterations)
{
    double pi[VERTICES], share[EDGES_MAX], sum[LISTS] = {0}, squares[LISTS] = {0};
    int64_t kept[EDGES_MAX] = {0};
    uint64_t scratch[3 * VERTICES] = {0};
    naive_shares(l, fanout, iterations, pi, share);
    for (int64_t draw = 0; draw < DRAWS; draw++) {
        struct sample s;
        const struct pst_k_ranks ranks = ranks_of(draw);
        assert_int_equal(pst_k_sample_labor(NULL, &l->graph, &ranks, iterations, every_list, LISTS, fanout,
                                            scratch, s.indptr, s.out, s.weight, EDGES_MAX),
                         PST_OK);
        for (int v = 0; v < LISTS; v++) {
            double x = 0;
            int64_t at = l->indptr[v];
            for (int32_t e = s.indptr[v]; e < s.indptr[v + 1]; e++, at++) {
                while (l->indices[at] != s.out[e])
                    at++;
                assert_true(at < l->indptr[v + 1]);
                kept[at]++;
                close_to((double)s.weight[e], 1 / share[at], 1e-6);
                x += (double)s.weight[e] * (double)(s.out[e] * s.out[e]); /* of rows with one column, u^2 */
            }
            sum[v] += x;
            squares[v] += x * x;
        }
    }
    for (int u = 0; u < 3 * VERTICES; u++)
        assert_int_equal(scratch[u], 0);
    for (int64_t e = 0; e < l->graph.edges; e++)
        is_frequency(kept[e], share[e], "entry", e);
    for (int v = 0; v < LISTS; v++) {
        double expected = 0;
        for (int64_t e = l->indptr[v]; e < l->indptr[v + 1]; e++)
            expected += (double)(l->indices[e] * l->indices[e]);
        const double mean = sum[v] / DRAWS, variance = squares[v] / DRAWS - mean * mean,
                     error = sqrt(fmax(0, variance) / DRAWS);
        if (fabs(mean - expected) > SUM_SIGMAS * error + 1e-5 * expected)
            fail_msg("list %d, fanout %d, %d iterations: the mean sum is %.3f +- %.3f, expected %.3f", v,
                     fanout, iterations, mean, error, expected);
    }
}

static void labor_keeps_what_it_says(void **state)
{
    (void)state;
    static struct lists l;
    lists_usual(&l);
    labor_case(&l, 3, 0);
    labor_case(&l, 3, 1);
    labor_case(&l, 2, 3);
    labor_case(&l, 1, 20);
    labor_case(&l, 8, 2);
}

/* ---- LADIES --------------------------------------------------------------------------------------- */

/* The probability of each vertex to be among `size` that are drawn one after the other, each with probability
 * proportional to pi, by going through all orders. */
static void enumerate(const double pi[VERTICES], int size, double left, double probability, unsigned drawn,
                      double inclusion[VERTICES])
{
    for (int u = 0; u < VERTICES && size > 0; u++) {
        if (pi[u] == 0 || (drawn & 1u << u))
            continue;
        const double p = probability * pi[u] / left;
        inclusion[u] += p;
        enumerate(pi, size - 1, left - pi[u], p, drawn | 1u << u, inclusion);
    }
}

static void ladies_draws_by_importance(void **state)
{
    (void)state;
    static struct lists l;
    lists_usual(&l);
    for (int size = 1; size <= 4; size++) {
        double pi[VERTICES] = {0}, inclusion[VERTICES] = {0}, sum = 0;
        int64_t drawn[VERTICES] = {0};
        uint64_t scratch[3 * VERTICES] = {0};
        for (int v = 0; v < LISTS; v++)
            for (int64_t e = l.indptr[v]; e < l.indptr[v + 1]; e++)
                pi[l.indices[e]] += pow((double)(l.indptr[v + 1] - l.indptr[v]), -2);
        for (int u = 0; u < VERTICES; u++)
            sum += pi[u];
        enumerate(pi, size, sum, 1, 0, inclusion);
        for (int64_t draw = 0; draw < DRAWS; draw++) {
            struct sample s;
            bool seen[VERTICES] = {false};
            const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SAMPLE, 3, 0, (uint64_t)draw, 1);
            int vertices = 0;
            assert_int_equal(pst_k_sample_ladies(NULL, &l.graph, &stream, size, every_list, LISTS, scratch,
                                                 s.indptr, s.out, s.weight, EDGES_MAX),
                             PST_OK);
            for (int v = 0; v < LISTS; v++)
                for (int32_t e = s.indptr[v]; e < s.indptr[v + 1]; e++) {
                    const double degree = (double)(l.indptr[v + 1] - l.indptr[v]);
                    close_to((double)s.weight[e], 1 / degree / pi[s.out[e]], 1e-6);
                    vertices += !seen[s.out[e]];
                    seen[s.out[e]] = true;
                }
            assert_int_equal(vertices, size);
            for (int u = 0; u < VERTICES; u++)
                drawn[u] += seen[u];
            for (int v = 0; v < LISTS; v++) { /* all edges of the drawn, and no others */
                int32_t edges = 0;
                for (int64_t e = l.indptr[v]; e < l.indptr[v + 1]; e++)
                    edges += seen[l.indices[e]];
                assert_int_equal(s.indptr[v + 1] - s.indptr[v], edges);
            }
        }
        for (int u = 0; u < VERTICES; u++)
            is_frequency(drawn[u], inclusion[u], "drawn vertex", u);
        for (int u = 0; u < 3 * VERTICES; u++)
            assert_int_equal(scratch[u], 0);
    }
}

/* ---- weighted edges ------------------------------------------------------------------------------- */

/* Of one list, with entries of weight 0. The inclusion of an entry, and the mean of the sum of 1 / share over
 * the drawn. */
static void weighted_edges_are_drawn_one_by_one(void **state)
{
    (void)state;
    static const int degrees[LISTS] = {7, 0, 0, 0};
    static const int32_t ids[] = {4, 5, 6, 7, 8, 9, 10};
    static const float w[] = {1, 0, 4, 0.5f, 2, 1, 8};
    static struct lists l;
    lists_make(&l, degrees, ids);
    for (int fanout = 1; fanout <= 6; fanout++) {
        double weights[VERTICES] = {0}, inclusion[VERTICES] = {0}, sum = 0, squares = 0, expected = 0;
        int64_t drawn[VERTICES] = {0};
        for (int e = 0; e < 7; e++) {
            weights[ids[e]] = (double)w[e];
            expected += w[e] > 0 ? ids[e] * ids[e] : 0;
        }
        enumerate(weights, fanout, 16.5, 1, 0, inclusion);
        for (int64_t draw = 0; draw < DRAWS; draw++) {
            struct sample s;
            const struct pst_k_weighted_edges edges = {
                w, pst_rng_stream_of(PST_RNG_SAMPLE, 3, 0, (uint64_t)draw, 1)};
            double x = 0;
            assert_int_equal(pst_k_sample_weighted(NULL, &l.graph, &edges, every_list, LISTS, fanout,
                                                   s.indptr, s.out, s.weight, EDGES_MAX),
                             PST_OK);
            assert_int_equal(s.indptr[1], fanout);
            assert_int_equal(s.indptr[LISTS], fanout);
            for (int e = 0; e < fanout; e++) {
                drawn[s.out[e]]++;
                x += (double)s.weight[e] * (double)(s.out[e] * s.out[e]);
                assert_true(e == 0 || s.out[e] > s.out[e - 1]);
            }
            sum += x;
            squares += x * x;
        }
        for (int u = 0; u < VERTICES; u++)
            is_frequency(drawn[u], fmin(1, inclusion[u]), "entry", u);
        const double mean = sum / DRAWS, error = sqrt(fmax(0, squares / DRAWS - mean * mean) / DRAWS);
        /* With one draw, 1 / share has no variance: its standard error does not say how far the mean is off.
         */
        if (fanout > 2 && fabs(mean - expected) > SUM_SIGMAS * error + 1e-5 * expected)
            fail_msg("fanout %d: the mean sum is %.2f +- %.2f, expected %.2f", fanout, mean, error, expected);
    }
}

/* Within each relation of a list: the frequency of every entry, of as many as the relation's fanout. */
static void weighted_edges_of_each_relation(void **state)
{
    (void)state;
    static const int degrees[LISTS] = {7, 0, 0, 0};
    static const int32_t ids[] = {4, 5, 6, 7, 8, 9, 10}, relation[] = {1, 0, 0, 1, 0, 1, 0};
    static const float w[] = {1, 0.25f, 4, 0.5f, 2, 3, 0};
    static const int32_t fanout[] = {2, 1};
    static struct lists l;
    const struct pst_k_typed how = {.relation = relation, .fanout = fanout, .relations = 2};
    int64_t drawn[VERTICES] = {0}, scratch[16];
    double sums[2] = {0}, squares[2] = {0}, inclusion[2][VERTICES] = {{0}};
    assert_true(pst_k_weighted_typed_words(2, 3) <= 16);
    lists_make(&l, degrees, ids);
    for (int r = 0; r < 2; r++) {
        double weights[VERTICES] = {0}, all = 0;
        for (int e = 0; e < 7; e++) {
            weights[ids[e]] = relation[e] == r ? (double)w[e] : 0;
            all += weights[ids[e]];
        }
        enumerate(weights, fanout[r], all, 1, 0, inclusion[r]);
    }
    for (int64_t draw = 0; draw < DRAWS; draw++) {
        struct sample s;
        int32_t of[EDGES_MAX];
        const struct pst_k_weighted_edges edges = {
            w, pst_rng_stream_of(PST_RNG_SAMPLE, 3, 0, (uint64_t)draw, 1)};
        double x[2] = {0};
        assert_int_equal(pst_k_sample_weighted_typed(NULL, &l.graph, &edges, &how, every_list, LISTS, scratch,
                                                     s.indptr, s.out, s.weight, of, EDGES_MAX),
                         PST_OK);
        assert_int_equal(s.indptr[1], 3);
        assert_int_equal(s.indptr[LISTS], 3);
        for (int e = 0; e < 3; e++) {
            assert_int_equal(of[e], e / 2);
            assert_int_equal(of[e], relation[s.out[e] - 4]);
            drawn[s.out[e]]++;
            x[e / 2] += (double)s.weight[e] * (double)s.out[e];
        }
        for (int r = 0; r < 2; r++) {
            sums[r] += x[r];
            squares[r] += x[r] * x[r];
        }
    }
    for (int e = 0; e < 7; e++)
        is_frequency(drawn[ids[e]], fmin(1, inclusion[relation[e]][ids[e]]), "entry", ids[e]);
    const double mean = sums[0] / DRAWS, error = sqrt(fmax(0, squares[0] / DRAWS - mean * mean) / DRAWS);
    if (fabs(mean - (5 + 6 + 8)) > SUM_SIGMAS * error) /* entry 10 has weight 0 */
        fail_msg("the mean sum of relation 0 is %.3f +- %.3f, expected 19", mean, error);
}

static void bad_edge_weights_are_refused(void **state)
{
    (void)state;
    static struct lists l;
    struct sample s;
    const float bad[] = {-1, NAN, INFINITY};
    lists_usual(&l);
    for (int i = 0; i < 3; i++) {
        float w[EDGES_MAX] = {0};
        const struct pst_k_weighted_edges edges = {w, pst_rng_stream_of(PST_RNG_SAMPLE, 3, 0, 0, 1)};
        assert_int_equal(
            pst_k_sample_weighted(NULL, &l.graph, &edges, every_list, LISTS, -1, s.indptr, s.out, NULL, 0),
            PST_OK); /* none can be drawn */
        assert_int_equal(s.indptr[LISTS], 0);
        w[7] = bad[i];
        assert_int_equal(pst_k_sample_weighted(NULL, &l.graph, &edges, every_list, LISTS, 2, s.indptr, s.out,
                                               NULL, EDGES_MAX),
                         PST_E_FORMAT);
    }
}

/* With iterations there are fewer vertices for the same neighbours of each. */
static void importance_saves_vertices(void **state)
{
    (void)state;
    static struct lists l;
    uint64_t scratch[3 * VERTICES] = {0};
    double vertices[3] = {0};
    lists_usual(&l);
    for (int64_t draw = 0; draw < DRAWS; draw++)
        for (int i = 0; i < 3; i++) {
            struct sample s;
            bool seen[VERTICES] = {false};
            const struct pst_k_ranks ranks = ranks_of(draw);
            assert_int_equal(pst_k_sample_labor(NULL, &l.graph, &ranks, i, every_list, LISTS, 2, scratch,
                                                s.indptr, s.out, s.weight, EDGES_MAX),
                             PST_OK);
            for (int32_t e = 0; e < s.indptr[LISTS]; e++) {
                vertices[i] += !seen[s.out[e]];
                seen[s.out[e]] = true;
            }
        }
    assert_true(vertices[1] < 0.99 * vertices[0] && vertices[2] < vertices[1]);
}

static void damage_and_limits(void **state)
{
    (void)state;
    static struct lists l;
    struct sample s;
    uint64_t scratch[3 * VERTICES] = {0};
    const struct pst_k_ranks ranks = ranks_of(0);
    lists_usual(&l);
    for (int kind = 0; kind < 4; kind++) {
        int64_t vertices[LISTS] = {0, 1, 2, 3};
        lists_usual(&l);
        if (kind == 0)
            vertices[2] = VERTICES;
        if (kind == 1)
            l.indices[9] = -1;
        if (kind == 2)
            l.indptr[2] = l.graph.edges + 1;
        const pst_rc want = kind == 3 ? PST_E_LIMIT : PST_E_FORMAT;
        const int64_t room = kind == 3 ? 7 : EDGES_MAX;
        assert_int_equal(pst_k_sample_ranked(NULL, &l.graph, &ranks, vertices, LISTS, 2, s.indptr, s.out,
                                             kind == 3 ? 7 : room),
                         want);
        assert_int_equal(pst_k_sample_labor(NULL, &l.graph, &ranks, 1, vertices, LISTS, 8, scratch, s.indptr,
                                            s.out, s.weight, room),
                         want);
        const struct pst_rng_stream stream = ranks.stream[0];
        assert_int_equal(pst_k_sample_ladies(NULL, &l.graph, &stream, VERTICES, vertices, LISTS, scratch,
                                             s.indptr, s.out, s.weight, room),
                         want);
        for (int u = 0; u < 3 * VERTICES; u++)
            assert_int_equal(scratch[u], 0);
    }
}

static void shares_sum_to_one(void **state)
{
    (void)state;
    const int32_t indptr[] = {0, 3, 3, 5, 7};
    float w[] = {1, 2, 5, 0, 0, 1e30f, 3e30f};
    const float expected[] = {0.125f, 0.25f, 0.625f, 0.5f, 0.5f, 0.25f, 0.75f};
    pst_k_edge_shares(NULL, indptr, 4, w);
    for (int i = 0; i < 7; i++)
        assert_true(w[i] == expected[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_exact),
        cmocka_unit_test(mixed_ranks_are_uniform),
        cmocka_unit_test(each_subset_is_as_likely),
        cmocka_unit_test(labor_keeps_what_it_says),
        cmocka_unit_test(ladies_draws_by_importance),
        cmocka_unit_test(importance_saves_vertices),
        cmocka_unit_test(damage_and_limits),
        cmocka_unit_test(shares_sum_to_one),
        cmocka_unit_test(weighted_edges_are_drawn_one_by_one),
        cmocka_unit_test(weighted_edges_of_each_relation),
        cmocka_unit_test(bad_edge_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
