/* whole.c: new numbers with which the vertices of each part are neighbours. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/make/shuffle.h"
#include "common/store/parted/parted_impl.h"
#include "common/store/reorder/permute.h"

#define HASH_STREAM 0

static int8_t part_of(int64_t place, int64_t vertices, int parts)
{
    int k = (int)((__int128)place * parts / vertices);
    while (place >= pst_parted_begin(vertices, parts, k + 1))
        k++;
    return (int8_t)k;
}

void pst_parted_range(int8_t *part, int64_t vertices, int parts)
{
    for (int64_t v = 0; v < vertices; v++)
        part[v] = part_of(v, vertices, parts);
}

void pst_parted_hash(int8_t *part, int64_t vertices, int parts, uint64_t seed)
{
    struct pst_shuffle shuffle;
    pst_shuffle_init(&shuffle, vertices, seed, HASH_STREAM);
    for (int64_t v = 0; v < vertices; v++)
        part[v] = part_of(pst_shuffle_at(&shuffle, v), vertices, parts);
}

/* How its manifest says that it was made for parts. */
static bool was_made_here(const struct pst_manifest *m)
{
    return json_is_integer(json_object_get(json_object_get(m->provenance, "reordered"), "parts"));
}

pst_rc pst_parted_check_whole(const struct pst_dataset *ds, const char *path)
{
    struct pst_problems problems = {.count = 0};
    struct stat from, to;
    struct pst_manifest m;
    char manifest[PST_PATH_MAX];
    if ((size_t)snprintf(manifest, sizeof manifest, "%s/dataset.json", path) >= sizeof manifest)
        return pst_fail(PST_E_ARG, "the path of the directory of parts is too long: %s", path);
    if (access(manifest, F_OK) != 0)
        return PST_OK;
    if (stat(ds->dir, &from) == 0 && stat(path, &to) == 0 && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return pst_fail(PST_E_STATE,
                        "%s is the dataset that is to be cut: choose another directory for the parts", path);
    pst_manifest_read(&m, path, &problems);
    const bool made = was_made_here(&m);
    pst_manifest_release(&m);
    return made ? PST_OK
                : pst_fail(PST_E_STATE,
                           "%s is a dataset that was not made for parts: choose another directory for the "
                           "parts",
                           path);
}

/* Sorts the vertices by their parts; within a part, they keep their order. */
static pst_rc order(const struct pst_dataset *ds, const struct pst_parted_spec *spec, int64_t *old_of,
                    int64_t *new_of, int64_t first[PST_DATASET_PARTS_MAX + 1])
{
    int64_t next[PST_DATASET_PARTS_MAX] = {0}, sum = 0;
    for (int64_t v = 0; v < ds->vertices; v++) {
        assert(spec->part[v] >= 0 && spec->part[v] < spec->parts);
        next[spec->part[v]]++;
    }
    for (int k = 0; k < spec->parts; k++) {
        const int64_t n = next[k];
        if (n == 0)
            return pst_fail(PST_E_ARG,
                            "part %d of %d would have none of the %" PRId64
                            " vertices of %s: use fewer parts, another seed, or neighbouring numbers "
                            "(--by range)",
                            k, spec->parts, ds->vertices, ds->dir);
        first[k] = next[k] = sum;
        sum += n;
    }
    first[spec->parts] = sum;
    for (int64_t v = 0; v < ds->vertices; v++) {
        new_of[v] = next[spec->part[v]]++;
        old_of[new_of[v]] = v;
    }
    return PST_OK;
}

static pst_rc build(const struct pst_dataset *ds, const char *path, const struct pst_parted_spec *spec,
                    const struct pst_permute_spec *permute, struct pst_progress *progress)
{
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, path, true);
    if (rc != PST_OK)
        return rc;
    b.stripes = ds->stripes;
    rc = pst_permute_note(
        ds, &b,
        json_pack("{ss si sI}", "by", spec->by, "parts", spec->parts, "seed", (json_int_t)spec->seed));
    if (rc == PST_OK)
        rc = pst_permute(ds, &b, permute, progress);
    if (rc == PST_OK)
        rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

pst_rc pst_parted_renumber(const struct pst_dataset *ds, const char *path, const struct pst_parted_spec *spec,
                           int64_t first[PST_DATASET_PARTS_MAX + 1], struct pst_progress *progress)
{
    const size_t bytes = (size_t)ds->vertices * sizeof(int64_t);
    int64_t *old_of = malloc(bytes), *new_of = malloc(bytes);
    pst_rc rc = old_of != NULL && new_of != NULL
                    ? order(ds, spec, old_of, new_of, first)
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot order %" PRId64 " vertices", ds->vertices);
    const struct pst_permute_spec permute = {
        .old_of = old_of, .new_of = new_of, .memory_bytes = spec->memory_bytes};
    if (rc == PST_OK)
        rc = build(ds, path, spec, &permute, progress);
    free(old_of);
    free(new_of);
    return rc;
}
