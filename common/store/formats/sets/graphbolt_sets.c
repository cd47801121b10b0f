/* graphbolt_sets.c: the splits of a GraphBolt task: seeds, labels and pairs of vertices. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/formats/sets/graphbolt.h"
#include "common/store/import/pairs.h"

#define ROWS_UNKNOWN (INT64_MAX / 64)
#define BLOCK 4096

/* One entry of a train_set: seeds, and what belongs to them. */
struct set {
    const char *name; /* "train_set" */
    int split;
    pst_yaml_node node;
    char type[PST_NAME_MAX];
    struct pst_array seeds, labels, negative_sources, negative_targets;
    char file[4096]; /* of the seeds */
};

static const char *const set_names[3] = {"train_set", "validation_set", "test_set"};

static void task_name(const struct pst_graphbolt *g, pst_yaml_node task, int k, char out[PST_NAME_MAX])
{
    const char *name = pst_yaml_scalar(pst_yaml_get(&g->yaml, task, "name"));
    if (name != NULL)
        (void)snprintf(out, PST_NAME_MAX, "%s", name);
    else
        (void)snprintf(out, PST_NAME_MAX, "%d", k);
}

pst_rc pst_graphbolt_choose(struct pst_graphbolt *g)
{
    pst_yaml_node tasks = pst_yaml_get(&g->yaml, pst_yaml_root(&g->yaml), "tasks");
    const char *asked = g->job->split;
    char names[512] = "", name[PST_NAME_MAX];
    int n = pst_yaml_count(tasks);
    for (int k = 0; k < n; k++) {
        pst_yaml_node task = pst_yaml_at(&g->yaml, tasks, k);
        task_name(g, task, k, name);
        if (n == 1 ? asked[0] == '\0' || strcmp(asked, name) == 0 : strcmp(asked, name) == 0)
            g->task = task;
        if (strlen(names) + strlen(name) + 2 < sizeof names)
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), " %s", name);
    }
    if (g->task == NULL && (n > 1 || asked[0] != '\0'))
        return pst_fail(PST_E_ARG, "%s: choose one of the tasks with --split:%s%s%s", g->yaml.path, names,
                        asked[0] != '\0' ? "; found " : "", asked);
    return PST_OK;
}

static void close_set(struct set *s)
{
    pst_array_close(&s->seeds);
    pst_array_close(&s->labels);
    pst_array_close(&s->negative_sources);
    pst_array_close(&s->negative_targets);
}

static pst_rc open_data(struct pst_graphbolt *g, struct set *s, pst_yaml_node entry)
{
    static const char *const seeds[] = {"seeds", "seed_nodes", "node_pairs"};
    char name[PST_NAME_MAX], path[4096], told[4096];
    struct pst_array *a = NULL;
    pst_rc rc = pst_yaml_text(&g->yaml, entry, "name", true, name, sizeof name);
    for (int k = 0; k < 3; k++)
        a = strcmp(name, seeds[k]) == 0 ? &s->seeds : a;
    a = strcmp(name, "labels") == 0          ? &s->labels
        : strcmp(name, "negative_srcs") == 0 ? &s->negative_sources
        : strcmp(name, "negative_dsts") == 0 ? &s->negative_targets
                                             : a;
    if (rc != PST_OK || a == NULL) /* indexes group pairs with their negatives: labels say as much */
        return rc;
    if (a->map != NULL)
        return pst_yaml_fail(&g->yaml, entry, "'%s' occurs twice", name);
    rc = pst_graphbolt_file(g, entry, path, told);
    if (rc == PST_OK)
        rc = pst_array_open(a, path);
    if (rc == PST_OK)
        rc = pst_array_map(a);
    if (rc != PST_OK)
        return rc;
    memcpy(a->path, told, sizeof a->path);
    if (a == &s->seeds)
        memcpy(s->file, path, sizeof s->file);
    if (a != &s->labels && !pst_dtype_is_integer(a->dtype))
        return pst_fail(PST_E_FORMAT, "%s: expected " PST_IMPORT_INTEGERS ", found %s", told,
                        pst_dtype_name(a->dtype));
    return PST_OK;
}

