/* value.c: values of parameters against their descriptions. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/json/diag.h"

#define BYTES_MAX 9e18 /* fits int64_t */
#define CHOICES_MAX 32 /* of one parameter; more are only not suggested */

const char *pst_desc_type_name(enum pst_param_type type)
{
    static const char *const names[] = {"bool", "int",   "real", "string",
                                        "enum", "bytes", "ints", "named_ints"};
    return names[type];
}

/* "expected EXPECTED, found VALUE" */
static bool refuse(char why[PST_DESC_WHY_MAX], const char *expected, const json_t *found)
{
    char *text = json_dumps(found, JSON_ENCODE_ANY);
    (void)snprintf(why, PST_DESC_WHY_MAX, "expected %.150s, found %.70s", expected,
                   text ? text : "something else");
    free(text);
    return false;
}

/* "64MiB": digits, perhaps a fraction, a unit. No sign, no blanks, no exponent. */
static bool parse_bytes(const char *text, double *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                 {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    size_t whole = strspn(text, "0123456789"), point = text[whole] == '.';
    size_t fraction = point ? strspn(text + whole + 1, "0123456789") : 0;
    if (whole == 0 || whole > 18 || (point && fraction == 0))
        return false;
    double value = strtod(text, NULL);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text + whole + point + fraction, units[i].suffix) == 0) {
            *out = value * units[i].factor;
            return *out <= BYTES_MAX && *out == floor(*out);
        }
    return false;
}

static bool in_range(const struct pst_param_desc *param, double value)
{
    return isfinite(value) &&
           ((param->min == 0 && param->max == 0) || (value >= param->min && value <= param->max));
}

/* "an integer" becomes "an integer from 1 to 9". */
static const char *ranged(const struct pst_param_desc *param, const char *what, char out[PST_DESC_WHY_MAX])
{
    const char *or_auto = param->automatic ? " or \"auto\"" : "";
    if (param->min == 0 && param->max == 0)
        (void)snprintf(out, PST_DESC_WHY_MAX, "%s%s", what, or_auto);
    else
        (void)snprintf(out, PST_DESC_WHY_MAX, "%s from %.15g to %.15g%s", what, param->min, param->max,
                       or_auto);
    return out;
}

static bool is_power_of_two(json_int_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static bool check_bytes(const struct pst_param_desc *param, const json_t *value, json_t **out,
                        char why[PST_DESC_WHY_MAX])
{
    char expected[PST_DESC_WHY_MAX];
    double bytes = -1;
    bool ok =
        json_is_integer(value) || (json_is_string(value) && parse_bytes(json_string_value(value), &bytes));
    if (!ok)
        return refuse(why,
                      param->automatic ? "\"auto\", or a size, for example 4096 or \"64MiB\""
                                       : "a size, for example 4096 or \"64MiB\"",
                      value);
    if (json_is_integer(value))
        bytes = (double)json_integer_value(value);
    if (bytes < 0 || !in_range(param, bytes))
        return refuse(why, ranged(param, "a size", expected), value);
    *out = json_is_integer(value) ? json_integer(json_integer_value(value)) : json_integer((json_int_t)bytes);
    return *out != NULL;
}

static bool check_ints(const struct pst_param_desc *param, const json_t *value, char why[PST_DESC_WHY_MAX])
{
    if (!json_is_array(value))
        return refuse(why, "a list of integers, for example [10, 5]", value);
    size_t n = json_array_size(value), i;
    if ((param->count_min != 0 || param->count_max != 0) && (n < param->count_min || n > param->count_max)) {
        (void)snprintf(why, PST_DESC_WHY_MAX, "expected a list of %zu to %zu integers, found %zu",
                       param->count_min, param->count_max, n);
        return false;
    }
    json_t *item;
    json_array_foreach(value, i, item)
    {
        char expected[PST_DESC_WHY_MAX], what[48];
        (void)snprintf(what, sizeof what, "element %zu to be an integer", i);
        if (!json_is_integer(item) || !in_range(param, (double)json_integer_value(item)))
            return refuse(why, ranged(param, what, expected), item);
    }
    return true;
}

/* [{"a": 10, "b": 5}, {"a": 3, "*": 1}], an object for each place, as lists by name (a new reference). A name
 * that an object lacks has the number of its "*". */
static json_t *lists_by_name(const json_t *places, char why[PST_DESC_WHY_MAX])
{
    json_t *named = json_object(), *place, *list;
    const char *name;
    size_t i;
    json_array_foreach(places, i, place)
    {
        json_t *unused;
        if (!json_is_object(place)) {
            (void)refuse(why, "only integers in the list, or only objects", places);
            goto fail;
        }
        json_object_foreach(place, name, unused)
        {
            if (json_object_get(named, name) == NULL)
                (void)json_object_set_new(named, name, json_array());
        }
    }
    json_object_foreach(named, name, list)
    {
        json_array_foreach(places, i, place)
        {
            json_t *number = json_object_get(place, name);
            number = number ? number : json_object_get(place, "*");
            if (number == NULL) {
                (void)snprintf(
                    why, PST_DESC_WHY_MAX,
                    "element %zu has no number for \"%.80s\", which another element names, and none "
                    "for \"*\", which stands for all others",
                    i, name);
                goto fail;
            }
            (void)json_array_append(list, number);
        }
    }
    return named;
fail:
    json_decref(named);
    return NULL;
}

/* Lists of equal length by name. */
static bool check_named(const struct pst_param_desc *param, const json_t *named, char why[PST_DESC_WHY_MAX])
{
    const char *name, *first = NULL;
    size_t count = 0;
    json_t *list;
    if (json_object_size(named) == 0 || json_object_size(named) > PST_NAMED_INTS_MAX) {
        (void)snprintf(why, PST_DESC_WHY_MAX, "expected 1 to %d names, found %zu", PST_NAMED_INTS_MAX,
                       json_object_size(named));
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)named, name, list)
    {
        char inner[PST_DESC_WHY_MAX];
        if (!check_ints(param, list, inner)) {
            (void)snprintf(why, PST_DESC_WHY_MAX, "\"%.60s\": %.180s", name, inner);
            return false;
        }
        if (first != NULL && json_array_size(list) != count) {
            (void)snprintf(why, PST_DESC_WHY_MAX,
                           "\"%.80s\" has %zu numbers, but \"%.80s\" has %zu: the lists must be equally long",
                           first, count, name, json_array_size(list));
            return false;
        }
        first = first ? first : name;
        count = json_array_size(list);
    }
    return true;
}

