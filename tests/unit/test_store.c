/* The dataset on disk: arrays, headers that lie, manifests that lie, whole or not at all, verify. */
#include "tests/unit/store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "common/store/dataset/stride.h"
#include "common/store/dataset/npy.h"
#include "common/store/dataset/verify.h"
#include "common/store/vertices.h"

static void test_stride(void **state)
{
    (void)state;
    static const struct {
        int64_t dim;
        enum pst_dtype dtype;
        uint64_t stride;
    } rows[] = {
        {128, PST_F32, 512},    {1433, PST_F32, 6144}, {100, PST_F32, 400}, {15, PST_F32, 64},
        {16, PST_F32, 64},      {602, PST_F32, 2560},  {1, PST_F32, 4},     {128, PST_F16, 256},
        {115, PST_F32, 512},    {113, PST_F32, 452},   {150, PST_F32, 600}, {8415, PST_F32, 33792},
        {1024, PST_BF16, 2048}, {0, PST_F32, 0},       {129, PST_F32, 516},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(pst_stride_for(rows[i].dim, rows[i].dtype), rows[i].stride);
    }
}

static void test_array_round_trip(void **state)
{
    (void)state;
    static float data[3][5000];
    for (int i = 0; i < 15000; i++)
        data[i / 5000][i % 5000] = (float)i;
    const char *path = in_scratch("a.npy");
    put_array(path, PST_F32, 2, 3, 5000, data);
    struct pst_array a;
    assert_int_equal(pst_array_open(&a, path), PST_OK);
    assert_int_equal(a.data_at, PST_PAGE);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.shape[0], 3);
    assert_int_equal(a.shape[1], 5000);
    assert_int_equal(pst_array_map(&a), PST_OK);
    assert_memory_equal(a.map, data, sizeof data);
    pst_array_close(&a);
}

static void test_writer_counts(void **state)
{
    (void)state;
    struct pst_array_writer w;
    const int64_t shape[2] = {4, 1};
    const int32_t four[4] = {1, 2, 3, 4};
    uint64_t sum;
    assert_int_equal(pst_array_writer_init(&w, in_scratch("short.npy"), PST_I32, 1, shape), PST_OK);
    assert_int_equal(pst_array_write(&w, four, 12), PST_OK);
    assert_int_equal(pst_array_writer_finish(&w, &sum), PST_E_STATE);
    assert_error_has("needs 16 bytes of data, but 12 were written");
    assert_int_equal(pst_array_write(&w, four, 8), PST_E_STATE);
    pst_array_writer_release(&w);
    assert_int_equal(pst_array_writer_init(&w, in_scratch("short.npy"), PST_I32, 1, shape), PST_E_IO);
    const int64_t huge[2] = {INT64_MAX / 2, 3};
    assert_int_equal(pst_array_writer_init(&w, in_scratch("huge.npy"), PST_I32, 2, huge), PST_E_LIMIT);
    assert_int_equal(access(in_scratch("huge.npy"), F_OK), -1);
}

