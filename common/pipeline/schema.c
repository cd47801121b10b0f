/* schema.c: the JSON Schema of pipeline files. It says what load.c, load_stages.c and load_links.c accept, as
 * far as a schema can: not the agreement of stages with each other, nor what this machine has. */
#include "common/pipeline/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/load_impl.h"

#define DEVICE_PATTERN "^(auto|(cpu|cuda):(0|[1-9]|1[0-5]))$"
static_assert(PST_PIPELINE_DEVICES_MAX == 16, "DEVICE_PATTERN has this limit, too");
#define PLACE_PATTERN "^(cpu|cuda):(0|[1-9]|1[0-5])$"
#define CORES_PATTERN "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
#define ENDPOINT_PATTERN "^tcp://.+:([0-9]{1,5}|\\*)$"
#define BYTES_PATTERN "^[0-9]{1,18}(\\.[0-9]+)?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?$"
#define END_PATTERN "^[^.]+\\.[^.]+$"
#define NAME_PATTERN_MAX 40

/* ---- pieces -------------------------------------------------------------------------------------- */

static json_t *described(json_t *schema, const char *help)
{
    (void)json_object_set_new(schema, "description", json_string(help));
    return schema;
}

static json_t *text(const char *pattern, const char *help)
{
    return described(json_pack("{ss ss*}", "type", "string", "pattern", pattern), help);
}

static json_t *name_text(int max, const char *help)
{
    char pattern[NAME_PATTERN_MAX];
    (void)snprintf(pattern, sizeof pattern, "^[A-Za-z0-9_-]{1,%d}$", max);
    return text(pattern, help);
}

static json_t *integer(json_int_t min, json_int_t max, const char *help)
{
    return described(json_pack("{ss sI sI}", "type", "integer", "minimum", min, "maximum", max), help);
}

/* Only the powers of two from min to max. */
static json_t *powers_of_two(json_t *integer, const struct pst_param_desc *param)
{
    json_t *list = json_array();
    for (json_int_t n = 1; (double)n <= param->max; n *= 2)
        if ((double)n >= param->min)
            (void)json_array_append_new(list, json_integer(n));
    (void)json_object_set_new(integer, "enum", list);
    return integer;
}

/* An object with these members and no others. */
static json_t *closed(json_t *members, const char *help)
{
    return described(
        json_pack("{ss so sb}", "type", "object", "properties", members, "additionalProperties", 0), help);
}

/* ---- parameters ---------------------------------------------------------------------------------- */

static json_t *limited(const struct pst_param_desc *param, const char *type)
{
    json_t *j = json_pack("{ss}", "type", type);
    if (param->min == 0 && param->max == 0)
        return j;
    const bool whole = param->type != PST_PARAM_REAL;
    (void)json_object_set_new(j, "minimum",
                              whole ? json_integer((json_int_t)param->min) : json_real(param->min));
    (void)json_object_set_new(j, "maximum",
                              whole ? json_integer((json_int_t)param->max) : json_real(param->max));
    return j;
}

static json_t *choices(const struct pst_param_desc *param)
{
    char word[PST_NAME_MAX];
    json_t *list = json_array();
    for (const char *at = param->choices; (at = pst_desc_list_next(at, '|', word)) != NULL;)
        (void)json_array_append_new(list, json_string(word));
    return json_pack("{so}", "enum", list);
}

static json_t *integers(const struct pst_param_desc *param)
{
    json_t *j = json_pack("{ss so}", "type", "array", "items", limited(param, "integer"));
    if (param->count_min != 0 || param->count_max != 0) {
        (void)json_object_set_new(j, "minItems", json_integer((json_int_t)param->count_min));
        (void)json_object_set_new(j, "maxItems", json_integer((json_int_t)param->count_max));
    }
    return j;
}

/* A list, an object of lists, or a list of objects. No schema can say that lists are equally long. */
static json_t *named_integers(const struct pst_param_desc *param)
{
    json_t *places = json_pack("{ss s{ss so si}}", "type", "array", "items", "type", "object",
                               "additionalProperties", limited(param, "integer"), "minProperties", 1);
    if (param->count_min != 0 || param->count_max != 0) {
        (void)json_object_set_new(places, "minItems", json_integer((json_int_t)param->count_min));
        (void)json_object_set_new(places, "maxItems", json_integer((json_int_t)param->count_max));
    }
    return json_pack("{s[o{ss si si so}o]}", "anyOf", integers(param), "type", "object", "minProperties", 1,
                     "maxProperties", PST_NAMED_INTS_MAX, "additionalProperties", integers(param), places);
}

