/* manifest.c: reads, checks and writes dataset.json. */
#include "common/store/dataset/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/dataset/manifest_impl.h"

static const char *const array_names[PST_ARRAY_COUNT] = {
    "indptr",         "indices",       "features",
    "labels",         "train",         "val",
    "test",           "relations",     "triples_train",
    "triples_val",    "triples_test",  "ids",
    "names_at",       "names",         "relation_names_at",
    "relation_names", "edges_train",   "edges_val",
    "edges_test",     "negatives_val", "negatives_test",
    "multilabels",    "edge_weights",  "targets",
    "edge_times",     "vertex_times",  "old_ids"};
static const char *const top_keys[] = {"penstock_dataset", "name",        "vertices",   "edges",
                                       "id_dtype",         "feature_dim", "classes",    "stride_bytes",
                                       "stripes",          "arrays",      "provenance", "relation_types",
                                       "vertex_types",     "edge_types",  "splits",     "cut"};
static const char *const array_keys[] = {"file", "dtype", "shape", "xxh3", "linked"};
static const char *const stripe_keys[] = {"file", "dtype", "shape", "xxh3", "head"};

const char *pst_array_id_name(enum pst_array_id id)
{
    assert((unsigned)id < PST_ARRAY_COUNT);
    return array_names[id];
}

enum pst_dtype pst_manifest_id_dtype(int64_t vertices)
{
    return vertices <= PST_MANIFEST_ID32_VERTICES_MAX ? PST_I32 : PST_I64;
}

/* ---- reading ---- */

void pst_manifest_check_keys(json_t *object, const char *where, const char *const *keys, size_t n,
                             struct pst_problems *problems)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t k = 0;
        while (k < n && strcmp(key, keys[k]) != 0)
            k++;
        if (k == n)
            pst_problem(problems, "%s: unknown key '%.64s'", where, key);
    }
}

int64_t pst_manifest_read_count(json_t *root, const char *key, int64_t max, struct pst_problems *problems)
{
    json_t *value = json_object_get(root, key);
    if (!json_is_integer(value)) {
        pst_problem(problems, "%s: expected an integer, found %s", key,
                    value == NULL ? "nothing" : "another type");
        return 0;
    }
    int64_t n = json_integer_value(value);
    if (n < 0 || n > max) {
        pst_problem(problems, "%s: expected 0 to %" PRId64 ", found %" PRId64, key, max, n);
        return 0;
    }
    return n;
}

bool pst_manifest_read_string(json_t *object, const char *where, const char *key, char *out, size_t room,
                              struct pst_problems *problems)
{
    json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    if (text == NULL || text[0] == '\0' || json_string_length(value) >= room ||
        strlen(text) != json_string_length(value)) {
        pst_problem(problems, "%s.%s: expected a string of 1 to %zu bytes", where, key, room - 1);
        return false;
    }
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static void read_shape(json_t *object, const char *where, struct pst_array_entry *e,
                       struct pst_problems *problems)
{
    json_t *shape = json_object_get(object, "shape");
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank < 1 || rank > 2) {
        pst_problem(problems, "%s.shape: expected a list of 1 or 2 sizes", where);
        return;
    }
    e->rank = (int)rank;
    e->shape[1] = 1;
    for (size_t i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            pst_problem(problems, "%s.shape[%zu]: expected a size of 0 or more", where, i);
        else
            e->shape[i] = json_integer_value(size);
    }
}

/* What the file that the array is a link to was. */
static void read_linked(json_t *object, const char *where, struct pst_array_entry *e,
                        struct pst_problems *problems)
{
    json_t *linked = json_object_get(object, "linked");
    if (linked == NULL)
        return;
    e->linked_bytes = (int64_t)json_integer_value(json_object_get(linked, "bytes"));
    e->linked_ns = (int64_t)json_integer_value(json_object_get(linked, "modified_ns"));
    if (e->linked_bytes <= 0 || e->linked_ns == 0 || json_object_size(linked) != 2)
        pst_problem(problems, "%s.linked: expected {\"bytes\": N, \"modified_ns\": N}", where);
}

