/* SciPy's CSR parts in an .npz: adj_* and attr_* with labels, as the gnn-benchmark files have them, or one
 * matrix alone, as scipy.sparse.save_npz writes it. A row is a source, a column a target. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/formats/formats.h"
#include "common/store/import/importing.h"
#include "common/store/text/zip.h"

struct parts {
    struct pst_import_job *job;
    struct pst_zip zip;
    struct pst_array indptr, indices;
    int64_t rows, columns;
};

/* Takes NAME.npy out; *there false: the archive has none. */
static pst_rc take_out(struct parts *p, const char *name, char path[4096], bool *there)
{
    char member[128];
    (void)snprintf(member, sizeof member, "%s.npy", name);
    const struct pst_zip_member *m = pst_zip_find(&p->zip, member);
    *there = m != NULL;
    pst_build_temp(p->job->build, name, path);
    return m == NULL ? PST_OK : pst_zip_extract(&p->zip, m, path, p->job->progress);
}

static pst_rc need(struct parts *p, const char *prefix, const char *name, struct pst_array *a)
{
    char full[64], path[4096];
    bool there;
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    pst_rc rc = take_out(p, full, path, &there);
    if (rc == PST_OK && !there)
        rc = pst_fail(PST_E_FORMAT, "%s: expected a member %s.npy", p->zip.path, full);
    if (rc == PST_OK && (rc = pst_array_open(a, path)) != PST_OK)
        return pst_wrap(rc, "%s: member %s.npy", p->zip.path, full);
    if (rc == PST_OK)
        rc = pst_array_map(a);
    if (rc == PST_OK && a->dtype != PST_I32 && a->dtype != PST_I64)
        rc = pst_fail(PST_E_FORMAT, "%s: %s: expected int32 or int64, found %s", p->zip.path, full,
                      pst_dtype_name(a->dtype));
    return rc;
}

static pst_rc read_shape(struct parts *p, const char *prefix, int64_t *rows, int64_t *columns)
{
    struct pst_array shape = {.map = NULL};
    pst_rc rc = need(p, prefix, "shape", &shape);
    if (rc == PST_OK && shape.shape[0] * shape.shape[1] != 2)
        rc = pst_fail(PST_E_FORMAT, "%s: %sshape: expected two sizes", p->zip.path, prefix);
    if (rc == PST_OK) {
        *rows = pst_import_int_at(&shape, 0);
        *columns = pst_import_int_at(&shape, 1);
    }
    pst_array_close(&shape);
    return rc;
}

/* Labels may be int8 or int16, which datasets have not: they become int64. */
static pst_rc widen_labels(struct parts *p, const char *from, const char *to)
{
    unsigned char head[1024] = {0};
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open %s", from);
    ssize_t got = pread(fd, head, sizeof head - 1, 0);
    size_t at = got < 12 ? 0 : 10u + head[8] + 256u * head[9];
    const char *text = (const char *)head + 10;
    size_t item = strstr(text, "'|i1'") != NULL ? 1 : strstr(text, "'<i2'") != NULL ? 2 : 0;
    off_t end = lseek(fd, 0, SEEK_END);
    int64_t n = item == 0 || at == 0 || end < (off_t)at ? -1 : (int64_t)((size_t)end - at) / (int64_t)item;
    pst_rc rc =
        n < 0 || head[6] != 1 || at > sizeof head || strstr(text, "True") != NULL
            ? pst_fail(PST_E_FORMAT, "%s: labels: expected integers or floats in one dimension", p->zip.path)
            : PST_OK;
    const int64_t shape[2] = {n, 1};
    struct pst_array_writer w = {.fd = -1};
    if (rc == PST_OK)
        rc = pst_array_writer_init(&w, to, PST_I64, 1, shape);
    for (int64_t i = 0; rc == PST_OK && i < n; i++) {
        int16_t raw = 0;
        if (pread(fd, &raw, item, (off_t)at + i * (off_t)item) != (ssize_t)item)
            rc = pst_fail_errno("cannot read %s", from);
        int64_t label = item == 1 ? (int8_t)raw : raw;
        if (rc == PST_OK)
            rc = pst_array_write(&w, &label, sizeof label);
    }
    uint64_t checksum;
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    pst_array_writer_release(&w);
    (void)close(fd);
    return rc;
}

static pst_rc take_labels(struct parts *p)
{
    char path[4096], *out = p->job->spec.source[PST_IMPORT_LABELS];
    bool there;
    if (out[0] != '\0' || p->job->skip[PST_IMPORT_LABELS])
        return PST_OK;
    pst_rc rc = take_out(p, "labels", path, &there);
    if (rc != PST_OK || !there)
        return rc;
    struct pst_array a;
    if (pst_array_open(&a, path) == PST_OK) {
        memcpy(out, path, sizeof path);
        return PST_OK;
    }
    pst_build_temp(p->job->build, "labels-wide", out);
    return widen_labels(p, path, out);
}

