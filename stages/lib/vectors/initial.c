/* initial.c: compares two datasets, and copies rows. */
#include "stages/lib/vectors/initial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* ---- the same vertices ----------------------------------------------------------------------------- */

/* The first of n names that differs; -1: none does. */
static int64_t other_name(const struct pst_array at[2], const struct pst_array names[2], int64_t n)
{
    const int64_t *a = at[0].map, *b = at[1].map;
    for (int64_t i = 0; i < n && a && b; i++) {
        const int64_t bytes = a[i + 1] - a[i];
        if (bytes != b[i + 1] - b[i] ||
            memcmp((const char *)names[0].map + a[i], (const char *)names[1].map + b[i], (size_t)bytes) != 0)
            return i;
    }
    return !a == !b ? -1 : 0;
}

static int64_t other_id(const struct pst_array ids[2], int64_t n)
{
    const int64_t *a = ids[0].map, *b = ids[1].map;
    for (int64_t i = 0; i < n && a && b; i++)
        if (a[i] != b[i])
            return i;
    return !a == !b ? -1 : 0;
}

static pst_rc compare_names(const struct pst_dataset *old, const struct pst_dataset *ds)
{
    int64_t v = other_name((struct pst_array[]){old->names_at, ds->names_at},
                           (struct pst_array[]){old->names, ds->names}, old->vertices);
    if (v < 0)
        v = other_id((struct pst_array[]){old->ids, ds->ids}, old->vertices);
    if (v >= 0)
        return pst_fail(PST_E_ARG,
                        "vertex %" PRId64
                        " has another name in %s than in %s; expected the same vertices, in "
                        "the same order, and new ones after them",
                        v, ds->dir, old->dir);
    if (old->relations > ds->relations)
        return pst_fail(PST_E_ARG, "%s has %" PRId64 " relations, but %s has only %" PRId64, old->dir,
                        old->relations, ds->dir, ds->relations);
    const int64_t r =
        other_name((struct pst_array[]){old->relation_names_at, ds->relation_names_at},
                   (struct pst_array[]){old->relation_names, ds->relation_names}, old->relations);
    return r < 0 ? PST_OK
                 : pst_fail(PST_E_ARG,
                            "relation %" PRId64 " has another name in %s than in %s; expected the same "
                            "relations, in the same order, and new ones after them",
                            r, ds->dir, old->dir);
}

/* The other run's dataset is this one, or its names are the first ones of this one. */
static pst_rc compare_datasets(const struct pst_vectors_initial *o, const char *run,
                               const struct pst_dataset *ds)
{
    struct pst_dataset old;
    char dir[PST_PATH_MAX];
    const char *digest = pst_checkpoint_text(&o->reader.ck, "dataset");
    if (digest && strcmp(digest, ds->digest) == 0)
        return PST_OK;
    pst_rc rc = pst_wrap(
        pst_vectors_reader_dataset(run, dir),
        "that run was trained on another dataset than %s, and the vertices of the two cannot be compared",
        ds->dir);
    if (rc == PST_OK)
        rc = pst_dataset_open(&old, dir);
    if (rc != PST_OK)
        return rc;
    if (!digest || strcmp(digest, old.digest) != 0)
        rc = pst_fail(PST_E_ARG, "%s has changed since %s was trained on it", old.dir, run);
    else
        rc = compare_names(&old, ds);
    pst_dataset_close(&old);
    return rc;
}

pst_rc pst_vectors_initial_open(struct pst_vectors_initial *o, const char *run, const struct pst_dataset *ds,
                                int64_t dim)
{
    pst_rc rc = pst_vectors_reader_open(&o->reader, run, false);
    if (rc != PST_OK)
        return pst_wrap(rc, "init_from %s", run);
    if (o->reader.dim != dim)
        rc = pst_fail(PST_E_ARG,
                      "the embeddings of that run have %" PRId64 " floats; expected %" PRId64
                      ", the parameter dim of this run",
                      o->reader.dim, dim);
    else if (o->reader.vertices > ds->vertices)
        rc = pst_fail(PST_E_ARG, "that run has %" PRId64 " vertices, but %s has only %" PRId64,
                      o->reader.vertices, ds->dir, ds->vertices);
    else
        rc = compare_datasets(o, run, ds);
    o->open = true;
    if (rc == PST_OK)
        return PST_OK;
    pst_vectors_initial_close(o);
    return pst_wrap(rc, "init_from %s", run);
}