uint64_t pst_manifest_read_sum(json_t *object, const char *where, const char *key,
                               struct pst_problems *problems)
{
    char text[17], *end;
    if (!pst_manifest_read_string(object, where, key, text, sizeof text, problems))
        return 0;
    const uint64_t sum = strtoull(text, &end, 16);
    if (strlen(text) != 16 || *end != '\0' || strspn(text, "0123456789abcdef") != 16)
        pst_problem(problems, "%s.%s: expected 16 hexadecimal digits, found '%s'", where, key, text);
    return sum;
}

void pst_manifest_read_entry(json_t *object, const char *where, bool stripe, struct pst_array_entry *e,
                             struct pst_problems *problems)
{
    char text[PST_NAME_MAX];
    if (!json_is_object(object)) {
        pst_problem(problems, "%s: expected an object", where);
        return;
    }
    pst_manifest_check_keys(object, where, stripe ? stripe_keys : array_keys,
                            sizeof array_keys / sizeof array_keys[0], problems);
    e->present = true;
    if (pst_manifest_read_string(object, where, "file", e->file, sizeof e->file, problems) &&
        (strchr(e->file, '/') != NULL || e->file[0] == '.')) {
        pst_problem(problems, "%s.file: expected a file name without a directory, found '%s'", where,
                    e->file);
        e->file[0] = '\0'; /* never opened */
    }
    if (pst_manifest_read_string(object, where, "dtype", text, sizeof text, problems) &&
        pst_dtype_parse(text, &e->dtype) != PST_OK)
        pst_problem(problems, "%s.%s", where, pst_error_text());
    read_shape(object, where, e, problems);
    read_linked(object, where, e, problems);
    e->checksum = pst_manifest_read_sum(object, where, "xxh3", problems);
    if (stripe)
        e->head = pst_manifest_read_sum(object, where, "head", problems);
}

/* Arrays that a version has. */
static unsigned array_ids(int64_t version)
{
    return version < 2    ? PST_ARRAY_RELATIONS
           : version < 3  ? PST_ARRAY_EDGES_TRAIN
           : version < 7  ? PST_ARRAY_EDGE_WEIGHTS
           : version < 8  ? PST_ARRAY_TARGETS
           : version < 9  ? PST_ARRAY_EDGE_TIMES
           : version < 10 ? PST_ARRAY_OLD_IDS
                          : PST_ARRAY_COUNT;
}

static void read_arrays(struct pst_manifest *m, json_t *root, int64_t version, struct pst_problems *problems)
{
    json_t *arrays = json_object_get(root, "arrays");
    if (!json_is_object(arrays)) {
        pst_problem(problems, "arrays: expected an object");
        return;
    }
    pst_manifest_check_keys(arrays, "arrays", array_names, array_ids(version), problems);
    for (unsigned i = 0; i < array_ids(version); i++) {
        json_t *object = json_object_get(arrays, array_names[i]);
        char where[PST_NAME_MAX];
        (void)snprintf(where, sizeof where, "arrays.%s", array_names[i]);
        if (object != NULL && i == PST_ARRAY_FEATURES && m->stripes > 0)
            pst_problem(problems,
                        "arrays.features: must be absent, because \"stripes\" lists the files of features");
        else if (object != NULL)
            pst_manifest_read_entry(object, where, false, &m->array[i], problems);
    }
}

/* One array against the counts. Only what is wrong in a way that names both numbers. */
static void check_entry(const struct pst_manifest *m, enum pst_array_id id, bool wanted, enum pst_dtype dtype,
                        int64_t rows, struct pst_problems *problems)
{
    const struct pst_array_entry *e = &m->array[id];
    if (!e->present) {
        if (wanted)
            pst_problem(problems, "arrays.%s: missing", array_names[id]);
        return;
    }
    if (!wanted)
        pst_problem(problems,
                    "arrays.%s: present, although the counts in dataset.json say that there is none",
                    array_names[id]);
    if (e->dtype != dtype || e->rank != 1)
        pst_problem(problems, "arrays.%s: expected one dimension of %s, found %d of %s", array_names[id],
                    pst_dtype_name(dtype), e->rank, pst_dtype_name(e->dtype));
    if (rows >= 0 && e->shape[0] != rows)
        pst_problem(problems, "arrays.%s.shape: expected %" PRId64 " rows, found %" PRId64, array_names[id],
                    rows, e->shape[0]);
}

