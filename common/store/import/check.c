/* check.c: checks the arrays of an import before anything is written. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/error.h"
#include "common/store/dataset/values.h"
#include "common/store/import/importing.h"

static bool dtype_fits(enum pst_import_source_id id, enum pst_dtype d)
{
    switch (id) {
    case PST_IMPORT_FEATURES: return d == PST_F32 || d == PST_F64 || d == PST_F16 || d == PST_BF16;
    case PST_IMPORT_FEAT_DATA: return d == PST_F32 || d == PST_F64;
    case PST_IMPORT_EDGE_WEIGHTS:
        return pst_dtype_is_integer(d) || d == PST_F32 || d == PST_F64 || d == PST_F16 || d == PST_BF16;
    case PST_IMPORT_TRAIN:
    case PST_IMPORT_VAL:
    case PST_IMPORT_TEST: return pst_dtype_is_integer(d) || d == PST_BOOL;
    case PST_IMPORT_LABELS: return pst_dtype_is_integer(d) || d == PST_BOOL || d == PST_F32 || d == PST_F64;
    default: return pst_dtype_is_integer(d);
    }
}

static const char *dtypes_wanted(enum pst_import_source_id id)
{
    switch (id) {
    case PST_IMPORT_FEATURES: return "float32, float64, float16 or bfloat16 (<V2)";
    case PST_IMPORT_FEAT_DATA: return "float32 or float64";
    case PST_IMPORT_EDGE_WEIGHTS: return PST_IMPORT_INTEGERS ", float32, float64, float16 or bfloat16 (<V2)";
    case PST_IMPORT_LABELS: return PST_IMPORT_INTEGERS ", bool, float32 or float64";
    case PST_IMPORT_TRAIN:
    case PST_IMPORT_VAL:
    case PST_IMPORT_TEST: return PST_IMPORT_INTEGERS ", or bool";
    default: return PST_IMPORT_INTEGERS;
    }
}

static bool shape_fits(enum pst_import_source_id id, const struct pst_array *a)
{
    if (id == PST_IMPORT_FEATURES)
        return a->rank == 2;
    if (id == PST_IMPORT_EDGES)
        return a->rank == 2 && (a->shape[0] == 2 || a->shape[1] == 2 || a->shape[1] == 3);
    if (id >= PST_IMPORT_TRAIN) /* several columns: masks, one for each of several splits */
        return a->rank == 1 || a->shape[1] >= 1;
    return a->rank == 1 || a->shape[1] == 1;
}

static const char *shape_wanted(enum pst_import_source_id id)
{
    switch (id) {
    case PST_IMPORT_EDGES: return "shape (2, E) or (E, 2), or (E, 3) of source, relation, target";
    case PST_IMPORT_FEATURES: return "two dimensions";
    case PST_IMPORT_TRAIN:
    case PST_IMPORT_VAL:
    case PST_IMPORT_TEST: return "one dimension, or one column for each of several splits";
    default: return "one dimension";
    }
}

void pst_import_open_array(struct pst_import_state *im, enum pst_import_source_id id, const char *path,
                           const char *told, struct pst_array *a)
{
    const struct pst_raw *raw = &im->spec->raw[id];
    pst_rc rc = raw->rank != 0           ? pst_array_open_raw(a, path, raw->dtype, raw->rank, raw->shape)
                : id == PST_IMPORT_EDGES ? pst_array_open_edges(a, path)
                                         : pst_array_open(a, path);
    if (rc != PST_OK) {
        if (told != path)
            (void)pst_wrap(rc, "%s", told);
        pst_problem_from_error(&im->problems);
        return;
    }
    int before = im->problems.count;
    if (!dtype_fits(id, a->dtype))
        pst_problem(&im->problems, "%s: expected %s, found %s", told, dtypes_wanted(id),
                    pst_dtype_name(a->dtype));
    if (!shape_fits(id, a))
        pst_problem(&im->problems, "%s: expected %s, found %d with %" PRId64 " x %" PRId64, told,
                    shape_wanted(id), a->rank, a->shape[0], a->shape[1]);
    if (im->problems.count == before && pst_array_map(a) != PST_OK)
        pst_problem_from_error(&im->problems);
    else if (a->map != NULL && id <= PST_IMPORT_FEAT_DATA)
        (void)madvise(a->map_base, a->map_bytes, MADV_SEQUENTIAL);
}