void pst_vectors_initial_close(struct pst_vectors_initial *o)
{
    if (o->open)
        pst_vectors_reader_close(&o->reader);
    o->open = false;
}

pst_rc pst_vectors_initial_same(const struct pst_vectors_initial *o, const char *checkpoint)
{
    struct pst_checkpoint ck;
    uint64_t then = 0;
    pst_rc rc = pst_checkpoint_open(&ck, checkpoint);
    if (rc != PST_OK)
        return rc;
    rc = pst_checkpoint_u64(&ck, "initial", &then);
    pst_checkpoint_close(&ck);
    if (rc != PST_OK || then == o->reader.next_batch)
        return rc;
    return pst_fail(PST_E_STATE,
                    "%s: the run began with the checkpoint of batch %" PRIu64
                    " of the run init_from, but the "
                    "newest one there is now of batch %" PRIu64 "; start the run again",
                    checkpoint, then, o->reader.next_batch);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

pst_rc pst_vectors_initial_all(const struct pst_vectors_initial *o, struct pst_vectors *v)
{
    const struct pst_vectors_reader *r = &o->reader;
    const size_t row = (size_t)r->dim * sizeof(pst_real);
    char *block = malloc(pst_vectors_reader_room(r));
    if (!block)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %" PRIu64 " bytes of embeddings at a time",
                        pst_vectors_reader_room(r));
    pst_rc rc = PST_OK;
    for (int64_t b = 0; b < pst_vectors_reader_blocks(r) && rc == PST_OK; b++) {
        int64_t n = 0;
        rc = pst_vectors_reader_read(r, b, block, &n);
        for (int64_t i = 0; i < n && v && rc == PST_OK; i++)
            memcpy(pst_vectors_rows(v, 0) + pst_vectors_reader_vertex(r, b, i) * v->dim,
                   block + (size_t)i * row, row);
    }
    free(block);
    return rc;
}

pst_rc pst_vectors_initial_part(const struct pst_vectors_initial *o, struct pst_vectors *v, int block,
                                int partition)
{
    pst_real *rows = (pst_real *)(void *)pst_vectors_image(v, block);
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < pst_vectors_used(v, partition) && rc == PST_OK; i++) {
        const int64_t vertex = pst_parts_vertex(v->parts, partition * v->block_rows + i);
        if (vertex < o->reader.vertices)
            rc = pst_vectors_reader_row(&o->reader, vertex, rows + i * v->dim);
    }
    return rc;
}

static pst_rc copy_relations(const struct pst_vectors_reader *r, const struct pst_embed_plan *plan,
                             pst_real *rows)
{
    const int64_t d = pst_embed_relation_floats(plan), sides = plan->inverse ? 2 : 1;
    const int64_t known = r->relations / sides;
    if (strcmp(r->model, plan->model->name) != 0 || r->inverse != plan->inverse)
        return pst_fail(PST_E_ARG,
                        "the model of that run is \"%s\" with inverse %s; expected \"%s\" with inverse %s, "
                        "as in this run",
                        r->model, r->inverse ? "true" : "false", plan->model->name,
                        plan->inverse ? "true" : "false");
    if (d == 0)
        return PST_OK;
    if (r->relation_dim != d || known > plan->relations)
        return pst_fail(PST_E_ARG,
                        "that run has %" PRId64 " relations of %" PRId64 " floats; expected at most %" PRId64
                        " relations, of %" PRId64 " floats",
                        known, r->relation_dim, plan->relations, d);
    pst_real *all = calloc((size_t)(r->relations * d) + 1, sizeof *all);
    if (!all)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %" PRId64 " relations", r->relations);
    const pst_rc rc = pst_vectors_reader_relations(r, all);
    for (int64_t side = 0; side < sides && rc == PST_OK; side++)
        memcpy(rows + side * plan->relations * d, all + side * known * d, (size_t)(known * d) * sizeof *all);
    free(all);
    return rc;
}

pst_rc pst_vectors_initial_relations(const char *run, const struct pst_embed_plan *plan, pst_real *rows)
{
    struct pst_vectors_reader r;
    pst_rc rc = pst_vectors_reader_open(&r, run, false);
    if (rc == PST_OK) {
        rc = copy_relations(&r, plan, rows);
        pst_vectors_reader_close(&r);
    }
    return rc == PST_OK ? PST_OK : pst_wrap(rc, "init_from %s", run);
}