void pst_manifest_check_features(const struct pst_array_entry *e, const char *where, int64_t rows,
                                 int64_t dim, uint64_t stride_bytes, struct pst_problems *problems)
{
    if (e->present != (dim > 0))
        pst_problem(problems,
                    e->present ? "%s: present, although the counts in dataset.json say that there is none"
                               : "%s: missing",
                    where);
    if (!e->present)
        return;
    if (e->shape[0] != rows)
        pst_problem(problems, "%s.shape: expected %" PRId64 " rows, found %" PRId64, where, rows,
                    e->shape[0]);
    if (e->dtype != PST_F32 && e->dtype != PST_F16 && e->dtype != PST_BF16)
        pst_problem(problems, "%s.dtype: expected float32, float16 or bfloat16, found %s", where,
                    pst_dtype_name(e->dtype));
    uint64_t item = pst_dtype_bytes(e->dtype);
    if (e->rank != 2 || (uint64_t)e->shape[1] != stride_bytes / item || stride_bytes % item != 0)
        pst_problem(problems, "stride_bytes: expected the row size of %s, found %" PRIu64, where,
                    stride_bytes);
    if ((uint64_t)dim > stride_bytes / item)
        pst_problem(problems,
                    "feature_dim: %" PRId64 " columns of %s do not fit a stride of %" PRIu64 " bytes", dim,
                    pst_dtype_name(e->dtype), stride_bytes);
}

/* One that may be there: its dtype, and its rows and columns (-1: any). */
static void check_extra(const struct pst_manifest *m, enum pst_array_id id, enum pst_dtype dtype,
                        int64_t rows, int64_t columns, struct pst_problems *problems)
{
    const struct pst_array_entry *e = &m->array[id];
    if (!e->present)
        return;
    if (columns < 0 ? e->dtype != dtype || e->rank != 2
                    : e->dtype != dtype || e->rank != (columns > 1 ? 2 : 1) || e->shape[1] != columns)
        pst_problem(problems, "arrays.%s: expected %s in rows of %" PRId64 ", found %s in rows of %" PRId64,
                    array_names[id], pst_dtype_name(dtype), columns, pst_dtype_name(e->dtype), e->shape[1]);
    if (rows >= 0 && e->shape[0] != rows)
        pst_problem(problems, "arrays.%s.shape: expected %" PRId64 " rows, found %" PRId64, array_names[id],
                    rows, e->shape[0]);
}

/* One number for each vertex, or a row of them. */
static void check_targets(const struct pst_manifest *m, struct pst_problems *problems)
{
    const struct pst_array_entry *e = &m->array[PST_ARRAY_TARGETS];
    if (!e->present)
        return;
    if (e->dtype != PST_F32)
        pst_problem(problems, "arrays.targets.dtype: expected float32, found %s", pst_dtype_name(e->dtype));
    if (e->shape[0] != m->vertices || e->shape[1] < 1 || e->shape[1] > PST_MANIFEST_TARGETS_MAX)
        pst_problem(problems,
                    "arrays.targets.shape: expected %" PRId64
                    " numbers, or as many rows of 1 to %d numbers, found %" PRId64 " rows of %" PRId64,
                    m->vertices, PST_MANIFEST_TARGETS_MAX, e->shape[0], e->shape[1]);
}