static json_t *bytes(const struct pst_param_desc *param)
{
    json_t *number = limited(param, "integer");
    if (json_object_get(number, "minimum") == NULL)
        (void)json_object_set_new(number, "minimum", json_integer(0));
    return json_pack("{s[o{ss ss}]}", "anyOf", number, "type", "string", "pattern", BYTES_PATTERN);
}

json_t *pst_pipeline_param_schema(const struct pst_param_desc *param)
{
    json_t *j = NULL, *def = param->def ? json_loads(param->def, JSON_DECODE_ANY, NULL) : NULL;
    switch (param->type) {
    case PST_PARAM_BOOL: j = json_pack("{ss}", "type", "boolean"); break;
    case PST_PARAM_INT:
        j = limited(param, "integer");
        j = param->divided ? powers_of_two(j, param) : j;
        break;
    case PST_PARAM_REAL: j = limited(param, "number"); break;
    case PST_PARAM_STRING: j = json_pack("{ss}", "type", "string"); break;
    case PST_PARAM_ENUM: j = choices(param); break;
    case PST_PARAM_BYTES: j = bytes(param); break;
    case PST_PARAM_INTS: j = integers(param); break;
    case PST_PARAM_NAMED_INTS: j = named_integers(param); break;
    }
    if (param->automatic)
        j = json_pack("{s[o{ss}]}", "anyOf", j, "const", "auto");
    if (def != NULL)
        (void)json_object_set_new(j, "default", def);
    return described(j, param->help);
}

/* The values of a condition, "VALUE|VALUE": as strings, and as what else they can be. */
static json_t *condition_values(const char *values)
{
    char word[PST_NAME_MAX];
    json_t *list = json_array();
    for (const char *at = values; (at = pst_desc_list_next(at, '|', word)) != NULL;) {
        json_t *other = json_loads(word, JSON_DECODE_ANY, NULL);
        (void)json_array_append_new(list, json_string(word));
        if (other != NULL)
            (void)json_array_append_new(list, other);
    }
    return list;
}

/* {"if": the stage's own value of another parameter makes this one useless, "then": it has its default}. If
 * the stage has no value of the other, the pipeline's `params` may have one. */
static void add_only_if(json_t *rules, const struct pst_param_desc *p)
{
    char name[PST_NAME_MAX], values[PST_CONDITION_VALUES_MAX];
    const bool named = p->type == PST_PARAM_NAMED_INTS; /* a list without names is always possible */
    for (const char *at = p->only_if; at && pst_condition_next(&at, name, values) && named;)
        (void)json_array_append_new(rules, json_pack("{s{s{s{s{s[{so}{ssss}]}}} s[s]} s{s{s{ss s{ss}}}}}",
                                                     "if", "properties", name, "not", "anyOf", "enum",
                                                     condition_values(values), "type", "string", "pattern",
                                                     "/", "required", name, "then", "properties", p->name,
                                                     "type", "array", "items", "type", "integer"));
    for (const char *at = p->only_if; at && !named && pst_condition_next(&at, name, values);)
        (void)json_array_append_new(rules, json_pack("{s{s{s{s{so}}} s[s]} s{s{s{so}}}}", "if", "properties",
                                                     name, "not", "enum", condition_values(values),
                                                     "required", name, "then", "properties", p->name, "const",
                                                     json_loads(p->def, JSON_DECODE_ANY, NULL)));
}

/* {"if": the stage's own value of another parameter excludes a choice of this one, "then": it has another}.
 */
static void add_choice_if(json_t *rules, const struct pst_param_desc *p)
{
    char choice[PST_NAME_MAX], condition[PST_DESC_CONDITION_MAX], name[PST_NAME_MAX],
        values[PST_CONDITION_VALUES_MAX];
    for (const char *part = p->choice_if; pst_desc_choice_if(p, &part, choice, condition);)
        for (const char *at = condition; pst_condition_next(&at, name, values);) {
            if (strcmp(name, PST_DESC_DEVICE) == 0)
                continue; /* a schema does not know where stages run */
            (void)json_array_append_new(rules, json_pack("{s{s{s{s{s[{so}{ssss}]}}} s[s]} s{s{s{s{ss}}}}}",
                                                         "if", "properties", name, "not", "anyOf", "enum",
                                                         condition_values(values), "type", "string",
                                                         "pattern", "/", "required", name, "then",
                                                         "properties", p->name, "not", "const", choice));
        }
}

