/* The kernels of the sampler: random numbers, sampling, dedup, cache, gather, shuffle. */
#include "kernels/kernels.h"
#include "common/util/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t rng_state = 88172645463325252ull;
static uint64_t rnd(uint64_t bound)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return bound ? rng_state % bound : 0;
}

/* Chi-square of counts against equal expectation. */
static double chi_square(const int64_t *counts, int64_t n, double expected)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return sum;
}

/* Six standard deviations above the mean of a chi-square with so many degrees of freedom. */
static double chi_limit(double freedom)
{
    return freedom + 6 * sqrt(2 * freedom);
}

/* Known answers of the authors' library (Random123, kat_vectors). */
static void test_philox(void **state)
{
    (void)state;
    const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct pst_rng_block in;
        memcpy(in.word, known[i].counter, sizeof in.word);
        const struct pst_rng_block out = pst_rng_philox(in, known[i].key[0], known[i].key[1]);
        assert_memory_equal(out.word, known[i].answer, sizeof out.word);
    }
    assert_int_equal(pst_rng_bounded(UINT64_MAX, 7), 6);
    assert_int_equal(pst_rng_bounded(0, 7), 0);
    assert_int_equal(pst_rng_bounded((uint64_t)1 << 63, 10), 5);
}

/* A ring-like graph: vertex v has degree(v) = v % 50 neighbours (v + 1 + i) % n. */
struct graph {
    struct pst_csc csc;
    int64_t *indptr;
    void *indices;
};

static struct graph make_graph(int64_t n, int64_t degree, int index_bytes)
{
    struct graph g = {.csc = {.vertices = n, .index_bytes = index_bytes}};
    g.indptr = calloc((size_t)n + 1, sizeof *g.indptr);
    for (int64_t v = 0; v < n; v++)
        g.indptr[v + 1] = g.indptr[v] + (degree >= 0 ? degree : v % 50);
    g.csc.edges = g.indptr[n];
    g.indices = malloc((size_t)(g.csc.edges * index_bytes) + 1);
    for (int64_t v = 0, e = 0; v < n; v++)
        for (int64_t i = 0; e < g.indptr[v + 1]; i++, e++) {
            const int64_t u = (v + 1 + i) % n;
            if (index_bytes == 4)
                ((int32_t *)g.indices)[e] = (int32_t)u;
            else
                ((int64_t *)g.indices)[e] = u;
        }
    g.csc.indptr = g.indptr;
    g.csc.indices = g.indices;
    return g;
}

static void free_graph(struct graph *g)
{
    free(g->indptr);
    free(g->indices);
}

/* Counts are right, neighbours are the vertex's own and distinct, and each vertex's draw is the same when it
 * is sampled alone, and for either index width. */
static void check_sample(int fanout, bool replace, int index_bytes)
{
    struct graph g = make_graph(997, -1, index_bytes);
    enum { N = 400, ROOM = 400 * 64 };
    int64_t ids[N];
    int32_t indptr[N + 1], one_indptr[2];
    int64_t *out = malloc(ROOM * sizeof *out), one[64];
    for (int i = 0; i < N; i++)
        ids[i] = (int64_t)rnd(997);
    const struct pst_sample_key key = {7, 1, 2, 3};
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, ids, N, fanout, replace, indptr, out, ROOM), PST_OK);
    for (int i = 0; i < N; i++) {
        const int64_t degree = ids[i] % 50, got = indptr[i + 1] - indptr[i];
        const bool all = fanout < 0 || (!replace && degree <= fanout);
        assert_int_equal(got, degree == 0 ? 0 : all ? degree : fanout);
        uint8_t seen[50] = {0};
        for (int64_t s = 0; s < got; s++) {
            const int64_t at = (out[indptr[i] + s] - ids[i] - 1 + 997) % 997;
            assert_true(at < degree);
            if (all)
                assert_int_equal(at, s);
            if (!replace)
                assert_int_equal(seen[at]++, 0);
        }
        /* with no room to spare it is sampled the slow way */
        assert_int_equal(pst_k_sample(NULL, &g.csc, &key, &ids[i], 1, fanout, replace, one_indptr, one, got),
                         PST_OK);
        assert_int_equal(one_indptr[1], got);
        assert_memory_equal(one, out + indptr[i], (size_t)got * sizeof *one);
    }
    /* The capacity is a limit, met exactly or refused. */
    const int64_t total = indptr[N];
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, ids, N, fanout, replace, indptr, out, total), PST_OK);
    if (total > 0)
        assert_int_equal(pst_k_sample(NULL, &g.csc, &key, ids, N, fanout, replace, indptr, out, total - 1),
                         PST_E_LIMIT);
    free(out);
    free_graph(&g);
}

