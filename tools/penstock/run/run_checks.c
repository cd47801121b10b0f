/* run_checks.c: see run_checks.h. */
#include "tools/penstock/run/run_checks.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/json/diag.h"
#include "common/store/parted/parted.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/sampling/seeds.h"

#define CUT_AGAIN ", another cut of the dataset (`penstock partition --by metis` balances training vertices)"

/* What is checked: one stage of a pipeline. */
struct check {
    const struct pst_pipeline *pl;
    const struct pst_pipeline_stage_spec *stage;
    struct pst_dataset *ds;
    const char *split; /* that a stage before it named; NULL: none did */
    struct pst_diag *diag;
};

/* A replica that would have no seeds, because each vertex is the seed of one replica, by hash. -1: there is
 * none, or the replicas share all seeds. */
static int replica_without_seeds(const struct check *c, const struct pst_array *ids)
{
    const char *shuffle = json_string_value(json_object_get(c->stage->params, "shuffle"));
    const int replicas = pst_pipeline_replicas(c->pl, c->stage);
    const uint64_t all = (UINT64_C(1) << replicas) - 1;
    uint64_t found = 0;
    if (c->stage->replicas < 1 || shuffle == NULL || strcmp(shuffle, "local") != 0)
        return -1;
    for (int64_t i = 0; i < ids->shape[0] && found != all; i++)
        found |= UINT64_C(1) << pst_seeds_replica(&c->ds->cut, replicas, c->pl->seed,
                                                  ((const int64_t *)ids->map)[i]);
    return found == all ? -1 : __builtin_ctzll(~found);
}

/* Chooses the split that a parameter names, which all stages must mean. seeds: it must have vertices. */
static void check_split(struct check *c, const char *param, bool seeds)
{
    const char *split = json_string_value(json_object_get(c->stage->params, param));
    const int before = c->ds->chosen;
    char path[PST_JSON_PATH_MAX];
    int part = PST_TRAIN;
    if (split == NULL)
        return;
    pst_pipeline_param_path(c->pl, c->stage->name, param, path);
    if (pst_dataset_choose_split(c->ds, split, &part) != PST_OK) {
        pst_json_error(&c->pl->doc, c->diag, path, "%s", pst_error_text());
        return;
    }
    if (c->split != NULL && c->ds->chosen != before)
        pst_json_error(&c->pl->doc, c->diag, path,
                       "this stage has the split \"%s\", but another stage has the split \"%s\": use the "
                       "same split for all stages",
                       split, c->split);
    c->split = split;
    const struct pst_array *ids = &c->ds->split[part];
    if (seeds && (ids->path[0] == '\0' || ids->shape[0] == 0))
        pst_json_error(&c->pl->doc, c->diag, path,
                       "dataset %s has %s split \"%s\" (`penstock split` makes splits)", c->ds->dir,
                       ids->path[0] ? "an empty" : "no", split);
    else if (seeds && ids->shape[0] < pst_pipeline_replicas(c->pl, c->stage))
        pst_json_error(
            &c->pl->doc, c->diag, "replicas.places",
            "the split \"%s\" of dataset %s has only %" PRId64
            " vertices, but the pipeline has %d replicas: expected at least one vertex for each replica",
            split, c->ds->dir, ids->shape[0], pst_pipeline_replicas(c->pl, c->stage));
    else if (seeds && replica_without_seeds(c, ids) >= 0)
        pst_json_error(&c->pl->doc, c->diag, "replicas.places",
                       "with the shuffle \"local\", replica %d of %d would get none of the %" PRId64
                       " vertices of the split \"%s\" of dataset %s: use fewer replicas, another seed of the "
                       "run%s, or the shuffle \"global\"",
                       replica_without_seeds(c, ids), pst_pipeline_replicas(c->pl, c->stage), ids->shape[0],
                       split, c->ds->dir, c->ds->cut.parts > 0 ? CUT_AGAIN : "");
}

/* The edge types that the names of a parameter's lists mean. */
static void check_relations(struct check *c, const char *param)
{
    const json_t *value = json_object_get(c->stage->params, param);
    const char *name[PST_NAMED_INTS_MAX], *key;
    char path[PST_JSON_PATH_MAX];
    json_t *unused;
    size_t n = 0, wrong;
    if (!json_is_object(value))
        return;
    json_object_foreach((json_t *)(uintptr_t)value, key, unused)
    {
        name[n++] = key;
    }
    int32_t *chosen = malloc((size_t)c->ds->relations * sizeof *chosen + 1);
    const pst_rc rc = chosen != NULL
                          ? pst_edge_type_match(c->ds, name, n, chosen, &wrong)
                          : pst_fail(PST_E_NOMEM, "out of memory: cannot check the names of edge types");
    free(chosen);
    if (rc == PST_OK)
        return;
    pst_pipeline_param_path(c->pl, c->stage->name, param, path);
    const size_t used = strlen(path);
    if (rc == PST_E_ARG && wrong < n)
        (void)snprintf(path + used, sizeof path - used, ".%s", name[wrong]);
    pst_json_error(&c->pl->doc, c->diag, path, "%s", pst_error_text());
}

