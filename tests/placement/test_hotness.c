/* Hotness: the expectation against many sampled epochs and against what is known exactly, with any memory;
 * files of scores. */
#include <math.h>
#include <unistd.h>

#include "common/store/dataset/npy.h"
#include "stages/lib/plan/hotness_edges.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/expand.h"
#include "stages/lib/sampling/seeds.h"
#include "tests/unit/store_fixture.h"

enum { V = 300, DEGREE_MAX = 12, EDGES_MAX = 2 * V * DEGREE_MAX, SEEDS = 90, HOPS_MAX = 3 };

struct world {
    int64_t indptr[V + 1];
    int32_t indices[EDGES_MAX];
    struct pst_csc graph;
    int64_t seeds[SEEDS];
    int64_t batch;
    int hops;
    int64_t fanout[PST_HOPS_MAX];
    struct pst_sampling_opened algorithm;
    struct pst_hotness_input in;
};

static uint64_t state = 88172645463325252u;

static int64_t below(int64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)((state >> 11) % (uint64_t)n);
}

static void open_world(struct world *w, int64_t batch, int hops, const int64_t *fanout, bool replace)
{
    w->graph = (struct pst_csc){w->indptr, w->indices, 4, V, w->indptr[V]};
    for (int64_t i = 0; i < SEEDS; i++)
        w->seeds[i] = i * 3 + 1;
    w->batch = batch;
    w->hops = hops;
    memcpy(w->fanout, fanout, (size_t)hops * sizeof *fanout);
    const struct pst_sampling_setup setup = {
        .graph = &w->graph, .hops = hops, .fanout = w->fanout, .replace = replace};
    assert_int_equal(pst_sampling_algorithm_find(&w->algorithm, "uniform"), PST_OK);
    assert_int_equal(pst_sampling_algorithm_open(&w->algorithm, "", &setup), PST_OK);
    w->in = (struct pst_hotness_input){.graph = &w->graph,
                                       .seeds = w->seeds,
                                       .nseeds = SEEDS,
                                       .batches = (uint64_t)((SEEDS + batch - 1) / batch),
                                       .hops = hops,
                                       .fanout = w->fanout,
                                       .keep = w->algorithm.algorithm->keep_probability,
                                       .state = w->algorithm.state,
                                       .memory_bytes = 1 << 20,
                                       .threads = 1};
}

/* Each vertex other than the first is in exactly one list, that of a lower vertex, perhaps twice. Then the
 * factors of a product are independent, but for what seeds of one epoch have to do with each other. */
static void make_tree(struct world *w)
{
    static int64_t parent[V];
    for (int64_t u = 1; u < V; u++)
        parent[u] = below(u < 20 ? 1 : u / 4 + 1);
    int64_t edges = 0;
    for (int64_t v = 0; v < V; v++) {
        w->indptr[v] = edges;
        if (v % 5 == 0)
            w->indices[edges++] = (int32_t)v; /* a self-loop */
        for (int64_t u = 1; u < V; u++)
            for (int64_t copy = 0; parent[u] == v && copy < 1 + (u % 7 == 0); copy++)
                w->indices[edges++] = (int32_t)u;
    }
    w->indptr[V] = edges;
}

/* Lists of random vertices, sorted, with repeats. */
static void make_random(struct world *w)
{
    int64_t edges = 0;
    for (int64_t v = 0; v < V; v++) {
        w->indptr[v] = edges;
        int64_t at = 0;
        for (int64_t left = below(DEGREE_MAX); left > 0 && at < V; left--, at += below(2 * V / DEGREE_MAX))
            w->indices[edges++] = (int32_t)at;
    }
    w->indptr[V] = edges;
}

