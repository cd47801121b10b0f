/* The generators: the published random numbers, the same bytes for the same seed, and what was promised of
 * degrees, communities and sizes. */
#include "tests/unit/store_fixture.h"

#include <math.h>

#include "common/store/make/gen.h"
#include "common/store/make/gen_impl.h"
#include "common/store/make/shuffle.h"
#include "common/store/make/gen_random.h"

/* The known answers that are published with Random123. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        struct pst_rng_block counter;
        uint32_t key0, key1;
        struct pst_rng_block expect;
    } rows[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pst_rng_block d = pst_rng_philox(rows[i].counter, rows[i].key0, rows[i].key1);
        assert_memory_equal(&d, &rows[i].expect, sizeof d);
    }
}

static void assert_near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("expected %.17g within %g, found %.17g", expected, tolerance, found);
}

/* Our own functions against libm: not the same bits, but the same values. */
static void test_functions(void **state)
{
    (void)state;
    for (int i = 1; i < 2000; i++) {
        double x = i / 1000.0;
        assert_near(pst_gen_log(x), log(x), 1e-14);
        assert_near(pst_gen_exp(x * 5 - 5), exp(x * 5 - 5), 1e-13 * exp(x * 5 - 5));
        double c, s;
        pst_gen_turn(x / 2.0001, &c, &s);
        assert_near(c, cos(2 * 3.141592653589793 * x / 2.0001), 1e-14);
        assert_near(s, sin(2 * 3.141592653589793 * x / 2.0001), 1e-14);
    }
    assert_near(pst_gen_log(0x1p-32), log(0x1p-32), 1e-13);
}

static void test_normal(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0, squares = 0, fourth = 0;
    int beyond2 = 0;
    for (uint64_t i = 0; i < N / 4; i++) {
        double x[4];
        pst_gen_normal4(pst_gen_draw(7, PST_GEN_FEATURE, i, 0), x);
        for (int k = 0; k < 4; k++) {
            sum += x[k];
            squares += x[k] * x[k];
            fourth += x[k] * x[k] * x[k] * x[k];
            beyond2 += fabs(x[k]) > 2;
        }
    }
    /* Five standard errors each. */
    assert_near(sum / N, 0, 0.012);
    assert_near(squares / N, 1, 0.016);
    assert_near(fourth / N, 3, 0.11);
    assert_near((double)beyond2 / N, 0.0455, 0.0024);
}

static void test_shuffle(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5, 64, 65, 1000, 4097};
    static bool seen[4097];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pst_shuffle s;
        int64_t fixed = 0;
        pst_shuffle_init(&s, sizes[i], 3, PST_GEN_SPLIT);
        memset(seen, 0, sizeof seen);
        for (int64_t k = 0; k < sizes[i]; k++) {
            int64_t at = pst_shuffle_at(&s, k);
            assert_in_range(at, 0, sizes[i] - 1);
            assert_false(seen[at]);
            seen[at] = true;
            fixed += at == k;
        }
        if (sizes[i] >= 64)
            assert_in_range(fixed, 0, 8); /* one is expected */
    }
}