static bool has_features(const struct pst_dataset *ds)
{
    bool has = ds->feature_dim > 0;
    for (int k = 0; k < ds->vertex_types; k++)
        has |= ds->vertex_type[k].feature_dim > 0;
    return has;
}

/* NAME, or NAME:PARAM=VALUE if the parameter has this value. */
static bool is_needed(const struct check *c, const char *word, const char *name)
{
    const size_t n = strlen(name);
    char param[PST_NAME_MAX];
    if (strcmp(word, name) == 0)
        return true;
    const char *equals = strchr(word, '=');
    if (strncmp(word, name, n) != 0 || word[n] != ':' || !equals)
        return false;
    (void)snprintf(param, sizeof param, "%.*s", (int)(equals - word - (ptrdiff_t)n - 1), word + n + 1);
    const char *value = json_string_value(json_object_get(c->stage->params, param));
    return value && strcmp(value, equals + 1) == 0;
}

/* split:PARAM, or split:PARAM:OTHER=VALUE if the parameter OTHER has this value. */
static void check_seeds(struct check *c, const char *word)
{
    const char *param = strchr(word, ':') + 1, *colon = strchr(param, ':');
    char name[PST_NAME_MAX];
    const size_t n = colon ? (size_t)(colon - param) : strlen(param);
    (void)snprintf(name, sizeof name, "%.*s", (int)n, param);
    if (!colon || is_needed(c, param, name))
        check_split(c, name, true);
}

/* The value of a parameter is at most the number of vertices. */
static void check_vertices(struct check *c, const char *param)
{
    const json_t *value = json_object_get(c->stage->params, param);
    char path[PST_JSON_PATH_MAX];
    if (!json_is_integer(value) || json_integer_value(value) <= c->ds->vertices)
        return;
    pst_pipeline_param_path(c->pl, c->stage->name, param, path);
    pst_json_error(&c->pl->doc, c->diag, path,
                   "expected at most %" PRId64 ", the number of vertices of dataset %s, found %" PRId64,
                   c->ds->vertices, c->ds->dir, (int64_t)json_integer_value(value));
}

static void check_word(struct check *c, const char *word)
{
    static const char split[] = "split:", evaluated[] = "evaluated:", relations[] = "relations:",
                      vertices[] = "vertices:";
    const struct pst_dataset *ds = c->ds;
    const struct pst_array *training;
    char path[PST_JSON_PATH_MAX];
    (void)snprintf(path, sizeof path, "stages.%s", c->stage->origin);
    if (strncmp(word, split, strlen(split)) == 0)
        check_seeds(c, word);
    else if (strncmp(word, evaluated, strlen(evaluated)) == 0)
        check_split(c, word + strlen(evaluated), false);
    else if (strncmp(word, relations, strlen(relations)) == 0)
        check_relations(c, word + strlen(relations));
    else if (strncmp(word, vertices, strlen(vertices)) == 0)
        check_vertices(c, word + strlen(vertices));
    else if (strcmp(word, "triples") == 0 && pst_dataset_edges(ds, PST_TRAIN, &training, NULL) != PST_OK)
        pst_json_error(&c->pl->doc, c->diag, path, "%s: %s", c->stage->caps.desc->name, pst_error_text());
    else if (is_needed(c, word, "features") && !has_features(ds))
        pst_json_error(&c->pl->doc, c->diag, path,
                       "%s needs features, but dataset %s has none (`penstock features` makes random ones)",
                       c->stage->caps.desc->name, ds->dir);
    else if (is_needed(c, word, "edges") && !ds->edges_split[PST_TRAIN].path[0])
        pst_json_error(
            &c->pl->doc, c->diag, path,
            "%s needs edges to predict (edges_train), but dataset %s has none: import a dataset for "
            "link prediction",
            c->stage->caps.desc->name, ds->dir);
    else if (is_needed(c, word, "targets") && !ds->targets.path[0])
        pst_json_error(
            &c->pl->doc, c->diag, path,
            "%s needs targets (numbers of each vertex), but dataset %s has none: import it with the "
            "array targets, or set loss to cross_entropy",
            c->stage->caps.desc->name, ds->dir);
    else if (is_needed(c, word, "labels") && !ds->multilabels.path[0] && ds->targets.path[0] &&
             (ds->classes < 2 || !ds->labels.path[0]))
        pst_json_error(
            &c->pl->doc, c->diag, path,
            "%s needs labels of at least 2 classes, but dataset %s has targets, which are numbers: "
            "set loss to mse",
            c->stage->caps.desc->name, ds->dir);
    else if (is_needed(c, word, "labels") && !ds->multilabels.path[0] &&
             (ds->classes < 2 || !ds->labels.path[0]))
        pst_json_error(&c->pl->doc, c->diag, path,
                       "%s needs labels of at least 2 classes, but dataset %s has %" PRId64,
                       c->stage->caps.desc->name, ds->dir, ds->labels.path[0] ? ds->classes : 0);
}