static void check_extras(const struct pst_manifest *m, struct pst_problems *problems)
{
    check_extra(m, PST_ARRAY_RELATIONS, PST_I32, m->edges, 1, problems);
    for (unsigned i = PST_ARRAY_TRIPLES_TRAIN; i <= PST_ARRAY_TRIPLES_TEST; i++)
        check_extra(m, i, pst_manifest_id_dtype(m->vertices), -1, 3, problems);
    for (unsigned i = PST_ARRAY_EDGES_TRAIN; i <= PST_ARRAY_NEGATIVES_TEST; i++)
        check_extra(m, i, pst_manifest_id_dtype(m->vertices), -1, 2, problems);
    check_extra(m, PST_ARRAY_MULTILABELS, PST_U8, m->vertices, -1, problems);
    check_extra(m, PST_ARRAY_EDGE_WEIGHTS, PST_F32, m->edges, 1, problems);
    check_targets(m, problems);
    check_extra(m, PST_ARRAY_EDGE_TIMES, PST_I32, m->edges, 1, problems);
    check_extra(m, PST_ARRAY_VERTEX_TIMES, PST_I32, m->vertices, 1, problems);
    check_extra(m, PST_ARRAY_IDS, PST_I64, m->vertices, 1, problems);
    check_extra(m, PST_ARRAY_OLD_IDS, PST_I64, m->vertices, 1, problems);
    check_extra(m, PST_ARRAY_NAMES_AT, PST_I64, m->vertices + 1, 1, problems);
    check_extra(m, PST_ARRAY_NAMES, PST_U8, -1, 1, problems);
    check_extra(m, PST_ARRAY_RELATION_NAMES_AT, PST_I64, m->relations + 1, 1, problems);
    check_extra(m, PST_ARRAY_RELATION_NAMES, PST_U8, -1, 1, problems);
    if (m->array[PST_ARRAY_NAMES].present != m->array[PST_ARRAY_NAMES_AT].present ||
        m->array[PST_ARRAY_RELATION_NAMES].present != m->array[PST_ARRAY_RELATION_NAMES_AT].present)
        pst_problem(problems, "arrays: names and names_at must both be present or both be absent");
    for (unsigned i = PST_ARRAY_RELATIONS; i <= PST_ARRAY_TRIPLES_TEST; i++)
        if (m->array[i].present && m->relations == 0)
            pst_problem(problems, "relation_types: is 0, but arrays.%s is present", array_names[i]);
}

void pst_manifest_check(const struct pst_manifest *m, struct pst_problems *problems)
{
    check_entry(m, PST_ARRAY_INDPTR, true, PST_I64, m->vertices + 1, problems);
    enum pst_dtype ids = m->array[PST_ARRAY_INDICES].dtype;
    check_entry(m, PST_ARRAY_INDICES, true, ids == PST_I64 ? PST_I64 : pst_manifest_id_dtype(m->vertices),
                pst_manifest_index_rows(m), problems);
    pst_manifest_check_features(&m->array[PST_ARRAY_FEATURES], "arrays.features",
                                pst_manifest_feature_rows(m), m->feature_dim, m->stride_bytes, problems);
    pst_manifest_check_cut(m, problems);
    pst_manifest_check_stripes(m, problems);
    check_entry(m, PST_ARRAY_LABELS, m->classes > 0, PST_I32, m->vertices, problems);
    check_extras(m, problems);
    pst_manifest_check_types(m, problems);
    pst_manifest_check_splits(m, problems);
    for (unsigned i = PST_ARRAY_TRAIN; i <= PST_ARRAY_TEST; i++) {
        const struct pst_array_entry *e = &m->array[i];
        check_entry(m, i, e->present, PST_I64, -1, problems);
        if (e->present && e->shape[0] > m->vertices)
            pst_problem(problems, "arrays.%s.shape: %" PRId64 " ids, but there are only %" PRId64 " vertices",
                        array_names[i], e->shape[0], m->vertices);
    }
}

