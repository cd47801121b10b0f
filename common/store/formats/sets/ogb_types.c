/* OGB's layout of graphs of several types (ogb/io/read_graph_raw.py): raw/num-node-dict.csv.gz (names of
 * types, then their counts), raw/triplet-type-list.csv.gz (source, relation, target),
 * raw/relations/SOURCE___RELATION___TARGET/{edge,num-edge-list}.csv.gz, raw/node-feat/TYPE/node-feat.csv.gz,
 * raw/nodetype-has-label.csv.gz, raw/node-label/TYPE/node-label.csv.gz; split/NAME/nodetype-has-split.csv.gz,
 * split/NAME/TYPE/{train,valid,test}.csv.gz. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/formats/sets/ogb_files.h"
#include "common/store/import/importing.h"
#include "common/store/import/typed.h"

#define FIELDS_MAX PST_MANIFEST_VERTEX_TYPES_MAX

/* The lines of a small table; each line has at most FIELDS_MAX fields. */
struct lines {
    char path[4096];
    char *text, *rest;
    int64_t line; /* the number of the present one */
    int fields;
    char *field[FIELDS_MAX];
};

static pst_rc open_lines(struct lines *l, const char *dir, const char *name)
{
    struct pst_text t;
    const char *p, *end;
    *l = (struct lines){.text = NULL};
    if (!pst_ogb_find(dir, name, l->path))
        return pst_fail(PST_E_ARG, "%s: the file is missing", l->path);
    pst_rc rc = pst_text_open(&t, l->path);
    if (rc == PST_OK)
        rc = pst_text_block(&t, &p, &end);
    if (rc == PST_OK) {
        l->text = l->rest = strndup(p, (size_t)(end - p));
        rc = l->text != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "%s: out of memory", l->path);
    }
    pst_text_close(&t);
    return rc;
}

/* False: there are no more lines. Fails: PST_E_LIMIT. */
static pst_rc next_line(struct lines *l, bool *more)
{
    char *line;
    do {
        line = strsep(&l->rest, "\n");
        l->line++;
    } while (line != NULL && (line[0] == '\0' || line[0] == '\r'));
    *more = line != NULL;
    l->fields = 0;
    if (line != NULL)
        line[strcspn(line, "\r")] = '\0';
    for (char *field; line != NULL && (field = strsep(&line, ",")) != NULL; l->field[l->fields++] = field)
        if (l->fields == FIELDS_MAX)
            return pst_fail(PST_E_LIMIT, "%s:%" PRId64 ": more than %d columns", l->path, l->line,
                            FIELDS_MAX);
    return PST_OK;
}

/* Two lines: names, and a value for each. fn is called for each pair. */
typedef pst_rc (*pair_fn)(void *ctx, const struct lines *where, const char *name, const char *value);

static pst_rc each_pair(const char *dir, const char *name, pair_fn fn, void *ctx)
{
    struct lines l;
    char *names[FIELDS_MAX];
    bool more = false;
    pst_rc rc = open_lines(&l, dir, name);
    if (rc == PST_OK)
        rc = next_line(&l, &more);
    const int n = l.fields;
    memcpy(names, l.field, sizeof names);
    if (rc == PST_OK)
        rc = next_line(&l, &more);
    if (rc == PST_OK && (!more || l.fields != n))
        rc = pst_fail(PST_E_FORMAT, "%s: expected a line of names and a line of %d values, found %d", l.path,
                      n, more ? l.fields : 0);
    for (int i = 0; i < n && rc == PST_OK; i++)
        rc = fn(ctx, &l, names[i], l.field[i]);
    if (rc == PST_OK)
        rc = next_line(&l, &more);
    if (rc == PST_OK && more)
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "%s:%" PRId64 ": expected one line of values: this version does not read data sets of "
                      "several graphs",
                      l.path, l.line);
    free(l.text);
    return rc;
}

static pst_rc add_vertices(void *ctx, const struct lines *where, const char *name, const char *value)
{
    struct pst_typed *t = ctx;
    const char *end = value;
    int64_t count;
    int type;
    if (!pst_text_id(&end, &count) || *end != '\0' || count > INT64_MAX / 32)
        return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": expected a count of %s, found '%.64s'", where->path,
                        where->line, name, value);
    pst_rc rc = pst_typed_vertex(t, name, &type);
    if (rc == PST_OK)
        t->vertex[type].vertices = count;
    return rc;
}

static pst_rc add_relation(struct pst_typed *t, const char *raw, const struct lines *l)
{
    const int types = t->vertex_types;
    char dir[4096], path[4096];
    int64_t edges;
    if (l->fields != 3)
        return pst_fail(PST_E_FORMAT,
                        "%s:%" PRId64 ": expected source, relation and target, found %d columns", l->path,
                        l->line, l->fields);
    if ((size_t)snprintf(dir, sizeof dir, "%.3000s/relations/%s___%s___%s", raw, l->field[0], l->field[1],
                         l->field[2]) >= sizeof dir - 64)
        return pst_fail(PST_E_LIMIT, "%s:%" PRId64 ": the names are too long for a path", l->path, l->line);
    if (!pst_ogb_find(dir, "edge", path))
        return pst_fail(PST_E_ARG, "%s: the file is missing, but %s lists these edges", path, l->path);
    pst_rc rc = pst_ogb_count(dir, "num-edge-list", &edges);
    if (rc == PST_OK)
        rc = pst_typed_edge(t, l->field[0], l->field[1], l->field[2], path);
    if (rc != PST_OK)
        return rc;
    if (t->vertex_types > types)
        return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": num-node-dict has no vertex type '%.80s'", l->path,
                        l->line, t->vertex[types].name);
    t->edge[t->edge_types - 1].csv = true;
    t->edge[t->edge_types - 1].counted = edges >= 0;
    t->edge[t->edge_types - 1].edges = edges;
    return PST_OK;
}

