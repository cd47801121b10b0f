/* permute.c: a dataset whose vertices have other numbers. */
#include "common/store/reorder/permute.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/make/derive.h"
#include "common/store/reorder/permute_impl.h"

#define BLOCK 16384 /* ids that are renumbered at a time */

pst_rc pst_permute_invert(const struct pst_dataset *ds, const int64_t *old_of, int64_t *new_of)
{
    const int64_t n = ds->vertices;
    memset(new_of, -1, (size_t)n * sizeof *new_of);
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = old_of[i];
        if (v < 0 || v >= n || new_of[v] >= 0)
            return pst_fail(PST_E_FORMAT,
                            "the order of the vertices: place %" PRId64 " has vertex %" PRId64
                            ": expected each of 0 to %" PRId64 " once",
                            i, v, n - 1);
        new_of[v] = i;
    }
    for (int k = 0; k < ds->vertex_types; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        for (int64_t i = t->first; i < t->first + t->vertices; i++)
            if (old_of[i] < t->first || old_of[i] >= t->first + t->vertices)
                return pst_fail(PST_E_FORMAT,
                                "the order of the vertices: place %" PRId64 " is of type %s, but gets vertex "
                                "%" PRId64 " of another type",
                                i, t->name, old_of[i]);
    }
    return PST_OK;
}

/* ---- arrays of ids -------------------------------------------------------------------------------- */

/* Entries first to first + n - 1, renumbered; column 1 of 3 is a relation. */
static pst_rc renumber(const struct pst_permute_job *j, const struct pst_array *a, int64_t first, int64_t n,
                       void *out)
{
    const int64_t columns = a->rank == 2 ? a->shape[1] : 1;
    for (int64_t i = first; i < first + n; i++) {
        int64_t id = pst_permute_id(a, i);
        const bool relation = columns == 3 && i % 3 == 1;
        if (!relation && (id < 0 || id >= j->ds->vertices))
            return pst_fail(PST_E_FORMAT, "%s: entry %" PRId64 ": expected 0 to %" PRId64 ", found %" PRId64,
                            a->path, i, j->ds->vertices - 1, id);
        id = relation ? id : j->spec->new_of[id];
        if (a->dtype == PST_I32)
            ((int32_t *)out)[i - first] = (int32_t)id;
        else
            ((int64_t *)out)[i - first] = id;
    }
    return PST_OK;
}

static pst_rc put_ids(const struct pst_permute_job *j, const struct pst_array *a, struct pst_array_writer *w)
{
    const int64_t n = a->shape[0] * (a->rank == 2 ? a->shape[1] : 1);
    int64_t block[BLOCK];
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < n && rc == PST_OK; i += BLOCK) {
        const int64_t some = pst_min_i64(BLOCK, n - i);
        rc = renumber(j, a, i, some, block);
        if (rc == PST_OK)
            rc = pst_array_write(w, block, (size_t)some * pst_dtype_bytes(a->dtype));
        if (rc == PST_OK)
            rc = pst_progress_add(j->progress, (uint64_t)some);
    }
    return rc;
}

static pst_rc permute_ids(const struct pst_permute_job *j, enum pst_array_id id)
{
    const struct pst_array *a = pst_manifest_dataset_array((struct pst_dataset *)j->ds, id);
    struct pst_array_writer w = {.fd = -1};
    pst_progress_begin(j->progress, pst_array_id_name(id), a->data_bytes / pst_dtype_bytes(a->dtype), false);
    pst_rc rc = pst_build_array(j->b, id, a->dtype, a->rank, a->shape, &w);
    if (rc == PST_OK)
        rc = put_ids(j, a, &w);
    if (rc == PST_OK)
        rc = pst_build_array_end(j->b, id, &w);
    if (rc == PST_OK)
        pst_progress_end(j->progress);
    pst_array_writer_release(&w);
    return rc;
}

static pst_rc permute_splits(const struct pst_permute_job *j, const struct pst_manifest *from)
{
    const struct pst_dataset *ds = j->ds;
    struct pst_manifest *m = &j->b->manifest;
    pst_rc rc = from->splits > 0 ? pst_manifest_splits(m, from->splits) : PST_OK;
    for (int k = 0; k < from->splits && rc == PST_OK; k++) {
        memcpy(m->split[k].name, from->split[k].name, sizeof m->split[k].name);
        for (int part = 0; part < 3 && k > 0 && rc == PST_OK; part++) {
            const struct pst_array *a = &ds->named_split[k].ids[part];
            struct pst_array_writer w = {.fd = -1};
            if (a->map == NULL)
                continue;
            rc = pst_build_split(j->b, k, part, a->shape[0], &w);
            if (rc == PST_OK)
                rc = put_ids(j, a, &w);
            if (rc == PST_OK)
                rc = pst_build_split_end(j->b, k, part, &w);
            pst_array_writer_release(&w);
        }
    }
    return rc;
}

