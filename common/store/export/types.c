/* types.c: exports the edges of a graph of several types, one file for each edge type. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/export/export_impl.h"

#define AT_ONCE 16 /* types of edges that one pass writes: each has a buffer and an open file */

struct outputs {
    struct pst_export_job *x;
    int first, count; /* types of edges */
    int end;          /* npy: 0 sources, 1 targets */
    int64_t *in_type; /* edges of each type */
    FILE *text[AT_ONCE];
    struct pst_array_writer array[AT_ONCE];
};

/* An edge of type first + k, with ids within the types of its ends. */
typedef pst_rc put_fn(struct outputs *o, int k, const int64_t end[2]);

const struct pst_vertex_type *pst_export_type_of(const struct pst_dataset *ds, int64_t v)
{
    const struct pst_vertex_type *t = ds->vertex_type;
    while (v - t->first >= t->vertices)
        t++;
    return t;
}

static pst_rc put_line(struct outputs *o, int k, const int64_t end[2])
{
    (void)fprintf(o->text[k], "%" PRId64 ",%" PRId64 "\n", end[0], end[1]);
    return PST_OK;
}

/* Text has the ids that vertices had before they were reordered, arrays have those that they have. */
static pst_rc put_edge(struct outputs *o, int64_t v, int64_t i, put_fn *put)
{
    const struct pst_dataset *ds = o->x->ds;
    const int32_t r = ((const int32_t *)ds->edge_relation.map)[i];
    if (r < o->first || r >= o->first + o->count)
        return PST_OK;
    const struct pst_vertex_type *source = &ds->vertex_type[ds->edge_type[r].source],
                                 *target = &ds->vertex_type[ds->edge_type[r].target];
    const int64_t u = pst_export_source(ds, i), end[2] = {u - source->first, v - target->first};
    if (u < 0)
        return PST_E_FORMAT;
    if (end[0] < 0 || end[0] >= source->vertices || end[1] < 0 || end[1] >= target->vertices)
        return pst_fail(PST_E_FORMAT,
                        "%s: edge %" PRId64 " has type %s, but goes from vertex %" PRId64 " to %" PRId64
                        ", whose types do not match",
                        ds->edge_relation.path, i, ds->edge_type[r].name, u, v);
    const int64_t *old = put == put_line ? ds->old_ids.map : NULL;
    if (old == NULL)
        return put(o, r - o->first, end);
    const int64_t old_end[2] = {old[u] - source->first, old[v] - target->first};
    return put(o, r - o->first, old_end);
}

/* Every edge of the types in turn, in the order of the dataset. */
static pst_rc each_edge(struct outputs *o, put_fn *put)
{
    const int64_t *indptr = o->x->ds->indptr.map;
    pst_rc rc = PST_OK;
    for (int64_t v = 0; v < o->x->ds->vertices && rc == PST_OK; v++) {
        for (int64_t i = indptr[v]; i < indptr[v + 1] && rc == PST_OK; i++)
            rc = put_edge(o, v, i, put);
        if (rc == PST_OK)
            rc = pst_progress_add(o->x->progress, (uint64_t)(indptr[v + 1] - indptr[v]));
    }
    return rc;
}

static pst_rc put_entry(struct outputs *o, int k, const int64_t end[2])
{
    const int32_t narrow = (int32_t)end[o->end];
    return o->x->ds->indices.dtype == PST_I32 ? pst_array_write(&o->array[k], &narrow, sizeof narrow)
                                              : pst_array_write(&o->array[k], &end[o->end], sizeof *end);
}

static pst_rc count_edges(const struct pst_dataset *ds, int64_t *in_type)
{
    const int32_t *relation = ds->edge_relation.map;
    for (int64_t i = 0; i < ds->edges; i++) {
        if (relation[i] < 0 || relation[i] >= ds->edge_types)
            return pst_fail(PST_E_FORMAT, "%s: entry %" PRId64 ": expected 0 to %d, found %d",
                            ds->edge_relation.path, i, ds->edge_types - 1, relation[i]);
        in_type[relation[i]]++;
    }
    return PST_OK;
}

static pst_rc write_lines(struct outputs *o)
{
    char name[AT_ONCE][32];
    pst_rc rc = PST_OK;
    int open = 0;
    while (open < o->count && rc == PST_OK) {
        (void)snprintf(name[open], sizeof name[open], "edges_%d.csv", o->first + open);
        o->text[open] = pst_export_create(o->x, name[open]);
        rc = o->text[open] != NULL ? PST_OK : PST_E_IO;
        open += rc == PST_OK;
    }
    if (rc == PST_OK)
        rc = each_edge(o, put_line);
    for (int k = 0; k < open; k++) {
        const pst_rc closed = pst_export_finish(o->text[k], name[k]);
        rc = rc == PST_OK ? closed : rc;
    }
    return rc;
}

static pst_rc write_arrays(struct outputs *o)
{
    pst_rc rc = PST_OK;
    uint64_t checksum;
    for (int k = 0; k < o->count && rc == PST_OK; k++) {
        const int64_t shape[2] = {2, o->in_type[o->first + k]};
        char name[32], path[PST_EXPORT_PATH_MAX];
        (void)snprintf(name, sizeof name, "edges_%d.npy", o->first + k);
        pst_export_path(o->x, name, path);
        rc = pst_array_writer_init(&o->array[k], path, o->x->ds->indices.dtype, 2, shape);
    }
    for (o->end = 0; o->end < 2 && rc == PST_OK; o->end++)
        rc = each_edge(o, put_entry);
    for (int k = 0; k < o->count; k++) {
        if (rc == PST_OK)
            rc = pst_array_writer_finish(&o->array[k], &checksum);
        pst_array_writer_release(&o->array[k]);
    }
    return rc;
}

pst_rc pst_export_typed_edges(struct pst_export_job *x, enum pst_export_format format)
{
    const struct pst_dataset *ds = x->ds;
    struct outputs *o = calloc(1, sizeof *o); /* paths: too much for the stack */
    int64_t *in_type = calloc((size_t)ds->edge_types + 1, sizeof *in_type);
    pst_rc rc = o != NULL && in_type != NULL ? count_edges(ds, in_type)
                                             : pst_fail(PST_E_NOMEM, "out of memory: cannot export edges");
    const uint64_t passes = (uint64_t)(ds->edge_types + AT_ONCE - 1) / AT_ONCE;
    pst_progress_begin(x->progress, "edges",
                       (uint64_t)ds->edges * passes * (format == PST_EXPORT_NPY ? 2 : 1), false);
    for (int first = 0; first < ds->edge_types && rc == PST_OK; first += AT_ONCE) {
        *o = (struct outputs){.x = x,
                              .first = first,
                              .count = (int)pst_min_i64(AT_ONCE, ds->edge_types - first),
                              .in_type = in_type};
        rc = format == PST_EXPORT_NPY ? write_arrays(o) : write_lines(o);
    }
    if (rc == PST_OK)
        pst_progress_end(x->progress);
    free(in_type);
    free(o);
    return rc;
}
