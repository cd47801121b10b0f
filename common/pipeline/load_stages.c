/* load_stages.c: the member "stages" of a pipeline file. */
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/json/diag.h"
#include "common/pipeline/load_impl.h"
#include "common/pipeline/place.h"

#define PATH_MAX_OF_STAGE 400 /* bytes of "stages.NAME" */

/* ---- parameters ------------------------------------------------------------------------------ */

/* Checks one parameter and stores it: the stage's own value, else the shared one, else the default. */
static void load_param(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                       const struct pst_param_desc *param, const json_t *own, const char *path)
{
    const json_t *shared = json_object_get(ld->pl->doc.root, "params");
    char at[PST_JSON_PATH_MAX], why[PST_DESC_WHY_MAX];
    json_t *normal = NULL, *value = json_object_get(own, param->name);
    (void)snprintf(at, sizeof at, "%s.params.%s", path, param->name);
    if (!value && (value = json_object_get(shared, param->name)))
        (void)snprintf(at, sizeof at, "params.%s", param->name);
    json_t *def = !value && param->def ? json_loads(param->def, JSON_DECODE_ANY, NULL) : NULL;
    if (!value && !def)
        pst_pipeline_error(ld, at, "required parameter is missing: %s (%s)", param->help,
                           pst_desc_type_name(param->type));
    else if (!pst_desc_value(param, value ? value : def, &normal, why))
        pst_pipeline_error(ld, at, "%s", why);
    else
        (void)json_object_set_new(stage->params, param->name, normal);
    json_decref(def);
}

/* Strings that must not be empty under a condition on other parameters. */
static void check_needed(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                         const struct pst_param_desc *param, const char *path)
{
    const char *text = json_string_value(json_object_get(stage->params, param->name));
    if (!text || text[0] || !pst_condition_holds(param->needed_if, stage->params))
        return;
    char at[PST_JSON_PATH_MAX];
    (void)snprintf(at, sizeof at, "%s.params", path);
    pst_pipeline_error(ld, at, "%s needs the parameter %s (%s)", param->needed_if, param->name, param->help);
}

static bool same_value(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

/* The file that a parameter of the condition names may do what the condition asks for. */
static bool file_decides(const struct pst_stage_desc *desc, const json_t *params, const char *condition)
{
    char name[PST_NAME_MAX], values[PST_CONDITION_VALUES_MAX];
    for (const char *at = condition; pst_condition_next(&at, name, values);) {
        const struct pst_param_desc *param = pst_desc_param(desc, name);
        const char *value = json_string_value(json_object_get(params, name));
        if (param && param->path == PST_PATH_OR_NAME && value && strchr(value, '/'))
            return true;
    }
    return false;
}

/* Numbers by name, which the stage cannot tell apart. */
static void check_names(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                        const struct pst_param_desc *param, const char *at)
{
    if (!json_is_object(json_object_get(stage->params, param->name)) ||
        file_decides(stage->caps.desc, stage->params, param->only_if))
        return;
    pst_pipeline_error(ld, at,
                       "%s can have numbers by name only if %s: set this, or give %s as a list of integers",
                       param->name, param->only_if, param->name);
}

/* The condition that choice_if has for this choice. False: there is none. */
static bool condition_of(const struct pst_param_desc *param, const char *value,
                         char condition[PST_DESC_CONDITION_MAX])
{
    char choice[PST_NAME_MAX];
    for (const char *at = param->choice_if; value && pst_desc_choice_if(param, &at, choice, condition);)
        if (strcmp(value, choice) == 0)
            return true;
    return false;
}

/* Has an earlier stage the same parameter, with the same shared value? Then that stage's error is enough. */
static bool is_told(const struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                    const struct pst_param_desc *param)
{
    const json_t *stages = json_object_get(ld->pl->doc.root, "stages");
    bool told = false;
    for (const struct pst_pipeline_stage_spec *s = ld->pl->stages; s < stage; s++) {
        const struct pst_param_desc *same = s->caps.desc ? pst_desc_param(s->caps.desc, param->name) : NULL;
        const json_t *own = json_object_get(json_object_get(stages, s->name), "params");
        told = told || (same && !json_object_get(own, param->name) &&
                        ((same->below && param->below) || (same->at_most && param->at_most) ||
                         (same->even_if && param->even_if) || (same->choice_if && param->choice_if)));
    }
    return told;
}

/* A choice that is not possible with the other parameters. A stage that lacks these decides when it opens. */
static void check_choice(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                         const struct pst_param_desc *param, const json_t *own, const char *path)
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    const char *value = json_string_value(json_object_get(stage->params, param->name));
    char at[PST_JSON_PATH_MAX], condition[PST_DESC_CONDITION_MAX], name[PST_NAME_MAX],
        values[PST_CONDITION_VALUES_MAX];
    if (!condition_of(param, value, condition) || pst_condition_holds(condition, stage->params) ||
        file_decides(desc, stage->params, condition))
        return;
    for (const char *next = condition; pst_condition_next(&next, name, values);)
        if (!pst_desc_param(desc, name))
            return;
    const bool shared = !json_object_get(own, param->name);
    if (shared && is_told(ld, stage, param))
        return;
    (void)snprintf(at, sizeof at, "%s%sparams.%s", shared ? "" : path, shared ? "" : ".", param->name);
    pst_pipeline_error(ld, at, "%s can be %s only if %s: fulfil this condition, or choose another %s",
                       param->name, value, condition, param->name);
}