/* Relative to the dataset that was the first to be reordered. */
static pst_rc write_old_ids(const struct pst_permute_job *j)
{
    const int64_t n = j->ds->vertices, *before = j->ds->old_ids.map;
    int64_t block[BLOCK];
    struct pst_array_writer w = {.fd = -1};
    pst_rc rc = pst_build_array(j->b, PST_ARRAY_OLD_IDS, PST_I64, 1, (int64_t[2]){n, 1}, &w);
    for (int64_t i = 0; i < n && rc == PST_OK; i += BLOCK) {
        const int64_t some = pst_min_i64(BLOCK, n - i);
        for (int64_t k = 0; k < some; k++)
            block[k] = before != NULL ? before[j->spec->old_of[i + k]] : j->spec->old_of[i + k];
        rc = pst_array_write(&w, block, (size_t)some * sizeof *block);
    }
    if (rc == PST_OK)
        rc = pst_build_array_end(j->b, PST_ARRAY_OLD_IDS, &w);
    pst_array_writer_release(&w);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static pst_rc permute_one(const struct pst_permute_job *j, const struct pst_manifest *from,
                          enum pst_array_id id)
{
    switch (id) {
    case PST_ARRAY_INDPTR:
    case PST_ARRAY_RELATIONS:
    case PST_ARRAY_EDGE_WEIGHTS:
    case PST_ARRAY_EDGE_TIMES: return PST_OK; /* with the indices */
    case PST_ARRAY_INDICES: return pst_permute_edges(j);
    case PST_ARRAY_FEATURES: return PST_OK; /* those of types, too: after all others */
    case PST_ARRAY_LABELS:
    case PST_ARRAY_IDS:
    case PST_ARRAY_MULTILABELS:
    case PST_ARRAY_TARGETS:
    case PST_ARRAY_VERTEX_TIMES: return pst_permute_array(j, id);
    case PST_ARRAY_TRAIN:
    case PST_ARRAY_VAL:
    case PST_ARRAY_TEST:
    case PST_ARRAY_TRIPLES_TRAIN:
    case PST_ARRAY_TRIPLES_VAL:
    case PST_ARRAY_TRIPLES_TEST:
    case PST_ARRAY_EDGES_TRAIN:
    case PST_ARRAY_EDGES_VAL:
    case PST_ARRAY_EDGES_TEST:
    case PST_ARRAY_NEGATIVES_VAL:
    case PST_ARRAY_NEGATIVES_TEST: return permute_ids(j, id);
    case PST_ARRAY_NAMES_AT: return PST_OK; /* with the names */
    case PST_ARRAY_NAMES: return pst_permute_names(j);
    case PST_ARRAY_RELATION_NAMES_AT:
    case PST_ARRAY_RELATION_NAMES: return pst_derive_adopt(j->b, from, j->ds->dir, id);
    case PST_ARRAY_OLD_IDS: return PST_OK; /* every reordered dataset gets some */
    case PST_ARRAY_COUNT: break;
    }
    return pst_fail(PST_E_UNSUPPORTED, "%s has the array %s, which `penstock reorder` cannot carry",
                    j->ds->dir, pst_array_id_name(id));
}

static pst_rc note_counts(struct pst_build *b, const struct pst_manifest *from)
{
    struct pst_manifest *m = &b->manifest;
    memcpy(m->name, from->name, sizeof m->name);
    m->vertices = from->vertices;
    m->edges = from->edges;
    m->classes = from->classes;
    m->relations = from->relations;
    if (from->vertex_types == 0)
        return PST_OK;
    const pst_rc rc = pst_manifest_types(m, from->vertex_types, from->edge_types);
    for (int k = 0; k < from->vertex_types && rc == PST_OK; k++) {
        memcpy(m->vertex_type[k].name, from->vertex_type[k].name, sizeof m->vertex_type[k].name);
        m->vertex_type[k].vertices = from->vertex_type[k].vertices;
    }
    if (rc == PST_OK)
        memcpy(m->edge_type, from->edge_type, (size_t)m->edge_types * sizeof *m->edge_type);
    return rc;
}

pst_rc pst_permute(const struct pst_dataset *ds, struct pst_build *b, const struct pst_permute_spec *spec,
                   struct pst_progress *progress)
{
    const struct pst_permute_job j = {.ds = ds, .b = b, .spec = spec, .progress = progress};
    struct pst_problems problems = {.count = 0};
    struct pst_manifest from;
    pst_manifest_read(&from, ds->dir, &problems);
    pst_rc rc = pst_problems_result(&problems, ds->dir);
    if (rc == PST_OK)
        rc = note_counts(b, &from);
    for (unsigned id = 0; id < PST_ARRAY_COUNT && rc == PST_OK; id++)
        if (from.array[id].present)
            rc = permute_one(&j, &from, id);
    if (rc == PST_OK)
        rc = permute_splits(&j, &from);
    if (rc == PST_OK)
        rc = write_old_ids(&j);
    if (rc == PST_OK)
        rc = pst_permute_features(&j);
    pst_manifest_release(&from);
    return rc;
}

pst_rc pst_permute_note(const struct pst_dataset *ds, struct pst_build *b, json_t *how)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest from;
    pst_manifest_read(&from, ds->dir, &problems);
    const pst_rc rc = pst_problems_result(&problems, ds->dir);
    json_t *origin = from.provenance != NULL ? json_deep_copy(from.provenance) : json_object();
    (void)json_object_set_new(how, "source", json_string(ds->dir));
    (void)json_object_set_new(how, "digest", json_string(ds->digest));
    (void)json_object_set_new(origin, "reordered", how);
    json_decref(b->manifest.provenance);
    b->manifest.provenance = origin;
    pst_manifest_release(&from);
    return rc;
}
