/* import.c: makes a dataset from checked arrays: edges, features, labels, splits. */
#include "common/store/import/import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/importing.h"

static const char what_failed[] = "cannot import";

/* Opens everything, and looks at all but edges and feature values, which are checked as they stream. */
static pst_rc check_all(struct pst_import_state *im)
{
    pst_import_open(im);
    if (im->problems.count == 0)
        pst_import_counts(im);
    pst_rc rc = pst_problems_result(&im->problems, what_failed);
    if (rc == PST_OK && pst_import_has(im, PST_IMPORT_LABELS))
        rc = pst_import_read_labels(im);
    return rc;
}

/* Opens what tables were made into. */
static pst_rc check_tables(struct pst_import_state *im, struct pst_build *b, struct pst_progress *progress)
{
    const bool labels = pst_import_has(im, PST_IMPORT_LABELS);
    if (!pst_import_has_tables(im->spec))
        return PST_OK;
    pst_rc rc = pst_import_read_tables(im, b, progress);
    if (rc != PST_OK)
        return rc;
    pst_import_open(im);
    if (im->problems.count == 0)
        pst_import_counts(im);
    rc = pst_problems_result(&im->problems, what_failed);
    if (rc == PST_OK && !labels && pst_import_has(im, PST_IMPORT_LABELS))
        rc = pst_import_read_labels(im);
    b->manifest.classes = im->classes;
    return rc;
}

/* What can only be looked at when the edges have told how many vertices there are. */
static pst_rc check_rest(struct pst_import_state *im)
{
    pst_import_check_splits(im);
    if (pst_import_has(im, PST_IMPORT_FEAT_INDPTR))
        pst_import_check_csr(im);
    return pst_problems_result(&im->problems, what_failed);
}

static pst_rc write_topology(struct pst_import_state *im, struct pst_build *b,
                             struct pst_import_result *result, struct pst_progress *progress)
{
    struct pst_csc_builder *csc;
    const struct pst_import_spec *s = im->spec;
    const struct pst_csc_builder_spec spec = {.build = b,
                                              .symmetrize = s->symmetrize,
                                              .dedupe = s->dedupe,
                                              .transpose = s->transpose,
                                              .relations = im->relations > 0,
                                              .weights =
                                                  s->weights || pst_import_has(im, PST_IMPORT_EDGE_WEIGHTS),
                                              .times = pst_import_has(im, PST_IMPORT_EDGE_TIMES),
                                              .loop_weight = s->loop_weight > 0 ? (float)s->loop_weight : 0,
                                              .self_loops = s->self_loops,
                                              .memory_bytes = s->memory_bytes,
                                              .threads = s->threads,
                                              .resumable = s->feed == NULL || s->feed_resumes,
                                              .replays = s->feed_replays};
    pst_rc rc = pst_csc_builder_new(&csc, &spec);
    if (rc == PST_OK)
        rc = s->feed != NULL ? s->feed(s->feed_ctx, csc, &im->vertices, progress)
                             : pst_import_feed(im, csc, progress);
    if (rc == PST_OK && im->vertices < 0)
        im->vertices = pst_csc_builder_largest(csc) + 1;
    if (rc == PST_OK)
        rc = check_tables(im, b, progress);
    if (rc == PST_OK)
        rc = check_rest(im);
    if (rc == PST_OK)
        rc = pst_csc_builder_finish(csc, im->vertices, progress);
    if (csc != NULL)
        result->counts = *pst_csc_builder_counts(csc);
    pst_csc_builder_free(csc);
    return rc;
}

static void note_manifest(const struct pst_import_state *im, struct pst_build *b)
{
    static const char *const loops[] = {"keep", "add", "remove"}, *const norms[] = {"none", "l1", "l2"};
    const struct pst_import_spec *s = im->spec;
    memcpy(b->manifest.name, s->name, sizeof b->manifest.name);
    b->manifest.classes = im->classes;
    b->manifest.relations = im->relations;
    json_t *files = json_object();
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        if (s->source[i][0] != '\0' && strncmp(s->source[i], b->partial, strlen(b->partial)) != 0)
            (void)json_object_set_new(files, pst_import_source_option(i) + 2, json_string(s->source[i]));
        else if (s->source[i][0] != '\0' && s->told_as[i][0] != '\0')
            (void)json_object_set_new(files, pst_import_source_option(i) + 2, json_string(s->told_as[i]));
    b->manifest.provenance = json_pack(
        "{s:s, s:o, s:{s:b, s:b, s:b, s:s, s:s}}", "command", s->command != NULL ? s->command : "", "sources",
        files, "parameters", "symmetrize", s->symmetrize, "dedupe", s->dedupe, "transpose", s->transpose,
        "self_loops", loops[s->self_loops], "normalize", norms[s->normalize]);
}

pst_rc pst_import(const struct pst_import_spec *spec, struct pst_build *b, struct pst_import_result *result,
                  struct pst_progress *progress)
{
    struct pst_import_state *im = calloc(1, sizeof *im); /* 60 KiB of paths and text: not for the stack */
    if (im == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot import");
    im->own = *spec;
    im->spec = &im->own;
    im->warnings = &result->warnings;
    im->relations = spec->relations;
    pst_rc rc = check_all(im);
    if (rc == PST_OK && im->shape == PST_EDGES_EX3 && im->relations == 0)
        rc = pst_import_count_relations(im, progress);
    if (rc != PST_OK)
        goto out;
    note_manifest(im, b);
    if ((rc = write_topology(im, b, result, progress)) != PST_OK)
        goto out;
    if (im->classes > 0 &&
        (rc = pst_build_array_from(b, PST_ARRAY_LABELS, PST_I32, im->vertices, im->labels)) != PST_OK)
        goto out;
    if ((rc = pst_import_write_splits(im, b)) != PST_OK)
        goto out;
    rc = pst_import_features(im, b, -1, progress);
out:
    for (unsigned i = 0; i < PST_IMPORT_SOURCES; i++)
        pst_array_close(&im->src[i]);
    pst_import_close_splits(im);
    free(im->labels);
    free(im);
    return rc;
}
