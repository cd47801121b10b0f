/* agree.c: parameters that must be equal to a parameter of the stage that an input's slots come from; what
 * only one process can use, and two would; copies of a stage that read each other's memory, and are too far
 * apart. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"
#include "common/machine/machine.h"
#include "common/pipeline/graph_impl.h"

/* One parameter that must be equal to another. */
struct pair {
    const struct pst_pipeline *pl;
    struct pst_diag *diag;
    const struct pst_pipeline_stage_spec *stage;
    const struct pst_param_desc *param;
    struct pst_desc_equals equals;
    bool seen[2 * PST_PIPELINE_LINKS_MAX];
};

static void text_of(const json_t *value, char out[80])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    (void)snprintf(out, 80, "%.79s", text ? text : "?");
    free(text);
}

static bool is_given(const struct pst_pipeline *pl, const char *stage, const char *param)
{
    const json_t *stages = json_object_get(pl->doc.root, "stages");
    return json_object_get(json_object_get(json_object_get(stages, stage), "params"), param) != NULL;
}

/* Where an error is shown: at the value that only the other stage was given, if that is so. */
static void path_of(const struct pair *pair, const char *other, char out[PST_JSON_PATH_MAX])
{
    const char *mine = pair->param->name, *theirs = pair->equals.param;
    if (!is_given(pair->pl, pair->stage->name, mine) && is_given(pair->pl, other, theirs))
        pst_pipeline_param_path(pair->pl, other, theirs, out);
    else
        pst_pipeline_param_path(pair->pl, pair->stage->name, mine, out);
}

static bool is_equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

/* The length of a list, or of each list of an object; -1: it is neither. */
static int64_t length_of(const json_t *value)
{
    if (json_is_object(value))
        value = json_object_iter_value(json_object_iter((json_t *)(uintptr_t)value));
    return json_is_array(value) ? (int64_t)json_array_size(value) : -1;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* One value of each parameter needs the other. */
static void compare_values(const struct pair *pair, const struct pst_pipeline_stage_spec *other,
                           const json_t *mine, const json_t *theirs)
{
    const struct pst_desc_equals *e = &pair->equals;
    const bool here = is_text(mine, e->mine), there = is_text(theirs, e->theirs);
    char path[PST_JSON_PATH_MAX], theirs_text[80], mine_text[80];
    if (here == there)
        return;
    path_of(pair, other->name, path);
    text_of(mine, mine_text);
    text_of(theirs, theirs_text);
    pst_json_error(&pair->pl->doc, pair->diag, path,
                   "%s.%s is %s, but %s.%s is %s: \"%s\" needs %s.%s to be \"%s\", and the reverse",
                   pair->stage->name, pair->param->name, mine_text, other->name, e->param, theirs_text,
                   e->mine, other->name, e->param, e->theirs);
}

static void compare(const struct pair *pair, const struct pst_pipeline_stage_spec *other)
{
    const char *name = pair->equals.param;
    const json_t *mine = json_object_get(pair->stage->params, pair->param->name);
    const json_t *theirs = json_object_get(other->params, name);
    if (!mine || !theirs || other == pair->stage || (pair->equals.count && length_of(theirs) < 0))
        return;
    if (pair->equals.mine[0]) {
        compare_values(pair, other, mine, theirs);
        return;
    }
    json_t *count = pair->equals.count ? json_integer((json_int_t)length_of(theirs)) : NULL;
    const bool same = is_equal(mine, count ? count : theirs);
    json_decref(count);
    if (same)
        return;
    char path[PST_JSON_PATH_MAX], theirs_text[80], mine_text[80];
    path_of(pair, other->name, path);
    text_of(mine, mine_text);
    text_of(theirs, theirs_text);
    const bool share = strcmp(name, pair->param->name) == 0;
    if (pair->equals.count)
        pst_json_error(&pair->pl->doc, pair->diag, path,
                       "%s.%s is %s, but %s.%s is %s, a list of %" PRId64
                       " elements: the number must be the length of the list",
                       pair->stage->name, pair->param->name, mine_text, other->name, name, theirs_text,
                       length_of(theirs));
    else
        pst_json_error(&pair->pl->doc, pair->diag, path,
                       "%s.%s is %s, but %s.%s is %s: they must be equal%s%s%s", pair->stage->name,
                       pair->param->name, mine_text, other->name, name, theirs_text,
                       share ? "; \"params\": {\"" : "", share ? name : "",
                       share ? "\": ...} at the top level sets both" : "");
}

/* Compares with each stage that fills the slots of this input. */
static void visit(struct pair *pair, int stage, int port)
{
    const struct pst_pipeline *pl = pair->pl;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->to != stage || link->to_port != port || pair->seen[l])
            continue;
        pair->seen[l] = true;
        const struct pst_pipeline_stage_spec *from = &pl->stages[link->from];
        const struct pst_port_desc *out = pst_link_from(pl, link);
        if (!out->forwards && out->requests != PST_REQUESTS_COPIES)
            compare(pair, from);
        for (int p = 0; p < pst_desc_ports(from->caps.desc); p++) {
            const struct pst_port_desc *in = &from->caps.desc->ports[p];
            if (in->dir == PST_IN &&
                (out->requests == PST_REQUESTS_COPIES || pst_desc_forwards(out, in->name)))
                visit(pair, link->from, p);
        }
    }
}