static pst_rc add_relations(struct pst_typed *t, const char *raw)
{
    struct lines l;
    bool more = true;
    pst_rc rc = open_lines(&l, raw, "triplet-type-list");
    while (rc == PST_OK && (rc = next_line(&l, &more)) == PST_OK && more)
        rc = add_relation(t, raw, &l);
    if (rc == PST_OK && t->edge_types == 0)
        rc = pst_fail(PST_E_FORMAT, "%s: expected the types of edges, but the file is empty", l.path);
    free(l.text);
    return rc;
}

/* Features of each type that is imported. */
static pst_rc take_features(struct pst_typed *t, const char *raw)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < t->vertex_types && rc == PST_OK && !t->job->skip[PST_IMPORT_FEATURES]; k++) {
        struct pst_typed_vertices *v = &t->vertex[k];
        char dir[4096], name[32];
        (void)snprintf(dir, sizeof dir, "%.3000s/node-feat/%s", raw, v->name);
        if (!pst_ogb_find(dir, "node-feat", v->told_as)) {
            v->told_as[0] = '\0';
            continue;
        }
        (void)snprintf(name, sizeof name, "features%d", k);
        pst_build_temp(t->job->build, name, v->features);
        const struct pst_text_array_spec spec = {
            .path = v->told_as, .to = v->features, .rows = v->vertices, .columns = -1};
        rc = pst_text_array(&spec, NULL, t->job->progress);
    }
    return rc;
}

/* Which of the imported types a table of True and False names: at most one may be. */
struct marked {
    const struct pst_typed *t;
    const char *what; /* "labels" */
    int type;         /* -1: none */
};

static pst_rc mark(void *ctx, const struct lines *where, const char *name, const char *value)
{
    struct marked *m = ctx;
    if (strcmp(value, "True") != 0 && strcmp(value, "False") != 0)
        return pst_fail(PST_E_FORMAT, "%s:%" PRId64 ": %s: expected True or False, found '%.64s'",
                        where->path, where->line, name, value);
    for (int k = 0; k < m->t->vertex_types && value[0] == 'T'; k++) {
        if (strcmp(m->t->vertex[k].name, name) != 0)
            continue;
        if (m->type >= 0)
            return pst_fail(
                PST_E_UNSUPPORTED,
                "%s: the types %s and %s have %s, but a dataset has them for one type: choose types "
                "with --types",
                where->path, m->t->vertex[m->type].name, name, m->what);
        m->type = k;
    }
    return PST_OK;
}

static pst_rc take_labels(struct pst_typed *t, const char *raw)
{
    struct marked labels = {t, "labels", -1};
    char dir[4096], path[4096];
    pst_rc rc = each_pair(raw, "nodetype-has-label", mark, &labels);
    t->labelled = labels.type;
    if (rc != PST_OK || labels.type < 0)
        return rc;
    const struct pst_typed_vertices *v = &t->vertex[labels.type];
    (void)snprintf(dir, sizeof dir, "%.3000s/node-label/%s", raw, v->name);
    if (!pst_ogb_find(dir, "node-label", path))
        return pst_fail(PST_E_ARG, "%s: the file is missing, but nodetype-has-label lists %s", path, v->name);
    return pst_ogb_array(t->job, PST_IMPORT_LABELS, path,
                         (struct pst_text_array_spec){.rows = v->vertices, .columns = 1, .may_be_nan = true});
}

static pst_rc take_splits(struct pst_typed *t)
{
    struct marked split = {t, "splits", -1};
    char dir[4096], of[4096];
    pst_rc rc = pst_ogb_find_split(t->job, dir);
    if (rc != PST_OK || dir[0] == '\0')
        return rc;
    rc = each_pair(dir, "nodetype-has-split", mark, &split);
    if (rc != PST_OK || split.type < 0)
        return rc;
    if (split.type != t->labelled)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s: the splits are of the type %s, but the labels are of another: choose types with "
                        "--types, or leave splits out with --train none --val none --test none",
                        dir, t->vertex[split.type].name);
    (void)snprintf(of, sizeof of, "%.3800s/%.200s", dir, t->vertex[split.type].name);
    return pst_ogb_take_splits(t->job, of, t->vertex[split.type].vertices);
}

/* Without a file that counts, one type of vertices and edges is a list of lines, which is counted on the way.
 */
static void expect_edges(const struct pst_typed *t)
{
    if (pst_typed_is_plain(t) && t->edge[0].counted)
        t->job->text.expect = t->edge[0].edges;
}

pst_rc pst_ogb_import_types(struct pst_import_job *job, const char *raw)
{
    struct pst_typed t;
    pst_rc rc = pst_typed_init(&t, job);
    t.format = "OGB";
    t.shape = PST_EDGES_2XE;
    if (rc == PST_OK)
        rc = each_pair(raw, "num-node-dict", add_vertices, &t);
    if (rc == PST_OK)
        rc = add_relations(&t, raw);
    if (rc == PST_OK)
        rc = pst_typed_select(&t);
    if (rc == PST_OK)
        rc = take_features(&t, raw);
    if (rc == PST_OK)
        rc = take_labels(&t, raw);
    if (rc == PST_OK)
        rc = take_splits(&t);
    if (rc == PST_OK) {
        expect_edges(&t);
        rc = pst_typed_import(&t);
    }
    pst_typed_release(&t);
    return rc;
}
