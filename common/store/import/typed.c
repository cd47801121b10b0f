/* typed.c: imports a graph of several types of vertices and edges. */
#include "common/store/import/typed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/import/importing.h"
#include "common/store/text/text_array.h"

static const char what_failed[] = "cannot import";

/* ---- counts ---- */

/* One type's features, opened and checked as those of a plain graph are. */
static pst_rc open_features(const struct pst_typed *t, int type, struct pst_import_spec *spec,
                            struct pst_import_state *im)
{
    const struct pst_typed_vertices *v = &t->vertex[type];
    pst_import_defaults(spec);
    memcpy(spec->source[PST_IMPORT_FEATURES], v->features, sizeof v->features);
    memcpy(spec->told_as[PST_IMPORT_FEATURES], v->told_as, sizeof v->told_as);
    spec->raw[PST_IMPORT_FEATURES] = v->raw;
    spec->vertices = v->vertices;
    spec->normalize = t->job->spec.normalize;
    spec->stride_bytes = t->job->spec.stride_bytes != 0 ? t->job->spec.stride_bytes : v->stride_bytes;
    im->spec = spec;
    im->warnings = &t->job->result->warnings;
    pst_import_open(im);
    if (im->problems.count == 0)
        pst_import_counts(im);
    return pst_problems_result(&im->problems, what_failed);
}

/* write: makes features_K.npy; else only looks, and learns how many vertices there are. */
static pst_rc each_features(struct pst_typed *t, bool write)
{
    struct pst_import_spec *spec = calloc(1, sizeof *spec);
    struct pst_import_state *im = calloc(1, sizeof *im);
    pst_rc rc = spec != NULL && im != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot import");
    for (int k = 0; k < t->vertex_types && rc == PST_OK; k++) {
        if (t->vertex[k].features[0] == '\0')
            continue;
        memset(im, 0, sizeof *im);
        rc = open_features(t, k, spec, im);
        if (rc == PST_OK)
            t->vertex[k].vertices = im->vertices;
        if (rc == PST_OK && write)
            rc = pst_import_features(im, t->job->build, k, t->job->progress);
        pst_array_close(&im->src[PST_IMPORT_FEATURES]);
    }
    free(im);
    free(spec);
    return rc;
}

static pst_rc open_edges(const struct pst_typed *t, int k, struct pst_array *a,
                         struct pst_import_edge_array *out)
{
    const struct pst_typed_edges *e = &t->edge[k];
    const struct pst_import_spec *spec = &t->job->spec;
    enum pst_import_edge_shape shape = e->tall                              ? PST_EDGES_EX2
                                       : spec->edge_shape == PST_EDGES_AUTO ? t->shape
                                                                            : spec->edge_shape;
    struct pst_problems problems = {.count = 0};
    pst_rc rc = pst_array_open_edges(a, e->path);
    if (rc != PST_OK)
        return rc;
    if (e->told_as[0] != '\0')
        memcpy(a->path, e->told_as, sizeof a->path);
    if (!pst_dtype_is_integer(a->dtype))
        pst_problem(&problems, "%s: expected " PST_IMPORT_INTEGERS ", found %s", a->path,
                    pst_dtype_name(a->dtype));
    if (a->rank != 2 || a->shape[shape == PST_EDGES_2XE ? 0 : 1] != 2)
        pst_import_wrong_shape(&problems, a, shape, spec->edge_shape == PST_EDGES_AUTO ? t->format : NULL);
    *out = (struct pst_import_edge_array){
        .a = a,
        .file = e->path,
        .shape = (shape == PST_EDGES_2XE) != a->fortran ? PST_EDGES_2XE : PST_EDGES_EX2,
        .edges = a->shape[shape == PST_EDGES_2XE ? 1 : 0],
        .limit = {t->vertex[e->source].vertices, t->vertex[e->target].vertices},
        .relation = k,
        .relations = t->edge_types};
    return pst_problems_result(&problems, what_failed);
}

static pst_rc largest(void *ctx, const int64_t *source, const int64_t *target, const int32_t *relation,
                      int64_t n)
{
    int64_t *most = ctx;
    (void)relation;
    for (int64_t i = 0; i < n; i++) {
        most[0] = pst_max_i64(most[0], source[i]);
        most[1] = pst_max_i64(most[1], target[i]);
    }
    return PST_OK;
}