static void open_one(struct pst_import_state *im, enum pst_import_source_id id)
{
    const char *path = im->spec->source[id], *told = im->spec->told_as[id];
    if (path[0] != '\0' && im->src[id].map == NULL && !pst_table_is_one(path))
        pst_import_open_array(im, id, path, told[0] != '\0' ? told : path, &im->src[id]);
}

/* Messages name what the user knows. */
static void rename_told(struct pst_import_state *im)
{
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        if (im->spec->told_as[i][0] != '\0')
            memcpy(im->src[i].path, im->spec->told_as[i], sizeof im->src[i].path);
}

void pst_import_wrong_shape(struct pst_problems *problems, const struct pst_array *a,
                            enum pst_import_edge_shape asked, const char *by)
{
    const char *shape = asked == PST_EDGES_2XE   ? "2xE"
                        : asked == PST_EDGES_EX2 ? "Ex2"
                                                 : "Ex3",
               *other = asked == PST_EDGES_2XE ? "Ex2" : "2xE";
    bool possible = a->shape[asked == PST_EDGES_2XE ? 1 : 0] == 2;
    if (by == NULL)
        pst_problem(problems, "%s: --edge-shape is %s, but the array has shape (%" PRId64 ", %" PRId64 ")",
                    a->path, shape, a->shape[0], a->shape[1]);
    else
        pst_problem(problems,
                    "%s: %s stores edges in shape %s, but this array has shape (%" PRId64 ", %" PRId64
                    ")%s%s%s",
                    a->path, by, shape, a->shape[0], a->shape[1], possible ? ": --edge-shape " : "",
                    possible ? other : "", possible ? " reads it" : "");
}

static void choose_edge_shape(struct pst_import_state *im)
{
    const struct pst_array *a = &im->src[PST_IMPORT_EDGES];
    enum pst_import_edge_shape asked = im->spec->edge_shape;
    bool wide = a->shape[0] == 2, tall = a->shape[1] == 2;
    if (!wide && !tall && asked == PST_EDGES_AUTO && a->shape[1] == 3)
        pst_problem(&im->problems,
                    "%s: expected shape (2, E) or (E, 2), found (%" PRId64
                    ", 3): --edge-shape Ex3 reads rows of source, relation, target",
                    a->path, a->shape[0]);
    if (wide && tall && asked == PST_EDGES_AUTO)
        pst_problem(&im->problems,
                    "%s: shape (2, 2) may be (2, E) or (E, 2): choose with --edge-shape 2xE or Ex2", a->path);
    if ((asked == PST_EDGES_2XE && !wide) || (asked == PST_EDGES_EX2 && !tall) ||
        (asked == PST_EDGES_EX3 && (a->shape[1] != 3 || a->fortran)))
        pst_import_wrong_shape(&im->problems, a, asked, im->spec->shape_by);
    im->shape = asked != PST_EDGES_AUTO ? asked : wide ? PST_EDGES_2XE : PST_EDGES_EX2;
    im->edges = im->shape == PST_EDGES_2XE ? a->shape[1] : a->shape[0];
}

/* Times belong to all edges of an array of edges, which have neither relations nor weights. */
static void check_times(struct pst_import_state *im)
{
    const struct pst_import_spec *s = im->spec;
    const struct pst_array *a = &im->src[PST_IMPORT_EDGE_TIMES];
    const char *path = s->source[PST_IMPORT_EDGE_TIMES];
    if (path[0] == '\0')
        return;
    if (s->feed != NULL || pst_table_is_one(path))
        pst_problem(&im->problems, "%s: times of edges must be an .npy file beside edges in an array", path);
    else if (im->shape == PST_EDGES_EX3 || s->source[PST_IMPORT_EDGE_WEIGHTS][0] != '\0')
        pst_problem(&im->problems,
                    "%s: the edges have %s, so they cannot have times: leave one of them out, for example "
                    "with --edge-times none",
                    path, im->shape == PST_EDGES_EX3 ? "relations" : "weights");
    else if (a->map != NULL && a->shape[0] != im->edges)
        pst_problem(&im->problems, "%s: expected a time for each of %" PRId64 " edges, found %" PRId64, path,
                    im->edges, a->shape[0]);
    if (s->self_loops == PST_LOOPS_ADD)
        pst_problem(&im->problems,
                    "--self-loops add: the edges have times, and nothing says when the loops came to be: "
                    "leave the loops or the times out (--edge-times none)");
}