static pst_rc open_set(struct pst_graphbolt *g, struct set *s)
{
    pst_yaml_node data = pst_yaml_get(&g->yaml, s->node, "data");
    pst_rc rc = pst_yaml_text(&g->yaml, s->node, "type", false, s->type, sizeof s->type);
    for (int i = 0; i < pst_yaml_count(data) && rc == PST_OK; i++)
        rc = open_data(g, s, pst_yaml_at(&g->yaml, data, i));
    if (rc == PST_OK && s->seeds.map == NULL)
        rc = pst_yaml_fail(&g->yaml, s->node, "%s: expected data with seeds", s->name);
    if (rc != PST_OK)
        return rc;
    const struct pst_array *rest[3] = {&s->labels, &s->negative_sources, &s->negative_targets};
    for (int k = 0; k < 3; k++)
        if (rest[k]->map != NULL && rest[k]->shape[0] != s->seeds.shape[0])
            return pst_fail(PST_E_FORMAT, "%s: expected %" PRId64 " rows, as in %s, found %" PRId64,
                            rest[k]->path, s->seeds.shape[0], s->seeds.path, rest[k]->shape[0]);
    if (s->labels.map != NULL && s->labels.shape[1] != 1)
        return pst_fail(PST_E_UNSUPPORTED, "%s: expected one label per row, found %" PRId64, s->labels.path,
                        s->labels.shape[1]);
    if (s->seeds.shape[1] > 2)
        return pst_fail(PST_E_FORMAT, "%s: expected vertices or pairs of them, found rows of %" PRId64,
                        s->seeds.path, s->seeds.shape[1]);
    return PST_OK;
}

/* Calls fn with every set of one split whose seeds are vertices (pairs false) or pairs. */
static pst_rc each_set(struct pst_graphbolt *g, int split, bool pairs,
                       pst_rc (*fn)(struct pst_graphbolt *g, struct set *s, void *ctx), void *ctx)
{
    pst_yaml_node list = pst_yaml_get(&g->yaml, g->task, set_names[split]);
    pst_rc rc = PST_OK;
    for (int i = 0; i < pst_yaml_count(list) && rc == PST_OK; i++) {
        struct set s = {.name = set_names[split], .split = split, .node = pst_yaml_at(&g->yaml, list, i)};
        rc = open_set(g, &s);
        if (rc == PST_OK && (s.seeds.rank == 2 && s.seeds.shape[1] == 2) == pairs)
            rc = fn(g, &s, ctx);
        close_set(&s);
    }
    return rc;
}

/* The type of a set's vertices; -1: it was left out. */
static pst_rc type_of(struct pst_graphbolt *g, const struct set *s, const char *name, int *type)
{
    bool none = name[0] == '\0';
    *type = none && g->typed.vertex_types == 1 ? 0 : -1;
    for (int k = 0; k < g->typed.vertex_types; k++)
        if (strcmp(g->typed.vertex[k].name, name) == 0)
            *type = k;
    if (none && *type < 0)
        return pst_yaml_fail(&g->yaml, s->node, "%s: expected a type, because the graph has several",
                             s->name);
    if (*type < 0)
        pst_problem(&g->job->result->warnings, "%s: %s of type '%s' is not imported", g->yaml.path, s->name,
                    name);
    return PST_OK;
}

/* ---- vertices ---- */

static pst_rc note_labels(struct pst_graphbolt *g, const struct set *s, int type)
{
    int64_t limit = g->job->spec.classes >= 0 ? g->job->spec.classes : PST_MANIFEST_CLASSES_MAX;
    if (s->labels.map == NULL)
        return PST_OK;
    if (s->labels.dtype == PST_F16 || s->labels.dtype == PST_BF16)
        return pst_fail(PST_E_FORMAT, "%s: expected labels as integers or floats, found %s", s->labels.path,
                        pst_dtype_name(s->labels.dtype));
    if (g->labels == NULL) {
        g->labels = malloc((size_t)(g->vertices + 1) * sizeof *g->labels);
        if (g->labels == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " labels", g->vertices);
        memset(g->labels, 0xff, (size_t)g->vertices * sizeof *g->labels);
    }
    for (int64_t i = 0; i < s->seeds.shape[0]; i++) {
        int64_t label = pst_import_label_at(&s->labels, i);
        if (label < -1 || label >= limit)
            return pst_fail(PST_E_FORMAT,
                            "%s: entry %" PRId64 ": expected a label from -1 (none) to %" PRId64,
                            s->labels.path, i, limit - 1);
        g->labels[g->first[type] + pst_import_int_at(&s->seeds, i)] = (int32_t)label;
    }
    return PST_OK;
}