static void test_sample(void **state)
{
    (void)state;
    const int fanouts[] = {-1, 0, 1, 2, 7, 25, 31, 32, 33, 40, 49, 50, 60};
    for (size_t i = 0; i < sizeof fanouts / sizeof *fanouts; i++)
        for (int variant = 0; variant < 4; variant++)
            check_sample(fanouts[i], variant & 1, variant & 2 ? 8 : 4);
}

/* Keys differ in one field each: the samples must all differ. */
static void test_sample_keys(void **state)
{
    (void)state;
    struct graph g = make_graph(500, 100, 4);
    const struct pst_sample_key keys[] = {{7, 1, 0, 5},
                                          {8, 1, 0, 5},
                                          {7, 2, 0, 5},
                                          {7, 1, 1, 5},
                                          {7, 1, 0, 6},
                                          {7 + (1ull << 32), 1, 0, 5},
                                          {7, 1, 0, 5 + (1ull << 32)}};
    enum { KEYS = sizeof keys / sizeof *keys };
    int64_t vertex = 3, out[KEYS][10];
    int32_t indptr[2];
    for (int k = 0; k < KEYS; k++) {
        assert_int_equal(pst_k_sample(NULL, &g.csc, &keys[k], &vertex, 1, 10, false, indptr, out[k], 10),
                         PST_OK);
        for (int j = 0; j < k; j++)
            assert_memory_not_equal(out[j], out[k], sizeof out[k]);
    }
    free_graph(&g);
}

/* Every neighbour is drawn equally often, and so is every pair. */
static void check_uniform(int64_t degree, int fanout, bool replace)
{
    struct graph g = make_graph(1009, degree, 4);
    enum { N = 1009, TURNS = 40, MAX = 80 };
    int64_t *ids = malloc(N * sizeof *ids), *out = malloc((size_t)N * MAX * sizeof *out);
    int32_t *indptr = malloc((N + 1) * sizeof *indptr);
    int64_t *single = calloc((size_t)degree, sizeof *single);
    int64_t *pair = calloc((size_t)(degree * degree), sizeof *pair);
    for (int i = 0; i < N; i++)
        ids[i] = i;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const struct pst_sample_key key = {1, 0, 0, turn};
        assert_int_equal(
            pst_k_sample(NULL, &g.csc, &key, ids, N, fanout, replace, indptr, out, (int64_t)N * MAX), PST_OK);
        for (int64_t i = 0; i < N; i++) {
            for (int a = 0; a < fanout; a++) {
                const int64_t at = (out[i * fanout + a] - i - 1 + 2 * N) % N;
                single[at]++;
                for (int b = 0; b < fanout; b++)
                    if (b != a)
                        pair[at * degree + (out[i * fanout + b] - i - 1 + 2 * N) % N]++;
            }
        }
    }
    const double draws = (double)N * TURNS, d = (double)degree, k = fanout;
    assert_true(chi_square(single, degree, draws * k / d) < chi_limit(d));
    if (!replace && fanout > 1) {
        int64_t *off = malloc((size_t)(degree * degree) * sizeof *off);
        int64_t n = 0;
        for (int64_t a = 0; a < degree; a++)
            for (int64_t b = 0; b < a; b++)
                off[n++] = pair[a * degree + b];
        const double dof = (double)n, expected = draws * k * (k - 1) / (d * (d - 1));
        assert_true(chi_square(off, n, expected) < chi_limit(dof));
        free(off);
    }
    free(ids);
    free(out);
    free(indptr);
    free(single);
    free(pair);
    free_graph(&g);
}

static void test_sample_uniform(void **state)
{
    (void)state;
    check_uniform(7, 3, false);
    check_uniform(20, 10, false);
    check_uniform(60, 5, false);
    check_uniform(60, 40, false); /* the hash set */
    check_uniform(11, 4, true);
}

static void test_sample_bad_graph(void **state)
{
    (void)state;
    struct graph g = make_graph(10, 4, 4);
    const struct pst_sample_key key = {0};
    int64_t out[64], ids[] = {0, 5}, bad[] = {10}, negative[] = {-1};
    int32_t indptr[3];
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, bad, 1, 2, false, indptr, out, 64), PST_E_FORMAT);
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, negative, 1, 2, false, indptr, out, 64), PST_E_FORMAT);
    g.indptr[6] = 1000;
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, ids, 2, 2, false, indptr, out, 64), PST_E_FORMAT);
    g.indptr[6] = 24;
    ((int32_t *)g.indices)[0] = 77;
    assert_int_equal(pst_k_sample(NULL, &g.csc, &key, ids, 1, -1, false, indptr, out, 64), PST_E_FORMAT);
    free_graph(&g);
}

