/* csc_builder_out.c: writes indptr, indices and relations, weights or times. */
#include "common/store/build/csc_builder_out.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/error.h"
#include "common/util/file.h"

static pst_rc flush_ids(struct pst_csc_builder_out *o)
{
    pst_rc rc = pst_array_write(&o->indices, &o->id, (size_t)o->n * pst_dtype_bytes(o->ids));
    if (rc == PST_OK && pst_csc_builder_out_tagged(o->spec))
        rc = pst_array_write(&o->tags, o->tag, (size_t)o->n * sizeof(int32_t));
    o->n = 0;
    return rc;
}

/* Entries of indptr up to and with `target`: where its row begins. */
static pst_rc open_row(struct pst_csc_builder_out *o, int64_t target)
{
    while (o->target < target) {
        o->target++;
        o->start[o->rows++] = o->edges;
        if (o->rows == PST_CSC_BUILDER_OUT_ITEMS) {
            o->rows = 0;
            pst_rc rc = pst_array_write(&o->indptr, o->start, sizeof o->start);
            if (rc != PST_OK)
                return rc;
        }
    }
    return PST_OK;
}

static inline pst_rc put(struct pst_csc_builder_out *o, int64_t target, int64_t source, int32_t tag)
{
    if (target != o->target) {
        pst_rc rc = open_row(o, target);
        if (rc != PST_OK)
            return rc;
    }
    if (o->ids == PST_I32)
        o->id.i32[o->n] = (int32_t)source;
    else
        o->id.i64[o->n] = source;
    o->tag[o->n] = tag;
    o->edges++;
    return ++o->n == PST_CSC_BUILDER_OUT_ITEMS ? flush_ids(o) : PST_OK;
}

pst_rc pst_csc_builder_out_put_plain(struct pst_csc_builder_out *o, const int64_t *target,
                                     const int64_t *source, int64_t n)
{
    pst_rc rc = PST_OK;
    assert(target[n - 1] < o->vertices);
    for (int64_t done = 0; rc == PST_OK && done < n;) {
        int64_t take = pst_min_i64(PST_CSC_BUILDER_OUT_ITEMS - o->n, n - done), before = o->edges;
        int32_t *to = o->id.i32 + o->n;
        for (int64_t i = 0; i < take; i++)
            to[i] = (int32_t)source[done + i];
        for (int64_t i = 0; rc == PST_OK && i < take; i++) {
            if (target[done + i] == o->target)
                continue;
            o->edges = before + i;
            rc = open_row(o, target[done + i]);
        }
        o->edges = before + take;
        o->n += take;
        done += take;
        if (rc == PST_OK && o->n == PST_CSC_BUILDER_OUT_ITEMS)
            rc = flush_ids(o);
    }
    return rc;
}

/* The loops that come before (target, source). */
static pst_rc put_loops(struct pst_csc_builder_out *o, int64_t target, int64_t source)
{
    pst_rc rc = PST_OK;
    int32_t tag = 0;
    if (o->spec->weights)
        (void)pst_csc_builder_weight((double)o->spec->loop_weight, &tag);
    while (rc == PST_OK && (o->next_loop < target || (o->next_loop == target && o->next_loop < source))) {
        rc = put(o, o->next_loop, o->next_loop, tag);
        o->next_loop++;
    }
    return rc;
}

static pst_rc put_after_loops(struct pst_csc_builder_out *o, int64_t target, int64_t source, int32_t tag)
{
    pst_rc rc = PST_OK;
    assert(target < o->vertices && source < o->vertices);
    if (o->spec->self_loops == PST_LOOPS_ADD)
        rc = put_loops(o, target, source);
    return rc == PST_OK ? put(o, target, source, tag) : rc;
}