/* A disk that is full, by the file size limit: an error, not a crash, and the destination not there. */
static void test_disk_full(void **state)
{
    (void)state;
    struct rlimit old, small = {.rlim_cur = 5000, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct pst_build b;
    static const int64_t data[1000] = {0};
    assert_int_equal(pst_build_begin(&b, in_scratch("full"), false), PST_OK);
    pst_rc rc = pst_build_array_from(&b, PST_ARRAY_INDPTR, PST_I64, 1000, data);
    pst_build_release(&b);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(rc, PST_E_IO);
    assert_error_has("indptr.npy");
    assert_int_equal(names_in(in_scratch("full")), -1);
}

struct header_row {
    const char *dict;
    unsigned major;
    long length; /* -1: the dict's */
    size_t data;
    const char *expect; /* in the error; NULL: it must be read */
};

static const struct header_row headers[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 1, -1, 24, NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 2, -1, 24, NULL},
    {"{'shape': (6,), 'descr': \"<f4\", 'fortran_order': False}", 3, -1, 24, NULL},
    {"{'descr':'|u1','fortran_order':False,'shape':(3L,)}", 1, -1, 3, NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", 1, -1, 0, NULL},
    {"{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", 1, -1, 4, NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 1, -1, 23, "truncated"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 1, -1, 25, "found 25"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 1, -1, 24, "fortran_order"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", 1, -1, 24, "big-endian"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", 1, -1, 24, "Python objects"},
    {"{'descr': '<U5', 'fortran_order': False, 'shape': (3,), }", 1, -1, 60, "'<U5'"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", 1, -1, 24, "'<c8'"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", 1, -1, 12, "structure"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 1, -1, 4, "found 0"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", 1, -1, 24, "found 3"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6), }", 1, -1, 24, "tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }", 1, -1, 24, "'-'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6 3), }", 1, -1, 24, "',' or ')'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 1, -1, 24, "63 bits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 1, -1, 24, "63 bits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }", 1, -1, 24, "63 bits"},
    {"{'descr': '<f4', 'fortran_order': False, }", 1, -1, 24, "lacks the key 'shape'"},
    {"{'fortran_order': False, 'shape': (6,), }", 1, -1, 24, "lacks the key 'descr'"},
    {"{'descr': '<f4', 'shape': (6,), }", 1, -1, 24, "lacks the key 'fortran_order'"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 1, -1, 24, "twice"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}", 1, -1, 24, "found 'x'"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }", 1, -1, 24, "True or False"},
    {"{'descr': <f4, 'fortran_order': False, 'shape': (6,), }", 1, -1, 24, "string"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), ", 1, -1, 24, "key"},
    {"{'descr': '<f4", 1, -1, 24, "plain character"},
    {"", 1, -1, 24, "'{'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), } x", 1, -1, 24, "newline"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 4, -1, 24, "version"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 0, -1, 24, "version"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 1, 60000, 24, "claims 60000"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 2, 0x7fffffff, 24, "claims 2147483647"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 1, 0, 24, "'{'"},
    {"{'descr': '<f4<f4<f4<f4<f4<f4<f4<f4', 'fortran_order': False, 'shape': (6,), }", 1, -1, 24, "longer"},
};

static size_t build_header(const struct header_row *row, unsigned char *out)
{
    size_t n = strlen(row->dict) + 1, at = row->major > 1 ? 12 : 10;
    unsigned long length = row->length < 0 ? n : (unsigned long)row->length;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)row->major;
    out[7] = 0;
    for (size_t i = 8; i < at; i++)
        out[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(out + at, row->dict, n - 1);
    out[at + n - 1] = '\n';
    memset(out + at + n, 0, row->data);
    return at + n + row->data;
}

static void test_headers(void **state)
{
    (void)state;
    unsigned char file[512];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        size_t bytes = build_header(&headers[i], file);
        const char *path = in_scratch("header.npy");
        put_file(path, file, bytes);
        struct pst_array a;
        pst_rc rc = pst_array_open(&a, path);
        pst_array_close(&a);
        if ((headers[i].expect == NULL) != (rc == PST_OK))
            fail_msg("header %zu %s: %s", i, headers[i].dict, rc == PST_OK ? "accepted" : pst_error_text());
        if (headers[i].expect != NULL)
            assert_error_has(headers[i].expect);
        if (headers[i].expect != NULL)
            assert_error_has("header.npy");
    }
}

/* Every prefix of a file and every byte of its header changed: an error or an array, never a crash; the
 * parser sees exactly the bytes there are, so that ASan would see it read one more. */
static void test_header_fuzz(void **state)
{
    (void)state;
    unsigned char file[512];
    size_t bytes = build_header(&headers[0], file), accepted = 0;
    struct pst_npy npy;
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *copy = malloc(n > 0 ? n : 1);
        assert_non_null(copy);
        memcpy(copy, file, n);
        assert_int_not_equal(pst_npy_parse(copy, n, n, &npy), PST_OK);
        free(copy);
    }
    for (size_t i = 0; i < bytes - 24; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            file[i] ^= (unsigned char)(1u << bit);
            accepted += pst_npy_parse(file, bytes, bytes, &npy) == PST_OK;
            file[i] ^= (unsigned char)(1u << bit);
        }
    }
    assert_in_range(accepted, 1, 40); /* a tab for a space, 'i4' for 'f4', versions: few */
}