/* Is the stage's device one of these kinds, separated by '|'? `kinds` gets their names in words. */
static bool runs_on(const char *device, const char *values, char kinds[PST_CONDITION_VALUES_MAX])
{
    const bool cpu = strncmp(device, "cpu:", 4) == 0;
    const struct {
        const char *name, *words;
        bool is;
    } known[] = {{"cuda", "a GPU", !cpu},
                 {"cpu", "a CPU", cpu},
                 {"avx512_bf16", "a CPU with AVX512_BF16", cpu && __builtin_cpu_supports("avx512bf16")}};
    char word[PST_NAME_MAX];
    bool is = false;
    kinds[0] = '\0';
    for (const char *at = values; (at = pst_desc_list_next(at, '|', word));)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            const size_t used = strlen(kinds);
            if (strcmp(word, known[i].name) != 0)
                continue;
            is = is || known[i].is;
            (void)snprintf(kinds + used, PST_CONDITION_VALUES_MAX - used, "%s%s", used ? " or " : "",
                           known[i].words);
        }
    return is;
}

void pst_pipeline_check_devices(struct pst_pipeline_loading *ld)
{
    char at[PST_JSON_PATH_MAX], condition[PST_DESC_CONDITION_MAX], name[PST_NAME_MAX],
        values[PST_CONDITION_VALUES_MAX], kinds[PST_CONDITION_VALUES_MAX];
    for (int s = 0; s < ld->pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &ld->pl->stages[s];
        const struct pst_param_desc *param = stage->caps.desc ? stage->caps.desc->params : NULL;
        for (; param && param->name; param++) {
            const char *value = json_string_value(json_object_get(stage->params, param->name));
            const char *next = condition;
            if (!condition_of(param, value, condition) || !pst_condition_next(&next, name, values) ||
                strcmp(name, PST_DESC_DEVICE) != 0 || runs_on(stage->device, values, kinds))
                continue;
            (void)snprintf(at, sizeof at, "stages.%s.params.%s", stage->origin, param->name);
            pst_pipeline_error(ld, at,
                               "%s can be %s only on %s, but %s runs on %s: choose another %s, or another "
                               "device",
                               param->name, value, kinds, stage->name, stage->device, param->name);
        }
    }
}

/* A value that would have no effect. A resolved pipeline has all defaults, so these are accepted. */
static void check_used(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                       const struct pst_param_desc *param, const json_t *own, const char *path)
{
    const json_t *value = json_object_get(stage->params, param->name);
    char at[PST_JSON_PATH_MAX], why[PST_DESC_WHY_MAX];
    if (!param->only_if || !value || pst_condition_holds(param->only_if, stage->params))
        return;
    const bool shared = !json_object_get(own, param->name);
    (void)snprintf(at, sizeof at, "%s%sparams.%s", shared ? "" : path, shared ? "" : ".", param->name);
    if (param->type == PST_PARAM_NAMED_INTS) {
        check_names(ld, stage, param, at);
        return;
    }
    json_t *def = json_loads(param->def, JSON_DECODE_ANY, NULL), *normal = NULL;
    if (pst_desc_value(param, def, &normal, why) && !same_value(value, normal)) {
        pst_pipeline_error(ld, at, "%s has an effect only if %s: remove %s, or fulfil this condition",
                           param->name, param->only_if, param->name);
    }
    json_decref(def);
    json_decref(normal);
}