/* The mean number of batches of an epoch that have each vertex before each hop. */
static void sample_epochs(struct world *w, int epochs, double *mean)
{
    static int64_t order[SEEDS], batch[SEEDS], vertices[V];
    static int32_t indptr[V + 1], indices[EDGES_MAX];
    struct pst_expander x;
    memset(mean, 0, (HOPS_MAX + 1) * V * sizeof *mean);
    assert_int_equal(pst_expander_init(&x, &w->graph, &w->algorithm, V, EDGES_MAX), PST_OK);
    for (int epoch = 0; epoch < epochs; epoch++) {
        pst_k_shuffle(NULL, 5, (uint64_t)epoch, order, SEEDS);
        for (int64_t b = 0; b < (int64_t)w->in.batches; b++) {
            const int64_t n = pst_min_i64(w->batch, SEEDS - b * w->batch);
            int64_t count = 0;
            for (int64_t i = 0; i < n; i++)
                batch[i] = w->seeds[order[b * w->batch + i]];
            assert_int_equal(pst_expand_seeds(&x, batch, n, vertices, &count, V), PST_OK);
            for (int h = 0; h <= w->hops; h++) {
                const struct pst_sample_key key = {11, (uint32_t)epoch, (uint32_t)h, (uint64_t)b};
                for (int64_t i = 0; i < count && (h == w->hops || w->fanout[h] != 0); i++)
                    mean[h * V + vertices[i]] += 1.0 / epochs;
                if (h < w->hops)
                    assert_int_equal(pst_expand_hop(&x, &key, (int)w->fanout[h], vertices, &count, V, indptr,
                                                    indices, NULL, EDGES_MAX),
                                     PST_OK);
            }
        }
    }
    pst_expander_release(&x);
}

