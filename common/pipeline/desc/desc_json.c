/* desc_json.c: descriptions as JSON: what `penstock stages NAME --json` prints, and what an external program
 * prints when it is called with --describe. */
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"

/* ---- to JSON --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {{"oneshot", PST_PORT_ONESHOT},
                  {"optional", PST_PORT_OPTIONAL},
                  {"ordered", PST_PORT_ORDERED},
                  {"writes", PST_PORT_WRITES},
                  {"returns", PST_PORT_RETURNS},
                  {"aside", PST_PORT_ASIDE},
                  {"needed_on_gpu", PST_PORT_NEEDED_ON_GPU},
                  {"in_place", PST_PORT_IN_PLACE}};
#define FLAG_NAMES (sizeof flag_names / sizeof flag_names[0])

/* By enum pst_requests. The first is not written. */
static const char *const request_names[] = {"pass", "makes", "copies", "serves", "needs"};
#define REQUEST_NAMES (sizeof request_names / sizeof request_names[0])

/* By enum pst_replicas. The first is not written. */
static const char *const replica_names[] = {"none", "each", "meet"};
#define REPLICA_NAMES (sizeof replica_names / sizeof replica_names[0])

static json_t *port_to_json(const struct pst_port_desc *p)
{
    json_t *flags = json_array();
    for (size_t f = 0; f < FLAG_NAMES; f++)
        if (p->flags & flag_names[f].flag)
            (void)json_array_append_new(flags, json_string(flag_names[f].name));
    return json_pack("{ss ss ss ss ss* si ss ss* ss* so si ss* ss* ss* ss* ss*}", "name", p->name, "dir",
                     p->dir == PST_IN ? "in" : "out", "help", p->help, "type", p->type, "dtype", p->dtype,
                     "rank", p->rank, "memory", p->memory, "forwards", p->forwards, "requests",
                     p->requests != PST_REQUESTS_PASS ? request_names[p->requests] : NULL, "flags", flags,
                     "hold", p->hold > 0 || p->hold_param ? p->hold : 1, "hold_param", p->hold_param,
                     "splits_if", p->splits_if, "whole_if", p->whole_if, "in_place_if", p->in_place_if,
                     "near_if", p->near_if);
}

static const char *const path_names[] = {[PST_PATH_FILE] = "file",
                                         [PST_PATH_FILES] = "files",
                                         [PST_PATH_OR_NAME] = "file or name",
                                         [PST_PATH_MACHINE] = "machine file"};
#define PATH_NAMES (sizeof path_names / sizeof path_names[0])

static json_t *param_to_json(const struct pst_param_desc *p)
{
    json_t *def = p->def ? json_loads(p->def, JSON_DECODE_ANY, NULL) : NULL;
    json_t *j =
        json_pack("{ss ss so* sf sf ss* ss* ss* ss* ss* ss* ss* ss* ss sb sb sb ss*}", "name", p->name,
                  "type", pst_desc_type_name(p->type), "default", def, "min", p->min, "max", p->max,
                  "choices", p->choices, "equals", p->equals, "needed_if", p->needed_if, "only_if",
                  p->only_if, "choice_if", p->choice_if, "below", p->below, "at_most", p->at_most, "even_if",
                  p->even_if, "help", p->help, "fixed", (int)p->fixed, "automatic", (int)p->automatic,
                  "divided", (int)p->divided, "path", p->path < PATH_NAMES ? path_names[p->path] : NULL);
    if (p->count_min != 0 || p->count_max != 0) {
        (void)json_object_set_new(j, "count_min", json_integer((json_int_t)p->count_min));
        (void)json_object_set_new(j, "count_max", json_integer((json_int_t)p->count_max));
    }
    if (p->alone)
        (void)json_object_set_new(j, "alone", json_true());
    char choice[PST_NAME_MAX];
    if (pst_desc_choice(p, p->counted - 1, choice))
        (void)json_object_set_new(j, "counted", json_string(choice));
    return j;
}

json_t *pst_desc_json(const struct pst_stage_desc *desc)
{
    json_t *ports = json_array(), *params = json_array();
    for (int i = 0; i < pst_desc_ports(desc); i++)
        (void)json_array_append_new(ports, port_to_json(&desc->ports[i]));
    for (int i = 0; desc->params && desc->params[i].name; i++)
        (void)json_array_append_new(params, param_to_json(&desc->params[i]));
    return json_pack("{si ss ss si ss* ss* so so}", "abi", (int)desc->abi, "name", desc->name, "help",
                     desc->help, "instances_max", desc->instances_max, "replicas",
                     desc->replicas != PST_REPLICAS_NONE ? replica_names[desc->replicas] : NULL, "dataset",
                     desc->dataset, "ports", ports, "params", params);
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* The strings of a description that came as JSON live in the JSON object, which the caps keep. */
static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Is each of these members a string, or absent? */
static bool are_texts(const json_t *object, const char *const *keys, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        ok = ok && (!value || json_is_string(value));
    }
    return ok;
}