/* A number above the one that other parameters allow. If `below` tells that nothing is left of the whole,
 * this does not tell it again. */
static void check_at_most(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                          const struct pst_param_desc *param, const char *at)
{
    struct pst_desc_at_most most;
    if (!param->at_most || !pst_desc_at_most(param, &most) || pst_condition_holds(most.unless, stage->params))
        return;
    const json_t *whole = json_object_get(stage->params, most.whole),
                 *part = json_object_get(stage->params, most.part);
    const struct pst_param_desc *less = pst_desc_param(stage->caps.desc, most.part);
    const long long n = json_integer_value(json_object_get(stage->params, param->name)),
                    all = json_integer_value(whole), gone = json_integer_value(part), left = all - gone;
    if (!json_is_integer(whole) || !json_is_integer(part) || n <= left ||
        (left <= 0 && less && less->below && strcmp(less->below, most.whole) == 0))
        return;
    pst_pipeline_error(ld, at,
                       "%s is %lld, but %s is %lld and %s is %lld: expected at most %lld: choose a smaller "
                       "%s or %s, or more %s",
                       param->name, n, most.whole, all, most.part, gone, left, param->name, most.part,
                       most.whole);
}

/* A number that does not fit other parameters. */
static void check_number(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                         const struct pst_param_desc *param, const json_t *own, const char *path)
{
    const json_t *value = json_object_get(stage->params, param->name),
                 *whole = param->below ? json_object_get(stage->params, param->below) : NULL;
    const bool shared = !json_object_get(own, param->name);
    const long long n = json_integer_value(value), all = json_integer_value(whole);
    char at[PST_JSON_PATH_MAX];
    if (!json_is_integer(value) || (shared && is_told(ld, stage, param)))
        return;
    (void)snprintf(at, sizeof at, "%s%sparams.%s", shared ? "" : path, shared ? "" : ".", param->name);
    if (json_is_integer(whole) && all != 1 && n >= all)
        pst_pipeline_error(
            ld, at,
            "%s is %lld, and %s is %lld: expected a %s smaller than %s: choose a smaller %s or "
            "more %s, or set %s to 1",
            param->name, n, param->below, all, param->name, param->below, param->name, param->below,
            param->below);
    check_at_most(ld, stage, param, at);
    if (n % 2 == 0 || !pst_condition_holds(param->even_if, stage->params))
        return;
    char name[PST_NAME_MAX], values[PST_CONDITION_VALUES_MAX];
    const char *condition = param->even_if;
    (void)pst_condition_next(&condition, name, values);
    char *cause = json_dumps(json_object_get(stage->params, name), JSON_ENCODE_ANY);
    pst_pipeline_error(ld, at,
                       "%s is %lld, but with %s %s it must be even: choose for example %lld, or change %s",
                       param->name, n, name, cause ? cause : "", n + 1, name);
    free(cause);
}

/* Unknown parameters. If --with or --set changed `run` after they were given, they belong to another stage:
 * one error tells them all, and how to remove them. */
static void check_param_keys(struct pst_pipeline_loading *ld, const struct pst_pipeline_stage_spec *stage,
                             json_t *own, const char *path, const char *const *names, size_t n)
{
    char at[PST_JSON_PATH_MAX], others[256] = "";
    const char *key;
    json_t *value, *rest = json_copy(own);
    (void)snprintf(at, sizeof at, "%s.run", path);
    const int changed = pst_json_place(&ld->pl->doc, at).source;
    json_object_foreach(own, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known = known || strcmp(key, names[i]) == 0;
        (void)snprintf(at, sizeof at, "%s.params.%s", path, key);
        if (known || pst_json_place(&ld->pl->doc, at).source >= changed)
            continue;
        const size_t used = strlen(others);
        (void)snprintf(others + used, sizeof others - used, "%s%s", used > 0 ? ", " : "", key);
        (void)json_object_del(rest, key);
    }
    (void)snprintf(at, sizeof at, "%s.params", path);
    if (others[0])
        pst_pipeline_error(ld, at,
                           "the stage %s does not have these parameters of the stage that it replaces: %s; "
                           "--set %s={} removes them",
                           stage->caps.desc->name, others, at);
    pst_pipeline_check_keys(ld, rest, at, names, n);
    json_decref(rest);
}