static void read_root(struct pst_manifest *m, json_t *root, struct pst_problems *problems)
{
    int64_t version = json_integer_value(json_object_get(root, "penstock_dataset"));
    if (version < 1 || version > PST_MANIFEST_VERSION) {
        pst_problem(problems,
                    "penstock_dataset: expected version 1 to %d, found %" PRId64
                    ": this is not a dataset, or a newer Penstock wrote it",
                    PST_MANIFEST_VERSION, version);
        return;
    }
    pst_manifest_check_keys(root, PST_MANIFEST_FILE, top_keys,
                            sizeof top_keys / sizeof top_keys[0] - (version < 2    ? 5
                                                                    : version < 3  ? 4
                                                                    : version < 6  ? 2
                                                                    : version < 11 ? 1
                                                                                   : 0),
                            problems);
    if (json_object_get(root, "relation_types") != NULL)
        m->relations = pst_manifest_read_count(root, "relation_types", INT32_MAX, problems);
    (void)pst_manifest_read_string(root, PST_MANIFEST_FILE, "name", m->name, sizeof m->name, problems);
    m->vertices = pst_manifest_read_count(root, "vertices", INT64_MAX / 16, problems);
    m->edges = pst_manifest_read_count(root, "edges", INT64_MAX / 16, problems);
    m->feature_dim = pst_manifest_read_count(root, "feature_dim", INT32_MAX, problems);
    m->classes = pst_manifest_read_count(root, "classes", PST_MANIFEST_CLASSES_MAX, problems);
    m->stride_bytes = (uint64_t)pst_manifest_read_count(root, "stride_bytes", INT64_MAX / 16, problems);
    pst_manifest_read_stripes(m, root, version, problems);
    read_arrays(m, root, version, problems);
    pst_manifest_read_types(m, root, problems);
    pst_manifest_read_splits(m, root, problems);
    pst_manifest_read_cut(m, root, problems);
    char ids[PST_NAME_MAX] = "";
    if (pst_manifest_read_string(root, PST_MANIFEST_FILE, "id_dtype", ids, sizeof ids, problems) &&
        strcmp(ids, pst_dtype_name(m->array[PST_ARRAY_INDICES].dtype)) != 0)
        pst_problem(problems, "id_dtype: '%s', but arrays.indices.dtype is '%s'", ids,
                    pst_dtype_name(m->array[PST_ARRAY_INDICES].dtype));
    if (json_is_object(json_object_get(root, "provenance")))
        m->provenance = json_incref(json_object_get(root, "provenance"));
    else
        pst_problem(problems, "provenance: expected an object");
    if (problems->count == 0)
        pst_manifest_check(m, problems);
}

static bool read_text(const char *path, char *text, size_t room, size_t *bytes, struct pst_problems *problems)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (fd < 0) {
        char why[128];
        const char *reason = strerror_r(errno, why, sizeof why);
        pst_problem(problems, "cannot open %s: %s%s", path, reason,
                    errno == ENOENT ? " (`penstock gen` and `penstock import` make datasets)" : "");
        return false;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        pst_problem(problems, "%s: expected a regular file", path);
        (void)close(fd);
        return false;
    }
    *bytes = 0;
    ssize_t n = 0;
    while (*bytes < room && (n = read(fd, text + *bytes, room - *bytes)) > 0)
        *bytes += (size_t)n;
    (void)close(fd);
    if (n < 0)
        pst_problem(problems, "cannot read %s", path);
    else if (*bytes == room)
        pst_problem(problems, "%s has more than %d bytes, the limit for this file", path,
                    PST_MANIFEST_BYTES_MAX);
    return n >= 0 && *bytes < room;
}

void pst_manifest_read(struct pst_manifest *m, const char *dir, struct pst_problems *problems)
{
    *m = (struct pst_manifest){.vertices = 0};
    char path[4096 + 16];
    (void)snprintf(path, sizeof path, "%s/%s", dir, PST_MANIFEST_FILE);
    char *text = malloc(PST_MANIFEST_BYTES_MAX + 1);
    size_t bytes = 0;
    if (text == NULL)
        pst_problem(problems, "%s: out of memory: cannot read it", path);
    if (text == NULL || !read_text(path, text, PST_MANIFEST_BYTES_MAX + 1, &bytes, problems)) {
        free(text);
        return;
    }
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    m->digest = XXH3_64bits(text, bytes);
    free(text);
    if (root == NULL)
        pst_problem(problems, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    else if (!json_is_object(root))
        pst_problem(problems, "%s: expected an object", path);
    else
        read_root(m, root, problems);
    json_decref(root);
}

/* ---- writing ---- */

json_t *pst_manifest_entry_json(const struct pst_array_entry *e)
{
    char checksum[17], head[17];
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, e->checksum);
    (void)snprintf(head, sizeof head, "%016" PRIx64, e->head);
    json_t *shape = e->rank == 1 ? json_pack("[I]", (json_int_t)e->shape[0])
                                 : json_pack("[I, I]", (json_int_t)e->shape[0], (json_int_t)e->shape[1]);
    json_t *linked = e->linked_ns == 0 ? NULL
                                       : json_pack("{s:I, s:I}", "bytes", (json_int_t)e->linked_bytes,
                                                   "modified_ns", (json_int_t)e->linked_ns);
    return json_pack("{s:s, s:s, s:o, s:s, s:o*, s:s*}", "file", e->file, "dtype", pst_dtype_name(e->dtype),
                     "shape", shape, "xxh3", checksum, "linked", linked, "head", e->head != 0 ? head : NULL);
}

