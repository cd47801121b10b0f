/* Import: orientation, what the options mean, CSR and dense alike, and every kind of input that is wrong. */
#include "tests/unit/store_fixture.h"

#include <math.h>

#include "common/store/import/import.h"
#include "common/store/dataset/verify.h"

static const bool skip_none[PST_IMPORT_SOURCES];

/* A fresh source directory. Edges 0->1, 0->2, 2->1, 2->2, 0->1 again over 4 vertices. */
static const char *make_source(const char *name)
{
    static const int32_t edges[2][5] = {{0, 0, 2, 2, 0}, {1, 2, 1, 2, 1}};
    static const float feat[4][2] = {{1, 2}, {3, 4}, {0, 0}, {-1, 1}};
    static const int64_t labels[4] = {0, 1, -1, 2}, train[2] = {3, 0};
    static const int32_t val[1] = {1};
    const char *dir = in_scratch(name);
    char path[1200];
    (void)mkdir(dir, 0755);
    (void)snprintf(path, sizeof path, "%s/edges.npy", dir);
    put_array(path, PST_I32, 2, 2, 5, edges);
    (void)snprintf(path, sizeof path, "%s/feat.npy", dir);
    put_array(path, PST_F32, 2, 4, 2, feat);
    (void)snprintf(path, sizeof path, "%s/labels.npy", dir);
    put_array(path, PST_I64, 1, 4, 1, labels);
    (void)snprintf(path, sizeof path, "%s/train_idx.npy", dir);
    put_array(path, PST_I64, 1, 2, 1, train);
    (void)snprintf(path, sizeof path, "%s/val_idx.npy", dir);
    put_array(path, PST_I32, 1, 1, 1, val);
    return dir;
}

static pst_rc import_to(const struct pst_import_spec *spec, const char *dir, struct pst_import_result *result)
{
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, dir, true);
    if (rc != PST_OK)
        return rc;
    rc = pst_import(spec, &b, result, NULL);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

static pst_rc import_dir(struct pst_import_spec *spec, const char *from, const char *to,
                         struct pst_import_result *result)
{
    pst_rc rc = pst_import_find(spec, from, skip_none);
    return rc == PST_OK ? import_to(spec, to, result) : rc;
}

/* The in-neighbours of every vertex, as "0: 1 2; 1: ...". */
static void assert_topology(const char *dir, const char *expected)
{
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, dir), PST_OK);
    const int64_t *indptr = ds.indptr.map;
    const int32_t *indices = ds.indices.map;
    char text[512];
    size_t n = 0;
    for (int64_t v = 0; v < ds.vertices; v++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRId64 ":", v > 0 ? "; " : "", v);
        for (int64_t i = indptr[v]; i < indptr[v + 1]; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, " %d", indices[i]);
    }
    pst_dataset_close(&ds);
    assert_string_equal(text, expected);
}

static void test_orientation_and_options(void **state)
{
    (void)state;
    static const struct {
        bool symmetrize, dedupe;
        enum pst_csc_builder_self_loops loops;
        const char *expect;
    } rows[] = {
        {false, false, PST_LOOPS_KEEP, "0:; 1: 0 0 2; 2: 0 2; 3:"},
        {false, true, PST_LOOPS_KEEP, "0:; 1: 0 2; 2: 0 2; 3:"},
        {false, false, PST_LOOPS_REMOVE, "0:; 1: 0 0 2; 2: 0; 3:"},
        {false, true, PST_LOOPS_ADD, "0: 0; 1: 0 1 2; 2: 0 2; 3: 3"},
        {true, false, PST_LOOPS_KEEP, "0: 1 1 2; 1: 0 0 2; 2: 0 1 2; 3:"},
        {true, true, PST_LOOPS_REMOVE, "0: 1 2; 1: 0 2; 2: 0 1; 3:"},
        {true, true, PST_LOOPS_ADD, "0: 0 1 2; 1: 0 1 2; 2: 0 1 2; 3: 3"},
    };
    (void)make_source("orient");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pst_import_spec spec;
        struct pst_import_result result = {.warnings = {.count = 0}};
        pst_import_defaults(&spec);
        spec.symmetrize = rows[i].symmetrize;
        spec.dedupe = rows[i].dedupe;
        spec.self_loops = rows[i].loops;
        assert_int_equal(import_dir(&spec, in_scratch("orient"), in_scratch("out"), &result), PST_OK);
        assert_topology(in_scratch("out"), rows[i].expect);
        assert_int_equal(pst_dataset_verify(in_scratch("out"), false), PST_OK);
    }
}