static void load_params(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                        const json_t *j, const char *path)
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    json_t *own = json_object_get(j, "params");
    const char *names[PST_PARAMS_MAX];
    char at[PST_JSON_PATH_MAX];
    size_t n = 0;
    (void)snprintf(at, sizeof at, "%s.params", path);
    if (own && !json_is_object(own)) {
        pst_pipeline_error(ld, at, "expected an object, found %s", pst_json_kind(own));
        own = NULL;
    }
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        names[n++] = p->name;
        load_param(ld, stage, p, own, path);
    }
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        check_needed(ld, stage, p, path);
        check_used(ld, stage, p, own, path);
        check_choice(ld, stage, p, own, path);
        check_number(ld, stage, p, own, path);
    }
    check_param_keys(ld, stage, own, path, names, n);
}

/* ---- other members --------------------------------------------------------------------------- */

static void load_place(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                       const json_t *j, const char *path)
{
    static const char *const keys[] = {"device", "cores", "sm_percent"};
    const json_t *place = json_object_get(j, "place");
    char at[PST_JSON_PATH_MAX];
    (void)snprintf(at, sizeof at, "%s.place", path);
    if (place && !json_is_object(place)) {
        pst_pipeline_error(ld, at, "expected an object, for example {\"device\": \"cpu:0\"}, found %s",
                           pst_json_kind(place));
        place = NULL;
    }
    pst_pipeline_check_keys(ld, place, at, keys, sizeof keys / sizeof keys[0]);
    stage->sm_percent = (int)pst_pipeline_get_int(ld, place, at, "sm_percent", 100, 1, 100);
    const bool device = pst_pipeline_get_string(ld, place, at, "device", stage->device, sizeof stage->device);
    (void)pst_pipeline_get_string(ld, place, at, "cores", stage->cores, sizeof stage->cores);
    (void)snprintf(at, sizeof at, "%s.place.device", path);
    if (device && !stage->device[0])
        pst_pipeline_error(ld, at, "expected cpu:N, cuda:N or auto, found \"\"");
    (void)snprintf(at, sizeof at, "%s.place.cores", path);
    pst_place_cores(ld->pl, ld->diag, at, stage->cores);
}

static void load_group(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                       const json_t *j, const char *path)
{
    char at[PST_JSON_PATH_MAX];
    (void)snprintf(at, sizeof at, "%s.group", path);
    (void)pst_pipeline_get_string(ld, j, path, "group", stage->group, sizeof stage->group);
    if (stage->group[0] && !pst_pipeline_good_name(stage->group, PST_PIPELINE_STAGE_NAME_MAX)) {
        pst_pipeline_error(ld, at, "invalid group name: expected 1 to %d letters, digits, _ or -",
                           PST_PIPELINE_STAGE_NAME_MAX);
        stage->group[0] = '\0';
    }
    if (stage->caps.foreign && (stage->group[0] || ld->group_all))
        pst_pipeline_error(ld, at, "%s is an external program, so it cannot run as a thread of a group",
                           stage->caps.run);
    if (ld->group_all)
        (void)snprintf(stage->group, sizeof stage->group, "all");
}

static void load_instances(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                           const json_t *j, const char *path)
{
    const struct pst_stage_desc *desc = stage->caps.desc;
    char at[PST_JSON_PATH_MAX];
    stage->instances = (int)pst_pipeline_get_int(ld, j, path, "instances", 1, 1, PST_INSTANCES_MAX);
    if (!desc || desc->instances_max == 0 || stage->instances <= desc->instances_max)
        return;
    (void)snprintf(at, sizeof at, "%s.instances", path);
    pst_pipeline_error(ld, at, "%s cannot have %d instances; at most %d are allowed", desc->name,
                       stage->instances, desc->instances_max);
    stage->instances = desc->instances_max;
}

