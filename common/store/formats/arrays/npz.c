/* An .npz with one sparse matrix: of scipy.sparse.save_npz (CSR, CSC or COO), or adj_* in CSR beside attr_*
 * and labels, as the gnn-benchmark files have them. Entry (row, column) is an edge from row to column. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/import/job.h"
#include "common/store/import/importing.h"
#include "common/store/import/kept.h"
#include "common/store/text/zip.h"

#define WORD_MAX 16       /* a matrix format's name, with its NUL: SciPy's have three letters */
#define MEMBERS_TOLD 1024 /* bytes of members' names in one message */

/* How the matrix is stored: CSR and CSC have indptr and indices, COO has row and col. */
enum matrix_format { FORMAT_CSR, FORMAT_CSC, FORMAT_COO, FORMATS };

static const char *const format_names[FORMATS] = {"csr", "csc", "coo"};

struct matrix {
    struct pst_import_job *job;
    struct pst_zip zip;
    const char *prefix; /* of the members' names */
    enum matrix_format format;
    int64_t rows, columns;
    struct pst_array indptr;  /* CSR, CSC */
    struct pst_array indices; /* CSR, CSC: the other end of each entry; COO: its row */
    struct pst_array column;  /* COO */
    struct pst_array data;    /* weights; path empty if there are none */
    int64_t zeros, weights;   /* entries that are 0, and those that are neither 0 nor 1 */
    double a_weight;          /* the first of those */
};

/* Extracts NAME.npy. *there: whether the archive has it. */
static pst_rc take_out(struct matrix *m, const char *name, char path[PST_PATH_MAX], bool *there)
{
    char member[128];
    (void)snprintf(member, sizeof member, "%s.npy", name);
    const struct pst_zip_member *found = pst_zip_find(&m->zip, member);
    *there = found != NULL;
    pst_build_temp(m->job->build, name, path);
    return found == NULL ? PST_OK : pst_zip_extract(&m->zip, found, path, m->job->progress);
}

static bool has(const struct matrix *m, const char *prefix, const char *name)
{
    char member[128];
    (void)snprintf(member, sizeof member, "%s%s.npy", prefix, name);
    return pst_zip_find(&m->zip, member) != NULL;
}

static pst_rc open_member(struct matrix *m, const char *prefix, const char *name, struct pst_array *a)
{
    char full[64], path[4096];
    bool there;
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    pst_rc rc = take_out(m, full, path, &there);
    if (rc == PST_OK && !there)
        rc = pst_fail(PST_E_FORMAT, "%s: member %s.npy is missing", m->zip.path, full);
    if (rc == PST_OK && (rc = pst_array_open(a, path)) != PST_OK)
        return pst_wrap(rc, "%s: member %s.npy", m->zip.path, full);
    return rc == PST_OK ? pst_array_map(a) : rc;
}

static pst_rc open_integers(struct matrix *m, const char *prefix, const char *name, struct pst_array *a)
{
    pst_rc rc = open_member(m, prefix, name, a);
    if (rc == PST_OK && !pst_dtype_is_integer(a->dtype))
        rc = pst_fail(PST_E_FORMAT, "%s: %s%s: expected " PST_IMPORT_INTEGERS ", found %s", m->zip.path,
                      prefix, name, pst_dtype_name(a->dtype));
    return rc;
}

static pst_rc read_shape(struct matrix *m, const char *prefix, int64_t *rows, int64_t *columns)
{
    struct pst_array shape = {.map = NULL};
    pst_rc rc = open_integers(m, prefix, "shape", &shape);
    if (rc == PST_OK && shape.shape[0] * shape.shape[1] != 2)
        rc = pst_fail(PST_E_FORMAT, "%s: %sshape: expected two sizes, of rows and of columns", m->zip.path,
                      prefix);
    if (rc == PST_OK) {
        *rows = pst_import_int_at(&shape, 0);
        *columns = pst_import_int_at(&shape, 1);
    }
    pst_array_close(&shape);
    return rc;
}

/* ---- which layout it is ---- */

/* Reads one word from an array of text without dimensions: bytes ("|S3"), or four bytes a character ("<U3").
 */