static const struct {
    int hops;
    int64_t fanout[HOPS_MAX];
    bool replace;
    int64_t batch;
} settings[] = {
    {1, {3}, false, 10},      {2, {3, 2}, false, 9},    {3, {2, 2, 3}, false, 8},  {2, {3, 2}, true, 9},
    {3, {2, 1, 2}, true, 30}, {2, {-1, -1}, false, 10}, {3, {-1, 2, -1}, true, 7}, {3, {2, 0, 3}, false, 12},
    {2, {0, 0}, false, 10},   {1, {1}, true, 1},        {2, {2, 50}, false, 45},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* On trees each score is the mean of many epochs. `error` has what the formula leaves out: a batch has no
 * seed twice, so seeds avoid each other a little. */
static void trees_have_their_expectation(void **unused)
{
    (void)unused;
    enum { EPOCHS = 20000 };
    static struct world w;
    static float scores[(HOPS_MAX + 1) * V];
    static double mean[(HOPS_MAX + 1) * V];
    for (int s = 0; s < SETTINGS; s++) {
        make_tree(&w);
        open_world(&w, settings[s].batch, settings[s].hops, settings[s].fanout, settings[s].replace);
        assert_int_equal(pst_hotness_analytic(&w.in, scores), PST_OK);
        sample_epochs(&w, EPOCHS, mean);
        for (int64_t i = 0; i < (w.hops + 1) * V; i++) {
            const double chance = 5 * sqrt((double)scores[i] / EPOCHS), error = 0.02 * mean[i] + 1e-6;
            if (fabs((double)scores[i] - mean[i]) > chance + error)
                fail_msg("setting %d, hop %d, vertex %d: %g, sampled %g", s, (int)(i / V), (int)(i % V),
                         (double)scores[i], mean[i]);
        }
        pst_sampling_algorithm_close(&w.algorithm);
    }
}

/* On other graphs neighbours of one vertex come together, so the formula is high by a few percent in all; but
 * it ranks as many epochs do: what it puts into a fifth is within 1 % of the best fifth. */
static void graphs_are_close_to_their_expectation(void **unused)
{
    (void)unused;
    enum { EPOCHS = 2000, CACHED = V / 5 };
    static struct world w;
    static float scores[(HOPS_MAX + 1) * V], counted[V];
    static double mean[(HOPS_MAX + 1) * V];
    for (int s = 0; s < SETTINGS; s++) {
        make_random(&w);
        open_world(&w, settings[s].batch, settings[s].hops, settings[s].fanout, settings[s].replace);
        assert_int_equal(pst_hotness_analytic(&w.in, scores), PST_OK);
        sample_epochs(&w, EPOCHS, mean);
        double all = 0, sampled = 0;
        const float *features = scores + w.hops * V;
        for (int64_t v = 0; v < V; v++) {
            counted[v] = (float)mean[w.hops * V + v];
            all += (double)features[v];
            sampled += mean[w.hops * V + v];
        }
        if (fabs(all / sampled - 1) > 0.06)
            fail_msg("setting %d: %g rows an epoch, sampled %g", s, all, sampled);
        int64_t *best, *chosen, n;
        assert_int_equal(pst_plan_choose(counted, V, CACHED, &best, &n), PST_OK);
        assert_int_equal(pst_plan_choose(features, V, CACHED, &chosen, &n), PST_OK);
        const double most = pst_hotness_hit_rate(counted, V, best, n);
        const double got = pst_hotness_hit_rate(counted, V, chosen, n);
        if (got < 0.99 * most)
            fail_msg("setting %d: hit rate %g, the best is %g", s, got, most);
        free(best);
        free(chosen);
        pst_sampling_algorithm_close(&w.algorithm);
    }
}

static void seeds_are_known_exactly(void **unused)
{
    (void)unused;
    static struct world w;
    static float scores[(HOPS_MAX + 1) * V];
    const int64_t fanout[] = {4, -1, 2};
    make_random(&w);
    for (int64_t batch = 1; batch <= SEEDS; batch++) {
        open_world(&w, batch, 3, fanout, batch % 2 == 0);
        assert_int_equal(pst_hotness_analytic(&w.in, scores), PST_OK);
        for (int64_t v = 0; v < V; v++)
            assert_true(scores[v] == (v % 3 == 1 && v / 3 < SEEDS ? 1.0F : 0.0F));
        for (int64_t i = 0; i < 3 * (int64_t)V;
             i++) /* what is in a batch stays in it; and it is in all at most */
            assert_true(scores[i + V] >= scores[i] && scores[i + V] <= (float)w.in.batches);
        pst_sampling_algorithm_close(&w.algorithm);
    }
}

/* More vertices than the least number of sums, so that small limits take several passes. */
static void memory_changes_no_score(void **unused)
{
    (void)unused;
    enum { N = 30000, K = 6 };
    static int64_t indptr[N + 1], seeds[N / 10];
    static int64_t indices[N * K];
    static float scores[3 * N], again[3 * N];
    static struct world w;
    const int64_t fanout[] = {3, 2};
    for (int64_t v = 0; v < N; v++) {
        indptr[v + 1] = indptr[v] + K;
        for (int64_t i = 0; i < K; i++)
            indices[v * K + i] = i * (N / K) + below(N / K);
    }
    for (int64_t i = 0; i < N / 10; i++)
        seeds[i] = below(10) + 10 * i;
    make_random(&w);
    open_world(&w, 10, 2, fanout, false);
    const struct pst_csc graph = {indptr, indices, 8, N, (int64_t)N * K};
    w.in.graph = &graph;
    w.in.seeds = seeds;
    w.in.nseeds = N / 10;
    w.in.batches = 100;
    assert_int_equal(pst_hotness_analytic(&w.in, scores), PST_OK);
    const uint64_t limits[] = {0, 1, 50000, 8 * (N - 1), 8 * N, UINT64_MAX};
    for (int i = 0; i < 6; i++) {
        w.in.memory_bytes = limits[i];
        w.in.threads = i + 1;
        memset(again, 0xff, sizeof again);
        assert_int_equal(pst_hotness_analytic(&w.in, again), PST_OK);
        assert_memory_equal(again, scores, sizeof scores);
    }
    pst_sampling_algorithm_close(&w.algorithm);
}

/* So many vertices that their sums lie in several regions, or, with less memory, in one region a pass; so
 * many seeds that buckets become full, and that their factors are in many blocks. */
static void regions_change_no_score(void **unused)
{
    (void)unused;
    enum { REGION = 1 << 19, N = 2 * REGION + 1000, K = 2, STRIDE = 2, BATCHES = 100 };
    static struct world w;
    const int64_t fanout[] = {1};
    int64_t *indptr = calloc(N + 1, sizeof *indptr), *seeds = calloc(N / STRIDE, sizeof *seeds);
    int32_t *indices = calloc((size_t)N * K, sizeof *indices);
    float *scores = calloc(2 * (size_t)N, sizeof *scores), *again = calloc(2 * (size_t)N, sizeof *again);
    double *outside = calloc(N, sizeof *outside); /* log(1 - p_1) by the formula */
    assert_true(indptr && seeds && indices && scores && again && outside);
    for (int64_t v = 0; v < N; v++) {
        indptr[v + 1] = indptr[v] + K;
        for (int64_t i = 0; i < K; i++)
            indices[v * K + i] = (int32_t)(i * (N / K) + below(N / K));
    }
    for (int64_t i = 0; i < N / STRIDE; i++) {
        seeds[i] = STRIDE * i;
        outside[seeds[i]] += log1p(-1. / BATCHES);
        for (int64_t k = 0; k < K; k++) /* one of two neighbours is drawn */
            if (indices[seeds[i] * K + k] != seeds[i])
                outside[indices[seeds[i] * K + k]] += log1p(-1. / BATCHES / K);
    }
    make_random(&w);
    open_world(&w, 10, 1, fanout, false);
    const struct pst_csc graph = {indptr, indices, 4, N, (int64_t)N * K};
    w.in.graph = &graph;
    w.in.seeds = seeds;
    w.in.nseeds = N / STRIDE;
    w.in.batches = BATCHES;
    const uint64_t limits[] = {UINT64_MAX, sizeof(double) * REGION, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        w.in.memory_bytes = limits[i];
        w.in.threads = 1 + i;
        assert_int_equal(pst_hotness_analytic(&w.in, i == 0 ? scores : again), PST_OK);
        if (i > 0)
            assert_memory_equal(again, scores, 2 * (size_t)N * sizeof *scores);
    }
    for (int64_t v = 0; v < N; v++) {
        const double expected = -expm1(outside[v]) * BATCHES;
        if (!(fabs(scores[N + v] - expected) <= 1e-6 * expected))
            fail_msg("vertex %lld: %.9g, not %.9g", (long long)v, (double)scores[N + v], expected);
    }
    free(outside);
    free(indptr);
    free(seeds);
    free(indices);
    free(scores);
    free(again);
    pst_sampling_algorithm_close(&w.algorithm);
}

/* ---- the file ------------------------------------------------------------------------------------ */

/* The file of the indices, behind a header of a page. */
static const char *write_indices(const void *indices, enum pst_dtype dtype, int64_t edges)
{
    char head[PST_PAGE];
    const char *path = in_scratch("indices.npy");
    pst_npy_format(head, dtype, 1, (int64_t[2]){edges, 1});
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof head, 1, file), 1);
    assert_int_equal(fwrite(indices, pst_dtype_bytes(dtype), (size_t)edges, file), edges);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Each entry in order, with gaps, and after a step back, through windows of a page. */
