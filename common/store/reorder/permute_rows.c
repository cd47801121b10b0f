/* permute_rows.c: the features of a reordered dataset, its other arrays with a row for each vertex, and the
 * names of vertices. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/stride.h"
#include "common/store/reorder/permute_impl.h"

#define OUT_BYTES (256u << 10) /* rows on their way to the files, unless one row is larger */
#define NAMES_BLOCK 16384

/* ---- features ------------------------------------------------------------------------------------- */

struct rows {
    struct pst_row_files files;
    struct pst_build_row_writer w;
    uint64_t stride, data, new_stride; /* bytes: of a stored row, of its values, of a new row */
    unsigned char *in, *out; /* of in_rows stored rows; of out_rows new ones, zero behind the values */
    int64_t in_rows, out_rows, filled;
};

static pst_rc read_rows(void *ctx, int64_t first, int64_t n, void *out)
{
    const struct rows *r = ctx;
    pst_rc rc = PST_OK;
    for (int64_t done = 0, some; done < n && rc == PST_OK; done += some) {
        some = pst_min_i64(n - done, r->in_rows);
        rc = pst_row_files_read(&r->files, first + done, some, r->in);
        for (int64_t i = 0; i < some && rc == PST_OK; i++)
            memcpy((char *)out + (uint64_t)(done + i) * r->data, r->in + (uint64_t)i * r->stride, r->data);
    }
    return rc;
}

static pst_rc put_rows(struct rows *r)
{
    const pst_rc rc = pst_build_row_writer_put(&r->w, r->out, r->filled);
    r->filled = 0;
    return rc;
}

static pst_rc write_row(void *ctx, int64_t old, void *record, uint64_t bytes)
{
    struct rows *r = ctx;
    (void)old;
    memcpy(r->out + (uint64_t)r->filled * r->new_stride, record, bytes);
    return ++r->filled == r->out_rows ? put_rows(r) : PST_OK;
}

uint64_t pst_permute_stride(const struct pst_dataset *ds, int type, bool pack)
{
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    if (!pack)
        return t == NULL ? ds->stride_bytes : t->stride_bytes;
    return pst_stride_packed(t == NULL ? ds->feature_dim : t->feature_dim,
                             t == NULL ? ds->features.dtype : t->features.dtype);
}

/* Type -1: of all vertices. */
static pst_rc permute_type(const struct pst_permute_job *j, int type)
{
    const struct pst_dataset *ds = j->ds;
    const struct pst_vertex_type *t = type < 0 ? NULL : &ds->vertex_type[type];
    const struct pst_array *features = t == NULL ? &ds->features : &t->features;
    const int64_t dim = t == NULL ? ds->feature_dim : t->feature_dim,
                  vertices = t == NULL ? ds->vertices : t->vertices;
    const size_t item = pst_dtype_bytes(features->dtype);
    struct rows r = {.stride = t == NULL ? ds->stride_bytes : t->stride_bytes,
                     .data = (uint64_t)dim * item,
                     .new_stride = pst_permute_stride(ds, type, j->spec->pack)};
    if (dim == 0)
        return PST_OK;
    struct pst_records_spec s = pst_permute_records(j, t == NULL ? "features" : t->name);
    s.n = vertices;
    s.first = t == NULL ? 0 : t->first;
    s.old_of += s.first;
    s.new_of += s.first;
    s.fixed_bytes = r.data;
    s.read = read_rows;
    s.write = write_row;
    s.ctx = &r;
    r.in_rows = pst_max_i64(1, (int64_t)(OUT_BYTES / r.stride));
    r.out_rows = pst_max_i64(1, (int64_t)(OUT_BYTES / r.new_stride));
    r.in = malloc((size_t)r.in_rows * r.stride);
    r.out = calloc((size_t)r.out_rows, r.new_stride);
    pst_rc rc = r.in != NULL && r.out != NULL
                    ? pst_row_files_open(&r.files, t == NULL ? pst_feature_file(ds, 0) : features,
                                         t == NULL ? pst_feature_files(ds) : 1, r.stride)
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot copy rows of %" PRIu64 " bytes", r.data);
    if (rc == PST_OK) {
        const int64_t shape[2] = {vertices, (int64_t)(r.new_stride / item)};
        rc = pst_build_rows(j->b, type, features->dtype, shape, &r.w);
        pst_build_note_features(j->b, type, dim, r.new_stride);
        if (rc == PST_OK)
            rc = pst_records_write(&s);
        if (rc == PST_OK)
            rc = put_rows(&r);
        if (rc == PST_OK)
            rc = pst_build_rows_end(j->b, type, &r.w);
        pst_build_row_writer_release(&r.w);
        pst_row_files_close(&r.files);
    }
    free(r.in);
    free(r.out);
    return rc;
}