/* Weights belong to an array of edges, and to all of its edges. */
static void check_weights(struct pst_import_state *im)
{
    const struct pst_import_spec *s = im->spec;
    const struct pst_array *a = &im->src[PST_IMPORT_EDGE_WEIGHTS];
    const char *path = s->source[PST_IMPORT_EDGE_WEIGHTS];
    const bool given = path[0] != '\0', weighted = given || s->weights;
    if (given && s->feed != NULL)
        pst_problem(
            &im->problems,
            "%s: weights in an array need edges in an array: use --weight-column if the edges are lines "
            "of text, or --edge-weights none to leave the weights out",
            path);
    else if (given && pst_table_is_one(path))
        pst_problem(&im->problems, "%s: expected weights in an .npy file, found a text table", path);
    else if (given && im->shape == PST_EDGES_EX3)
        pst_problem(
            &im->problems,
            "%s: edges of %s have relations, so they cannot have weights: choose one with --edge-weights "
            "none, or with edges of shape (2, E)",
            path, s->source[PST_IMPORT_EDGES]);
    else if (a->map != NULL && a->shape[0] != im->edges)
        pst_problem(&im->problems, "%s: expected a weight for each of %" PRId64 " edges, found %" PRId64,
                    path, im->edges, a->shape[0]);
    if (weighted && s->self_loops == PST_LOOPS_ADD && s->loop_weight < 0)
        pst_problem(&im->problems,
                    "--self-loops add: the edges have weights, and nothing says what the loops weigh: add "
                    "--loop-weight W, for example --loop-weight 1");
    if (s->loop_weight >= 0 && (!weighted || s->self_loops != PST_LOOPS_ADD))
        pst_problem(&im->problems, "--loop-weight has no effect without %s",
                    weighted ? "--self-loops add" : "weights of edges (--edge-weights or --weight-column)");
}

void pst_import_open(struct pst_import_state *im)
{
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        open_one(im, i);
    rename_told(im);
    pst_import_open_splits(im);
    if (pst_import_has(im, PST_IMPORT_EDGES))
        choose_edge_shape(im);
    check_weights(im);
    check_times(im);
    const bool csr[3] = {im->spec->source[PST_IMPORT_FEAT_INDPTR][0] != '\0',
                         im->spec->source[PST_IMPORT_FEAT_INDICES][0] != '\0',
                         im->spec->source[PST_IMPORT_FEAT_DATA][0] != '\0'};
    for (int i = 0; i < 3; i++)
        if (!csr[i] && (csr[0] || csr[1] || csr[2]))
            pst_problem(
                &im->problems, "CSR features need feat_indptr, feat_indices and feat_data: %s is missing",
                pst_import_source_option((enum pst_import_source_id)(PST_IMPORT_FEAT_INDPTR + i)) + 2);
    if (csr[0] && im->spec->source[PST_IMPORT_FEATURES][0] != '\0')
        pst_problem(&im->problems, "use either --features or --feat-indptr, not both");
}

/* Every array that has a row per vertex must have the same number of them. */
static void agree_rows(struct pst_import_state *im, enum pst_import_source_id id, int64_t rows)
{
    if (im->vertices < 0)
        im->vertices = rows;
    else if (im->vertices != rows)
        pst_problem(&im->problems, "%s: expected one row for each of %" PRId64 " vertices, found %" PRId64,
                    im->src[id].path, im->vertices, rows);
}

static void agree_target(struct pst_import_state *im, int64_t rows)
{
    if (rows != im->spec->target_vertices)
        pst_problem(&im->problems, "%s: expected one row for each of %" PRId64 " vertices, found %" PRId64,
                    im->src[PST_IMPORT_LABELS].path, im->spec->target_vertices, rows);
}