/* Whether the stage's needs have the word NAME, or NAME:PARAM: then *param gets PARAM, which else is "". */
static bool can_use(const char *dataset, const char *name, char param[PST_NAME_MAX])
{
    const size_t n = strlen(name);
    char word[PST_NAME_MAX];
    param[0] = '\0';
    for (const char *at = dataset; at && (at = pst_desc_list_next(at, ',', word));)
        if (strncmp(word, name, n) == 0 && (word[n] == '\0' || word[n] == ':')) {
            (void)snprintf(param, PST_NAME_MAX, "%s", word[n] == ':' ? word + n + 1 : "");
            return true;
        }
    return false;
}

/* Every stage that needs a part of a dataset with types must know types. */
static void check_types(struct check *c)
{
    const struct pst_dataset *ds = c->ds;
    for (int s = 0; s < c->pl->nstages && ds->vertex_types > 0; s++) {
        const struct pst_pipeline_stage_spec *stage = &c->pl->stages[s];
        const char *needs = stage->caps.desc->dataset;
        char path[PST_JSON_PATH_MAX], param[PST_NAME_MAX];
        (void)snprintf(path, sizeof path, "stages.%s", stage->name);
        if (needs != NULL && needs[0] != '\0' && !can_use(needs, "types", param))
            pst_json_error(&c->pl->doc, c->diag, path,
                           "dataset %s has %d types of vertices, and a stage %s cannot use types: remove the "
                           "stage, or import only one type (penstock import FORMAT SRC DIR --types NAME)",
                           ds->dir, ds->vertex_types, stage->caps.desc->name);
    }
}

/* Every stage that reads a part of a cut dataset must know that other ranks have the other rows and lists. */
static void check_part(struct check *c, const struct pst_pipeline_stage_spec *stage)
{
    const struct pst_dataset *ds = c->ds;
    const char *needs = stage->caps.desc->dataset, *name = stage->caps.desc->name;
    char path[PST_JSON_PATH_MAX], param[PST_NAME_MAX];
    (void)snprintf(path, sizeof path, "stages.%s", stage->origin);
    if (!can_use(needs, "parts", param)) {
        pst_json_error(
            &c->pl->doc, c->diag, path,
            "dataset %s is a part of a cut dataset, and a stage %s reads only whole ones: use the whole "
            "dataset, or a pipeline such as distributed.json, where the stage remote brings the rows of "
            "other parts",
            ds->dir, name);
        return;
    }
    const bool lists = ds->cut.lists && can_use(needs, "lists", param);
    if (ds->cut.lists && !lists)
        pst_json_error(
            &c->pl->doc, c->diag, path,
            "the parts of the dataset divide the lists of neighbours, too (%s), and a stage %s needs all "
            "lists: cut the dataset without --lists, or use a pipeline such as distributed_lists.json, "
            "which has the stage remote_sampler and no planner",
            ds->dir, name);
    const json_int_t value = json_integer_value(json_object_get(stage->params, param));
    if (!lists || param[0] == '\0' || value == 0)
        return;
    pst_pipeline_param_path(c->pl, stage->name, param, path);
    pst_json_error(
        &c->pl->doc, c->diag, path,
        "%s is %lld, which needs the lists of neighbours of all vertices, but dataset %s has only those of "
        "its part: expected 0",
        param, (long long)value, ds->dir);
}

static void check_parts(struct check *c)
{
    for (int s = 0; s < c->pl->nstages && c->ds->cut.parts > 0; s++) {
        const struct pst_pipeline_stage_spec *stage = &c->pl->stages[s];
        const char *needs = stage->caps.desc->dataset;
        if (stage->replica == 0 && needs != NULL && needs[0] != '\0')
            check_part(c, stage);
    }
}

bool dataset_suits(const struct pst_pipeline *pl, struct pst_dataset *ds)
{
    struct pst_diag diag = {0};
    struct check check = {.pl = pl, .ds = ds, .diag = &diag};
    char word[PST_NAME_MAX];
    check_types(&check);
    check_parts(&check);
    if (diag.count == 0 && pst_dataset_check(ds) != PST_OK)
        pst_diag_add(&diag, NULL, 0, NULL, "dataset %s: %s", ds->dir, pst_error_text());
    const bool good = diag.count == 0;
    for (int s = 0; s < pl->nstages && good; s++) {
        check.stage = &pl->stages[s];
        if (check.stage->replica > 0)
            continue; /* what its first replica needs */
        for (const char *at = check.stage->caps.desc->dataset; (at = pst_desc_list_next(at, ',', word));)
            check_word(&check, word);
    }
    bool ok = diag.count == 0;
    pst_diag_print(&diag);
    pst_diag_release(&diag);
    return ok;
}

bool named_dataset_suits(const struct pst_pipeline *pl, int rank)
{
    struct pst_dataset ds;
    if (!pl->dataset[0])
        return true;
    if (pst_parted_open(&ds, pl->dataset, rank, pl->ranks) != PST_OK) {
        fprintf(stderr, "penstock check: %s\n", pst_error_text());
        return false;
    }
    bool ok = dataset_suits(pl, &ds);
    pst_dataset_close(&ds);
    return ok;
}