static void test_dedup(void **state)
{
    (void)state;
    enum { MAX = 1000 };
    void *memory = malloc(pst_k_dedup_bytes(MAX));
    struct pst_dedup *table = pst_k_dedup_init(memory, MAX);
    for (int turn = 0; turn < 200; turn++) {
        int64_t ids[MAX], vertices[MAX], naive[MAX], count = 0, known = 0;
        int32_t local[MAX];
        const uint64_t range = 1 + rnd(3000);
        const int64_t n = turn == 0 ? 0 : (int64_t)rnd(MAX + 1);
        for (int64_t i = 0; i < n; i++)
            ids[i] = (int64_t)(rnd(range) << rnd(2) * 31);
        const int64_t cut = (int64_t)rnd((uint64_t)n + 1); /* two hops */
        assert_int_equal(pst_k_dedup(NULL, table, ids, cut, vertices, &count, MAX, local), PST_OK);
        assert_int_equal(pst_k_dedup(NULL, table, ids + cut, n - cut, vertices, &count, MAX,
                                     turn % 2 ? local + cut : NULL),
                         PST_OK);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = 0;
            while (at < known && naive[at] != ids[i])
                at++;
            if (at == known)
                naive[known++] = ids[i];
            if (i < cut || turn % 2)
                assert_int_equal(local[i], at);
        }
        assert_int_equal(count, known);
        assert_memory_equal(vertices, naive, (size_t)known * sizeof *naive);
        pst_k_dedup_reset(NULL, table);
        if (known > 0) { /* the room for newcomers is a limit */
            count = 0;
            assert_int_equal(pst_k_dedup(NULL, table, ids, n, vertices, &count, known, NULL), PST_OK);
            pst_k_dedup_reset(NULL, table);
            count = 0;
            assert_int_equal(pst_k_dedup(NULL, table, ids, n, vertices, &count, known - 1, NULL),
                             PST_E_LIMIT);
            pst_k_dedup_reset(NULL, table);
        }
    }
    int64_t more[MAX + 1], vertices[MAX + 1], count = 0;
    for (int64_t i = 0; i <= MAX; i++)
        more[i] = i;
    assert_int_equal(pst_k_dedup(NULL, table, more, MAX + 1, vertices, &count, MAX + 1, NULL), PST_E_LIMIT);
    free(memory);
}

/* n vertices, `step` apart: few enough for an array or so sparse that they are hashed. */
static void check_lookup(int64_t step)
{
    const int64_t sizes[] = {0, 1, 2, 97, 1000};
    for (size_t t = 0; t < sizeof sizes / sizeof *sizes; t++) {
        const int64_t n = sizes[t], asked = 777;
        int64_t *vertices = malloc((size_t)n * 8 + 8), ids[777], hits, misses;
        int32_t hit_pos[777], hit_row[777], miss_pos[777];
        for (int64_t i = 0; i < n; i++)
            vertices[i] = (n - i) * step;
        void *memory = malloc(pst_k_cache_bytes(n));
        const struct pst_cache *cache = pst_k_cache_init(memory, vertices, n);
        for (int64_t i = 0; i < asked; i++)
            ids[i] = (int64_t)rnd((uint64_t)((step + 1) * n) + 5);
        pst_k_lookup(NULL, cache, ids, asked, hit_pos, hit_row, &hits, miss_pos, &misses);
        int64_t hit = 0, miss = 0;
        for (int64_t i = 0; i < asked; i++) {
            const bool in = ids[i] % step == 0 && ids[i] > 0 && ids[i] <= step * n;
            if (in) {
                assert_int_equal(hit_pos[hit], i);
                assert_int_equal(hit_row[hit], n - ids[i] / step);
                hit++;
            } else {
                assert_int_equal(miss_pos[miss++], i);
            }
        }
        assert_int_equal(hit, hits);
        assert_int_equal(miss, misses);
        free(memory);
        free(vertices);
    }
}

static void test_lookup(void **state)
{
    (void)state;
    const int64_t steps[] = {1, 3, 7, 100, (int64_t)1 << 40};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        check_lookup(steps[i]);
}

/* The first vertices in order: a row's number is its vertex. */
static void test_lookup_first(void **state)
{
    (void)state;
    int64_t vertices[100], ids[] = {99, 100, 0, (int64_t)1 << 40, 57}, hits, misses;
    int32_t hit_pos[5], hit_row[5], miss_pos[5];
    for (int64_t i = 0; i < 100; i++)
        vertices[i] = i;
    void *memory = malloc(pst_k_cache_bytes(100));
    pst_k_lookup(NULL, pst_k_cache_init(memory, vertices, 100), ids, 5, hit_pos, hit_row, &hits, miss_pos,
                 &misses);
    const int32_t pos[] = {0, 2, 4}, row[] = {99, 0, 57}, miss[] = {1, 3};
    assert_int_equal(hits, 3);
    assert_int_equal(misses, 2);
    assert_memory_equal(hit_pos, pos, sizeof pos);
    assert_memory_equal(hit_row, row, sizeof row);
    assert_memory_equal(miss_pos, miss, sizeof miss);
    free(memory);
}