static pst_rc add_vertices(struct pst_graphbolt *g, struct set *s, void *ctx)
{
    struct pst_array_writer *w = ctx;
    int64_t block[BLOCK], n = s->seeds.shape[0], bad = 0;
    struct pst_problems problems = {.count = 0};
    int type;
    pst_rc rc = type_of(g, s, s->type, &type);
    if (rc != PST_OK || type < 0)
        return rc;
    for (int64_t i = 0; i < n; i++) {
        int64_t v = pst_import_int_at(&s->seeds, i);
        if (v < 0 || v >= g->typed.vertex[type].vertices)
            pst_import_tell(&problems, &bad, s->seeds.path, i, v, g->typed.vertex[type].vertices, "entry");
    }
    pst_import_tell_rest(&problems, bad, s->seeds.path);
    rc = pst_problems_result(&problems, "cannot import");
    if (rc == PST_OK)
        rc = note_labels(g, s, type);
    for (int64_t i = 0; i < n && rc == PST_OK; i += BLOCK) {
        int64_t k = 0;
        for (; k < BLOCK && i + k < n; k++)
            block[k] = g->first[type] + pst_import_int_at(&s->seeds, i + k);
        rc = pst_array_write(w, block, (size_t)k * sizeof *block);
    }
    return rc;
}

static pst_rc write_split(struct pst_graphbolt *g, int split)
{
    static const char *const names[3] = {"train", "val", "test"};
    char *path = g->job->spec.source[PST_IMPORT_TRAIN + split];
    const int64_t shape[2] = {ROWS_UNKNOWN, 1};
    struct pst_array_writer w = {.fd = -1};
    uint64_t checksum;
    if (path[0] != '\0' || g->job->skip[PST_IMPORT_TRAIN + split])
        return PST_OK;
    pst_build_temp(g->job->build, names[split], path);
    pst_rc rc = pst_array_writer_init(&w, path, PST_I64, 1, shape);
    if (rc == PST_OK)
        rc = each_set(g, split, false, add_vertices, &w);
    int64_t rows = (int64_t)(w.written / sizeof(int64_t));
    if (rc == PST_OK)
        rc = pst_array_writer_shrink(&w, rows);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    pst_array_writer_release(&w);
    (void)snprintf(g->job->spec.told_as[PST_IMPORT_TRAIN + split], 4096, "%.4000s (%s)", g->yaml.path,
                   set_names[split]);
    if (rows == 0)
        path[0] = '\0';
    return rc;
}

pst_rc pst_graphbolt_vertex_sets(struct pst_graphbolt *g)
{
    struct pst_import_spec *spec = &g->job->spec;
    pst_rc rc = PST_OK;
    if (g->task != NULL && spec->classes < 0)
        rc = pst_yaml_int(&g->yaml, g->task, "num_classes", false, 0, &spec->classes);
    for (int split = 0; split < 3 && rc == PST_OK && g->task != NULL; split++)
        rc = write_split(g, split);
    char *path = spec->source[PST_IMPORT_LABELS];
    if (rc != PST_OK || g->labels == NULL || path[0] != '\0' || g->job->skip[PST_IMPORT_LABELS])
        return rc;
    const int64_t shape[2] = {g->vertices, 1};
    struct pst_array_writer w;
    uint64_t checksum;
    pst_build_temp(g->job->build, "labels", path);
    (void)snprintf(spec->told_as[PST_IMPORT_LABELS], 4096, "%.4000s (labels)", g->yaml.path);
    rc = pst_array_writer_init(&w, path, PST_I32, 1, shape);
    if (rc == PST_OK)
        rc = pst_array_write(&w, g->labels, (size_t)g->vertices * sizeof *g->labels);
    if (rc == PST_OK)
        rc = pst_array_writer_finish(&w, &checksum);
    pst_array_writer_release(&w);
    return rc;
}

/* ---- pairs ---- */

struct pair_sets {
    struct pst_pairs edges, negatives;
    bool keep_negatives;
    int64_t left_out;
    /* of the set that is read now */
    const struct set *set;
    int64_t at;
};

static pst_rc add_one(struct pst_pairs *p, int64_t source, int64_t target)
{
    return pst_pairs_add(p, &source, &target, NULL, 1);
}

/* A pair is an edge unless its label is 0. */
static pst_rc add_labelled(void *ctx, const int64_t *source, const int64_t *target, const int32_t *relation,
                           int64_t n)
{
    struct pair_sets *p = ctx;
    pst_rc rc = PST_OK;
    if (p->set->labels.map == NULL)
        return pst_pairs_add(&p->edges, source, target, relation, n);
    for (int64_t i = 0; i < n && rc == PST_OK; i++, p->at++) {
        bool edge = pst_import_label_at(&p->set->labels, p->at) != 0;
        if (edge || p->keep_negatives)
            rc = add_one(edge ? &p->edges : &p->negatives, source[i], target[i]);
        p->left_out += !edge && !p->keep_negatives;
    }
    return rc;
}