/* Types that no file counts: one reading of the edges that touch them. */
static pst_rc count_from_edges(struct pst_typed *t)
{
    int64_t found[PST_MANIFEST_VERTEX_TYPES_MAX] = {0};
    struct pst_problems problems = {.count = 0};
    pst_rc rc = PST_OK;
    for (int k = 0; k < t->edge_types && rc == PST_OK; k++) {
        const struct pst_typed_edges *e = &t->edge[k];
        int64_t most[2] = {-1, -1};
        struct pst_array a;
        struct pst_import_edge_array edges;
        rc = open_edges(t, k, &a, &edges); /* all of them: a wrong one is told before the long work */
        if (rc != PST_OK || (edges.limit[0] >= 0 && edges.limit[1] >= 0))
            continue;
        pst_progress_begin(t->job->progress, "edges: counting", (uint64_t)edges.edges, false);
        rc = pst_import_edge_array_read(&edges, largest, most, &problems, t->job->progress);
        if (rc == PST_OK)
            rc = pst_problems_result(&problems, what_failed);
        if (rc == PST_OK)
            pst_progress_end(t->job->progress);
        found[e->source] = pst_max_i64(found[e->source], most[0] + 1);
        found[e->target] = pst_max_i64(found[e->target], most[1] + 1);
    }
    for (int k = 0; k < t->vertex_types && rc == PST_OK; k++) {
        struct pst_typed_vertices *v = &t->vertex[k];
        if (v->vertices >= 0)
            continue;
        v->vertices = found[k];
        pst_problem(&t->job->result->warnings,
                    "%s: the number of vertices is not given; using %" PRId64
                    ", one more than the largest id in the edges",
                    v->name, v->vertices);
    }
    return rc;
}

/* ---- import ---- */

static pst_rc give(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    struct pst_typed *t = ctx;
    struct pst_problems problems = {.count = 0};
    const struct pst_manifest *m = &t->job->build->manifest;
    int64_t first[PST_MANIFEST_VERTEX_TYPES_MAX], end = 0;
    for (int k = 0; k < t->vertex_types; k++) {
        first[k] = end;
        end += m->vertex_type[k].vertices;
    }
    *vertices = end;
    pst_rc rc = PST_OK;
    for (int k = 0; k < t->edge_types && rc == PST_OK; k++) {
        struct pst_array a;
        struct pst_import_edge_array edges;
        if ((rc = open_edges(t, k, &a, &edges)) != PST_OK)
            break;
        edges.first[0] = first[t->edge[k].source];
        edges.first[1] = first[t->edge[k].target];
        pst_progress_begin(progress, t->edge[k].name, (uint64_t)edges.edges, false);
        rc = pst_import_edge_array_read(&edges, pst_edges_to_csc, csc, &problems, progress);
        if (rc == PST_OK)
            pst_progress_end(progress);
    }
    return rc == PST_OK ? pst_problems_result(&problems, what_failed) : rc;
}

static pst_rc note_types(struct pst_typed *t)
{
    struct pst_import_spec *s = &t->job->spec;
    struct pst_manifest *m = &t->job->build->manifest;
    pst_rc rc = pst_manifest_types(m, t->vertex_types, t->edge_types);
    s->vertices = 0;
    for (int k = 0; k < t->vertex_types && rc == PST_OK; k++) {
        memcpy(m->vertex_type[k].name, t->vertex[k].name, sizeof t->vertex[k].name);
        m->vertex_type[k].vertices = t->vertex[k].vertices;
        if (k == t->labelled) {
            s->target_first = s->vertices;
            s->target_vertices = t->vertex[k].vertices;
        }
        s->vertices += t->vertex[k].vertices;
    }
    for (int k = 0; k < t->edge_types && rc == PST_OK; k++) {
        memcpy(m->edge_type[k].name, t->edge[k].name, sizeof t->edge[k].name);
        m->edge_type[k].source = t->edge[k].source;
        m->edge_type[k].target = t->edge[k].target;
    }
    return rc;
}

