/* identity.c: the values of a pipeline that a checkpoint keeps, and their comparison. */
#include "common/pipeline/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph.h"

#define PATH_CHARACTERS (2 * PST_NAME_MAX + 32)
#define TEXT_CHARACTERS 2048

/* A planner prepares the run and is not part of it, but see below. */
static bool works_on_batches(const struct pst_pipeline *pl, int stage)
{
    for (int l = 0; l < pl->nlinks; l++)
        if ((pl->links[l].from == stage || pl->links[l].to == stage) && !pst_link_oneshot(pl, &pl->links[l]))
            return true;
    return false;
}

/* Does an epoch depend on the number of replicas, by the value of this parameter? */
static bool is_counted(const struct pst_pipeline_stage_spec *stage, const struct pst_param_desc *param)
{
    const char *value = json_string_value(json_object_get(stage->params, param->name));
    char choice[PST_NAME_MAX];
    return param->counted > 0 && value && pst_desc_choice(param, param->counted - 1, choice) &&
           strcmp(value, choice) == 0;
}

/* Does the stage publish something to a stage whose epochs depend on the number of replicas? Then it may say
 * what each replica has (a plan with parts of the graph). */
static bool divides_batches(const struct pst_pipeline *pl, int stage)
{
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_pipeline_stage_spec *to = &pl->stages[pl->links[l].to];
        if (pl->links[l].from != stage || !pst_link_oneshot(pl, &pl->links[l]))
            continue;
        for (const struct pst_param_desc *p = to->caps.desc->params; p && p->name; p++)
            if (is_counted(to, p))
                return true;
    }
    return false;
}

static json_t *identity_of(const struct pst_pipeline *pl)
{
    char path[PATH_CHARACTERS];
    json_t *all = json_object();
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        const bool part_of_run = works_on_batches(pl, s) || divides_batches(pl, s);
        bool any = false, counted = false;
        if (stage->replica > 0) /* what is compared is the same for all replicas */
            continue;
        for (const struct pst_param_desc *p = stage->caps.desc->params; p && p->name; p++) {
            if (!p->fixed || !part_of_run)
                continue;
            any = true;
            counted = counted || is_counted(stage, p);
            (void)snprintf(path, sizeof path, "stages.%s.params.%s", stage->origin, p->name);
            (void)json_object_set_new(all, path,
                                      pst_pipeline_absolute(p, json_object_get(stage->params, p->name)));
        }
        (void)snprintf(path, sizeof path, "stages.%s.run", stage->origin);
        if (any)
            (void)json_object_set_new(all, path, json_string(stage->caps.desc->name));
        (void)snprintf(path, sizeof path, "the number of replicas of %s", stage->origin);
        if (counted)
            (void)json_object_set_new(all, path, json_integer(pst_pipeline_replicas(pl, stage)));
        if (counted && pl->parts[0]) /* each replica has the seeds of its part */
            (void)json_object_set_new(all, "the first vertex of each part", json_loads(pl->parts, 0, NULL));
    }
    return all;
}

char *pst_pipeline_identity(const struct pst_pipeline *pl)
{
    json_t *all = identity_of(pl);
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

static void add_value(char *text, size_t cap, const json_t *value)
{
    const size_t n = strlen(text);
    char *shown = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    (void)snprintf(text + n, cap - n, "%s", shown ? shown : "nothing");
    free(shown);
}

/* Adds "; PATH is 64, was 512" for each value of `from` that `to` has not. */
static void add_differences(char *text, size_t cap, json_t *now, json_t *then, bool only_missing)
{
    const char *path;
    json_t *value;
    json_object_foreach(only_missing ? then : now, path, value)
    {
        const json_t *a = json_object_get(now, path), *b = json_object_get(then, path);
        if (only_missing ? a != NULL : b && json_equal(a, b))
            continue;
        const size_t n = strlen(text);
        (void)snprintf(text + n, cap - n, "%s%s is ", n > 0 ? "; " : "", path);
        add_value(text, cap, a);
        (void)snprintf(text + strlen(text), cap - strlen(text), ", was ");
        add_value(text, cap, b);
    }
}

pst_rc pst_pipeline_check_identity(const struct pst_pipeline *pl, const char *text)
{
    char differences[TEXT_CHARACTERS] = "";
    json_t *now = identity_of(pl), *then = json_loads(text, 0, NULL);
    add_differences(differences, sizeof differences, now, then, false);
    add_differences(differences, sizeof differences, now, then, true);
    json_decref(now);
    json_decref(then);
    return differences[0]
               ? pst_fail(PST_E_ARG, "this pipeline would train on other batches than the run to resume: %s",
                          differences)
               : PST_OK;
}