/* The edge whose duplicates have all come. */
static pst_rc put_sum(struct pst_csc_builder_out *o)
{
    int32_t tag;
    if (!o->sum.open)
        return PST_OK;
    o->sum.open = false;
    if (!pst_csc_builder_weight(o->sum.weight, &tag))
        return pst_fail(PST_E_FORMAT,
                        "--dedupe: the weights of edge (%" PRId64 ", %" PRId64
                        ") and its duplicates have the sum %g: expected at most %g, the largest float32",
                        o->sum.source, o->sum.target, o->sum.weight, (double)FLT_MAX);
    return put_after_loops(o, o->sum.target, o->sum.source, tag);
}

pst_rc pst_csc_builder_out_put(struct pst_csc_builder_out *o, int64_t target, int64_t source, int32_t tag)
{
    if (!pst_csc_builder_out_sums(o->spec))
        return put_after_loops(o, target, source, tag);
    if (pst_csc_builder_sum_add(&o->sum, target, source, tag))
        return PST_OK;
    pst_rc rc = put_sum(o);
    pst_csc_builder_sum_open(&o->sum, target, source, tag);
    return rc;
}

static pst_rc flush_rows(struct pst_csc_builder_out *o)
{
    int64_t rows = o->rows;
    o->rows = 0;
    return pst_array_write(&o->indptr, o->start, (size_t)rows * sizeof *o->start);
}

pst_rc pst_csc_builder_out_flush(struct pst_csc_builder_out *o)
{
    pst_rc rc = flush_ids(o);
    return rc == PST_OK ? flush_rows(o) : rc;
}

pst_rc pst_csc_builder_out_put_last(struct pst_csc_builder_out *o)
{
    pst_rc rc = put_sum(o);
    return rc == PST_OK && o->spec->self_loops == PST_LOOPS_ADD ? put_loops(o, o->vertices, 0) : rc;
}

static pst_rc begin_array(struct pst_csc_builder_out *o, enum pst_array_id id, enum pst_dtype dtype,
                          int64_t rows, struct pst_array_writer *w)
{
    struct pst_build *b = o->spec->build;
    const int64_t shape[2] = {rows, 1};
    return o->noted ? pst_build_go_on(b, id, dtype, 1, shape, w) : pst_build_array(b, id, dtype, 1, shape, w);
}

pst_rc pst_csc_builder_out_begin(struct pst_csc_builder_out *o, int64_t edges)
{
    char what[128];
    pst_rc rc = begin_array(o, PST_ARRAY_INDPTR, PST_I64, o->vertices + 1, &o->indptr);
    (void)snprintf(what, sizeof what,
                   "ids go up to %" PRId64 " (--ids strings would renumber them): indptr.npy",
                   o->vertices - 1);
    if (rc == PST_OK)
        rc = pst_file_room_for(o->indptr.path, o->indptr.expected - o->indptr.written, what);
    if (rc == PST_OK)
        rc = begin_array(o, PST_ARRAY_INDICES, o->ids, edges, &o->indices);
    if (rc == PST_OK && pst_csc_builder_out_tagged(o->spec))
        rc = begin_array(o, pst_csc_builder_out_tag_array(o->spec), o->spec->weights ? PST_F32 : PST_I32,
                         edges, &o->tags);
    return rc;
}

pst_rc pst_csc_builder_out_end(struct pst_csc_builder_out *o, bool counted)
{
    struct pst_build *b = o->spec->build;
    pst_rc rc = open_row(o, o->vertices);
    if (rc == PST_OK)
        rc = flush_rows(o);
    if (rc == PST_OK)
        rc = flush_ids(o);
    if (rc == PST_OK && !counted)
        rc = pst_array_writer_shrink(&o->indices, o->edges);
    if (rc == PST_OK && !counted && pst_csc_builder_out_tagged(o->spec))
        rc = pst_array_writer_shrink(&o->tags, o->edges);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_INDPTR, &o->indptr);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_ARRAY_INDICES, &o->indices);
    if (rc == PST_OK && pst_csc_builder_out_tagged(o->spec))
        rc = pst_build_array_end(b, pst_csc_builder_out_tag_array(o->spec), &o->tags);
    return rc;
}