static pst_rc make_community(const struct pst_community_spec *spec, const char *dir)
{
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, dir, true);
    if (rc != PST_OK)
        return rc;
    rc = pst_gen_community(spec, &b, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

static pst_rc make_rmat(const struct pst_rmat_spec *spec, const char *dir)
{
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, dir, true);
    if (rc != PST_OK)
        return rc;
    rc = pst_gen_rmat(spec, &b, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

static pst_rc make_typed(const struct pst_gen_typed_spec *spec, const char *dir)
{
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, dir, true);
    if (rc != PST_OK)
        return rc;
    rc = pst_gen_typed(spec, &b, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

static void digest_of(const char *dir, char out[17])
{
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, dir), PST_OK);
    memcpy(out, ds.digest, 17); /* over dataset.json, which holds the checksum of every file */
    pst_dataset_close(&ds);
}

static void test_same_seed(void **state)
{
    (void)state;
    char first[17], again[17], other[17];
    struct pst_community_spec c;
    pst_community_defaults(&c);
    c.vertices = 500;
    assert_int_equal(make_community(&c, in_scratch("c1")), PST_OK);
    assert_int_equal(make_community(&c, in_scratch("c2")), PST_OK);
    c.seed = 2;
    assert_int_equal(make_community(&c, in_scratch("c3")), PST_OK);
    digest_of(in_scratch("c1"), first);
    digest_of(in_scratch("c2"), again);
    digest_of(in_scratch("c3"), other);
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    struct pst_rmat_spec r;
    pst_rmat_defaults(&r);
    r.vertices = 1000;
    r.edges = 5000;
    assert_int_equal(make_rmat(&r, in_scratch("r1")), PST_OK);
    assert_int_equal(make_rmat(&r, in_scratch("r2")), PST_OK);
    digest_of(in_scratch("r1"), first);
    digest_of(in_scratch("r2"), again);
    assert_string_equal(first, again);
}

static void read_community(const char *dir, int64_t *largest, double *mean, double *within, double *share)
{
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, dir), PST_OK);
    const int64_t *indptr = ds.indptr.map;
    const int32_t *indices = ds.indices.map, *label = ds.labels.map;
    int64_t same = 0, hubs = 0;
    *largest = 0;
    for (int64_t v = 0; v < ds.vertices; v++) {
        int64_t degree = indptr[v + 1] - indptr[v];
        *largest = pst_max_i64(*largest, degree);
        hubs += degree > 4 * ds.edges / ds.vertices ? degree : 0;
        for (int64_t i = indptr[v]; i < indptr[v + 1]; i++) {
            same += label[v] == label[indices[i]];
            assert_int_not_equal(indices[i], v);
            assert_true(i == indptr[v] || indices[i - 1] < indices[i]);
        }
    }
    *mean = (double)ds.edges / (double)ds.vertices;
    *within = (double)same / (double)ds.edges;
    *share = (double)hubs / (double)ds.edges;
    pst_dataset_close(&ds);
}

static void test_community_law(void **state)
{
    (void)state;
    struct pst_community_spec c;
    pst_community_defaults(&c);
    c.feature_dim = 8;
    assert_int_equal(make_community(&c, in_scratch("law")), PST_OK);
    int64_t largest;
    double mean, within, share;
    read_community(in_scratch("law"), &largest, &mean, &within, &share);
    assert_near(mean, c.degree, 0.6); /* merged duplicates cost a little */
    assert_near(within, c.homophily, 0.01);
    assert_true((double)largest > 20 * mean); /* a heavy tail: Poisson's would end at 3 times the mean */
    assert_true(share > 0.08);
    assert_int_equal(pst_dataset_verify(in_scratch("law"), false), PST_OK);
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("law")), PST_OK);
    assert_int_equal(ds.split[PST_TRAIN].shape[0], 8000);
    assert_int_equal(ds.split[PST_VAL].shape[0], 4000);
    assert_int_equal(ds.split[PST_TEST].shape[0], 8000);
    pst_dataset_close(&ds);
}

/* What the demo stands on: features alone say little; the mean over neighbours says much. A vertex is given
 * to the class whose mean feature over the training set is nearest. */
