/* desc.c: looks things up in a stage's description, and checks the description. */
#include "common/pipeline/desc/desc.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/desc/desc_impl.h"

/* ---- looking up ------------------------------------------------------------------------------ */

int pst_desc_ports(const struct pst_stage_desc *desc)
{
    int n = 0;
    while (desc->ports && desc->ports[n].name)
        n++;
    return n;
}

int pst_desc_port(const struct pst_stage_desc *desc, const char *name)
{
    for (int i = 0; desc->ports && desc->ports[i].name; i++)
        if (strcmp(desc->ports[i].name, name) == 0)
            return i;
    return -1;
}

const struct pst_param_desc *pst_desc_param(const struct pst_stage_desc *desc, const char *name)
{
    for (int i = 0; desc->params && desc->params[i].name; i++)
        if (strcmp(desc->params[i].name, name) == 0)
            return &desc->params[i];
    return NULL;
}

bool pst_desc_list_has(const char *list, char separator, const char *word)
{
    size_t len = strlen(word);
    while (list && *list) {
        const char *end = strchr(list, separator);
        size_t part = end ? (size_t)(end - list) : strlen(list);
        if (part == len && strncmp(list, word, len) == 0)
            return true;
        list = end ? end + 1 : NULL;
    }
    return false;
}

const char *pst_desc_list_next(const char *list, char separator, char word[PST_NAME_MAX])
{
    if (!list || !*list)
        return NULL;
    const char *end = strchr(list, separator);
    size_t part = end ? (size_t)(end - list) : strlen(list);
    (void)snprintf(word, PST_NAME_MAX, "%.*s", (int)part, list);
    return end ? end + 1 : list + part;
}

bool pst_desc_choice(const struct pst_param_desc *param, int index, char word[PST_NAME_MAX])
{
    const char *at = param->choices;
    for (int i = 0; i <= index; i++)
        if (!(at = pst_desc_list_next(at, '|', word)))
            return false;
    return index >= 0;
}

bool pst_desc_choice_if(const struct pst_param_desc *param, const char **at, char choice[PST_NAME_MAX],
                        char condition[PST_DESC_CONDITION_MAX])
{
    static const char by[] = " if ", next[] = ", ";
    if (!*at || !**at || !param->choices)
        return false;
    const char *begin = strstr(*at, by), *end = strstr(*at, next);
    const size_t length = end ? (size_t)(end - *at) : strlen(*at);
    if (!begin || begin >= *at + length || begin - *at >= PST_NAME_MAX || length >= PST_DESC_CONDITION_MAX)
        return false;
    (void)snprintf(choice, PST_NAME_MAX, "%.*s", (int)(begin - *at), *at);
    begin += strlen(by);
    (void)snprintf(condition, PST_DESC_CONDITION_MAX, "%.*s", (int)(*at + length - begin), begin);
    *at = end ? end + strlen(next) : *at + length;
    return pst_desc_list_has(param->choices, '|', choice);
}

bool pst_desc_at_most(const struct pst_param_desc *param, struct pst_desc_at_most *most)
{
    static const char unless[] = " unless ";
    const char *text = param->at_most, *condition = strstr(text, unless);
    const size_t length = condition ? (size_t)(condition - text) : strlen(text);
    const char *minus = memchr(text, '-', length);
    const size_t whole = minus ? (size_t)(minus - text) : 0, part = minus ? length - whole - 1 : 0;
    const char *behind = condition ? condition + strlen(unless) : "";
    *most = (struct pst_desc_at_most){.whole = ""};
    if (whole == 0 || whole >= PST_NAME_MAX || part == 0 || part >= PST_NAME_MAX || (condition && !*behind) ||
        strlen(behind) >= PST_DESC_CONDITION_MAX)
        return false;
    memcpy(most->whole, text, whole);
    memcpy(most->part, text + length - part, part);
    memcpy(most->unless, behind, strlen(behind));
    return true;
}

bool pst_desc_forwards(const struct pst_port_desc *out, const char *in)
{
    return pst_desc_list_has(out->forwards, ',', in);
}