static pst_rc read_word(const struct matrix *m, const char *name, const char *path, char word[WORD_MAX])
{
    unsigned char bytes[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : pread(fd, bytes, sizeof bytes, 0);
    if (fd >= 0)
        (void)close(fd);
    if (got < 0)
        return pst_fail_errno("cannot read %s", path);
    size_t n = 0, at = got < 10 ? (size_t)got : 10u + bytes[8] + 256u * bytes[9];
    for (; at < (size_t)got && n + 1 < WORD_MAX; at++)
        if (bytes[at] != '\0')
            word[n++] = (char)bytes[at];
    word[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (word[i] < 'a' || word[i] > 'z')
            n = 0;
    return n > 0 ? PST_OK
                 : pst_fail(PST_E_FORMAT, "%s: %s: expected the name of a sparse format, for example csr",
                            m->zip.path, name);
}

static pst_rc read_format(struct matrix *m)
{
    char name[64], path[4096], word[WORD_MAX];
    bool there;
    (void)snprintf(name, sizeof name, "%sformat", m->prefix);
    pst_rc rc = take_out(m, name, path, &there);
    if (rc == PST_OK)
        rc = read_word(m, name, path, word);
    if (rc != PST_OK)
        return rc;
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(word, format_names[i]) == 0) {
            m->format = (enum matrix_format)i;
            return PST_OK;
        }
    return pst_fail(PST_E_UNSUPPORTED,
                    "%s: the matrix is stored as %s; expected csr, csc or coo: convert it with "
                    "matrix.tocsr() and save it again",
                    m->zip.path, word);
}

static pst_rc no_layout(const struct matrix *m)
{
    char names[MEMBERS_TOLD];
    size_t used = 0;
    names[0] = '\0';
    for (int i = 0; i < m->zip.members && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                 m->zip.member[i].name);
    return pst_fail(PST_E_FORMAT,
                    "%s: expected one of these layouts:\n"
                    "  indptr, indices, shape, format  (scipy.sparse.save_npz of a CSR or CSC matrix)\n"
                    "  row, col, shape, format         (scipy.sparse.save_npz of a COO matrix)\n"
                    "  adj_indptr, adj_indices, adj_shape  (CSR), with or without attr_* and labels\n"
                    "found the members %s",
                    m->zip.path, m->zip.members > 0 ? names : "of an empty archive");
}

/* Says which matrix the archive holds, and in which format. */
static pst_rc find_layout(struct matrix *m)
{
    m->prefix = has(m, "adj_", "indptr") ? "adj_" : "";
    m->format = FORMAT_CSR;
    if (has(m, m->prefix, "format"))
        return read_format(m);
    if (has(m, "", "row") && has(m, "", "col")) {
        m->format = FORMAT_COO;
        return PST_OK;
    }
    if (!has(m, m->prefix, "indptr"))
        return no_layout(m);
    if (m->prefix[0] == '\0')
        pst_problem(&m->job->result->warnings,
                    "%s: member format.npy is missing: reading indptr and indices as CSR", m->zip.path);
    return PST_OK;
}

/* ---- the matrix ---- */

static pst_rc check_indptr(const struct matrix *m)
{
    const int64_t outer = m->format == FORMAT_CSC ? m->columns : m->rows, n = m->indices.shape[0];
    int64_t last = 0;
    if (m->indptr.shape[0] != outer + 1)
        return pst_fail(PST_E_FORMAT, "%s: indptr: expected %" PRId64 " entries, found %" PRId64, m->zip.path,
                        outer + 1, m->indptr.shape[0]);
    for (int64_t i = 0; i <= outer; i++) {
        int64_t at = pst_import_int_at(&m->indptr, i);
        if (at < last || at > n || (i == 0 && at != 0) || (i == outer && at != n))
            return pst_fail(PST_E_FORMAT,
                            "%s: indptr: entry %" PRId64 ": expected %" PRId64 " to %" PRId64
                            ", found %" PRId64,
                            m->zip.path, i, i == outer ? n : last, i == 0 ? 0 : n, at);
        last = at;
    }
    return PST_OK;
}

static pst_rc check_length(const struct matrix *m, const struct pst_array *a, const char *name)
{
    return a->path[0] == '\0' || (a->rank == 1 && a->shape[0] == m->indices.shape[0])
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s: %s%s: expected an array of %" PRId64 " entries with one dimension",
                          m->zip.path, m->prefix, name, m->indices.shape[0]);
}

static pst_rc open_matrix(struct matrix *m)
{
    const bool coo = m->format == FORMAT_COO;
    pst_rc rc = read_shape(m, m->prefix, &m->rows, &m->columns);
    if (rc == PST_OK && (m->rows != m->columns || m->rows < 0))
        rc = pst_fail(PST_E_FORMAT, "%s: %sshape: expected a square matrix, found %" PRId64 " x %" PRId64,
                      m->zip.path, m->prefix, m->rows, m->columns);
    if (rc == PST_OK)
        rc = open_integers(m, m->prefix, coo ? "row" : "indices", &m->indices);
    if (rc == PST_OK)
        rc = coo ? open_integers(m, m->prefix, "col", &m->column)
                 : open_integers(m, m->prefix, "indptr", &m->indptr);
    if (rc == PST_OK && has(m, m->prefix, "data"))
        rc = open_member(m, m->prefix, "data", &m->data);
    if (rc == PST_OK)
        rc = check_length(m, &m->column, "col");
    if (rc == PST_OK)
        rc = check_length(m, &m->data, "data");
    return rc == PST_OK && !coo ? check_indptr(m) : rc;
}