/* negative_srcs and negative_dsts: some for each pair, in place of its source or target. */
static pst_rc add_negatives(struct pair_sets *p, const struct pst_array *a, int end,
                            const struct pst_import_edge_array *e)
{
    struct pst_problems problems = {.count = 0};
    int64_t bad = 0, columns = a->shape[1];
    pst_rc rc = PST_OK;
    if (a->map == NULL)
        return PST_OK;
    for (int64_t i = 0; i < a->shape[0] * columns && rc == PST_OK; i++) {
        int64_t pair[2] = {pst_import_int_at(&p->set->seeds, i / columns * 2),
                           pst_import_int_at(&p->set->seeds, i / columns * 2 + 1)};
        pair[end] = pst_import_int_at(a, i);
        if (pair[end] < 0 || pair[end] >= e->limit[end])
            pst_import_tell(&problems, &bad, a->path, i, pair[end], e->limit[end], "entry");
        else if (p->keep_negatives)
            rc = add_one(&p->negatives, e->first[0] + pair[0], e->first[1] + pair[1]);
        p->left_out += !p->keep_negatives;
    }
    pst_import_tell_rest(&problems, bad, a->path);
    return rc == PST_OK ? pst_problems_result(&problems, "cannot import") : rc;
}

static pst_rc add_pairs(struct pst_graphbolt *g, struct set *s, void *ctx)
{
    struct pair_sets *p = ctx;
    struct pst_problems problems = {.count = 0};
    char source[PST_NAME_MAX];
    int type[2];
    (void)snprintf(source, sizeof source, "%.*s", (int)strcspn(s->type, ":"), s->type);
    const char *target = strrchr(s->type, ':');
    pst_rc rc = type_of(g, s, source, &type[0]);
    if (rc == PST_OK)
        rc = type_of(g, s, target != NULL ? target + 1 : "", &type[1]);
    if (rc != PST_OK || type[0] < 0 || type[1] < 0)
        return rc;
    p->set = s;
    p->at = 0;
    const struct pst_import_edge_array e = {
        .a = &s->seeds,
        .file = s->file,
        .shape = PST_EDGES_EX2,
        .edges = s->seeds.shape[0],
        .first = {g->first[type[0]], g->first[type[1]]},
        .limit = {g->typed.vertex[type[0]].vertices, g->typed.vertex[type[1]].vertices}};
    rc = pst_import_edge_array_read(&e, add_labelled, p, &problems, g->job->progress);
    if (rc == PST_OK)
        rc = pst_problems_result(&problems, "cannot import");
    if (rc == PST_OK)
        rc = add_negatives(p, &s->negative_sources, 0, &e);
    return rc == PST_OK ? add_negatives(p, &s->negative_targets, 1, &e) : rc;
}

static pst_rc pair_split(struct pst_graphbolt *g, int split)
{
    struct pair_sets p = {.keep_negatives = split > 0};
    pst_pairs_begin(&p.edges, g->job->build, (enum pst_array_id)(PST_ARRAY_EDGES_TRAIN + split), g->vertices);
    pst_pairs_begin(&p.negatives, g->job->build,
                    split == 2 ? PST_ARRAY_NEGATIVES_TEST : PST_ARRAY_NEGATIVES_VAL, g->vertices);
    pst_rc rc = each_set(g, split, true, add_pairs, &p);
    if (rc == PST_OK)
        rc = pst_pairs_end(&p.edges);
    if (rc == PST_OK)
        rc = pst_pairs_end(&p.negatives);
    if (p.left_out > 0)
        pst_problem(&g->job->result->warnings,
                    "%s: %" PRId64 " negative pairs of %s are not imported: training draws its own",
                    g->yaml.path, p.left_out, set_names[split]);
    pst_pairs_release(&p.edges);
    pst_pairs_release(&p.negatives);
    return rc;
}

pst_rc pst_graphbolt_pair_sets(struct pst_graphbolt *g)
{
    pst_rc rc = PST_OK;
    for (int split = 0; split < 3 && rc == PST_OK && g->task != NULL; split++)
        rc = pair_split(g, split);
    return rc;
}