static void windows_have_the_entries(void **unused)
{
    (void)unused;
    enum { EDGES = 5000, TURNS = 3 };
    static int32_t narrow[EDGES];
    static int64_t wide[EDGES];
    for (int64_t i = 0; i < EDGES; i++)
        wide[i] = narrow[i] = (int32_t)below(1000);
    for (int bytes = 4; bytes <= 8; bytes += 4) {
        const void *data = bytes == 4 ? (const void *)narrow : wide;
        const struct pst_csc graph = {.index_bytes = bytes, .edges = EDGES};
        struct pst_array file;
        struct pst_hotness_edges e;
        assert_int_equal(pst_array_open(&file, write_indices(data, bytes == 4 ? PST_I32 : PST_I64, EDGES)),
                         PST_OK);
        assert_int_equal(pst_hotness_edges_open(&e, &graph, &file, 1), PST_OK);
        for (int turn = 0; turn < TURNS; turn++) {
            for (int64_t at = turn, value; at < EDGES; at += 1 + turn * below(2000)) {
                assert_int_equal(pst_hotness_edges_get(&e, at, &value), PST_OK);
                assert_int_equal(value, wide[at]);
                assert_true(e.end - e.first <= PST_PAGE / bytes);
            }
        }
        pst_hotness_edges_close(&e);
        pst_array_close(&file);
    }
}

