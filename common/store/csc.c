#include "csc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../error.h"

#define OUT_ITEMS PST_SORTER_BLOCK /* entries that are gathered before they go to a file */

/* What is written: three arrays side by side, by rising target. */
struct out {
    struct pst_csc *c;
    struct pst_array_writer indptr, indices, relations;
    enum pst_dtype ids;
    int64_t vertices, edges;
    int64_t target;    /* whose row is open; indptr has entries up to it */
    int64_t next_loop; /* vertex whose added loop is still to come */
    int64_t n, rows;
    int64_t start[OUT_ITEMS];
    union {
        int32_t i32[OUT_ITEMS];
        int64_t i64[OUT_ITEMS];
    } id;
    int32_t relation[OUT_ITEMS];
};

pst_rc pst_csc_init(struct pst_csc *c, const struct pst_csc_spec *spec)
{
    *c = (struct pst_csc){.spec = *spec, .largest = -1};
    uint64_t own = 2 * (8 + 8 + 4) * PST_EDGE_BLOCK;
    uint64_t sort = spec->memory_bytes > own + PST_SORTER_MEMORY_MIN ? spec->memory_bytes - own : 0;
    if (sort == 0)
        return pst_fail(PST_E_LIMIT, "--memory: expected at least %" PRIu64 " bytes, found %" PRIu64,
                        own + PST_SORTER_MEMORY_MIN + 1, spec->memory_bytes);
    c->high = malloc(2 * PST_EDGE_BLOCK * sizeof *c->high);
    c->low = malloc(2 * PST_EDGE_BLOCK * sizeof *c->low);
    c->tag = malloc(2 * PST_EDGE_BLOCK * sizeof *c->tag);
    if (c->high == NULL || c->low == NULL || c->tag == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for a block of edges");
    const struct pst_sorter_spec sorter = {.dir = spec->build->partial,
                                           .memory_bytes = sort,
                                           .threads = spec->threads,
                                           .dedupe = spec->dedupe,
                                           .tagged = spec->relations};
    return pst_sorter_new(&c->sorter, &sorter);
}

pst_rc pst_csc_add(struct pst_csc *c, const int64_t *source, const int64_t *target, const int32_t *relation,
                   int64_t n)
{
    assert(n <= PST_EDGE_BLOCK && (relation != NULL) == c->spec.relations);
    if (c->spec.transpose) {
        const int64_t *swap = source;
        source = target;
        target = swap;
    }
    int64_t arcs = 0, largest = c->largest;
    bool keep = c->spec.self_loops == PST_LOOPS_KEEP, both = c->spec.symmetrize;
    for (int64_t i = 0; i < n; i++) {
        int64_t s = source[i], t = target[i];
        largest = pst_max_i64(largest, pst_max_i64(s, t));
        bool loop = s == t;
        c->high[arcs] = t;
        c->low[arcs] = s;
        c->tag[arcs] = relation != NULL ? relation[i] : 0;
        arcs += keep || !loop;
        c->high[arcs] = s;
        c->low[arcs] = t;
        c->tag[arcs] = relation != NULL ? relation[i] : 0;
        arcs += both && !loop;
        c->loops_removed += loop && !keep;
    }
    c->largest = largest;
    c->arcs += arcs;
    return pst_sorter_add(c->sorter, c->high, c->low, relation != NULL ? c->tag : NULL, arcs);
}

static pst_rc flush_ids(struct out *o)
{
    pst_rc rc = pst_array_write(&o->indices, &o->id, (size_t)o->n * pst_dtype_bytes(o->ids));
    if (rc == PST_OK && o->c->spec.relations)
        rc = pst_array_write(&o->relations, o->relation, (size_t)o->n * sizeof(int32_t));
    o->n = 0;
    return rc;
}

/* Entries of indptr up to and with `target`: where its row begins. */
static pst_rc open_row(struct out *o, int64_t target)
{
    while (o->target < target) {
        o->target++;
        o->start[o->rows++] = o->edges;
        if (o->rows == OUT_ITEMS) {
            o->rows = 0;
            pst_rc rc = pst_array_write(&o->indptr, o->start, sizeof o->start);
            if (rc != PST_OK)
                return rc;
        }
    }
    return PST_OK;
}

static inline pst_rc put(struct out *o, int64_t target, int64_t source, int32_t relation)
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
    o->relation[o->n] = relation;
    o->edges++;
    return ++o->n == OUT_ITEMS ? flush_ids(o) : PST_OK;
}

/* The loops that come before (target, source). */
static pst_rc put_loops(struct out *o, int64_t target, int64_t source)
{
    pst_rc rc = PST_OK;
    while (rc == PST_OK && (o->next_loop < target || (o->next_loop == target && o->next_loop < source))) {
        rc = put(o, o->next_loop, o->next_loop, 0);
        o->next_loop++;
    }
    return rc;
}

