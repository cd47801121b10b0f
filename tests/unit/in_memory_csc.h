/* in_memory_csc.h: CSC of edges that all are in memory, by counting and placing: what the sorter's is
 * compared with. */
#ifndef IN_MEMORY_CSC_H
#define IN_MEMORY_CSC_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/build/csc_builder.h"
#include "common/store/make/gen_impl.h"

struct pst_topology_spec {
    int64_t vertices, edges; /* edges that the function gives */
    pst_gen_edges_fn fn;
    void *ctx;
    bool symmetrize; /* each edge in both directions (a self loop once); implies nothing about duplicates */
    bool dedupe;     /* one edge for each (source, target) */
    enum pst_csc_builder_self_loops self_loops;
};

struct pst_topology {
    int64_t vertices, edges;
    int64_t *indptr; /* vertices + 1 */
    enum pst_dtype dtype;
    union {
        int32_t *i32;
        int64_t *i64;
        void *any;
    } indices;
    int64_t duplicates_removed, loops_removed, loops_added;
};

/* One pass over the edges: counting or placing. */
struct pass {
    struct pst_topology *t;
    const struct pst_topology_spec *spec;
    bool placing;
};

static inline void put(struct pst_topology *t, int64_t at, int64_t id)
{
    if (t->dtype == PST_I32)
        t->indices.i32[at] = (int32_t)id;
    else
        t->indices.i64[at] = id;
}

static inline int64_t get(const struct pst_topology *t, int64_t at)
{
    return t->dtype == PST_I32 ? t->indices.i32[at] : t->indices.i64[at];
}

/* Counting: indptr[v + 1] becomes v's degree. Placing: indptr[v + 1] is where v's next entry goes. */
static inline void arc(struct pass *p, int64_t source, int64_t target)
{
    assert(source >= 0 && source < p->t->vertices && target >= 0 && target < p->t->vertices);
    int64_t at = p->t->indptr[target + 1]++;
    if (p->placing)
        put(p->t, at, source);
}

static void edge(struct pass *p, int64_t source, int64_t target)
{
    if (source == target) {
        if (p->spec->self_loops == PST_LOOPS_KEEP)
            arc(p, source, target);
        else if (!p->placing)
            p->t->loops_removed++;
        return;
    }
    arc(p, source, target);
    if (p->spec->symmetrize)
        arc(p, target, source);
}

static pst_rc run_pass(struct pass *p, int64_t *buffer, struct pst_progress *progress)
{
    int64_t *source = buffer, *target = buffer + PST_CSC_BUILDER_EDGE_BLOCK;
    for (int64_t first = 0; first < p->spec->edges; first += PST_CSC_BUILDER_EDGE_BLOCK) {
        int64_t count = pst_min_i64(PST_CSC_BUILDER_EDGE_BLOCK, p->spec->edges - first);
        pst_rc rc = p->spec->fn(p->spec->ctx, first, count, source, target);
        if (rc != PST_OK)
            return rc;
        for (int64_t i = 0; i < count; i++)
            edge(p, source[i], target[i]);
        rc = pst_progress_add(progress, (uint64_t)count);
        if (rc != PST_OK)
            return rc;
    }
    if (p->spec->self_loops == PST_LOOPS_ADD)
        for (int64_t v = 0; v < p->t->vertices; v++)
            arc(p, v, v);
    return PST_OK;
}

/* Degrees to starts, shifted by one so that placing leaves indptr as it must be. */
static void scan_degrees(struct pst_topology *t)
{
    int64_t sum = 0;
    for (int64_t v = 0; v < t->vertices; v++) {
        int64_t degree = t->indptr[v + 1];
        t->indptr[v + 1] = sum;
        sum += degree;
    }
    t->edges = sum;
}