pst_rc pst_permute_features(const struct pst_permute_job *j)
{
    pst_rc rc = j->ds->vertex_types == 0 ? permute_type(j, -1) : PST_OK;
    for (int type = 0; type < j->ds->vertex_types && rc == PST_OK; type++)
        rc = permute_type(j, type);
    return rc;
}

/* ---- mapped arrays -------------------------------------------------------------------------------- */

struct mapped {
    const struct pst_array *a;
    uint64_t row_bytes;
    const int64_t *at; /* of names: where each begins */
    struct pst_array_writer w;
};

static pst_rc read_mapped(void *ctx, int64_t first, int64_t n, void *out)
{
    const struct mapped *m = ctx;
    const uint64_t from = m->at != NULL ? (uint64_t)m->at[first] : (uint64_t)first * m->row_bytes,
                   bytes = m->at != NULL ? (uint64_t)(m->at[first + n] - m->at[first])
                                         : (uint64_t)n * m->row_bytes;
    if (bytes > 0)
        memcpy(out, (const char *)m->a->map + from, bytes);
    return PST_OK;
}

static pst_rc write_mapped(void *ctx, int64_t old, void *record, uint64_t bytes)
{
    struct mapped *m = ctx;
    (void)old;
    return pst_array_write(&m->w, record, bytes);
}

static uint64_t name_bytes(const void *ctx, int64_t v)
{
    const struct mapped *m = ctx;
    return (uint64_t)(m->at[v + 1] - m->at[v]);
}

static pst_rc permute_mapped(const struct pst_permute_job *j, struct mapped *m, enum pst_array_id id)
{
    struct pst_records_spec s = pst_permute_records(j, pst_array_id_name(id));
    s.fixed_bytes = m->row_bytes;
    s.bytes_of = name_bytes;
    s.read = read_mapped;
    s.write = write_mapped;
    s.ctx = m;
    m->w.fd = -1;
    pst_rc rc = pst_build_array(j->b, id, m->a->dtype, m->a->rank, m->a->shape, &m->w);
    if (rc == PST_OK)
        rc = pst_records_write(&s);
    if (rc == PST_OK)
        rc = pst_build_array_end(j->b, id, &m->w);
    pst_array_writer_release(&m->w);
    return rc;
}

pst_rc pst_permute_array(const struct pst_permute_job *j, enum pst_array_id id)
{
    const struct pst_array *a = pst_manifest_dataset_array((struct pst_dataset *)j->ds, id);
    struct mapped m = {.a = a,
                       .row_bytes = pst_dtype_bytes(a->dtype) * (uint64_t)(a->rank == 2 ? a->shape[1] : 1)};
    return permute_mapped(j, &m, id);
}

static pst_rc write_names_at(const struct pst_permute_job *j, const int64_t *at)
{
    const int64_t n = j->ds->vertices;
    int64_t block[NAMES_BLOCK], filled = 0, begin = 0;
    struct pst_array_writer w = {.fd = -1};
    pst_rc rc = pst_build_array(j->b, PST_ARRAY_NAMES_AT, PST_I64, 1, (int64_t[2]){n + 1, 1}, &w);
    block[filled++] = begin;
    for (int64_t v = 0; v < n && rc == PST_OK; v++) {
        const int64_t old = j->spec->old_of[v];
        if (at[old + 1] < at[old] || at[old + 1] > j->ds->names.shape[0])
            rc = pst_fail(PST_E_FORMAT, "%s: vertex %" PRId64 ": `penstock verify` shows details",
                          j->ds->names_at.path, old);
        begin += at[old + 1] - at[old];
        block[filled++] = begin;
        if (rc == PST_OK && filled == NAMES_BLOCK) {
            rc = pst_array_write(&w, block, sizeof block);
            filled = 0;
        }
    }
    if (rc == PST_OK)
        rc = pst_array_write(&w, block, (size_t)filled * sizeof *block);
    if (rc == PST_OK)
        rc = pst_build_array_end(j->b, PST_ARRAY_NAMES_AT, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_permute_names(const struct pst_permute_job *j)
{
    struct mapped m = {.a = &j->ds->names, .at = j->ds->names_at.map};
    if (m.at == NULL)
        return PST_OK;
    const pst_rc rc = write_names_at(j, m.at);
    return rc == PST_OK ? permute_mapped(j, &m, PST_ARRAY_NAMES) : rc;
}