bool pst_desc_equals(const struct pst_param_desc *param, struct pst_desc_equals *equals)
{
    static const char count[] = "count(";
    const char *at = param->equals;
    *equals = (struct pst_desc_equals){.count = strncmp(at, count, strlen(count)) == 0};
    at += equals->count ? strlen(count) : 0;
    const char *colon = strchr(at, ':'), *with = colon ? strchr(colon, '=') : NULL;
    const char *dot = strchr(at, '.'), *end = colon ? colon : at + strlen(at) - (equals->count ? 1 : 0);
    if (!dot || dot == at || dot + 1 >= end || (equals->count && *end != ')') ||
        (colon && (!with || with == colon + 1 || !with[1])))
        return false;
    if (colon)
        (void)snprintf(equals->mine, sizeof equals->mine, "%.*s", (int)(with - colon - 1), colon + 1);
    if (colon)
        (void)snprintf(equals->theirs, sizeof equals->theirs, "%s", with + 1);
    (void)snprintf(equals->port, sizeof equals->port, "%.*s", (int)(dot - at), at);
    (void)snprintf(equals->param, sizeof equals->param, "%.*s", (int)(end - dot - 1), dot + 1);
    return true;
}

/* ---- checking -------------------------------------------------------------------------------- */

static bool good_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= PST_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-')
            return false;
    return true;
}

static pst_rc check_condition(const struct pst_stage_desc *desc, const char *file, const char *what,
                              const char *name, const char *member, const char *condition)
{
    char why[200];
    if (!condition || pst_condition_check(condition, desc, why))
        return PST_OK;
    return pst_fail(PST_E_FORMAT, "%s: %s %s: %s: %s", file, what, name, member, why);
}