static pst_rc write_arcs(struct out *o, struct pst_progress *progress)
{
    struct pst_csc *c = o->c;
    bool loops = c->spec.self_loops == PST_LOOPS_ADD;
    for (;;) {
        int64_t n;
        pst_rc rc = pst_sorter_next(c->sorter, c->high, c->low, c->tag, &n);
        if (rc != PST_OK || n == 0)
            return rc;
        for (int64_t i = 0; i < n && c->rank != NULL; i++) {
            c->high[i] = pst_rank_of(c->rank, c->high[i]);
            c->low[i] = pst_rank_of(c->rank, c->low[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            assert(c->high[i] < o->vertices && c->low[i] < o->vertices);
            if (loops && (rc = put_loops(o, c->high[i], c->low[i])) != PST_OK)
                return rc;
            if ((rc = put(o, c->high[i], c->low[i], c->spec.relations ? c->tag[i] : 0)) != PST_OK)
                return rc;
        }
        if ((rc = pst_progress_add(progress, (uint64_t)n)) != PST_OK)
            return rc;
    }
}

static pst_rc begin_arrays(struct out *o, int64_t edges)
{
    const int64_t rows[2] = {o->vertices + 1, 1}, entries[2] = {edges, 1};
    struct pst_build *b = o->c->spec.build;
    pst_rc rc = pst_build_array(b, PST_IN_INDPTR, PST_I64, 1, rows, &o->indptr);
    if (rc == PST_OK)
        rc = pst_build_array(b, PST_IN_INDICES, o->ids, 1, entries, &o->indices);
    if (rc == PST_OK && o->c->spec.relations)
        rc = pst_build_array(b, PST_IN_RELATIONS, PST_I32, 1, entries, &o->relations);
    return rc;
}

static pst_rc end_arrays(struct out *o, bool counted)
{
    struct pst_build *b = o->c->spec.build;
    pst_rc rc = open_row(o, o->vertices);
    if (rc == PST_OK)
        rc = pst_array_write(&o->indptr, o->start, (size_t)o->rows * sizeof *o->start);
    if (rc == PST_OK)
        rc = flush_ids(o);
    if (rc == PST_OK && !counted)
        rc = pst_array_writer_shrink(&o->indices, o->edges);
    if (rc == PST_OK && !counted && o->c->spec.relations)
        rc = pst_array_writer_shrink(&o->relations, o->edges);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_IN_INDPTR, &o->indptr);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, PST_IN_INDICES, &o->indices);
    if (rc == PST_OK && o->c->spec.relations)
        rc = pst_build_array_end(b, PST_IN_RELATIONS, &o->relations);
    return rc;
}

pst_rc pst_csc_finish(struct pst_csc *c, int64_t vertices, struct pst_progress *progress)
{
    int64_t distinct;
    pst_rc rc = pst_sorter_finish(c->sorter, &distinct);
    if (rc != PST_OK)
        return rc;
    c->parts = pst_sorter_parts(c->sorter);
    struct out *o = calloc(1, sizeof *o); /* 400 KiB: not for the stack */
    if (o == NULL)
        return pst_fail(PST_E_NOMEM, "no memory to write edges");
    o->c = c;
    o->ids = pst_id_dtype(vertices);
    o->vertices = vertices;
    o->target = -1;
    c->loops_added = c->spec.self_loops == PST_LOOPS_ADD ? vertices : 0;
    o->indptr.fd = o->indices.fd = o->relations.fd = -1;
    pst_progress_begin(progress, c->parts > 0 ? "edges: sorting" : "edges: writing", (uint64_t)c->arcs,
                       false);
    bool counted = distinct >= 0;
    if ((rc = begin_arrays(o, (counted ? distinct : c->arcs) + c->loops_added)) != PST_OK)
        goto out;
    if ((rc = write_arcs(o, progress)) != PST_OK)
        goto out;
    if (c->loops_added > 0 && (rc = put_loops(o, vertices, 0)) != PST_OK)
        goto out;
    if ((rc = end_arrays(o, counted)) != PST_OK)
        goto out;
    pst_progress_end(progress);
    c->edges = o->edges;
    c->duplicates_removed = c->arcs + c->loops_added - o->edges;
    c->spec.build->manifest.vertices = vertices;
    c->spec.build->manifest.edges = o->edges;
out:
    pst_array_writer_release(&o->indptr);
    pst_array_writer_release(&o->indices);
    pst_array_writer_release(&o->relations);
    free(o);
    return rc;
}

void pst_csc_release(struct pst_csc *c)
{
    pst_sorter_free(c->sorter);
    free(c->high);
    free(c->low);
    free(c->tag);
    *c = (struct pst_csc){.largest = -1};
}