static int compare32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int compare64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sort_row(struct pst_topology *t, int64_t from, int64_t to)
{
    enum { SMALL = 24 }; /* below this, insertion beats qsort */
    if (to - from > SMALL && t->dtype == PST_I32) {
        qsort(t->indices.i32 + from, (size_t)(to - from), sizeof(int32_t), compare32);
    } else if (to - from > SMALL) {
        qsort(t->indices.i64 + from, (size_t)(to - from), sizeof(int64_t), compare64);
    } else {
        for (int64_t i = from + 1; i < to; i++) {
            int64_t id = get(t, i), k = i;
            for (; k > from && get(t, k - 1) > id; k--)
                put(t, k, get(t, k - 1));
            put(t, k, id);
        }
    }
}

/* Sorts every row and, when asked, keeps one of each; rows move down as earlier ones shrink. */
static pst_rc finish_rows(struct pst_topology *t, bool dedupe, struct pst_progress *progress)
{
    int64_t out = 0, from = 0;
    for (int64_t v = 0; v < t->vertices; v++) {
        int64_t to = t->indptr[v + 1];
        sort_row(t, from, to);
        int64_t row = out;
        for (int64_t i = from; i < to; i++) {
            int64_t id = get(t, i);
            if (!dedupe || out == row || get(t, out - 1) != id)
                put(t, out++, id);
        }
        t->indptr[v + 1] = out;
        from = to;
        if (v % PST_CSC_BUILDER_EDGE_BLOCK == PST_CSC_BUILDER_EDGE_BLOCK - 1) {
            pst_rc rc = pst_progress_add(progress, PST_CSC_BUILDER_EDGE_BLOCK);
            if (rc != PST_OK)
                return rc;
        }
    }
    t->duplicates_removed = t->edges - out;
    t->edges = out;
    return pst_progress_add(progress, (uint64_t)(t->vertices % PST_CSC_BUILDER_EDGE_BLOCK));
}

static pst_rc allocate_indices(struct pst_topology *t)
{
    size_t bytes = (size_t)t->edges * pst_dtype_bytes(t->dtype);
    t->indices.any = malloc(bytes > 0 ? bytes : 1);
    return t->indices.any != NULL ? PST_OK
                                  : pst_fail(PST_E_NOMEM, "no memory for %zu bytes of indices", bytes);
}

static void pst_topology_release(struct pst_topology *t)
{
    free(t->indptr);
    free(t->indices.any);
    *t = (struct pst_topology){.vertices = 0};
}

static pst_rc pst_topology_build(struct pst_topology *t, const struct pst_topology_spec *spec,
                                 struct pst_progress *progress)
{
    assert(spec->vertices >= 0 && spec->edges >= 0 && spec->edges <= INT64_MAX / 32);
    *t = (struct pst_topology){.vertices = spec->vertices, .dtype = pst_manifest_id_dtype(spec->vertices)};
    pst_rc rc = PST_OK;
    int64_t *buffer = malloc(2 * sizeof(int64_t) * PST_CSC_BUILDER_EDGE_BLOCK);
    t->indptr = calloc((size_t)spec->vertices + 1, sizeof(int64_t));
    struct pass pass = {t, spec, false};
    if (buffer == NULL || t->indptr == NULL) {
        rc = pst_fail(PST_E_NOMEM, "no memory for %" PRId64 " vertices", spec->vertices);
        goto out;
    }
    pst_progress_begin(progress, "edges: counting", (uint64_t)spec->edges, false);
    if ((rc = run_pass(&pass, buffer, progress)) != PST_OK)
        goto out;
    pst_progress_end(progress);
    scan_degrees(t);
    if ((rc = allocate_indices(t)) != PST_OK)
        goto out;
    pass.placing = true;
    pst_progress_begin(progress, "edges: placing", (uint64_t)spec->edges, false);
    if ((rc = run_pass(&pass, buffer, progress)) != PST_OK)
        goto out;
    pst_progress_end(progress);
    pst_progress_begin(progress, "edges: sorting rows", (uint64_t)spec->vertices, false);
    if ((rc = finish_rows(t, spec->dedupe, progress)) != PST_OK)
        goto out;
    pst_progress_end(progress);
    t->loops_added = spec->self_loops == PST_LOOPS_ADD ? spec->vertices : 0;
out:
    free(buffer);
    if (rc != PST_OK)
        pst_topology_release(t);
    return rc;
}

#endif