/* Each kind of memory is known, and so are the parameters that it depends on. */
static pst_rc check_memory(const struct pst_stage_desc *desc, const char *file,
                           const struct pst_port_desc *port)
{
    static const char by[] = " if ";
    char item[1024];
    for (const char *at = port->memory; *at; at += strcspn(at, ","), at += *at == ',') {
        (void)snprintf(item, sizeof item, "%.*s", (int)strcspn(at, ","), at);
        char *condition = strstr(item, by);
        if (condition)
            *condition = '\0';
        if (!pst_desc_list_has("cpu,pinned,cuda", ',', item))
            return pst_fail(PST_E_FORMAT, "%s: port %s: memory: expected cpu, pinned or cuda, found \"%s\"",
                            file, port->name, item);
        pst_rc rc = check_condition(desc, file, "port", port->name, "memory",
                                    condition ? condition + strlen(by) : NULL);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

static pst_rc check_forwards(const struct pst_stage_desc *desc, const char *file,
                             const struct pst_port_desc *port)
{
    char in[PST_NAME_MAX];
    if (port->forwards && port->dir == PST_IN)
        return pst_fail(PST_E_FORMAT, "%s: port %s: an input cannot forward slots; only outputs can", file,
                        port->name);
    for (const char *at = port->forwards; (at = pst_desc_list_next(at, ',', in));) {
        int k = pst_desc_port(desc, in);
        if (k < 0 || desc->ports[k].dir != PST_IN)
            return pst_fail(PST_E_FORMAT, "%s: port %s forwards the slots of %s, which is not an input", file,
                            port->name, in);
    }
    return PST_OK;
}

static pst_rc check_requests(const char *file, const struct pst_port_desc *port)
{
    const bool of_in = port->requests == PST_REQUESTS_SERVES || port->requests == PST_REQUESTS_NEEDS;
    const bool of_out = port->requests == PST_REQUESTS_MAKES || port->requests == PST_REQUESTS_COPIES;
    if (port->requests == PST_REQUESTS_PASS || (port->dir == PST_IN ? of_in : of_out))
        return PST_OK;
    const char *end = of_in ? "input" : "output";
    if (of_in || of_out)
        return pst_fail(PST_E_FORMAT, "%s: port %s: requests: only an %s can have this value", file,
                        port->name, end);
    return pst_fail(PST_E_FORMAT,
                    "%s: port %s: requests: found the value %d; expected one of the constants in stage.h",
                    file, port->name, (int)port->requests);
}

static pst_rc check_port(const struct pst_stage_desc *desc, const char *file, int i)
{
    const struct pst_port_desc *port = &desc->ports[i];
    if (!good_name(port->name) || pst_desc_port(desc, port->name) != i)
        return pst_fail(PST_E_FORMAT, "%s: the name of port %d is invalid, or another port has it", file, i);
    if (!port->type || !port->help || !port->memory)
        return pst_fail(PST_E_FORMAT, "%s: port %s must have type, memory and help", file, port->name);
    const struct pst_param_desc *hold = port->hold_param ? pst_desc_param(desc, port->hold_param) : NULL;
    if (port->hold_param && (!hold || hold->type != PST_PARAM_INT))
        return pst_fail(PST_E_FORMAT, "%s: port %s: hold_param: the stage has no integer parameter %s", file,
                        port->name, port->hold_param);
    if (port->near_if && (port->dir == PST_IN || !(port->flags & PST_PORT_ONESHOT)))
        return pst_fail(PST_E_FORMAT, "%s: port %s: near_if: only a one-shot output can have it", file,
                        port->name);
    if ((port->flags & PST_PORT_IN_PLACE) ? port->dir == PST_OUT : port->in_place_if != NULL)
        return pst_fail(PST_E_FORMAT,
                        "%s: port %s: in_place: only an input can have it, and only with it in_place_if",
                        file, port->name);
    pst_rc rc = check_forwards(desc, file, port);
    if (rc == PST_OK)
        rc = check_requests(file, port);
    if (rc == PST_OK)
        rc = check_memory(desc, file, port);
    if (rc == PST_OK)
        rc = check_condition(desc, file, "port", port->name, "splits_if", port->splits_if);
    if (rc == PST_OK)
        rc = check_condition(desc, file, "port", port->name, "whole_if", port->whole_if);
    if (rc == PST_OK)
        rc = check_condition(desc, file, "port", port->name, "in_place_if", port->in_place_if);
    return rc == PST_OK ? check_condition(desc, file, "port", port->name, "near_if", port->near_if) : rc;
}

static pst_rc check_equals(const struct pst_stage_desc *desc, const char *file,
                           const struct pst_param_desc *param)
{
    struct pst_desc_equals equals;
    if (!param->equals)
        return PST_OK;
    if (!pst_desc_equals(param, &equals))
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: equals: expected PORT.PARAM, count(PORT.PARAM) or "
                        "PORT.PARAM:VALUE=VALUE, found "
                        "\"%s\"",
                        file, param->name, param->equals);
    if (pst_desc_port(desc, equals.port) < 0)
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: equals: the stage has no port %s", file, param->name,
                        equals.port);
    return PST_OK;
}

static bool is_other_int(const struct pst_stage_desc *desc, const struct pst_param_desc *param,
                         const char *name)
{
    const struct pst_param_desc *other = pst_desc_param(desc, name);
    return other && other->type == PST_PARAM_INT && other != param;
}

static pst_rc check_at_most(const struct pst_stage_desc *desc, const char *file,
                            const struct pst_param_desc *param)
{
    struct pst_desc_at_most most;
    if (!param->at_most)
        return PST_OK;
    if (!pst_desc_at_most(param, &most))
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: at_most: expected PARAM-PARAM, and then perhaps \" unless "
                        "CONDITION\", found \"%s\"",
                        file, param->name, param->at_most);
    if (!is_other_int(desc, param, most.whole) || !is_other_int(desc, param, most.part))
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: at_most: the stage has no other int parameter %s",
                        file, param->name, is_other_int(desc, param, most.whole) ? most.part : most.whole);
    return check_condition(desc, file, "parameter", param->name, "at_most",
                           most.unless[0] ? most.unless : NULL);
}