static void test_everything_arrives(void **state)
{
    (void)state;
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    spec.stride_bytes = 32;
    spec.normalize = PST_IMPORT_NORMALIZE_L1;
    spec.command = "test";
    assert_int_equal(import_dir(&spec, make_source("all"), in_scratch("out2"), &result), PST_OK);
    assert_int_equal(result.warnings.count, 0);
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("out2")), PST_OK);
    assert_string_equal(ds.name, "all");
    assert_int_equal(ds.classes, 3);
    assert_int_equal(ds.feature_dim, 2);
    assert_int_equal(ds.stride_bytes, 32);
    assert_int_equal(pst_array_map(&ds.features), PST_OK);
    const float expect[4][8] = {{1.0f / 3, 2.0f / 3}, {3.0f / 7, 4.0f / 7}, {0, 0}, {-0.5f, 0.5f}};
    assert_memory_equal(ds.features.map, expect, sizeof expect);
    const int32_t labels[4] = {0, 1, -1, 2};
    assert_memory_equal(ds.labels.map, labels, sizeof labels);
    const int64_t train[2] = {3, 0};
    assert_memory_equal(ds.split[PST_TRAIN].map, train, sizeof train);
    assert_int_equal(*(const int64_t *)ds.split[PST_VAL].map, 1);
    assert_null(ds.split[PST_TEST].map);
    pst_dataset_close(&ds);
}

static void test_tall_edges_and_float_labels(void **state)
{
    (void)state;
    const int64_t tall[3][2] = {{0, 1}, {2, 1}, {1, 0}}, square[2][2] = {{0, 1}, {1, 2}};
    const double labels[3] = {1, (double)NAN, 0};
    const uint16_t half[3][2] = {{0x3c00, 0}, {0xc000, 0x3c00}, {0, 0x7bff}};
    put_array(in_scratch("tall.npy"), PST_I64, 2, 3, 2, tall);
    put_array(in_scratch("square.npy"), PST_I64, 2, 2, 2, square);
    put_array(in_scratch("fl.npy"), PST_F64, 1, 3, 1, labels);
    put_array(in_scratch("half.npy"), PST_F16, 2, 3, 2, half);
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    (void)snprintf(spec.name, sizeof spec.name, "tall");
    (void)snprintf(spec.source[PST_IMPORT_EDGES], 4096, "%s", in_scratch("tall.npy"));
    (void)snprintf(spec.source[PST_IMPORT_LABELS], 4096, "%s", in_scratch("fl.npy"));
    (void)snprintf(spec.source[PST_IMPORT_FEATURES], 4096, "%s", in_scratch("half.npy"));
    assert_int_equal(import_to(&spec, in_scratch("out3"), &result), PST_OK);
    assert_topology(in_scratch("out3"), "0: 1; 1: 0 2; 2:");
    struct pst_dataset ds;
    assert_int_equal(pst_dataset_open(&ds, in_scratch("out3")), PST_OK);
    const int32_t expect[3] = {1, -1, 0};
    assert_memory_equal(ds.labels.map, expect, sizeof expect);
    assert_int_equal(ds.features.dtype, PST_F16);
    assert_int_equal(pst_array_map(&ds.features), PST_OK);
    assert_memory_equal(ds.features.map, half, sizeof half);
    pst_dataset_close(&ds);

    (void)snprintf(spec.source[PST_IMPORT_EDGES], 4096, "%s", in_scratch("square.npy"));
    assert_int_equal(import_to(&spec, in_scratch("out3"), &result), PST_E_FORMAT);
    assert_error_has("--edge-shape");
    spec.edge_shape = PST_EDGES_2XE;
    assert_int_equal(import_to(&spec, in_scratch("out3"), &result), PST_OK);
    assert_topology(in_scratch("out3"), "0:; 1: 0; 2: 1");
    spec.edge_shape = PST_EDGES_EX2;
    assert_int_equal(import_to(&spec, in_scratch("out3"), &result), PST_OK);
    assert_topology(in_scratch("out3"), "0:; 1: 0; 2: 1");
}