int64_t pst_import_target(const struct pst_import_state *im, int64_t *first)
{
    bool all = im->spec->target_vertices < 0;
    *first = all ? 0 : im->spec->target_first;
    return all ? im->vertices : im->spec->target_vertices;
}

static int64_t largest(const struct pst_array *a)
{
    int64_t max = -1, items = (int64_t)(a->data_bytes / pst_dtype_bytes(a->dtype));
    for (int64_t i = 0; i < items; i++)
        max = pst_max_i64(max, pst_import_int_at(a, i));
    return max;
}

static void agree_feature_dim(struct pst_import_state *im)
{
    im->feature_dim = 0;
    if (pst_import_has(im, PST_IMPORT_FEATURES)) {
        im->feature_dim = im->src[PST_IMPORT_FEATURES].shape[1];
        if (im->spec->feature_dim >= 0 && im->spec->feature_dim != im->feature_dim)
            pst_problem(&im->problems, "%s: expected %" PRId64 " columns, found %" PRId64,
                        im->src[PST_IMPORT_FEATURES].path, im->spec->feature_dim, im->feature_dim);
    } else if (pst_import_has(im, PST_IMPORT_FEAT_INDICES)) {
        im->feature_dim = im->spec->feature_dim >= 0 ? im->spec->feature_dim
                                                     : largest(&im->src[PST_IMPORT_FEAT_INDICES]) + 1;
    }
    if (im->feature_dim > INT32_MAX)
        pst_problem(&im->problems, "features: at most %d columns are supported, found %" PRId64, INT32_MAX,
                    im->feature_dim);
}

void pst_import_counts(struct pst_import_state *im)
{
    im->vertices = im->spec->vertices;
    if (pst_import_has(im, PST_IMPORT_FEATURES))
        agree_rows(im, PST_IMPORT_FEATURES, im->src[PST_IMPORT_FEATURES].shape[0]);
    if (pst_import_has(im, PST_IMPORT_FEAT_INDPTR))
        agree_rows(im, PST_IMPORT_FEAT_INDPTR, im->src[PST_IMPORT_FEAT_INDPTR].shape[0] - 1);
    if (pst_import_has(im, PST_IMPORT_LABELS) && im->spec->target_vertices >= 0)
        agree_target(im, im->src[PST_IMPORT_LABELS].shape[0]);
    else if (pst_import_has(im, PST_IMPORT_LABELS))
        agree_rows(im, PST_IMPORT_LABELS, im->src[PST_IMPORT_LABELS].shape[0]);
    if (im->vertices > INT64_MAX / 32)
        pst_problem(&im->problems, "%" PRId64 " vertices; at most %" PRId64 " are supported", im->vertices,
                    INT64_MAX / 32);
    agree_feature_dim(im);
}

void pst_import_tell(struct pst_problems *problems, int64_t *bad, const char *path, int64_t at, int64_t value,
                     int64_t limit, const char *what)
{
    if (++*bad <= PST_IMPORT_TOLD_MAX)
        pst_problem(problems, "%s: %s %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64, path, what, at,
                    limit - 1, value);
}

void pst_import_tell_rest(struct pst_problems *problems, int64_t bad, const char *path)
{
    if (bad > PST_IMPORT_TOLD_MAX)
        pst_problem(problems, "%s: %" PRId64 " more errors of this kind", path, bad - PST_IMPORT_TOLD_MAX);
}