/* What only an int parameter has. */
static pst_rc check_number(const struct pst_stage_desc *desc, const char *file,
                           const struct pst_param_desc *param)
{
    if ((param->below || param->at_most || param->even_if) && param->type != PST_PARAM_INT)
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: only an int parameter can have below, at_most or even_if", file,
                        param->name);
    if (param->below && !is_other_int(desc, param, param->below))
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: below: the stage has no other int parameter %s",
                        file, param->name, param->below);
    const pst_rc rc = check_at_most(desc, file, param);
    return rc == PST_OK ? check_condition(desc, file, "parameter", param->name, "even_if", param->even_if)
                        : rc;
}

static pst_rc check_param(const struct pst_stage_desc *desc, const char *file, int i)
{
    const struct pst_param_desc *param = &desc->params[i];
    if (!good_name(param->name) || pst_desc_param(desc, param->name) != param || !param->help)
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %d has an invalid name or no help, or another parameter has its name",
                        file, i);
    if (param->type < PST_PARAM_BOOL || param->type > PST_PARAM_NAMED_INTS ||
        (param->type == PST_PARAM_ENUM && !param->choices))
        return pst_fail(
            PST_E_FORMAT,
            "%s: parameter %s has an invalid type, or its type is a choice and no choices are listed", file,
            param->name);
    if (param->automatic && param->type != PST_PARAM_INT && param->type != PST_PARAM_BYTES)
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: only an int or bytes parameter can be automatic",
                        file, param->name);
    if (param->divided && (param->type != PST_PARAM_INT || param->min < 1 || param->max < param->min))
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: only an int parameter with a min of at least 1 and a max can have "
                        "divided = true",
                        file, param->name);
    if (param->needed_if && param->type != PST_PARAM_STRING)
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: only a string parameter can have needed_if", file,
                        param->name);
    if (param->alone && !param->needed_if)
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: only a parameter with needed_if can have alone = true", file,
                        param->name);
    char choice[PST_NAME_MAX];
    if (param->counted > 0 && (!param->fixed || !pst_desc_choice(param, param->counted - 1, choice)))
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: counted is %d: expected 1 + the index of a choice of a fixed "
                        "parameter, or 0",
                        file, param->name, param->counted);
    if (param->only_if && !param->def)
        return pst_fail(PST_E_FORMAT, "%s: parameter %s: a parameter with only_if must have a default", file,
                        param->name);
    char condition[PST_DESC_CONDITION_MAX];
    for (const char *at = param->choice_if; at && *at;)
        if (!pst_desc_choice_if(param, &at, choice, condition))
            return pst_fail(
                PST_E_FORMAT,
                "%s: parameter %s: choice_if: expected \"CHOICE if CONDITION\" with one of the choices", file,
                param->name);
    if (param->path > PST_PATH_MACHINE || (param->path && param->type != PST_PARAM_STRING))
        return pst_fail(
            PST_E_FORMAT,
            "%s: parameter %s: path must be a constant of stage.h, and only a string parameter can have path",
            file, param->name);
    pst_rc rc = check_condition(desc, file, "parameter", param->name, "needed_if", param->needed_if);
    if (rc == PST_OK && param->type != PST_PARAM_NAMED_INTS) /* its parameter may be lacking */
        rc = check_condition(desc, file, "parameter", param->name, "only_if", param->only_if);
    if (rc == PST_OK)
        rc = check_number(desc, file, param);
    if (rc == PST_OK)
        rc = check_equals(desc, file, param);
    if (rc == PST_OK)
        rc = pst_desc_check_into(desc, file, param);
    if (rc != PST_OK || !param->def)
        return rc;
    char why[PST_DESC_WHY_MAX] = "not JSON";
    json_t *def = json_loads(param->def, JSON_DECODE_ANY, NULL), *normal = NULL;
    bool ok = def && pst_desc_value(param, def, &normal, why);
    json_decref(def);
    json_decref(normal);
    return ok ? PST_OK
              : pst_fail(PST_E_FORMAT, "%s: parameter %s: its default is not valid: %s", file, param->name,
                         why);
}