enum { ROWS = 300, DIM = 70 };

/* A pseudo-random sparse matrix, dense and as CSR; one entry of each row is there in two halves. */
static void make_matrix(float dense[ROWS][DIM], int64_t *indptr, int32_t *indices, float *data, int64_t *nnz)
{
    uint32_t x = 12345;
    *nnz = 0;
    for (int i = 0; i < ROWS; i++) {
        indptr[i] = *nnz;
        for (int j = 0; j < DIM; j++) {
            x = x * 1664525u + 1013904223u;
            if (x >> 29 != 0)
                continue;
            float value = (float)(x >> 8 & 0xff) / 16 - 8;
            dense[i][j] = value;
            bool twice = indptr[i] == *nnz;
            indices[*nnz] = j;
            data[(*nnz)++] = twice ? value / 2 : value;
            if (twice) {
                indices[*nnz] = j;
                data[(*nnz)++] = value / 2;
            }
        }
    }
    indptr[ROWS] = *nnz;
}

static void test_csr_is_dense(void **state)
{
    (void)state;
    static float dense[ROWS][DIM], data[ROWS * (DIM + 1)];
    static int64_t indptr[ROWS + 1], nnz;
    static int32_t indices[ROWS * (DIM + 1)];
    make_matrix(dense, indptr, indices, data, &nnz);
    const int32_t edges[2] = {0, 1};
    const char *src = in_scratch("csr");
    (void)mkdir(src, 0755);
    put_array(in_scratch("csr/edges.npy"), PST_I32, 2, 2, 1, edges);
    put_array(in_scratch("csr/feat_indptr.npy"), PST_I64, 1, ROWS + 1, 1, indptr);
    put_array(in_scratch("csr/feat_indices.npy"), PST_I32, 1, nnz, 1, indices);
    put_array(in_scratch("csr/feat_data.npy"), PST_F32, 1, nnz, 1, data);
    put_file(in_scratch("csr/meta.json"), "{\"num_features\": 70, \"name\": \"sparse\"}", 38);
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    assert_int_equal(import_dir(&spec, src, in_scratch("out4"), &result), PST_OK);
    struct pst_dataset a, b;
    assert_int_equal(pst_dataset_open(&a, in_scratch("out4")), PST_OK);
    assert_string_equal(a.name, "sparse");
    assert_int_equal(a.stride_bytes, 280);
    assert_int_equal(pst_array_map(&a.features), PST_OK);
    assert_memory_equal(a.features.map, dense, sizeof dense);

    pst_import_defaults(&spec);
    put_array(in_scratch("dense.npy"), PST_F32, 2, ROWS, DIM, dense);
    (void)snprintf(spec.name, sizeof spec.name, "sparse");
    (void)snprintf(spec.source[PST_IMPORT_EDGES], 4096, "%s", in_scratch("csr/edges.npy"));
    (void)snprintf(spec.source[PST_IMPORT_FEATURES], 4096, "%s", in_scratch("dense.npy"));
    assert_int_equal(import_to(&spec, in_scratch("out5"), &result), PST_OK);
    assert_int_equal(pst_dataset_open(&b, in_scratch("out5")), PST_OK);
    assert_int_equal(pst_array_map(&b.features), PST_OK);
    assert_memory_equal(a.features.map, b.features.map, sizeof dense);
    pst_dataset_close(&a);
    pst_dataset_close(&b);
}