/* An integer from min to max; `def` if it is absent. False: something else. */
static bool int_from_json(const json_t *object, const char *key, json_int_t def, json_int_t min,
                          json_int_t max, json_int_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = value ? json_integer_value(value) : def;
    return !value || (json_is_integer(value) && *out >= min && *out <= max);
}

static bool flags_from_json(const json_t *list, unsigned *flags)
{
    size_t i;
    json_t *flag;
    if (list && !json_is_array(list))
        return false;
    json_array_foreach(list, i, flag)
    {
        size_t f = 0;
        while (f < FLAG_NAMES &&
               (!json_is_string(flag) || strcmp(json_string_value(flag), flag_names[f].name) != 0))
            f++;
        if (f == FLAG_NAMES)
            return false;
        *flags |= flag_names[f].flag;
    }
    return true;
}

/* The number of a name; 0 if there is no text. False: it is none of the n names. */
static bool choice_from_json(const char *text, const char *const *names, size_t n, size_t *out)
{
    *out = 0;
    while (text && *out < n && strcmp(text, names[*out]) != 0)
        ++*out;
    return *out < n;
}

static bool requests_from_json(const char *text, enum pst_requests *out)
{
    size_t i;
    const bool known = choice_from_json(text, request_names, REQUEST_NAMES, &i);
    *out = (enum pst_requests)i;
    return known;
}

static bool port_from_json(struct pst_port_desc *port, const json_t *j)
{
    static const char *const texts[] = {"dtype",     "memory",   "forwards",    "requests", "hold_param",
                                        "splits_if", "whole_if", "in_place_if", "near_if"};
    const char *dir = text_of(j, "dir"), *dtype = text_of(j, "dtype"), *memory = text_of(j, "memory");
    json_int_t rank, hold;
    if (!are_texts(j, texts, sizeof texts / sizeof texts[0]) ||
        !int_from_json(j, "rank", -1, -1, PST_DESC_RANK_MAX, &rank) ||
        !int_from_json(j, "hold", 0, 0, PST_SLOTS_MAX, &hold) || !dir ||
        (strcmp(dir, "in") != 0 && strcmp(dir, "out") != 0))
        return false;
    *port = (struct pst_port_desc){
        .name = text_of(j, "name"),
        .dir = strcmp(dir, "out") == 0 ? PST_OUT : PST_IN,
        .help = text_of(j, "help"),
        .type = text_of(j, "type"),
        .dtype = dtype ? dtype : "any",
        .rank = (int)rank,
        .memory = memory ? memory : "cpu",
        .forwards = text_of(j, "forwards"),
        .hold = (int)hold,
        .hold_param = text_of(j, "hold_param"),
        .splits_if = text_of(j, "splits_if"),
        .whole_if = text_of(j, "whole_if"),
        .in_place_if = text_of(j, "in_place_if"),
        .near_if = text_of(j, "near_if"),
    };
    return port->name && flags_from_json(json_object_get(j, "flags"), &port->flags) &&
           requests_from_json(text_of(j, "requests"), &port->requests);
}

static bool path_from_json(const json_t *j, unsigned char *out)
{
    const char *text = json_string_value(j);
    for (unsigned char p = PST_PATH_FILE; text && p < PATH_NAMES; p++)
        if (strcmp(text, path_names[p]) == 0)
            *out = p;
    return j == NULL || *out != PST_PATH_NONE;
}

static bool counted_from_json(const char *text, struct pst_param_desc *param)
{
    char choice[PST_NAME_MAX];
    for (unsigned char i = 0; text && i < UINT8_MAX && pst_desc_choice(param, i, choice); i++)
        if (strcmp(text, choice) == 0)
            param->counted = i + 1;
    return text == NULL || param->counted > 0;
}