/* {"if": the stage's own values of other parameters need an even number, "then": it is one}. */
static void add_even_if(json_t *rules, const struct pst_param_desc *p)
{
    char name[PST_NAME_MAX], values[PST_CONDITION_VALUES_MAX];
    json_t *given = json_object(), *required = json_array();
    for (const char *at = p->even_if; at && pst_condition_next(&at, name, values);) {
        (void)json_object_set_new(given, name, json_pack("{so}", "enum", condition_values(values)));
        (void)json_array_append_new(required, json_string(name));
    }
    if (p->even_if)
        (void)json_array_append_new(rules,
                                    json_pack("{s{sO sO} s{s{s{si}}}}", "if", "properties", given, "required",
                                              required, "then", "properties", p->name, "multipleOf", 2));
    json_decref(given);
    json_decref(required);
}

static json_t *params_of(const struct pst_stage_desc *desc)
{
    json_t *members = json_object(), *rules = json_array();
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++) {
        (void)json_object_set_new(members, p->name, pst_pipeline_param_schema(p));
        add_only_if(rules, p);
        add_choice_if(rules, p);
        add_even_if(rules, p);
    }
    json_t *j = closed(members, desc->help);
    if (json_array_size(rules) > 0)
        (void)json_object_set(j, "allOf", rules);
    json_decref(rules);
    return j;
}

/* Adds one form of a shared parameter, unless it is there already. */
static void add_form(json_t *shared, const struct pst_param_desc *p)
{
    json_t *form = pst_pipeline_param_schema(p), *forms = json_object_get(shared, p->name), *other;
    size_t i;
    if (forms == NULL) {
        forms = json_array();
        (void)json_object_set_new(shared, p->name, forms);
    }
    json_array_foreach(forms, i, other)
    {
        if (json_equal(other, form)) {
            json_decref(form);
            return;
        }
    }
    (void)json_array_append_new(forms, form);
}

/* The pipeline's own `params`: a value for every stage that has the parameter. Stages can describe a
 * parameter of one name in several ways; then any of these is accepted. */
static json_t *shared_params(const struct pst_pipeline_schema_stage *stages, size_t n)
{
    json_t *shared = json_object(), *forms;
    const char *name;
    for (size_t s = 0; s < n; s++)
        for (const struct pst_param_desc *p = stages[s].desc->params; p && p->name; p++)
            add_form(shared, p);
    void *next;
    json_object_foreach_safe(shared, next, name, forms)
    {
        json_t *only = json_array_get(forms, 0);
        if (json_array_size(forms) > 1)
            (void)json_object_set_new(
                shared, name,
                json_pack("{sO sO}", "anyOf", forms, "description", json_object_get(only, "description")));
        else
            (void)json_object_set(shared, name, only);
    }
    return described(json_pack("{ss so}", "type", "object", "properties", shared),
                     "values for all stages that have the parameter and no value of their own");
}

/* ---- stages and links ---------------------------------------------------------------------------- */

static json_t *place_schema(bool of_stage)
{
    json_t *members = json_pack(
        "{so}", "device", text(DEVICE_PATTERN, "cpu:N, cuda:N, or auto: a GPU if the stage can use it"));
    if (of_stage)
        (void)json_object_update_new(
            members,
            json_pack("{so so}", "cores", text(CORES_PATTERN, "the cores that it may run on: 0-3,6"),
                      "sm_percent", integer(1, 100, "largest share of a GPU's multiprocessors, under MPS")));
    else
        (void)json_object_update_new(
            members,
            json_pack("{so so}", "measured",
                      text(NULL, "the directory of a run whose times tell auto whether two GPUs pay"),
                      "link_bytes_per_s",
                      described(json_pack("{ss sf sf}", "type", "number", "minimum",
                                          PST_PIPELINE_LINK_RATE_MIN, "maximum", PST_PIPELINE_LINK_RATE_MAX),
                                "bytes a second from one GPU to another (default: 12e9)")));
    return closed(members, of_stage ? "where the stage runs"
                                    : "where stages run that name no device and can run there");
}