/* One way for a source directory to be wrong: an array in place of a good one. */
struct wrong {
    const char *file;
    enum pst_dtype dtype;
    int rank;
    int64_t rows, columns;
    const void *data;
    const char *expect;
};

static const int32_t high[6] = {0, 1, 7, 1, 2, 3}, low[6] = {0, 1, 2, 1, -2, 3}, doubled[2] = {3, 3};
static const int32_t triple[9] = {0}, one[1] = {0}, past[1] = {4}, minus[1] = {-1},
                     bad_labels[4] = {0, -2, 1, 1};
static const double fraction[4] = {0, 0.5, 1, 1}, big[8] = {0, 0, 1e39, 0};
static const uint16_t half_inf[8] = {0, 0x7c00};

static const struct wrong wrongs[] = {
    {"edges.npy", PST_I32, 2, 2, 3, high, "source of edge 2: expected 0 to 3, found 7"},
    {"edges.npy", PST_I32, 2, 2, 3, low, "target of edge 1: expected 0 to 3, found -2"},
    {"edges.npy", PST_I32, 2, 3, 2, low, "source of edge 2: expected 0 to 3, found -2"},
    {"edges.npy", PST_I32, 2, 3, 3, triple, "shape (2, E) or (E, 2)"},
    {"edges.npy", PST_F32, 2, 2, 3, low, "expected integers (int8 to int64, uint8 to uint32), found float32"},
    {"labels.npy", PST_I32, 1, 1, 1, one, "expected one row for each of 4 vertices, found 1"},
    {"labels.npy", PST_I32, 1, 4, 1, bad_labels, "vertex 1: expected -1 (none)"},
    {"labels.npy", PST_F64, 1, 4, 1, fraction, "vertex 1: the label is not an integer from -1 to"},
    {"train_idx.npy", PST_I32, 1, 2, 1, doubled, "entry 1: vertex 3 is already in train"},
    {"val_idx.npy", PST_I32, 1, 2, 1, doubled, "vertex 3 is already in train"},
    {"test_idx.npy", PST_I32, 1, 1, 1, past, "entry 0: expected 0 to 3, found 4"},
    {"test_idx.npy", PST_I32, 1, 1, 1, minus, "found -1"},
    {"test_idx.npy", PST_F32, 1, 1, 1, one, "expected integers"},
    {"feat.npy", PST_F64, 2, 4, 2, big, "row 1, column 0: the value does not fit float32"},
    {"feat.npy", PST_F16, 2, 4, 2, half_inf, "row 0, column 1: infinite"},
    {"feat.npy", PST_I32, 2, 1, 1, one, "expected float32, float64, float16 or bfloat16"},
    {"feat.npy", PST_F32, 1, 1, 1, one, "two dimensions"},
};

/* A digest of a directory's names and bytes: that it is as it was. */
static uint64_t fingerprint(const char *dir)
{
    static const char *const names[] = {"dataset.json", "indptr.npy", "indices.npy", "features.npy",
                                        "labels.npy",   "train.npy",  "val.npy"};
    uint64_t h = (uint64_t)names_in(dir);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1200];
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        size_t bytes;
        char *text = get_file(path, &bytes);
        for (size_t k = 0; k < bytes; k++)
            h = (h ^ (unsigned char)text[k]) * 0x100000001b3ull;
        free(text);
    }
    return h;
}