/* A PORT of tcp://ADDRESS:PORT: a number, or * for any that is free. */
static bool good_port(const char *port)
{
    const size_t digits = strspn(port, "0123456789");
    return strcmp(port, "*") == 0 ||
           (digits >= 1 && digits <= 5 && !port[digits] && atoi(port) >= 1 && atoi(port) <= 65535);
}

static void load_endpoint(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage,
                          const json_t *j, const char *path)
{
    static const char scheme[] = "tcp://";
    char at[PST_JSON_PATH_MAX];
    if (!pst_pipeline_get_string(ld, j, path, "endpoint", stage->endpoint, sizeof stage->endpoint))
        return;
    (void)snprintf(at, sizeof at, "%s.endpoint", path);
    const char *colon = strrchr(stage->endpoint, ':'), *address = stage->endpoint + strlen(scheme);
    if (strncmp(stage->endpoint, scheme, strlen(scheme)) != 0 || colon <= address || !good_port(colon + 1))
        pst_pipeline_error(ld, at,
                           "expected tcp://ADDRESS:PORT, for example \"tcp://127.0.0.1:*\", found \"%s\"",
                           stage->endpoint);
    else if (!stage->caps.foreign)
        pst_pipeline_error(ld, at, "only external programs have an endpoint, but %s is a shared object",
                           stage->caps.run);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Reports that the description of `run` could not be had: its error, or that no stage of this name is
 * installed. */
static void unknown_stage(struct pst_pipeline_loading *ld, const char *at, const char *run)
{
    char **names, near[PST_PIPELINE_HINT_MAX], why[512], list[512] = "";
    size_t n, length = 0;
    (void)snprintf(why, sizeof why, "%s", pst_error_text());
    const bool is_path = strchr(run, '/') != NULL;
    if (is_path || pst_caps_list(&names, &n) != PST_OK) {
        pst_pipeline_error(ld, at, "%s", is_path ? why : pst_error_text());
        return;
    }
    bool installed = false;
    for (size_t i = 0; i < n; i++) {
        installed = installed || strcmp(names[i], run) == 0;
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", names[i]);
        length = length < sizeof list ? length : sizeof list - 1;
    }
    if (installed)
        pst_pipeline_error(ld, at, "%s", why);
    else
        pst_pipeline_error(ld, at, "stage \"%s\" is not installed (installed: %s)%s", run, list,
                           pst_pipeline_hint(run, (const char *const *)names, n, near));
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static void missing_run(struct pst_pipeline_loading *ld, const char *name, const char *path)
{
    const char *names[PST_STAGES_MAX], *other;
    char near[PST_PIPELINE_HINT_MAX];
    size_t n = 0;
    json_t *j;
    json_object_foreach(json_object_get(ld->pl->doc.root, "stages"), other, j)
    {
        if (n < PST_STAGES_MAX && strcmp(other, name) != 0)
            names[n++] = other;
    }
    pst_pipeline_error(ld, path, "\"run\" is missing: expected the name of an installed stage, or a path%s",
                       pst_pipeline_hint(name, names, n, near));
}

/* Takes room for a stage. NULL: its name or its value is wrong, or there are too many. */
static struct pst_pipeline_stage_spec *add_stage(struct pst_pipeline_loading *ld, const char *name,
                                                 const json_t *j, const char *path)
{
    static const char *const keys[] = {"run", "params", "place", "group", "instances", "endpoint"};
    struct pst_pipeline *pl = ld->pl;
    if (!pst_pipeline_good_name(name, PST_PIPELINE_STAGE_NAME_MAX))
        pst_pipeline_error(ld, path, "invalid stage name: expected 1 to %d letters, digits, _ or -",
                           PST_PIPELINE_STAGE_NAME_MAX);
    else if (!json_is_object(j))
        pst_pipeline_error(ld, path, "expected an object, for example {\"run\": \"sampler\"}, found %s",
                           pst_json_kind(j));
    else if (pl->nstages == PST_STAGES_MAX)
        pst_pipeline_error(ld, path, "the pipeline has too many stages: at most %d are allowed",
                           PST_STAGES_MAX);
    else {
        struct pst_pipeline_stage_spec *stage = &pl->stages[pl->nstages++];
        (void)snprintf(stage->name, sizeof stage->name, "%s", name);
        (void)snprintf(stage->origin, sizeof stage->origin, "%s", name);
        stage->params = json_object();
        pst_pipeline_check_keys(ld, j, path, keys, sizeof keys / sizeof keys[0]);
        return stage;
    }
    return NULL;
}

/* Gets the stage's description. False, after an error, if there is none. */
static bool load_run(struct pst_pipeline_loading *ld, struct pst_pipeline_stage_spec *stage, const json_t *j,
                     const char *path)
{
    char at[PST_JSON_PATH_MAX], run[PST_PATH_MAX];
    if (!pst_pipeline_get_string(ld, j, path, "run", run, sizeof run)) {
        if (!json_object_get(j, "run"))
            missing_run(ld, stage->name, path);
        return false;
    }
    if (pst_caps_load(&stage->caps, run, ld->pl->base_dir) == PST_OK)
        return true;
    (void)snprintf(at, sizeof at, "%s.run", path);
    unknown_stage(ld, at, run);
    pst_caps_release(&stage->caps);
    return false;
}

static void load_stage(struct pst_pipeline_loading *ld, const char *name, const json_t *j)
{
    char path[PATH_MAX_OF_STAGE];
    (void)snprintf(path, sizeof path, "stages.%s", name);
    struct pst_pipeline_stage_spec *stage = add_stage(ld, name, j, path);
    if (!stage)
        return;
    const bool described = load_run(ld, stage, j, path);
    load_instances(ld, stage, j, path);
    load_group(ld, stage, j, path);
    load_place(ld, stage, j, path);
    if (!described)
        return;
    load_endpoint(ld, stage, j, path);
    load_params(ld, stage, j, path);
    pst_place_device(ld->pl, ld->diag, path, stage); /* depends on the parameters */
}

/* A process is called after its group, or after its only stage. So a group cannot have the name of a stage
 * outside it. */
static void check_groups(struct pst_pipeline_loading *ld)
{
    const struct pst_pipeline *pl = ld->pl;
    char at[PST_JSON_PATH_MAX];
    for (int s = 0; s < pl->nstages; s++) {
        const char *group = pl->stages[s].group;
        const int other = group[0] ? pst_pipeline_stage(pl, group) : -1;
        if (other < 0 || strcmp(pl->stages[other].group, group) == 0)
            continue;
        (void)snprintf(at, sizeof at, "stages.%s.group", pl->stages[s].name);
        pst_pipeline_error(
            ld, at, "the group cannot have the name of stage %s, because that stage is not in the group",
            group);
    }
}

/* A shared parameter that no stage has is a misspelling. */
static void check_shared(struct pst_pipeline_loading *ld)
{
    const struct pst_pipeline *pl = ld->pl;
    const json_t *shared = json_object_get(pl->doc.root, "params");
    const size_t most = (size_t)pl->nstages * PST_PARAMS_MAX;
    const char **names = calloc(most ? most : 1, sizeof *names);
    size_t n = 0;
    if (shared && !json_is_object(shared))
        pst_pipeline_error(ld, "params", "expected an object, found %s", pst_json_kind(shared));
    for (int s = 0; s < pl->nstages && names; s++) {
        const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
        for (const struct pst_param_desc *p = desc ? desc->params : NULL; p && p->name; p++)
            names[n++] = p->name;
    }
    if (json_is_object(shared) && names)
        pst_pipeline_check_keys(ld, shared, "params", names, n);
    free(names);
}

void pst_pipeline_load_stages(struct pst_pipeline_loading *ld)
{
    const json_t *stages = json_object_get(ld->pl->doc.root, "stages");
    if (!json_is_object(stages) || json_object_size(stages) == 0) {
        pst_pipeline_error(ld, "stages", "expected an object of stages, found %s",
                           !stages                  ? "nothing"
                           : json_is_object(stages) ? "an empty object"
                                                    : pst_json_kind(stages));
        return;
    }
    const char *name;
    json_t *j;
    json_object_foreach((json_t *)(uintptr_t)stages, name, j)
    {
        load_stage(ld, name, j);
    }
    check_groups(ld);
    check_shared(ld);
}