static bool check_named_ints(const struct pst_param_desc *param, const json_t *value, json_t **out,
                             char why[PST_DESC_WHY_MAX])
{
    const bool places = json_is_array(value) && json_is_object(json_array_get(value, 0));
    if (!places && !json_is_object(value) && !json_is_array(value))
        return refuse(why, "a list of integers, or an object of such lists by name", value);
    json_t *normal = places ? lists_by_name(value, why) : json_deep_copy(value);
    if (normal != NULL &&
        (json_is_object(normal) ? check_named(param, normal, why) : check_ints(param, normal, why)))
        *out = normal;
    else
        json_decref(normal);
    return *out != NULL;
}

static bool check_choice(const struct pst_param_desc *param, const json_t *value, char why[PST_DESC_WHY_MAX])
{
    const char *text = json_string_value(value), *known[CHOICES_MAX], *near;
    char words[CHOICES_MAX][PST_NAME_MAX], list[160] = "";
    size_t n = 0, used = 0;
    if (text && pst_desc_list_has(param->choices, '|', text))
        return true;
    for (const char *at = param->choices; n < CHOICES_MAX && (at = pst_desc_list_next(at, '|', words[n]));) {
        known[n] = words[n];
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "", words[n]);
        used = used < sizeof list ? used : sizeof list - 1;
        n++;
    }
    char expected[PST_DESC_WHY_MAX];
    (void)snprintf(expected, sizeof expected, "%s%s", n > 1 ? "one of " : "", list);
    (void)refuse(why, expected, value);
    near = text ? pst_diag_nearest(text, known, n) : NULL;
    size_t end = strlen(why);
    if (near)
        (void)snprintf(why + end, PST_DESC_WHY_MAX - end, "; did you mean %s?", near);
    return false;
}

bool pst_desc_is_auto(const json_t *value)
{
    return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

bool pst_desc_value(const struct pst_param_desc *param, const json_t *value, json_t **out,
                    char why[PST_DESC_WHY_MAX])
{
    char expected[PST_DESC_WHY_MAX];
    bool ok = false;
    *out = NULL;
    why[0] = '\0';
    if (param->automatic && pst_desc_is_auto(value)) {
        *out = json_string(json_string_value(value));
        return *out != NULL;
    }
    switch (param->type) {
    case PST_PARAM_BOOL: ok = json_is_boolean(value) || refuse(why, "true or false", value); break;
    case PST_PARAM_INT:
        ok = (json_is_integer(value) && in_range(param, (double)json_integer_value(value)) &&
              (!param->divided || is_power_of_two(json_integer_value(value)))) ||
             refuse(why, ranged(param, param->divided ? "a power of two" : "an integer", expected), value);
        break;
    case PST_PARAM_REAL:
        ok = (json_is_number(value) && in_range(param, json_number_value(value))) ||
             refuse(why, ranged(param, "a number", expected), value);
        break;
    case PST_PARAM_STRING: ok = json_is_string(value) || refuse(why, "a string", value); break;
    case PST_PARAM_ENUM: ok = check_choice(param, value, why); break;
    case PST_PARAM_BYTES: return check_bytes(param, value, out, why);
    case PST_PARAM_INTS: ok = check_ints(param, value, why); break;
    case PST_PARAM_NAMED_INTS: return check_named_ints(param, value, out, why);
    }
    *out = ok ? json_deep_copy(value) : NULL;
    return *out != NULL;
}