static void test_wrong_sources(void **state)
{
    (void)state;
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    assert_int_equal(import_dir(&spec, make_source("good"), in_scratch("kept"), &result), PST_OK);
    uint64_t before = fingerprint(in_scratch("kept"));
    (void)make_source("bad");
    int names = names_in(scratch);
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        const struct wrong *w = &wrongs[i];
        char path[128];
        (void)make_source("bad");
        (void)unlink(in_scratch("bad/test_idx.npy"));
        (void)snprintf(path, sizeof path, "bad/%s", w->file);
        put_array(in_scratch(path), w->dtype, w->rank, w->rows, w->columns, w->data);
        pst_import_defaults(&spec);
        if (import_dir(&spec, in_scratch("bad"), in_scratch("kept"), &result) != PST_E_FORMAT)
            fail_msg("wrong source %zu (%s): not refused", i, w->expect);
        assert_error_has(w->expect);
        assert_error_has(w->file);
        assert_int_equal(names_in(scratch), names);
    }
    assert_true(fingerprint(in_scratch("kept")) == before);
}

static void test_nan_features(void **state)
{
    (void)state;
    float feat[4][2] = {{1, 2}, {3, NAN}, {0, 0}, {0, 0}};
    (void)make_source("nan");
    put_array(in_scratch("nan/feat.npy"), PST_F32, 2, 4, 2, feat);
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    assert_int_equal(import_dir(&spec, in_scratch("nan"), in_scratch("out6"), &result), PST_E_FORMAT);
    assert_error_has("row 1, column 1: NaN");
    assert_int_equal(names_in(in_scratch("out6")), -1);
}