static pst_rc check_id(const struct matrix *m, const char *name, int64_t i, int64_t id)
{
    return id >= 0 && id < m->rows
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s: %s%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64,
                          m->zip.path, m->prefix, name, i, m->rows - 1, id);
}

/* Whether entry i is an edge: a stored 0 is none. Counts weights. */
static bool is_edge(struct matrix *m, int64_t i)
{
    const double weight = m->data.map != NULL ? pst_import_number_at(&m->data, i) : 1;
    if (weight == 0) {
        m->zeros++;
        return false;
    }
    if (weight != 1 && m->weights++ == 0)
        m->a_weight = weight;
    return true;
}

/* Edges that are gathered before they are sorted. */
struct block {
    struct pst_csc_builder *csc;
    int64_t *source, *target, n;
    int32_t *weight; /* NULL: edges have none */
};

/* Entry i of the matrix. */
static pst_rc put(const struct matrix *m, struct block *b, int64_t i, int64_t source, int64_t target)
{
    b->source[b->n] = source;
    b->target[b->n] = target;
    if (b->weight != NULL && !pst_csc_builder_weight(pst_import_number_at(&m->data, i), &b->weight[b->n]))
        return pst_fail(PST_E_FORMAT,
                        "%s: %sdata: entry %" PRId64
                        ": expected a weight of 0 or more that fits float32, found "
                        "%g",
                        m->zip.path, m->prefix, i, pst_import_number_at(&m->data, i));
    if (++b->n < PST_CSC_BUILDER_EDGE_BLOCK)
        return PST_OK;
    b->n = 0;
    return pst_csc_builder_add(b->csc, b->source, b->target, b->weight, PST_CSC_BUILDER_EDGE_BLOCK);
}

static pst_rc give_compressed(struct matrix *m, struct block *b, struct pst_progress *progress)
{
    const int64_t outer = m->indptr.shape[0] - 1;
    pst_rc rc = PST_OK;
    for (int64_t row = 0; row < outer && rc == PST_OK; row++) {
        const int64_t begin = pst_import_int_at(&m->indptr, row),
                      end = pst_import_int_at(&m->indptr, row + 1);
        for (int64_t i = begin; i < end && rc == PST_OK; i++) {
            const int64_t other = pst_import_int_at(&m->indices, i);
            rc = check_id(m, "indices", i, other);
            if (rc == PST_OK && is_edge(m, i))
                rc = m->format == FORMAT_CSC ? put(m, b, i, other, row) : put(m, b, i, row, other);
        }
        if (rc == PST_OK && row % PST_CSC_BUILDER_EDGE_BLOCK == 0)
            rc = pst_progress_add(progress, 0);
    }
    return rc;
}

static pst_rc give_coordinates(struct matrix *m, struct block *b, struct pst_progress *progress)
{
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < m->indices.shape[0] && rc == PST_OK; i++) {
        const int64_t row = pst_import_int_at(&m->indices, i), column = pst_import_int_at(&m->column, i);
        rc = check_id(m, "row", i, row);
        if (rc == PST_OK)
            rc = check_id(m, "col", i, column);
        if (rc == PST_OK && is_edge(m, i))
            rc = put(m, b, i, row, column);
        if (rc == PST_OK && i % PST_CSC_BUILDER_EDGE_BLOCK == 0)
            rc = pst_progress_add(progress, 0);
    }
    return rc;
}

static void tell_values(const struct matrix *m)
{
    struct pst_problems *warnings = &m->job->result->warnings;
    if (m->zeros > 0)
        pst_problem(warnings, "%s: ignored %" PRId64 " stored zeros, which are not edges", m->zip.path,
                    m->zeros);
    if (m->weights > 0 && !m->job->text.weighted)
        pst_problem(warnings,
                    "%s: %" PRId64
                    " entries are not 1 (the first is %g): these edges are imported without their weights "
                    "(--weight-column data imports them)",
                    m->zip.path, m->weights, m->a_weight);
}

static pst_rc give(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    struct matrix *m = ctx;
    struct block b = {.csc = csc,
                      .source = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof(int64_t)),
                      .target = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof(int64_t)),
                      .weight = m->job->text.weighted ? malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof(int32_t))
                                                      : NULL};
    pst_rc rc = b.source != NULL && b.target != NULL && (!m->job->text.weighted || b.weight != NULL)
                    ? PST_OK
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
    *vertices = m->rows;
    pst_progress_begin(progress, "edges: reading", (uint64_t)m->indices.shape[0], false);
    if (rc == PST_OK)
        rc = m->format == FORMAT_COO ? give_coordinates(m, &b, progress) : give_compressed(m, &b, progress);
    if (rc == PST_OK)
        rc = pst_csc_builder_add(csc, b.source, b.target, b.weight, b.n);
    if (rc == PST_OK) {
        pst_progress_end(progress);
        tell_values(m);
    }
    free(b.source);
    free(b.target);
    free(b.weight);
    return rc;
}