struct edit {
    const char *from, *to, *expect;
};

static const struct edit edits[] = {
    {"\"penstock_dataset\": 1", "\"penstock_dataset\": 12", "expected version 1 to 11, found 12"},
    {"\"penstock_dataset\": 1,", "", "expected version 1 to 11, found 0"},
    {"\"penstock_dataset\": 1", "\"penstock_dataset\": 10, \"cut\": {}", "unknown key 'cut'"},
    {"\"penstock_dataset\": 1", "\"penstock_dataset\": 11, \"cut\": 1", "cut: expected an object"},
    {"\"penstock_dataset\": 1", "\"penstock_dataset\": 11, \"cut\": {}",
     "cut.first: expected a list of 2 to 17 numbers"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 2, \"first\": [0, 2, "
     "4]}",
     "cut.part: expected 0 to 1, found 2"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 0, \"first\": [0, 5]}",
     "(the number of vertices) last, found 0 and 5"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 0, \"first\": [0, -2, "
     "4]}",
     "cut.first[1]: expected a number of 0 or more"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 0, \"first\": [0, 4, "
     "4]}",
     "cut.first[2]: expected more than 4, found 4"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 1, \"first\": [0, 2, "
     "4]}",
     "arrays.features.shape: expected 2 rows, found 4"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 1, \"first\": [0, 2, "
     "4], "
     "\"first_edge\": [0, 3]}",
     "cut.first_edge: expected as many numbers as in cut.first"},
    {"\"penstock_dataset\": 1",
     "\"penstock_dataset\": 11, \"cut\": {\"dataset\": \"0123456789abcdef\", \"part\": 1, \"first\": [0, 2, "
     "4], "
     "\"first_edge\": [0, 1, 3]}",
     "arrays.indices.shape: expected 2 rows, found 3"},
    {"\"vertices\": 4", "\"vertices\": 5", "indptr.shape: expected 6 rows, found 5"},
    {"\"vertices\": 4", "\"vertices\": -4", "vertices: expected 0 to"},
    {"\"vertices\": 4", "\"vertices\": 4.0", "vertices: expected an integer"},
    {"\"vertices\": 4", "\"vertices\": 99999999999999999999", "dataset.json:"},
    {"\"vertices\": 4", "\"vertices\": 4, \"vertices\": 4", "duplicate"},
    {"\"vertices\": 4", "\"vertexes\": 4", "unknown key 'vertexes'"},
    {"\"edges\": 3", "\"edges\": 4", "indices.shape: expected 4 rows, found 3"},
    {"\"edges\": 3,", "", "edges: expected an integer, found nothing"},
    {"\"feature_dim\": 3", "\"feature_dim\": 5", "5 columns of float32 do not fit"},
    {"\"feature_dim\": 3", "\"feature_dim\": 0", "arrays.features: present"},
    {"\"stride_bytes\": 16", "\"stride_bytes\": 20", "stride_bytes"},
    {"\"classes\": 2", "\"classes\": 0", "arrays.labels: present"},
    {"\"classes\": 2", "\"classes\": \"2\"", "classes: expected an integer"},
    {"\"id_dtype\": \"int32\"", "\"id_dtype\": \"int64\"", "id_dtype"},
    {"\"dir\": \".\"", "\"dir\": \"../x\"", "stripes"},
    {"{\n      \"dir\": \".\"\n    }", "{\"dir\": \".\"}, {\"dir\": \"b\"}", "2 stripes"},
    {"\"file\": \"indptr.npy\"", "\"file\": \"../indptr.npy\"",
     "file: expected a file name without a directory, found '"},
    {"\"file\": \"indptr.npy\"", "\"file\": \"gone.npy\"", "gone.npy"},
    {"\"file\": \"indptr.npy\"", "\"file\": \"indices.npy\"", "as in dataset.json, found"},
    {"\"file\": \"indptr.npy\"", "\"file\": \"\"", "arrays.indptr.file"},
    {"\"dtype\": \"float32\"", "\"dtype\": \"float64\"", "expected float32, float16 or bfloat16"},
    {"\"dtype\": \"float32\"", "\"dtype\": \"double\"", "found 'double'"},
    {"\"xxh3\": \"", "\"xxh3\": \"g", "arrays.indptr.xxh3"},
    {"\"indptr\": {", "\"inptr\": {", "unknown key 'inptr'"},
    {"\"name\": \"small\"", "\"name\": \"\"", "name"},
    {"\"provenance\": {}", "\"provenance\": 3", "provenance"},
    {"{\n", "[\n", "dataset.json:"},
    {"\"shape\": [\n        5\n      ]", "\"shape\": []", "shape: expected a list of 1 or 2 sizes"},
    {"\"shape\": [\n        5\n      ]", "\"shape\": [-5]", "shape[0]"},
};