static void test_wrong_csr(void **state)
{
    (void)state;
    const int64_t good[5] = {0, 1, 2, 2, 3}, falls[5] = {0, 2, 1, 2, 3}, starts[5] = {1, 1, 2, 2, 3};
    const int64_t shorter[5] = {0, 1, 1, 1, 2}, beyond[5] = {0, 1, 2, 2, 9};
    const int64_t columns[3] = {0, 1, 2}, wide[3] = {0, 5, 1};
    const float data[3] = {1, 2, 3}, inf[3] = {1, 2, INFINITY};
    const struct {
        const int64_t *indptr, *indices;
        const float *data;
        int64_t values;
        const char *expect;
    } rows[] = {
        {falls, columns, data, 3, "entry 2: expected 2 to 3, found 1"},
        {starts, columns, data, 3, "entry 0: expected 0"},
        {shorter, columns, data, 3, "expected the last entry 3"},
        {beyond, columns, data, 3, "found 9"},
        {good, wide, data, 3, "column of entry 1: expected 0 to 2, found 5"},
        {good, columns, data, 2, "expected 3 values"},
        {good, columns, inf, 3, "row 3, column 2: infinite"},
        {good, columns, data, 3, NULL},
    };
    (void)make_source("wcsr");
    (void)unlink(in_scratch("wcsr/feat.npy"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_array(in_scratch("wcsr/feat_indptr.npy"), PST_I64, 1, 5, 1, rows[i].indptr);
        put_array(in_scratch("wcsr/feat_indices.npy"), PST_I64, 1, 3, 1, rows[i].indices);
        put_array(in_scratch("wcsr/feat_data.npy"), PST_F32, 1, rows[i].values, 1, rows[i].data);
        struct pst_import_spec spec;
        struct pst_import_result result = {.warnings = {.count = 0}};
        pst_import_defaults(&spec);
        spec.feature_dim = 3;
        pst_rc rc = import_dir(&spec, in_scratch("wcsr"), in_scratch("out7"), &result);
        assert_int_equal(rc, rows[i].expect != NULL ? PST_E_FORMAT : PST_OK);
        if (rows[i].expect != NULL)
            assert_error_has(rows[i].expect);
    }
}

static void test_finding(void **state)
{
    (void)state;
    struct pst_import_spec spec;
    struct pst_import_result result = {.warnings = {.count = 0}};
    pst_import_defaults(&spec);
    assert_int_equal(pst_import_find(&spec, in_scratch("nowhere"), skip_none), PST_E_ARG);
    assert_error_has("the directory does not exist");
    (void)mkdir(in_scratch("empty"), 0755);
    assert_int_equal(pst_import_find(&spec, in_scratch("empty"), skip_none), PST_E_ARG);
    assert_error_has("--edges");
    const char *src = make_source("meta");
    put_file(in_scratch("meta/meta.json"), "{\"num_nodes\": 5}", 16);
    pst_import_defaults(&spec);
    assert_int_equal(import_dir(&spec, src, in_scratch("out8"), &result), PST_E_FORMAT);
    assert_error_has("expected one row for each of 5 vertices, found 4");
    put_file(in_scratch("meta/meta.json"), "{\"num_nodes\": \"4\"}", 18);
    pst_import_defaults(&spec);
    assert_int_equal(pst_import_find(&spec, in_scratch("meta"), skip_none), PST_E_FORMAT);
    put_file(in_scratch("meta/meta.json"), "{", 1);
    pst_import_defaults(&spec);
    assert_int_equal(pst_import_find(&spec, in_scratch("meta"), skip_none), PST_E_FORMAT);
    assert_error_has("meta.json:1");
    put_file(in_scratch("meta/meta.json"), "{}", 2);
    put_array(in_scratch("meta/val_idx.npy"), PST_I32, 1, 0, 1, "");
    pst_import_defaults(&spec);
    assert_int_equal(import_dir(&spec, in_scratch("meta"), in_scratch("out8"), &result), PST_OK);
    assert_int_equal(result.warnings.count, 1);
    assert_non_null(strstr(result.warnings.text, "split is empty"));
    pst_import_defaults(&spec);
    spec.memory_bytes = 1000;
    assert_int_equal(import_dir(&spec, in_scratch("meta"), in_scratch("out9"), &result), PST_E_LIMIT);
    assert_error_has("--memory");
}

static void test_real_data(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t vertices, edges, dim, classes, train, val, test;
    } sets[] = {
        {"cora", 2708, 10556, 1433, 7, 140, 500, 1000},
        {"citeseer", 3327, 9104, 3703, 6, 120, 500, 1000},
        {"dblp_citation", 17716, 105734, 1639, 4, 10629, 3543, 3544},
        {"ogbn_arxiv", 169343, 1166243, 0, 40, 90941, 29799, 48603},
    };
    const char *root = getenv("PENSTOCK_DATA");
    root = root != NULL ? root : "../shared/data";
    int found = 0;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        char src[4096];
        (void)snprintf(src, sizeof src, "%s/clean/%s", root, sets[i].name);
        if (access(src, R_OK) != 0)
            continue;
        found++;
        struct pst_import_spec spec;
        struct pst_import_result result = {.warnings = {.count = 0}};
        struct pst_dataset ds;
        pst_import_defaults(&spec);
        assert_int_equal(import_dir(&spec, src, in_scratch("real"), &result), PST_OK);
        assert_int_equal(pst_dataset_open(&ds, in_scratch("real")), PST_OK);
        assert_string_equal(ds.name, sets[i].name);
        assert_int_equal(ds.vertices, sets[i].vertices);
        assert_int_equal(ds.edges, sets[i].edges);
        assert_int_equal(ds.feature_dim, sets[i].dim);
        assert_int_equal(ds.classes, sets[i].classes);
        assert_int_equal(ds.split[PST_TRAIN].shape[0], sets[i].train);
        assert_int_equal(ds.split[PST_VAL].shape[0], sets[i].val);
        assert_int_equal(ds.split[PST_TEST].shape[0], sets[i].test);
        pst_dataset_close(&ds);
        assert_int_equal(pst_dataset_verify(in_scratch("real"), false), PST_OK);
    }
    if (found == 0) {
        print_message("skipped: no data at %s (PENSTOCK_DATA says where)\n", root);
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orientation_and_options),
        cmocka_unit_test(test_everything_arrives),
        cmocka_unit_test(test_tall_edges_and_float_labels),
        cmocka_unit_test(test_csr_is_dense),
        cmocka_unit_test(test_wrong_sources),
        cmocka_unit_test(test_nan_features),
        cmocka_unit_test(test_wrong_csr),
        cmocka_unit_test(test_finding),
        cmocka_unit_test(test_real_data),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
