/* kept.c: arrays that are copied as they are. */
#include "common/store/import/kept.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/manifest.h"
#include "common/store/import/importing.h"

#define COPY_BYTES (1u << 20)

bool pst_kept_lists(const json_t *meta, enum pst_array_id id)
{
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(meta, "kept"), i, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), pst_array_id_name(id)) == 0)
            return true;
    }
    return false;
}

pst_rc pst_kept_begin(struct pst_kept *k, struct pst_import_job *job, const json_t *meta)
{
    const json_t *stride = json_object_get(meta, "stride_bytes");
    k->job = job;
    k->relations = json_integer_value(json_object_get(meta, "num_relations"));
    if (k->relations < 0 || k->relations > INT32_MAX)
        return pst_fail(PST_E_FORMAT, "%s/meta.json: num_relations: expected 0 to %d", job->from, INT32_MAX);
    if (job->spec.stride_bytes == 0 && json_integer_value(stride) > 0)
        job->spec.stride_bytes = (uint64_t)json_integer_value(stride);
    return PST_OK;
}

pst_rc pst_kept_open(struct pst_kept *k, enum pst_array_id id, const char *path, const char *told)
{
    pst_rc rc = pst_array_open(&k->array[id], path);
    if (rc == PST_OK)
        rc = pst_array_map(&k->array[id]);
    if (rc == PST_OK)
        (void)snprintf(k->array[id].path, sizeof k->array[id].path, "%s", told);
    return rc;
}

/* ---- relations ---- */

static pst_rc add_block(void *ctx, const int64_t *source, const int64_t *target, const int32_t *unused,
                        int64_t n)
{
    struct pst_kept *k = ctx;
    const int32_t *relation = (const int32_t *)k->array[PST_ARRAY_RELATIONS].map + k->edge;
    (void)unused;
    for (int64_t i = 0; i < n; i++)
        if (relation[i] < 0 || relation[i] >= k->relations)
            return pst_fail(PST_E_FORMAT, "%s: relation of edge %" PRId64 " is %d: expected 0 to %" PRId64,
                            k->array[PST_ARRAY_RELATIONS].path, k->edge + i, relation[i], k->relations - 1);
    k->edge += n;
    return pst_csc_builder_add(k->csc, source, target, relation, n);
}

/* Edges of the array, each with the relation at its place in the other. */
static pst_rc feed_relations(void *ctx, struct pst_csc_builder *csc, int64_t *vertices,
                             struct pst_progress *progress)
{
    struct pst_kept *k = ctx;
    struct pst_array edges;
    struct pst_problems problems = {.count = 0};
    const char *path = k->job->spec.source[PST_IMPORT_EDGES];
    const struct pst_array *r = &k->array[PST_ARRAY_RELATIONS];
    pst_rc rc = pst_array_open(&edges, path);
    if (rc != PST_OK)
        return rc;
    if (edges.rank != 2 || edges.shape[0] != 2 || r->dtype != PST_I32 || r->rank != 1 ||
        r->shape[0] != edges.shape[1])
        rc = pst_fail(PST_E_FORMAT,
                      "%s: expected int32 (%" PRId64
                      "), one value for each edge of %s, which has shape (2, E)",
                      r->path, edges.shape[1], path);
    const struct pst_import_edge_array e = {.a = &edges,
                                            .file = path,
                                            .shape = PST_EDGES_2XE,
                                            .edges = edges.shape[1],
                                            .limit = {*vertices, *vertices}};
    k->csc = csc;
    pst_progress_begin(progress, "edges: reading", (uint64_t)edges.shape[1], false);
    if (rc == PST_OK)
        rc = pst_import_edge_array_read(&e, add_block, k, &problems, progress);
    if (rc == PST_OK)
        rc = pst_problems_result(&problems, "cannot import");
    if (rc == PST_OK)
        pst_progress_end(progress);
    pst_array_close(&edges);
    return rc;
}

void pst_kept_feed(struct pst_kept *k)
{
    if (k->array[PST_ARRAY_RELATIONS].map == NULL)
        return;
    k->job->spec.feed = feed_relations;
    k->job->spec.feed_ctx = k;
    k->job->spec.relations = k->relations;
}

/* ---- the rest ---- */

/* One row of numbers for each vertex; NaN is a target that is not known. */
static pst_rc check_targets(const struct pst_kept *k, const struct pst_array *a)
{
    const int64_t vertices = k->job->build->manifest.vertices, columns = a->rank == 2 ? a->shape[1] : 1;
    const float *x = a->map;
    if (a->dtype != PST_F32)
        return pst_fail(PST_E_FORMAT,
                        "%s: expected float32, found %s: convert it, for example with "
                        "targets.astype(numpy.float32)",
                        a->path, pst_dtype_name(a->dtype));
    if (a->shape[0] != vertices || columns < 1 || columns > PST_MANIFEST_TARGETS_MAX)
        return pst_fail(PST_E_FORMAT,
                        "%s: expected the shape (%" PRId64 ") or (%" PRId64
                        ", K) with K from 1 to %d: one row for "
                        "each vertex, found %" PRId64 " rows of %" PRId64,
                        a->path, vertices, vertices, PST_MANIFEST_TARGETS_MAX, a->shape[0], columns);
    for (int64_t i = 0; i < vertices * columns; i++)
        if (isinf(x[i]))
            return pst_fail(PST_E_FORMAT,
                            "%s: vertex %" PRId64 ", column %" PRId64
                            ": expected a finite number, or NaN (not known), found %g",
                            a->path, i / columns, i % columns, (double)x[i]);
    return PST_OK;
}