static double nearest_mean_accuracy(const struct pst_dataset *ds, const float *x, int64_t dim)
{
    const int32_t *label = ds->labels.map;
    const int64_t *train = ds->split[PST_TRAIN].map, *test = ds->split[PST_TEST].map;
    double *mean = calloc((size_t)(ds->classes * dim), sizeof *mean);
    int64_t *count = calloc((size_t)ds->classes, sizeof *count), right = 0;
    assert_non_null(mean);
    assert_non_null(count);
    for (int64_t i = 0; i < ds->split[PST_TRAIN].shape[0]; i++) {
        count[label[train[i]]]++;
        for (int64_t j = 0; j < dim; j++)
            mean[label[train[i]] * dim + j] += (double)x[train[i] * dim + j];
    }
    for (int64_t i = 0; i < ds->split[PST_TEST].shape[0]; i++) {
        double nearest = INFINITY;
        int64_t found = -1;
        for (int64_t k = 0; k < ds->classes; k++) {
            double distance = 0;
            for (int64_t j = 0; j < dim; j++) {
                double d = (double)x[test[i] * dim + j] - mean[k * dim + j] / (double)count[k];
                distance += d * d;
            }
            found = distance < nearest ? k : found;
            nearest = distance < nearest ? distance : nearest;
        }
        right += found == label[test[i]];
    }
    free(mean);
    free(count);
    return (double)right / (double)ds->split[PST_TEST].shape[0];
}

static void test_community_is_learnable(void **state)
{
    (void)state;
    struct pst_community_spec c;
    pst_community_defaults(&c);
    c.vertices = 5000;
    assert_int_equal(make_community(&c, in_scratch("learn")), PST_OK);
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("learn")), PST_OK);
    assert_int_equal(pst_array_map(&ds.features), PST_OK);
    int64_t dim = ds.feature_dim;
    const float *x = ds.features.map;
    const int64_t *indptr = ds.indptr.map;
    float *mixed = calloc((size_t)(ds.vertices * dim), sizeof *mixed);
    assert_non_null(mixed);
    for (int64_t v = 0; v < ds.vertices; v++)
        for (int64_t j = 0; j < dim; j++) {
            float sum = x[v * dim + j];
            for (int64_t i = indptr[v]; i < indptr[v + 1]; i++)
                sum += x[((const int32_t *)ds.indices.map)[i] * dim + j];
            mixed[v * dim + j] = sum / (float)(indptr[v + 1] - indptr[v] + 1);
        }
    double alone = nearest_mean_accuracy(&ds, x, dim), with = nearest_mean_accuracy(&ds, mixed, dim);
    print_message("features alone %.3f, with one hop %.3f\n", alone, with);
    assert_true(alone < 0.72);
    assert_true(with > 0.90);
    free(mixed);
    pst_dataset_close(&ds);
}

/* The same seed gives the same bytes. In each relation, edges come from the community that it is said to. */
static void test_typed(void **state)
{
    (void)state;
    char first[17], again[17];
    struct pst_dataset ds;
    struct pst_gen_typed_spec t;
    int64_t own[7] = {0}, all[7] = {0};
    pst_gen_typed_defaults(&t);
    t.vertices = 2000;
    assert_int_equal(make_typed(&t, in_scratch("t1")), PST_OK);
    assert_int_equal(make_typed(&t, in_scratch("t2")), PST_OK);
    digest_of(in_scratch("t1"), first);
    digest_of(in_scratch("t2"), again);
    assert_string_equal(first, again);
    assert_int_equal(pst_dataset_verify(in_scratch("t1"), false), PST_OK);
    assert_int_equal(pst_dataset_open(&ds, in_scratch("t1")), PST_OK);
    assert_int_equal(ds.vertex_types, 3);
    assert_int_equal(ds.edge_types, 7);
    const int64_t *indptr = ds.indptr.map;
    for (int64_t v = 0; v < t.vertices; v++) {
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++) {
            const int64_t u = ((const int32_t *)ds.indices.map)[e];
            const int r = ((const int32_t *)ds.edge_relation.map)[e];
            const struct pst_vertex_type *source = &ds.vertex_type[ds.edge_type[r].source];
            assert_in_range(u, source->first, source->first + source->vertices - 1);
            own[r] += (u - source->first) % t.classes == v % t.classes;
            all[r]++;
        }
    }
    assert_near((double)own[0] / (double)all[0], 0.82, 0.03); /* writes: homophily, and a tenth of the rest */
    assert_near((double)own[1] / (double)all[1], 0.10, 0.03); /* reviews */
    assert_near((double)own[2] / (double)all[2], 0.82, 0.03);
    assert_near((double)own[3] / (double)all[3], 0.10, 0.03);
    pst_dataset_close(&ds);
    t.classes = 1;
    assert_int_equal(make_typed(&t, in_scratch("t3")), PST_E_ARG);
}