static void edit_file(const char *path, const struct edit *e)
{
    size_t bytes;
    char *text = get_file(path, &bytes), *at = strstr(text, e->from);
    if (at == NULL)
        fail_msg("'%s' is not in %s", e->from, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    (void)fprintf(f, "%.*s%s%s", (int)(at - text), text, e->to, at + strlen(e->from));
    assert_int_equal(fclose(f), 0);
    free(text);
}

static void test_manifests(void **state)
{
    (void)state;
    struct pst_dataset ds;
    char dir[1024], path[1100];
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char name[32]; /* one of its own: force replaces no directory whose manifest leaves a file out */
        (void)snprintf(name, sizeof name, "edited-%zu", i);
        (void)snprintf(dir, sizeof dir, "%s", in_scratch(name));
        (void)snprintf(path, sizeof path, "%s/dataset.json", dir);
        assert_int_equal(make_small(dir, false), PST_OK);
        edit_file(path, &edits[i]);
        if (pst_dataset_open(&ds, dir) != PST_E_FORMAT)
            fail_msg("manifest edit %zu ('%s') was accepted", i, edits[i].to);
        assert_error_has(edits[i].expect);
    }
    /* Everything at once. */
    (void)snprintf(dir, sizeof dir, "%s", in_scratch("edited"));
    assert_int_equal(make_small(dir, false), PST_OK);
    assert_int_equal(unlink(in_scratch("edited/labels.npy")), 0);
    assert_int_equal(truncate(in_scratch("edited/features.npy"), 4100), 0);
    assert_int_equal(pst_dataset_open(&ds, dir), PST_E_FORMAT);
    assert_error_has("2 problems");
    assert_error_has("labels.npy");
    assert_error_has("features.npy");
    assert_int_equal(pst_dataset_open(&ds, in_scratch("nothing")), PST_E_FORMAT);
    assert_error_has("nothing/dataset.json");
}

static void test_dataset_round_trip(void **state)
{
    (void)state;
    struct pst_dataset ds;
    assert_int_equal(make_small(in_scratch("ds"), false), PST_OK);
    assert_int_equal(pst_dataset_open(&ds, in_scratch("ds///")), PST_OK);
    assert_string_equal(ds.name, "small");
    assert_int_equal(ds.vertices, 4);
    assert_int_equal(ds.edges, 3);
    assert_int_equal(ds.feature_dim, 3);
    assert_int_equal(ds.stride_bytes, 16);
    assert_int_equal(ds.classes, 2);
    assert_int_equal(((const int64_t *)ds.indptr.map)[4], 3);
    assert_int_equal(((const int32_t *)ds.labels.map)[2], -1);
    assert_int_equal(ds.split[PST_TRAIN].shape[0], 2);
    assert_null(ds.features.map);
    assert_int_equal(strlen(ds.digest), 16);
    char digest[17];
    memcpy(digest, ds.digest, sizeof digest);
    pst_dataset_close(&ds);
    assert_int_equal(pst_dataset_verify(in_scratch("ds"), false), PST_OK);
    assert_int_equal(make_small(in_scratch("ds2"), false), PST_OK);
    assert_int_equal(pst_dataset_open(&ds, in_scratch("ds2")), PST_OK);
    assert_string_equal(ds.digest, digest);
    pst_dataset_close(&ds);
}

