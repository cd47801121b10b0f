#include "import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../error.h"
#include "import_parts.h"

static pst_rc give_edges(void *ctx, int64_t first, int64_t count, int64_t *source, int64_t *target)
{
    const struct pst_importing *im = ctx;
    const struct pst_array *a = &im->src[PST_SRC_EDGES];
    for (int64_t i = 0; i < count; i++) {
        int64_t e = first + i;
        source[i] = pst_int_at(a, im->edges_2xe ? e : 2 * e);
        target[i] = pst_int_at(a, im->edges_2xe ? im->edges + e : 2 * e + 1);
        /* Checked before; checked again because the file may have changed under the mapping. */
        if (source[i] < 0 || source[i] >= im->vertices || target[i] < 0 || target[i] >= im->vertices)
            return pst_fail(PST_E_FORMAT, "%s: edge %" PRId64 " changed while it was read", a->path, e);
    }
    return PST_OK;
}

/* Opens and looks at everything before the first byte is written. */
static pst_rc check_all(struct pst_importing *im)
{
    static const char what[] = "cannot import";
    pst_import_open(im);
    if (im->problems.count == 0)
        pst_import_counts(im);
    pst_rc rc = pst_problems_result(&im->problems, what);
    if (rc == PST_OK && pst_has(im, PST_SRC_LABELS))
        rc = pst_import_read_labels(im);
    if (rc != PST_OK)
        return rc;
    pst_import_check_edges(im);
    pst_import_check_splits(im);
    if (pst_has(im, PST_SRC_FEAT_INDPTR))
        pst_import_check_csr(im);
    return pst_problems_result(&im->problems, what);
}

static pst_rc write_topology(struct pst_importing *im, struct pst_build *b, struct pst_import_result *result,
                             struct pst_progress *progress)
{
    struct pst_topology t;
    const struct pst_topology_spec spec = {.vertices = im->vertices,
                                           .edges = im->edges,
                                           .fn = give_edges,
                                           .ctx = im,
                                           .symmetrize = im->spec->symmetrize,
                                           .dedupe = im->spec->dedupe,
                                           .self_loops = im->spec->self_loops,
                                           .memory_bytes = im->spec->memory_bytes};
    pst_rc rc = pst_topology_build(&t, &spec, progress);
    if (rc == PST_OK)
        rc = pst_topology_write(&t, b);
    result->duplicates_removed = t.duplicates_removed;
    result->loops_removed = t.loops_removed;
    result->loops_added = t.loops_added;
    pst_topology_release(&t);
    return rc;
}

static pst_rc write_split(const struct pst_array *a, enum pst_array_id id, struct pst_build *b)
{
    if (a->shape[0] == 0)
        return PST_OK;
    int64_t *ids = malloc((size_t)a->shape[0] * sizeof *ids);
    if (ids == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for %" PRId64 " ids of %s", a->shape[0], a->path);
    for (int64_t i = 0; i < a->shape[0]; i++)
        ids[i] = pst_int_at(a, i);
    pst_rc rc = pst_build_array_from(b, id, PST_I64, a->shape[0], ids);
    free(ids);
    return rc;
}

static void note_manifest(const struct pst_importing *im, struct pst_build *b)
{
    static const char *const loops[] = {"keep", "add", "remove"}, *const norms[] = {"none", "l1", "l2"};
    const struct pst_import_spec *s = im->spec;
    memcpy(b->manifest.name, s->name, sizeof b->manifest.name);
    b->manifest.classes = im->classes;
    json_t *files = json_object();
    for (unsigned i = 0; i < PST_SOURCES; i++)
        if (s->source[i][0] != '\0')
            (void)json_object_set_new(files, pst_source_option(i) + 2, json_string(s->source[i]));
    b->manifest.provenance =
        json_pack("{s:s, s:o, s:{s:b, s:b, s:s, s:s}}", "command", s->command != NULL ? s->command : "",
                  "sources", files, "parameters", "symmetrize", s->symmetrize, "dedupe", s->dedupe,
                  "self_loops", loops[s->self_loops], "normalize", norms[s->normalize]);
}

pst_rc pst_import(const struct pst_import_spec *spec, struct pst_build *b, struct pst_import_result *result,
                  struct pst_progress *progress)
{
    struct pst_importing *im = calloc(1, sizeof *im); /* 60 KiB of paths and text: not for the stack */
    if (im == NULL)
        return pst_fail(PST_E_NOMEM, "no memory to import");
    *result = (struct pst_import_result){.duplicates_removed = 0};
    im->spec = spec;
    im->warnings = &result->warnings;
    pst_rc rc = check_all(im);
    if (rc != PST_OK)
        goto out;
    note_manifest(im, b);
    if ((rc = write_topology(im, b, result, progress)) != PST_OK)
        goto out;
    if (im->classes > 0 &&
        (rc = pst_build_array_from(b, PST_IN_LABELS, PST_I32, im->vertices, im->labels)) != PST_OK)
        goto out;
    for (unsigned i = 0; i < 3; i++)
        if (pst_has(im, PST_SRC_TRAIN + i) &&
            (rc = write_split(&im->src[PST_SRC_TRAIN + i], PST_IN_TRAIN + i, b)) != PST_OK)
            goto out;
    rc = pst_import_features(im, b, progress);
out:
    for (unsigned i = 0; i < PST_SOURCES; i++)
        pst_array_close(&im->src[i]);
    free(im->labels);
    free(im);
    return rc;
}