static pst_rc import_plain(struct pst_typed *t)
{
    struct pst_import_spec *s = &t->job->spec;
    const struct pst_typed_vertices *v = &t->vertex[0];
    const struct pst_typed_edges *e = &t->edge[0];
    bool csv = e->csv && s->source[PST_IMPORT_EDGES][0] == '\0';
    if (!csv && s->source[PST_IMPORT_EDGES][0] == '\0') {
        memcpy(s->source[PST_IMPORT_EDGES], e->path, sizeof e->path);
        memcpy(s->told_as[PST_IMPORT_EDGES], e->told_as, sizeof e->told_as);
        s->shape_by = s->edge_shape == PST_EDGES_AUTO ? t->format : NULL;
        s->edge_shape = s->edge_shape == PST_EDGES_AUTO ? t->shape : s->edge_shape;
    }
    if (s->source[PST_IMPORT_FEATURES][0] == '\0' && s->source[PST_IMPORT_FEAT_INDPTR][0] == '\0' &&
        !t->job->skip[PST_IMPORT_FEATURES]) {
        memcpy(s->source[PST_IMPORT_FEATURES], v->features, sizeof v->features);
        memcpy(s->told_as[PST_IMPORT_FEATURES], v->told_as, sizeof v->told_as);
        s->raw[PST_IMPORT_FEATURES] = v->raw;
    }
    if (s->vertices < 0)
        s->vertices = v->vertices;
    if (csv) {
        t->job->text.by = PST_EDGE_TEXT_BY_CHARACTER;
        t->job->text.separator = ',';
        t->job->text.header = PST_EDGE_TEXT_HEADER_NO;
        return pst_import_edge_text(t->job, e->path);
    }
    return pst_import(s, t->job->build, t->job->result, t->job->progress);
}

static pst_rc check_options(const struct pst_typed *t)
{
    const struct pst_import_spec *s = &t->job->spec;
    if (s->symmetrize || s->transpose || s->self_loops != PST_LOOPS_KEEP)
        return pst_fail(PST_E_ARG, "--symmetrize, --transpose and --self-loops cannot be used with several "
                                   "edge types, because each has a direction: import one type with --types");
    if (s->link)
        return pst_fail(PST_E_ARG,
                        "--link cannot be used with several vertex types: import one type with --types");
    for (unsigned i = PST_IMPORT_EDGES; i <= PST_IMPORT_FEAT_DATA; i++)
        if (s->source[i][0] != '\0')
            return pst_fail(PST_E_ARG,
                            "%s cannot be used with a graph of several types, which has a file for each type",
                            pst_import_source_option(i));
    return PST_OK;
}

/* Lines of text to an array beside the dataset: edges of several types are read by number, not by line. */
static pst_rc make_arrays(struct pst_typed *t)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < t->edge_types && rc == PST_OK; k++) {
        struct pst_typed_edges *e = &t->edge[k];
        char name[32];
        if (!e->csv)
            continue;
        memcpy(e->told_as, e->path, sizeof e->path);
        (void)snprintf(name, sizeof name, "edges%d", k);
        pst_build_temp(t->job->build, name, e->path);
        const struct pst_text_array_spec spec = {
            .path = e->told_as,
            .to = e->path,
            .integers = true,
            .may_be_empty = true, /* a type of edges that there are none of */
            .limit = pst_max_i64(t->vertex[e->source].vertices, t->vertex[e->target].vertices),
            .rows = e->counted ? e->edges : -1,
            .columns = 2};
        rc = pst_text_array(&spec, NULL, t->job->progress);
        e->tall = true;
    }
    return rc;
}

pst_rc pst_typed_import(struct pst_typed *t)
{
    if (pst_typed_is_plain(t))
        return import_plain(t);
    struct pst_import_spec *s = &t->job->spec;
    pst_rc rc = check_options(t);
    if (rc == PST_OK)
        rc = each_features(t, false);
    if (rc == PST_OK)
        rc = make_arrays(t);
    if (rc == PST_OK)
        rc = count_from_edges(t);
    if (rc == PST_OK)
        rc = note_types(t);
    if (rc != PST_OK)
        return rc;
    s->feed = give;
    s->feed_ctx = t;
    s->relations = t->edge_types;
    rc = pst_import(s, t->job->build, t->job->result, t->job->progress);
    return rc == PST_OK ? each_features(t, true) : rc;
}