static void test_whole_or_not_at_all(void **state)
{
    (void)state;
    const char *dir = in_scratch("atom");
    int before = names_in(scratch);
    struct pst_build b;
    struct pst_dataset ds;
    /* Given up half-way: nothing is left. */
    assert_int_equal(pst_build_begin(&b, dir, false), PST_OK);
    const int64_t one = 0;
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_INDPTR, PST_I64, 1, &one), PST_OK);
    assert_int_not_equal(pst_dataset_open(&ds, b.partial), PST_OK); /* half-made: no dataset.json */
    pst_build_release(&b);
    assert_int_equal(names_in(scratch), before);
    /* There already: refused without force, and then replaced. */
    assert_int_equal(make_small(dir, false), PST_OK);
    assert_int_equal(make_small(dir, false), PST_E_STATE);
    assert_error_has("--force");
    assert_int_equal(make_small(dir, true), PST_OK);
    assert_int_equal(names_in(scratch), before + 1);
    /* Force and failure: the old one stays. */
    assert_int_equal(pst_build_begin(&b, dir, true), PST_OK);
    pst_build_release(&b);
    assert_int_equal(pst_dataset_verify(dir, false), PST_OK);
    assert_int_equal(names_in(scratch), before + 1);
    /* A directory with something else in it is never touched. */
    put_file(in_scratch("atom/thesis.txt"), "mine", 4);
    assert_int_equal(make_small(dir, true), PST_E_STATE);
    assert_error_has("thesis.txt");
    assert_int_equal(access(in_scratch("atom/thesis.txt"), F_OK), 0);
    /* A file is not a directory; directories on the way are made. */
    put_file(in_scratch("file"), "x", 1);
    assert_int_not_equal(make_small(in_scratch("file"), true), PST_OK);
    assert_int_equal(make_small(in_scratch("file/below"), true), PST_E_IO);
    assert_int_equal(make_small(in_scratch("no/where"), true), PST_OK);
    assert_int_equal(pst_dataset_verify(in_scratch("no/where"), false), PST_OK);
}

static void test_leftovers(void **state)
{
    (void)state;
    const char *dir = in_scratch("stale");
    assert_int_equal(mkdir(in_scratch("stale.penstock-partial-1"), 0755), 0);
    put_file(in_scratch("stale.penstock-partial-1/indptr.npy"), "x", 1);
    struct pst_build living;
    assert_int_equal(pst_build_begin(&living, dir, false), PST_OK);
    assert_int_equal(names_in(in_scratch("stale.penstock-partial-1")), -1); /* a dead builder's */
    char partial[4096];
    memcpy(partial, living.partial, sizeof partial);
    /* Another process's builder of the same directory must not take the living one's away. */
    assert_int_equal(rename(partial, in_scratch("stale.penstock-partial-2")), 0);
    struct pst_build other;
    assert_int_equal(pst_build_begin(&other, dir, false), PST_OK);
    assert_int_equal(names_in(in_scratch("stale.penstock-partial-2")), 0);
    pst_build_release(&other);
    assert_int_equal(rename(in_scratch("stale.penstock-partial-2"), partial), 0);
    pst_build_release(&living);
}

/* One bit, anywhere: in the header, at the data's begin, in the middle and in the last byte. */
static void test_flipped_bits(void **state)
{
    (void)state;
    const char *dir = in_scratch("flip");
    assert_int_equal(make_small(dir, false), PST_OK);
    for (unsigned id = 0; id < PST_ARRAY_RELATIONS; id++) {
        char name[64];
        (void)snprintf(name, sizeof name, "flip/%s.npy", pst_array_id_name(id));
        size_t bytes;
        char *file = get_file(in_scratch(name), &bytes);
        const size_t at[] = {70, 2000, PST_PAGE, PST_PAGE + (bytes - PST_PAGE) / 2, bytes - 1};
        for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
            for (unsigned bit = 0; bit < 8; bit += 3) {
                file[at[i]] = (char)(file[at[i]] ^ (1 << bit));
                put_file(in_scratch(name), file, bytes);
                if (pst_dataset_verify(in_scratch("flip"), false) == PST_OK)
                    fail_msg("%s: byte %zu bit %u: not seen", name, at[i], bit);
                assert_error_has(pst_array_id_name(id));
                file[at[i]] = (char)(file[at[i]] ^ (1 << bit));
            }
        }
        put_file(in_scratch(name), file, bytes);
        free(file);
    }
    assert_int_equal(pst_dataset_verify(in_scratch("flip"), false), PST_OK);
}