/* ---- attributes and labels ---- */

static pst_rc take_labels(struct matrix *m)
{
    char path[PST_PATH_MAX], *out = m->job->spec.source[PST_IMPORT_LABELS];
    bool there;
    if (out[0] != '\0' || m->job->skip[PST_IMPORT_LABELS])
        return PST_OK;
    pst_rc rc = take_out(m, "labels", path, &there);
    if (rc != PST_OK || !there)
        return rc;
    memcpy(out, path, sizeof path);
    (void)snprintf(m->job->spec.told_as[PST_IMPORT_LABELS], sizeof path, "%.3900s (labels)", m->zip.path);
    return PST_OK;
}

static pst_rc take_attributes(struct matrix *m)
{
    static const char *const names[] = {"attr_indptr", "attr_indices", "attr_data"};
    struct pst_import_spec *s = &m->job->spec;
    int64_t rows = 0, columns = 0;
    if (pst_zip_find(&m->zip, "attr_indptr.npy") == NULL || s->source[PST_IMPORT_FEATURES][0] != '\0' ||
        m->job->skip[PST_IMPORT_FEATURES])
        return PST_OK;
    pst_rc rc = read_shape(m, "attr_", &rows, &columns);
    for (int i = 0; i < 3 && rc == PST_OK; i++) {
        bool there;
        rc = take_out(m, names[i], s->source[PST_IMPORT_FEAT_INDPTR + i], &there);
        if (rc == PST_OK && !there)
            rc = pst_fail(PST_E_FORMAT, "%s: member %s.npy is missing", m->zip.path, names[i]);
    }
    if (rc == PST_OK && rows != m->rows)
        rc = pst_fail(PST_E_FORMAT, "%s: attr_shape: expected %" PRId64 " rows, found %" PRId64, m->zip.path,
                      m->rows, rows);
    s->feature_dim = columns;
    return rc;
}

/* Numbers of the vertices, for regression. */
static pst_rc take_targets(struct matrix *m, struct pst_kept *kept)
{
    char path[PST_PATH_MAX], told[PST_PATH_MAX];
    bool there;
    pst_rc rc = take_out(m, "targets", path, &there);
    if (rc != PST_OK || !there)
        return rc;
    (void)snprintf(told, sizeof told, "%.3900s (targets)", m->zip.path);
    rc = pst_kept_open(kept, PST_ARRAY_TARGETS, path, told);
    return rc == PST_OK ? pst_kept_copy(kept) : rc;
}

static pst_rc import_npz(struct pst_import_job *job)
{
    struct matrix m = {.job = job, .zip = {.fd = -1}};
    pst_rc rc = pst_zip_open(&m.zip, job->from);
    pst_import_name(&job->spec, job->from);
    if (rc == PST_OK)
        rc = find_layout(&m);
    if (rc == PST_OK)
        rc = open_matrix(&m);
    if (rc == PST_OK)
        rc = take_attributes(&m);
    if (rc == PST_OK)
        rc = take_labels(&m);
    if (rc == PST_OK && job->text.weighted &&
        (strcmp(job->text.weight_name, "data") != 0 || m.data.map == NULL))
        rc = pst_fail(PST_E_ARG,
                      "--weight-column %s: expected data, the member that has the numbers of the matrix%s",
                      job->text.weight_name,
                      m.data.map != NULL ? "" : "; this archive lacks it, so its edges have no weights");
    job->spec.weights = job->text.weighted;
    job->spec.vertices = m.rows;
    job->spec.feed = give;
    job->spec.feed_ctx = &m;
    if (rc == PST_OK)
        rc = pst_import(&job->spec, job->build, job->result, job->progress);
    struct pst_kept *kept = rc == PST_OK ? calloc(1, sizeof *kept) : NULL; /* paths: too much for the stack */
    if (rc == PST_OK)
        rc = kept ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot import");
    if (kept) {
        kept->job = job;
        rc = take_targets(&m, kept);
        pst_kept_close(kept);
    }
    free(kept);
    pst_array_close(&m.indptr);
    pst_array_close(&m.indices);
    pst_array_close(&m.column);
    pst_array_close(&m.data);
    pst_zip_close(&m.zip);
    return rc;
}

const struct pst_import_format pst_format_npz = {
    "npz",
    "an .npz file with SciPy's CSR parts (adj_*, attr_*, labels, targets), or from scipy.sparse.save_npz",
    import_npz};