/* The same bits from a file as from memory; a file that ends early is told. */
static void a_file_gives_the_same(void **unused)
{
    (void)unused;
    static struct world w;
    static float scores[(HOPS_MAX + 1) * V], again[(HOPS_MAX + 1) * V];
    for (int i = 0; i < SETTINGS; i++) {
        make_random(&w);
        open_world(&w, settings[i].batch, settings[i].hops, settings[i].fanout, settings[i].replace);
        assert_int_equal(pst_hotness_analytic(&w.in, scores), PST_OK);
        struct pst_array file;
        assert_int_equal(pst_array_open(&file, write_indices(w.indices, PST_I32, w.graph.edges)), PST_OK);
        w.graph.indices = NULL;
        w.in.file = &file;
        for (w.in.threads = 1; w.in.threads <= 3; w.in.threads++) {
            assert_int_equal(pst_hotness_analytic(&w.in, again), PST_OK);
            assert_memory_equal(again, scores, (size_t)(w.hops + 1) * V * sizeof *scores);
        }
        assert_int_equal(truncate(file.path, PST_PAGE + 8), 0);
        if (settings[i].fanout[0] != 0)
            assert_int_equal(pst_hotness_analytic(&w.in, again), PST_E_IO);
        pst_array_close(&file);
        pst_sampling_algorithm_close(&w.algorithm);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------ */

static void must_fail(pst_rc rc, pst_rc expected, const char *words)
{
    if (rc != expected || strstr(pst_error_text(), words) == NULL)
        fail_msg("%d: \"%s\" lacks \"%s\"", rc, rc == PST_OK ? "" : pst_error_text(), words);
}

static double nonsense(const void *of, int64_t degree, int64_t copies, int64_t fanout)
{
    (void)degree;
    (void)copies;
    (void)fanout;
    return *(const double *)of;
}

static void damage_is_told(void **unused)
{
    (void)unused;
    static struct world w;
    static float scores[(HOPS_MAX + 1) * V];
    const int64_t fanout[] = {2};
    make_tree(&w);
    open_world(&w, 10, 1, fanout, false);
    const int64_t at = w.indptr[4];
    assert_true(w.indptr[5] > at);
    for (int i = 0; i < 2; i++) {
        const int32_t kept = w.indices[at];
        w.indices[at] = i == 0 ? V : -1;
        must_fail(pst_hotness_analytic(&w.in, scores), PST_E_FORMAT, "vertex 4 has a neighbour");
        w.indices[at] = kept;
    }
    const int64_t kept = w.indptr[7], wrong[] = {-1, w.indptr[V] + 1, w.indptr[8] + 1};
    for (int i = 0; i < 3; i++) {
        w.indptr[7] = wrong[i];
        must_fail(pst_hotness_analytic(&w.in, scores), PST_E_FORMAT, "list that is outside");
    }
    w.indptr[7] = kept;
    const double bad[] = {-0.1, 1.1, NAN};
    w.in.keep = nonsense;
    for (int i = 0; i < 3; i++) {
        w.in.state = &bad[i];
        must_fail(pst_hotness_analytic(&w.in, scores), PST_E_ARG, "expected 0 to 1");
    }
    pst_sampling_algorithm_close(&w.algorithm);
}

/* ---- files --------------------------------------------------------------------------------------- */

static const char *write_scores(enum pst_dtype dtype, int rank, int64_t rows, int64_t columns,
                                const void *data)
{
    char head[PST_PAGE];
    const char *path = in_scratch("scores.npy");
    pst_npy_format(head, dtype, rank, (int64_t[2]){rows, columns});
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof head, 1, file), 1);
    assert_int_equal(fwrite(data, pst_dtype_bytes(dtype), (size_t)(rows * columns), file), rows * columns);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void files_are_read(void **unused)
{
    (void)unused;
    const float all[] = {0, 1, 2.5F, 3, -0.0F, 5, 6, 7, 8, 9, 10, 11};
    const double one[] = {0.25, 1e30, 7, 0};
    const uint32_t counts[] = {4000000000u, 1, 0, 2};
    float scores[12];
    char id[3][PST_HOTNESS_ID_BYTES];
    assert_int_equal(pst_hotness_read(write_scores(PST_F32, 2, 3, 4, all), 2, 4, scores, id[0]), PST_OK);
    for (int i = 0; i < 12; i++)
        assert_true(scores[i] == all[i] && !signbit(scores[i]));
    assert_int_equal(pst_hotness_read(write_scores(PST_F64, 1, 4, 1, one), 2, 4, scores, id[1]), PST_OK);
    for (int i = 0; i < 12; i++)
        assert_true(scores[i] == (float)one[i % 4]);
    assert_int_equal(pst_hotness_read(write_scores(PST_U32, 1, 4, 1, counts), 2, 4, scores, id[2]), PST_OK);
    for (int i = 0; i < 12; i++)
        assert_true(scores[i] == (float)counts[i % 4]);
    assert_int_equal(strlen(id[0]), PST_HOTNESS_ID_BYTES - 1);
    assert_string_not_equal(id[0], id[1]);
    assert_string_not_equal(id[1], id[2]);
}

static void bad_files_are_told(void **unused)
{
    (void)unused;
    float values[16] = {0}, scores[12];
    double wide[4] = {0, 0, 1e300, 0};
    const int64_t negative[4] = {0, 0, 0, -1};
    char id[PST_HOTNESS_ID_BYTES];
#define READ(...) pst_hotness_read(write_scores(__VA_ARGS__), 2, 4, scores, id)
    must_fail(READ(PST_F32, 2, 2, 4, values), PST_E_ARG, "has shape (2, 4); expected (3, 4)");
    must_fail(READ(PST_F32, 2, 3, 5, values), PST_E_ARG, "has shape (3, 5)");
    must_fail(READ(PST_F32, 2, 4, 3, values), PST_E_ARG, "has shape (4, 3)");
    must_fail(READ(PST_F32, 1, 12, 1, values), PST_E_ARG, "has shape (12,); expected (3, 4)");
    must_fail(READ(PST_F16, 1, 4, 1, values), PST_E_ARG, "float16");
    must_fail(READ(PST_F64, 1, 4, 1, wide), PST_E_ARG, "the score of vertex 2 in row 0 is 1e+300");
    must_fail(READ(PST_I64, 1, 4, 1, negative), PST_E_ARG, "the score of vertex 3 in row 0 is -1");
    values[6] = NAN;
    must_fail(READ(PST_F32, 2, 3, 4, values), PST_E_ARG, "the score of vertex 2 in row 1 is nan");
    values[6] = INFINITY;
    must_fail(READ(PST_F32, 2, 3, 4, values), PST_E_ARG, "the score of vertex 2 in row 1 is inf");
    must_fail(pst_hotness_read(in_scratch("nothing.npy"), 2, 4, scores, id), PST_E_IO, "nothing.npy");
    FILE *file = fopen(in_scratch("text.npy"), "w");
    assert_int_equal(fputs("0.5, 0.25", file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    must_fail(pst_hotness_read(in_scratch("text.npy"), 2, 4, scores, id), PST_E_FORMAT, "text.npy");
    const char *cut = write_scores(PST_F32, 2, 3, 4, values);
    assert_int_equal(truncate(cut, PST_PAGE + 40), 0);
    must_fail(pst_hotness_read(cut, 2, 4, scores, id), PST_E_FORMAT, "scores.npy");
}

static void rows_are_scaled(void **unused)
{
    (void)unused;
    float row[] = {1, 0, 3, 4}, none[4] = {0};
    pst_hotness_scale(row, 4, 4, 100);
    assert_true(row[0] == 0.5F && row[1] == 0 && row[2] == 1.5F && row[3] == 2);
    pst_hotness_scale(row, 4, 4, 100);
    assert_true(row[0] == 0.5F && row[1] == 0 && row[2] == 1.5F && row[3] == 2);
    pst_hotness_scale(row, 4, 16, 5);
    assert_true(row[0] == 2 && row[1] == 0 && row[2] == 5 && row[3] == 5);
    pst_hotness_scale(none, 4, 7, 5);
    for (int i = 0; i < 4; i++)
        assert_true(none[i] == 0);
}

static void hits_are_shares(void **unused)
{
    (void)unused;
    const float scores[] = {1, 0, 3, 4}, none[4] = {0};
    const int64_t cache[] = {3, 2};
    assert_true(pst_hotness_hit_rate(scores, 4, cache, 0) == 0);
    assert_true(pst_hotness_hit_rate(scores, 4, cache, 1) == 0.5);
    assert_true(pst_hotness_hit_rate(scores, 4, cache, 2) == 0.875);
    assert_true(pst_hotness_hit_rate(none, 4, cache, 2) == 0);
}

/* ---- from the edges ------------------------------------------------------------------------------ */

/* Iterates the formula of hotness.h with a dense matrix. */
static void dense_pagerank(const struct world *w, double *r)
{
    static double m[V][V];
    double t[V] = {0}, next[V];
    memset(m, 0, sizeof m);
    for (int i = 0; i < SEEDS; i++)
        t[w->seeds[i]] = 1.0 / SEEDS;
    for (int v = 0; v < V; v++) {
        const double degree = (double)(w->indptr[v + 1] - w->indptr[v]);
        for (int64_t e = w->indptr[v]; e < w->indptr[v + 1]; e++)
            m[w->indices[e]][v] += 1 / degree;
        for (int u = 0; u < V && degree == 0; u++)
            m[u][v] = t[u];
    }
    memcpy(r, t, sizeof t);
    for (int round = 0; round < 200; round++) {
        for (int u = 0; u < V; u++) {
            next[u] = 0.15 * t[u];
            for (int v = 0; v < V; v++)
                next[u] += 0.85 * m[u][v] * r[v];
        }
        memcpy(r, next, sizeof next);
    }
}

static void the_structure_has_scores(void **unused)
{
    (void)unused;
    static struct world w;
    static float scores[3 * V], other[3 * V];
    double want[V], sum = 0;
    const int64_t fanout[] = {3, 2};
    make_random(&w);
    open_world(&w, 10, 2, fanout, false);
    dense_pagerank(&w, want);
    assert_int_equal(pst_hotness_of_structure(PST_HOTNESS_PAGERANK, &w.in, 1, scores), PST_OK);
    for (int v = 0; v < V; v++) {
        assert_true(fabs((double)scores[v] - want[v]) < 1e-5);
        assert_true(scores[v] == scores[V + v] && scores[v] == scores[2 * V + v]);
        sum += (double)scores[v];
    }
    assert_true(fabs(sum - 1) < 1e-4); /* nothing is lost where a list is empty */
    assert_int_equal(pst_hotness_of_structure(PST_HOTNESS_DEGREE, &w.in, 1, scores), PST_OK);
    for (int u = 0; u < V; u++) {
        float lists = 0;
        for (int64_t e = 0; e < w.indptr[V]; e++)
            lists += w.indices[e] == u;
        assert_true(scores[u] == lists);
    }
    assert_int_equal(pst_hotness_of_structure(PST_HOTNESS_RANDOM, &w.in, 1, scores), PST_OK);
    assert_int_equal(pst_hotness_of_structure(PST_HOTNESS_RANDOM, &w.in, 2, other), PST_OK);
    int same = 0;
    for (int v = 0; v < V; v++) {
        assert_true(scores[v] >= 0 && scores[v] < 1);
        same += scores[v] == other[v];
    }
    assert_true(same < V / 10);
    w.indices[5] = V;
    must_fail(pst_hotness_of_structure(PST_HOTNESS_PAGERANK, &w.in, 1, scores), PST_E_FORMAT,
              "does not exist");
    must_fail(pst_hotness_of_structure(PST_HOTNESS_DEGREE, &w.in, 1, scores), PST_E_FORMAT, "does not exist");
    pst_sampling_algorithm_close(&w.algorithm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_have_their_expectation),
        cmocka_unit_test(graphs_are_close_to_their_expectation),
        cmocka_unit_test(seeds_are_known_exactly),
        cmocka_unit_test(memory_changes_no_score),
        cmocka_unit_test(regions_change_no_score),
        cmocka_unit_test(windows_have_the_entries),
        cmocka_unit_test(a_file_gives_the_same),
        cmocka_unit_test(damage_is_told),
        cmocka_unit_test(the_structure_has_scores),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(bad_files_are_told),
        cmocka_unit_test(rows_are_scaled),
        cmocka_unit_test(hits_are_shares),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