static pst_rc take_attributes(struct parts *p)
{
    static const char *const names[] = {"attr_indptr", "attr_indices", "attr_data"};
    struct pst_import_spec *s = &p->job->spec;
    int64_t rows = 0, columns = 0;
    if (pst_zip_find(&p->zip, "attr_indptr.npy") == NULL || s->source[PST_IMPORT_FEATURES][0] != '\0' ||
        p->job->skip[PST_IMPORT_FEATURES])
        return PST_OK;
    pst_rc rc = read_shape(p, "attr_", &rows, &columns);
    for (int i = 0; i < 3 && rc == PST_OK; i++) {
        bool there;
        rc = take_out(p, names[i], s->source[PST_IMPORT_FEAT_INDPTR + i], &there);
        if (rc == PST_OK && !there)
            rc = pst_fail(PST_E_FORMAT, "%s: expected a member %s.npy", p->zip.path, names[i]);
    }
    if (rc == PST_OK && rows != p->rows)
        rc = pst_fail(PST_E_FORMAT, "%s: attr_shape: expected %" PRId64 " rows, found %" PRId64, p->zip.path,
                      p->rows, rows);
    s->feature_dim = columns;
    return rc;
}

static pst_rc check_indptr(const struct parts *p)
{
    int64_t n = p->indices.shape[0], last = 0;
    if (p->indptr.shape[0] != p->rows + 1)
        return pst_fail(PST_E_FORMAT, "%s: indptr: expected %" PRId64 " entries, found %" PRId64, p->zip.path,
                        p->rows + 1, p->indptr.shape[0]);
    for (int64_t i = 0; i <= p->rows; i++) {
        int64_t at = pst_import_int_at(&p->indptr, i);
        if (at < last || at > n || (i == 0 && at != 0) || (i == p->rows && at != n))
            return pst_fail(PST_E_FORMAT,
                            "%s: indptr: entry %" PRId64 ": expected %" PRId64 " to %" PRId64
                            ", found %" PRId64,
                            p->zip.path, i, i == p->rows ? n : last, i == 0 ? 0 : n, at);
        last = at;
    }
    return PST_OK;
}

static pst_rc give(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    struct parts *p = ctx;
    int64_t *source = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *source),
            *target = malloc(PST_CSC_BUILDER_EDGE_BLOCK * sizeof *target), n = 0;
    pst_rc rc = source != NULL && target != NULL ? check_indptr(p)
                                                 : pst_fail(PST_E_NOMEM, "no memory for a block of edges");
    *vertices = p->rows;
    pst_progress_begin(progress, "edges: reading", (uint64_t)p->indices.shape[0], false);
    for (int64_t row = 0; row < p->rows && rc == PST_OK; row++) {
        int64_t end = pst_import_int_at(&p->indptr, row + 1);
        for (int64_t i = pst_import_int_at(&p->indptr, row); i < end && rc == PST_OK; i++) {
            source[n] = row;
            target[n] = pst_import_int_at(&p->indices, i);
            if (target[n] < 0 || target[n] >= p->rows)
                rc = pst_fail(PST_E_FORMAT,
                              "%s: indices: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64,
                              p->zip.path, i, p->rows - 1, target[n]);
            if (rc == PST_OK && ++n == PST_CSC_BUILDER_EDGE_BLOCK) {
                rc = pst_csc_builder_add(csc, source, target, NULL, n);
                n = 0;
            }
        }
        if (rc == PST_OK && row % PST_CSC_BUILDER_EDGE_BLOCK == 0)
            rc = pst_progress_add(progress, 0);
    }
    if (rc == PST_OK)
        rc = pst_csc_builder_add(csc, source, target, NULL, n);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(source);
    free(target);
    return rc;
}

pst_rc pst_import_npz(struct pst_import_job *job)
{
    struct parts p = {.job = job, .zip = {.fd = -1}};
    pst_rc rc = pst_zip_open(&p.zip, job->from);
    if (rc != PST_OK)
        goto out;
    pst_import_name(&job->spec, job->from);
    const char *prefix = pst_zip_find(&p.zip, "adj_indptr.npy") != NULL ? "adj_" : "";
    if ((rc = read_shape(&p, prefix, &p.rows, &p.columns)) != PST_OK ||
        (rc = need(&p, prefix, "indptr", &p.indptr)) != PST_OK ||
        (rc = need(&p, prefix, "indices", &p.indices)) != PST_OK)
        goto out;
    if (p.rows != p.columns || p.rows < 0)
        rc = pst_fail(PST_E_FORMAT, "%s: %sshape: expected a square matrix, found %" PRId64 " x %" PRId64,
                      job->from, prefix, p.rows, p.columns);
    if (rc == PST_OK)
        rc = take_attributes(&p);
    if (rc == PST_OK)
        rc = take_labels(&p);
    job->spec.vertices = p.rows;
    job->spec.feed = give;
    job->spec.feed_ctx = &p;
    if (rc == PST_OK)
        rc = pst_import(&job->spec, job->build, job->result, job->progress);
out:
    pst_array_close(&p.indptr);
    pst_array_close(&p.indices);
    pst_zip_close(&p.zip);
    return rc;
}