/* ---- what one process alone can use ------------------------------------------------------------- */

/* What only one process can use by this parameter. NULL: nothing. */
static const char *alone(const struct pst_pipeline_stage_spec *stage, const struct pst_param_desc *param)
{
    const char *text = json_string_value(json_object_get(stage->params, param->name));
    return param->alone && text && text[0] && pst_condition_holds(param->needed_if, stage->params) ? text
                                                                                                   : NULL;
}

/* The first word of a list that another parameter of the same name has, too. */
static bool shares(const struct pst_pipeline_stage_spec *other, const struct pst_param_desc *param,
                   const char *text, char word[PST_NAME_MAX])
{
    const struct pst_param_desc *same = pst_desc_param(other->caps.desc, param->name);
    const char *theirs = same ? alone(other, same) : NULL;
    for (const char *at = text; theirs && (at = pst_desc_list_next(at, ',', word));)
        if (pst_desc_list_has(theirs, ',', word))
            return true;
    return false;
}

/* Why there are several copies of a stage: "2 replicas". False: there is one. */
static bool has_copies(const struct pst_pipeline_stage_spec *stage, char text[48])
{
    const bool replicas = stage->replicas > 1;
    (void)snprintf(text, 48, "%d %s", replicas ? stage->replicas : stage->instances,
                   replicas ? "replicas" : "instances");
    return replicas || stage->instances > 1;
}

static void check_alone(const struct pst_pipeline *pl, int s, const struct pst_param_desc *param,
                        struct pst_diag *diag)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
    const char *text = alone(stage, param);
    char path[PST_JSON_PATH_MAX], copies[48], word[PST_NAME_MAX];
    if (!text)
        return;
    pst_pipeline_param_path(pl, stage->name, param->name, path);
    if (has_copies(stage, copies))
        pst_json_error(&pl->doc, diag, path,
                       "with %s, only one process can use the %s %s, but stage %s has %s: expected one copy "
                       "of the stage, or another value than %s",
                       param->needed_if, param->name, text, stage->name, copies, param->needed_if);
    for (int other = 0; other < s; other++)
        if (shares(&pl->stages[other], param, text, word))
            pst_json_error(&pl->doc, diag, path,
                           "with %s, only one process can use %s, but stage %s has it among its %s, too: "
                           "expected other %s for each stage",
                           param->needed_if, word, pl->stages[other].name, param->name, param->name);
}

/* Every copy of a program would listen at its endpoint. */
static void check_endpoint(const struct pst_pipeline *pl, int s, struct pst_diag *diag)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
    const char *port = strrchr(stage->endpoint, ':');
    char path[PST_JSON_PATH_MAX], copies[48];
    if (!port || strcmp(port, ":*") == 0)
        return;
    (void)snprintf(path, sizeof path, "stages.%s.endpoint", stage->origin);
    if (has_copies(stage, copies))
        pst_json_error(&pl->doc, diag, path,
                       "stage %s has %s, which cannot all listen at %s: expected a free port for each, "
                       "%.*s:*",
                       stage->name, copies, stage->endpoint, (int)(port - stage->endpoint), stage->endpoint);
    for (int other = 0; other < s; other++)
        if (strcmp(pl->stages[other].endpoint, stage->endpoint) == 0)
            pst_json_error(&pl->doc, diag, path,
                           "stage %s listens at %s, too: expected another port, or %.*s:* for a free one",
                           pl->stages[other].name, stage->endpoint, (int)(port - stage->endpoint),
                           stage->endpoint);
}

