/* condition.c: parses conditions on parameters, checks them and decides them. */
#include "common/pipeline/desc/condition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"

#define AND " and "
#define TEXT_MAX 256 /* of a parameter's name or of one value */

/* A clause of a condition: "name=value|value". */
struct clause {
    char name[PST_NAME_MAX];
    const char *values; /* up to end */
    const char *end;
};

/* Reads the clause at *at and moves *at behind it and behind " and ". False: malformed. */
static bool next_clause(const char **at, struct clause *clause)
{
    const char *text = *at, *more = strstr(text, AND), *end = more ? more : text + strlen(text);
    const char *equals = memchr(text, '=', (size_t)(end - text));
    if (!equals || equals == text || equals - text >= PST_NAME_MAX || equals + 1 == end ||
        (more && !more[strlen(AND)]))
        return false;
    (void)snprintf(clause->name, sizeof clause->name, "%.*s", (int)(equals - text), text);
    clause->values = equals + 1;
    clause->end = end;
    *at = more ? more + strlen(AND) : end;
    return true;
}

/* Reads the value at *at and moves *at behind it and behind '|'. */
static void next_value(const char **at, const char *end, char value[TEXT_MAX])
{
    const char *bar = memchr(*at, '|', (size_t)(end - *at)), *stop = bar ? bar : end;
    (void)snprintf(value, TEXT_MAX, "%.*s", (int)(stop - *at), *at);
    *at = bar ? bar + 1 : end;
}

static bool is_number(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0';
}

static bool is_equal(const json_t *value, const char *text)
{
    double number;
    if (json_is_string(value))
        return strcmp(json_string_value(value), text) == 0;
    if (json_is_boolean(value))
        return strcmp(text, json_is_true(value) ? "true" : "false") == 0;
    return json_is_number(value) && is_number(text, &number) && json_number_value(value) == number;
}

static bool clause_holds(const struct clause *clause, const json_t *params)
{
    const json_t *value = json_object_get(params, clause->name);
    char text[TEXT_MAX];
    for (const char *at = clause->values; at < clause->end;) {
        next_value(&at, clause->end, text);
        if (is_equal(value, text))
            return true;
    }
    return false;
}

bool pst_condition_missed(const char *condition, const json_t *params, char *text, size_t bytes)
{
    for (const char *at = condition; *at;) {
        const char *begin = at;
        struct clause clause = {.end = at + strlen(at)};
        if (next_clause(&at, &clause) && clause_holds(&clause, params))
            continue;
        (void)snprintf(text, bytes, "%.*s", (int)(clause.end - begin), begin);
        return true;
    }
    return false;
}

bool pst_condition_holds(const char *condition, const json_t *params)
{
    char clause[TEXT_MAX];
    return condition && condition[0] && !pst_condition_missed(condition, params, clause, sizeof clause);
}

/* Could the parameter ever have this value? */
static bool is_possible(const struct pst_param_desc *param, const char *text)
{
    double number;
    switch (param->type) {
    case PST_PARAM_BOOL: return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    case PST_PARAM_ENUM: return pst_desc_list_has(param->choices, '|', text);
    case PST_PARAM_STRING: return true;
    case PST_PARAM_INTS:
    case PST_PARAM_NAMED_INTS: return false;
    default: return is_number(text, &number);
    }
}

bool pst_condition_next(const char **at, char name[PST_NAME_MAX], char values[PST_CONDITION_VALUES_MAX])
{
    struct clause clause;
    if (!**at || !next_clause(at, &clause))
        return false;
    (void)snprintf(name, PST_NAME_MAX, "%s", clause.name);
    (void)snprintf(values, PST_CONDITION_VALUES_MAX, "%.*s", (int)(clause.end - clause.values),
                   clause.values);
    return true;
}

bool pst_condition_check(const char *condition, const struct pst_stage_desc *desc, char why[200])
{
    for (const char *at = condition; *at || at == condition;) {
        struct clause clause;
        char text[TEXT_MAX];
        if (!next_clause(&at, &clause)) {
            (void)snprintf(why, 200,
                           "\"%.100s\" is not a valid condition; expected PARAM=VALUE|VALUE and PARAM=VALUE",
                           condition);
            return false;
        }
        const struct pst_param_desc *param = pst_desc_param(desc, clause.name);
        if (!param) {
            (void)snprintf(why, 200, "\"%.100s\": unknown parameter %s", condition, clause.name);
            return false;
        }
        for (const char *value = clause.values; value < clause.end;) {
            next_value(&value, clause.end, text);
            if (!is_possible(param, text)) {
                (void)snprintf(why, 200, "\"%.80s\": parameter %s cannot have the value \"%.30s\"", condition,
                               clause.name, text);
                return false;
            }
        }
    }
    return true;
}