static pst_rc check_times(const struct pst_kept *k, const struct pst_array *a)
{
    const int64_t vertices = k->job->build->manifest.vertices;
    const int32_t *time = a->map;
    if (a->dtype != PST_I32 || a->rank != 1 || a->shape[0] != vertices)
        return pst_fail(PST_E_FORMAT,
                        "%s: expected %" PRId64
                        " times of int32, one for each vertex, found %s of shape (%" PRId64 ", %" PRId64
                        "): subtract the first time, or count in larger units, and convert them",
                        a->path, vertices, pst_dtype_name(a->dtype), a->shape[0], a->shape[1]);
    for (int64_t v = 0; v < vertices; v++)
        if (time[v] < 0)
            return pst_fail(PST_E_FORMAT, "%s: vertex %" PRId64 ": expected a time of at least 0, found %d",
                            a->path, v, time[v]);
    return PST_OK;
}

/* Ids within the array that must be ids; where names begin, which never falls. */
static pst_rc check_ids(const struct pst_kept *k, unsigned id)
{
    const struct pst_array *a = &k->array[id];
    const bool names = id == PST_ARRAY_NAMES_AT || id == PST_ARRAY_RELATION_NAMES_AT;
    const int64_t vertices = k->job->build->manifest.vertices,
                  all = names ? k->array[id + 1].shape[0] : vertices;
    if (id == PST_ARRAY_IDS || id == PST_ARRAY_NAMES || id == PST_ARRAY_RELATION_NAMES)
        return PST_OK;
    if (id == PST_ARRAY_TARGETS)
        return check_targets(k, a);
    if (id == PST_ARRAY_VERTEX_TIMES)
        return check_times(k, a);
    if (a->dtype != PST_I32 && a->dtype != PST_I64)
        return a->dtype == PST_U8 ? PST_OK : pst_fail(PST_E_FORMAT, "%s: expected integers", a->path);
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1, n = a->shape[0] * columns;
    for (int64_t i = 0, before = 0; i < n; i++) {
        const int64_t x = pst_import_int_at(a, i),
                      limit = columns == 3 && i % 3 == 1 ? k->relations : vertices;
        if (names ? x < before || x > all || (i == n - 1 && x != all) : x < 0 || x >= limit)
            return pst_fail(PST_E_FORMAT,
                            "%s: entry %" PRId64 " is %" PRId64
                            ", which is out of range or less than the entry before",
                            a->path, i, x);
        before = x;
    }
    return PST_OK;
}

static pst_rc copy_array(struct pst_kept *k, unsigned id)
{
    const struct pst_array *a = &k->array[id];
    struct pst_array_writer w = {.fd = -1};
    pst_rc rc = pst_build_array(k->job->build, id, a->dtype, a->rank, a->shape, &w);
    for (uint64_t at = 0; rc == PST_OK && at < a->data_bytes; at += COPY_BYTES) {
        const uint64_t left = a->data_bytes - at, n = left < COPY_BYTES ? left : COPY_BYTES;
        rc = pst_array_write(&w, (const char *)a->map + at, n);
        if (rc == PST_OK)
            rc = pst_progress_add(k->job->progress, n);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(k->job->build, id, &w);
    pst_array_writer_release(&w);
    return rc;
}

pst_rc pst_kept_copy(struct pst_kept *k)
{
    struct pst_problems problems = {.count = 0};
    pst_rc rc = PST_OK;
    k->job->build->manifest.relations = k->relations;
    for (unsigned i = PST_ARRAY_RELATIONS + 1; i < PST_ARRAY_COUNT && rc == PST_OK; i++) {
        if (k->array[i].path[0] == '\0')
            continue;
        pst_progress_begin(k->job->progress, pst_array_id_name(i), k->array[i].data_bytes, true);
        rc = check_ids(k, i);
        if (rc == PST_OK)
            rc = copy_array(k, i);
        if (rc == PST_OK)
            pst_progress_end(k->job->progress);
    }
    if (rc == PST_OK)
        pst_manifest_check(&k->job->build->manifest, &problems);
    return rc == PST_OK
               ? pst_problems_result(
                     &problems,
                     "the ids, names or relations that meta.json lists do not match the rest of the dataset")
               : rc;
}

void pst_kept_close(struct pst_kept *k)
{
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++)
        pst_array_close(&k->array[i]);
}