/* ---- machine files ------------------------------------------------------------------------------ */

static bool is_on_gpu(const struct pst_pipeline_stage_spec *stage)
{
    return strncmp(stage->device, "cuda:", 5) == 0;
}

/* Are there replicas on GPUs? Then those that cannot run there are on cpu:0. */
static bool are_on_gpus(const struct pst_pipeline *pl)
{
    for (int r = 0; r < pl->nstages; r++)
        if (pl->stages[r].replicas > 1 && is_on_gpu(&pl->stages[r]))
            return true;
    return false;
}

/* Replicas on cpu:N or cuda:N are on a device of the machine that the parameter names: cpu:N+1, cuda:N. */
static void check_machine(const struct pst_pipeline *pl, int s, const struct pst_param_desc *param,
                          struct pst_diag *diag)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
    const char *file = json_string_value(json_object_get(stage->params, param->name));
    char path[PST_JSON_PATH_MAX];
    struct pst_machine m;
    if (param->path != PST_PATH_MACHINE || !file || !file[0] || !pst_machine_load(&m, file, diag))
        return;
    pst_pipeline_param_path(pl, stage->name, param->name, path);
    for (int r = 0; r < pl->nstages; r++) {
        const char *device = pl->stages[r].device;
        const bool gpu = is_on_gpu(&pl->stages[r]);
        if (pl->stages[r].replicas > 1 && (gpu || !are_on_gpus(pl)) && pst_machine_device(&m, device) < 0)
            pst_json_error(
                &pl->doc, diag, path,
                "%s is on %s, but %s has only the devices %s to %s:%d: change replicas.places, or the "
                "machine file",
                pl->stages[r].name, device, file, gpu ? "cuda:0" : "cpu:1", gpu ? "cuda" : "cpu",
                m.ndevices - gpu);
    }
}

/* ---- memory that copies of a stage read from each other ------------------------------------------ */

/* "PARAM=VALUE" with the value that the parameter has, and the path of the parameter. */
static void name_cause(const struct pst_pipeline *pl, const struct pst_pipeline_stage_spec *stage,
                       const char *condition, char text[160], char path[PST_JSON_PATH_MAX])
{
    char name[PST_NAME_MAX], values[PST_CONDITION_VALUES_MAX];
    (void)pst_condition_next(&condition, name, values);
    const json_t *value = json_object_get(stage->params, name);
    char *number = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    (void)snprintf(text, 160, "%.60s=%.90s", name, number ? number : json_string_value(value));
    free(number);
    pst_pipeline_param_path(pl, stage->name, name, path);
}

/* The copies of a stage that get the output of a link must be on one machine. */
static void check_near(const struct pst_pipeline *pl, const struct pst_link_spec *link, struct pst_diag *diag)
{
    const struct pst_pipeline_stage_spec *stage = &pl->stages[link->from], *to = &pl->stages[link->to];
    const char *condition = pst_link_from(pl, link)->near_if;
    char cause[160], path[PST_JSON_PATH_MAX];
    if (!condition || !pst_condition_holds(condition, stage->params))
        return;
    name_cause(pl, stage, condition, cause, path);
    if (pl->ranks > 1)
        pst_json_error(&pl->doc, diag, path,
                       "with %s, copies of stage %s read each other's memory, which they can only on one "
                       "machine, but %d ranks were started: expected one rank, or change %s",
                       cause, to->origin, pl->ranks, path);
}

void pst_graph_check_values(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    for (int l = 0; l < pl->nlinks; l++)
        check_near(pl, &pl->links[l], diag);
    for (int s = 0; s < pl->nstages; s++) {
        check_endpoint(pl, s, diag);
        for (const struct pst_param_desc *p = pl->stages[s].caps.desc->params; p && p->name; p++)
            check_alone(pl, s, p, diag);
        for (const struct pst_param_desc *p = pl->stages[s].caps.desc->params; p && p->name; p++)
            check_machine(pl, s, p, diag);
        const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
        for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
            struct pair pair = {.pl = pl, .diag = diag, .stage = &pl->stages[s], .param = p};
            const int port =
                p->equals && pst_desc_equals(p, &pair.equals) ? pst_desc_port(desc, pair.equals.port) : -1;
            if (port >= 0 && desc->ports[port].dir == PST_IN)
                visit(&pair, s, port);
        }
    }
}