static void test_rmat(void **state)
{
    (void)state;
    struct pst_rmat_spec r;
    pst_rmat_defaults(&r);
    r.vertices = 3000; /* not a power of two */
    r.edges = 40000;
    r.feature_dim = 20;
    r.train_count = 100;
    r.val_count = 0;
    r.test_count = 7;
    r.keep_ids = true;
    assert_int_equal(make_rmat(&r, in_scratch("rmat")), PST_OK);
    assert_int_equal(pst_dataset_verify(in_scratch("rmat"), false), PST_OK);
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("rmat")), PST_OK);
    assert_int_equal(ds.edges, 40000);
    assert_int_equal(ds.stride_bytes, 80);
    assert_int_equal(ds.split[PST_TRAIN].shape[0], 100);
    assert_null(ds.split[PST_VAL].map);
    assert_int_equal(ds.split[PST_TEST].shape[0], 7);
    /* a + c = 0.76 of the targets are in the lower half of 4096 before those outside are drawn again. */
    const int64_t *indptr = ds.indptr.map;
    assert_in_range(indptr[2048], 40000 * 76 / 100, 40000 * 84 / 100);
    assert_int_equal(pst_array_map(&ds.features), PST_OK);
    const float *x = ds.features.map;
    double sum = 0;
    for (int64_t i = 0; i < 3000 * 20; i++) {
        assert_true(x[i] >= -1 && x[i] < 1);
        sum += (double)x[i];
    }
    assert_near(sum / 60000, 0, 0.012);
    pst_dataset_close(&ds);
    r.symmetrize = r.dedupe = true;
    assert_int_equal(make_rmat(&r, in_scratch("rmat")), PST_OK);
    assert_int_equal(pst_dataset_open(&ds, in_scratch("rmat")), PST_OK);
    assert_in_range(ds.edges, 40000, 79999);
    pst_dataset_close(&ds);
}

static void test_refusals(void **state)
{
    (void)state;
    struct pst_rmat_spec r;
    pst_rmat_defaults(&r);
    r.a = 0.9;
    assert_int_equal(make_rmat(&r, in_scratch("no")), PST_E_ARG);
    assert_error_has("sum 1");
    pst_rmat_defaults(&r);
    r.a = r.b = r.c = 0;
    r.d = 1;
    r.vertices = 1000;
    assert_int_equal(make_rmat(&r, in_scratch("no")), PST_E_ARG); /* every draw is outside: not for ever */
    assert_error_has("10000 draws");
    pst_rmat_defaults(&r);
    r.memory_bytes = 1 << 20;
    assert_int_equal(make_rmat(&r, in_scratch("no")), PST_E_LIMIT);
    pst_rmat_defaults(&r);
    r.train_count = r.vertices + 1;
    assert_int_equal(make_rmat(&r, in_scratch("no")), PST_E_ARG);
    pst_rmat_defaults(&r);
    r.stride_bytes = 100;
    assert_int_equal(make_rmat(&r, in_scratch("no")), PST_E_ARG);
    assert_error_has("--stride-bytes");
    struct pst_community_spec c;
    pst_community_defaults(&c);
    c.exponent = 2;
    assert_int_equal(make_community(&c, in_scratch("no")), PST_E_ARG);
    pst_community_defaults(&c);
    c.noise = (double)NAN;
    assert_int_equal(make_community(&c, in_scratch("no")), PST_E_ARG);
    pst_community_defaults(&c);
    c.classes = 1;
    assert_int_equal(make_community(&c, in_scratch("no")), PST_E_ARG);
    assert_int_equal(names_in(in_scratch("no")), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_community_law),
        cmocka_unit_test(test_community_is_learnable),
        cmocka_unit_test(test_rmat),
        cmocka_unit_test(test_typed),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