static void test_gather(void **state)
{
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        enum { ROWS = 37 };
        const uint64_t bytes = turn < 4 ? (uint64_t)turn : 1 + rnd(700);
        const uint64_t from = bytes + rnd(9), to = bytes + rnd(9);
        uint8_t *src = malloc(ROWS * from + 1), *dst = calloc(1, ROWS * to + 1),
                *want = calloc(1, ROWS * to + 1);
        int32_t row[ROWS], pos[ROWS];
        for (uint64_t i = 0; i < ROWS * from; i++)
            src[i] = (uint8_t)rnd(256);
        for (int i = 0; i < ROWS; i++) {
            row[i] = (int32_t)rnd(ROWS);
            pos[i] = (i * 5) % ROWS;
        }
        const bool by_row = turn % 2, by_pos = turn % 3 == 0;
        for (int i = 0; i < ROWS; i++)
            memcpy(want + (uint64_t)(by_pos ? pos[i] : i) * to, src + (uint64_t)(by_row ? row[i] : i) * from,
                   bytes);
        pst_k_gather(NULL, src, from, by_row ? row : NULL, dst, to, by_pos ? pos : NULL, ROWS, bytes);
        assert_memory_equal(dst, want, ROWS * to + 1);
        free(src);
        free(dst);
        free(want);
    }
}

static void test_count(void **state)
{
    (void)state;
    uint32_t counts[10] = {0};
    const int64_t ids[] = {3, 3, 9, 0, 3};
    counts[9] = UINT32_MAX;
    pst_k_count(NULL, ids, 5, counts);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[3], 3);
    assert_int_equal(counts[9], UINT32_MAX); /* saturates */
}

static void test_shuffle(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 300; n++) {
        int64_t perm[300];
        uint8_t seen[300] = {0};
        pst_k_shuffle(NULL, 5, (uint64_t)n, perm, n);
        for (int64_t i = 0; i < n; i++) {
            assert_true(perm[i] >= 0 && perm[i] < n);
            assert_int_equal(seen[perm[i]]++, 0);
        }
    }
    int64_t a[1000], b[1000];
    pst_k_shuffle(NULL, 5, 1, a, 1000);
    pst_k_shuffle(NULL, 5, 1, b, 1000);
    assert_memory_equal(a, b, sizeof a);
    pst_k_shuffle(NULL, 5, 2, b, 1000);
    assert_memory_not_equal(a, b, sizeof a);
    pst_k_shuffle(NULL, 6, 1, b, 1000);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Every element lands at every place equally often; every ordered pair of neighbours is as likely. */
static void test_shuffle_uniform(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 3, 5, 13, 16};
    for (size_t t = 0; t < sizeof sizes / sizeof *sizes; t++) {
        const int64_t n = sizes[t];
        int64_t place[256] = {0}, next[256] = {0}, perm[16], off[256], m = 0;
        const int64_t turns = 20000;
        for (int64_t turn = 0; turn < turns; turn++) {
            pst_k_shuffle(NULL, 42, (uint64_t)turn, perm, n);
            for (int64_t i = 0; i < n; i++)
                place[i * n + perm[i]]++;
            for (int64_t i = 0; i + 1 < n; i++)
                next[perm[i] * n + perm[i + 1]]++;
        }
        const double cells = (double)(n * n);
        assert_true(chi_square(place, n * n, (double)turns / (double)n) < chi_limit(cells));
        for (int64_t a = 0; a < n; a++)
            for (int64_t b = 0; b < n; b++)
                if (a != b)
                    off[m++] = next[a * n + b];
        assert_true(chi_square(off, m, (double)turns / (double)n) < chi_limit(cells));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),           cmocka_unit_test(test_sample),
        cmocka_unit_test(test_sample_keys),      cmocka_unit_test(test_sample_uniform),
        cmocka_unit_test(test_sample_bad_graph), cmocka_unit_test(test_dedup),
        cmocka_unit_test(test_lookup),           cmocka_unit_test(test_lookup_first),
        cmocka_unit_test(test_gather),           cmocka_unit_test(test_count),
        cmocka_unit_test(test_shuffle),          cmocka_unit_test(test_shuffle_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