static int least_version(const struct pst_manifest *m)
{
    int version = m->cut.parts > 0                              ? 11
                  : m->splits > 0                               ? 6
                  : m->stripes > 0                              ? 5
                  : m->array[PST_ARRAY_FEATURES].linked_ns != 0 ? 4
                  : m->vertex_types > 0                         ? 3
                  : m->relations > 0                            ? 2
                                                                : 1;
    for (int i = PST_ARRAY_RELATIONS; i < PST_ARRAY_COUNT; i++)
        if (m->array[i].present)
            version = (int)pst_max_i64(version, i < PST_ARRAY_EDGES_TRAIN    ? 2
                                                : i < PST_ARRAY_EDGE_WEIGHTS ? 3
                                                : i < PST_ARRAY_TARGETS      ? 7
                                                : i < PST_ARRAY_EDGE_TIMES   ? 8
                                                : i < PST_ARRAY_OLD_IDS      ? 9
                                                                             : 10);
    return version;
}

static json_t *manifest_json(const struct pst_manifest *m)
{
    json_t *arrays = json_object();
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        if (m->array[i].present && (i != PST_ARRAY_FEATURES || m->stripes == 0))
            (void)json_object_set_new(arrays, array_names[i], pst_manifest_entry_json(&m->array[i]));
    int version = least_version(m);
    json_t *provenance = m->provenance != NULL ? json_incref(m->provenance) : json_object();
    json_t *root = json_pack(
        "{s:i, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o*}", "penstock_dataset", version, "name",
        m->name, "vertices", (json_int_t)m->vertices, "edges", (json_int_t)m->edges, "id_dtype",
        pst_dtype_name(m->array[PST_ARRAY_INDICES].dtype), "feature_dim", (json_int_t)m->feature_dim,
        "stride_bytes", (json_int_t)m->stride_bytes, "classes", (json_int_t)m->classes, "stripes",
        pst_manifest_stripes_json(m), "arrays", arrays, "provenance", provenance, "relation_types",
        version > 1 ? json_integer((json_int_t)m->relations) : NULL);
    if (root != NULL && m->vertex_types > 0)
        pst_manifest_write_types(m, root);
    if (root != NULL && m->splits > 0)
        pst_manifest_write_splits(m, root);
    if (root != NULL && m->cut.parts > 0)
        pst_manifest_write_cut(m, root);
    return root;
}

static pst_rc write_text(const char *path, const char *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return pst_fail_errno("cannot create %s", path);
    pst_rc rc = PST_OK;
    size_t done = 0;
    while (rc == PST_OK && done < bytes) {
        ssize_t n = write(fd, text + done, bytes - done);
        if (n < 0)
            rc = pst_fail_errno("cannot write %s", path);
        else
            done += (size_t)n;
    }
    if (rc == PST_OK && fsync(fd) != 0)
        rc = pst_fail_errno("cannot sync %s", path);
    if (close(fd) != 0 && rc == PST_OK)
        rc = pst_fail_errno("cannot close %s", path);
    return rc;
}

pst_rc pst_manifest_write(struct pst_manifest *m, const char *dir)
{
    char path[4096 + 16];
    (void)snprintf(path, sizeof path, "%s/%s", dir, PST_MANIFEST_FILE);
    json_t *root = manifest_json(m);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    if (text == NULL)
        return pst_fail(
            PST_E_ARG, "%s: cannot write: a name or a parameter is not valid UTF-8, or memory ran out", path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the terminator: files end with a newline */
    m->digest = XXH3_64bits(text, bytes + 1);
    pst_rc rc = bytes + 1 > PST_MANIFEST_BYTES_MAX
                    ? pst_fail(PST_E_LIMIT, "%s: would have %zu bytes; at most %d are allowed", path,
                               bytes + 1, PST_MANIFEST_BYTES_MAX)
                    : write_text(path, text, bytes + 1);
    free(text);
    return rc;
}

void pst_manifest_release(struct pst_manifest *m)
{
    json_decref(m->provenance);
    free(m->stripe);
    free(m->vertex_type);
    free(m->edge_type);
    free(m->split);
    *m = (struct pst_manifest){.vertices = 0};
}