/* {"if": the stage runs `run`, "then": ...} */
static json_t *if_run(json_t *is_run, json_t *then)
{
    return json_pack("{s{s{so} s[s]} so}", "if", "properties", "run", is_run, "required", "run", "then",
                     then);
}

static json_t *stage_schema(const struct pst_pipeline_schema_stage *stages, size_t n, bool settings)
{
    json_t *runs = json_array(), *rules = json_array();
    for (size_t s = 0; s < n; s++) {
        const struct pst_stage_desc *desc = stages[s].desc;
        json_t *then = json_pack("{so}", "params", params_of(desc));
        if (desc->instances_max > 0)
            (void)json_object_set_new(then, "instances", json_pack("{si}", "maximum", desc->instances_max));
        (void)json_array_append_new(runs, described(json_pack("{ss}", "const", stages[s].run), desc->help));
        (void)json_array_append_new(
            rules, if_run(json_pack("{ss}", "const", stages[s].run), json_pack("{so}", "properties", then)));
    }
    (void)json_array_append_new(runs, text("/", "the path of a shared object or of a program"));
    json_t *members =
        json_pack("{so s{ss} so so so so}", "run",
                  described(json_pack("{so}", "anyOf", runs), "an installed stage, or the path of another"),
                  "params", "type", "object", "place", place_schema(true), "group",
                  name_text(PST_PIPELINE_STAGE_NAME_MAX, "stages of one group are threads of one process"),
                  "instances", integer(1, PST_INSTANCES_MAX, "copies of the stage"), "endpoint",
                  text(ENDPOINT_PATTERN, "of a program: tcp://ADDRESS:PORT in place of a local socket"));
    json_t *j = closed(members, "a stage");
    (void)json_object_set_new(j, "allOf", rules);
    if (!settings)
        (void)json_object_set_new(j, "required", json_pack("[s]", "run"));
    return j;
}

static json_t *link_schema(bool settings)
{
    json_t *members =
        json_pack("{so so so so so}", "from", text(END_PATTERN, "an output: stage.port"), "to",
                  text(END_PATTERN, "an input: stage.port"), "slots",
                  integer(1, PST_SLOTS_MAX, "batches in flight, on the link where a route begins"), "back",
                  described(json_pack("{ss}", "type", "boolean"), "the link closes a loop"), "when",
                  text(NULL, "gpu_memory, never, or PARAM=VALUE: when the link exists"));
    json_t *j = closed(members, "a link");
    if (!settings)
        (void)json_object_set_new(j, "required", json_pack("[ss]", "from", "to"));
    return j;
}

/* In settings, an object changes single elements of the list. */
static json_t *links_schema(bool settings)
{
    json_t *list =
        json_pack("{ss so si}", "type", "array", "items", json_pack("{ss}", "$ref", "#/definitions/link"),
                  "maxItems", PST_PIPELINE_LINKS_MAX);
    if (!settings)
        return described(list, "which output goes to which input");
    return described(json_pack("{s[o{ss s{so} sb}]}", "anyOf", list, "type", "object", "patternProperties",
                               "^[0-9]+$", json_pack("{ss}", "$ref", "#/definitions/link"),
                               "additionalProperties", 0),
                     "which output goes to which input; an object changes elements by their indices");
}

static json_t *replicas_schema(void)
{
    json_t *device = text(PLACE_PATTERN, "cpu:N or cuda:N");
    json_t *place = closed(json_pack("{sO so}", "device", device, "cores",
                                     text(CORES_PATTERN, "the cores that the replica may run on: 0-3,6")),
                           "a device and its cores");
    (void)json_object_set_new(place, "required", json_pack("[s]", "device"));
    json_t *members =
        json_pack("{s{ss s{ss} si si} s{ss s{s[oo]} si si}}", "stages", "type", "array", "items", "type",
                  "string", "minItems", 1, "maxItems", PST_STAGES_MAX, "places", "type", "array", "items",
                  "anyOf", device, place, "minItems", 1, "maxItems", PST_REPLICAS_MAX);
    return closed(members, "stages, and the places: each stage gets one replica for each place");
}

/* ---- rules over the whole ------------------------------------------------------------------------ */