static bool param_from_json(struct pst_param_desc *param, json_t *j)
{
    static const char *const texts[] = {"choices", "equals", "needed_if", "only_if", "choice_if",
                                        "counted", "below",  "at_most",   "even_if"};
    const char *type = text_of(j, "type");
    json_int_t count_min, count_max;
    int kind = -1;
    for (int t = PST_PARAM_BOOL; t <= PST_PARAM_NAMED_INTS; t++)
        if (type && strcmp(type, pst_desc_type_name((enum pst_param_type)t)) == 0)
            kind = t;
    if (kind < 0 || !are_texts(j, texts, sizeof texts / sizeof texts[0]) ||
        !int_from_json(j, "count_min", 0, 0, INT32_MAX, &count_min) ||
        !int_from_json(j, "count_max", 0, 0, INT32_MAX, &count_max))
        return false;
    json_t *def = json_object_get(j, "default");
    if (def) { /* kept as text in the description, where it lives as long as the caps */
        char *text = json_dumps(def, JSON_ENCODE_ANY);
        (void)json_object_set_new(j, "default_text", text ? json_string(text) : NULL);
        free(text);
    }
    *param = (struct pst_param_desc){
        .name = text_of(j, "name"),
        .type = (enum pst_param_type)kind,
        .def = text_of(j, "default_text"),
        .min = json_number_value(json_object_get(j, "min")),
        .max = json_number_value(json_object_get(j, "max")),
        .count_min = (size_t)count_min,
        .count_max = (size_t)count_max,
        .choices = text_of(j, "choices"),
        .equals = text_of(j, "equals"),
        .needed_if = text_of(j, "needed_if"),
        .only_if = text_of(j, "only_if"),
        .choice_if = text_of(j, "choice_if"),
        .below = text_of(j, "below"),
        .at_most = text_of(j, "at_most"),
        .even_if = text_of(j, "even_if"),
        .help = text_of(j, "help"),
        .fixed = json_is_true(json_object_get(j, "fixed")),
        .automatic = json_is_true(json_object_get(j, "automatic")),
        .divided = json_is_true(json_object_get(j, "divided")),
        .alone = json_is_true(json_object_get(j, "alone")),
    };
    return param->name && (kind != PST_PARAM_ENUM || param->choices) &&
           path_from_json(json_object_get(j, "path"), &param->path) &&
           counted_from_json(text_of(j, "counted"), param);
}

void pst_desc_free(const struct pst_stage_desc *desc)
{
    if (!desc)
        return;
    free((void *)(uintptr_t)desc->ports);
    free((void *)(uintptr_t)desc->params);
    free((void *)(uintptr_t)desc);
}

/* A description with room for its ports and params. NULL: out of memory. */
static struct pst_stage_desc *make_desc(size_t nports, size_t nparams)
{
    struct pst_stage_desc *desc = calloc(1, sizeof *desc);
    if (desc) {
        desc->ports = calloc(nports + 1, sizeof *desc->ports);
        desc->params = calloc(nparams + 1, sizeof *desc->params);
    }
    if (desc && desc->ports && desc->params)
        return desc;
    pst_desc_free(desc);
    return NULL;
}

/* Fills a description whose ports and params have room. */
static pst_rc fill(struct pst_stage_desc *desc, const char *file, json_t *j)
{
    static const char *const texts[] = {"dataset", "replicas"};
    const json_t *ports = json_object_get(j, "ports"), *params = json_object_get(j, "params");
    json_int_t instances, abi;
    size_t replicas;
    if (!are_texts(j, texts, 2) ||
        !choice_from_json(text_of(j, "replicas"), replica_names, REPLICA_NAMES, &replicas) ||
        !int_from_json(j, "instances_max", 0, 0, PST_INSTANCES_MAX, &instances) ||
        !int_from_json(j, "abi", 0, 0, INT32_MAX, &abi))
        return pst_fail(
            PST_E_FORMAT,
            "%s: the description's member abi, dataset, replicas or instances_max has a wrong type or value",
            file);
    desc->abi = (uint32_t)abi;
    desc->name = text_of(j, "name");
    desc->help = text_of(j, "help");
    desc->dataset = text_of(j, "dataset");
    desc->instances_max = (int)instances;
    desc->replicas = (enum pst_replicas)replicas;
    for (size_t i = 0; i < json_array_size(ports); i++)
        if (!port_from_json((struct pst_port_desc *)(uintptr_t)&desc->ports[i], json_array_get(ports, i)))
            return pst_fail(PST_E_FORMAT, "%s: ports[%zu] has a member with a wrong type or value", file, i);
    for (size_t i = 0; i < json_array_size(params); i++)
        if (!param_from_json((struct pst_param_desc *)(uintptr_t)&desc->params[i], json_array_get(params, i)))
            return pst_fail(PST_E_FORMAT, "%s: params[%zu] has a member with a wrong type or value", file, i);
    return pst_desc_check(desc, file);
}

pst_rc pst_desc_from_json(const struct pst_stage_desc **out, json_t *j, const char *file)
{
    const json_t *ports = json_object_get(j, "ports"), *params = json_object_get(j, "params");
    *out = NULL;
    if (!json_is_object(j) || (ports && !json_is_array(ports)) || (params && !json_is_array(params)))
        return pst_fail(PST_E_FORMAT,
                        "%s: expected a description, an object with the lists \"ports\" and \"params\"",
                        file);
    const size_t nports = json_array_size(ports), nparams = json_array_size(params);
    if (nports > PST_PORTS_MAX || nparams > PST_PARAMS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "%s: %zu ports and %zu parameters; at most %d ports and %d parameters are allowed",
                        file, nports, nparams, PST_PORTS_MAX, PST_PARAMS_MAX);
    struct pst_stage_desc *desc = make_desc(nports, nparams);
    if (!desc)
        return pst_fail(PST_E_NOMEM, "out of memory");
    const pst_rc rc = fill(desc, file, j);
    if (rc == PST_OK)
        *out = desc;
    else
        pst_desc_free(desc);
    return rc;
}