void pst_import_check_csr(struct pst_import_state *im)
{
    const struct pst_array *indptr = &im->src[PST_IMPORT_FEAT_INDPTR],
                           *indices = &im->src[PST_IMPORT_FEAT_INDICES];
    const struct pst_array *data = &im->src[PST_IMPORT_FEAT_DATA];
    int64_t nnz = indices->shape[0], bad = 0, last = 0;
    if (data->shape[0] != nnz)
        pst_problem(&im->problems, "%s: expected %" PRId64 " values, as in %s, found %" PRId64, data->path,
                    nnz, indices->path, data->shape[0]);
    for (int64_t i = 0; i < indptr->shape[0]; i++) {
        int64_t at = pst_import_int_at(indptr, i);
        if ((i == 0 ? at != 0 : at < last) || at > nnz) {
            if (++bad <= PST_IMPORT_TOLD_MAX)
                pst_problem(&im->problems,
                            "%s: entry %" PRId64 ": expected %s%" PRId64 " to %" PRId64 ", found %" PRId64,
                            indptr->path, i, i == 0 ? "0, not " : "", last, i == 0 ? 0 : nnz, at);
        }
        last = pst_max_i64(last, at);
    }
    if (bad == 0 && last != nnz)
        pst_problem(&im->problems, "%s: expected the last entry %" PRId64 ", the size of %s, found %" PRId64,
                    indptr->path, nnz, indices->path, last);
    pst_import_tell_rest(&im->problems, bad, indptr->path);
    bad = 0;
    for (int64_t i = 0; i < nnz; i++) {
        int64_t column = pst_import_int_at(indices, i);
        if (column < 0 || column >= im->feature_dim)
            pst_import_tell(&im->problems, &bad, indices->path, i, column, im->feature_dim,
                            "column of entry");
    }
    pst_import_tell_rest(&im->problems, bad, indices->path);
}

double pst_import_number_at(const struct pst_array *a, int64_t i)
{
    switch (a->dtype) {
    case PST_F64: return ((const double *)a->map)[i];
    case PST_F32:
    case PST_F16:
    case PST_BF16: return (double)pst_feature_value(a->map, a->dtype, i);
    default: return (double)pst_import_int_at(a, i);
    }
}

int64_t pst_import_label_at(const struct pst_array *a, int64_t i)
{
    if (a->dtype != PST_F32 && a->dtype != PST_F64)
        return pst_import_int_at(a, i);
    const double x = pst_import_number_at(a, i);
    if (isnan(x))
        return -1;
    return x >= -1 && x < (double)PST_MANIFEST_CLASSES_MAX && x == floor(x) ? (int64_t)x : INT64_MIN;
}

pst_rc pst_import_read_labels(struct pst_import_state *im)
{
    const struct pst_array *a = &im->src[PST_IMPORT_LABELS];
    im->labels = calloc((size_t)im->vertices + 1, sizeof *im->labels);
    if (im->labels == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " labels", im->vertices);
    int64_t limit = im->spec->classes >= 0 ? pst_min_i64(im->spec->classes, PST_MANIFEST_CLASSES_MAX)
                                           : PST_MANIFEST_CLASSES_MAX;
    int64_t bad = 0, max = -1, first, n = pst_import_target(im, &first);
    memset(im->labels, 0xff, (size_t)im->vertices * sizeof *im->labels);
    for (int64_t v = 0; v < n; v++) {
        int64_t label = pst_import_label_at(a, v);
        if (label < -1 || label >= limit) {
            if (++bad <= PST_IMPORT_TOLD_MAX && label == INT64_MIN)
                pst_problem(&im->problems,
                            "%s: vertex %" PRId64 ": the label is not an integer from -1 to %d", a->path, v,
                            PST_MANIFEST_CLASSES_MAX - 1);
            else if (bad <= PST_IMPORT_TOLD_MAX)
                pst_problem(&im->problems,
                            "%s: vertex %" PRId64 ": expected -1 (none) to %" PRId64 ", found %" PRId64,
                            a->path, v, limit - 1, label);
            continue;
        }
        im->labels[first + v] = (int32_t)label;
        max = pst_max_i64(max, label);
    }
    pst_import_tell_rest(&im->problems, bad, a->path);
    im->classes = im->spec->classes >= 0 ? im->spec->classes : max + 1;
    if (im->classes > PST_MANIFEST_CLASSES_MAX)
        pst_problem(&im->problems, "classes: at most %d are supported, found %" PRId64,
                    PST_MANIFEST_CLASSES_MAX, im->classes);
    if (im->classes == 0)
        pst_problem(im->warnings, "%s: no vertex has a label, so the dataset has no labels", a->path);
    return PST_OK;
}