/* features, labels, targets or edges, and :PARAM=VALUE; or split:PARAM:PARAM=VALUE. */
static bool is_conditional(const struct pst_stage_desc *desc, const char *word)
{
    static const char *const parts[] = {"features:", "labels:", "targets:", "edges:"};
    char param[PST_NAME_MAX];
    const char *colon = strchr(word, ':'), *equals = strchr(word, '=');
    bool known = false;
    if (colon && strncmp(word, "split:", 6) == 0) {
        const char *second = strchr(colon + 1, ':');
        (void)snprintf(param, sizeof param, "%.*s", second ? (int)(second - colon - 1) : 0, colon + 1);
        known = second && pst_desc_param(desc, param) != NULL;
        colon = second;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        known |= strncmp(word, parts[i], strlen(parts[i])) == 0;
    if (!known || !colon || !equals || equals < colon || equals[1] == '\0')
        return false;
    (void)snprintf(param, sizeof param, "%.*s", (int)(equals - colon - 1), colon + 1);
    return pst_desc_param(desc, param) != NULL;
}

static pst_rc check_dataset(const struct pst_stage_desc *desc, const char *file)
{
    static const char *const prefixes[] = {"split:", "vertices:", "evaluated:", "relations:", "lists:"};
    char word[PST_NAME_MAX];
    for (const char *at = desc->dataset; (at = pst_desc_list_next(at, ',', word));) {
        if (strcmp(word, "features") == 0 || strcmp(word, "labels") == 0 || strcmp(word, "targets") == 0 ||
            strcmp(word, "edges") == 0 || strcmp(word, "triples") == 0 || strcmp(word, "types") == 0 ||
            strcmp(word, "parts") == 0 || strcmp(word, "lists") == 0)
            continue;
        bool known = is_conditional(desc, word);
        for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
            known |= strncmp(word, prefixes[i], strlen(prefixes[i])) == 0 &&
                     pst_desc_param(desc, word + strlen(prefixes[i])) != NULL;
        if (!known)
            return pst_fail(
                PST_E_FORMAT,
                "%s: dataset: expected features, labels, targets, edges or split:PARAM, which can be "
                "followed by :PARAM=VALUE; or triples, types, parts, lists, lists:PARAM, vertices:PARAM, "
                "evaluated:PARAM or relations:PARAM (PARAM: the name of a parameter), found \"%s\"",
                file, word);
    }
    return PST_OK;
}

pst_rc pst_desc_check(const struct pst_stage_desc *desc, const char *file)
{
    if (desc->abi != PST_STAGE_ABI)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s was built for version %u of the stage interface, but this Penstock uses version "
                        "%d: build the stage again, or update its description",
                        file, desc->abi, PST_STAGE_ABI);
    if (!good_name(desc->name) || !desc->help)
        return pst_fail(PST_E_FORMAT, "%s: the stage's description must have name and help", file);
    if (desc->instances_max < 0 || desc->instances_max > PST_INSTANCES_MAX)
        return pst_fail(PST_E_FORMAT, "%s: instances_max: expected 0 to %d, found %d", file,
                        PST_INSTANCES_MAX, desc->instances_max);
    if (desc->replicas < PST_REPLICAS_NONE || desc->replicas > PST_REPLICAS_MEET ||
        (desc->replicas == PST_REPLICAS_MEET && desc->instances_max != 1))
        return pst_fail(PST_E_FORMAT,
                        "%s: replicas: expected a constant PST_REPLICAS_... of stage.h; with "
                        "PST_REPLICAS_MEET, instances_max must be 1",
                        file);
    pst_rc rc = check_dataset(desc, file);
    for (int i = 0; desc->params && desc->params[i].name && rc == PST_OK; i++)
        rc = i < PST_PARAMS_MAX ? check_param(desc, file, i)
                                : pst_fail(PST_E_LIMIT, "%s: too many parameters: at most %d are allowed",
                                           file, PST_PARAMS_MAX);
    int ports = pst_desc_ports(desc);
    if (rc == PST_OK && ports > PST_PORTS_MAX)
        rc = pst_fail(PST_E_LIMIT, "%s: %d ports; at most %d are allowed", file, ports, PST_PORTS_MAX);
    for (int i = 0; i < ports && rc == PST_OK; i++)
        rc = check_port(desc, file, i);
    return rc;
}