/* A parameter without a default, in its stage or shared. */
static void require_params(json_t *rules, const struct pst_pipeline_schema_stage *stage)
{
    for (const struct pst_param_desc *p = stage->desc->params; p && p->name; p++) {
        if (p->def != NULL)
            continue;
        json_t *given =
            json_pack("{s{s{s[s]}} s[s]}", "properties", "params", "required", p->name, "required", "params");
        json_t *has_own = if_run(json_pack("{ss}", "const", stage->run), json_copy(given));
        (void)json_array_append_new(rules, json_pack("{s[o{s{s{so}}}]}", "anyOf", given, "properties",
                                                     "stages", "additionalProperties", has_own));
    }
}

/* If no stage is named by a path, the names of all shared parameters are known. */
static json_t *known_shared(json_t *shared)
{
    json_t *names = json_array(), *value;
    const char *name;
    json_object_foreach(json_object_get(shared, "properties"), name, value)
    {
        (void)json_array_append_new(names, json_string(name));
    }
    return json_pack("{s{s{s{s{s{s{s{ss}}}}}}} s{s{s{s{so}}}}}", "if", "properties", "stages",
                     "additionalProperties", "properties", "run", "not", "pattern", "/", "then", "properties",
                     "params", "propertyNames", "enum", names);
}

static json_t *head_schema(void)
{
    json_t *bus =
        closed(json_pack("{s{ss sf} s{ss si sf}}", "bytes_per_s", "type", "number", "exclusiveMinimum", 0.0,
                         "dilate", "type", "number", "minimum", 1, "maximum", PST_PIPELINE_BUS_DILATE_MAX),
               "a modelled PCIe bus, for a machine without a GPU");
    (void)json_object_set_new(bus, "required", json_pack("[s]", "bytes_per_s"));
    json_t *stop = closed(
        json_pack("{so so}", "metric",
                  name_text(PST_NAME_MAX - 1, "a column of the report's epochs (default: val_accuracy)"),
                  "patience",
                  integer(1, PST_PIPELINE_EPOCHS_MAX,
                          "end after this number of epochs in a row without a better value (default: 10)")),
        "when to end the run before its epochs are over");
    return json_pack(
        "{so so so so so so so so so so so}", "$schema",
        text(NULL, "the schema, for editors; Penstock does not read it"), "penstock",
        described(json_pack("{si}", "const", 1), "the version of this format: 1"), "name",
        name_text(PST_NAME_MAX - 1, "a name for files and reports (default: the file's)"), "help",
        text(NULL, "what the pipeline is for"), "dataset", text(NULL, "the directory of the dataset"), "seed",
        integer(0, INT64_MAX, "of all random numbers (default: 1)"), "epochs",
        integer(1, PST_PIPELINE_EPOCHS_MAX, "how many (default: 1)"), "overlap",
        described(json_pack("{ss sb}", "type", "boolean", "default", 1), "false: one stage works at a time"),
        "stop", stop, "bus", bus, "place", place_schema(false));
}

json_t *pst_pipeline_schema(const struct pst_pipeline_schema_stage *stages, size_t n, bool settings)
{
    json_t *rules = json_array(), *members = head_schema();
    json_t *shared = shared_params(stages, n);
    for (size_t s = 0; s < n && !settings; s++)
        require_params(rules, &stages[s]);
    if (!settings)
        (void)json_array_append_new(rules, known_shared(shared));
    (void)json_object_set_new(members, "params", shared);
    (void)json_object_set_new(
        members, "stages",
        described(json_pack("{ss so so si si}", "type", "object", "propertyNames",
                            name_text(PST_PIPELINE_STAGE_NAME_MAX, "the name of a stage"),
                            "additionalProperties", json_pack("{ss}", "$ref", "#/definitions/stage"),
                            "minProperties", 1, "maxProperties", PST_STAGES_MAX),
                  "the stages, by name"));
    (void)json_object_set_new(members, "links", links_schema(settings));
    (void)json_object_set_new(members, "replicas", replicas_schema());
    json_t *root = closed(members, "a pipeline of Penstock");
    if (root == NULL)
        return NULL;
    (void)json_object_set_new(root, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    (void)json_object_set_new(root, "title",
                              json_string(settings ? "Penstock settings" : "Penstock pipeline"));
    (void)json_object_set_new(
        root, "definitions",
        json_pack("{so so}", "stage", stage_schema(stages, n, settings), "link", link_schema(settings)));
    if (!settings)
        (void)json_object_set_new(root, "required", json_pack("[ss]", "penstock", "stages"));
    if (json_array_size(rules) > 0)
        (void)json_object_set(root, "allOf", rules);
    json_decref(rules);
    return root;
}