/* Contents that are wrong although every checksum is right. */
static void test_wrong_contents(void **state)
{
    (void)state;
    static const struct {
        enum pst_array_id id;
        const char *data;
        size_t at, bytes;
        const char *expect;
    } rows[] = {
        {PST_ARRAY_INDPTR, "\x03\0\0\0\0\0\0\0", 8, 8, "entry 2: expected 3 to 3, found 1"},
        {PST_ARRAY_INDICES, "\x04\0\0\0", 0, 4, "entry 0: expected 0 to 3, found 4"},
        {PST_ARRAY_FEATURES, "\0\0\x80\x7f", 20, 4, "row 1, column 1"},
        {PST_ARRAY_LABELS, "\x02\0\0\0", 12, 4, "vertex 3: expected -1 to 1, found 2"},
        {PST_ARRAY_VAL, "\x01\0\0\0\0\0\0\0", 0, 8, "vertex 1 is already in train"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "wrong/%s.npy", pst_array_id_name(rows[i].id));
        assert_int_equal(make_small(in_scratch("wrong"), true), PST_OK);
        int fd = open(in_scratch(name), O_WRONLY);
        assert_int_equal(pwrite(fd, rows[i].data, rows[i].bytes, (off_t)(PST_PAGE + rows[i].at)),
                         rows[i].bytes);
        (void)close(fd);
        struct pst_verify_report report;
        assert_int_equal(pst_verify(in_scratch("wrong"), &report, NULL), PST_E_FORMAT);
        assert_error_has(rows[i].expect);
        assert_error_has("checksum");
    }
}

static int ascending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* As qsort() does it: few and many ids, of few and of all bits, equal ones, negative ones, and those that are
 * sorted. below: 0 for any number. */
static void test_sorted_ids(void **state)
{
    (void)state;
    enum { MOST = 20000 };
    static int64_t ids[MOST], expected[MOST];
    static const int64_t counts[] = {0, 1, 2, 48, 49, 300, MOST};
    static const int64_t below[] = {1, 2, 200, 257, 70000, (int64_t)1 << 40, INT64_MAX, 0};
    uint64_t draw = 5;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (size_t b = 0; b < sizeof below / sizeof *below; b++) {
            const int64_t n = counts[k];
            const size_t bytes = (size_t)n * sizeof *ids;
            for (int64_t i = 0; i < n; i++) {
                draw = draw * 6364136223846793005u + 1442695040888963407u;
                ids[i] = expected[i] = below[b] > 0 ? (int64_t)(draw >> 1) % below[b] : (int64_t)draw;
            }
            qsort(expected, (size_t)n, sizeof *expected, ascending);
            for (int turn = 0; turn < 2; turn++) {
                pst_vertices_sort(ids, n);
                assert_memory_equal(ids, expected, bytes);
            }
            for (int64_t i = 0; i < n / 2; i++) { /* descending */
                const int64_t swap = ids[i];
                ids[i] = ids[n - 1 - i];
                ids[n - 1 - i] = swap;
            }
            pst_vertices_sort(ids, n);
            assert_memory_equal(ids, expected, bytes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stride),
        cmocka_unit_test(test_array_round_trip),
        cmocka_unit_test(test_writer_counts),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_header_fuzz),
        cmocka_unit_test(test_dataset_round_trip),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_whole_or_not_at_all),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_wrong_contents),
        cmocka_unit_test(test_sorted_ids),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
